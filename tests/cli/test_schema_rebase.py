"""`schema rebase` and `schema show --branch`, as people and programs see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og

OLD = "node Bed { name: String @key  area: I32? }\n"
NEW = 'node Bed { name: String @key  size: I64? @rename_from("area")  level: I32 @default(1) }\n'


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A graph with a branch that wrote to beds, before main got another schema."""
    graph = og.init(tmp_path / "beds.omni", OLD)
    graph.create_branch("review")
    graph.mutate('query q { insert Bed { name: "roses", area: 4 } }', branch="review")
    graph.apply_schema(NEW)
    return graph.uri


def test_a_rebase_lists_its_steps_and_then_takes_them(run, uri: str) -> None:
    planned = run("schema", "rebase", "review", "--uri", uri, "--dry-run")
    assert planned.code == 0
    assert planned.out.splitlines() == [
        "review → the schema of main",
        "",
        "  + add property node:Bed.level: I32 with default 1",
        "  ~ rename property node:Bed.area to size",
        "  ~ widen property node:Bed.size from I32? to I64?",
        "",
        "3 steps to take",
    ]
    done = run("schema", "rebase", "review", "--uri", uri)
    assert done.out.splitlines()[-1] == "review has the schema of main: 3 steps"
    again = run("schema", "rebase", "review", "--uri", uri, "--json")
    document = json.loads(again.out)
    assert (document["applied"], document["step_count"], document["branch"]) == (False, 0, "review")


def test_the_schema_of_a_branch_is_shown(run, uri: str) -> None:
    assert run("schema", "show", uri).out == NEW
    assert run("schema", "show", uri, "--branch", "review").out == OLD
    document = json.loads(run("schema", "show", uri, "--branch", "review", "--json").out)
    assert document == {"schema_source": OLD}


def test_what_would_be_lost_is_named_with_the_flag_that_drops_it(run, uri: str) -> None:
    og.open(uri).apply_schema("node Bed { name: String @key  level: I32 @default(1) }")
    refused = run("schema", "rebase", "review", "--uri", uri)
    assert refused.code != 0
    assert "main has dropped what branch review has written to: node:Bed.area" in refused.err
    assert "--allow-data-loss" in refused.err
    merged = run("branch", "merge", "review", "--uri", uri)
    assert "omnigraph schema rebase review --allow-data-loss" in merged.err
    done = run("schema", "rebase", "review", "--uri", uri, "--allow-data-loss")
    assert "drops what the branch wrote: node:Bed.area" in done.out
    assert run("branch", "merge", "review", "--uri", uri).code == 0


def test_a_merge_plan_says_that_the_schema_is_older(run, uri: str) -> None:
    plan = run("branch", "merge", "review", "--uri", uri, "--dry-run").out
    assert "review has an older schema; what is merged gets: add property" in plan
