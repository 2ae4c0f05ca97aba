"""How values are stored in tables: the Arrow type and field of every property type, and columns.

Blob is the only type without an Arrow type: its column is Lance's blob extension, which only the
storage package may import. An Arrow extension is a name in the field's metadata over a plain
storage type, so the schema built here is complete without Lance: a blob field is the struct
`BLOB_STORAGE` marked with Lance's extension name, and a batch of such columns can be passed to
Lance as it is. Lance returns its own extension type with the same storage.

JSON is converted to columns in two ways with the same result. A column in which every value has
exactly the expected Python type is converted by Arrow in one call; Arrow's own coercions (`True` as
1, `3.7` as 3, `inf` for a number too large) cannot happen, because types are compared before and
bounds after. Any other column is converted value by value with `model.values`, which names the
record in errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from types import NoneType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ValueConversionError
from omnigraph.model import types
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import (
    DAYS_MAX,
    DAYS_MIN,
    MS_MAX,
    MS_MIN,
    BlobUri,
    Value,
    entity_id,
    expand_exponent,
    property_value,
    refuse_non_finite,
)

ID = types.ID
ID = types.ID
SRC = "src"
DST = "dst"

PRIMARY_KEY_METADATA = {b"lance-schema:unenforced-primary-key": b"true"}
PROPERTY_ID_KEY = b"omnigraph.stable_property_id"
BLOB_EXTENSION_METADATA = {b"ARROW:extension:name": b"lance.blob.v2"}

BLOB_STORAGE = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())])
"""A blob is bytes or the URI of an external object; exactly one is set in a non-null value."""

TIMESTAMP = pa.timestamp("ms", tz="UTC")

_SCALARS: dict[Scalar, pa.DataType] = {
    Scalar.STRING: pa.string(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: TIMESTAMP,
    Scalar.BLOB: BLOB_STORAGE,
}

PropertyColumn = tuple[str, ValueType, int]
"""The name, type and stable property id of a property's column."""


def arrow_type(type: ValueType) -> pa.DataType:
    """The Arrow type of a column of ``type``; for a Blob, its storage type."""
    if type.is_vector:
        return pa.list_(pa.field("item", pa.float32()), type.vector_dim)
    scalar = _SCALARS[type.scalar]
    return pa.list_(pa.field("item", scalar)) if type.is_list else scalar


def property_field(name: str, type: ValueType, property_id: int) -> pa.Field:
    """The Arrow field of one property, with its property id in the metadata."""
    metadata = {PROPERTY_ID_KEY: str(property_id).encode()}
    if type.is_blob:
        metadata |= BLOB_EXTENSION_METADATA
    return pa.field(name, arrow_type(type), nullable=type.nullable, metadata=metadata)


def property_id(field: pa.Field) -> int | None:
    """The stable property id of a field; None for `id`, `src` and `dst`."""
    text = (field.metadata or {}).get(PROPERTY_ID_KEY)
    return None if text is None else int(text)


def node_schema(properties: Iterable[PropertyColumn]) -> pa.Schema:
    """The table of a node type: `id`, then its properties in byte order of name."""
    return _table_schema([], properties)


def edge_schema(properties: Iterable[PropertyColumn]) -> pa.Schema:
    """The table of an edge type: `id`, `src`, `dst`, then its properties in byte order of name."""
    endpoints = [pa.field(name, pa.string(), nullable=False) for name in (SRC, DST)]
    return _table_schema(endpoints, properties)


def _table_schema(endpoints: list[pa.Field], properties: Iterable[PropertyColumn]) -> pa.Schema:
    id_field = pa.field(ID, pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA)
    # Python orders strings by code point, and UTF-8 keeps that order in its bytes.
    columns = sorted(properties, key=lambda column: column[0])
    return pa.schema([id_field, *endpoints, *(property_field(*column) for column in columns)])


# --- JSON to columns ------------------------------------------------------------------------------


