"""Literals, calls, operators and their precedence."""

import datetime as dt
from typing import Any

import pytest

from omnigraph.errors import QueryParseError
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_expressions import OPERATORS_MAX
from omnigraph.syntax.query_parser import parse_query_file


def items(text: str) -> tuple[ast.ReturnItem, ...]:
    (query,) = parse_query_file(f"query q() {{ match {{ $a: A }} return {{ {text} }} }}").queries
    assert isinstance(query.body, ast.ReadBody)
    return query.body.items


def expression(text: str) -> ast.Expression:
    (item,) = items(text)
    return item.expression


def value(text: str) -> Any:
    found = expression(text)
    assert isinstance(found, ast.Literal)
    return found.value


def refused(text: str) -> QueryParseError:
    with pytest.raises(QueryParseError) as caught:
        items(text)
    assert caught.value.position is not None
    return caught.value


def tree(node: ast.Expression) -> Any:
    """Arithmetic as nested tuples, everything else as its source would be."""
    if isinstance(node, ast.Arithmetic):
        return (tree(node.left), node.operator, tree(node.right))
    if isinstance(node, ast.Literal):
        return node.value
    if isinstance(node, ast.PropertyRef):
        return f"{node.variable.name}.{node.name}"
    return type(node).__name__


# --- literals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"x"', "x"),
        ('""', ""),
        ('"two\nlines"', "two\nlines"),
        ("0", 0),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("-0", 0),
        ("1.5", 1.5),
        ("00.50", 0.5),
        ("-0.5", -0.5),
        ("0.1", 0.1),
        ("true", True),
        ("false", False),
        ('date("2031-04-09")', dt.date(2031, 4, 9)),
        ('date ( "2031-04-09" )', dt.date(2031, 4, 9)),
        (
            'datetime("2031-04-09T07:30:00.1239+02:00")',
            dt.datetime(2031, 4, 9, 5, 30, 0, 123_000, dt.UTC),
        ),
        ('datetime("2031-04-09")', dt.datetime(2031, 4, 9, tzinfo=dt.UTC)),
    ],
)
def test_literals(text, expected):
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


def test_c_qry_002_the_five_escapes_decode():
    assert value(r'"q\" b\\ n\n r\r t\t"') == 'q" b\\ n\n r\r t\t'


@pytest.mark.parametrize("escape", [r"\a", r"\u0041", r"\'", r"\x41", r"\0"])
def test_c_qry_002_any_other_escape_is_a_parse_error(escape):
    assert refused(f'"{escape}"').reason == f"unsupported escape sequence: {escape[:2]}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1e3", "'1e3' is not a number"),
        ("1E3", "'1E3' is not a number"),
        ("1.5e3", "'1.5e3' is not a number"),
        ("12abc", "'12abc' is not a number"),
        ("1_000", "'1_000' is not a number"),
        ("-1e3", "'1e3' is not a number"),
        ("[1e3]", "'1e3' is not a number"),
        ("9223372036854775808", "'9223372036854775808' is too large"),
        ("-9223372036854775809", "'9223372036854775809' is too large"),
        ("9" * 5_000, "'" + "9" * 40 + "…' is too large"),
        ("9" * 400 + ".0", "'" + "9" * 40 + "…' is too large"),
        (".5", "expected an expression, found '.'"),
        ("5.", "expected an expression, found '.'"),
        ("+3", "expected an expression, found '+'"),
    ],
)
def test_c_qry_003_malformed_numbers_are_parse_errors(text, reason):
    assert refused(text).reason.startswith(reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('date("2031-02-30")', "'\"2031-02-30\"' is not a date"),
        ('date("soon")', "'\"soon\"' is not a date"),
        ('datetime("2031-04-09T25:00:00Z")', "'\"2031-04-09T25:00:00Z\"' is not a date-time"),
        ("date(3)", "expected a string in `date(…)`, found '3'"),
        ("date($x)", "expected a string in `date(…)`, found '$x'"),
        ('date("2031-04-09", 1)', "expected `)` in `date(…)`, found ','"),
        ("datetime()", "expected a string in `datetime(…)`, found ')'"),
    ],
)
def test_malformed_dates_are_parse_errors(text, reason):
    assert refused(text).reason == reason


def test_lists_hold_literals_and_may_nest():
    found = expression('[1, -2.5, "x", [], [true, date("2031-04-09")]]')
    assert isinstance(found, ast.ListLiteral)
    assert [type(item) for item in found.items] == [ast.Literal] * 3 + [ast.ListLiteral] * 2
    assert expression("[]") == ast.ListLiteral((), expression("[]").span)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1, 2,]", "expected a literal in the list, found ']'"),
        ("[1 2]", "expected `,` or `]` in the list, found '2'"),
        ("[$x]", "expected a literal in the list, found '$x'"),
        ("[now()]", "expected a literal in the list, found 'now'"),
        ("[null]", "expected a literal in the list, found 'null'"),
        ("[1 + 2]", "expected `,` or `]` in the list, found '+'"),
        ("[- 1]", "expected a literal in the list, found '-'"),
    ],
)
def test_malformed_lists_are_refused(text, reason):
    assert refused(text).reason == reason


