"""Typed expressions: the output of the checker.

They are frozen values that carry their type and everything an engine needs, so that no engine reads
source text or the catalog. Equal expressions denote the same value; that is how a returned score is
recognised as the ranking one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Literal, TypeAlias, get_args

from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import ScalarValue
from omnigraph.syntax.query_ast import (
    TYPE,
    AggregateFunction,
    ArithmeticOperator,
    ComparisonOperator,
    ScalarFunction,
    TextQueryKind,
)

EntityKind: TypeAlias = Literal["node", "edge"]
ConstantValue: TypeAlias = ScalarValue | None
Value: TypeAlias = ConstantValue | tuple[ConstantValue, ...]

BOOL = ValueType(Scalar.BOOL)
STRING = ValueType(Scalar.STRING)
STRINGS = ValueType(Scalar.STRING, is_list=True)
I64 = ValueType(Scalar.I64)
F64 = ValueType(Scalar.F64)
DATETIME = ValueType(Scalar.DATETIME)

NODE_TYPE = TYPE
NODE_ID = "@id"

MUTATION_TARGET = ""
"""The variable of the row that the `where` of a mutation tests."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; a list or a vector is a tuple."""

    value: Value
    type: ValueType


@dataclass(frozen=True, slots=True)
class ParameterValue:
    """The value given for a declared parameter."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class CurrentTime:
    """`now()`: one instant for the whole execution."""

    type: ValueType = DATETIME


@dataclass(frozen=True, slots=True)
class PropertyValue:
    """A stored column of a bound node or edge; `id`, `src` and `dst` count as columns.

    For a node, `NODE_TYPE` is the name of its type. For an interface variable, `NODE_ID` is the id,
    which nodes of different types may share.
    """

    variable: str
    kind: EntityKind
    type_name: str
    property: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class EntityId:
    """The id of a bound node; for an interface, a reference that is unique across its types."""

    variable: str
    type: ValueType = STRING


@dataclass(frozen=True, slots=True)
class EntityObject:
    """`$x.*`: id, for edges the endpoints, and every non-Blob property, as one object."""

    variable: str
    kind: EntityKind
    type_name: str
    columns: tuple[tuple[str, ValueType], ...]
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class PathNodes:
    """The ids along a bound path, both ends included."""

    variable: str
    type: ValueType = STRINGS


@dataclass(frozen=True, slots=True)
class PathLength:
    """The number of hops of a bound path."""

    variable: str
    type: ValueType = I64


@dataclass(frozen=True, slots=True)
class BoundValue:
    """A value that each row of a match has, from a stage or from a block like `count { … }`.

    The name begins with a dot, which no variable of a text does.
    """

    variable: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class RecordList:
    """The value of a `collect { … }` that returns several items: a list of records."""

    variable: str
    columns: tuple[tuple[str, ValueType], ...]


@dataclass(frozen=True, slots=True)
class CarriedNode:
    """A bound node as a column that `with` hands on, to be bound again by the next match.

    Its value is the engine's own representation of the node: a number, an id, or the node itself.
    """

    variable: str
    type_name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class PathEdges:
    """The ids of the edges along a bound path; of parallel edges the cheapest or smallest."""

    variable: str
    type: ValueType = STRINGS


@dataclass(frozen=True, slots=True)
class PathCost:
    """The sum of the weights of the edges of a cheapest path."""

    variable: str
    type: ValueType = F64


@dataclass(frozen=True, slots=True)
class OutputValue:
    """A column computed by an earlier stage: an aggregate, a group item or a return item."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class RoundToF32:
    """A float rounded to single precision, for a comparison with an F32 property."""

    operand: Expression
    type: ValueType = ValueType(Scalar.F32)


@dataclass(frozen=True, slots=True)
class KeyId:
    """The id of the node whose only key property has this value; for a list, the ids of several."""

    operand: Expression
    key: ValueType
    type: ValueType


@dataclass(frozen=True, slots=True)
class ArithmeticValue:
    """`left operator right`; null if either side is null, and for a division by zero.

    If the left side is a date, the right side is a period of time, or another date for their
    difference.
    """

    operator: ArithmeticOperator
    left: Expression
    right: Expression
    type: ValueType


