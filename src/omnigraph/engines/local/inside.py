"""Blocks solved from the inside: from a selective variable of the block to those around it.

A block such as `any { $p wrote $m $m.title = "x" }` is usually tested for each row around it. Where
an equality leaves few nodes of one of the block's own variables, it is cheaper to follow the hops
from there: the solutions say for which nodes of the outer variables the block is true. The equality
may compare with a value that a stage hands on, such as a list of chosen nodes, if it is the same in
all rows. An `any` that reads one outer variable can even replace the scan that a match begins with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from omnigraph.engines.local import order
from omnigraph.engines.local.order import Orders, Parts, TableSizes, is_equality, share
from omnigraph.model.records import dataclass
from omnigraph.query import expressions as ex
from omnigraph.query import plan

READS_MAX = 2
"""Solutions are looked up by at most this many outer variables, packed into one number."""

_SCAN_COST = 0.05
"""The cost of scanning one node of a table, relative to one row of a hop."""


@dataclass(frozen=True, slots=True)
class FromInside:
    """A block as a match of its own."""

    pattern: plan.Pattern
    """Begins with the scan of one of the block's variables, and binds the outer ones."""
    rows: float
    """Expected number of solutions."""
    cost: float
    each_start: float
    """The cost per node of the first variable."""
    each_row: float
    """The cost of solving the block per outer row."""
    values: frozenset[str] = frozenset()
    """The outer values that the block reads; they have to be the same in every row."""


def from_inside(
    block: plan.Pattern,
    around: Mapping[str, str],
    sizes: TableSizes,
    values: frozenset[str] = frozenset(),
) -> FromInside | None:
    """The cheapest inside plan of a block that reads outer node variables; None if there is none.

    ``around`` has the types of those variables, ``values`` the other outer values that the block
    reads.
    """
    if not 1 <= len(around) <= READS_MAX or not _is_movable(block):
        return None
    reads = frozenset(around)
    outside = Parts.made(None, block.steps, reads | values)
    if outside is None:
        return None
    each_row = Orders(outside, sizes, 1.0).written()
    if each_row is None:
        return None
    best: FromInside | None = None
    for scan, passing in _starts({**around, **outside.types}, outside.predicates, values):
        own = set(scan.predicates)
        parts = Parts.made(scan, block.steps, values)
        assert parts is not None
        parts.predicates = [each for each in parts.predicates if each not in own]
        size = max(sizes.nodes(scan.type_name), 1)
        found = _solved(parts, reads, sizes, max(each_row, 1.0), size * share(passing, size))
        if found is not None and (best is None or found.cost < best.cost):
            best = replace(found, values=values)
    return best


@dataclass(frozen=True, slots=True)
class FromOne:
    """A block solved for the nodes of one of its two outer variables; it binds the other."""

    name: str
    pattern: plan.Pattern
    each_start: float
    """The cost per such node."""
    each_row: float
    """The cost of solving the block per outer row."""


def from_one(block: plan.Pattern, around: Mapping[str, str], sizes: TableSizes) -> list[FromOne]:
    """The plans of a block that reads two outer node variables and starts from one of them.

    They pay where rows bind few distinct nodes of one variable and many of the other.
    """
    if len(around) != READS_MAX or not _is_movable(block):
        return []
    outside = Parts.made(None, block.steps, frozenset(around))
    each_row = None if outside is None else Orders(outside, sizes, 1.0).written()
    found: list[FromOne] = []
    for name in around:
        parts = Parts.made(None, block.steps, frozenset([name]))
        if parts is None or each_row is None:
            continue
        solved = _solved(parts, frozenset(around), sizes, max(each_row, 1.0))
        if solved is not None:
            found.append(FromOne(name, solved.pattern, solved.each_start, solved.each_row))
    return found


def _solved(
    parts: Parts,
    reads: frozenset[str],
    sizes: TableSizes,
    each_row: float,
    rows: float | None = None,
) -> FromInside | None:
    """The block in its cheapest order; ``rows`` are the rows after the first step, if known."""
    orders = Orders(parts, sizes, rows)
    cheapest = orders.cheapest()
    bound = orders.bound(range(len(parts.movers)))
    named = {name for each in parts.predicates for name in ex.variables_of(each)}
    if cheapest is None or not (reads | named) <= bound:
        return None
    cost, taken = cheapest
    started = max(orders.rows_after(()), 1.0)
    return FromInside(
        plan.Pattern(orders.emitted(taken)),
        orders.rows_after(taken),
        cost + started,
        max(cost / started, 1.0),
        each_row,
    )


