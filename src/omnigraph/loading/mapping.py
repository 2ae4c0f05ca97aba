"""Renaming, computing and filtering the columns of an input before they are matched by name.

A `TableMapping` belongs to one file or frame: which columns or expressions give which properties,
which rows are loaded, and how CSV cells are separated (`mapping_arguments` builds it). A renamed
column is no longer available under its own name. A column that only an expression or a condition
reads still gives the property of its own name, if the type has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError
from omnigraph.loading.formats.table_columns import refused_column, target_of
from omnigraph.loading.map_expressions import (
    ColumnRef,
    Expression,
    MapEvaluation,
    WrongColumnType,
    columns_of,
    split_texts,
)
from omnigraph.loading.records.problems import RefusedValue, name_hint
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.arrow_columns import json_values, values_from_text
from omnigraph.model.records import dataclass
from omnigraph.model.references import END_TYPES
from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.catalog import EdgeType, TableType

_MEMBERS = {SRC: "from", DST: "to"}
_TEXT = ValueType(Scalar.STRING, nullable=True)


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """One `column=property`."""

    text: str
    """The left side, as the user wrote it."""
    expression: Expression
    target: str | None
    """A property, `id`, `from` or `to`; None leaves out the column."""

    @property
    def renamed(self) -> ColumnRef | None:
        """The column that is renamed or left out; None for an expression."""
        return self.expression if isinstance(self.expression, ColumnRef) else None


@dataclass(frozen=True, slots=True)
class Condition:
    """One `column=value`: only rows with this value are loaded; `column!=value`: only others."""

    column: ColumnRef
    value: str | None
    """The text of the cell; None for null."""
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class MappedRows:
    """Rows whose columns are named by properties."""

    batch: pa.RecordBatch
    numbers: Sequence[int]
    texts: frozenset[str]
    """Columns whose values are read as cells of a CSV file."""
    refused: Sequence[RefusedValue] = ()


@dataclass(frozen=True, slots=True)
class TableMapping:
    """How the columns of one source are read."""

    columns: tuple[MappedColumn, ...] = ()
    where: tuple[Condition, ...] = ()
    delimiter: str | None = None
    list_separator: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether columns are matched by their own names."""
        return not self.columns and not self.where and self.list_separator is None

    def checked(self, type: TableType, source: str, *, of_records: bool = False) -> TableMapping:
        """The mapping, with targets by their column names in the table.

        Raises `InputError` for a target that ``type`` does not have, or that is mapped twice, and
        for an endpoint of graph records, which is outside of the mapped `data`.
        """
        is_edge = isinstance(type, EdgeType)
        seen: dict[str, str] = {}
        columns: list[MappedColumn] = []
        for each in self.columns:
            if each.target is None:
                if each.renamed is None:
                    raise refused_column(
                        source, type, each.text, "an expression is left out", "name a property"
                    )
                columns.append(each)
                continue
            target = _own_name(each.target, type)
            is_end = _is_end(target, type)
            if (is_end and of_records) or not (is_end or target == ID or target in type.properties):
                ends = _MEMBERS.values() if is_edge and not of_records else ()
                known = [*type.properties, ID, *ends]
                raise refused_column(
                    source,
                    type,
                    each.target,
                    f"'{each.text}' is mapped to '{each.target}', which {type.name} does not have",
                    name_hint(each.target, known, f"properties of {type.name}"),
                )
            if target in seen:
                raise refused_column(
                    source,
                    type,
                    each.target,
                    f"'{each.target}' is mapped twice, from '{seen[target]}' and '{each.text}'",
                    "keep one of them, or combine them: coalesce(a, b) or concat(a, b)",
                )
            seen[target] = each.text
            columns.append(replace(each, target=target))
        return replace(self, columns=tuple(columns))

    # --- rows of tables ---

    def rows(
        self,
        batch: pa.RecordBatch,
        numbers: Sequence[int],
        type: TableType,
        source: str,
        *,
        are_texts: bool,
    ) -> MappedRows:
        """The rows that meet the conditions, with mapped columns; ``are_texts`` for a CSV file.

        Raises `InputError` naming a column that is absent, repeated or of a wrong type, also if
        there are no rows.
        """
        if self.is_plain:
            return MappedRows(batch, numbers, frozenset(batch.schema.names if are_texts else ()))
        columns = _Columns(batch.schema.names, type, source)
        if self.where:
            batch, numbers = self._filtered(batch, numbers, columns)
        fields, arrays, texts = self._unmapped(batch, columns, type, source, are_texts=are_texts)
        refused: list[RefusedValue] = []
        for each in self.columns:
            if each.target is None:
                continue
            if each.renamed is not None:
                index = columns.index(each.renamed)
                arrays.append(batch.column(index))
                fields.append(batch.schema.field(index).with_name(each.target))
                if are_texts:
                    texts.add(each.target)
                continue
            values = self._values(each, batch, numbers, columns, refused)
            arrays.append(values)
            fields.append(pa.field(each.target, values.type))
            if _holds_texts(values.type):
                texts.add(each.target)
        if self.list_separator is not None and are_texts:
            self._split_lists(fields, arrays, type)
        mapped = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        return MappedRows(mapped, numbers, frozenset(texts), refused)

    def _values(
        self,
        each: MappedColumn,
        batch: pa.RecordBatch,
        numbers: Sequence[int],
        columns: _Columns,
        refused: list[RefusedValue],
    ) -> pa.Array:
        """The values of an expression; adds cells that it cannot convert to ``refused``."""
        member = _member(each.target or "", columns.type)

        def refuse(row: int, message: str, hint: str) -> None:
            refused.append(RefusedValue(numbers[row], member, message, hint))

        def column(wanted: ColumnRef) -> pa.Array:
            return batch.column(columns.index(wanted))

        try:
            return MapEvaluation(column, batch.num_rows, refuse).values(each.expression)
        except WrongColumnType as error:
            source, hint = columns.source, "map another column"
            raise refused_column(source, columns.type, each.text, str(error), hint) from error

    def _filtered(
        self, batch: pa.RecordBatch, numbers: Sequence[int], columns: _Columns
    ) -> tuple[pa.RecordBatch, Sequence[int]]:
        mask = pa.repeat(pa.scalar(True), batch.num_rows)
        for each in self.where:
            column = batch.column(columns.index(each.column))
            try:
                texts = column.cast(pa.string())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise columns.refused(
                    each.column, f"has type {column.type}, which no text is compared with"
                ) from error
            if each.value is None:
                found = pc.or_(pc.is_null(texts), pc.fill_null(pc.equal(texts, ""), False))
            else:
                found = pc.fill_null(pc.equal(texts, each.value), False)
            mask = pc.and_(mask, pc.invert(found) if each.is_negated else found)
        kept = pc.indices_nonzero(mask).to_pylist()
        if len(kept) < batch.num_rows:
            batch, numbers = batch.filter(mask), [numbers[i] for i in kept]
        return batch, numbers

    def _unmapped(
        self,
        batch: pa.RecordBatch,
        columns: _Columns,
        type: TableType,
        source: str,
        *,
        are_texts: bool,
    ) -> tuple[list[pa.Field], list[pa.Array], set[str]]:
        """The columns that keep their names."""
        renamed = {columns.index(each.renamed) for each in self.columns if each.renamed}
        read = {columns.index(column) for column in self._read}
        targets = {each.target: each.text for each in self.columns if each.target}
        fields: list[pa.Field] = []
        arrays: list[pa.Array] = []
        for index, column in enumerate(batch.schema):
            if index in renamed or (index in read and not self._is_kept(column.name, type)):
                continue
            name = _own_name(column.name, type)
            if name in targets:
                raise refused_column(
                    source,
                    type,
                    column.name,
                    f"'{_member(name, type)}' is given twice, by the column of that name and by"
                    f" '{targets[name]}'",
                    f"leave out the column with '{column.name}=' or map it to another property",
                )
            fields.append(column)
            arrays.append(batch.column(index))
        return fields, arrays, {column.name for column in fields} if are_texts else set()

    @property
    def _read(self) -> Iterable[ColumnRef]:
        """Columns that expressions and conditions read."""
        for each in self.columns:
            if each.renamed is None:
                yield from columns_of(each.expression)
        for condition in self.where:
            yield condition.column

    def _split_lists(self, fields: list[pa.Field], arrays: list[pa.Array], type: TableType) -> None:
        assert self.list_separator is not None
        for at, column in enumerate(fields):
            prop = type.properties.get(column.name)
            if prop is None or not (prop.type.is_list or prop.type.is_vector):
                continue
            if pa.types.is_string(column.type):
                arrays[at] = split_texts(arrays[at], self.list_separator)
                fields[at] = pa.field(column.name, arrays[at].type)

    # --- objects ---

    def objects(
        self, objects: Sequence[Any], numbers: Sequence[int], type: TableType, source: str
    ) -> tuple[list[Any], Sequence[int], list[RefusedValue]]:
        """`rows` for JSON objects; one without the mapped members lacks the property.

        Values that are not objects are returned unchanged.
        """
        renames: dict[str, list[str]] = {}
        for each in self.columns:
            if each.renamed is not None:
                targets = renames.setdefault(each.renamed.name, [])
                targets += [] if each.target is None else [_member(each.target, type)]
        for column in (*self._read, *(each.renamed for each in self.columns if each.renamed)):
            if column.position is not None:
                message = f"'{column}' is a position, which an object does not have"
                raise refused_column(source, type, str(column), message, "name the member")
        if self.where:
            kept = [i for i, each in enumerate(objects) if self._counts(each)]
            objects, numbers = [objects[i] for i in kept], [numbers[i] for i in kept]
        refused: list[RefusedValue] = []
        computed: list[tuple[str, dict[int, Any]]] = []
        for each in self.columns:
            if each.renamed is None and each.target is not None:
                try:
                    values = _computed(each, objects, numbers, type, refused)
                except WrongColumnType as error:
                    hint = "map another member"
                    raise refused_column(source, type, each.text, str(error), hint) from error
                computed.append((_member(each.target, type), values))
        dropped = {column.name for column in self._read if not self._is_kept(column.name, type)}
        mapped: list[Any] = []
        for at, each in enumerate(objects):
            if not isinstance(each, dict):
                mapped.append(each)
                continue
            new = {
                target: each[name] for name in renames if name in each for target in renames[name]
            }
            new |= {target: values[at] for target, values in computed if at in values}
            for name in each:
                if name in renames or name in dropped:
                    continue
                member = _member(_own_name(name, type), type)
                if member in new:
                    message = f"'{member}' is given twice, by its own name and by the mapping"
                    hint = f"leave out the member with '{name}=' or map it to another property"
                    refused.append(RefusedValue(numbers[at], member, message, hint))
                else:
                    new[name] = each[name]
            mapped.append(new)
        return mapped, numbers, refused

    def _is_kept(self, name: str, type: TableType) -> bool:
        """Whether a column that expressions or conditions read also gives its own property."""
        own = _own_name(name, type)
        if any(each.target == own for each in self.columns):
            return False
        return _is_end(own, type) or own == ID or own in type.properties

    def _counts(self, each: Any) -> bool:
        if not isinstance(each, dict):
            return True
        return all(
            ((cell_text(each.get(condition.column.name)) or None) == condition.value)
            != condition.is_negated
            for condition in self.where
        )


