"""Which properties each record of a merge load lacks: such a property keeps its stored value.

From the reader to the upsert, absence is one extra column of the rows: `ABSENT`, a bitmap per row
over `lackable` properties, null if the record lacks none. The rows themselves hold the values that
an insert stores: the default, or null. Null also stands for a required property without a default,
which only the record of an existing entity may lack. An explicit null is a value like any other.

In a table, a property is absent if the table has no such column, so empty cells are not absent. In
JSON and Avro, it is absent if the record has no such member.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import InternalError, ValueConversionError
from omnigraph.loading.records.problems import Problem, RecordPlace
from omnigraph.model.values import property_value
from omnigraph.schema.catalog import NodeType, Property, TableType

ABSENT = "__absent"
ABSENT_FIELD = pa.field(ABSENT, pa.binary())

Mask = npt.NDArray[np.bool_]


def lackable(type: TableType) -> list[str]:
    """The properties that a record may lack, in the order of the bitmap: all but the key."""
    key = type.key if isinstance(type, NodeType) else ()
    return [name for name in type.properties if name not in key]


def is_needed(prop: Property) -> bool:
    """Whether a new entity must be given this property."""
    return not prop.type.nullable and prop.default is None


def absent_in_table(type: TableType, present: Collection[str], rows: int) -> pa.BinaryArray:
    """The column `ABSENT` for ``rows`` rows of a table with columns for ``present``."""
    return pa.repeat(pa.scalar(_bitmap(lackable(type), present), pa.binary()), rows)


def absent_in_records(
    type: TableType, data: Sequence[dict[str, Any]], present: Collection[str] = ()
) -> pa.BinaryArray:
    """The column `ABSENT` of records; ``present`` are properties that all of them have."""
    names = lackable(type)
    bitmaps: dict[tuple[str, ...], bytes | None] = {}  # few distinct sets of members occur
    column: list[bytes | None] = []
    for record in data:
        members = tuple(record)
        if members not in bitmaps:
            bitmaps[members] = _bitmap(names, {*members, *present})
        column.append(bitmaps[members])
    return pa.array(column, pa.binary())


def _bitmap(names: Sequence[str], present: Collection[str]) -> bytes | None:
    missing = [name not in present for name in names]
    return np.packbits(missing, bitorder="little").tobytes() if any(missing) else None


def absent_of_whole(shown: TableType, whole: TableType, column: pa.BinaryArray) -> pa.BinaryArray:
    """The column `ABSENT` over all properties, from one over those that the writer can name."""
    hidden = set(whole.properties) - set(shown.properties)
    names, bitmaps = lackable(shown), {}
    for bits in column.unique().to_pylist():
        lacking = np.unpackbits(
            np.frombuffer(bits or b"", np.uint8), count=len(names), bitorder="little"
        )
        lacked = {name for name, bit in zip(names, lacking, strict=True) if bit} | hidden
        present = [name for name in lackable(whole) if name not in lacked]
        bitmaps[bits] = _bitmap(lackable(whole), present)
    return pa.array([bitmaps[bits] for bits in column.to_pylist()], pa.binary())


def value_needed(type: TableType) -> str:
    """The hint for a required property without a value."""
    return f"every {type.name} has one: give it a value"


def missing_value(type: TableType, name: str, place: RecordPlace | None) -> Problem:
    """The problem of a record for a new entity that lacks a required property."""
    try:
        property_value(None, type.properties[name].type, name, strict=True)
    except ValueConversionError as error:
        hint = error.hint or value_needed(type)
        return Problem("bad_value", error.message, place, type.name, name, hint)
    raise InternalError(f"{type.name}.{name} is not required")


class Absent:
    """The decoded column `ABSENT`."""

    def __init__(self, type: TableType, column: pa.Array | pa.ChunkedArray) -> None:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        encoded = column.dictionary_encode()
        self._codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        names = lackable(type)
        self._sets = [
            np.unpackbits(np.frombuffer(bits, np.uint8), count=len(names), bitorder="little")
            for bits in encoded.dictionary.to_pylist()
        ]
        self._at = {name: at for at, name in enumerate(names)}
        self.names = [name for name in names if any(bits[self._at[name]] for bits in self._sets)]
        """The properties that at least one row lacks."""
        self.rows: Mask = self._codes >= 0
        """The rows that lack at least one property."""

    def lacking(self, name: str) -> Mask:
        """The rows that lack a property."""
        at = self._at.get(name)
        if at is None or name not in self.names:
            return np.zeros(len(self._codes), np.bool_)
        # The last item is that of rows without a bitmap, whose code is -1.
        by_code = np.array([*(bits[at] for bits in self._sets), 0], np.bool_)
        mask: Mask = by_code[self._codes]
        return mask


def completed(own: pa.ChunkedArray, stored: pa.ChunkedArray, is_stored: Mask) -> pa.ChunkedArray:
    """``own`` with the values of ``stored``, in order, in the rows that ``is_stored`` marks."""
    if is_stored.all():
        return stored
    position = np.arange(len(own))
    position[is_stored] = len(own) + np.arange(len(stored))
    return pa.chunked_array([*own.chunks, *stored.chunks], own.type).take(pa.array(position))
