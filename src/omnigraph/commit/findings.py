"""What an interrupted operation has done to its tables, as far as it can be proved."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.commit.audit import RecoveryAudit
from omnigraph.commit.classification import TableClass, class_by_versions, class_of
from omnigraph.commit.forks import ForkState
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.sidecar import Sidecar, SidecarTable
from omnigraph.storage.datasets import DatasetRef, Handle, latest_version, transactions_since
from omnigraph.storage.snapshot import ManifestState


@dataclass(frozen=True, slots=True)
class Finding:
    """A table of a sidecar as it stands now."""

    table: SidecarTable
    kind: TableClass
    pin: int
    head: int
    handle: Handle | None
    """None when the fork of a first touch was never made."""
    fork: ForkState | None = None
    """What there is of the fork of a first touch."""
    foreign_versions: tuple[int, ...] = ()

    @property
    def is_idle_fork(self) -> bool:
        """Whether there is a fork, or a part of one, that was never committed to."""
        untouched = self.fork == "made" and self.head == self.table.expected_version
        return untouched or self.fork == "half_made"


class Examiner:
    """Looks at the tables of sidecars; changes nothing."""

    def __init__(self, kernel: Kernel, audit: RecoveryAudit) -> None:
        self._kernel = kernel
        self._audit = audit

    def findings(self, sidecar: Sidecar, state: ManifestState) -> list[Finding]:
        """Every table of a sidecar, on a branch in this state."""
        if sidecar.versions_only:
            return [self._by_versions(table, sidecar, state) for table in sidecar.tables]
        return [self._by_transactions(table, state) for table in sidecar.tables]

    def _by_transactions(self, table: SidecarTable, state: ManifestState) -> Finding:
        published = state.pins.get(table.identity)
        pin = published.version if published is not None else 0
        where = self._where(table)
        fork: ForkState | None = None
        if table.first_touch is not None and (published is None or published.ref != table.ref):
            fork = self._kernel.forks.state(where)
            if fork != "made":
                return Finding(table, TableClass.NO_MOVEMENT, pin, pin, None, fork)
        handle = self._kernel.lance.open(where)
        head = latest_version(handle)
        chain = transactions_since(handle, table.expected_version)
        own = {*(tx.uuid for tx in table.transactions), table.restore_uuid}
        strangers = set(chain) - own
        if strangers and head != pin:
            strangers -= {uuid for row in self._audit.rows() for uuid in row.retired_uuids}
        kind = class_of(table, pin, head, chain, strangers)
        foreign: tuple[int, ...] = ()
        if kind is TableClass.FOREIGN_EFFECT:
            first = table.expected_version + 1
            foreign = tuple(first + at for at, uuid in enumerate(chain) if uuid in strangers)
        return Finding(table, kind, pin, head, handle, fork, foreign)

    def _by_versions(self, table: SidecarTable, sidecar: Sidecar, state: ManifestState) -> Finding:
        published = state.pins.get(table.identity)
        pin = published.version if published is not None else 0
        handle = self._kernel.lance.open(self._where(table))
        head = latest_version(handle)
        last = transactions_since(handle, head - 1)[-1]
        kind = class_by_versions(table, sidecar.writer_kind, pin, head, last)
        return Finding(table, kind, pin, head, handle)

    def _where(self, table: SidecarTable) -> DatasetRef:
        return DatasetRef(self._kernel.table_uri(table.location), table.ref)


def describe(findings: list[Finding]) -> str:
    """The findings in words."""
    return "; ".join(f"{f.table.table_key}: {f.kind.value}" for f in findings)
