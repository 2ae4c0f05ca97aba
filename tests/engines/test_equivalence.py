"""Engines give what the language says, whatever the query and however they go about it.

Random queries over small random graphs run on the naive reference and on the engines. The graphs
have numbers, and each is made once.
"""

from __future__ import annotations

import math
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.engines.local import last_hop, node_numbers, order, trees
from omnigraph.engines.local.text_index import tokens
from omnigraph.model.result import Result
from omnigraph.model.values import parse_date, parse_datetime
from omnigraph.query.compile import compile_query
from omnigraph.query.plan import ReadPlan
from omnigraph.schema.compile import compile_schema
from tests.cases.format import all_cases
from tests.engines.matches import SCHEMA, WORDS, records
from tests.engines.strategies import Query, queries, reordered, tree_queries
from tests.support.budgets import FEW, MANY
from tests.support.reference import Reference, Tables
from tests.support.reference.analyser import tokens as plain_tokens
from tests.support.reference.json_rows import json_rows, tables_of
from tests.support.spread import spread_over_tasks

CATALOG = compile_schema(SCHEMA).catalog
GRAPHS = 12
MODES = ("auto", "indexed", "csr")

Rows = list[list[Any]]


# --- graphs ---------------------------------------------------------------------------------------


def records_of(number: int) -> list[dict[str, Any]]:
    """The records of graph ``number``; graph 0 is empty."""
    return records(random.Random(number)) if number else []


@contextmanager
def traversal(mode: str) -> Iterator[None]:
    """The environment in which an engine is made that serves hops in this way."""
    before = os.environ.get("OMNIGRAPH_TRAVERSAL_MODE")
    os.environ["OMNIGRAPH_TRAVERSAL_MODE"] = mode
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMNIGRAPH_TRAVERSAL_MODE"]
        else:
            os.environ["OMNIGRAPH_TRAVERSAL_MODE"] = before


def in_small_blocks(query: Callable[[str], Result], text: str) -> Result:
    """Run a query that groups solutions as if a few were many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(last_hop, "BLOCK_ROWS", 2)
        patch.setattr(trees, "BLOCK_ROWS", 2)
        patch.setattr(node_numbers, "FAR_GAIN_MIN", 0)
        return query(text)


def counted(query: Callable[[str], Result], text: str) -> Result:
    """Run a query that counts solutions along a tree as if a few were many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "ROWS_WORTH_COUNTING", 0)
        return query(text)


