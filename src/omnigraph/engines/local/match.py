"""Runs a pattern: from one empty row to all solutions."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.base import StepReport
from omnigraph.engines.local import order
from omnigraph.engines.local.bindings import (
    UNCOUNTED_ROWS,
    BindingTable,
    BindingValues,
    Bound,
    Rows,
    joined,
)
from omnigraph.engines.local.edges import CachedEdges, EdgeTable, FetchedEdges
from omnigraph.engines.local.grouping import codes_of
from omnigraph.engines.local.ids import ABSENT, Slots
from omnigraph.engines.local.nodes import NodeTable
from omnigraph.engines.local.paths import LOW
from omnigraph.engines.local.prepared import (
    PreparedFromOne,
    PreparedPattern,
    PreparedStep,
    single_test,
)
from omnigraph.engines.local.reach import Neighbours, PresentOnly, reach
from omnigraph.engines.local.scan import masked_nodes, scanned, with_ids
from omnigraph.engines.local.sorting import (
    reserve_rows,
    sorted_distinct,
    spread_values,
    stable_order,
)
from omnigraph.engines.local.tables import Session
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.explain import explain_step

if TYPE_CHECKING:
    from omnigraph.engines.local.path_hops import PathHop

_TAG = "#row"
"""The column with the number of the outer row that an inner solution extends."""


def match(session: Session) -> BindingTable:
    """All solutions of the plan's pattern, with the variables that later stages read."""
    return PatternMatcher(session).run(session.prepared.pattern, BindingTable.unit())


