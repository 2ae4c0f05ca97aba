"""Streams of Spark: micro-batches into a graph, once each, and the change feed out of it."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

import omnigraph
from bench.streams import Sizes, measure_all
from omnigraph.errors import (
    ChangeFeedGap,
    InputError,
    KeyConflict,
    MergeConflicts,
    NotFound,
    OmnigraphError,
    PolicyDenied,
)
from omnigraph.graph import Graph
from omnigraph.pipeline.data_source.source import OmnigraphSource
from omnigraph.pipeline.streaming import failure_of
from omnigraph.pipeline.streaming.feed import FeedReader
from omnigraph.policy import load_policy
from tests.commit.loading import edge, lines, node
from tests.pipeline import crash_stream

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PERSON = "slug string, age int"
NOW: dict[str, Any] = {"available_now": True}


class Inbox:
    """A folder that a stream reads, one file a batch, in the order they were put there."""

    def __init__(self, folder: Path, columns: str = PERSON) -> None:
        self.folder = folder / "inbox"
        self.folder.mkdir()
        self.checkpoint = folder / "checkpoint"
        self._columns = columns
        self._files = 0

    def put(self, *rows: Mapping[str, Any]) -> None:
        self._files += 1
        path = self.folder / f"{self._files:03}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (self._files, self._files))  # Spark takes the oldest first

    def frame(self, spark: Any) -> Any:
        reading = spark.readStream.schema(self._columns).option("maxFilesPerTrigger", 1)
        return reading.json(str(self.folder))

    def forget_last_batch(self) -> None:
        """As if the driver had ended after the batch was written, and before it was noted."""
        self.forget(self.entries("commits")[-1])

    def forget(self, entry: Path) -> None:
        """As if the driver had ended before it wrote this entry of a log of its checkpoint."""
        entry.unlink()
        entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)

    def entries(self, log: str) -> list[Path]:
        """The entries of a log of the checkpoint, oldest first."""
        found = (self.checkpoint / log).glob("[0-9]*")
        return sorted(found, key=lambda path: int(path.name))


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path)


def people(*slugs: str, age: int = 1) -> list[dict[str, Any]]:
    return [{"slug": slug, "age": age} for slug in slugs]


def slugs(graph: Graph, branch: str = "main") -> list[str]:
    return sorted(graph.table("Person", branch=branch).to_arrow()["slug"].to_pylist())


def loads(graph: Graph, branch: str = "main") -> int:
    return sum(commit.kind == "load" for commit in graph.list_commits(branch))


def written(frame: Any, graph: Graph, inbox: Inbox, **options: str) -> None:
    writing = frame.writeStream.format("omnigraph").options(type="Person", **options)
    writing = writing.option("checkpointLocation", str(inbox.checkpoint))
    writing.trigger(availableNow=True).start(graph.uri).awaitTermination()


# --- into a graph ---


def test_c_pip_023_each_batch_of_a_stream_is_one_commit_and_a_replay_none(graph, spark, inbox):
    inbox.put(*people("a", "b"))
    inbox.put(*people("b", "c", age=2))
    inbox.put(*people("c", age=2))
    written(inbox.frame(spark), graph, inbox, mode="merge")
    assert slugs(graph) == ["a", "b", "c"]
    assert loads(graph) == 2, "the last batch changes nothing"
    inbox.put(*people("d"))
    written(inbox.frame(spark), graph, inbox, mode="append")
    head = graph.list_commits()
    inbox.forget_last_batch()
    # Neither another actor nor another mode makes it another batch.
    written(inbox.frame(spark), graph, inbox, mode="overwrite", actor="act-ana")
    assert graph.list_commits() == head
    assert not (Path(graph.uri) / "__load").exists()


def test_c_pip_023_a_stream_of_several_types_replays_without_a_second_commit(
    graph, spark, inbox, tmp_path
):
    (tmp_path / "edges").mkdir()
    met = Inbox(tmp_path / "edges", "`from` string, `to` string")
    inbox.put(*people("a", "b"))
    met.put({"from": "a", "to": "b"})

    def stream() -> Any:
        frames = {"Person": inbox.frame(spark), "Knows": met.frame(spark)}
        started = graph.stream_into(frames, mode="append", checkpoint=inbox.checkpoint, **NOW)
        assert started.await_end()
        return started.receipt

    receipt = stream()
    assert receipt is not None and receipt.commit is not None
    assert (loads(graph), len(slugs(graph))) == (1, 2)
    assert graph.table("Knows").to_arrow().num_rows == 1
    inbox.forget_last_batch()
    again = stream()
    assert again is not None and again.commit == receipt.commit
    assert (loads(graph), graph.table("Knows").to_arrow().num_rows) == (1, 1)


@pytest.mark.slow
def test_c_pip_023_a_driver_killed_between_commit_and_checkpoint_writes_every_row_once(
    spark, tmp_path
):
    uri = str(tmp_path / "graph.omni")
    omnigraph.init(uri, crash_stream.SCHEMA)
    crash_stream.write_input(tmp_path / "input", 4)
    failpoint = "stream.post_commit_pre_checkpoint=kill@2"
    child = crash_stream.start(uri, tmp_path, "into", OMNIGRAPH_FAILPOINTS=failpoint)
    crash_stream.end(child)
    assert child.returncode == -signal.SIGKILL
    assert crash_stream.judge(uri, tmp_path) == 2, "two batches were committed"
    noted = list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    assert len(noted) == 1, "and one of them noted"
    crash_stream.stream(spark, uri, tmp_path, "into")
    assert crash_stream.judge(uri, tmp_path) == 4


def test_a_driver_killed_before_its_batch_is_planned_brings_two_files_in_one_commit(
    graph, spark, inbox
):
    """Spark's file source notes a file before the query notes the batch that takes it."""
    options: dict[str, Any] = {"mode": "append", "checkpoint": inbox.checkpoint, **NOW}
    inbox.put(*people("a"))
    graph.stream_into(inbox.frame(spark), "Person", **options).await_end()
    inbox.put(*people("b", "c"))

    def fail(batch: Any) -> Any:
        raise InputError("the batch is planned, and not written")

    with pytest.raises(InputError, match="the batch is planned"):
        graph.stream_into(inbox.frame(spark), split=fail, **options).await_end()
    (*_, of_source), (*_, of_query) = inbox.entries("sources/0"), inbox.entries("offsets")
    assert (of_source.name, of_query.name) == ("1", "1")
    assert of_source.stat().st_mtime_ns < of_query.stat().st_mtime_ns, "the source is first"
    # As a driver leaves them that is killed between the two.
    inbox.forget(of_query)
    inbox.put(*people("d"))
    stream = graph.stream_into(inbox.frame(spark), "Person", **options)
    stream.await_end()
    assert [receipt.nodes[0].inserted for receipt in stream.receipts] == [3], "two files at once"
    assert (loads(graph), slugs(graph)) == (2, ["a", "b", "c", "d"])
    assert json.loads(inbox.entries("offsets")[-1].read_text().splitlines()[-1]) == {"logOffset": 2}


