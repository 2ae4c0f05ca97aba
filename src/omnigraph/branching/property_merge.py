"""Merging entities property by property, so that edits of different properties go together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.branching.spill import CollectedRows
from omnigraph.branching.table_rows import ROWS_PER_READ, Mask, RowsAt, chunked, same_blobs
from omnigraph.commit.unchanged import same_values
from omnigraph.model.arrow import ID
from omnigraph.model.merging import ConflictPolicy
from omnigraph.storage.positions import Positions

WITH_BLOBS_AT_ONCE = 16
"""Rows with blobs of both sides that are held at once."""


@dataclass(frozen=True, eq=False)
class MixedRows:
    """What became of entities that both sides updated."""

    is_written: Mask
    """Which get a row other than the one the target has."""
    is_conflict: Mask
    """Which have a property that both sides changed differently."""
    settled: int
    """How many of those a rule has decided."""


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Per column, whose value a row gets."""

    from_source: dict[str, Mask]
    disputed: Mask


def merge_properties(
    base: RowsAt,
    source: RowsAt,
    target: RowsAt,
    policy: ConflictPolicy,
    rows: CollectedRows,
) -> MixedRows:
    """Entities that both sides updated: the target's, with what only the source changed.

    Those that differ from what the target has are added to ``rows``. Where both changed one
    property differently, ``policy`` decides, or it is a conflict.
    """
    nothing = np.zeros(0, np.bool_)
    written, conflicts = [nothing], [nothing]
    settled = 0
    for old, mine, theirs in zip(base.chunks(), source.chunks(), target.chunks(), strict=True):
        chosen = _choose(old, mine, theirs, policy)
        if policy == "fail":
            is_conflict = chosen.disputed
        else:
            is_conflict = np.zeros(len(old), np.bool_)
            settled += int(chosen.disputed.sum())
        is_written = np.logical_or.reduce(list(chosen.from_source.values())) & ~is_conflict
        at_once = WITH_BLOBS_AT_ONCE if source.rows.blob_columns else ROWS_PER_READ
        for places in chunked(np.flatnonzero(is_written), at_once):
            rows.add(_mixed(mine, theirs, chosen, places))
        written.append(is_written)
        conflicts.append(is_conflict)
    return MixedRows(np.concatenate(written), np.concatenate(conflicts), settled)


def _choose(base: RowsAt, source: RowsAt, target: RowsAt, policy: ConflictPolicy) -> _Chosen:
    old, new, other = base.plain(), source.plain(), target.plain()
    from_source: dict[str, Mask] = {}
    disputed = np.zeros(len(base), np.bool_)
    for name in source.rows.columns:
        if name == ID:
            continue
        if name in source.rows.blob_columns:
            by_source = ~same_blobs(base, source, name)
            by_target = ~same_blobs(base, target, name)
            differ = ~same_blobs(source, target, name)
        else:
            by_source = ~same_values(old[name], new[name])
            by_target = ~same_values(old[name], other[name])
            differ = ~same_values(new[name], other[name])
        both = by_source & by_target & differ
        disputed |= both
        from_source[name] = (by_source & ~by_target) | (both & (policy == "source"))
    return _Chosen(from_source, disputed)


def _mixed(source: RowsAt, target: RowsAt, chosen: _Chosen, places: Positions) -> pa.Table:
    """The rows at some places of a chunk, with columns from either side."""
    new, old = source.at(places).complete(), target.at(places).complete()
    columns = [old[ID]]
    for name in old.schema.names[1:]:
        joined = pa.chunked_array([*old[name].chunks, *new[name].chunks], old[name].type)
        is_new = chosen.from_source[name][places]
        columns.append(joined.take(pa.array(np.arange(len(places)) + len(places) * is_new)))
    return pa.table(columns, schema=old.schema)
