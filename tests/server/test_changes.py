"""Diffs of commits, the feed of a branch, and baselines."""

from __future__ import annotations

from pathlib import Path

import httpx
import orjson
import pytest

import omnigraph
from omnigraph.server.config import GraphSpec
from tests.server.live import ADD, UNPROTECTED_ONLY, Live, serving, with_tokens


@pytest.fixture
def graph(open_server: Live) -> httpx.Client:
    return open_server.client()


def add(graph: httpx.Client, *names: str) -> list[str]:
    answers = [
        graph.post("/mutate", json={"query": ADD, "params": {"name": name}}) for name in names
    ]
    return [answer.json()["commit"]["graph_commit_id"] for answer in answers]


def test_a_commit_shows_what_it_changed(graph: httpx.Client):
    (commit_id,) = add(graph, "cy")
    page = graph.get(f"/commits/{commit_id}/changes").json()
    assert page["cause"]["graph_commit_id"] == commit_id
    assert page["cause"]["authored_branch"] == "main"
    (change,) = page["changes"]
    assert (change["kind"], change["type"]["name"], change["id"], change["op"]) == (
        "node",
        "Person",
        "cy",
        "insert",
    )
    assert change["after"]["properties"]["name"] == "cy"
    assert "before" not in change and "next_page_token" not in page
    filtered = graph.get(f"/commits/{commit_id}/changes", params={"kind": "edge"}).json()
    assert filtered["changes"] == []


def test_a_diff_comes_in_pages(graph: httpx.Client):
    (commit,) = [graph.get("/commits").json()["commits"][0]["graph_commit_id"]]
    path, seen, token = f"/commits/{commit}/changes", [], None
    while True:
        params = {"limit": "1"} | ({"page_token": token} if token else {})
        page = graph.get(path, params=params).json()
        seen += page["changes"]
        token = page.get("next_page_token")
        if token is None:
            break
    whole = graph.get(path).json()["changes"]
    assert seen == whole and len(whole) == 4


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=0", 400),
        ("limit=-1", 400),
        ("limit=x", 400),
        ("limit=8193", 413),
        ("limit=1&limit=2", 400),
        ("lmit=1", 400),
        ("kind=table", 400),
        ("op=upsert", 400),
        ("page_token=broken", 400),
    ],
)
def test_bad_parameters_of_a_diff(graph: httpx.Client, query: str, status: int):
    (commit_id,) = add(graph, "cy")
    answer = graph.get(f"/commits/{commit_id}/changes?{query}")
    assert answer.status_code == status
    if "page_token" in query:
        assert answer.json()["error"].startswith("change cursor rejected: ")


def test_the_first_commit_has_no_diff(graph: httpx.Client):
    genesis = graph.get("/commits").json()["commits"][-1]["graph_commit_id"]
    answer = graph.get(f"/commits/{genesis}/changes")
    assert answer.status_code == 409
    assert answer.json()["change_diff_refusal"] == {
        "reason": "parentless_commit",
        "graph_commit_id": genesis,
    }


def test_c_srv_034_c_pol_035_an_unreadable_commit_looks_unknown(spec: GraphSpec, tmp_path: Path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(UNPROTECTED_ONLY)
    graph = omnigraph.open(spec.uri)
    on_main = graph.list_commits()[0].graph_commit_id
    graph.create_branch("side")
    on_side = graph.mutate(ADD, {"name": "cy"}, branch="side").commit
    assert on_side is not None
    unknown = "01K9WR3C5T8M2B7XQ4ZJ6V0NHD"
    with serving(GraphSpec("default", spec.uri, (), policy), environment=with_tokens()) as live:
        bo = live.client("act-bo")
        denied = bo.get(f"/commits/{on_main}/changes")
        absent = bo.get(f"/commits/{unknown}/changes")
        assert denied.status_code == absent.status_code == 404
        assert denied.content.replace(on_main.encode(), b"ID") == absent.content.replace(
            unknown.encode(), b"ID"
        )
        assert bo.get(f"/commits/{on_side.graph_commit_id}/changes").status_code == 200


def test_c_srv_035_the_cursor_comes_only_with_terminal_pages(graph: httpx.Client):
    begin = graph.get("/changes").json()
    assert (begin["blocks"], begin["caught_up"]) == ([], True)
    names = [f"p{i}" for i in range(3)]
    body = "\n".join(f'{{"type": "Person", "data": {{"name": "{name}"}}}}' for name in names)
    graph.post("/load", json={"data": body, "mode": "append"}).raise_for_status()
    first = graph.get("/changes", params={"cursor": begin["cursor"], "limit": 2}).json()
    assert "cursor" not in first and "caught_up" not in first
    last = graph.get("/changes", params={"page_token": first["next_page_token"], "limit": 2}).json()
    assert "next_page_token" not in last and last["caught_up"] is True
    seen = [
        change["id"] for page in (first, last) for b in page["blocks"] for change in b["changes"]
    ]
    assert seen == names
    assert graph.get("/changes", params={"cursor": last["cursor"]}).json()["blocks"] == []


def test_c_srv_035_a_cursor_of_another_scope_is_400(graph: httpx.Client):
    graph.post("/branches", json={"name": "side"})
    cursor = graph.get("/changes").json()["cursor"]
    for params in (
        {"cursor": cursor, "branch": "side"},
        {"cursor": cursor, "kind": "node"},
        {"cursor": cursor[:-2] + "xx"},
        {"page_token": cursor},
        {"cursor": "x" * 5000},
    ):
        answer = graph.get("/changes", params=params)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
        assert answer.json()["error"].startswith("change cursor rejected: ")
    exclusive = graph.get("/changes", params={"cursor": cursor, "start": "now"})
    assert exclusive.status_code == 400


def test_the_feed_starts_where_it_is_told(graph: httpx.Client):
    first, second = add(graph, "cy", "di")
    page = graph.get("/changes", params={"start": f"after:{first}"}).json()
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == [second]
    assert graph.get("/changes", params={"start": "yesterday"}).status_code == 400


def test_c_srv_036_the_baseline_handshake_is_last_and_single(graph: httpx.Client):
    answer = graph.post("/changes/baseline", json={})
    assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    lines = [orjson.loads(line) for line in answer.content.splitlines()]
    assert ["baseline" in line for line in lines] == [False] * 4 + [True]
    handshake = lines[-1]["baseline"]
    assert (
        handshake["snapshot_commit_id"]
        == (graph.get("/commits").json()["commits"][0]["graph_commit_id"])
    )
    (commit_id,) = add(graph, "cy")
    page = graph.get("/changes", params={"cursor": handshake["resume_cursor"]}).json()
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == [commit_id]
    nodes = graph.post("/changes/baseline", json={"kind": ["node"], "type": ["City"]})
    assert len(nodes.content.splitlines()) == 2
    assert graph.post("/changes/baseline", json={"kinds": ["node"]}).status_code == 400
    assert graph.post("/changes/baseline", json={"branch": "nowhere"}).status_code == 404
