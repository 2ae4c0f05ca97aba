"""The execution of a merge or diff: in this process, or by workers.

Both run the same code: `three_way` and `delta` compare, `commit.validation` checks, and the calling
process makes the commit. Spark workers are in `pipeline.merging`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.branching.delta import TableDelta, pin, table_delta
from omnigraph.branching.spill import Spill
from omnigraph.branching.table_rows import TableRows, Versions
from omnigraph.branching.three_way import NO_POSITIONS, ConflictRules, MergedRows, TypeSides
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import ChangeSet, Exchanged, TableChange
from omnigraph.commit.validation import checked_columns, validate
from omnigraph.effects.requests import concurrently
from omnigraph.model.merging import MergeConflict
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog, table_schema
from omnigraph.storage.fragments import Positions
from omnigraph.storage.row_places import WholeFragment, unshared_fragments, whole_fragments
from omnigraph.storage.written import TablePlace

NO_IDS = pa.nulls(0, pa.string())


def rows_to_compare(versions: Sequence[Versions], enough: int) -> int:
    """An upper bound of the unshared rows of some pairs of versions, from metadata.

    Returns 0 without opening tables if they have fewer than ``enough`` rows in total.
    """
    moved = [pair for pair in versions if pin(pair[0]) != pin(pair[1])]
    if sum(mine.entry.row_count for mine, _ in moved) < enough:
        return 0
    return sum(
        rows for mine, other in moved for _, rows in unshared_fragments(mine.handle, other.handle)
    )


@dataclass(frozen=True, eq=False)
class TypeMerge:
    """The effect of a merge on one type: whole fragments to copy, and other rows."""

    sides: TypeSides
    rows: MergedRows
    whole: tuple[WholeFragment, ...] = ()
    """Fragments of the source whose files are copied unchanged."""
    rest: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Rows of the source to write that are in none of these."""

    @classmethod
    def of(cls, sides: TypeSides, rows: MergedRows) -> TypeMerge:
        """Find the fragments that can be copied as a whole."""
        source, target = sides.source, sides.target
        is_of_target = source.root_uri == target.root_uri
        if not (len(rows.taken) and is_of_target and source.reader.columns(source.key).is_same):
            return cls(sides, rows, rest=rows.taken)
        whole, rest = whole_fragments(source.handle, rows.taken, target.handle)
        return cls(sides, rows, tuple(whole), rest)

    @property
    def target(self) -> TableRows:
        """The type in the target."""
        return self.sides.target

    @property
    def exchanged(self) -> Exchanged:
        """The rows of the target to replace or delete."""
        gone = np.concatenate([self.rows.replaced, self.rows.removed])
        return Exchanged(gone, pa.concat_arrays([NO_IDS, *self.rows.removed_ids.chunks]))

    def change(self, rows: pa.Table) -> TableChange:
        """The change of the table that writes ``rows``."""
        return TableChange(self.target.key, "exchange", rows, exchanged=self.exchanged)


class Workers(Protocol):
    """Compares, checks and writes rows of branches: in this process, or by Spark workers."""

    def compare(self, sides: Sequence[TypeSides], rules: ConflictRules) -> Sequence[MergedRows]:
        """The merge result of each type."""
        ...

    def violations(
        self, merges: Sequence[TypeMerge], catalog: Catalog, target: Capture
    ) -> Sequence[MergeConflict]:
        """The constraints that the merged rows would violate, without writing them."""
        ...

    def written(
        self, merges: Sequence[TypeMerge], places: Mapping[str, TablePlace]
    ) -> dict[str, TableChange]:
        """The change of each table, by type key; rows may already be written to its place."""
        ...

    def deltas(self, pairs: Sequence[Versions]) -> Sequence[TableDelta]:
        """The differences between the two versions of each pair."""
        ...


Choose = Callable[[Sequence[Versions]], Workers]
"""Selects the workers for a merge or diff, given the versions to compare."""


class InProcess:
    """Executes in this process: rows are read once, within the memory budget, and then written."""

    def __init__(self, kernel: Kernel) -> None:
        self._threads = kernel.is_remote
        self._spill = Spill()
        self._rows: dict[str, pa.Table] = {}

    def compare(self, sides: Sequence[TypeSides], rules: ConflictRules) -> Sequence[MergedRows]:
        """Type by type; concurrently if storage has latency."""
        work = [partial(each.merged, rules, self._spill) for each in sides]
        return concurrently(*work, threads=self._threads)

    def violations(
        self, merges: Sequence[TypeMerge], catalog: Catalog, target: Capture
    ) -> Sequence[MergeConflict]:
        """Validate the merged rows; of whole fragments, only the columns that constraints use."""
        changes: dict[str, TableChange] = {}
        collect = [partial(self._collected, merge) for merge in merges]
        collected = concurrently(*collect, threads=self._threads)
        for merge, rows in zip(merges, collected, strict=True):
            self._rows[merge.target.key] = checked = rows
            if merge.whole:
                columns = checked_columns(merge.target.type)
                read = self._spill.rows(pa.schema(rows.schema.field(name) for name in columns))
                for fragment in merge.whole:
                    for part in merge.sides.source.columns_of(fragment.positions, columns):
                        read.add(part)
                checked = pa.concat_tables([read.table(), rows.select(columns)])
            changes[merge.target.key] = merge.change(checked)
        return validate(ChangeSet(changes), catalog, target.reader, collect=True)

    def written(
        self, merges: Sequence[TypeMerge], places: Mapping[str, TablePlace]
    ) -> dict[str, TableChange]:
        """Changes with rows in memory, or in spill files."""
        return {
            merge.target.key: merge.change(self._rows.pop(merge.target.key)) for merge in merges
        }

    def deltas(self, pairs: Sequence[Versions]) -> Sequence[TableDelta]:
        """Type by type; concurrently if storage has latency."""
        work = [partial(table_delta, *pair, self._spill) for pair in pairs]
        return concurrently(*work, threads=self._threads)

    def _collected(self, merge: TypeMerge) -> pa.Table:
        """The complete rows outside of whole fragments."""
        rows = self._spill.rows(table_schema(merge.target.type))
        for part in merge.sides.source.complete(merge.rest):
            rows.add(part)
        if merge.rows.mixed is not None:
            rows.add(merge.rows.mixed)
        return rows.table()
