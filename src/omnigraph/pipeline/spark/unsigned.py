"""Unsigned integers, which Spark does not have."""

from __future__ import annotations

import pyarrow as pa

SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
"""By unsigned type, the Spark type that holds all of its values."""