@dataclass(frozen=True, slots=True)
class ScalarCall:
    """A scalar function. A period of time such as `days(3)` is the number of its units."""

    function: ScalarFunction
    arguments: tuple[Expression, ...]
    type: ValueType


@dataclass(frozen=True, slots=True)
class ListItem:
    """The item of a list at an index counted from 0; null if there is none."""

    list: Expression
    index: Expression
    type: ValueType


@dataclass(frozen=True, slots=True)
class ConditionalValue:
    """The value for the first true condition, or ``otherwise``; no other value is computed."""

    conditions: tuple[Expression, ...]
    values: tuple[Expression, ...]
    """One per condition."""
    otherwise: Expression | None
    """None: the result is null if no condition is true."""
    type: ValueType


# --- predicates -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison; never true when either side is null."""

    operator: ComparisonOperator
    left: Expression
    right: Expression
    type: ValueType = BOOL


@dataclass(frozen=True, slots=True)
class TextContains:
    """Exact, case-sensitive substring test."""

    text: Expression
    needle: Expression
    type: ValueType = BOOL


@dataclass(frozen=True, slots=True)
class TextStartsWith:
    """Exact, case-sensitive prefix test."""

    text: Expression
    prefix: Expression
    type: ValueType = BOOL


@dataclass(frozen=True, slots=True)
class TextEndsWith:
    """Exact, case-sensitive suffix test."""

    text: Expression
    suffix: Expression
    type: ValueType = BOOL


@dataclass(frozen=True, slots=True)
class TextMatches:
    """Whether a part of a text matches a regular expression in the syntax of RE2."""

    text: Expression
    pattern: Expression
    """A constant or a parameter."""
    type: ValueType = BOOL


@dataclass(frozen=True, slots=True)
class ListContains:
    """Membership by equality; null lists, items and elements never match."""

    list: Expression
    item: Expression
    type: ValueType = BOOL


@dataclass(frozen=True, slots=True)
class IsNull:
    """Two-valued null test; of an `EntityId`, whether an optional match found nothing."""

    operand: Expression
    negated: bool
    type: ValueType = BOOL


@dataclass(frozen=True, slots=True)
class Combine:
    """Several predicates joined by one operator."""

    operator: Literal["and", "or"]
    operands: tuple[Expression, ...]
    type: ValueType = BOOL


@dataclass(frozen=True, slots=True)
class TextQuery:
    """How a search text is parsed: as a phrase, as an expression with operators, … A text without
    this is a bag of words."""

    kind: TextQueryKind
    text: Expression
    """A constant or a parameter."""
    type: ValueType = STRING


@dataclass(frozen=True, slots=True)
class TextMatch:
    """`search`, `match_text` and `fuzzy`: analysed text search on one property."""

    function: Literal["search", "match_text", "fuzzy"]
    variable: str
    type_name: str
    property: str
    query: Expression
    edits_max: Expression | None = None
    """Only for `fuzzy`."""
    type: ValueType = BOOL


@dataclass(frozen=True, slots=True)
class Highlight:
    """The fragments of a text that contain hits of a search text, with the hits marked."""

    variable: str
    type_name: str
    property: str
    query: Expression
    style: Literal["text", "html"]
    type: ValueType = STRINGS.with_nullable(True)


# --- ranking --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Nearest:
    """Squared L2 distance to a query vector, or to the embedding of a query text."""

    variable: str
    type_name: str
    property: str
    dimension: int
    query: Expression
    model: str | None = None
    """The embedding model of the property; a query text has to be embedded with it."""
    type: ValueType = ValueType(Scalar.F64, nullable=True)


@dataclass(frozen=True, slots=True)
class Bm25:
    """Okapi BM25 score of one property."""

    variable: str
    type_name: str
    property: str
    query: Expression
    type: ValueType = F64


@dataclass(frozen=True, slots=True)
class Rrf:
    """Reciprocal rank fusion of two rankings of one variable."""

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Expression
    type: ValueType = F64

    @property
    def variable(self) -> str:
        """The ranked variable, which both arms share."""
        return self.first.variable

    @property
    def type_name(self) -> str:
        """Its node type."""
        return self.first.type_name


RankExpression: TypeAlias = Nearest | Bm25 | Rrf


