"""The rows of one type in one snapshot, read by position and compared by value."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.model.arrow import DST, ID, SRC, same_values
from omnigraph.model.blobs import blob_summary
from omnigraph.model.changes import Endpoints, Image
from omnigraph.model.ids import EntityKind
from omnigraph.model.records import dataclass
from omnigraph.model.references import END_TYPES, ShownEnds
from omnigraph.model.result_json import rows_to_python
from omnigraph.model.values import BLOB_PREFIX, BlobUri
from omnigraph.schema.catalog import EdgeType, NodeType, table_schema
from omnigraph.storage.datasets import Handle
from omnigraph.storage.fragments import Positions
from omnigraph.storage.manifest import TableEntry
from omnigraph.storage.reader import SnapshotReader

ROWS_PER_READ = 4_096
"""The maximum number of rows to hold at once, to compare or show them."""
NARROW_ROWS_PER_READ = 65_536
"""The same if only some columns are read."""
VECTOR_BYTES_PER_READ = 4 * 1024 * 1024
"""The maximum size of vectors to hold at once."""
BLOB_BYTES_PER_READ = 8 * 1024 * 1024
"""The maximum size of blobs to hold at once, except for a single larger one."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TableRows:
    """A type at one snapshot."""

    reader: SnapshotReader
    type: NodeType | EdgeType

    @property
    def key(self) -> str:
        """`node:Name` or `edge:Name`."""
        return self.type.table_key

    @property
    def kind(self) -> EntityKind:
        """Whether its entities are nodes or edges."""
        return "edge" if isinstance(self.type, EdgeType) else "node"

    @cached_property
    def entry(self) -> TableEntry:
        """The version that the snapshot shows."""
        return self.reader.snapshot.table(self.key)

    @property
    def root_uri(self) -> str:
        """The URI of its graph."""
        return self.reader.root_uri

    @property
    def handle(self) -> Handle:
        """The table at that version."""
        return self.reader.handle(self.key)

    @cached_property
    def plain_columns(self) -> list[str]:
        """Every column except blobs."""
        return [name for name in self.columns if name not in self.blob_columns]

    @cached_property
    def blob_columns(self) -> list[str]:
        """The blob columns, whose values are stored outside the rows."""
        return [name for name, prop in self.type.properties.items() if prop.type.is_blob]

    @cached_property
    def rows_per_read(self) -> int:
        """The number of rows to hold at once; fewer if they have vectors."""
        numbers = sum(prop.type.vector_dim or 0 for prop in self.type.properties.values())
        return max(1, min(ROWS_PER_READ, VECTOR_BYTES_PER_READ // max(1, 4 * numbers)))

    @cached_property
    def columns(self) -> list[str]:
        """Every column, in the order of the table."""
        return list(table_schema(self.type).names)

    def plain(self, positions: Positions) -> pa.Table:
        """Rows without blobs, in the order of ``positions``."""
        return self.reader.take(self.key, pa.array(positions), self.plain_columns)

    def columns_of(self, positions: Positions, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns, without blobs, in chunks of rows."""
        schema = table_schema(self.type)
        chosen = pa.schema([schema.field(name) for name in columns])
        for part in chunked(positions, NARROW_ROWS_PER_READ):
            yield self.reader.take(self.key, pa.array(part), columns).cast(chosen)

    def complete(self, positions: Positions) -> Iterator[pa.Table]:
        """Complete rows, ready to be written, in chunks."""
        return map(self._complete, self.blob_parts(positions))

    def _complete(self, positions: Positions) -> pa.Table:
        schema, rows = table_schema(self.type), self.plain(positions)
        for name in self.blob_columns:
            blobs = self.reader.stored_blobs_at(self.key, name, pa.array(positions))
            rows = rows.append_column(schema.field(name), blobs)
        return rows.select(self.columns).cast(schema)

    def blob_parts(self, positions: Positions) -> Iterator[Positions]:
        """``positions`` in chunks that respect the limits of vectors and blobs."""
        for chunk in chunked(positions, self.rows_per_read):
            yield from self._parts(chunk)

    def _parts(self, positions: Positions) -> Iterator[Positions]:
        if not self.blob_columns:
            yield positions
            return
        sizes = sum(
            self.reader.blob_sizes_at(self.key, name, pa.array(positions)).to_numpy()
            for name in self.blob_columns
        )
        part = np.cumsum(sizes) // BLOB_BYTES_PER_READ
        yield from np.split(positions, np.flatnonzero(np.diff(part)) + 1)

    def records(
        self,
        positions: Positions,
        show: Callable[[bytes | BlobUri | None], object],
        convert: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    ) -> Iterator[dict[str, Any]]:
        """Rows as dicts in the order of ``positions``, with blobs converted by ``show``.

        ``convert`` changes columns before they become Python values.
        """
        for chunk in chunked(positions, self.rows_per_read):
            rows = rows_to_python(convert(self.plain(chunk)))
            if not self.blob_columns:
                yield from rows
                continue
            blobs = [
                self.reader.blobs_at(self.key, name, pa.array(chunk)) for name in self.blob_columns
            ]
            for row, *values in zip(rows, *blobs, strict=True):
                yield row | dict(zip(self.blob_columns, map(show, values), strict=True))

    def images(self, positions: Positions, *, payloads: bool = True) -> Iterator[Image]:
        """The images of rows, as users see them, in the order of ``positions``.

        Without ``payloads``, blobs show their size and a digest instead of their bytes.
        """
        return map(self._image, self.records(positions, blob_text if payloads else blob_summary))

    def image_of(self, entity_id: str) -> Image | None:
        """The image of an entity; None if it does not exist."""
        ids = pa.array([entity_id])
        found = rows_to_python(self.reader.rows_where_in(self.key, ID, ids, self.plain_columns))
        for row in found:
            for name in self.blob_columns:
                if (blob := self.reader.blobs(self.key, name, ids)[0].as_py()) is not None:
                    stored = blob["data"] if blob["uri"] is None else BlobUri(blob["uri"])
                    blob = blob_text(stored)
                row[name] = blob
            return self._image(row)
        return None

    def _image(self, row: dict[str, object]) -> Image:
        properties = {name: row[name] for name in self.type.properties}
        if isinstance(self.type, EdgeType):
            one = pa.table({name: pa.array([row[name]], pa.string()) for name in (SRC, DST)})
            return Image(properties, self._endpoints(one)[0])
        return Image(properties)

    def endpoints(self, positions: Positions) -> list[Endpoints]:
        """The end nodes of edges."""
        return self._endpoints(self.reader.take(self.key, pa.array(positions), [SRC, DST]))

    def _endpoints(self, rows: pa.Table) -> list[Endpoints]:
        shown = ShownEnds.of(self.type).table(rows).to_pylist()
        return [
            Endpoints(row[SRC], row[DST], row.get(END_TYPES[SRC]), row.get(END_TYPES[DST]))
            for row in shown
        ]


Versions = tuple[TableRows, TableRows]
"""Two versions of one type, to compare."""


@dataclass(frozen=True, eq=False)
class RowsAt:
    """Some rows of a type at one snapshot, in a given order."""

    rows: TableRows
    positions: Positions

    def __len__(self) -> int:
        return len(self.positions)

    def at(self, places: npt.NDArray[np.int64]) -> RowsAt:
        """The rows at some indexes of this list."""
        return RowsAt(self.rows, self.positions[places])

    def chunks(self) -> Iterator[RowsAt]:
        """The rows in chunks that may be held at once."""
        for positions in chunked(self.positions, self.rows.rows_per_read):
            yield RowsAt(self.rows, positions)

    def plain(self) -> pa.Table:
        """The rows without their blobs."""
        return self.rows.plain(self.positions)

    def complete(self) -> pa.Table:
        """The complete rows."""
        empty = table_schema(self.rows.type).empty_table()
        return pa.concat_tables([empty, *self.rows.complete(self.positions)])

    def blobs(self, column: str) -> Iterator[bytes | BlobUri | None]:
        """The values of a blob column, one after another."""
        return self.rows.reader.blobs_at(self.rows.key, column, pa.array(self.positions))


def chunked(positions: Positions, rows: int = ROWS_PER_READ) -> Iterator[Positions]:
    """``positions`` in chunks of ``rows``."""
    for start in range(0, len(positions), rows):
        yield positions[start : start + rows]


def same_rows(left: RowsAt, right: RowsAt) -> Mask:
    """Which rows hold the same values, pair by pair; blobs are compared by content."""
    pairs = zip(left.chunks(), right.chunks(), strict=True)
    masks = [_same_chunk(mine, theirs) for mine, theirs in pairs]
    return np.concatenate(masks) if masks else np.zeros(0, np.bool_)


def _same_chunk(left: RowsAt, right: RowsAt) -> Mask:
    mine, theirs = left.plain(), right.plain()
    same = np.ones(len(left), np.bool_)
    for name in left.rows.plain_columns:
        same &= same_values(mine[name], theirs[name])
    for name in left.rows.blob_columns:
        # Read bytes only of rows that are equal in everything else.
        undecided = np.flatnonzero(same)
        same[undecided] = same_blobs(left.at(undecided), right.at(undecided), name)
    return same


def same_blobs(left: RowsAt, right: RowsAt, column: str) -> Mask:
    """Which blobs of one column have the same content, pair by pair.

    External blobs are compared by URI: their content is not read, and may change at any time.
    """
    if not len(left):
        return np.zeros(0, np.bool_)
    pairs = zip(left.blobs(column), right.blobs(column), strict=True)
    return np.array([mine == theirs for mine, theirs in pairs], np.bool_)


def blob_text(value: bytes | BlobUri | None) -> str | None:
    """A blob in the form that loads read: base64, or the URI of an external one."""
    if value is None:
        return None
    if isinstance(value, BlobUri):
        return value.uri
    return BLOB_PREFIX + base64.b64encode(value).decode()
