"""Type-checks the conditions of a match: filters, null tests and the pairs of a binding."""

from __future__ import annotations

from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import ast
from omnigraph.query import expressions as ex
from omnigraph.query.operands import (
    Operands,
    comparable,
    is_empty_list,
    property_value,
    round_to_match,
)
from omnigraph.query.scope import NodeVariable
from omnigraph.query.search_calls import text_match
from omnigraph.schema.catalog import Property
from omnigraph.syntax.source import Span


def check_filter(
    node: ast.Filter, operands: Operands, *, allow_aggregates: bool = False
) -> ex.Expression:
    """One `left operator right` condition."""
    for side in (node.left, node.right):
        if isinstance(side, ast.SearchCall):
            return _text_predicate(node, side, operands)
        if isinstance(side, ast.Aggregate) and not allow_aggregates:
            raise operands.context.error(
                "T7",
                f"`{side.function}(…)` cannot be used in a filter",
                side.span,
                "filter on aggregates with `having { … }` after the return block",
            )
    match node.operator:
        case "contains":
            return _contains(node, operands)
        case "starts_with":
            text, prefix = operands.value(node.left), operands.value(node.right)
            _require_text(node, (text, prefix), operands)
            return ex.TextStartsWith(text, prefix)
        case "in":
            return _membership(node, operands)
        case operator:
            left, right = operands.plain(node.left), operands.plain(node.right)
            require_comparable(left.type, right.type, node.span, operands)
            return ex.Compare(operator, round_to_match(right, left), round_to_match(left, right))


def check_null_test(node: ast.NullTest, operands: Operands) -> ex.Expression:
    """`operand is [not] null`; a bare variable asks whether an optional match was found."""
    operand = node.operand
    if isinstance(operand, ast.Variable) and operand.name not in operands.context.parameters:
        bound = operands.scope.lookup(operand.name)
        if isinstance(bound, NodeVariable):
            return ex.IsNull(
                ex.EntityId(operand.name, ex.STRING.with_nullable(bound.optional)), node.negated
            )
    return ex.IsNull(operands.value(operand), node.negated)


def check_pair(
    variable: str, bound: NodeVariable, pair: ast.Pair, operands: Operands
) -> ex.Expression:
    """One `property: value` of a binding: equality, or membership on a list property."""
    context = operands.context
    declared = bound.type.properties.get(pair.name)
    if declared is None:
        raise operands.unknown_property("T2", bound, pair.name, pair.name_span)
    if declared.type.is_blob or declared.type.is_vector:
        raise context.error(
            "T3",
            f"{bound.type.name}.{pair.name} is {declared.type} and cannot be matched by value",
            pair.name_span,
        )
    column = property_value(variable, bound, declared)
    value = _pair_value(bound, declared, pair, operands)
    if declared.type.is_list:
        return ex.ListContains(column, round_to_match(column, value))
    return ex.Compare("=", column, round_to_match(column, value))


def _pair_value(
    bound: NodeVariable, declared: Property, pair: ast.Pair, operands: Operands
) -> ex.Expression:
    context, node = operands.context, pair.value
    element = declared.type.item if declared.type.is_list else declared.type
    where = f"{bound.type.name}.{declared.name}"
    if isinstance(node, ast.Variable):
        parameter = context.parameter(node)
        if not comparable(element, parameter.type):
            raise context.error(
                "T7",
                f"parameter `${node.name}` is {parameter.type}, but {where} is {declared.type}",
                node.span,
            )
        return ex.ParameterValue(node.name, parameter.type)
    if isinstance(node, ast.Now):
        if element.scalar is not Scalar.DATETIME:
            raise context.error(
                "T7", f"`now()` is a DateTime, but {where} is {declared.type}", node.span
            )
        return ex.CurrentTime()
    if isinstance(node, ast.ListLiteral):
        raise context.error(
            "T3",
            f"a list literal cannot be matched against {where}",
            node.span,
            "give one element to test for membership" if declared.type.is_list else None,
        )
    typed = operands.value(node)
    if not comparable(element, typed.type):
        raise context.error(
            "T3",
            f"{where} is {declared.type}, but the literal is {typed.type}",
            node.span,
            literal_hint(element),
        )
    require_enum_member(declared, typed, where, node.span, operands)
    return typed