def test_batches_are_split_into_types_of_one_commit(graph, spark, inbox):
    inbox.put({"slug": "a", "age": 7})

    def split(batch: Any) -> dict[str, Any]:
        slots = batch.selectExpr("slug as region", "age as code")
        return {"Person": batch.select("slug"), "Slot": slots}

    frame = inbox.frame(spark)
    graph.stream_into(frame, split=split, checkpoint=inbox.checkpoint, **NOW).await_end()
    assert loads(graph) == 1
    assert graph.table("Slot").to_arrow()["code"].to_pylist() == [7]


def test_a_branch_is_merged_after_every_so_many_batches(graph, spark, inbox):
    for name in "abcde":
        inbox.put(*people(name))
    options: dict[str, Any] = {"branch": "ingest", "from_": "main", "merge_every": 2, **NOW}
    options["checkpoint"] = inbox.checkpoint
    graph.stream_into(inbox.frame(spark), "Person", **options).await_end()
    assert slugs(graph, "ingest") == ["a", "b", "c", "d", "e"]
    assert slugs(graph) == ["a", "b", "c", "d"]
    assert [commit.kind for commit in graph.list_commits()] == ["merge", "merge", "genesis"]
    graph.load(data=lines(node("Person", slug="m")), mode="append")
    inbox.put(*people("f"))
    graph.stream_into(inbox.frame(spark), "Person", **options).await_end()
    assert slugs(graph) == ["a", "b", "c", "d", "e", "f", "m"]
    inbox.forget_last_batch()
    before = graph.list_commits(), graph.list_commits("ingest")
    graph.stream_into(inbox.frame(spark), "Person", **options).await_end()
    assert (graph.list_commits(), graph.list_commits("ingest")) == before
    # What others wrote to main comes into the branch after the merge.
    inbox.put(*people("g"))
    graph.stream_into(inbox.frame(spark), "Person", **options).await_end()
    assert slugs(graph, "ingest") == ["a", "b", "c", "d", "e", "f", "g", "m"]


