"""The typed plan: what both engines run.

A read is a `Pattern` (an ordered list of steps that produces bindings) followed by the fixed tail
of the language: rank, aggregate, project, having, distinct, order, offset and limit. A mutation is
a list of statements. Search, ranking, negation and mutation are nodes of their own, so that an
engine never has to recognise them inside an expression tree.

Steps are in an executable order: the variables a step reads are bound before it.
An engine may choose another order, and may walk a hop from its target, where `Expand.reversible`
allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, assert_never

from omnigraph.errors import InputError
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
"""The direction of a hop that is walked from its other end."""

HOPS_MAX = 2**32 - 1
"""The largest bound of a hop. There are fewer nodes than this, so that a hop with this maximum ends
when it finds no more of them: an open bound."""

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
    """If there are any: only nodes that a solution of one of these binds the variable to. Engines
    set it where an `any` finds fewer nodes than there are; the compiler never does."""


@dataclass(frozen=True, slots=True)
class Expand:
    """Follow one edge type from a bound node.

    Without ``edge_variable`` the result is a set of destinations per source, found breadth first;
    with it there is one row per stored edge. With ``target_is_bound`` it is a test that keeps a row
    once if its target is among the destinations of its source.
    """

    source: str
    source_type: str
    target: str
    target_type: str
    edge_type: str
    direction: Direction
    minimum: int
    maximum: int
    """Below ``minimum`` for a second hop between two types, which finds nothing."""
    edge_variable: str | None = None
    path_variable: str | None = None
    target_is_bound: bool = False
    predicates: tuple[Expression, ...] = ()
    """Conditions on the target or the edge alone, ready to be pushed into storage."""
    ends: tuple[str, str] | None = None
    """The types that the edge type declares at the side of the source and of the target, if they
    are not the types of these variables: one of the four is an interface then. Edges at nodes of
    other types than a variable's are no part of the hop, so their number says nothing about it."""
    minimum_from: ParameterValue | None = None
    """The parameter that sets the minimum of a run; ``minimum`` is then 0."""
    maximum_from: ParameterValue | None = None
    """The parameter that sets the maximum of a run, if it is not above ``maximum``."""
    path_kind: PathKind = "one"
    """Which paths ``path_variable`` is bound to; with `all` a pair has a row for each."""
    weight: PropertyValue | ComputedWeight | None = None
    """What the edges of a cheapest path add up; the minimum is then 0 or 1, the maximum open, or 1
    between two types. An edge without a value is not taken."""

    @property
    def weight_pattern(self) -> Pattern | None:
        """The pattern that computes the weight, if it is more than a property."""
        return self.weight.pattern if isinstance(self.weight, ComputedWeight) else None

    @property
    def is_single(self) -> bool:
        """Whether the hop goes exactly one step."""
        return self.minimum == self.maximum == 1 and self.maximum_from is None

    @property
    def declared(self) -> tuple[str, str]:
        """The types that the edge type declares at the side of the source and of the target."""
        return self.ends or (self.source_type, self.target_type)

    @property
    def reversible(self) -> bool:
        """Whether the same pairs come out when the hop is walked from its target.

        With a minimum above one they do not: a self-loop reports its node one hop later, and which
        end carries the loop then matters. A path is defined from its source.
        """
        return self.minimum <= 1 and self.minimum_from is None and self.path_variable is None

    def within(self, parameters: Mapping[str, object]) -> Expand:
        """The hop with the bounds that the parameters of a run set."""
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
    """A weight that is computed for each edge that a path may take, in the direction of the path.

    It depends on the edge, its ends and parameters alone, so it is the same for all rows.
    """

    near: str
    edge: str
    far: str
    """The variables of the edge and of the nodes at its ends."""
    pattern: Pattern
    """Binds the three to every edge of the hop, in its first two steps. The other steps are the
    blocks that the value reads."""
    value: Expression


@dataclass(frozen=True, slots=True)
class FilterRows:
    """Keep the rows for which every predicate is true."""

    predicates: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Exclude:
    """`not`: keep the rows that no solution of the inner pattern extends."""

    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Exists:
    """`any`: keep, once, the rows that some solution of some alternative extends."""

    alternatives: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """`optional`: extend each row by every solution, or by nulls when there is none."""

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
        """What the values of rows are bound to in the match after the stage."""
        return value_variable(self.name)


def value_variable(name: str) -> str:
    """The variable of a value called ``name``, which no variable of a text is called."""
    return f".{name}"


@dataclass(frozen=True, slots=True)
class Stage:
    """`with`: bind the rows of a read of its own, the stage before. The first step, if any."""

    read: ReadPlan
    nodes: tuple[StageNode, ...]
    values: tuple[StageValue, ...]

    @property
    def introduces(self) -> tuple[str, ...]:
        """The variables that have a value after it."""
        return (*(each.name for each in self.nodes), *(each.variable for each in self.values))


@dataclass(frozen=True, slots=True)
class Compute:
    """`count { … }` and its kin: give each row a value of the solutions that extend it.

    Rows that bind the variables which the block reads alike have the same value. A `BoundValue` or
    a `RecordList` reads it.
    """

    variable: str
    function: BlockFunction
    pattern: Pattern
    items: tuple[tuple[str, Expression], ...] = ()
    """What the block returns, by name; a null is no value, unless it is part of a record."""
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    """Of the list that `collect` makes; without keys the items order it."""
    ties: tuple[BoundVariable, ...] = ()
    """The variables of the block whose ids order what the keys leave equal; none where the items
    do."""
    limit: RowCount | None = None


