"""One run of one prepared plan: everything its parts share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.engines.base import Execution
from omnigraph.engines.local.edges import EdgeTable
from omnigraph.engines.local.paths import PathStore
from omnigraph.engines.local.prepare import PreparedRead
from omnigraph.engines.local.rows import Positions
from omnigraph.engines.local.tables import SnapshotTables

if TYPE_CHECKING:
    from omnigraph.engines.local.search import Search


@dataclass(slots=True)
class Session:
    """The tables of the snapshot, the run's parameters, and what steps leave for later ones."""

    run: Execution
    prepared: PreparedRead
    tables: SnapshotTables
    edges_of: dict[str, EdgeTable] = field(default_factory=dict)
    """Where the values of an edge variable are read."""
    paths: PathStore = field(default_factory=PathStore)
    search: Search = field(init=False)

    def __post_init__(self) -> None:
        from omnigraph.engines.local.search import Search

        self.search = Search(self)

    def edge_values(
        self, variable: str, property: str, type: pa.DataType, edges: Positions
    ) -> pa.Array:
        """A stored column of the edges a variable is bound to; null where there is none."""
        table = self.edges_of.get(variable)
        # The steps of an optional match may end before its edges are ever looked at.
        return pa.nulls(len(edges), type) if table is None else table.values(property, type, edges)

    def last_row(self) -> int | None:
        """How many rows, in order, the answer needs; None for all."""
        compiled = self.prepared.compiled
        limit = self.run.row_count(compiled.limit)
        return None if limit is None else limit + (self.run.row_count(compiled.offset) or 0)
