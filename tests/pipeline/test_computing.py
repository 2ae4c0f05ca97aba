"""Computations on Spark: the same values as in process, whatever happens to workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph import SparkOptions
from omnigraph.computing.algorithms import KCore, Received, Round
from omnigraph.computing.blocks import Block, Counts
from omnigraph.computing.selection import Selection
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.model.computations import Computation
from omnigraph.pipeline.computing import partitions, rounds
from tests.computing.graphs import SCHEMA, linked, random_edges

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark_queries")]

PEOPLE = 40
EDGES = random_edges(11, PEOPLE, 120)
CHAIN = [(n, n + 1) for n in range(PEOPLE, PEOPLE + 11)]
"""Long enough for rounds that checkpoint."""
WEIGHTS = [float(1 + place % 5) for place in range(len(EDGES) + len(CHAIN))]


@pytest.fixture(scope="module")
def linked_graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    directory = tmp_path_factory.mktemp("computing")
    return linked(directory, PEOPLE + 15, [*EDGES, *CHAIN], WEIGHTS)


def rows(found: Computation) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in found.to_pylist())


def assert_equal(here: Computation, there: Computation) -> None:
    assert here.to_arrow().schema == there.to_arrow().schema
    for one, other in zip(rows(here), rows(there), strict=True):
        assert (
            one == pytest.approx(other, abs=1e-12) if isinstance(one[-1], float) else one == other
        )
    ours, theirs = here.summary, there.summary
    assert (ours.nodes, ours.edges) == (theirs.nodes, theirs.edges)
    assert (ours.engine, theirs.engine) == ("local", "spark")


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("pagerank", {"weight": "weight", "iterations": 4}),
        ("pagerank", {"direction": "both", "iterations": 3}),
        ("degree", {}),
        ("connected_components", {}),
        ("label_propagation", {"iterations": 3, "weight": "weight"}),
        ("shortest_paths", {"landmarks": ["p0", "p41"], "direction": "in"}),
        ("shortest_paths", {"landmarks": "p40", "weight": "weight"}),
        ("triangles", {}),
        ("k_core", {}),
        ("strongly_connected", {}),
        ("closeness", {"samples": 20, "direction": "in"}),
        ("betweenness", {"samples": 5, "seed": 2}),
        ("similarity", {"measure": "cosine", "direction": "both", "per_node": 3}),
        ("similarity", {"at_least": 2.0}),
    ],
)
def test_c_pip_025_spark_computes_what_this_process_computes(
    linked_graph: Graph, spark: Any, algorithm: str, options: dict[str, Any]
) -> None:
    verb = getattr(linked_graph.compute, algorithm)
    here = verb(edges="Knows", **options)
    there = verb(edges="Knows", engine="spark", spark=SparkOptions(session=spark), **options)
    assert_equal(here, there)
    assert here.converged == there.converged


def test_c_pip_025_groups_of_several_node_types_have_equal_names(
    spark: Any, tmp_path: Path
) -> None:
    graph = omnigraph.init(tmp_path / "graph.omni", SCHEMA)
    names = [f"p{n}" for n in range(12)]
    graph.load(
        mode="append",
        frames={
            "Person": pa.table({"name": names}),
            "Place": pa.table({"zip": pa.array([1, 2], pa.int32()), "street": ["oak", "elm"]}),
            "Visits": pa.table({"src": names[:8], "dst": ['["oak","1"]', '["elm","2"]'] * 4}),
        },
        engine="local",
    )
    session = SparkOptions(session=spark)
    here = graph.compute.connected_components()
    assert_equal(here, graph.compute.connected_components(engine="spark", spark=session))
    assert len({row["component"] for row in here.to_pylist()}) == 2 + 4
    found = graph.compute.pagerank(
        engine="spark", spark=session, iterations=3, into="Place.score", to_branch="ranks"
    )
    ranks = {row["id"]: row["rank"] for row in found.to_pylist() if row["type"] == "Place"}
    places = graph.table("Place", branch="ranks").to_arrow().to_pylist()
    assert {row["id"]: row["score"] for row in places} == pytest.approx(ranks)
    assert found.receipt is not None
    assert found.receipt.engine == "spark"


def test_values_become_a_frame_of_spark(linked_graph: Graph, spark: Any) -> None:
    found = linked_graph.compute.degree(
        edges="Knows", engine="spark", spark=SparkOptions(session=spark)
    )
    frame = found.to_spark()
    assert frame.columns == ["type", "id", "in_degree", "out_degree", "degree"]
    assert frame.agg({"degree": "sum"}).collect()[0][0] == 2 * len(WEIGHTS)
    with pytest.raises(InputError, match="degree ran in this process"):
        linked_graph.compute.degree(edges="Knows").to_spark()


def test_a_landmark_that_does_not_exist_is_named(linked_graph: Graph, spark: Any) -> None:
    with pytest.raises(InputError, match="there is no Person 'eve' to begin at"):
        linked_graph.compute.shortest_paths(
            "eve", edges="Knows", engine="spark", spark=SparkOptions(session=spark)
        )


def test_c_pip_025_a_killed_worker_changes_no_value(
    linked_graph: Graph, spark: Any, tmp_path: Path
) -> None:
    mark = tmp_path / "killed"

    class KilledOnce:
        """Core numbers, by a worker that dies in the third round."""

        iterations = None

        def __getattr__(self, name: str) -> Any:
            return getattr(KCore(), name)

        def step(self, block: Block, state: Counts, received: Received) -> Round:
            if block.number == 0 and received.total[0] not in (np.inf, 0) and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return KCore().step(block, state, received)

    here = linked_graph.compute.k_core(edges="Knows")
    opened = linked_graph._opened
    reader = opened.pinned(here.summary.target)
    catalog = opened.catalog_of(reader.snapshot)
    everything: Any = {"nodes": None, "edges": "Knows", "direction": "out", "weight": None}
    selection = Selection.of(catalog, KCore(), **everything)
    tasks = partitions.scans(linked_graph._kernel.root, reader, selection)
    graph = partitions.blocked(spark.sparkContext, tasks, selection, 2)
    killer: Any = KilledOnce()
    done = rounds.compute(killer, graph, lambda _name, job: job())
    tables = rounds.named(done.values, graph.names, None, with_type=False).collect()
    assert mark.exists()
    assert pa.concat_tables(tables).sort_by("id").equals(here.to_arrow().sort_by("id"))


def test_a_block_tells_that_two_of_its_nodes_have_the_same_key() -> None:
    nodes = partitions._Nodes("Person", np.array([5, 3, 5], np.uint64), pa.array(["a", "b", "c"]))
    assert partitions._proto(0, 1, [nodes], False).has_repeats
    others = partitions._Nodes("Person", np.array([5, 3, 7], np.uint64), pa.array(["a", "b", "c"]))
    assert not partitions._proto(0, 1, [others], False).has_repeats
