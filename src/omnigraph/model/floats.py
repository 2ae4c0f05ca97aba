"""Single precision in pure Python: what an F32 column will hold of a number."""

from __future__ import annotations

import math
import struct

_F32 = struct.Struct("<f")


def round_to_f32(value: float) -> float:
    """``value`` rounded to the nearest F32; beyond its range an infinity, as in IEEE 754.

    >>> round_to_f32(0.1)
    0.10000000149011612
    >>> round_to_f32(1e39)
    inf
    """
    try:
        rounded: float = _F32.unpack(_F32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded
