"""Pipeline files: what a run does, and what it leaves."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.errors import (
    ChecksFailed,
    Conflict,
    InputError,
    SourceChanged,
)
from tests.pipeline.workbench import CHECKED, CHECKS, SCHEMA, SMALL, Workbench

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "crm"


# --- the example ----------------------------------------------------------------------------------


def test_c_pip_028_the_example_merges_three_sources_in_one_commit_and_then_changes_nothing(
    tmp_path: Path, spark: Any
):
    graph = og.init(tmp_path / "crm.omni", EXAMPLE / "schema.pg")
    pipeline = og.read_pipeline(EXAMPLE / "crm.yaml", graph=graph)
    options = og.SparkOptions(session=spark)
    before = len(graph.list_commits())
    first = pipeline.run(spark=options, actor="nightly")
    assert first.outcome == "merged"
    assert {each.name: each.inserted for each in (*first.nodes, *first.edges)} == {
        "Company": 3,
        "Person": 7,
        "ReportsTo": 4,
        "WorksAt": 7,
    }
    assert [check.passed for check in first.checks] == [True, True, True]
    assert graph.list_branches() == ["main"]
    newest, *older = graph.list_commits()
    assert (newest.kind, newest.actor_id, len(older)) == ("merge", "nightly", before)
    assert newest == first.commit
    (ada,) = graph.query(
        'query q { match { $p: Person { email: "ada@northwind.example" } }'
        " return { $p.name, $p.joined, $p.skills } }"
    ).to_pylist()
    assert ada == {
        "p.name": "Ada Okafor",
        "p.joined": date(2020, 1, 1),
        "p.skills": ["graphs", "spark"],
    }
    second = pipeline.run(spark=options)
    assert (second.outcome, second.commit) == ("no_change", first.commit)
    assert len(graph.list_commits()) == before + 1


def test_the_commit_keeps_inputs_counts_and_seconds(bench: Workbench):
    bench.people("ada@x,Ada,36", "bo@x,Bo,")
    receipt = bench.run()
    assert receipt.commit is not None and receipt.commit.metadata is not None
    kept = receipt.commit.metadata["pipeline"]
    assert (kept["name"], kept["load_commit_id"]) == ("small", receipt.load_commit_id)
    people = kept["sources"]["people"]
    assert (people["format"], people["files"], people["bytes"]) == ("csv", 1, 37)
    assert kept["nodes"][0]["inserted"] == 2
    assert kept["seconds"]["load"] > 0
    assert (
        bench.graph.show_commit(receipt.commit.graph_commit_id).metadata == receipt.commit.metadata
    )


# --- checks ---------------------------------------------------------------------------------------


def test_c_pip_027_a_failed_check_keeps_the_branch_names_the_rows_and_leaves_the_target_alone(
    bench: Workbench, capsys: pytest.CaptureFixture[str]
):
    bench.write("checks.gq", CHECKS)
    bench.people("ada@x,Ada,36", "kid@x,Kid,7")
    before = bench.graph.snapshot().graph_commit_id
    with pytest.raises(ChecksFailed) as failed:
        bench.run(CHECKED)
    assert failed.value.message.splitlines() == [
        "1 of 2 checks failed on branch `ingest`; `main` is as it was",
        "check grown-up expects empty, and found 1 rows",
        "  p.email: kid@x, p.age: 7",
    ]
    assert bench.graph.snapshot().graph_commit_id == before
    assert bench.graph.list_branches() == ["ingest", "main"]
    assert bench.names("ingest") == ["ada@x", "kid@x"]
    capsys.readouterr()
    assert main(["pipeline", "run", str(bench.folder / "pipeline.yaml"), "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["checks_failed"]["checks"][0]["sample"] == [{"p.email": "kid@x", "p.age": 7}]


def test_c_pip_027_a_failed_check_opens_a_review_if_asked_whose_merge_ends_the_run(
    bench: Workbench,
):
    text = CHECKED.replace("merge_into: main}", "merge_into: main, on_failed_check: review}")
    bench.write("checks.gq", CHECKS)
    bench.people("ada@x,Ada,36", "kid@x,Kid,7")
    told = []
    for _ in range(2):  # the second attempt finds the review of the first
        with pytest.raises(ChecksFailed) as failed:
            bench.run(text)
        told.append(failed.value.details["review_id"])
    reviews = bench.graph.reviews
    (listed,) = reviews.list()
    assert told == [listed.id] * 2 and f"review show {listed.id}" in (failed.value.hint or "")
    review = reviews.get(listed.id)
    assert review.title == "Pipeline small: 1 of 2 checks failed"
    assert [(each.name, each.state, each.text) for each in review.checks] == [
        ("grown-up", "failed", "1 row, expected empty"),
        ("some", "passed", "2 rows"),
    ]
    assert review.checks[0].rows == ({"p.email": "kid@x", "p.age": 7},)
    # The same checks, run for the review from the pipeline file.
    again = reviews.check(review.id, checks=bench.folder / "pipeline.yaml", again=True)
    assert [(each.name, each.state) for each in again.checks] == [
        ("grown-up", "failed"),
        ("some", "passed"),
    ]
    reviews.merge(review.id)
    receipt = bench.run(text)
    assert (receipt.outcome, receipt.resumed) == ("merged", True)
    assert "was merged into main after a review" in receipt.notes[-1]
    assert bench.names() == ["ada@x", "kid@x"] and bench.graph.list_branches() == ["main"]


def test_a_branch_that_was_mended_by_hand_is_merged_by_the_next_run(bench: Workbench):
    bench.write("checks.gq", CHECKS)
    bench.people("ada@x,Ada,36", "kid@x,Kid,7")
    with pytest.raises(ChecksFailed):
        bench.run(CHECKED)
    bench.graph.mutate('query q { delete Person where email = "kid@x" }', branch="ingest")
    receipt = bench.run(CHECKED)
    assert (receipt.outcome, receipt.resumed) == ("merged", True)
    assert bench.names() == ["ada@x"]
    assert bench.graph.list_branches() == ["main"]


def test_a_branch_whose_sources_were_mended_is_replaced(bench: Workbench):
    bench.write("checks.gq", CHECKS)
    bench.people("ada@x,Ada,36", "kid@x,Kid,7")
    with pytest.raises(ChecksFailed):
        bench.run(CHECKED)
    bench.people("ada@x,Ada,36", "kid@x,Kid,19")
    receipt = bench.run(CHECKED)
    assert (receipt.outcome, receipt.resumed) == ("merged", False)
    assert receipt.notes == ("replaced branch ingest of an earlier run, which was not merged",)
    assert bench.commits() == ["merge", "genesis"]


def test_a_branch_that_another_actor_made_is_not_touched(bench: Workbench):
    bench.people("ada@x,Ada,36")
    bench.graph.create_branch("pipeline/small")
    bench.graph.mutate(
        'query q { insert Person { email: "z@x", name: "Z" } }', branch="pipeline/small"
    )
    with pytest.raises(Conflict, match="has commits that this pipeline did not write"):
        bench.run()
    assert bench.names("pipeline/small") == ["z@x"]


# --- runs -----------------------------------------------------------------------------------------


def test_a_change_of_sources_or_of_the_file_is_loaded_and_anything_else_is_not(bench: Workbench):
    path = bench.people("ada@x,Ada,36")
    assert bench.run().outcome == "merged"
    path.touch()
    assert bench.run().outcome == "no_change"  # the time of the file changed, its content did not
    assert bench.run("# a comment\n" + SMALL).outcome == "no_change"
    bench.people("ada@x,Ada,37", "bo@x,Bo,20")
    changed = bench.run()
    assert [(each.inserted, each.updated) for each in changed.nodes] == [(1, 1)]
    other = bench.run(SMALL.replace("name: name", "name: upper(name)"))
    assert [each.updated for each in other.nodes] == [2]
    bench.people("ada@x,Ada,36")
    assert bench.run().outcome == "merged"  # as it was at first, but not as it was last
    assert bench.run(full=True).notes == ("all rows were there already",)
    assert bench.graph.list_branches() == ["main"]


def test_a_file_without_a_branch_to_merge_into_loads_its_branch_once(bench: Workbench):
    bench.people("ada@x,Ada,36")
    text = SMALL + "target: {branch: staging, from: main}\nmode: append\n"
    assert bench.run(text).outcome == "loaded"
    assert bench.run(text).outcome == "no_change"
    assert bench.names("staging") == ["ada@x"]
    assert bench.commits("staging") == ["load", "genesis"]
    assert bench.names() == []


def test_transforms_are_run_in_the_order_they_need_and_sources_of_all_formats_are_read(
    bench: Workbench, spark: Any
):
    bench.people("ada@x,Ada,36", "bo@x,Bo,20")
    other = og.init(bench.folder / "other.omni", SCHEMA)
    other.load(data='{"type": "Note", "data": {"text": "hello"}}', mode="append")
    people = pa.table({"email": ["cy@x"], "name": ["Cy"], "age": pa.array([50], pa.int32())})
    from pyarrow import orc

    orc.write_table(people, bench.folder / "people.orc")
    pq.write_to_dataset(
        pa.table({"a": ["ada@x", "cy@x"], "b": ["bo@x", "ada@x"], "year": [2020, 2021]}),
        bench.folder / "knows",
        partition_cols=["year"],
    )
    spark.sql("select 'dee@x' as email, 'Dee' as name").createOrReplaceGlobalTempView(
        "people_table"
    )
    text = """\
