"""Aggregates over tree-shaped patterns, without a row per solution.

The number of solutions below a node is the product, over the hops that leave it, of the sums over
its neighbours. So a vector with one number per node is passed through every hop, from the leaves
towards the variables of the groups, and a hop costs as much as it has edges, however many paths use
it. A leaf without conditions is not even read: its sum is a degree.

Sums, extremes and counts of an argument at another node work the same way: the vector starts there
with the values of the argument, and is multiplied by numbers of solutions on the way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import field
from typing import Literal

import numpy as np
import pyarrow as pa

from omnigraph.engines.base import StepReport
from omnigraph.engines.local.adjacency import Adjacency, SortedEdges
from omnigraph.engines.local.bindings import BindingTable, BindingValues
from omnigraph.engines.local.edge_order import EdgeOrder
from omnigraph.engines.local.edges import CachedEdges
from omnigraph.engines.local.grouping import (
    GroupSizes,
    GroupValues,
    PartialGroups,
    Sums,
    Total,
    part_of,
    united,
)
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.match import PatternMatcher
from omnigraph.engines.local.node_numbers import (
    CarriedAggregate,
    EdgeNumbers,
    NodeSet,
    NotCounted,
    Values,
    added_along,
    counted_from_far,
    product_of,
    require_countable,
    total_along,
)
from omnigraph.engines.local.nodes import CachedNodes
from omnigraph.engines.local.order import expected_rows
from omnigraph.engines.local.prepared import Tree, TreeHop
from omnigraph.engines.local.reach import expected_reach, reach
from omnigraph.engines.local.rows import Mask
from omnigraph.engines.local.scan import masked_nodes, scanned
from omnigraph.engines.local.sorting import BLOCK_ROWS, blocks, sorted_distinct
from omnigraph.engines.local.tables import Session
from omnigraph.errors import InputError
from omnigraph.model.arrow import arrow_type
from omnigraph.model.records import dataclass
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.evaluate import ColumnExpression
from omnigraph.query.explain import explain_step

ROWS_WORTH_COUNTING = 4_096
"""If fewer solutions are expected, they are made as rows."""

_DENSE_SHARE = 4
"""From this share of all nodes on, a vector has an entry for each of them."""


def tree_groups(
    session: Session, tree: Tree, by: plan.GroupBy
) -> tuple[dict[str, pa.Array], int] | None:
    """The columns of the groups by name, and their number; None if rows have to be made."""
    trace = session.run.trace
    mark = 0 if trace is None else len(trace.steps)
    parts: list[PartialGroups] = []
    rows = _TreeCount(session, PatternMatcher(session), tree, by).rows()
    while True:
        try:
            some = next(rows, None)
        except (NotCounted, InputError):
            # Rows do not read values of nodes without a solution, so they may not meet the error.
            if trace is not None:
                del trace.steps[mark:]
            return None
        if some is None:
            return united(parts, by)
        values = BindingValues(session, some.frame)
        parts.append(part_of(values, by, times=some.times, by_row=some.by_row))


@dataclass(slots=True)
class _Factor:
    """The factor that the branch at a core variable contributes to the rows of the core."""

    variable: str
    domain: NodeSet
    values: Values | None
    """The number of solutions of each node; None if it is 1 for all."""

    def of(self, frame: BindingTable) -> Values | None:
        """The factor by row."""
        if self.values is None:
            return None
        bound = frame.bound[self.variable]
        if bound is self.domain.slots:
            return self.values
        return self.domain.at(self.values, bound)


@dataclass(frozen=True, slots=True)
class _CoreRows:
    """Rows of the core, the number of solutions of each, and their carried aggregates."""

    frame: BindingTable
    times: Values
    by_row: dict[str, Total]


@dataclass(slots=True)
class _TreeCount:
    session: Session
    matcher: PatternMatcher
    tree: Tree
    by: plan.GroupBy
    _root: NodeSet | None = None
    _strategy: str = ""
    _masks: dict[str, Mask | None] = field(default_factory=dict)
    _whole: dict[str, Values | None] = field(default_factory=dict)
    """Numbers of solutions that were computed for all nodes of a variable, by variable."""
    _arrived: dict[tuple[str, bool], tuple[CarriedAggregate, _Factor]] = field(default_factory=dict)
    """Aggregates that were carried from the root, by name and whether they are counts."""
    _solutions_found: float = 0.0

    def rows(self) -> Iterator[_CoreRows]:
        """The rows of the core, in one or more parts."""
        expected = self._expected(1)
        if self._scan.entity_id is not None and expected < ROWS_WORTH_COUNTING:
            raise NotCounted
        began = time.perf_counter()
        slots, self._strategy = scanned(self.session, self.tree.root)
        if len(slots) * expected < ROWS_WORTH_COUNTING:
            raise NotCounted
        top = self.tree.core[0]
        above: Values | None = None
        if top == self._scan.variable:
            frame = BindingTable(len(slots), {top: slots})
        else:
            self._root = self._root_domain(self._tested(self._scan.variable, slots))
            domain, above = self._from_root(None)
            some = np.flatnonzero(above)
            above = above.take(some)
            frame = BindingTable(len(some), {top: domain.slots.take(some)})
        for part, times in self._frames(frame, above):
            yield self._core_rows(part, times)
        self._report(len(slots), time.perf_counter() - began)

    # --- tables -----------------------------------------------------------------------------------

    @property
    def _scan(self) -> plan.Scan:
        assert isinstance(self.tree.root.step, plan.Scan)
        return self.tree.root.step

    def _expected(self, start: int) -> float:
        """The expected number of solutions for ``start`` nodes of the root."""
        tables = self.session.tables
        rows = float(start)
        for hop in self.tree.hops.values():
            nodes = max(tables.node_count(hop.step.source_type), 1)
            degree = tables.edge_count(hop.step.edge_type) / nodes
            rows *= expected_reach(degree, hop.step.maximum)
        return rows

    def _nodes(self, variable: str) -> CachedNodes:
        hop = self.tree.hops.get(variable)
        type_name = self._scan.type_name if hop is None else hop.step.target_type
        nodes = self.session.tables.nodes(type_name, whole=True)
        if not isinstance(nodes, CachedNodes):
            raise NotCounted
        return nodes

    def _edges(self, hop: TreeHop) -> CachedEdges:
        edges = self.session.tables.edges(hop.step, ROWS_WORTH_COUNTING)
        if not isinstance(edges, CachedEdges):
            raise NotCounted
        return edges

    def _adjacency(self, hop: TreeHop, *, backwards: bool = False) -> SortedEdges:
        direction = plan.FLIPPED[hop.step.direction] if backwards else hop.step.direction
        edges = self._edges(hop)
        # With an edge variable parallel edges count separately; without one, each neighbour once.
        variable = hop.step.edge_variable
        if variable is None:
            return edges.links(direction)
        if direction != "both" and (hop.of_edge or variable in self.tree.carried.values()):
            # The values of the edges will be read: one sort gives the order and the adjacency.
            return edges.sorted_order(direction).adjacency
        return edges.sorted_edges(direction)

    def _all(self, variable: str) -> NodeSet:
        size = len(self._nodes(variable).space)
        self.session.governor.reserve(24 * size)
        return NodeSet(np.arange(size, dtype=np.int32), True)

    def _root_domain(self, slots: Slots) -> NodeSet:
        variable = self._scan.variable
        whole = self._all(variable)
        if len(slots) * _DENSE_SHARE <= len(whole.slots):
            return NodeSet(sorted_distinct(slots.copy()), False)
        mask: Mask | None = None
        if len(slots) < len(whole.slots):
            mask = np.zeros(len(whole.slots), np.bool_)
            mask[slots] = True
        self._masks[variable] = mask
        return whole

    # --- edges ------------------------------------------------------------------------------------

    @property
    def _edge_ends(self) -> dict[str, str]:
        """The target of each hop with an edge variable, by that variable."""
        return {
            hop.step.edge_variable: name
            for name, hop in self.tree.hops.items()
            if hop.step.edge_variable is not None
        }

    def _edge_numbers(
        self,
        hop: TreeHop,
        slots: Slots,
        carried: CarriedAggregate | None,
        *,
        backwards: bool = False,
        is_row_wise: bool = False,
    ) -> EdgeNumbers | None:
        """The numbers of a hop's edges at some nodes; None if each edge is one solution.

        With ``is_row_wise`` there is one number per edge of each node, node after node.
        """
        variable = hop.step.edge_variable
        is_argument = carried is not None and carried.variable == variable
        if variable is None or not (hop.of_edge or is_argument):
            return None
        direction = plan.FLIPPED[hop.step.direction] if backwards else hop.step.direction
        assert direction != "both"
        edges = self._edges(hop)
        self.session.edges_of[variable] = edges
        order = edges.sorted_order(direction)
        adjacency = order.adjacency
        count = int(adjacency.degrees(slots).sum())
        argument = carried if is_argument else None
        if count * _DENSE_SHARE <= len(order.positions):
            frame = BindingTable(count, {variable: order.at(slots)})
            numbers = _numbers_of(hop, argument, [BindingValues(self.session, frame)])
            return None if numbers is None else EdgeNumbers(adjacency, numbers[0], is_argument)
        parts: list[BindingValues] = [
            _OrderedEdges(self.session, edges, direction, order, variable, is_own=is_own)
            for is_own in (False, True)
        ]
        numbers = _numbers_of(hop, argument, parts)
        if numbers is None:
            return None
        base, own = numbers
        if isinstance(adjacency, Adjacency):
            return EdgeNumbers(adjacency, adjacency.gather_values(base, slots), is_argument)
        if is_row_wise:
            values = adjacency.gather_values(base, own, slots)
            return EdgeNumbers(adjacency, values, is_argument)
        places, is_edited = adjacency.edited_among(slots)
        return EdgeNumbers(
            adjacency,
            adjacency.base.gather_values(base, slots),
            is_argument,
            adjacency.lists.gather_values(own, places[is_edited]),
        )

    # --- numbers of solutions ---------------------------------------------------------------------

    def _children(self, variable: str) -> Iterator[str]:
        """The targets of counted hops from a variable."""
        for name, hop in self.tree.hops.items():
            if hop.step.source == variable and name not in self.tree.core:
                yield name

    def _holds(self, variable: str, carried: CarriedAggregate | None) -> bool:
        """Whether an argument is at this variable or further from the root.

        An edge belongs to the target of its hop.
        """
        if carried is None:
            return False
        name = self._edge_ends.get(carried.variable, carried.variable)
        while name != variable and name in self.tree.hops:
            name = self.tree.hops[name].step.source
        return name == variable

    def _solutions(
        self,
        variable: str,
        domain: NodeSet,
        carried: CarriedAggregate | None,
        skipped: str | None = None,
    ) -> Values | None:
        """The solutions at and below each node; None if there is one per node.

        ``skipped`` names a hop whose solutions are left out.
        """
        simple = carried is None and domain.is_whole and skipped is None
        if simple and variable in self._whole:
            return self._whole[variable]
        mask = self._mask(variable, domain)
        below = self._below(variable, domain, mask, carried, skipped)
        if simple:
            self._whole[variable] = below
        return below

    def _below(
        self,
        variable: str,
        domain: NodeSet,
        mask: Mask | None,
        carried: CarriedAggregate | None,
        skipped: str | None = None,
    ) -> Values | None:
        """The solutions below the nodes that a mask selects."""
        children = [name for name in self._children(variable) if name != skipped]
        starts_here = carried is not None and carried.variable == variable
        if not children and not starts_here:
            return mask
        slots, kept = domain.slots, None
        if mask is not None:
            kept = np.flatnonzero(mask)
            slots = slots.take(kept)
        times: Values | None = None
        values: Values | None = None
        for child in children:
            if self._holds(child, carried):
                values = self._through(child, slots, carried)
            else:
                times = product_of(times, self._through(child, slots, None))
        if carried is not None and (starts_here or values is not None):
            if starts_here:
                frame = BindingTable(len(slots), {variable: slots})
                assert carried.value.argument is not None
                column = BindingValues(self.session, frame).column(carried.value.argument)
                values = carried.start(column)
            assert values is not None
            times = carried.scaled(values, times)
        assert times is not None
        if kept is None:
            return times
        nothing = (
            0 if carried is None or not (starts_here or values is not None) else carried.nothing
        )
        spread = np.full(len(domain.slots), nothing, times.dtype)
        spread[kept] = times
        return spread

    def _mask(self, variable: str, domain: NodeSet) -> Mask | None:
        """Which nodes exist and satisfy the conditions on them alone; None if all do."""
        if domain.is_whole and variable in self._masks:
            return self._masks[variable]
        hop = self.tree.hops.get(variable)
        nodes = self._nodes(variable)
        slots = domain.slots
        kept: Slots | None = None
        if domain.is_whole:
            if nodes.view.count < len(nodes.space):
                slots = kept = nodes.every()
        else:
            present = nodes.present(slots)
            if present is not None:
                slots = kept = slots[present]
        if hop is not None:
            mask = masked_nodes(self.session, hop.step, nodes, slots)
            if mask is not None:
                slots = kept = slots[mask]
        if self._has_tests(variable):
            kept = self._tested(variable, slots)
        found: Mask | None = None
        if kept is not None:
            found = np.zeros(len(domain.slots), np.bool_)
            found[kept if domain.is_whole else np.searchsorted(domain.slots, kept)] = True
        if domain.is_whole:
            self._masks[variable] = found
        return found

    def _has_tests(self, variable: str) -> bool:
        return bool(self.tree.tests[variable].steps) if variable in self.tree.tests else False

    def _tested(self, variable: str, slots: Slots) -> Slots:
        """The nodes that pass the tests of a variable outside the core."""
        if not self._has_tests(variable):
            return slots
        frame = BindingTable(len(slots), {variable: slots})
        passed = self.matcher.run(self.tree.tests[variable], frame, frozenset([variable]))
        return passed.bound[variable]

    def _through(self, child: str, slots: Slots, carried: CarriedAggregate | None) -> Values:
        """For each of some nodes, the solutions of a hop and of everything below its target."""
        hop = self.tree.hops[child]
        if not hop.step.is_single:
            return self._through_reach(hop, slots, carried)
        adjacency = self._adjacency(hop)
        counts = adjacency.degrees(slots)
        if carried is None and self._is_simple(hop):
            return counts
        edges, domain, values = self._ahead(child, slots, carried)
        found = None
        if edges is None and values is not None and values.dtype == np.bool_ and domain.is_whole:
            found = self._from_far(hop, slots, values)
        if found is not None:
            return found
        return added_along(adjacency, slots, domain, values, carried=carried, edges=edges)

    def _from_far(self, hop: TreeHop, slots: Slots, marked: Mask) -> Values | None:
        """The marked neighbours of each of some nodes, if counting from their side is cheaper."""
        if not len(slots) or not self._edges(hop).is_sorted(plan.FLIPPED[hop.step.direction]):
            return None
        backwards = self._adjacency(hop, backwards=True)
        return counted_from_far(self._adjacency(hop), backwards, slots, marked)

    def _ahead(
        self, child: str, slots: Slots, carried: CarriedAggregate | None
    ) -> tuple[EdgeNumbers | None, NodeSet, Values | None]:
        """The numbers of a hop's edges, the nodes at their ends, and the solutions of these."""
        hop = self.tree.hops[child]
        adjacency = self._adjacency(hop)
        counts = adjacency.degrees(slots)
        edges = self._edge_numbers(hop, slots, carried)
        whole = self._all(child)
        is_dense = int(counts.sum()) * _DENSE_SHARE > len(whole.slots)
        if is_dense or (edges is not None and edges.own is not None):
            domain = whole
        else:
            domain = NodeSet(sorted_distinct(adjacency.gather(slots)[0].copy()), False)
        beyond = None if edges is not None and edges.is_argument else carried
        return edges, domain, self._solutions(child, domain, beyond)

    def _total(self, slots: Slots) -> int | None:
        """The sum of the solutions below some nodes of the root; None if needed per node."""
        top = self.tree.core[0]
        children = list(self._children(top))
        if not self._only_counts or len(self.tree.core) > 1 or len(children) != 1 or not len(slots):
            return None
        (child,) = children
        hop = self.tree.hops[child]
        if not hop.step.is_single or self._is_simple(hop):
            return None
        if hop.of_edge and not isinstance(self._adjacency(hop), Adjacency):
            return None
        edges, domain, values = self._ahead(child, slots, None)
        return total_along(self._adjacency(hop), slots, domain, values, edges)

    def _is_simple(self, hop: TreeHop) -> bool:
        """Whether every neighbour along a hop is one solution."""
        child = hop.step.target
        if hop.step.predicates or hop.of_edge or self._has_tests(child):
            return False
        if next(self._children(child), None) is not None:
            return False
        return self._edges(hop).leads_to_nodes(hop.step.direction, self._nodes(child))

    def _through_reach(
        self, hop: TreeHop, slots: Slots, carried: CarriedAggregate | None
    ) -> Values:
        """`_through` for a hop with bounds: searches from every node once."""
        domain = self._all(hop.step.target)
        values = self._solutions(hop.step.target, domain, carried)
        found = _ScatteredSums(len(slots), carried)
        for start, rows, reached in self._reached(hop, slots):
            found.add(rows + start, None if values is None else values.take(reached))
        return found.values

    def _reached(self, hop: TreeHop, slots: Slots) -> Iterator[tuple[int, Values, Slots]]:
        """The destinations, block by block: index of the first source, offset from it, node."""
        step = hop.step
        neighbours = self.matcher.neighbours(step, self._edges(hop), self._nodes(step.target))
        minimum = self.session.tables.minimum(step)
        nodes = max(neighbours.node_count, 1)
        degree = neighbours.expected(np.arange(nodes, dtype=np.int32)) / nodes
        at_once = max(int(BLOCK_ROWS / min(expected_reach(degree, step.maximum), nodes)), 1)
        for start in range(0, len(slots), at_once):
            self.session.governor.check()
            rows, found = reach(neighbours, slots[start : start + at_once], minimum, step.maximum)
            yield start, rows, found

    # --- from the root to the core ----------------------------------------------------------------

    def _from_root(self, carried: CarriedAggregate | None) -> tuple[NodeSet, Values]:
        """The solutions above and at each node of the first core variable."""
        path = [self.tree.core[0]]
        while path[0] in self.tree.hops:
            path.insert(0, self.tree.hops[path[0]].step.source)
        assert self._root is not None
        domain = self._root
        mask = self._masks.get(path[0]) if domain.is_whole else None
        values = self._below(path[0], domain, mask, carried, path[1])
        arrived = carried is not None and self._is_beside(carried, path[0], path[1])
        for at in range(1, len(path)):
            target = path[at]
            hop = self.tree.hops[target]
            if carried is not None and carried.variable == hop.step.edge_variable:
                arrived = True
            domain, values = self._along(hop, domain, values, carried if arrived else None)
            last = at + 1 == len(path)
            own = carried if not last and carried is not None and not arrived else None
            is_beside = own is not None and self._is_beside(own, target, path[at + 1])
            side = (
                self._mask(target, domain)
                if last
                else self._solutions(target, domain, own if is_beside else None, path[at + 1])
            )
            if arrived:
                assert carried is not None
                values = carried.scaled(values, side)
            elif is_beside:
                assert own is not None and side is not None
                values, arrived = own.scaled(side, values), True
            else:
                product = product_of(values, side)
                assert product is not None
                values = product
        assert values is not None
        return domain, values

    def _is_beside(self, carried: CarriedAggregate, variable: str, following: str) -> bool:
        """Whether an argument is at a variable or below it, but not below the next one."""
        return self._holds(variable, carried) and not self._holds(following, carried)

    def _along(
        self, hop: TreeHop, domain: NodeSet, values: Values | None, carried: CarriedAggregate | None
    ) -> tuple[NodeSet, Values]:
        """The solutions at the targets of a hop, from those at its sources."""
        whole = self._all(hop.step.target)
        if hop.step.is_single and domain.is_whole:
            edges = self._edge_numbers(hop, whole.slots, carried, backwards=True)
            backwards = self._adjacency(hop, backwards=True)
            return whole, added_along(
                backwards, whole.slots, domain, values, carried=carried, edges=edges
            )
        found = _ScatteredSums(len(whole.slots), carried)
        if not hop.step.is_single:
            for start, rows, reached in self._reached(hop, domain.slots):
                found.add(reached, None if values is None else values.take(rows + start))
            return whole, found.values
        reached, counts = self._adjacency(hop).gather(domain.slots)
        self.session.governor.reserve(24 * len(reached))
        given = None if values is None else np.repeat(values, counts)
        edges = self._edge_numbers(hop, domain.slots, carried, is_row_wise=True)
        if edges is not None:
            given = edges.joined(0, len(reached), given, carried)
        found.add(reached, given)
        if len(reached) * _DENSE_SHARE > len(whole.slots):
            return whole, found.values
        distinct = sorted_distinct(reached.copy())
        return NodeSet(distinct, False), found.values.take(distinct)

    # --- rows of the core -------------------------------------------------------------------------

    def _frames(
        self, frame: BindingTable, above: Values | None
    ) -> Iterator[tuple[BindingTable, Values | None]]:
        """The first rows of the core, in parts if its first hop makes many of them."""
        first = next(
            (
                one.step
                for one in self.tree.core_pattern.steps
                if isinstance(one.step, plan.Expand) and not one.step.target_is_bound
            ),
            None,
        )
        bounds = [(0, frame.count)]
        if first is not None and self.tree.splits and frame.count:
            hop = self.tree.hops[first.target]
            degrees = self._adjacency(hop).degrees(frame.bound[first.source])
            bounds = blocks(degrees, BLOCK_ROWS)
        for start, stop in bounds:
            self.session.governor.check()
            yield frame.part(start, stop), None if above is None else above[start:stop]

    def _core_rows(self, frame: BindingTable, above: Values | None) -> _CoreRows:
        core, top = self.tree.core, self.tree.core[0]
        # The nodes of the first variable are distinct, and ascending below the root.
        first = NodeSet(frame.bound[top], False)
        if self.tree.core_pattern.steps:
            frame = self.matcher.run(self.tree.core_pattern, frame, frozenset(core))
        total = self._total(frame.bound[top]) if above is None else None
        if total is not None:
            self._solutions_found += total
            return _CoreRows(frame.part(0, 1), np.array([total], np.int64), {})
        factors = [self._factor(name, frame, None) for name in core]
        if above is not None:
            factors.append(_Factor(top, first, above))
        times: Values | None = None
        for factor in factors:
            times = product_of(times, factor.of(frame))
        if times is None:
            times = np.ones(frame.count, np.int64)
        times = times.astype(np.int64, copy=False)
        # Rows without solutions add nothing to a total count, which needs no groups either.
        some = np.ones(1, np.bool_) if self._only_counts else times > 0
        if self.session.run.trace is not None:
            self._solutions_found += float(times.sum(dtype=np.float64))
        by_row = {
            entry.name: self._carried_total(entry, frame, factors, times)
            for entry in self.by.aggregates
            if entry.name in self.tree.carried
        }
        if some.all():
            return _CoreRows(frame, times, by_row)
        return _CoreRows(
            frame.filter(some),
            times[some],
            {name: _filtered(total, some) for name, total in by_row.items()},
        )

    @property
    def _only_counts(self) -> bool:
        """Whether only the number of all solutions is wanted."""
        return not self.by.items and all(
            entry.value.argument is None for entry in self.by.aggregates
        )

    def _factor(
        self, variable: str, frame: BindingTable, carried: CarriedAggregate | None
    ) -> _Factor:
        bound = frame.bound[variable]
        if next(self._children(variable), None) is None:
            return _Factor(variable, NodeSet(bound, False), None)
        if len(self.tree.core) == 1:
            domain = NodeSet(bound, False)
        else:
            whole = self._all(variable)
            few = len(bound) * _DENSE_SHARE <= len(whole.slots)
            domain = NodeSet(sorted_distinct(bound.copy()), False) if few else whole
        return _Factor(variable, domain, self._below(variable, domain, None, carried))

    def _carried_total(
        self,
        entry: plan.NamedAggregate,
        frame: BindingTable,
        factors: list[_Factor],
        times: Values,
    ) -> Total:
        """An aggregate per row of the core, over the solutions it stands for."""
        carried, values = self._carried_rows(entry, frame, factors, counts=False)
        match carried.function:
            case "count":
                return GroupSizes(values)
            case "sum" | "avg":
                wrapped = carried.exact_sums(values, times)
                if not carried.has_nulls:
                    return Sums(values, times, wrapped)
                _, counts = self._carried_rows(entry, frame, factors, counts=True)
                return Sums(values, counts, wrapped)
        return GroupValues(carried.extremes(values))

    def _owner(self, carried: CarriedAggregate) -> str | None:
        """The core variable that an argument is below; None if it is above the core."""
        top = self.tree.core[0]
        if self._edge_ends.get(carried.variable) == top:
            return None  # the edge of the hop that leads to the core
        return next((name for name in self.tree.core[::-1] if self._holds(name, carried)), None)

    def _carried_rows(
        self,
        entry: plan.NamedAggregate,
        frame: BindingTable,
        factors: list[_Factor],
        *,
        counts: bool,
    ) -> tuple[CarriedAggregate, Values]:
        """The numbers of an aggregate by row."""
        carried = CarriedAggregate(entry.value, self.tree.carried[entry.name], counts)
        owner = self._owner(carried)
        if owner is not None:
            chosen = self._factor(owner, frame, carried)
        elif (entry.name, counts) in self._arrived:
            carried, chosen = self._arrived[entry.name, counts]
        else:
            chosen = _Factor(self.tree.core[0], *self._from_root(carried))
            self._arrived[entry.name, counts] = carried, chosen
        times: Values | None = None
        for at, factor in enumerate(factors):
            below = at < len(self.tree.core)
            if factor.variable == owner if below else owner is None:
                continue  # already part of the chosen one
            times = product_of(times, factor.of(frame))
        found = chosen.of(frame)
        assert found is not None
        return carried, carried.scaled(found, times)

    def _report(self, scanned_nodes: int, seconds: float) -> None:
        trace = self.session.run.trace
        if trace is None:
            return
        sizes = self.session.tables.sizes
        expected = expected_rows(self._scan, 1.0, sizes)
        root = StepReport(explain_step(self._scan), self._strategy, scanned_nodes, 0.0, expected)
        trace.steps.insert(0, root)
        for name, hop in self.tree.hops.items():
            expected = expected_rows(hop.prepared.step, expected, sizes)
            if name not in self.tree.core or hop.step.source not in self.tree.core:
                strategy = "adjacency, counted"
                rows = int(self._solutions_found)
                trace.steps.append(
                    StepReport(explain_step(hop.prepared.step), strategy, rows, seconds, expected)
                )
                seconds = 0.0


