"""Determines what an interrupted operation has done to its tables, by evidence in them."""

from __future__ import annotations

from enum import Enum

from omnigraph.commit.kernel import ForkState, Kernel
from omnigraph.commit.plan import CommitPlan, TableEffects, WriterKind
from omnigraph.commit.recovery.audit import RecoveryAudit
from omnigraph.errors import (
    Conflict,
    EffectFreeConflict,
    ExpectedVersionMismatch,
    NotFound,
    OmnigraphError,
    UncoveredDrift,
)
from omnigraph.model.records import dataclass
from omnigraph.storage.datasets import Handle
from omnigraph.storage.manifest import ManifestState, TableEntry
from omnigraph.storage.transactions import DatasetRef, latest_version, transactions_since


class TableClass(Enum):
    """What happened to one table of an interrupted operation."""

    INVARIANT_VIOLATION = "its head is below its published version"
    NO_MOVEMENT = "nothing was committed"
    ROLLED_PAST_EXPECTED = "everything planned was committed"
    INCOMPLETE = "only part of the plan was committed"
    COMPENSATION_PENDING = "it was restored, but that is not published yet"
    FOREIGN_EFFECT = "another writer committed to it"
    ALREADY_PUBLISHED = "what was committed is published"
    UNEXPECTED = "its versions are not the ones that were planned"


def class_of(
    table: TableEffects, pin: int, head: int, chain: list[str | None], strangers: set[str | None]
) -> TableClass:
    """The class of a table by its head version and the transactions that led to it.

    ``chain`` are the transactions after the expected version, ``strangers`` those of them that are
    neither planned by this operation nor retired by an earlier one.
    """
    planned = [tx.uuid for tx in table.transactions]
    if head < pin:
        return TableClass.INVARIANT_VIOLATION
    if head == pin and not set(planned) & set(chain):
        return TableClass.NO_MOVEMENT
    if pin != table.expected_version:
        return TableClass.FOREIGN_EFFECT
    if chain == planned:
        return TableClass.ROLLED_PAST_EXPECTED
    if chain and chain[-1] == table.restore_uuid:
        return TableClass.COMPENSATION_PENDING
    return TableClass.FOREIGN_EFFECT if strangers else TableClass.INCOMPLETE


def class_by_versions(
    table: TableEffects, writer_kind: WriterKind, pin: int, head: int, last_uuid: str | None
) -> TableClass:
    """The class of a table for a sidecar without identities, from versions alone.

    ``last_uuid`` is the transaction of the head, by which a restore of recovery is recognized.
    """
    expected, planned = table.expected_version, table.post_commit_pin
    if head < pin:
        return TableClass.INVARIANT_VIOLATION
    if head == pin:
        published = pin > expected and pin >= planned
        return TableClass.ALREADY_PUBLISHED if published else TableClass.NO_MOVEMENT
    if last_uuid == table.restore_uuid:
        return TableClass.COMPENSATION_PENDING
    if writer_kind in ("Mutation", "Load"):
        complete = expected == pin and head == pin + 1 == planned
    else:
        complete = expected == pin
    return TableClass.ROLLED_PAST_EXPECTED if complete else TableClass.UNEXPECTED


@dataclass(frozen=True, slots=True)
class ExaminedTable:
    """The present state of a table of an interrupted plan."""

    effects: TableEffects
    kind: TableClass
    pin: int
    head: int
    handle: Handle | None
    """None if the fork of a first touch was never created."""
    fork: ForkState | None = None
    """The state of the fork of a first touch."""
    foreign_versions: tuple[int, ...] = ()

    @property
    def is_idle_fork(self) -> bool:
        """Whether there is a fork, complete or not, without commits."""
        untouched = self.fork == "made" and self.head == self.effects.expected_version
        return untouched or self.fork == "half_made"


