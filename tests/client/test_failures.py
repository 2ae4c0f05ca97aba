"""What a client says when a server is not there, is not ours, is busy, or says no."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import omnigraph as og
from omnigraph.client import Patience, list_graphs
from omnigraph.errors import (
    AnswerLost,
    Denied,
    ExpectedVersionMismatch,
    InputError,
    NotFound,
    OmnigraphError,
    ServerUnreachable,
    TooManyRequests,
    Unauthenticated,
    UnexpectedAnswer,
    WriterBusy,
)
from omnigraph.wire.failures import error_of
from tests.client.conftest import Guarded
from tests.server.live import ADD, PEOPLE, TOKENS

SECRET = "token-that-nobody-may-see-0042"

Reply = Callable[[int], bytes | None]
"""From the number of a request to the bytes of its answer; None hangs up."""


@contextmanager
def answering(reply: Reply) -> Iterator[tuple[str, list[bytes]]]:
    """A server of raw bytes, one request a connection; its URL, and what it was sent."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                seen.append(_request(connection))
                answer = reply(len(seen))
                if answer is not None:
                    connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/graphs/team", seen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
            while len(body) < length:
                body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def http(status: int, body: str = "", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


BRANCHES = http(200, '{"branches": ["main"]}', Content_Type="application/json")
BUSY = http(429, '{"error": "too many", "code": "too_many_requests"}', Retry_After="0")
LATER = http(429, '{"error": "too many", "code": "too_many_requests"}', Retry_After="60")


def always(answer: bytes) -> Reply:
    return lambda _number: answer


def unused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}/graphs/team"


# --- the address ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "graph", "problem"),
    [
        ("team.omni", None, "is not the URL of a server"),
        ("ftp://host/graphs/a", None, "is not the URL of a server"),
        ("http:///graphs/a", None, "is not the URL of a server"),
        (f"http://me:{SECRET}@host/graphs/a", None, "holds a user name"),
        ("http://host/graphs/a?x=1", None, "has more than a path"),
        ("http://host/graphs/a", "b", "is graph `a` already"),
        ("http://host", "a/b", "is not the id of a graph"),
    ],
)
def test_a_bad_address_is_refused_before_anything_is_sent(
    url: str, graph: str | None, problem: str
):
    with pytest.raises(InputError, match=problem) as refused:
        og.connect(url, graph=graph)
    assert SECRET not in refused.value.render()


def test_the_graph_is_part_of_the_url_or_named():
    assert og.connect("http://host:1/graphs/a/").uri == "http://host:1/graphs/a"
    assert og.connect("http://host:1/below/", graph="a").uri == "http://host:1/below/graphs/a"
    assert repr(og.connect("http://host:1", SECRET, graph="a")) == (
        "RemoteGraph('http://host:1/graphs/a')"
    )


@pytest.mark.parametrize("token", ["", "  ", "two\nlines", "umläut"])
def test_a_token_that_fits_no_header_is_refused_without_repeating_it(token: str):
    with pytest.raises(InputError) as refused:
        og.connect("http://host", token)
    assert token.strip() == "" or token not in refused.value.render()


# --- nobody there ---------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_named_with_what_to_do():
    graph = og.connect(unused_url(), SECRET)
    for verb in (graph.list_branches, lambda: graph.mutate(ADD, {"name": "x"})):
        with pytest.raises(ServerUnreachable) as gone:
            verb()
        assert graph.uri in gone.value.message
        assert "omnigraph serve" in str(gone.value.hint)


def test_a_read_is_repeated_when_the_connection_breaks():
    with answering(lambda number: BRANCHES if number == 3 else None) as (url, seen):
        assert og.connect(url).list_branches() == ["main"]
        assert len(seen) == 3


def test_a_read_is_given_up_after_some_attempts():
    with answering(lambda _number: None) as (url, seen):
        with pytest.raises(ServerUnreachable, match="broke"):
            og.connect(url, patience=Patience(attempts=2)).query(PEOPLE)
        assert len(seen) == 2


UNKNOWN = http(500, '{"error": "a failure", "code": "internal", "outcome": "unknown"}')
NOT_BEGUN = http(500, '{"error": "a failure", "code": "internal", "outcome": "not_begun"}')
CREATED = http(
    200,
    '{"uri": "u", "from": "main", "name": "x", "actor_id": null}',
    Content_Type="application/json",
)


