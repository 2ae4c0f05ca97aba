"""Three-way merge of one type: what the source changed, brought to what the target has.

Entities are compared as wholes. Where both sides changed one and disagree, that is a conflict,
unless the caller said who wins, or asked to merge property by property.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.conflict_rules import ConflictRules
from omnigraph.branching.delta import TableDelta, table_delta
from omnigraph.branching.property_merge import merge_properties
from omnigraph.branching.table_rows import Mask, RowsAt, TableRows, same_rows
from omnigraph.errors import InternalError
from omnigraph.model.conflicts import ConflictKind, ConflictPolicy
from omnigraph.storage.row_places import Positions

INSERT, UPDATE, DELETE = range(3)
NO_IDS = pa.array([], pa.string())
NO_POSITIONS: Positions = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Side:
    """The changes of one side since the base, as columns: one entry for each changed entity."""

    ids: pa.Array
    ops: npt.NDArray[np.int64]
    base: Positions
    """Where an updated or deleted entity was."""
    now: Positions
    """Where an inserted or updated entity is."""

    @classmethod
    def of(cls, delta: TableDelta) -> Side:
        """The changes of a delta, inserts first."""
        groups = (delta.inserted, delta.updated, delta.deleted)
        return cls(
            pa.concat_arrays([group.ids for group in groups]),
            np.repeat([INSERT, UPDATE, DELETE], [len(group) for group in groups]),
            np.concatenate([group.before for group in groups]),
            np.concatenate([group.after for group in groups]),
        )

    def at(self, chosen: npt.NDArray[np.int64]) -> Side:
        """Some of the entries, in the order asked for."""
        ids = self.ids.take(pa.array(chosen))
        return Side(ids, self.ops[chosen], self.base[chosen], self.now[chosen])


@dataclass(frozen=True, eq=False)
class Contested:
    """Entities that both sides changed and disagree about, entry by entry."""

    source: Side
    target: Side

    def __len__(self) -> int:
        return len(self.source.ids)

    def chosen(self, mask: Mask) -> Contested:
        """Those for which ``mask`` holds."""
        at = np.flatnonzero(mask)
        return Contested(self.source.at(at), self.target.at(at))

    def kinds(self) -> Iterator[ConflictKind]:
        """What kind of conflict each is."""
        for mine, theirs in zip(self.source.ops, self.target.ops, strict=True):
            if mine == theirs == INSERT:
                yield ConflictKind.DIVERGENT_INSERT
            elif mine == theirs == UPDATE:
                yield ConflictKind.DIVERGENT_UPDATE
            else:
                yield ConflictKind.DELETE_VS_UPDATE


@dataclass(frozen=True, eq=False)
class TypeMerge:
    """What the merge does to one type of the target."""

    base: TableRows
    source: TableRows
    target: TableRows
    is_adopted: bool = False
    """Whether the target had not changed the type at all."""
    taken: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Rows of the source that are written to the target."""
    mixed: pa.Table | None = None
    """Rows that hold properties of both sides."""
    replaced: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Rows of the target that others take the place of."""
    removed: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Rows of the target that are deleted."""
    removed_ids: pa.Array = field(default_factory=lambda: NO_IDS)
    conflicts: Contested | None = None
    resolved: int = 0
    """Conflicts that a rule has settled."""

    @property
    def written(self) -> int:
        """Entities that are inserted or updated."""
        return len(self.taken) + (0 if self.mixed is None else self.mixed.num_rows)

    @property
    def updated(self) -> int:
        """Entities that get other values."""
        return len(self.replaced)

    @property
    def inserted(self) -> int:
        """Entities the target did not have."""
        return self.written - self.updated

    @property
    def deleted(self) -> int:
        """Entities the target has no longer."""
        return len(self.removed)

    @property
    def is_empty(self) -> bool:
        """Whether the target stays as it is."""
        return not (self.written or self.deleted)


