"""Three-way merge of one type: applies the changes of the source to the target.

The unit is the entity: if both sides changed one differently, that is a conflict, unless a rule
selects a side, or the merge is by property.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.delta import (
    DELETE,
    INSERT,
    NO_CHANGES,
    UPDATE,
    Candidates,
    Changes,
    TableDelta,
    id_ranges,
    pin,
    ref_of,
)
from omnigraph.branching.moments import no_type
from omnigraph.branching.spill import CollectedRows, Spill
from omnigraph.branching.table_rows import (
    ROWS_PER_READ,
    Mask,
    RowsAt,
    TableRows,
    Versions,
    chunked,
    same_blobs,
    same_rows,
)
from omnigraph.errors import InputError, InternalError
from omnigraph.model.arrow import ID, same_values
from omnigraph.model.merging import ConflictKind, ConflictPolicy, MergeGranularity
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog, table_schema
from omnigraph.storage.fragments import Positions
from omnigraph.storage.row_places import added_rows, positions_of
from omnigraph.syntax.suggest import did_you_mean

POLICIES: tuple[str, ...] = get_args(ConflictPolicy)
GRANULARITIES: tuple[str, ...] = get_args(MergeGranularity)


SUBJECT = re.compile(r"(\w+)(?:\.(\w+))?(?::(.+))?", re.DOTALL)
"""The subject of a rule: `Type`, `Type.property`, `Type:id` or `Type.property:id`."""


@dataclass(frozen=True)
class TypeRules:
    """The conflict rules of one type; the narrowest rule decides."""

    everywhere: ConflictPolicy
    narrower: Mapping[tuple[str | None, str | None], ConflictPolicy] = field(default_factory=dict)
    """By property and id; None for any."""

    def policies(self, ids: pa.ChunkedArray, name: str | None = None) -> npt.NDArray[np.str_]:
        """The rule for each entity, or for one property of each."""
        found = np.full(len(ids), self.narrower.get((name, None), self.everywhere), "U6")
        for wanted in dict.fromkeys((None, name)):
            by_id = {key[1]: rule for key, rule in self.narrower.items() if key[0] == wanted}
            by_id.pop(None, None)
            if by_id:
                at = pc.index_in(ids, value_set=pa.array(list(by_id), pa.string()))
                is_named = at.is_valid().to_numpy(zero_copy_only=False)
                rules = np.array(list(by_id.values()), "U6")
                found[is_named] = rules[at.drop_null().to_numpy()]
        return found


@dataclass(frozen=True)
class ConflictRules:
    """The rules for entities that both sides changed."""

    on_conflict: ConflictPolicy = "fail"
    narrower: Mapping[str, ConflictPolicy] = field(default_factory=dict)
    """Rules that override ``on_conflict`` for a type, a property, an entity or a property of one.
    """
    granularity: MergeGranularity = "entity"

    def check(self, catalog: Catalog) -> None:
        """Raise for unknown rules and unknown types."""
        for word, allowed in (
            (self.on_conflict, POLICIES),
            *((each, POLICIES) for each in self.narrower.values()),
            (self.granularity, GRANULARITIES),
        ):
            if word not in allowed:
                hint = did_you_mean(word, allowed) or f"it is one of {', '.join(allowed)}"
                raise InputError(f"a merge knows no `{word}`", hint=hint)
        for subject in self.narrower:
            self._check_subject(subject, catalog)

    def _check_subject(self, subject: str, catalog: Catalog) -> None:
        match = SUBJECT.fullmatch(subject)
        if match is None:
            forms = "it is for `Type`, `Type.property`, `Type:id` or `Type.property:id`"
            raise InputError(f"a rule of a merge cannot be for `{subject}`", hint=forms)
        type_name, name, _ = match.groups()
        known = catalog.nodes.get(type_name) or catalog.edges.get(type_name)
        if known is None:
            raise no_type(type_name, sorted({*catalog.nodes, *catalog.edges}))
        if name is None:
            return
        if name not in known.properties:
            hint = did_you_mean(name, known.properties) or "`omnigraph schema show` lists them"
            raise InputError(f"{type_name} has no property `{name}`", hint=hint)
        if self.granularity != "property":
            raise InputError(
                f"the rule for `{subject}` is for one property, and the merge is by entity",
                hint="merge with granularity `property`",
            )

    def of_type(self, type_name: str) -> TypeRules:
        """The rules for one type."""
        everywhere, narrower = self.on_conflict, {}
        for subject, rule in self.narrower.items():
            match = SUBJECT.fullmatch(subject)
            if match is None or match[1] != type_name:
                continue
            if match[2] is None and match[3] is None:
                everywhere = rule
            else:
                narrower[match[2], match[3]] = rule
        return TypeRules(everywhere, narrower)


NO_POSITIONS: Positions = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Contested:
    """Entities that both sides changed differently, as parallel columns."""

    source: Changes
    target: Changes

    def __len__(self) -> int:
        return len(self.source)

    def chosen(self, mask: Mask) -> Contested:
        """The entries for which ``mask`` holds."""
        return Contested(self.source.chosen(mask), self.target.chosen(mask))

    def by_id(self) -> Contested:
        """The same entries in ascending order of ids."""
        order = pc.sort_indices(self.source.ids).to_numpy()
        return Contested(self.source.at(order), self.target.at(order))

    def kinds(self) -> Iterator[ConflictKind]:
        """The kind of each conflict."""
        for mine, theirs in zip(self.source.ops, self.target.ops, strict=True):
            if mine == theirs == INSERT:
                yield ConflictKind.DIVERGENT_INSERT
            elif mine == theirs == UPDATE:
                yield ConflictKind.DIVERGENT_UPDATE
            else:
                yield ConflictKind.DELETE_VS_UPDATE


@dataclass(frozen=True, eq=False)
class MergedRows:
    """The effect of a merge on one type, as row positions."""

    is_adopted: bool = True
    """Whether the target had not changed the type."""
    taken: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Rows of the source to write to the target."""
    mixed: pa.Table | None = None
    """Rows that combine properties of both sides."""
    replaced: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Rows of the target that are replaced."""
    removed: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Rows of the target that are deleted."""
    removed_ids: pa.ChunkedArray = field(default_factory=lambda: NO_CHANGES.ids)
    conflicts: Contested | None = None
    resolved: int = 0
    """The number of conflicts decided by rules."""
    mixed_source: Positions = field(default_factory=lambda: NO_POSITIONS)
    """The positions of the entities of ``mixed`` in the source, in the same order."""
    mixed_base: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Their positions in the base."""

    @property
    def written(self) -> int:
        """The number of inserted and updated entities."""
        return len(self.taken) + (0 if self.mixed is None else self.mixed.num_rows)

    @property
    def updated(self) -> int:
        """The number of updated entities."""
        return len(self.replaced)

    @property
    def inserted(self) -> int:
        """The number of inserted entities."""
        return self.written - self.updated

    @property
    def deleted(self) -> int:
        """The number of deleted entities."""
        return len(self.removed)

    @property
    def is_empty(self) -> bool:
        """Whether the target does not change."""
        return not (self.written or self.deleted)

    @classmethod
    def joined(cls, parts: Sequence[MergedRows], mixed: CollectedRows) -> MergedRows:
        """Combine parts with disjoint entities; ``mixed`` collects the mixed rows."""
        for part in parts:
            if part.mixed is not None:
                mixed.add(part.mixed)
        contested = [each.conflicts for each in parts if each.conflicts is not None]
        conflicts = Contested(
            Changes.joined([NO_CHANGES, *(each.source for each in contested)]),
            Changes.joined([NO_CHANGES, *(each.target for each in contested)]),
        )
        return cls(
            all(part.is_adopted for part in parts),
            np.concatenate([NO_POSITIONS, *(part.taken for part in parts)]),
            mixed.table() if mixed.num_rows else None,
            np.concatenate([NO_POSITIONS, *(part.replaced for part in parts)]),
            np.concatenate([NO_POSITIONS, *(part.removed for part in parts)]),
            pa.chunked_array(
                [chunk for part in parts for chunk in part.removed_ids.chunks], pa.string()
            ),
            conflicts if len(conflicts) else None,
            sum(part.resolved for part in parts),
            np.concatenate([NO_POSITIONS, *(part.mixed_source for part in parts)]),
            np.concatenate([NO_POSITIONS, *(part.mixed_base for part in parts)]),
        )

    def won_by_source(self) -> MergedRows:
        """The result if the source won every conflict."""
        if self.conflicts is None:
            return self
        won = won_by_source(self.conflicts)
        return replace(
            self,
            taken=np.concatenate([self.taken, won.taken]),
            replaced=np.concatenate([self.replaced, won.replaced]),
            removed=np.concatenate([self.removed, won.removed]),
            removed_ids=pa.chunked_array(
                [*self.removed_ids.chunks, *won.removed_ids.chunks], pa.string()
            ),
            conflicts=None,
        )


@dataclass(frozen=True, eq=False)
class TypeSides:
    """One type in the base, the source and the target of a merge."""

    base: TableRows
    source: TableRows
    target: TableRows
    base_there: TableRows | None = None
    """The base in the target's graph, if the source is of another graph: each side is then compared
    within its own graph, where versions share files.
    """

    @property
    def base_of_target(self) -> TableRows:
        """The base to compare the target with."""
        return self.base_there or self.base

    def without_reading(self) -> MergedRows | None:
        """The result, if the metadata of the tables determines it; None if ids must be compared.

        If the source did not change the type, or has the target's version, nothing changes. If the
        target did not change it, and the source only added fragments, their rows are new entities.
        If rows may be hidden, metadata is not sufficient.
        """
        if any(rows.reader.hides_rows for rows in (self.base, self.source, self.target)):
            return None
        if pin(self.source) in (pin(self.base), pin(self.target)):
            return MergedRows(is_adopted=False)
        if pin(self.base_of_target) != pin(self.target):
            return None
        added = added_rows(self.base.handle, self.source.handle)
        return None if added is None else MergedRows(taken=added)

    @property
    def changed_sides(self) -> tuple[Versions, ...]:
        """The pairs of versions whose unshared rows are compared, for the source and the target.

        Both directions: base and source, source and base, base and target, target and base.
        """
        base, there, source, target = self.base, self.base_of_target, self.source, self.target
        return (base, source), (source, base), (there, target), (target, there)

    def merged(self, rules: ConflictRules, spill: Spill) -> MergedRows:
        """Apply the source's changes since the base to the target."""
        known = self.without_reading()
        if known is not None:
            return known
        theirs = Candidates.of(self.base, self.source, spill)
        ours = Candidates.of(self.base_of_target, self.target, spill)
        return self.merged_among(theirs, ours, rules, spill)

    def merged_among(
        self, theirs: Candidates, ours: Candidates, rules: ConflictRules, spill: Spill
    ) -> MergedRows:
        """The same for the entities among given candidates of source and target."""
        merge = _MergedRows(self, rules, spill)
        candidates = [theirs.left, theirs.right, ours.left, ours.right]
        for ids in id_ranges(candidates, spill.part_bytes):
            merge.add(theirs.within(ids).changes, ours.within(ids))
        return merge.result()


