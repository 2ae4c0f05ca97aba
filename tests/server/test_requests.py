"""Paths, bodies, limits and headers: what every request has to go through."""

from __future__ import annotations

import http.client
import shutil
import socket
from pathlib import Path

import httpx
import pytest

from omnigraph.server.config import GraphSpec
from omnigraph.wire.operations import BODY_BYTES_MAX, LOAD_BYTES_MAX, OPERATIONS, Operation
from tests.server.live import PEOPLE, Live, new_graph, serving

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}


def exchange(live: Live, *pieces: bytes) -> bytes:
    """Everything the server says to these bytes until it hangs up."""
    with socket.create_connection(live.host, timeout=60) as connection:
        for piece in pieces:
            connection.sendall(piece)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


def first_answer(live: Live, sent: bytes) -> bytes:
    """The first answer to these bytes, with the connection still open."""
    with socket.create_connection(live.host, timeout=60) as connection:
        connection.sendall(sent)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return b"HTTP/1.1 %d " % answer.status + answer.read()


@pytest.mark.parametrize(
    "path",
    ["/query", "/snapshot", "/load", "/branches", "/runs", "/graphs/default/runs", "/", "//graphs"],
)
def test_c_srv_011_flat_and_unknown_paths_are_enveloped_404s(open_server: Live, path: str):
    for method in ("GET", "POST"):
        answer = httpx.request(method, open_server.url + path)
        assert answer.status_code == 404
        assert answer.json()["code"] == "not_found"
        assert answer.headers["content-type"] == "application/json"


def test_a_wrong_method_is_405_with_allow(open_server: Live):
    answer = httpx.put(f"{open_server.url}/graphs/default/branches")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST"
    merge = httpx.get(f"{open_server.url}/graphs/default/branches/merge")
    assert merge.headers["allow"] == "DELETE, POST"


def test_a_malformed_graph_id_is_400_and_an_unknown_one_404(open_server: Live):
    for graph_id, status in (("other", 404), ("a%2Fb", 400), ("a_b", 400), ("x" * 65, 400)):
        answer = httpx.get(f"{open_server.url}/graphs/{graph_id}/schema")
        assert answer.status_code == status, graph_id
    assert httpx.get(f"{open_server.url}/graphs/policies/schema").status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b'{"query": 1}',
        b'{"query": "q", "extra": 1}',
        b'{"query": "q", "params": []}',
        b'{"query": "q", "branch": ""}',
        b'{"query": "q", "branch": 7}',
        b'{"query": NaN}',
        b'{"query": "\xff"}',
    ],
)
def test_c_srv_012_validation_failures_are_400_never_422(open_server: Live, body: bytes):
    answer = open_server.client().post("/query", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_c_srv_012_a_wrong_type_is_415(open_server: Live):
    graph = open_server.client()
    for media in ("text/plain", "application/x-www-form-urlencoded", "application/x-ndjson"):
        answer = graph.post("/query", content=b"{}", headers={"Content-Type": media})
        assert (answer.status_code, answer.json()["code"]) == (415, "bad_request")
    for headers in ({}, JSON, {"Content-Type": "text/plain"}):
        assert graph.post("/load/ndjson", content=b"", headers=headers).status_code == 415
    packed = {**JSON, "Content-Encoding": "gzip"}
    assert graph.post("/query", content=b"x", headers=packed).status_code == 415
    charset = {"Content-Type": "application/json; charset=utf-8"}
    body = b'{"query": "query q { match { $p: Person } return { $p.name } }"}'
    assert graph.post("/query", content=body, headers=charset).status_code == 200


@pytest.mark.parametrize(
    ("path", "limit", "media", "resource"),
    [
        ("query", BODY_BYTES_MAX, b"application/json", "request_body_bytes"),
        ("load", LOAD_BYTES_MAX, b"application/json", "request_body_bytes"),
        ("load/ndjson", LOAD_BYTES_MAX, b"application/x-ndjson", "graph_batch_request_bytes"),
    ],
)
def test_c_srv_012_a_body_that_says_it_is_too_big_is_413_before_any_of_it_is_read(
    open_server: Live, path: str, limit: int, media: bytes, resource: str
):
    head = b"POST /graphs/default/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n" % (
        path.encode(),
        media,
    )
    answer = first_answer(open_server, head + b"Content-Length: %d\r\n\r\n" % (limit + 1))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert resource.encode() in answer


def test_c_srv_012_a_body_that_grows_too_big_is_413(open_server: Live):
    def pieces():
        yield b'{"query": "'
        for _ in range(BODY_BYTES_MAX // 65536 + 1):
            yield b"x" * 65536
        yield b'"}'

    answer = open_server.client().post("/query", content=pieces(), headers=JSON)
    assert answer.status_code == 413
    limit = answer.json()["resource_limit"]
    assert limit["limit"] == BODY_BYTES_MAX < limit["actual"]


def test_a_body_of_exactly_the_limit_is_read(open_server: Live):
    body = b'{"query": "%s"}'
    filled = body % (b" " * (BODY_BYTES_MAX - len(body) + 2))
    assert len(filled) == BODY_BYTES_MAX
    assert open_server.client().post("/query", content=filled, headers=JSON).status_code == 400


@pytest.mark.parametrize(
    "query", ["branhc=main", "branch=main&branch=side", "branch=%ff", "branch=", "branch=+"]
)
def test_unknown_repeated_and_malformed_parameters_are_400(open_server: Live, query: str):
    answer = httpx.get(f"{open_server.url}/graphs/default/snapshot?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_c_srv_044_every_response_echoes_its_request_id(guarded: Live):
    sent = [
        ("GET", "/healthz"),
        ("GET", "/nowhere"),
        ("PUT", "/graphs"),
        ("GET", "/graphs"),
        ("GET", "/graphs/default/schema"),
        ("OPTIONS", "/graphs"),
    ]
    for method, path in sent:
        mine = httpx.request(method, guarded.url + path, headers={"X-Request-Id": "trace.1_a-Z"})
        assert mine.headers["x-request-id"] == "trace.1_a-Z"
        minted = httpx.request(method, guarded.url + path).headers["x-request-id"]
        assert len(minted) == 26
    ana = guarded.client("act-ana")
    streamed = ana.post("/export", json={}, headers={"X-Request-Id": "stream-1"})
    assert streamed.headers["x-request-id"] == "stream-1"


@pytest.mark.parametrize("bad", ["a b", "x" * 129, "a;b", "ä", ""])
def test_a_request_id_that_is_not_allowed_is_replaced(open_server: Live, bad: str):
    answer = httpx.get(f"{open_server.url}/healthz", headers={b"X-Request-Id": bad.encode()})
    assert len(answer.headers["x-request-id"]) == 26


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.body is not None and each.takes == "application/json"],
    ids=lambda each: each.id,
)
def test_an_unknown_field_is_400_and_named_on_every_route(open_server: Live, operation: Operation):
    commit_id = "01K9WR3C5T8M2B7XQ4ZJ6V0NHD"
    values = {
        "graph_id": "default",
        "name": "everybody",
        "branch": "main",
        "commit_id": commit_id,
        "review_id": f"cr-{commit_id}",
        "comment_id": commit_id,
    }
    path = operation.path.format(**values)
    schema = operation.body.model_json_schema() if operation.body else {}
    required = {
        name: schema["properties"][name].get("enum", ["x"])[0]
        for name in schema.get("required", [])
    }
    body = {**required, "no_such_field": 1}
    condition = {"Omnigraph-If-Graph-Commit": commit_id}
    headers = condition if operation.path.endswith("/if-graph-commit") else {}
    answer = httpx.request(operation.method, open_server.url + path, json=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"] == "unknown field `no_such_field`"


# --- what an attacker would try -------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/graphs/../../etc/passwd",
        "/graphs/default/../../../etc/passwd",
        "/graphs/..%2f..%2fetc/schema",
        "/graphs/default/commits/..%2f..%2fetc%2fpasswd",
        "/graphs/default/queries/..%2fpeople.gq",
        "/graphs/%2e%2e/schema",
        "/graphs/default%00/schema",
        "/graphs/default/branches/..%2F..%2Fmain",
    ],
)
def test_path_traversal_leads_nowhere(open_server: Live, path: str):
    method = b"DELETE" if "/branches/" in path else b"POST" if "/queries/" in path else b"GET"
    answer = exchange(
        open_server,
        b"%s %s HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nConnection: close\r\n\r\n" % (method, path.encode()),
    )
    status = int(answer.split(b" ", 2)[1])
    assert status in (400, 404)
    assert b"root:" not in answer


