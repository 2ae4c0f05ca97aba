"""Type-checks expressions: variables in scope, properties, literals, parameters.

Search calls are checked in `predicates`, computations in `check_functions`, aggregates in
`check_return`; all build on this.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import TypeAlias

from omnigraph.errors import QueryTypeError
from omnigraph.model.records import dataclass
from omnigraph.model.types import RecordsType, Scalar, ValueType
from omnigraph.model.values import round_to_f32
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.schema.catalog import Catalog, EdgeType, InterfaceType, NodeType, Property
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Source, Span

# --- scope ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeVariable:
    """A variable bound to nodes of one type, or of the types that implement an interface."""

    type: NodeType | InterfaceType
    optional: bool = False
    """Bound only inside an `optional` block, so possibly null."""


@dataclass(frozen=True, slots=True)
class EdgeVariable:
    """A variable bound to stored edges of one type."""

    type: EdgeType
    optional: bool = False


@dataclass(frozen=True, slots=True)
class PathVariable:
    """A variable bound to the path of a hop."""

    optional: bool = False
    kind: ast.PathKind = "one"


@dataclass(frozen=True, slots=True)
class ValueVariable:
    """A variable bound to the items of a list."""

    name: str
    item: ValueType
    optional: bool = False

    @property
    def value(self) -> ex.BoundValue:
        """The expression that reads it; an item may be null."""
        return ex.BoundValue(self.name, self.item.with_nullable(True))


BoundAs: TypeAlias = NodeVariable | EdgeVariable | PathVariable | ValueVariable


@dataclass(frozen=True, slots=True)
class Context:
    """The source, catalog and parameters of the query being checked."""

    source: Source
    catalog: Catalog
    parameters: dict[str, ex.ParameterValue]
    values: Mapping[str, ex.BoundValue] = field(default_factory=dict)
    """The values that the previous stage hands on, by the names used in this one."""
    record_lists: dict[str, RecordsType] = field(default_factory=dict)
    """The parameters of a mutation that are lists of records."""
    records: Mapping[str, RecordsType] = field(default_factory=dict)
    """The records of the enclosing loops, by their variables."""

    def error(
        self, code: str | None, message: str, span: Span, hint: str | None = None
    ) -> QueryTypeError:
        """A type error at ``span``; ``code`` is its T code, if it has one."""
        return self.source.error(QueryTypeError, message, span, diagnostic=code, hint=hint)

    def parameter(self, variable: ast.Variable) -> ex.ParameterValue:
        """The declared parameter of this name; T14 if there is none, T7 for a list of records."""
        declared = self.parameters.get(variable.name)
        if declared is not None:
            return declared
        name = f"${variable.name}"
        if variable.name in self.record_lists:
            what = f"parameter `{name}` is a list of records"
            hint = f"read them in a loop: `for $x in {name} {{ … }}`"
            raise self.error("T7", what, variable.span, hint)
        if (record := self.records.get(variable.name)) is not None:
            hint = f"name one of its fields, such as `{name}.{record.fields[0][0]}`"
            raise self.error("T7", f"`{name}` is a record", variable.span, hint)
        raise self.error(
            "T14",
            f"`{name}` is not a declared parameter",
            variable.span,
            did_you_mean(name, [f"${known}" for known in self.parameters])
            or f"declare it: `query name({name}: String)`",
        )

    def record_field(self, node: ast.PropertyRef) -> ex.ParameterValue | None:
        """The field of an enclosing loop's record; None for other variables."""
        record = self.records.get(node.variable.name)
        if record is None:
            return None
        fields = dict(record.fields)
        if node.name not in fields:
            raise self.error(
                "T6",
                f"the records `${node.variable.name}` have no field `{node.name}`",
                node.name_span,
                did_you_mean(node.name, fields) or f"their fields are {', '.join(fields)}",
            )
        return ex.ParameterValue(f"{node.variable.name}.{node.name}", fields[node.name])

    def row_count(self, count: ast.Count | None, word: str) -> int | ex.ParameterValue | None:
        """The number after `limit` or `offset`; T7 for a parameter that is not an integer."""
        if count is None:
            return None
        if isinstance(count.value, int):
            return count.value
        given = self.parameter(count.value)
        if given.type.is_list or not given.type.scalar.is_integer:
            raise self.error(
                "T7",
                f"`{word}` takes an integer parameter, but `${given.name}` is {given.type}",
                count.span,
            )
        return given