def key_of(request: bytes) -> str:
    (line,) = [
        each for each in request.split(b"\r\n") if each.lower().startswith(b"idempotency-key")
    ]
    return line.partition(b":")[2].strip().decode()


@pytest.mark.parametrize("first", [None, UNKNOWN], ids=["broken", "unknown"])
def test_a_write_whose_outcome_is_unknown_is_repeated_with_its_key(first: bytes | None):
    with answering(lambda number: CREATED if number == 3 else first) as (url, seen):
        assert og.connect(url).create_branch("x").name == "x"
        assert len(seen) == 3
        assert len({key_of(request) for request in seen}) == 1


def test_every_write_has_a_key_of_its_own_or_that_of_the_caller():
    with answering(lambda _number: CREATED) as (url, seen):
        graph = og.connect(url)
        graph.create_branch("x")
        graph.create_branch("x")
        assert len({key_of(request) for request in seen}) == 2
    with answering(lambda _number: NOT_BEGUN) as (url, seen):
        with pytest.raises(OmnigraphError):
            og.connect(url).mutate(ADD, {"name": "x"}, operation_id="mine")
        assert key_of(seen[0]) == "mine" and len(seen) == 1
        assert b"Idempotency-Key" not in seen[0].split(b"\r\n\r\n")[1]


@pytest.mark.parametrize("answer", [None, UNKNOWN], ids=["broken", "unknown"])
def test_a_write_whose_answer_stays_lost_says_how_to_ask(answer: bytes | None):
    with answering(lambda _number: answer) as (url, seen):
        with pytest.raises(AnswerLost) as lost:
            og.connect(url).mutate(ADD, {"name": "x"})
        assert len(seen) == 3
    assert lost.value.details["operation_id"] == key_of(seen[0])
    assert key_of(seen[0]) in str(lost.value.hint)


@pytest.mark.parametrize(
    "write",
    [
        lambda graph: graph.create_branch("x", operation_id="mine"),
        lambda graph: graph.delete_branch("x", operation_id="mine"),
        lambda graph: graph.merge_branch("x", operation_id="mine"),
        lambda graph: graph.revert("01K3Z7M0Q8W4R6T2Y5V9B1N3XC", operation_id="mine"),
        lambda graph: graph.cherry_pick("01K3Z7M0Q8W4R6T2Y5V9B1N3XC", operation_id="mine"),
        lambda graph: graph.apply_schema("node A { a: String }", operation_id="mine"),
    ],
)
def test_every_verb_sends_the_callers_key_again_and_tells_it(
    write: Callable[[og.RemoteGraph], object],
):
    with answering(lambda _number: None) as (url, seen):
        with pytest.raises(AnswerLost) as lost:
            write(og.connect(url))
        assert [key_of(request) for request in seen] == ["mine"] * 3
    assert lost.value.details["operation_id"] == "mine"


@pytest.mark.parametrize("key", ["schlüssel", "a\nb", " a", "", "x" * 201])
def test_a_key_that_no_header_can_carry_is_refused_before_anything_is_sent(key: str):
    with answering(lambda _number: None) as (url, seen):
        with pytest.raises(InputError, match="operation_id"):
            og.connect(url).create_branch("x", operation_id=key)
        assert not seen


def test_a_stored_query_whose_answer_is_lost_tells_no_key_that_could_be_given():
    with answering(lambda _number: None) as (url, seen):
        with pytest.raises(AnswerLost) as lost:
            og.connect(url).invoke("sign_up", {"name": "x"})
        assert len(seen) == 3
    assert "newest commits" in str(lost.value.hint)


def test_a_write_is_not_repeated_against_the_callers_will():
    with answering(lambda _number: None) as (url, seen):
        with pytest.raises(AnswerLost):
            og.connect(url, patience=Patience(repeats_writes=False)).create_branch("x")
        assert len(seen) == 1


def test_a_server_that_takes_too_long_is_not_waited_for():
    released = threading.Event()

    def late(_number: int) -> bytes | None:
        released.wait(60)
        return None

    with answering(late) as (url, seen):
        try:
            with pytest.raises(ServerUnreachable, match="in time"):
                og.connect(url, timeout=0.05).list_branches()
            assert len(seen) == 1
            released.set()
        finally:
            released.set()
    with pytest.raises(InputError, match="leaves no time"):
        og.connect("http://host", timeout=0)


# --- somebody else --------------------------------------------------------------------------------


