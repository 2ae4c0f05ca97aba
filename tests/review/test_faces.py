"""Change requests on every face: HTTP and its client, the command line, and tools for models."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.client import RemoteGraph
from omnigraph.client.branches import AsyncRemoteReviews
from omnigraph.client.remote import RemoteReviews
from omnigraph.errors import (
    InputError,
    NotFound,
    PolicyDenied,
    ReadSetChanged,
    ReviewBlocked,
)
from omnigraph.graph.reviews import Reviews
from omnigraph.mcp.toolbox import ToolAccess, tools_of
from omnigraph.policy import load_policy
from omnigraph.server.config import GraphSpec
from tests.server.live import ADD, TOKENS, Live, new_graph, serving, with_tokens
from tests.support.waiting import until

POLICY = """\
version: 1
groups:
  team: [act-ana, act-bo]
  admins: [act-ana]
protected_branches: [main]
rules:
  - id: team-reads
    allow: { actors: { group: team }, actions: [read, export], branch_scope: any }
  - id: team-edits
    allow: { actors: { group: team }, actions: [change], branch_scope: unprotected }
  - id: team-forks
    allow: { actors: { group: team }, actions: [branch_create], target_branch_scope: unprotected }
  - id: admins-merge
    allow: { actors: { group: admins }, actions: [branch_merge], target_branch_scope: any }