PLAIN = TableMapping()


def _computed(
    each: MappedColumn,
    objects: Sequence[Any],
    numbers: Sequence[int],
    type: TableType,
    refused: list[RefusedValue],
) -> dict[int, Any]:
    """By position: the value of an expression, for objects with a member that it reads."""
    assert each.target is not None
    member = _member(each.target, type)
    names = [column.name for column in columns_of(each.expression)]
    chosen = [
        at
        for at, one in enumerate(objects)
        if isinstance(one, dict) and (not names or any(name in one for name in names))
    ]

    def refuse(row: int, message: str, hint: str) -> None:
        refused.append(RefusedValue(numbers[chosen[row]], member, message, hint))

    def column(wanted: ColumnRef) -> pa.Array:
        cells: list[Any] = []
        for row, at in enumerate(chosen):
            value = objects[at].get(wanted.name)
            if isinstance(value, list | dict):
                refuse(row, f"member '{wanted}' is no single value", "map another member")
                value = None
            cells.append(value)
        return _member_column(cells)

    values = MapEvaluation(column, len(chosen), refuse).values(each.expression)
    prop = type.properties.get(each.target)
    wanted = _TEXT if prop is None else prop.type
    is_text = _holds_texts(values.type)
    listed = values_from_text(values, wanted) if is_text else json_values(values, wanted)
    return dict(zip(chosen, listed, strict=True))


