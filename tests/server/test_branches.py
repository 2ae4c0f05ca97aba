"""Branches over HTTP."""

from __future__ import annotations

import httpx
import pytest

from tests.server.live import ADD, Live

SET_AGE = "query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"


@pytest.fixture
def graph(open_server: Live) -> httpx.Client:
    return open_server.client()


def test_branches_are_created_listed_and_deleted(open_server: Live, graph: httpx.Client):
    uri = open_server.graph().uri
    created = graph.post("/branches", json={"name": " side "})
    assert created.json() == {"uri": uri, "from": "main", "name": "side", "actor_id": None}
    graph.post("/branches", json={"name": "again", "from": "side"}).raise_for_status()
    assert graph.get("/branches").json() == {"branches": ["again", "main", "side"]}
    gone = graph.delete("/branches/again")
    assert gone.json() == {"uri": uri, "name": "again", "actor_id": None}
    assert graph.delete("/branches/again").status_code == 404
    taken = graph.post("/branches", json={"name": "side"})
    assert (taken.status_code, taken.json()["code"]) == (409, "conflict")


def test_c_srv_030_merge_conflicts_are_a_structured_409_and_the_target_is_unchanged(
    graph: httpx.Client,
):
    graph.post("/branches", json={"name": "side"})
    for branch, age in (("side", 50), ("main", 60)):
        body = {"query": SET_AGE, "params": {"n": "ada", "a": age}, "branch": branch}
        graph.post("/mutate", json=body).raise_for_status()
    before = graph.get("/commits").json()
    answer = graph.post("/branches/merge", json={"source": "side"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    (conflict,) = answer.json()["merge_conflicts"]
    assert {name: conflict[name] for name in ("entity_kind", "type_name", "entity_id", "kind")} == {
        "entity_kind": "node",
        "type_name": "Person",
        "entity_id": "ada",
        "kind": "divergent_update",
    }
    assert conflict["message"]
    assert graph.get("/commits").json() == before


def test_a_merge_says_how_it_ended(graph: httpx.Client):
    graph.post("/branches", json={"name": "side"})
    body = {"query": ADD, "params": {"name": "cy"}, "branch": "side"}
    graph.post("/mutate", json=body).raise_for_status()
    merged = graph.post("/branches/merge", json={"source": "side", "delete_branch": True}).json()
    assert merged == {
        "source": "side",
        "target": "main",
        "outcome": merged["outcome"],
        "actor_id": None,
        "branch_deleted": True,
        "commit": merged["commit"],
    }
    assert merged["outcome"] in ("fast_forward", "merged")
    assert merged["commit"] == graph.get("/commits").json()["commits"][0]
    assert graph.get("/branches").json() == {"branches": ["main"]}
    graph.post("/branches", json={"name": "side"})
    again = graph.post("/branches/merge", json={"source": "side"}).json()
    assert (again["outcome"], again["commit"]) == ("already_up_to_date", None)
    assert "branch_deleted" not in again


def test_c_srv_031_a_refused_delete_after_a_merge_is_200_and_says_so(guarded: Live):
    ana, bo = guarded.client("act-ana"), guarded.client("act-bo")
    bo.post("/branches", json={"name": "side"}).raise_for_status()
    body = {"query": ADD, "params": {"name": "cy"}, "branch": "side"}
    bo.post("/mutate", json=body).raise_for_status()
    answer = bo.post("/branches/merge", json={"source": "side", "delete_branch": True})
    assert answer.status_code == 200
    assert answer.json()["branch_deleted"] is False
    assert "branch_delete" in answer.json()["branch_delete_error"]
    assert guarded.graph().list_branches() == ["main", "side"]
    assert ana.get("/commits").json()["commits"][0]["actor_id"] == "act-bo"


def test_c_srv_032_a_branch_with_a_slash_is_deleted_as_one_encoded_segment(graph: httpx.Client):
    for name in ("etl/run-1", "merge"):
        graph.post("/branches", json={"name": name}).raise_for_status()
    assert graph.delete("/branches/etl/run-1").status_code == 404
    assert graph.delete("/branches/etl%2Frun-1").json()["name"] == "etl/run-1"
    assert graph.delete("/branches/merge").json()["name"] == "merge"
    assert graph.get("/branches").json() == {"branches": ["main"]}


def test_a_snapshot_lists_every_type_in_order(graph: httpx.Client):
    shown = graph.get("/snapshot").json()
    keys = [(each["entity_kind"], each["type_name"]) for each in shown["datasets"]]
    assert keys == sorted(keys)
    counts = {each["type_name"]: each["entity_count"] for each in shown["datasets"]}
    assert counts == {"Person": 2, "City": 1, "Knows": 1, "LivesIn": 0}
    assert shown["graph_branch"] == "main"
    assert graph.get("/snapshot", params={"branch": "nowhere"}).status_code == 404


def test_commits_are_listed_newest_first(graph: httpx.Client):
    first = graph.post("/mutate", json={"query": ADD, "params": {"name": "cy"}}).json()["commit"]
    second = graph.post("/mutate", json={"query": ADD, "params": {"name": "di"}}).json()["commit"]
    assert graph.get("/commits").json()["commits"][:2] == [second, first]
    assert graph.get(f"/commits/{first['graph_commit_id'].lower()}").json() == first
    for unknown in ("nowhere", "01K9WR3C5T8M2B7XQ4ZJ6V0NHD"):
        assert graph.get(f"/commits/{unknown}").status_code == 404