@dataclass(slots=True)
class PatternMatcher:
    """Runs steps over binding tables."""

    session: Session

    def run(
        self, pattern: PreparedPattern, frame: BindingTable, keep: frozenset[str] = frozenset()
    ) -> BindingTable:
        """The solutions that extend the rows of ``frame``; ``keep`` names columns to carry on."""
        trace = self.session.run.trace
        governor = self.session.governor
        steps = pattern.steps
        held = 0
        at = 0
        expected = float(frame.count)
        while at < len(steps):
            one = steps[at]
            report = None
            if trace is not None:
                began = time.perf_counter()
                expected = order.expected_rows(one.step, expected, self.session.tables.sizes)
                report = StepReport(explain_step(one.step), "", 0, 0.0, expected)
                trace.steps.append(report)
            following = steps[at + 1] if at + 1 < len(steps) else None
            join = join_keys(one, following) if not frame.is_unit else None
            listed = listed_ids(one, following) if not frame.is_unit else None
            if listed is not None and following is not None:
                frame, strategy = self._listed(one, following, listed, frame), "items of lists"
                needed = following.needed | keep
                at += 2
            elif join is not None and following is not None:
                # A scan followed by equalities with bound values is a hash join.
                frame, strategy = self._join(one, following, join, frame), "hash join"
                needed = following.needed | keep
                at += 2
                if report is not None:
                    sizes = self.session.tables.sizes
                    expected = order.expected_rows(following.step, expected, sizes)
                    report.expected_rows = expected
            else:
                needed = one.needed | keep if keep else one.needed
                frame, strategy = self._step(one, frame, needed)
                at += 1
            frame = frame.only(needed)
            if report is not None:
                report.strategy, report.rows = strategy, frame.count
                report.seconds = time.perf_counter() - began
            if held or frame.count > UNCOUNTED_ROWS:
                held = governor.hold_instead(held, frame.nbytes)
            else:
                governor.check()
            if not frame.count and trace is None:
                # Empty table: no later step can produce rows.
                return _no_rows({*steps[-1].needed, *keep})
        if held:
            governor.release(held)
        return frame

    def _step(
        self, one: PreparedStep, frame: BindingTable, needed: frozenset[str]
    ) -> tuple[BindingTable, str]:
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
            case plan.Stage() as step:
                return self._stage(step), "rows of the stage before"
            case plan.Compute():
                return frame, "where the value is read"
            case plan.Unnest() as step:
                return self._unnest(step, frame, needed), "items of lists"
            case _:
                assert_never(one.step)

    def _where(
        self,
        predicates: tuple[ex.Expression, ...],
        frame: BindingTable,
        needed: frozenset[str] | None = None,
    ) -> BindingTable:
        """The rows for which every predicate is true, with the columns that are ``needed``."""
        mask = BindingValues(self.session, frame).mask(predicates)
        kept = frame if needed is None else frame.only(needed)
        return kept if mask is None else kept.filter(mask)

    # --- scans ------------------------------------------------------------------------------------

    def _stage(self, step: plan.Stage) -> BindingTable:
        """The rows of the stage before: its nodes are bound again, its values get numbers."""
        rows = self.session.staged
        assert rows is not None
        columns = dict(zip(rows.names, rows.arrays, strict=True))
        bound: dict[str, Bound] = {}
        for node in step.nodes:
            bound[node.name] = columns[node.name].fill_null(ABSENT).to_numpy()
        numbers = np.arange(rows.row_count, dtype=np.int32)
        for value in step.values:
            self.session.values_of[value.variable] = columns[value.name]
            bound[value.variable] = numbers
        return BindingTable(rows.row_count, bound)

    def _unnest(
        self, step: plan.Unnest, frame: BindingTable, needed: frozenset[str]
    ) -> BindingTable:
        """A row for each item of a list; the items are numbered values."""
        lists = BindingValues(self.session, frame).column(step.list)
        counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        reserve_rows(int(counts.sum()), 4 * len(needed) + 8)
        expanded = frame.only(needed).repeat(counts)
        if step.variable not in needed:
            return expanded
        items = lists.flatten()
        # The pattern of a block may run several times: numbers of earlier runs stay valid.
        known = self.session.values_of.get(step.variable)
        start = 0 if known is None else len(known)
        self.session.values_of[step.variable] = (
            items if known is None else pa.concat_arrays([known, items])
        )
        numbers = np.arange(start, start + len(items), dtype=np.int32)
        return expanded.binding(step.variable, numbers)

    def _scan(
        self, one: PreparedStep, step: plan.Scan, frame: BindingTable, needed: frozenset[str]
    ) -> tuple[BindingTable, str]:
        slots, strategy = scanned(self.session, one)
        if frame.is_unit:
            return BindingTable(len(slots), {step.variable: slots}), strategy
        reserve_rows(frame.count * len(slots), 4 * len(needed) + 8)
        crossed = frame.only(needed).repeat(np.full(frame.count, len(slots)))
        if step.variable in needed:
            crossed = crossed.binding(step.variable, np.tile(slots, frame.count))
        return crossed, f"{strategy}, cross product"

    def _join(
        self,
        one: PreparedStep,
        following: PreparedStep,
        keys: tuple[tuple[ex.Expression, ex.Expression], ...],
        frame: BindingTable,
    ) -> BindingTable:
        """Run a scan and the equalities after it as a hash join."""
        assert isinstance(one.step, plan.Scan)
        assert isinstance(following.step, plan.FilterRows)
        slots, _ = scanned(self.session, one)
        new = BindingTable(len(slots), {one.step.variable: slots})
        left_values = BindingValues(self.session, frame)
        right_values = BindingValues(self.session, new)
        left, right = matched_rows(
            [left_values.column(bound) for bound, _ in keys],
            [right_values.column(fresh) for _, fresh in keys],
        )
        together = frame.take(left).binding(one.step.variable, slots[right])
        return self._where(following.step.predicates, together)

    def _listed(
        self,
        one: PreparedStep,
        following: PreparedStep,
        listed: ex.ListContains,
        frame: BindingTable,
    ) -> BindingTable:
        """Run a scan and a condition "id is in a list" after it: one row per id of the list."""
        assert isinstance(one.step, plan.Scan)
        assert isinstance(following.step, plan.FilterRows)
        lists = BindingValues(self.session, frame).column(listed.list)
        items = pc.list_flatten(lists)
        owners = pc.list_parent_indices(lists).to_numpy()
        slots = with_ids(self.session, one.step.type_name, items)
        reserve_rows(len(slots), 16)
        # A list may repeat an id.
        pairs = sorted_distinct((owners[slots >= 0].astype(np.int64) << 32) | slots[slots >= 0])
        together = frame.take(pairs >> 32).binding(
            one.step.variable, (pairs & LOW).astype(np.int32)
        )
        left = tuple(each for each in following.step.predicates if each is not listed)
        return self._where((*one.step.predicates, *left), together)

    # --- hops -------------------------------------------------------------------------------------

    def _expand(
        self, step: plan.Expand, frame: BindingTable, needed: frozenset[str]
    ) -> tuple[BindingTable, str]:
        if step.maximum < step.minimum or not frame.count:
            return _no_rows(needed), "nothing"
        frame = self._with_ends(step, frame)
        sources = frame.bound[step.source]
        tables = self.session.tables
        edges = tables.edges(step, frame.count)
        strategy = "indexed lookups" if isinstance(edges, FetchedEdges) else "adjacency"
        # Adjacency covers all nodes of a type; lookups only the nodes that they read.
        targets = tables.nodes(step.target_type, whole=isinstance(edges, CachedEdges))
        if step.edge_variable is not None:
            return self._bound_edges(step, frame, edges, targets), strategy
        if step.path_variable is not None:
            return self._paths(step, frame, edges, targets), strategy
        if step.target_is_bound:
            mask = self._is_linked(step, frame, edges, targets)
            return frame.only(needed).filter(mask), f"{strategy}, membership"
        neighbours = self.neighbours(step, edges, targets)
        if (
            step.minimum == step.maximum == 1
            and not neighbours.has_parallels
            and not step.predicates
        ):
            found, counts = neighbours.gather(sources)
            if targets.present(found) is None:
                # Every neighbour exists and is distinct: repeat the rows.
                expanded = frame.only(needed).repeat(counts)
                bound = expanded.binding(step.target, found) if step.target in needed else expanded
                return bound, strategy
        rows, found = reach(neighbours, sources, tables.minimum(step), step.maximum)
        if step.maximum == 1 or step.ends is not None or step.minimum == 0:
            rows, found = _existing(targets, rows, found)
        kept = masked_nodes(self.session, step, targets, found)
        if kept is not None:
            rows, found = rows[kept], found[kept]
        expanded = frame.only(needed).take(rows)
        if step.target in needed:
            expanded = expanded.binding(step.target, found)
        return expanded, strategy

    def _is_linked(
        self, step: plan.Expand, frame: BindingTable, edges: EdgeTable, targets: NodeTable
    ) -> npt.NDArray[np.bool_]:
        """For each row, whether its target is a destination of its source."""
        sources, wanted = frame.bound[step.source], frame.bound[step.target]
        if step.minimum == step.maximum == 1:
            return edges.contains(step.direction, sources, wanted)
        return self._path_hop(step, edges, targets).links(sources, wanted)

    def _with_ends(self, step: plan.Expand, frame: BindingTable) -> BindingTable:
        """The rows in which both ends are bound; optional variables may be unbound."""
        ends = [step.source, step.target] if step.target_is_bound else [step.source]
        for name in ends:
            info = self.session.prepared.variables.get(name)
            if info is not None and info.optional:
                frame = frame.filter(frame.bound[name] >= 0)
        return frame

    def neighbours(self, step: plan.Expand, edges: EdgeTable, targets: NodeTable) -> Neighbours:
        """The neighbours that a hop searches."""
        neighbours = edges.neighbours(step.direction)
        # A search of several hops must not pass through deleted nodes.
        if step.maximum <= 1:
            return neighbours
        return PresentOnly(neighbours, self._passed(step, targets).present)

    def _passed(self, step: plan.Expand, targets: NodeTable) -> NodeTable:
        """The nodes that a search may pass through; its targets may be of fewer types."""
        if step.ends is None:
            return targets
        return self.session.tables.nodes(step.declared[1])

    def _bound_edges(
        self,
        step: plan.Expand,
        frame: BindingTable,
        edges: EdgeTable,
        targets: NodeTable,
    ) -> BindingTable:
        """One row per stored edge."""
        assert step.edge_variable is not None
        self.session.edges_of[step.edge_variable] = edges
        sources = frame.bound[step.source]
        if step.target_is_bound:
            wanted = frame.bound[step.target]
            found_edges, counts = edges.between(step.direction, sources, wanted)
            expanded = frame.repeat(counts)
        else:
            found_edges, found, counts = edges.at(step.direction, sources)
            rows = np.repeat(np.arange(frame.count), counts)
            present = targets.present(found)
            if present is not None:
                rows, found, found_edges = rows[present], found[present], found_edges[present]
            expanded = frame.take(rows).binding(step.target, found)
        expanded = expanded.binding(step.edge_variable, found_edges)
        return self._where(step.predicates, expanded)

    def _paths(
        self,
        step: plan.Expand,
        frame: BindingTable,
        edges: EdgeTable,
        targets: NodeTable,
    ) -> BindingTable:
        """The rows of a hop that binds a path."""
        assert step.path_variable is not None
        rows, found, numbers = self._path_hop(step, edges, targets).found(frame)
        expanded = frame.take(rows)
        if not step.target_is_bound:
            expanded = expanded.binding(step.target, found)
        expanded = expanded.binding(step.path_variable, numbers)
        if not step.target_is_bound and (step.ends is not None or step.minimum == 0):
            present = targets.present(found)
            expanded = expanded if present is None else expanded.filter(present)
        return self._where(step.predicates, expanded)

    def _path_hop(self, step: plan.Expand, edges: EdgeTable, targets: NodeTable) -> PathHop:
        from omnigraph.engines.local.path_hops import PathHop

        return PathHop.of(self.session, step, edges, self._passed(step, targets))

    # --- blocks -----------------------------------------------------------------------------------

    def _has_solution(self, pattern: PreparedPattern, frame: BindingTable) -> npt.NDArray[np.bool_]:
        """For each row, whether some solution of the pattern extends it."""
        mask = np.zeros(frame.count, np.bool_)
        if not frame.count:
            return mask
        test = single_test(pattern)
        if test is not None and not self._reads_optional(test):
            # The inner pattern binds no variables: test the pairs directly.
            edges = self.session.tables.edges(test, frame.count)
            targets = self.session.tables.nodes(test.target_type)
            return self._is_linked(test, frame, edges, targets)
        inside = self.from_inside(pattern, frame)
        if inside is not None:
            return same_binding(frame, inside, pattern.nodes) >= 0
        tagged = frame.only(pattern.reads).binding(_TAG, np.arange(frame.count, dtype=np.int32))
        found = self.run(pattern, tagged, frozenset([_TAG]))
        mask[found.bound[_TAG]] = True
        return mask

    def from_inside(self, pattern: PreparedPattern, frame: BindingTable) -> BindingTable | None:
        """Solutions of a block found without testing each row; None if that is not cheaper.

        They are all solutions of the block, or those for the nodes that one variable is bound to.
        """
        rows = frame.count
        inside = pattern.inside
        if inside is not None and rows * inside.each_row >= order.WORTH_INSIDE:
            values = _shared_binding(frame, inside.values)
            start = None if values is None else self.run(inside.start, values)
            gain = rows * inside.each_row / order.GAIN_MIN
            if start is not None and start.count * inside.each_start <= gain:
                return self.run(inside.rest, start, pattern.reads) if inside.rest.steps else start
        best: tuple[float, PreparedFromOne, Bound] | None = None
        for one in pattern.from_one:
            if rows * one.each_row >= order.WORTH_INSIDE:
                nodes = sorted_distinct(frame.bound[one.name].copy())
                cost = len(nodes) * one.each_start
                if cost * order.GAIN_MIN <= rows * one.each_row and (not best or cost < best[0]):
                    best = cost, one, nodes
        if best is None:
            return None
        _, one, nodes = best
        return self.run(one.pattern, BindingTable(len(nodes), {one.name: nodes}), pattern.reads)

    def _reads_optional(self, step: plan.Expand) -> bool:
        variables = self.session.prepared.variables
        return variables[step.source].optional or variables[step.target].optional

    def _extend(
        self,
        pattern: PreparedPattern,
        step: plan.Extend,
        frame: BindingTable,
        needed: frozenset[str],
    ) -> BindingTable:
        """Every row with its solutions; unbound variables where there is none (outer join)."""
        inside = self.from_inside(pattern, frame) if frame.count else None
        origin: Rows
        if inside is not None:
            origin, solutions = _matching_pairs(frame, inside, pattern.nodes)
            inner = inside.take(solutions)
        else:
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


