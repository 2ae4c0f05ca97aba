"""The rounds of an algorithm on Spark, one job each, and the results as rows.

In a round each block reads the messages to it, and sends its state to itself, the values of its
nodes to the blocks that have them as ghosts, and a report to the driver. Spark keeps messages as
shuffle files, so after the loss of a worker or executor only its tasks are repeated. Every few
rounds the RDD is checkpointed, so that the plan of a job does not grow with the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.computing.algorithms import ROW_PLACES, Algorithm, Received, Report
from omnigraph.computing.blocks import Block, Counts, Keys, group_names, owner_of
from omnigraph.model.records import dataclass
from omnigraph.pipeline.computing.partitions import (
    BlockedGraph,
    BlockNodes,
    FragmentScan,
    Message,
    exchanged,
    read_edges,
    reports,
    single,
)
from omnigraph.pipeline.spark.gateway import checkpoint_copies

if TYPE_CHECKING:
    from pyspark import RDD

ROUNDS_BETWEEN_CHECKPOINTS = 8

RunJob = Callable[[str, Callable[[], Any]], Any]
"""Runs a named Spark job, so that Ctrl-C cancels it and progress is shown."""


@dataclass(frozen=True, slots=True)
class SparkComputed:
    """The values of the nodes of each block, in the order of its names."""

    values: RDD[dict[str, Any] | None]
    rounds: int
    converged: bool


# --- rounds ---------------------------------------------------------------------------------------


def compute(
    algorithm: Algorithm,
    graph: BlockedGraph,
    run: RunJob,
    on_round: Callable[[int, float], None] | None = None,
) -> SparkComputed:
    """Run an algorithm until it converges, or to its largest number of rounds."""
    nodes, count = graph.nodes, graph.count

    def begin(block: Block | None) -> Iterator[Message]:
        if block is None:
            return iter(())
        state, report = algorithm.first(block, nodes)
        return _sent(algorithm, block, state, report, {})

    inbox = exchanged(graph.blocks.flatMap(begin), count)
    total = run("begin", partial(_total, inbox, count))
    rounds, limit = 0, algorithm.iterations
    while not algorithm.is_done(total, rounds) and (limit is None or rounds < limit):
        rounds += 1
        step = _step(algorithm, total, nodes)
        inbox = exchanged(graph.blocks.zip(inbox).flatMap(step), count)
        if rounds % ROUNDS_BETWEEN_CHECKPOINTS == 0:
            checkpoint(inbox)
        total = run(f"round {rounds}", partial(_total, inbox, count))
        if on_round is not None:
            on_round(rounds, float(total[0]))

    def columns(pair: tuple[Block | None, list[Any]]) -> dict[str, Any] | None:
        block, received = pair
        if block is None:
            return None
        return dict(algorithm.columns(block, _state(received)))

    values = single(graph.blocks.zip(inbox).map(columns))
    return SparkComputed(values, rounds, algorithm.is_done(total, rounds))


def checkpoint(inbox: RDD[Any]) -> None:
    """Checkpoint an RDD, so that later plans begin with it.

    It is written to the checkpoint directory of the Spark context, if there is one: that survives
    the loss of all executors. Otherwise two executors keep each partition.
    """
    if inbox.context.getCheckpointDir() is not None:
        inbox.checkpoint()
    else:
        inbox.persist(checkpoint_copies(inbox.context)).localCheckpoint()


def _total(inbox: RDD[list[Any]], blocks: int) -> Report:
    # Added in the order of blocks, so that sums of floats are the same in every run.
    found: Report = np.sum(reports(inbox, blocks), axis=0)
    return found


@dataclass(frozen=True, slots=True)
class _Kept:
    """The state of a block, sent to itself."""

    state: Any


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of the ghosts that the receiver has of the sender's nodes."""

    sender: int
    payload: Any


@dataclass(frozen=True, slots=True)
class _Mail:
    sender: int
    payload: Any


def _sent(
    algorithm: Algorithm, block: Block, state: Any, report: Report, mail: Any
) -> Iterator[Message]:
    yield block.number, _Kept(state)
    yield block.blocks, (block.number, report)
    for number, own in enumerate(block.sends):
        yield number, _Values(block.number, algorithm.sent(block, state, own))
    for number, payload in mail.items():
        yield number, _Mail(block.number, payload)


