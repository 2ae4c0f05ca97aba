"""Random columns of every type a property can have."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from omnigraph.model.arrow import TIMESTAMP

NAN, INF = math.nan, math.inf
FLOATS = [0.0, -0.0, 1.5, -1.5, INF, -INF, NAN]


@dataclass(frozen=True)
class Kind:
    """A type, and values of it: few, so that many are equal, and the extreme ones among them."""

    type: pa.DataType
    values: tuple[Any, ...]

    @property
    def is_float(self) -> bool:
        return bool(pa.types.is_floating(self.type))

    def column(self, values: list[Any]) -> pa.Array:
        return pa.array(values, self.type)


def _integers(type: pa.DataType) -> Kind:
    limits = np.iinfo(type.to_pandas_dtype())
    return Kind(type, (limits.min, limits.min + 1, 0, 1, 7, limits.max - 1, limits.max))


def _instants() -> tuple[dt.datetime, ...]:
    first = dt.datetime(1969, 12, 31, 23, 59, 59, 999000, dt.UTC)
    return (first, first + dt.timedelta(milliseconds=1), dt.datetime(2031, 4, 9, tzinfo=dt.UTC))


KINDS = {
    "String": Kind(pa.string(), ("", "a", "ab", "b", "é", "€", "𝄞", "Z")),
    "Bool": Kind(pa.bool_(), (False, True)),
    "I32": _integers(pa.int32()),
    "I64": _integers(pa.int64()),
    "U32": _integers(pa.uint32()),
    "U64": _integers(pa.uint64()),
    "F32": Kind(pa.float32(), tuple(FLOATS)),
    "F64": Kind(pa.float64(), (*FLOATS, 5e-324, 1.7976931348623157e308)),
    "Date": Kind(
        pa.date32(), (dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date.max)
    ),
    "DateTime": Kind(TIMESTAMP, _instants()),
}

LISTS = {
    "[String]": Kind(
        pa.list_(pa.field("item", pa.string())), ([], ["a"], ["a", None], [None], ["a", "b"], ["b"])
    ),
    "[F64]": Kind(
        pa.list_(pa.field("item", pa.float64())), ([], [0.0], [-0.0], [NAN], [NAN, 1.0], [1.0])
    ),
    "Vector(2)": Kind(
        pa.list_(pa.field("item", pa.float32()), 2), ([0.0, 1.0], [-0.0, 1.0], [1.0, 0.0])
    ),
}


@st.composite
def columns(
    draw: st.DrawFn, kind: Kind, *, min_size: int = 0, max_size: int = 25
) -> tuple[pa.Array, list[Any]]:
    """A column with nulls, perhaps a slice of a longer one, and its values."""
    value = st.one_of(st.none(), *[st.just(each) for each in kind.values])
    values = draw(st.lists(value, min_size=min_size, max_size=max_size))
    before = draw(st.lists(value, max_size=3))
    column = kind.column([*before, *values, *before]).slice(len(before), len(values))
    return column, values