def _numbers_of(
    hop: TreeHop, argument: CarriedAggregate | None, parts: list[BindingValues]
) -> list[Values] | None:
    """Which edges of each part count, or the numbers of an argument; None if all of them count."""
    masks = [part.mask(hop.of_edge) for part in parts]
    if argument is None:
        if all(mask is None for mask in masks):
            return None
        return [
            np.ones(part.frame.count, np.bool_) if mask is None else mask
            for part, mask in zip(parts, masks, strict=True)
        ]
    assert argument.value.argument is not None
    columns = [part.column(argument.value.argument) for part in parts]
    return [
        argument.scaled(numbers, mask)
        for numbers, mask in zip(argument.start_all(columns), masks, strict=True)
    ]


class _OrderedEdges(BindingValues):
    """All edges of a version in the order of its adjacency, or those of edited nodes."""

    def __init__(
        self,
        session: Session,
        edges: CachedEdges,
        direction: Literal["out", "in"],
        order: EdgeOrder,
        variable: str,
        *,
        is_own: bool,
    ) -> None:
        positions = order.own if is_own else order.positions
        super().__init__(session, BindingTable(len(positions), {variable: positions}))
        self._edges = edges
        self._direction = direction
        self._order = order
        self._is_own = is_own

    def _read(self, leaf: ColumnExpression) -> pa.Array:
        if isinstance(leaf, ex.PropertyValue):
            found = self._edges.ordered_values(
                self._direction, self._order, leaf.property, arrow_type(leaf.type)
            )
            return found.own if self._is_own else found.values
        return super()._read(leaf)


class _ScatteredSums:
    """An array of sums, to which numbers are added at indexes in any order."""

    def __init__(self, count: int, carried: CarriedAggregate | None) -> None:
        self._joins = np.add if carried is None else carried.joins
        self._is_count = carried is None or carried.function == "count"
        self._total = 0.0
        self.values: Values = (
            np.zeros(count, np.int64) if carried is None else carried.nothing_for(count)
        )

    def add(self, places: Values, given: Values | None) -> None:
        """Add a number at each index; 1 if None is given."""
        if self._is_count:
            self._total += len(places) if given is None else float(given.sum(dtype=np.float64))
            require_countable(self._total)
        with np.errstate(invalid="ignore", over="ignore"):
            self._joins.at(self.values, places, 1 if given is None else given)


def _filtered(total: Total, rows: Mask) -> Total:
    """The aggregates of some of the rows."""
    match total:
        case GroupSizes():
            return GroupSizes(total.counts[rows])
        case Sums():
            wrapped = None if total.wrapped is None else total.wrapped[rows]
            return Sums(total.sums[rows], total.counts[rows], wrapped)
        case GroupValues():
            return GroupValues(total.values.filter(pa.array(rows)))
