"""Write queries: inserts, updates, deletes and their predicates.

::

    statement = "insert" Type "{" assignment { assignment } "}"
              | "update" Type "set" "{" assignment { assignment } "}" "where" predicate
              | "delete" Type "where" predicate
    predicate = conjunction { "or" conjunction }
    conjunction = test { "and" test }
    test      = "(" predicate ")" | ident ( comparison value | "in" list | "is" [ "not" ] "null" )
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NoReturn

from omnigraph.query import ast
from omnigraph.query.parse_expression import ARITHMETIC, parse_list, parse_value
from omnigraph.query.parse_match import COMPARISONS, parse_null_test
from omnigraph.query.parse_stream import QueryStream
from omnigraph.syntax.tokens import Token, TokenKind

STATEMENT_WORDS = ("insert", "update", "delete")
_IN = "after `in`"
_BEYOND_VALUES = frozenset({".", "(", *ARITHMETIC})


def parse_write(stream: QueryStream) -> ast.Write:
    """Read the body of a query that starts with a statement."""
    statements: list[ast.Statement] = []
    while not stream.at_punct("}"):
        statements.append(_statement(stream))
    return ast.Write(tuple(statements))


def _statement(stream: QueryStream) -> ast.Statement:
    word = stream.take_word(*STATEMENT_WORDS)
    if word is None:
        hint = None
        if stream.current.text.lower() in ("and", "or"):
            hint = "`and` and `or`, in lowercase, join the tests of one `where`"
        stream.unexpected(
            "`insert`, `update`, `delete` or `}`", "after the statement", STATEMENT_WORDS, hint=hint
        )
    name = stream.type_name(f"after `{word.text}`")
    if word.text == "insert":
        assignments = _assignments(stream, f"in `insert {name.text}`")
        return ast.Insert(name.text, name.span, assignments, stream.span_from(word.start))
    if word.text == "update":
        stream.expect_word("set", where=f"after `update {name.text}`")
        assignments = _assignments(stream, f"in `update {name.text}`")
        where = _where(stream, "the assignments")
        return ast.Update(name.text, name.span, assignments, where, stream.span_from(word.start))
    where = _where(stream, f"`delete {name.text}`")
    return ast.Delete(name.text, name.span, where, stream.span_from(word.start))


# --- assignments ----------------------------------------------------------------------------------


def _assignments(stream: QueryStream, where: str) -> tuple[ast.Pair, ...]:
    return stream.one_or_more(_assignment, "an assignment", where)


def _assignment(stream: QueryStream) -> ast.Pair:
    hint = None
    if stream.current.text in _BEYOND_VALUES:
        hint = "a value is a literal, a parameter, `now()` or `null`; nothing is computed here"
    name = stream.name("a property name or `}`", hint=hint)
    if not stream.take_punct(":"):
        hint = f"an assignment is written `{name.text}: value`"
        stream.unexpected("`:`", f"after `{name.text}`", hint=hint)
    value: ast.Expression
    if stream.at_word("null"):
        value = ast.NullLiteral(stream.advance().span)
    else:
        value = parse_value(stream, f"for `{name.text}`")
    stream.take_punct(",")
    return ast.Pair(name.text, name.span, value)


# --- predicates -----------------------------------------------------------------------------------


def _where(stream: QueryStream, after: str) -> ast.Predicate:
    stream.expect_word("where", where=f"after {after}")
    return _predicate(stream)


def _predicate(stream: QueryStream) -> ast.Predicate:
    return _joined(stream, "or", _conjunction)


def _conjunction(stream: QueryStream) -> ast.Predicate:
    return _joined(stream, "and", _test)


def _joined(
    stream: QueryStream,
    word: Literal["and", "or"],
    parse_operand: Callable[[QueryStream], ast.Predicate],
) -> ast.Predicate:
    """Read operands joined by ``word``; an operand joined by the same word is taken apart."""
    start = stream.current.start
    operands = [parse_operand(stream)]
    while stream.take_word(word):
        operands.append(parse_operand(stream))
    if len(operands) == 1:
        return operands[0]
    flat: list[ast.Predicate] = []
    for operand in operands:
        if isinstance(operand, ast.BooleanPredicate) and operand.operator == word:
            flat.extend(operand.operands)
        else:
            flat.append(operand)
    return ast.BooleanPredicate(word, tuple(flat), stream.span_from(start))


def _test(stream: QueryStream) -> ast.Predicate:
    if stream.at_punct("("):
        stream.enter()
        stream.advance()
        inner = _predicate(stream)
        stream.expect_punct(")", "after the predicate")
        stream.leave()
        return inner
    hint = None
    if stream.at_kind(TokenKind.VAR):
        hint = "`where` names a property of the type directly: `age > 3`"
    name = stream.name("a property name", "in `where`", hint=hint)
    operator = COMPARISONS.get(stream.current.text)
    if operator is not None:
        return _comparison(stream, name, operator)
    if stream.take_word("in"):
        values = stream.variable() if stream.at_kind(TokenKind.VAR) else parse_list(stream, _IN)
        return ast.Membership(name.text, name.span, values, stream.span_from(name.start))
    if not stream.at_word("is"):
        _no_test(stream, name)
    negated = parse_null_test(stream)
    return ast.PropertyNullTest(name.text, name.span, negated, stream.span_from(name.start))


def _comparison(
    stream: QueryStream, name: Token, operator: ast.ComparisonOperator
) -> ast.Comparison:
    stream.advance()
    if stream.at_word("null"):
        hint = f"write `{name.text} is null` or `{name.text} is not null`"
        stream.unexpected("a value", f"after `{operator}`", hint=hint)
    value = parse_value(stream, f"after `{operator}`")
    return ast.Comparison(name.text, name.span, operator, value, stream.span_from(name.start))


def _no_test(stream: QueryStream, name: Token) -> NoReturn:
    hint = stream.foreign_hint()
    if stream.at_word("contains", "starts_with"):
        hint = "`where` compares whole values only; find the keys with a read first"
    elif name.text == "not":
        hint = "there is no `not` in `where`: turn the comparison around, as in `!=`"
    stream.unexpected("a comparison", f"after `{name.text}`", ("in", "is"), hint=hint)
