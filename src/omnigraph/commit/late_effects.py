"""Commits that landed after their operation had been undone.

An owner that was taken over may sleep between its last look at its lease and a table commit. When
it wakes, the commit lands: it can never be published, but it lies on the table, beyond the pin, and
blocks every write to it. Undoing an operation retires its transactions, so such a commit is known
for what it is: it is neither adopted nor taken for somebody else's work, and recovery undoes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.commit.audit import RecoveryRow
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.sidecar import SidecarTable
from omnigraph.errors import NotFound
from omnigraph.storage.datasets import DatasetRef, transactions_since
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.snapshot import TableEntry


class LateEffects:
    """Looks for them, on the tables where there may be some."""

    def __init__(self, kernel: Kernel, audit: Iterable[RecoveryRow]) -> None:
        self._kernel = kernel
        retired = [table for row in audit for table in row.retired]
        self._uuids = frozenset(uuid for table in retired for uuid in table.uuids)
        self._places = {(table.location, table.ref) for table in retired}

    def branches(self) -> list[ManifestBranch]:
        """The live branches that have some."""
        if not self._places:
            return []
        manifest = self._kernel.manifest
        refs = {ref for _, ref in self._places}
        names = [row.name for row in manifest.main.refresh().branches.values() if row.ref in refs]
        found = []
        for name in [MAIN, *sorted(names)]:
            try:
                branch = manifest.refreshed(name)
                if self.tables(branch):
                    found.append(branch)
            except NotFound:
                # Nobody is kept from deleting a branch while it is only looked at.
                continue
        return found

    def tables(self, branch: ManifestBranch) -> tuple[SidecarTable, ...]:
        """The tables of a branch whose head ran ahead of the pin through retired commits only."""
        ref = branch.where.ref
        return tuple(
            SidecarTable.claiming(entry, ref, (), self._kernel.ids.ulid())
            for entry in branch.state.head_snapshot().tables.values()
            if (entry.location, ref) in self._places and self._ran_ahead(entry, ref)
        )

    def _ran_ahead(self, entry: TableEntry, ref: str | None) -> bool:
        where = DatasetRef(self._kernel.table_uri(entry.location), ref)
        if entry.ref != ref and self._kernel.forks.state(where) != "made":
            return False
        chain = transactions_since(self._kernel.lance.open(where), entry.version)
        return bool(chain) and self._uuids.issuperset(chain)
