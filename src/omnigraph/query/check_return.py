"""Type-checks what a read returns: items, aggregates and `having`.

Also blocks with a value, which have a return of their own: `count { … }`, `collect { … return { … }
}`.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TypeGuard

from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.lower import CheckedBlock, ComputedBlock
from omnigraph.query.operands import (
    CheckBlock,
    Context,
    EdgeVariable,
    NodeVariable,
    Operands,
    PathVariable,
    ValueVariable,
    VariableScope,
    edge_id,
    is_fraction,
    node_id,
)
from omnigraph.query.predicates import (
    check_filter,
    check_null_test,
    highlight_call,
    rank_call,
    text_match,
)
from omnigraph.schema.catalog import InterfaceType
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.tokens import Span

_GROUPABLE = (
    ex.PropertyValue,
    ex.EntityId,
    ex.PathNodes,
    ex.PathLength,
    ex.BoundValue,
    ex.CarriedNode,
    ex.PathEdges,
    ex.PathCost,
    ex.ParameterValue,
    ex.ArithmeticValue,
    ex.ScalarCall,
    ex.ConditionalValue,
    ex.ListItem,
)
"""Items allowed beside an aggregate: properties, variables, and computations over them."""


@dataclass(frozen=True, slots=True)
class ReturnBlock:
    """The checked return block."""

    columns: tuple[plan.Column, ...]
    group_by: plan.GroupBy | None
    having: tuple[ex.Expression, ...]
    row_values: dict[str, ex.OutputExpression]
    """The expression of each column by name, before grouping replaces it."""
    is_distinct: bool
    """Whether repeated rows have to be dropped; not if rows are grouped by all output columns."""


def check_return(
    body: ast.ReadBody,
    context: Context,
    scope: VariableScope,
    block: CheckBlock,
    *,
    is_stage: bool = False,
) -> ReturnBlock:
    """The checked items, grouping and `having` of a read, or of a stage that hands them on.

    ``block`` checks blocks with a value inside items.
    """
    operands = _ItemOperands(context, scope, block)
    if is_stage:
        operands = _StageOperands(context, scope, block)
    return _ReturnChecker(body, context, operands).check()


class _ItemOperands(Operands):
    """Value expressions as return items allow them: also ids, search calls and aggregates."""

    __slots__ = ("_inside_aggregate",)

    def __init__(self, context: Context, scope: VariableScope, block: CheckBlock) -> None:
        super().__init__(context, scope, alias_code="T25", block=block)
        self._inside_aggregate = False

    def value(self, node: ast.Expression) -> ex.Expression:
        match node:
            case ast.SearchCall() if node.function in ast.TEXT_PREDICATES:
                return text_match(node, self)
            case ast.SearchCall(function="highlight"):
                return highlight_call(node, self)
            case ast.SearchCall():
                return rank_call(node, self)
            case ast.Aggregate():
                return self._aggregate(node)
        return super().value(node)

    def item(self, node: ast.Expression) -> ex.OutputExpression:
        """The expression of one return item."""
        match node:
            case ast.EntityRef():
                return self._entity(node)
            case ast.Variable():
                return self._variable(node)
            case ast.AliasRef() if node.name in self.aliases:
                return self.aliases[node.name]
            case ast.BlockValue():
                return self.block_value(node)
        return self.value(node)

    def _variable(self, node: ast.Variable) -> ex.Expression:
        """A parameter's value, or the id of a node."""
        declared = self.context.parameters.get(node.name)
        if declared is not None:
            if declared.type.is_blob:
                raise self.context.error(
                    "T24", f"Blob parameter `${node.name}` cannot be returned", node.span
                )
            return ex.ParameterValue(node.name, declared.type)
        bound = self.scope.lookup(node.name)
        if isinstance(bound, NodeVariable):
            return node_id(node.name, bound)
        return self.parameter_operand(node)

    def name(self, item: ast.ReturnItem) -> str:
        """The column of an item."""
        name = item.alias or output_key(item.expression)
        if name is None:
            raise self.context.error(
                None, "a computed item needs a name", item.span, "add `as name` to it"
            )
        return name

    def _entity(self, node: ast.EntityRef) -> ex.EntityObject:
        bound = self.scope.lookup(node.variable.name)
        if bound is None:
            raise self.unbound(node.variable, "T6")
        if isinstance(bound, PathVariable):
            raise self.bare_binding(node.variable, bound)
        if isinstance(bound, ValueVariable):
            raise self.no_entity(node.variable, "T6")
        is_edge = isinstance(bound, EdgeVariable)
        structural: tuple[str, ...] = ("id",)
        if isinstance(bound, EdgeVariable):
            structural = ("id", *self.context.catalog.end_columns(bound.type))
        elif isinstance(bound.type, InterfaceType):
            structural = ("id", ex.NODE_TYPE)
        return ex.EntityObject(
            node.variable.name,
            "edge" if is_edge else "node",
            bound.type.name,
            tuple((name, ex.STRING) for name in structural)
            + tuple((p.name, p.type) for p in bound.type.properties.values() if not p.type.is_blob),
            bound.optional,
        )

    def _aggregate(self, node: ast.Aggregate) -> ex.AggregateValue:
        if self._inside_aggregate:
            raise self.context.error("T8", "aggregates cannot be nested", node.span)
        if node.argument is None:
            return ex.AggregateValue("count", None, False, ex.I64)
        self._inside_aggregate = True
        argument = self._counted_edge(node) or self.item(node.argument)
        self._inside_aggregate = False
        if isinstance(argument, ex.EntityObject):
            raise self.context.error(
                "T8",
                f"`{node.function}` takes a value, not a whole entity",
                node.argument.span,
                f"use `${argument.variable}`" if argument.kind == "node" else None,
            )
        if isinstance(argument, ex.RecordList):
            raise self.context.error(
                "T8", f"`{node.function}` takes a value, not a list of records", node.argument.span
            )
        if any(isinstance(part, ex.AggregateValue) for part in ex.walk(argument)):
            raise self.context.error("T8", "aggregates cannot be nested", node.argument.span)
        result = aggregate_type(self.context, node.function, argument.type, node.argument.span)
        if node.function == "count" and _type_beside_id(argument) is not None:
            assert isinstance(argument, ex.PropertyValue)
            argument = ex.EntityId(argument.variable, argument.type)
        fraction = None if node.fraction is None else self._fraction(node.fraction)
        return ex.AggregateValue(node.function, argument, node.distinct, result, fraction)

    def _fraction(self, node: ast.Expression) -> ex.Expression:
        """The fraction of a percentile: a number between 0 and 1, the same for all rows."""
        typed = self.value(node)
        is_given = isinstance(typed, ex.Constant | ex.ParameterValue)
        if not is_given or not typed.type.is_numeric:
            problem = "a number, as a literal or a parameter"
        elif isinstance(typed, ex.Constant) and not is_fraction(typed.value):
            problem = "a number between 0 and 1"
        else:
            return typed
        raise self.context.error(
            "T8", f"the fraction of `percentile` is {problem}", node.span, "0.5 is the median"
        )

    def _counted_edge(self, node: ast.Aggregate) -> ex.Expression | None:
        """`count($e)` as a count of edge ids; None for other aggregates."""
        argument = node.argument
        if node.function != "count" or not isinstance(argument, ast.Variable):
            return None
        bound = self.scope.lookup(argument.name)
        if argument.name in self.context.parameters or not isinstance(bound, EdgeVariable):
            return None
        return edge_id(argument.name, bound)


