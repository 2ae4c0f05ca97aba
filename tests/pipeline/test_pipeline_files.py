"""Pipeline files: what is refused before rows are read, what a run does, and what it leaves."""

from __future__ import annotations

import json
import os
import signal
import threading
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.effects.failpoints import VARIABLE, Failpoint, InjectedFault, armed
from omnigraph.embedding.client import mock_vector
from omnigraph.errors import (
    ChecksFailed,
    Conflict,
    EmbeddingError,
    InputError,
    NotFound,
    PipelineInvalid,
    SourceChanged,
)
from omnigraph.graph import Graph
from omnigraph.pipeline.files import Pipeline, PipelineReceipt
from tests.embedding.provider_server import Model, running_provider
from tests.support.forked import Command

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "crm"
PEOPLE = "query q { match { $p: Person } return { $p.email, $p.name } order { $p.email } }"

SCHEMA = """
node Person { email: String @key  name: String  age: I32?  tags: [String]? }
node Note { text: String }
edge Knows: Person -> Person { since: Date?  @key(src, dst) }
edge Likes: Person -> Note
"""

SMALL = """\
version: 1
name: small
graph: graph.omni
sources:
  people: {format: csv, path: people.csv, options: {header: true}}
nodes:
  Person: {from: people, map: {email: email, name: name, age: cast(age as int)}}
"""


NO_CIRCLE = "a transform reads sources and transforms that do not read it"


PENDING: Any = object()


class Workbench:
    """A folder with a graph and a pipeline file, and the shared session to run it in."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder = folder
        self.graph: Graph = og.init(folder / "graph.omni", SCHEMA)
        self.options = og.SparkOptions(session=spark)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def people(self, *rows: str, name: str = "people.csv") -> Path:
        return self.write(name, "\n".join(["email,name,age", *rows, ""]))

    def pipeline(self, text: str = SMALL) -> Pipeline:
        return og.read_pipeline(self.write("pipeline.yaml", text))

    def run(self, text: str = SMALL, **options: Any) -> PipelineReceipt:
        return self.pipeline(text).run(spark=self.options, **options)

    def problems(self, text: str) -> list[tuple[str, str, str, str | None]]:
        """Line and column, key, message and hint of each."""
        with pytest.raises(PipelineInvalid) as wrong:
            self.pipeline(text).validate(spark=self.options)
        return [
            (
                each["place"].partition("pipeline.yaml:")[2],
                each["key"],
                each["message"],
                each["hint"],
            )
            for each in wrong.value.details["problems"]
        ]

    def names(self, branch: str = "main") -> list[str]:
        return [row["p.email"] for row in self.graph.query(PEOPLE, branch=branch).to_pylist()]

    def rows(self, type_name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.graph.table(type_name).to_arrow().to_pylist()
        return found

    def commits(self, branch: str = "main") -> list[str | None]:
        return [commit.kind for commit in self.graph.list_commits(branch)]


@pytest.fixture
def bench(tmp_path: Path, spark: Any) -> Workbench:
    return Workbench(tmp_path, spark)


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


# --- validate -------------------------------------------------------------------------------------


def test_c_pip_026_every_problem_is_told_at_its_line(bench: Workbench):
    bench.people("ada@x,Ada,36")
    bench.write("likes.json", '{"who": "ada@x", "note": 1}\n')
    bench.write("bad.gq", "query q { match { $p: Persn } return { $p.name } }")
    assert bench.problems(
        """\
version: 1
name: wrong
graph: graph.omni
target: {branch: b, from: mian, merge_into: main}
sources:
  people: {format: csv, path: people.csv, options: {header: true}}
  gone: {format: csv, path: nowhere.csv}
  strange: {format: parqet, path: people.csv}
  likes: {format: json, path: likes.json}
transforms:
  older:
    sql: select eamil from people
  unknown:
    sql: select * from poeple
  first: {sql: select * from second}
  second: {sql: select * from first}
  broken: {sql: selec 1}
