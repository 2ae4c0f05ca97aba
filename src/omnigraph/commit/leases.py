"""Durable leases: one writer per branch across processes; `Gates` do the same within a process.

A lease record is changed only by compare-and-swap and never deleted, so its epoch only increases.
Every publish writes the epoch into the branch's head row: an owner that lost its lease to another
has a lower epoch and cannot publish any more.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import orjson

from omnigraph.effects.clock import monotonic_seconds
from omnigraph.effects.environment import positive_number
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.local_disk import OsLock, folder_of_locks, is_locked
from omnigraph.effects.objects import ObjectStore, Token
from omnigraph.effects.requests import concurrently
from omnigraph.errors import DamagedFile, LeaseLost, StorageError, WriterBusy
from omnigraph.model.records import dataclass
from omnigraph.storage.layout import LEASES
from omnigraph.storage.manifest import Published
from omnigraph.storage.manifest_rows import CommitRow

if TYPE_CHECKING:
    from omnigraph.model.upkeep import LeaseHolder

log = logging.getLogger(__name__)

GRAPH_SCOPE = "graph"
POLL_SECONDS = 0.02
READY = ".ready"
"""Suffix of the files of writes that wait for the owner of their branch; see `handing_over`."""
QUEUE_WAIT_MS = 1_000
"""How long a writer waits in the queue before it continues without its turn."""
QUEUE_SKIPPED = 16
"""How many writes skip a queue after a writer in it took too long or was stopped."""
CATCH_UP_MS = 100
CATCH_UP_PAUSE_MS = 1
"""The pause between checks of the next writer for a publish of its predecessor."""
TAKEOVER_GRACE = 1.2
"""The number of TTLs without a change of its record after which a remote owner is dead."""
SILENCE = 0.5
"""The number of TTLs without a heartbeat after which an owner may be dead."""

UNANSWERED = (FailureClass.UNKNOWN, FailureClass.TRANSIENT)
"""Classes of failures after which a conditional write may have landed."""

Health = Literal["live", "silent", "dead"]
"""The state of a remote owner, by its record."""


def branch_scope(branch: str) -> str:
    """The scope of a write to one branch."""
    return f"branch/{branch}"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of a lease object, as JSON in the order of its fields."""

    owner_id: str
    epoch: int
    beat: int
    ttl_ms: int
    state: Literal["held", "released"]
    operation_id: str | None
    published: Published | None = None
    """The published version of the branch when the lease was last released. Written after the
    publish, so never ahead of the manifest: a manifest that is behind it has lost a version."""


def read_record(name: str, content: bytes) -> LeaseRecord:
    """Decode a lease object."""
    try:
        record: dict[str, Any] = orjson.loads(content)
        published = record.pop("published", None)
        known = None if published is None else Published(**published)
        if not all(isinstance(record[number], int) for number in ("epoch", "beat", "ttl_ms")):
            raise TypeError("a number is not a number")
        return LeaseRecord(**record, published=known)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedFile(name, "if no writer is running, delete it", f"{error}") from error


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Settings of writes, read from the environment when a graph is opened."""

    ttl_ms: int = 30_000
    """How long a lease is valid without a heartbeat."""
    wait_ms: int = 30_000
    """How long a writer waits for a lease."""
    retries: int = 5
    """How often a write is prepared again after the branch has moved."""
    table_compact_every: int = 64
    """The number of small fragments at which a write compacts a table, unless upkeep did before."""
    manifest_compact_every: int = 64
    """The number of fragments at which a write compacts the manifest; each publish adds one."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> WriteSettings:
        """The values of `WRITE_VARIABLES`; the defaults for those that are not set."""
        return cls(
            *(
                positive_number(variable, getattr(cls(), name), environ, least=least)
                for name, (variable, least) in WRITE_VARIABLES.items()
            )
        )


WRITE_VARIABLES = {
    "ttl_ms": ("OMNIGRAPH_LEASE_TTL_MS", 1),
    "wait_ms": ("OMNIGRAPH_LEASE_WAIT_MS", 1),
    "retries": ("OMNIGRAPH_WRITE_RETRIES", 1),
    "table_compact_every": ("OMNIGRAPH_TABLE_COMPACT_EVERY", 2),
    "manifest_compact_every": ("OMNIGRAPH_MANIFEST_COMPACT_EVERY", 2),
}
"""By field of `WriteSettings`, in its order: the variable and the least value it may have."""


