"""From records to rows: converts the data of one type's records to columns of its table.

Every load converts values to Arrow here, in process and on workers. Whole columns are converted;
only if a column fails are its values converted one by one, to find every problem of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.external_blobs import ExternalBlobs, denial
from omnigraph.commit.validation.constraints import Required, value_constraints
from omnigraph.commit.validation.evaluation import values_breaking
from omnigraph.errors import ValueConversionError
from omnigraph.loading.records.absence import (
    absent_in_records,
    absent_in_table,
    absent_of_whole,
    is_needed,
    value_needed,
)
from omnigraph.loading.records.envelope import EnvelopeReader, TypeRecords
from omnigraph.loading.records.framing import Chunk
from omnigraph.loading.records.ids import MintIds, names_key
from omnigraph.loading.records.problems import (
    Grammar,
    Problem,
    ProblemKind,
    RecordPlace,
    RecordProblems,
    RefusedValue,
    Unit,
    name_hint,
    unit_of,
    value_hint,
    with_inputs,
)
from omnigraph.model.arrow import (
    DST,
    ID,
    SRC,
    arrow_type,
    column_from_json,
    column_from_values,
    entity_id_column,
    spell_column,
)
from omnigraph.model.arrow_columns import (
    accepts,
    column_from_arrow,
    ids_from_texts,
    json_values,
    parsed_texts,
    sound_texts,
    values_from_text,
)
from omnigraph.model.records import dataclass
from omnigraph.model.references import END_TYPES, RECORD_END_TYPES, UNRESOLVED, qualified
from omnigraph.model.types import VIRTUAL_COLUMNS, Scalar, ValueType
from omnigraph.model.values import Value, property_value, shown
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, Property, TableType, table_schema

if TYPE_CHECKING:
    from omnigraph.loading.mapping import TableMapping

_MEMBERS = {SRC: "from", DST: "to"}
"""The names of endpoints in records."""


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Consecutive rows of one type from one source, in input order."""

    type: TableType
    source: str | None
    rows: pa.RecordBatch
    """In the schema of the type's table."""
    numbers: pa.Int64Array
    """The number of each row's record."""
    minted: pa.BooleanArray
    """Whether each id was minted: neither given nor derived, and new."""
    renamed: dict[str, tuple[str, int]]
    """By id in an older spelling: the canonical id, and the number of a record with it."""
    refused_ids: pa.StringArray
    """Known ids of refused records: edges that end there are not reported as well."""
    absent: pa.BinaryArray | None = None
    """The properties that each record lacks, as in `records.absence`; None if absent properties get
    their defaults."""
    unnamed: frozenset[str] = frozenset()
    """Properties of the type that the writer may not name."""

    def without(self, records: pa.Int64Array) -> TypedRows:
        """The rows except those of ``records``, whose ids are added to the refused ones."""
        is_out = pc.is_in(self.numbers, value_set=records)
        if not pc.any(is_out).as_py():
            return self
        kept, numbers = pc.invert(is_out), set(records.to_pylist())
        return replace(
            self,
            rows=self.rows.filter(kept),
            numbers=self.numbers.filter(kept),
            minted=self.minted.filter(kept),
            renamed={old: new for old, new in self.renamed.items() if new[1] not in numbers},
            refused_ids=pa.concat_arrays([self.refused_ids, self.rows[ID].filter(is_out)]),
            absent=None if self.absent is None else self.absent.filter(kept),
        )

    def of_whole(self, whole: TableType) -> TypedRows:
        """The rows with all properties of their type, of which the writer may name some.

        The others get the values of absent properties. For a required one without a default that
        is null, which `WriterRights` refuses in a new entity.
        """
        schema = table_schema(whole)
        columns = [
            self.rows[field.name]
            if field.name in self.rows.schema.names
            else _lacking(whole.properties[field.name], self.rows.num_rows)
            for field in schema
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        absent = self.absent
        if absent is not None:
            absent = absent_of_whole(self.type, whole, absent)
        unnamed = frozenset(whole.properties) - frozenset(self.type.properties)
        return replace(self, type=whole, rows=rows, absent=absent, unnamed=unnamed)


def _lacking(prop: Property, rows: int) -> pa.Array:
    """The column of a property that no record has."""
    value = None
    if not is_needed(prop):
        value = property_value(prop.default, prop.type, prop.name, strict=True)
    return column_from_values([value] * rows, prop.type.with_nullable(True))


def without_bad(
    rows: Iterable[TypedRows], problems: Iterable[Problem], skipped: pa.Int64Array | None = None
) -> list[TypedRows]:
    """The rows of records that have no problem and are not among those ``skipped`` before."""
    bad = pa.array([each.place.number for each in problems if each.place], pa.int64())
    left_out = bad if skipped is None else pa.concat_arrays([bad, skipped])
    return [each.without(left_out) if len(left_out) else each for each in rows]


class RowBuilder:
    """Turns the records of one type into rows."""

    def __init__(
        self,
        type: TableType,
        grammar: Grammar,
        mint: MintIds,
        external: ExternalBlobs,
        *,
        copy_external: bool,
        keeps_absent: bool = False,
        skips: bool = False,
        unit: Unit | None = None,
        folder_values: Mapping[str, str | None] | None = None,
    ) -> None:
        """``keeps_absent``: rows get the column `ABSENT`, and records may lack required properties.

        ``skips``: records with problems are skipped, and the others written.

        ``folder_values`` are property values of all records, as texts, from partition folders. A
        record with another value for such a property is a problem.
        """
        self._type = type
        self._strict = grammar == "strict"
        self._unit = unit or unit_of(grammar)
        self._mint = mint
        self._external = external
        self._copy_external = copy_external
        self._keeps_absent = keeps_absent
        self._skips = skips
        self._schema = table_schema(type)
        self._key = type.key if isinstance(type, NodeType) else ()
        self._folder_values = {
            name: values_from_text(pa.array([text], pa.string()), type.properties[name].type)[0]
            for name, text in (folder_values or {}).items()
            if name in type.properties
        }

    def build(
        self, records: TypeRecords, source: str | None, refused: Sequence[RefusedValue] = ()
    ) -> tuple[TypedRows, list[Problem]]:
        """The rows of records without problems, and all problems, also of values in ``refused``."""
        batch = RecordProblems(self._type, source, self._unit, records.numbers)
        batch.refuse(refused)
        fields = _Fields(records.data)
        if self._strict:
            self._refuse_unknown(fields, records.data, batch)
        given = self._given_ids(fields, batch)
        columns = {
            prop.name: self._members(prop, fields, batch) for prop in self._type.properties.values()
        }
        self._refuse_other_values(columns, fields.names, batch)
        if isinstance(self._type, EdgeType):
            for name, ids in ((SRC, records.sources), (DST, records.targets)):
                named = records.end_types.get(name, {})
                types = [named.get(i) for i in range(len(ids))] if named else None
                columns[name] = self._references(name, pa.array(ids, pa.string()), types, batch)
        absent = None
        if self._keeps_absent:
            absent = absent_in_records(self._type, records.data, self._folder_values)
        return self._rows(columns, given, absent, batch)

    def build_from_columns(
        self,
        columns: Mapping[str, pa.Array],
        numbers: Sequence[int],
        source: str | None,
        *,
        texts: Collection[str] = (),
        ends: Mapping[str, ValueType] | None = None,
        refused: Sequence[RefusedValue] = (),
    ) -> tuple[TypedRows, list[Problem]]:
        """`build` for rows of a table, whose column types `mapped_columns` has checked.

        Endpoints are ids or key values of the types in ``ends``. Columns in ``texts`` hold texts of
        values, or lists of them, as in CSV.
        """
        batch = RecordProblems(self._type, source, self._unit, numbers)
        batch.refuse(refused)
        columns = {name: _sound(name, column, batch) for name, column in columns.items()}
        built = {
            prop.name: self._cells(
                prop, columns.get(prop.name), batch, are_texts=prop.name in texts
            )
            for prop in self._type.properties.values()
        }
        self._refuse_other_values(built, columns, batch)
        if isinstance(self._type, EdgeType):
            for name in _MEMBERS:
                ids = self._ends(name, columns[name], (ends or {}).get(name), batch)
                types = columns.get(END_TYPES[name])
                named = None if types is None else types.cast(pa.string()).to_pylist()
                built[name] = self._references(name, ids, named, batch)
        given = columns.get(ID)
        if given is None:
            given = pa.nulls(len(numbers), pa.string())
        absent = None
        if self._keeps_absent:
            present = {*columns, *self._folder_values}
            absent = absent_in_table(self._type, present, len(numbers))
        return self._rows(built, given.cast(pa.string()), absent, batch)

    def _rows(
        self,
        columns: dict[str, pa.Array],
        given: pa.StringArray,
        absent: pa.BinaryArray | None,
        batch: RecordProblems,
    ) -> tuple[TypedRows, list[Problem]]:
        """Drop records with problems, and add ids."""
        numbers = _int64(batch.numbers)
        refused = pa.nulls(0, pa.string())
        if batch.bad:
            kept = pa.array([i not in batch.bad for i in range(len(numbers))])
            refused = self._ids_of_refused(columns, given, pc.invert(kept))
            columns = {name: column.filter(kept) for name, column in columns.items()}
            numbers, given = numbers.filter(kept), given.filter(kept)
            absent = None if absent is None else absent.filter(kept)
        if self._copy_external and (self._skips or not batch.bad):
            for prop in self._type.properties.values():
                if prop.type.is_blob:
                    columns[prop.name] = self._external.copied(columns[prop.name])
        renamed: dict[str, tuple[str, int]] = {}
        if self._key:
            ids = self._derived_ids(columns, given, numbers, batch, renamed)
            minted = pa.array(np.zeros(len(ids), bool))
        else:
            ids, minted = self._chosen_ids(batch.source, given, numbers)
        columns[ID] = ids
        rows = pa.RecordBatch.from_arrays(
            [columns[name] for name in self._schema.names], schema=self._schema
        )
        typed = TypedRows(self._type, batch.source, rows, numbers, minted, renamed, refused, absent)
        return typed, batch.problems

    # --- members of data ---

    def _refuse_unknown(
        self, fields: _Fields, data: Sequence[dict[str, Any]], batch: RecordProblems
    ) -> None:
        unknown = fields.names - self._type.properties.keys() - {ID}
        for name in sorted(unknown):
            kind, message, hint = self._unknown_field(name)
            for i, record in enumerate(data):
                if name in record:
                    batch.add(i, kind, message, name, hint)

    def _unknown_field(self, name: str) -> tuple[ProblemKind, str, str]:
        if name in VIRTUAL_COLUMNS:
            return "reserved_field", f"input field '{name}' is reserved physical state", "remove it"
        if name in ("src", "dst") and isinstance(self._type, EdgeType):
            end = "from" if name == "src" else "to"
            return (
                "reserved_field",
                f"input field '{name}' is reserved structural state",
                f"give the endpoint as '{end}', next to 'data'",
            )
        hint = name_hint(name, self._type.properties, f"properties of {self._type.name}")
        return "unknown_field", f"unknown input field '{name}'", hint

    # --- values ---

    def _cells(
        self, prop: Property, cells: pa.Array | None, batch: RecordProblems, *, are_texts: bool
    ) -> pa.Array:
        """The column of a property; ``cells`` are None if the table has no such column."""
        if cells is None:
            rows = len(batch.numbers)
            if self._may_lack(prop):
                return pa.nulls(rows, arrow_type(prop.type))
            if not rows or is_needed(prop):
                return self._column(prop, [self._absent(prop)] * rows, batch)
            one = self._column(prop, [self._absent(prop)], batch)
            return one.take(pa.array(np.zeros(rows, np.int64)))
        if are_texts:
            parsed = parsed_texts(cells, prop.type)
            takes_default = not prop.type.nullable and prop.default is not None
            if parsed is None or (takes_default and parsed.null_count):
                values = values_from_text(cells, prop.type)
                if takes_default:
                    # A CSV row can leave out a value only by an empty cell, so it gets the default.
                    default = self._absent(prop)
                    values = [default if value is None else value for value in values]
                return self._column(prop, values, batch)
            cells = parsed
        try:
            column = column_from_arrow(cells, prop.type, name=prop.name, strict=self._strict)
        except ValueConversionError:
            return self._column(prop, json_values(cells, prop.type), batch)
        return self._admitted_blobs(prop, column, batch) if prop.type.is_blob else column

    def _members(self, prop: Property, fields: _Fields, batch: RecordProblems) -> pa.Array:
        """The column of a property from members of records."""
        if not self._may_lack(prop):
            return self._column(prop, fields.column(prop.name, self._absent(prop)), batch)
        values = fields.column(prop.name, _ABSENT)
        lacking = {i for i, value in enumerate(values) if value is _ABSENT}
        if not lacking:
            return self._column(prop, values, batch)
        values = [None if value is _ABSENT else value for value in values]
        nullable = prop.type.with_nullable(True)
        try:
            column = column_from_json(values, nullable, name=prop.name, strict=self._strict)
            if column.null_count > len(lacking):  # an explicit null is a problem
                column = self._fitting(
                    prop.name, prop.type, values, "bad_value", batch, lacking=lacking
                )
        except ValueConversionError:
            column = self._fitting(
                prop.name, prop.type, values, "bad_value", batch, lacking=lacking
            )
        return self._admitted_blobs(prop, column, batch) if prop.type.is_blob else column

    def _may_lack(self, prop: Property) -> bool:
        """Whether records may lack this required property, since they may update entities."""
        return (
            self._keeps_absent
            and is_needed(prop)
            and prop.name not in self._key
            and prop.name not in self._folder_values
        )

    def _absent(self, prop: Property) -> object:
        """The value for a property that a record lacks."""
        return self._folder_values.get(prop.name, prop.default)

    def _refuse_other_values(
        self, columns: Mapping[str, pa.Array], given: Collection[str], batch: RecordProblems
    ) -> None:
        """Add problems for records whose value differs from that of their partition folder."""
        for name in self._folder_values.keys() & given:
            prop = self._type.properties[name]
            (wanted,) = self._column(prop, [self._folder_values[name]], batch).to_pylist()
            other = f"and {shown(wanted)} in the name of its folder"
            for i, value in enumerate(columns[name].to_pylist()):
                if value != wanted:
                    message = f"property '{name}' is {shown(value)}, {other}"
                    batch.add(i, "bad_value", message, name, "keep the one that is right")

    def _column(self, prop: Property, values: Sequence[object], batch: RecordProblems) -> pa.Array:
        try:
            column = column_from_json(values, prop.type, name=prop.name, strict=self._strict)
        except ValueConversionError:
            column = self._fitting(prop.name, prop.type, values, "bad_value", batch)
        return self._admitted_blobs(prop, column, batch) if prop.type.is_blob else column

    def _admitted_blobs(self, prop: Property, column: pa.Array, batch: RecordProblems) -> pa.Array:
        for i, uri in self._external.refused(column):
            batch.add(i, "denied_blob", denial(uri), prop.name, self._external.hint)
        return column

    def _fitting(
        self,
        name: str,
        type: ValueType,
        values: Sequence[object],
        kind: ProblemKind,
        batch: RecordProblems,
        *,
        lacking: Collection[int] = (),
    ) -> pa.Array:
        """Convert value by value; one that does not fit becomes null and a problem.

        Values at ``lacking`` become null without a problem.
        """
        fitting: list[Value | None] = []
        for i, value in enumerate(values):
            if i in lacking:
                fitting.append(None)
                continue
            try:
                fitting.append(property_value(value, type, name, strict=self._strict))
            except ValueConversionError as error:
                fitting.append(None)
                needed = value_needed(self._type)
                hint = error.hint or (needed if value is None else value_hint(type))
                batch.add(i, kind, error.message, name, hint)
        return column_from_values(fitting, type.with_nullable(True))

    # --- endpoints ---

    def _ends(
        self, name: str, given: pa.Array, key: ValueType | None, batch: RecordProblems
    ) -> pa.StringArray:
        """Endpoints as ids: key values in their canonical spelling; other texts are ids already."""
        member = _MEMBERS[name]
        if key is None or accepts(ValueType(Scalar.STRING), given.type):
            ids = given.cast(pa.string())
            ids = ids if key is None else ids_from_texts(ids, key)
        else:
            key = key.with_nullable(True)
            try:
                values = column_from_arrow(given, key, name=member, strict=self._strict)
            except ValueConversionError:
                values = self._fitting(member, key, json_values(given, key), "bad_endpoint", batch)
            ids = spell_column(values, key)
        for i in pc.indices_nonzero(ids.is_null()).to_pylist():
            message = f"edge {self._type.name} requires field '{member}'"
            batch.add(i, "bad_endpoint", message, member, "every edge names both its nodes")
        return ids

    def _references(
        self,
        name: str,
        ids: pa.StringArray,
        types: Sequence[object] | None,
        batch: RecordProblems,
    ) -> pa.StringArray:
        """Edge ends in stored form; node types that are not given are looked up later.

        ``types`` are the type names given by records, None for a record that gives none.
        """
        assert isinstance(self._type, EdgeType)
        prefixes = self._type.end_types.get(name)
        if prefixes is None:
            return ids
        if types is None:
            return qualified(ids, UNRESOLVED)
        member = RECORD_END_TYPES[name]
        begins: list[str] = []
        for i, given in enumerate(types):
            prefix = UNRESOLVED if given is None else None
            if isinstance(given, str):
                prefix = prefixes.get(given)
            if prefix is None:
                end = self._type.source if name == SRC else self._type.target
                message = f"{shown(given)} is no type that implements {end}"
                hint = f"'{member}' is one of {', '.join(sorted(prefixes)) or 'no types'}"
                batch.add(i, "bad_endpoint", message, member, hint)
            begins.append(prefix or UNRESOLVED)
        return pc.binary_join_element_wise(pa.array(begins, pa.string()), ids, "")

    # --- ids ---

    def _given_ids(self, fields: _Fields, batch: RecordProblems) -> pa.StringArray:
        """The ids in the records, null for records without one."""
        values = fields.column(ID, _ABSENT)
        kinds = set(map(type, values))
        if kinds <= {str}:
            return pa.array(values, pa.string())
        if kinds <= {_Missing}:
            return pa.nulls(len(values), pa.string())
        ids: list[str | None] = []
        for i, value in enumerate(values):
            if isinstance(value, str):
                ids.append(value)
                continue
            ids.append(None)
            if value is not _ABSENT:
                message = f"id must be a string, got {shown(value)}"
                batch.add(i, "bad_id", message, ID, "leave it out, or write it in quotes")
        return pa.array(ids, pa.string())

    def _chosen_ids(
        self, source: str | None, given: pa.StringArray, numbers: pa.Int64Array
    ) -> tuple[pa.StringArray, pa.BooleanArray]:
        missing = given.is_null()
        if given.null_count:
            new = self._mint(source, numbers.filter(missing))
            if not isinstance(new, pa.StringArray):
                new = pa.array(new, pa.string())
            all_new = given.null_count == len(given)
            given = new if all_new else pc.replace_with_mask(given, missing, new)
        return given, missing

    def _ids_of_refused(
        self, columns: dict[str, pa.Array], given: pa.StringArray, refused: pa.BooleanArray
    ) -> pa.StringArray:
        if not self._key:
            return given.filter(refused).drop_null()
        members = [
            spell_column(columns[name].filter(refused), self._type.properties[name].type)
            for name in self._key
        ]
        is_known = reduce(pc.and_, [member.is_valid() for member in members])
        return entity_id_column([member.filter(is_known) for member in members])

    def _derived_ids(
        self,
        columns: dict[str, pa.Array],
        given: pa.StringArray,
        numbers: pa.Int64Array,
        batch: RecordProblems,
        renamed: dict[str, tuple[str, int]],
    ) -> pa.StringArray:
        types = [self._type.properties[name].type for name in self._key]
        members = [
            spell_column(columns[name], type) for name, type in zip(self._key, types, strict=True)
        ]
        ids = entity_id_column(members)
        for i in pc.indices_nonzero(pc.not_equal(given, ids)).to_pylist():
            old, canonical, number = given[i].as_py(), ids[i].as_py(), numbers[i].as_py()
            if self._strict:
                message = f"id '{old}' does not match its canonical @key id '{canonical}'"
            elif not names_key(old, [member[i].as_py() for member in members], types):
                message = f"id '{old}' does not match @key: the node's id is '{canonical}'"
            else:
                batch.rename(renamed, old, canonical, number)
                continue
            hint = f"leave out 'id': it follows from {', '.join(self._key)}"
            batch.add_at(number, "bad_id", message, ID, hint)
        return ids


def _sound(name: str, column: pa.Array, batch: RecordProblems) -> pa.Array:
    """The column, with null and a problem for each text that is not UTF-8."""
    column, bad = sound_texts(column)
    member = _MEMBERS.get(name, name)
    kind: ProblemKind = "bad_value"
    subject = f"property '{name}'"
    if name == ID:
        kind, subject = "bad_id", "id"
    elif name in _MEMBERS:
        kind, subject = "bad_endpoint", f"field '{member}'"
    for i in bad:
        batch.add(i, kind, f"{subject} is not UTF-8", member, "save the texts as UTF-8")
    return column


def _int64(numbers: Sequence[int]) -> pa.Int64Array:
    if isinstance(numbers, range):
        return pa.array(np.arange(numbers.start, numbers.stop, numbers.step))
    return pa.array(numbers, pa.int64())


class _Missing:
    """Stands for a missing member, as distinct from null."""


_ABSENT = _Missing()


class _Fields:
    """The members of many records, by name."""

    def __init__(self, data: Sequence[dict[str, Any]]) -> None:
        self.names: set[str] = set().union(*data)
        self._data = data

    def column(self, name: str, absent: Any) -> Sequence[Any]:
        """The values of one member, ``absent`` for records without it."""
        if name not in self.names:
            return [absent] * len(self._data)
        try:
            return list(map(itemgetter(name), self._data))
        except KeyError:
            return [record.get(name, absent) for record in self._data]


# --- chunks ---------------------------------------------------------------------------------------


def typed_chunks(
    chunks: Iterable[Chunk],
    source: str | None,
    catalog: Catalog,
    grammar: Grammar,
    builder_of: Callable[[TableType], RowBuilder],
    *,
    mappings: Mapping[str, TableMapping],
    skips: bool = False,
) -> Iterator[tuple[list[TypedRows], list[Problem]]]:
    """Graph records as rows by type, and all problems of each chunk.

    ``mappings`` are those of the data of records, by table key. Rows with values that break a
    constraint are kept, so that later checks see them too. With ``skips`` they are dropped, and
    problems carry their records.
    """
    envelopes = EnvelopeReader(catalog, grammar)
    for chunk in chunks:
        groups, problems = envelopes.sort(chunk, source)
        problems.extend(chunk.problems)
        rows: list[TypedRows] = []
        for records in groups:
            refused: Sequence[RefusedValue] = ()
            mapping = mappings.get(records.type.table_key)
            if mapping is not None:
                records.data, _, refused = mapping.objects(
                    records.data, records.numbers, records.type, source or "graph records"
                )
            typed, found = builder_of(records.type).build(records, source, refused)
            problems += [*found, *value_problems(typed, unit_of(grammar))]
            rows.append(typed)
        if skips and problems:
            values = dict(zip(chunk.numbers, chunk.values, strict=True))
            problems = with_inputs(problems, values.get)
            rows = without_bad(rows, problems)
        yield rows, problems


def value_problems(rows: TypedRows, unit: Unit) -> list[Problem]:
    """Problems for values that break a constraint of their property.

    Null in a required property is not checked for rows that record absent properties: `build` has
    refused explicit nulls, and a record may lack the property.
    """
    constraints = value_constraints(rows.type)
    if rows.absent is not None:
        constraints = (each for each in constraints if not isinstance(each, Required))
    broken = values_breaking(constraints, rows.rows)
    return [
        Problem(
            "constraint",
            each.message,
            RecordPlace(rows.source, rows.numbers[each.row].as_py(), unit),
            rows.type.name,
            each.property,
            entity_id=rows.rows[ID][each.row].as_py(),
        )
        for each in broken
    ]