nodes:
  Persn: {from: people}
checks:
  - {name: a, file: bad.gq}
  - {name: b, file: none.gq}
"""
    ) == [
        ("4:21", "target.from", "there is no branch `mian`", "did you mean 'main'?"),
        (
            "7:23",
            "sources.gone.path",
            f"there is no file at {bench.folder}/nowhere.csv",
            "paths are relative to the folder of the pipeline file",
        ),
        (
            "8:3",
            "sources.strange",
            "Spark has no data source `parqet`",
            "did you mean `parquet`?",
        ),
        ("11:3", "transforms.older", "there is no column `eamil`", "did you mean `email`?"),
        (
            "13:3",
            "transforms.unknown",
            "there is no source, transform or table `poeple`",
            "did you mean `people`?",
        ),
        ("15:3", "transforms.first", "needs itself: first → second → first", NO_CIRCLE),
        ("16:3", "transforms.second", "needs itself: second → first → second", NO_CIRCLE),
        (
            "17:3",
            "transforms.broken",
            "syntax error at 'selec', line 1, column 1 of the SQL",
            None,
        ),
        ("19:3", "nodes.Persn", "there is no node type `Persn`", "did you mean 'Person'?"),
        (
            "21:15",
            "checks[0].file",
            f"{bench.folder}/bad.gq:1:23: type error: T1: unknown node type `Persn`",
            "did you mean `Person`?",
        ),
        (
            "22:15",
            "checks[1].file",
            f"{bench.folder}/none.gq: no such file or directory",
            None,
        ),
    ]


def test_c_pip_026_rows_are_not_read(bench: Workbench, monkeypatch: pytest.MonkeyPatch):
    bench.people("ada@x,Ada,36", "bo@x,Bo,not a number")
    bench.write("notes.json", '{"text": "a"}\n' * 2_000 + "no JSON at all\n")
    text = SMALL.replace("nodes:", "  notes: {format: json, path: notes.json}\nnodes:")
    read: list[str] = []
    monkeypatch.setattr("omnigraph.pipeline.files.inputs._content_digest", read.append)
    report = bench.pipeline(text + "  Note: {from: notes}\n").validate(spark=bench.options)
    assert read == []
    assert report.types == ("node:Person", "node:Note")
    assert "the columns are those of the first lines of" in report.notes[0]
    assert bench.commits() == ["genesis"]


def test_c_pip_026_mappings_are_held_against_the_schema(bench: Workbench):
    bench.people("ada@x,Ada,36")
    pq.write_table(
        pa.table({"who": ["a"], "note": ["b"], "n": [1]}), bench.folder / "likes.parquet"
    )
    assert bench.problems(
        """\
version: 1
name: wrong
graph: graph.omni
sources:
  people: {format: csv, path: people.csv, options: {header: true}}
  likes: {format: parquet, path: likes.parquet}
nodes:
  Person:
    from: people
    where: length(name)
    map: {email: emial, name: shout(name), age: age, tags: name, size: "3"}
  Note: {from: likes, map: {text: n}}
edges:
  Knows: {from: people, src: email}
  Likes: {from: likes, src: who, dst: note}
