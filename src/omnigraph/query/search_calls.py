"""Type-checks text predicates and ranking calls (`search`, `match_text`, `fuzzy`, `bm25`,
`nearest`, `rrf`)."""

from __future__ import annotations

import math
from typing import Literal, cast

from omnigraph.model.floats import round_to_f32
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import ast
from omnigraph.query import expressions as ex
from omnigraph.query.operands import Operands
from omnigraph.query.scope import EdgeVariable, NodeVariable, PathVariable
from omnigraph.schema.catalog import Property
from omnigraph.syntax.source import Span
from omnigraph.syntax.suggest import did_you_mean

RRF_K_DEFAULT = 60
FUZZY_EDITS_DEFAULT = 2

_CODES = {
    "search": "T19",
    "fuzzy": "T19",
    "match_text": "T20",
    "bm25": "T20",
    "nearest": "T15",
    "rrf": "T21",
}


def text_match(call: ast.SearchCall, operands: Operands) -> ex.TextMatch:
    """A text predicate on a String property of a node variable."""
    variable, bound, declared = _searched_property(call, operands)
    edits_max: ex.Expression | None = None
    if call.function == "fuzzy":
        edits_max = (
            _count(call, 2, operands, minimum=0)
            if len(call.arguments) == 3
            else ex.Constant(FUZZY_EDITS_DEFAULT, ex.I64)
        )
    return ex.TextMatch(
        cast("Literal['search', 'match_text', 'fuzzy']", call.function),
        variable,
        bound.type.name,
        declared.name,
        _text_query(call, operands),
        edits_max,
    )


def rank_call(call: ast.SearchCall, operands: Operands) -> ex.RankExpression:
    """A ranking call: `nearest`, `bm25` or `rrf`."""
    if call.function != "rrf":
        return _single_rank(call, operands)
    arms = [_single_rank(cast(ast.SearchCall, arm), operands) for arm in call.arguments[:2]]
    first, second = arms
    if first.variable != second.variable:
        raise operands.context.error(
            "T21",
            f"both arms of `rrf` must rank one variable, but they rank `${first.variable}` "
            f"and `${second.variable}`",
            call.span,
        )
    k: ex.Expression = ex.Constant(RRF_K_DEFAULT, ex.I64)
    if len(call.arguments) == 3:
        k = _count(call, 2, operands, minimum=1)
    return ex.Rrf(first, second, k)


def _single_rank(call: ast.SearchCall, operands: Operands) -> ex.Nearest | ex.Bm25:
    variable, bound, declared = _searched_property(call, operands)
    if call.function == "bm25":
        return ex.Bm25(variable, bound.type.name, declared.name, _text_query(call, operands))
    dimension = declared.type.vector_dim
    assert dimension is not None
    return ex.Nearest(
        variable,
        bound.type.name,
        declared.name,
        dimension,
        _vector_query(call, declared, dimension, operands),
        declared.embed.model if declared.embed else None,
    )


def _searched_property(
    call: ast.SearchCall, operands: Operands
) -> tuple[str, NodeVariable, Property]:
    """The node property a call searches: String for text, Vector for `nearest`."""
    context, code = operands.context, _CODES[call.function]
    wanted = "Vector" if call.function == "nearest" else "String"
    field = call.arguments[0]
    if not isinstance(field, ast.PropertyRef):
        raise context.error(
            code, f"`{call.function}` searches a {wanted} property, such as `$x.title`", field.span
        )
    bound = operands.scope.lookup(field.variable.name)
    if bound is None:
        raise operands.unbound(field.variable, code)
    if isinstance(bound, EdgeVariable | PathVariable):
        raise context.error(
            "T23",
            f"`{call.function}` searches nodes; `${field.variable.name}` is not a node",
            field.span,
        )
    declared = bound.type.properties.get(field.name)
    if declared is None:
        raise operands.unknown_property(code, bound, field.name, field.name_span)
    fits = (
        declared.type.is_vector
        if call.function == "nearest"
        else declared.type.scalar is Scalar.STRING and not declared.type.is_list
    )
    if not fits:
        same_kind = [
            p.name
            for p in bound.type.properties.values()
            if (p.type.is_vector if wanted == "Vector" else p.type.scalar is Scalar.STRING)
        ]
        raise context.error(
            code,
            f"`{call.function}` needs a {wanted} property, "
            f"but {bound.type.name}.{field.name} is {declared.type}",
            field.span,
            did_you_mean(field.name, same_kind),
        )
    return field.variable.name, bound, declared


def _text_query(call: ast.SearchCall, operands: Operands) -> ex.Expression:
    node = call.arguments[1]
    typed = _literal_or_parameter(node, operands)
    if typed is None or typed.type.scalar is not Scalar.STRING or typed.type.is_list:
        raise operands.context.error(
            _CODES[call.function],
            f"the text of `{call.function}` must be a String literal or parameter",
            node.span,
        )
    return typed


def _vector_query(
    call: ast.SearchCall, declared: Property, dimension: int, operands: Operands
) -> ex.Expression:
    node = call.arguments[1]
    typed = _literal_or_parameter(node, operands)
    if typed is not None:
        kind = typed.type
        if kind.scalar is Scalar.STRING and not kind.is_list:
            return typed
        length = _known_length(typed)
        if length is not None and length != dimension:
            raise operands.context.error(
                "T15",
                f"`{declared.name}` has {dimension} dimensions, but the query has {length}",
                node.span,
            )
        if kind.is_vector:
            return typed
        if kind.is_list and (kind.scalar.is_numeric or length == 0):
            return _as_vector(typed, dimension, node.span, operands)
    raise operands.context.error(
        "T15",
        f"`nearest` takes a Vector({dimension}) or a String, as a literal or a parameter",
        node.span,
    )


def _known_length(typed: ex.Expression) -> int | None:
    if isinstance(typed, ex.Constant) and isinstance(typed.value, tuple):
        return len(typed.value)
    return typed.type.vector_dim


def _as_vector(
    typed: ex.Expression, dimension: int, span: Span, operands: Operands
) -> ex.Expression:
    """A list literal as a vector; a list parameter keeps its type and is measured at run time.

    Components are rounded to single precision, like those of a vector parameter.
    """
    if not (isinstance(typed, ex.Constant) and isinstance(typed.value, tuple)):
        return typed
    components = tuple(round_to_f32(v) for v in typed.value if isinstance(v, int | float))
    if not all(map(math.isfinite, components)):
        raise operands.context.error("T15", "a component is too large for a vector", span)
    return ex.Constant(components, ValueType(Scalar.VECTOR, vector_dim=dimension))


def _count(call: ast.SearchCall, at: int, operands: Operands, *, minimum: int) -> ex.Expression:
    """The integer option of `fuzzy` and `rrf`; parameters are measured at run time."""
    node = call.arguments[at]
    typed = _literal_or_parameter(node, operands)
    is_integer = typed is not None and not typed.type.is_list and typed.type.scalar.is_integer
    too_small = (
        isinstance(typed, ex.Constant) and isinstance(typed.value, int) and typed.value < minimum
    )
    if typed is None or not is_integer or too_small:
        raise operands.context.error(
            _CODES[call.function],
            f"the last argument of `{call.function}` must be an integer of at least {minimum}, "
            "as a literal or a parameter",
            node.span,
        )
    return typed


def _literal_or_parameter(node: ast.Expression, operands: Operands) -> ex.Expression | None:
    match node:
        case ast.Variable() if node.name in operands.context.parameters:
            return ex.ParameterValue(node.name, operands.context.parameters[node.name].type)
        case ast.Literal() | ast.ListLiteral():
            return operands.value(node)
    return None
