"""The typed plan that both engines run.

A read is a `Pattern` (an ordered list of steps that produces bindings) followed by the fixed tail
of the language: rank, aggregate, project, having, distinct, order, offset and limit. A mutation is
a list of statements. Search, ranking, negation and mutation have nodes of their own, so that
engines need not recognise them inside an expression tree.

Steps are in an executable order: the variables a step reads are bound before it. An engine may
choose another order, and may follow a hop from its target, where `Expand.reversible` allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Literal, TypeAlias, assert_never

from omnigraph.errors import InputError
from omnigraph.model.records import dataclass
from omnigraph.model.types import ParameterType, ValueType
from omnigraph.query.expressions import (
    AggregateValue,
    EntityKind,
    Expression,
    OutputExpression,
    OutputValue,
    ParameterValue,
    PropertyValue,
    RankExpression,
)
from omnigraph.syntax.query_ast import BlockFunction, PathKind

Direction: TypeAlias = Literal["out", "in", "both"]

FLIPPED: Mapping[Direction, Direction] = {"out": "in", "in": "out", "both": "both"}
"""The direction of a hop seen from its other end."""

HOPS_MAX = 2**32 - 1
"""The largest bound of a hop, used for an open bound. There are fewer nodes than this, so the
search ends earlier, when it finds no more nodes."""

# --- match ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    """Bind every node of one type; beside other bindings this is a cross product."""

    variable: str
    type_name: str
    predicates: tuple[Expression, ...] = ()
    """Conditions on this variable alone, ready to be pushed into storage."""
    entity_id: Expression | None = None
    """The id of the only node that can satisfy them, if they fix a String key."""
    among: tuple[Pattern, ...] = ()
    """If not empty: only nodes that a solution of one of these patterns binds the variable to. Set
    by engines, never by the compiler, where an `any` finds few nodes."""


@dataclass(frozen=True, slots=True)
class Expand:
    """Follow one edge type from a bound node.

    Without ``edge_variable`` the result is a set of destinations per source, found breadth first;
    with it there is one row per stored edge. With ``target_is_bound`` it is a semi join: it keeps a
    row once if its target is among the destinations of its source.
    """

    source: str
    source_type: str
    target: str
    target_type: str
    edge_type: str
    direction: Direction
    minimum: int
    maximum: int
    """Less than ``minimum`` for several hops between two types, which find nothing."""
    edge_variable: str | None = None
    path_variable: str | None = None
    target_is_bound: bool = False
    predicates: tuple[Expression, ...] = ()
    """Conditions on the target or the edge alone, ready to be pushed into storage."""
    ends: tuple[str, str] | None = None
    """The types that the edge type declares for the source and the target, if they differ from
    those of the variables: one of the four is an interface then. Edges at nodes of other types
    are not part of the hop, so statistics of the edge type do not apply."""
    minimum_from: ParameterValue | None = None
    """The parameter with the minimum; ``minimum`` is then 0."""
    maximum_from: ParameterValue | None = None
    """The parameter with the maximum, which may not exceed ``maximum``."""
    path_kind: PathKind = "one"
    """Which paths ``path_variable`` is bound to; with `all` a pair has a row per path."""
    weight: PropertyValue | ComputedWeight | None = None
    """The weight that a cheapest path adds up. The minimum is then 0 or 1, the maximum open, or 1
    between two types. Edges without a value are not followed."""

    @property
    def weight_pattern(self) -> Pattern | None:
        """The pattern that computes the weight, unless it is a property."""
        return self.weight.pattern if isinstance(self.weight, ComputedWeight) else None

    @property
    def is_single(self) -> bool:
        """Whether the hop has exactly one step."""
        return self.minimum == self.maximum == 1 and self.maximum_from is None

    @property
    def declared(self) -> tuple[str, str]:
        """The types that the edge type declares for the source and the target."""
        return self.ends or (self.source_type, self.target_type)

    @property
    def reversible(self) -> bool:
        """Whether following the hop from its target gives the same pairs.

        With a minimum above one it does not: a self-loop reports its node one hop later, so it
        matters which end has the loop. Paths are defined from their source.
        """
        return self.minimum <= 1 and self.minimum_from is None and self.path_variable is None

    def within(self, parameters: Mapping[str, object]) -> Expand:
        """The hop with the bounds given by the parameters of a run."""
        if isinstance(self.weight, ComputedWeight):
            pattern = _pattern_within(self.weight.pattern, parameters)
            return replace(self, weight=replace(self.weight, pattern=pattern))
        if self.minimum_from is None and self.maximum_from is None:
            return self
        minimum, maximum = self.minimum, self.maximum
        if self.minimum_from is not None:
            minimum = _bound(self.minimum_from, parameters)
        if self.maximum_from is not None:
            wanted = _bound(self.maximum_from, parameters)
            if wanted < minimum:
                raise InputError(
                    f"the upper bound {wanted} of a hop over {self.edge_type} is below its lower "
                    f"bound {minimum}",
                    hint=f"parameter '{self.maximum_from.name}' must be at least {minimum}",
                )
            maximum = min(maximum, wanted)
        return replace(self, minimum=minimum, maximum=maximum, minimum_from=None, maximum_from=None)


def _bound(parameter: ParameterValue, parameters: Mapping[str, object]) -> int:
    value = parameters[parameter.name]
    assert isinstance(value, int)
    if value < 0:
        raise InputError(
            f"parameter '{parameter.name}' bounds a hop and cannot be negative: {value}"
        )
    return min(value, HOPS_MAX)


@dataclass(frozen=True, slots=True)
class ComputedWeight:
    """A weight computed for each edge that a path may take, in the direction of the path.

    It depends only on the edge, its ends and parameters, so it is the same for all rows.
    """

    near: str
    edge: str
    far: str
    """The variables of the near node, the edge and the far node."""
    pattern: Pattern
    """Its first two steps bind the three variables to every edge of the hop. The other steps are
    the blocks that the value reads."""
    value: Expression


@dataclass(frozen=True, slots=True)
class FilterRows:
    """Keep the rows for which every predicate is true."""

    predicates: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Exclude:
    """`not`: keep the rows that no solution of the inner pattern extends (anti join)."""

    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Exists:
    """`any`: keep, once, the rows that some solution of some alternative extends (semi join)."""

    alternatives: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """`optional`: extend each row by every solution, or by nulls if there is none (outer join)."""

    pattern: Pattern
    introduces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StageNode:
    """A node variable that a stage hands on, in the column of this name."""

    name: str
    type_name: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class StageValue:
    """A value that a stage hands on, in the column of this name; a `BoundValue` reads it."""

    name: str
    type: ValueType

    @property
    def variable(self) -> str:
        """The variable that holds the value in the match after the stage."""
        return value_variable(self.name)


def value_variable(name: str) -> str:
    """The variable for a value called ``name``; no variable of a text has this form."""
    return f".{name}"


@dataclass(frozen=True, slots=True)
class Stage:
    """`with`: bind the rows of the previous stage, a read of its own. Always the first step."""

    read: ReadPlan
    nodes: tuple[StageNode, ...]
    values: tuple[StageValue, ...]

    @property
    def introduces(self) -> tuple[str, ...]:
        """The variables that are bound after it."""
        return (*(each.name for each in self.nodes), *(each.variable for each in self.values))


@dataclass(frozen=True, slots=True)
class Compute:
    """`count { … }` and other blocks: give each row a value of the solutions that extend it.

    Rows with equal bindings of the variables that the block reads have the same value. A
    `BoundValue` or a `RecordList` reads it.
    """

    variable: str
    function: BlockFunction
    pattern: Pattern
    items: tuple[tuple[str, Expression], ...] = ()
    """The items of the block by name; a null is left out, unless it is part of a record."""
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    """The order of the list that `collect` makes; without keys it is sorted by the items."""
    ties: tuple[BoundVariable, ...] = ()
    """The variables of the block whose ids break ties of the order; empty if the items do."""
    limit: RowCount | None = None


@dataclass(frozen=True, slots=True)
class Unnest:
    """`unnest`: one row per item of a list, null items included; a `BoundValue` reads the item. A
    row whose list is null or empty is dropped."""

    variable: str
    list: Expression
    type: ValueType


Step: TypeAlias = Scan | Expand | FilterRows | Exclude | Exists | Extend | Stage | Compute | Unnest


@dataclass(frozen=True, slots=True)
class Pattern:
    """Steps to run in order, starting from one empty row or from the rows of an outer pattern.

    Variable names are unique across a pattern and its outer patterns. A name with a `#` in it is
    generated: the variable was `$_`, or local to a block.
    """

    steps: tuple[Step, ...]


# --- tail -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoundVariable:
    """A tie breaker: ids of named variables in name order, then values of a stage."""

    name: str
    kind: EntityKind | Literal["value", "path"]
    """A path only if a pair of nodes has several, which ids of nodes do not distinguish."""
    type_name: str
    """The node or edge type; empty for a value."""
    value_type: ValueType | None = None


@dataclass(frozen=True, slots=True)
class Rank:
    """Order candidates by a score before any sort key."""

    score: RankExpression
    best_first: bool = True


@dataclass(frozen=True, slots=True)
class NamedAggregate:
    """One aggregate to compute; names that no column has are for `having` and computed items."""

    name: str
    value: AggregateValue


@dataclass(frozen=True, slots=True)
class GroupBy:
    """Group rows by the items and compute the aggregates; without items there is one group."""

    items: tuple[tuple[str, Expression], ...]
    aggregates: tuple[NamedAggregate, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One output column. After a `GroupBy` its expression reads that stage's columns."""

    name: str
    expression: OutputExpression
    field: str
    """The name in the operation descriptor: alias, property, variable or function."""