mode: merge
"""
    ) == [
        ("10:5", "nodes.Person.where", "is of type int, not a condition", None),
        ("11:11", "nodes.Person.map.email", "there is no column `emial`", "did you mean `email`?"),
        (
            "11:25",
            "nodes.Person.map.name",
            "there is no function `shout`",
            "functions are those of Spark SQL",
        ),
        (
            "11:44",
            "nodes.Person.map.age",
            "`age` is string, and Person.age is I32?",
            "write `cast(age as int)`, or `try_cast` to make null of bad values",
        ),
        (
            "11:54",
            "nodes.Person.map.tags",
            "`name` is string, and Person.tags is [String]?",
            "write `split(name, ';')` if it is a list in one text",
        ),
        (
            "11:66",
            "nodes.Person.map.size",
            "Person has no property `size`",
            "the columns of Person are age, email, id, name, tags",
        ),
        (
            "12:29",
            "nodes.Note.map.text",
            "`n` is bigint, and Note.text is String",
            "write `cast(n as string)`, or `try_cast` to make null of bad values",
        ),
        ("14:3", "edges.Knows", "does not say `dst`", "every edge names both its nodes"),
        (
            "15:3",
            "edges.Likes",
            (
                "a merge cannot tell which Likes edges are meant: they have no ids, and the type"
                " has no key, so that every repetition would add parallel edges"
            ),
            (
                "declare `@key(src, dst)` in edge Likes, give the edges ids, or load new edges with"
                " mode append"
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 1\nname: a\nname: b\n", "pipeline.yaml:3:1: duplicate key `name`"),
        ("version: 2\nname: a\nsources: {}\n", "version: `2` is not possible; it is 1"),
        (SMALL.replace("from: people", "fron: people"), "did you mean `from`?"),
        (SMALL.replace("from: people", "from: peple"), "did you mean `people`?"),
        (SMALL.replace("name: small", "name: a b"), "is no name of a pipeline"),
        (SMALL.replace("people:", "the people:"), "is no name of a table"),
        (SMALL + "target: {branch: x, merge_into: x}\n", "cannot be merged into itself"),
        (
            SMALL + "target: {branch: x}\nchecks: [{name: a, file: a.gq}]\n",
            "needs `merge_into` in `target`",
        ),
        (SMALL + "checks: [{name: a, file: a.gq, expect: few}]\n", "`few` is no expectation"),
        (SMALL.replace("format: csv", "format: 3"), "must be a text, not an integer (`3`)"),
        (
            SMALL.replace("path: people.csv", "path: people.csv, incremental: files")
            + "mode: overwrite\n",
            "does not go with `mode: overwrite`",
        ),
    ],
)
def test_the_grammar_is_strict_and_suggests_the_right_word(bench: Workbench, text, expected):
    with pytest.raises(PipelineInvalid) as wrong:
        bench.pipeline(text)
    assert expected in wrong.value.render()
    assert "pipeline.yaml:" in wrong.value.message


# --- checks ---------------------------------------------------------------------------------------

CHECKED = (
    SMALL
    + """\
target: {branch: ingest, from: main, merge_into: main}
checks:
  - {name: grown-up, file: checks.gq, query: young, expect: empty}
  - {name: some, file: checks.gq, query: all, params: {at_least: 1}, expect: nonempty}
