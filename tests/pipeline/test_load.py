"""Bulk loads on Spark: every check, one commit, nothing by halves."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import (
    Conflict,
    ConstraintViolation,
    InputError,
    KeyConflict,
    NotFound,
)
from omnigraph.graph import ErrorOptions, Graph, SparkOptions
from omnigraph.loading.task_load import TaskLoad
from tests.commit.loading import edge, lines, node

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def write(path: Path, *records: Any) -> Path:
    path.write_bytes(lines(*records))
    return path


def ids(graph: Graph, table_key: str, branch: str | None = None) -> list[str]:
    kind, _, name = table_key.partition(":")
    member = "type" if kind == "node" else "edge"
    records = (json.loads(line) for line in b"".join(graph.export(branch=branch)).splitlines())
    return sorted(each["data"]["id"] for each in records if each.get(member) == name)


@pytest.fixture
def load(graph: Graph, spark: Any) -> Any:
    def run(*paths: Path, **options: Any) -> Any:
        options = {"mode": "append", "grammar": "strict", **options}
        return graph.load(*paths, engine="spark", spark=SparkOptions(spark), **options)

    return run


# --- one commit ---


def test_c_pip_003_several_files_and_types_are_one_commit(graph, load, tmp_path):
    before = graph.list_commits()
    receipt = load(
        write(tmp_path / "b.jsonl", edge("Knows", "p1", "p2"), node("Person", slug="p1")),
        write(tmp_path / "a.jsonl", node("Person", slug="p2"), node("Note", text="x")),
    )
    after = graph.list_commits()
    assert len(after) == len(before) + 1
    assert receipt.commit.graph_commit_id == after[0].graph_commit_id
    assert [(each.name, each.inserted) for each in receipt.nodes] == [("Note", 1), ("Person", 2)]
    assert [stage.name for stage in receipt.stages] == ["plan", "read", "check", "commit"]
    assert all(stage.seconds >= 0 for stage in receipt.stages)


def test_c_wrt_039_a_load_above_the_budget_of_a_process_is_one_commit_of_spark(
    graph, spark, tmp_path, monkeypatch
):
    monkeypatch.setenv("OMNIGRAPH_SPARK_THRESHOLD_BYTES", "150")
    people = [node("Person", slug=f"p{number}", age=1) for number in range(5)]
    few = write(tmp_path / "few.jsonl", node("Person", slug="p0", age=7), people[1])
    many = write(tmp_path / "many.jsonl", *people, edge("Knows", "p1", "p2", id="k1"))
    assert few.stat().st_size <= 150 < many.stat().st_size
    assert graph.load(few, mode="append").engine == "local"
    for mode in ("merge", "overwrite", "append"):
        if mode == "append":
            many = write(tmp_path / "more.jsonl", *(node("Note", text=f"n{n}") for n in range(9)))
        versions, commits = versions_of(graph), graph.list_commits()
        receipt = graph.load(many, mode=mode)
        assert receipt.engine == "spark"
        new, *others = graph.list_commits()
        assert others == commits and new.graph_commit_id == receipt.commit.graph_commit_id
        moved = {name: after - versions[name] for name, after in versions_of(graph).items()}
        wrote = {"Note"} if mode == "append" else {"Person", "Knows"}
        assert moved == {name: int(name in wrote) for name in moved}


def versions_of(graph: Graph) -> dict[str, int]:
    """The version of each table at the head: one more for each transaction."""
    return {each.type_name: each.published_dataset_version for each in graph.snapshot().datasets}


def test_an_empty_input_makes_no_commit(graph, load, tmp_path):
    before = graph.list_commits()
    assert load(write(tmp_path / "a.jsonl")).commit is None
    assert graph.list_commits() == before


def test_the_first_write_of_a_branch_goes_to_its_own_tables(graph, load, tmp_path):
    graph.load(data=lines(node("Person", slug="p1")), mode="append")
    receipt = load(
        write(tmp_path / "a.jsonl", node("Person", slug="p2"), edge("Knows", "p1", "p2")),
        branch="review",
        from_="main",
    )
    assert receipt.branch_created
    assert ids(graph, "node:Person", "review") == ["p1", "p2"]
    assert ids(graph, "node:Person") == ["p1"]
    # And its second one, on tables that exist by then.
    load(write(tmp_path / "b.jsonl", node("Person", slug="p3")), branch="review")
    assert ids(graph, "node:Person", "review") == ["p1", "p2", "p3"]
    assert len(ids(graph, "edge:Knows", "review")) == 1


def test_a_bad_input_leaves_no_branch_behind(graph, load, tmp_path):
    with pytest.raises(InputError):
        load(write(tmp_path / "a.jsonl", "{"), branch="review", from_="main")
    assert graph.list_branches() == ["main"]


# --- problems ---


def test_c_pip_004_every_kind_of_bad_record_is_told_with_its_place(graph, load, tmp_path):
    before = graph.list_commits()
    path = write(
        tmp_path / "a.jsonl",
        node("Person", slug="p1"),
        node("Person", slug="p2", age="old"),
        node("Person", slug="p3", age=500),
        edge("Knows", "p1", "nobody"),
        "{",
    )
    with pytest.raises(InputError, match="the input has 4 problems; nothing was written") as caught:
        load(path)
    told = [
        (each["kind"], each["file"], each["line"], each["type"], each["property"])
        for each in caught.value.details["problems"]
    ]
    assert told == [
        ("bad_value", str(path), 2, "Person", "age"),
        ("constraint", str(path), 3, "Person", "age"),
        ("missing_node", str(path), 4, "Knows", "dst"),
        ("invalid_json", str(path), 5, None, None),
    ]
    assert f"{path}:4: Knows.dst: dst 'nobody' not found in Person" in str(caught.value)
    assert graph.list_commits() == before
    assert not list((tmp_path / "graph.omni").glob("*/*/data/*.lance")), "rows were left behind"


def test_c_pip_004_records_are_counted_over_the_ranges_of_a_large_file(
    graph, load, tmp_path, monkeypatch
):
    monkeypatch.setattr("omnigraph.loading.pieces.TASK_BYTES_MIN", 500)
    records = [node("Person", slug=f"p{i}", age=i % 100) for i in range(100)]
    records[77] = node("Person", slug="p77", age="old")
    records[91] = "{"  # type: ignore[call-overload]
    records[93] = node("Person", slug="p3")
    path = write(tmp_path / "a.jsonl", *records)
    with pytest.raises(InputError) as caught:
        load(path)
    told = [(each["kind"], each["line"]) for each in caught.value.details["problems"]]
    assert told == [("bad_value", 78), ("invalid_json", 92), ("repeated_key", 94)]
    assert "invalid strict JSON at line 92" in str(caught.value)
    assert f"{path}:94" in str(caught.value)


def test_c_pip_005_the_error_file_has_all_problems_and_the_message_the_first(load, tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        *(node("Person", slug=f"p{i}", age="old") for i in range(20)),
        *(edge("Knows", "x", "p1") for _ in range(5)),
    )
    errors = tmp_path / "errors.jsonl"
    with pytest.raises(InputError) as caught:
        load(path, errors=ErrorOptions(3, errors))
    assert [each["line"] for each in caught.value.details["problems"]] == [1, 2, 3]
    assert caught.value.details["counts"] == {"bad_value": 20, "missing_node": 5}
    assert "… and 22 more" in str(caught.value)
    listed = [json.loads(line) for line in errors.read_text().splitlines()]
    assert sorted(each["line"] for each in listed) == list(range(1, 26))
    assert {each["file"] for each in listed} == {str(path)}


def test_c_pip_006_an_id_that_exists_in_the_input_or_the_graph_is_refused(load, tmp_path):
    load(write(tmp_path / "a.jsonl", node("Person", slug="p1")))
    with pytest.raises(KeyConflict, match="p1") as caught:
        load(write(tmp_path / "b.jsonl", node("Person", slug="p2"), node("Person", slug="p1")))
    assert "b.jsonl:2: node Person" in caught.value.message
    twice = [{"type": "Note", "data": {"id": "n", "text": "x"}}] * 2
    with pytest.raises(InputError, match="node Note repeats id 'n'"):
        load(write(tmp_path / "c.jsonl", *twice))


def test_c_pip_007_unique_values_are_held_once_composite_and_dates_included(load, tmp_path):
    load(
        write(
            tmp_path / "a.jsonl",
            node("Person", slug="p1", email="a@x"),
            node("Slot", region="n", code=1, on="2024-02-29", note="a"),
        )
    )
    with pytest.raises(ConstraintViolation, match="value 'a@x' held by 'p1' and 'p2'"):
        load(write(tmp_path / "b.jsonl", node("Person", slug="p2", email="a@x")))
    with pytest.raises(ConstraintViolation, match=r"Slot\.\(note, on\): value '\(a, 19782\)'"):
        load(write(tmp_path / "c.jsonl", node("Slot", region="n", code=2, on=19782, note="a")))
    # Different tuples, and tuples with a null, are nobody's.
    load(
        write(
            tmp_path / "d.jsonl",
            node("Slot", region="n", code=3, on="2024-02-29", note="b"),
            node("Slot", region="n", code=4, note="a"),
            node("Slot", region="n", code=5, note="a"),
        )
    )


def test_c_pip_008_an_end_is_found_in_another_file_in_the_graph_or_nowhere(load, tmp_path):
    load(write(tmp_path / "a.jsonl", node("Person", slug="old")))
    load(
        write(tmp_path / "b.jsonl", edge("Knows", "new", "old"), edge("Knows", "old", "new")),
        write(tmp_path / "c.jsonl", node("Person", slug="new")),
    )
    with pytest.raises(ConstraintViolation, match="src 'none' not found in Person"):
        load(write(tmp_path / "d.jsonl", edge("Knows", "none", "old")))


def test_c_pip_009_cardinality_counts_the_edges_of_input_and_graph(graph, load, tmp_path):
    people = [node("Person", slug=f"p{i}") for i in range(3)]
    note = {"type": "Note", "data": {"id": "n", "text": "x"}}
    load(write(tmp_path / "a.jsonl", *people, note, edge("About", "n", "p0")))
    load(write(tmp_path / "b.jsonl", edge("About", "n", "p1")))
    with pytest.raises(ConstraintViolation, match=r"source 'n' has 3 edges \(max 2\)"):
        load(write(tmp_path / "c.jsonl", edge("About", "n", "p2")))


def test_c_pip_009_a_minimum_is_enforced_for_touched_sources(tmp_path, spark):
    schema = "node A { k: String @key }\nedge E: A -> A @card(2..)"
    graph = omnigraph.init(tmp_path / "g.omni", schema)
    nodes = [node("A", k="a"), node("A", k="b")]
    path = write(tmp_path / "a.jsonl", *nodes, edge("E", "a", "b"))
    with pytest.raises(ConstraintViolation, match=r"source 'a' has 1 edges \(min 2\)"):
        graph.load(path, mode="append", engine="spark", spark=SparkOptions(spark))
    write(path, *nodes, edge("E", "a", "b"), edge("E", "a", "a"))
    graph.load(path, mode="append", engine="spark", spark=SparkOptions(spark))


def test_an_edge_to_a_refused_record_is_not_blamed(load, tmp_path):
    path = write(
        tmp_path / "a.jsonl", node("Person", slug="p1", age="x"), edge("Knows", "p1", "p1")
    )
    with pytest.raises(InputError) as caught:
        load(path)
    assert caught.value.details["property"] == "age"


# --- modes ---


def row_versions(graph: Graph, table_key: str) -> dict[str, tuple[int, int]]:
    handle = graph._opened.reader().handle(table_key)
    columns = ["id", "_rowid", "_row_last_updated_at_version"]
    rows = handle.to_table(columns=columns).to_pylist()
    return {row["id"]: (row[columns[1]], row[columns[2]]) for row in rows}


def slot(code: int, note: str | None = None) -> dict[str, Any]:
    return node("Slot", region="n", code=code, note=note)


def test_c_pip_010_an_upsert_leaves_untouched_and_equal_rows_alone(graph, load, tmp_path):
    load(write(tmp_path / "a.jsonl", *(slot(i, "a") for i in range(4))))
    before = row_versions(graph, "node:Slot")
    path = write(tmp_path / "b.jsonl", slot(1, "b"), slot(2, "a"), slot(9))
    receipt = load(path, mode="merge")
    (count,) = receipt.nodes
    assert (count.inserted, count.updated, count.unchanged, count.records_read) == (1, 1, 1, 3)
    after = row_versions(graph, "node:Slot")
    changed, *kept = (f'["{i}","n"]' for i in (1, 0, 2, 3))
    assert {key for key in before if after[key] == before[key]} == set(kept)
    assert after[changed][0] == before[changed][0], "an updated row keeps its row id"
    assert graph.entity_at("node:Slot", changed)["note"] == "b"
    # Repeated, it changes nothing, and then there is nothing to commit.
    commits = graph.list_commits()
    assert load(path, mode="merge").commit is None
    assert graph.list_commits() == commits
    assert not (tmp_path / "graph.omni" / "__load").exists()


def test_c_pip_011_overwrite_replaces_the_types_present_and_keeps_their_metadata(
    graph, load, tmp_path
):
    people = [node("Person", slug="p1"), node("Person", slug="p2")]
    load(write(tmp_path / "a.jsonl", *people, node("Note", text="x"), edge("Knows", "p1", "p2")))
    before = graph._opened.reader().handle("node:Person").schema
    receipt = load(
        write(tmp_path / "b.jsonl", node("Person", slug="p1"), node("Person", slug="p3")),
        mode="overwrite",
        replace_types=["edge:Knows"],
    )
    assert [(each.name, each.inserted) for each in receipt.edges] == [("Knows", 0)]
    assert ids(graph, "node:Person") == ["p1", "p3"]
    assert len(ids(graph, "node:Note")) == 1
    assert ids(graph, "edge:Knows") == []
    after = graph._opened.reader().handle("node:Person").schema
    assert after.equals(before, check_metadata=True)


def test_c_pip_011_overwrite_may_not_strand_kept_edges(graph, load, tmp_path):
    people = [node("Person", slug="p1"), node("Person", slug="p2")]
    load(write(tmp_path / "a.jsonl", *people, edge("Knows", "p1", "p2")))
    with pytest.raises(ConstraintViolation, match="ends at Person 'p2', which this load removes"):
        load(write(tmp_path / "b.jsonl", node("Person", slug="p1")), mode="overwrite")


# --- dry runs, keys, branches that move ---


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_dry_run_says_what_would_be_written_and_writes_nothing(graph, load, tmp_path, mode):
    before = sorted((tmp_path / "graph.omni").rglob("*"))
    path = write(tmp_path / "a.jsonl", node("Person", slug="p1"), edge("Knows", "p1", "p1", id="k"))
    receipt = load(path, mode=mode, dry_run=True)
    assert receipt.to_dict()["dry_run"] is True
    assert (receipt.commit, receipt.to_dict()["inserted"]) == (None, 2)
    assert sorted((tmp_path / "graph.omni").rglob("*")) == before
    with pytest.raises(InputError, match="not found in Person"):
        load(write(path, edge("Knows", "p1", "p1", id="k")), mode=mode, dry_run=True)


def test_c_pip_015_the_same_key_returns_the_first_receipt(graph, load, tmp_path):
    path = write(tmp_path / "a.jsonl", node("Person", slug="p1"))
    first = load(path, operation_id="nightly-1")
    second = load(path, operation_id="nightly-1")
    assert second.commit == first.commit
    assert second.nodes == first.nodes
    assert len(graph.list_commits()) == 2
    write(path, node("Person", slug="p2"))
    with pytest.raises(Conflict, match="'nightly-1' was already used for a load of another input"):
        load(path, operation_id="nightly-1")
    # One key means one load, whichever engine runs it.
    write(path, node("Person", slug="p1"))
    assert graph.load(path, mode="append", operation_id="nightly-1").commit == first.commit


def moved_once(monkeypatch: pytest.MonkeyPatch, move: Any) -> list[int]:
    """Have ``move`` run after the first check of a load; the list counts the checks."""
    checks: list[int] = []
    real = TaskLoad._check

    def check(self: Any, job: Any, staged: Any) -> None:
        real(self, job, staged)
        checks.append(1)
        if len(checks) == 1:
            move()

    monkeypatch.setattr(TaskLoad, "_check", check)
    return checks


def in_another_thread(work: Any) -> Any:
    def run() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    return run


def test_a_load_whose_branch_moved_is_checked_again_and_not_read_again(
    graph, load, tmp_path, monkeypatch
):
    other = omnigraph.open(tmp_path / "graph.omni")
    move = in_another_thread(
        lambda: other.load(data=lines(node("Person", slug="p2", email="b@x")), mode="append")
    )
    checks = moved_once(monkeypatch, move)
    load(write(tmp_path / "a.jsonl", node("Person", slug="p1", email="a@x")))
    assert len(checks) == 2
    assert ids(graph, "node:Person") == ["p1", "p2"]


def test_a_load_whose_branch_moved_is_held_against_what_came(graph, load, tmp_path, monkeypatch):
    other = omnigraph.open(tmp_path / "graph.omni")
    move = in_another_thread(
        lambda: other.load(data=lines(node("Person", slug="p2", email="a@x")), mode="append")
    )
    moved_once(monkeypatch, move)
    with pytest.raises(ConstraintViolation, match="value 'a@x' held by 'p2' and 'p1'"):
        load(write(tmp_path / "a.jsonl", node("Person", slug="p1", email="a@x")))
    assert ids(graph, "node:Person") == ["p2"]


def test_an_overwrite_whose_branch_moved_gets_the_conflict(graph, load, tmp_path, monkeypatch):
    other = omnigraph.open(tmp_path / "graph.omni")
    move = in_another_thread(
        lambda: other.load(data=lines(node("Person", slug="p2")), mode="append")
    )
    moved_once(monkeypatch, move)
    with pytest.raises(Conflict):
        load(write(tmp_path / "a.jsonl", node("Person", slug="p1")), mode="overwrite")
    assert ids(graph, "node:Person") == ["p2"]


def test_a_branch_that_was_deleted_meanwhile_is_told_as_such(graph, load, tmp_path, monkeypatch):
    graph.create_branch("review")
    other = omnigraph.open(tmp_path / "graph.omni")
    moved_once(monkeypatch, in_another_thread(lambda: other.delete_branch("review")))
    with pytest.raises((Conflict, NotFound)):
        load(write(tmp_path / "a.jsonl", node("Person", slug="p1")), branch="review")
    assert graph.list_branches() == ["main"]


# --- workers that fail ---

PEOPLE = "slug string, age int"


def people(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([f"p{i}" for i in range(count)]), pa.array(range(count), pa.int32())],
        names=["slug", "age"],
    )


def test_c_pip_012_a_repeated_task_leaves_no_row_twice(graph, load, spark, tmp_path):
    marker = tmp_path / "failed"

    def fails_late_once(batches):
        import time

        yield people(100)
        if not marker.exists():
            marker.touch()
            time.sleep(0.5)  # the writer has begun by then
            raise RuntimeError("the first attempt")
        yield from ()

    frame = spark.range(0, 1, 1, 1).mapInArrow(fails_late_once, PEOPLE)
    receipt = load(frames={"Person": frame})
    assert marker.exists()
    assert receipt.nodes[0].inserted == 100
    assert len(ids(graph, "node:Person")) == 100


def test_c_pip_013_a_killed_worker_changes_nothing_in_the_result(graph, load, spark, tmp_path):
    marker = tmp_path / "killed"

    def dies_once(batches):
        import os
        import signal

        for _ in batches:
            yield people(100)
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    frame = spark.range(0, 1, 1, 1).mapInArrow(dies_once, PEOPLE)
    load(frames={"Person": frame})
    assert marker.exists()
    assert len(ids(graph, "node:Person")) == 100


def test_a_task_that_fails_for_good_fails_the_load_with_its_cause(graph, load, spark):
    def fails(batches):
        yield from (1 / 0 for _ in batches)

    frame = spark.range(0, 1, 1, 1).mapInArrow(fails, PEOPLE)
    with pytest.raises(omnigraph.errors.StorageError, match="division by zero"):
        load(frames={"Person": frame})
    assert len(graph.list_commits()) == 1


def test_minted_ids_are_the_same_when_a_task_is_run_again():
    from omnigraph.loading.records.ids import Minting
    from omnigraph.model.ids import is_ulid

    minting = Minting("01M7GT798FH8TVN8KZ6Q3YB5XC")
    first = minting.ids(7, [1, 2, 10**9]).to_pylist()
    assert first == minting.ids(7, pa.array([1, 2, 10**9])).to_pylist()
    assert len({*first, *minting.ids(8, [1, 2]).to_pylist()}) == 5
    assert all(is_ulid(each) and each.startswith(minting.prefix) for each in first)
    assert first == sorted(first)
    with pytest.raises(OverflowError):
        minting.ids(7, [32**6])
