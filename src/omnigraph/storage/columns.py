"""Changing the columns of a table, in transactions that can be planned, verified and rolled back.

Lance and its data files identify a column by its field id. Renaming or dropping a column or making
it nullable changes the list of fields and no file. An added column without values is a field that
no file has. Only computed values are written, into additional data files. Rows keep their ids and
addresses, and indexes of remaining columns are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.schema import LanceSchema
from lance.udf import BatchUDF, batch_udf

from omnigraph.model.arrow import ID
from omnigraph.model.records import dataclass
from omnigraph.storage.failures import lance_errors

Fill: TypeAlias = Callable[[pa.RecordBatch], pa.Array]
"""Computes a column from a batch that has the column ``reads``."""


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """One column of the target, and its source."""

    field: pa.Field
    stored: str | None
    """The name of the present column; None for a new one."""
    fill: Fill | None = None
    """Computes its values; None keeps the present values, or null for a new column."""

    @property
    def is_new(self) -> bool:
        """Whether it needs a new field."""
        return self.stored is None or self.fill is not None


@dataclass(frozen=True, slots=True)
class ColumnsChange:
    """The target columns of a table, in order; other columns are dropped."""

    columns: tuple[TargetColumn, ...]

    def transactions(self, handle: LanceDataset) -> int:
        """The number of transactions needed; writes nothing."""
        adds = any(column.is_new for column in self.columns)
        if not handle.get_fragments() or not adds or self._only_adds(handle.schema):
            return 1
        return 2

    def stage(self, handle: LanceDataset, uuids: Iterator[str]) -> list[Transaction]:
        """Write computed values, and return the transactions in order."""
        with lance_errors(handle, "stage"):
            if not handle.get_fragments():
                return [self._emptied(handle, next(uuids))]
            return self._staged(handle, uuids)

    def _emptied(self, handle: LanceDataset, uuid: str) -> Transaction:
        """The transaction for a table without rows: replaces it by one with the new columns."""
        schema = pa.schema([column.field for column in self.columns])
        return Transaction(handle.version, LanceOperation.Overwrite(schema, []), uuid=uuid)

    def _staged(self, handle: LanceDataset, uuids: Iterator[str]) -> list[Transaction]:
        stored = {field.name(): field for field in handle.lance_schema.fields()}
        fragments = [fragment.metadata for fragment in handle.get_fragments()]
        computed = [column for column in self.columns if column.fill is not None]
        known: dict[str, Any] = {}
        """Fields of the target by name."""
        if computed:
            fragments, fields = _computed(handle, computed)
            known = dict(zip((c.field.name for c in computed), fields, strict=True))
        known |= {field.name: stored[name] for name, field in self._kept.items()}
        free = 1 + max(_ids_in_use(handle, fragments))
        target = pa.schema([column.field for column in self.columns])
        added = [column for column in self.columns if column.is_new]
        if added and self._only_adds(handle.schema):
            whole = _numbered(target, [known.get(c.field.name) for c in self.columns], free)
            operation = LanceOperation.Merge(fragments, whole)
            return [Transaction(handle.version, operation, uuid=next(uuids))]
        staged = []
        version = handle.version
        if added:
            # Lance needs two steps: the first adds columns and must not change any present one, the
            # second changes these. Names that are still taken are assigned in the second step.
            names = {c.field.name: _vacant(c.field.name, stored) for c in added}
            new = [c.field.with_name(names[c.field.name]) for c in added]
            merged = _numbered(
                pa.schema([*handle.schema, *new]),
                [*stored.values(), *(known.get(c.field.name) for c in added)],
                free,
            )
            known |= dict(
                zip((c.field.name for c in added), merged.fields()[len(stored) :], strict=True)
            )
            operation = LanceOperation.Merge(fragments, merged)
            staged.append(Transaction(version, operation, uuid=next(uuids)))
            version += 1
        final = _numbered(target, [known[c.field.name] for c in self.columns], free)
        staged.append(Transaction(version, LanceOperation.Project(final), uuid=next(uuids)))
        return staged

    def _only_adds(self, stored: pa.Schema) -> bool:
        """Whether every present column stays unchanged."""
        return self._kept.keys() == set(stored.names) and all(
            (field.name, field.nullable) == (name, stored.field(name).nullable)
            for name, field in self._kept.items()
        )

    @property
    def _kept(self) -> dict[str, pa.Field]:
        """The columns whose values are kept, by their present names."""
        return {c.stored: c.field for c in self.columns if c.stored is not None and not c.is_new}


def _vacant(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name = f"{name}_new"
    return name


def _computed(handle: LanceDataset, columns: Sequence[TargetColumn]) -> tuple[list[Any], list[Any]]:
    """All fragments with files of computed columns, and the fields of these columns."""
    names = [f"omnigraph_computed_{at}" for at in range(len(columns))]
    reads = sorted({column.stored or ID for column in columns})
    udf = _filler(names, columns)
    fragments = []
    schema: LanceSchema | None = None
    for fragment in handle.get_fragments():
        metadata, schema = fragment.merge_columns(udf, reads)
        fragments.append(metadata)
    assert schema is not None
    by_name = {field.name(): field for field in schema.fields()}
    return fragments, [by_name[name] for name in names]


def _filler(names: Sequence[str], columns: Sequence[TargetColumn]) -> BatchUDF:
    fills = [column.fill for column in columns if column.fill is not None]

    def fill(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([each(batch) for each in fills], names=list(names))

    fields = [pa.field(name, c.field.type) for name, c in zip(names, columns, strict=True)]
    wrapped: BatchUDF = batch_udf(output_schema=pa.schema(fields))(fill)
    return wrapped


def _ids_in_use(handle: LanceDataset, fragments: Sequence[Any]) -> Iterator[int]:
    """The ids of all fields, including those of dropped columns still in data files."""
    for field in handle.lance_schema.fields():
        yield from (each.id() for each in _with_children(field))
    for fragment in fragments:
        for file in fragment.files:
            yield from file.fields


def _with_children(field: Any) -> Iterator[Any]:
    yield field
    for child in field.children():
        yield from _with_children(child)


# --- field ids ------------------------------------------------------------------------------------

_FIELD_ID, _PARENT_ID = 3, 4
"""Field numbers in the protobuf message that describes a field."""
_NO_PARENT = -1


def _numbered(schema: pa.Schema, like: Sequence[Any], free: int) -> LanceSchema:
    """A Lance schema with given field ids.

    Lance creates schemas from Arrow only with ids counted from zero, so the id in each field's
    message is replaced: by that of the field it is ``like``, or by a ``free`` one.
    """
    numbered = LanceSchema.from_pyarrow(schema)
    parts: tuple[Any, ...] = numbered.__reduce__()[1]  # type: ignore[assignment]
    metadata, *described = parts
    rest = iter(described)
    unused = iter(range(free, free + len(described)))
    out: list[bytes] = []

    def number(field: Any, known: Any | None, parent: int) -> None:
        own = next(unused) if known is None else known.id()
        out.append(_with_ids(next(rest), own, parent))
        children = field.children()
        alike = [None] * len(children) if known is None else known.children()
        for child, other in zip(children, alike, strict=True):
            number(child, other, own)

    for field, known in zip(numbered.fields(), like, strict=True):
        number(field, known, _NO_PARENT)
    return LanceSchema._from_protos(metadata, *out)


def _with_ids(message: bytes, field_id: int, parent_id: int) -> bytes:
    """A field's message with other ids; everything else is kept byte for byte."""
    kept = bytearray()
    at = 0
    while at < len(message):
        start = at
        key, at = _read_varint(message, at)
        match key & 7:
            case 0:
                _, at = _read_varint(message, at)
            case 1:
                at += 8
            case 2:
                length, at = _read_varint(message, at)
                at += length
            case 5:
                at += 4
        if key >> 3 not in (_FIELD_ID, _PARENT_ID):
            kept += message[start:at]
    for number, value in ((_FIELD_ID, field_id), (_PARENT_ID, parent_id)):
        kept += _varint(number << 3) + _varint(value)
    return bytes(kept)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _varint(value: int) -> bytes:
    value &= 2**64 - 1  # negative numbers are written as their complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