# --- aggregation ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AggregateValue:
    """An aggregate over the rows of a group; ``argument`` None counts rows."""

    function: AggregateFunction
    argument: Expression | None
    distinct: bool
    type: ValueType
    fraction: Expression | None = None
    """The fraction of a percentile: 0.5 is the median."""

    @property
    def sums_integers(self) -> bool:
        """Whether this is a sum of integers, which is exact; the result must fit I64."""
        return self.function == "sum" and self.type.scalar.is_integer

    @property
    def needs_all_values(self) -> bool:
        """Whether partial results cannot be merged, because all values are needed at once."""
        return self.function in ("collect", "median", "stddev", "percentile")


Expression: TypeAlias = (
    Constant
    | ParameterValue
    | CurrentTime
    | PropertyValue
    | EntityId
    | PathNodes
    | PathLength
    | BoundValue
    | CarriedNode
    | PathEdges
    | PathCost
    | OutputValue
    | RoundToF32
    | KeyId
    | ArithmeticValue
    | ScalarCall
    | ConditionalValue
    | ListItem
    | Compare
    | TextContains
    | TextStartsWith
    | TextEndsWith
    | TextMatches
    | ListContains
    | IsNull
    | Combine
    | TextQuery
    | TextMatch
    | Highlight
    | Nearest
    | Bm25
    | Rrf
    | AggregateValue
)
"""Anything that has one typed value per row."""

_READS_VARIABLE = (
    PropertyValue,
    EntityId,
    PathNodes,
    PathLength,
    BoundValue,
    CarriedNode,
    PathEdges,
    PathCost,
    TextMatch,
    Highlight,
    Nearest,
    Bm25,
)
"""The expressions that name a match variable."""

Whole: TypeAlias = EntityObject | RecordList
"""An item with more than one value: it can be returned, and is no operand."""

OutputExpression: TypeAlias = Expression | Whole
"""A return item."""


_OPERAND_NAMES: dict[type, tuple[str, ...]] = {
    kind: tuple(
        entry.name
        for entry in fields(kind)
        if any(name in str(entry.type) for name in ("Expression", "Nearest", "Bm25"))
    )
    for kind in get_args(Expression)
}
"""The fields of each expression class that contain expressions, by their annotations. Cached:
walking expressions is a large part of compiling a query."""


def children(expression: Expression) -> Iterator[Expression]:
    """The direct operands of an expression."""
    for name in _OPERAND_NAMES[type(expression)]:
        value = getattr(expression, name)
        if isinstance(value, tuple):
            yield from value
        elif value is not None:
            yield value


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all nested expressions."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def rewrite(
    expression: Expression, replacement: Callable[[Expression], Expression | None]
) -> Expression:
    """The expression, with each part replaced for which ``replacement`` returns one."""
    new = replacement(expression)
    if new is not None:
        return new
    changes: dict[str, object] = {}
    for name in _OPERAND_NAMES[type(expression)]:
        value = getattr(expression, name)
        if isinstance(value, tuple):
            changes[name] = tuple(rewrite(part, replacement) for part in value)
        elif value is not None:
            changes[name] = rewrite(value, replacement)
    return replace(expression, **changes) if changes else expression  # type: ignore[arg-type]


def renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    """The expression with match variables renamed."""

    def replacement(part: Expression) -> Expression | None:
        if isinstance(part, _READS_VARIABLE) and part.variable in names:
            return replace(part, variable=names[part.variable])
        return None

    return rewrite(expression, replacement)


_NEVER_FAIL: frozenset[ScalarFunction] = frozenset(
    ("lower", "upper", "length", "size", "trim", "date_part", "date_trunc", "sqrt", "pow", "log")
)


def can_fail(expression: Expression) -> bool:
    """Whether evaluation fails for some values: numbers, dates and texts out of range."""
    return any(
        isinstance(part, ArithmeticValue)
        or (isinstance(part, ScalarCall) and part.function not in _NEVER_FAIL)
        for part in walk(expression)
    )


def variables_of(expression: Expression) -> frozenset[str]:
    """The match variables an expression reads."""
    return frozenset(
        name for part in walk(expression) if (name := getattr(part, "variable", None)) is not None
    )
