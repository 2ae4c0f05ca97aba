"""Type-checks blocks that give a value: `count { … }`, `collect { … return { … } }` and others."""

from __future__ import annotations

from omnigraph.model.types import ValueType
from omnigraph.query import expressions as ex
from omnigraph.query.check_return import aggregate_type, output_key
from omnigraph.query.lower import Block, ComputedBlock
from omnigraph.query.operands import (
    EdgeVariable,
    NodeVariable,
    Operands,
    ValueVariable,
    VariableScope,
    node_id,
)
from omnigraph.query.plan import BoundVariable, Compute, Pattern, SortKey, value_variable
from omnigraph.syntax import query_ast as ast

_NO_PATTERN = Pattern(())
"""In the place of the pattern that lowering makes."""


def check_block(
    node: ast.BlockValue, number: int, block: Block, operands: Operands
) -> tuple[ComputedBlock, ex.BoundValue | ex.RecordList]:
    """A block whose clauses are checked, and the expression that reads its value.

    ``operands`` see the variables of the block, ``number`` tells it from other ones of the query.
    """
    variable = value_variable(f"{node.function}#{number}")
    items = _items(node, operands)
    value = _value(node, variable, items, operands)
    order = tuple(_key(key, node, items, operands) for key in node.order)
    ties = () if node.distinct or not order else _own_variables(operands.scope)
    limit = operands.context.row_count(node.limit, "limit")
    step = Compute(
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
    """What a block returns, by name."""
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
    """How the value of a block is read; T28 if it returns what its function does not take."""
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
) -> SortKey:
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
    return SortKey(value, bool(key.descending))


def _own_variables(scope: VariableScope) -> tuple[BoundVariable, ...]:
    """The variables of a block, whose ids break ties in its list."""
    found: list[BoundVariable] = []
    for name in sorted(scope.own):
        bound = scope.own[name]
        if isinstance(bound, NodeVariable):
            found.append(BoundVariable(name, "node", bound.type.name))
        elif isinstance(bound, EdgeVariable):
            found.append(BoundVariable(name, "edge", bound.type.name))
        elif isinstance(bound, ValueVariable):
            found.append(BoundVariable(name, "value", "", bound.value.type))
    return tuple(found)