def test_another_server_is_recognised():
    page = http(404, "<html>nothing here</html>", Content_Type="text/html")
    with (
        answering(always(page)) as (url, _),
        pytest.raises(UnexpectedAnswer, match="is no Omnigraph server") as foreign,
    ):
        og.connect(url).list_branches()
    assert "/graphs/ID" in str(foreign.value.hint)


def test_a_success_of_another_shape_is_recognised():
    for body in ('{"something": "else"}', "[]", "hello"):
        with answering(always(http(200, body))) as (url, _):
            graph = og.connect(url)
            with pytest.raises(UnexpectedAnswer):
                graph.list_branches()


def test_a_token_does_not_follow_a_redirection():
    moved = http(301, "", Location="http://elsewhere.example/graphs/team")
    with answering(always(moved)) as (url, seen):
        with pytest.raises(UnexpectedAnswer, match="has moved"):
            og.connect(url, SECRET).list_branches()
        assert len(seen) == 1
        assert SECRET.encode() in seen[0]


def test_a_path_without_a_graph_says_how_to_name_one(live):
    with pytest.raises(NotFound) as lost:
        og.connect(live.url).list_branches()
    assert "--graph" in str(lost.value.hint)
    with pytest.raises(NotFound):
        og.connect(live.url, graph="other").list_branches()


# --- waiting --------------------------------------------------------------------------------------


def test_a_busy_server_is_asked_again_when_it_says_when():
    with answering(lambda number: BUSY if number == 1 else BRANCHES) as (url, seen):
        assert og.connect(url).list_branches() == ["main"]
        assert len(seen) == 2


def test_a_wait_beyond_the_bound_is_the_callers_to_decide():
    with answering(always(LATER)) as (url, seen):
        with pytest.raises(TooManyRequests) as busy:
            og.connect(url).mutate(ADD, {"name": "x"})
        assert len(seen) == 1
    assert busy.value.details["retry_after_seconds"] == 60
    assert "60 s" in str(busy.value.hint)


def test_errors_come_back_with_class_code_hint_and_details():
    raised = ExpectedVersionMismatch("node:Person", 3, 4)
    back = error_of(409, raised.envelope())
    assert (type(back), back.details, back.hint) == (type(raised), raised.details, raised.hint)
    assert back.envelope() == raised.envelope()
    busy = WriterBusy("main", "host:1", 250)
    assert error_of(503, busy.envelope()).envelope() == busy.envelope()


# --- who may --------------------------------------------------------------------------------------


def test_tokens_decide_who_may_do_what(guarded: Guarded):
    ana, bo = guarded.connect("act-ana"), guarded.connect("act-bo")
    assert ana.mutate(ADD, {"name": "cy"}).actor_id == "act-ana"
    with pytest.raises(Denied):
        bo.mutate(ADD, {"name": "di"})
    bo.create_branch("work")
    assert bo.mutate(ADD, {"name": "di"}, branch="work").actor_id == "act-bo"
    with pytest.raises(NotFound):
        bo.invoke("everybody")
    with pytest.raises(Unauthenticated) as stranger:
        og.connect(guarded.live.url, SECRET, graph="default").list_branches()
    assert "omnigraph login" in str(stranger.value.hint)
    assert [graph.graph_id for graph in list_graphs(guarded.live.url, TOKENS["act-ana"])] == [
        "default"
    ]
    with pytest.raises(Denied):
        list_graphs(guarded.live.url, TOKENS["act-bo"])


def test_no_token_is_in_errors_reprs_or_logs(guarded: Guarded, caplog: pytest.LogCaptureFixture):
    import traceback

    caplog.set_level(logging.DEBUG)
    graph = og.connect(guarded.live.url, SECRET, graph="default")
    inner = graph._verbs
    shown = [repr(graph), repr(vars(graph)), repr(vars(inner)), repr(inner._connection)]
    for work in (graph.list_branches, lambda: list(graph.export())):
        with pytest.raises(Unauthenticated) as refused:
            work()
        shown += ["".join(traceback.format_exception(refused.value)), refused.value.render()]
        shown.append(str(refused.value.envelope()))
    elsewhere = og.connect(unused_url(), SECRET)
    with pytest.raises(ServerUnreachable) as gone:
        elsewhere.list_branches()
    shown.append("".join(traceback.format_exception(gone.value)))
    shown += [record.getMessage() for record in caplog.records]
    assert not [text for text in shown if SECRET in text]
    assert "request 01" in shown[4]
