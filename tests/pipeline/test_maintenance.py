"""Upkeep on Spark: the same table as in process, by one publish."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import InputError
from omnigraph.graph import Graph, SparkOptions
from omnigraph.pipeline.merging import SparkWorkers
from omnigraph.pipeline.spark.session import SessionSettings, SparkWhenNeeded
from omnigraph.storage import indexes, table_upkeep
from omnigraph.storage.indexes import indexes_of
from omnigraph.storage.upkeep_tasks import THIS_PROCESS, UpkeepWorkers
from omnigraph.upkeep.optimize import optimize

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SCHEMA = """
node Note {
    key: String @key
    text: String @index
    stars: I32? @index
    place: Vector(2)? @index
}
edge Follows: Note -> Note
"""
PARTS, ROWS = 12, 40


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph whose tables have many small fragments, and rows that are gone."""
    path = tmp_path_factory.mktemp("upkeep") / "graph.omni"
    graph = omnigraph.init(path, SCHEMA)
    for part in range(PARTS):
        keys = [f"n{part}-{row}" for row in range(ROWS)]
        places = pa.array([[part, row] for row in range(ROWS)], pa.list_(pa.float32(), 2))
        notes = {"key": keys, "text": [f"a note {key}" for key in keys], "place": places}
        stars = pa.array([row % 5 for row in range(ROWS)], pa.int32())
        graph.load(
            mode="append",
            frames={
                "Note": pa.table({**notes, "stars": stars}),
                "Follows": pa.table({"src": keys[1:], "dst": keys[:-1]}),
            },
            engine="local",
        )
    graph.mutate("query q { delete Note where stars = 4 }")
    return path


def content(graph: Graph) -> list[pa.Table]:
    return [graph.table(name).to_arrow().sort_by("id") for name in ("Note", "Follows")]


def layout(graph: Graph) -> dict[str, Any]:
    """The fragments of each table, and what its indexes cover."""
    reader = graph._opened.reader()
    found = {}
    for key in ("node:Note", "edge:Follows"):
        handle = reader.handle(key)
        found[key] = (
            len(handle.get_fragments()),
            {
                (str(each.spec), each.rows_covered, each.rows_uncovered)
                for each in indexes_of(handle)
            },
        )
    return found


def test_c_pip_030_spark_compacts_to_what_this_process_compacts_to_in_one_commit(
    scattered: Path, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So small that several tasks share the work on one table.
    monkeypatch.setattr(table_upkeep, "TASK_FRAGMENTS", 1)
    monkeypatch.setattr(indexes, "PART_ROWS_MIN", 100)
    small = table_upkeep.Extent(120, is_bounded=False)
    graphs, tasks = [], Counter[str]()
    run = SparkWorkers.run

    def counted(self: SparkWorkers, handle: Any, given: Any) -> list[bytes]:
        tasks.update(type(task).__name__ for task in given)
        return run(self, handle, given)

    monkeypatch.setattr(SparkWorkers, "run", counted)
    for engine in ("local", "spark"):
        copy = tmp_path / f"{engine}.omni"
        shutil.copytree(scattered, copy)
        graph = omnigraph.open(copy)
        before, commits = content(graph), graph.list_commits()
        workers: UpkeepWorkers = THIS_PROCESS
        if engine == "spark":
            session = SparkWhenNeeded(spark, SessionSettings())
            workers = SparkWorkers(graph._kernel.root, session, "upkeep")
        receipt = optimize(graph._kernel, graph._opened.accepted(), small, workers=workers)
        assert receipt.graph_commit_id is not None
        assert len(graph.list_commits()) == len(commits) + 1
        assert content(graph) == before
        rows = graph.query(
            'query q { match { $n: Note  search($n.text, "n3") }'
            " return { $n.key } order { $n.key } }"
        )
        graphs.append((graph, rows.to_pylist()))
    (local, found), (on_spark, also) = graphs
    # Two tables, ordered indexes on `id`, `stars` and the two ends of edges, words and vectors.
    assert tasks["RewriteFragments"] > 2
    assert tasks["BuildIndexPart"] > 6
    assert found == also
    assert content(local) == content(on_spark)
    ours, theirs = layout(local), layout(on_spark)
    for key, (_, covered) in ours.items():
        # Every row is in the same indexes, whoever built their parts.
        assert theirs[key][1] == covered
        assert all(uncovered == 0 for _, _, uncovered in covered)


def test_c_pip_030_a_whole_table_is_one_fragment_on_either_engine(
    scattered: Path, spark: Any, tmp_path: Path
) -> None:
    copies = []
    for engine in ("local", "spark"):
        copy = tmp_path / f"{engine}.omni"
        shutil.copytree(scattered, copy)
        graph = omnigraph.open(copy)
        graph.optimize(
            engine=engine,
            spark=SparkOptions(session=spark) if engine == "spark" else None,
        )
        copies.append(graph)
    assert layout(copies[0]) == layout(copies[1])
    assert layout(copies[1])["node:Note"][0] == 1
    assert content(copies[0]) == content(copies[1])
    options = SparkOptions(session=spark)
    assert copies[1].optimize(engine="spark", spark=options).graph_commit_id is None


def test_an_unknown_engine_is_refused(graph: Graph) -> None:
    with pytest.raises(InputError, match="there is no engine `sparc`"):
        graph.optimize(engine="sparc")  # type: ignore[arg-type]
