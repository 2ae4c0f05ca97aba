"""Type-checks what a read returns: items, aggregates, `having` and `order`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeGuard

from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.functions import is_fraction
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
    node_id,
    suggest_alias,
)
from omnigraph.query.predicates import check_filter, check_null_test, rank_call, text_match
from omnigraph.schema.catalog import InterfaceType
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.tokens import Span

# --- return ---------------------------------------------------------------------------------------


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
    """Whether repeated rows are still to be dropped: not where rows are grouped by all they show.
    """


def check_return(
    body: ast.ReadBody,
    context: Context,
    scope: VariableScope,
    block: CheckBlock,
    *,
    is_stage: bool = False,
) -> ReturnBlock:
    """Items, grouping and `having` of a read, or of a stage that hands them on.

    ``block`` checks the blocks that items take a value of.
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
        """Which percentile: a number between 0 and 1, the same for all rows."""
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
        """The edges that `count($e)` counts, by their ids."""
        argument = node.argument
        if node.function != "count" or not isinstance(argument, ast.Variable):
            return None
        bound = self.scope.lookup(argument.name)
        if argument.name in self.context.parameters or not isinstance(bound, EdgeVariable):
            return None
        return edge_id(argument.name, bound)


class _StageOperands(_ItemOperands):
    """The items of a `with`: nodes, which stay nodes, and values, which have names."""

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
        """Whether this is a variable that stays one: not a parameter, nor an item of a list."""
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
    """The type of an aggregate of values of a type; T8, at ``span``, if it takes none of those."""
    problem = None
    match function:
        case "count":
            return ex.I64
        case "sum" | "avg" | "median" | "stddev" | "percentile":
            if argument.is_numeric:
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
        """The column of the grouped rows that holds ``value``, computing aggregates on demand."""
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
                continue  # of distinct rows, which are all alike in this
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
        """``value`` over grouped columns; T9 if it reads a value that varies in a group."""
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
    """What tells the nodes of an interface apart, if ``value`` is their id: others may share it."""
    if isinstance(value, ex.PropertyValue) and value.property == ex.NODE_ID:
        return replace(value, property=ex.NODE_TYPE)
    return None


def _is_aggregate_free(value: ex.Expression) -> bool:
    return not any(isinstance(part, ex.AggregateValue) for part in ex.walk(value))


def _has_aggregate(node: object) -> bool:
    """Whether an aggregate is written anywhere inside a condition."""
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
    """The column name of an item without `as`; None when it has no natural one."""
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
    """What the operation descriptor calls an item: alias, property, variable or function."""
    node = item.expression
    if item.alias is not None:
        return item.alias
    if isinstance(node, ast.PropertyRef):
        return node.name
    if isinstance(node, ast.Aggregate):
        return node.function
    return output_key(node) or ""


# --- order ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ordering:
    """The checked order block."""

    rank: plan.Rank | None
    keys: tuple[plan.SortKey, ...]
    tie_breakers: tuple[ex.OutputValue, ...]
    per: plan.LimitPer | None


def check_order(
    body: ast.ReadBody, output: ReturnBlock, context: Context, scope: VariableScope
) -> Ordering:
    """Rank, sort keys and tie breakers of a read."""
    return _OrderChecker(body, output, context, scope).check()


