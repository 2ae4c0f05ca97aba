"""The syntax tree of a `.pg` text, before any rule is applied. Every part has its position.

Only the grammar is checked: a `TypeExpr` may be `Vector(0)` and a constraint may name a property
that does not exist; `schema.admission` checks that. The parts are named tuples because a text has
thousands of them.
"""

from __future__ import annotations

from typing import Literal as OneOf
from typing import NamedTuple, get_args

from omnigraph.model.types import Scalar
from omnigraph.syntax.tokens import Source, Span

LiteralValue = str | int | float | bool
"""A literal written in a schema."""
ColumnsKind = OneOf["key", "unique", "index"]
"""The constraints that are a list of columns."""
COLUMNS_KINDS: tuple[ColumnsKind, ...] = get_args(ColumnsKind)


class Name(NamedTuple):
    """A name and where it is written."""

    text: str
    span: Span


class LiteralExpr(NamedTuple):
    """A literal or, in an annotation, a bare identifier, which stands for its own text."""

    value: LiteralValue
    text: str
    """As written, for messages: `0.50` stays `0.50`."""
    span: Span
    is_identifier: bool = False


class NumberExpr(NamedTuple):
    """A number in a bound, a dimension or a cardinality."""

    value: int | float
    text: str
    span: Span


class OptionExpr(NamedTuple):
    """`name=literal` inside an annotation."""

    name: Name
    value: LiteralExpr


class AnnotationExpr(NamedTuple):
    """`@name`, `@name(value)` or `@name(value, option=value…)`."""

    name: Name
    """The span starts at the `@`."""
    value: LiteralExpr | None
    options: tuple[OptionExpr, ...]
    span: Span


class TypeExpr(NamedTuple):
    """A property type as written."""

    scalar: Scalar
    span: Span
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[Name, ...] | None = None
    """In source order, possibly repeated; the scalar is then String."""
    dimension: NumberExpr | None = None
    """The dimension of a vector; the scalar is then Vector."""


class PropertyDecl(NamedTuple):
    """`name: type @annotation…`."""

    name: Name
    type: TypeExpr
    annotations: tuple[AnnotationExpr, ...]
    span: Span


class ColumnsDecl(NamedTuple):
    """`@key(a, b)`, `@unique(a, b)` or `@index(a, b)` in a body."""

    kind: ColumnsKind
    columns: tuple[Name, ...]
    span: Span


class RangeDecl(NamedTuple):
    """`@range(property, minimum..maximum)`; at least one bound is given."""

    property: Name
    minimum: NumberExpr | None
    maximum: NumberExpr | None
    span: Span


class CheckDecl(NamedTuple):
    """`@check(property, "pattern")`."""

    property: Name
    pattern: LiteralExpr
    span: Span


ConstraintDecl = ColumnsDecl | RangeDecl | CheckDecl


class CardinalityDecl(NamedTuple):
    """`@card(minimum..maximum)`; without a maximum there is no upper bound."""

    minimum: NumberExpr
    maximum: NumberExpr | None
    span: Span


class InterfaceDecl(NamedTuple):
    """`interface Name { … }`."""

    name: Name
    properties: tuple[PropertyDecl, ...]
    span: Span


class NodeDecl(NamedTuple):
    """`node Name @annotation… implements A, B { … }`."""

    name: Name
    annotations: tuple[AnnotationExpr, ...]
    implements: tuple[Name, ...]
    properties: tuple[PropertyDecl, ...]
    constraints: tuple[ConstraintDecl, ...]
    span: Span


class EdgeDecl(NamedTuple):
    """`edge Name: Source -> Target @card(…) @annotation… { … }`."""

    name: Name
    source: Name
    target: Name
    cardinality: CardinalityDecl | None
    annotations: tuple[AnnotationExpr, ...]
    properties: tuple[PropertyDecl, ...]
    constraints: tuple[ConstraintDecl, ...]
    span: Span


class SchemaDocument(NamedTuple):
    """A parsed schema text: its declarations in source order, and the text itself."""

    source: Source
    declarations: tuple[InterfaceDecl | NodeDecl | EdgeDecl, ...]

    @property
    def interfaces(self) -> tuple[InterfaceDecl, ...]:
        """The interfaces, in source order."""
        return tuple(d for d in self.declarations if isinstance(d, InterfaceDecl))

    @property
    def nodes(self) -> tuple[NodeDecl, ...]:
        """The node types, in source order."""
        return tuple(d for d in self.declarations if isinstance(d, NodeDecl))

    @property
    def edges(self) -> tuple[EdgeDecl, ...]:
        """The edge types, in source order."""
        return tuple(d for d in self.declarations if isinstance(d, EdgeDecl))
