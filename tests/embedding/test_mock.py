"""C-SRCH-025: mock vectors equal the published values, unit norm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.embedding.client import mock_vector


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("alpha", [-0.542049, -0.471799, 0.160905, 0.676534]),
        ("beta", [0.665963, -0.562220, -0.416368, 0.258921]),
    ],
)
def test_c_srch_025_mock_vectors_equal_the_published_values(text: str, published: list[float]):
    assert [round(component, 6) for component in mock_vector(text, 4)] == published


def reference(text: str, dimension: int) -> list[float]:
    """The published recipe again, with numpy's own 64-bit integers and single floats."""
    with np.errstate(over="ignore"):
        state = np.uint64(14695981039346656037)
        for byte in text.encode():
            state = (state ^ np.uint64(byte)) * np.uint64(1099511628211)
        components = []
        for _ in range(dimension):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            unit = np.float32(np.float64(state) / np.float64(2**64 - 1))
            components.append(unit * np.float32(2) - np.float32(1))
    vector = np.array(components, np.float32)
    norm = np.float32(np.sqrt(np.sum(vector.astype(np.float64) ** 2)))
    return [float(component) for component in vector / norm]


@given(st.text(), st.integers(1, 40))
def test_c_srch_025_mock_vectors_are_single_floats_of_unit_norm(text: str, dimension: int):
    vector = mock_vector(text, dimension)
    assert vector == pytest.approx(reference(text, dimension), rel=3e-7)
    assert all(float(np.float32(component)) == component for component in vector)
    assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)


def test_c_srch_025_a_longer_vector_of_a_text_is_another_vector():
    assert mock_vector("alpha", 4) == mock_vector("alpha", 4)
    assert mock_vector("alpha", 5)[:4] != mock_vector("alpha", 4)
    assert mock_vector("", 3) != mock_vector("ä", 3)
