"""Groups solutions without materialising the last hop.

Most aggregates are about the destinations of the last hop, which has the most rows, none of them
part of the result. Where only the number of destinations matters it is taken from the degrees;
otherwise the hop is expanded in blocks that fit into the processor cache, each grouped on its own,
so that memory stays bounded.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from omnigraph.engines.base import StepReport, Trace
from omnigraph.engines.local.adjacency import SortedEdges
from omnigraph.engines.local.bindings import BindingTable, BindingValues, Bound, Floats, Rows
from omnigraph.engines.local.edges import CachedEdges
from omnigraph.engines.local.grouping import PartialGroups, part_of, united
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.match import PatternMatcher
from omnigraph.engines.local.order import expected_rows
from omnigraph.engines.local.prepared import LastHop
from omnigraph.engines.local.sorting import Counts
from omnigraph.engines.local.tables import Session
from omnigraph.engines.local.trees import tree_groups
from omnigraph.model.records import dataclass
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.evaluate import ColumnExpression
from omnigraph.query.explain import explain_step

BLOCK_ROWS = 1 << 19
"""Number of solutions grouped at a time."""


def groups_of(session: Session, by: plan.GroupBy) -> tuple[dict[str, pa.Array], int]:
    """The columns of the grouped solutions by name, and how many groups there are."""
    tree = session.prepared.tree
    if tree is not None:
        counted = tree_groups(session, tree, by)
        if counted is not None:
            return counted
    matcher = PatternMatcher(session)
    last = session.prepared.last_hop
    if last is None:
        frame = matcher.run(session.prepared.pattern, BindingTable.unit())
        return united([part_of(BindingValues(session, frame), by)], by)
    frame = matcher.run(last.before, BindingTable.unit())
    return united(_Hop(session, matcher, last, by).parts(frame), by)


@dataclass(slots=True)
class _Hop:
    session: Session
    matcher: PatternMatcher
    last: LastHop
    by: plan.GroupBy

    def parts(self, frame: BindingTable) -> list[PartialGroups]:
        """The groups of the rows that the last hop produces, in one or more parts."""
        adjacency = self._adjacency(frame)
        if adjacency is not None:
            sources = frame.bound[self.last.step.source]
            if self.last.is_counted:
                times = self._times(adjacency, sources)
                if times is not None:
                    return [self._counted(frame, times)]
            degrees = adjacency.degrees(sources)
            if int(degrees.sum()) > BLOCK_ROWS:
                return self._in_blocks(adjacency, frame, degrees)
        whole = self.matcher.run(self.last.rest, frame)
        return [part_of(BindingValues(self.session, whole), self.by)]

    def _adjacency(self, frame: BindingTable) -> SortedEdges | None:
        """The edges of the hop if they are in memory, otherwise None."""
        if not frame.count:
            return None
        step = self.last.step
        edges = self.session.tables.edges(step, frame.count)
        if not isinstance(edges, CachedEdges):
            return None
        return edges.sorted_edges(step.direction, frame.count)

    def _all_count(self, adjacency: SortedEdges) -> bool:
        """Whether every neighbour counts as exactly one destination of the hop."""
        if adjacency.has_parallels or self.last.step.predicates:
            return False
        targets = self.session.tables.nodes(self.last.step.target_type, whole=True)
        return adjacency.all_neighbours(targets.present)

    # --- counting ---------------------------------------------------------------------------------

    def _times(self, adjacency: SortedEdges, sources: Slots) -> Counts | None:
        """The number of destinations of each row; None if the hop has to be expanded to know."""
        if not self._all_count(adjacency):
            return None
        degrees = adjacency.degrees(sources)
        unless = self.last.unless
        if unless is None:
            return degrees
        edges = self.session.tables.edges(unless, len(sources))
        if not isinstance(edges, CachedEdges):
            return None
        ahead = unless.source == self.last.step.source
        excluded = edges.sorted_edges(
            unless.direction if ahead else plan.FLIPPED[unless.direction], len(sources)
        )
        if excluded.has_parallels or excluded.degrees(sources).sum() > degrees.sum():
            return None
        # There are fewer excluded edges than followed ones: intersect from the excluded side.
        found, counts = excluded.gather(sources)
        rows = np.repeat(np.arange(len(sources)), counts)
        both = adjacency.contains(sources[rows], found)
        return degrees - np.bincount(rows[both], minlength=len(sources))

    def _counted(self, frame: BindingTable, times: Counts) -> PartialGroups:
        trace = self.session.run.trace
        if trace is not None:
            rows = int(times.sum())
            for one in self.last.rest.steps:
                text = explain_step(one.step)
                expected = self._expected(one.step, trace)
                trace.steps.append(StepReport(text, "adjacency, counted", rows, 0.0, expected))
        some = times > 0
        values = BindingValues(self.session, frame.filter(some))
        return part_of(values, self.by, times=times[some])

    def _expected(self, step: plan.Step, trace: Trace) -> float | None:
        """Expected rows after a step, from those after the step before; None if unknown."""
        before = trace.steps[-1].expected_rows if trace.steps else None
        return None if before is None else expected_rows(step, before, self.session.tables.sizes)

    # --- blocks -----------------------------------------------------------------------------------

    def _in_blocks(
        self, adjacency: SortedEdges, frame: BindingTable, degrees: Counts
    ) -> list[PartialGroups]:
        ends = np.cumsum(degrees)
        in_all = int(ends[-1])
        cuts = np.searchsorted(ends, np.arange(BLOCK_ROWS, in_all, BLOCK_ROWS))
        bounds = np.unique(np.concatenate([[0], cuts, [frame.count]]))
        as_runs = not self.last.after.steps and self._all_count(adjacency)
        parts: list[PartialGroups] = []
        trace = self.session.run.trace
        mark = 0 if trace is None else len(trace.steps)
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            began = time.perf_counter()
            block = frame.part(start, stop)
            values = (
                self._runs(adjacency, block, ends[start:stop] - (ends[start] - degrees[start]))
                if as_runs
                else BindingValues(self.session, self.matcher.run(self.last.rest, block))
            )
            parts.append(part_of(values, self.by, rows_in_all=in_all))
            if trace is not None and as_runs:
                hop = explain_step(self.last.step)
                seconds = time.perf_counter() - began
                rows, expected = values.frame.count, self._expected(self.last.step, trace)
                trace.steps.append(StepReport(hop, "adjacency", rows, seconds, expected))
        if trace is not None:
            trace.steps[mark:] = _folded(trace.steps[mark:], len(parts))
        return parts

    def _runs(self, adjacency: SortedEdges, block: BindingTable, ends: Counts) -> BindingValues:
        step = self.last.step
        found, counts = adjacency.gather(block.bound[step.source])
        return _Runs(BindingValues(self.session, block), counts, ends, step.target, found)


def _folded(reports: list[StepReport], blocks: int) -> list[StepReport]:
    """The reports of all blocks, added up per step."""
    steps = len(reports) // blocks
    return [
        StepReport(
            reports[at].step,
            f"{reports[at].strategy}, in {blocks} blocks",
            sum(report.rows for report in reports[at::steps]),
            sum(report.seconds for report in reports[at::steps]),
            reports[at].expected_rows,
        )
        for at in range(steps)
    ]


class _Runs(BindingValues):
    """Rows after the hop: each is a row before the hop with one of its destinations.

    Values from before the hop are read once per such row and repeated.
    """

    def __init__(
        self, before: BindingValues, counts: Counts, ends: Counts, target: str, found: Slots
    ) -> None:
        super().__init__(before.session, BindingTable(len(found), {target: found}))
        self._before = before
        self._counts = counts
        self._ends = ends
        self._target = target

    def slots(self, variable: str) -> Bound:
        if variable == self._target:
            return super().slots(variable)
        return np.repeat(self._before.slots(variable), self._counts)

    def taken(self, rows: Rows) -> BindingValues:
        origins = np.searchsorted(self._ends, rows, side="right")
        found = self.frame.bound[self._target].take(rows)
        taken = self._before.frame.take(origins).binding(self._target, found)
        return BindingValues(self.session, taken)

    def floats(self, column: ex.Expression) -> Floats | None:
        if self._target in ex.variables_of(column):
            return super().floats(column)
        numbers = self._before.floats(column)
        return None if numbers is None else np.repeat(numbers, self._counts)

    def _read(self, leaf: ColumnExpression) -> pa.Array:
        if self._target in ex.variables_of(leaf) or isinstance(leaf, ex.OutputValue):
            return super()._read(leaf)
        column = self._before(leaf)
        rows = np.repeat(np.arange(len(column), dtype=np.int32), self._counts)
        return column.take(pa.array(rows))
