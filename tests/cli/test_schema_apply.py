"""`omnigraph schema plan` and `omnigraph schema apply` on a graph."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.conftest import PEOPLE, SCHEMA, Run

DESIRED = SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")  rank: I32?')
STEPS = [
    "  + add property node:Person.rank: I32?",
    "  ~ rename property node:Person.age to years",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    og.init(tmp_path / "team.omni", SCHEMA).load(data=PEOPLE, mode="append")
    return tmp_path / "team.omni"


@pytest.fixture
def desired(tmp_path: Path) -> Path:
    path = tmp_path / "new.pg"
    path.write_text(DESIRED)
    return path


def test_plan_starts_from_the_schema_of_a_graph_and_changes_nothing(
    run: Run, root: Path, desired: Path
) -> None:
    done = run("schema", "plan", root, "--schema", desired)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{root} → {desired}",
        "",
        *STEPS,
        "",
        "2 steps, all supported",
    ]
    document = json.loads(run("schema", "plan", root, "--schema", desired, "--json").out)
    assert list(document) == ["uri", "supported", "step_count", "steps"]
    assert document["uri"] == str(root)
    assert og.open(root).schema_source == SCHEMA


def test_plan_takes_one_place_to_start_from(run: Run, root: Path, desired: Path) -> None:
    done = run("schema", "plan", "--store", root, "--from", desired, "--schema", desired)
    assert done.code == 2
    assert "not from both" in done.err


def test_apply_announces_the_graph_and_lists_what_it_did(
    run: Run, root: Path, desired: Path
) -> None:
    done = run("schema", "apply", root, "--schema", desired)
    assert done.code == 0
    assert done.err == f"omnigraph schema apply → {root} (direct, local)\n"
    assert done.out.splitlines() == [f"{root} → {desired}", "", *STEPS, "", "2 steps applied"]
    assert run("schema", "show", root).out == DESIRED
    again = run("schema", "apply", root, "--schema", desired)
    assert again.out.splitlines()[-1] == "nothing to do: the graph has this schema already"


def test_apply_of_a_constraint_that_data_breaks_names_the_entities(
    run: Run, root: Path, tmp_path: Path
) -> None:
    strict = tmp_path / "strict.pg"
    strict.write_text(SCHEMA.replace("age: I32?", "age: I32? @range(age, ..20)"))
    done = run("schema", "apply", root, "--schema", strict, "--json")
    assert done.code == 1
    document = json.loads(done.out)
    assert "cannot add @range(age, ..20) to node:Person" in document["error"]
    assert "'ada': @range violation on Person.age: value 36 > max 20" in document["error"]
    assert [problem["entity_id"] for problem in document["problems"]] == ["ada"]
    plan = run("schema", "plan", root, "--schema", strict)
    step = "  + add constraint @range(age, ..20) to node:Person (stored data is checked, OG-MF-107)"
    assert step in plan.out.splitlines()
    assert og.open(root).schema_source == SCHEMA


def test_apply_as_json_has_the_members_of_the_contract(run: Run, root: Path, desired: Path) -> None:
    done = run("--as", "act-ana", "schema", "apply", root, "--schema", desired, "--json")
    document = json.loads(done.out)
    assert set(document) == {
        "uri",
        "supported",
        "applied",
        "step_count",
        "graph_manifest_version",
        "steps",
    }
    assert (document["applied"], document["step_count"]) == (True, 2)
    assert og.open(root).list_commits()[0].actor_id == "act-ana"


def test_an_unsupported_change_fails_and_leaves_the_graph(
    run: Run, root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.pg"
    path.write_text(SCHEMA.replace("age: I32?", "age: String?"))
    done = run("schema", "apply", root, "--schema", path)
    assert done.code == 1
    assert "[OG-MF-106]" in done.err
    assert og.open(root).schema_source == SCHEMA


def test_data_loss_has_to_be_allowed_to_be_final(run: Run, root: Path, tmp_path: Path) -> None:
    path = tmp_path / "less.pg"
    path.write_text(SCHEMA.replace("  age: I32?", ""))
    done = run("schema", "apply", root, "--schema", path, "--allow-data-loss", "--json")
    assert [step["mode"] for step in json.loads(done.out)["steps"]] == ["hard"]


def test_a_schema_that_does_not_compile_is_shown_with_its_place(
    run: Run, root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.pg"
    path.write_text("node A { a: Vector(0) }\n")
    done = run("schema", "apply", root, "--schema", path)
    assert done.code == 1
    assert f"{path}:1:20: parse error" in done.err