@dataclass(frozen=True, slots=True)
class WriterQueue:
    """A writer's place in the queue for a branch on its machine."""

    is_crowded: bool
    """Whether another writer was in the queue before."""
    leave: Callable[[], None]
    """Lets the next writer in; called once the branch is owned."""


NO_QUEUE = WriterQueue(False, lambda: None)


MEMBERS_MAX = 64
"""The most writers that share a publish."""

T = TypeVar("T")


@dataclass(eq=False)
class WaitingWriter(Generic[T]):
    """A writer that waits with a staged write, and the outcome of the write."""

    write: T
    commit: CommitRow | None = None
    failure: BaseException | None = None
    goes_alone: bool = False
    """Whether it could not be committed with its group, and has to be written alone."""

    @property
    def is_settled(self) -> bool:
        """Whether its outcome is set."""
        return self.commit is not None or self.failure is not None or self.goes_alone


class WriterGroup(Generic[T]):
    """The writers of one branch in this process: one leads, the others wait to be committed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[WaitingWriter[T]] = deque()
        self._is_led = False

    def try_lead(self) -> bool:
        """Become the leader, if no writer leads or waits; `end_lead` ends it."""
        with self._changed:
            if self._is_led or self._waiting:
                return False
            self._is_led = True
            return True

    def end_lead(self) -> None:
        """Stop leading: the first waiting writer leads next."""
        with self._changed:
            self._is_led = False
            self._changed.notify_all()

    def join(self, member: WaitingWriter[T]) -> bool:
        """Wait until a leader has settled a member (True), or its writer has to lead (False)."""
        with self._changed:
            self._waiting.append(member)
            self._changed.notify_all()
            try:
                self._changed.wait_for(
                    lambda: (
                        member.is_settled
                        or (not self._is_led and self._waiting and self._waiting[0] is member)
                    )
                )
            except BaseException:
                # The writer was interrupted: without a leader that has taken it, it has no effect.
                if member in self._waiting:
                    self._waiting.remove(member)
                    self._changed.notify_all()
                raise
            if member.is_settled:
                return True
            self._waiting.popleft()
            self._is_led = True
            return False

    def take(self, count_max: int) -> list[WaitingWriter[T]]:
        """Take up to so many waiting writers, in order, for the leader to commit."""
        with self._changed:
            count = min(len(self._waiting), count_max)
            return [self._waiting.popleft() for _ in range(count)]

    def tell(self) -> None:
        """Wake the writers whose outcome is set."""
        with self._changed:
            self._changed.notify_all()

    def fail_waiting(self, failure: BaseException) -> None:
        """Fail all waiting writers with the error by which the leader failed to own the branch."""
        with self._changed:
            while self._waiting:
                self._waiting.popleft().failure = failure
            self._changed.notify_all()


class Lease:
    """A lease that this process holds until it is released; as a context manager, for a block."""

    def __init__(
        self, leases: Leases, scope: str, record: LeaseRecord, token: Token, os_lock: OsLock | None
    ) -> None:
        self.scope = scope
        self.epoch = record.epoch
        self.owner_id = record.owner_id
        self.was_taken_over = False
        """Whether the previous owner did not release it: this owner recovers its sidecars."""
        self.is_new = False
        """Whether there was no record: the first lease of the scope, or a lost record."""
        self._leases = leases
        self._record = record
        self._token: Token | None = token
        self._os_lock = os_lock
        self._renewed_at = monotonic_seconds()
        self._guard = threading.Lock()
        self._timer: threading.Timer | None = None
        self._put_off: list[Callable[[], object]] = []
        self._schedule()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def is_valid(self) -> bool:
        """Whether more than a third of its TTL is left, by this process's own clock."""
        age_ms = (monotonic_seconds() - self._renewed_at) * 1000
        return self._token is not None and age_ms <= self._record.ttl_ms * 2 / 3

    def require_valid(self) -> None:
        """Raise `LeaseLost` unless it `is_valid`; called before each durable effect."""
        if not self.is_valid:
            raise LeaseLost(
                f"the lease of {self.scope} has run out",
                hint="nothing was published; repeat the write",
            )

    @property
    def published(self) -> Published | None:
        """The last version that previous owners and this one are known to have published."""
        return self._record.published

    def note_published(self, published: Published) -> None:
        """Set the published manifest version, which the release records."""
        with self._guard:
            known = self._record.published
            if known is None or known.ref != published.ref or known.version < published.version:
                self._record = replace(self._record, published=published)

    def raise_epoch(self, epoch: int) -> None:
        """Continue with a higher epoch, since the record with the previous one was lost."""
        with self._guard:
            assert self._token is not None
            record = replace(self._record, epoch=epoch)
            token = self._leases.swap(self.scope, record, self._token)
            if token is None:
                raise LeaseLost(f"the lease of {self.scope} was taken over", hint="try again")
            self._record, self._token, self.epoch = record, token, epoch

    def put_off(self, work: Callable[[], object]) -> None:
        """Postpone work, which must not raise, to run concurrently with the release."""
        self._put_off.append(work)

    def catch_up(self) -> None:
        """Run postponed work now, since the owner continues."""
        work, self._put_off = self._put_off, []
        concurrently(*work, threads=True)

    def release(self) -> None:
        """Release the lease, unless another owner has taken over the record.

        A failure is not raised, since the work itself has succeeded. A record that is still held is
        taken over later like that of a dead owner.
        """
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
            token, self._token = self._token, None
        work, self._put_off = self._put_off, []
        try:
            concurrently(partial(self._give_back, token), *work, threads=True)
        finally:
            if self._os_lock is not None:
                self._os_lock.release()

    def _give_back(self, token: Token | None) -> None:
        try:
            if token is not None:
                self._leases.give_back(self.scope, self._record, token)
        except StorageError:
            log.warning("the lease of %s was not given back", self.scope, exc_info=True)

    def _schedule(self) -> None:
        self._timer = threading.Timer(self._record.ttl_ms / 3000, self._beat)
        self._timer.daemon = True
        self._timer.start()

    def _beat(self) -> None:
        hit(Failpoint.LEASE_BEFORE_RENEW)
        with self._guard:
            if self._token is None:
                return
            record = replace(self._record, beat=self._record.beat + 1)
            try:
                self._token = self._leases.swap(self.scope, record, self._token)
            except StorageError:
                # The next heartbeat tries again; if none succeeds, `require_valid` fails.
                self._schedule()
                return
            if self._token is not None:
                self._record = record
                self._renewed_at = monotonic_seconds()
                self._schedule()


