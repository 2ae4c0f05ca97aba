"""The lock of a cluster: an object that is created only if absent.

It never expires, because a command cannot know whether the holder is alive: an operator removes it
by its id.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from omnigraph.cluster.diagnostics import ClusterFindings, sentence
from omnigraph.cluster.ledger import Strict, decoded, require_version, validated
from omnigraph.effects.clock import MINT, SYSTEM_CLOCK
from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import ClusterRefused, OmnigraphError
from omnigraph.model.records import dataclass

LOCK = "__cluster/lock.json"
VERSION = 1


class LockRecord(Strict):
    """The content of the lock: its holder."""

    version: int
    lock_id: str
    operation: str
    created_at: str
    pid: int
    actor: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class HeldLock:
    """An existing lock."""

    record: LockRecord
    age_seconds: int

    @property
    def holder(self) -> str:
        """The holder and the time, as a part of a sentence."""
        record = self.record
        actor = f" of {record.actor}" if record.actor else ""
        host = f" on {record.host}" if record.host else ""
        return (
            f"`cluster {record.operation}`{actor} (process {record.pid}{host}) since "
            f"{record.created_at}, {self.age_seconds} s ago"
        )


def now_text() -> str:
    """The current time, in the format of records."""
    moment = dt.datetime.fromtimestamp(SYSTEM_CLOCK.wall_us() / 1e6, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_lock(store: ObjectStore) -> HeldLock | None:
    """The lock, if it exists; raises `ClusterRefused` if it cannot be read."""
    try:
        data = store.read_if_exists(LOCK)
    except OmnigraphError as problem:
        raise ClusterRefused("state_lock_read_error", LOCK, sentence(problem)) from problem
    if data is None:
        return None
    document = decoded(data, LOCK, "invalid_state_lock")
    code = "unsupported_state_lock_version"
    require_version(document, VERSION, LOCK, member="version", code=code)
    record = validated(LockRecord, document, LOCK, "invalid_state_lock")
    try:
        created = dt.datetime.fromisoformat(record.created_at)
        age = SYSTEM_CLOCK.wall_us() / 1e6 - created.timestamp()
    except ValueError:
        raise ClusterRefused(
            "invalid_state_lock", LOCK, f"{LOCK}: `created_at` is no time of RFC 3339"
        ) from None
    return HeldLock(record, max(0, int(age)))


@contextmanager
def hold_lock(
    store: ObjectStore, operation: str, findings: ClusterFindings, *, actor: str | None, locks: bool
) -> Iterator[str | None]:
    """Hold the lock within the block, and release it at the end; yields its id.

    Raises `ClusterRefused` with `state_lock_held` if it is held. Without ``locks``, warns instead
    and yields None.
    """
    if not locks:
        findings.warning(
            "state_lock_disabled",
            "state.lock",
            "locks are turned off: only the ledger keeps two commands at once apart",
        )
        yield None
        return
    lock_id = MINT.ulid()
    record = LockRecord(
        version=VERSION,
        lock_id=lock_id,
        operation=operation,
        created_at=now_text(),
        pid=os.getpid(),
        actor=actor,
        host=socket.gethostname() or None,
    )
    data = (json.dumps(record.to_dict(), indent=2) + "\n").encode()
    try:
        is_ours = store.write_if_absent(LOCK, data)
    except OmnigraphError as problem:
        # The object may exist although its reply was lost.
        _release(store, data)
        raise ClusterRefused("state_lock_error", LOCK, sentence(problem)) from problem
    if not is_ours:
        raise _held(store)
    try:
        yield lock_id
    finally:
        _release(store, data)


def break_lock(store: ObjectStore, lock_id: str) -> HeldLock:
    """Remove the lock with exactly this id; otherwise raises `ClusterRefused`, and it stays."""
    held = read_lock(store)
    if held is None:
        raise ClusterRefused("state_lock_missing", LOCK, "the cluster is not locked")
    if held.record.lock_id != lock_id:
        raise ClusterRefused(
            "state_lock_id_mismatch",
            LOCK,
            f"the lock has the id {held.record.lock_id}, not {lock_id}; it is held by "
            f"{held.holder}",
        )
    try:
        store.delete(LOCK)
    except OmnigraphError as problem:
        raise ClusterRefused("state_lock_error", LOCK, sentence(problem)) from problem
    return held


def _held(store: ObjectStore) -> ClusterRefused:
    held: HeldLock | None = None
    with suppress(ClusterRefused):
        held = read_lock(store)
    if held is None:
        return ClusterRefused(
            "state_lock_held",
            LOCK,
            "another command holds the lock of the cluster",
            hint="wait, and run the command again",
        )
    lock_id = held.record.lock_id
    return ClusterRefused(
        "state_lock_held",
        LOCK,
        f"the cluster is locked, lock {lock_id}, by {held.holder}",
        hint="wait for it; if its process is gone, "
        f"`omnigraph cluster force-unlock {lock_id}` removes the lock",
    )


def _release(store: ObjectStore, ours: bytes) -> None:
    """Remove the lock if it is still ours; on failure it stays for `force-unlock`."""
    with suppress(OmnigraphError):
        if store.read_if_exists(LOCK) == ours:
            store.delete(LOCK)