version: 1
name: formats
graph: graph.omni
mode: append
sources:
  csv_people: {format: csv, path: people.csv, options: {header: true}}
  orc_people: {format: orc, path: people.orc}
  table_people: {format: table, table: global_temp.people_table}
  knows: {format: parquet, path: knows}
  notes: {format: omnigraph, path: other.omni, options: {type: Note}}
transforms:
  everybody:
    sql: select * from grown union all select email, name, null from table_people
  grown: {sql: "select email, name, cast(age as int) as age from csv_people where age >= 18"}
nodes:
  Person:
    - {from: everybody, map: {email: email, name: name, age: age}}
    - {from: orc_people, map: {email: email, name: name, age: age}}
  Note: {from: notes, map: {text: upper(text)}}
edges:
  Knows: {from: knows, src: a, dst: b, map: {since: "make_date(year, 1, 1)"}}
"""
    receipt = bench.run(text)
    assert bench.names() == ["ada@x", "bo@x", "cy@x", "dee@x"]
    assert "source table_people: whether it changed is not known, so it is always read" in (
        receipt.notes
    )
    notes, knows = bench.rows("Note"), bench.rows("Knows")
    assert [each["text"] for each in notes] == ["HELLO"]
    assert sorted((each["src"], each["since"].year) for each in knows) == [
        ("ada@x", 2020),
        ("cy@x", 2021),
    ]


def test_bad_rows_are_told_and_nothing_is_left(bench: Workbench):
    bench.people("ada@x,Ada,36", ",Nobody,3")
    with pytest.raises(InputError, match="email"):
        bench.run()
    bench.people("ada@x,Ada,36", "bo@x,Bo,old")
    with pytest.raises(InputError) as wrong:
        bench.run()
    assert "'old'" in wrong.value.message and "try_cast" in (wrong.value.hint or "")
    assert "pipeline.yaml:7:" in wrong.value.message
    assert bench.graph.list_branches() == ["main"]
    assert bench.commits() == ["genesis"]


def test_a_source_that_changes_during_the_run_is_refused(bench: Workbench):
    path = bench.people("ada@x,Ada,36")

    def change(progress: Any) -> None:
        if progress.stage == "read":
            path.write_text("email,name,age\nada@x,Ada,99\n")

    with pytest.raises(SourceChanged, match=r"people.csv of source `people` changed"):
        bench.run(observer=og.LoadObserver(on_stage=change))
    assert bench.graph.list_branches() == ["main"]


# --- files of other systems -----------------------------------------------------------------------

FOREIGN = """\
version: 1
name: foreign
graph: graph.omni
sources:
  people:
    format: csv
    path: people.txt
    options: {header: true, sep: "|", quote: "'", comment: "#", nullValue: "n/a"}
  ties: {format: csv, path: ties.tsv, options: {sep: "\\t"}, schema: "a string, b string, at long"}
