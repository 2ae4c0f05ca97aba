"""Blocks: nodes and their incoming edges, as arrays.

A graph is partitioned by node. A block owns its nodes and their incoming edges. The sources of
these edges are its *ghosts*: before each round the blocks that own them send their values, which
are indexed by ghost. A graph in one process is a single block whose ghosts are its own nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.model.records import dataclass

Keys: TypeAlias = npt.NDArray[np.uint64]
Places: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]

Value = TypeVar("Value", bound=np.generic)

SPARSE_EDGES_MIN = 1 << 17
"""With fewer edges, NumPy finishes before SciPy is imported."""


@dataclass(frozen=True)
class Block:
    """The nodes of one block, in a fixed order, with their incoming edges."""

    number: int
    blocks: int
    keys: Keys
    """A unique number for each node; ascending if there are several blocks."""
    pointers: Counts
    """The index in ``sources`` of the first edge to each node, and the number of edges (CSR)."""
    sources: Places
    """The ghost that is the source of each edge."""
    weights: Floats | None
    """The weight of each edge; None if all weigh 1."""
    out_weights: Floats
    """The total weight of each node's outgoing edges."""
    ghosts: Keys
    """The keys of the ghosts, by owning block, ascending within each."""
    sends: tuple[Places, ...]
    """For each block, the nodes of this block that are its ghosts, in its order."""

    @property
    def is_whole(self) -> bool:
        """Whether this block is the whole graph, so that ghosts and nodes have the same indexes."""
        return self.blocks == 1

    @property
    def nodes(self) -> int:
        """The number of nodes that the block owns."""
        return len(self.pointers) - 1

    @property
    def in_degrees(self) -> Counts:
        """The in-degree of each node."""
        return np.diff(self.pointers)

    def targets(self) -> Places:
        """The target node of each edge."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), self.in_degrees)

    def reduced(
        self, ufunc: np.ufunc, values: npt.NDArray[Value], empty: Any
    ) -> npt.NDArray[Value]:
        """Reduce the values of each node's incoming edges; ``empty`` for nodes without edges."""
        result = np.full(self.nodes, empty, values.dtype)
        starts = self.pointers[:-1]
        some = self.pointers[1:] > starts
        if some.any():
            result[some] = ufunc.reduceat(values, starts[some])
        return result

    def sums(self, values: Floats) -> Floats:
        """The weighted sum, for each node, of the ghosts' values over its incoming edges."""
        if self._matrix is not None:
            added: Floats = self._matrix @ values
            return added
        brought = values[self.sources]
        return self.reduced(
            np.add, brought if self.weights is None else brought * self.weights, 0.0
        )

    @cached_property
    def _matrix(self) -> Any:
        """The weights by node and ghost as a SciPy sparse matrix, which is faster than NumPy.

        None for few edges, and if SciPy is not installed.
        """
        if not self.is_whole or not SPARSE_EDGES_MIN <= len(self.sources) < 1 << 31:
            return None
        try:
            sparse = import_module("scipy.sparse")
        except ModuleNotFoundError:
            return None
        weights = np.ones(len(self.sources)) if self.weights is None else self.weights
        parts = (weights, self.sources, self.pointers.astype(np.int32))
        return sparse.csr_array(parts, shape=(self.nodes, len(self.ghosts)), copy=False)

    @cached_property
    def shares(self) -> Floats:
        """One divided by the total weight of outgoing edges; zero for nodes without any."""
        out = self.out_weights
        return np.divide(1.0, out, out=np.zeros(len(out)), where=out > 0)

    @cached_property
    def ends(self) -> Counts:
        """The nodes without outgoing edges."""
        return np.flatnonzero(self.out_weights <= 0)

    def places_of(self, keys: Keys) -> Counts:
        """The indexes of nodes that this block owns."""
        return keys.astype(np.int64) if self.is_whole else np.searchsorted(self.keys, keys)

    def ghost_places(self, keys: Keys) -> tuple[Counts, npt.NDArray[np.bool_]]:
        """The indexes of ghosts, and a mask of the keys that are ghosts of this block."""
        if self.is_whole:
            return keys.astype(np.int64), np.ones(len(keys), np.bool_)
        order = np.argsort(self.ghosts)
        ordered = self.ghosts[order]
        at = np.minimum(np.searchsorted(ordered, keys), max(len(ordered) - 1, 0))
        known = ordered[at] == keys if len(ordered) else np.zeros(len(keys), np.bool_)
        return order[at] if len(ordered) else at, known


def owner_of(keys: Keys, blocks: int) -> Counts:
    """The block that owns each node."""
    return (keys % np.uint64(blocks)).astype(np.int64)


def ranges(begin: Counts, counts: Counts) -> Counts:
    """The concatenated indexes of several ranges."""
    before = np.cumsum(counts) - counts
    return np.repeat(begin - before, counts) + np.arange(int(counts.sum()))


# --- results as rows ------------------------------------------------------------------------------


def group_names(rows: pa.Table, with_type: bool) -> pa.Array:
    """Names of groups: the ids of their naming nodes, ``with_type`` as `Type:id`."""
    ids = rows["id"].combine_chunks()
    if not with_type:
        return ids
    return pc.binary_join_element_wise(rows["type"].combine_chunks(), ids, ":")


def distance_rows(
    rows: pa.Table, landmarks: Sequence[tuple[str, str]], *, are_counts: bool
) -> pa.Table:
    """One row per node and landmark that reaches it, from one column per landmark.

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
