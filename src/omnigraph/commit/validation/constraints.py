"""The kinds of constraints: the columns they read, when they are broken, and their messages.

===========  =======================  ==============================================================
kind         columns                  broken when
===========  =======================  ==============================================================
required     a property               it is null
enum         a property               it is not among the declared values
finite       a member of a key        it is NaN or infinite (edges; a node has no id for it)
range        a property               it is NaN, below the minimum or above the maximum
check        a property               it does not match the pattern
identity     the id                   two records have it, or in an append a committed entity has it
unique       a group of columns, or   two entities have the same values, or two records of one input
             the key of an edge type
endpoint     `src` and `dst`          no node has the id
cardinality  `src`                    the source has too few or too many edges after the write
===========  =======================  ==============================================================

The first five check single values. The others check keys: texts computed from columns of a row,
equal for equal values. A row has a key in one of several roles (`Role`), and the numbers of rows in
each role determine whether a key breaks its constraint. `evaluation` counts them: for mutations,
merges and small loads in process, for bulk loads in threads or Spark workers.
"""

from __future__ import annotations

import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Annotated, Any, ClassVar, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ConstraintViolation
from omnigraph.model.arrow import ID, SRC
from omnigraph.model.ids import TableKey
from omnigraph.model.json_object import HIDDEN
from omnigraph.model.merging import ConflictKind, MergeConflict
from omnigraph.model.records import dataclass
from omnigraph.model.references import RECORD_END_TYPES, UNRESOLVED, id_in
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import non_finite_message, null_message, round_to_f32, spell
from omnigraph.query.kernels import compare
from omnigraph.schema.catalog import Cardinality, EdgeType, NodeType, TableType

ConstraintKind = Literal[
    "required",
    "enum",
    "finite",
    "range",
    "check",
    "identity",
    "unique",
    "endpoint",
    "cardinality",
]

Report = Literal[
    "constraint",
    "repeated_key",
    "repeated_id",
    "existing_id",
    "unique",
    "missing_node",
    "cardinality",
]
"""The categories by which the report of a load counts violations."""

Role = Literal["written", "committed", "endpoint", "refused", "record", "replaced"]
"""The role in which a row has a key:

=========  =========================================================================================
written    a row of the write
committed  a committed row that stays
endpoint   an edge that ends at the node with this key
refused    a record that is not written because of problems of its own
record     a record of an input, before records of the same id were folded into one row
replaced   a committed row that the write replaces or deletes
=========  =========================================================================================
"""

ROLES: tuple[Role, ...] = get_args(Role)

NO_RECORD = (-1, 0)
"""The place of a row that is not a record of the input."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A row with a broken key."""

    role: Role
    entity_id: str
    record: tuple[int, int] = NO_RECORD
    """The piece of the input and the number within it; `NO_RECORD` for a committed row."""
    member: str = ""
    """For an edge that ends there: `Type.column`."""
    is_kept: bool = False
    """Whether it is a committed row that the write does not change."""
    entity_record: tuple[int, int] | None = None
    """The first record of the same entity, if it is known and not this one."""


@dataclass(frozen=True, slots=True)
class Violation(MergeConflict):
    """One broken constraint: an error for a mutation or a load, a conflict for a merge."""

    report: Annotated[Report, HIDDEN] = "constraint"
    property_name: Annotated[str | None, HIDDEN] = None
    hint: Annotated[str | None, HIDDEN] = None
    holder: Annotated[Holder | None, HIDDEN] = None
    """The row to show; None if no single row breaks the constraint."""
    first: Annotated[Holder | None, HIDDEN] = None
    """For a repeated id: the first record with it."""
    repeats: Annotated[int, HIDDEN] = 0
    """For a repeated id: how many records have it."""
    missing_id: Annotated[str | None, HIDDEN] = None
    """The id of the missing node of an edge."""
    writer_message: Annotated[str | None, HIDDEN] = None
    """The message for a write, if it differs from that for a merge."""
    culprit: Annotated[Holder | None, HIDDEN] = None
    """For `KeyConstraint.by_record`: the record that is blamed."""

    @property
    def is_stranded(self) -> bool:
        """Whether it is a committed edge whose node the write replaces."""
        return self.writer_message is not None

    @property
    def sentence(self) -> str:
        """The message for a write."""
        return self.writer_message or self.message

    def to_error(self) -> ConstraintViolation:
        """The violation as the error of a write."""
        details = self.to_dict()
        del details["message"]
        return ConstraintViolation(self.sentence, hint=self.hint, details=details)


