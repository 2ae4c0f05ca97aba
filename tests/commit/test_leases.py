"""Leases: one owner at a time across processes, epochs that only grow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest

from omnigraph.commit import leases as leases_module
from omnigraph.commit.leases import GRAPH_SCOPE, Leases, WriteSettings, branch_scope, read_record
from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.local_disk import Durability, OsLock
from omnigraph.effects.objects import ObjectStore, open_store
from omnigraph.effects.uri import Root
from omnigraph.errors import LeaseLost, StorageError, WriterBusy

SHORT = WriteSettings(ttl_ms=300, wait_ms=150)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """A store; a test that leaves a lease behind, which would be renewed for ever, fails."""
    before = beating()
    yield open_store(Root.parse(tmp_path / "root"), Durability.PROCESS)
    for timer in beating() - before:
        timer.join(timeout=60)
    assert beating() <= before


def beating() -> set[threading.Thread]:
    """The threads that renew leases; one that is not given back starts the next before it ends."""
    return {each for each in threading.enumerate() if isinstance(each, threading.Timer)}


def local(store: ObjectStore, owner: str, settings: WriteSettings = SHORT) -> Leases:
    """Leases as on local disk, where a lock shows whether the owner lives."""
    assert store.root.path is not None
    return Leases(store, owner, settings, store.root.path / "__lease")


def remote(store: ObjectStore, owner: str, settings: WriteSettings = SHORT) -> Leases:
    """Leases as on an object store, where only time tells."""
    return Leases(store, owner, settings, None)


def record(store: ObjectStore, scope: str = GRAPH_SCOPE) -> dict[str, object]:
    return dict(orjson.loads(store.read(f"__lease/{scope}.json")))


@pytest.mark.parametrize("kind", [local, remote])
def test_a_lease_is_held_and_released_and_its_epoch_grows(store: ObjectStore, kind: object) -> None:
    leases = kind(store, "one")  # type: ignore[operator]
    with leases.hold(GRAPH_SCOPE, "op-1") as first:
        assert record(store)["state"] == "held"
        assert record(store)["operation_id"] == "op-1"
    assert record(store)["state"] == "released"
    with leases.hold(GRAPH_SCOPE, "op-2") as second:
        assert second.epoch == first.epoch + 1
        assert not second.was_taken_over


def test_a_record_that_could_not_be_given_back_does_not_keep_its_owner_waiting(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was away for a moment when the lease was released."""
    leases = remote(store, "one")
    with monkeypatch.context() as away, leases.hold(GRAPH_SCOPE, "op-1") as first:
        away.setattr(type(store), "write_if_match", _raising(FailureClass.TRANSIENT))
    assert record(store)["state"] == "held"
    again = leases.try_hold(GRAPH_SCOPE, "op-2")
    assert again is not None
    assert again.was_taken_over  # what was fenced by the first is fenced again
    assert again.epoch == first.epoch + 1
    again.release()