@dataclass(slots=True)
class VariableScope:
    """The variables of one block; those of the enclosing blocks are visible too."""

    outer: VariableScope | None = None
    own: dict[str, BoundAs] = field(default_factory=dict)

    def lookup(self, name: str) -> BoundAs | None:
        """The binding of ``name``, innermost block first."""
        scope: VariableScope | None = self
        while scope is not None:
            if name in scope.own:
                return scope.own[name]
            scope = scope.outer
        return None

    def names(self) -> Iterator[str]:
        """Every visible variable."""
        scope: VariableScope | None = self
        while scope is not None:
            yield from scope.own
            scope = scope.outer

    def own_variables(self, *, with_paths: bool = False) -> list[plan.BoundVariable]:
        """The variables of this block, by name, as plans know them."""
        found: list[plan.BoundVariable] = []
        for name, bound in sorted(self.own.items()):
            if isinstance(bound, NodeVariable):
                found.append(plan.BoundVariable(name, "node", bound.type.name))
            elif isinstance(bound, EdgeVariable):
                found.append(plan.BoundVariable(name, "edge", bound.type.name))
            elif isinstance(bound, ValueVariable):
                found.append(plan.BoundVariable(name, "value", "", bound.value.type))
            elif with_paths and bound.kind == "all":
                found.append(plan.BoundVariable(name, "path", ""))
        return found

    def adopt_optional(self, inner: VariableScope) -> None:
        """Make the variables of a finished `optional` block visible here, as nullable."""
        for name, bound in inner.own.items():
            self.own[name] = replace(bound, optional=True)


# --- expressions ----------------------------------------------------------------------------------


_LITERAL_SCALARS: dict[type, Scalar] = {
    str: Scalar.STRING,
    bool: Scalar.BOOL,
    int: Scalar.I64,
    float: Scalar.F64,
    dt.date: Scalar.DATE,
    dt.datetime: Scalar.DATETIME,
}


CheckBlock: TypeAlias = Callable[[ast.BlockValue], ex.BoundValue | ex.RecordList]


