"""The guide to the query language leaves nothing of the language out."""

from __future__ import annotations

import pytest

from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_parser import parse_query_file
from tests.support.pages import ROOT, blocks_of

GUIDE = ROOT / "docs" / "guide"
PAGE = GUIDE / "queries.md"
EXAMPLES = [block.text for block in blocks_of(PAGE) if block.language == "gq"]

FUNCTIONS = (*ast.SEARCH_FUNCTIONS, *ast.AGGREGATE_FUNCTIONS, *ast.SCALAR_FUNCTIONS, "now")
SYNTAX = (
    *("not {", "any {", "all {", "optional {", "having {", "return distinct {"),
    *("$_", "via $", "<follows>", "{2,3}", "$c:cooks", "$c.*", "$r.* as"),
    *("is null", "is not null", " in [", " in $", " contains ", " starts_with ", ": null"),
    *("count(*)", "count(distinct ", "collect(distinct ", "limit $", "limit 10", "offset $"),
    *("insert ", "update ", " set {", "delete ", " where ", " and ", " or ", " from in "),
    *("for $", "update $", ": [{ ", "unnest $"),
    *("@description(", "@instruction(", "// ", "/* "),
)


def test_page_has_one_schema():
    assert len([block for block in blocks_of(PAGE) if block.language == "pg"]) == 1


def test_query_names_are_unique():
    names = [query.name for text in EXAMPLES for query in parse_query_file(text).queries]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("words", [*(f"{name}(" for name in FUNCTIONS), *SYNTAX])
def test_examples_show_the_whole_language(words: str):
    assert any(words in text for text in EXAMPLES)


@pytest.mark.parametrize("name", ast.SEARCH_FUNCTIONS)
def test_the_page_about_search_lists_every_call(name: str):
    table = (GUIDE / "search.md").read_text(encoding="utf-8").partition("## All calls")[2]
    assert f"`{name}(" in table