def test_a_lost_answer_to_a_lease_is_settled_by_its_record(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = remote(store, "one")
    for verb in ("write_if_absent", "write_if_match"):
        write = getattr(type(store), verb)

        def lost(self: ObjectStore, *given: object, write: Callable[..., object] = write) -> None:
            write(self, *given)
            _raising(FailureClass.UNKNOWN)()

        with monkeypatch.context() as losing:
            losing.setattr(type(store), verb, lost)
            lease = leases.try_hold(branch_scope("main"), "op")
        assert lease is not None
        lease.release()


def _raising(kind: FailureClass) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise StorageFailure(kind, "swap", "a lease", "the answer was lost")

    return fail


@pytest.mark.parametrize("kind", [local, remote])
def test_c_wrt_043_a_busy_lease_names_scope_and_owner_after_the_wait(
    store: ObjectStore, kind: object
) -> None:
    one, two = kind(store, "one"), kind(store, "two")  # type: ignore[operator]
    scope = branch_scope("main")
    with one.hold(scope, "op"), pytest.raises(WriterBusy) as busy, two.hold(scope, "op"):
        pass
    assert busy.value.details["scope"] == scope
    assert busy.value.details["owner"] == "one"


@pytest.mark.parametrize("kind", [local, remote])
def test_a_live_lease_is_not_taken_without_waiting(store: ObjectStore, kind: object) -> None:
    one, two = kind(store, "one"), kind(store, "two")  # type: ignore[operator]
    with one.hold(GRAPH_SCOPE, "op"):
        assert two.try_hold(GRAPH_SCOPE, "op") is None
    taken = two.try_hold(GRAPH_SCOPE, "op")
    assert taken is not None
    taken.release()


def test_beats_keep_a_lease_alive_past_its_ttl(store: ObjectStore) -> None:
    patient = WriteSettings(ttl_ms=1_200, wait_ms=2_000)
    one, two = remote(store, "one", patient), remote(store, "two", patient)
    with one.hold(GRAPH_SCOPE, "op") as lease:
        with pytest.raises(WriterBusy), two.hold(GRAPH_SCOPE, "op"):
            pass
        lease.require_valid()
        assert int(str(record(store)["beat"])) >= 1


def test_a_silent_remote_owner_is_taken_over_after_its_ttl(store: ObjectStore) -> None:
    dead = {
        "owner_id": "dead",
        "epoch": 7,
        "beat": 3,
        "ttl_ms": 100,
        "state": "held",
        "operation_id": "op",
    }
    store.write("__lease/graph.json", orjson.dumps(dead))
    with remote(store, "two", WriteSettings(300, 3_000)).hold(GRAPH_SCOPE, "op") as lease:
        assert lease.was_taken_over
        assert lease.epoch == 8


def test_c_wrt_044_a_dead_local_owner_is_taken_over_at_once(store: ObjectStore) -> None:
    one = local(store, "one")
    lease = one.try_hold(GRAPH_SCOPE, "op")
    assert lease is not None and lease._os_lock is not None
    # What the operating system does when the owner's process ends.
    lease._os_lock.release()
    with local(store, "two").hold(GRAPH_SCOPE, "op") as taken:
        assert taken.was_taken_over
        assert taken.epoch == lease.epoch + 1
    lease.release()


def test_an_owner_that_was_taken_over_stops_and_leaves_the_record_alone(
    store: ObjectStore,
) -> None:
    one = local(store, "one")
    lease = one.try_hold(GRAPH_SCOPE, "op")
    assert lease is not None and lease._os_lock is not None
    lease._os_lock.release()
    with local(store, "two").hold(GRAPH_SCOPE, "op"):
        lease._beat()
        with pytest.raises(LeaseLost):
            lease.require_valid()
        lease.release()
        assert record(store)["owner_id"] == "two"
        assert record(store)["state"] == "held"


def test_a_branch_writer_waits_for_a_graph_wide_operation(store: ObjectStore) -> None:
    one, two = local(store, "one"), local(store, "two")
    with (
        one.hold(GRAPH_SCOPE, "op"),
        pytest.raises(WriterBusy) as busy,
        two.hold_branch("main", "op"),
    ):
        pass
    assert busy.value.details["scope"] == GRAPH_SCOPE
    assert record(store, "branch/main")["state"] == "released"
    with two.hold_branch("main", "op"):
        pass


def test_a_dead_graph_owner_does_not_hold_branch_writers_up(store: ObjectStore) -> None:
    one = local(store, "one")
    lease = one.try_hold(GRAPH_SCOPE, "op")
    assert lease is not None and lease._os_lock is not None
    lease._os_lock.release()
    with local(store, "two").hold_branch("main", "op") as held:
        assert held.scope == "branch/main"
    lease.release()


def test_of_many_claimants_one_at_a_time_owns_a_lease(store: ObjectStore) -> None:
    owners = 0
    most = 0
    epochs: list[int] = []
    guard = threading.Lock()

    def claim(name: str) -> None:
        nonlocal owners, most
        leases = local(store, name, WriteSettings(5_000, 20_000))
        for _ in range(5):
            with leases.hold(GRAPH_SCOPE, "op") as lease:
                with guard:
                    owners += 1
                    most = max(most, owners)
                    epochs.append(lease.epoch)
                with guard:
                    owners -= 1

    threads = [threading.Thread(target=claim, args=(f"owner-{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert epochs == sorted(epochs)
    assert len(set(epochs)) == 30


def test_a_damaged_record_is_named(store: ObjectStore) -> None:
    store.write("__lease/graph.json", b"{}")
    with pytest.raises(StorageError, match=r"__lease/graph\.json"):
        local(store, "one").try_hold(GRAPH_SCOPE, "op")
    with pytest.raises(StorageError, match="damaged"):
        read_record("x", b"nonsense")


def test_c_mnt_045_settings_come_from_the_environment_and_bad_ones_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = WriteSettings.from_environment(
        {"OMNIGRAPH_LEASE_TTL_MS": "500", "OMNIGRAPH_LEASE_WAIT_MS": "soon"}
    )
    assert (settings.ttl_ms, settings.wait_ms) == (500, 30_000)
    assert "OMNIGRAPH_LEASE_WAIT_MS is 'soon'" in caplog.text


def test_one_writer_at_a_time_is_next_in_line(store: ObjectStore) -> None:
    one, two = local(store, "one"), local(store, "two")
    seen: list[str] = []

    def second() -> None:
        with two.queued("main") as queue:
            seen.append(f"crowded {queue.is_crowded}")

    with one.queued("main") as queue:
        assert not queue.is_crowded
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(timeout=0.05)
        assert seen == []
        queue.leave()
        waiting.join(timeout=30)
        assert seen == ["crowded True"]


def test_a_slow_line_is_waited_in_once_and_avoided_for_a_while(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_module, "QUEUE_WAIT_MS", 20)
    waits: list[int | None] = []
    acquire = OsLock.acquire

    def watched(lock: OsLock, timeout_ms: int | None = None) -> bool:
        waits.append(timeout_ms)
        return acquire(lock, timeout_ms)

    one, two = local(store, "one"), local(store, "two")
    with one.queued("main"):
        monkeypatch.setattr(OsLock, "acquire", watched)
        for _ in range(leases_module.QUEUE_SKIPPED + 1):
            with two.queued("main") as queue:
                assert queue.is_crowded
    assert waits.count(20) == 2  # the first, and the one after those that avoid it


def test_on_an_object_store_there_is_no_line(store: ObjectStore) -> None:
    one, two = remote(store, "one"), remote(store, "two")
    with one.queued("main"), two.queued("main") as queue:
        assert not queue.is_crowded


def test_the_next_owner_catches_up_while_it_waits(store: ObjectStore) -> None:
    one, two = local(store, "one"), local(store, "two", WriteSettings(wait_ms=30_000))
    looks = threading.Semaphore(0)
    owned = threading.Event()

    def second() -> None:
        with two.hold_branch("main", "op", catch_up=looks.release):
            owned.set()

    with one.hold_branch("main", "op"):
        waiting = threading.Thread(target=second)
        waiting.start()
        assert looks.acquire(timeout=30)
        assert looks.acquire(timeout=30)
        assert not owned.is_set()
    waiting.join(timeout=30)
    assert owned.is_set()


def test_the_line_of_a_branch_is_no_branch(store: ObjectStore) -> None:
    """Whatever branches are called, standing in line for one does not hold another up."""
    one, two = local(store, "one"), local(store, "two")
    names = ["main", "main/next", "line", "line/main", "branch/main"]
    with ExitStack() as held:
        for name in names:
            held.enter_context(one.queued(name))
        for name in names:
            held.enter_context(two.hold_branch(name, "op"))
