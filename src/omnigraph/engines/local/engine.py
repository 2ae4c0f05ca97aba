"""The embedded engine: runs a plan in this process."""

from __future__ import annotations

import threading
from collections import OrderedDict

from omnigraph.engines.base import Execution
from omnigraph.engines.local.budget import MemoryBudget, configured_limit
from omnigraph.engines.local.prepare import PreparedRead, prepare
from omnigraph.engines.local.session import Session
from omnigraph.engines.local.settings import TraversalSettings
from omnigraph.engines.local.tables import GraphMemory, SnapshotTables
from omnigraph.engines.local.tail import answer
from omnigraph.model.result_json import ResultColumns
from omnigraph.query.plan import ReadPlan

_PREPARED_MAX = 512


class LocalEngine:
    """Runs plans over Arrow columns and adjacency kept in memory. Safe to share between threads."""

    name = "local"

    def __init__(
        self, settings: TraversalSettings | None = None, memory_limit: int | None = None
    ) -> None:
        self.settings = settings or TraversalSettings.from_environment()
        limit = configured_limit() if memory_limit is None else memory_limit
        self.memory = GraphMemory(MemoryBudget(limit))
        self._lock = threading.Lock()
        self._prepared: OrderedDict[int, tuple[ReadPlan, PreparedRead]] = OrderedDict()

    def execute(self, run: Execution) -> ResultColumns:
        """The rows of a plan over its snapshot."""
        prepared = self._prepare(run.plan)
        self.memory.budget.queries += 1
        tables = SnapshotTables(
            self.memory,
            run.reader,
            self.settings,
            prepared.node_columns,
            prepared.edge_columns,
        )
        session = Session(run, prepared, tables)
        if prepared.searches:
            session.search.check(prepared.searches)
        return answer(session)

    def _prepare(self, compiled: ReadPlan) -> PreparedRead:
        """What was worked out for this very plan object, or now."""
        known = self._prepared.get(id(compiled))
        if known is not None:
            return known[1]
        prepared = prepare(compiled)
        with self._lock:
            # The plan is kept with it, so that its id stays taken.
            self._prepared[id(compiled)] = (compiled, prepared)
            if len(self._prepared) > _PREPARED_MAX:
                self._prepared.popitem(last=False)
        return prepared
