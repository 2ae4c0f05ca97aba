"""Rows that a write would replace by themselves.

Leaving them out keeps the versions of untouched rows, the change feed and the receipt honest: a
load that is repeated changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.model.arrow import ID


def unchanged_rows(rows: pa.Table, committed: pa.Table) -> pa.Array:
    """For each of ``rows`` whether ``committed`` has the same row, by id.

    Both have the same columns, in any order, and unique ids.
    """
    at = pc.index_in(rows[ID], value_set=committed[ID]).combine_chunks()
    same = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False))
    old_at = at.drop_null().to_numpy()
    for name in rows.schema.names:
        if name == ID or not len(same):
            continue
        equal = _equal(rows[name].take(pa.array(same)), committed[name].take(pa.array(old_at)))
        same, old_at = same[equal], old_at[equal]
    out = np.zeros(rows.num_rows, bool)
    out[same] = True
    return pa.array(out)


def _equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Any:
    """Which values are the same, as a numpy mask; null is the same as null."""
    both_null = pc.and_(left.is_null(), right.is_null())
    if pa.types.is_nested(left.type):
        # Compared as texts, which unlike floats tell the zeros apart.
        pairs = zip(map(repr, left.to_pylist()), map(repr, right.to_pylist()), strict=True)
        equal = pa.array([a == b for a, b in pairs], pa.bool_())
    else:
        equal = pc.equal(_as_bits(left), _as_bits(right)).fill_null(False)
    return pc.or_(equal, both_null).to_numpy(zero_copy_only=False)


def _as_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """``column``, floats as their bits: the two zeros are equal, but not the same."""
    if not pa.types.is_floating(column.type):
        return column
    bits = pa.int32() if column.type.bit_width == 32 else pa.int64()
    return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
