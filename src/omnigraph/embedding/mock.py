"""Vectors without a provider: the same for the same text and dimension, everywhere and always."""

from __future__ import annotations

import math

from omnigraph.model.floats import round_to_f32

_BITS = 2**64 - 1
_FNV_OFFSET = 14695981039346656037
_FNV_PRIME = 1099511628211


def mock_vector(text: str, dimension: int) -> list[float]:
    """A unit vector that depends on the text and the dimension alone.

    Single precision is spelled out, so that every platform gives the same bits.

    >>> [round(component, 6) for component in mock_vector("alpha", 4)]
    [-0.542049, -0.471799, 0.160905, 0.676534]
    """
    state = _fnv_1a(text)
    components = []
    for _ in range(dimension):
        state ^= (state << 13) & _BITS
        state ^= state >> 7
        state ^= (state << 17) & _BITS
        components.append(round_to_f32(round_to_f32(float(state) / float(_BITS)) * 2 - 1))
    norm = round_to_f32(math.sqrt(sum(component * component for component in components)))
    return [round_to_f32(component / norm) for component in components] if norm else components


def _fnv_1a(text: str) -> int:
    state = _FNV_OFFSET
    for byte in text.encode():
        state = ((state ^ byte) * _FNV_PRIME) & _BITS
    return state