class _StageOperands(_ItemOperands):
    """The items of a `with`: nodes, which stay nodes, and named values."""

    __slots__ = ()

    def item(self, node: ast.Expression) -> ex.OutputExpression:
        if not self._inside_aggregate:
            if isinstance(node, ast.EntityRef):
                raise self._refused("a whole entity", node, f"write `${node.variable.name}`")
            if self._is_carried(node):
                return self._carried(node)
        found = super().item(node)
        if isinstance(found, ex.RecordList) and not self._inside_aggregate:
            raise self._refused("a list of records", node, "return one item in the block")
        return found

    def name(self, item: ast.ReturnItem) -> str:
        node = item.expression
        if self._is_carried(node):
            if item.alias is not None:
                raise self._refused("a variable under another name", item, "leave `as` out")
            return node.name
        if item.alias is None and not isinstance(node, ast.AliasRef):
            raise self._refused("a value without a name", item, "add `as name` to it")
        return super().name(item)

    def _is_carried(self, node: ast.Expression) -> TypeGuard[ast.Variable]:
        """Whether this is a variable to hand on as such: no parameter, and no item of a list."""
        return (
            isinstance(node, ast.Variable)
            and node.name not in self.context.parameters
            and not isinstance(self.scope.lookup(node.name), ValueVariable)
        )

    def _carried(self, node: ast.Variable) -> ex.CarriedNode:
        bound = self.scope.lookup(node.name)
        if bound is None:
            raise self.unbound(node, None, also=self.context.parameters)
        if not isinstance(bound, NodeVariable):
            what = "an edge" if isinstance(bound, EdgeVariable) else "a path"
            raise self._refused(what, node, "hand on its properties, each with `as name`")
        # An engine's number for the node.
        number = ValueType(Scalar.I32, nullable=bound.optional)
        return ex.CarriedNode(node.name, bound.type.name, number)

    def _refused(self, what: str, node: ast.Expression | ast.ReturnItem, hint: str) -> Exception:
        return self.context.error("T27", f"`with` cannot hand on {what}", node.span, hint)