def test_a_conflict_of_a_merge_ends_the_stream_and_keeps_the_branch(graph, spark, inbox):
    inbox.put(*people("a", age=1))
    frame = inbox.frame(spark)
    options = {"mode": "merge", "branch": "ingest", "from": "main"}
    written(frame, graph, inbox, **options)
    graph.load(data=lines(node("Person", slug="a", age=9)), mode="append")
    inbox.put(*people("b"))
    with pytest.raises(Exception, match="MergeConflicts") as caught:
        written(frame, graph, inbox, **options, merge_every="2")
    assert isinstance(failure_of(caught.value), MergeConflicts)
    assert (slugs(graph), slugs(graph, "ingest")) == (["a"], ["a", "b"])
    written(frame, graph, inbox, **options, merge_every="2", on_conflict="source")
    found = graph.entity_at("node:Person", "a")
    assert found is not None and found["age"] == 1


def test_a_stream_whose_branch_was_deleted_ends_and_does_not_make_it_anew(graph, spark, inbox):
    options: dict[str, Any] = {"branch": "ingest", "from_": "main", **NOW}
    options["checkpoint"] = inbox.checkpoint
    inbox.put(*people("a"))
    graph.stream_into(inbox.frame(spark), "Person", **options).await_end()
    graph.delete_branch("ingest")
    inbox.put(*people("b"))
    with pytest.raises(NotFound, match="branch `ingest` was deleted while the stream wrote to it"):
        graph.stream_into(inbox.frame(spark), "Person", **options).await_end()
    graph.create_branch("ingest")
    graph.stream_into(inbox.frame(spark), "Person", **options).await_end()
    assert slugs(graph, "ingest") == ["b"]


def test_a_lost_checkpoint_is_another_query_whose_rows_a_merge_takes_and_an_append_refuses(
    graph, spark, inbox, tmp_path
):
    inbox.put(*people("a"))
    frame = inbox.frame(spark)
    graph.stream_into(frame, "Person", checkpoint=inbox.checkpoint, **NOW).await_end()
    before = graph.list_commits()
    other: dict[str, Any] = {"checkpoint": tmp_path / "other", **NOW}
    graph.stream_into(frame, "Person", mode="merge", **other).await_end()
    assert graph.list_commits() == before
    other["checkpoint"] = tmp_path / "third"
    with pytest.raises(KeyConflict, match="node Person with id 'a' already exists"):
        graph.stream_into(frame, "Person", mode="append", **other).await_end()
    assert graph.list_commits() == before


def test_a_change_of_schema_ends_a_stream_only_if_its_rows_do_not_fit_any_more(graph, spark, inbox):
    inbox.put(*people("a"))
    options: dict[str, Any] = {"checkpoint": inbox.checkpoint, **NOW}
    graph.stream_into(inbox.frame(spark), "Person", **options).await_end()
    schema = graph.schema_source
    graph.apply_schema(schema.replace("name: String?", "name: String?\n    nick: String?"))
    inbox.put(*people("b"))
    graph.stream_into(inbox.frame(spark), "Person", **options).await_end()
    assert slugs(graph) == ["a", "b"]
    inbox.put(*people("c"))

    def apply_first(batch: Any) -> dict[str, Any]:
        without = schema.replace("    age: I32?\n", "").replace("    @range(age, 0..150)\n", "")
        graph.apply_schema(without)
        return {"Person": batch}

    with pytest.raises(InputError, match="unknown column 'age'"):
        graph.stream_into(inbox.frame(spark), split=apply_first, **options).await_end()
    assert slugs(graph) == ["a", "b"]


