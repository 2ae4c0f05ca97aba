"""The values of nodes as rows that a user reads: names of groups, distances by landmark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def group_names(rows: pa.Table, with_type: bool) -> pa.Array:
    """Names of groups after nodes: their ids, ``with_type`` as `Type:id`."""
    ids = rows["id"].combine_chunks()
    if not with_type:
        return ids
    return pc.binary_join_element_wise(rows["type"].combine_chunks(), ids, ":")


def distance_rows(
    rows: pa.Table, landmarks: Sequence[tuple[str, str]], *, are_counts: bool
) -> pa.Table:
    """One row for each node and landmark it can be reached from, from a column for each landmark.

    ``are_counts`` gives numbers of edges as integers.
    """
    parts = []
    for number, (_, landmark) in enumerate(landmarks):
        distances = rows[str(number)]
        reached = rows.filter(pc.is_finite(distances))
        values = reached[str(number)]
        parts.append(
            pa.table(
                {
                    "type": reached["type"],
                    "id": reached["id"],
                    "landmark": pa.repeat(pa.scalar(landmark), reached.num_rows),
                    "distance": values.cast(pa.int64()) if are_counts else values,
                }
            )
        )
    return pa.concat_tables(parts)
