"""Pipeline files: interrupted runs, incremental sources, and records and vectors that fail."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any

import pytest

import omnigraph as og
from omnigraph.effects.failpoints import VARIABLE, Failpoint, InjectedFault, armed
from omnigraph.embedding.client import mock_vector
from omnigraph.errors import (
    EmbeddingError,
    NotFound,
)
from omnigraph.pipeline.files import PipelineReceipt
from tests.embedding.provider_server import Model, running_provider
from tests.pipeline.workbench import CHECKED, CHECKS, SCHEMA, SMALL, Workbench
from tests.support.forked import Command

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PENDING: Any = object()


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
