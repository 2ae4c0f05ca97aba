"""The guide to the query language: every example compiles against the schema of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.query import ast
from omnigraph.query.check import check_query
from omnigraph.query.explain import explain
from omnigraph.query.parser import parse_query_file
from omnigraph.schema.compile import compile_schema

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guide" / "queries.md").read_text(encoding="utf-8")


def fences(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def queries() -> list[ast.Query]:
    return [query for text in fences("gq") for query in parse_query_file(text).queries]


def test_page_has_one_schema():
    assert len(fences("pg")) == 1


@pytest.mark.parametrize("text", fences("gq"), ids=lambda text: text.split("(")[0].split()[-1])
def test_example_compiles(text: str):
    catalog = compile_schema(fences("pg")[0]).catalog
    file = parse_query_file(text)
    assert file.queries
    for query in file.queries:
        assert explain(check_query(query, file.source, catalog))


def test_query_names_are_unique():
    names = [query.name for query in queries()]
    assert len(names) == len(set(names))


FUNCTIONS = (*ast.SEARCH_FUNCTIONS, *ast.AGGREGATE_FUNCTIONS, *ast.SCALAR_FUNCTIONS, "now")
SYNTAX = (
    *("not {", "any {", "all {", "optional {", "having {", "return distinct {"),
    *("$_", "via $", "<follows>", "{2,3}", "$c:cooks", "$c.*", "$r.* as"),
    *("is null", "is not null", " in [", " in $", " contains ", " starts_with ", ": null"),
    *("count(*)", "count(distinct ", "collect(distinct ", "limit $", "limit 8", "offset $"),
    *("insert ", "update ", " set {", "delete ", " where ", " and ", " or ", " from in "),
    *("@description(", "@instruction(", "// ", "/* "),
)


@pytest.mark.parametrize("words", [*(f"{name}(" for name in FUNCTIONS), *SYNTAX])
def test_examples_show_the_whole_language(words: str):
    assert any(words in text for text in fences("gq"))


def test_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    graph = og.init("social.omni", schema=Path("examples/social/schema.pg"))
    graph.load("examples/social/data.jsonl", mode="append")
    (text,) = fences("python")
    exec(compile(text, "queries.md", "exec"), {})
