"""The rows of one type in Arrow, read on demand, embedded or remote."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from omnigraph.model.ids import EntityKind
from omnigraph.model.json_object import JsonObject
from omnigraph.model.records import dataclass
from omnigraph.model.result import ReadTarget, pandas_frame, polars_frame

if TYPE_CHECKING:
    import pandas as pd

BATCH_ROWS = 65_536
"""Rows of a batch, at most."""
VECTOR_BYTES = 16 << 20
"""Maximum bytes of the vectors of a batch."""

Where = str | Mapping[str, Any]
"""A condition in the syntax of `where` in `.gq`, or required values by property."""


def batch_rows(schema: pa.Schema) -> int:
    """The maximum number of rows of a batch: fewer if they have vectors."""
    lists = [column.type for column in schema if pa.types.is_fixed_size_list(column.type)]
    numbers: int = sum(each.list_size for each in lists)
    return max(1, min(BATCH_ROWS, VECTOR_BYTES // max(1, 4 * numbers)))


@dataclass(frozen=True, slots=True)
class TableInfo(JsonObject):
    """The description of a table, and the commit it is read from."""

    entity_kind: EntityKind
    type_name: str
    target: ReadTarget
    graph_commit_id: str


class TableView:
    """The description of a table, known before its rows are read."""

    def __init__(self, about: TableInfo, schema: pa.Schema) -> None:
        self.about = about
        self.schema = schema
        """The columns and their Arrow types."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    @property
    def graph_commit_id(self) -> str:
        """The commit whose rows it shows, independent of later writes."""
        return self.about.graph_commit_id

    def __repr__(self) -> str:
        about = self.about
        shown = ", ".join(self.columns)
        return f"{type(self).__name__}({about.type_name} of {about.target}: {shown})"


class Table(TableView):
    """The rows of one type at one commit.

    Nothing is cached: each method reads the rows again, in batches of bounded size. Iterating
    yields Arrow record batches. Libraries with Arrow's C interface accept the table itself:
    `pyarrow.table(t)`, `polars.DataFrame(t)`, and `duckdb.sql("select … from t")`.
    """

    def __init__(
        self,
        about: TableInfo,
        schema: pa.Schema,
        batches: Callable[[], Iterator[pa.RecordBatch]],
    ) -> None:
        super().__init__(about, schema)
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as a stream for any library that speaks Arrow's C interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows, in memory."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame; raises `InputError` if pandas is not installed.

        Integers and booleans become pandas' nullable types, as in `Result.to_pandas`.
        """
        return pandas_frame(self.to_arrow())

    def to_polars(self) -> Any:
        """All rows as a polars frame; raises `InputError` if polars is not installed."""
        return polars_frame(self.to_arrow())


# --- streams --------------------------------------------------------------------------------------

ARROW_METADATA = b"omnigraph"
"""The key of the schema metadata that carries the rest of an answer in Arrow, as JSON."""


def ipc_blocks(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """An Arrow stream in blocks, one per batch; the first block contains the schema."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield _drained(sink)
    yield _drained(sink)


def table_blocks(table: Table, *, rows: bool = True) -> Iterator[bytes]:
    """A table as an Arrow stream with its description; without ``rows`` only its columns."""
    schema = table.schema.with_metadata({ARROW_METADATA: orjson.dumps(table.about.to_dict())})
    return ipc_blocks(schema, table if rows else ())


def described_table(schema: pa.Schema) -> tuple[TableInfo, pa.Schema]:
    """The description in the schema of such a stream, and the plain schema; raises `KeyError`."""
    metadata: Mapping[bytes, bytes] = schema.metadata or {}
    return TableInfo.from_dict(orjson.loads(metadata[ARROW_METADATA])), schema.remove_metadata()


def _drained(sink: io.BytesIO) -> bytes:
    block = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return block
