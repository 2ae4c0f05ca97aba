"""Cells of text files: what Arrow parses in one go means what each cell means by itself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import ValueConversionError
from omnigraph.model.arrow import column_from_json
from omnigraph.model.arrow_columns import column_from_arrow, parsed_texts, values_from_text
from omnigraph.model.types import Scalar, ValueType

SPELLINGS = [
    *("0", "-0", "7", "007", "-12", "+5", " 5", "5 ", "1_000", "0x1F", "0X1f", "٣", "--1", "-", ""),
    *("2147483647", "2147483648", "4294967296", "9223372036854775808", "18446744073709551615"),
    *("18446744073709551616", "-9223372036854775809", "1" * 41, "1.0", "1.", ".5", "-.5", "."),
    *("1e3", "1E+3", "1e", "1e999", "-1e999", "3.5e38", "1e-400", "0.1", "16777217", "1,5"),
    *("inf", "-inf", "nan", "Infinity", "NaN", "true", "TRUE", "True", "false", "yes", "t", "1"),
    *("2026-01-05", "0000-01-01", "0001-01-01", "9999-12-31", "2026-1-5", "2026-02-30", "20260105"),
    *("2026-01-05T10:00:00Z", "2026-01-05T10:00", "2026-01-05 10:00:00", "2026-01-05t10:00:00z"),
    *("2026-01-05T10:00:00.1239+02:00", "2016-12-31T23:59:60Z", "-719162", "2932897", "text", "ü"),
    *("253402300799999", "253402300800000", "1-2", "a-b", "2026-01-05T24:00:00Z"),
]
SCALARS = [scalar for scalar in Scalar if scalar not in (Scalar.BLOB, Scalar.VECTOR)]


def outcome(column: Any) -> Any:
    try:
        return column()
    except ValueConversionError as error:
        return error.message


def cell_by_cell(texts: pa.Array, type: ValueType) -> Any:
    return column_from_json(values_from_text(texts, type), type, name="x", strict=True)


def in_one_go(texts: pa.Array, type: ValueType) -> Any:
    parsed = parsed_texts(texts, type)
    if parsed is None:
        return cell_by_cell(texts, type)
    return column_from_arrow(parsed, type, name="x", strict=True)


@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("nullable", [True, False])
def test_both_ways_give_the_same_values_and_complaints(scalar, nullable):
    type = ValueType(scalar, nullable=nullable)
    for first in SPELLINGS:
        for other in (first, "1", "2026-01-05", None):
            texts = pa.array([first, other], pa.string())
            expected = outcome(lambda texts=texts: cell_by_cell(texts, type))
            found = outcome(lambda texts=texts: in_one_go(texts, type))
            assert found == expected, (first, other)


@pytest.mark.parametrize(
    ("scalar", "cells"),
    [
        (Scalar.I32, ["1", "-2", None, ""]),
        (Scalar.U64, ["18446744073709551615"]),
        (Scalar.F64, ["1", "-.5", "1e3"]),
        (Scalar.BOOL, ["true", "False", None]),
        (Scalar.DATE, ["2026-01-05", None]),
        (Scalar.DATE, ["20458", "-1"]),
        (Scalar.DATETIME, ["2026-01-05T10:00:00Z", ""]),
        (Scalar.STRING, ["", "x"]),
    ],
)
def test_plain_cells_are_parsed_in_one_go(scalar, cells):
    assert parsed_texts(pa.array(cells, pa.string()), ValueType(scalar, nullable=True)) is not None


def test_lists_and_blobs_are_taken_cell_by_cell():
    type = ValueType(Scalar.I64, is_list=True, nullable=True)
    texts = pa.array(["[1, 2]", "", None, "x"])
    assert parsed_texts(texts, type) is None
    assert values_from_text(texts, type) == [[1, 2], None, None, "x"]
