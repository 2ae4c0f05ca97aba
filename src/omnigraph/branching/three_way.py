"""Three-way merge of one type: what the source changed, brought to what the target has.

Entities are compared as wholes. Where both sides changed one and disagree, that is a conflict,
unless the caller chose a side, or asked to merge property by property.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from omnigraph.schema.catalog import Catalog, table_schema
from omnigraph.storage.fragments import Positions
from omnigraph.storage.row_places import added_rows, positions_of
from omnigraph.syntax.suggest import did_you_mean

POLICIES: tuple[str, ...] = get_args(ConflictPolicy)
GRANULARITIES: tuple[str, ...] = get_args(MergeGranularity)


SUBJECT = re.compile(r"(\w+)(?:\.(\w+))?(?::(.+))?", re.DOTALL)
"""What a rule is for: `Type`, `Type.property`, `Type:id` or `Type.property:id`."""


@dataclass(frozen=True)
class TypeRules:
    """Who wins where both sides changed one entity of a type; the narrowest rule decides."""

    everywhere: ConflictPolicy
    narrower: Mapping[tuple[str | None, str | None], ConflictPolicy] = field(default_factory=dict)
    """By property and id, either of which may be left open."""

    def policies(self, ids: pa.ChunkedArray, name: str | None = None) -> npt.NDArray[np.str_]:
        """The rule for each of some entities, or for one property of them."""
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
    """Who wins where both sides changed one entity."""

    on_conflict: ConflictPolicy = "fail"
    narrower: Mapping[str, ConflictPolicy] = field(default_factory=dict)
    """Instead of ``on_conflict``, for a type, a property, an entity or a property of one."""
    granularity: MergeGranularity = "entity"

    def check(self, catalog: Catalog) -> None:
        """Refuse words that mean nothing, and types there are not."""
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
    """Entities that both sides changed and disagree about, entry by entry."""

    source: Changes
    target: Changes

    def __len__(self) -> int:
        return len(self.source)

    def chosen(self, mask: Mask) -> Contested:
        """Those for which ``mask`` holds."""
        return Contested(self.source.chosen(mask), self.target.chosen(mask))

    def by_id(self) -> Contested:
        """The same in ascending order of ids."""
        order = pc.sort_indices(self.source.ids).to_numpy()
        return Contested(self.source.at(order), self.target.at(order))

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
class MergedRows:
    """What the merge does to the rows of one type: where they lie, not what they hold."""

    is_adopted: bool = True
    """Whether the target had not changed the type at all."""
    taken: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Rows of the source that are written to the target."""
    mixed: pa.Table | None = None
    """Rows that hold properties of both sides."""
    replaced: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Rows of the target that others take the place of."""
    removed: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Rows of the target that are deleted."""
    removed_ids: pa.ChunkedArray = field(default_factory=lambda: NO_CHANGES.ids)
    conflicts: Contested | None = None
    resolved: int = 0
    """Conflicts that a rule has settled."""
    mixed_source: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Where the entities of ``mixed`` lie in the source, in the same order."""
    mixed_base: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Where they lie in the base."""

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

    @classmethod
    def joined(cls, parts: Sequence[MergedRows], mixed: CollectedRows) -> MergedRows:
        """All of some parts, each of other entities; ``mixed`` collects the rows that are mixed."""
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
        """The same merge if the source won every conflict."""
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
    """One type as the base, the source and the target of a merge have it."""

    base: TableRows
    source: TableRows
    target: TableRows
    base_there: TableRows | None = None
    """The base as the graph of the target has it, if the source is of another graph. What each side
    changed is then found within its own graph, where versions share files."""

    @property
    def base_of_target(self) -> TableRows:
        """The base that the target is compared with."""
        return self.base_there or self.base

    def without_reading(self) -> MergedRows | None:
        """What the merge does, where the metadata of the tables says it; None where ids decide.

        A source that did not change the type, or did what the target did, brings nothing. If the
        target did not change it, and the source only added fragments, those are new entities: the
        base has none of their ids, and neither has the target. Where rows may be hidden, the
        metadata does not say which are there.
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
        """The versions whose unshared rows are compared: of the source, and of the target.

        Each with the other one: base and source, source and base, base and target, target and base.
        """
        base, there, source, target = self.base, self.base_of_target, self.source, self.target
        return (base, source), (source, base), (there, target), (target, there)

    def merged(self, rules: ConflictRules, spill: Spill) -> MergedRows:
        """Bring what the source changed since the base to the target."""
        known = self.without_reading()
        if known is not None:
            return known
        theirs = Candidates.of(self.base, self.source, spill)
        ours = Candidates.of(self.base_of_target, self.target, spill)
        return self.merged_among(theirs, ours, rules, spill)

    def merged_among(
        self, theirs: Candidates, ours: Candidates, rules: ConflictRules, spill: Spill
    ) -> MergedRows:
        """The same, for entities among some candidates of the source and of the target."""
        merge = _MergedRows(self, rules, spill)
        candidates = [theirs.left, theirs.right, ours.left, ours.right]
        for ids in id_ranges(candidates, spill.part_bytes):
            merge.add(theirs.within(ids).changes, ours.within(ids))
        return merge.result()


def _agree(source: TableRows, target: TableRows, both: Contested) -> Mask:
    """Where both sides did the same."""
    mine, theirs = both.source.ops, both.target.ops
    agree: Mask = (mine == DELETE) & (theirs == DELETE)
    there = np.flatnonzero((mine != DELETE) & (theirs != DELETE))
    if (mine[there] != theirs[there]).any():
        raise InternalError(f"an entity of {source.key} was inserted and updated since the base")
    sides = RowsAt(source, both.source.after[there]), RowsAt(target, both.target.after[there])
    agree[there] = same_rows(*sides)
    return agree


class _MergedRows:
    """The parts of a result, as they are collected range by range."""

    def __init__(self, sides: TypeSides, rules: ConflictRules, spill: Spill) -> None:
        self._base, self._source, self._target = sides.base, sides.source, sides.target
        self._is_from_elsewhere = ref_of(sides.base)[0] != ref_of(sides.base_of_target)[0]
        self._rules = rules.of_type(sides.source.type.name)
        self._by_property = rules.granularity == "property"
        self._parts: list[MergedRows] = []
        self._mixed = spill.rows(table_schema(sides.source.type))

    def add(self, mine: Changes, ours: TableDelta) -> None:
        """What the source changed in a range of ids, and what the target did there."""
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
        """All of it."""
        return MergedRows.joined(self._parts, self._mixed)

    def _take(self, free: Changes, ours: TableDelta) -> None:
        """Entities that only the source changed; the target has them as the base does."""
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
        """Where entities that the target did not change lie in it."""
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
        """Join edits of the same entities property by property; returns what cannot be joined."""
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
    """What the merge does if the source wins these conflicts."""
    mine, theirs = contested.source.ops, contested.target.ops
    gone = (mine == DELETE) & (theirs != DELETE)
    return MergedRows(
        taken=contested.source.after[mine != DELETE],
        replaced=contested.target.after[(mine != DELETE) & (theirs != DELETE)],
        removed=contested.target.after[gone],
        removed_ids=contested.source.chosen(gone).ids,
    )


WITH_BLOBS_AT_ONCE = 16
"""Rows with blobs of both sides that are held at once."""


@dataclass(frozen=True, eq=False)
class MixedRows:
    """What became of entities that both sides updated."""

    is_written: Mask
    """Which get a row other than the one the target has."""
    is_conflict: Mask
    """Which have a property that both sides changed differently."""
    settled: int
    """How many of those a rule has decided."""


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Per column, whose value a row gets."""

    from_source: dict[str, Mask]
    is_conflict: Mask
    """Whether no rule says it for a property that both sides changed differently."""
    settled: int
    """How many rows have such properties, each with a rule."""


def merge_properties(
    base: RowsAt, source: RowsAt, target: RowsAt, rules: TypeRules, rows: CollectedRows
) -> MixedRows:
    """Entities that both sides updated: the target's, with what only the source changed.

    Those that differ from what the target has are added to ``rows``. Where both changed one
    property differently, ``rules`` decide, or it is a conflict.
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
    """The rows at some places of a chunk, with columns from either side."""
    new, old = source.at(places).complete(), target.at(places).complete()
    columns = [old[ID]]
    for name in old.schema.names[1:]:
        joined = pa.chunked_array([*old[name].chunks, *new[name].chunks], old[name].type)
        is_new = chosen.from_source[name][places]
        columns.append(joined.take(pa.array(np.arange(len(places)) + len(places) * is_new)))
    return pa.table(columns, schema=old.schema)
