"""Rounding to single precision agrees with numpy, infinities included."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.model.values import round_to_f32


@given(st.floats(allow_nan=False))
def test_rounding_is_that_of_ieee_754(value: float) -> None:
    with np.errstate(over="ignore"):
        assert round_to_f32(value) == float(np.float32(value))


def test_nan_stays_nan() -> None:
    assert math.isnan(round_to_f32(math.nan))
