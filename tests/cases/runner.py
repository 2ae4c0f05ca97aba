"""Runs cases on an engine: the naive reference, or one of the product's own behind `Graph.query`.

`OMNIGRAPH_TEST_ENGINES` names the engines to run, separated by commas; by default all of them.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

import omnigraph as og
from omnigraph.effects.clock import Clock
from omnigraph.errors import OmnigraphError, WrongVerb
from omnigraph.model.arrow import arrow_type
from omnigraph.query import expressions as ex
from omnigraph.query.compile import compile_query
from omnigraph.query.plan import ReadPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from tests.cases.expectations import assert_rows
from tests.cases.format import Case, ExpectedError, Setup
from tests.support.reference import Reference
from tests.support.reference.json_rows import json_rows, tables_of

ENVIRONMENT = (
    "OMNIGRAPH_EMBED_PROVIDER",
    "OMNIGRAPH_EMBED_BASE_URL",
    "OMNIGRAPH_EMBED_MODEL",
    "OMNIGRAPH_EMBEDDINGS_MOCK",
    "OPENROUTER_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
)
"""Settings that a case decides about; what it does not set is unset."""


def engines() -> list[str]:
    """The engines to run cases on."""
    return os.environ.get("OMNIGRAPH_TEST_ENGINES", ",".join(ENGINES)).split(",")


# --- graphs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CaseGraph:
    """A graph that was set up, and the commits its setup remembered."""

    graph: og.Graph
    catalog: Catalog
    commits: dict[str, str]

    def snapshot_id(self, name: str | None) -> str | None:
        """The commit a case calls by this name; any other text is taken for an id."""
        return None if name is None else self.commits.get(name, name)


@dataclass
class Graphs:
    """The graphs of a session: cases with one setup share one."""

    directory: Path
    made: dict[str, CaseGraph] = field(default_factory=dict)

    def of(self, setup: Setup) -> CaseGraph:
        """The graph of a setup."""
        key = repr(setup)
        if key not in self.made:
            self.made[key] = set_up(self.directory / f"{len(self.made)}.omni", setup)
        return self.made[key]


def set_up(path: Path, setup: Setup) -> CaseGraph:
    """Create a graph, load its seed and take the steps behind it."""
    graph = og.init(path, schema=setup.schema)
    made = CaseGraph(graph, compile_schema(setup.schema).catalog, {})
    if setup.seed:
        _load(graph, setup.seed, None)
    for step in setup.before:
        branch = step.get("on")
        if "load" in step:
            _load(graph, step["load"], branch)
        elif "mutate" in step:
            graph.mutate(step["mutate"], step.get("parameters"), branch=branch)
        elif "branch" in step:
            graph.create_branch(step["branch"], step.get("from"))
        elif "index" in step:
            graph.ensure_indices(branch)
        else:
            made.commits[step["remember"]] = graph.snapshot(branch).graph_commit_id
    return made


def _load(graph: og.Graph, records: Sequence[dict[str, Any]], branch: str | None) -> None:
    lines = b"\n".join(orjson.dumps(record) for record in records)
    graph.load(data=lines, mode="append", branch=branch)


# --- engines --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """What an engine answered: column names, and rows of JSON values."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def run_reference(case: Case, made: CaseGraph) -> Rows:
    """Run a case on the naive evaluator, over the rows that the graph stores."""
    plan = _read_plan(case, made)
    tables = tables_of(made.graph, made.catalog, case.branch, made.snapshot_id(case.snapshot))
    reference = Reference(tables)
    if case.now is not None:
        reference = replace(reference, now=case.now)
    answer = reference.run(plan, case.parameters)
    return Rows(answer.columns, json_rows(answer))


def run_local(case: Case, made: CaseGraph) -> Rows:
    """Run a case in this process."""
    return run_product(case, made)


def run_spark(case: Case, made: CaseGraph) -> Rows:
    """Run a case on the active Spark session."""
    return run_product(case, made, "spark")


def run_product(case: Case, made: CaseGraph, engine: str | None = None) -> Rows:
    """Run a case through `Graph.query`."""
    graph = made.graph
    if case.now is not None:
        graph = og.Graph(replace(graph._kernel, clock=StoppedClock(case.now)))
    elif case.environment is not None:
        # An open graph keeps the embedding client it found first.
        graph = og.Graph(graph._kernel)
    result = graph.query(
        case.query,
        case.parameters,
        name=case.select,
        branch=case.branch,
        snapshot=made.snapshot_id(case.snapshot),
        engine=engine,
    )
    document = result.to_dict()
    table = result.to_arrow()
    plan = _read_plan(case, made)
    for column in plan.columns:
        if not isinstance(column.expression, ex.Whole):
            expected = arrow_type(column.expression.type)
            assert table.schema.field(column.name).type == expected, column.name
    if case.snapshot is None:
        head = graph.snapshot(case.branch).graph_commit_id
        assert document["graph_commit_id"] == head
    assert document["row_count"] == len(document["rows"])
    columns = document.get("columns", [])
    return Rows(columns, [[row[name] for name in columns] for row in document["rows"]])


ENGINES: Mapping[str, Callable[[Case, CaseGraph], Rows]] = {
    "reference": run_reference,
    "local": run_local,
    "spark": run_spark,
}


@dataclass(frozen=True)
class StoppedClock(Clock):
    """A clock that shows one instant."""

    now: dt.datetime

    def wall_us(self) -> int:
        return round(self.now.timestamp() * 1_000_000)


# --- cases ----------------------------------------------------------------------------------------


def check_case(case: Case, engine: str, graphs: Graphs) -> None:
    """Run a case and fail unless what it expects happens."""
    made = graphs.of(case.setup)
    expected = case.expected
    if isinstance(expected, ExpectedError):
        _check_error(case, expected, engine, made)
        return
    got = ENGINES[engine](case, made)
    plan = _read_plan(case, made)
    ordered = bool(plan.order) or plan.rank is not None
    assert_rows(expected, got.columns, got.rows, ordered=ordered)
    for column in plan.columns:
        if column.name in expected.types:
            assert not isinstance(column.expression, ex.Whole)
            assert str(column.expression.type) == expected.types[column.name], column.name


def _check_error(case: Case, expected: ExpectedError, engine: str, made: CaseGraph) -> None:
    try:
        got = ENGINES[engine](case, made)
    except OmnigraphError as error:
        assert error.code == expected.code, error
        assert getattr(error, "diagnostic", None) == expected.diagnostic, error
        assert expected.message is None or expected.message in error.render(), error
    else:
        raise AssertionError(f"answered {got.rows}")


def _read_plan(case: Case, made: CaseGraph) -> ReadPlan:
    plan = compile_query(case.query, made.catalog, case.select)
    if not isinstance(plan, ReadPlan):
        raise WrongVerb(f"query '{plan.name}' writes")
    return plan
