"""The parameters of a plan, bound to what a caller sends."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from omnigraph.errors import InputError, NotFound, ParameterError, QueryTypeError
from omnigraph.model.parameters import bind_parameters
from omnigraph.model.values import BlobUri, round_to_f32
from omnigraph.query.compile import QueryCompiler, compile_query
from tests.query.library import catalog, query, read, refusal

TWO = """
query first() { match { $b: Book } return { $b.title } }
query second($t: String) { match { $b: Book { title: $t } } return { $b.pages } }
query first() { match { $b: Book } return { $b.isbn } }
"""


def bind(parameters: str, document: object) -> dict[str, Any]:
    """What a query with these parameters gets from a JSON document."""
    compiled = read(query("$b: Book", "$b", parameters))
    return bind_parameters({p.name: p.type for p in compiled.parameters}, document)


def refused(parameters: str, document: object) -> ParameterError:
    with pytest.raises(ParameterError) as caught:
        bind(parameters, document)
    return caught.value


# --- choosing a query -----------------------------------------------------------------------------


def test_c_qry_008_query_is_chosen_by_name():
    second = compile_query(TWO, catalog(), "second")
    assert [p.name for p in second.parameters] == ["t"]


def test_c_qry_008_unknown_name_is_an_error_that_lists_the_names():
    with pytest.raises(NotFound) as caught:
        compile_query(TWO, catalog(), "secnd")
    assert caught.value.message == "query 'secnd' not found"
    assert caught.value.hint == "did you mean `second`? the file has first, second"


def test_c_qry_008_no_name_needs_exactly_one_query():
    with pytest.raises(InputError):
        compile_query(TWO, catalog())
    with pytest.raises(InputError):
        compile_query("// nothing here", catalog())


def test_c_qry_008_first_of_two_queries_with_one_name_is_used():
    compiled = compile_query(TWO, catalog(), "first")
    assert [column.name for column in compiled.columns] == ["b.title"]  # type: ignore[union-attr]


def test_other_queries_of_the_file_are_not_checked():
    text = TWO + "query broken() { match { $x: Nothing } return { $x } }"
    compile_query(text, catalog(), "second")
    with pytest.raises(QueryTypeError):
        compile_query(text, catalog(), "broken")


def test_compiler_remembers_plans_by_text_and_name():
    compiler = QueryCompiler(catalog())
    assert compiler.compile(TWO, "second") is compiler.compile(TWO, "second")
    assert compiler.compile(TWO, "first") != compiler.compile(TWO, "second")
    assert compiler.compile(TWO, "second") == compile_query(TWO, catalog(), "second")


def test_compiler_takes_texts_bytes_and_files(tmp_path):
    text = query("$b: Book", "$b.title")
    file = tmp_path / "books.gq"
    file.write_text("\ufeff" + text, encoding="utf-8")
    compiler = QueryCompiler(catalog())
    plans = [compiler.compile(origin) for origin in (text, "\ufeff" + text, text.encode(), file)]
    assert plans == [compile_query(text, catalog())] * 4


def test_compiler_reports_errors_again_and_names_the_file(tmp_path):
    file = tmp_path / "books.gq"
    file.write_text(query("$b: Boook"), encoding="utf-8")
    compiler = QueryCompiler(catalog())
    for _ in range(2):
        with pytest.raises(QueryTypeError) as caught:
            compiler.compile(file)
        assert caught.value.position is not None
        assert caught.value.position.path == str(file)


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "sent", "bound"),
    [
        ("String", 'x\'); drop "all"', 'x\'); drop "all"'),
        ("Bool", False, False),
        ("I32", -(2**31), -(2**31)),
        ("I64", "9007199254740993", 9007199254740993),
        ("I64", -9007199254740993, -9007199254740993),
        ("U32", "4294967295", 2**32 - 1),
        ("U64", 2**64 - 1, 2**64 - 1),
        ("U64", "18446744073709551615", 2**64 - 1),
        ("F32", 0.1, round_to_f32(0.1)),
        ("F64", 3, 3.0),
        ("Date", "2031-04-09", dt.date(2031, 4, 9)),
        ("Date", "2031-04-09T23:30:00-02:00", dt.date(2031, 4, 10)),
        ("DateTime", "2031-04-09T09:30:00+02:00", dt.datetime(2031, 4, 9, 7, 30, tzinfo=dt.UTC)),
        ("DateTime", "2031-04-09", dt.datetime(2031, 4, 9, tzinfo=dt.UTC)),
        ("Blob", "base64:AAE=", b"\x00\x01"),
        ("Blob", "s3://bucket/x", BlobUri("s3://bucket/x")),
        ("[I64]", [1, "2"], [1, 2]),
        ("[Date]", ["2031-04-09"], [dt.date(2031, 4, 9)]),
        ("[String]?", None, None),
        ("Vector(2)", [1, 0.1], [1.0, round_to_f32(0.1)]),
    ],
)
def test_c_qry_009_010_011_values_are_read_by_their_declared_type(
    declared: str, sent: object, bound: object
):
    assert bind(f"$p: {declared}", {"p": sent}) == {"p": bound}


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        ("I32", 2**31),
        ("I32", 3.0),
        ("I32", "3.0"),
        ("I32", True),
        ("U32", -1),
        ("U64", -1),
        ("U64", "-1"),
        ("U64", 2**64),
        ("F64", "0.1"),
        ("F32", True),
        ("Bool", 1),
        ("String", 3),
        ("Date", 3),
        ("Date", "April"),
        ("DateTime", "2031-04-09T25:00:00Z"),
        ("[I32]", 3),
        ("[I32]", [1, None]),
        ("[I32]", [1, "x"]),
        ("Vector(2)", [1.0]),
        ("Vector(2)", [1.0, 2.0, 3.0]),
        ("Vector(2)", [1.0, "x"]),
    ],
)
def test_c_qry_009_010_011_other_values_are_refused_by_name(declared: str, sent: object):
    error = refused(f"$p: {declared}", {"p": sent})
    assert error.parameter == "p"
    assert error.message.startswith("parameter 'p'")


def test_c_qry_012_absent_optional_is_null_and_null_for_required_is_an_error():
    assert bind("$p: I32?, $q: String", {"q": "x"}) == {"p": None, "q": "x"}
    assert bind("$p: I32?", {"p": None}) == {"p": None}
    assert refused("$p: I32", {"p": None}).message == "parameter 'p' is null"


@pytest.mark.parametrize("document", [None, {}, {"q": 3}])
def test_c_qry_013_absent_required_parameter_fails(document: object):
    assert refused("$p: I32", document).message == "parameter 'p' not provided"


def test_c_qry_014_undeclared_keys_are_ignored_and_objects_are_not():
    assert bind("$p: I32", {"p": 1, "other": [1, "x"], "$p": 2}) == {"p": 1}
    assert refused("$p: I32", {"p": 1, "other": {}}).parameter == "other"
    assert refused("$p: String?", {"p": {"a": 1}}).parameter == "p"


@pytest.mark.parametrize("document", [[], 3, "x", True])
def test_document_must_be_an_object(document: object):
    with pytest.raises(InputError):
        bind("$p: I32?", document)


def test_parameters_keep_their_declared_order_and_type():
    compiled = read(query("$b: Book", "$b", "$z: [U64]?, $a: Vector(3), $m: Blob"))
    assert [(p.name, str(p.type)) for p in compiled.parameters] == [
        ("z", "[U64]?"),
        ("a", "Vector(3)"),
        ("m", "Blob"),
    ]


# --- declarations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "code", "reason"),
    [
        ("$p: I32, $p: I32", "T26", "parameter `$p` is declared twice"),
        ("$__nanograph_now: DateTime", None, "parameter `$__nanograph_now` is reserved"),
        ("$_: I32", None, "parameter `$_` is reserved"),
        ("$v: Vector(0)", None, "unknown parameter type `Vector(0)`"),
        ("$v: Vector(2147483648)", None, "unknown parameter type `Vector(2147483648)`"),
    ],
)
def test_bad_declarations_are_refused_in_reads_and_writes(
    parameters: str, code: str | None, reason: str
):
    for body in ("match { $b: Book } return { $b }", "delete Book where pages = 3"):
        error = refusal(f"query q({parameters}) {{ {body} }}")
        assert (error.diagnostic, error.reason) == (code, reason)


def test_largest_vector_is_declared():
    (largest,) = read(query("$b: Book", "$b", "$v: Vector(2147483647)")).parameters
    assert str(largest.type) == "Vector(2147483647)"