def column_from_json(
    values: Sequence[object], type: ValueType, *, name: str, strict: bool
) -> pa.Array:
    """The column of property ``name`` with decoded JSON ``values``; absent values are None.

    The first value that does not fit raises `ValueConversionError`, whose details give the
    ``property``, the ``value`` and ``record``, its position in ``values``. ``strict`` as in
    `model.values.property_value`. One call takes less than 2 GiB of text, the most an Arrow array
    of this type can contain.
    """
    column = _clean_column(values, type, null_items=not strict)
    if column is None:
        column = column_from_values(_convert_each(values, type, name, strict=strict), type)
    return column


def column_from_values(values: Sequence[Value | None], type: ValueType) -> pa.Array:
    """The column of values that are already in the form of `model.values`."""
    if not type.is_blob:
        return pa.array(values, arrow_type(type))
    data = [value if isinstance(value, bytes) else None for value in values]
    uris = [value.uri if isinstance(value, BlobUri) else None for value in values]
    return pa.StructArray.from_arrays(
        [pa.array(data, pa.large_binary()), pa.array(uris, pa.string())],
        fields=list(BLOB_STORAGE),
        mask=_null_mask(values),
    )


def _convert_each(
    values: Sequence[object], type: ValueType, name: str, *, strict: bool
) -> list[Value | None]:
    converted = []
    for record, value in enumerate(values):
        try:
            converted.append(property_value(value, type, name, strict=strict))
        except ValueConversionError as error:
            error.details["record"] = record
            raise
    return converted


def _clean_column(
    values: Sequence[object], type: ValueType, *, null_items: bool
) -> pa.Array | None:
    """The column converted in one call, or None if values have to be converted one by one."""
    if len(values) and values[0] is None and values.count(None) == len(values):
        return pa.nulls(len(values), arrow_type(type)) if type.nullable else None
    if type.is_blob:
        return None
    try:
        if type.is_vector:
            column = _vectors(values, type)
        elif type.is_list:
            column = _lists(values, type, null_items=null_items)
        else:
            column = _scalars(values, type.scalar)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return None
    if column is None or (column.null_count and not type.nullable):
        return None
    return column


_PYTHON_TYPES: dict[Scalar, type] = {
    Scalar.STRING: str,
    Scalar.BOOL: bool,
    Scalar.I32: int,
    Scalar.I64: int,
    Scalar.U32: int,
    Scalar.U64: int,
}


def _scalars(values: Sequence[object], scalar: Scalar) -> pa.Array | None:
    kinds = _types_of(values) - {NoneType}
    if scalar in _PYTHON_TYPES:
        if kinds <= {_PYTHON_TYPES[scalar]}:
            return pa.array(values, arrow_type(ValueType(scalar)))
    elif scalar.is_float:
        if kinds <= {int, float}:
            return _floats(values, scalar, has_integers=int in kinds)
    elif scalar is Scalar.DATE:
        if kinds <= {str}:
            return dates_from_texts(pa.array(values, pa.string()))
        if kinds <= {int}:
            return _within(pa.array(values, pa.int32()).cast(pa.date32()), DAYS_MIN, DAYS_MAX)
    elif scalar is Scalar.DATETIME:
        if kinds <= {str}:
            return datetimes_from_texts(pa.array(values, pa.string()))
        if kinds <= {int}:
            return _within(pa.array(values, pa.int64()).cast(TIMESTAMP), MS_MIN, MS_MAX)
    return None


def _floats(values: Sequence[object], scalar: Scalar, *, has_integers: bool) -> pa.Array | None:
    if has_integers:
        # Arrow refuses integers beyond 2^53, which are rounded here like any other number.
        values = [float(value) if isinstance(value, int) else value for value in values]
    column = pa.array(values, arrow_type(ValueType(scalar)))
    return column if pc.all(pc.is_finite(column), min_count=0).as_py() else None


# The common forms. Rarer ones (lower case, leap seconds, mixed zones) are parsed one by one.
_ZONED = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"
_UNZONED = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\d(\.\d+)?)?$"
_BEYOND_MS = r"(\.\d{3})\d+"