def aggregate_type(
    context: Context, function: ast.AggregateFunction, argument: ValueType, span: Span
) -> ValueType:
    """The type of an aggregate over values of a type; T8, at ``span``, for a wrong type."""
    problem = None
    match function:
        case "count":
            return ex.I64
        case "sum" | "avg" | "median" | "stddev" | "percentile":
            if argument.is_numeric:
                if function == "sum" and argument.scalar.is_integer:
                    return ex.I64.with_nullable(True)
                return ValueType(Scalar.F64, nullable=True)
            problem = "a number"
        case "min" | "max":
            if argument.is_plain_scalar and argument.scalar is not Scalar.BOOL:
                return argument.with_nullable(True)
            problem = "a number, a String, a Date or a DateTime"
        case "collect":
            if argument.is_plain_scalar:
                return ValueType(argument.scalar, is_list=True, enum_values=argument.enum_values)
            problem = "single values"
    raise context.error("T8", f"`{function}` takes {problem}, got {argument}", span)


@dataclass(slots=True)
class _Grouping:
    """Group items and aggregates while the return block is read."""

    items: dict[str, ex.Expression] = field(default_factory=dict)
    aggregates: dict[str, ex.AggregateValue] = field(default_factory=dict)

    def output(self, value: ex.Expression) -> ex.Expression | None:
        """The column of the grouped rows that contains ``value``; adds aggregates on demand."""
        for name, item in self.items.items():
            if item == value:
                return ex.OutputValue(name, value.type)
        if isinstance(value, ex.AggregateValue):
            for name, known in self.aggregates.items():
                if known == value:
                    return ex.OutputValue(name, value.type)
            name = f"#{len(self.aggregates) + 1}"
            self.aggregates[name] = value
            return ex.OutputValue(name, value.type)
        return None