class Leases:
    """Acquires the leases of one graph."""

    def __init__(
        self, store: ObjectStore, owner_id: str, settings: WriteSettings, locks: Path | None
    ) -> None:
        self._store = store
        self._is_remote = not store.root.is_local
        self._owner_id = owner_id
        self._settings = settings
        self._locks = locks
        """On local disk: the directory of the OS locks, which show whether owners are alive."""
        self._watched: dict[str, tuple[Token, float]] = {}
        """By scope: the token of another owner's record, and when it was first read. Kept between
        attempts, because declaring an owner dead may take longer than one attempt waits."""
        self._given_back: dict[str, tuple[LeaseRecord, Token]] = {}
        """By scope: the record that this process released last, to take it again without a read."""
        self._slow_queues: dict[str, int] = {}
        """By scope with a slow queue: how many further writes skip it."""

    def hold(self, scope: str, attempt_id: str) -> Lease:
        """Acquire a lease, for a block; raises `WriterBusy` if a live writer holds it too long."""
        lease = self._acquire(scope, attempt_id, self._settings.wait_ms)
        assert lease is not None
        return lease

    def hold_branch(
        self,
        branch: str,
        attempt_id: str,
        beside: Callable[[], object] = lambda: None,
        queue: WriterQueue = NO_QUEUE,
        catch_up: Callable[[], object] | None = None,
    ) -> Lease:
        """Acquire a branch's lease, for a block, while no graph-wide operation runs.

        ``beside`` is called after the branch's lease was taken, concurrently with the check of the
        graph's lease. State of the branch that it reads stays valid: changing it needs the branch's
        lease, also for a graph-wide operation. ``catch_up`` is called repeatedly while another
        process of this machine owns the branch. ``queue`` is left when no other process does.
        """
        deadline = time.monotonic() + self._settings.wait_ms / 1000
        while True:
            left_ms = max(0, int((deadline - time.monotonic()) * 1000))
            lease = self._acquire(branch_scope(branch), attempt_id, left_ms, queue, catch_up)
            assert lease is not None
            try:
                _, other = concurrently(beside, self.graph_owner, threads=self._is_remote)
            except BaseException:
                lease.release()
                raise
            if other is None:
                return lease
            owner, health = other
            lease.release()
            if time.monotonic() >= deadline and health == "live":
                raise WriterBusy(GRAPH_SCOPE, owner, self._settings.ttl_ms)
            time.sleep(POLL_SECONDS)

    def was_ours(self, branch: str) -> bool:
        """Whether this process was probably the last owner of a branch on an object store."""
        return self._is_remote and branch_scope(branch) in self._given_back

    def take_again(self, branch: str, attempt_id: str) -> Lease | None:
        """Take a lease that this process released last, by one request; None if it was taken since.

        The caller has to check `graph_owner` for a graph-wide operation, and to release the lease.
        """
        scope = branch_scope(branch)
        given_back = self._given_back.pop(scope, None)
        return None if given_back is None else self._take(scope, attempt_id, *given_back, None)

    def is_crowded(self, branch: str) -> bool:
        """Whether another writer of this machine owns the branch or waits for it."""
        scopes = (branch_scope(branch), _queue_scope(branch))
        return self._locks is not None and not all(map(self._is_free, scopes))

    def is_free(self, branch: str) -> bool:
        """Whether no process owns a branch; only on local disk."""
        return self._is_free(branch_scope(branch))

    def is_unowned(self, branch: str) -> bool:
        """Whether no process owns the branch or the graph; only on local disk.

        The graph counts, since a graph-wide operation may cause a writer to be refused, which then
        must not wait.
        """
        scopes = (branch_scope(branch), GRAPH_SCOPE)
        return self._locks is not None and all(map(self._is_free, scopes))

    def has_handed_over(self, branch: str) -> bool:
        """Whether a write of another process of this machine waits for the owner of a branch."""
        if self._locks is None:
            return False
        try:
            names = os.listdir(handed_over(self._locks, branch))  # noqa: PTH208 - each insert looks
        except FileNotFoundError:
            return False
        return any(name.endswith(READY) for name in names)

    @property
    def locks(self) -> Path | None:
        """The folder of the OS locks, on local disk."""
        return self._locks

    @property
    def wait_ms(self) -> int:
        """How long a writer waits."""
        return self._settings.wait_ms

    def _is_free(self, scope: str) -> bool:
        lock = self._os_lock(scope)
        return lock is None or is_locked(lock.path) is False

    @contextmanager
    def queued(self, branch: str) -> Iterator[WriterQueue]:
        """Queue for a branch with the other writers of this machine, best effort.

        The first in the queue prepares its write on nearly the newest state while the owner of the
        branch finishes. If all waiting writers prepared at once, most of that work would be thrown
        away and would slow the owner down. A writer that has waited too long continues without.
        """
        if self._locks is None:
            yield NO_QUEUE
            return
        turn = self.turn(branch)
        is_crowded = not turn.acquire(0)
        if is_crowded:
            self._wait_for_turn(branch_scope(branch), turn)
        try:
            yield WriterQueue(is_crowded, turn.release)
        finally:
            turn.release()

    def turn(self, branch: str) -> OsLock:
        """The lock of the first in the queue for a branch, on local disk."""
        assert self._locks is not None
        return OsLock.for_scope(self._locks, _queue_scope(branch))

    def _wait_for_turn(self, scope: str, turn: OsLock) -> None:
        avoided = self._slow_queues.pop(scope, 0)
        if not avoided and not turn.acquire(QUEUE_WAIT_MS):
            avoided = QUEUE_SKIPPED
        if avoided > 1:
            self._slow_queues[scope] = avoided - 1

    def try_hold(self, scope: str, attempt_id: str) -> Lease | None:
        """Acquire a lease without waiting; None if a live owner has it. The caller releases it."""
        return self._acquire(scope, attempt_id, None)

    def hold_unless_alive(self, scope: str, attempt_id: str) -> Lease | None:
        """Acquire a lease after its owner is known to be dead; None if the owner is alive.

        Immediate on local disk. On an object store a dead owner is detected after its TTL, a live
        one by its next heartbeat, within a third of that.
        """
        seen: Token | None = None
        while True:
            lease = self.try_hold(scope, attempt_id)
            if lease is not None or self._locks is not None:
                return lease
            found = self._recorded(scope)
            if found is not None and found[0].state == "held":
                if seen not in (None, found[1]):
                    return None
                seen = found[1]
            time.sleep(POLL_SECONDS)

    def holders(self) -> list[LeaseHolder]:
        """The current holders of leases, by scope; read-only."""
        from omnigraph.model.upkeep import LeaseHolder

        held = []
        for name in self._store.list(LEASES):
            content = self._store.read_if_exists(name)
            record = read_record(name, content) if content is not None else None
            if record is None or record.state == "released":
                continue
            scope = name.removeprefix(f"{LEASES}/").removesuffix(".json")
            lock = self._os_lock(scope)
            is_alive = None if lock is None else is_locked(lock.path)
            held.append(LeaseHolder(scope, record.owner_id, record.operation_id, is_alive))
        return held

    def last_published(self, branch: str) -> Published | None:
        """The manifest version that the last owner of a branch recorded; None if it is unknown.

        None also for an unreadable record, which is an error for writers only.
        """
        name = _object_name(branch_scope(branch))
        content = self._store.read_if_exists(name)
        try:
            return None if content is None else read_record(name, content).published
        except DamagedFile:
            return None

    def swap(self, scope: str, record: LeaseRecord, token: Token) -> Token | None:
        """Replace a record; returns the new token, None if the record had changed.

        Every write of a record has different content, so a read shows the winner after a lost
        reply.
        """
        try:
            return self._store.write_if_match(_object_name(scope), orjson.dumps(record), token)
        except StorageFailure as failure:
            if failure.failure_class not in UNANSWERED:
                raise
            found = self._recorded(scope)
            if found is None or found[0] != record:
                raise
            return found[1]

    def give_back(self, scope: str, record: LeaseRecord, token: Token) -> None:
        """Write the released record, unless another owner has taken it over."""
        released = replace(record, state="released")
        left = self.swap(scope, released, token)
        if left is not None:
            self._given_back[scope] = (released, left)

    def graph_owner(self) -> tuple[str, Health] | None:
        """The owner of the graph scope, unless it is this process or dead.

        A branch writer checks this after it has taken the lease of its branch.
        """
        found = self._recorded(GRAPH_SCOPE)
        if found is None:
            return None
        record, token = found
        if record.state == "released" or record.owner_id == self._owner_id:
            return None
        lock = self._os_lock(GRAPH_SCOPE)
        if lock is not None:
            if lock.try_acquire():
                lock.release()
                return None
            return record.owner_id, "live"
        health = self._health(GRAPH_SCOPE, record, token)
        return None if health == "dead" else (record.owner_id, health)

    def _health(self, scope: str, record: LeaseRecord, token: Token) -> Health:
        """The health of an owner, by how long its record has not changed for this process."""
        now = monotonic_seconds()
        seen, since = self._watched.get(scope, (None, now))
        if seen != token:
            self._watched[scope] = (token, now)
            return "live"
        ttls = (now - since) * 1000 / record.ttl_ms
        if ttls > TAKEOVER_GRACE:
            return "dead"
        return "silent" if ttls > SILENCE else "live"

    def _acquire(
        self,
        scope: str,
        attempt_id: str,
        wait_ms: int | None,
        queue: WriterQueue = NO_QUEUE,
        catch_up: Callable[[], object] | None = None,
    ) -> Lease | None:
        """Take a lease that is free or whose owner is dead; None only if ``wait_ms`` is None."""
        deadline = time.monotonic() + (wait_ms or 0) / 1000
        os_lock = self._os_lock(scope)
        if os_lock is not None and not _locked(os_lock, wait_ms or 0, catch_up):
            if wait_ms is None:
                return None
            raise self._busy(scope)
        lease: Lease | None = None
        try:
            queue.leave()
            given_back = self._given_back.pop(scope, None)
            if given_back is not None:
                lease = self._take(scope, attempt_id, *given_back, os_lock)
            while lease is None:
                lease, health = self._attempt(scope, attempt_id, os_lock)
                if lease is not None or wait_ms is None:
                    break
                # Give up only if the owner is alive. Without heartbeats, wait until it counts as
                # dead.
                if time.monotonic() >= deadline and health == "live":
                    raise self._busy(scope)
                time.sleep(POLL_SECONDS)
            return lease
        finally:
            if lease is None and os_lock is not None:
                os_lock.release()

    def _attempt(
        self, scope: str, attempt_id: str, os_lock: OsLock | None
    ) -> tuple[Lease | None, Health]:
        """The lease if it is free; else None and the health of its owner."""
        found = self._recorded(scope)
        if found is None:
            return self._create(scope, attempt_id, os_lock), "live"
        record, token = found
        # The holder of the OS lock is the only live writer of this scope. A held record of this
        # process is one that it failed to release, since gates admit one thread at a time.
        is_own = record.owner_id == self._owner_id
        is_free = record.state == "released" or os_lock is not None or is_own
        if is_free or (health := self._health(scope, record, token)) == "dead":
            return self._take(scope, attempt_id, record, token, os_lock), "dead"
        return None, health

    def _os_lock(self, scope: str) -> OsLock | None:
        return None if self._locks is None else OsLock.for_scope(self._locks, scope)

    def _recorded(self, scope: str) -> tuple[LeaseRecord, Token] | None:
        name = _object_name(scope)
        found = self._store.read_versioned(name)
        return None if found is None else (read_record(name, found[0]), found[1])

    def _create(self, scope: str, attempt_id: str, os_lock: OsLock | None) -> Lease | None:
        record = self._held(1, attempt_id)
        try:
            if not self._store.write_if_absent(_object_name(scope), orjson.dumps(record)):
                return None
        except StorageFailure as failure:
            if failure.failure_class not in UNANSWERED:
                raise
        found = self._recorded(scope)
        if found is None or found[0] != record:
            return None
        lease = Lease(self, scope, record, found[1], os_lock)
        lease.is_new = True
        return lease

    def _take(
        self, scope: str, attempt_id: str, former: LeaseRecord, token: Token, os_lock: OsLock | None
    ) -> Lease | None:
        record = self._held(former.epoch + 1, attempt_id, former.published)
        mine = self.swap(scope, record, token)
        if mine is None:
            return None
        lease = Lease(self, scope, record, mine, os_lock)
        lease.was_taken_over = former.state == "held"
        if lease.was_taken_over:
            hit(Failpoint.LEASE_AFTER_TAKEOVER)
        return lease

    def _held(self, epoch: int, attempt_id: str, published: Published | None = None) -> LeaseRecord:
        return LeaseRecord(
            self._owner_id, epoch, 0, self._settings.ttl_ms, "held", attempt_id, published
        )

    def _busy(self, scope: str) -> WriterBusy:
        found = self._recorded(scope)
        owner = found[0].owner_id if found is not None else "another writer"
        return WriterBusy(scope, owner, self._settings.ttl_ms)


def _locked(os_lock: OsLock, wait_ms: int, catch_up: Callable[[], object] | None) -> bool:
    """Take the OS lock of a scope, waiting up to ``wait_ms``; True if it was taken."""
    began = time.monotonic()
    while True:
        waited_ms = (time.monotonic() - began) * 1000
        left_ms = max(0, wait_ms - int(waited_ms))
        if catch_up is None or waited_ms > CATCH_UP_MS:
            return os_lock.acquire(left_ms)
        if os_lock.acquire(min(left_ms, CATCH_UP_PAUSE_MS)):
            return True
        if not left_ms:
            return False
        catch_up()


def handed_over(locks: Path, branch: str) -> Path:
    """The folder for writes that processes hand over to the owner of a branch on this machine."""
    return folder_of_locks(locks, f"group/{branch}")


def _queue_scope(branch: str) -> str:
    return f"line/{branch}"


def _object_name(scope: str) -> str:
    return f"{LEASES}/{scope}.json"