"""
)
CHECKS = """
query young() { match { $p: Person  $p.age < 18 } return { $p.email, $p.age } order { $p.email } }
query all($at_least: I32) { match { $p: Person  $p.age >= $at_least } return { $p.email } }
"""


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


def test_a_branch_of_somebody_else_is_not_touched(bench: Workbench):
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


# --- interruptions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failpoint", "resumed"),
    [
        (Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE, False),
        (Failpoint.PIPELINE_POST_LOAD_PRE_CHECKS, True),
        (Failpoint.PIPELINE_POST_CHECKS_PRE_MERGE, True),
    ],
)
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_run_that_failed_half_way_is_completed_exactly_once(
    bench: Workbench, failpoint, resumed, mode
):
    text = SMALL.replace("nodes:", "mode: MODE\nnodes:").replace("MODE", mode) + (
        "  Note: {from: people, map: {text: name}}\n" if mode == "append" else ""
    )
    bench.people("ada@x,Ada,36")
    with armed({failpoint: "error*1"}), pytest.raises(InjectedFault):
        bench.run(text)
    assert bench.names() == []
    receipt = bench.run(text)
    assert (receipt.outcome, receipt.resumed) == ("merged", resumed)
    assert [each.inserted for each in receipt.nodes] == [1] * len(receipt.nodes)
    assert bench.commits() == ["merge", "genesis"]
    assert bench.graph.list_branches() == ["main"]
    assert bench.run(text).outcome == "no_change"
    if mode == "append":
        assert len(bench.rows("Note")) == 1


@pytest.mark.parametrize(
    "failpoint", [Failpoint.PIPELINE_POST_LOAD_PRE_CHECKS, Failpoint.PIPELINE_POST_CHECKS_PRE_MERGE]
)
def test_a_branch_that_is_deleted_during_a_run_ends_it_and_the_next_run_is_a_new_one(
    bench: Workbench, failpoint: Failpoint
):
    bench.people("ada@x,Ada,36")

    def delete(_: Failpoint) -> None:
        bench.graph.delete_branch("pipeline/small")

    with armed({failpoint: delete}), pytest.raises(NotFound, match="pipeline/small"):
        bench.run()
    assert bench.commits() == ["genesis"]
    assert bench.graph.list_branches() == ["main"]
    assert bench.run().outcome == "merged"
    assert bench.names() == ["ada@x"]


def test_a_schema_that_changes_on_main_during_a_run_leaves_no_part_of_it_there(bench: Workbench):
    bench.people("ada@x,Ada,36")

    def change(_: Failpoint) -> None:
        bench.graph.apply_schema(SCHEMA.replace("  age: I32?", ""))

    with (
        armed({Failpoint.PIPELINE_POST_LOAD_PRE_CHECKS: change}),
        pytest.raises(og.errors.OmnigraphError),
    ):
        bench.run()
    assert (bench.names(), bench.commits()) == ([], ["schema", "genesis"])


def test_a_branch_that_was_merged_and_not_deleted_is_deleted_by_the_next_run(bench: Workbench):
    bench.people("ada@x,Ada,36")
    with armed({Failpoint.PIPELINE_POST_MERGE_PRE_DELETE: "error*1"}), pytest.raises(InjectedFault):
        bench.run()
    assert bench.graph.list_branches() == ["main", "pipeline/small"]
    assert bench.run().outcome == "no_change"
    assert bench.graph.list_branches() == ["main"]
    assert bench.commits() == ["merge", "genesis"]


@pytest.mark.parametrize(
    "overtaken", [Failpoint.PIPELINE_POST_LOAD_PRE_CHECKS, Failpoint.PIPELINE_POST_CHECKS_PRE_MERGE]
)
def test_two_runs_at_once_load_and_merge_once(bench: Workbench, overtaken: Failpoint):
    bench.write("checks.gq", CHECKS)
    bench.people("ada@x,Ada,36")
    text = CHECKED.replace("nodes:", "mode: append\nnodes:")
    others: list[PipelineReceipt] = []

    def run_another(_: Failpoint) -> None:
        if not others:
            others.append(PENDING)
            others[0] = bench.run(text)

    with armed({overtaken: run_another}):
        mine = bench.run(text)
    assert (others[0].outcome, others[0].resumed) == ("merged", True)
    assert (mine.outcome, mine.commit) == ("merged", others[0].commit)
    assert mine.notes == ("another run has merged the branch meanwhile",)
    assert bench.commits() == ["merge", "genesis"]
    assert bench.graph.list_branches() == ["main"]


def test_a_run_that_is_killed_at_each_step_is_completed_by_the_next_one(bench: Workbench):
    bench.people("ada@x,Ada,36")
    file = bench.write("pipeline.yaml", SMALL + "  Note: {from: people, map: {text: name}}\n")

    def killed_at(failpoint: Failpoint) -> None:
        armed = {**os.environ, VARIABLE: f"{failpoint}=kill"}
        command = Command("pipeline", "run", file, env=armed)
        _, err = command.communicate()
        assert command.returncode == -signal.SIGKILL, err

    killed_at(Failpoint.PIPELINE_POST_LOAD_PRE_CHECKS)  # only this one reads the sources
    assert bench.commits() == ["genesis"]
    killed_at(Failpoint.PIPELINE_POST_CHECKS_PRE_MERGE)
    assert bench.commits() == ["genesis"]
    killed_at(Failpoint.PIPELINE_POST_MERGE_PRE_DELETE)
    assert bench.graph.list_branches() == ["main", "pipeline/small"]
    assert bench.run(file.read_text()).outcome == "no_change"
    assert bench.graph.list_branches() == ["main"]
    assert bench.commits() == ["merge", "genesis"]
    assert [len(bench.rows(name)) for name in ("Person", "Note")] == [1, 1]


# --- incremental sources --------------------------------------------------------------------------

INCREMENTAL = SMALL.replace("path: people.csv", 'path: "in/*.csv", incremental: files')


def test_only_new_and_changed_files_are_read(bench: Workbench):
    bench.people("ada@x,Ada,36", name="in/1.csv")
    bench.people("bo@x,Bo,20", name="in/2.csv")
    first = bench.run(INCREMENTAL)
    assert [(each.files, each.new) for each in first.sources] == [(2, 2)]
    assert bench.run(INCREMENTAL).outcome == "no_change"
    bench.people("cy@x,Cy,50", name="in/3.csv")
    second = bench.run(INCREMENTAL)
    assert [(each.files, each.new) for each in second.sources] == [(1, 1)]
    assert [each.records_read for each in second.nodes] == [1]
    bench.people("ada@x,Ada,37", name="in/1.csv")
    third = bench.run(INCREMENTAL)
    assert [each.changed for each in third.sources] == [("in/1.csv",)]
    assert third.notes == ("source people: changed since they were loaded: in/1.csv",)
    assert [each.updated for each in third.nodes] == [1]
    (bench.folder / "in/2.csv").unlink()
    assert bench.run(INCREMENTAL).outcome == "no_change"
    assert bench.names() == ["ada@x", "bo@x", "cy@x"]
    assert len(bench.run(INCREMENTAL, full=True).sources[0].changed) == 0


def test_a_changed_file_of_an_appending_pipeline_is_merged(bench: Workbench):
    text = INCREMENTAL + "mode: append\n"
    bench.people("ada@x,Ada,36", name="in/1.csv")
    bench.run(text)
    bench.people("ada@x,Ada,37", "bo@x,Bo,20", name="in/1.csv")
    receipt = bench.run(text)
    assert [(each.inserted, each.updated) for each in receipt.nodes] == [(1, 1)]


def test_only_new_partitions_are_read(bench: Workbench):
    text = SMALL.replace("path: people.csv", "path: in, incremental: partitions").replace(
        "age: cast(age as int)", "age: day"
    )
    for day in (1, 2):
        bench.people(f"d{day}@x,Day,", name=f"in/day={day}/a.csv")
    first = bench.run(text)
    assert sorted(each["age"] for each in bench.rows("Person")) == [1, 2]
    bench.people("d3@x,Day,", name="in/day=3/a.csv")
    bench.people("d4@x,Day,", name="in/day=3/b.csv")
    second = bench.run(text)
    assert [(each.new, each.files) for each in (*first.sources, *second.sources)] == [
        (2, 2),
        (1, 2),
    ]
    assert sorted(each["age"] for each in bench.rows("Person")) == [1, 2, 3, 3]


def test_what_arrives_is_loaded_until_the_pipeline_is_stopped(bench: Workbench):
    stop = threading.Event()
    bench.people("ada@x,Ada,36", name="in/1.csv")
    runs = bench.pipeline(INCREMENTAL).watch(every_seconds=0.01, stop=stop, spark=bench.options)
    assert [each.inserted for each in next(runs).nodes] == [1]
    bench.people("bo@x,Bo,20", name="in/2.csv")
    assert [each.records_read for each in next(runs).nodes] == [1]
    stop.set()
    assert list(runs) == []
    assert bench.names() == ["ada@x", "bo@x"]


# --- bad records and vectors ----------------------------------------------------------------------


def test_bad_records_are_left_out_if_the_file_says_so(bench: Workbench):
    bench.people("ada@x,Ada,36", ",Nobody,3", "bo@x,Bo,20")
    text = SMALL + "on_error: skip\nmax_error_share: 0.5\nerrors_out: bad.jsonl\n"
    receipt = bench.run(text)
    assert receipt.notes == ("1 bad records were left out",)
    assert bench.names() == ["ada@x", "bo@x"]
    (bad,) = (bench.folder / "bad.jsonl").read_text().splitlines()
    assert json.loads(bad)["property"] == "email"


EMBEDDED = """\
version: 1
name: docs
graph: docs.omni
sources:
  docs: {format: csv, path: docs.csv, options: {header: true}}