class _ReturnChecker:
    def __init__(self, body: ast.ReadBody, context: Context, operands: _ItemOperands) -> None:
        self._body = body
        self._context = context
        self._operands = operands
        self._grouping: _Grouping | None = None

    def check(self) -> ReturnBlock:
        names, row_values = self._items()
        values = list(row_values.values())
        is_grouped = self._has_aggregates(values)
        if self._body.distinct and any(isinstance(value, ex.RecordList) for value in values):
            raise self._context.error(
                "T9",
                "lists of records cannot be compared, so rows with one cannot be distinct",
                self._body.return_span,
                "return one item in the block, or leave `distinct` out",
            )
        identities = [each for each in map(_type_beside_id, values) if each is not None]
        if is_grouped or (identities and self._body.distinct):
            columns = self._grouped_columns(names, values)
            assert self._grouping is not None
            for each in identities:
                self._grouping.items[f"#{each.variable}"] = each
        else:
            columns = [
                plan.Column(name, value, field_name(item))
                for name, value, item in zip(names, values, self._body.items, strict=True)
            ]
        having = tuple(self._having(condition, row_values) for condition in self._body.having)
        group_by = None
        if self._grouping is not None:
            group_by = plan.GroupBy(
                tuple(self._grouping.items.items()),
                tuple(plan.NamedAggregate(*entry) for entry in self._grouping.aggregates.items()),
            )
        is_distinct = self._body.distinct and not (identities and group_by is not None)
        return ReturnBlock(tuple(columns), group_by, having, row_values, is_distinct)

    def _items(self) -> tuple[list[str], dict[str, ex.OutputExpression]]:
        row_values: dict[str, ex.OutputExpression] = {}
        for item in self._body.items:
            value = self._operands.item(item.expression)
            name = self._operands.name(item)
            if name in row_values:
                raise self._context.error(
                    "T26",
                    f"two items are called `{name}`",
                    item.alias_span or item.span,
                    "rename one with `as`",
                )
            row_values[name] = value
            if not isinstance(value, ex.CarriedNode):
                self._operands.aliases[name] = value
        return list(row_values), row_values

    # --- grouping ---------------------------------------------------------------------------------

    def _grouped_columns(
        self, names: list[str], values: list[ex.OutputExpression]
    ) -> list[plan.Column]:
        self._grouping = grouping = _Grouping()
        for name, value, item in zip(names, values, self._body.items, strict=True):
            if isinstance(value, ex.AggregateValue):
                grouping.aggregates.setdefault(name, value)
            elif isinstance(value, ex.Constant) and not self._has_aggregates(values):
                continue  # equal in all rows
            elif not isinstance(value, ex.Whole) and _is_aggregate_free(value):
                is_alias = isinstance(item.expression, ast.AliasRef)
                is_given = isinstance(value, ex.BoundValue)
                if not isinstance(value, _GROUPABLE) or (is_alias and not is_given):
                    raise self._not_groupable(item)
                grouping.items[name] = value
            elif isinstance(value, ex.Whole):
                raise self._not_groupable(item)
        return [
            plan.Column(name, self._over_groups(value, item), field_name(item))
            for name, value, item in zip(names, values, self._body.items, strict=True)
            if not isinstance(value, ex.Whole)
        ]

    def _has_aggregates(self, values: list[ex.OutputExpression]) -> bool:
        return any(_has_aggregate(condition) for condition in self._body.having) or any(
            isinstance(part, ex.AggregateValue)
            for value in values
            if not isinstance(value, ex.Whole)
            for part in ex.walk(value)
        )

    def _not_groupable(self, item: ast.ReturnItem) -> Exception:
        if isinstance(item.expression, ast.EntityRef) and self._body.distinct:
            return self._context.error(
                "T9",
                "distinct rows show an interface by its id or a whole entity, not both",
                item.span,
                "return `.*` of both, or neither",
            )
        return self._context.error(
            "T9",
            "beside an aggregate an item must be a property, a variable, or computed from them",
            item.span,
        )

    def _over_groups(
        self, value: ex.Expression, item: ast.ReturnItem | ast.Filter | ast.NullTest
    ) -> ex.Expression:
        """``value`` over grouped columns; T9 if it reads a value that varies within a group."""
        assert self._grouping is not None
        grouped = ex.rewrite(value, self._grouping.output)
        if ex.variables_of(grouped):
            raise self._context.error(
                "T9",
                "this reads a value that is neither grouped nor aggregated",
                item.span,
                "return that value too, or aggregate it",
            )
        return grouped

    # --- having -----------------------------------------------------------------------------------

    def _having(
        self, node: ast.Filter | ast.NullTest, row_values: dict[str, ex.OutputExpression]
    ) -> ex.Expression:
        if isinstance(node, ast.NullTest):
            condition = check_null_test(node, self._operands)
        else:
            condition = check_filter(node, self._operands, allow_aggregates=True)
        if self._grouping is not None:
            return self._over_groups(condition, node)

        def column(value: ex.Expression) -> ex.Expression | None:
            for name, shown in row_values.items():
                if shown == value:
                    return ex.OutputValue(name, value.type)
            return None

        rewritten = ex.rewrite(condition, column)
        if ex.variables_of(rewritten):
            raise self._context.error(
                "T25",
                "`having` can only use what is returned",
                node.span,
                "filter stored properties in the match block",
            )
        return rewritten


