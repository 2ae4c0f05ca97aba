"""Cypher of the query and aggregate suites: the translation answers what our own query does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import aggregates, questions
from bench.aggregates import Followers
from bench.questions import Chooser, Question
from bench.social import SCHEMA, Size, SocialGraph, generate
from bench.social_files import SocialFiles
from omnigraph.graph import Graph, open_graph
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.translate.queries import translate_cypher
from tests.support.tables import check_all

REFUSED = {
    # Kuzu's indexes are asked by procedures, and vectors are compared by a function of lists.
    "vector": {"a cast to a list", "`CALL` has no counterpart"},
    "text": {"`CALL` has no counterpart"},
}
"""By question, how what is said of its texts begins."""


@pytest.fixture(scope="module")
def social() -> SocialGraph:
    return generate(Size("tiny-translated", 150, 1_000))


@pytest.fixture(scope="module")
def files(social: SocialGraph, tmp_path_factory: pytest.TempPathFactory) -> SocialFiles:
    return SocialFiles(social, tmp_path_factory.mktemp("questions"))


def plain(rows: Any, ordered: bool) -> list[Any]:
    found = [
        tuple(round(value, 9) if isinstance(value, float) else value for value in row.values())
        for row in rows
    ]
    return found if ordered else sorted(found, key=str)


def check(question: Question, graph: Graph, catalog: Catalog, asked: list[Any]) -> int:
    """Compare every form of a question; how many were translated."""
    translated = 0
    for text in question.cypher:
        found = translate_cypher(text, catalog, "kuzu")
        for error in found.errors:
            assert any(error.reason.startswith(said) for said in REFUSED[question.name]), error
        for query in found.queries:
            assert question.name not in REFUSED
            translated += 1
            for given in asked:
                ours = graph.query(question.gq, given).to_pylist()
                theirs = graph.query(query.text, given).to_pylist()
                ordered = "ORDER BY" in text
                assert plain(theirs, ordered) == plain(ours, ordered), query.text
    assert translated or question.name in REFUSED
    return translated


def test_questions_of_the_query_suite(social: SocialGraph, files: SocialFiles) -> None:
    graph, catalog = open_graph(files.graph), compile_schema(SCHEMA).catalog

    def ask(question: Question) -> None:
        check(question, graph, catalog, question.ask(Chooser(social, 3)))

    check_all(questions.QUESTIONS, ask)


def test_questions_of_the_aggregate_suite(files: SocialFiles, tmp_path: Path) -> None:
    graph = open_graph(Followers(files).graph)
    catalog = compile_schema(aggregates.SCHEMA).catalog

    def ask(question: Question) -> None:
        check(question, graph, catalog, [{}])

    check_all(aggregates.QUESTIONS, ask)
