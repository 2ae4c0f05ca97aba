"""A handle that has seen many versions answers like the language, whatever it remembers.

Random queries run after each of a series of random writes, on handles that stay open, against the
naive evaluator over what the graph exports at that moment.
"""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.engines.local import trees
from omnigraph.engines.local.engine import LocalEngine
from omnigraph.engines.local.tables import Mode
from omnigraph.query.compile import compile_query
from omnigraph.query.plan import ReadPlan
from omnigraph.schema.compile import compile_schema
from tests.engines.local.examples import FEW
from tests.engines.local.graphs import with_engine
from tests.engines.matches import SCHEMA, records
from tests.engines.strategies import Query, queries, tree_queries
from tests.engines.test_equivalence import assert_answers
from tests.support.reference import Tables
from tests.support.reference.json_rows import tables_of

CATALOG = compile_schema(SCHEMA).catalog
WAYS: list[tuple[Mode, int | None]] = [("auto", None), ("csr", 3_000), ("indexed", 1)]


class Versions:
    """One graph under change, and handles that were opened at its beginning."""

    def __init__(self, directory: Path) -> None:
        self.graph = og.init(directory / "graph.omni", schema=SCHEMA)
        self.handles: list[tuple[str, og.Graph, LocalEngine]] = [
            (f"{mode}, {limit} bytes", *with_engine(self.graph, mode, limit))
            for mode, limit in WAYS
        ]
        self._count = 0

    def change(self, choices: random.Random) -> None:
        """One write: other values for all nodes and some new edges, or fewer nodes or edges."""
        self._count += 1
        name = choices.choice("abcde")
        match choices.choice(["load", "load", "node", "edge"]):
            case "load":
                found = records(choices)
                nodes = [record for record in found if "type" in record]
                edges = [record for record in found if "edge" in record]
                for edge in edges:
                    edge["data"]["id"] += f"-{self._count}"
                self._load([*nodes, *choices.sample(edges, len(edges) // 2)])
            case "node":
                self._mutate(f'delete Person where name = "{name}"')
            case "edge":
                self._mutate(f'delete Knows where from = "{name}"')

    def assert_answers(self, query: Query, tables: Tables) -> None:
        """Fail unless every handle gives what the language says about these rows."""
        plan = compile_query(query.text(), CATALOG)
        assert isinstance(plan, ReadPlan)
        columns = [column.name for column in plan.columns]
        for way, handle, engine in self.handles:
            note(way)
            found = handle.query(query.text()).to_dict()["rows"]
            engine.memory.warming.finish()
            assert_answers(query, tables, [[row[name] for name in columns] for row in found])

    def _load(self, found: list[dict[str, Any]]) -> None:
        self.graph.load(data=b"\n".join(map(orjson.dumps, found)), mode="merge")

    def _mutate(self, statement: str) -> None:
        self.graph.mutate(f"query q() {{ {statement} }}")


history = st.lists(
    st.tuples(st.integers(0, 10**6), st.lists(queries() | tree_queries(), min_size=2, max_size=4)),
    min_size=3,
    max_size=5,
)
"""What is written, and what is asked afterwards."""


@FEW
@given(history)
def test_c_qry_078_warm_handles_answer_like_the_language_at_every_version(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[int, list[Query]]]
):
    monkeypatch.setenv("OMNIGRAPH_TABLE_COMPACT_EVERY", "3")
    monkeypatch.setattr(trees, "ROWS_WORTH_COUNTING", 0)
    with TemporaryDirectory() as directory:
        versions = Versions(Path(directory))
        for seed, asked in steps:
            versions.change(random.Random(seed))
            tables = tables_of(versions.graph, CATALOG)
            for query in asked:
                versions.assert_answers(query, tables)