def test_sigterm_lets_a_stream_finish_its_batch_and_begin_no_other(graph, spark, inbox):
    inbox.put(*people("a"))
    inbox.put(*people("b"))
    begun, go_on = Event(), Event()

    def split(batch: Any) -> dict[str, Any]:
        begun.set()
        assert go_on.wait(100)
        return {"Person": batch}

    frame = inbox.frame(spark)
    stream = graph.stream_into(frame, split=split, checkpoint=inbox.checkpoint)

    def terminate() -> None:
        assert begun.wait(100)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stream._stopping.wait(100)
        go_on.set()

    terminator = Thread(target=terminate)
    terminator.start()
    before = signal.getsignal(signal.SIGTERM)
    stream.run()
    terminator.join()
    assert signal.getsignal(signal.SIGTERM) is before
    assert (slugs(graph), stream.query.isActive) == (["a"], False)
    assert [path.name for path in inbox.entries("commits")] == ["0"]
    graph.stream_into(frame, "Person", checkpoint=inbox.checkpoint, **NOW).await_end()
    assert slugs(graph) == ["a", "b"]


def kept(folder: Path, of: str) -> dict[int, list[dict[str, Any]]]:
    """The records of a quarantine, by batch."""
    return {
        int(path.stem.split("-")[-2]): list(map(json.loads, path.read_text().splitlines()))
        for path in folder.glob(f"*-{of}.jsonl")
    }


def test_bad_and_late_records_go_to_the_quarantine_and_the_rest_into_the_graph(
    graph, spark, tmp_path
):
    inbox = Inbox(tmp_path, "slug string, age int, at timestamp")
    now = "2999-01-01T00:00:00"
    inbox.put({"slug": "a", "age": 500, "at": now}, {"slug": "b", "age": 5, "at": now})
    inbox.put({"slug": "c", "age": 5, "at": now})
    inbox.put({"slug": "d", "age": 5, "at": "2020-01-01T00:00:00"}, {"slug": "e", "age": -1})
    folder = tmp_path / "quarantine"
    options: dict[str, Any] = {"quarantine": folder, "late": ("at", "10 minutes"), **NOW}
    options["checkpoint"] = inbox.checkpoint

    def stream(**more: Any) -> Any:
        started = graph.stream_into(inbox.frame(spark), **options, **more)
        started.await_end()
        return started.receipt

    receipt = stream(type="Person")
    assert (slugs(graph), loads(graph), receipt.skipped) == (["b", "c"], 2, 1)
    bad, late = kept(folder, "bad"), kept(folder, "late")
    assert {batch: [each["input"]["slug"] for each in rows] for batch, rows in bad.items()} == {
        0: ["a"],
        2: ["e"],
    }
    assert (bad[0][0]["kind"], bad[0][0]["property"]) == ("constraint", "age")
    assert [(each["kind"], each["type"], each["input"]["slug"]) for each in late[2]] == [
        ("late", "Person", "d")
    ]
    # A batch that comes again finds its file as it is, or writes the same one.
    before = bad, late
    inbox.forget_last_batch()
    stream(split=lambda batch: {"Person": batch.drop("at")})
    again = kept(folder, "bad"), kept(folder, "late")
    assert ([*again[0]], [*again[1]]) == ([*before[0]], [*before[1]])
    with pytest.raises(InputError, match="more than the allowed share"):
        inbox.put({"slug": "f", "age": -1, "at": now})
        stream(type="Person", max_error_share=0.5)