def _shared_binding(frame: BindingTable, names: Collection[str]) -> BindingTable | None:
    """One row with the values that all rows share in some variables; None if they differ."""
    columns = {name: frame.bound[name] for name in names}
    if any(not len(each) or (each != each[0]).any() for each in columns.values()):
        return None
    return BindingTable(1, {name: each[:1] for name, each in columns.items()})


def same_binding(
    rows: BindingTable, among: BindingTable, names: Collection[str]
) -> npt.NDArray[np.int64]:
    """For each row, the number of a row of ``among`` with the same nodes; -1 if there is none."""
    if not among.count:
        return np.full(rows.count, -1)
    reserve_rows(rows.count + among.count, 16)
    if len(names) == 1:
        (name,) = names
        known, slots = among.bound[name], rows.bound[name]
        # The last entry stands for all slots beyond the known ones.
        place = np.full(int(known.max()) + 2, -1)
        place[known] = np.arange(among.count)
        return place.take(slots, mode="clip")
    wanted, keys = _keys(names, rows, among)
    by_key, distinct, begin = _keyed(keys)
    at = _places_among(distinct, wanted)
    return np.where(at >= 0, by_key[begin[np.maximum(at, 0)]], -1)


def _matching_pairs(
    rows: BindingTable, among: BindingTable, names: Collection[str]
) -> tuple[Rows, Rows]:
    """The pairs of a row and a row of ``among`` with the same nodes."""
    if not among.count:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    wanted, keys = _keys(names, rows, among)
    by_key, distinct, begin = _keyed(keys)
    at = _places_among(distinct, wanted)
    owners = np.flatnonzero(at >= 0)
    at = at[owners]
    counts = begin[at + 1] - begin[at]
    reserve_rows(int(counts.sum()), 16)
    return np.repeat(owners, counts), spread_values(by_key, begin[at], counts)


