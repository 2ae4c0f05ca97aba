"""Several processes that serve as one."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import orjson
import pytest

from omnigraph.access.identity import ATTEMPT_SECONDS, ATTEMPTS_MAX
from omnigraph.errors import InputError, InternalError, TooManyRequests
from omnigraph.graph import open_graph
from omnigraph.server import workers
from omnigraph.server.auth import TOKENS_FILE
from omnigraph.server.config import GraphSpec, ServerConfig
from omnigraph.server.metrics import Metrics
from omnigraph.server.shared import (
    WINDOW,
    MetricsBoard,
    SharedAdmission,
    SharedAttempts,
    SharedState,
    retire,
)
from tests.server.live import ADD, PATIENCE_SECONDS, TOKENS
from tests.server.test_process import Process, refused, started

# --- what they share ------------------------------------------------------------------------------


@pytest.fixture
def states() -> Iterator[list[SharedState]]:
    """The memory of three workers, as each of them sees it."""
    with tempfile.TemporaryFile() as file:
        yield [SharedState(file.fileno(), 3) for _ in range(3)]


def test_the_writes_of_an_actor_are_counted_over_all_workers(states: list[SharedState]):
    one, two, three = (SharedAdmission(state, at, 4, 1000) for at, state in enumerate(states))
    with ExitStack() as held:
        held.enter_context(one.admit("act-ana", 100))
        held.enter_context(two.admit("act-ana", 100))
        held.enter_context(two.admit("act-ana", 100))
        with pytest.raises(TooManyRequests, match="300 bytes are under way"):
            three.admit("act-ana", 701).__enter__()
        with three.admit("act-ana", 700), pytest.raises(TooManyRequests, match="4 writes"):
            one.admit("act-ana", 1).__enter__()
        with three.admit("act-bo", 1000):
            assert [each.inflight for each in (one, two, three)] == [1, 2, 1]
    assert [each.inflight for each in (one, two, three)] == [0, 0, 0]
    with one.admit("act-ana", 1000):
        pass


def test_what_a_dead_worker_held_is_given_back(states: list[SharedState]):
    one, two = (SharedAdmission(states[at], at, 2, 1000) for at in (0, 1))
    one.admit("act-ana", 900).__enter__()
    with two.admit("act-ana", 1):
        states[2].clear(0)
        with two.admit("act-ana", 999), pytest.raises(TooManyRequests):
            two.admit("act-ana", 0).__enter__()


def test_admission_has_room_for_any_number_of_actors_one_after_another(states: list[SharedState]):
    admission = SharedAdmission(states[0], 0, 1, 10)
    for number in range(6000):
        with admission.admit(f"act-{number}", 1):
            pass
    assert all(
        not any(map(any, states[0].held(place + 16))) for place in states[0].actors.all_places()
    )


def test_a_window_that_is_full_refuses_and_forgets_no_actor(
    states: list[SharedState], monkeypatch: pytest.MonkeyPatch
):
    keys = {f"act-{number}": bytes(8) + number.to_bytes(8, "little") for number in range(1, 99)}
    monkeypatch.setattr("omnigraph.server.shared._key", keys.__getitem__)
    admission = SharedAdmission(states[0], 0, 1, 10)
    with ExitStack() as held:
        for number in range(1, WINDOW + 1):
            held.enter_context(admission.admit(f"act-{number}", 1))
        with pytest.raises(TooManyRequests, match="too many others"):
            admission.admit("act-98", 1).__enter__()
        with pytest.raises(TooManyRequests, match="1 writes of yours"):
            admission.admit("act-1", 1).__enter__()
    with admission.admit("act-98", 1):
        pass


def test_tokens_sent_in_vain_are_counted_over_all_workers(states: list[SharedState]):
    now = [1000.0]
    one, two = (SharedAttempts(state, lambda: now[0]) for state in states[:2])
    one.succeeded("10.0.0.1", "a good token")
    for number in range(ATTEMPTS_MAX):
        for each in (one, two):
            each.require("10.0.0.1", "guess")
        (one, two)[number % 2].failed("10.0.0.1")
    for each in (one, two):
        with pytest.raises(TooManyRequests):
            each.require("10.0.0.1", "guess")
        each.require("10.0.0.2", "guess")
        each.require("10.0.0.1", "a good token")
    now[0] += 2 * ATTEMPT_SECONDS
    two.require("10.0.0.1", "guess")


def test_one_page_has_the_numbers_of_all_and_counters_outlive_their_worker(tmp_path: Path):
    one, two = (Metrics(MetricsBoard(tmp_path, name)) for name in ("0-1", "1-2"))
    for each, count in ((one, 3), (two, 4)):
        for _ in range(count):
            each.answered("/healthz", "GET", 200, 0.002)
        each.rejected("busy")
        each.watch("connections", "Connections open", lambda: 5.0)
        each.watch("graphs_ready", "Graphs served", partial(float, count))
        each.publish()

    def shown(metrics: Metrics) -> dict[str, float]:
        lines = [line for line in metrics.page().decode().splitlines() if line[0] != "#"]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    counted = 'omnigraph_http_requests_total{method="GET",route="/healthz",status="200"}'
    buckets = 'omnigraph_http_request_seconds_bucket{le="0.0025",method="GET",route="/healthz"}'
    for each in (one, two):
        page = shown(each)
        assert page[counted] == page[buckets] == 7
        assert page['omnigraph_rejections_total{reason="busy"}'] == 2
        assert page["omnigraph_connections"] == 10
        assert page["omnigraph_graphs_ready"] == 3
    retire(tmp_path, "0-1")
    retire(tmp_path, "0-none")
    again = Metrics(MetricsBoard(tmp_path, "0-3"))
    again.answered("/healthz", "GET", 200, 0.002)
    assert shown(again)[counted] == 8
    assert shown(two)["omnigraph_connections"] == 5


# --- the supervisor -------------------------------------------------------------------------------


def config(spec: GraphSpec, **more: object) -> ServerConfig:
    found = ServerConfig(
        (spec,), bind="127.0.0.1:0", workers=2, unauthenticated=True, environment=dict(os.environ)
    )
    return replace(found, **more)  # type: ignore[arg-type]


def test_workers_that_die_again_and_again_end_the_server_with_the_reason(
    spec: GraphSpec, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workers, "RESTART_SECONDS", 0.001)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(InternalError, match=r"ended 5 times within 60 seconds.*exit code 1") as end:
        workers.supervise(config(spec), lambda address: None)
    assert "--workers 1" in str(end.value.hint)


def test_what_cannot_have_workers_says_so(spec: GraphSpec, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InputError, match="65 workers are too many"):
        workers.supervise(config(spec, workers=65), lambda address: None)
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(InputError, match="as Linux does it"):
        workers.supervise(config(spec), lambda address: None)


# --- real processes -------------------------------------------------------------------------------


def pids(server: Process) -> list[int]:
    """The workers of a server."""
    parent = server.process.pid
    return [
        int(each.name)
        for each in Path("/proc").iterdir()
        if each.name.isdigit() and _parent(each) == parent
    ]


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.json"
    path.write_bytes(orjson.dumps(TOKENS))
    path.chmod(0o600)
    return path


@pytest.mark.slow
def test_no_acknowledged_write_is_lost_when_a_worker_is_killed_under_load(
    spec: GraphSpec, tokens: Path, tmp_path: Path
):
    revoked = tmp_path / "revoked.json"
    revoked.write_text("{}")
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "version: 1\ngroups: {team: [act-ana, act-bo]}\nrules:\n"
        "  - {id: all, allow: {actors: {group: team}, actions: [read, change], "
        "branch_scope: any}}\n"
    )
    arguments = ("--store", spec.uri, "--policy", str(policy), "--metrics", "--workers", "2")
    more = {TOKENS_FILE: str(tokens), "OMNIGRAPH_REVOCATIONS": str(revoked)}
    ana = {"Authorization": f"Bearer {TOKENS['act-ana']}"}
    bo = {"Authorization": f"Bearer {TOKENS['act-bo']}"}
    acknowledged: list[str] = []
    killed, enough = threading.Event(), threading.Event()

    with started(*arguments, "--revocations", str(revoked), **more) as server:
        url = f"{server.url}/graphs/default"
        before = pids(server)
        assert len(before) == 2

        def write(client: int) -> None:
            for number in range(500):
                name = f"p{client}-{number}"
                body = {"query": ADD, "params": {"name": name}}
                try:
                    # A new connection each time, so that both workers are asked.
                    done = httpx.post(f"{url}/mutate", json=body, headers=ana, timeout=60)
                except httpx.TransportError:
                    continue  # its worker was killed; whether it was written is not known
                if done.status_code == 200:
                    acknowledged.append(name)
                if len(acknowledged) > 12:
                    enough.set()
                if killed.is_set() and len(acknowledged) > 30:
                    return

        with ThreadPoolExecutor(3) as threads:
            running = [threads.submit(write, client) for client in range(3)]
            assert enough.wait(PATIENCE_SECONDS)
            os.kill(before[0], signal.SIGKILL)
            killed.set()
            for each in running:
                each.result()
        stored = open_graph(spec.uri, "read_only").query(
            "query q { match { $p: Person } return { $p.name } }"
        )
        names = {row["p.name"] for row in stored.to_pylist()}
        assert set(acknowledged) <= names
        # What is revoked is refused by every worker, at the next request.
        assert httpx.get(f"{url}/branches", headers=bo).status_code == 200
        revoked.write_text('{"actors": ["act-bo"]}')
        for _ in range(6):
            assert httpx.get(f"{url}/branches", headers=bo).status_code == 401
        page = httpx.get(f"{server.url}/metrics", headers=ana).text
        assert "omnigraph_graphs_ready 1.0" in page
        server.send(signal.SIGTERM)
        assert server.wait() == 0
        _, logged = server.rest()
        assert "worker ended worker=" in logged and "signal 9" in logged
    assert not any(_parent(Path(f"/proc/{pid}")) for pid in before)


@pytest.mark.slow
def test_a_server_that_cannot_start_says_so_once(spec: GraphSpec, tmp_path: Path):
    missing = ("--store", str(tmp_path / "missing.omni"), "--unauthenticated", "--workers", "2")
    code, out, err = refused(*missing, "--bind", "127.0.0.1:0", "--require-all-graphs")
    assert (code, out) == (1, "")
    assert err.count("error:") == 1 and "missing.omni" in err
    with started("--store", spec.uri, "--unauthenticated", OMNIGRAPH_WORKERS="2") as server:
        address = server.url.removeprefix("http://")
        taken = ("--store", spec.uri, "--unauthenticated", "--workers", "2", "--bind", address)
        code, _, err = refused(*taken)
        assert code == 1 and "cannot listen" in err
        server.send(signal.SIGTERM)
        assert server.wait() == 0
