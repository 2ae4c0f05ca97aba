"""Nodes and the edges that lead to them, as arrays that the rounds of an algorithm work on.

A graph is cut into blocks by node. A block owns its nodes and every edge that ends at one of them.
The nodes at the other ends are its *ghosts*: before each round the blocks that own them send their
values, and the round reads those by the place of the ghost. A graph in one process is one block
whose ghosts are its own nodes.
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
"""Fewer edges are added up sooner than SciPy is imported."""


@dataclass(frozen=True)
class Block:
    """The nodes of one block, in a fixed order, and the edges that lead to them."""

    number: int
    blocks: int
    keys: Keys
    """A number for each node, distinct in the graph; ascending if there are several blocks."""
    pointers: Counts
    """Where the edges to each node begin in ``sources``; one entry more than nodes."""
    sources: Places
    """The ghost that each edge comes from."""
    weights: Floats | None
    """Of each edge; None if all weigh 1."""
    out_weights: Floats
    """The weights of the edges that leave each node, added up."""
    ghosts: Keys
    """The keys of the ghosts, by block and ascending within it."""
    sends: tuple[Places, ...]
    """For each block, the nodes of this one that are its ghosts, in the order it keeps them."""

    @property
    def is_whole(self) -> bool:
        """Whether this block is the whole graph: a ghost then has the place of its node."""
        return self.blocks == 1

    @property
    def nodes(self) -> int:
        """How many nodes the block owns."""
        return len(self.pointers) - 1

    @property
    def in_degrees(self) -> Counts:
        """How many edges lead to each node."""
        return np.diff(self.pointers)

    def targets(self) -> Places:
        """The node that each edge leads to."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), self.in_degrees)

    def reduced(
        self, ufunc: np.ufunc, values: npt.NDArray[Value], empty: Any
    ) -> npt.NDArray[Value]:
        """A value for each node from those of the edges to it; ``empty`` where there are none."""
        result = np.full(self.nodes, empty, values.dtype)
        starts = self.pointers[:-1]
        some = self.pointers[1:] > starts
        if some.any():
            result[some] = ufunc.reduceat(values, starts[some])
        return result

    def sums(self, values: Floats) -> Floats:
        """For each node the values of the ghosts of its edges, by their weights, added up."""
        if self._matrix is not None:
            added: Floats = self._matrix @ values
            return added
        brought = values[self.sources]
        return self.reduced(
            np.add, brought if self.weights is None else brought * self.weights, 0.0
        )

    @cached_property
    def _matrix(self) -> Any:
        """The weights by node and ghost as a sparse matrix of SciPy, which adds faster than NumPy.

        None for few edges, which are added up before it is imported, and if it is not installed.
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
        """One by the weights that leave each node; zero where no edge does."""
        out = self.out_weights
        return np.divide(1.0, out, out=np.zeros(len(out)), where=out > 0)

    @cached_property
    def ends(self) -> Counts:
        """The nodes that no edge leaves."""
        return np.flatnonzero(self.out_weights <= 0)

    def places_of(self, keys: Keys) -> Counts:
        """The places of some nodes that this block owns."""
        return keys.astype(np.int64) if self.is_whole else np.searchsorted(self.keys, keys)

    def ghost_places(self, keys: Keys) -> tuple[Counts, npt.NDArray[np.bool_]]:
        """The places of some ghosts, and which of the keys are ghosts of this block."""
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
    """The indexes of several ranges, one range after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(begin - before, counts) + np.arange(int(counts.sum()))


# --- values of nodes as rows that a user reads ----------------------------------------------------


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
