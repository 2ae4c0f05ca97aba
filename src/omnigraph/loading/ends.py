"""A pass of a bulk load: edges that refer to nodes by their ids alone get the types of these.

Only edge types with an end that is an interface need it. Their rows were written before all nodes
were read, so tasks read them again, look up ids among written and committed nodes, and write them
anew, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.commit.validation.ends import with_resolved_ends
from omnigraph.loading.check_plan import CommittedPart, Part
from omnigraph.model.arrow import ID
from omnigraph.schema.catalog import NodeType
from omnigraph.storage.written import (
    TablePlace,
    committed_batches,
    read_written,
    write_rows,
    written_columns,
)

if TYPE_CHECKING:
    from omnigraph.loading.reading import Reading
    from omnigraph.loading.staging import BufferedRows


@dataclass(slots=True)
class NodeIds:
    """The ids of the nodes that a bulk load results in, refused ones included, read on demand."""

    parts: Mapping[str, tuple[Part, ...]]
    """By type key, the rows of node types."""
    refused: Mapping[str, tuple[str, ...]]
    """By type key, ids of records that are not written because of problems of their own."""
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    _known: dict[str, pa.ChunkedArray] = field(default_factory=dict, repr=False)

    def existing(self, node: NodeType, ids: pa.Array) -> pa.ChunkedArray:
        """All ids of a type, which are read once; ``ids`` are those that are looked for."""
        key = node.table_key
        known = self._known.get(key)
        if known is None:
            parts = [pa.array(self.refused.get(key, ()), pa.string())]
            for part in self.parts.get(key, ()):
                parts += [batch[ID] for batch in self._batches(part)]
            known = self._known[key] = pa.chunked_array(parts, pa.string())
        return known

    def _batches(self, part: Part) -> Iterable[pa.RecordBatch]:
        options = self.storage_options or None
        if not isinstance(part, CommittedPart):
            return part.batches([ID], options)
        return committed_batches(
            part.address, part.version, part.fragment_ids, [ID], storage_options=options
        )


@dataclass(frozen=True, slots=True)
class EndsJob:
    """The arguments of the tasks of this pass."""

    reading: Reading
    places: Mapping[str, TablePlace]
    """Where edges are written, by type key."""
    tasks: tuple[tuple[tuple[str, str], ...], ...]
    """By task, the type keys and fragments of edges."""
    nodes: NodeIds
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    buffer: BufferedRows | None = None
    """Rows that are in memory; only within one process."""


def resolve_ends(job: EndsJob) -> Callable[[int], list[list[str]]]:
    """The function that writes the edges of one task anew: by fragment, those in its place."""

    def run(number: int) -> list[list[str]]:
        return [_written_anew(job, *each) for each in job.tasks[number]]

    return run


def _written_anew(job: EndsJob, key: str, fragment: str) -> list[str]:
    catalog = job.reading.catalog
    edge = next(each for each in catalog.edges.values() if each.table_key == key)
    buffered = None if job.buffer is None else job.buffer.get(fragment)
    options = job.storage_options or None
    if buffered is not None:
        rows = with_resolved_ends(buffered, edge, catalog, job.nodes.existing)
        assert job.buffer is not None
        return [fragment if rows is buffered else job.buffer.keep(rows.to_batches())]
    place = job.places[key]
    columns = written_columns(place, fragment, storage_options=options)
    stored = pa.Table.from_batches(
        list(read_written(place, fragment, columns, storage_options=options))
    )
    rows = with_resolved_ends(stored, edge, catalog, job.nodes.existing)
    if rows is stored:
        return [fragment]
    return write_rows(place, rows.schema, rows.to_batches(), storage_options=options)
