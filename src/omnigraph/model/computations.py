"""The result of a graph computation: a value for each node, and how it was computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.model.json_object import JsonObject
from omnigraph.model.load_options import SparkOptions
from omnigraph.model.receipts import LoadReceipt
from omnigraph.model.records import dataclass
from omnigraph.model.result import ReadTarget, pandas_frame, polars_frame
from omnigraph.model.result_json import rows_to_python
from omnigraph.model.text_table import TextTable, cell_text, html_line, html_table

if TYPE_CHECKING:
    import pandas as pd

ROWS_SHOWN_MAX = 10
_CELL_WIDTH_MAX = 40


class ComputeOptions(TypedDict, total=False):
    """Options that every computation takes."""

    nodes: Sequence[str] | str | None
    """The node types; without them the ends of the edges."""
    edges: Sequence[str] | str | None
    """The edge types; without them all edges between the nodes."""
    branch: str | None
    """The branch to read, main by default."""
    snapshot: str | None
    """A commit to read instead."""
    engine: str | None
    """`local`, this process, which is the default, or `spark`."""
    spark: SparkOptions | None
    """Where Spark runs; without it the active session, or one that is started."""
    into: str | None
    """A property, such as `Person.rank`, to which the values are written in one commit."""
    to_branch: str | None
    """The branch of that commit; created from the branch that is read if it does not exist."""
    actor: str | None
    """The actor of the commit."""
    message: str | None
    """The message of the commit."""
    on_round: Callable[[int, float], None] | None
    """Called after each round with its number and the size of the change."""


@dataclass(frozen=True, slots=True)
class ComputationSummary(JsonObject):
    """A summary of how a computation ran."""

    algorithm: str
    engine: str
    target: ReadTarget
    graph_commit_id: str
    """The commit that was read."""
    nodes: int
    edges: int
    """As the algorithm counts them: an edge used in both directions counts twice."""
    rounds: int
    converged: bool
    """Whether another round would change nothing; False if the maximum of rounds was reached."""
    seconds: float


class Computation:
    """The values of all nodes, in no order, with the columns `type`, `id` and those of values."""

    def __init__(
        self,
        summary: ComputationSummary,
        value: str,
        rows: Callable[[], pa.Table],
        frame: Callable[[], Any] | None = None,
        receipt: LoadReceipt | None = None,
    ) -> None:
        self.summary = summary
        self.value = value
        """The column that `into` writes."""
        self._rows = rows
        self._frame = frame
        self._table: pa.Table | None = None
        self.receipt = receipt
        """The receipt of the commit, if the values were written into the graph."""

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return self.summary.rounds

    @property
    def converged(self) -> bool:
        """Whether another round would change nothing."""
        return self.summary.converged

    def to_arrow(self) -> pa.Table:
        """All rows, in memory."""
        if self._table is None:
            self._table = self._rows()
        return self._table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any library that speaks Arrow's C interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Every row as a dict."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame; raises `InputError` if pandas is not installed."""
        return pandas_frame(self.to_arrow())

    def to_polars(self) -> Any:
        """The rows as a polars frame; raises `InputError` if polars is not installed."""
        return polars_frame(self.to_arrow())

    def to_spark(self) -> Any:
        """The rows as a Spark DataFrame; raises `InputError` if Spark did not compute them."""
        if self._frame is None:
            raise InputError(
                f"{self.summary.algorithm} ran in this process", hint='compute with engine="spark"'
            )
        return self._frame()

    def top(self, count: int) -> pa.Table:
        """The rows with the largest values; ties are sorted by type and id."""
        rows = self.to_arrow()
        ties = [("type", "ascending"), ("id", "ascending")]
        order = [(self.value, "descending"), *ties]
        return rows.sort_by(order).slice(0, count)

    def to_dict(self, rows: pa.Table | None = None) -> dict[str, Any]:
        """The JSON form, with all rows or with ``rows``."""
        written: Mapping[str, Any] = {}
        if self.receipt is not None:
            written = {"written": self.receipt.to_dict()}
        shown = rows_to_python(self.to_arrow() if rows is None else rows)
        return {**self.summary.to_dict(), **written, "rows": shown}

    def _caption(self) -> str:
        about = self.summary
        state = "" if about.converged else ", not converged"
        return (
            f"{about.algorithm} of {about.nodes:,} nodes and {about.edges:,} edges from"
            f" {about.target}, rounds: {about.rounds}{state}"
        )

    def __repr__(self) -> str:
        columns, cells = self._cells()
        layout = TextTable(_CELL_WIDTH_MAX)
        numeric = [not pa.types.is_string(t) for t in self.to_arrow().schema.types]
        return "\n".join([self._caption(), *layout.lines(columns, cells, numeric)])

    def _repr_html_(self) -> str:
        return html_line(self._caption()) + html_table(*self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = rows_to_python(self.top(ROWS_SHOWN_MAX))
        columns = list(self.to_arrow().schema.names)
        return columns, [[cell_text(row[name]) for name in columns] for row in rows]