def test_a_sink_skips_bad_records_into_its_quarantine(graph, spark, inbox, tmp_path):
    inbox.put(*people("a", "B", "c"))
    folder = tmp_path / "quarantine"
    written(inbox.frame(spark), graph, inbox, quarantine=str(folder))
    assert slugs(graph) == ["a", "c"]
    assert [each["input"]["slug"] for each in kept(folder, "bad")[0]] == ["B"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a stream needs the `type` of its rows"),
        ({"type": "Persn"}, "unknown type 'Persn'"),
        ({"type": "Slot"}, "unknown column"),
        ({"type": "Person", "merge_every": 2}, "cannot be merged into it"),
        ({"type": "Person", "branch": "b", "merge_every": 0}, "`merge_every` is 0"),
        ({"type": "Person", "on_conflict": "both"}, "a merge knows no `both`"),
        ({"type": "Person", "late": ("at", "1 day")}, "`late` needs a `quarantine`"),
        ({"type": "Person", "max_error_share": 0.1}, "needs a `quarantine`"),
    ],
)
def test_what_a_stream_cannot_do_is_told_before_it_starts(graph, spark, inbox, options, message):
    with pytest.raises(InputError, match=message):
        graph.stream_into(inbox.frame(spark), checkpoint=inbox.checkpoint, **options)
    assert not inbox.checkpoint.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"idempotency_key": "k"}, "a stream into a graph has no option 'idempotency_key'"),
        ({"type": "Persn"}, "unknown type 'Persn'"),
        ({"merge_evry": "2"}, "has no option 'merge_evry'"),
        ({"branch": "b", "merge_every": "two"}, "the option 'merge_every' is 'two'"),
        ({"merge_every": "2"}, "cannot be merged into it"),
    ],
)
def test_what_a_sink_cannot_do_is_told_by_its_options(graph, options, message):
    columns = StructType().add("slug", "string")
    with pytest.raises(InputError, match=message):
        source(graph, **{"type": "Person", **options}).streamWriter(columns, overwrite=False)


def test_a_quarantine_is_a_folder_outside_the_graph(graph, spark, inbox, tmp_path):
    (tmp_path / "file").touch()
    places = {tmp_path / "file": "is a file", Path(graph.uri) / "q": "in the graph"}
    for place, message in places.items():
        with pytest.raises(InputError, match=message):
            graph.stream_into(
                inbox.frame(spark), "Person", checkpoint=inbox.checkpoint, quarantine=place
            )


def test_a_stream_is_gated_before_it_starts_by_all_it_will_do(graph, spark, inbox):
    rules = "[{id: one, allow: {actors: {group: team}, actions: [change, read]}}]"
    policy = load_policy(f"version: 1\ngroups: {{team: [act-ana]}}\nrules: {rules}\n")
    gated = omnigraph.open(graph.uri, policy=policy)
    options: dict[str, Any] = {"type": "Person", "checkpoint": inbox.checkpoint}
    inbox.put(*people("a"))
    frame = inbox.frame(spark)
    with pytest.raises(PolicyDenied, match="act-eve"):
        gated.stream_into(frame, actor="act-eve", **options)
    graph.create_branch("b")
    with pytest.raises(PolicyDenied, match="branch_merge"):
        gated.stream_into(frame, actor="act-ana", branch="b", merge_every=1, **options)
    assert not inbox.checkpoint.exists()
    gated.stream_into(frame, actor="act-ana", **options, **NOW).await_end()
    assert slugs(graph) == ["a"]


def test_a_frame_that_is_complete_is_no_stream(graph, spark, inbox):
    frame = spark.createDataFrame([("a", 1)], PERSON)
    with pytest.raises(InputError, match="takes streaming frames"):
        graph.stream_into(frame, "Person", checkpoint=inbox.checkpoint)


def test_the_benchmark_of_streams_compares_equal_loads(spark):
    figures = list(measure_all(Sizes(20, 2, 1), spark))
    assert [figure.target is not None for figure in figures] == [True, False] * 2
    assert all(figure.value > 0 and figure.versus is not None for figure in figures)


# --- out of a graph ---


def source(graph: Graph, **options: str) -> OmnigraphSource:
    """The data source, to be asked without a query."""
    return OmnigraphSource({"path": graph.uri, **options})


COLUMNS = ["graph_commit_id", "authored_at", "actor_id", "kind", "type", "id", "op"]


class Outbox:
    """Collects the batches of a feed."""

    def __init__(self, graph: Graph, spark: Any, checkpoint: Path) -> None:
        self._graph, self._spark, self._checkpoint = graph, spark, checkpoint

    def batches(self, **options: str) -> list[list[Any]]:
        """The batches that a run delivers until it has caught up."""
        reading = self._spark.readStream.format("omnigraph").options(**options)
        found: list[list[Any]] = []
        writing = reading.load(self._graph.uri).writeStream.foreachBatch(
            lambda batch, _: found.append(batch.collect())
        )
        writing = writing.option("checkpointLocation", str(self._checkpoint))
        writing.trigger(availableNow=True).start().awaitTermination()
        return found


