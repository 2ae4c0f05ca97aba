"""Every write can be asked again: the same key, the same answer, one effect."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import omnigraph as og
from omnigraph.errors import FencedOut, StorageError, WriterBusy
from omnigraph.graph import Graph
from omnigraph.server.app import Repeats
from omnigraph.server.config import GraphSpec
from tests.server.live import ADD, Live, serving
from tests.server.test_process import started
from tests.server.test_real_faults import asking

KEY = "Idempotency-Key"
RECORD = '{"type": "City", "data": {"name": "Oslo"}}\n'
SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob?  city: String? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City
"""
NEW_PERSON = 'query add { insert Person { name: "grace" } }'


def commits(live: Live, branch: str = "main") -> int:
    return len(live.graph().list_commits(branch))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/mutate", {"query": NEW_PERSON}),
        ("POST", "/change", {"query": NEW_PERSON}),
        ("POST", "/queries/sign_up", {"params": {"name": "grace"}}),
        ("POST", "/load", {"data": RECORD, "mode": "append"}),
        ("POST", "/ingest", {"data": RECORD, "mode": "append"}),
        ("POST", "/branches", {"name": "new"}),
        ("POST", "/branches/merge", {"source": "side"}),
        ("DELETE", "/branches/side", None),
        ("POST", "/commits/HEAD/revert", {}),
        ("POST", "/commits/SIDE/cherry-pick", {}),
    ],
)
def test_a_write_that_is_asked_again_with_its_key_gets_the_first_answer(
    open_server: Live, method: str, path: str, body: dict[str, Any] | None
):
    graph = open_server.graph()
    graph.create_branch("side")
    graph.mutate(ADD, {"name": "on-side"}, branch="side")
    for word, branch in (("HEAD", "main"), ("SIDE", "side")):
        path = path.replace(word, graph.list_commits(branch)[0].graph_commit_id)
    client = open_server.client()
    first = client.request(method, path, json=body, headers={KEY: "k-1"})
    assert first.status_code == 200, first.text
    after = commits(open_server)
    again = client.request(method, path, json=body, headers={KEY: "k-1"})
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert commits(open_server) == after


def test_ndjson_and_a_schema_can_be_asked_again(open_server: Live):
    client = open_server.client()
    ndjson = {"Content-Type": "application/x-ndjson", KEY: "k-2"}
    first, again = (
        client.post("/load/ndjson?mode=append", content=RECORD.encode(), headers=ndjson)
        for _ in range(2)
    )
    assert first.status_code == 200 and first.json() == again.json()
    applied, repeated = (
        client.post("/schema/apply", json={"schema_source": SCHEMA}, headers={KEY: "k-3"})
        for _ in range(2)
    )
    assert applied.json()["applied"] is True and applied.json() == repeated.json()


def test_the_key_is_the_operation_id_of_the_engine_and_outlives_the_process(spec: GraphSpec):
    body = {"query": NEW_PERSON}
    with serving(spec) as live:
        first = live.client().post("/mutate", json=body, headers={KEY: "k-4"}).json()
    embedded = og.open(spec.uri).mutate(NEW_PERSON, operation_id="k-4")
    assert embedded.commit is not None
    assert embedded.commit.graph_commit_id == first["commit"]["graph_commit_id"]
    with serving(spec) as live:
        assert live.client().post("/mutate", json=body, headers={KEY: "k-4"}).json() == first


WRITES: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/branches", {"name": "new", "from": "side"}),
    ("DELETE", "/branches/side", None),
    ("POST", "/branches/merge", {"source": "side", "delete_branch": True}),
    ("POST", "/commits/HEAD/revert", {}),
    ("POST", "/commits/SIDE/cherry-pick", {}),
    ("POST", "/schema/apply", {"schema_source": SCHEMA}),
]
LAST_STEPS = [
    "branch_create.post_register",
    "branch_delete.post_native",
    "graph_publish.after_manifest_commit",
    "graph_publish.after_manifest_commit",
    "graph_publish.after_manifest_commit",
    "schema_apply.after_manifest_commit",
]
"""Of each of these writes, the step at which its effect is there and its answer is not."""


def prepared(uri: str, path: str) -> str:
    """Make what a write needs; its path with the ids of commits."""
    graph = og.open(uri)
    if "schema" not in path:
        graph.create_branch("side")
        graph.mutate(ADD, {"name": "on-side"}, branch="side")
        for word, branch in (("HEAD", "main"), ("SIDE", "side")):
            path = path.replace(word, graph.list_commits(branch)[0].graph_commit_id)
    return path


def told(answer: httpx.Response) -> dict[str, Any]:
    """What an answer says beside the address of the server."""
    assert answer.status_code == 200, answer.text
    return {name: value for name, value in answer.json().items() if name != "uri"}


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_the_key_of_every_write_outlives_the_process(
    spec: GraphSpec, method: str, path: str, body: dict[str, Any] | None
):
    path = prepared(spec.uri, path)
    answers = []
    for _ in range(2):
        with serving(spec) as live:
            answer = live.client().request(method, path, json=body, headers={KEY: "k-6"})
            answers.append((told(answer), commits(live), live.graph().list_branches()))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("write", "step"), [*zip(WRITES, LAST_STEPS, strict=True)], ids=[path for _, path, _ in WRITES]
)
def test_a_server_killed_before_its_answer_gives_it_to_the_one_who_asks_again(
    spec: GraphSpec, write: tuple[str, str, dict[str, Any] | None], step: str
):
    method, path, body = write
    path = prepared(spec.uri, path)
    flags = ("--unauthenticated", "--store", spec.uri)
    with started(*flags, OMNIGRAPH_FAILPOINTS=f"{step}=kill@1") as dying:
        with asking(dying) as client, pytest.raises(httpx.TransportError):
            client.request(method, path, json=body, headers={KEY: "k-7"})
        assert dying.wait() == -signal.SIGKILL
    with serving(spec) as live:
        client = live.client()
        receipt = told(client.request(method, path, json=body, headers={KEY: "k-7"}))
        after = commits(live), live.graph().list_branches()
        live.server.app.repeats = Repeats()
        assert told(client.request(method, path, json=body, headers={KEY: "k-7"})) == receipt
        assert (commits(live), live.graph().list_branches()) == after
        if "commit" in receipt:
            assert (
                receipt["commit"]["graph_commit_id"]
                == live.graph().list_commits()[0].graph_commit_id
            )
        if path.endswith("/merge"):
            assert receipt["branch_deleted"] is True
            assert live.graph().list_branches() == ["main"]
        if path.endswith("/apply"):
            assert receipt["applied"] is True and receipt["steps"]