def by_cost(query: Callable[[str], Result], text: str) -> Result:
    """Run a query in the order that is expected to be cheapest, however little it saves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "GAIN_MIN", 0.01)
        patch.setattr(order, "WORTH_INSIDE", 0)
        return query(text)


@dataclass(frozen=True)
class Stored:
    """One graph, and the ways to query it that must make no difference."""

    tables: Tables
    ways: dict[str, Callable[[str], Result]]
    mixed: og.Graph
    """With several files, deleted rows and partial indexes."""


@dataclass(repr=False)
class Library:
    """The numbered graphs of a session; not shown, so that a failing example is."""

    directory: Path
    made: dict[int, Stored] = field(default_factory=dict)

    def graph(self, number: int) -> Stored:
        """Graph ``number``."""
        if number not in self.made:
            self.made[number] = self._make(number)
        return self.made[number]

    def _make(self, number: int) -> Stored:
        found = records_of(number)
        plain = self._new(f"{number}-plain")
        load(plain, found)
        mixed = self._new(f"{number}-mixed")
        load_with_a_past(mixed, found)
        compact = self._new(f"{number}-compact")
        load_with_a_past(compact, found)
        compact.optimize()
        mixed.create_branch("side")
        ways: dict[str, Callable[[str], Result]] = {
            "no index": plain.query,
            "compacted": compact.query,
            "branch": partial(mixed.query, branch="side"),
            "small blocks": partial(in_small_blocks, mixed.query),
        }
        for mode in MODES:
            with traversal(mode):
                graph = og.Graph(mixed._kernel)
                graph.query("query q() { match { $p knows $o } return { count(*) } }")
                ways[mode] = graph.query
        ways["by cost"] = partial(by_cost, og.Graph(mixed._kernel).query)
        ways["counted"] = partial(counted, ways["csr"])
        ways["counted in small blocks"] = partial(in_small_blocks, ways["counted"])
        return Stored(tables_of(plain, CATALOG), ways, mixed)

    def _new(self, name: str) -> og.Graph:
        return og.init(self.directory / f"{name}.omni", schema=SCHEMA)


def load_with_a_past(graph: og.Graph, found: Sequence[dict[str, Any]]) -> None:
    """Load records so that some rows are indexed, some are not, and some were deleted."""
    middle = sum("type" in record for record in found) // 2
    gone: list[dict[str, Any]] = [
        {"type": "Person", "data": {"name": "gone", "age": 1, "bio": "red fox", "vec": [1, 1]}},
        {"edge": "Knows", "from": "gone", "to": "gone"},
    ]
    gone += [
        {"edge": "Knows", "from": record["data"]["name"], "to": "gone"}
        for record in found[:middle]
        if record.get("type") == "Person"
    ]
    load(graph, [*found[:middle], *gone])
    graph.ensure_indices()
    load(graph, found[middle:])
    graph.mutate('query m() { delete Person where name = "gone" }')


def load(graph: og.Graph, found: Sequence[dict[str, Any]]) -> None:
    if found:
        graph.load(data=b"\n".join(map(orjson.dumps, found)), mode="append")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("equivalence"))


# --- comparing ------------------------------------------------------------------------------------


def plan_of(text: str) -> ReadPlan:
    plan = compile_query(text, CATALOG)
    assert isinstance(plan, ReadPlan)
    return plan


def is_ordered(plan: ReadPlan) -> bool:
    return bool(plan.order) or plan.rank is not None


def reference_rows(tables: Tables, text: str) -> Rows:
    return json_rows(Reference(tables).run(plan_of(text)))


def same(left: Any, right: Any) -> bool:
    """Equal JSON; computed floats may differ in the last digits."""
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-12)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and bool(left == right)


def sub_bag(part: Rows, whole: Rows) -> bool:
    """Whether every row of ``part`` is one of ``whole``, as often as it is there."""
    remaining = list(whole)
    for row in part:
        at = next((i for i, other in enumerate(remaining) if same(row, other)), None)
        if at is None:
            return False
        del remaining[at]
    return True


def assert_answers(query: Query, tables: Tables, rows: Rows) -> None:
    """Fail unless ``rows`` answer the query as the reference does."""
    text = query.text()
    wanted = reference_rows(tables, text)
    note(text)
    note(f"reference: {wanted}")
    note(f"engine:    {rows}")
    assert len(rows) == len(wanted)
    if is_ordered(plan_of(text)):
        assert same(rows, wanted)
    else:
        # Which rows a limit leaves is open without an order.
        assert sub_bag(rows, reference_rows(tables, query.text(limited=False)))


# --- properties -----------------------------------------------------------------------------------

EXAMPLES = settings(
    MANY,
    suppress_health_check=[*MANY.suppress_health_check, HealthCheck.function_scoped_fixture],
)


def plain_tables(number: int) -> Tables:
    """The rows of a numbered graph, straight from its records."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for key in (*CATALOG.nodes, *CATALOG.edges):
        tables[f"{'node' if key in CATALOG.nodes else 'edge'}:{key}"] = []
    for record in records_of(number):
        data = dict(record["data"])
        if "type" in record:
            for name, read in (("born", parse_date), ("seen", parse_datetime)):
                if data.get(name) is not None:
                    data[name] = read(data[name])
            tables[f"node:{record['type']}"].append({"id": data["name"], **data})
        else:
            ends = {"src": record["from"], "dst": record["to"], "since": data.pop("since", None)}
            tables[f"edge:{record['edge']}"].append({**data, **ends})
    return tables


