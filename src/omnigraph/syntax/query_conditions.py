"""Conditions of `.gq`: the tests of filters, and conditionals.

::

    conditional = "if" "(" condition "," expression [ "," expression ] ")"
                | "case" "{" condition ":" expression { "," … } [ "," "else" ":" expression ] "}"
    condition   = conjunction { "or" conjunction }
    conjunction = test { "and" test }
    test        = "(" condition ")" | expression [ comparison | null test ]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_expressions import (
    ARITHMETIC,
    QueryStream,
    parse_expression,
    parse_list,
    parse_operand,
    parse_reference,
)
from omnigraph.syntax.tokens import Token, TokenKind

# --- conditionals ---------------------------------------------------------------------------------


def parse_conditional(stream: QueryStream) -> ast.Conditional:
    """Read `if(…)` or `case { … }`."""
    return _case(stream) if stream.opens_block("case") else _if(stream)


def _if(stream: QueryStream) -> ast.Conditional:
    stream.enter()
    start = stream.advance().span.start
    stream.advance()
    condition = parse_combined(stream)
    stream.expect_punct(",", "after the condition of `if`")
    value = parse_operand(stream)
    otherwise = parse_operand(stream) if stream.take_punct(",") else None
    stream.expect_punct(")", "after the values of `if`")
    stream.leave()
    return ast.Conditional(((condition, value),), otherwise, stream.span_from(start))


def _case(stream: QueryStream) -> ast.Conditional:
    stream.enter()
    start = stream.advance().span.start
    stream.advance()
    cases: list[tuple[ast.Condition, ast.Expression]] = []
    otherwise: ast.Expression | None = None
    while not stream.take_punct("}"):
        if otherwise is not None:
            stream.unexpected("`}`", "after `else`, which comes last")
        stream.count_clause()
        if stream.at_word("else") and stream.peek().text == ":":
            stream.advance()
            stream.advance()
            otherwise = parse_operand(stream)
        else:
            condition = parse_combined(stream)
            stream.expect_punct(":", "after the condition of a case")
            cases.append((condition, parse_operand(stream)))
        if not stream.take_punct(",") and stream.current.text != "}":
            stream.unexpected("`,` or `}`", "in `case`", hint=stream.foreign_hint())
    stream.leave()
    span = stream.span_from(start)
    if not cases:
        stream.fail("`case` needs a condition", span, hint="write `case { $x.p > 3: 1, else: 0 }`")
    return ast.Conditional(tuple(cases), otherwise, span)


def parse_combined(stream: QueryStream) -> ast.Condition:
    """Read a condition with `and` and `or`, as inside a conditional."""
    return _joined(stream, "or", lambda inner: _joined(inner, "and", _tested))


def _joined(
    stream: QueryStream,
    word: Literal["and", "or"],
    parse: Callable[[QueryStream], ast.Condition],
) -> ast.Condition:
    start = stream.current.span.start
    operands = [parse(stream)]
    while stream.take_word(word):
        stream.count_clause()
        operands.append(parse(stream))
    if len(operands) == 1:
        return operands[0]
    return ast.BooleanCondition(word, tuple(operands), stream.span_from(start))


def _tested(stream: QueryStream) -> ast.Condition:
    start = stream.current.span.start
    if stream.current.text == "(" and _holds_test(stream):
        stream.enter()
        stream.advance()
        inner = parse_combined(stream)
        stream.expect_punct(")", "after the condition")
        stream.leave()
        return inner
    left = parse_operand(stream)
    test = _test(stream, left, start, parse_operand)
    # A value alone stands for the test `= true`.
    return test or ast.Filter(left, "=", ast.Literal(True, left.span), stream.span_from(start))


def _holds_test(stream: QueryStream) -> bool:
    """Whether the parentheses that open here directly contain a test."""
    depth, at, after_operand = 0, 0, False
    while (token := stream.peek(at)).kind is not TokenKind.END:
        if token.text in ("(", "[", "{"):
            depth += 1
        elif token.text in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return False
        elif depth == 1 and after_operand and _joins_conditions(token):
            return True
        after_operand = token.text not in ("(", "[", ",", ".") and token.text not in ARITHMETIC
        at += 1
    return False


def _joins_conditions(token: Token) -> bool:
    if token.kind is TokenKind.WORD:
        return token.text in (*TEST_WORDS, "and", "or")
    return token.text in COMPARISONS


# --- tests ----------------------------------------------------------------------------------------


COMPARISONS: dict[str, ast.ComparisonOperator] = {
    "=": "=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_TEXT_TESTS: dict[str, ast.FilterOperator] = {
    "contains": "contains",
    "starts_with": "starts_with",
    "ends_with": "ends_with",
    "matches": "matches",
}
TEST_WORDS = (*_TEXT_TESTS, "in", "is")
_LATER_TESTS = ("ends_with", "matches")
_TEST_ADVICE = {
    "not": "wrap the clause in `not { … }`, or write `is not null`",
    "like": "texts are matched with `contains`, `starts_with`, `matches` or `match_text(…)`",
}


def parse_filter(stream: QueryStream) -> ast.Filter | ast.NullTest:
    """Read `left operator right`, a null test, or a text predicate alone."""
    start = stream.current.span.start
    left = parse_expression(stream)
    test = _test(stream, left, start, parse_expression)
    if test is None:
        is_exists = isinstance(left, ast.BlockValue) and left.function == "exists"
        if not (is_exists or _is_text_predicate(left)):
            hint = _TEST_ADVICE.get(stream.current.text.lower()) or stream.foreign_hint()
            stream.unexpected("a comparison", "after the expression", TEST_WORDS, hint=hint)
        return ast.Filter(left, "=", ast.Literal(True, left.span), stream.span_from(start))
    return test


def _is_text_predicate(node: ast.Expression) -> bool:
    return isinstance(node, ast.SearchCall) and node.function in ast.TEXT_PREDICATES


def _test(
    stream: QueryStream,
    left: ast.Expression,
    start: int,
    operand: Callable[[QueryStream], ast.Expression],
) -> ast.Filter | ast.NullTest | None:
    """Read the test of ``left``, which begins at ``start``; None if there is none."""
    token = stream.current
    operator: ast.FilterOperator | None = COMPARISONS.get(token.text)
    if operator is None:
        if token.kind is not TokenKind.WORD:
            return None
        if token.text == "is":
            return ast.NullTest(left, parse_null_test(stream), stream.span_from(start))
        if token.text == "in":
            stream.advance()
            candidates = _candidates(stream)
            return ast.Filter(left, "in", candidates, stream.span_from(start))
        operator = _TEXT_TESTS.get(token.text)
        # After a text predicate these words stay aliases, as they were before they became tests.
        if operator is None or (operator in _LATER_TESTS and _is_text_predicate(left)):
            return None
    stream.advance()
    right = operand(stream)
    return ast.Filter(left, operator, right, stream.span_from(start))


def parse_null_test(stream: QueryStream) -> bool:
    """Read `is [not] null`; returns whether it is negated."""
    stream.advance()
    negated = stream.take_word("not") is not None
    stream.expect_word("null", where="after `is not`" if negated else "or `not null` after `is`")
    return negated


def _candidates(stream: QueryStream) -> ast.ListLiteral | ast.Variable | ast.PropertyRef:
    """Read the right side of `in`."""
    if stream.current.kind is not TokenKind.VAR:
        return parse_list(stream, "after `in`")
    operand = parse_reference(stream)
    if isinstance(operand, ast.EntityRef):
        stream.fail("an entity is not a list", operand.span)
    return operand