def _step(
    algorithm: Algorithm, total: Report, nodes: int
) -> Callable[[tuple[Block | None, list[Any]]], Iterator[Message]]:
    def step(pair: tuple[Block | None, list[Any]]) -> Iterator[Message]:
        block, inbox = pair
        if block is None:
            return iter(())
        values = sorted((e for e in inbox if isinstance(e, _Values)), key=_sender)
        mail = sorted((e for e in inbox if isinstance(e, _Mail)), key=_sender)
        received = Received(
            [each.payload for each in values], [each.payload for each in mail], total, nodes
        )
        made = algorithm.step(block, _state(inbox), received)
        return _sent(algorithm, block, made.state, made.report, made.mail)

    return step


def _sender(message: _Values | _Mail) -> int:
    return message.sender


def _state(inbox: Iterable[Any]) -> Any:
    (kept,) = (each for each in inbox if isinstance(each, _Kept))
    return kept.state


# --- connected components -------------------------------------------------------------------------


def component_labels(
    tasks: Sequence[FragmentScan],
    names: RDD[BlockNodes | None],
    attempt: int,
    run: RunJob,
    on_round: Callable[[int, float], None] | None = None,
) -> SparkComputed:
    """For each node the smallest key of its component.

    Alternates large-star and small-star rounds until every node has a single edge, to the node
    with the smallest key. Large-star: a node links its larger neighbours to its smallest one.
    Small-star: it links itself and its smaller neighbours to the smallest of them. Each round
    halves the length of chains.
    """
    context, blocks = names.context, names.getNumPartitions() - 1
    scans = [task for task in tasks if not task.nodes]

    def read(scan: FragmentScan) -> Iterator[Message]:
        for edges in read_edges(scan, attempt):
            apart = edges.begin != edges.end
            low = np.minimum(edges.begin[apart], edges.end[apart])
            high = np.maximum(edges.begin[apart], edges.end[apart])
            yield from _links(*_distinct(high, low), blocks, both_ways=True)

    inbox = exchanged(context.parallelize(scans, max(1, len(scans))).flatMap(read), blocks)
    rounds, before = 0, None
    while True:
        rounds += 1
        large = inbox.mapPartitionsWithIndex(_large_star(blocks))
        small = exchanged(large, blocks).mapPartitionsWithIndex(_small_star(blocks))
        inbox = exchanged(small, blocks)
        if rounds % ROUNDS_BETWEEN_CHECKPOINTS == 0:
            checkpoint(inbox)
        after = run(f"round {rounds}", partial(_fingerprint, inbox, blocks))
        if on_round is not None:
            on_round(rounds, float(after[0]))
        if after == before:
            break
        before = after

    def labels(pair: tuple[BlockNodes | None, list[Any]]) -> dict[str, Any] | None:
        owned, links = pair
        if owned is None:
            return None
        component = owned.keys.copy()
        high, low = _links_of(links)
        mine = high > low
        component[np.searchsorted(owned.keys, high[mine])] = low[mine]
        return {"component": component}

    return SparkComputed(single(names.zip(inbox).map(labels)), rounds, True)


def _fingerprint(inbox: RDD[list[Any]], blocks: int) -> tuple[int, int]:
    """The number of links and a checksum: equal after a round that changed no link."""
    found = reports(inbox, blocks)
    return sum(count for count, _ in found), sum(total for _, total in found) % 2**64


def _distinct(high: Keys, low: Keys) -> tuple[Keys, Keys]:
    if not len(high):
        return high, low
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    kept = np.append(True, (high[1:] != high[:-1]) | (low[1:] != low[:-1]))
    return high[kept], low[kept]


def _links(high: Keys, low: Keys, blocks: int, *, both_ways: bool) -> Iterator[Message]:
    """Links to the blocks of their larger ends, with ``both_ways`` also of their smaller ends."""
    for near, far in ((high, low), (low, high)) if both_ways else ((high, low),):
        owners = owner_of(near, blocks)
        for number in np.unique(owners).tolist():
            yield number, (near[owners == number], far[owners == number])


def _links_of(inbox: Sequence[tuple[Keys, Keys]]) -> tuple[Keys, Keys]:
    if not inbox:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    near, far = (np.concatenate(parts) for parts in zip(*inbox, strict=True))
    return _distinct(near, far)