@given(queries(), st.sampled_from(range(1, 40)), st.randoms(use_true_random=False))
@EXAMPLES
def test_c_qry_025_clause_order_never_changes_the_bag(
    query: Query, number: int, choices: random.Random
):
    tables = plain_tables(number)
    other = reordered(query, choices)
    note(query.text())
    note(other.text())
    assert_answers(query, tables, reference_rows(tables, other.text()))


@given(queries(), st.sampled_from(range(1, 40)), st.randoms(use_true_random=False))
@EXAMPLES
def test_steps_in_the_order_of_any_sizes_give_the_same_rows(
    query: Query, number: int, choices: random.Random
):
    tables = plain_tables(number)
    names = (*CATALOG.nodes, *CATALOG.interfaces, *CATALOG.edges)
    size = {name: choices.choice([0, 1, 10, 1_000, 10**6]) for name in names}.__getitem__
    read = plan_of(query.text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "GAIN_MIN", choices.choice([0.0, 0.5, 2.0]))
        pattern = order.ordered(read.pattern, order.TableSizes(size, size))
    note(str(pattern))
    assert_answers(query, tables, json_rows(Reference(tables).run(replace(read, pattern=pattern))))


@pytest.mark.slow
@given(queries(), st.sampled_from(range(GRAPHS)))
@EXAMPLES
def test_c_qry_078_every_way_to_run_a_query_gives_its_answer(
    library: Library, query: Query, number: int
):
    """Lookups, adjacency or the engine's choice; C-QRY-079: with and without indexes."""
    stored = library.graph(number)
    columns = [column.name for column in plan_of(query.text()).columns]
    for way, run in stored.ways.items():
        note(f"graph {number}, {way}")
        document = run(query.text()).to_dict()
        assert document["columns"] == columns
        rows = [[row[name] for name in columns] for row in document["rows"]]
        assert_answers(query, stored.tables, rows)


@pytest.mark.slow
@given(tree_queries(), st.sampled_from(range(1, GRAPHS)))
@EXAMPLES
def test_c_qry_053_groups_over_trees_are_the_same_counted_and_by_rows(
    library: Library, query: Query, number: int
):
    stored = library.graph(number)
    columns = [column.name for column in plan_of(query.text()).columns]
    for way in ("csr", "counted", "counted in small blocks"):
        note(f"graph {number}, {way}")
        result = stored.ways[way](query.text())
        assert result.to_arrow().schema == stored.ways["no index"](query.text()).to_arrow().schema
        rows = [[row[name] for name in columns] for row in result.to_dict()["rows"]]
        assert_answers(query, stored.tables, rows)


FEW_EXAMPLES = settings(FEW, suppress_health_check=EXAMPLES.suppress_health_check)


@pytest.mark.spark
@pytest.mark.xdist_group("spark_queries")
@given(queries(), st.sampled_from(range(GRAPHS)), st.booleans())
@FEW_EXAMPLES
def test_c_pip_024_random_queries_give_the_same_on_spark(
    spark: Any, library: Library, query: Query, number: int, is_spread: bool
):
    """In few tasks, with small tables broadcast; or a task a file, and every join a shuffle."""
    stored = library.graph(number)
    note(f"graph {number}, {'spread' if is_spread else 'as it is'}")
    with spread_over_tasks(spark) if is_spread else nullcontext():
        document = stored.mixed.query(query.text(), engine="spark").to_dict()
    columns = [column.name for column in plan_of(query.text()).columns]
    rows = [[row[name] for name in columns] for row in document["rows"]]
    assert_answers(query, stored.tables, rows)


