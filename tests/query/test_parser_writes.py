"""Mutations: statements, assignments and predicates."""

import pytest

from omnigraph.errors import QueryParseError
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_parser import parse_query_file


def statements(text: str) -> tuple[ast.Statement, ...]:
    (query,) = parse_query_file(f"query q() {{ {text} }}").queries
    assert isinstance(query.body, ast.WriteBody)
    return query.body.statements


def where(text: str) -> ast.Predicate:
    (statement,) = statements(f"delete A where {text}")
    assert isinstance(statement, ast.Delete)
    return statement.where


def shape(predicate: ast.Predicate) -> object:
    """A predicate as nested tuples of property names."""
    if isinstance(predicate, ast.BooleanPredicate):
        return (predicate.operator, *(shape(operand) for operand in predicate.operands))
    return predicate.name


def refused(text: str) -> QueryParseError:
    with pytest.raises(QueryParseError) as caught:
        statements(text)
    assert caught.value.position is not None
    return caught.value


def test_the_three_statements_in_order():
    found = statements(
        """insert Author { handle: $h, name: "Ada" }
           insert Wrote { from: $h to: $b role: null }
           update Book set { pages: 3 } where isbn = $b
           delete Cites where from = $b"""
    )
    assert [type(s) for s in found] == [ast.Insert, ast.Insert, ast.Update, ast.Delete]
    assert [getattr(s, "type_name", None) for s in found] == ["Author", "Wrote", "Book", "Cites"]
    assert isinstance(found[1], ast.Insert)
    assert [pair.name for pair in found[1].assignments] == ["from", "to", "role"]


def test_a_mutation_may_mix_kinds_until_it_is_checked():
    found = statements("insert A { x: 1 } delete A where x = 1")
    assert [type(s) for s in found] == [ast.Insert, ast.Delete]


# --- assignments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["x: 1, y: 2", "x: 1 y: 2", "x: 1\ny: 2", "x: 1,\ny: 2,", "x:1,y:2"]
)
def test_assignments_are_separated_by_commas_newlines_or_nothing(text):
    (found,) = statements(f"insert A {{ {text} }}")
    assert isinstance(found, ast.Insert)
    assert [pair.name for pair in found.assignments] == ["x", "y"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('"x"', ast.Literal),
        ("-3", ast.Literal),
        ("-0.5", ast.Literal),
        ("false", ast.Literal),
        ('datetime("2031-04-09T07:30:00Z")', ast.Literal),
        ("[]", ast.ListLiteral),
        ("[0.1, -0.2]", ast.ListLiteral),
        ("$x", ast.Variable),
        ("now()", ast.Now),
        ("null", ast.NullLiteral),
    ],
)
def test_assigned_values(text, kind):
    (found,) = statements(f"update A set {{ p: {text} }} where k = 1")
    assert isinstance(found, ast.Update)
    assert isinstance(found.assignments[0].value, kind)


def test_properties_may_be_called_null_and_now():
    (found,) = statements("insert A { null: null, now: now(), true: true, date: $date }")
    assert isinstance(found, ast.Insert)
    assert [pair.name for pair in found.assignments] == ["null", "now", "true", "date"]


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("{ }", "expected an assignment in `insert A`, found '}'", None),
        ("{ x: lowr($a) }", "unknown function 'lowr'", "`lower`"),
        ("{ x: bob }", "expected a literal, a parameter or `now()` for `x`", '"bob"'),
        ("{ x: Bob }", "expected a literal, a parameter or `now()` for `x`", '"Bob"'),
        ("{ x = 3 }", "expected `:` after `x`, found '='", "`x: value`"),
        ("{ X: 3 }", "expected a property name or `}`, found 'X'", "`x`"),
        ('{ "x": 3 }', "expected a property name or `}`, found '\"x\"'", None),
        ("{ x: 1,, y: 2 }", "expected a property name or `}`, found ','", None),
        ("{ x: [null] }", "expected a literal in the list, found 'null'", None),
        ("{ x: - 3 }", "a sign must touch the digits of a number", "0 - "),
        ("(x: 3)", "expected `{` in `insert A`, found '('", None),
    ],
)
def test_malformed_assignments_are_refused(text, reason, hint):
    error = refused(f"insert A {text}")
    assert error.reason.startswith(reason)
    assert (hint in (error.hint or "")) if hint else error.hint is None


# --- predicates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
def test_comparisons(operator):
    found = where(f"age {operator} -3")
    assert isinstance(found, ast.Comparison)
    assert (found.name, found.operator) == ("age", operator)
    assert isinstance(found.value, ast.Literal)


def test_comparisons_take_parameters_and_now():
    assert isinstance(where("at < now()"), ast.Comparison)
    found = where("at < $when")
    assert isinstance(found, ast.Comparison)
    assert isinstance(found.value, ast.Variable)