def _agree(source: TableRows, target: TableRows, both: Contested) -> Mask:
    """Which entities both sides changed in the same way."""
    mine, theirs = both.source.ops, both.target.ops
    agree: Mask = (mine == DELETE) & (theirs == DELETE)
    there = np.flatnonzero((mine != DELETE) & (theirs != DELETE))
    if (mine[there] != theirs[there]).any():
        raise InternalError(f"an entity of {source.key} was inserted and updated since the base")
    sides = RowsAt(source, both.source.after[there]), RowsAt(target, both.target.after[there])
    agree[there] = same_rows(*sides)
    return agree


class _MergedRows:
    """Collects the result range by range."""

    def __init__(self, sides: TypeSides, rules: ConflictRules, spill: Spill) -> None:
        self._base, self._source, self._target = sides.base, sides.source, sides.target
        self._is_from_elsewhere = ref_of(sides.base)[0] != ref_of(sides.base_of_target)[0]
        self._rules = rules.of_type(sides.source.type.name)
        self._by_property = rules.granularity == "property"
        self._parts: list[MergedRows] = []
        self._mixed = spill.rows(table_schema(sides.source.type))

    def add(self, mine: Changes, ours: TableDelta) -> None:
        """Add the source's and the target's changes in a range of ids."""
        match = pc.index_in(mine.ids, value_set=ours.changes.ids)
        is_free = match.is_null().to_numpy(zero_copy_only=False)
        self._parts.append(MergedRows(is_adopted=ours.is_empty))
        self._take(mine.chosen(is_free), ours)
        theirs = ours.changes.at(match.drop_null().to_numpy())
        both = Contested(mine.chosen(~is_free), theirs)
        contested = both.chosen(~_agree(self._source, self._target, both))
        if self._by_property and len(contested):
            contested = self._mix(contested)
        policies = self._rules.policies(contested.source.ids)
        left = contested.chosen(policies == "fail")
        self._parts.append(MergedRows(conflicts=left, resolved=len(contested) - len(left)))
        self._parts.append(won_by_source(contested.chosen(policies == "source")))

    def result(self) -> MergedRows:
        """The collected result."""
        return MergedRows.joined(self._parts, self._mixed)

    def _take(self, free: Changes, ours: TableDelta) -> None:
        """Add entities that only the source changed, and that the target has as in the base."""
        updated, deleted = free.chosen(free.ops == UPDATE), free.chosen(free.ops == DELETE)
        self._parts.append(
            MergedRows(
                taken=free.after[free.ops != DELETE],
                replaced=self._where_now(updated, ours),
                removed=self._where_now(deleted, ours),
                removed_ids=deleted.ids,
            )
        )

    def _where_now(self, changes: Changes, ours: TableDelta) -> Positions:
        """The positions in the target of entities that it did not change."""
        if not self._is_from_elsewhere:
            return ours.where_now(changes.ids, changes.before)
        ids = changes.ids.combine_chunks()
        positions = positions_of(self._target.handle, ids)
        found = [part[ID] for part in self._target.columns_of(positions, [ID])]
        at = pc.index_in(ids, value_set=pa.chunked_array(found, pa.string()))
        if at.null_count:
            raise InternalError(f"{self._target.key} does not have the rows of its own history")
        now: Positions = positions[at.to_numpy()]
        return now

    def _mix(self, contested: Contested) -> Contested:
        """Merge edits of the same entities by property; returns the remaining conflicts."""
        updates = (contested.source.ops == UPDATE) & (contested.target.ops == UPDATE)
        pairs = contested.chosen(updates)
        found = merge_properties(
            RowsAt(self._base, pairs.source.before),
            RowsAt(self._source, pairs.source.after),
            RowsAt(self._target, pairs.target.after),
            self._rules,
            self._mixed,
        )
        self._parts.append(
            MergedRows(
                replaced=pairs.target.after[found.is_written],
                conflicts=pairs.chosen(found.is_conflict),
                resolved=found.settled,
                mixed_source=pairs.source.after[found.is_written],
                mixed_base=pairs.source.before[found.is_written],
            )
        )
        return contested.chosen(~updates)


