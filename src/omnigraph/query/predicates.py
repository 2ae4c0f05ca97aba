"""Type-checks conditions (filters, null tests, the pairs of a binding) and search calls."""

from __future__ import annotations

import math
import re
from typing import Literal, cast

from omnigraph.errors import QueryParseError
from omnigraph.model.types import ID, Scalar, ValueType
from omnigraph.model.values import round_to_f32
from omnigraph.query import expressions as ex
from omnigraph.query.operands import (
    EdgeVariable,
    NodeVariable,
    Operands,
    comparable,
    edge_id,
    is_empty_list,
    node_id,
    property_value,
    round_to_match,
    type_value,
)
from omnigraph.schema.catalog import InterfaceType, Property
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.search_text import search_term
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Span

# --- filters --------------------------------------------------------------------------------------


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
            return ex.TextStartsWith(*_texts(node, operands))
        case "ends_with":
            return ex.TextEndsWith(*_texts(node, operands))
        case "matches":
            return _matches(node, operands)
        case "in":
            return _membership(node, operands)
        case operator:
            identity = _identity(node, operands)
            if identity is not None:
                return identity
            left, right = operands.plain(node.left), operands.plain(node.right)
            require_comparable(left.type, right.type, node.span, operands)
            return ex.Compare(operator, round_to_match(right, left), round_to_match(left, right))


def _identity(node: ast.Filter, operands: Operands) -> ex.Expression | None:
    """`$a = $b` or `$a != $b` of two nodes or two edges; None for any other comparison."""
    left, right = node.left, node.right
    if not (isinstance(left, ast.Variable) and isinstance(right, ast.Variable)):
        return None
    if (
        node.operator not in ("=", "!=")
        or {left.name, right.name} & operands.context.parameters.keys()
    ):
        return None
    one, other = operands.scope.lookup(left.name), operands.scope.lookup(right.name)
    if isinstance(one, EdgeVariable) and isinstance(other, EdgeVariable):
        if one.type.name == other.type.name:
            return ex.Compare(node.operator, edge_id(left.name, one), edge_id(right.name, other))
    elif isinstance(one, NodeVariable) and isinstance(other, NodeVariable):
        types = operands.context.catalog.node_types
        known = {each.name for each in types(one.type.name)}
        if any(each.name in known for each in types(other.type.name)):
            same = ex.Compare(node.operator, node_id(left.name, one), node_id(right.name, other))
            if not isinstance(one.type, InterfaceType) and not isinstance(
                other.type, InterfaceType
            ):
                return same
            of_type = ex.Compare(
                node.operator, type_value(left.name, one), type_value(right.name, other)
            )
            return ex.Combine("and" if node.operator == "=" else "or", (same, of_type))
    else:
        return None
    raise operands.context.error(
        "T7",
        f"`${left.name}` is a {one.type.name} and `${right.name}` a {other.type.name}, "
        "which are never the same",
        node.span,
    )


def check_null_test(node: ast.NullTest, operands: Operands) -> ex.Expression:
    """`operand is [not] null`; for a bare variable, whether an optional match found nothing."""
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
    if pair.name == ID:
        value = _pair_value(bound, Property(ID, ex.STRING, 0), pair, operands)
        name = ex.NODE_ID if isinstance(bound.type, InterfaceType) else ID
        type = ex.STRING.with_nullable(bound.optional)
        return ex.Compare(
            "=", ex.PropertyValue(variable, "node", bound.type.name, name, type), value
        )
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
    """Raise T3 if a literal is not one of the values of an enum property."""
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
    """How to write a literal of a type with a spelling that is easily missed."""
    match expected.scalar:
        case Scalar.DATE:
            return 'write a date as `date("2031-04-09")`'
        case Scalar.DATETIME:
            return 'write a date-time as `datetime("2031-04-09T07:30:00Z")`'
    return None


def require_comparable(left: ValueType, right: ValueType, span: Span, operands: Operands) -> None:
    """Raise T7 unless two single values may be compared."""
    if not comparable(left, right):
        other = left if right.scalar is Scalar.STRING else right
        raise operands.context.error(
            "T7", f"cannot compare {left} with {right}", span, literal_hint(other)
        )


def _text_predicate(node: ast.Filter, call: ast.SearchCall, operands: Operands) -> ex.Expression:
    if call.function == "highlight":
        raise operands.context.error(
            "T7",
            "`highlight(…)` gives parts of texts; it is returned, not tested",
            call.span,
            "keep what matches with `search(…)`",
        )
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


def _texts(node: ast.Filter, operands: Operands) -> tuple[ex.Expression, ex.Expression]:
    """Both sides of a condition on texts."""
    both = operands.value(node.left), operands.value(node.right)
    _require_text(node, both, operands)
    return both


def _matches(node: ast.Filter, operands: Operands) -> ex.Expression:
    text, pattern = _texts(node, operands)
    if isinstance(pattern, ex.Constant):
        # Imported late: Arrow, which checks patterns, takes longer to import than a query to
        # compile.
        from omnigraph.query.functions import PATTERN_HINT, pattern_problem

        problem = pattern_problem(str(pattern.value))
        if problem is not None:
            raise operands.context.error(
                "T7", f"this is not a regular expression: {problem}", node.right.span, PATTERN_HINT
            )
    elif not isinstance(pattern, ex.ParameterValue):
        raise operands.context.error(
            "T7",
            "the pattern of `matches` is a literal or a parameter, the same for all rows",
            node.right.span,
        )
    return ex.TextMatches(text, pattern)