def _starred(near: Keys, far: Keys) -> tuple[Keys, Counts]:
    """For each link the smallest key next to its near end; where the links of each end begin."""
    starts = np.flatnonzero(np.append(True, near[1:] != near[:-1]))
    least = np.minimum(np.minimum.reduceat(far, starts), near[starts])
    return np.repeat(least, np.diff(np.append(starts, len(near)))), starts


def _large_star(blocks: int) -> Callable[[int, Iterable[list[Any]]], Iterator[Message]]:
    def star(number: int, inbox: Iterable[list[Any]]) -> Iterator[Message]:
        if number == blocks:
            return
        near, far = _links_of(next(iter(inbox)))
        if not len(near):
            return
        least, _ = _starred(near, far)
        larger = far > near
        yield from _links(*_distinct(far[larger], least[larger]), blocks, both_ways=False)

    return star


def _small_star(blocks: int) -> Callable[[int, Iterable[list[Any]]], Iterator[Message]]:
    def star(number: int, inbox: Iterable[list[Any]]) -> Iterator[Message]:
        if number == blocks:
            return
        near, far = _links_of(next(iter(inbox)))
        if not len(near):
            yield blocks, (number, (0, 0))
            return
        least, starts = _starred(near, far)
        other = far != least
        high, low = _distinct(
            np.concatenate([far[other], near[starts]]),
            np.concatenate([least[other], least[starts]]),
        )
        mixed = (high * np.uint64(0x9E3779B97F4A7C15)) ^ (low * np.uint64(0xC2B2AE3D27D4EB4F))
        yield blocks, (number, (len(high), int(mixed.sum())))
        yield from _links(high, low, blocks, both_ways=True)

    return star


# --- rows -----------------------------------------------------------------------------------------


def named(
    values: RDD[dict[str, Any] | None],
    names: RDD[BlockNodes | None],
    label: str | None,
    *,
    with_type: bool,
) -> RDD[pa.Table]:
    """The values of the nodes with their types and ids.

    Keys of nodes in the column ``label`` become ids, which blocks request from the owners of the
    nodes; ``with_type`` prefixes the type.
    """

    blocks = names.getNumPartitions() - 1

    def plain(pair: tuple[dict[str, Any] | None, BlockNodes | None]) -> Iterator[pa.Table]:
        columns, owned = pair
        if columns is not None and owned is not None:
            yield _table(owned, {**columns})

    if label is None:
        return values.zip(names).flatMap(plain)

    def ask(pair: tuple[int, dict[str, Any] | None]) -> Iterator[Message]:
        number, columns = pair
        if columns is None:
            return
        wanted = np.unique(columns[label])
        owners = owner_of(wanted, blocks)
        for owner in np.unique(owners).tolist():
            yield owner, (number, wanted[owners == owner])

    def answer(pair: tuple[BlockNodes | None, list[Any]]) -> Iterator[Message]:
        owned, asked = pair
        if owned is None:
            return
        for number, wanted in asked:
            rows = owned.rows.take(pa.array(np.searchsorted(owned.keys, wanted)))
            yield number, (wanted, rows)

    def name(
        pair: tuple[tuple[dict[str, Any] | None, BlockNodes | None], list[Any]],
    ) -> Iterator[pa.Table]:
        (columns, owned), answers = pair
        if columns is None or owned is None:
            return
        known = np.concatenate([np.zeros(0, np.uint64), *(wanted for wanted, _ in answers)])
        rows = pa.concat_tables([owned.rows[:0], *(rows for _, rows in answers)]).combine_chunks()
        order = np.argsort(known)
        at = order[np.searchsorted(known[order], columns[label])]
        yield _table(owned, {**columns, label: group_names(rows, with_type).take(pa.array(at))})

    asked = exchanged(values.zipWithIndex().map(_turned_round).flatMap(ask), blocks)
    answered = exchanged(names.zip(asked).flatMap(answer), blocks)
    return single(values.zip(names)).zip(answered).flatMap(name)


def _turned_round(pair: tuple[Any, int]) -> tuple[int, Any]:
    return pair[1], pair[0]


def _table(owned: BlockNodes, columns: dict[str, Any]) -> pa.Table:
    rows, places = owned.rows, columns.pop(ROW_PLACES, None)
    if places is not None:
        rows = rows.take(pa.array(places))
    return pa.table({"type": rows["type"], "id": rows["id"], **columns})