@dataclass(slots=True)
class Operands:
    """Checks value expressions against one scope."""

    context: Context
    scope: VariableScope
    aliases: dict[str, ex.OutputExpression] = field(default_factory=dict)
    """Earlier return items, for expressions that may name them."""
    alias_code: str = "T7"
    """The code for a bare word that is no alias: T25 where aliases are allowed."""
    block: CheckBlock | None = None
    """Checks a block with a value, where such a block is allowed."""

    def value(self, node: ast.Expression) -> ex.Expression:
        """A typed value; raises T6, T7 or T24 for anything else."""
        match node:
            case ast.Literal():
                return ex.Constant(node.value, ValueType(_LITERAL_SCALARS[type(node.value)]))
            case ast.ListLiteral():
                return self.list_literal(node)
            case ast.Variable():
                return self.parameter_operand(node)
            case ast.PropertyRef():
                return self.property(node)
            case ast.Now():
                return ex.CurrentTime()
            case ast.Arithmetic() | ast.FunctionCall() | ast.Conditional() | ast.ListItem():
                # Imported late: conditions contain values, and values contain conditions.
                from omnigraph.query.check_functions import check_computed

                return check_computed(node, self)
            case ast.AliasRef():
                return self._alias(node)
            case ast.BlockValue():
                found = self.block_value(node)
                if isinstance(found, ex.RecordList):
                    raise self.context.error(
                        "T7", "a list of records is not a value here", node.span
                    )
                return found
        raise self.context.error("T7", f"{describe(node)} is not a value here", node.span)

    def plain(self, node: ast.Expression) -> ex.Expression:
        """A typed value that is a single scalar, as comparisons need."""
        typed = self.value(node)
        if not typed.type.is_plain_scalar:
            raise self.context.error(
                "T7",
                f"{describe(node)} is a {typed.type}, not a single comparable value",
                node.span,
                "use `contains` to look inside a list" if typed.type.is_list else None,
            )
        return typed

    def block_value(self, node: ast.BlockValue) -> ex.BoundValue | ex.RecordList:
        """The value of a block; T7 where blocks are not allowed."""
        if self.block is None:
            raise self.context.error("T7", f"{describe(node)} is not a value here", node.span)
        return self.block(node)

    # --- leaves -----------------------------------------------------------------------------------

    def property(self, node: ast.PropertyRef) -> ex.Expression:
        """`$x.p` of a bound node, edge or path; a Blob property is T24."""
        bound = self.scope.lookup(node.variable.name)
        if bound is None:
            if (field := self.context.record_field(node)) is not None:
                return field
            raise self.unbound(node.variable, "T6")
        if isinstance(bound, PathVariable):
            return self._path_property(node, bound)
        if isinstance(bound, ValueVariable):
            raise self.no_entity(node.variable, "T6")
        if node.name == ast.TYPE and isinstance(bound, NodeVariable):
            return type_value(node.variable.name, bound)
        declared = bound.type.properties.get(node.name)
        if declared is None:
            raise self.unknown_property("T6", bound, node.name, node.name_span, node.variable.name)
        if declared.type.is_blob:
            raise self.context.error(
                "T24",
                f"`${node.variable.name}.{node.name}` is a Blob and cannot be used here",
                node.span,
                "fetch it with `omnigraph blob get`",
            )
        return property_value(node.variable.name, bound, declared)

    def no_entity(self, variable: ast.Variable, code: str) -> Exception:
        """The error for a value where a node or an edge is needed."""
        return self.context.error(
            code,
            f"`${variable.name}` is an item of a list, not a node",
            variable.span,
            f"`${variable.name}` alone is its value",
        )

    def unbound(
        self, variable: ast.Variable, code: str | None, also: Iterable[str] = ()
    ) -> Exception:
        """The error for an unbound variable; ``also`` are further names to suggest."""
        name = variable.name
        if variable.is_anonymous:
            hint: str | None = "`$_` stands for no node in particular; give the variable a name"
        elif name in self.context.parameters:
            hint = "parameters have no properties; bind a node with `$x: Type` first"
        else:
            known = [f"${visible}" for visible in (*self.scope.names(), *also)]
            hint = did_you_mean(f"${name}", known) or (
                f"bind it first, for instance with `${name}: Type`"
            )
        return self.context.error(code, f"`${name}` is not bound here", variable.span, hint)

    def unknown_property(
        self, code: str, bound: BoundAs, name: str, span: Span, variable: str | None = None
    ) -> Exception:
        """The error for a property that its type does not have."""
        assert not isinstance(bound, PathVariable | ValueVariable)
        kind = "edge type" if isinstance(bound, EdgeVariable) else "node type"
        hint = did_you_mean(name, bound.type.properties)
        if isinstance(bound.type, InterfaceType):
            kind = "interface"
            owner = next(
                (
                    n
                    for n in self.context.catalog.node_types(bound.type.name)
                    if name in n.properties
                ),
                None,
            )
            if owner is not None:
                what = f"`${variable}`" if variable is not None else "it"
                hint = (
                    f"{owner.name} has it: bind {what} as {owner.name}, or test `is {owner.name}`"
                )
        if name == "id" and variable is not None:
            hint = f"`${variable}` alone is the id"
        return self.context.error(
            code, f"{kind} {bound.type.name} has no property `{name}`", span, hint
        )

    def parameter_operand(self, node: ast.Variable) -> ex.Expression:
        """A bare `$x` in value position: a parameter that can be compared."""
        declared = self.context.parameters.get(node.name)
        if declared is not None:
            if declared.type.is_blob or declared.type.is_vector:
                raise self.context.error(
                    "T7",
                    f"parameter `${node.name}` of type {declared.type} has no place here",
                    node.span,
                )
            return declared
        bound = self.scope.lookup(node.name)
        if bound is None:
            raise self.unbound(node, None, also=self.context.parameters)
        if isinstance(bound, ValueVariable):
            return bound.value
        if isinstance(bound, EdgeVariable | PathVariable):
            raise self.bare_binding(node, bound)
        raise self.context.error(
            "T7",
            f"`${node.name}` is a {bound.type.name} node, not a value",
            node.span,
            f"compare one of its properties, such as `${node.name}."
            f"{next(iter(bound.type.properties), 'name')}`",
        )

    def bare_binding(self, node: ast.Variable, bound: EdgeVariable | PathVariable) -> Exception:
        """T23: an edge or path variable without a property."""
        if isinstance(bound, PathVariable):
            what, hint = "path", f"use `${node.name}.nodes` or `${node.name}.length`"
        else:
            what, hint = "edge binding", f"use one of its properties, or `${node.name}.*`"
        return self.context.error(
            "T23", f"{what} `${node.name}` cannot be used bare", node.span, hint
        )

    def list_literal(self, node: ast.ListLiteral) -> ex.Constant:
        """A list of literals of one kind; integers beside floats become floats."""
        values: list[ex.ConstantValue] = []
        kinds: set[Scalar] = set()
        for item in node.items:
            if isinstance(item, ast.ListLiteral):
                raise self.context.error(None, "a list cannot contain a list", item.span)
            values.append(item.value)
            kinds.add(_LITERAL_SCALARS[type(item.value)])
        numbers = [v for v in values if isinstance(v, int | float)]
        # Only if every integer has an equal float; otherwise its value would silently change.
        if kinds == {Scalar.I64, Scalar.F64} and all(float(v) == v for v in numbers):
            kinds = {Scalar.F64}
            values = [float(v) for v in numbers]
        if len(kinds) > 1:
            names = ", ".join(sorted(k.value for k in kinds))
            raise self.context.error(None, f"a list literal mixes {names}", node.span)
        scalar = kinds.pop() if kinds else Scalar.STRING
        return ex.Constant(tuple(values), ValueType(scalar, is_list=True))

    def _path_property(self, node: ast.PropertyRef, bound: PathVariable) -> ex.Expression:
        name = node.variable.name
        match node.name:
            case "nodes":
                return ex.PathNodes(name, ex.STRINGS.with_nullable(bound.optional))
            case "length":
                return ex.PathLength(name, ex.I64.with_nullable(bound.optional))
            case "edges":
                return ex.PathEdges(name, ex.STRINGS.with_nullable(bound.optional))
            case "cost" if bound.kind == "cheapest":
                return ex.PathCost(name, ex.F64.with_nullable(bound.optional))
        raise self.context.error(
            "T6",
            f"path `${name}` has no property `{node.name}`",
            node.name_span,
            "a path has `nodes`, `edges` and `length`, and one of `via cheapest` a `cost`",
        )

    def _alias(self, node: ast.AliasRef) -> ex.Expression:
        found = self.aliases.get(node.name) or self.context.values.get(node.name)
        if found is None:
            raise self.unknown_alias(node)
        if isinstance(found, ex.EntityObject | ex.RecordList):
            what = "a whole entity" if isinstance(found, ex.EntityObject) else "a list of records"
            raise self.context.error("T7", f"`{node.name}` is {what}, not a value", node.span)
        return found

    def unknown_alias(self, node: ast.AliasRef) -> Exception:
        """The error for a bare word that names no return item."""
        hint = suggest_alias(node.name, [*self.aliases, *self.context.values])
        if hint is None and node.name == "null":
            hint = "test for null with `is null` or `is not null`"
        elif hint is None:
            hint = f'write "{node.name}" for text, or `$x.{node.name}` for a property'
        return self.context.error(
            self.alias_code, f"`{node.name}` is not a value here", node.span, hint
        )