@pytest.mark.parametrize("pairs", ["", "{ age: 1 }"])
def test_c_srch_008_many_vectors_come_in_the_order_of_their_distances(tmp_path: Path, pairs: str):
    choices = random.Random(8)
    # Few values, so that many distances are equal and ids decide.
    vectors = {
        f"p{at:05}": (choices.randint(0, 40) / 4, choices.randint(0, 40) / 4)
        for at in range(10_000)
    }
    found: list[dict[str, Any]] = [
        {"type": "Person", "data": {"name": name, "age": at % 3, "vec": vector}}
        for at, (name, vector) in enumerate(vectors.items())
    ]
    found += [{"type": "Person", "data": {"name": f"none{at}", "age": 1}} for at in range(500)]
    graph = og.init(tmp_path / "many.omni", schema=SCHEMA)
    load(graph, choices.sample(found, len(found)))
    x, y = 3.25, 6.5
    wanted = sorted(
        ((a - x) ** 2 + (b - y) ** 2, name)
        for at, (name, (a, b)) in enumerate(vectors.items())
        if not pairs or at % 3 == 1
    )
    text = f"""query q($n: I64) {{
      match {{ $p: Person {pairs} }}
      return {{ $p.name, nearest($p.vec, [{x}, {y}]) as d }}
      order {{ nearest($p.vec, [{x}, {y}]) }}
      limit $n
    }}"""
    for limit in (10, 8_193, 20_000):
        rows = graph.query(text, {"n": limit}).to_pylist()
        assert [(row["d"], row["p.name"]) for row in rows] == wanted[:limit]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> tuple[og.Graph, Tables]:
    """A graph of some thousand people, among whom ties and nulls are common."""
    choices = random.Random(57)
    found: list[dict[str, Any]] = [
        {
            "type": "Person",
            "data": {
                "name": f"p{choices.randrange(16**8):08x}",
                "age": choices.choice([None, *range(6)]),
                "rank": choices.choice([None, -1.5, 0.0, 0.5, 1e300]),
                "bio": choices.choice([None, "", "red", "Red", "fox"]),
            },
        }
        for _ in range(3_000)
    ]
    graph = og.init(tmp_path_factory.mktemp("crowd") / "crowd.omni", schema=SCHEMA)
    load(graph, found)
    return graph, tables_of(graph, CATALOG)


TAILS = [
    "return { $p } order { $p.age } limit 5",
    "return { $p } order { $p.age desc } limit 5",
    "return { $p } order { $p.age desc } limit 9 offset 2700",
    "return { $p } order { $p.bio desc, $p.age } limit 700",
    "return { $p } order { $p.bio, $p.rank desc } limit 20",
    "return { $p } order { $p.name desc } limit 3 offset 1200",
    "return { $p, $p.rank * $p.rank - $p.rank * $p.rank as x } order { x } limit 1400",
    "return { $p, $p.rank * $p.rank - $p.rank * $p.rank as x } order { x desc } limit 1400",
    "return distinct { $p.age as a, $p.bio as b } order { b desc } limit 12",
    "return { $p.age as a, $p.rank as r, count(*) as n } order { n desc } limit 11",
    "return { $p.bio as b, count(distinct $p.age), collect(distinct $p.rank) } order { b }",
]


@pytest.mark.parametrize("tail", TAILS)
def test_c_qry_057_and_058_hold_for_many_rows(crowd: tuple[og.Graph, Tables], tail: str):
    graph, tables = crowd
    text = f"query q() {{ match {{ $p: Person }} {tail} }}"
    document = graph.query(text).to_dict()
    rows = [[row[name] for name in document["columns"]] for row in document["rows"]]
    assert same(rows, reference_rows(tables, text))


@pytest.mark.spark
@pytest.mark.xdist_group("spark_queries")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("tail", TAILS)
def test_c_pip_024_many_rows_come_in_the_same_order_on_spark(
    crowd: tuple[og.Graph, Tables], tail: str
):
    graph, _ = crowd
    text = f"query q() {{ match {{ $p: Person }} {tail} }}"
    here, there = graph.query(text).to_dict(), graph.query(text, engine="spark").to_dict()
    assert same(there["rows"], here["rows"])


def test_the_plain_analyser_agrees_with_the_product_on_the_words_of_the_tests():
    texts = list(WORDS)
    for case in all_cases():
        if case.file in ("text", "ranking", "fusion", "indexes", "optional", "embeddings"):
            texts += [
                value
                for record in case.setup.seed
                for value in record.get("data", {}).values()
                if isinstance(value, str)
            ]
            texts += re.findall(r'"([^"]*)"', case.query)
    assert {text: plain_tokens(text) for text in texts} == {text: tokens(text) for text in texts}