def won_by_source(contested: Contested) -> MergedRows:
    """The result if the source wins these conflicts."""
    mine, theirs = contested.source.ops, contested.target.ops
    gone = (mine == DELETE) & (theirs != DELETE)
    return MergedRows(
        taken=contested.source.after[mine != DELETE],
        replaced=contested.target.after[(mine != DELETE) & (theirs != DELETE)],
        removed=contested.target.after[gone],
        removed_ids=contested.source.chosen(gone).ids,
    )


WITH_BLOBS_AT_ONCE = 16
"""Rows with blobs of both sides to hold at once."""


@dataclass(frozen=True, eq=False)
class MixedRows:
    """The outcome for entities that both sides updated."""

    is_written: Mask
    """Which get another row than the target has."""
    is_conflict: Mask
    """Which have a property that both sides changed differently, undecided by a rule."""
    settled: int
    """The number of conflicts decided by rules."""


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Per column, which side's value each row gets."""

    from_source: dict[str, Mask]
    is_conflict: Mask
    """Whether a property was changed differently by both sides, and no rule decides."""
    settled: int
    """The number of rows with such properties that rules decided."""


def merge_properties(
    base: RowsAt, source: RowsAt, target: RowsAt, rules: TypeRules, rows: CollectedRows
) -> MixedRows:
    """Merge entities that both sides updated: the target's row with the source's changes.

    Results that differ from the target's row are added to ``rows``. If both changed a property
    differently, ``rules`` decide, or it is a conflict.
    """
    nothing = np.zeros(0, np.bool_)
    written, conflicts = [nothing], [nothing]
    settled = 0
    for old, mine, theirs in zip(base.chunks(), source.chunks(), target.chunks(), strict=True):
        chosen = _choose(old, mine, theirs, rules)
        settled += chosen.settled
        is_written = np.logical_or.reduce(list(chosen.from_source.values())) & ~chosen.is_conflict
        at_once = WITH_BLOBS_AT_ONCE if source.rows.blob_columns else ROWS_PER_READ
        for places in chunked(np.flatnonzero(is_written), at_once):
            rows.add(_mixed(mine, theirs, chosen, places))
        written.append(is_written)
        conflicts.append(chosen.is_conflict)
    return MixedRows(np.concatenate(written), np.concatenate(conflicts), settled)