def test_set_and_null_tests():
    listed = where("age in [1, 2]")
    assert isinstance(listed, ast.Membership)
    assert isinstance(listed.values, ast.ListLiteral)
    given = where("age in $ages")
    assert isinstance(given, ast.Membership)
    assert isinstance(given.values, ast.Variable)
    for text, negated in [("age is null", False), ("age is not null", True)]:
        found = where(text)
        assert isinstance(found, ast.PropertyNullTest)
        assert (found.name, found.negated) == ("age", negated)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1 and b = 2 and c = 3", ("and", "a", "b", "c")),
        ("a = 1 or b = 2 or c = 3", ("or", "a", "b", "c")),
        ("a = 1 and b = 2 or c = 3", ("or", ("and", "a", "b"), "c")),
        ("a = 1 or b = 2 and c = 3", ("or", "a", ("and", "b", "c"))),
        ("a = 1 and (b = 2 or c = 3)", ("and", "a", ("or", "b", "c"))),
        ("(a = 1 and b = 2) and c = 3", ("and", "a", "b", "c")),
        ("a = 1 or ((b = 2 or c = 3))", ("or", "a", "b", "c")),
        ("(a = 1)", "a"),
        ("a is null and b in [1] or c is not null", ("or", ("and", "a", "b"), "c")),
    ],
)
def test_and_binds_tighter_than_or(text, expected):
    assert shape(where(text)) == expected


def test_keywords_are_property_names_in_front_of_an_operator():
    names = "and = 1 and or = 2 and in in [3] and is is null and null is null and where = 4"
    assert shape(where(names)) == ("and", "and", "or", "in", "is", "null", "where")


def test_a_predicate_ends_where_the_next_statement_begins():
    found = statements("delete A where x = 1 delete B where y is null delete C where z in $l")
    assert len(found) == 3


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("delete A", "expected `where` after `delete A`, found '}'", None),
        ("delete A wehre x = 1", "expected `where` after `delete A`, found 'wehre'", "`where`"),
        ("delete A WHERE x = 1", "expected `where` after `delete A`, found 'WHERE'", "`where`"),
        ("delete a where x = 1", "expected a type name after `delete`, found 'a'", "uppercase"),
        ("delete A where $a.x = 1", "expected a property name in `where`, found '$a'", "directly"),
        ('delete A where x contains "y"', "expected a comparison after `x`, found 'conta", "read"),
        ('delete A where x starts_with "y"', "expected a comparison after `x`", "read"),
        ("delete A where x = null", "expected a value after `=`, found 'null'", "`x is null`"),
        ("delete A where x == 1", "expected a comparison after `x`, found '=='", "single `=`"),
        ("delete A where x <> 1", "expected a comparison after `x`, found '<>'", "`!=`"),
        ("delete A where x in (1)", "expected `[` or a variable after `in`", "brackets"),
        ("delete A where not (x = 1)", "expected a comparison after `not`, found '('", "!="),
        ("delete A where x", "expected a comparison after `x`, found '}'", None),
        ("delete A where x = y", "expected a literal, a parameter or `now()` after `=`", '"y"'),
        ("delete A where x = 1 and", "expected a property name in `where`, found '}'", None),
        ("delete A where (x = 1", "expected `)` after the predicate, found '}'", None),
        ("delete A where x = 1)", "expected `insert`, `update`, `delete`, `for` or `}`", None),
        (
            "delete A where x = 1 AND y = 2",
            "expected `insert`, `update`, `delete`, `for` or `}`",
            "and",
        ),
        ("update A { x: 1 } where y = 2", "expected `set` after `update A`, found '{'", None),
        ("update A set { x: 1 }", "expected `where` after the assignments, found '}'", None),
        (
            "insert A { x: 1 } match { $a: A }",
            "expected `insert`, `update`, `delete`, `for` or",
            None,
        ),
        ("insert A { x: 1 } inser A { x: 1 }", "expected `insert`, `update`", "`insert`"),
        ("for x in $l { delete A where x = 1 }", "expected a variable after `for`", "`$x`"),
        ("for $x of $l { delete A where x = 1 }", "expected `in` after `for $x`", None),
        ("for $x in [1] { delete A where x = 1 }", "expected a list parameter after `in`", "pass"),
        ("for $x in $l { }", "expected a statement in the loop, found '}'", None),
        ("for $x in $l delete A where x = 1", "expected `{` in the loop, found 'delete'", None),
        ("update $a A set { x: 1 } where y = 2", "expected `:` and a type after `update $a`", None),
    ],
)
def test_malformed_statements_are_refused(text, reason, hint):
    error = refused(text)
    assert error.reason.startswith(reason)
    assert (hint in (error.hint or "")) if hint else error.hint is None
