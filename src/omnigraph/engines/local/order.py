"""Chooses the order of the steps of a match by their expected cost.

The compiler orders steps by the query alone. Here the sizes of tables are known too: the mean
degree of a type tells how many rows a hop makes of one, and how likely two bound nodes are linked.
Of all orders that begin with the same step, the one with the smallest sum of rows is taken, if it
is expected to save at least half of the work. `not` and `any` run where few rows are left.

The order stays as compiled if evaluating a condition may fail, because the order decides for which
rows it is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import TypeAlias, assert_never

from omnigraph.engines.local.reach import expected_reach
from omnigraph.model.records import dataclass
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.lower import reversed_hop

GAIN_MIN = 2.0
"""Another order is taken if it is expected to be this many times cheaper."""

WORTH_INSIDE = 1_024.0
"""Blocks whose test by row is expected to cost less are not solved from the inside."""

_MOVES_MAX = 9
"""With more hops and scans than this, the order stays: there would be too many orders to try."""

_STAGE_ROWS = 100.0
"""Expected number of rows of a stage."""

_LIST_ITEMS = 3.0
"""Expected number of items of a list."""

_GIVEN_ITEMS = 10.0
"""Expected number of items of a list that is given with the query."""

_RANGE_SHARE = 0.3
_TEST_SHARE = 0.5
"""Expected share of values that pass a comparison or another condition."""

Mover: TypeAlias = plan.Scan | plan.Expand
Test: TypeAlias = plan.Exclude | plan.Exists


@dataclass(frozen=True, slots=True)
class TableSizes:
    """The number of nodes or edges of each type."""

    nodes: Callable[[str], int]
    edges: Callable[[str], int]


def ordered(pattern: plan.Pattern, sizes: TableSizes) -> plan.Pattern:
    """The pattern in its cheapest order; the same object if it is in that order already."""
    parts = Parts.of(pattern)
    if parts is None or not parts.is_open:
        return pattern
    best = Orders(parts, sizes).best()
    return pattern if best is None or best == pattern else best


def is_open(pattern: plan.Pattern) -> bool:
    """Whether the steps have several possible orders."""
    parts = Parts.of(pattern)
    return parts is not None and parts.is_open


# --- what may move --------------------------------------------------------------------------------


@dataclass(slots=True)
class Parts:
    """A pattern divided into the first step, movable steps, tests and the rest."""

    first: plan.Step | None
    """None for a block that begins at variables bound around it."""
    outer: frozenset[str]
    """The node variables that are bound before the first step."""
    movers: list[Mover]
    """Hops and scans without their conditions, in the order of the compiler."""
    predicates: list[ex.Expression]
    tests: list[tuple[Test, frozenset[str]]]
    """Each with the variables that it reads."""
    rest: tuple[plan.Step, ...]
    """The steps that stay at the end."""
    types: dict[str, str] = field(default_factory=dict)
    """The types of the node variables that the movers bind."""

    @classmethod
    def of(cls, pattern: plan.Pattern) -> Parts | None:
        """The parts of a whole match; None if its order is fixed."""
        steps = pattern.steps
        if not steps or not isinstance(steps[0], plan.Scan | plan.Stage):
            return None
        movable = (plan.Scan, plan.Expand, plan.FilterRows, plan.Exclude, plan.Exists)
        end = next((at for at, s in enumerate(steps) if at and not isinstance(s, movable)), None)
        rest = steps[end:] if end is not None else ()
        return cls.made(steps[0], steps[1:end], frozenset(), rest)

    @classmethod
    def made(
        cls,
        first: plan.Step | None,
        moving: Sequence[plan.Step],
        outer: frozenset[str],
        rest: tuple[plan.Step, ...] = (),
    ) -> Parts | None:
        """The parts for a first step and movable steps; None if one of those cannot be moved."""
        parts = cls(first, outer, [], [], [], rest)
        for step in moving:
            match step:
                case plan.Scan() | plan.Expand():
                    parts.predicates += step.predicates
                    bare = replace(step, predicates=())
                    if isinstance(bare, plan.Expand):
                        bare = replace(bare, target_is_bound=False)
                        parts.types[bare.source] = bare.source_type
                        parts.types[bare.target] = bare.target_type
                    else:
                        parts.types[bare.variable] = bare.type_name
                    parts.movers.append(bare)
                case plan.FilterRows():
                    parts.predicates += step.predicates
        bound = set(parts.types) | _introduced(first) | outer
        bound |= {n for m in parts.movers for n in _names_of(m) if n is not None}
        for step in moving:
            if isinstance(step, plan.Exclude | plan.Exists):
                mentioned = mentioned_by(step)
                if mentioned is None:
                    return None
                parts.tests.append((step, frozenset(mentioned & bound)))
        if len(parts.movers) > _MOVES_MAX or any(map(_can_fail, parts.predicates)):
            return None
        parts.movers += parts._ends_of_searches(bound)
        return parts

    def _ends_of_searches(self, bound: set[str]) -> list[plan.Scan]:
        """Scans of the ends of path searches that an equality leaves few nodes of.

        With both ends bound, a search meets in the middle and visits few nodes.
        """
        tested = [ex.variables_of(each) for each in self.predicates if is_equality(each)]
        selective = {name for read in tested if len(read) == 1 for name in read}
        scanned = {m.variable for m in self.movers if isinstance(m, plan.Scan)}
        started = self.outer | _introduced(self.first)
        ends = {
            m.target: m.target_type
            for m in self.movers
            if isinstance(m, plan.Expand) and m.maximum > 1
        }
        return [
            plan.Scan(name, type_name)
            for name, type_name in ends.items()
            if name in selective and name not in scanned | started
        ]

    @property
    def is_open(self) -> bool:
        """Whether there is more than one order."""
        has_hop = any(isinstance(mover, plan.Expand) for mover in self.movers)
        return has_hop and len(self.movers) + len(self.tests) > 1


def _introduced(step: plan.Step | None) -> set[str]:
    match step:
        case plan.Scan():
            return {step.variable}
        case plan.Stage():
            return set(step.introduces)
    return set()


def _names_of(mover: Mover) -> Iterator[str | None]:
    if isinstance(mover, plan.Scan):
        yield mover.variable
    else:
        yield from (mover.source, mover.target, mover.edge_variable, mover.path_variable)


def mentioned_by(step: plan.Step) -> set[str] | None:
    """The variables that a step of a block names; None if the step has to stay in its place."""
    found: set[str] = set()
    match step:
        case plan.Scan() | plan.Expand() | plan.FilterRows():
            if any(map(_can_fail, step.predicates)):
                return None
            found = {name for p in step.predicates for name in ex.variables_of(p)}
            if not isinstance(step, plan.FilterRows):
                found |= {name for name in _names_of(step) if name is not None}
            return found
        case plan.Exclude():
            patterns: Sequence[plan.Pattern] = [step.pattern]
        case plan.Exists():
            patterns = step.alternatives
        case _:
            return None
    for pattern in patterns:
        for inner in pattern.steps:
            more = mentioned_by(inner)
            if more is None:
                return None
            found |= more
    return found


def is_equality(predicate: ex.Expression) -> bool:
    """Whether a condition is an equality, which is expected to leave few values."""
    return isinstance(predicate, ex.ListContains) or (
        isinstance(predicate, ex.Compare) and predicate.operator == "="
    )


def _can_fail(predicate: ex.Expression) -> bool:
    return any(isinstance(part, ex.ArithmeticValue | ex.ScalarCall) for part in ex.walk(predicate))


# --- orders ---------------------------------------------------------------------------------------


_Best: TypeAlias = tuple[float, tuple[int, ...]]
"""The cost of the remaining steps, and their order."""


class Orders:
    """The orders of the parts of a pattern.

    ``rows`` is the number of rows after the first step; None to estimate it.
    """

    def __init__(self, parts: Parts, sizes: TableSizes, rows: float | None = None) -> None:
        self._parts = parts
        self._sizes = sizes
        self._bound_first = parts.outer | _introduced(parts.first)
        self._first_rows = _rows_of_first(parts.first, sizes) if rows is None else rows
        self._known: dict[frozenset[int], _Best | None] = {}
        self._local = {
            name: share(
                [p for p in parts.predicates if ex.variables_of(p) == {name}],
                max(sizes.nodes(type_name), 1),
            )
            for name, type_name in parts.types.items()
        }

    def best(self) -> plan.Pattern | None:
        """The pattern in its cheapest order; None if the gain is too small."""
        chosen = self.chosen()
        return None if chosen is None else plan.Pattern(self.emitted(chosen[1]))

    def chosen(self) -> tuple[float, tuple[int, ...]] | None:
        """The order to use, with its cost: the compiler's unless another is cheaper enough."""
        found = self.cheapest()
        if found is None:
            return None
        written = self.written()
        if written is None or found[0] * GAIN_MIN <= written:
            return found
        return written, tuple(range(len(self._parts.movers)))

    def cheapest(self) -> tuple[float, tuple[int, ...]] | None:
        """The cheapest order, with its cost; None if no order can run all steps."""
        return self._cheapest(frozenset())

    def written(self) -> float | None:
        """The cost of the compiler's order; None if it cannot run."""
        return self._cost(tuple(range(len(self._parts.movers))))

    def bound(self, done: Iterable[int]) -> frozenset[str]:
        """The variables that are bound after some movers."""
        names = {n for at in done for n in _names_of(self._parts.movers[at]) if n is not None}
        return self._bound_first | names

    def _is_ready(self, mover: Mover, bound: frozenset[str]) -> bool:
        if isinstance(mover, plan.Scan):
            return mover.variable not in bound
        return mover.source in bound or (mover.target in bound and mover.reversible)

    def _left(self, done: frozenset[int]) -> tuple[frozenset[int], list[int]]:
        """Movers done, scans of variables bound by hops included; and those that can be next."""
        bound = self.bound(done)
        movers = self._parts.movers
        done |= {
            at for at, m in enumerate(movers) if isinstance(m, plan.Scan) and m.variable in bound
        }
        left = [at for at in range(len(movers)) if at not in done]
        return done, [at for at in left if self._is_ready(movers[at], bound)]

    def _cheapest(self, done: frozenset[int]) -> _Best | None:
        done, ready = self._left(done)
        if len(done) == len(self._parts.movers):
            return 0.0, ()
        if done not in self._known:
            best: _Best | None = None
            for at in ready:
                after = self._cheapest(done | {at})
                if after is not None:
                    cost = self._step_cost(done, at) + after[0]
                    if best is None or cost < best[0]:
                        best = cost, (at, *after[1])
            self._known[done] = best
        return self._known[done]

    def _cost(self, order: tuple[int, ...]) -> float | None:
        """The cost of an order; None if it cannot run."""
        done: frozenset[int] = frozenset()
        total = 0.0
        for at in order:
            done, ready = self._left(done)
            if at in done:
                continue
            if at not in ready:
                return None
            total += self._step_cost(done, at)
            done |= {at}
        return total

    # --- estimates --------------------------------------------------------------------------------

    def rows_after(self, order: Sequence[int]) -> float:
        """The expected rows after some movers."""
        return self._rows(self._left(frozenset(order))[0])

    def _rows(self, done: frozenset[int]) -> float:
        """The expected rows after some movers, independent of their order."""
        rows = self._first_rows
        bound = self.bound(done)
        for name in bound - self._bound_first:
            if name in self._parts.types:
                rows *= max(self._sizes.nodes(self._parts.types[name]), 1) * self._local[name]
        for at in done:
            mover = self._parts.movers[at]
            if isinstance(mover, plan.Expand):
                rows *= min(
                    reached(self._sizes, mover) / max(self._sizes.nodes(mover.target_type), 1), 1
                )
                if mover.edge_variable is not None:
                    of_edge = [
                        p
                        for p in self._parts.predicates
                        if ex.variables_of(p) == {mover.edge_variable}
                    ]
                    rows *= share(of_edge, self._sizes.edges(mover.edge_type))
        for predicate in self._parts.predicates:
            read = ex.variables_of(predicate)
            if len(read) > 1 and read <= bound:
                rows *= _TEST_SHARE
        return rows

    def _step_cost(self, done: frozenset[int], at: int) -> float:
        """The rows that a step reads and makes, before its conditions are tested."""
        mover, bound, rows = self._parts.movers[at], self.bound(done), self._rows(done)
        if isinstance(mover, plan.Scan):
            size = max(self._sizes.nodes(mover.type_name), 1)
            return rows + rows * size * self._local[mover.variable]
        if mover.source in bound and mover.target in bound:
            return rows
        hop = mover if mover.source in bound else reversed_hop(mover)
        return rows + rows * reached(self._sizes, hop)

    # --- steps ------------------------------------------------------------------------------------

    def emitted(self, order: tuple[int, ...]) -> tuple[plan.Step, ...]:
        """The steps in an order, with each condition as soon as its variables are bound."""
        parts = self._parts
        bound = set(self._bound_first)
        waiting = list(parts.predicates)
        placed = self.placed(order)
        steps: list[plan.Step] = [] if parts.first is None else [parts.first]

        def take(reads: Callable[[frozenset[str]], bool]) -> tuple[ex.Expression, ...]:
            found = [p for p in waiting if reads(ex.variables_of(p))]
            waiting[:] = [p for p in waiting if p not in found]
            return tuple(found)

        def test(position: int) -> None:
            ready = take(lambda read: read <= bound)
            if ready:
                steps.append(plan.FilterRows(ready))
            steps.extend(placed.get(position, ()))

        test(0)
        for position, at in enumerate(order, 1):
            mover = parts.movers[at]
            if isinstance(mover, plan.Scan):
                if mover.variable not in bound:
                    bound.add(mover.variable)
                    alone = take(lambda read, name=mover.variable: read == {name})  # type: ignore[misc]
                    steps.append(replace(mover, predicates=alone))
            else:
                hop = mover if mover.source in bound else reversed_hop(mover)
                is_bound = hop.target in bound
                new = {hop.edge_variable, None if is_bound else hop.target} - {None}
                alone = take(lambda read, new=new: len(read) == 1 and read <= new)  # type: ignore[misc]
                bound |= {name for name in _names_of(hop) if name is not None}
                steps.append(replace(hop, target_is_bound=is_bound, predicates=alone))
            test(position)
        return (*steps, *parts.rest)

    def placed(self, order: tuple[int, ...]) -> dict[int, list[Test]]:
        """The position of each test: the first possible, or one where few rows are left."""
        rows: list[float] = []
        ready: list[frozenset[str]] = []
        for end in range(len(order) + 1):
            done, _ = self._left(frozenset(order[:end]))
            rows.append(self._rows(done))
            ready.append(self.bound(done))
        placed: dict[int, list[Test]] = {}
        for step, read in self._parts.tests:
            first = next(at for at, bound in enumerate(ready) if read <= bound)
            fewest = min(range(first, len(rows)), key=rows.__getitem__)
            at = fewest if rows[fewest] * 2 * GAIN_MIN <= rows[first] else first
            placed.setdefault(at, []).append(step)
        return placed


