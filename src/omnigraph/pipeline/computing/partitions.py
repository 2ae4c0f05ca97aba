"""A graph as an RDD of blocks: read in workers from Lance, and exchanged as arrays.

Spark handles a few byte strings per block, whatever the number of nodes and edges. The key of a
node, a hash of its type and id, determines its block, so the block of an edge's end is known
without looking up ids. Every RDD here has one partition more than there are blocks: the last one
holds the reports of the blocks to the driver. A ghost is a node of another block with an edge into
this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.computing.blocks import Block, Floats, Keys, owner_of
from omnigraph.computing.selection import Selection, checked_weights, node_keys
from omnigraph.effects.uri import Root
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.written import committed_batches, fragment_groups

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

TASK_ROWS = 1_000_000
"""The least number of rows per task, unless a table has fewer."""

BLOCK_EDGES = 4_000_000
"""Edges per block, roughly; this many take about 50 MB."""

Message: TypeAlias = tuple[int, Any]
"""The number of the receiving block, and the content."""


@dataclass(frozen=True, slots=True)
class FragmentScan:
    """Some fragments of one table, for a task to read."""

    options: Mapping[str, str] = field(repr=False)
    """Storage options, with credentials of the driver."""
    address: str
    version: int
    fragments: tuple[int, ...]
    nodes: str = ""
    """The type, for a table of nodes."""
    edges: tuple[str, str, str] = ("", "", "")
    """The type and those of its ends, for a table of edges."""
    weight: str | None = None

    def columns(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        """The columns of each batch."""
        for batch in committed_batches(
            self.address,
            self.version,
            self.fragments,
            names,
            storage_options=dict(self.options) or None,
        ):
            yield [batch.column(name) for name in names]


def scans(root: Root, reader: SnapshotReader, selection: Selection) -> list[FragmentScan]:
    """The tasks that read the tables of a selection."""
    found = []
    for name in selection.nodes:
        found += _scans_of(root, reader, TableKey.node(name), nodes=name)
    for edge in selection.edges:
        ends = (edge.type_name, edge.source, edge.target)
        key = TableKey.edge(edge.type_name)
        found += _scans_of(root, reader, key, edges=ends, weight=selection.weight)
    return found


def _scans_of(
    root: Root, reader: SnapshotReader, key: TableKey, **about: Any
) -> list[FragmentScan]:
    if reader.is_empty(key):
        return []
    entry = reader.snapshot.table(key)
    address = reader.where(entry).address
    return [
        FragmentScan(root.storage_options(), address, entry.version, group, **about)
        for group, _ in fragment_groups(reader.handle(key), TASK_ROWS)
    ]


# --- messages -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Nodes:
    type_name: str
    keys: Keys
    ids: pa.Array


@dataclass(frozen=True, slots=True)
class Edges:
    """Some edges that go to one block."""

    begin: Keys
    end: Keys
    weights: Floats | None


def read_nodes(scan: FragmentScan, blocks: int, attempt: int) -> Iterator[Message]:
    """The nodes of a scan, for the blocks that own them."""
    for (ids,) in scan.columns([ID]):
        keys = node_keys(scan.nodes, ids, attempt)
        for block, chosen in _by_owner(owner_of(keys, blocks)):
            yield block, _Nodes(scan.nodes, keys[chosen], ids.take(pa.array(chosen)))


def read_edges(scan: FragmentScan, attempt: int) -> Iterator[Edges]:
    """The edges of a scan as they are stored."""
    type_name, source, target = scan.edges
    weighed = [] if scan.weight is None else [scan.weight]
    for begin, end, *values in scan.columns([SRC, DST, *weighed]):
        weights = None
        if scan.weight is not None:
            weights = checked_weights(type_name, scan.weight, values[0])
        yield Edges(node_keys(source, begin, attempt), node_keys(target, end, attempt), weights)


def _turned(edges: Edges, selection: Selection) -> Iterator[Edges]:
    """The edges in the directions that a selection uses them in."""
    begin, end, weights = edges.begin, edges.end, edges.weights
    if selection.direction == "in":
        begin, end = end, begin
    apart = begin != end
    if selection.use == "directed":
        yield Edges(begin, end, weights)
    weights = None if weights is None else weights[apart]
    if selection.use != "directed":
        yield Edges(begin[apart], end[apart], weights)
    if selection.use in {"undirected", "simple"} or selection.direction == "both":
        yield Edges(end[apart], begin[apart], weights)


def _by_owner(owners: np.ndarray[Any, Any]) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """For each owner, the positions of its entries."""
    if not len(owners):
        return
    order = np.argsort(owners, kind="stable")
    numbers, starts = np.unique(owners[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)


def routed(edges: Edges, blocks: int) -> Iterator[Message]:
    """Edges for the blocks that own the nodes they lead to."""
    for block, chosen in _by_owner(owner_of(edges.end, blocks)):
        weights = None if edges.weights is None else edges.weights[chosen]
        yield block, Edges(edges.begin[chosen], edges.end[chosen], weights)


# --- exchange -------------------------------------------------------------------------------------


def exchanged(messages: RDD[Message], blocks: int) -> RDD[list[Any]]:
    """The list of messages to each block; the last list is for the driver."""
    return single(messages.partitionBy(blocks + 1, _itself).map(_second).glom())


def single(elements: RDD[Any]) -> RDD[Any]:
    """The RDD, serialized one element at a time: Spark zips such RDDs without copying them."""
    from pyspark.serializers import BatchedSerializer, CPickleSerializer

    one_by_one = BatchedSerializer(CPickleSerializer(), 1)  # type: ignore[no-untyped-call]
    return elements._reserialize(one_by_one)


def _itself(block: int) -> int:
    return block


def _second(message: Message) -> Any:
    return message[1]


def reports(inbox: RDD[list[Any]], blocks: int) -> list[Any]:
    """The reports to the driver, in the order of blocks."""
    (found,) = inbox.context.runJob(inbox, list, [blocks])
    return [report for _, report in sorted(found, key=_number)]


def _number(numbered: tuple[int, Any]) -> int:
    return numbered[0]


# --- building -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockNodes:
    """The nodes of a block: keys, types and ids, in the order of the block."""

    keys: Keys
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class _Proto:
    """A block that does not have the values of its ghosts yet."""

    names: BlockNodes
    block: Block
    has_repeats: bool


@dataclass(frozen=True, slots=True)
class BlockedGraph:
    """A graph in blocks; ``release`` frees the memory that Spark caches them in."""

    blocks: RDD[Block | None]
    names: RDD[BlockNodes | None]
    count: int
    """The number of blocks."""
    nodes: int
    edges: int
    attempt: int
    """The attempt whose hash gave nodes their keys."""

    def release(self) -> None:
        """Free the memory of the blocks."""
        self.blocks.unpersist()
        self.names.unpersist()


def blocks_for(edges: int, slots: int) -> int:
    """The number of blocks for a graph with so many edges.

    There are two at least: nodes of a block that is the whole graph are known by their places.
    """
    return max(2, slots, -(-edges // BLOCK_EDGES))


def named_nodes(
    context: SparkContext, tasks: Sequence[FragmentScan], blocks: int
) -> tuple[RDD[BlockNodes | None], int, int]:
    """The nodes of each block, their number, and the attempt whose hash gave them their keys."""
    from pyspark import StorageLevel

    own = [task for task in tasks if task.nodes]
    attempt = 0
    while True:
        read = partial(read_nodes, blocks=blocks, attempt=attempt)
        messages = context.parallelize(own, max(1, len(own))).flatMap(read)
        names = single(exchanged(messages, blocks).mapPartitionsWithIndex(_named(blocks)))
        names.persist(StorageLevel.MEMORY_AND_DISK)
        sizes = names.map(_name_count).collect()
        if not any(has_repeats for _, has_repeats in sizes):
            return names, sum(count for count, _ in sizes), attempt
        names.unpersist()
        attempt += 1


def _named(blocks: int) -> Callable[[int, Iterable[list[Any]]], Iterator[BlockNodes | None]]:
    def build(number: int, parts: Iterable[list[Any]]) -> Iterator[BlockNodes | None]:
        yield None if number == blocks else _names(next(iter(parts)))

    return build


def _name_count(names: BlockNodes | None) -> tuple[int, bool]:
    return (0, False) if names is None else (len(names.keys), _has_repeats(names.keys))


def _has_repeats(keys: Keys) -> bool:
    """Whether two of the keys, which are ascending, are equal."""
    return bool((keys[1:] == keys[:-1]).any())


def _names(parts: Sequence[_Nodes]) -> BlockNodes:
    keys = _concatenated([part.keys for part in parts], np.uint64)
    order = np.argsort(keys)
    types = [pa.repeat(pa.scalar(part.type_name), len(part.keys)) for part in parts]
    rows = pa.table(
        {
            "type": pa.chunked_array(types, pa.string()),
            "id": pa.chunked_array([part.ids for part in parts], pa.string()),
        }
    )
    return BlockNodes(keys[order], rows.take(pa.array(order)).combine_chunks())


def blocked(
    context: SparkContext, tasks: Sequence[FragmentScan], selection: Selection, blocks: int
) -> BlockedGraph:
    """The graph of a selection in blocks, which Spark caches in memory and on disk."""
    attempt = 0
    while True:
        graph = _attempted(context, tasks, selection, blocks, attempt)
        if graph is not None:
            return graph
        attempt += 1


def _attempted(
    context: SparkContext,
    tasks: Sequence[FragmentScan],
    selection: Selection,
    blocks: int,
    attempt: int,
) -> BlockedGraph | None:
    """`blocked` with the keys of one attempt; None if two nodes have the same key."""
    from pyspark import StorageLevel

    def read(scan: FragmentScan) -> Iterator[Message]:
        if scan.nodes:
            yield from read_nodes(scan, blocks, attempt)
            return
        for edges in read_edges(scan, attempt):
            for turned in _turned(edges, selection):
                yield from routed(turned, blocks)

    links_once = selection.use in {"pairs", "simple"}

    def build(number: int, inbox: Iterable[list[Any]]) -> Iterator[_Proto | None]:
        yield None if number == blocks else _proto(number, blocks, next(iter(inbox)), links_once)

    messages = context.parallelize(list(tasks), max(1, len(tasks))).flatMap(read)
    protos = single(exchanged(messages, blocks).mapPartitionsWithIndex(build))
    protos.persist(StorageLevel.MEMORY_AND_DISK)
    sizes = protos.map(_size).collect()
    if any(has_repeats for _, _, has_repeats in sizes):
        protos.unpersist()
        return None
    asked = exchanged(protos.flatMap(_requests), blocks)
    whole = single(protos.zip(asked).map(_answered)).persist(StorageLevel.MEMORY_AND_DISK)
    names = single(protos.map(_names_of)).persist(StorageLevel.MEMORY_AND_DISK)
    whole.zip(names).foreach(_nothing)
    protos.unpersist()
    nodes, edges = (sum(size[place] for size in sizes) for place in (0, 1))
    return BlockedGraph(whole, names, blocks, nodes, edges, attempt)


def _nothing(_: object) -> None:
    """Applied to each element, so that Spark materializes it."""


def _size(proto: _Proto | None) -> tuple[int, int, bool]:
    if proto is None:
        return 0, 0, False
    return proto.block.nodes, len(proto.block.sources), proto.has_repeats


def _names_of(proto: _Proto | None) -> BlockNodes | None:
    return None if proto is None else proto.names


def _concatenated(parts: Sequence[np.ndarray[Any, Any]], dtype: Any) -> np.ndarray[Any, Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _proto(number: int, blocks: int, inbox: Sequence[Any], links_once: bool) -> _Proto:
    names = _names([each for each in inbox if isinstance(each, _Nodes)])
    keys = names.keys
    edges = [each for each in inbox if isinstance(each, Edges)]
    begin = _concatenated([each.begin for each in edges], np.uint64)
    ends = np.searchsorted(keys, _concatenated([each.end for each in edges], np.uint64))
    given = [each.weights for each in edges if each.weights is not None]
    weights = np.concatenate(given) if given else None
    order = np.lexsort((begin, ends))
    begin, ends = begin[order], ends[order]
    weights = None if weights is None else weights[order]
    if links_once and len(ends):
        kept = np.append(True, (ends[1:] != ends[:-1]) | (begin[1:] != begin[:-1]))
        begin, ends = begin[kept], ends[kept]
    found, places = np.unique(begin, return_inverse=True)
    by_block = np.lexsort((found, owner_of(found, blocks)))
    ranks = np.empty(len(found), np.int32)
    ranks[by_block] = np.arange(len(found), dtype=np.int32)
    pointers = np.append(0, np.cumsum(np.bincount(ends, minlength=len(keys))))
    block = Block(
        number,
        blocks,
        keys,
        pointers,
        ranks[places],
        weights,
        np.zeros(len(keys)),
        found[by_block],
        (),
    )
    return _Proto(names, block, _has_repeats(keys))


def _requests(proto: _Proto | None) -> Iterator[Message]:
    """Requests for the values of ghosts, with the weight of the edges from each ghost."""
    if proto is None:
        return
    block = proto.block
    leaving = np.bincount(block.sources, block.weights, minlength=len(block.ghosts))
    for owner, chosen in _by_owner(owner_of(block.ghosts, block.blocks)):
        yield owner, (block.number, block.ghosts[chosen], leaving[chosen])


def _answered(pair: tuple[_Proto | None, list[Any]]) -> Block | None:
    proto, asked = pair
    if proto is None:
        return None
    block = proto.block
    out = np.zeros(block.nodes)
    sends = [np.zeros(0, np.int32)] * block.blocks
    for number, keys, leaving in sorted(asked, key=_number):
        places = np.searchsorted(block.keys, keys)
        sends[number] = places.astype(np.int32)
        out[places] += leaving
    return Block(
        block.number,
        block.blocks,
        block.keys,
        block.pointers,
        block.sources,
        block.weights,
        out,
        block.ghosts,
        tuple(sends),
    )