# --- single values --------------------------------------------------------------------------------


class ValueConstraint(ABC):
    """A constraint on the values of one property."""

    kind: ClassVar[ConstraintKind]
    property: str

    @abstractmethod
    def broken(self, column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
        """Whether each value breaks it; null means no."""

    @abstractmethod
    def message(self, value: Any) -> str:
        """The message about a value that breaks it."""


@dataclass(frozen=True, slots=True)
class Required(ValueConstraint):
    """A property that is not nullable."""

    kind: ClassVar[ConstraintKind] = "required"
    property: str
    type: ValueType

    def broken(self, column: pa.Array) -> pa.Array:
        """Nulls."""
        return pc.is_null(column)

    def message(self, value: Any) -> str:
        """Names the property."""
        return null_message(self.type, self.property)


@dataclass(frozen=True, slots=True)
class OneOf(ValueConstraint):
    """`enum(…)`."""

    kind: ClassVar[ConstraintKind] = "enum"
    type_name: str
    property: str
    allowed: tuple[str, ...]

    def broken(self, column: pa.Array) -> pa.Array:
        """Values that are not declared."""
        known = pc.is_in(column, value_set=pa.array(self.allowed, pa.string()))
        return pc.and_(pc.invert(known), pc.is_valid(column))

    def message(self, value: Any) -> str:
        """Lists the declared values."""
        expected = ", ".join(self.allowed)
        where = f"{self.type_name}.{self.property}"
        return f"invalid enum value '{value}' for {where} (expected: {expected})"


@dataclass(frozen=True, slots=True)
class Finite(ValueConstraint):
    """A float in the `@key` of an edge type: NaN does not equal itself, so it cannot identify."""

    kind: ClassVar[ConstraintKind] = "finite"
    property: str

    def broken(self, column: pa.Array) -> pa.Array:
        """NaNs and infinities."""
        return pc.invert(pc.is_finite(column))

    def message(self, value: Any) -> str:
        """The same message as for keys of nodes."""
        return non_finite_message(value)


@dataclass(frozen=True, slots=True)
class Within(ValueConstraint):
    """`@range`."""

    kind: ClassVar[ConstraintKind] = "range"
    type_name: str
    property: str
    type: ValueType
    minimum: int | float | None
    maximum: int | float | None

    def broken(self, column: pa.Array) -> pa.Array:
        """NaNs, and values beyond a bound."""
        found = [pc.is_nan(column)] if self.type.scalar.is_float else []
        if self.minimum is not None:
            found.append(compare("<", column, _bound(self.minimum, self.type)))
        if self.maximum is not None:
            found.append(compare(">", column, _bound(self.maximum, self.type)))
        return reduce(pc.or_kleene, found)

    def message(self, value: Any) -> str:
        """Names the bound."""
        subject = f"@range violation on {self.type_name}.{self.property}: value"
        if isinstance(value, float) and math.isnan(value):
            return f"{subject} is NaN"
        shown = _number(value, self.type)
        if self.minimum is not None and value < _bound(self.minimum, self.type).as_py():
            return f"{subject} {shown} < min {_number(self.minimum)}"
        assert self.maximum is not None
        return f"{subject} {shown} > max {_number(self.maximum)}"


@dataclass(frozen=True, slots=True)
class PatternCheck(ValueConstraint):
    """`@check`."""

    kind: ClassVar[ConstraintKind] = "check"
    type_name: str
    property: str
    pattern: str

    def broken(self, column: pa.Array) -> pa.Array:
        """Texts in which the pattern is not found."""
        return pc.invert(pc.match_substring_regex(column, self.pattern))

    def message(self, value: Any) -> str:
        """Shows the pattern."""
        where = f"@check violation on {self.type_name}.{self.property}"
        return f"{where}: value '{value}' does not match pattern '{self.pattern}'"


def value_constraints(type: TableType) -> Iterator[ValueConstraint]:
    """The constraints on values of a type, in the order of reports."""
    for declared in type.properties.values():
        if not declared.type.nullable:
            yield Required(declared.name, declared.type)
        if declared.type.enum_values is not None:
            yield OneOf(type.name, declared.name, declared.type.enum_values)
    if isinstance(type, EdgeType):
        for name in type.key_columns:
            if name in type.properties and type.properties[name].type.scalar.is_float:
                yield Finite(name)
        return
    for bounds in type.ranges:
        if bounds.minimum is not None or bounds.maximum is not None:
            declared = type.properties[bounds.property]
            yield Within(type.name, declared.name, declared.type, bounds.minimum, bounds.maximum)
    for check in type.checks:
        yield PatternCheck(type.name, check.property, check.pattern)


def _bound(limit: int | float, type: ValueType) -> pa.Scalar:
    """The limit to compare values of ``type`` with, exact for integers."""
    if isinstance(limit, float):
        # As in queries: 0.1 stored as F32 differs from 0.1, but has to satisfy `..0.1`.
        return pa.scalar(round_to_f32(limit) if type.scalar is Scalar.F32 else limit, pa.float64())
    for integers in (pa.int64(), pa.uint64()):
        try:
            return pa.scalar(limit, integers)
        except (pa.ArrowInvalid, OverflowError):
            continue
    try:
        return pa.scalar(float(limit), pa.float64())
    except OverflowError:
        return pa.scalar(math.inf if limit > 0 else -math.inf, pa.float64())


_F64 = ValueType(Scalar.F64)


def _number(value: int | float, type: ValueType = _F64) -> str:
    """A number for messages: its canonical spelling, or `inf`, which has none."""
    if isinstance(value, int):
        return str(value)
    return spell(value, type) if math.isfinite(value) else str(value)


# --- keys -----------------------------------------------------------------------------------------

Broken = Iterable[tuple[str, Sequence[Holder]]]
"""Broken keys with all rows that have each, in the order of the input."""


class KeyConstraint(ABC):
    """A constraint on several rows: those with the same key."""

    kind: ClassVar[ConstraintKind]
    needs_repeats: ClassVar[bool] = True
    """Whether a key that at most one row has, in any role, cannot break the constraint."""
    table_key: str
    """The type that has the keys."""

    @abstractmethod
    def broken(self, counts: pa.RecordBatch) -> pa.Array:
        """Whether each key breaks it; ``counts`` has the number of rows in a column per role."""

    @abstractmethod
    def violations(self, key: str, holders: Sequence[Holder]) -> Iterator[Violation]:
        """The violations to report for a broken key."""

    def explain(self, broken: Broken) -> Iterator[Violation]:
        """The violations to report for several broken keys."""
        for key, holders in broken:
            yield from self.violations(key, holders)

    def by_record(self, key: str, holders: Sequence[Holder]) -> Iterator[Violation]:
        """A violation for every input record involved in a broken key, which is its `culprit`.

        Without these records the key is not broken. A violation without a culprit is not caused by
        any record of the input.
        """
        found = list(self.violations(key, holders))
        rows = [row for row in holders if self._has_part(row) and not row.is_kept]
        return _by_culprit(found, rows)

    def _has_part(self, row: Holder) -> bool:
        """Whether a row is an input record involved in the broken key."""
        return row.role in ("written", "record")

    @property
    def type_name(self) -> str:
        """The name of the type."""
        return TableKey(self.table_key).type_name


@dataclass(frozen=True, slots=True)
class EntityIdentity(KeyConstraint):
    """Ids: no two records have the same one, and an append has only new ones."""

    kind: ClassVar[ConstraintKind] = "identity"
    table_key: str
    key: tuple[str, ...] = ()
    """The members of `@key`, in the order in which ids contain them."""
    refuses_existing: bool = False

    def broken(self, counts: pa.RecordBatch) -> pa.Array:
        """Ids that are repeated or taken."""
        return _is_taken(counts, refuses_existing=self.refuses_existing)

    def violations(self, key: str, holders: Sequence[Holder]) -> Iterator[Violation]:
        """The second record with a repeated id; or a record with the id of a committed entity."""
        written = _in_role(holders, "written")
        records = _in_role(holders, "record") or written
        if len(records) > 1:
            yield self._repeated(key, records)
        elif written and self.refuses_existing and _in_role(holders, "committed"):
            kind = TableKey.parse(self.table_key).kind
            yield _violation(
                self,
                written[0],
                ConflictKind.UNIQUE_VIOLATION,
                f"{kind} {self.type_name} '{key}' already exists",
                report="existing_id",
                property_name=ID,
                hint="use mode merge to update existing entities",
            )

    def _repeated(self, key: str, records: Sequence[Holder]) -> Violation:
        first, second = records[:2]
        kind = TableKey.parse(self.table_key).kind
        names = sorted(self.key)
        return _violation(
            self,
            second,
            ConflictKind.UNIQUE_VIOLATION,
            _held_twice(self.type_name, names, _values(key, self.key, names), key, key)
            if names
            else f"{kind} {self.type_name} repeats id '{key}'",
            report="repeated_key" if names else "repeated_id",
            property_name=None if names else ID,
            hint=None if names else "mode merge takes the last one",
            first=first,
            repeats=len(records),
        )


@dataclass(frozen=True, slots=True)
class Unique(KeyConstraint):
    """`@unique`, and `@key` of an edge type: no two entities have the same values.

    Rows with a null or a NaN among the values are exempt; keys have neither.
    """

    kind: ClassVar[ConstraintKind] = "unique"
    table_key: str
    columns: tuple[str, ...]
    """The columns in the order of messages: sorted, for a key in the order of the catalog."""
    is_key: bool = False
    references: frozenset[str] = frozenset()
    """Columns that are ends at an interface, whose values messages show as ids."""

    def broken(self, counts: pa.RecordBatch) -> pa.Array:
        """Values that are repeated or taken."""
        return _is_taken(counts, refuses_existing=True)

    def explain(self, broken: Broken) -> Iterator[Violation]:
        """One violation per entity, even if several of its records conflict with others."""
        first: dict[str, tuple[tuple[int, int], Violation]] = {}
        for key, holders in broken:
            if not _in_role(holders, "record"):
                yield from self.violations(key, holders)
                continue
            for order, found in self._in_input(key, holders):
                assert found.entity_id is not None
                known = first.get(found.entity_id)
                if known is None or order < known[0]:
                    first[found.entity_id] = (order, found)
        yield from (found for _, found in first.values())

    def by_record(self, key: str, holders: Sequence[Holder]) -> Iterator[Violation]:
        """Includes records of the same entity that repeat the values."""
        if len(_in_role(holders, "record")) < 2:
            return KeyConstraint.by_record(self, key, holders)
        found = [each for _, each in self._in_input(key, holders)]
        return _by_culprit(found, [row for row in holders if self._has_part(row)])

    def violations(self, key: str, holders: Sequence[Holder]) -> Iterator[Violation]:
        """Every row whose values another entity has: a committed one, else the first by id."""
        written = sorted(_in_role(holders, "written"), key=lambda row: (row.entity_id, row.record))
        # Entities that the write itself replaces do not count.
        own = {row.entity_id for row in written}
        before = [
            row.entity_id for row in _in_role(holders, "committed") if row.entity_id not in own
        ]
        if before:
            for row in written:
                yield self._clash(key, min(before), row)
        else:
            for row in written[1:]:
                yield self._clash(key, written[0].entity_id, row)

    def _in_input(
        self, key: str, holders: Sequence[Holder]
    ) -> Iterator[tuple[tuple[int, int], Violation]]:
        """Violations between records of the input: later records against the first one.

        Each comes with its sort key; violations against committed rows come last.
        """
        records = _in_role(holders, "record")
        for row in records[1:]:
            # Records of edges with a key have no ids of their own: messages name their places.
            first = records[0] if self.is_key else None
            yield row.record, self._clash(key, records[0].entity_id, row, first)
        if _in_role(holders, "committed"):
            for found in self.violations(key, holders):
                yield (sys.maxsize, 0), found

    def _clash(
        self, key: str, holder_id: str, row: Holder, first: Holder | None = None
    ) -> Violation:
        names = self.columns
        values = [
            id_in(value) if name in self.references else value
            for name, value in zip(names, _values(key, names, names), strict=True)
        ]
        message = _held_twice(
            self.type_name,
            names,
            values,
            holder_id,
            row.entity_id,
            constraint="key" if self.is_key else "unique",
        )
        if first is not None:
            where = f"{self.type_name}.{_listed(names)}"
            message = f"@key violation on {where}: value '{_listed(values)}' is there twice"
        return _violation(
            self,
            row,
            ConflictKind.UNIQUE_VIOLATION,
            message,
            report="unique",
            property_name=names[0] if len(names) == 1 else None,
            hint=(
                "keep one of the records"
                if first is not None
                else "update the edge that has this key, or load with mode merge"
                if self.is_key
                else "no two entities may have the same values"
            ),
            first=first,
        )


@dataclass(frozen=True, slots=True)
class Endpoint(KeyConstraint):
    """Edges end at existing nodes. The keys are the ids of nodes of one type."""

    kind: ClassVar[ConstraintKind] = "endpoint"
    needs_repeats: ClassVar[bool] = False
    table_key: str
    is_replaced: bool = False
    """Whether the write replaces all nodes of the type."""
    types: tuple[tuple[str, str], ...] = ()
    """For an interface, whose keys are unresolved references: prefixes and names of its node
    types."""

    def broken(self, counts: pa.RecordBatch) -> pa.Array:
        """Ids at which an edge ends and that no node has, not even a refused one."""
        there = pc.add(pc.add(counts["written"], counts["committed"]), counts["refused"])
        return pc.and_(pc.greater(counts["endpoint"], 0), pc.equal(there, 0))

    def by_record(self, key: str, holders: Sequence[Holder]) -> Iterator[Violation]:
        """The edges of the input; committed edges have no culprit."""
        for each in self.violations(key, holders):
            row = each.holder
            yield replace(each, culprit=None if row is None or row.is_kept else row)

    def violations(self, key: str, holders: Sequence[Holder]) -> Iterator[Violation]:
        """Every edge with the missing node, sources before targets."""
        if any(row.role in ("written", "committed") for row in holders):
            return
        ends = _in_role(holders, "endpoint")
        if self.types:
            yield from self._unsettled(key, ends)
            return
        for row in sorted(ends, key=lambda row: row.member, reverse=True):
            edge, _, column = row.member.partition(".")
            is_stranded = row.is_kept and self.is_replaced
            verb = "starts at" if column == SRC else "ends at"
            yield Violation(
                "edge",
                edge,
                row.entity_id,
                ConflictKind.ORPHAN_EDGE,
                f"{column} '{key}' not found in {self.type_name}",
                report="missing_node",
                property_name=column,
                hint=(
                    "load its edges as well, or keep the node"
                    if is_stranded
                    else "add the node, or leave out the edge"
                ),
                holder=row,
                missing_id=key,
                writer_message=(
                    f"edge {edge} '{row.entity_id}', which is kept, {verb} {self.type_name}"
                    f" '{key}', which this load removes"
                    if is_stranded
                    else None
                ),
            )

    def _unsettled(self, key: str, ends: Sequence[Holder]) -> Iterator[Violation]:
        """Edges to an id that no node type has, or several have."""
        prefix, _, node_id = key.partition(UNRESOLVED)
        names = dict(self.types)
        found = [names[f"{number}{UNRESOLVED}"] for number in prefix.split(",") if number]
        for row in sorted(ends, key=lambda row: row.member, reverse=True):
            edge, _, column = row.member.partition(".")
            message = f"{column} '{node_id}' not found in {self.type_name}"
            hint = "add the node, or leave out the edge"
            if found:
                message = f"{column} '{node_id}' is the id of a {' and of a '.join(found)}"
                hint = f"say which with '{RECORD_END_TYPES[column]}'"
            yield Violation(
                "edge",
                edge,
                row.entity_id,
                ConflictKind.ORPHAN_EDGE,
                message,
                report="missing_node",
                property_name=column,
                hint=hint,
                holder=row,
                missing_id=node_id,
            )


@dataclass(frozen=True, slots=True)
class Degree(KeyConstraint):
    """`@card`: the number of edges of a type at each source that the write touches."""

    kind: ClassVar[ConstraintKind] = "cardinality"
    needs_repeats: ClassVar[bool] = False
    table_key: str
    limits: Cardinality
    has_references: bool = False
    """Whether sources are of several types, so that keys are references with type prefixes."""

    def broken(self, counts: pa.RecordBatch) -> pa.Array:
        """Sources of written or replaced edges with too few or too many edges after the write."""
        edges = pc.add(counts["written"], counts["committed"])
        broken = pc.less(edges, self.limits.minimum)
        if self.limits.maximum is not None:
            broken = pc.or_(broken, pc.greater(edges, self.limits.maximum))
        return pc.and_(broken, pc.greater(pc.add(counts["written"], counts["replaced"]), 0))

    def by_record(self, key: str, holders: Sequence[Holder]) -> Iterator[Violation]:
        """All edges of the source; if there are too few, also those that were moved away."""
        if self._count(holders) >= self.limits.minimum:
            holders = [row for row in holders if row.role != "replaced"]
        return KeyConstraint.by_record(self, key, holders)

    def _has_part(self, row: Holder) -> bool:
        return row.role in ("written", "replaced")

    def _count(self, holders: Sequence[Holder]) -> int:
        return sum(row.role in ("written", "committed") for row in holders)

    def violations(self, key: str, holders: Sequence[Holder]) -> Iterator[Violation]:
        """One violation for the source, since no single edge breaks the bound."""
        count = self._count(holders)
        too_few = count < self.limits.minimum
        bound = f"min {self.limits.minimum}" if too_few else f"max {self.limits.maximum}"
        read = [row for row in holders if row.role == "written" and row.record != NO_RECORD]
        source = f"'{id_in(key)}'" if self.has_references else f"'{key}'"
        shown = f"source {source} has {count} edges ({bound})"
        found = _violation(
            self,
            min(read, key=lambda row: row.record) if read else None,
            ConflictKind.CARDINALITY_VIOLATION,
            f"@card violation on edge {self.type_name}: {shown}",
            report="cardinality",
            hint=f"{'add' if too_few else 'leave out'} edges, or allow"
            f" {'fewer' if too_few else 'more'} of them with @card in the schema",
        )
        yield found


KINDS: dict[ConstraintKind, type[ValueConstraint] | type[KeyConstraint]] = {
    each.kind: each
    for each in (
        Required,
        OneOf,
        Finite,
        Within,
        PatternCheck,
        EntityIdentity,
        Unique,
        Endpoint,
        Degree,
    )
}


def unique_groups(type: TableType) -> list[Unique]:
    """The unique groups of a type, and the key of an edge type.

    Without groups of exactly the key's columns, and without the key of a node, which `identity`
    covers.
    """
    key = type.key if isinstance(type, NodeType) else type.key_columns
    groups = {tuple(sorted(columns)) for columns in type.unique} - {tuple(sorted(key))}
    ends = frozenset(type.end_types) if isinstance(type, EdgeType) else frozenset()
    found = [Unique(type.table_key, columns, references=ends) for columns in sorted(groups)]
    if isinstance(type, EdgeType) and key:
        found.insert(0, Unique(type.table_key, key, is_key=True, references=ends))
    return found


def unsettled_ends(edge: EdgeType, column: str) -> Endpoint:
    """The constraint that every reference at an interface resolves to one node."""
    name = edge.source if column == SRC else edge.target
    types = tuple((prefix, type_name) for type_name, prefix in edge.end_types[column].items())
    return Endpoint(f"interface:{name}", types=types or (("", ""),))


def identity(type: TableType, *, refuses_existing: bool) -> EntityIdentity:
    """The constraint on the ids of a type."""
    key = tuple(type.key) if isinstance(type, NodeType) else ()
    return EntityIdentity(type.table_key, key, refuses_existing)


def degree(type: EdgeType) -> Degree | None:
    """The `@card` constraint of a type; None without one."""
    if type.cardinality == Cardinality():
        return None
    return Degree(type.table_key, type.cardinality, SRC in type.end_types)


def _is_taken(counts: pa.RecordBatch, *, refuses_existing: bool) -> pa.Array:
    taken = pc.or_(pc.greater(counts["written"], 1), pc.greater(counts["record"], 1))
    if refuses_existing:
        meets = pc.and_(pc.greater(counts["written"], 0), pc.greater(counts["committed"], 0))
        taken = pc.or_(taken, meets)
    return taken


def _by_culprit(found: Sequence[Violation], rows: Sequence[Holder]) -> Iterator[Violation]:
    """A violation for each of ``rows``: its own, else the first one; none if ``found`` is empty."""
    own = {each.holder: each for each in found}
    for row in rows if found else ():
        yield replace(own.get(row, found[0]), culprit=row)
    if not rows:
        yield from found


def _in_role(holders: Sequence[Holder], role: Role) -> list[Holder]:
    return [row for row in holders if row.role == role]


def _violation(
    constraint: KeyConstraint, holder: Holder | None, kind: ConflictKind, message: str, **more: Any
) -> Violation:
    entity_id = (
        None if kind is ConflictKind.CARDINALITY_VIOLATION or holder is None else (holder.entity_id)
    )
    where = TableKey.parse(constraint.table_key)
    return Violation(where.kind, where.type_name, entity_id, kind, message, holder=holder, **more)


def _held_twice(
    type_name: str,
    names: Sequence[str],
    values: Sequence[str],
    first: str,
    second: str,
    *,
    constraint: Literal["key", "unique"] = "unique",
) -> str:
    return (
        f"@{constraint} violation on {type_name}.{_listed(names)}: value '{_listed(values)}'"
        f" held by '{first}' and '{second}'"
    )


def _values(key: str, order: Sequence[str], names: Sequence[str]) -> list[str]:
    """The values of a key in the order of ``names``."""
    if len(order) == 1:
        return [key]
    values = dict(zip(order, json.loads(key), strict=True))
    return [values[name] for name in names]


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
