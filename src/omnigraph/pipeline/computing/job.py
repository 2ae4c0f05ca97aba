"""One computation on Spark, from a snapshot to rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.computing.algorithms import Algorithm, ConnectedComponents, LandmarkDistances
from omnigraph.computing.blocks import Keys, distance_rows
from omnigraph.computing.selection import Selection, node_keys
from omnigraph.computing.whole_graph import (
    Betweenness,
    Closeness,
    Similarity,
    StronglyConnected,
)
from omnigraph.computing.whole_graph_blocks import (
    BetweennessRounds,
    ClosenessRounds,
    SimilarityRounds,
    StrongComponentRounds,
    sampled,
)
from omnigraph.effects.uri import Root
from omnigraph.loading.executors import TaskRunner, mapped
from omnigraph.model.ids import TableKey
from omnigraph.model.load_options import SparkOptions
from omnigraph.model.records import dataclass
from omnigraph.pipeline.computing import rounds
from omnigraph.pipeline.computing.partitions import (
    BlockNodes,
    blocked,
    blocks_for,
    named_nodes,
    scans,
)
from omnigraph.pipeline.spark.gateway import loss_named
from omnigraph.pipeline.spark.session import SessionSettings, SparkWhenNeeded, query_session
from omnigraph.storage.reader import SnapshotReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession


SparkAlgorithm: TypeAlias = (
    Algorithm | ConnectedComponents | StronglyConnected | Betweenness | Closeness | Similarity
)


@dataclass(frozen=True, slots=True)
class SparkRun:
    """The result of a computation on Spark."""

    nodes: int
    edges: int
    rounds: int
    converged: bool
    landmarks: tuple[bool, ...]
    """By landmark: whether there is such a node."""
    rows: Callable[[], pa.Table]
    frame: Callable[[], DataFrame]


@loss_named("computation")
def run_on_spark(
    algorithm: SparkAlgorithm,
    selection: Selection,
    root: Root,
    reader: SnapshotReader,
    options: SparkOptions,
    *,
    operation_id: str,
    label: str | None,
    landmarks: Sequence[tuple[str, str]] | None,
    on_round: Callable[[int, float], None] | None,
) -> SparkRun:
    """Run a computation; its rows are cached in the session, which lasts until the process ends."""
    settings = SessionSettings.of(os.environ, master=options.master, conf=options.conf)
    session = query_session(options.session, settings)
    context = session.sparkContext
    runner = TaskRunner(SparkWhenNeeded(session, settings), operation_id, work="computation")

    def run(name: str, job: Callable[[], Any]) -> Any:
        return runner.run("compute", f"{algorithm.name}, {name}", job)

    edges = sum(
        reader.snapshot.table(TableKey.edge(edge.type_name)).row_count for edge in selection.edges
    )
    blocks = blocks_for(edges, context.defaultParallelism)
    tasks = scans(root, reader, selection)
    present: tuple[bool, ...] = ()
    if isinstance(algorithm, ConnectedComponents):
        names, nodes, attempt = run("read nodes", lambda: named_nodes(context, tasks, blocks))
        done = rounds.component_labels(tasks, names, attempt, run, on_round)
    else:
        graph = run("read", lambda: blocked(context, tasks, selection, blocks))
        names, nodes, edges = graph.names, graph.nodes, graph.edges
        if landmarks is not None:
            keys = [
                int(node_keys(type_name, pa.array([node_id]), graph.attempt)[0])
                for type_name, node_id in landmarks
            ]
            present = tuple(run("find landmarks", lambda: _present(names, keys)))
            if not all(present):
                graph.release()
                return SparkRun(nodes, edges, 0, False, present, _none, _none)
            algorithm = LandmarkDistances(tuple(keys))

        def starts(samples: int, seed: int) -> Keys:
            found = run("choose samples", lambda: _sampled(names, samples, seed).collect())
            chosen = np.concatenate(found)
            return chosen[sampled(chosen, samples, seed)]

        done = rounds.compute(_in_rounds(algorithm, starts), graph, run, on_round)
    with_type = selection.labels_have_types
    tables = rounds.named(done.values, names, label, with_type=with_type)
    if landmarks is not None:
        are_counts = selection.weight is None
        tables = tables.map(lambda rows: distance_rows(rows, landmarks, are_counts=are_counts))
    kept = tables.map(_to_bytes).cache()
    schema = run("results", lambda: kept.map(_schema_of).first())
    run("results", kept.count)

    def rows() -> pa.Table:
        parts = run("collect", kept.collect)
        return pa.concat_tables([_from_bytes(part) for part in parts])

    return SparkRun(
        nodes,
        edges,
        done.rounds,
        done.converged,
        present,
        rows,
        lambda: _frame(session, kept, schema),
    )


def _in_rounds(
    algorithm: Algorithm | StronglyConnected | Betweenness | Closeness | Similarity,
    starts: Callable[[int, int], Keys],
) -> Algorithm:
    match algorithm:
        case StronglyConnected():
            return StrongComponentRounds()
        case Closeness(samples=samples, seed=seed):
            return ClosenessRounds(starts(samples, seed))
        case Betweenness(samples=samples, seed=seed):
            return BetweennessRounds(starts(samples, seed))
        case Similarity(per_node=per_node, at_least=at_least, measure=measure):
            return SimilarityRounds(per_node, at_least, measure)
        case _:
            return algorithm


def _sampled(names: RDD[Any], samples: int, seed: int) -> RDD[Keys]:
    """The keys of the nodes of each block that may be among the chosen ones."""

    def chosen(owned: BlockNodes | None) -> Keys:
        keys = np.zeros(0, np.uint64) if owned is None else owned.keys
        return keys[sampled(keys, samples, seed)]

    return names.map(chosen)


def _none() -> Any:
    raise AssertionError("a computation without landmarks has no rows")


def _present(names: RDD[Any], keys: Sequence[int]) -> list[bool]:
    wanted = np.array(keys, np.uint64)
    found = names.map(
        lambda owned: [] if owned is None else np.isin(wanted, owned.keys).tolist()
    ).collect()
    return [any(part[place] for part in found if part) for place in range(len(keys))]


def _to_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _from_bytes(rows: bytes) -> pa.Table:
    return pa.ipc.open_stream(rows).read_all()


def _schema_of(rows: bytes) -> pa.Schema:
    return pa.ipc.open_stream(rows).schema


@loss_named("computation")
def _frame(session: SparkSession, kept: RDD[bytes], schema: pa.Schema) -> DataFrame:
    """The rows as a DataFrame: Spark holds one binary cell per block, which workers unpack."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield from _from_bytes(part).to_batches()

    packed = session.createDataFrame(kept.map(lambda part: (bytearray(part),)), "rows binary")
    return mapped(packed, unpack, schema)