def _choose(base: RowsAt, source: RowsAt, target: RowsAt, rules: TypeRules) -> _Chosen:
    old, new, other = base.plain(), source.plain(), target.plain()
    from_source: dict[str, Mask] = {}
    disputed, is_conflict = np.zeros(len(base), np.bool_), np.zeros(len(base), np.bool_)
    for name in source.rows.columns:
        if name == ID:
            continue
        if name in source.rows.blob_columns:
            by_source = ~same_blobs(base, source, name)
            by_target = ~same_blobs(base, target, name)
            differ = ~same_blobs(source, target, name)
        else:
            by_source = ~same_values(old[name], new[name])
            by_target = ~same_values(old[name], other[name])
            differ = ~same_values(new[name], other[name])
        both = by_source & by_target & differ
        disputed |= both
        policies = rules.policies(new[ID], name)
        is_conflict |= both & (policies == "fail")
        from_source[name] = (by_source & ~by_target) | (both & (policies == "source"))
    return _Chosen(from_source, is_conflict, int((disputed & ~is_conflict).sum()))


def _mixed(source: RowsAt, target: RowsAt, chosen: _Chosen, places: Positions) -> pa.Table:
    """The rows at some indexes of a chunk, with columns from either side."""
    new, old = source.at(places).complete(), target.at(places).complete()
    columns = [old[ID]]
    for name in old.schema.names[1:]:
        joined = pa.chunked_array([*old[name].chunks, *new[name].chunks], old[name].type)
        is_new = chosen.from_source[name][places]
        columns.append(joined.take(pa.array(np.arange(len(places)) + len(places) * is_new)))
    return pa.table(columns, schema=old.schema)