def _rows_of_first(first: plan.Step | None, sizes: TableSizes) -> float:
    match first:
        case plan.Scan(entity_id=None):
            size = max(sizes.nodes(first.type_name), 1)
            return size * share(first.predicates, size)
        case plan.Stage():
            return _STAGE_ROWS
    return 1.0


def reached(sizes: TableSizes, hop: plan.Expand) -> float:
    """How many nodes of the target type a hop reaches from one source, on average."""
    near, far = hop.declared
    edges = sizes.edges(hop.edge_type) * (2 if hop.direction == "both" else 1)
    degree = edges / max(sizes.nodes(near), 1)
    of_type = min(sizes.nodes(hop.target_type) / max(sizes.nodes(far), 1), 1.0)
    found = expected_reach(degree, hop.maximum) if hop.maximum > 1 else degree
    return min(found, sizes.nodes(far)) * of_type


def share(predicates: Sequence[ex.Expression], size: int) -> float:
    """The expected share of ``size`` values that pass some conditions on one variable."""
    passing = 1.0
    for predicate in predicates:
        match predicate:
            case ex.Compare(operator="="):
                passing *= float(size) ** -0.5 if size else 1.0
            case ex.Compare():
                passing *= _RANGE_SHARE
            case ex.ListContains(list=given) if not ex.variables_of(given):
                # Counts as one equality per item; the plan does not know the number of items.
                passing *= min(_GIVEN_ITEMS * float(size or 1) ** -0.5, _TEST_SHARE)
            case _:
                passing *= _TEST_SHARE
    return passing


