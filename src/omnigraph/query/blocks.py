"""The checked clauses of a match, on their way from the checker to the planner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Literal

from omnigraph.query import expressions as ex

Direction = Literal["out", "in", "both"]


@dataclass(frozen=True, slots=True)
class TypedHop:
    """A hop with its direction and both ends resolved; the source is the left variable."""

    source: str
    source_type: str
    target: str
    target_type: str
    edge_type: str
    direction: Direction
    minimum: int
    maximum: int
    edge_variable: str | None
    path_variable: str | None


@dataclass(slots=True)
class Block:
    """The clauses of one block, checked. Their order carries no meaning any more."""

    nodes: dict[str, str] = field(default_factory=dict)
    """Node variables introduced here, with their types, in order of appearance."""
    hops: list[TypedHop] = field(default_factory=list)
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
    and the second is another variable. Once clauses are put into another order only their names
    tell them apart.
    """
    _keep_apart(block, block.introduces, count(1))


def _keep_apart(block: Block, visible: frozenset[str], numbers: Iterator[int]) -> None:
    for inner in block.optional_blocks:
        _keep_apart(inner, visible | inner.introduces, numbers)
    for inner in block.local_blocks:
        # From the inside out: what is renamed here is then certainly meant by its name.
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
