"""Query files: selection, headers and bodies."""

import pytest

from omnigraph.errors import InputError, NotFound, QueryParseError
from omnigraph.model.types import Scalar, ValueType
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_parser import parse_query_file, select_query
from omnigraph.syntax.tokens import Source
from tests.query.parsing import (
    query,
    refused,
    refused_clause,
)

# --- files and selection --------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  \n", "// nothing here\n", "/* nothing */"])
def test_a_file_may_be_empty(text):
    assert parse_query_file(text).queries == ()


def test_a_file_is_read_from_text_bytes_a_path_or_a_source(tmp_path):
    text = 'query q() { match { $a: A { name: "größer" } } return { $a } }'
    path = tmp_path / "q.gq"
    path.write_text(text, encoding="utf-8")
    for origin in (text, text.encode(), path, Source(text)):
        file = parse_query_file(origin)
        assert [q.name for q in file.queries] == ["q"]
        assert file.source.text == text
    assert parse_query_file(path).source.path == str(path)


def test_errors_of_a_file_name_its_path(tmp_path):
    path = tmp_path / "bad.gq"
    path.write_text("query q() {\n  mtch { $a: A }\n}", encoding="utf-8")
    with pytest.raises(QueryParseError) as caught:
        parse_query_file(path)
    assert caught.value.render().startswith(f"{path}:2:3: parse error: expected `match`")


def test_bytes_that_are_no_utf8_are_a_parse_error():
    with pytest.raises(QueryParseError, match="not valid UTF-8"):
        parse_query_file(b"query q() \xff")


def test_c_qry_001_comments_newlines_and_keyword_named_properties_parse():
    text = """
    // a comment in front
    query /* anywhere */ q ( $when : String , // to the end of the line
                             $order:[ I64 ]? )
    {
      match {
        $a : Task { when : $when , order : 3, type: "x", match: 1 } /* and
                                                                       over lines */
        $a.limit >= 1   $a.return = $a.query
      }
      return { $a.when $a.order as limit
               $a.match }
      order { $a.order desc , limit }
      limit 10
    }// the end"""
    found = query(text)
    assert isinstance(found.body, ast.ReadBody)
    binding = found.body.clauses[0]
    assert isinstance(binding, ast.Binding)
    assert [pair.name for pair in binding.pairs] == ["when", "order", "type", "match"]
    assert [item.alias for item in found.body.items] == [None, "limit", None]
    assert len(found.body.order) == 2


def test_whitespace_is_optional_wherever_tokens_stay_apart():
    tight = query(
        'query q($n:String){match{$a:A{x:$n}$a knows{1,2}$b $a.x="y"not{$b.z<3}}'
        "return{$a.x,$b}order{$a.x desc}limit 3}"
    )
    assert isinstance(tight.body, ast.ReadBody)
    assert [type(c) for c in tight.body.clauses] == [ast.Binding, ast.Hop, ast.Filter, ast.Not]


SEVERAL = """
query first() { match { $a: A } return { $a } }
query second() { delete A where x = 1 }
query first() { match { $b: B } return { $b } }
"""


def test_c_qry_008_several_queries_and_the_first_of_a_name_is_used():
    file = parse_query_file(SEVERAL)
    assert [q.name for q in file.queries] == ["first", "second", "first"]
    assert select_query(file, "first") is file.queries[0]
    assert isinstance(select_query(file, "second").body, ast.WriteBody)


def test_c_qry_008_an_unknown_name_is_an_error_that_lists_the_names():
    with pytest.raises(NotFound) as caught:
        select_query(parse_query_file(SEVERAL), "secnd")
    assert caught.value.message == "query 'secnd' not found"
    assert caught.value.hint == "did you mean `second`? the file has first, second"
    assert caught.value.details == {"queries": ["first", "second"]}


def test_an_unknown_name_in_a_long_file_lists_some_names():
    text = "\n".join(f"query q{n}() {{ delete A where x = 1 }}" for n in range(25))
    with pytest.raises(NotFound) as caught:
        select_query(parse_query_file(text), "zebra")
    assert (caught.value.hint or "").endswith("q18, q19 and 5 more")
    assert len(caught.value.details["queries"]) == 25


def test_selecting_without_a_name_needs_exactly_one_query():
    only = parse_query_file("query q() { match { $a: A } return { $a } }")
    assert select_query(only, None) is only.queries[0]
    with pytest.raises(InputError) as caught:
        select_query(parse_query_file(SEVERAL), None)
    assert caught.value.message == "expected exactly one query, but the file has 3"
    assert "first, second" in (caught.value.hint or "")
    with pytest.raises(InputError, match="the file has 0"):
        select_query(parse_query_file(""), None)
    with pytest.raises(NotFound) as missing:
        select_query(parse_query_file(""), "q")
    assert missing.value.hint == "the file has no queries"


# --- headers --------------------------------------------------------------------------------------


def test_every_parameter_type_is_read():
    found = query(
        "query q($a: String, $b: Bool, $c: I32, $d: I64, $e: U32, $f: U64, $g: F32, $h: F64, "
        "$i: DateTime, $j: Date, $k: Blob, $l: [String], $m: Vector(8), $n: I64?, $o: [Date]?, "
        "$p: Vector(2)?) { match { $x: A } return { $x } }"
    )
    assert " ".join(str(p.type) for p in found.parameters) == (
        "String Bool I32 I64 U32 U64 F32 F64 DateTime Date Blob [String] Vector(8) I64? [Date]? "
        "Vector(2)?"
    )
    assert found.parameters[14].type == ValueType(Scalar.DATE, is_list=True, nullable=True)
    assert [p.name for p in found.parameters] == list("abcdefghijklmnop")