def _member_column(cells: Sequence[Any]) -> pa.Array:
    """A column of integers if all cells are integers, else of texts."""
    given = [cell for cell in cells if cell is not None]
    if given and all(type(cell) is int and -(2**63) <= cell < 2**63 for cell in given):
        return pa.array(cells, pa.int64())
    return pa.array([cell_text(cell) for cell in cells], pa.string())


def cell_text(value: Any) -> str | None:
    """A JSON value as the text of a cell."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _own_name(column: str, type: TableType) -> str:
    """The column of the table that an unmapped column belongs to."""
    return target_of(column, type) or column


def _is_end(name: str, type: TableType) -> bool:
    """Whether a column of the table holds an edge end or the node type of one."""
    if not isinstance(type, EdgeType):
        return False
    return name in _MEMBERS or name in (END_TYPES[end] for end in type.end_types)


def _member(name: str, type: TableType) -> str:
    """The name that records and messages use for a column of the table."""
    return _MEMBERS.get(name, name) if isinstance(type, EdgeType) else name


def _holds_texts(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type) or (pa.types.is_list(type) and pa.types.is_string(type.value_type))
    )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Finds columns by name or position."""

    names: Sequence[str]
    type: TableType
    source: str

    def index(self, column: ColumnRef) -> int:
        if column.position is not None:
            if column.position > len(self.names):
                raise self.refused(column, f"is not there: it has {len(self.names)} columns")
            return column.position - 1
        found = [index for index, name in enumerate(self.names) if name == column.name]
        if not found:
            hint = name_hint(column.name, self.names, "columns")
            raise self.refused(column, "is not there", hint)
        if len(found) > 1:
            places = " and ".join(f"#{index + 1}" for index in found)
            raise self.refused(
                column, "is there more than once", f"name it by its position: {places}"
            )
        return found[0]

    def refused(
        self, column: ColumnRef, reason: str, hint: str = "map another column"
    ) -> InputError:
        message = f"the mapped column '{column}' {reason}"
        return refused_column(self.source, self.type, str(column), message, hint)