nodes:
  Doc: {from: docs, map: {slug: slug, text: text}}
embed:
  - {type: Doc, property: meaning}
"""


def test_c_pip_029_embedding_goes_on_after_a_failure_without_repeating_texts(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    schema = "node Doc { slug: String @key  text: String?  meaning: Vector(4)? @embed(text) }"
    graph = og.init(bench.folder / "docs.omni", schema)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_BATCH_TEXTS", "2")
    bench.write("docs.csv", "slug,text\n1,a\n2,b\n3,c\n4,d\n5,\n")
    with running_provider() as provider:
        asked = provider.model = Model()
        monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", provider.url)
        asked.refuses = lambda text: text == "c"
        with pytest.raises(EmbeddingError, match="the text of node '3'"):
            bench.run(EMBEDDED)
        assert sorted(asked.answered) == ["a", "b", "d"]
        asked.refuses = lambda text: False
        receipt = bench.run(EMBEDDED)
        assert sorted(asked.answered) == ["a", "b", "c", "d"]
        (done,) = receipt.embedded
        assert (done.texts, done.characters, done.requests, done.tokens) == (1, 1, 1, 1)
        assert "1 texts, 1 characters, 1 requests" in [each.detail for each in receipt.stages]
        vectors = {row["slug"]: row["meaning"] for row in graph.table("Doc").to_arrow().to_pylist()}
        assert vectors["5"] is None and vectors["3"] == pytest.approx(mock_vector("c", 4))
        assert [commit.kind for commit in graph.list_commits()] == ["merge", "genesis"]
        # Changed texts get new vectors, also those that others changed.
        graph.mutate('query q { update Doc set { text: "z" } where slug = "2" }')
        bench.write("docs.csv", "slug,text\n1,A\n3,c\n6,e\n")
        asked.answered.clear()
        receipt = bench.run(EMBEDDED)
        assert sorted(asked.answered) == ["A", "e", "z"]
        assert [(each.texts, each.stale) for each in receipt.embedded] == [(3, 2)]


def test_texts_that_others_change_while_a_pipeline_embeds_are_found_by_the_next_run(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    schema = "node Doc { slug: String @key  text: String?  meaning: Vector(4)? @embed(text) }"
    graph = og.init(bench.folder / "docs.omni", schema)
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    bench.write("docs.csv", "slug,text\n1,a\n2,b\n")
    bench.run(EMBEDDED)
    bench.write("docs.csv", "slug,text\n3,c\n")
    stopped = armed({Failpoint.PIPELINE_POST_CHECKS_PRE_MERGE: "error*1"})
    with stopped, pytest.raises(InjectedFault):
        bench.run(EMBEDDED)
    # On main, which the branch of the run does not see.
    graph.mutate('query q { update Doc set { text: "B" } where slug = "2" }')
    bench.run(EMBEDDED)
    bench.write("docs.csv", "slug,text\n4,d\n")
    receipt = bench.run(EMBEDDED)
    assert [(each.texts, each.stale) for each in receipt.embedded] == [(2, 1)]
    vectors = {row["slug"]: row["meaning"] for row in graph.table("Doc").to_arrow().to_pylist()}
    assert vectors["2"] == pytest.approx(mock_vector("B", 4))


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
