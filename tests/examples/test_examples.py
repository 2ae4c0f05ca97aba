"""The examples compile, and between them they use everything the languages have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from omnigraph.model.values import property_value
from omnigraph.query import expressions, plan
from omnigraph.query.compile import check_query
from omnigraph.query.lint import lint_queries
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.migration import plan_change
from omnigraph.schema.steps import Step
from omnigraph.syntax import query_ast, schema_ast
from omnigraph.syntax.query_parser import parse_query_file
from omnigraph.syntax.schema_parser import parse_schema
from tests.examples.features import (
    QUERY_FEATURES,
    SCHEMA_FEATURES,
    kinds_in,
    kinds_of,
    query_features,
    schema_features,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMAS = sorted(EXAMPLES.rglob("*.pg"))
QUERY_FILES = sorted(EXAMPLES.rglob("*.gq"))
EVOLUTION = EXAMPLES / "evolution"


def name_of(path: Path) -> str:
    return path.relative_to(EXAMPLES).as_posix()


def catalog_beside(path: Path):
    return compile_schema(path.parent / "schema.pg").catalog


def plans() -> list[plan.QueryPlan]:
    """Every example query, compiled."""
    found = []
    for path in QUERY_FILES:
        file = parse_query_file(path)
        catalog = catalog_beside(path)
        found += [check_query(query, file.source, catalog) for query in file.queries]
    return found


# --- they compile ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SCHEMAS, ids=name_of)
def test_c_sch_024_every_example_schema_is_admitted(path: Path):
    compiled = compile_schema(path)
    assert compiled.catalog.nodes


@pytest.mark.parametrize("path", QUERY_FILES, ids=name_of)
def test_c_qry_080_every_cookbook_query_file_parses_and_type_checks(path: Path):
    report = lint_queries(path, catalog_beside(path))
    assert report.results
    assert [finding.message for finding in report.findings] == []
    assert [result.warnings for result in report.results if result.warnings] == []


def test_no_two_queries_of_an_example_share_a_name():
    for folder in {path.parent for path in QUERY_FILES}:
        names = [
            query.name
            for path in sorted(folder.glob("*.gq"))
            for query in parse_query_file(path).queries
        ]
        assert len(names) == len(set(names))


# --- their data -----------------------------------------------------------------------------------


def records() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The nodes and the edges of the social network's data."""
    text = (EXAMPLES / "social" / "data.jsonl").read_text(encoding="utf-8")
    parsed = [json.loads(line) for line in text.splitlines()]
    return [r for r in parsed if "type" in r], [r for r in parsed if "edge" in r]


def test_example_data_has_the_values_its_schema_wants():
    catalog = compile_schema(EXAMPLES / "social" / "schema.pg").catalog
    nodes, edges = records()
    for record in [*nodes, *edges]:
        holder = (
            catalog.nodes[record["type"]] if "type" in record else catalog.edges[record["edge"]]
        )
        data = record.get("data", {})
        assert data.keys() <= holder.properties.keys()
        for prop in holder.properties.values():
            if prop.default is None or prop.name in data:
                value = property_value(data.get(prop.name), prop.type, prop.name, strict=True)
                allowed = prop.type.enum_values
                assert allowed is None or value is None or value in allowed


def test_example_data_connects_nodes_that_exist():
    catalog = compile_schema(EXAMPLES / "social" / "schema.pg").catalog
    nodes, edges = records()
    ids = {(r["type"], r["data"][catalog.nodes[r["type"]].key[0]]) for r in nodes}
    assert len(ids) == len(nodes)
    for edge in edges:
        declared = catalog.edges[edge["edge"]]
        assert {(declared.source, edge["from"]), (declared.target, edge["to"])} <= ids
    assert {node["type"] for node in nodes} == set(catalog.nodes)
    assert {edge["edge"] for edge in edges} == set(catalog.edges)


# --- they use everything --------------------------------------------------------------------------


def test_examples_use_every_kind_of_the_query_tree():
    seen = kinds_in(map(parse_query_file, QUERY_FILES), query_ast)
    assert seen == kinds_of(query_ast)


def test_examples_use_every_query_feature():
    seen = set().union(*(query_features(parse_query_file(path)) for path in QUERY_FILES))
    assert seen == QUERY_FEATURES


def test_examples_use_every_step_and_expression_of_a_plan():
    compiled = plans()
    assert kinds_in(compiled, plan) == kinds_of(plan)
    assert kinds_in(compiled, expressions) == kinds_of(expressions)


def test_examples_use_every_kind_of_the_schema_tree():
    seen = kinds_in(map(parse_schema, SCHEMAS), schema_ast)
    assert seen == kinds_of(schema_ast)


def test_examples_use_every_schema_feature():
    seen = set().union(*(schema_features(parse_schema(path)) for path in SCHEMAS))
    assert seen == SCHEMA_FEATURES


# --- how a schema evolves -------------------------------------------------------------------------


def test_evolution_shows_every_kind_of_step():
    accepted = compile_schema(EVOLUTION / "v1.pg").ir
    planned = plan_change(accepted, EVOLUTION / "v2.pg").plan
    assert {type(step) for step in planned.steps} == set(get_args(Step))
    assert not planned.supported


def test_evolution_has_a_first_step_that_is_supported():
    accepted = compile_schema(EVOLUTION / "v1.pg").ir
    planned = plan_change(accepted, EVOLUTION / "v2_first_step.pg")
    assert planned.plan.supported
    assert planned.compiled.warnings == ()


def test_evolution_comments_count_the_refused_wishes():
    text = (EVOLUTION / "v2.pg").read_text(encoding="utf-8")
    accepted = compile_schema(EVOLUTION / "v1.pg").ir
    refused = plan_change(accepted, EVOLUTION / "v2.pg").plan.unsupported
    assert "Three wishes" in text
    assert len(refused) == text.lower().count("not supported:") == 3
