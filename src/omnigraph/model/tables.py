"""The rows of one type as Arrow, read when they are asked for, here and behind a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.model.ids import EntityKind
from omnigraph.model.json_object import JsonObject
from omnigraph.model.result import ReadTarget, pandas_frame, polars_frame

if TYPE_CHECKING:
    import pandas as pd

Where = str | Mapping[str, Any]
"""A condition in the words of `where` in `.gq`, or values by property, all of which must hold."""


@dataclass(frozen=True, slots=True)
class TableInfo(JsonObject):
    """What a table shows, and of which commit."""

    entity_kind: EntityKind
    type_name: str
    target: ReadTarget
    graph_commit_id: str


class TableView:
    """What is known of a table before its rows are read."""

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
        """The commit whose rows it shows, also after others have written."""
        return self.about.graph_commit_id

    def __repr__(self) -> str:
        about = self.about
        shown = ", ".join(self.columns)
        return f"{type(self).__name__}({about.type_name} of {about.target}: {shown})"


class Table(TableView):
    """The rows of one type at one commit.

    Nothing is held: rows are read when they are asked for, each time anew, in batches of bounded
    size. Iterating gives Arrow record batches. Whatever takes Arrow's C interface takes the table
    itself: `pyarrow.table(t)`, `polars.from_arrow(t)`, and `duckdb.sql("select … from t")`.
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