def test_a_schema_asked_again_is_answered_though_it_would_not_fit_any_more(spec: GraphSpec):
    with serving(spec) as live:
        client = live.client()
        body = {"schema_source": SCHEMA}
        first = told(client.post("/schema/apply", json=body, headers={KEY: "k-8"}))
        live.graph().apply_schema(SCHEMA.replace("city: String?", "city: String?  zip: I32?"))
        live.server.app.repeats = Repeats()
        assert told(client.post("/schema/apply", json=body, headers={KEY: "k-8"})) == first
        assert "zip" in live.graph().schema_source


@pytest.mark.parametrize("path", ["/mutate", "/load"])
def test_a_key_belongs_to_the_actor_who_used_it(guarded: Live, path: str):
    guarded.graph().create_branch("side", actor="act-ana")

    def add(actor: str, name: str) -> dict[str, Any]:
        record = f'{{"type": "City", "data": {{"name": "{name}"}}}}\n'
        asked: dict[str, dict[str, Any]] = {
            "/mutate": {"query": ADD, "params": {"name": name}},
            "/load": {"data": record, "mode": "append"},
        }
        body = {**asked[path], "branch": "side"}
        # A new process remembers none of its answers.
        guarded.server.app.repeats = Repeats()
        answer = guarded.client(actor).post(path, json=body, headers={KEY: "nightly"})
        assert answer.status_code == 200, answer.text
        # A repeated load does not say again how long the first took.
        return {name: value for name, value in answer.json().items() if name != "stages"}

    first = add("act-ana", "of-ana")
    before = commits(guarded, "side")
    other = add("act-bo", "of-bo")
    assert (first["actor_id"], other["actor_id"]) == ("act-ana", "act-bo")
    assert commits(guarded, "side") == before + 1
    assert add("act-ana", "of-ana") == first
    assert add("act-bo", "of-bo") == other
    assert commits(guarded, "side") == before + 1


def test_a_key_stands_for_one_request(open_server: Live):
    client = open_server.client()
    assert client.post("/branches", json={"name": "a"}, headers={KEY: "k"}).status_code == 200
    other = client.post("/branches", json={"name": "b"}, headers={KEY: "k"})
    assert (other.status_code, other.json()["outcome"]) == (409, "not_begun")
    assert "b" not in open_server.graph().list_branches()


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_a_key_that_is_none_is_400(open_server: Live, key: str):
    answer = open_server.client().post("/branches", json={"name": "a"}, headers={KEY: key})
    assert answer.status_code == 400


def test_two_keys_are_400(open_server: Live):
    headers = [(KEY, "a"), (KEY, "b"), ("Content-Type", "application/json")]
    answer = open_server.client().post("/branches", content=b'{"name": "a"}', headers=headers)
    assert answer.status_code == 400


def test_the_same_key_at_the_same_time_is_one_write(
    open_server: Live, monkeypatch: pytest.MonkeyPatch
):
    begun, go_on, calls = threading.Event(), threading.Event(), []
    real = Graph.create_branch

    def slow(self: Graph, *args: Any, **options: Any) -> Any:
        calls.append(args)
        begun.set()
        assert go_on.wait(60)
        return real(self, *args, **options)

    monkeypatch.setattr(Graph, "create_branch", slow)
    client = open_server.client()

    def create() -> Any:
        return client.post("/branches", json={"name": "one"}, headers={KEY: "same"})

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(create)
        assert begun.wait(60)
        second = pool.submit(create)
        while open_server.server.app.inflight < 2:
            pass
        go_on.set()
        assert first.result().json() == second.result().json()
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (WriterBusy("main", "another", 10), "not_begun"),
        (StorageError("the disk is gone"), "unknown"),
        (FencedOut("taken over"), "unknown"),
        (RuntimeError("a bug"), "unknown"),
    ],
)
def test_a_failure_says_what_became_of_the_write(
    open_server: Live, monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: str
):
    with monkeypatch.context() as patched:

        def fails(*_args: Any, **_options: Any) -> None:
            raise error

        patched.setattr(Graph, "mutate", fails)
        body = {"query": NEW_PERSON}
        failed = open_server.client().post("/mutate", json=body, headers={KEY: "k-5"})
        assert failed.json()["outcome"] == outcome
    # A failure is not kept: asking again does it.
    done = open_server.client().post("/mutate", json=body, headers={KEY: "k-5"})
    assert done.status_code == 200


def test_what_is_refused_before_the_engine_is_not_begun_and_reads_have_no_outcome(
    open_server: Live,
):
    client = open_server.client()
    assert client.post("/mutate", json={"quer": "x"}).json()["outcome"] == "not_begun"
    assert client.post("/mutate", json={"query": "query"}).json()["outcome"] == "not_begun"
    assert "outcome" not in client.post("/query", json={"query": "query"}).json()
