"""Loading graph records."""

from __future__ import annotations

import socket

import httpx
import pytest

from tests.server.live import PEOPLE, TOKENS, Live

NDJSON = {"Content-Type": "application/x-ndjson"}
BATCH = b"""\
{"type": "Person", "data": {"name": "cy"}}
{"type": "City", "data": {"name": "Oslo"}}
{"edge": "LivesIn", "from": "cy", "to": "Oslo", "data": {"id": "l1"}}
"""


@pytest.fixture
def graph(open_server: Live) -> httpx.Client:
    return open_server.client()


def test_a_load_says_what_it_did(open_server: Live, graph: httpx.Client):
    answer = graph.post("/load", json={"data": BATCH.decode(), "mode": "append"}).json()
    commit = answer["commit"]
    assert commit == graph.get(f"/commits/{commit['graph_commit_id']}").json()
    assert answer["uri"] == str(graph.base_url).rstrip("/")
    assert {name: answer[name] for name in ("branch", "base_branch", "branch_created", "mode")} == {
        "branch": "main",
        "base_branch": None,
        "branch_created": False,
        "mode": "append",
    }
    loaded = [(each["name"], each["entities_loaded"]) for each in answer["nodes"]]
    assert loaded == [("City", 1), ("Person", 1)]
    assert [each["name"] for each in answer["edges"]] == ["LivesIn"]
    assert answer["total_entities"] == 3


def test_the_mode_is_merge_when_left_out(graph: httpx.Client):
    one = '{"type": "Person", "data": {"name": "ada", "age": 37}}\n'
    assert graph.post("/load", json={"data": one}).json()["mode"] == "merge"
    rows = graph.post("/query", json={"query": PEOPLE}).json()["rows"]
    assert rows[0] == {"p.name": "ada", "p.age": 37}
    assert graph.post("/load", json={"data": one, "mode": "upsert"}).status_code == 400


def test_c_pip_036_a_merge_keeps_what_a_record_lacks_unless_told_otherwise(graph: httpx.Client):
    full = '{"type": "Person", "data": {"name": "ada", "age": 37}}\n'
    part = '{"type": "Person", "data": {"name": "ada"}}\n'
    graph.post("/load", json={"data": full})
    answer = graph.post("/load", json={"data": part}).json()
    assert (answer["unchanged"], answer["kept"], answer["nodes"][0]["kept"]) == (1, 1, 1)
    query = {"mode": "merge", "absent": "null"}
    answer = graph.post("/load/ndjson", params=query, content=part, headers=NDJSON).json()
    assert (answer["updated"], answer["kept"]) == (1, 0)
    rows = graph.post("/query", json={"query": PEOPLE}).json()["rows"]
    assert rows[0] == {"p.name": "ada", "p.age": None}
    for wrong in ({"absent": "drop"}, {"absent": "null", "mode": "append"}):
        assert graph.post("/load", json={"data": part, **wrong}).status_code == 400


def test_c_pip_040_bad_records_are_skipped_and_told_in_the_receipt(graph: httpx.Client):
    some = (
        '{"type": "Person", "data": {"name": "cy"}}\n'
        '{"type": "Person", "data": {"name": "di", "age": "old"}}\n'
        '{"type": "Person", "data": {"name": "ada"}}\n'
    )
    query = {"mode": "append", "on_error": "skip"}
    share = query | {"max_error_share": "0.5", "max_errors": "1"}
    refused = graph.post("/load/ndjson", params=share, content=some, headers=NDJSON)
    assert refused.status_code == 400
    assert "in 2 of 3 records, more than the allowed share of 0.5" in refused.json()["error"]
    tried = graph.post("/load", json={"data": some, "dry_run": True, **query}).json()
    assert (tried["inserted"], tried["skipped"]) == (2, 1)  # its grammar takes "old" for null
    share["max_error_share"] = "0.7"
    answer = graph.post("/load/ndjson", params=share, content=some, headers=NDJSON).json()
    assert (answer["inserted"], answer["skipped"], answer["nodes"][0]["skipped"]) == (1, 2, 2)
    (problem,) = answer["problems"]
    assert (problem["line"], problem["kind"]) == (2, "bad_value")
    assert problem["input"] == {"type": "Person", "data": {"name": "di", "age": "old"}}
    for wrong in ({"on_error": "ignore"}, {"max_error_share": 0.5}, {"max_error_share": 2}):
        assert graph.post("/load", json={"data": some, **wrong}).status_code == 400
    wrong_share = query | {"max_error_share": "half"}
    answer = graph.post("/load/ndjson", params=wrong_share, content=some, headers=NDJSON).json()
    assert answer["error"] == "`max_error_share` is not a number"


