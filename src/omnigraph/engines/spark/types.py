"""The types in which values are passed through Spark, and the sort order of the language.

Spark has no unsigned integers, keeps microseconds where the model keeps milliseconds, and sorts NaN
after all numbers. Values are therefore *carried* in other types: U32 as a long, U64 as a decimal, a
DateTime as its milliseconds, a vector as an array of floats. Joins, groups and sorts of carried
values agree with those of the model; where they would not, `sort_keys` and the aggregates of `tail`
correct it.
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType

from omnigraph.model.arrow import TIMESTAMP, arrow_type
from omnigraph.model.types import Scalar, ValueType

_CARRIED = {
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    TIMESTAMP: pa.int64(),
}
INTEGERS = frozenset((Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64))
FLOATS = frozenset((Scalar.F32, Scalar.F64))


@cache
def spark_type(type: pa.DataType) -> DataType:
    """The Spark type that carries the values of an Arrow column."""
    return from_arrow_type(_carried(type))


@cache
def carried_type(type: pa.DataType) -> pa.DataType:
    """The Arrow type in which Spark passes those values to and from a worker."""
    return to_arrow_type(spark_type(type), timezone="UTC")


def _carried(type: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type) or pa.types.is_fixed_size_list(type):
        return pa.list_(_carried(type.value_type))
    return _CARRIED.get(type, type)


def to_carried(column: pa.Array) -> pa.Array:
    """A column converted to its carrying type."""
    return column.cast(carried_type(column.type))


def from_carried(column: pa.Array, type: pa.DataType) -> pa.Array:
    """A column converted back to the type of the model."""
    if column.type == type:
        return column
    if pa.types.is_fixed_size_list(type):
        return _vectors(column, type)
    return column.cast(type)


def _vectors(column: pa.Array, type: pa.DataType) -> pa.Array:
    # Arrow does not cast null lists to lists of a fixed size.
    values = column.drop_null().flatten().cast(type.value_type)
    vectors = pa.FixedSizeListArray.from_arrays(values, type=type)
    if not column.null_count:
        return vectors
    import numpy as np

    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return vectors.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def literal(value: object, type: ValueType) -> Column:
    """A constant in its carrying type."""
    wanted = arrow_type(type)
    scalar = pa.array([list(value) if isinstance(value, tuple) else value], wanted)
    carried = to_carried(scalar)[0].as_py()
    if isinstance(carried, list):
        items = [F.lit(item).cast(spark_type(wanted.value_type)) for item in carried]
        return F.array(*items).cast(spark_type(wanted))
    return F.lit(carried).cast(spark_type(wanted))


# --- order ----------------------------------------------------------------------------------------


def sort_keys(column: Column, type: ValueType, *, descending: bool = False) -> list[Column]:
    """Spark's sort keys for a value: null is smallest, then NaN; 0.0 and -0.0 are equal."""
    keys = [column]
    if type.is_list or type.is_vector:
        if type.is_vector or type.scalar in FLOATS:
            keys = [F.transform(column, _sortable_item)]
    elif type.scalar in FLOATS:
        keys = [~F.isnan(column) & column.isNotNull(), _number(column)]
        keys = [F.when(column.isNotNull(), keys[0]), keys[1]]
    return [key.desc_nulls_last() if descending else key.asc_nulls_first() for key in keys]


def _sortable_item(item: Column) -> Column:
    return F.when(item.isNotNull(), F.struct(~F.isnan(item), _number(item)))


def _number(column: Column) -> Column:
    return F.when(F.isnan(column), F.lit(0.0)).otherwise(column + F.lit(0.0))


def one_zero(column: Column, type: ValueType) -> Column:
    """A float normalized for distinct values: one zero and one NaN."""
    if type.is_list or type.scalar not in FLOATS:
        return column
    return F.when(F.isnan(column), F.lit(float("nan"))).otherwise(column + F.lit(0.0))