# --- estimates of steps ---------------------------------------------------------------------------


def expected_rows(step: plan.Step, rows: float, sizes: TableSizes) -> float:
    """The expected rows after a step that starts with ``rows`` rows."""
    match step:
        case plan.Stage():
            return _STAGE_ROWS
        case plan.Scan(among=()):
            return rows * _rows_of_first(step, sizes)
        case plan.Scan():
            size = max(sizes.nodes(step.type_name), 1)
            found = sum(_expected_of(pattern, 1.0, sizes) for pattern in step.among)
            return rows * min(found, size) * share(step.predicates, size)
        case plan.Expand():
            found = reached(sizes, step)
            size = max(sizes.nodes(step.target_type), 1)
            if step.target_is_bound:
                found = min(found / size, 1.0)
            of_edge = [p for p in step.predicates if ex.variables_of(p) == {step.edge_variable}]
            of_node = [p for p in step.predicates if p not in of_edge]
            passing = share(of_edge, sizes.edges(step.edge_type)) * share(of_node, size)
            return rows * found * passing
        case plan.FilterRows():
            return rows * share(step.predicates, int(rows))
        case plan.Exclude() | plan.Exists():
            return rows * _TEST_SHARE
        case plan.Extend():
            return max(rows, _expected_of(step.pattern, rows, sizes))
        case plan.Compute():
            return rows
        case plan.Unnest():
            return rows * _LIST_ITEMS
        case _:
            assert_never(step)


def _expected_of(pattern: plan.Pattern, rows: float, sizes: TableSizes) -> float:
    for step in pattern.steps:
        rows = expected_rows(step, rows, sizes)
    return rows
