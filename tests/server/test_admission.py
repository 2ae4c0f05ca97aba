"""How much one actor may have under way, and who waits for whom."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import branch_scope
from omnigraph.effects.uri import Root
from omnigraph.errors import TooManyRequests
from omnigraph.server.admission import BYTES_VARIABLE, INFLIGHT_VARIABLE, Admission
from omnigraph.server.config import GraphSpec
from tests.server.live import (
    ADD,
    PATIENCE_SECONDS,
    POLICY,
    Live,
    bearer,
    serving,
    with_tokens,
)
from tests.support.waiting import until


def write(live: Live, name: str, actor: str | None = None, branch: str = "main") -> httpx.Response:
    return httpx.post(
        f"{live.url}/graphs/default/mutate",
        json={"query": ADD, "params": {"name": name}, "branch": branch},
        headers={} if actor is None else bearer(actor),
        timeout=PATIENCE_SECONDS,
    )


def test_c_srv_040_of_32_racers_16_are_admitted_and_the_others_told_when_to_return(
    open_server: Live,
):
    admission = open_server.server.services.admission
    graph = open_server.graph()
    with ThreadPoolExecutor(32) as racers:
        # An admitted write waits here, so that none makes room for another.
        with graph._kernel.gates.write(["main"]):
            racing = [racers.submit(write, open_server, f"p{i}") for i in range(32)]
            until(lambda: sum(each.done() for each in racing) == 16)
            refused = [each.result() for each in racing if each.done()]
            assert {answer.status_code for answer in refused} == {429}
            assert {answer.headers["retry-after"] for answer in refused} == {"60"}
            assert {answer.json()["code"] for answer in refused} == {"too_many_requests"}
            assert admission.inflight == 16
        answers = [each.result() for each in racing]
    assert sorted(answer.status_code for answer in answers) == [200] * 16 + [429] * 16
    assert admission.inflight == 0
    written = {row["p.name"] for row in graph.query(_NAMES).to_pylist()} - {"ada", "bo"}
    assert len(written) == 16


_NAMES = "query names { match { $p: Person } return { $p.name } }"


def test_reads_pass_by_writers_that_wait(open_server: Live):
    with (
        ThreadPoolExecutor(16) as writers,
        open_server.graph()._kernel.gates.write(["main"]),
    ):
        waiting = [writers.submit(write, open_server, f"p{i}") for i in range(16)]
        until(lambda: open_server.server.services.admission.inflight == 16)
        for _ in range(20):
            answer = open_server.client().post("/query", json={"query": _NAMES})
            assert answer.status_code == 200
        assert not any(each.done() for each in waiting)


@pytest.fixture
def narrow(spec: GraphSpec, tmp_path: Path):
    """One write at a time for everybody."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    ruled = GraphSpec("default", spec.uri, (), policy)
    with serving(ruled, environment=with_tokens(**{INFLIGHT_VARIABLE: "1"})) as live:
        yield live


def test_c_srv_041_denied_requests_take_no_slot(narrow: Live):
    graph, admission = narrow.graph(), narrow.server.services.admission
    graph.create_branch("side", actor="act-bo")
    with ThreadPoolExecutor(4) as writers:
        with graph._kernel.gates.write(["side", "main"]):
            held: Future[httpx.Response] = writers.submit(write, narrow, "x", "act-bo", "side")
            until(lambda: admission.inflight == 1)
            # Over the limit, and denied all the same: policy comes before admission.
            assert write(narrow, "y", "act-bo", "main").status_code == 403
            assert write(narrow, "y", "act-cy", "main").status_code == 403
            assert write(narrow, "y", "act-bo", "side").status_code == 429
            # Nobody else is affected.
            other = writers.submit(write, narrow, "z", "act-ana", "main")
            until(lambda: admission.inflight == 2)
        assert held.result().status_code == other.result().status_code == 200
    assert admission.inflight == 0


def test_a_failed_write_gives_its_slot_back(narrow: Live):
    for _ in range(3):
        bad = narrow.client("act-ana").post("/mutate", json={"query": "query q( {"})
        assert bad.status_code == 400
    assert write(narrow, "x", "act-ana").status_code == 200
    assert narrow.server.services.admission.inflight == 0


def test_bytes_are_counted_and_a_refusal_costs_nothing():
    admission = Admission(inflight_max=2, bytes_max=100)
    with admission.admit("ana", 60):
        with pytest.raises(TooManyRequests), admission.admit("ana", 41):
            pass
        with admission.admit("bo", 100), admission.admit("ana", 40):
            assert admission.inflight == 3
            with pytest.raises(TooManyRequests, match="2 writes"), admission.admit("ana", 0):
                pass
    assert admission.inflight == 0
    with admission.admit(None, 100):
        pass


def test_the_count_holds_under_a_crowd_of_threads():
    admission = Admission(inflight_max=4)
    start, most, guard = threading.Barrier(16), [0], threading.Lock()

    def crowd() -> None:
        start.wait()
        for _ in range(200):
            try:
                with admission.admit("ana", 1), guard:
                    most[0] = max(most[0], admission.inflight)
            except TooManyRequests:
                pass

    threads = [threading.Thread(target=crowd) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= 4 and admission.inflight == 0


def test_bad_limits_are_warned_about_and_not_used(caplog: pytest.LogCaptureFixture):
    found = Admission.from_environment({INFLIGHT_VARIABLE: "many", BYTES_VARIABLE: "-1"})
    assert (found.inflight_max, found.bytes_max) == (16, 4 * 1024**3)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    set_ = Admission.from_environment({INFLIGHT_VARIABLE: "3", BYTES_VARIABLE: "7"})
    assert (set_.inflight_max, set_.bytes_max) == (3, 7)


def test_c_srv_047_a_writer_that_keeps_its_lease_makes_503_with_a_time_to_return(
    spec: GraphSpec, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMNIGRAPH_LEASE_WAIT_MS", "50")
    with serving(spec) as live:
        other = Kernel.of(Root.parse(spec.uri))
        before = live.graph().list_commits()[0].graph_commit_id
        with other.leases.hold(branch_scope("main"), "01K9WR3C5T8M2B7XQ4ZJ6V0NHD"):
            answer = write(live, "x")
        assert answer.status_code == 503
        assert "code" not in answer.json()
        busy = answer.json()["writer_busy"]
        assert set(busy) == {"scope", "owner", "retry_after_ms"}
        assert int(answer.headers["retry-after"]) >= 1
        assert live.graph().list_commits()[0].graph_commit_id == before
        assert write(live, "x").status_code == 200