@dataclass(frozen=True, slots=True)
class SortKey:
    """One sort key; null is smaller than every value."""

    expression: Expression
    descending: bool = False


RowCount: TypeAlias = int | ParameterValue


@dataclass(frozen=True, slots=True)
class LimitPer:
    """Keep the first rows of each group, in the order of the result."""

    count: RowCount
    keys: tuple[Expression, ...]
    """The group keys. For grouped or distinct rows they read output columns."""


@dataclass(frozen=True, slots=True)
class TypedParameter:
    """One declared parameter, in declaration order."""

    name: str
    type: ParameterType


TypeNumber: TypeAlias = tuple[str, int]
"""A node type, and its number in references to its nodes."""


@dataclass(frozen=True, slots=True)
class InterfaceNodes:
    """An interface that a plan names, and the node types that implement it, by name."""

    name: str
    types: tuple[TypeNumber, ...]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A compiled read query."""

    name: str
    parameters: tuple[TypedParameter, ...]
    pattern: Pattern
    variables: tuple[BoundVariable, ...]
    rank: Rank | None
    group_by: GroupBy | None
    columns: tuple[Column, ...]
    having: tuple[Expression, ...]
    """Conditions on output columns and aggregates, before `distinct`."""
    distinct: bool
    """Drop repeated rows; of ranked rows, the best one stays."""
    order: tuple[SortKey, ...]
    """Sort keys after the rank. For grouped or distinct rows they read output columns."""
    tie_breakers: tuple[OutputValue, ...]
    """For grouped or distinct rows, where an entity column stands for its id; for other rows the
    ids of ``variables`` break ties."""
    limit: RowCount | None
    offset: RowCount | None
    description: str | None = None
    instruction: str | None = None
    interfaces: tuple[InterfaceNodes, ...] = ()
    """The interfaces that variables and hops name, by name; empty without interfaces."""
    references: tuple[TypeNumber, ...] = ()
    """The node types that these interfaces may mix, directly or through other interfaces, by name.
    Empty if ``interfaces`` is."""
    memory_bytes: int = field(default=0, compare=False, repr=False)
    """Approximate memory of the plan and its prepared form, for caches."""
    is_bounded_by_parameters: bool = False
    """Whether parameters set the bounds of some hop."""
    per: LimitPer | None = None
    """The limit of each group, before `offset` and `limit`."""

    def within(self, parameters: Mapping[str, object]) -> ReadPlan:
        """The plan with the values of parameters that bound hops."""
        if not self.is_bounded_by_parameters:
            return self
        pattern = _pattern_within(self.pattern, parameters)
        return replace(self, pattern=pattern, is_bounded_by_parameters=False)

    @property
    def nodes_of(self) -> dict[str, tuple[TypeNumber, ...]]:
        """The node types of each interface."""
        return {each.name: each.types for each in self.interfaces}


def _pattern_within(pattern: Pattern, parameters: Mapping[str, object]) -> Pattern:
    steps: list[Step] = []
    for step in pattern.steps:
        match step:
            case Expand():
                steps.append(step.within(parameters))
            case Exclude() | Extend() | Compute():
                steps.append(replace(step, pattern=_pattern_within(step.pattern, parameters)))
            case Exists():
                inner = tuple(_pattern_within(each, parameters) for each in step.alternatives)
                steps.append(Exists(inner))
            case Stage():
                steps.append(replace(step, read=step.read.within(parameters)))
            case Scan() | FilterRows() | Unnest():
                steps.append(step)
            case _:
                assert_never(step)
    return Pattern(tuple(steps))


# --- mutations ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """A property and the value it gets."""

    property: str
    type: ValueType
    value: Expression
    by_row: bool = False
    """Whether the value depends on the entity that it is assigned to."""


@dataclass(frozen=True, slots=True)
class InsertNode:
    """Insert one node; if a node with the same key exists, replace it."""

    type_name: str
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class InsertEdge:
    """Insert one edge between two existing or pending nodes."""

    type_name: str
    source: Expression
    target: Expression
    assignments: tuple[Assignment, ...]
    source_type: Expression | None = None
    """The type of the node at an end that is an interface; None: it is looked up."""
    target_type: Expression | None = None


@dataclass(frozen=True, slots=True)
class UpdateNodes:
    """Assign to every node that the predicate matches."""

    type_name: str
    assignments: tuple[Assignment, ...]
    predicate: Expression


@dataclass(frozen=True, slots=True)
class UpdateEdges:
    """Assign to every edge that the predicate matches; its ends stay."""

    type_name: str
    assignments: tuple[Assignment, ...]
    predicate: Expression


@dataclass(frozen=True, slots=True)
class DeleteNodes:
    """Delete every node that the predicate matches, and every edge at them."""

    type_name: str
    predicate: Expression
    incident_edges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteEdges:
    """Delete every edge that the predicate matches."""

    type_name: str
    predicate: Expression


@dataclass(frozen=True, slots=True)
class ForEach:
    """Run the steps once for each item of a list.

    The steps read the item as a parameter called ``variable``, or the field `f` of a record as one
    called ``variable.f``.
    """

    variable: str
    items: str
    """The list: a parameter, or a field of the record of an outer loop."""
    steps: tuple[MutationStep, ...]


MutationStep: TypeAlias = (
    InsertNode | InsertEdge | UpdateNodes | UpdateEdges | DeleteNodes | DeleteEdges | ForEach
)
Statement: TypeAlias = (
    InsertNode | InsertEdge | UpdateNodes | UpdateEdges | DeleteNodes | DeleteEdges
)
"""A step that writes by itself."""


def statements_of(steps: Iterable[MutationStep]) -> Iterator[Statement]:
    """The statements of a mutation, those in loops included, in the order of the text."""
    for step in steps:
        if isinstance(step, ForEach):
            yield from statements_of(step.steps)
        else:
            yield step


@dataclass(frozen=True, slots=True)
class MutationPlan:
    """A compiled write query: only inserts and updates, or only deletes."""

    name: str
    parameters: tuple[TypedParameter, ...]
    steps: tuple[MutationStep, ...]
    description: str | None = None
    instruction: str | None = None
    memory_bytes: int = field(default=0, compare=False, repr=False)
    """Approximate memory of the plan, for caches."""

    @property
    def is_insert_only(self) -> bool:
        """Whether all statements insert; such a write can be prepared again on a newer head."""
        return all(isinstance(step, InsertNode | InsertEdge) for step in statements_of(self.steps))

    @property
    def is_destructive(self) -> bool:
        """Whether the statements delete."""
        return isinstance(next(statements_of(self.steps)), DeleteNodes | DeleteEdges)


QueryPlan: TypeAlias = ReadPlan | MutationPlan


def parts_of(tree: object) -> Iterator[object]:
    """A plan or a syntax tree, and all that it is made of."""
    yield tree
    if isinstance(tree, tuple):
        for each in tree:
            yield from parts_of(each)
    elif hasattr(tree, "__dataclass_fields__"):
        for name in tree.__dataclass_fields__:
            yield from parts_of(getattr(tree, name))