def merge_type(
    base: TableRows, source: TableRows, target: TableRows, rules: ConflictRules
) -> TypeMerge:
    """Bring what the source changed since the base to the target."""
    nothing = TypeMerge(base, source, target)
    if _pin(source) in (_pin(base), _pin(target)):
        return nothing
    theirs = table_delta(base, source)
    if theirs.is_empty:
        return nothing
    ours = table_delta(base, target)
    mine, other = Side.of(theirs), Side.of(ours)
    match = pc.index_in(mine.ids, value_set=other.ids)
    is_free = match.is_null().to_numpy(zero_copy_only=False)
    merge = _Merge(base, source, target, ours)
    merge.take(mine.at(np.flatnonzero(is_free)))
    both = Contested(mine.at(np.flatnonzero(~is_free)), other.at(match.drop_null().to_numpy()))
    contested = both.chosen(~_agree(source, target, both))
    policy = rules.policy(source.type.name)
    if rules.granularity == "property" and len(contested):
        contested = merge.mix(contested, policy)
    resolved = 0
    if policy != "fail":
        resolved = merge.settled + len(contested)
        if policy == "source":
            merge.take_over(contested)
        contested = contested.chosen(np.zeros(len(contested), np.bool_))
    return merge.result(ours.is_empty, contested, resolved)


def _pin(rows: TableRows) -> tuple[str | None, int]:
    return rows.entry.ref, rows.entry.version


def _agree(source: TableRows, target: TableRows, both: Contested) -> Mask:
    """Where both sides did the same."""
    mine, theirs = both.source.ops, both.target.ops
    agree: Mask = (mine == DELETE) & (theirs == DELETE)
    there = np.flatnonzero((mine != DELETE) & (theirs != DELETE))
    if (mine[there] != theirs[there]).any():
        raise InternalError(f"an entity of {source.key} was inserted and updated since the base")
    sides = RowsAt(source, both.source.now[there]), RowsAt(target, both.target.now[there])
    agree[there] = same_rows(*sides)
    return agree


class _Merge:
    """The parts of a result, as they are collected."""

    def __init__(
        self, base: TableRows, source: TableRows, target: TableRows, ours: TableDelta
    ) -> None:
        self._base, self._source, self._target = base, source, target
        self._ours = ours
        self._taken: list[Positions] = []
        self._replaced: list[Positions] = []
        self._removed: list[Positions] = []
        self._removed_ids: list[pa.Array] = []
        self._mixed: pa.Table | None = None
        self.settled = 0

    def take(self, free: Side) -> None:
        """Entities that only the source changed."""
        self._taken.append(free.now[free.ops != DELETE])
        updated, deleted = np.flatnonzero(free.ops == UPDATE), np.flatnonzero(free.ops == DELETE)
        self._replaced.append(self._in_target(free.at(updated)))
        self._remove(free.at(deleted).ids, self._in_target(free.at(deleted)))

    def mix(self, contested: Contested, policy: ConflictPolicy) -> Contested:
        """Join disjoint edits of the same entities; what is left are the conflicts."""
        updates = (contested.source.ops == UPDATE) & (contested.target.ops == UPDATE)
        pairs = contested.chosen(updates)
        found = merge_properties(
            RowsAt(self._base, pairs.source.base),
            RowsAt(self._source, pairs.source.now),
            RowsAt(self._target, pairs.target.now),
            policy,
        )
        self._mixed = found.rows
        self._replaced.append(pairs.target.now[found.is_written])
        self.settled = found.settled
        left = ~updates
        left[np.flatnonzero(updates)[found.is_conflict]] = True
        return contested.chosen(left)

    def take_over(self, contested: Contested) -> None:
        """What the source has wins."""
        mine, theirs = contested.source.ops, contested.target.ops
        self._taken.append(contested.source.now[mine != DELETE])
        self._replaced.append(contested.target.now[(mine != DELETE) & (theirs != DELETE)])
        gone = np.flatnonzero((mine == DELETE) & (theirs != DELETE))
        self._remove(contested.source.at(gone).ids, contested.target.now[gone])

    def result(self, is_adopted: bool, conflicts: Contested, resolved: int) -> TypeMerge:
        """All of it."""
        mixed = self._mixed
        return TypeMerge(
            self._base,
            self._source,
            self._target,
            is_adopted,
            np.concatenate(self._taken),
            mixed if mixed is not None and mixed.num_rows else None,
            np.concatenate(self._replaced),
            np.concatenate(self._removed),
            pa.concat_arrays(self._removed_ids),
            conflicts if len(conflicts) else None,
            resolved,
        )

    def _in_target(self, unchanged: Side) -> Positions:
        """Where entities lie that the target did not change."""
        return self._ours.where_now(unchanged.ids, unchanged.base)

    def _remove(self, ids: pa.Array, positions: Positions) -> None:
        self._removed.append(positions)
        self._removed_ids.append(ids)