nodes:
  Person:
    from: people
    where: "`Still here` = 'yes' and cast(Age as int) >= 18"
    map:
      email: lower(trim(`E-Mail`))
      name: "`Full name`"
      age: cast(Age as int)
      tags: "split(Labels, ' *; *')"
edges:
  Knows:
    from: ties
    where: at > 0
    src: lower(a)
    dst: lower(b)
    map: {since: to_date(timestamp_millis(at))}
"""


def test_c_pip_038_a_pipeline_file_reads_delimiters_lists_renamed_headers_epochs_and_filters(
    bench: Workbench,
):
    """What files of other systems needed rewriting for, in one file and without rewriting."""
    bench.write(
        "people.txt",
        "# exported\n"
        "E-Mail|Full name|Age|Labels|Still here\n"
        " Ada@X |'Ada | the first'|36|maths; engines|yes\n"
        "bo@x|Bo|n/a|poems|yes\n"
        "cy@x|Cy|40|n/a|yes\n"
        "di@x|Di|50|chess|no\n",
    )
    bench.write("ties.tsv", "ADA@x\tcy@x\t1577836800000\ncy@x\tada@x\t-1\n")
    receipt = bench.run(FOREIGN)
    assert [(each.name, each.inserted) for each in (*receipt.nodes, *receipt.edges)] == [
        ("Person", 2),
        ("Knows", 1),
    ]
    people = sorted(bench.rows("Person"), key=lambda row: row["email"])
    assert [{name: row[name] for name in ("email", "name", "age", "tags")} for row in people] == [
        {"email": "ada@x", "name": "Ada | the first", "age": 36, "tags": ["maths", "engines"]},
        {"email": "cy@x", "name": "Cy", "age": 40, "tags": None},
    ]
    (tie,) = bench.rows("Knows")
    assert (tie["src"], tie["dst"], str(tie["since"])) == ("ada@x", "cy@x", "2020-01-01")


# --- the command ----------------------------------------------------------------------------------


def test_the_commands_tell_what_is_there_what_would_be_done_and_what_was(
    bench: Workbench, capsys: pytest.CaptureFixture[str]
):
    bench.people("ada@x,Ada,36", "bo@x,,20")
    file = str(bench.write("pipeline.yaml", SMALL))

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["pipeline", *words])
        return code, *capsys.readouterr()

    code, out, _ = call("validate", file)
    assert (code, "is valid for" in out) == (0, True)
    code, out, _ = call("plan", file, "--json")
    planned = json.loads(out)
    assert (code, planned["outcome"], planned["reason"]) == (0, "load", "it has not run yet")
    assert planned["rows"][0]["nulls"] == {"name": 1}
    assert planned["stages"][-1] == "delete pipeline/small"
    bench.people("ada@x,Ada,36")
    code, out, err = call("run", file, "--as", "nightly")
    assert code == 0, err
    assert "load: 1 rows into pipeline/small" in err
    assert "merged pipeline/small into main: commit" in out
    code, out, _ = call("run", file)
    assert (code, "no change: the file and its sources are as in commit" in out) == (0, True)
    code, out, _ = call("run", file, "--json")
    assert (code, json.loads(out)["outcome"]) == (0, "no_change")
    code, out, _ = call("plan", file)
    assert "nothing to do: no change since commit" in out
    code, out, _ = call("init", str(bench.folder / "new.yaml"), str(bench.folder / "people.csv"),
                        "--store", bench.graph.uri)  # fmt: skip
    assert code == 0
    assert og.read_pipeline(bench.folder / "new.yaml").validate(spark=bench.options).types == (
        "node:Person",
    )
    assert call("init", str(bench.folder / "new.yaml"), "--store", bench.graph.uri)[0] == 2
    bench.write("pipeline.yaml", SMALL.replace("Person", "Persn"))
    code, out, err = call("validate", file, "--json")
    assert code == 1
    assert json.loads(out)["problems"][0]["hint"] == "did you mean 'Person'?"
