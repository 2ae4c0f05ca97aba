"""Queries of an actor answer as on a copy of the graph from which what is hidden was removed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import CompileError
from omnigraph.model.result import Result
from omnigraph.query.compile import compile_query
from omnigraph.query.plan import ReadPlan
from tests.access.views import ACTOR, RandomView, random_views
from tests.engines.strategies import Query, queries, tree_queries
from tests.engines.test_equivalence import (
    EXAMPLES,
    FEW_EXAMPLES,
    GRAPHS,
    MODES,
    Library,
    Rows,
    counted,
    is_ordered,
    same,
    sub_bag,
    traversal,
)
from tests.support.budgets import budget
from tests.support.reference import Reference, Tables
from tests.support.reference.json_rows import json_rows
from tests.support.spread import spread_over_tasks


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("views"))


def seen(graph: og.Graph, view: RandomView, mode: str = "auto") -> og.Graph:
    """A graph as the actor of a view sees it, opened anew."""
    with traversal(mode):
        viewed = og.Graph(graph._kernel, policy=view.policy).acting_as(ACTOR)
        viewed._opened.engine(None)
    return viewed


def assert_answers(
    view: RandomView, tables: Tables, query: Query, ask: Callable[[str], Result]
) -> None:
    """Fail unless a query answers as on the visible rows, or fails as with the visible names."""
    text, catalog = query.text(), view.catalog
    note(f"{view!r}\n{text}")
    try:
        read = compile_query(text, catalog)
    except CompileError as problem:
        with pytest.raises(CompileError) as found:
            ask(text)
        assert str(found.value) == str(problem)
        return
    assert isinstance(read, ReadPlan)
    document = ask(text).to_dict()
    names = [column.name for column in read.columns]
    assert document["columns"] == names
    rows: Rows = [[row[name] for name in names] for row in document["rows"]]
    left = view.left_of(tables)
    wanted = json_rows(Reference(left).run(read))
    note(f"wanted: {wanted}\nfound:  {rows}")
    assert len(rows) == len(wanted)
    if is_ordered(read):
        assert same(rows, wanted)
        return
    every = compile_query(query.text(limited=False), catalog)
    assert isinstance(every, ReadPlan)
    assert sub_bag(rows, json_rows(Reference(left).run(every)))


@pytest.mark.slow
@given(queries(), st.sampled_from(range(1, GRAPHS)), random_views())
@EXAMPLES
def test_c_acc_004_queries_answer_as_without_what_is_hidden(
    library: Library, query: Query, number: int, view: RandomView
):
    stored = library.graph(number)
    for mode in MODES:
        note(f"graph {number}, {mode}")
        assert_answers(view, stored.tables, query, seen(stored.mixed, view, mode).query)


@pytest.mark.slow
@given(tree_queries(), st.sampled_from(range(1, GRAPHS)), random_views())
@EXAMPLES
def test_c_acc_004_counted_trees_answer_as_without_what_is_hidden(
    library: Library, query: Query, number: int, view: RandomView
):
    stored = library.graph(number)
    graph = seen(stored.mixed, view, "csr")
    assert_answers(view, stored.tables, query, lambda text: counted(graph.query, text))


@pytest.mark.spark
@pytest.mark.xdist_group("spark_queries")
@given(queries(), st.sampled_from(range(1, GRAPHS)), random_views(), st.booleans())
@settings(FEW_EXAMPLES, max_examples=budget(2, FEW_EXAMPLES.max_examples))
def test_c_acc_004_queries_on_spark_answer_as_without_what_is_hidden(
    spark: Any, library: Library, query: Query, number: int, view: RandomView, is_spread: bool
):
    stored = library.graph(number)
    note(f"graph {number}")
    graph = seen(stored.mixed, view)
    with spread_over_tasks(spark) if is_spread else nullcontext():
        assert_answers(view, stored.tables, query, lambda text: graph.query(text, engine="spark"))