def _type_beside_id(value: ex.OutputExpression) -> ex.PropertyValue | None:
    """The type column of an interface if ``value`` is an id, which is unique per type."""
    if isinstance(value, ex.PropertyValue) and value.property == ex.NODE_ID:
        return replace(value, property=ex.NODE_TYPE)
    return None


def _is_aggregate_free(value: ex.Expression) -> bool:
    return not any(isinstance(part, ex.AggregateValue) for part in ex.walk(value))


def _has_aggregate(node: object) -> bool:
    """Whether a condition contains an aggregate."""
    match node:
        case ast.Aggregate():
            return True
        case ast.Filter() | ast.Arithmetic():
            return _has_aggregate(node.left) or _has_aggregate(node.right)
        case ast.NullTest():
            return _has_aggregate(node.operand)
        case ast.FunctionCall():
            return any(map(_has_aggregate, node.arguments))
        case ast.ListItem():
            return _has_aggregate(node.list) or _has_aggregate(node.index)
        case ast.BooleanCondition():
            return any(map(_has_aggregate, node.operands))
        case ast.Conditional():
            parts = (part for case in node.cases for part in case)
            return any(map(_has_aggregate, (*parts, node.otherwise)))
    return False


def output_key(node: ast.Expression) -> str | None:
    """The column name of an item without `as`; None if there is no natural one."""
    match node:
        case ast.PropertyRef():
            return f"{node.variable.name}.{node.name}"
        case ast.EntityRef():
            return node.variable.name
        case ast.Variable() | ast.AliasRef():
            return node.name
        case ast.Literal() | ast.ListLiteral():
            return "literal"
        case ast.Now():
            return "now"
        case ast.SearchCall() | ast.FunctionCall() | ast.BlockValue():
            return node.function
        case ast.Aggregate():
            argument = output_key(node.argument) if node.argument is not None else None
            return argument or node.function
    return None


def field_name(item: ast.ReturnItem) -> str:
    """The name of an item in the operation descriptor: alias, property, variable or function."""
    node = item.expression
    if item.alias is not None:
        return item.alias
    if isinstance(node, ast.PropertyRef):
        return node.name
    if isinstance(node, ast.Aggregate):
        return node.function
    return output_key(node) or ""


# --- blocks that give a value --------------------------------------------------------------------

_NO_PATTERN = plan.Pattern(())
"""Placeholder until lowering makes the pattern."""