def dates_from_texts(texts: pa.StringArray) -> pa.Array | None:
    """The dates of texts; None or `pa.ArrowInvalid` if any needs to be parsed on its own."""
    return _within(texts.cast(pa.date32()), DAYS_MIN, DAYS_MAX)


def datetimes_from_texts(texts: pa.StringArray) -> pa.Array | None:
    """The instants of texts; None or `pa.ArrowInvalid` if any needs to be parsed on its own."""
    if _all_match(texts, _ZONED):
        parsed = TIMESTAMP
    elif _all_match(texts, _UNZONED):
        parsed = pa.timestamp("ms")
    else:
        return None
    if pc.any(pc.match_substring_regex(texts, _BEYOND_MS), min_count=0).as_py():
        texts = pc.replace_substring_regex(texts, _BEYOND_MS, r"\1")
    return _within(texts.cast(parsed).cast(TIMESTAMP), MS_MIN, MS_MAX)


def _all_match(texts: pa.StringArray, pattern: str) -> bool:
    if len(texts) > 1 and not _all_match(texts.slice(0, 1), pattern):
        return False  # the texts of a column mostly have one form
    matches: bool = pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py()
    return matches


def _within(column: pa.Array, low: int, high: int) -> pa.Array | None:
    """``column`` if its epoch numbers are within the years 1 to 9999, otherwise None."""
    numbers = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    bounds = pc.min_max(numbers)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    return column if least is None or (low <= least and greatest <= high) else None


def _lists(values: Sequence[object], type: ValueType, *, null_items: bool) -> pa.Array | None:
    if not _types_of(values) <= {list, NoneType}:
        return None
    lists = [value if isinstance(value, list) else [] for value in values]
    items = _scalars(list(chain.from_iterable(lists)), type.scalar)
    if items is None or (items.null_count and not null_items):
        return None
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(each) for each in lists], out=offsets[1:])
    return pa.ListArray.from_arrays(
        pa.array(offsets), items, type=arrow_type(type), mask=_null_mask(values)
    )


def _vectors(values: Sequence[object], type: ValueType) -> pa.Array | None:
    assert type.vector_dim is not None
    if not _types_of(values) <= {list, NoneType}:
        return None
    width = type.vector_dim
    lists = [value for value in values if isinstance(value, list)]
    if any(len(each) != width for each in lists):
        return None
    numbers = list(chain.from_iterable(lists))
    if not _types_of(numbers) <= {int, float}:
        return None
    with np.errstate(over="ignore"):
        components = np.array(numbers, np.float64).astype(np.float32)
    if not np.isfinite(components).all():
        return None
    return vectors(components, _null_mask(values), type)


def vectors(
    components: npt.NDArray[np.float32], nulls: pa.BooleanArray, type: ValueType
) -> pa.Array:
    """A column of vectors from the components of those that are not null, one after another."""
    if nulls.true_count:
        # A null row still has memory for its components.
        padded = np.zeros((len(nulls), type.vector_dim or 0), np.float32)
        padded[~nulls.to_numpy(zero_copy_only=False)] = components.reshape(-1, padded.shape[1])
        components = padded.reshape(-1)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(components), type=arrow_type(type), mask=nulls
    )


def _types_of(values: Sequence[object]) -> set[type]:
    """The exact Python types of the values: `bool` is not `int` here."""
    return set(map(type, values))


def _null_mask(values: Sequence[object]) -> pa.BooleanArray:
    return pa.array([value is None for value in values], pa.bool_())


# --- spellings ------------------------------------------------------------------------------------


def spell_column(column: pa.Array, type: ValueType) -> pa.StringArray:
    """`model.values.spell` for every value of ``column``; nulls stay null."""
    if type.scalar is Scalar.DATE:
        column = column.cast(pa.int32())
    elif type.scalar is Scalar.DATETIME:
        column = column.cast(pa.int64())
    elif type.scalar.is_float:
        return _spell_floats(column)
    return column.cast(pa.string())