def require_enum_member(
    declared: Property, typed: ex.Expression, where: str, span: Span, operands: Operands
) -> None:
    """T3 when a literal is none of the values of an enum property."""
    allowed = declared.type.enum_values
    if allowed is None or not isinstance(typed, ex.Constant):
        return
    given = typed.value if isinstance(typed.value, tuple) else (typed.value,)
    for value in given:
        if value not in allowed:
            raise operands.context.error(
                "T3",
                f"'{value}' is not a value of {where}",
                span,
                f"expected one of {', '.join(allowed)}",
            )


def literal_hint(expected: ValueType) -> str | None:
    """How to write a literal of a type whose spelling is easily missed."""
    match expected.scalar:
        case Scalar.DATE:
            return 'write a date as `date("2031-04-09")`'
        case Scalar.DATETIME:
            return 'write a date-time as `datetime("2031-04-09T07:30:00Z")`'
    return None


def require_comparable(left: ValueType, right: ValueType, span: Span, operands: Operands) -> None:
    """T7 unless two single values may be compared."""
    if not comparable(left, right):
        other = left if right.scalar is Scalar.STRING else right
        raise operands.context.error(
            "T7", f"cannot compare {left} with {right}", span, literal_hint(other)
        )


def _text_predicate(node: ast.Filter, call: ast.SearchCall, operands: Operands) -> ex.Expression:
    if call.function not in ast.TEXT_PREDICATES:
        raise operands.context.error(
            "T7",
            f"`{call.function}(…)` ranks; it cannot be used in a filter",
            call.span,
            "use it as the first key of `order { … }`",
        )
    is_test = (
        node.left is call
        and node.operator == "="
        and isinstance(node.right, ast.Literal)
        and node.right.value is True
    )
    if not is_test:
        raise operands.context.error(
            "T19" if call.function in ("search", "fuzzy") else "T20",
            f"`{call.function}(…)` is a test: write it alone or as `{call.function}(…) = true`",
            node.span,
            "to keep what does not match, put it inside `not { … }`",
        )
    return text_match(call, operands)


def _contains(node: ast.Filter, operands: Operands) -> ex.Expression:
    whole, part = operands.value(node.left), operands.value(node.right)
    if whole.type.is_list:
        if not part.type.is_plain_scalar or not (
            is_empty_list(whole) or comparable(whole.type.item, part.type)
        ):
            raise operands.context.error(
                "T7", f"a {whole.type} cannot contain a {part.type}", node.right.span
            )
        return ex.ListContains(whole, round_to_match(whole, part))
    _require_text(node, (whole, part), operands)
    return ex.TextContains(whole, part)


def _membership(node: ast.Filter, operands: Operands) -> ex.Expression:
    item, members = operands.plain(node.left), operands.value(node.right)
    if not members.type.is_list:
        raise operands.context.error(
            "T7", f"`in` needs a list on its right, got {members.type}", node.right.span
        )
    if not is_empty_list(members) and not comparable(item.type, members.type.item):
        raise operands.context.error(
            "T7", f"a {item.type} cannot be in a {members.type}", node.span
        )
    return ex.ListContains(round_to_match(item, members), round_to_match(members, item))


def _require_text(
    node: ast.Filter, sides: tuple[ex.Expression, ex.Expression], operands: Operands
) -> None:
    for typed, source in zip(sides, (node.left, node.right), strict=True):
        if typed.type.scalar is not Scalar.STRING or typed.type.is_list:
            raise operands.context.error(
                "T7", f"`{node.operator}` needs String operands, got {typed.type}", source.span
            )
