"""Frames of any library as Arrow tables of plain columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError
from omnigraph.schema.catalog import TableType

_REFUSED = (pa.ArrowException, ValueError, TypeError)


def arrow_table(frame: Any, name: str) -> pa.Table:
    """A frame for the type ``name`` as an Arrow table.

    Raises `InputError` naming the type, and the column if Arrow cannot hold it.
    """
    try:
        table = _converted(frame)
    except _REFUSED as error:
        raise _refusal(frame, name, error) from error
    if table is None:
        raise InputError(
            f"the frame for '{name}' is a {type(frame).__name__}",
            hint="give a Spark, pandas or Polars frame, an Arrow table, or anything else that"
            " has `__arrow_c_stream__`",
        )
    return _plain(table)


def is_pandas(frame: Any) -> bool:
    """Whether it is a frame of pandas."""
    return _library(frame) == "pandas" and hasattr(frame, "columns")


def _library(frame: Any) -> str:
    return type(frame).__module__.partition(".")[0]


def _converted(frame: Any) -> pa.Table | None:
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if is_pandas(frame):
        return pa.Table.from_pandas(frame, preserve_index=False)
    if _library(frame) == "polars" and hasattr(frame, "collect"):
        frame = frame.collect()  # a lazy one
    if hasattr(frame, "columns") and hasattr(frame, "to_arrow"):  # Polars
        return frame.to_arrow()
    if hasattr(frame, "__arrow_c_stream__") and _library(frame) != "pandas":
        return pa.table(frame)
    if _library(frame) == "pyarrow" and hasattr(frame, "to_table"):  # a dataset
        return frame.to_table()
    return None


def _refusal(frame: Any, name: str, error: Exception) -> InputError:
    subject = f"the frame for '{name}'"
    if is_pandas(frame):
        for column, is_repeated in zip(frame.columns, frame.columns.duplicated(), strict=True):
            if is_repeated:
                return InputError(
                    f"{subject}: column '{column}' is there twice", hint="keep one of them"
                )
        for column in frame.columns:
            reason = _reason_against(frame[column])
            if reason is not None:
                return InputError(
                    f"{subject}: column '{column}': {reason}",
                    hint=f'give it one type, such as frame["{column}"].astype("string")',
                    details={"type": name, "property": str(column)},
                )
    return InputError(f"{subject}: {_first_line(error)}", hint="give every column one type")


def _reason_against(column: Any) -> str | None:
    """Why Arrow cannot hold a column of pandas, None if it can."""
    try:
        pa.Table.from_pandas(column.to_frame(), preserve_index=False)
    except _REFUSED as error:
        return _first_line(error)
    return None


def _first_line(error: Exception) -> str:
    text = str(error.args[0]) if error.args else ""
    return (text.splitlines() or [type(error).__name__])[0]


# --- plain columns --------------------------------------------------------------------------------


def _plain(table: pa.Table) -> pa.Table:
    """The same rows, without views and run-end encodings."""
    for index, column in enumerate(table.schema):
        plain = _plain_type(column.type)
        if plain != column.type:
            values = table.column(index)
            if pa.types.is_run_end_encoded(column.type):
                values = pc.run_end_decode(values)
            elif pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type):
                values = pa.chunked_array([_listed(chunk) for chunk in values.chunks], plain)
            table = table.set_column(index, column.name, values.cast(plain))
    return table


def _listed(views: pa.Array) -> pa.Array:
    """List views as lists; Arrow's own cast wrongly takes sizes for offsets."""
    lengths = pc.fill_null(pc.list_value_length(views), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(views) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    plain = _plain_type(views.type)
    items = views.flatten().cast(plain.value_type)
    mask = views.is_null()
    if pa.types.is_large_list(plain):
        return pa.LargeListArray.from_arrays(pa.array(offsets), items, mask=mask)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, mask=mask)


def _plain_type(given: pa.DataType) -> pa.DataType:
    kinds = pa.types
    if kinds.is_run_end_encoded(given):
        return _plain_type(given.value_type)
    if kinds.is_string_view(given):
        return pa.string()
    if kinds.is_binary_view(given):
        return pa.binary()
    if kinds.is_list_view(given) or kinds.is_list(given):
        return _list_of(given, pa.list_)
    if kinds.is_large_list_view(given) or kinds.is_large_list(given):
        return _list_of(given, pa.large_list)
    return given


def _list_of(given: pa.DataType, make: Any) -> pa.DataType:
    item = given.value_field
    return make(item.with_type(_plain_type(item.type)))


# --- hints ----------------------------------------------------------------------------------------


def pandas_hint(frame: Any, table: pa.Table, into: TableType, column: str) -> str | None:
    """A hint for a column of a pandas frame that does not fit its property; None if unknown."""
    if column not in table.column_names:
        if column in frame.index.names:
            return "it is the index of the frame: load frame.reset_index()"
        if type(frame.index).__name__ != "RangeIndex":
            return f'if it is the index of the frame, load frame.reset_index(names="{column}")'
        return None
    declared = into.properties.get(column)
    if (
        declared is not None
        and declared.type.scalar.is_integer
        and pa.types.is_floating(table.schema.field(column).type)
    ):
        return (
            "missing values make integers floats in pandas:"
            f' load frame.astype({{"{column}": "Int64"}})'
        )
    return None