class _OrderChecker:
    def __init__(
        self, body: ast.ReadBody, output: ReturnBlock, context: Context, scope: VariableScope
    ) -> None:
        self._body = body
        self._output = output
        self._context = context
        self._operands = Operands(context, scope)
        self._rank: plan.Rank | None = None

    def check(self) -> Ordering:
        keys = self._body.order
        self._refuse_aliases_beside_nearest(keys)
        sort_keys: list[plan.SortKey] = []
        for at, key in enumerate(keys):
            match key.expression:
                case ast.SearchCall() if key.expression.function in ast.RANK_FUNCTIONS:
                    self._direct_rank(key, key.expression, at)
                case ast.AliasRef():
                    sort_key = self._alias_key(key, key.expression, at)
                    if sort_key is not None:
                        sort_keys.append(sort_key)
                case ast.PropertyRef():
                    value = self._operands.property(key.expression)
                    self._require_orderable(value.type, key)
                    sort_keys.append(self._property_key(value, key))
                case ast.Variable() if (item := self._item(key.expression)) is not None:
                    sort_keys.append(self._property_key(item, key))
                case ast.Variable() if self._is_blob_parameter(key.expression):
                    raise self._context.error(
                        "T24",
                        f"Blob parameter `${key.expression.name}` cannot be ordered by",
                        key.expression.span,
                    )
                case _:
                    raise self._context.error(
                        "T25",
                        "an order key is a property, a return alias, or first a ranking call",
                        key.span,
                        "return the value with `as name` and order by that name",
                    )
        self._check_returned_rrf()
        per = None if self._body.per is None else self._limit_per(self._body.per)
        return Ordering(self._rank, tuple(sort_keys), self._tie_breakers(), per)

    # --- limits of groups -------------------------------------------------------------------------

    def _limit_per(self, written: ast.LimitPer) -> plan.LimitPer:
        if not self._body.order:
            raise self._context.error(
                "T25",
                "`limit … per` takes the first rows of each group, so it needs an order",
                written.span,
                "add `order { … }` in front of it",
            )
        count = self._context.row_count(written.count, "limit")
        assert count is not None
        return plan.LimitPer(count, self._group_keys(written.key))

    def _group_keys(self, node: ast.Expression) -> tuple[ex.Expression, ...]:
        """What tells the groups of a limit apart: a node, a property or an alias."""
        value: ex.OutputExpression | None = None
        match node:
            case ast.Variable() if (item := self._item(node)) is not None:
                value = item
            case ast.Variable() if node.name not in self._context.parameters:
                return self._node_keys(node)
            case ast.PropertyRef():
                value = self._operands.property(node)
            case ast.AliasRef():
                value = self._output.row_values.get(node.name)
                value = value or self._context.values.get(node.name)
                if value is None:
                    raise self._unknown_alias(node)
        if value is None or isinstance(value, ex.Whole) or not value.type.is_plain_scalar:
            raise self._context.error(
                "T25", "a limit is per node, property or alias of a single value", node.span
            )
        if not self._reads_output:
            return (value,)
        return (self._returned(value, node.span),)

    def _node_keys(self, node: ast.Variable) -> tuple[ex.Expression, ...]:
        bound = self._operands.scope.lookup(node.name)
        if bound is None:
            raise self._operands.unbound(node, "T6")
        if isinstance(bound, EdgeVariable | PathVariable):
            raise self._operands.bare_binding(node, bound)
        assert isinstance(bound, NodeVariable)
        if not self._reads_output:
            return (ex.EntityId(node.name, ex.STRING.with_nullable(bound.optional)),)
        shown = node_id(node.name, bound)
        for name, value in self._output.row_values.items():
            if isinstance(value, ex.CarriedNode) and value.variable == node.name:
                return (ex.OutputValue(name, value.type),)
        keys = [self._returned(shown, node.span)]
        by = dict(self._output.group_by.items) if self._output.group_by is not None else {}
        if (of_type := by.get(f"#{node.name}")) is not None:
            keys.append(ex.OutputValue(f"#{node.name}", of_type.type))
        return tuple(keys)

    def _returned(self, value: ex.Expression, span: Span) -> ex.Expression:
        """The column that has a value; T25 if none does."""
        for name, shown in self._output.row_values.items():
            if shown == value:
                return ex.OutputValue(name, value.type)
        what = "grouped" if self._output.group_by is not None else "distinct"
        raise self._context.error(
            "T25",
            f"{what} rows can only be ordered and limited by what they return",
            span,
            "add it to the return block",
        )

    # --- ranking ----------------------------------------------------------------------------------

    def _refuse_aliases_beside_nearest(self, keys: tuple[ast.OrderKey, ...]) -> None:
        has_nearest = any(
            isinstance(key.expression, ast.SearchCall) and key.expression.function == "nearest"
            for key in keys
        )
        for key in keys:
            if not isinstance(key.expression, ast.AliasRef):
                continue
            names_nearest = isinstance(self._output.row_values.get(key.expression.name), ex.Nearest)
            if has_nearest or names_nearest:
                raise self._context.error(
                    "T18",
                    "`nearest` orders only as a direct key, without alias keys beside it",
                    key.span,
                    "write `order { nearest($x.v, …) }`",
                )

    def _direct_rank(self, key: ast.OrderKey, call: ast.SearchCall, at: int) -> None:
        score = rank_call(call, self._operands)
        if at > 0 or self._output.group_by is not None:
            where = "of an aggregate query" if at == 0 else "after the first key"
            raise self._context.error("T25", f"a ranking call cannot order {where}", key.span)
        # A direct `bm25` or `rrf` key is best-first in either direction.
        self._set_rank(score, True, key)

    def _set_rank(self, score: ex.RankExpression, best_first: bool, key: ast.OrderKey) -> None:
        if self._body.limit is None and not isinstance(score, ex.Bm25):
            code, name = ("T17", "nearest") if isinstance(score, ex.Nearest) else ("T21", "rrf")
            raise self._context.error(
                code, f"ordering by `{name}` needs a limit", key.span, "add `limit 10` at the end"
            )
        self._rank = plan.Rank(score, best_first)

    def _check_returned_rrf(self) -> None:
        """A fused score only exists while ranking by it."""
        for item, value in zip(self._body.items, self._output.row_values.values(), strict=True):
            if isinstance(value, ex.Whole):
                continue
            for part in ex.walk(value):
                if isinstance(part, ex.Rrf) and not self._ranks_by(part):
                    raise self._context.error(
                        "T21",
                        "a returned `rrf` must also be the first order key",
                        item.span,
                        "order by the same call, or by its alias",
                    )

    def _ranks_by(self, score: ex.Rrf) -> bool:
        return self._rank is not None and self._rank.score == score

    # --- plain keys -------------------------------------------------------------------------------

    def _alias_key(self, key: ast.OrderKey, alias: ast.AliasRef, at: int) -> plan.SortKey | None:
        value = self._output.row_values.get(alias.name)
        if value is None and alias.name in self._context.values:
            given = self._context.values[alias.name]
            self._require_orderable(given.type, key)
            return self._property_key(given, key)
        if value is None:
            raise self._unknown_alias(alias)
        if isinstance(value, ex.EntityObject | ex.RecordList | ex.CarriedNode):
            what = {
                ex.EntityObject: "a whole entity",
                ex.RecordList: "a list of records",
                ex.CarriedNode: "a node",
            }[type(value)]
            raise self._context.error("T25", f"`{alias.name}` is {what} and has no order", key.span)
        self._require_orderable(value.type, key)
        if isinstance(value, ex.Rrf) and at > 0 and not self._ranks_by(value):
            raise self._context.error(
                "T25", "a ranking call cannot order after the first key", key.span
            )
        if isinstance(value, ex.Bm25 | ex.Rrf) and at == 0 and self._output.group_by is None:
            self._set_rank(value, bool(key.descending), key)
            return None
        if self._reads_output:
            column = ex.OutputValue(alias.name, value.type)
            return plan.SortKey(column, bool(key.descending))
        return plan.SortKey(value, bool(key.descending))

    def _property_key(self, value: ex.Expression, key: ast.OrderKey) -> plan.SortKey:
        if not self._reads_output:
            return plan.SortKey(value, bool(key.descending))
        return plan.SortKey(self._returned(value, key.span), bool(key.descending))

    def _unknown_alias(self, alias: ast.AliasRef) -> Exception:
        return self._context.error(
            "T25",
            f"no return item is called `{alias.name}`",
            alias.span,
            suggest_alias(alias.name, self._output.row_values),
        )

    def _item(self, node: ast.Variable) -> ex.Expression | None:
        """The item of a list that a variable is bound to, if it is."""
        bound = self._operands.scope.lookup(node.name)
        return bound.value if isinstance(bound, ValueVariable) else None

    def _is_blob_parameter(self, node: ast.Variable) -> bool:
        declared = self._context.parameters.get(node.name)
        return declared is not None and declared.type.is_blob

    @property
    def _reads_output(self) -> bool:
        return self._output.group_by is not None or self._body.distinct

    def _require_orderable(self, value_type: ValueType, key: ast.OrderKey) -> None:
        if value_type.is_list or value_type.is_vector:
            raise self._context.error("T25", f"a {value_type} has no order", key.span)

    def _tie_breakers(self) -> tuple[ex.OutputValue, ...]:
        """Columns that make the order total for grouped or distinct rows, which have no ids."""
        group_by = self._output.group_by
        if group_by is not None and not self._output.is_distinct:
            return tuple(ex.OutputValue(name, value.type) for name, value in group_by.items)
        if not self._output.is_distinct:
            return ()
        return tuple(
            ex.OutputValue(
                column.name,
                ex.STRING if isinstance(column.expression, ex.Whole) else column.expression.type,
            )
            for column in self._output.columns
        )
