"""Values of numpy, pandas, Arrow and Polars as query parameters."""

from __future__ import annotations

import datetime as dt
import enum
import math
import subprocess
import sys
from decimal import Decimal
from uuid import UUID

import numpy as np
import orjson
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from omnigraph.client.exchange import checked_body
from omnigraph.errors import ParameterError
from omnigraph.model.parameters import parameter_value
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import BLOB_PREFIX, Value
from omnigraph.wire.requests import QueryRequest

MOMENT = dt.datetime(2031, 4, 9, 7, 30, tzinfo=dt.UTC)
DAY = dt.date(2031, 4, 9)
VECTOR = ValueType(Scalar.VECTOR, vector_dim=3)


def a_list(scalar: Scalar) -> ValueType:
    return ValueType(scalar, is_list=True)


class Colour(enum.StrEnum):
    RED = "red"


class OldColour(str, enum.Enum):  # noqa: UP042
    RED = "red"


def sent(value: object, type: ValueType) -> object:
    """The parameter that a server binds when a client passes ``value``."""
    body = orjson.loads(checked_body(QueryRequest, {"query": "query q { }"}, {"x": value}))
    return parameter_value(body["params"]["x"], type, "x")


CASES: list[tuple[object, ValueType | Scalar, Value]] = [
    (np.int64(7), Scalar.I64, 7),
    (np.uint64(2**64 - 1), Scalar.U64, 2**64 - 1),
    (np.int8(-3), Scalar.I32, -3),
    (np.float32(0.1), Scalar.F32, 0.10000000149011612),
    (np.float64(0.1), Scalar.F64, 0.1),
    (np.bool_(True), Scalar.BOOL, True),
    (np.str_("ada"), Scalar.STRING, "ada"),
    (np.bytes_(b"hi"), Scalar.BLOB, b"hi"),
    (np.datetime64("2031-04-09"), Scalar.DATE, DAY),
    (np.datetime64("2031-04-09T07:30:00.000000999", "ns"), Scalar.DATETIME, MOMENT),
    (np.datetime64("2031-04-09T07:30", "m"), Scalar.DATETIME, MOMENT),
    (np.array([1, 2]), a_list(Scalar.I64), [1, 2]),
    (np.array(7), Scalar.I64, 7),
    (np.array(["a", "b"]), a_list(Scalar.STRING), ["a", "b"]),
    (np.array(["2031-04-09"], "M8[ns]"), a_list(Scalar.DATE), [DAY]),
    (np.array([1.5, 2, 0.1], np.float32), VECTOR, [1.5, 2.0, 0.10000000149011612]),
    (np.array([1, 2, 3]), VECTOR, [1.0, 2.0, 3.0]),
    ([np.int64(1), 2], a_list(Scalar.I64), [1, 2]),
    (pd.Timestamp("2031-04-09T09:30:00.0005+02:00"), Scalar.DATETIME, MOMENT),
    (pd.Timestamp("2031-04-09T23:30"), Scalar.DATE, DAY),
    (pd.Series([1, 2]), a_list(Scalar.I32), [1, 2]),
    (pd.Series(["a", "b"]), a_list(Scalar.STRING), ["a", "b"]),
    (pd.Series([MOMENT]), a_list(Scalar.DATETIME), [MOMENT]),
    (pd.Series(["a", "b"], dtype="category"), a_list(Scalar.STRING), ["a", "b"]),
    (pd.array([1, 2], "Int64"), a_list(Scalar.I64), [1, 2]),
    (pd.Index(["a"]), a_list(Scalar.STRING), ["a"]),
    (pa.scalar(7), Scalar.I64, 7),
    (pa.scalar(DAY), Scalar.DATE, DAY),
    (pa.scalar(MOMENT, pa.timestamp("ms", "Europe/Berlin")), Scalar.DATETIME, MOMENT),
    (pa.scalar([1.0, 2.0, 3.0]), VECTOR, [1.0, 2.0, 3.0]),
    (pa.scalar(b"hi"), Scalar.BLOB, b"hi"),
    (pa.array([1, 2]), a_list(Scalar.I64), [1, 2]),
    (pa.chunked_array([["a"], ["b"]]), a_list(Scalar.STRING), ["a", "b"]),
    (pa.array([1, 2, 3], pa.float32()), VECTOR, [1.0, 2.0, 3.0]),
    (pl.Series(["a", "b"]), a_list(Scalar.STRING), ["a", "b"]),
    (pl.Series([DAY]), a_list(Scalar.DATE), [DAY]),
    (Decimal(7), Scalar.I64, 7),
    (Decimal("0.5"), Scalar.F64, 0.5),
    (UUID(int=7), Scalar.STRING, "00000000-0000-0000-0000-000000000007"),
    (Colour.RED, Scalar.STRING, "red"),
    (OldColour.RED, Scalar.STRING, "red"),
    ({"a"}, a_list(Scalar.STRING), ["a"]),
    (bytearray(b"hi"), Scalar.BLOB, b"hi"),
    (DAY, Scalar.DATETIME, dt.datetime(2031, 4, 9, tzinfo=dt.UTC)),
    (MOMENT, Scalar.DATE, DAY),
    ("base64:aGk=", Scalar.BLOB, b"hi"),
]