# --- references -----------------------------------------------------------------------------------


def test_references():
    kinds = [type(item.expression) for item in items("$a, $a.x, $a.*, total, null, now()")]
    assert kinds == [
        ast.Variable,
        ast.PropertyRef,
        ast.EntityRef,
        ast.AliasRef,
        ast.AliasRef,
        ast.Now,
    ]


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("$a.Name", "expected a property name after `$a.`, found 'Name'", "`name`"),
        ("$a.", "expected a property name after `$a.`, found '}'", None),
        ("$a.x.y", "expected an expression, found '.'", "`$x.name`"),
        ("a.x", "expected an expression, found '.'", "`$x.name`"),
        ("Name", "expected an expression, found 'Name'", None),
        ("TRUE", "expected an expression, found 'TRUE'", "`true`"),
        ("$a.x as Name", "expected an alias after `as`, found 'Name'", "`name`"),
        ('$a.x as "n"', "expected an alias after `as`, found '\"n\"'", None),
        ("now(1)", "`now` takes 0 arguments, not 1", None),
    ],
)
def test_malformed_references_are_refused(text, reason, hint):
    error = refused(text)
    assert error.reason == reason
    assert (hint in (error.hint or "")) if hint else error.hint is None


# --- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 - 3", ((1, "+", 2), "-", 3)),
        ("1 - 2 + 3", ((1, "-", 2), "+", 3)),
        ("1 + 2 * 3", (1, "+", (2, "*", 3))),
        ("1 * 2 + 3", ((1, "*", 2), "+", 3)),
        ("8 / 4 / 2", ((8, "/", 4), "/", 2)),
        ("8 / 4 * 2", ((8, "/", 4), "*", 2)),
        ("1 - 2 * 3 - 4", ((1, "-", (2, "*", 3)), "-", 4)),
        ("(1 + 2) * 3", ((1, "+", 2), "*", 3)),
        ("1 - (2 - 3)", (1, "-", (2, "-", 3))),
        ("((1))", 1),
        ("$a.x*2", ("a.x", "*", 2)),
        ("1/2", (1, "/", 2)),
    ],
)
def test_precedence_and_association(text, expected):
    assert tree(expression(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$a.x -3", ("a.x", "-", 3)),
        ("$a.x - 3", ("a.x", "-", 3)),
        ("$a.x-3", ("a.x", "-", 3)),
        ("$a.x - -3", ("a.x", "-", -3)),
        ("$a.x--3", ("a.x", "-", -3)),
        ("-3 - $a.x", (-3, "-", "a.x")),
        ("2 * -0.5", (2, "*", -0.5)),
        ("(-3)", -3),
    ],
)
def test_a_minus_is_an_operator_behind_an_operand_and_a_sign_in_front_of_digits(text, expected):
    assert tree(expression(text)) == expected


def test_binary_operators_win_over_a_new_item():
    assert [tree(item.expression) for item in items("$a.x -3")] == [("a.x", "-", 3)]
    assert [tree(item.expression) for item in items("$a.x, -3")] == ["a.x", -3]
    assert [tree(item.expression) for item in items("$a.x (-3)")] == ["a.x", -3]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("- 3", "`0 - …`"),
        ("-$a.x", "`0 - $a…`"),
        ("-(1)", "`0 - …`"),
        ("1 * - 3", "`0 - …`"),
        ("--3", "`0 - …`"),
        ('-"x"', "`0 - …`"),
    ],
)
def test_a_sign_that_touches_no_digits_is_refused(text, hint):
    error = refused(text)
    assert error.reason == "a sign must touch the digits of a number"
    assert hint in (error.hint or "")


@pytest.mark.parametrize("text", ["1 +", "1 + * 2", "(1", "(1 + )", "()", "1 + )"])
def test_incomplete_arithmetic_is_refused(text):
    assert refused(text).reason.startswith("expected")


def test_comments_are_no_division():
    assert [tree(item.expression) for item in items("8 /* by */ / 2 // or so\n")] == [(8, "/", 2)]


def test_the_number_of_operators_in_one_expression_is_limited():
    assert isinstance(expression("1" + " + 1" * OPERATORS_MAX), ast.Arithmetic)
    assert refused("1" + " + 1" * (OPERATORS_MAX + 1)).reason.startswith("more than")
    spread = f"(1{' + 1' * OPERATORS_MAX}) * 2"
    assert refused(spread).reason.startswith("more than")
    assert len(items(", ".join(["1" + " + 1" * OPERATORS_MAX] * 3))) == 3