@pytest.mark.parametrize("header", ["query add", "query add()", "query add( )"])
def test_the_parameter_list_may_be_left_out(header):
    found = query(header + " { insert A { x: 1 } }")
    assert (found.name, found.parameters) == ("add", ())


def test_annotations_stand_between_header_and_body():
    found = query('query q() @instruction("do \\"x\\"") @description("d") { delete A where x = 1 }')
    assert (found.description, found.instruction) == ("d", 'do "x"')
    without = query('query q @description("") { delete A where x = 1 }')
    assert (without.description, without.instruction) == ("", None)


@pytest.mark.parametrize("word", ["description", "instruction"])
def test_c_qry_006_a_duplicate_annotation_is_a_parse_error(word):
    error = refused(f'query q() @{word}("a") @{word}("b") {{ delete A where x = 1 }}')
    assert error.reason == f"`@{word}` is given twice"


@pytest.mark.parametrize(
    ("header", "reason", "hint"),
    [
        ("query Q()", "expected a query name after `query`, found 'Q'", "`q`"),
        ("query q(x: I64)", "expected a parameter, found 'x'", "write `$x`"),
        ("query q($x)", "expected `:` after `$x`, found ')'", None),
        ("query q($x: Strng)", "expected a type for the parameter, found 'Strng'", "`String`"),
        ("query q($x: string)", "expected a type for the parameter, found 'string'", "`String`"),
        ("query q($x: [Vector(2)])", "expected a type in the list type, found 'Vector'", None),
        ("query q($x: [I64?])", "expected `]` after the list type, found '?'", None),
        ("query q($x: Vector)", "expected `(` after `Vector`, found ')'", None),
        ("query q($x: Vector(n))", "expected an integer for the dimension, found 'n'", None),
        ("query q($x: I64,)", "expected a parameter, found ')'", None),
        ("query q($x: I64 $y: I64)", "expected `,` or `)` in the parameters, found '$y'", None),
        (
            'query q() @descripton("x")',
            "expected `description` or `instruction` after `@`",
            "`desc",
        ),
        ("query q() @description(x)", "expected a string of `@description`, found 'x'", None),
        ("query q() => ", "expected `{` to open the body of `q`, found '='", None),
    ],
)
def test_a_malformed_header_is_refused(header, reason, hint):
    error = refused(header + " { match { $a: A } return { $a } }")
    assert error.reason.startswith(reason)
    if hint is not None:
        assert hint in (error.hint or "")


def test_the_dimension_of_a_vector_is_left_to_the_checker():
    found = query("query q($v: Vector(0), $w: Vector(4294967296)) { delete A where x = 1 }")
    assert [str(p.type) for p in found.parameters] == ["Vector(0)", f"Vector({2**32})"]


# --- bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("match { $a: A }", "expected `query` or the end of the input", "named query"),
        (
            "MATCH (a:Person) RETURN a",
            "expected `query` or the end of the input",
            "translate --from cypher",
        ),
        ("qeury q() {}", "expected `query` or the end of the input, found 'qeury'", "`query`"),
        ("query q() { }", "expected `match`, `insert`, `update`, `delete` or `for` in `q`", None),
        (
            "query q() { mtch { } }",
            "expected `match`, `insert`, `update`, `delete` or `for`",
            "`match`",
        ),
        (
            "query q() { MATCH { } }",
            "expected `match`, `insert`, `update`, `delete` or `for`",
            "`match`",
        ),
        (
            "query q() { match { $a: A } }",
            "expected `return` or `with` after the match, found '}'",
            None,
        ),
        (
            "query q() { match { $a: A } retrun { $a } }",
            "expected `return` or `with` after the match, found 'retrun'",
            "did you mean `return`?",
        ),
        (
            "query q() { match { $a: A } where $a.x = 1 return { $a } }",
            "expected `return` or `with` after the match, found 'where'",
            "move them into its braces",
        ),
        (
            "query q() { match { $a: A } return { $a } insert A { x: 1 } }",
            "expected `having`, `order`, `limit`, `offset` or `}`",
            None,
        ),
        (
            "query q() {",
            "expected `match`, `insert`, `update`, `delete` or `for` in `q`, found the",
            None,
        ),
        ("query q() { match { $a: A } return { $a } } }", "expected `query` or the end", None),
    ],
)
def test_a_malformed_body_is_refused(text, reason, hint):
    error = refused(text)
    assert error.reason.startswith(reason)
    assert (hint in (error.hint or "")) if hint else error.hint is None


def test_c_qry_003_an_uppercase_variable_is_a_parse_error():
    error = refused_clause("$Upper: A")
    assert error.reason == "expected a variable name after '$'"


def test_c_qry_007_parse_errors_carry_a_span():
    error = refused("query q() {\n  match { $é: A } return { $a } }")
    assert error.position is not None
    assert (error.position.line, error.position.column) == (2, 11)
    assert (error.position.byte_start, error.position.byte_end) == (22, 23)
    at_end = refused("query q() {")
    assert at_end.position is not None
    assert at_end.position.byte_end > at_end.position.byte_start


def test_the_first_problem_in_the_text_is_reported():
    error = refused("query q() { retrun { $a.x = 'x' } }")
    assert error.reason.startswith("expected `match`")
    forgotten = refused(
        'query q() { match { $a.x = "one } return { $a } }\nquery r() { match { $a.x = "two" } }'
    )
    assert forgotten.position is not None
    assert forgotten.position.line == 2
    assert forgotten.reason.startswith("expected a clause or `}` in the match, found 'two'")
