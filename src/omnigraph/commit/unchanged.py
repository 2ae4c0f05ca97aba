"""Rows of a write that equal the committed rows they would replace.

Leaving them out keeps the versions of untouched rows, the change feed and the receipt correct: a
repeated load changes nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
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
        old = committed[name].take(pa.array(old_at))
        equal = same_values(rows[name].take(pa.array(same)), old)
        same, old_at = same[equal], old_at[equal]
    out = np.zeros(rows.num_rows, bool)
    out[same] = True
    return pa.array(out)


def same_values(left: pa.ChunkedArray, right: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which values of two columns of one type are the same; null is the same as null."""
    type = left.type
    equal: npt.NDArray[np.bool_]
    if pa.types.is_fixed_size_list(type):
        equal = _same_vectors(left.combine_chunks(), right.combine_chunks())
    elif pa.types.is_list(type):
        equal = _same_lists(left, right)
    else:
        compared = pc.equal(_as_bits(left), _as_bits(right)).fill_null(False)
        equal = compared.to_numpy(zero_copy_only=False)
    left_null = left.is_null().to_numpy(zero_copy_only=False)
    right_null = right.is_null().to_numpy(zero_copy_only=False)
    same: npt.NDArray[np.bool_] = np.where(left_null | right_null, left_null & right_null, equal)
    return same


def _same_vectors(
    left: pa.FixedSizeListArray, right: pa.FixedSizeListArray
) -> npt.NDArray[np.bool_]:
    """Compared as bits; values under a null are compared too, and the result is overwritten."""
    width = left.type.list_size
    sides = [
        side.values.slice(side.offset * width, len(side) * width).view(pa.int32())
        for side in (left, right)
    ]
    bits = [np.asarray(side.fill_null(0)).reshape(-1, width) for side in sides]
    equal: npt.NDArray[np.bool_] = (bits[0] == bits[1]).all(axis=1)
    return equal


def _same_lists(left: pa.ChunkedArray, right: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    lengths = [pc.fill_null(pc.list_value_length(side), 0) for side in (left, right)]
    equal: npt.NDArray[np.bool_] = pc.equal(*lengths).to_numpy(zero_copy_only=False).copy()
    # Of lists that are equally long, the items lie beside each other.
    rows = np.flatnonzero(equal)
    chosen = [side.take(pa.array(rows)).combine_chunks() for side in (left, right)]
    items = [pa.chunked_array([side.flatten()]) for side in chosen]
    of_row = pc.list_parent_indices(chosen[0]).to_numpy(zero_copy_only=False)
    equal[rows[of_row[~same_values(*items)]]] = False
    return equal


def _as_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """``column``, floats as their bits: the two zeros are equal, but not the same."""
    if not pa.types.is_floating(column.type):
        return column
    bits = pa.int32() if column.type.bit_width == 32 else pa.int64()
    return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
