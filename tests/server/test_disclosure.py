"""What an actor may not read stays unread: by writes, errors, hints, receipts and tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from omnigraph.server.auth import TOKENS_JSON
from omnigraph.server.config import GraphSpec
from tests.server.live import ADD, PEOPLE, QUERIES, SCHEMA, TOKENS, Live, new_graph, serving

POLICY = """\
version: 1
groups:
  keepers: [act-ana]
  guests: [act-bo]
  writers: [act-cy]
  mergers: [act-dee]
protected_branches: [secret, vault]
rules:
  - id: keepers-read
    allow: { actors: { group: keepers }, actions: [read, export, change], branch_scope: any }
  - id: keepers-branch
    allow:
      actors: { group: keepers }
      actions: [branch_create, branch_merge, branch_delete]
      target_branch_scope: any
  - id: keepers-call
    allow: { actors: { group: keepers }, actions: [invoke_query] }
  - id: guests-use
    allow:
      actors: { group: guests }
      actions: [read, export, change]
      branch_scope: unprotected
  - id: guests-branch
    allow:
      actors: { group: guests }
      actions: [branch_create, branch_merge]
      target_branch_scope: unprotected
  - id: writers-write
    allow: { actors: { group: writers }, actions: [change], branch_scope: any }
  - id: writers-call
    allow: { actors: { group: writers }, actions: [invoke_query] }
  - id: mergers-read
    allow: { actors: { group: mergers }, actions: [read], branch_scope: unprotected }
  - id: mergers-merge
    allow: { actors: { group: mergers }, actions: [branch_merge], target_branch_scope: any }