# --- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "function", "count"),
    [
        ('search($a.x, "q")', "search", 2),
        ("match_text($a.x, $q)", "match_text", 2),
        ("fuzzy($a.x, $q)", "fuzzy", 2),
        ("fuzzy($a.x, $q, 1)", "fuzzy", 3),
        ("bm25($a.x, $q)", "bm25", 2),
        ("nearest($a.v, $q)", "nearest", 2),
        ("nearest($a.v, [0.5, -1.0])", "nearest", 2),
        ("rrf(nearest($a.v, $q), bm25($a.x, $q))", "rrf", 2),
        ("rrf(bm25($a.x, $q), bm25($a.y, $q), 10)", "rrf", 3),
    ],
)
def test_search_calls(text, function, count):
    found = expression(text)
    assert isinstance(found, ast.SearchCall)
    assert (found.function, len(found.arguments)) == (function, count)


@pytest.mark.parametrize(
    ("text", "function", "count"),
    [
        ("lower($a.x)", "lower", 1),
        ("upper($a.x)", "upper", 1),
        ("length($a.tags)", "length", 1),
        ("abs($a.x - 3)", "abs", 1),
        ("round($a.x)", "round", 1),
        ("round($a.x, 2)", "round", 2),
        ("coalesce($a.x, $a.y)", "coalesce", 2),
        ("coalesce($a.x, $a.y, $a.z, 0)", "coalesce", 4),
        ('date_part("year", $a.born)', "date_part", 2),
        ("lower (upper ( $a.x ) )", "lower", 1),
    ],
)
def test_scalar_calls(text, function, count):
    found = expression(text)
    assert isinstance(found, ast.FunctionCall)
    assert (found.function, len(found.arguments)) == (function, count)


@pytest.mark.parametrize("function", ["count", "sum", "avg", "min", "max", "collect"])
def test_aggregates(function):
    plain = expression(f"{function}($a.x + 1)")
    assert isinstance(plain, ast.Aggregate)
    assert (plain.function, plain.distinct) == (function, False)
    distinct = expression(f"{function}(distinct $a.x)")
    assert isinstance(distinct, ast.Aggregate)
    assert distinct.distinct
    assert isinstance(distinct.argument, ast.PropertyRef)


def test_count_of_all_rows():
    found = expression("count(*)")
    assert isinstance(found, ast.Aggregate)
    assert found.argument is None
    assert [type(item.expression) for item in items("count ( * ) as n, $a.x")] == [
        ast.Aggregate,
        ast.PropertyRef,
    ]


def test_distinct_alone_is_an_alias():
    found = expression("count(distinct)")
    assert isinstance(found, ast.Aggregate)
    assert not found.distinct
    assert isinstance(found.argument, ast.AliasRef)
    parenthesised = expression("count(distinct($a.x))")
    assert isinstance(parenthesised, ast.Aggregate)
    assert parenthesised.distinct


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("search($a.x)", "`search` takes 2 arguments, not 1"),
        ("match_text()", "`match_text` takes 2 arguments, not 0"),
        ("fuzzy($a.x, 1, 2, 3)", "`fuzzy` takes 2 or 3 arguments, not 4"),
        ("bm25($a.x, 1, 2)", "`bm25` takes 2 arguments, not 3"),
        ("nearest($a.v)", "`nearest` takes 2 arguments, not 1"),
        ("rrf(bm25($a.x, 1))", "`rrf` takes 2 or 3 arguments, not 1"),
        ("lower()", "`lower` takes 1 argument, not 0"),
        ("round(1, 2, 3)", "`round` takes 1 or 2 arguments, not 3"),
        ("coalesce($a.x)", "`coalesce` takes at least 2 arguments, not 1"),
        ('date_part("year")', "`date_part` takes 2 arguments, not 1"),
        ("nearest($a, $q)", "the first argument of `nearest` must be a property"),
        ("rrf(search($a.x, 1), bm25($a.x, 1))", "the first two arguments of `rrf` must be"),
        ("rrf(bm25($a.x, 1), 3)", "the first two arguments of `rrf` must be"),
        ("sum(*)", "`*` stands for all rows in `count(*)` only"),
        ("count(distinct *)", "`*` stands for all rows in `count(*)` only"),
        ("count()", "expected an expression, found ')'"),
        ("count($a, $b)", "expected `)` after the argument of `count`, found ','"),
        ("lower($a.x,)", "expected an expression, found ')'"),
        ("lower($a.x $a.y)", "expected `,` or `)` in the arguments of `lower`, found '$a'"),
        ("lower($a.x == 1)", "expected `,` or `)` in the arguments of `lower`, found '=='"),
    ],
)
def test_malformed_calls_are_refused(text, reason):
    assert refused(text).reason.startswith(reason)


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("serach($a.x, 1)", "unknown function 'serach'", "did you mean `search`?"),
        ("cout($a)", "unknown function 'cout'", "did you mean `count`?"),
        ("COUNT($a)", "expected an expression, found 'COUNT'", "did you mean `count`?"),
        ("zzz($a)", "unknown function 'zzz'", "the functions are abs, all_words, avg, bm25, ceil"),
    ],
)
def test_unknown_functions_are_refused(text, reason, hint):
    error = refused(text)
    assert error.reason == reason
    assert hint in (error.hint or "")


def test_true_and_false_are_never_functions_or_aliases():
    assert [tree(item.expression) for item in items("true (-1) false")] == [True, -1, False]
