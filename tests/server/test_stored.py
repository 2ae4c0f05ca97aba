"""Stored queries: the catalog and calling them."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from omnigraph.errors import InputError
from omnigraph.server.config import GraphSpec, ServerConfig
from omnigraph.server.generation import build
from omnigraph.wire.requests import ARROW_STREAM, IF_GRAPH_COMMIT
from tests.server.live import PATIENCE_SECONDS, SCHEMA, Live, new_graph, serving, with_tokens

JSON = {"Content-Type": "application/json"}


def without_id(answer: httpx.Response) -> tuple[int, bytes, list[tuple[str, str]]]:
    """An answer without what is different in any two."""
    headers = [pair for pair in answer.headers.items() if pair[0] not in ("date", "x-request-id")]
    return answer.status_code, answer.content, headers


@pytest.mark.parametrize("tail", ["", "/if-graph-commit"])
def test_c_srv_022_c_pol_033_a_denied_and_an_unknown_stored_query_are_identical(
    guarded: Live, tail: str
):
    headers = {IF_GRAPH_COMMIT: "01K9WR3C5T8M2B7XQ4ZJ6V0NHD"} if tail else {}
    ana, bo = guarded.client("act-ana"), guarded.client("act-bo")
    denied = bo.post(f"/queries/sign_up{tail}", json={}, headers=headers)
    unknown = bo.post(f"/queries/no_such_query{tail}", json={}, headers=headers)
    assert without_id(denied) == without_id(unknown)
    assert (denied.status_code, denied.json()["error"]) == (404, "stored query not found")
    assert without_id(ana.post(f"/queries/no_such_query{tail}", json={}, headers=headers)) == (
        without_id(unknown)
    )
    no_token = guarded.client().post(f"/queries/sign_up{tail}", json={}, headers=headers)
    assert no_token.status_code == 401


def test_c_srv_023_a_stored_mutation_without_change_is_403(spec: GraphSpec, tmp_path: Path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "version: 1\n"
        "groups: { callers: [act-bo] }\n"
        "rules:\n"
        "  - id: calls\n"
        "    allow: { actors: { group: callers }, actions: [invoke_query] }\n"
    )
    ruled = GraphSpec("default", spec.uri, spec.queries, policy)
    with serving(ruled, environment=with_tokens()) as live:
        bo = live.client("act-bo")
        before = len(live.graph().list_commits())
        write = bo.post("/queries/sign_up", json={"params": {"name": "cy"}})
        assert (write.status_code, write.json()["code"]) == (403, "forbidden")
        assert len(live.graph().list_commits()) == before


def test_c_pol_034_who_may_call_and_not_read_gets_403_for_a_stored_read(
    spec: GraphSpec, tmp_path: Path
):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "version: 1\n"
        "groups: { callers: [act-bo], readers: [act-ana] }\n"
        "rules:\n"
        "  - id: calls\n"
        "    allow: { actors: { group: callers }, actions: [invoke_query] }\n"
        "  - id: readers-call\n"
        "    allow: { actors: { group: readers }, actions: [invoke_query] }\n"
        "  - id: reads\n"
        "    allow: { actors: { group: readers }, actions: [read], branch_scope: any }\n"
    )
    ruled = GraphSpec("default", spec.uri, spec.queries, policy)
    with serving(ruled, environment=with_tokens()) as live:
        bo = live.client("act-bo")
        existing = bo.post("/queries/everybody")
        assert (existing.status_code, existing.json()["code"]) == (403, "forbidden")
        # It is the inner right that is missing: a name that does not exist is still a 404.
        assert bo.post("/queries/no_such_query").status_code == 404
        assert live.client("act-ana").post("/queries/everybody").json()["row_count"] == 2


@pytest.mark.parametrize("body", [None, b"", b" ", b"{}", b"null"])
def test_c_srv_024_an_invocation_needs_no_body(open_server: Live, body: bytes | None):
    graph = open_server.client()
    answer = graph.post("/queries/everybody", content=body, headers=JSON)
    assert answer.status_code == 200
    assert answer.json()["rows"] == [{"p.name": "ada"}, {"p.name": "bo"}]
    assert answer.json()["graph_commit_id"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"1", b'{"parameters": {}}'])
def test_c_srv_024_a_bad_body_is_400(open_server: Live, body: bytes):
    graph = open_server.client()
    assert graph.post("/queries/everybody", content=body, headers=JSON).status_code == 400


def test_c_srv_025_a_disagreeing_expectation_names_the_verb(open_server: Live):
    graph = open_server.client()
    read = graph.post("/queries/everybody", json={"expect_mutation": True})
    assert read.status_code == 400 and "`query`" in read.json()["hint"]
    write = graph.post(
        "/queries/sign_up", json={"expect_mutation": False, "params": {"name": "cy"}}
    )
    assert write.status_code == 400 and "`mutate`" in write.json()["hint"]
    agreed = graph.post("/queries/everybody", json={"expect_mutation": False})
    assert agreed.status_code == 200


def test_c_srv_026_the_catalog_types_parameters_and_leaves_out_absent_annotations(
    open_server: Live,
):
    assert open_server.client().get("/queries").json() == {
        "queries": [
            {
                "name": "everybody",
                "tool_name": "everybody",
                "description": "Everybody we know",
                "mutation": False,
                "params": [],
            },
            {
                "name": "older_than",
                "tool_name": "older_than",
                "mutation": False,
                "params": [
                    {"name": "age", "kind": "int", "nullable": False},
                    {"name": "limit", "kind": "bigint", "nullable": True},
                ],
            },
            {
                "name": "sign_up",
                "tool_name": "sign_up",
                "instruction": "Call it once per person",
                "mutation": True,
                "params": [{"name": "name", "kind": "string", "nullable": False}],
            },
        ]
    }


def test_the_catalog_is_listed_to_readers_of_main(guarded: Live):
    assert len(guarded.client("act-bo").get("/queries").json()["queries"]) == 3
    assert guarded.client("act-cy").get("/queries").status_code == 403


def test_parameters_are_checked_and_named(open_server: Live):
    graph = open_server.client()
    missing = graph.post("/queries/older_than", headers=JSON)
    assert missing.status_code == 400 and "'age'" in missing.json()["error"]
    wrong = graph.post("/queries/older_than", json={"params": {"age": "old"}})
    assert wrong.status_code == 400 and "'age'" in wrong.json()["error"]
    for limit in ("9007199254740993", 7, None):
        good = graph.post("/queries/older_than", json={"params": {"age": 40, "limit": limit}})
        assert good.json()["rows"] == [{"p.name": "bo"}]


def test_a_stored_mutation_writes_and_a_snapshot_is_refused(open_server: Live):
    graph = open_server.client()
    head = graph.get("/commits").json()["commits"][0]["graph_commit_id"]
    refused = graph.post("/queries/sign_up", json={"params": {"name": "cy"}, "snapshot": head})
    assert refused.status_code == 400
    done = graph.post("/queries/sign_up", json={"params": {"name": "cy"}}).json()
    assert (done["query_name"], done["affected_nodes"]) == ("sign_up", 1)
    assert done["commit"]["parent_commit_id"] == head


def test_the_conditional_variant_writes_once(open_server: Live):
    graph = open_server.client()
    head = graph.get("/commits").json()["commits"][0]["graph_commit_id"]
    body = {"params": {"name": "cy"}}
    path, condition = "/queries/sign_up/if-graph-commit", {IF_GRAPH_COMMIT: head}
    assert graph.post(path, json=body, headers=condition).status_code == 200
    lost = graph.post(path, json={"params": {"name": "di"}}, headers=condition)
    assert lost.status_code == 412 and lost.json()["precondition_failure"]["expected"] == head
    read = graph.post("/queries/everybody/if-graph-commit", headers={**JSON, **condition})
    assert read.status_code == 400


def test_a_stored_read_comes_as_arrow_too(open_server: Live):
    accepting = {**JSON, "Accept": ARROW_STREAM}
    answer = open_server.client().post("/queries/everybody", headers=accepting)
    assert pa.ipc.open_stream(answer.content).read_all().column("p.name").to_pylist() == [
        "ada",
        "bo",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("query q( {", "parse error"),
        ("query q() { match { $p: Persn } return { $p.name } }", "Persn"),
        ("query everybody() { match { $p: Person } return { $p.name } }", "everybody"),
    ],
)
def test_a_bad_stored_query_stops_the_only_graph_from_being_served(
    spec: GraphSpec, text: str, told: str
):
    (spec.queries[0] / "zz.gq").write_text(text)
    config = ServerConfig((spec,), unauthenticated=True, environment={})
    with pytest.raises(InputError, match=told) as caught:
        build(config)
    assert "zz.gq" in caught.value.message


def test_a_schema_that_a_stored_query_does_not_compile_against_is_400_and_not_published(
    spec: GraphSpec,
):
    without_age = SCHEMA.replace("  age: I32?", "")
    with serving(spec) as live:
        graph = live.client()
        commits = graph.get("/commits").json()
        refused = graph.post("/schema/apply", json={"schema_source": without_age})
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
        assert "'older_than'" in refused.json()["error"] and "age" in refused.json()["error"]
        assert graph.get("/commits").json() == commits
        assert graph.get("/schema").json() == {"schema_source": SCHEMA}
        wider = SCHEMA + "node Dog { name: String @key }\n"
        assert graph.post("/schema/apply", json={"schema_source": wider}).status_code == 200
    build(ServerConfig((spec,), unauthenticated=True, environment={}))


def test_c_srv_004_a_graph_that_does_not_open_is_quarantined_and_strict_mode_fails_boot(
    spec: GraphSpec, tmp_path: Path
):
    policy = tmp_path / "server.yaml"
    policy.write_text(
        "version: 1\ngroups: { all: [act-ana] }\nrules:\n"
        "  - id: lists\n    allow: { actors: { group: all }, actions: [graph_list] }\n"
    )
    new_graph(tmp_path / "broken-query.omni")
    (tmp_path / "bad.gq").write_text("query q() { match { $x: Nothing } return { $x.y } }")
    graphs = (
        spec,
        GraphSpec("absent", str(tmp_path / "absent.omni")),
        GraphSpec("bad", str(tmp_path / "broken-query.omni"), (tmp_path / "bad.gq",)),
    )
    with serving(*graphs, environment=with_tokens(), server_policy=policy) as live:
        ana = live.client("act-ana", None)
        listed = [graph["graph_id"] for graph in ana.get("/graphs").json()["graphs"]]
        assert listed == ["default"]
        for graph_id in ("absent", "bad"):
            assert ana.get(f"/graphs/{graph_id}/schema").status_code == 404
        assert ana.get("/graphs/default/schema").status_code == 200
        ready = ana.get("/readyz").json()
        assert (ready["status"], ready["graphs_ready"], ready["graphs_quarantined"]) == (
            "ready",
            1,
            2,
        )
        assert ready["quarantined"] == ["absent", "bad"]
        assert live.client("act-bo", None).get("/readyz").json()["quarantined"] == []
        assert live.client(None, None).get("/readyz").json()["quarantined"] == []
    strict = ServerConfig(graphs, environment=with_tokens(), require_all_graphs=True)
    with pytest.raises(InputError, match="cannot be served"):
        build(strict)


def test_a_graph_that_could_not_be_opened_is_tried_again_and_appears_by_itself(
    spec: GraphSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("omnigraph.server.run.RETRY_SECONDS_MAX", 0.02)
    monkeypatch.setattr("omnigraph.server.run.RETRY_SECONDS", 0.01)
    later = GraphSpec("later", str(tmp_path / "later.omni"))
    never = GraphSpec("never", str(tmp_path / "never.omni"))
    with serving(spec, later, never) as live:
        client = live.client(graph_id=None)
        handle = live.graph()
        assert client.get("/readyz").json()["quarantined"] == ["later", "never"]
        assert client.get("/graphs/later/schema").status_code == 404
        new_graph(tmp_path / "made.omni").close()
        (tmp_path / "made.omni").rename(tmp_path / "later.omni")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (ready := client.get("/readyz").json())["quarantined"] != ["never"]:
            assert time.monotonic() < deadline, ready
        assert (ready["graphs_ready"], ready["graphs_quarantined"]) == (2, 1)
        assert client.get("/graphs/later/schema").status_code == 200
        assert live.graph() is handle  # what was served before is left alone


def test_two_ids_of_one_graph_fail_boot(spec: GraphSpec):
    twice = (spec, GraphSpec("again", spec.uri))
    with pytest.raises(InputError, match="are both"):
        build(ServerConfig(twice, unauthenticated=True, environment={}))