def property_value(variable: str, bound: BoundAs, declared: Property) -> ex.PropertyValue:
    """The typed read of a declared property; nullable if its variable is."""
    assert not isinstance(bound, PathVariable | ValueVariable)
    return ex.PropertyValue(
        variable,
        "edge" if isinstance(bound, EdgeVariable) else "node",
        bound.type.name,
        declared.name,
        declared.type.with_nullable(declared.type.nullable or bound.optional),
    )


def type_value(variable: str, bound: NodeVariable) -> ex.PropertyValue:
    """The name of the type of a node; nullable if its variable is."""
    type = ex.STRING.with_nullable(bound.optional)
    return ex.PropertyValue(variable, "node", bound.type.name, ex.NODE_TYPE, type)


def node_id(variable: str, bound: NodeVariable) -> ex.Expression:
    """The id of a node as a query returns it; nullable if its variable is."""
    type = ex.STRING.with_nullable(bound.optional)
    if isinstance(bound.type, InterfaceType):
        return ex.PropertyValue(variable, "node", bound.type.name, ex.NODE_ID, type)
    return ex.EntityId(variable, type)


def edge_id(variable: str, bound: EdgeVariable) -> ex.PropertyValue:
    """The id of an edge, which distinguishes parallel edges; nullable if its variable is."""
    type = ex.STRING.with_nullable(bound.optional)
    return ex.PropertyValue(variable, "edge", bound.type.name, "id", type)