"""

UNKNOWN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
MESSAGE = {"jsonrpc": "2.0", "id": 1}


@pytest.fixture(scope="module", params=["version: 1", "version: 2"])
def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    """A graph with a branch `secret` that only act-ana reads; nothing here changes `secret`.

    What both versions of bundles say alike reveals alike.
    """
    folder = tmp_path_factory.mktemp("disclosure")
    graph = new_graph(folder / "team.omni")
    graph.create_branch("secret")
    graph.mutate(ADD, {"name": "hidden"}, branch="secret")
    graph.create_tag("hidden-tag", branch="secret")
    graph.create_tag("open-tag")
    (folder / "policy.yaml").write_text(POLICY.replace("version: 1", request.param))
    (folder / "queries.gq").write_text(QUERIES)
    spec = GraphSpec(
        "default", str(folder / "team.omni"), (folder / "queries.gq",), folder / "policy.yaml"
    )
    tokens = {TOKENS_JSON: orjson.dumps({**TOKENS, "act-dee": "token-of-dee-0004"}).decode()}
    with serving(spec, environment=tokens, mcp=True, mcp_adhoc=True) as live:
        yield live


@pytest.fixture
def secret_commit(live: Live) -> str:
    return live.graph().list_commits("secret")[0].graph_commit_id


def told(answer: httpx.Response, *names: str) -> tuple[int, str]:
    """Status and body of an answer, with a mark in place of the names the caller sent."""
    text = answer.text
    for name in names:
        text = text.replace(name, "*")
    return answer.status_code, text


# --- sources of a write ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/branches", {"name": "mine", "from": "secret"}),
        ("/load", {"data": "", "branch": "mine", "from": "secret"}),
        ("/branches/merge", {"source": "secret", "target": "open"}),
    ],
)
def test_a_write_needs_read_on_the_branch_it_takes_data_from(
    live: Live, path: str, body: dict[str, Any]
):
    bo = live.client("act-bo")
    if "open" not in live.graph().list_branches():
        live.graph().create_branch("open", actor="act-ana")
    denied = bo.post(path, json=body)
    assert denied.status_code == 403
    assert denied.json()["details"] == {
        "action": "read",
        "actor_id": "act-bo",
        "branch": "secret",
    }
    assert "mine" not in live.graph().list_branches()
    rows = bo.post("/query", json={"query": PEOPLE, "branch": "open"}).json()["rows"]
    assert "hidden" not in {row["p.name"] for row in rows}


def test_ndjson_with_from_needs_read_on_the_source(live: Live):
    sent = live.client("act-bo").post(
        "/load/ndjson?branch=mine&from=secret",
        content=b"",
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert sent.status_code == 403 and sent.json()["details"]["branch"] == "secret"
    assert "mine" not in live.graph().list_branches()


@pytest.mark.parametrize("verb", ["cherry-pick", "cherry-pick/plan", "revert", "revert/plan"])
def test_a_commit_of_an_unreadable_branch_is_replayed_like_an_unknown_one(
    live: Live, secret_commit: str, verb: str
):
    bo = live.client("act-bo")
    hidden = bo.post(f"/commits/{secret_commit}/{verb}", json={"branch": "main"})
    absent = bo.post(f"/commits/{UNKNOWN}/{verb}", json={"branch": "main"})
    assert told(hidden, secret_commit) == told(absent, UNKNOWN)
    assert hidden.status_code == 404


# --- denials and hints ----------------------------------------------------------------------------


def test_c_pol_037_a_snapshot_of_an_unreadable_branch_looks_unknown(live: Live, secret_commit: str):
    bo = live.client("act-bo")
    blob = {"entity": "node", "type": "Person", "id": "ada", "property": "photo"}
    for commit, answers in {secret_commit: [], UNKNOWN: []}.items():
        answers += [
            bo.post("/query", json={"query": PEOPLE, "snapshot": commit}),
            bo.post("/export", json={"snapshot": commit}),
            bo.get("/blob", params={**blob, "snapshot": commit}),
            bo.get("/diff", params={"target": "main", "source": commit}),
            bo.get(f"/commits/{commit}/changes"),
        ]
        shown = [told(answer, commit) for answer in answers]
        assert [status for status, _ in shown] == [404] * 5
        assert "secret" not in str(shown)
        if commit == secret_commit:
            hidden = shown
    assert hidden == shown


def test_an_unreadable_branch_and_a_missing_one_are_denied_alike(live: Live):
    bo = live.client("act-bo")
    pairs = []
    for name in ("secret", "vault"):
        answers = [
            bo.get("/diff", params={"target": name, "source": "main"}),
            bo.post("/load", json={"data": "", "branch": name, "from": "main"}),
            bo.post("/load", json={"data": "", "branch": name}),
            bo.post("/query", json={"query": PEOPLE, "branch": name}),
            bo.post("/branches/merge", json={"source": "main", "target": name}),
            bo.post("/branches/merge", json={"source": name, "target": "main"}),
            bo.post("/branches", json={"name": "mine", "from": name}),
        ]
        pairs.append([told(answer, name) for answer in answers])
    assert pairs[0] == pairs[1]
    assert [status for status, _ in pairs[0]] == [403] * 7


def test_a_suggestion_never_names_a_branch_that_the_caller_cannot_list(live: Live):
    bo, ana = live.client("act-bo"), live.client("act-ana")
    for path, body in (
        ("/query", {"query": PEOPLE, "branch": "secre"}),
        ("/mutate", {"query": ADD, "params": {"name": "x"}, "branch": "secre"}),
        ("/load", {"data": "", "branch": "secre"}),
        ("/branches", {"name": "mine", "from": "secre"}),
        ("/branches/merge", {"source": "secre", "target": "main"}),
    ):
        absent = bo.post(path, json=body)
        assert absent.status_code == 404
        assert "`secret`" not in absent.text
    shown = ana.post("/query", json={"query": PEOPLE, "branch": "secre"}).json()
    assert shown["hint"] == "did you mean `secret`?"


def test_a_suggestion_never_names_a_type_to_a_caller_that_reads_nothing(live: Live):
    cy, ana = live.client("act-cy"), live.client("act-ana")
    typo = {"query": 'query q { insert Persn { name: "x" } }'}
    assert "Person" not in cy.post("/mutate", json=typo).text.replace("Persn", "")
    assert "Person" in ana.post("/mutate", json=typo).json()["hint"]


# --- a change without read ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        'query q { update Person set { age: 1 } where name = "ada" }',
        'query q { delete Person where name = "nobody" }',
    ],
)
def test_selecting_rows_to_change_needs_read(live: Live, query: str):
    denied = live.client("act-cy").post("/mutate", json={"query": query})
    assert denied.status_code == 403
    assert denied.json()["details"]["action"] == "read"
    assert live.client("act-ana").post("/mutate", json={"query": query}).status_code == 200


def test_receipts_of_a_caller_without_read_are_the_same_whatever_is_there(live: Live):
    cy = live.client("act-cy")
    for body in ({"query": ADD, "params": {"name": "%s"}}, {"expect": "stored"}):
        shown = []
        for name in ("ada", "somebody-new"):
            if "query" in body:
                answer = cy.post("/mutate", json={"query": ADD, "params": {"name": name}})
            else:
                answer = cy.post("/queries/sign_up", json={"params": {"name": name}})
            assert answer.status_code == 200
            shown.append(told(answer, name))
        assert shown[0] == shown[1]
        document = answer.json()
        assert document["withheld"] is True and document["commit"] is None
        assert (document["affected_nodes"], document["affected_edges"]) == (0, 0)
    for options in ({"mode": "merge"}, {"mode": "append", "on_error": "skip"}):
        loaded = []
        for name in ("bo", f"another-new-{options['mode']}"):
            record = f'{{"type": "Person", "data": {{"name": "{name}"}}}}\n'
            answer = cy.post("/load", json={"data": record, **options})
            assert answer.status_code == 200
            document = answer.json()
            document.pop("stages")
            loaded.append(document)
        assert loaded[0] == loaded[1]
        assert loaded[0]["withheld"] is True and loaded[0]["commit"] is None


def test_errors_of_a_caller_without_read_show_no_row(live: Live):
    cy, ana = live.client("act-cy"), live.client("act-ana")
    existing = '{"type": "Person", "data": {"name": "ada"}}\n'
    dangling = '{"edge": "Knows", "from": "ada", "to": "ghost", "data": {}}\n'
    for data, mode in ((existing, "append"), (dangling, "append")):
        body = {"data": data, "mode": mode}
        refused, explained = cy.post("/load", json=body), ana.post("/load", json=body)
        assert refused.status_code == explained.status_code
        assert "ada" not in refused.text and "ghost" not in refused.text
        assert "ada" in explained.text or "ghost" in explained.text
        assert "problems" not in refused.text
    stale = {"Omnigraph-If-Graph-Commit": UNKNOWN}
    change = {"query": ADD, "params": {"name": "x"}}
    failed = cy.post("/mutate/if-graph-commit", json=change, headers=stale)
    assert failed.status_code == 412
    assert failed.json()["precondition_failure"] == {"expected": UNKNOWN}


def test_data_that_breaks_an_applied_constraint_is_not_shown_to_a_caller_without_read(
    tmp_path: Path,
):
    new_graph(tmp_path / "team.omni")
    rule = "actions: [schema_apply], target_branch_scope: any"
    (tmp_path / "policy.yaml").write_text(
        f"{POLICY}  - id: writers-apply\n    allow: {{ actors: {{ group: writers }}, {rule} }}\n"
        f"  - id: keepers-apply\n    allow: {{ actors: {{ group: keepers }}, {rule} }}\n"
    )
    spec = GraphSpec("default", str(tmp_path / "team.omni"), (), tmp_path / "policy.yaml")
    tokens = {TOKENS_JSON: orjson.dumps(TOKENS).decode()}
    body = {"schema_source": SCHEMA.replace("age: I32?", "age: I32? @range(age, 0..40)")}
    with serving(spec, environment=tokens) as own:
        cy, ana = own.client("act-cy"), own.client("act-ana")
        refused, explained = (each.post("/schema/apply", json=body) for each in (cy, ana))
    assert refused.status_code == explained.status_code == 400
    assert refused.json()["error_code"] == explained.json()["error_code"]
    assert "value 41 > max 40" in explained.text and "'bo'" in explained.text
    assert "41" not in refused.text and "problems" not in refused.text


def test_conflicts_of_a_merge_are_not_listed_to_a_caller_that_cannot_read_the_target(
    live: Live,
):
    graph = live.graph()
    set_age = 'query q($age: I32) { update Person set { age: $age } where name = "ada" }'
    graph.create_branch("fork", actor="act-ana")
    graph.mutate(set_age, {"age": 50}, branch="fork", actor="act-ana")
    graph.mutate(set_age, {"age": 60}, branch="secret", actor="act-ana")
    merge = {"source": "fork", "target": "secret"}
    explained = live.client("act-ana").post("/branches/merge", json=merge)
    assert (explained.status_code, "ada" in explained.text) == (409, True)
    dee = live.client()
    dee.headers["Authorization"] = "Bearer token-of-dee-0004"
    refused = dee.post("/branches/merge", json=merge)
    assert refused.status_code == 409
    assert refused.json() == {
        "error": "the write does not fit what the branch holds",
        "code": "conflict",
        "error_code": "conflict",
        "hint": "what stands in the way is shown to callers that may `read` the branch",
        "outcome": "not_begun",
    }


# --- tools ----------------------------------------------------------------------------------------


def tools(client: httpx.Client) -> set[str]:
    listed = client.post("/mcp", json={**MESSAGE, "method": "tools/list"}).json()
    return {tool["name"] for tool in listed["result"]["tools"]}


def test_tools_list_shows_what_may_be_called(live: Live):
    assert tools(live.client("act-cy")) == {"graph_load", "graph_mutate", "sign_up"}
    guest = tools(live.client("act-bo"))
    assert {"graph_query", "graph_branch_create", "graph_branch_merge", "graph_load"} <= guest
    assert guest.isdisjoint(
        {"graph_schema", "graph_branches", "graph_commit", "graph_branch_delete", "everybody"}
    )
    keeper = tools(live.client("act-ana"))
    assert {"graph_schema", "graph_branch_delete", "everybody", "sign_up"} <= keeper
    assert "graph_schema_apply" not in keeper


@pytest.mark.parametrize("arguments", [{}, {"branch": "x"}, {"surplus": 1}])
def test_a_tool_that_is_not_listed_is_unknown_whatever_its_arguments(
    live: Live, arguments: dict[str, Any]
):
    bo = live.client("act-bo")
    answers = []
    for name in ("graph_branch_delete", "no_such_tool"):
        call = {"method": "tools/call", "params": {"name": name, "arguments": arguments}}
        answers.append(told(bo.post("/mcp", json={**MESSAGE, **call}), name))
    assert answers[0] == answers[1]


def test_tools_of_the_server_are_listed_by_its_policy(live: Live):
    client = live.client("act-ana", graph_id=None)
    assert tools(client) == {"server_health"}


# --- revisions and tags ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("revision", "unknown"),
    [
        ("secret", "nobody"),
        ("secret~0", "nobody~0"),
        ("hidden-tag", "no-tag"),
        ("secret@2100-01-01T00:00:00Z", "nobody@2100-01-01T00:00:00Z"),
        ("prefix", "7ZZZZZZZZZ"),
    ],
)
def test_a_commit_that_the_caller_may_not_read_is_found_by_no_name(
    live: Live, secret_commit: str, revision: str, unknown: str
):
    wanted = secret_commit[:25] if revision == "prefix" else revision
    ana, bo = live.client("act-ana"), live.client("act-bo")
    asked = {"query": PEOPLE, "snapshot": wanted}
    shown = ana.post("/query", json=asked).json()["graph_commit_id"]
    assert revision == "hidden-tag" or shown == secret_commit

    def answers(name: str) -> list[tuple[int, str]]:
        sent = (name, name.partition("~")[0].partition("@")[0])
        requests = [
            bo.post("/query", json={"query": PEOPLE, "snapshot": name}),
            bo.post("/export", json={"snapshot": name}),
            bo.get(f"/commits/{name}/changes"),
            bo.post(f"/commits/{name}/revert"),
        ]
        if not name.startswith(("secret", "nobody")):  # a branch is decided about by its name
            requests.append(bo.post("/branches", json={"name": "mine", "from": name}))
            requests.append(bo.get("/diff", params={"target": "main", "source": name}))
        return [told(answer, *sent) for answer in requests]

    refused = answers(wanted)
    assert refused == answers(unknown)
    assert all(status == 404 and secret_commit not in text for status, text in refused), refused


def test_candidates_and_tags_are_for_callers_that_may_read_them(live: Live, secret_commit: str):
    ana, bo = live.client("act-ana"), live.client("act-bo")
    asked = {"query": PEOPLE, "snapshot": secret_commit[:4]}
    assert secret_commit in ana.post("/query", json=asked).json()["details"]["candidates"]
    hidden = bo.post("/query", json=asked).json()
    assert hidden["details"]["candidates"] == [] and "hint" not in hidden
    assert [tag["name"] for tag in ana.get("/tags").json()["tags"]] == ["hidden-tag", "open-tag"]
    for attempt in (
        bo.get("/tags"),
        bo.post("/tags", json={"name": "mine"}),
        bo.delete("/tags/open-tag"),
        bo.delete("/tags/no-such"),
    ):
        assert attempt.status_code == 403
