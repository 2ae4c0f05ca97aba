"""The page of diagnostics lists every code, and its examples earn the code they stand for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.query.lint import lint_queries
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "diagnostics.md").read_text(encoding="utf-8")

CODE = re.compile(r'"([TQL]\d{1,3})"')
ROW = re.compile(r"^\| ([TQL]\d{1,3}) \|.*\| `(query .*)` \|$", re.MULTILINE)
UNCODED = re.compile(r"^\| (?![TQL]\d).*\| `(query .*)` \|$", re.MULTILINE)


def catalog() -> Catalog:
    (text,) = re.findall(r"^```pg\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return compile_schema(text).catalog


MESSAGES = """
interface Message { text: String }
node Comment implements Message { text: String @key }
node Post implements Message { text: String @key }
node Person { name: String @key }
edge HasCreator: Message -> Person
edge ReplyOf: Comment -> Message
"""


def codes_found(text: str) -> set[str]:
    known = compile_schema(MESSAGES).catalog if "replyOf" in text else catalog()
    return {finding.code for finding in lint_queries(text, known).findings}


def test_page_and_code_know_the_same_codes():
    sources = (ROOT / "src" / "omnigraph" / "query").rglob("*.py")
    raised = {code for path in sources for code in CODE.findall(path.read_text(encoding="utf-8"))}
    listed = [code for code, _ in ROW.findall(PAGE)]
    assert len(listed) == len(set(listed))
    assert set(listed) == raised


def test_rows_are_in_order():
    listed = [code for code, _ in ROW.findall(PAGE)]
    assert listed == [*(f"T{number}" for number in range(1, 29)), "Q000", "L201", "L202"]


@pytest.mark.parametrize(("code", "example"), ROW.findall(PAGE))
def test_example_gets_its_code(code: str, example: str):
    assert codes_found(example) == {code}


@pytest.mark.parametrize("example", UNCODED.findall(PAGE))
def test_example_without_a_code_is_refused_all_the_same(example: str):
    assert codes_found(example) == {"type"}


def test_every_table_row_has_an_example():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    headings = sum(line.endswith("Example |") for line in rows)
    assert len(rows) - headings == len(ROW.findall(PAGE)) + len(UNCODED.findall(PAGE))