def comparable(left: ValueType, right: ValueType) -> bool:
    """Whether two single values may be compared: the same scalar, or two numbers."""
    if not (left.is_plain_scalar and right.is_plain_scalar):
        return False
    return left.scalar is right.scalar or (left.scalar.is_numeric and right.scalar.is_numeric)


def suggest_alias(name: str, aliases: Iterable[str]) -> str | None:
    """A hint for a bare word that names no return item."""
    for key in aliases:
        if key.endswith(f".{name}"):
            return f"write the property as `${key}`"
    return did_you_mean(name, [key for key in aliases if "." not in key])


def is_empty_list(typed: ex.Expression) -> bool:
    """Whether this is the literal `[]`, whose elements could be anything."""
    return isinstance(typed, ex.Constant) and typed.value == ()


def round_to_match(column: ex.Expression, other: ex.Expression) -> ex.Expression:
    """``other`` converted for a comparison with ``column``.

    A stored F32 never equals most decimal literals, so literals and parameters are rounded to
    single precision first, also when compared with an aggregate of stored values. All other pairs
    of numbers compare by mathematical value.
    """
    is_given = isinstance(column, ex.Constant | ex.ParameterValue)
    if is_given or column.type.scalar is not Scalar.F32:
        return other
    rounded = ValueType(Scalar.F32, nullable=other.type.nullable, is_list=other.type.is_list)
    if isinstance(other, ex.Constant) and other.type.scalar is Scalar.F64:
        value = other.value
        if isinstance(value, tuple):
            return ex.Constant(
                tuple(round_to_f32(v) for v in value if isinstance(v, float)), rounded
            )
        assert isinstance(value, float)
        return ex.Constant(round_to_f32(value), rounded)
    if isinstance(other, ex.ParameterValue) and other.type.scalar is Scalar.F64:
        return ex.RoundToF32(other, rounded)
    return other


def describe(node: ast.Expression) -> str:
    """The name of an expression in messages."""
    match node:
        case ast.PropertyRef():
            return f"`${node.variable.name}.{node.name}`"
        case ast.EntityRef():
            return f"`${node.variable.name}.*`"
        case ast.Variable():
            return f"`${node.name}`"
        case ast.AliasRef():
            return f"`{node.name}`"
        case ast.SearchCall() | ast.FunctionCall() | ast.Aggregate():
            return f"`{node.function}(…)`"
        case ast.TextQuery():
            return f"`{node.kind}(…)`"
        case ast.BlockValue():
            return f"`{node.function} {{ … }}`"
        case ast.Now():
            return "`now()`"
        case ast.NullLiteral():
            return "`null`"
        case ast.ListLiteral():
            return "a list"
        case ast.Arithmetic():
            return "this computation"
        case ast.Literal():
            return "this literal"
        case ast.Conditional():
            return "this conditional"
        case ast.ListItem():
            return "this item of a list"


def is_fraction(value: object) -> bool:
    """Whether this is a number between 0 and 1."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
