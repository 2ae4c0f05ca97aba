"""Running a pattern: from one empty row to all solutions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from omnigraph.engines.base import StepReport
from omnigraph.engines.local.adjacency import allow_rows
from omnigraph.engines.local.edges import CachedEdges, EdgeTable, FetchedEdges
from omnigraph.engines.local.frame import Frame, Rows, joined
from omnigraph.engines.local.ids import ABSENT, Slots
from omnigraph.engines.local.joins import join_keys, matched_rows
from omnigraph.engines.local.nodes import NodeTable
from omnigraph.engines.local.paths import paths_from
from omnigraph.engines.local.prepare import PreparedPattern, PreparedStep, single_test
from omnigraph.engines.local.reach import Neighbours, reach, reaches
from omnigraph.engines.local.scan import masked_nodes, scanned
from omnigraph.engines.local.session import Session
from omnigraph.engines.local.values import FrameValues
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.explain import explain_step

_TAG = "#row"
"""The variable that remembers which outer row an inner solution extends."""


def match(session: Session) -> Frame:
    """All solutions of the plan's pattern, with the variables its tail reads."""
    return Matcher(session).run(session.prepared.pattern, Frame.unit())


@dataclass(slots=True)
class Matcher:
    """Steps over frames."""

    session: Session

    def run(
        self, pattern: PreparedPattern, frame: Frame, keep: frozenset[str] = frozenset()
    ) -> Frame:
        """The solutions that extend the rows of ``frame``; ``keep`` names columns to carry on."""
        trace = self.session.run.trace
        steps = pattern.steps
        at = 0
        while at < len(steps):
            one = steps[at]
            began = time.perf_counter()
            report = None
            if trace is not None:
                report = StepReport(explain_step(one.step), "", 0, 0.0)
                trace.steps.append(report)
            following = steps[at + 1] if at + 1 < len(steps) else None
            join = join_keys(one, following) if not frame.is_unit else None
            if join is not None and following is not None:
                # A scan whose rows are then compared with bound ones is a join on their values.
                frame, strategy = self._join(one, following, join, frame), "hash join"
                needed = following.needed
                at += 2
            else:
                frame, strategy = self._step(one, frame, one.needed | keep)
                needed = one.needed
                at += 1
            frame = frame.only(needed | keep)
            if report is not None:
                report.strategy, report.rows = strategy, frame.count
                report.seconds = time.perf_counter() - began
            if not frame.count and trace is None:
                # Nothing can come of nothing: the rest need not run.
                return _no_rows({*steps[-1].needed, *keep})
        return frame

    def _step(self, one: PreparedStep, frame: Frame, needed: frozenset[str]) -> tuple[Frame, str]:
        match one.step:
            case plan.Scan() as step:
                return self._scan(one, step, frame, needed)
            case plan.Expand() as step:
                return self._expand(step, frame, needed)
            case plan.FilterRows() as step:
                return self._where(step.predicates, frame, needed), "filter"
            case plan.Exclude():
                mask = self._has_solution(one.patterns[0], frame)
                return frame.only(needed).filter(~mask), "anti-join"
            case plan.Exists():
                mask = np.zeros(frame.count, np.bool_)
                for pattern in one.patterns:
                    left = np.flatnonzero(~mask)
                    mask[left] |= self._has_solution(pattern, frame.take(left))
                return frame.only(needed).filter(mask), "semi-join"
            case plan.Extend() as step:
                return self._extend(one.patterns[0], step, frame, needed), "left join"

    def _where(
        self,
        predicates: tuple[ex.Expression, ...],
        frame: Frame,
        needed: frozenset[str] | None = None,
    ) -> Frame:
        """The rows for which every predicate is true, with the columns that are ``needed``."""
        mask = FrameValues(self.session, frame).mask(predicates)
        kept = frame if needed is None else frame.only(needed)
        return kept if mask is None else kept.filter(mask)

    # --- scans ------------------------------------------------------------------------------------

    def _scan(
        self, one: PreparedStep, step: plan.Scan, frame: Frame, needed: frozenset[str]
    ) -> tuple[Frame, str]:
        slots, strategy = scanned(self.session, one)
        if frame.is_unit:
            return Frame(len(slots), {step.variable: slots}), strategy
        allow_rows(frame.count * len(slots))
        crossed = frame.take(np.repeat(np.arange(frame.count), len(slots)))
        if step.variable in needed:
            crossed = crossed.binding(step.variable, np.tile(slots, frame.count))
        return crossed, f"{strategy}, cross product"

    def _join(
        self,
        one: PreparedStep,
        following: PreparedStep,
        keys: tuple[tuple[ex.Expression, ex.Expression], ...],
        frame: Frame,
    ) -> Frame:
        """A scan and the equalities after it, by value instead of by pair."""
        assert isinstance(one.step, plan.Scan)
        assert isinstance(following.step, plan.FilterRows)
        slots, _ = scanned(self.session, one)
        new = Frame(len(slots), {one.step.variable: slots})
        left_values = FrameValues(self.session, frame)
        right_values = FrameValues(self.session, new)
        left, right = matched_rows(
            [left_values.column(bound) for bound, _ in keys],
            [right_values.column(fresh) for _, fresh in keys],
        )
        together = frame.take(left).binding(one.step.variable, slots[right])
        return self._where(following.step.predicates, together)

    # --- hops -------------------------------------------------------------------------------------

    def _expand(self, step: plan.Expand, frame: Frame, needed: frozenset[str]) -> tuple[Frame, str]:
        if step.maximum < step.minimum or not frame.count:
            return _no_rows(needed), "nothing"
        frame = self._with_ends(step, frame)
        sources = frame.bound[step.source]
        tables = self.session.tables
        edges = tables.edges(step, frame.count)
        strategy = "indexed lookups" if isinstance(edges, FetchedEdges) else "adjacency"
        # Sorted edges are about all nodes of a type; lookups only about those they meet.
        targets = tables.nodes(step.target_type, whole=isinstance(edges, CachedEdges))
        if step.edge_variable is not None:
            return self._bound_edges(step, frame, edges, targets), strategy
        if step.path_variable is not None:
            return self._paths(step, frame, edges, targets), strategy
        if step.target_is_bound:
            mask = self._is_linked(step, frame, edges, targets)
            return frame.only(needed).filter(mask), f"{strategy}, membership"
        neighbours = self._neighbours(step, edges, targets)
        if step.maximum == 1 and not neighbours.has_parallels and not step.predicates:
            found, counts = neighbours.gather(sources)
            if targets.present(found) is None:
                # Every neighbour counts: rows are repeated, and none has to be looked up again.
                expanded = frame.only(needed).repeat(counts)
                bound = expanded.binding(step.target, found) if step.target in needed else expanded
                return bound, strategy
        rows, found = reach(neighbours, sources, step.minimum, step.maximum)
        if step.maximum == 1:
            rows, found = _existing(targets, rows, found)
        kept = masked_nodes(self.session, step, targets, found)
        if kept is not None:
            rows, found = rows[kept], found[kept]
        expanded = frame.only(needed).take(rows)
        if step.target in needed:
            expanded = expanded.binding(step.target, found)
        return expanded, strategy

    def _is_linked(
        self, step: plan.Expand, frame: Frame, edges: EdgeTable, targets: NodeTable
    ) -> npt.NDArray[np.bool_]:
        """For each row, whether its target is among the destinations of its source."""
        sources, wanted = frame.bound[step.source], frame.bound[step.target]
        if step.maximum == 1:
            return edges.contains(step.direction, sources, wanted)
        neighbours = self._neighbours(step, edges, targets)
        return reaches(neighbours, sources, wanted, step.minimum, step.maximum)

    def _with_ends(self, step: plan.Expand, frame: Frame) -> Frame:
        """The rows that have something to start from: no hop leads from what was not found."""
        ends = [step.source, step.target] if step.target_is_bound else [step.source]
        for name in ends:
            info = self.session.prepared.variables.get(name)
            if info is not None and info.optional:
                frame = frame.filter(frame.bound[name] >= 0)
        return frame

    def _neighbours(self, step: plan.Expand, edges: EdgeTable, targets: NodeTable) -> Neighbours:
        neighbours = edges.neighbours(step.direction)
        # A search must not pass through a node that does not exist.
        return _PresentOnly(neighbours, targets) if step.maximum > 1 else neighbours

    def _bound_edges(
        self,
        step: plan.Expand,
        frame: Frame,
        edges: EdgeTable,
        targets: NodeTable,
    ) -> Frame:
        """One row per stored edge."""
        assert step.edge_variable is not None
        self.session.edges_of[step.edge_variable] = edges
        found_edges, found, counts = edges.at(step.direction, frame.bound[step.source])
        rows = np.repeat(np.arange(frame.count), counts)
        if step.target_is_bound:
            same = found == frame.bound[step.target][rows]
            rows, found_edges = rows[same], found_edges[same]
            expanded = frame.take(rows)
        else:
            present = targets.present(found)
            if present is not None:
                rows, found, found_edges = rows[present], found[present], found_edges[present]
            expanded = frame.take(rows).binding(step.target, found)
        expanded = expanded.binding(step.edge_variable, found_edges)
        return self._where(step.predicates, expanded)

    def _paths(
        self,
        step: plan.Expand,
        frame: Frame,
        edges: EdgeTable,
        targets: NodeTable,
    ) -> Frame:
        """One shortest path per pair."""
        assert step.path_variable is not None
        neighbours = _PresentOnly(edges.neighbours(step.direction), targets)
        tables = self.session.tables
        spaces = tables.space(step.source_type), tables.space(step.target_type)
        ends = frame.bound.get(step.target) if step.target_is_bound else None
        rows: list[int] = []
        found: list[int] = []
        numbers: list[int] = []
        known: dict[int, dict[int, int]] = {}
        for row, source in enumerate(frame.bound[step.source].tolist()):
            if source not in known:
                ways = paths_from(neighbours, spaces, source, step.minimum, step.maximum)
                known[source] = {end: self.session.paths.add(way) for end, way in ways.items()}
            reached = known[source]
            if ends is not None:
                end = int(ends[row])
                reached = {end: reached[end]} if end in reached else {}
            rows += [row] * len(reached)
            found += reached.keys()
            numbers += reached.values()
        expanded = frame.take(np.array(rows, np.int64))
        if ends is None:
            expanded = expanded.binding(step.target, np.array(found, np.int32))
        expanded = expanded.binding(step.path_variable, np.array(numbers, np.int32))
        return self._where(step.predicates, expanded)

    # --- blocks -----------------------------------------------------------------------------------

    def _has_solution(self, pattern: PreparedPattern, frame: Frame) -> npt.NDArray[np.bool_]:
        """For each row, whether some solution of the pattern extends it."""
        mask = np.zeros(frame.count, np.bool_)
        if not frame.count:
            return mask
        test = single_test(pattern)
        if test is not None and not self._reads_optional(test):
            # The inner pattern binds nothing: no need to remember where its rows came from.
            edges = self.session.tables.edges(test, frame.count)
            targets = self.session.tables.nodes(test.target_type)
            return self._is_linked(test, frame, edges, targets)
        tagged = frame.only(pattern.reads).binding(_TAG, np.arange(frame.count, dtype=np.int32))
        found = self.run(pattern, tagged, frozenset([_TAG]))
        mask[found.bound[_TAG]] = True
        return mask

    def _reads_optional(self, step: plan.Expand) -> bool:
        variables = self.session.prepared.variables
        return variables[step.source].optional or variables[step.target].optional

    def _extend(
        self,
        pattern: PreparedPattern,
        step: plan.Extend,
        frame: Frame,
        needed: frozenset[str],
    ) -> Frame:
        """Every row with its solutions, or with nothing bound where there is none."""
        tagged = frame.only(pattern.reads).binding(_TAG, np.arange(frame.count, dtype=np.int32))
        inner = self.run(pattern, tagged, frozenset([_TAG]))
        origin = inner.bound[_TAG]
        new = [name for name in step.introduces if name in needed]
        matched = frame.take(origin)
        for name in new:
            matched = matched.binding(name, inner.bound[name])
        alone = np.ones(frame.count, np.bool_)
        alone[origin] = False
        unmatched = frame.take(np.flatnonzero(alone))
        for name in new:
            unmatched = unmatched.binding(name, np.full(unmatched.count, ABSENT, np.int32))
        return joined([matched, unmatched])


def _no_rows(names: Iterable[str]) -> Frame:
    return Frame(0, {name: np.zeros(0, np.int32) for name in names})


def _existing(targets: NodeTable, rows: Rows, found: Slots) -> tuple[Rows, Slots]:
    present = targets.present(found)
    return (rows, found) if present is None else (rows[present], found[present])


class _PresentOnly:
    """Neighbours without those that no longer exist."""

    def __init__(self, neighbours: Neighbours, nodes: NodeTable) -> None:
        self._neighbours = neighbours
        self._nodes = nodes

    @property
    def has_parallels(self) -> bool:
        return self._neighbours.has_parallels

    @property
    def has_loops(self) -> bool:
        return self._neighbours.has_loops

    @property
    def node_count(self) -> int:
        return self._neighbours.node_count

    def gather(self, slots: Slots) -> tuple[Slots, npt.NDArray[np.int64]]:
        found, counts = self._neighbours.gather(slots)
        present = self._nodes.present(found)
        if present is None:
            return found, counts
        owners = np.repeat(np.arange(len(slots)), counts)[present]
        return found[present], np.bincount(owners, minlength=len(slots))
