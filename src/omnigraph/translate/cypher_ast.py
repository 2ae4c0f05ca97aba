"""The syntax tree of a Cypher read. Every node has its position."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any
from typing import Literal as OneOf

from omnigraph.model.records import dataclass
from omnigraph.syntax.tokens import Span

# --- expressions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CypherLiteral:
    """A constant; None is `null`."""

    value: str | int | float | bool | None
    span: Span


@dataclass(frozen=True, slots=True)
class CypherListExpression:
    """`[a, b]`."""

    items: tuple[Expression, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class CypherMapExpression:
    """`{name: value}`."""

    pairs: tuple[tuple[str, Expression], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class CypherParameter:
    """`$name`."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class CypherVariable:
    """A node, a relationship, a path, or an alias of an earlier projection."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class CypherProperty:
    """`subject.name`."""

    subject: Expression
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class CypherItem:
    """`list[index]`."""

    list: Expression
    index: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class CypherCall:
    """`name(arguments)`; the name in lower case."""

    name: str
    arguments: tuple[Expression, ...]
    distinct: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CypherCountAll:
    """`count(*)`."""

    span: Span


@dataclass(frozen=True, slots=True)
class CypherCast:
    """`CAST(operand AS TYPE)`; the type in upper case."""

    operand: Expression
    type_name: str
    span: Span


@dataclass(frozen=True, slots=True)
class CypherUnary:
    """`NOT operand` or `-operand`."""

    operator: OneOf["NOT", "-"]
    operand: Expression
    span: Span


BinaryOperator = OneOf[
    "AND", "OR", "XOR", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "^",
    "IN", "STARTS WITH", "ENDS WITH", "CONTAINS", "=~",
]  # fmt: skip
COMPARISONS = ("=", "<>", "<=", ">=", "<", ">")


@dataclass(frozen=True, slots=True)
class CypherBinary:
    """`left operator right`."""

    operator: BinaryOperator
    left: Expression
    right: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class CypherNullTest:
    """`operand IS [NOT] NULL`."""

    operand: Expression
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CypherLabelTest:
    """`variable:Label` as a condition."""

    variable: CypherVariable
    label: str
    span: Span


@dataclass(frozen=True, slots=True)
class CypherCase:
    """`CASE [operand] WHEN … THEN … [ELSE …] END`."""

    operand: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None
    span: Span


@dataclass(frozen=True, slots=True)
class CypherSubquery:
    """`EXISTS { MATCH … }`, `COUNT { MATCH … }`, or a pattern where a condition is expected."""

    function: OneOf["exists", "count"]
    matches: tuple[CypherMatch, ...]
    span: Span


Expression = (
    CypherLiteral
    | CypherListExpression
    | CypherMapExpression
    | CypherParameter
    | CypherVariable
    | CypherProperty
    | CypherItem
    | CypherCall
    | CypherCountAll
    | CypherCast
    | CypherUnary
    | CypherBinary
    | CypherNullTest
    | CypherLabelTest
    | CypherCase
    | CypherSubquery
)

# --- patterns -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CypherNodePattern:
    """`(variable:Label {name: value})`."""

    variable: str | None
    label: str | None
    pairs: tuple[tuple[str, Expression], ...]
    span: Span


Direction = OneOf["out", "in", "both"]
PathChoice = OneOf["every", "one", "all"]
"""Every path of a pattern, one shortest path per pair, or all shortest paths."""


@dataclass(frozen=True, slots=True)
class CypherLengths:
    """`*m..n`; an upper bound of None is open."""

    minimum: int
    maximum: int | None
    span: Span


@dataclass(frozen=True, slots=True)
class CypherRelationshipPattern:
    """`-[variable:TYPE*1..3 {name: value}]->`."""

    variable: str | None
    type_name: str | None
    direction: Direction
    lengths: CypherLengths | None
    choice: PathChoice
    pairs: tuple[tuple[str, Expression], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class CypherPattern:
    """One chain of nodes and relationships, optionally with a name: `p = (a)-[…]->(b)`."""

    path: str | None
    nodes: tuple[CypherNodePattern, ...]
    relationships: tuple[CypherRelationshipPattern, ...]
    """One fewer than nodes."""
    span: Span


# --- clauses --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CypherMatch:
    """`[OPTIONAL] MATCH patterns [WHERE condition]`."""

    optional: bool
    patterns: tuple[CypherPattern, ...]
    where: Expression | None
    span: Span


@dataclass(frozen=True, slots=True)
class CypherUnwind:
    """`UNWIND list AS variable`."""

    items: Expression
    variable: str
    span: Span


@dataclass(frozen=True, slots=True)
class CypherProjectionItem:
    """One item of `WITH` or `RETURN`."""

    expression: Expression
    alias: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class CypherSortItem:
    """One key of `ORDER BY`."""

    expression: Expression
    descending: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CypherProjection:
    """`WITH` or `RETURN`, with the clauses after it."""

    items: tuple[CypherProjectionItem, ...]
    every: bool
    """Whether the first item is `*`."""
    distinct: bool
    order: tuple[CypherSortItem, ...]
    skip: Expression | None
    limit: Expression | None
    where: Expression | None
    """Only after `WITH`."""
    span: Span


@dataclass(frozen=True, slots=True)
class CypherStage:
    """Some matches and the projection that ends them."""

    clauses: tuple[CypherMatch | CypherUnwind, ...]
    projection: CypherProjection


@dataclass(frozen=True, slots=True)
class CypherStatement:
    """One read: its stages, of which the last returns."""

    name: str | None
    """The line comment above it, if that is a single word."""
    stages: tuple[CypherStage, ...]
    span: Span


# --- parts of a tree ------------------------------------------------------------------------------

AGGREGATES = {
    "count": "count", "sum": "sum", "avg": "avg", "min": "min", "max": "max", "collect": "collect",
    "stdev": "stddev", "percentilecont": "percentile",
}  # fmt: skip
"""Aggregate functions, and their names in `.gq`."""
_UNMOVED_BY_REPEATS = ("min", "max")


def is_aggregate(expression: Expression) -> bool:
    """Whether this is an aggregate itself."""
    if isinstance(expression, CypherCountAll):
        return True
    return isinstance(expression, CypherCall) and expression.name in AGGREGATES


def walk(node: Any) -> list[Any]:
    """A node of the tree and all nodes below it."""
    found = [node]
    if isinstance(node, tuple):
        found += [below for each in node for below in walk(each)]
    elif is_dataclass(node):
        found += [below for each in fields(node) for below in walk(getattr(node, each.name))]
    return found


def has_aggregate(expression: Expression) -> bool:
    """Whether it contains an aggregate, outside of subqueries."""
    if isinstance(expression, CypherSubquery):
        return False
    if is_aggregate(expression):
        return True
    return any(
        has_aggregate(below)
        for each in fields(expression)
        for below in _direct(getattr(expression, each.name))
    )


def _direct(value: Any) -> list[Any]:
    """The expressions in a field of an expression."""
    if isinstance(value, tuple) and not isinstance(value, Span):
        return [below for each in value for below in _direct(each)]
    return [value] if is_dataclass(value) else []


def ignores_repeats(expression: Expression) -> bool:
    """Whether every aggregate in it counts each value once, however often its row occurs."""
    if isinstance(expression, CypherCountAll):
        return False
    if isinstance(expression, CypherCall) and expression.name in AGGREGATES:
        return expression.distinct or expression.name in _UNMOVED_BY_REPEATS
    if isinstance(expression, CypherSubquery):
        return True
    return all(
        ignores_repeats(below)
        for each in fields(expression)
        for below in _direct(getattr(expression, each.name))
    )


def same(one: Any, other: Any) -> bool:
    """Whether two parts of a tree are equal, apart from their positions."""
    return bool(_shape(one) == _shape(other))


def _shape(node: Any) -> Any:
    if isinstance(node, Span):
        return None
    if isinstance(node, tuple):
        return tuple(_shape(each) for each in node)
    if is_dataclass(node):
        return (type(node), *(_shape(getattr(node, each.name)) for each in fields(node)))
    return (type(node), node)