def _membership(node: ast.Filter, operands: Operands) -> ex.Expression:
    item = _node_in_list(node, operands) or operands.plain(node.left)
    members = operands.value(node.right)
    if not members.type.is_list:
        raise operands.context.error(
            "T7", f"`in` needs a list on its right, got {members.type}", node.right.span
        )
    if not is_empty_list(members) and not comparable(item.type, members.type.item):
        raise operands.context.error(
            "T7", f"a {item.type} cannot be in a {members.type}", node.span
        )
    return ex.ListContains(round_to_match(item, members), round_to_match(members, item))


def _node_in_list(node: ast.Filter, operands: Operands) -> ex.Expression | None:
    """The id of a node on the left of `in`; None for a value. Ids of an interface are ambiguous."""
    left = node.left
    if not isinstance(left, ast.Variable) or left.name in operands.context.parameters:
        return None
    bound = operands.scope.lookup(left.name)
    if not isinstance(bound, NodeVariable) or isinstance(bound.type, InterfaceType):
        return None
    return node_id(left.name, bound)


def _require_text(
    node: ast.Filter, sides: tuple[ex.Expression, ex.Expression], operands: Operands
) -> None:
    for typed, source in zip(sides, (node.left, node.right), strict=True):
        if typed.type.scalar is not Scalar.STRING or typed.type.is_list:
            raise operands.context.error(
                "T7", f"`{node.operator}` needs String operands, got {typed.type}", source.span
            )


# --- search and ranking calls ---------------------------------------------------------------------


RRF_K_DEFAULT = 60
FUZZY_EDITS_DEFAULT = 2

_CODES = {
    "search": "T19",
    "fuzzy": "T19",
    "match_text": "T20",
    "bm25": "T20",
    "nearest": "T15",
    "rrf": "T21",
    "highlight": "T19",
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


def highlight_call(call: ast.SearchCall, operands: Operands) -> ex.Highlight:
    """`highlight`, on a String property of a node variable."""
    variable, bound, declared = _searched_property(call, operands)
    style = "text"
    if len(call.arguments) == 3:
        given = call.arguments[2]
        style = str(given.value) if isinstance(given, ast.Literal) else ""
        if style not in ("text", "html"):
            raise operands.context.error(
                "T19",
                'the third argument of `highlight` is "text" or "html"',
                given.span,
                "`html` escapes the text and marks words with `<mark>`",
            )
    return ex.Highlight(
        variable,
        bound.type.name,
        declared.name,
        _text_query(call, operands),
        cast("Literal['text', 'html']", style),
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
    """The node property that a call searches: String for text, Vector for `nearest`."""
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
    if not isinstance(bound, NodeVariable):
        raise context.error(
            "T23",
            f"`{call.function}` searches nodes; `${field.variable.name}` is not a node",
            field.span,
        )
    if isinstance(bound.type, InterfaceType):
        raise context.error(
            code,
            f"`{call.function}` searches nodes of one type; "
            f"`${field.variable.name}` is any {bound.type.name}",
            field.span,
            f"bind it to a type that implements {bound.type.name}",
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
    kind = None
    if isinstance(node, ast.TextQuery):
        if call.function == "fuzzy":
            raise operands.context.error(
                "T19", f"`fuzzy` compares words; it takes no `{node.kind}(…)`", node.span
            )
        kind, node = node.kind, node.text
    typed = _literal_or_parameter(node, operands)
    if typed is None or typed.type.scalar is not Scalar.STRING or typed.type.is_list:
        raise operands.context.error(
            _CODES[call.function],
            f"the text of `{kind or call.function}` must be a String literal or parameter",
            node.span,
        )
    if kind is None:
        return typed
    if isinstance(typed, ex.Constant):
        _require_search_text(kind, str(typed.value), node.span, operands)
    return ex.TextQuery(kind, typed)


def _require_search_text(
    kind: ast.TextQueryKind, text: str, span: Span, operands: Operands
) -> None:
    """Raise a parse error at the right place of a literal if its search text does not parse."""
    try:
        search_term(kind, text)
    except QueryParseError as error:
        assert error.position is not None
        source = operands.context.source
        written = source.text[span.start + 1 : span.end - 1]
        # An escape is two characters for one.
        places = [at.start() for at in re.finditer(r"\\.|.", written, re.DOTALL)]
        places += [len(written), len(written) + 1]
        offset = len(text.encode()[: error.position.byte_start].decode())
        width = error.position.width
        start = span.start + 1 + places[min(offset, len(places) - 1)]
        end = span.start + 1 + places[min(offset + width, len(places) - 1)]
        raise source.error(
            QueryParseError, error.reason, Span(start, end), hint=error.hint
        ) from None


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
    """A list literal as a vector; the length of a list parameter is checked at run time.

    Components are rounded to single precision, like those of a vector parameter.
    """
    if not (isinstance(typed, ex.Constant) and isinstance(typed.value, tuple)):
        return typed
    components = tuple(round_to_f32(v) for v in typed.value if isinstance(v, int | float))
    if not all(map(math.isfinite, components)):
        raise operands.context.error("T15", "a component is too large for a vector", span)
    return ex.Constant(components, ValueType(Scalar.VECTOR, vector_dim=dimension))


def _count(call: ast.SearchCall, at: int, operands: Operands, *, minimum: int) -> ex.Expression:
    """The integer option of `fuzzy` and `rrf`; parameters are checked at run time."""
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