"""
CHECKS = "checks:\n  - { name: nobody_called_cy, query: called_cy }\n"
QUERIES = 'query called_cy { match { $p: Person { name: "cy" } } return { $p.name } }\n'


@pytest.fixture
def spec(tmp_path: Path) -> GraphSpec:
    root = tmp_path / "team.omni"
    graph = new_graph(root)
    graph.create_branch("feature")
    graph.mutate(ADD, {"name": "cy"}, branch="feature")
    queries = tmp_path / "queries"
    queries.mkdir()
    (queries / "checks.yaml").write_text(CHECKS)
    (queries / "people.gq").write_text(QUERIES)
    return GraphSpec("default", str(root), (queries,))


@pytest.fixture
def remote(spec: GraphSpec) -> Iterator[RemoteGraph]:
    with serving(spec, waits=False) as live, og.connect(f"{live.url}/graphs/default") as graph:
        yield graph


@pytest.fixture
def guarded(spec: GraphSpec, tmp_path: Path) -> Iterator[Live]:
    (tmp_path / "policy.yaml").write_text(POLICY)
    ruled = GraphSpec("default", spec.uri, spec.queries, tmp_path / "policy.yaml")
    with serving(ruled, environment=with_tokens(), waits=False, mcp=True) as live:
        yield live


def connect(live: Live, actor: str) -> RemoteGraph:
    return og.connect(live.url, TOKENS[actor], graph="default")


# --- signatures -----------------------------------------------------------------------------------

NOT_SERVED = {"summary", "run_checks", "follow", "check_head"}
"""What a server needs itself."""


def taken(verb: Any) -> list[tuple[str, object, object]]:
    found = inspect.signature(verb).parameters.values()
    return [(each.name, each.kind, each.default) for each in found]


def test_every_verb_of_reviews_is_served_with_the_same_signature():
    verbs = {name for name in vars(Reviews) if not name.startswith("_")} - NOT_SERVED
    for client in (RemoteReviews, AsyncRemoteReviews):
        assert {name for name in vars(client) if not name.startswith("_")} == verbs
        for name in verbs:
            expected = [
                each
                for each in taken(getattr(Reviews, name))
                # Spark and files lie where the graph is open.
                if each[0] not in ("engine", "spark", "checks")
            ]
            assert taken(getattr(client, name)) == expected, name


# --- HTTP -----------------------------------------------------------------------------------------


def test_c_rev_004_a_request_lives_the_same_life_over_http(remote: RemoteGraph, spec: GraphSpec):
    local = og.open(spec.uri)
    review = remote.reviews.open("feature", title="New people", description="two of them")
    # A server runs the checks of a request, some time after it was opened.
    until(lambda: local.reviews.get(review.id).checks)
    assert remote.reviews.get(review.id) == local.reviews.get(review.id)
    said = remote.reviews.comment(review.id, "who?", type_name="Person", entity_id="cy")
    remote.reviews.resolve(review.id, said.comments[0].id)
    remote.reviews.review(review.id, "request_changes", text="no age")
    remote.reviews.edit(review.id, title="One person")
    remote.reviews.report_check(review.id, "lint", "failed", text="bad", rows=[{"n": 1}])
    checked = remote.reviews.check(review.id)
    assert {each.name: each.state for each in checked.checks} == {
        "lint": "failed",
        "nobody_called_cy": "failed",
    }
    remote.reviews.close(review.id)
    assert len(remote.reviews.list()) == 0
    assert remote.reviews.reopen(review.id).state == "open"
    assert remote.reviews.list() == local.reviews.list()
    assert remote.reviews.get(review.id[:18]) == local.reviews.get(review.id)
    assert list(remote.reviews.export()) == list(local.reviews.export())
    here, there = local.reviews.diff(review.id), remote.reviews.diff(review.id)
    assert there.to_dict(images=True) == here.to_dict(images=True)
    assert remote.reviews.diff_page(review.id, limit=1) == local.reviews.diff_page(
        review.id, limit=1
    )
    merged = remote.reviews.merge(review.id, delete_branch=True)
    assert merged.merge.branch_deleted and merged.merge.commit is not None
    assert remote.show_commit(merged.merge.commit.graph_commit_id).change_request is not None
    after = remote.reviews.diff(review.id).to_dict(images=True)
    assert after["changes"] == here.to_dict(images=True)["changes"]
    assert remote.reviews.list(state=None) == local.reviews.list(state=None)
    with pytest.raises(ReviewBlocked) as blocked:
        remote.reviews.merge(review.id)
    assert blocked.value.details["reasons"][0]["code"] == "not_open"


def test_errors_are_those_of_the_embedded_graph(remote: RemoteGraph, spec: GraphSpec):
    local = og.open(spec.uri)
    review = local.reviews.open("feature")
    for attempt in (
        lambda graph: graph.reviews.get("cr-absent"),
        lambda graph: graph.reviews.open("nowhere"),
        lambda graph: graph.reviews.comment(review.id, " "),
        lambda graph: graph.reviews.list(limit=100_000),
        lambda graph: graph.reviews.resolve(review.id, "none"),
    ):
        raised = []
        for graph in (local, remote):
            with pytest.raises(og.errors.OmnigraphError) as caught:
                attempt(graph)
            raised.append((type(caught.value), caught.value.message, caught.value.hint))
        assert raised[0] == raised[1]
    with pytest.raises(InputError, match="its token belongs to"):
        remote.reviews.comment(review.id, "x", actor="act-ana")


def test_the_author_is_the_actor_of_the_token_and_policy_decides(guarded: Live):
    ana, bo = connect(guarded, "act-ana"), connect(guarded, "act-bo")
    stranger = connect(guarded, "act-cy")
    review = bo.reviews.open("feature")
    assert review.author == "act-bo"
    assert bo.reviews.review(review.id, "approve").approvers == ()  # the author's own
    assert ana.reviews.review(review.id, "approve").approvers == ("act-ana",)
    with pytest.raises(PolicyDenied):
        bo.reviews.merge(review.id)
    with pytest.raises(PolicyDenied):
        stranger.reviews.list()
    for attempt in (
        lambda: stranger.reviews.get(review.id),
        lambda: stranger.reviews.comment(review.id, "x"),
        lambda: stranger.reviews.merge(review.id),
    ):
        with pytest.raises(NotFound, match="there is no change request"):
            attempt()
    merged = ana.reviews.merge(review.id)
    assert merged.approvers == ("act-ana",)
    assert merged.merge.actor_id == "act-ana"


def test_a_lost_answer_is_asked_for_again_without_a_second_event(guarded: Live):
    ana = guarded.client("act-ana")
    body = {"source": "feature"}
    first = ana.post("/reviews", json=body, headers={"Idempotency-Key": "k1"}).json()
    again = ana.post("/reviews", json=body, headers={"Idempotency-Key": "k1"}).json()
    assert first["id"] == again["id"]
    assert len(ana.get("/reviews").json()["reviews"]) == 1


# --- the gate of the embedded graph ---------------------------------------------------------------


def test_every_verb_that_says_something_is_decided_by_the_gate(spec: GraphSpec):
    review = og.open(spec.uri).reviews.open("feature", actor="act-bo")
    said = og.open(spec.uri).reviews.comment(review.id, "x", actor="act-bo")
    nothing = load_policy("version: 1\ngroups: {team: [act-ana]}\nrules: []\n")
    graph = og.open(spec.uri, policy=nothing)
    before = list(graph.reviews.export())
    arguments: dict[str, tuple[Any, ...]] = {
        "open": ("feature",),
        "edit": (review.id,),
        "comment": (review.id, "x"),
        "resolve": (review.id, said.comments[0].id),
        "review": (review.id, "approve"),
        "check": (review.id,),
        "report_check": (review.id, "lint", "passed"),
        "merge": (review.id,),
        "close": (review.id,),
        "reopen": (review.id,),
        "run_checks": (review.id, (), None),
    }
    verbs = [name for name in vars(Reviews) if not name.startswith("_")]
    says = {
        name for name in verbs if "actor" in inspect.signature(getattr(Reviews, name)).parameters
    }
    assert says == arguments.keys()
    options = {"check": {"checks": spec.queries[0]}}
    for name, given in arguments.items():
        for actor in ("act-ana", "act-eve"):
            with pytest.raises(PolicyDenied):
                getattr(graph.reviews, name)(*given, actor=actor, **options.get(name, {}))
        with pytest.raises(PolicyDenied, match="needs an actor"):
            getattr(graph.reviews, name)(*given, **options.get(name, {}))
    assert list(graph.reviews.export()) == before


def test_only_the_author_or_who_may_merge_closes_a_request(spec: GraphSpec):
    graph = og.open(spec.uri, policy=load_policy(POLICY))
    review = graph.reviews.open("feature", actor="act-ana")
    with pytest.raises(PolicyDenied):
        graph.reviews.close(review.id, actor="act-bo")
    own = graph.reviews.open("feature", actor="act-bo")
    graph.reviews.close(own.id, actor="act-bo")
    graph.reviews.reopen(own.id, actor="act-ana")


# --- the command line -----------------------------------------------------------------------------


def test_c_rev_004_and_010_the_commands_tell_the_whole_story(
    spec: GraphSpec, capsys: pytest.CaptureFixture[str]
):
    uri = ("--uri", spec.uri, "--quiet")

    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*words, *uri]) == code
        return capsys.readouterr().out

    opened = json.loads(
        run("review", "open", "feature", "--title", "New", "--as", "act-bo", "--json")
    )
    id = opened["id"]
    assert run("review", "list").splitlines()[1].split()[:3] == [id[:17], "open", "New"]
    assert "cy" in run("review", "diff", id)
    run("review", "comment", id, "who?", "--type", "Person", "--entity", "cy", "--as", "act-ana")
    shown = json.loads(run("review", "show", id, "--json"))
    run("review", "resolve", id, shown["comments"][0]["id"])
    run("review", "request-changes", id, "--text", "hm", "--as", "act-ana")
    run("review", "approve", id, "--as", "act-ana")
    run("review", "edit", id, "--description", "about\npeople")
    checked = run("review", "check", id, "--checks", str(spec.queries[0]), code=1)
    assert "nobody_called_cy" in checked and '{"p.name":"cy"}' in checked
    text = run("review", "show", id)
    for word in ("mergeable  clean", "act-ana", "approved", "Person:cy", "(resolved)", "people"):
        assert word in text
    run("review", "close", id)
    assert "no change requests" in run("review", "list")
    run("review", "reopen", id)
    merged = json.loads(run("review", "merge", id, "--delete-branch", "--json"))
    commit = merged["merge"]["commit"]["graph_commit_id"]
    shown_commit = run("commit", "show", commit)
    assert f"{id} New" in shown_commit and "act-ana" in shown_commit
    events = [json.loads(line) for line in run("review", "export").splitlines()]
    assert [event["kind"] for event in events][:2] == ["opened", "commented"]
    assert run("review", "merge", id, code=1) == ""
    assert "merged" in run("review", "list", "--state", "all")


# --- tools ----------------------------------------------------------------------------------------


READING = {"list_reviews", "show_review"}
SAYING = {"open_review", "comment_review"}
DECIDING = {"review_review", "merge_review"}


@pytest.mark.parametrize(
    ("access", "offered"),
    [
        (ToolAccess(), READING),
        (ToolAccess.of(["agent/*"]), READING | SAYING),
        (ToolAccess.of((), reviews=True), READING | SAYING | DECIDING),
    ],
)
def test_c_rev_015_stdio_offers_approval_and_merge_only_if_asked(
    spec: GraphSpec, access: ToolAccess, offered: set[str]
):
    tools = {tool.name: tool for tool in tools_of(og.open(spec.uri), [], access)}
    assert {name for name in tools if "review" in name} == offered
    if "open_review" in tools:
        made = tools["open_review"].run({"source": "feature", "title": "New"})
        tools["comment_review"].run({"id": made["id"], "text": "look"})
        assert tools["show_review"].run({"id": made["id"]})["comments"][0]["text"] == "look"
        assert len(tools["list_reviews"].run({})["reviews"]) == 1
    if "merge_review" in tools:
        tools["review_review"].run({"id": made["id"], "verdict": "approve"})
        assert tools["merge_review"].run({"id": made["id"]})["merge"]["outcome"] == "fast_forward"


def mcp_names(client: Any) -> set[str]:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    listed = client.post("/mcp", json=message).json()["result"]["tools"]
    return {tool["name"] for tool in listed if "review" in tool["name"]}


def use(client: Any, tool: str, /, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    document: dict[str, Any] = client.post("/mcp", json=message).json()
    return document


def test_c_rev_015_a_server_offers_no_approval_or_merge_unless_switched_on(
    guarded: Live, spec: GraphSpec
):
    ana = guarded.client("act-ana")
    assert mcp_names(ana) == READING | SAYING
    made = use(ana, "open_review", source="feature", title="New")["result"]["structuredContent"]
    for tool in DECIDING:
        answer = use(ana, tool, review_id=made["id"], verdict="approve")
        assert answer["error"]["message"] == f"Unknown tool: {tool}"
    shown = use(ana, "show_review", review_id=made["id"])["result"]["structuredContent"]
    assert (shown["state"], shown["author"]) == ("open", "act-ana")
    with serving(spec, waits=False, mcp=True, mcp_review_write=True) as live:
        client = live.client()
        assert mcp_names(client) == READING | SAYING | DECIDING
        merged = use(client, "merge_review", review_id=made["id"])["result"]
        assert merged["structuredContent"]["merge"]["outcome"] == "fast_forward"


def test_a_moved_source_is_the_same_error_over_http(
    remote: RemoteGraph, monkeypatch: pytest.MonkeyPatch
):
    from omnigraph.branching.merge import MergeCondition

    review = remote.reviews.open("feature")

    def moved(*_: object) -> None:
        raise ReadSetChanged("source_head", "a", "b")

    monkeypatch.setattr(MergeCondition, "require_source", moved)
    with pytest.raises(ReadSetChanged) as refused:
        remote.reviews.merge(review.id)
    assert refused.value.details["member"] == "source_head"