@pytest.fixture
def outbox(graph: Graph, spark: Any, tmp_path: Path) -> Outbox:
    return Outbox(graph, spark, tmp_path / "feed")


def ids(batches: Iterable[list[Any]]) -> list[list[str]]:
    return [[f"{row['op']} {row['id']}" for row in rows] for rows in batches]


def test_c_pip_022_a_stream_of_changes_delivers_every_commit_once_also_after_a_restart(
    graph, outbox
):
    for name in "abcde":
        graph.load(data=lines(node("Person", slug=name)), mode="append", actor="act-ana")
    graph.mutate('query q { delete Person where slug = "c" }')
    found = outbox.batches(start="beginning", max_commits="4")
    expected = [f"insert {name}" for name in "abcde"]
    assert ids(found) == [expected[:4], [expected[4], "delete c"]]
    row = found[0][0]
    assert row.__fields__ == [*COLUMNS, "before", "after"]
    first = graph.list_commits()[-2]
    assert (row["graph_commit_id"], row["actor_id"]) == (first.graph_commit_id, "act-ana")
    assert (row["kind"], row["type"], row["before"]) == ("node", "Person", None)
    assert json.loads(row["after"])["properties"]["slug"] == "a"
    assert json.loads(found[1][1]["before"])["properties"]["slug"] == "c"
    graph.load(data=lines(node("Person", slug="f")), mode="append")
    graph.load(data=lines(edge("Knows", "a", "f")), mode="append")
    (batch,) = outbox.batches(start="beginning", sequence="true")
    assert ids([batch])[0][0] == "insert f"
    assert json.loads(batch[1]["after"])["endpoints"] == {"from": "a", "to": "f"}
    assert batch[0]["sequence"] + 1 == batch[1]["sequence"]
    assert outbox.batches(start="beginning") == []


def test_c_pip_022_a_stream_of_changes_starts_where_it_is_told(graph):
    for name in "abc":
        graph.load(data=lines(node("Person", slug=name)), mode="append")
    graph.load(data=lines(edge("Knows", "a", "b")), mode="append")
    middle = graph.list_commits()[2].graph_commit_id
    cursor = graph.poll_changes(start=f"after:{middle}", limit_commits=1).cursor
    assert cursor is not None

    def after(start: str, **options: str) -> list[str]:
        reader = source(graph, start=start, **options).streamReader(StructType())
        assert isinstance(reader, FeedReader)
        begin = reader.initialOffset()
        found = reader.partitions(begin, reader.latestOffset(begin, ReadAllAvailable()))
        tasks = [pickle.loads(pickle.dumps(reader)).read(part) for part in found]
        return [id for task in tasks for batch in task for id in batch["id"].to_pylist()]

    assert after(f"after:{middle}", kinds="node") == ["c"]
    assert len(after(cursor)) == 1
    assert after("latest") == []
    graph.load(data=lines(node("Person", slug="z")), mode="append", branch="b", from_="main")
    assert after(f"after:{middle}", branch="b", types="Person", ops="insert") == ["c", "z"]


def test_c_pip_022_a_run_of_what_is_available_leaves_later_commits_to_the_next(graph):
    reader = source(graph, start="beginning", max_commits="2").streamReader(StructType())
    assert isinstance(reader, FeedReader)
    for name in "abc":
        graph.load(data=lines(node("Person", slug=name)), mode="append")
    reader.prepareForTriggerAvailableNow()
    graph.load(data=lines(node("Person", slug="late")), mode="append")
    offsets = [reader.initialOffset()]
    for _ in range(3):
        offsets.append(reader.latestOffset(offsets[-1], reader.getDefaultReadLimit()))
    steps = [len(reader.partitions(*pair)) for pair in pairwise(offsets)]
    assert steps == [2, 1, 0]


