"""What `omnigraph load` says: about arguments, branches, problems, keys and progress."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cli.progress import _amount, _tasks
from omnigraph.loading.executors import StageProgress


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("name,age\nada,1\nbo,2\n")
    return path


@pytest.fixture
def load(run, graph: str, people: Path):
    def call(*arguments: object):
        table = ("--node", f"Person={people}", "--mode", "append")
        return run("load", graph, *table, *arguments)

    return call


# --- arguments ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-errors", "0"], "`--max-errors` takes a number from 1 on, not `0`"),
        (["--max-errors", "x"], "`--max-errors` takes a whole number, not `x`"),
        (["--idempotency-key", ""], "`--idempotency-key` is empty"),
        (["--idempotency-key", "k" * 201], "`--idempotency-key` has 201 characters"),
        (["--errors-out", "-"], "`--errors-out` takes a file, not `-`"),
    ],
)
def test_wrong_values_are_told_with_their_flag(load, arguments, message):
    done = load(*arguments)
    assert done.code == 2 and message in done.err
    assert not Path("-").exists()


def test_a_missing_branch_may_be_created_by_the_load(load):
    done = load("--branch", "review")
    assert done.code == 1 and "there is no branch `review`" in done.err
    assert "`--from main`" in done.err


# --- problems ---


def test_c_pip_005_counts_are_printed_and_a_document_has_the_problems(load, people, tmp_path):
    people.write_text("name,age\nada,old\nbo,2\nbo,3\n")
    done = load("--max-errors", "1")
    assert done.code == 1
    assert f"{people}:1: Person.age:" in done.err
    assert "… and 1 more\nby kind: 1 bad_value, 1 repeated_key\n" in done.err
    document = json.loads(load("--json").out)
    assert document["counts"] == {"bad_value": 1, "repeated_key": 1}
    assert document["error"].startswith("the input has 2 problems")
    first, second = document["problems"]
    assert first.keys() >= {"kind", "file", "record", "type", "property", "message", "hint"}
    assert (first["record"], second["record"], first["property"]) == (1, 3, "age")


def test_a_document_has_a_single_problem_and_its_place_as_well(load, people):
    load()
    people.write_text("name,age\nbo,2\n")
    document = json.loads(load("--json").out)
    assert document["error"] == f"{people}:1: node Person with id 'bo' already exists"
    assert document["key_conflict"] == {
        "entity_kind": "node",
        "type_name": "Person",
        "entity_id": "bo",
    }
    (problem,) = document["problems"]
    assert (problem["kind"], problem["file"], problem["record"]) == ("existing_id", str(people), 1)
    assert document["counts"] == {"existing_id": 1}


# --- receipts ---


def test_a_dry_run_with_a_used_key_names_the_commit_that_used_it(load):
    first = json.loads(load("--idempotency-key", "k1", "--json").out)
    done = load("--idempotency-key", "k1", "--dry-run")
    assert "0 entities would be loaded into main" in done.out
    assert f"the key was used before, by commit {first['commit']['graph_commit_id']}" in done.out


def test_a_dry_run_names_the_branch_that_was_asked_for(load):
    assert "2 entities would be loaded into review" in (
        load("--branch", "review", "--from", "main", "--dry-run").out
    )


# --- progress ---


def test_c_pip_034_events_of_a_load_by_threads_count_tasks_rows_and_files(load):
    done = load("--json", "--engine", "local")
    target, *events = done.err.splitlines()
    assert target.startswith("omnigraph load → ")
    chosen, *stages = [json.loads(line) for line in events]
    assert chosen["event"] == "engine"
    plan, read, *_ = stages
    assert (plan["stage"], plan["files"], plan["rows"]) == ("plan", 1, None)
    assert (read["stage"], read["rows"], read["tasks_done"], read["tasks"]) == ("read", 2, 1, 1)


def test_rows_and_rate_are_shown_while_a_stage_runs():
    running = StageProgress("read", 1, 4, 2.0, 3_000)
    assert (_amount(running), _tasks(running)) == ("3,000 rows 1,500/s", "1/4 tasks")
    assert _amount(StageProgress("plan", 0, 0, 0.1, finished=True, files=2)) == "2 files"
    assert _amount(StageProgress("read", 0, 2, 0.1)) == ""