def _spell_floats(column: pa.Array) -> pa.StringArray:
    finite = pc.is_finite(column)
    if not pc.all(finite, min_count=0).as_py():
        raise refuse_non_finite(column.filter(pc.invert(finite))[0].as_py())
    # Arrow writes the shortest digits too, but uses exponents for large and small numbers.
    texts = column.cast(pa.string())
    odd = pc.or_(pc.match_substring(texts, "e"), pc.equal(texts, "-0"))
    expanded = [expand_exponent(text.as_py()) for text in texts.filter(odd)]
    return pc.replace_with_mask(texts, odd, pa.array(expanded, pa.string())) if expanded else texts


def entity_id_column(members: Sequence[pa.StringArray]) -> pa.StringArray:
    """`model.values.entity_id` row by row; ``members`` in ascending order of property id."""
    if len(members) == 1:
        return members[0]
    rows = zip(*(member.to_pylist() for member in members), strict=True)
    return pa.array([entity_id(row) for row in rows], pa.string())


# --- equal rows -----------------------------------------------------------------------------------
#
# Leaving out rows of a write that equal those they would replace keeps the versions of untouched
# rows, the change feed and the receipt correct: a repeated load changes nothing.


def unchanged_rows(rows: pa.Table, committed: pa.Table) -> pa.Array:
    """For each of ``rows`` whether ``committed`` has an equal row with the same id.

    Both have the same columns, in any order, and unique ids.
    """
    at = pc.index_in(rows[ID], value_set=committed[ID]).combine_chunks()
    same = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False))
    old_at = at.drop_null().to_numpy()
    for name in rows.schema.names:
        if name == ID or not len(same):
            continue
        old = committed[name].take(pa.array(old_at))
        equal = same_values(rows[name].take(pa.array(same)), old)
        same, old_at = same[equal], old_at[equal]
    out = np.zeros(rows.num_rows, bool)
    out[same] = True
    return pa.array(out)


def same_values(left: pa.ChunkedArray, right: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which values of two columns of one type are the same; null is the same as null."""
    type = left.type
    equal: npt.NDArray[np.bool_]
    if pa.types.is_fixed_size_list(type):
        equal = _same_vectors(left.combine_chunks(), right.combine_chunks())
    elif pa.types.is_list(type):
        equal = _same_lists(left, right)
    else:
        compared = pc.equal(_as_bits(left), _as_bits(right)).fill_null(False)
        equal = compared.to_numpy(zero_copy_only=False)
    left_null = left.is_null().to_numpy(zero_copy_only=False)
    right_null = right.is_null().to_numpy(zero_copy_only=False)
    same: npt.NDArray[np.bool_] = np.where(left_null | right_null, left_null & right_null, equal)
    return same


def _same_vectors(
    left: pa.FixedSizeListArray, right: pa.FixedSizeListArray
) -> npt.NDArray[np.bool_]:
    """Compares bits; values under a null are compared too, and that result is overwritten."""
    width = left.type.list_size
    sides = [
        side.values.slice(side.offset * width, len(side) * width).view(pa.int32())
        for side in (left, right)
    ]
    bits = [np.asarray(side.fill_null(0)).reshape(-1, width) for side in sides]
    equal: npt.NDArray[np.bool_] = (bits[0] == bits[1]).all(axis=1)
    return equal


def _same_lists(left: pa.ChunkedArray, right: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    lengths = [pc.fill_null(pc.list_value_length(side), 0) for side in (left, right)]
    equal: npt.NDArray[np.bool_] = pc.equal(*lengths).to_numpy(zero_copy_only=False).copy()
    # Lists of equal length have their items at the same positions.
    rows = np.flatnonzero(equal)
    chosen = [side.take(pa.array(rows)).combine_chunks() for side in (left, right)]
    items = [pa.chunked_array([side.flatten()]) for side in chosen]
    of_row = pc.list_parent_indices(chosen[0]).to_numpy(zero_copy_only=False)
    equal[rows[of_row[~same_values(*items)]]] = False
    return equal


def _as_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """``column`` with floats as their bits: 0.0 and -0.0 are equal, but not the same."""
    if not pa.types.is_floating(column.type):
        return column
    bits = pa.int32() if column.type.bit_width == 32 else pa.int64()
    return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
