"""Orders the checked clauses of a block into steps that run one after the other.

The order depends on the query alone: scan the most selective variable first (a key, then an
equality), follow hops from bound variables, run each test as soon as the variables it reads are
bound, and leave optional matches to the end. Engines that know table sizes may reorder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count

from omnigraph.model.arrow import ID
from omnigraph.model.types import Scalar
from omnigraph.query import expressions as ex
from omnigraph.query.plan import (
    Direction,
    Exclude,
    Exists,
    Expand,
    Extend,
    FilterRows,
    Pattern,
    Scan,
    Step,
)
from omnigraph.schema.catalog import Catalog

# --- checked clauses ------------------------------------------------------------------------------


@dataclass(slots=True)
class Block:
    """The checked clauses of one block, in no particular order."""

    nodes: dict[str, str] = field(default_factory=dict)
    """Node variables introduced here, with their types, in order of appearance."""
    hops: list[Expand] = field(default_factory=list)
    """Each starts at its left variable."""
    predicates: list[ex.Expression] = field(default_factory=list)
    exclusions: list[Block] = field(default_factory=list)
    disjunctions: list[tuple[Block, ...]] = field(default_factory=list)
    optionals: list[tuple[Block, tuple[str, ...]]] = field(default_factory=list)

    @property
    def introduces(self) -> frozenset[str]:
        """Variables that have a value once the block has run, those of `optional` included."""
        bound = {name for hop in self.hops for name in (hop.edge_variable, hop.path_variable)}
        optional = (name for _, names in self.optionals for name in names)
        return frozenset(name for name in chain(self.nodes, bound, optional) if name is not None)

    @property
    def local_blocks(self) -> Iterator[Block]:
        """Negations and alternatives, whose variables are not seen outside of them."""
        yield from self.exclusions
        yield from chain.from_iterable(self.disjunctions)

    @property
    def optional_blocks(self) -> Iterator[Block]:
        """The blocks of `optional`, whose variables belong to this block too."""
        return (inner for inner, _ in self.optionals)


def keep_locals_apart(block: Block) -> None:
    """Rename local variables that share a name with a variable of an enclosing block.

    Names resolve from top to bottom, so in `not { $a wrote $b }  $b: Book` the first `$b` is local
    and the second is another variable. Lowering reorders clauses, after which only their names
    distinguish them.
    """
    _keep_apart(block, block.introduces, count(1))


def _keep_apart(block: Block, visible: frozenset[str], numbers: Iterator[int]) -> None:
    for inner in block.optional_blocks:
        _keep_apart(inner, visible | inner.introduces, numbers)
    for inner in block.local_blocks:
        # Inner blocks first, so that a name renamed here cannot belong to an inner variable.
        _keep_apart(inner, visible | inner.introduces, numbers)
        clashing = {name: f"{name}#{next(numbers)}" for name in sorted(inner.introduces & visible)}
        if clashing:
            _rename(inner, clashing)


def _rename(block: Block, names: dict[str, str]) -> None:
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
    block.predicates = [ex.renamed(predicate, names) for predicate in block.predicates]
    block.optionals = [(inner, tuple(map(new, bound))) for inner, bound in block.optionals]
    for inner in chain(block.local_blocks, block.optional_blocks):
        _rename(inner, names)


# --- order of the steps ---------------------------------------------------------------------------


_FLIPPED: dict[Direction, Direction] = {"out": "in", "in": "out", "both": "both"}


def lower_block(block: Block, catalog: Catalog, bound: frozenset[str] = frozenset()) -> Pattern:
    """The steps of a block, given the variables that are bound when it starts."""
    return _Ordering(block, catalog, set(bound)).pattern()


@dataclass(slots=True)
class _Ordering:
    """Work list of one block."""

    block: Block
    catalog: Catalog
    bound: set[str]
    steps: list[Step] = field(default_factory=list)
    hops: list[Expand] = field(init=False)
    predicates: list[tuple[frozenset[str], ex.Expression]] = field(init=False)
    """Conditions still to be placed, with the variables each one reads."""
    exclusions: list[tuple[frozenset[str], Block]] = field(init=False)
    disjunctions: list[tuple[frozenset[str], tuple[Block, ...]]] = field(init=False)

    def __post_init__(self) -> None:
        block = self.block
        self.hops = list(block.hops)
        self.predicates = [(ex.variables_of(p), p) for p in block.predicates]
        self.exclusions = [(_outer_variables(inner), inner) for inner in block.exclusions]
        self.disjunctions = [
            (frozenset().union(*map(_outer_variables, inner)), inner)
            for inner in block.disjunctions
        ]

    def pattern(self) -> Pattern:
        waiting = dict(self.block.nodes)
        self._test_what_is_ready()
        while True:
            hop = self._next_hop()
            if hop is not None:
                self._expand(hop)
                waiting.pop(hop.source, None)
                waiting.pop(hop.target, None)
            elif waiting:
                self._scan(self._best_start(waiting), waiting)
            else:
                break
            self._test_what_is_ready()
        for inner, introduced in self.block.optionals:
            pattern = lower_block(inner, self.catalog, frozenset(self.bound))
            self.steps.append(Extend(pattern, introduced))
            self.bound.update(introduced)
            self._test_what_is_ready()
        return Pattern(tuple(self.steps))

    # --- choosing ---------------------------------------------------------------------------------

    def _next_hop(self) -> Expand | None:
        """A hop that can run now: tests first, then the first one with a usable bound end."""
        ready = [hop for hop in self.hops if hop.source in self.bound]
        for hop in ready:
            if hop.target in self.bound:
                return hop
        if ready:
            return ready[0]
        for hop in self.hops:
            if hop.target in self.bound and hop.reversible:
                return hop
        return None

    def _best_start(self, waiting: dict[str, str]) -> str:
        """The variable to scan first: pinned by key, then by equality, then by any condition.

        The target of a hop that only runs forwards is scanned when nothing else is left.
        """
        return max(waiting, key=lambda name: self._selectivity(name, waiting[name]))

    def _selectivity(self, name: str, type_name: str) -> tuple[bool, int]:
        forward_only = any(
            hop.target == name != hop.source and not hop.reversible for hop in self.hops
        )
        local = [p for read, p in self.predicates if read == {name}]
        equal = {column.property for p in local for column, _ in _equalities(p)}
        key = set(self.catalog.nodes[type_name].key)
        if key and key <= equal:
            score = 3
        elif equal:
            score = 2
        else:
            score = 1 if local else 0
        return not forward_only, score

    # --- emitting ---------------------------------------------------------------------------------

    def _scan(self, name: str, waiting: dict[str, str]) -> None:
        self.bound.add(name)
        type_name = waiting.pop(name)
        predicates = self._take_local({name})
        entity_id = self._pinned_id(type_name, predicates)
        self.steps.append(Scan(name, type_name, predicates, entity_id))

    def _pinned_id(
        self, type_name: str, predicates: tuple[ex.Expression, ...]
    ) -> ex.Expression | None:
        """The required id: the value of `id`, or of a single String key."""
        key = self.catalog.nodes[type_name].key
        for predicate in predicates:
            for column, value in _equalities(predicate):
                if column.type.scalar is not Scalar.STRING or column.type.is_list:
                    continue
                if column.property == ID or key == (column.property,):
                    return value
        return None

    def _expand(self, hop: Expand) -> None:
        self.hops.remove(hop)
        step = hop if hop.source in self.bound else _reversed(hop)
        new = {step.target} - self.bound
        if step.edge_variable is not None:
            new.add(step.edge_variable)
        self.bound |= new | ({step.path_variable} if step.path_variable else set())
        target_is_bound = step.target not in new
        self.steps.append(
            replace(step, target_is_bound=target_is_bound, predicates=self._take_local(new))
        )

    def _take_local(self, names: set[str]) -> tuple[ex.Expression, ...]:
        """Remove and return the predicates that read exactly one of these variables."""
        return self._take(lambda read: len(read) == 1 and read <= names)

    def _take(self, wanted: Callable[[frozenset[str]], bool]) -> tuple[ex.Expression, ...]:
        """Remove and return the predicates whose variables are ``wanted``."""
        taken = tuple(p for read, p in self.predicates if wanted(read))
        if taken:
            self.predicates = [entry for entry in self.predicates if not wanted(entry[0])]
        return taken

    def _test_what_is_ready(self) -> None:
        ready = self._take(self.bound.issuperset)
        if ready:
            self.steps.append(FilterRows(ready))
        bound = frozenset(self.bound)
        for read, inner in [e for e in self.exclusions if e[0] <= bound]:
            self.exclusions.remove((read, inner))
            self.steps.append(Exclude(lower_block(inner, self.catalog, bound)))
        for read, several in [d for d in self.disjunctions if d[0] <= bound]:
            self.disjunctions.remove((read, several))
            patterns = tuple(lower_block(one, self.catalog, bound) for one in several)
            self.steps.append(Exists(patterns))


def _reversed(hop: Expand) -> Expand:
    """The hop as a step that starts at its target."""
    return replace(
        hop,
        source=hop.target,
        source_type=hop.target_type,
        target=hop.source,
        target_type=hop.source_type,
        direction=_FLIPPED[hop.direction],
    )


def _equalities(predicate: ex.Expression) -> Iterator[tuple[ex.PropertyValue, ex.Expression]]:
    """The column and the value of `column = value`, where the value is the same for all rows."""
    if isinstance(predicate, ex.Compare) and predicate.operator == "=":
        for column, value in (
            (predicate.left, predicate.right),
            (predicate.right, predicate.left),
        ):
            if isinstance(column, ex.PropertyValue) and not ex.variables_of(value):
                yield column, value


def _outer_variables(block: Block) -> frozenset[str]:
    """Variables a block reads but does not introduce."""
    read: set[str] = set()
    for hop in block.hops:
        read |= {hop.source, hop.target}
    for predicate in block.predicates:
        read |= ex.variables_of(predicate)
    for inner in chain(block.local_blocks, block.optional_blocks):
        read |= _outer_variables(inner)
    return frozenset(read - block.introduces)
