"""The operation descriptor: result fields, reads and writes."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.model.signatures import QuerySignature
from omnigraph.query import plan
from omnigraph.query.compile import compile_query
from omnigraph.query.lint import describe_operation, describe_parameter
from tests.query.library import catalog, matching, mutation, query, read


def described(text: str) -> dict[str, Any]:
    return describe_operation(compile_query(text, catalog()), catalog()).to_dict()


def field(item: str, clauses: str = "$b: Book", parameters: str = "$p: [U32]?, $v: Vector(3)"):
    (only,) = described(query(clauses, item, parameters))["result"]
    return only


def types(uses: list[dict[str, str]]) -> list[str]:
    assert all(use.keys() == {"kind", "type_name"} for use in uses)
    return [f"{use['kind']} {use['type_name']}" for use in uses]


def reads(clauses: str) -> list[str]:
    return types(described(query(clauses))["reads"])


# --- result ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("$b.title", {"name": "title", "column": "b.title", "kind": "string", "nullable": False}),
        ("$b.genre", {"name": "genre", "column": "b.genre", "kind": "string", "nullable": False}),
        ("$b.available as x", {"name": "x", "column": "x", "kind": "bool", "nullable": True}),
        ("$b.pages as x", {"name": "x", "column": "x", "kind": "int", "nullable": True}),
        ("$b.chapters as x", {"name": "x", "column": "x", "kind": "int", "nullable": True}),
        ("$b.sold as x", {"name": "x", "column": "x", "kind": "bigint", "nullable": True}),
        ("$b.printed as x", {"name": "x", "column": "x", "kind": "bigint", "nullable": True}),
        ("$b.weight as x", {"name": "x", "column": "x", "kind": "float", "nullable": True}),
        ("$b.price as x", {"name": "x", "column": "x", "kind": "float", "nullable": True}),
        ("$b.released as x", {"name": "x", "column": "x", "kind": "date", "nullable": True}),
        ("$b.updated as x", {"name": "x", "column": "x", "kind": "datetime", "nullable": True}),
        (
            "$b.vec",
            {
                "name": "vec",
                "column": "b.vec",
                "kind": "vector",
                "vector_dim": 4,
                "nullable": True,
            },
        ),
        (
            "$b.tags",
            {
                "name": "tags",
                "column": "b.tags",
                "kind": "list",
                "item_kind": "string",
                "nullable": True,
            },
        ),
        ("$b", {"name": "b", "column": "b", "kind": "object", "nullable": False}),
        ("$b as x", {"name": "x", "column": "x", "kind": "object", "nullable": False}),
        ("$b.*", {"name": "b", "column": "b", "kind": "object", "nullable": False}),
        ("3", {"name": "literal", "column": "literal", "kind": "bigint", "nullable": False}),
        ("now()", {"name": "now", "column": "now", "kind": "datetime", "nullable": False}),
        (
            "$p",
            {"name": "p", "column": "p", "kind": "list", "item_kind": "int", "nullable": True},
        ),
        (
            "$v",
            {"name": "v", "column": "v", "kind": "vector", "vector_dim": 3, "nullable": False},
        ),
        (
            'search($b.title, "x")',
            {"name": "search", "column": "search", "kind": "bool", "nullable": False},
        ),
        (
            'nearest($b.vec, "x")',
            {"name": "nearest", "column": "nearest", "kind": "float", "nullable": True},
        ),
        (
            'bm25($b.title, "x")',
            {"name": "bm25", "column": "bm25", "kind": "float", "nullable": False},
        ),
        ("count(*)", {"name": "count", "column": "count", "kind": "bigint", "nullable": True}),
        ("count($b)", {"name": "count", "column": "b", "kind": "bigint", "nullable": True}),
        ("sum($b.pages)", {"name": "sum", "column": "b.pages", "kind": "bigint", "nullable": True}),
        ("min($b.pages)", {"name": "min", "column": "b.pages", "kind": "int", "nullable": True}),
        (
            "collect($b.pages)",
            {
                "name": "collect",
                "column": "b.pages",
                "kind": "list",
                "item_kind": "int",
                "nullable": True,
            },
        ),
        (
            "sum($b.pages) / count(*) as m",
            {"name": "m", "column": "m", "kind": "float", "nullable": True},
        ),
    ],
)
def test_c_qry_077_result_fields(item: str, expected: dict[str, Any]):
    found = field(item)
    assert found == expected
    assert list(found) == [key for key in FIELD_KEYS if key in found]


FIELD_KEYS = ("name", "column", "kind", "item_kind", "vector_dim", "nullable")


def test_group_items_keep_their_kind_beside_aggregates():
    result = described(query("$b: Book", "$b, $b.pages, count(*) as n"))["result"]
    assert [entry["kind"] for entry in result] == ["object", "int", "bigint"]
    assert [entry["nullable"] for entry in result] == [False, True, True]


def test_optional_variables_are_nullable():
    result = described(
        query("$a: Author optional { $a $w:wrote $b }", "$a, $b, $b.title, $w.*, $b.* as book")
    )["result"]
    assert [entry["nullable"] for entry in result] == [False, True, True, True, True]


def test_parameters_have_the_same_kinds():
    compiled = read(
        query(
            "$b: Book",
            "$b",
            "$s: String, $n: I32?, $m: U64, $f: F32, $d: Date, $t: DateTime, $o: Bool, $x: Blob, "
            "$l: [F64], $v: Vector(2)?",
        )
    )
    assert [describe_parameter(p).to_dict() for p in compiled.parameters] == [
        {"name": "s", "kind": "string", "nullable": False},
        {"name": "n", "kind": "int", "nullable": True},
        {"name": "m", "kind": "bigint", "nullable": False},
        {"name": "f", "kind": "float", "nullable": False},
        {"name": "d", "kind": "date", "nullable": False},
        {"name": "t", "kind": "datetime", "nullable": False},
        {"name": "o", "kind": "bool", "nullable": False},
        {"name": "x", "kind": "blob", "nullable": False},
        {"name": "l", "kind": "list", "item_kind": "float", "nullable": False},
        {"name": "v", "kind": "vector", "vector_dim": 2, "nullable": True},
    ]


def test_c_qry_090_a_list_of_records_says_its_fields():
    compiled = compile_query(
        "query q($b: [{ isbn: String, pages: I32?, tags: [String] }]?) "
        "{ for $x in $b { delete Book where isbn = $x.isbn } }",
        catalog(),
    )
    described_field = describe_parameter(compiled.parameters[0])
    assert described_field.to_dict() == {
        "name": "b",
        "kind": "list",
        "item_kind": "object",
        "nullable": True,
        "fields": [
            {"name": "isbn", "kind": "string", "nullable": False},
            {"name": "pages", "kind": "int", "nullable": True},
            {"name": "tags", "kind": "list", "item_kind": "string", "nullable": False},
        ],
    }
    schema = QuerySignature("q", True, (described_field,)).parameters_schema()
    record = schema["properties"]["b"]["anyOf"][0]["items"]
    assert record["required"] == ["isbn", "tags"]
    assert record["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
    operation = describe_operation(compiled, catalog())
    assert ("node", "Book") in operation.writes


# --- reads and writes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("$b: Book", ["node Book"]),
        ("$s: Shop $a: Author $b: Book", ["node Author", "node Book", "node Shop"]),
        ("$a wrote $b", ["node Author", "node Book", "edge Wrote"]),
        ("$b: Book $b wrote $_", ["node Author", "node Book", "edge Wrote"]),
        ("$a: Author not { $a wrote $b }", ["node Author", "node Book", "edge Wrote"]),
        (
            "$a: Author not { $a wrote $b not { $b soldInTown $s } }",
            ["node Author", "node Book", "node Shop", "edge SoldInTown", "edge Wrote"],
        ),
        ("$a: Author not { $a.born is null }", ["node Author"]),
        (
            "$a: Author any { $a knows $_  all { $a wrote $b  $b cites $_ } }",
            ["node Author", "node Book", "edge Cites", "edge Knows", "edge Wrote"],
        ),
        ("$a: Author optional { $a wrote $b }", ["node Author", "node Book", "edge Wrote"]),
        ("$b cites $b $c cites $b", ["node Book", "edge Cites"]),
        ("$b: Book $c: Cites $b cites $_", ["node Book", "node Cites", "edge Cites"]),
    ],
)
def test_c_qry_077_reads_are_distinct_nodes_first_then_by_name(clauses: str, expected: list[str]):
    assert reads(clauses) == expected
    assert described(query(clauses))["writes"] == []


@pytest.mark.parametrize(
    ("statements", "read_types", "written_types"),
    [
        ('insert Cites { name: "x" }', ["node Cites"], ["node Cites"]),
        (
            'insert Wrote { from: "a" to: "b" }',
            ["node Author", "node Book", "edge Wrote"],
            ["edge Wrote"],
        ),
        ("update Book set { pages: 1 } where pages = 2", ["node Book"], ["node Book"]),
        (
            "delete Author where born is null",
            ["node Author", "edge Knows", "edge Wrote"],
            ["node Author", "edge Knows", "edge Wrote"],
        ),
        ('delete Wrote where from = "a"', ["edge Wrote"], ["edge Wrote"]),
        ('update Wrote set { role: "x" } where to = "a"', ["edge Wrote"], ["edge Wrote"]),
        ('delete Cites where name = "x"', ["node Cites"], ["node Cites"]),
        (
            'update Book set { pages: 1 } where pages = 2 insert Sells { from: "a" to: "b" }',
            ["node Book", "node Shop", "edge Sells"],
            ["node Book", "edge Sells"],
        ),
    ],
)
def test_c_qry_077_mutations_read_and_write_exactly(
    statements: str, read_types: list[str], written_types: list[str]
):
    found = described(f"query q() {{ {statements} }}")
    assert found["result"] == []
    assert types(found["reads"]) == read_types
    assert types(found["writes"]) == written_types
    assert list(found) == ["result", "reads", "writes"]


def test_descriptor_covers_exactly_the_columns_of_the_plan():
    compiled = matching("$a: Author $a wrote $b", "$a, $b.title, count(*), sum($b.pages) as s")
    assert isinstance(compiled, plan.ReadPlan)
    result = describe_operation(compiled, catalog()).result
    assert [entry.column for entry in result] == [column.name for column in compiled.columns]


def test_mutation_of_a_type_without_edges_touches_only_it():
    compiled = mutation('query q() { delete Cites where name = "x" }')
    assert describe_operation(compiled, catalog()).writes == (("node", "Cites"),)


def test_c_qry_084_types_that_only_an_earlier_stage_reads_are_reads():
    found = described(
        """query q() {
            match { $a: Author  $a wrote $b }
            with { $a, count(*) as books, max($b.title) as last }
            match { $a knows $c }
            return { $a, books, last, $c.name }
        }"""
    )
    assert types(found["reads"]) == ["node Author", "node Book", "edge Knows", "edge Wrote"]
    assert [entry["kind"] for entry in found["result"]] == ["object", "bigint", "string", "string"]


def test_c_qry_082_blocks_have_kinds_and_read_types():
    found = described(
        query(
            "$a: Author",
            "count { $a wrote $b } as n, exists { $a knows $c } as e, "
            "collect { $a wrote $b return { $b.title } } as titles, "
            "collect { $a wrote $b return { $b.title, $b.pages } } as books",
        )
    )
    kinds = [(entry["kind"], entry.get("item_kind")) for entry in found["result"]]
    assert kinds == [("bigint", None), ("bool", None), ("list", "string"), ("list", "object")]
    assert types(found["reads"]) == ["node Author", "node Book", "edge Knows", "edge Wrote"]