def check_block(
    node: ast.BlockValue, number: int, block: CheckedBlock, operands: Operands
) -> tuple[ComputedBlock, ex.BoundValue | ex.RecordList]:
    """A block whose clauses are checked, and the expression that reads its value.

    ``operands`` see the variables of the block; ``number`` makes its name unique in the query.
    """
    variable = plan.value_variable(f"{node.function}#{number}")
    items = _items(node, operands)
    value = _value(node, variable, items, operands)
    order = tuple(_key(key, node, items, operands) for key in node.order)
    ties = () if node.distinct or not order else tuple(operands.scope.own_variables())
    limit = operands.context.row_count(node.limit, "limit")
    step = plan.Compute(
        variable,
        node.function,
        _NO_PATTERN,
        tuple(items.items()),
        node.distinct,
        order,
        ties,
        limit,
    )
    return ComputedBlock(step, block), value


def _items(node: ast.BlockValue, operands: Operands) -> dict[str, ex.Expression]:
    """The items that a block returns, by name."""
    context = operands.context
    items: dict[str, ex.Expression] = {}
    for item in node.items:
        name = item.alias or output_key(item.expression)
        if name is None and len(node.items) > 1:
            raise context.error(
                None, "a computed item needs a name", item.span, "add `as name` to it"
            )
        name = name or node.function
        if name in items:
            raise context.error(
                "T26",
                f"two items are called `{name}`",
                item.alias_span or item.span,
                "rename one with `as`",
            )
        value = _item(item.expression, operands)
        if value.type.is_vector:
            raise context.error("T28", "a block does not return vectors", item.span)
        items[name] = operands.aliases[name] = value
    return items


def _item(node: ast.Expression, operands: Operands) -> ex.Expression:
    """A value, or the id of a node."""
    if isinstance(node, ast.Variable) and node.name not in operands.context.parameters:
        bound = operands.scope.lookup(node.name)
        if isinstance(bound, NodeVariable):
            return node_id(node.name, bound)
    return operands.value(node)


def _value(
    node: ast.BlockValue, variable: str, items: dict[str, ex.Expression], operands: Operands
) -> ex.BoundValue | ex.RecordList:
    """The expression that reads the value of a block; T28 if its function cannot take the items."""
    context, function = operands.context, node.function
    problem = None
    if node.limit is not None and function != "collect":
        problem = f"`{function} {{ … }}` has no limit", "only a list has one"
    elif node.order and function != "collect":
        problem = f"`{function} {{ … }}` has no order", "only a list has one"
    elif function == "exists" and items:
        problem = "`exists { … }` returns nothing", "leave `return` out"
    elif function not in ("count", "exists") and not items:
        problem = (
            f"`{function} {{ … }}` needs what to take of each match",
            "end the block with `return { … }`",
        )
    elif function not in ("count", "collect") and len(items) > 1:
        problem = f"`{function} {{ … }}` takes one item", "return the value alone"
    if problem is not None:
        raise context.error("T28", problem[0], node.span, problem[1])
    if function == "exists":
        return ex.BoundValue(variable, ex.BOOL)
    if function == "count":
        return ex.BoundValue(variable, ex.I64)
    if len(items) > 1:
        columns = tuple((name, value.type) for name, value in items.items())
        return ex.RecordList(variable, columns)
    (value,) = items.values()
    return ex.BoundValue(variable, _of_one(node, value.type, operands))


def _of_one(node: ast.BlockValue, type: ValueType, operands: Operands) -> ValueType:
    assert node.function != "exists"
    return aggregate_type(operands.context, node.function, type, node.items[0].expression.span)


def _key(
    key: ast.OrderKey, node: ast.BlockValue, items: dict[str, ex.Expression], operands: Operands
) -> plan.SortKey:
    match key.expression:
        case ast.AliasRef() | ast.PropertyRef():
            value = operands.value(key.expression)
        case _:
            raise operands.context.error(
                "T25",
                "the order key of a block is a property or an alias of what it returns",
                key.span,
            )
    if value.type.is_list or value.type.is_vector:
        raise operands.context.error("T25", f"a {value.type} has no order", key.span)
    if node.distinct and value not in items.values():
        raise operands.context.error(
            "T25",
            "distinct rows can only be ordered by what they return",
            key.span,
            "add the property to the return block",
        )
    return plan.SortKey(value, bool(key.descending))
