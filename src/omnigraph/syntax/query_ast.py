"""The syntax tree of a `.gq` text, before any schema is applied. Every node has its position."""

from __future__ import annotations

import datetime as dt
from typing import Literal as OneOf
from typing import get_args

from omnigraph.model.records import dataclass
from omnigraph.model.types import ParameterType
from omnigraph.syntax.tokens import Source, Span

ANONYMOUS = "_"
"""The variable `$_`, which never binds or joins."""

# --- expressions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Dates and date-times are decoded, so that an invalid one is a parse error."""

    value: str | int | float | bool | dt.date | dt.datetime
    span: Span


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """`[ … ]`, of literals only; the checker refuses nested lists."""

    items: tuple[Literal | ListLiteral, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class NullLiteral:
    """`null` as an assigned value."""

    span: Span


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name`: a node, an edge, a path or a parameter, decided by the checker."""

    name: str
    span: Span

    @property
    def is_anonymous(self) -> bool:
        """Whether this is `$_`."""
        return self.name == ANONYMOUS


TYPE = "@type"
"""In place of a property: `$x.@type` reads the name of the node's type."""


@dataclass(frozen=True, slots=True)
class PropertyRef:
    """`$variable.name`."""

    variable: Variable
    name: str
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class EntityRef:
    """`$variable.*`."""

    variable: Variable
    span: Span


@dataclass(frozen=True, slots=True)
class AliasRef:
    """A bare word: the alias of a return item."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Now:
    """`now()`."""

    span: Span


SearchFunction = OneOf["search", "match_text", "fuzzy", "bm25", "nearest", "rrf", "highlight"]
SEARCH_FUNCTIONS: tuple[SearchFunction, ...] = get_args(SearchFunction)
TEXT_PREDICATES: tuple[SearchFunction, ...] = ("search", "match_text", "fuzzy")
RANK_FUNCTIONS: tuple[SearchFunction, ...] = ("nearest", "bm25", "rrf")


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A text predicate, a ranking call or `highlight`; the number of arguments is checked."""

    function: SearchFunction
    arguments: tuple[Expression, ...]
    span: Span


TextQueryKind = OneOf["text_query", "phrase", "all_words", "prefix"]
TEXT_QUERY_KINDS: tuple[TextQueryKind, ...] = get_args(TextQueryKind)


@dataclass(frozen=True, slots=True)
class TextQuery:
    """`phrase("…")` and similar calls: how the text of a search call is parsed."""

    kind: TextQueryKind
    text: Expression
    span: Span


AggregateFunction = OneOf[
    "count", "sum", "avg", "min", "max", "collect", "median", "stddev", "percentile"
]
AGGREGATE_FUNCTIONS: tuple[AggregateFunction, ...] = get_args(AggregateFunction)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`count(…)` and similar calls; ``argument`` is None for `count(*)`."""

    function: AggregateFunction
    argument: Expression | None
    distinct: bool
    span: Span
    fraction: Expression | None = None
    """The second argument of `percentile`."""


PeriodFunction = OneOf[
    "years", "months", "weeks", "days", "hours", "minutes", "seconds", "milliseconds"
]
PERIOD_FUNCTIONS: tuple[PeriodFunction, ...] = get_args(PeriodFunction)
"""Periods of time, which are added to dates and date-times."""

TextFunction = OneOf[
    "lower", "upper", "length", "size", "concat", "substring", "split", "replace", "trim"
]
NumberFunction = OneOf["abs", "round", "floor", "ceil", "sqrt", "pow", "log"]
ScalarFunction = (
    TextFunction | NumberFunction | PeriodFunction | OneOf["coalesce", "date_part", "date_trunc"]
)
SCALAR_FUNCTIONS: tuple[ScalarFunction, ...] = tuple(
    name for kind in get_args(ScalarFunction) for name in get_args(kind)
)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A scalar function."""

    function: ScalarFunction
    arguments: tuple[Expression, ...]
    span: Span


BlockFunction = OneOf["count", "exists", "sum", "avg", "min", "max", "collect"]
BLOCK_FUNCTIONS: tuple[BlockFunction, ...] = get_args(BlockFunction)


@dataclass(frozen=True, slots=True)
class BlockValue:
    """`count { … }` and similar: a value of the matches of a block, for each outer row."""

    function: BlockFunction
    clauses: tuple[Clause, ...]
    items: tuple[ReturnItem, ...]
    """The items of the block; empty without `return`."""
    distinct: bool
    order: tuple[OrderKey, ...]
    limit: Count | None
    span: Span


ArithmeticOperator = OneOf["+", "-", "*", "/", "%"]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left operator right` on numbers, or a date and a period of time."""

    operator: ArithmeticOperator
    left: Expression
    right: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class ListItem:
    """`list[index]`; there is no space before the bracket."""

    list: Expression
    index: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class BooleanCondition:
    """`a and b and …` or `a or b or …` inside a conditional, at least two operands."""

    operator: OneOf["and", "or"]
    operands: tuple[Condition, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Conditional:
    """`if(condition, value, value)` or `case { condition: value, …, else: value }`.

    The value of the first true condition; without `otherwise` null if none is true.
    """

    cases: tuple[tuple[Condition, Expression], ...]
    otherwise: Expression | None
    span: Span


Expression = (
    Literal
    | ListLiteral
    | NullLiteral
    | Variable
    | PropertyRef
    | EntityRef
    | AliasRef
    | Now
    | SearchCall
    | TextQuery
    | Aggregate
    | FunctionCall
    | BlockValue
    | Arithmetic
    | Conditional
    | ListItem
)

# --- match clauses --------------------------------------------------------------------------------

ComparisonOperator = OneOf["=", "!=", "<", "<=", ">", ">="]
FilterOperator = OneOf[
    "=", "!=", "<", "<=", ">", ">=", "contains", "starts_with", "ends_with", "matches", "in"
]


@dataclass(frozen=True, slots=True)
class Pair:
    """`property: value` inside a binding, or an assignment of a mutation."""

    name: str
    name_span: Span
    value: Expression


@dataclass(frozen=True, slots=True)
class Binding:
    """`$variable: Type { pairs }`."""

    variable: Variable
    type_name: str
    type_span: Span
    pairs: tuple[Pair, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class HopBounds:
    """`{minimum,maximum}`, numbers or parameters; without an upper bound ``maximum`` is None."""

    minimum: int | Variable
    maximum: int | Variable | None
    span: Span


PathKind = OneOf["one", "all", "cheapest"]
"""One shortest path per pair, all of them, or the one whose edges have the smallest sum."""


@dataclass(frozen=True, slots=True)
class Hop:
    """`$left [$edge:]word[{m,n}] $right [via $path]`, or with `<word>` for either direction.

    The path may also be `via all $path` or `via cheapest $path [from $near to $far] by weight`.
    """

    left: Variable
    edge_variable: Variable | None
    edge_word: str
    edge_span: Span
    undirected: bool
    bounds: HopBounds | None
    right: Variable
    path_variable: Variable | None
    span: Span
    path_kind: PathKind = "one"
    path_weight: Expression | None = None
    path_step: tuple[Variable, Variable] | None = None
    """The weight's names for the two ends of each edge, in the direction of the path."""


@dataclass(frozen=True, slots=True)
class Filter:
    """`left operator right`. A bare text predicate or `exists { … }` is `… = true`."""

    left: Expression
    operator: FilterOperator
    right: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class NullTest:
    """`operand is [not] null`."""

    operand: Expression
    negated: bool
    span: Span


Condition = Filter | NullTest | BooleanCondition


@dataclass(frozen=True, slots=True)
class TypeTest:
    """`variable is [not] Type`."""

    variable: Variable
    type_name: str
    type_span: Span
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Not:
    """`not { … }`."""

    clauses: tuple[Clause, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Optional:
    """`optional { … }`."""

    clauses: tuple[Clause, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Any:
    """`any { … }`: at least one alternative is true.

    Each direct clause is an alternative; `all { … }` groups several into one.
    """

    alternatives: tuple[tuple[Clause, ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Unnest:
    """`unnest $variable in list`: a row for each item of the list."""

    variable: Variable
    items: Expression
    span: Span


Clause = Binding | Hop | Filter | NullTest | TypeTest | Not | Optional | Any | Unnest

# --- reads ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReturnItem:
    """One output column."""

    expression: Expression
    alias: str | None
    alias_span: Span | None
    span: Span


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One sort key; ``descending`` is None if no direction was written."""

    expression: Expression
    descending: bool | None
    span: Span


@dataclass(frozen=True, slots=True)
class Count:
    """The number after `limit` or `offset`: an integer or a parameter."""

    value: int | Variable
    span: Span


@dataclass(frozen=True, slots=True)
class LimitPer:
    """`limit count per key`: at most ``count`` rows of each group with equal keys."""

    count: Count
    key: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class ReadBody:
    """`match … return … [having …] [order …] [limit … per …] [limit …] [offset …]`.

    A stage has the same parts, with the word `with` in the place of `return`.
    """

    clauses: tuple[Clause, ...]
    """Empty if a stage is followed by `return` directly."""
    items: tuple[ReturnItem, ...]
    distinct: bool
    having: tuple[Filter | NullTest, ...]
    order: tuple[OrderKey, ...]
    limit: Count | None
    offset: Count | None
    return_span: Span
    """The word `return` or `with`, at which errors about the whole result point."""
    per: LimitPer | None = None
    """The limit of each group, which comes before the limit of the result."""
    stages: tuple[ReadBody, ...] = ()
    """The stages before: each hands its rows to the next one, the last of them to this match."""


# --- mutations ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """`property operator value` of a `where`."""

    name: str
    name_span: Span
    operator: ComparisonOperator
    value: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Membership:
    """`property in [ … ]` or `property in $list` of a `where`."""

    name: str
    name_span: Span
    values: ListLiteral | Variable | PropertyRef
    span: Span


@dataclass(frozen=True, slots=True)
class PropertyNullTest:
    """`property is [not] null` of a `where`."""

    name: str
    name_span: Span
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class BooleanPredicate:
    """`a and b and …` or `a or b or …`, at least two operands."""

    operator: OneOf["and", "or"]
    operands: tuple[Predicate, ...]
    span: Span


Predicate = Comparison | Membership | PropertyNullTest | BooleanPredicate


@dataclass(frozen=True, slots=True)
class Insert:
    """`insert Type { assignments }`."""

    type_name: str
    type_span: Span
    assignments: tuple[Pair, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Update:
    """`update [$variable:] Type set { assignments } where predicate`."""

    type_name: str
    type_span: Span
    assignments: tuple[Pair, ...]
    where: Predicate
    span: Span
    variable: Variable | None = None
    """The variable by which assigned values refer to the entity they are computed from."""


@dataclass(frozen=True, slots=True)
class Delete:
    """`delete Type where predicate`."""

    type_name: str
    type_span: Span
    where: Predicate
    span: Span


@dataclass(frozen=True, slots=True)
class ForEach:
    """`for $variable in $list { statements }`; the list may be a field of a record."""

    variable: Variable
    items: Variable | PropertyRef
    statements: tuple[Statement, ...]
    span: Span


Statement = Insert | Update | Delete | ForEach


@dataclass(frozen=True, slots=True)
class WriteBody:
    """The statements of a mutation, in order."""

    statements: tuple[Statement, ...]


# --- files ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParameterDecl:
    """One declared parameter."""

    name: str
    type: ParameterType
    span: Span


@dataclass(frozen=True, slots=True)
class Query:
    """One named query of a file."""

    name: str
    name_span: Span
    parameters: tuple[ParameterDecl, ...]
    description: str | None
    instruction: str | None
    body: ReadBody | WriteBody
    span: Span


@dataclass(frozen=True, slots=True)
class QueryFile:
    """All queries of one text."""

    source: Source
    queries: tuple[Query, ...]