def test_everything_that_is_wrong_with_an_input_is_told_at_once(graph: httpx.Client):
    bad = (
        b'{"type": "Person", "data": {"name": "cy", "age": "old"}}\n'
        b'{"edge": "LivesIn", "from": "ada", "to": "Nowhere"}\n'
    )
    answer = graph.post("/load/ndjson", params={"mode": "append"}, content=bad, headers=NDJSON)
    assert answer.status_code == 400
    told = answer.json()["details"]
    assert told["counts"] == {"bad_value": 1, "missing_node": 1}
    assert [(each["kind"], each["line"]) for each in told["problems"]] == [
        ("bad_value", 1),
        ("missing_node", 2),
    ]


@pytest.mark.parametrize("path", ["/load", "/ingest", "/load/ndjson"])
def test_c_srv_027_a_missing_branch_without_from_is_404_and_nothing_is_made(
    open_server: Live, graph: httpx.Client, path: str
):
    if path == "/load/ndjson":
        answer = graph.post(path, params={"branch": "side"}, content=BATCH, headers=NDJSON)
    else:
        answer = graph.post(path, json={"data": BATCH.decode(), "branch": "side"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert graph.get("/branches").json() == {"branches": ["main"]}


def test_a_missing_branch_is_created_from_another(graph: httpx.Client):
    answer = graph.post(
        "/load/ndjson", params={"branch": "side", "from": "main"}, content=BATCH, headers=NDJSON
    ).json()
    assert (answer["branch_created"], answer["base_branch"]) == (True, "main")
    assert "uri" not in answer
    assert graph.get("/branches").json() == {"branches": ["main", "side"]}


def test_c_pol_038_a_load_that_forks_needs_branch_create_and_an_existing_branch_does_not(
    guarded: Live,
):
    # The team may edit and create unprotected branches; no actor may create `main`.
    bo, cy = guarded.client("act-bo"), guarded.client("act-cy")
    body = {"data": BATCH.decode(), "branch": "side", "from": "main"}
    assert cy.post("/load", json=body).status_code == 403
    assert guarded.graph().list_branches() == ["main"]
    assert bo.post("/load", json=body).json()["branch_created"] is True
    assert bo.post("/load", json={**body, "mode": "merge"}).json()["branch_created"] is False
    assert bo.post("/load", json={"data": BATCH.decode()}).status_code == 403


def test_c_srv_028_a_policy_refusal_never_polls_the_body(guarded: Live):
    head = (
        b"POST /graphs/default/load/ndjson HTTP/1.1\r\nHost: localhost\r\n"
        b"Authorization: Bearer %s\r\nContent-Type: application/x-ndjson\r\n"
        b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(guarded.host, timeout=60) as connection:
        connection.sendall(head % TOKENS["act-bo"].encode())
        # Not one byte of the body is sent, and none is asked for.
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 403 ")
    with socket.create_connection(guarded.host, timeout=60) as connection:
        connection.sendall(head % TOKENS["act-ana"].encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")


def test_c_srv_029_a_mixed_batch_is_one_commit_and_a_bad_line_none(graph: httpx.Client):
    before = graph.get("/commits").json()["commits"]
    answer = graph.post("/load/ndjson", content=BATCH, headers=NDJSON)
    assert answer.status_code == 200
    after = graph.get("/commits").json()["commits"]
    assert after[0] == answer.json()["commit"]
    assert after[1:] == before
    bad = BATCH + b'{"type": "Person", "data": {"name": 7}}\n'
    refused = graph.post("/load/ndjson", content=bad, headers=NDJSON)
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
    assert graph.get("/commits").json()["commits"] == after


def test_what_is_not_utf_8_is_400(graph: httpx.Client):
    answer = graph.post("/load/ndjson", content=b'{"type": "\xff"}\n', headers=NDJSON)
    assert answer.status_code == 400 and "UTF-8" in answer.json()["error"]


def test_a_key_conflict_is_409_with_the_entity(graph: httpx.Client):
    one = b'{"type": "Person", "data": {"name": "ada"}}\n'
    answer = graph.post("/load/ndjson", params={"mode": "append"}, content=one, headers=NDJSON)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert answer.json()["key_conflict"]["type_name"] == "Person"
