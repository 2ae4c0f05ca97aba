"""Orders the checked clauses of a block into executable steps.

The order depends on the query alone: scan the most selective variable first (a key, then an
equality), follow hops from bound variables, run each test as soon as the variables it reads are
bound, and leave optional matches to the end. Engines that know table sizes may reorder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from heapq import heappop, heappush
from itertools import chain, count
from typing import Generic, TypeVar

from omnigraph.model.records import dataclass
from omnigraph.model.types import ID, Scalar
from omnigraph.query import expressions as ex
from omnigraph.query.plan import (
    FLIPPED,
    Compute,
    ComputedWeight,
    Exclude,
    Exists,
    Expand,
    Extend,
    FilterRows,
    Pattern,
    Scan,
    Stage,
    Step,
    Unnest,
)
from omnigraph.schema.catalog import Catalog

# --- checked clauses ------------------------------------------------------------------------------


@dataclass(slots=True)
class ComputedBlock:
    """A checked block with a value: a `Compute` without its pattern."""

    step: Compute
    block: CheckedBlock

    @property
    def outer(self) -> frozenset[str]:
        """Variables that the block reads but does not introduce."""
        read = set(self.block.outer)
        for expression in self.expressions:
            read |= ex.variables_of(expression)
        return frozenset(read - self.block.introduces)

    @property
    def expressions(self) -> Iterator[ex.Expression]:
        """The expressions it returns and orders by."""
        yield from (value for _, value in self.step.items)
        yield from (key.expression for key in self.step.order)

    def rewrite(self, change: Callable[[ex.Expression], ex.Expression]) -> None:
        """Rewrite the expressions it returns and orders by."""
        items = tuple((name, change(value)) for name, value in self.step.items)
        order = tuple(replace(key, expression=change(key.expression)) for key in self.step.order)
        self.step = replace(self.step, items=items, order=order)


@dataclass(slots=True)
class CheckedWeight:
    """A checked weight of a hop: a `ComputedWeight` without its pattern."""

    weight: ComputedWeight
    block: CheckedBlock
    """Binds the edge and its ends; it reads no variable from outside."""

    def rename(self, names: dict[str, str]) -> None:
        """Rename variables of the block in the weight."""
        weight = self.weight
        self.weight = ComputedWeight(
            names.get(weight.near, weight.near),
            names.get(weight.edge, weight.edge),
            names.get(weight.far, weight.far),
            weight.pattern,
            ex.renamed(weight.value, names),
        )


@dataclass(slots=True)
class CheckedBlock:
    """The checked clauses of one block, in no particular order."""

    nodes: dict[str, str] = field(default_factory=dict)
    """Node variables introduced here, with their types, in order of appearance."""
    hops: list[Expand] = field(default_factory=list)
    """Each starts at the variable on the left."""
    weights: dict[str, CheckedWeight] = field(default_factory=dict)
    """The computed weights of hops, by their path variables."""
    predicates: list[ex.Expression] = field(default_factory=list)
    exclusions: list[CheckedBlock] = field(default_factory=list)
    disjunctions: list[tuple[CheckedBlock, ...]] = field(default_factory=list)
    optionals: list[tuple[CheckedBlock, tuple[str, ...]]] = field(default_factory=list)
    computed: list[ComputedBlock] = field(default_factory=list)
    unnests: list[Unnest] = field(default_factory=list)
    stage: Stage | None = None
    """The previous stage, for a match after the first."""
    _outer: frozenset[str] | None = None

    @property
    def outer(self) -> frozenset[str]:
        """Variables that the block reads but does not introduce; cached, so names must be final."""
        if self._outer is None:
            read = {name for hop in self.hops for name in (hop.source, hop.target)}
            for predicate in self.predicates:
                read |= ex.variables_of(predicate)
            for inner in chain(self.tested_blocks, self.optional_blocks):
                read |= inner.outer
            for each in self.computed:
                read |= each.outer
            for unnest in self.unnests:
                read |= ex.variables_of(unnest.list)
            self._outer = frozenset(read - self.introduces)
        return self._outer

    @property
    def introduces(self) -> frozenset[str]:
        """Variables that are bound after the block has run, those of `optional` included."""
        bound = {name for hop in self.hops for name in (hop.edge_variable, hop.path_variable)}
        optional = (name for _, names in self.optionals for name in names)
        staged = self.stage.introduces if self.stage is not None else ()
        computed = (each.step.variable for each in self.computed)
        items = (each.variable for each in self.unnests)
        every = chain(self.nodes, bound, optional, staged, computed, items)
        return frozenset(name for name in every if name is not None)

    @property
    def tested_blocks(self) -> Iterator[CheckedBlock]:
        """The blocks of negations and alternatives."""
        yield from self.exclusions
        yield from chain.from_iterable(self.disjunctions)

    @property
    def local_blocks(self) -> Iterator[CheckedBlock]:
        """All blocks whose variables are not visible outside of them."""
        yield from self.tested_blocks
        yield from (each.block for each in self.computed)
        yield from (each.block for each in self.weights.values())

    @property
    def optional_blocks(self) -> Iterator[CheckedBlock]:
        """The blocks of `optional`, whose variables belong to this block too."""
        return (inner for inner, _ in self.optionals)


def keep_locals_apart(block: CheckedBlock) -> None:
    """Rename local variables that have the name of a variable of an enclosing block.

    Names resolve from top to bottom, so in `not { $a wrote $b } $b: Book` the first `$b` is local
    and the second is another variable. Lowering reorders clauses, after which only their names
    distinguish them.
    """
    _keep_apart(block, block.introduces, count(1))


def _keep_apart(block: CheckedBlock, visible: frozenset[str], numbers: Iterator[int]) -> None:
    for inner in block.optional_blocks:
        _keep_apart(inner, visible | inner.introduces, numbers)
    for inner in block.local_blocks:
        # Inner blocks first, so that a name renamed here cannot belong to an inner variable.
        _keep_apart(inner, visible | inner.introduces, numbers)
        clashing = {name: f"{name}#{next(numbers)}" for name in sorted(inner.introduces & visible)}
        if clashing:
            _rename(inner, clashing)
            for each in block.computed:
                if each.block is inner:
                    _rename_shown(each, clashing)
            for weight in block.weights.values():
                if weight.block is inner:
                    weight.rename(clashing)


def _rename(block: CheckedBlock, names: dict[str, str]) -> None:
    def new(name: str) -> str:
        return names.get(name, name)

    block.nodes = {new(name): type_name for name, type_name in block.nodes.items()}
    block.hops = [
        replace(
            hop,
            source=new(hop.source),
            target=new(hop.target),
            edge_variable=hop.edge_variable and new(hop.edge_variable),
            path_variable=hop.path_variable and new(hop.path_variable),
        )
        for hop in block.hops
    ]
    block.weights = {new(name): weight for name, weight in block.weights.items()}
    block.predicates = [ex.renamed(predicate, names) for predicate in block.predicates]
    block.optionals = [(inner, tuple(map(new, bound))) for inner, bound in block.optionals]
    block.unnests = [
        replace(each, variable=new(each.variable), list=ex.renamed(each.list, names))
        for each in block.unnests
    ]
    for each in block.computed:
        _rename_shown(each, names)
    for inner in chain(block.local_blocks, block.optional_blocks):
        _rename(inner, names)


def _rename_shown(computed: ComputedBlock, names: dict[str, str]) -> None:
    computed.rewrite(lambda expression: ex.renamed(expression, names))
    ties = tuple(replace(tie, name=names.get(tie.name, tie.name)) for tie in computed.step.ties)
    computed.step = replace(computed.step, ties=ties)


def retype(block: CheckedBlock, name: str, type_name: str) -> None:
    """Change the type of a variable of a block wherever it has been read so far."""
    if name in block.nodes:
        block.nodes[name] = type_name
    block.hops = [_hop_with_type(hop, name, type_name) for hop in block.hops]

    def replacement(part: ex.Expression) -> ex.Expression | None:
        if isinstance(part, ex.PropertyValue) and part.variable == name:
            return replace(part, type_name=type_name)
        return None

    block.predicates = [ex.rewrite(predicate, replacement) for predicate in block.predicates]
    block.unnests = [
        replace(each, list=ex.rewrite(each.list, replacement)) for each in block.unnests
    ]
    for each in block.computed:
        if name not in each.block.nodes:
            each.rewrite(lambda expression: ex.rewrite(expression, replacement))
    for inner in chain(block.local_blocks, block.optional_blocks):
        if name not in inner.nodes:
            retype(inner, name, type_name)


def _hop_with_type(hop: Expand, name: str, type_name: str) -> Expand:
    if name not in (hop.source, hop.target):
        return hop
    source = type_name if hop.source == name else hop.source_type
    target = type_name if hop.target == name else hop.target_type
    ends = None if hop.declared == (source, target) else hop.declared
    return replace(hop, source_type=source, target_type=target, ends=ends)


# --- order of the steps ---------------------------------------------------------------------------


def lower_block(block: CheckedBlock, catalog: Catalog) -> Pattern:
    """The steps of the block of a whole match."""
    return _Ordering(block, catalog).pattern()


Test = TypeVar("Test")


class _Tests(Generic[Test]):
    """Tests of one kind; each can run once all variables it reads are bound.

    Each test counts its unbound variables, so binding a variable costs as much as the number of
    tests that read it, not the number of all tests.
    """

    def __init__(self, entries: Sequence[Test]) -> None:
        self._entries = entries
        self._missing: list[int] = []
        self._readers: dict[str, list[int]] = {}
        self._alone: dict[str, list[int]] = {}
        self._ready: list[int] = []
        self._taken: set[int] = set()

    def enter(self, reads: Iterable[frozenset[str]], is_bound: Callable[[str], bool]) -> None:
        """Set the variables that each test reads, in the order of the entries."""
        for number, names in enumerate(reads):
            unbound = [name for name in names if not is_bound(name)]
            self._missing.append(len(unbound))
            for name in unbound:
                self._readers.setdefault(name, []).append(number)
            if len(names) == len(unbound) == 1:
                self._alone.setdefault(unbound[0], []).append(number)
            if not unbound:
                self._ready.append(number)

    def bind(self, name: str) -> None:
        """Mark a variable as bound."""
        for number in self._readers.pop(name, ()):
            self._missing[number] -= 1
            if not self._missing[number]:
                heappush(self._ready, number)

    def is_awaited(self, name: str) -> bool:
        """Whether a test is waiting for this variable."""
        return name in self._readers

    def take_ready(self) -> list[Test]:
        """Remove and return the tests that can run, in the order they are written."""
        ready, self._ready = self._ready, []
        found = [each for each in sorted(ready) if each not in self._taken]
        return [self._entries[each] for each in found]

    def reading_only(self, name: str) -> list[Test]:
        """The waiting tests that read this variable alone."""
        return [self._entries[each] for each in self._alone.get(name, ())]

    def take_reading_only(self, names: Iterable[str]) -> list[Test]:
        """Remove and return the tests that read one of these variables alone."""
        found = sorted(each for name in names for each in self._alone.pop(name, ()))
        self._taken.update(found)
        return [self._entries[each] for each in found]


class _Ordering:
    """Orders the clauses of one block; the variables of ``outer`` are bound already."""

    def __init__(
        self, block: CheckedBlock, catalog: Catalog, outer: _Ordering | None = None
    ) -> None:
        self._block = block
        self._catalog = catalog
        self._outer = outer
        self._bound: set[str] = set()
        self._steps: list[Step] = []
        self._predicates = _Tests(block.predicates)
        self._predicates.enter(map(ex.variables_of, block.predicates), self._is_bound)
        self._exclusions = _Tests(block.exclusions)
        self._exclusions.enter((inner.outer for inner in block.exclusions), self._is_bound)
        self._disjunctions = _Tests(block.disjunctions)
        self._disjunctions.enter(
            (frozenset().union(*(one.outer for one in each)) for each in block.disjunctions),
            self._is_bound,
        )
        self._computed = _Tests(block.computed)
        self._computed.enter((each.outer for each in block.computed), self._is_bound)
        self._unnests = _Tests(block.unnests)
        self._unnests.enter((ex.variables_of(each.list) for each in block.unnests), self._is_bound)
        self._later: list[ComputedBlock] = []
        """Blocks that no condition reads: they run last, on the fewest rows."""
        self._hops = _WaitingHops(block.hops, self._is_bound)

    def pattern(self) -> Pattern:
        """All clauses as steps."""
        # The sort order of the starts does not change until they are bound.
        starts = iter(sorted(self._block.nodes, key=self._start_order))
        if self._block.stage is not None:
            self._steps.append(self._block.stage)
            for name in self._block.stage.introduces:
                self._bind(name)
        self._emit_ready_tests()
        while True:
            hop = self._hops.next()
            if hop is not None:
                self._expand(hop)
            elif not self._unnest():
                start = next((name for name in starts if name not in self._bound), None)
                if start is None:
                    break
                self._scan(start)
            self._emit_ready_tests()
        for inner, introduced in self._block.optionals:
            self._steps.append(Extend(self._inner(inner), introduced))
            for name in introduced:
                self._bind(name)
            self._emit_ready_tests()
            while self._unnest():
                self._emit_ready_tests()
        for each in self._later:
            self._compute(each)
        return Pattern(tuple(self._steps))

    def _is_bound(self, name: str) -> bool:
        ordering: _Ordering | None = self
        while ordering is not None:
            if name in ordering._bound:
                return True
            ordering = ordering._outer
        return False

    def _bind(self, name: str) -> None:
        if not self._is_bound(name):
            self._bound.add(name)
            self._predicates.bind(name)
            self._exclusions.bind(name)
            self._disjunctions.bind(name)
            self._computed.bind(name)
            self._unnests.bind(name)
            self._hops.bind(name)

    def _inner(self, block: CheckedBlock) -> Pattern:
        return _Ordering(block, self._catalog, self).pattern()

    def _start_order(self, name: str) -> tuple[bool, int]:
        """Sort key of the variables to scan: by key, then by equality, then by any condition.

        The target of a hop that cannot be reversed is scanned last.
        """
        local = self._predicates.reading_only(name)
        equal = {column.property for p in local for column, _ in _equalities(p)}
        key = set(self._key(self._block.nodes[name]))
        if key and key <= equal:
            score = 3
        elif equal:
            score = 2
        else:
            score = 1 if local else 0
        return name in self._hops.forward_only, -score

    # --- emitting ---------------------------------------------------------------------------------

    def _scan(self, name: str) -> None:
        type_name = self._block.nodes[name]
        predicates = tuple(self._predicates.take_reading_only([name]))
        self._bind(name)
        entity_id = self._pinned_id(type_name, predicates)
        self._steps.append(Scan(name, type_name, predicates, entity_id))

    def _pinned_id(
        self, type_name: str, predicates: tuple[ex.Expression, ...]
    ) -> ex.Expression | None:
        """The id that the conditions require: by `id`, or by a single String key."""
        key = self._key(type_name)
        for predicate in predicates:
            for column, value in _equalities(predicate):
                if column.type.scalar is not Scalar.STRING or column.type.is_list:
                    continue
                if column.property == ID or key == (column.property,):
                    return value
        return None

    def _key(self, type_name: str) -> tuple[str, ...]:
        """The key of a node type; empty for an interface, whose types have no common key."""
        node_type = self._catalog.nodes.get(type_name)
        return () if node_type is None else node_type.key

    def _expand(self, hop: Expand) -> None:
        step = hop if self._is_bound(hop.source) else reversed_hop(hop)
        target_is_bound = self._is_bound(step.target)
        new = [] if target_is_bound else [step.target]
        if step.edge_variable is not None:
            new.append(step.edge_variable)
        predicates = tuple(self._predicates.take_reading_only(new))
        for name in [*new, *([step.path_variable] if step.path_variable else [])]:
            self._bind(name)
        if step.path_variable in self._block.weights:
            checked = self._block.weights[step.path_variable]
            pattern = _Ordering(checked.block, self._catalog).pattern()
            step = replace(step, weight=replace(checked.weight, pattern=pattern))
        self._steps.append(replace(step, target_is_bound=target_is_bound, predicates=predicates))

    def _compute(self, computed: ComputedBlock) -> None:
        self._steps.append(replace(computed.step, pattern=self._inner(computed.block)))
        self._bind(computed.step.variable)

    def _unnest(self) -> bool:
        """Unnest the lists that can be read now; returns whether there was one.

        Runs after the hops and before the scan of another variable, which may be joined by an item.
        """
        ready = self._unnests.take_ready()
        for step in ready:
            self._steps.append(step)
            self._bind(step.variable)
        return bool(ready)

    def _emit_ready_tests(self) -> None:
        ready = self._predicates.take_ready()
        if ready:
            self._steps.append(FilterRows(tuple(ready)))
        for inner in self._exclusions.take_ready():
            self._steps.append(Exclude(self._inner(inner)))
        for several in self._disjunctions.take_ready():
            self._steps.append(Exists(tuple(map(self._inner, several))))
        for computed in self._computed.take_ready():
            variable = computed.step.variable
            if not (self._predicates.is_awaited(variable) or self._unnests.is_awaited(variable)):
                self._later.append(computed)
                continue
            self._compute(computed)
            if ready := self._predicates.take_ready():
                self._steps.append(FilterRows(tuple(ready)))


class _WaitingHops:
    """The hops of a block that have not run, by which ends are bound."""

    def __init__(self, hops: Sequence[Expand], is_bound: Callable[[str], bool]) -> None:
        self._hops = hops
        self._is_bound = is_bound
        self._done: set[int] = set()
        self._tests: list[int] = []
        """A heap of the hops with both ends bound; the other two heaps have one bound end."""
        self._forwards: list[int] = []
        self._backwards: list[int] = []
        self._at: dict[str, list[int]] = {}
        self.forward_only: set[str] = set()
        """Targets of hops between two variables that cannot run from their target."""
        for number, hop in enumerate(hops):
            for name in {hop.source, hop.target}:
                self._at.setdefault(name, []).append(number)
            if hop.target != hop.source and not hop.reversible:
                self.forward_only.add(hop.target)
            self._sort_in(number)

    def bind(self, name: str) -> None:
        """Mark a variable as bound."""
        for number in self._at.get(name, ()):
            self._sort_in(number)

    def next(self) -> Expand | None:
        """A hop that can run now: first with both ends bound, then with one usable end."""
        for heap in (self._tests, self._forwards, self._backwards):
            while heap:
                number = heappop(heap)
                if number not in self._done:
                    self._done.add(number)
                    return self._hops[number]
        return None

    def _sort_in(self, number: int) -> None:
        hop = self._hops[number]
        source, target = self._is_bound(hop.source), self._is_bound(hop.target)
        if source and target:
            heappush(self._tests, number)
        elif source:
            heappush(self._forwards, number)
        elif target and hop.reversible:
            heappush(self._backwards, number)


def reversed_hop(hop: Expand) -> Expand:
    """The same hop starting at its target; only for reversible hops."""
    return replace(
        hop,
        source=hop.target,
        source_type=hop.target_type,
        target=hop.source,
        target_type=hop.source_type,
        direction=FLIPPED[hop.direction],
        ends=None if hop.ends is None else (hop.ends[1], hop.ends[0]),
    )


def _equalities(predicate: ex.Expression) -> Iterator[tuple[ex.PropertyValue, ex.Expression]]:
    """The column and the value of each `column = value` whose value is the same for all rows."""
    if isinstance(predicate, ex.Compare) and predicate.operator == "=":
        for column, value in (
            (predicate.left, predicate.right),
            (predicate.right, predicate.left),
        ):
            if isinstance(column, ex.PropertyValue) and not ex.variables_of(value):
                yield column, value