def test_c_pip_022_a_gap_of_the_feed_is_told_with_the_way_out(graph, outbox):
    for name in "ab":
        graph.load(data=lines(node("Person", slug=name)), mode="merge")
    graph.optimize()
    graph.cleanup(keep=1, confirm=True)
    with pytest.raises(Exception, match="the change feed is not readable from commit") as caught:
        outbox.batches(start="beginning")
    found = failure_of(caught.value)
    assert isinstance(found, ChangeFeedGap)
    assert found.hint == "take a new baseline with `omnigraph changes baseline`"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "yesterday"}, "change cursor rejected: it is damaged"),
        ({"start": "after:01M7H5DSPACH8PY6KJ7KZ1CVN5"}, "is not in the history of branch `main`"),
        ({"strt": "latest"}, "a stream of changes has no option 'strt'"),
        ({"type": "Person", "start": "latest"}, "a stream of changes has no option 'type'"),
        ({"types": "Persn"}, "there is no type 'Persn'"),
        ({"kinds": "nodes"}, "'nodes' is not one of node, edge"),
        ({"branch": "none"}, "there is no branch `none`"),
        ({"max_commits": "0"}, "the option 'max_commits' is '0'"),
        ({"sequence": "yes"}, "the option 'sequence' is 'yes'"),
    ],
)
def test_what_a_stream_of_changes_cannot_do_is_told_when_the_frame_is_made(graph, options, message):
    with pytest.raises(OmnigraphError, match=message):
        source(graph, **options).schema()


# --- from one graph into another ---


def changes(spark: Any, graph: Graph, **options: str) -> Any:
    reading = spark.readStream.format("omnigraph").option("sequence", "true")
    return reading.options(start="beginning", **options).load(graph.uri)


def exported(graph: Graph) -> list[str]:
    return sorted(b"".join(graph.export()).decode().splitlines())


def test_a_graph_follows_another_with_upserts_and_deletes(graph, spark, inbox, tmp_path):
    copy = omnigraph.init(tmp_path / "copy.omni", graph.schema_source)
    people = [node("Person", slug=name, age=3, photo="base64:AAEC", tags=["x"]) for name in "abcd"]
    graph.load(data=lines(*people, node("Note", text="hi")), mode="append")
    graph.load(data=lines(edge("Knows", "a", "b"), edge("Knows", "b", "c")), mode="append")
    graph.mutate('query q { update Person set { age: 9 } where slug = "a" }')
    graph.mutate('query q { delete Person where slug = "b" }')
    graph.load(data=lines(node("Person", slug="b", age=1)), mode="append")
    options: dict[str, Any] = {"apply": "changes", "checkpoint": inbox.checkpoint, **NOW}

    def follow() -> Any:
        stream = copy.stream_into(changes(spark, graph, max_commits="4"), **options)
        stream.await_end()
        return stream.receipt

    follow()
    assert exported(copy) == exported(graph)
    assert loads(copy) == 2, "five commits in batches of four"
    # In one batch and one table: an update, an insert and a delete.
    graph.load(data=lines(node("Person", slug="a", age=5), node("Person", slug="e")), mode="merge")
    graph.mutate('query q { delete Person where slug = "d" }')
    # What the copy alone has stays, but for edges of deleted nodes.
    copy.load(data=lines(node("Person", slug="z"), edge("Knows", "z", "d")), mode="append")
    receipt = follow()
    assert [(each.name, each.inserted, each.updated) for each in receipt.nodes] == [
        ("Person", 1, 1)
    ]
    assert loads(copy) == 4
    assert copy.table("Knows").to_arrow().num_rows == 0
    copy.mutate('query q { delete Person where slug = "z" }')
    assert exported(copy) == exported(graph)
    # A batch that comes again finds its commit.
    head = copy.list_commits()
    inbox.forget_last_batch()
    follow()
    assert copy.list_commits() == head


def test_changes_need_the_columns_of_a_feed(graph, spark, inbox):
    options: dict[str, Any] = {"apply": "changes", "checkpoint": inbox.checkpoint}
    with pytest.raises(InputError, match="the changes have no column 'sequence'"):
        graph.stream_into(inbox.frame(spark), **options)
    with pytest.raises(InputError, match="changes name their types themselves"):
        graph.stream_into(inbox.frame(spark), "Person", **options)
    with pytest.raises(InputError, match="changes are applied as they are"):
        graph.stream_into(inbox.frame(spark), mode="append", **options)
    with pytest.raises(InputError, match="`apply` is 'row'"):
        graph.stream_into(inbox.frame(spark), **{**options, "apply": "row"})