def _keyed(
    keys: npt.NDArray[np.int64],
) -> tuple[Rows, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row numbers sorted by key, the distinct keys, and where each of them begins."""
    by_key = stable_order(keys)
    ascending = keys[by_key]
    begin = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1]))
    return by_key, ascending[begin], np.append(begin, len(keys))


def _places_among(
    distinct: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The index of each wanted key, -1 where it is missing."""
    # Searching for sorted keys is several times faster.
    by_key = stable_order(wanted)
    ascending = wanted[by_key]
    at = np.searchsorted(distinct, ascending)
    hit = distinct.take(at, mode="clip") == ascending
    found = np.full(len(wanted), -1)
    found[by_key[hit]] = at[hit]
    return found


def _keys(names: Collection[str], *tables: BindingTable) -> list[npt.NDArray[np.int64]]:
    """One number per row for the nodes that one or two variables are bound to."""
    first, *more = sorted(names)
    found = [table.bound[first].astype(np.int64) for table in tables]
    for name in more:
        # As short as possible: short numbers are sorted faster.
        bits = max(int(table.bound[name].max(initial=0)) for table in tables).bit_length()
        found = [
            (keys << bits) | table.bound[name] for keys, table in zip(found, tables, strict=True)
        ]
    return found


def _no_rows(names: Iterable[str]) -> BindingTable:
    return BindingTable(0, {name: np.zeros(0, np.int32) for name in names})


def _existing(targets: NodeTable, rows: Rows, found: Slots) -> tuple[Rows, Slots]:
    present = targets.present(found)
    return (rows, found) if present is None else (rows[present], found[present])


# --- joins by value -------------------------------------------------------------------------------


JoinKeys = tuple[tuple[ex.Expression, ex.Expression], ...]
"""Pairs of an expression that is already bound and one of the scanned variable."""


def join_keys(scan: PreparedStep, following: PreparedStep | None) -> JoinKeys | None:
    """The equalities by which a scan can be joined to the previous rows; None if there are none."""
    if not isinstance(scan.step, plan.Scan) or following is None:
        return None
    if not isinstance(following.step, plan.FilterRows):
        return None
    variable = scan.step.variable
    keys = []
    for predicate in following.step.predicates:
        if not (isinstance(predicate, ex.Compare) and predicate.operator == "="):
            continue
        for bound, fresh in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
            outside = ex.variables_of(bound)
            if (
                ex.variables_of(fresh) == {variable}
                and outside
                and variable not in outside
                and _joinable(bound)
                and _joinable(fresh)
                and bound.type.scalar == fresh.type.scalar
            ):
                keys.append((bound, fresh))
    return tuple(keys) or None


def listed_ids(scan: PreparedStep, following: PreparedStep | None) -> ex.ListContains | None:
    """The condition that the id of a scanned node is in a list of the previous rows, if any."""
    if not isinstance(scan.step, plan.Scan) or following is None or scan.parts or scan.patterns:
        return None
    if not isinstance(following.step, plan.FilterRows) or scan.step.entity_id is not None:
        return None
    variable = scan.step.variable
    for predicate in following.step.predicates:
        if isinstance(predicate, ex.ListContains) and isinstance(predicate.item, ex.EntityId):
            outside = ex.variables_of(predicate.list)
            if predicate.item.variable == variable and outside and variable not in outside:
                return predicate
    return None


def _joinable(expression: ex.Expression) -> bool:
    """Whether equal values have equal codes: values of rows, except floats."""
    kinds = (ex.PropertyValue, ex.EntityId, ex.BoundValue)
    return (
        isinstance(expression, kinds)
        and expression.type.is_plain_scalar
        and expression.type.scalar not in (Scalar.F32, Scalar.F64)
    )


def matched_rows(
    left: list[pa.Array], right: list[pa.Array]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The pairs of rows with equal values in every column; null equals nothing."""
    size = len(left[0])
    together = [pa.concat_arrays([one, other]) for one, other in zip(left, right, strict=True)]
    valid = np.ones(size + len(right[0]), np.bool_)
    for column in together:
        if column.null_count:
            valid &= column.is_valid().to_numpy(zero_copy_only=False)
    codes = codes_of(together).codes
    left_codes, right_codes = codes[:size], codes[size:]
    right_rows = np.flatnonzero(valid[size:])
    order = right_rows[stable_order(right_codes[right_rows])]
    ordered = right_codes[order]
    left_rows = np.flatnonzero(valid[:size])
    begin = np.searchsorted(ordered, left_codes[left_rows])
    counts = np.searchsorted(ordered, left_codes[left_rows], side="right") - begin
    reserve_rows(int(counts.sum()), 16)
    return np.repeat(left_rows, counts), spread_values(order, begin, counts)