class Examiner:
    """Examines the tables of interrupted plans; read-only."""

    def __init__(self, kernel: Kernel, audit: RecoveryAudit) -> None:
        self._kernel = kernel
        self._audit = audit

    def examine(self, plan: CommitPlan, state: ManifestState) -> list[ExaminedTable]:
        """Examine all tables of a plan, on a branch in this state."""
        if plan.versions_only:
            return [self._by_versions(table, plan, state) for table in plan.tables]
        return [
            self._by_transactions(table, state, is_new=plan.is_new(table)) for table in plan.tables
        ]

    def _by_transactions(
        self, table: TableEffects, state: ManifestState, *, is_new: bool
    ) -> ExaminedTable:
        published = state.pins.get(table.identity)
        # A table that is new to the branch starts from the version of its fork.
        pin = table.expected_version if is_new else 0
        if published is not None:
            pin = published.version
        where = self._where(table)
        fork: ForkState | None = None
        if table.first_touch is not None and (published is None or published.ref != table.ref):
            fork = self._kernel.forks.state(where)
            if fork != "made":
                return ExaminedTable(table, TableClass.NO_MOVEMENT, pin, pin, None, fork)
        handle = self._kernel.lance.open(where)
        head = latest_version(handle)
        chain = transactions_since(handle, table.expected_version)
        own = {*(tx.uuid for tx in table.transactions), table.restore_uuid}
        strangers = set(chain) - own
        if chain and chain[-1] in own:
            # A power loss may destroy one of several versions that were flushed together.
            strangers.discard(None)
        if strangers and head != pin:
            strangers -= {uuid for row in self._audit.rows() for uuid in row.retired_uuids}
        kind = class_of(table, pin, head, chain, strangers)
        foreign: tuple[int, ...] = ()
        if kind is TableClass.FOREIGN_EFFECT:
            first = table.expected_version + 1
            foreign = tuple(first + at for at, uuid in enumerate(chain) if uuid in strangers)
        return ExaminedTable(table, kind, pin, head, handle, fork, foreign)

    def _by_versions(
        self, table: TableEffects, plan: CommitPlan, state: ManifestState
    ) -> ExaminedTable:
        published = state.pins.get(table.identity)
        pin = published.version if published is not None else 0
        try:
            handle = self._kernel.lance.open(self._where(table))
        except NotFound:  # the ref of a branch that was never created
            return ExaminedTable(table, TableClass.NO_MOVEMENT, pin, pin, None)
        head = latest_version(handle)
        last = transactions_since(handle, head - 1)[-1]
        kind = class_by_versions(table, plan.writer_kind, pin, head, last)
        return ExaminedTable(table, kind, pin, head, handle)

    def _where(self, table: TableEffects) -> DatasetRef:
        return DatasetRef(self._kernel.table_uri(table.location), table.ref)


def describe(tables: list[ExaminedTable]) -> str:
    """Each table with its class, for messages."""
    return "; ".join(f"{t.effects.table_key}: {t.kind.value}" for t in tables)


RECOVER_ADVICE = "reopen the graph read-write, or run `omnigraph recover`"
REPAIR_ADVICE = "run `omnigraph repair`"


def drift_error(kernel: Kernel, branch: str, entry: TableEntry, head: int) -> Conflict:
    """The error for a table whose head is not the published version.

    `EffectFreeConflict` if a pending operation is the cause, `ExpectedVersionMismatch` if another
    writer has published since the read; both may be retried. Otherwise `UncoveredDrift`, with a
    hint.
    """
    try:
        # Sidecars first: an operation that ends in between has published before the second check.
        pending = _pending_on(kernel, branch, entry)
        if pending is not None:
            return EffectFreeConflict(
                f"operation {pending.attempt_id} on {branch} has to be settled first",
                hint=RECOVER_ADVICE,
            )
        pin = kernel.manifest.refreshed(branch).state.pins.get(entry.identity)
        if pin is None or (pin.version, pin.ref) != (entry.version, entry.ref):
            actual = 0 if pin is None else pin.version
            return ExpectedVersionMismatch(entry.table_key, entry.version, actual)
        advice = RECOVER_ADVICE if _is_retired(kernel, entry) else REPAIR_ADVICE
        refused = kernel.sidecars.refused_names()
        if advice == REPAIR_ADVICE and refused:
            advice += f"; a sidecar that was set aside may explain it: {', '.join(refused)}"
    except (OmnigraphError, OSError) as error:
        cause = error.message if isinstance(error, OmnigraphError) else str(error)
        advice = (
            f"the drift could not be classified ({cause}); first {RECOVER_ADVICE}; "
            f"if it stays, {REPAIR_ADVICE}"
        )
    return UncoveredDrift(entry.table_key, branch, entry.version, head, advice)


def _pending_on(kernel: Kernel, branch: str, entry: TableEntry) -> CommitPlan | None:
    """The running or interrupted operation of this branch that changes the table."""
    for plan in kernel.sidecars.pending_on(branch):
        if any(table.identity == entry.identity for table in plan.tables):
            return plan
    return None


def _is_retired(kernel: Kernel, entry: TableEntry) -> bool:
    """Whether the drift consists of late commits of undone operations only."""
    where = DatasetRef(kernel.table_uri(entry.location), entry.ref)
    chain = transactions_since(kernel.lance.open(where), entry.version)
    rows = RecoveryAudit(kernel.lance, kernel.root.uri).rows()
    retired = {uuid for row in rows for uuid in row.retired_uuids}
    return bool(chain) and retired.issuperset(chain)
