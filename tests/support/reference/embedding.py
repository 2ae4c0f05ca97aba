"""The mock embedding of the search chapter, component by component."""

from __future__ import annotations

import math
import struct

_MASK = 2**64 - 1


def mock_vector(text: str, dimension: int) -> list[float]:
    """The unit vector of ``text``; every component is a single-precision number."""
    h = 14695981039346656037
    for byte in text.encode():
        h = ((h ^ byte) * 1099511628211) & _MASK
    components: list[float] = []
    for _ in range(dimension):
        h ^= (h << 13) & _MASK
        h ^= h >> 7
        h ^= (h << 17) & _MASK
        components.append(single(single(single(h / _MASK) * 2) - 1))
    norm = single(math.sqrt(sum(c * c for c in components)))
    return [single(c / norm) for c in components]


def single(value: float) -> float:
    """The nearest single-precision number."""
    return float(struct.unpack("f", struct.pack("f", value))[0])