@pytest.mark.parametrize(("given", "type", "expected"), CASES, ids=lambda each: str(type(each)))
def test_c_qry_011_a_value_binds_in_process_as_it_does_through_a_client(
    given: object, type: ValueType | Scalar, expected: Value
) -> None:
    type = ValueType(type) if isinstance(type, Scalar) else type
    assert parameter_value(given, type, "x") == expected
    assert sent(given, type) == expected


@pytest.mark.parametrize(
    "missing", [pd.NaT, pd.NA, np.datetime64("NaT"), pa.scalar(None, pa.int64()), None]
)
def test_c_qry_012_what_libraries_have_for_a_missing_value_is_null(missing: object) -> None:
    type = ValueType(Scalar.DATETIME, nullable=True)
    assert parameter_value(missing, type, "x") is None
    assert sent(missing, type) is None
    with pytest.raises(ParameterError, match="parameter 'x' is null"):
        parameter_value(missing, ValueType(Scalar.DATETIME), "x")


@pytest.mark.parametrize("nan", [math.nan, np.float32("nan"), pa.scalar(math.nan), Decimal("nan")])
def test_nan_is_refused_on_both_faces_and_never_becomes_null(nan: object) -> None:
    type = ValueType(Scalar.F64, nullable=True)
    for bind in (lambda: parameter_value(nan, type, "x"), lambda: sent(nan, type)):
        with pytest.raises(ParameterError, match="parameter 'x'") as caught:
            bind()
        assert caught.value.hint == "pass None for a missing value"
    with pytest.raises(ParameterError, match="parameter 'x'"):
        sent(np.array([1.0, math.nan, 2.0]), VECTOR)


@pytest.mark.parametrize(
    ("given", "type", "message"),
    [
        (np.float64(2.5), Scalar.I64, "expects I64, got number 2.5 (numpy.float64)"),
        (np.array([1.0, 2.0]), VECTOR, "expects 3 dimensions, got 2 (numpy.ndarray)"),
        (np.ones((3, 2)), VECTOR, "expects Vector(3), got an array of 2 at position 0 (numpy."),
        (pd.Timestamp("2031-04-09"), Scalar.I64, "expects I64, got datetime 2031-04-09 00:00:00"),
        (pd.Series([1, None], dtype="Int64"), a_list(Scalar.I64), "got null at position 1 (pandas"),
        (pa.array(["a"]), a_list(Scalar.I64), "got string 'a' at position 0 (pyarrow."),
        (pd.DataFrame({"a": [1]}), a_list(Scalar.I64), "expects [I64], got DataFrame"),
        (np.timedelta64(3, "s"), Scalar.DATETIME, "(numpy.timedelta64)"),
        (object(), Scalar.STRING, "expects String, got object"),
    ],
    ids=lambda each: str(type(each)),
)
def test_a_refusal_names_the_parameter_its_type_and_the_python_type(
    given: object, type: ValueType | Scalar, message: str
) -> None:
    type = ValueType(type) if isinstance(type, Scalar) else type
    with pytest.raises(ParameterError) as caught:
        parameter_value(given, type, "x")
    assert caught.value.message.startswith("parameter 'x' ")
    assert message in caught.value.message


def test_a_client_names_the_parameter_that_cannot_be_sent() -> None:
    with pytest.raises(ParameterError, match=r"'x' is a pandas.*DataFrame: it cannot be sent"):
        sent(pd.DataFrame({"a": [1]}), ValueType(Scalar.I64))


def test_bytes_travel_as_the_text_of_a_blob() -> None:
    body = orjson.loads(checked_body(QueryRequest, {"query": "q"}, {"x": np.bytes_(b"hi")}))
    assert body["params"]["x"] == BLOB_PREFIX + "aGk="


def test_no_library_is_imported_for_parameters_that_are_not_of_it() -> None:
    code = (
        "import sys, datetime as dt\n"
        "from omnigraph.model.parameters import parameter_value\n"
        "from omnigraph.model.types import Scalar, ValueType\n"
        "from decimal import Decimal\n"
        "parameter_value([Decimal(1)], ValueType(Scalar.I64, is_list=True), 'x')\n"
        "parameter_value(dt.date(2031, 4, 9), ValueType(Scalar.DATE), 'x')\n"
        "print([each for each in ('numpy', 'pandas', 'polars', 'pyarrow') if each in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