@dataclass(frozen=True, slots=True)
class Unnest:
    """`unnest`: extend each row by every item of a list, null items included; a `BoundValue` reads
    it. A row whose list is null or empty is extended by nothing, and gone."""

    variable: str
    list: Expression
    type: ValueType


Step: TypeAlias = Scan | Expand | FilterRows | Exclude | Exists | Extend | Stage | Compute | Unnest


@dataclass(frozen=True, slots=True)
class Pattern:
    """Steps to run in order, starting from one empty row or from the rows of an outer pattern.

    No two variables of a pattern and of those around it share a name. A name with a `#` in it is
    not the one in the text: the variable was `$_`, or local to a block.
    """

    steps: tuple[Step, ...]


# --- tail -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoundVariable:
    """What breaks ties of rows: ids of named variables in name order, then values of a stage."""

    name: str
    kind: EntityKind | Literal["value", "path"]
    """A path only where a pair of nodes has several: their ids do not tell its rows apart."""
    type_name: str
    """The node or edge type; nothing for a value."""
    value_type: ValueType | None = None


@dataclass(frozen=True, slots=True)
class Rank:
    """Order candidates by a score before anything else orders rows."""

    score: RankExpression
    best_first: bool = True


@dataclass(frozen=True, slots=True)
class NamedAggregate:
    """One aggregate to compute; names that no column uses serve `having` and computed items."""

    name: str
    value: AggregateValue


@dataclass(frozen=True, slots=True)
class GroupBy:
    """Group rows by the items and compute the aggregates; no items means one group."""

    items: tuple[tuple[str, Expression], ...]
    aggregates: tuple[NamedAggregate, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One output column. After a `GroupBy` its expression reads that stage's columns."""

    name: str
    expression: OutputExpression
    field: str
    """Its name in the operation descriptor: alias, property, variable or function."""


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
    """What the rows of a group agree in. Where rows are grouped or distinct they read output
    columns."""


@dataclass(frozen=True, slots=True)
class TypedParameter:
    """One declared parameter, in declaration order."""

    name: str
    type: ParameterType


TypeNumber: TypeAlias = tuple[str, int]
"""A node type, and the number by which references to its nodes name it."""


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
    """Drop repeated rows; of rows that a rank has ordered, the first one stays."""
    order: tuple[SortKey, ...]
    """Keys after the rank. Where rows are grouped or distinct they read output columns."""
    tie_breakers: tuple[OutputValue, ...]
    """For grouped or distinct rows, where an entity column stands for its id; otherwise ties break
    by the ids of ``variables``."""
    limit: RowCount | None
    offset: RowCount | None
    description: str | None = None
    instruction: str | None = None
    interfaces: tuple[InterfaceNodes, ...] = ()
    """Those that variables and hops name, by name; empty for a query over node types alone."""
    references: tuple[TypeNumber, ...] = ()
    """The node types whose nodes an interface may mix, directly or by way of others, by name.
    Empty if ``interfaces`` is."""
    memory_bytes: int = field(default=0, compare=False, repr=False)
    """About what the plan and its prepared form take, for caches."""
    is_bounded_by_parameters: bool = False
    """Whether some hop has bounds that only a run knows."""
    per: LimitPer | None = None
    """What each group keeps, before `offset` and `limit`."""

    def within(self, parameters: Mapping[str, object]) -> ReadPlan:
        """The plan of a run: the parameters that bound hops have their values."""
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
    """Insert one node; with a key it replaces the entity of that key."""

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
    """The type of the node at an end that is an interface; without, it is looked up."""
    target_type: Expression | None = None


@dataclass(frozen=True, slots=True)
class UpdateNodes:
    """Assign to every node the predicate matches."""

    type_name: str
    assignments: tuple[Assignment, ...]
    predicate: Expression


@dataclass(frozen=True, slots=True)
class UpdateEdges:
    """Assign to every edge the predicate matches; its ends stay."""

    type_name: str
    assignments: tuple[Assignment, ...]
    predicate: Expression


@dataclass(frozen=True, slots=True)
class DeleteNodes:
    """Delete every node the predicate matches, and every edge at them."""

    type_name: str
    predicate: Expression
    incident_edges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteEdges:
    """Delete every edge the predicate matches."""

    type_name: str
    predicate: Expression


@dataclass(frozen=True, slots=True)
class ForEach:
    """Run the steps once for each item of a list.

    They read the item as a parameter called ``variable``, and the field `f` of a record as one
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
    """About what the plan takes, for caches."""

    @property
    def is_insert_only(self) -> bool:
        """Whether the write can be prepared again when the branch moved."""
        return all(isinstance(step, InsertNode | InsertEdge) for step in statements_of(self.steps))

    @property
    def is_destructive(self) -> bool:
        """Whether the statements delete."""
        return isinstance(next(statements_of(self.steps)), DeleteNodes | DeleteEdges)


QueryPlan: TypeAlias = ReadPlan | MutationPlan