def _starts(
    types: Mapping[str, str], predicates: Sequence[ex.Expression], values: frozenset[str]
) -> Iterator[tuple[plan.Scan, list[ex.Expression]]]:
    """Scans of variables that an equality leaves few nodes of, with all own conditions."""
    for name, type_name in types.items():
        alone = [each for each in predicates if ex.variables_of(each) - values == {name}]
        if any(map(is_equality, alone)):
            own = tuple(each for each in alone if ex.variables_of(each) == {name})
            yield plan.Scan(name, type_name, own), alone


def _is_movable(block: plan.Pattern) -> bool:
    movable = (plan.Scan, plan.Expand, plan.FilterRows, plan.Exclude, plan.Exists)
    return all(isinstance(step, movable) for step in block.steps)


# --- any in the place of a scan -------------------------------------------------------------------


def can_be_driven(pattern: plan.Pattern) -> bool:
    """Whether an `any` may replace the first scan of a match; sizes decide whether it pays."""
    parts = _drivable(pattern)
    return parts is not None and any(
        isinstance(test, plan.Exists) and len(reads) == 1 for test, reads in parts.tests
    )


def driven(pattern: plan.Pattern, sizes: TableSizes) -> plan.Pattern | None:
    """The match that starts from the nodes found by an `any`; None if that is not cheaper."""
    parts = _drivable(pattern)
    if parts is None:
        return None
    best: tuple[float, plan.Pattern] | None = None
    for place in range(len(parts.tests)):
        found = _started_from_test(parts, place, sizes)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    if best is None or best[0] * order.GAIN_MIN > _cost_of(parts, sizes):
        return None
    return best[1]


def _drivable(pattern: plan.Pattern) -> Parts | None:
    parts = Parts.of(pattern)
    if parts is None or not isinstance(parts.first, plan.Scan):
        return None
    return None if parts.first.entity_id is not None or parts.first.among else parts


def _started_from_test(
    parts: Parts, place: int, sizes: TableSizes
) -> tuple[float, plan.Pattern] | None:
    """The match that starts from the test at ``place``, and its cost."""
    test, reads = parts.tests[place]
    first = parts.first
    assert isinstance(first, plan.Scan)
    types = parts.types | {first.variable: first.type_name}
    name = next(iter(reads), "")
    if not isinstance(test, plan.Exists) or len(reads) != 1 or name not in types:
        return None
    around = {name: types[name]}
    solved = [from_inside(each, around, sizes) for each in test.alternatives]
    found = [each for each in solved if each is not None]
    if len(found) < len(solved):
        return None
    predicates = [*first.predicates, *parts.predicates]
    alone = tuple(each for each in predicates if ex.variables_of(each) == {name})
    size = max(sizes.nodes(types[name]), 1)
    rows = min(sum(each.rows for each in found), size) * share(alone, size)
    among = tuple(each.pattern for each in found)
    bare = [] if first.variable == name else [replace(first, predicates=())]
    rooted = replace(
        parts,
        first=plan.Scan(name, types[name], alone, among=among),
        movers=[*bare, *parts.movers],
        predicates=[each for each in predicates if each not in alone],
        tests=[each for at, each in enumerate(parts.tests) if at != place],
        types=types,
    )
    orders = Orders(rooted, sizes, rows)
    cheapest = orders.cheapest()
    if cheapest is None:
        return None
    cost = cheapest[0] + sum(each.cost for each in found)
    return cost, plan.Pattern(orders.emitted(cheapest[1]))


def _cost_of(parts: Parts, sizes: TableSizes) -> float:
    """The expected cost of a match that starts as the compiler ordered it."""
    orders = Orders(parts, sizes)
    chosen = orders.chosen()
    if chosen is None:
        return 0.0
    cost, taken = chosen
    assert isinstance(parts.first, plan.Scan)
    if not any(map(is_equality, parts.first.predicates)):
        cost += _SCAN_COST * sizes.nodes(parts.first.type_name)
    types = parts.types | {parts.first.variable: parts.first.type_name}
    positions = {id(test): at for at, tests in orders.placed(taken).items() for test in tests}
    for test, reads in parts.tests:
        around = {name: types[name] for name in reads if name in types}
        if isinstance(test, plan.Exists) and len(around) == len(reads):
            rows = orders.rows_after(taken[: positions[id(test)]])
            cost += sum(_cost_of_test(each, around, rows, sizes) for each in test.alternatives)
    return cost


def _cost_of_test(
    block: plan.Pattern, around: Mapping[str, str], rows: float, sizes: TableSizes
) -> float:
    """The cost of testing a block for ``rows`` rows, from outside or from inside."""
    parts = Parts.made(None, block.steps, frozenset(around))
    each = None if parts is None else Orders(parts, sizes, 1.0).written()
    outside = rows * max(each or 1.0, 1.0)
    solved = from_inside(block, around, sizes)
    return outside if solved is None else min(outside, solved.cost + _SCAN_COST * rows)