def test_a_branch_name_cannot_climb_out_of_the_graph(open_server: Live):
    graph = open_server.client()
    for name in ("../evil", "a/../../b", "/abs", "a\x00b", "a\nb"):
        assert graph.post("/branches", json={"name": name}).status_code == 400, name


def test_header_injection_stays_in_its_header(open_server: Live):
    request_id = exchange(
        open_server,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a%0d%0aSet-Cookie: b\r\n"
        b"Connection: close\r\n\r\n",
    )
    assert b"set-cookie" not in request_id.lower()
    bare = exchange(open_server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: b\rc\r\n\r\n")
    assert bare.startswith(b"HTTP/1.1 400 ")


def test_smuggled_lengths_are_refused(open_server: Live):
    both = exchange(
        open_server,
        b"POST /graphs/default/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    )
    assert both.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in both


def test_a_head_that_never_ends_is_cut_off(open_server: Live):
    line = b"X-Filler: " + b"x" * 8000 + b"\r\n"
    answer = exchange(open_server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", *[line] * 9)
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_client_that_stops_sending_its_body_is_told_and_let_go(spec: GraphSpec):
    head = (
        b"POST /graphs/default/query HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n"
    )
    with serving(spec, client_seconds=2.0) as live:
        answer = first_answer(live, head + b'{"query"')
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert live.client().post("/query", json={"query": PEOPLE}).status_code == 200


def test_a_client_that_stops_sending_its_head_is_let_go(
    spec: GraphSpec, monkeypatch: pytest.MonkeyPatch
):
    from omnigraph.server.connections import GuardedProtocol

    monkeypatch.setattr(GuardedProtocol, "head_seconds", 0.2)
    with serving(spec) as live:
        assert exchange(live, b"GET /healthz HT").startswith(b"HTTP/1.1 400 ")
        assert exchange(live).startswith(b"HTTP/1.1 400 ")


def test_what_is_not_http_gets_an_envelope(open_server: Live):
    answer = exchange(open_server, b"HELLO\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and b"x-request-id: " in answer
    assert b'"code":"bad_request"' in answer


@pytest.mark.parametrize("damage", ["removed", "garbled"])
def test_an_error_of_the_server_tells_nothing_of_where_data_lies(tmp_path: Path, damage: str):
    root = tmp_path / "secret-place.omni"
    new_graph(root)
    with serving(GraphSpec("default", str(root))) as live:
        if damage == "removed":
            for each in [path for path in root.iterdir() if path.is_dir()]:
                shutil.rmtree(each)
        else:
            for file in (root / "nodes").rglob("*.lance"):
                file.write_bytes(b"x" * file.stat().st_size)
        answer = live.client().post("/query", json={"query": PEOPLE})
        assert (answer.status_code, answer.json()["code"]) == (500, "internal")
        assert "secret-place" not in answer.text and "lance" not in answer.text
