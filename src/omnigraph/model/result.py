"""The result of a read query: rows in Arrow, with the commit they were read from."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Protocol, overload

import orjson
import pyarrow as pa
import pyarrow.types as pat

from omnigraph.errors import InputError
from omnigraph.model.governor import current
from omnigraph.model.ids import EntityKind
from omnigraph.model.json_object import OPTIONAL, PLAIN, Json, JsonObject
from omnigraph.model.records import dataclass
from omnigraph.model.result_json import ResultColumns, rows_to_python
from omnigraph.model.text_table import TextTable, cell_text, html_line, html_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class ExplainedStep(JsonObject):
    """One step of a plan, with its execution."""

    step: str
    strategy: str
    rows: int
    """Number of rows that it produced."""
    seconds: float
    expected_rows: Annotated[int | None, OPTIONAL] = None
    """The engine's estimate when it chose the order, if it makes one."""


@dataclass(frozen=True, slots=True)
class ExplainedRun(JsonObject):
    """One execution of a plan."""

    engine: str
    seconds: float
    steps: tuple[ExplainedStep, ...]
    storage: Mapping[str, Any]
    """`requests`, serial `round_trips`, and `calls` by kind and verb."""


@dataclass(frozen=True, slots=True)
class Explanation(JsonObject):
    """The typed plan of a query and, if it ran, its execution."""

    plan: tuple[str, ...]
    """One line per step, indented by nesting."""
    run: Annotated[ExplainedRun | None, Json(is_flat=True, unless=None)] = None

    def __repr__(self) -> str:
        return "\n".join([*self.plan, *(_run_lines(self.run) if self.run is not None else ())])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


_TEXTS = ("step", "strategy")


def _run_lines(run: ExplainedRun) -> Iterator[str]:
    yield ""
    yield f"ran on the {run.engine} engine in {_duration(run.seconds)}"
    columns = {
        "step": [step.step for step in run.steps],
        "strategy": [step.strategy for step in run.steps],
        "expected": ["" if s.expected_rows is None else str(s.expected_rows) for s in run.steps],
        "rows": [str(step.rows) for step in run.steps],
        "time": [_duration(step.seconds) for step in run.steps],
    }
    if not any(columns["expected"]):
        del columns["expected"]
    if run.steps:
        aligned = [
            [f"{cell:{'<' if name in _TEXTS else '>'}{width}}" for cell in (name, *cells)]
            for name, cells in columns.items()
            for width in [max(map(len, (name, *cells)))]
        ]
        for line in zip(*aligned, strict=True):
            yield f"  {'  '.join(line)}"
    calls = [
        f"{number} {kind} {verb}"
        for kind, verbs in run.storage["calls"].items()
        for verb, number in verbs.items()
    ]
    requests, round_trips = run.storage["requests"], run.storage["round_trips"]
    summary = f"storage: {requests} requests in {round_trips} round trips"
    yield f"{summary} ({', '.join(calls)})" if calls else summary


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"


@dataclass(frozen=True, slots=True)
class TableSummary(JsonObject):
    """One type of a snapshot."""

    entity_kind: EntityKind
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int


@dataclass(frozen=True, slots=True)
class SnapshotSummary(JsonObject):
    """The types of a branch at its head, with their sizes."""

    graph_branch: str
    graph_commit_id: str
    graph_manifest_version: int
    internal_schema_version: int
    datasets: tuple[TableSummary, ...]


# --- rows -----------------------------------------------------------------------------------------

ROWS_SHOWN_MAX = 20
"""Rows shown when a result is printed; other methods return all."""
ROWS_DRAWN_MAX = 200
"""Rows whose entities a notebook draws."""
_CELL_WIDTH_MAX = 40
_ROWS_AT_ONCE = 1024
_CELLS_AT_ONCE = 1 << 15
_NO_ROWS = b'"rows":[]'
"""Where the rows are in the JSON form; inside of a string the quotes would be escaped."""


@dataclass(frozen=True, slots=True)
class ReadTarget(JsonObject):
    """What a query read: the head of a branch, or the snapshot of one commit."""

    branch: str | None
    snapshot: str | None = None

    def __str__(self) -> str:
        if self.snapshot is not None:
            return f"snapshot {self.snapshot}"
        return f"branch {self.branch}"


@dataclass(frozen=True, slots=True)
class ReadAnswer(JsonObject):
    """The rows of a read query in JSON."""

    query_name: str
    target: ReadTarget
    row_count: int
    columns: Annotated[tuple[str, ...], Json(unless=())]
    """In the order of the query; left out if there are none."""
    rows: Annotated[list[dict[str, Any]], PLAIN]
    graph_commit_id: Annotated[str | None, OPTIONAL] = None
    """The commit that was read."""
    explain: Annotated[Explanation | None, OPTIONAL] = None
    """The plan and its execution, if the query was run with `explain`."""


class LazyRows(Protocol):
    """Rows that are computed on demand."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        ...

    def collect(self) -> ResultColumns:
        """The rows in this process."""
        ...

    def frame(self) -> Any:
        """The rows as a Spark DataFrame."""
        ...


class Result:
    """The rows of a read query.

    A sequence of rows: `len` counts them, `rows[0]` is the first, `rows[-3:]` is a list of the last
    three, and iterating yields one dict per row, with Python's own values. `to_arrow` returns all
    of them without a copy. In a notebook it is shown as a table.
    """

    def __init__(
        self,
        rows: pa.Table | ResultColumns | LazyRows,
        *,
        query_name: str,
        target: ReadTarget,
        graph_commit_id: str | None = None,
        explain: Explanation | None = None,
    ) -> None:
        self._made = rows if isinstance(rows, pa.Table) else None
        self._rows = ResultColumns.of(rows) if isinstance(rows, pa.Table) else rows
        self.query_name = query_name
        self.target = target
        self.graph_commit_id = graph_commit_id
        """The commit that was read."""
        self.explain = explain
        """The plan and its execution, if the query was run with `explain`."""

    # --- rows -------------------------------------------------------------------------------------

    @property
    def _columns(self) -> ResultColumns:
        rows = self._rows
        return rows if isinstance(rows, ResultColumns) else rows.collect()

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order of the query."""
        return list(self._rows.names)

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return self._columns.row_count

    @property
    def known_row_count(self) -> int | None:
        """The number of rows; None until they are computed."""
        rows = self._rows
        return rows.row_count if isinstance(rows, ResultColumns) else None

    def __len__(self) -> int:
        return self.row_count

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, at: int | slice | str) -> dict[str, Any] | list[dict[str, Any]]:
        """A row, or the rows of a slice; raises `IndexError` and, for a column, `TypeError`."""
        places = range(self.row_count)
        if isinstance(at, str):
            raise TypeError(
                f"rows are counted, not named: `to_arrow()[{at!r}]` is the column, "
                f"and `[0][{at!r}]` its first value"
            )
        if not isinstance(at, slice):
            try:
                place = places[at]
            except IndexError:
                raise IndexError(f"row {at} of {self.row_count}") from None
            return _python_rows(self._columns.slice(place, 1))[0]
        wanted = places[at]
        if wanted.step == 1:
            return _python_rows(self._columns.slice(wanted.start, len(wanted)))
        return [self[place] for place in wanted]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._table.to_batches(max_chunksize=_ROWS_AT_ONCE):
            yield from _python_rows(ResultColumns.of(batch))

    def to_pylist(self) -> list[dict[str, Any]]:
        """Every row as a dict of Python values: `date`, `datetime` in UTC, lists, dicts.

        Inside the block of a `Governor` it stops at its deadline, or when it is cancelled.
        """
        at_once = self._rows_at_once
        if self.row_count <= at_once:
            return _python_rows(self._columns)
        governor = current()
        rows: list[dict[str, Any]] = []
        for start in range(0, self.row_count, at_once):
            governor.check()
            rows += _python_rows(self._columns.slice(start, at_once))
        return rows

    @property
    def _rows_at_once(self) -> int:
        """Rows of a block of work: fewer if there are very many columns."""
        return max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // max(1, len(self._columns.names))))

    def to_arrow(self, *, flatten: bool = False) -> pa.Table:
        """The rows as an Arrow table.

        With ``flatten``, an object such as `$x.*` becomes a column for each of its members, called
        `x.id`, `x.name` and so on. Raises `InputError` if two columns would then have the same
        name.
        """
        return _flattened(self._table) if flatten else self._table

    @property
    def _table(self) -> pa.Table:
        if self._made is None:
            self._made = self._columns.table()
        return self._made

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any library that speaks Arrow's C interface, without a copy."""
        return self._table.__arrow_c_stream__(requested_schema)

    def to_pandas(self, *, flatten: bool = False) -> pd.DataFrame:
        """The rows as a pandas frame; raises `InputError` if pandas is not installed.

        Integers and booleans become pandas' nullable types, so that the type of a column does not
        depend on whether it contains a null, and large integers stay exact. ``flatten`` as in
        `to_arrow`.
        """
        return pandas_frame(self.to_arrow(flatten=flatten))

    def to_polars(self, *, flatten: bool = False) -> Any:
        """The rows as a polars frame; raises `InputError` if polars is not installed."""
        return polars_frame(self.to_arrow(flatten=flatten))

    def to_spark(self) -> Any:
        """The rows as a Spark DataFrame, computed by Spark when the frame is used.

        Only for a query that ran with ``engine="spark"``; raises `InputError` for others.
        """
        if isinstance(self._rows, ResultColumns):
            raise InputError(
                "these rows were not computed by Spark",
                hint='run the query with engine="spark"',
            )
        return self._rows.frame()

    # --- JSON -------------------------------------------------------------------------------------

    def to_dict(self, *, safe_integers: bool = False) -> dict[str, Any]:
        """The JSON form, the same in all interfaces.

        With ``safe_integers``, 64-bit integers that JavaScript would round become strings.
        """
        rows = rows_to_python(self._columns, safe_integers=safe_integers)
        return self._answer(rows).to_dict()

    def to_json_bytes(self, *, safe_integers: bool = False) -> bytes:
        """The JSON form as a text."""
        at_once = self._rows_at_once
        if self.row_count <= at_once:
            return orjson.dumps(self.to_dict(safe_integers=safe_integers))
        # In blocks: rows as Python objects take ten times the memory of their text.
        governor = current()
        before, after = orjson.dumps(self._answer([]).to_dict()).split(_NO_ROWS)
        blocks = []
        for start in range(0, self.row_count, at_once):
            rows = rows_to_python(self._columns.slice(start, at_once), safe_integers=safe_integers)
            blocks.append(orjson.dumps(rows)[1:-1])
            governor.hold(len(blocks[-1]))
        governor.reserve(sum(map(len, blocks)))
        return b"".join((before, b'"rows":[', b",".join(blocks), b"]", after))

    def metadata(self) -> dict[str, Any]:
        """The JSON form without the rows."""
        document = self._answer([]).to_dict()
        del document["rows"]
        return document

    def _answer(self, rows: list[dict[str, Any]]) -> ReadAnswer:
        return ReadAnswer(
            self.query_name,
            self.target,
            self.row_count,
            tuple(self._columns.names),
            rows,
            self.graph_commit_id,
            self.explain,
        )

    # --- to look at -------------------------------------------------------------------------------

    def numeric_columns(self) -> list[bool]:
        """Which columns contain numbers; tables align them to the right."""
        types = [column.type for column in self._columns.arrays]
        return [pat.is_integer(type) or pat.is_floating(type) for type in types]

    def text_rows(self, limit: int | None = None) -> list[list[str]]:
        """The cells of the first rows as texts, nested values as JSON."""
        shown = self._columns if limit is None else ResultColumns.of(self._table.slice(0, limit))
        return [[cell_text(value) for value in row.values()] for row in rows_to_python(shown)]

    def __repr__(self) -> str:
        lines = [self._caption()]
        if self.row_count:
            layout = TextTable(_CELL_WIDTH_MAX)
            rows = self.text_rows(ROWS_SHOWN_MAX)
            lines += layout.lines(self.columns, rows, self.numeric_columns())
        if self._rows_left:
            lines.append(self._rest())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        table = html_table(self.columns, self.text_rows(ROWS_SHOWN_MAX))
        rest = html_line(self._rest()) if self._rows_left else ""
        return html_line(self._caption()) + table + rest + (self._picture() or "")

    def _picture(self) -> str | None:
        """The entities and paths of the first rows as an SVG graph; None if there are none."""
        rows = self.to_arrow().slice(0, ROWS_DRAWN_MAX)
        drawn = [
            field.name
            for field in rows.schema
            if pat.is_struct(field.type) or field.name.endswith(PATH_SUFFIX)
        ]
        return graph_picture(rows.select(drawn).to_pylist()) if drawn else None

    def _caption(self) -> str:
        return f"{self.row_count} rows from {self.target} via {self.query_name}"

    @property
    def _rows_left(self) -> int:
        return max(self.row_count - ROWS_SHOWN_MAX, 0)

    def _rest(self) -> str:
        return f"… and {self._rows_left} more rows"


# --- other libraries ------------------------------------------------------------------------------


def pandas_frame(table: pa.Table) -> pd.DataFrame:
    """A table as a pandas frame with nullable types; raises `InputError` without pandas."""
    try:
        import pandas as pd
    except ImportError:
        raise _not_installed("to_pandas", "pandas") from None
    nullable = {
        pa.bool_(): pd.BooleanDtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
    }
    return table.to_pandas(types_mapper=nullable.get)


def polars_frame(table: pa.Table) -> Any:
    """A table as a polars frame; raises `InputError` without polars."""
    try:
        import polars as pl
    except ImportError:
        raise _not_installed("to_polars", "polars") from None
    for at, column in enumerate(table.columns):
        # Polars 2.1 fails on nullable vectors that start inside their buffer.
        if pat.is_fixed_size_list(column.type) and any(chunk.offset for chunk in column.chunks):
            table = table.set_column(at, table.field(at), column.take(pa.array(range(len(column)))))
    return pl.from_arrow(table)


def _flattened(table: pa.Table) -> pa.Table:
    """The same rows with the members of objects as columns, at every depth."""
    while any(pat.is_struct(column.type) for column in table.schema):
        table = table.flatten()
    for name in table.column_names:
        if table.column_names.count(name) > 1:
            raise InputError(
                f"two columns would be called '{name}'",
                hint="give one of them another name in the query, with `as`",
            )
    return table


def _not_installed(method: str, library: str) -> InputError:
    return InputError(
        f"`{method}` needs {library}, which is not installed",
        hint=f"install it with `pip install {library}`",
    )


# --- Python values --------------------------------------------------------------------------------


def _python_rows(rows: ResultColumns) -> list[dict[str, Any]]:
    if not rows.arrays:
        return [{} for _ in range(rows.row_count)]
    columns = [_python_column(column) for column in rows.arrays]
    return [dict(zip(rows.names, row, strict=False)) for row in zip(*columns, strict=True)]


def _python_column(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    if isinstance(column, pa.ChunkedArray):
        return list(chain.from_iterable(map(_python_column, column.chunks)))
    values: list[Any] = column.to_pylist()
    return _in_utc(values) if _holds_moments(column.type) else values


def _holds_moments(type: pa.DataType) -> bool:
    if not type.num_fields:
        return bool(pat.is_timestamp(type))
    if pat.is_struct(type):
        return any(_holds_moments(field.type) for field in type)
    if pat.is_list(type) or pat.is_large_list(type):
        return _holds_moments(type.value_type)
    return False


def _in_utc(value: Any) -> Any:
    """The same value with the zone `datetime.UTC`; Arrow's choice of class varies."""
    match value:
        case dt.datetime():
            return value.replace(tzinfo=dt.UTC)
        case list():
            return [_in_utc(item) for item in value]
        case dict():
            return {name: _in_utc(item) for name, item in value.items()}
    return value


# --- the picture of a result ----------------------------------------------------------------------

# A small picture of the nodes and edges in rows: one SVG, without script and without network.
#
# Strokes and letters have the colour of the page's text, so it is readable on light and dark.

NODES_MAX = 40
"""Maximum number of nodes drawn; the others are counted."""
LABEL_CHARACTERS = 18
_SIZE, _MARGIN, _RADIUS = 420, 70, 7
PATH_SUFFIX = ".nodes"


def graph_picture(rows: Iterable[Mapping[str, Any]]) -> str | None:
    """An SVG of the entities and paths of some rows; None if nothing in them is connected.

    Whole nodes (`$p.*`) and the nodes of paths (`$x.nodes`) are circles, whole edges (`$e.*`) and
    the steps of paths are arrows.
    """
    labels: dict[str, str] = {}
    edges: dict[tuple[str, str], None] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, Mapping) and {"id", "src", "dst"} <= value.keys():
                ends = str(value["src"]), str(value["dst"])
                edges.setdefault(ends)
                for end in ends:
                    labels.setdefault(end, end)
            elif isinstance(value, Mapping) and "id" in value:
                labels[str(value["id"])] = _label(value)
            elif name.endswith(PATH_SUFFIX) and isinstance(value, list):
                ids = [str(each) for each in value]
                for each in ids:
                    labels.setdefault(each, each)
                edges.update(dict.fromkeys(pairwise(ids)))
    return _drawn(labels, list(edges)) if edges else None


def _label(node: Mapping[str, Any]) -> str:
    """The label of a node: its first text that is not the id, otherwise the id."""
    texts = (value for key, value in node.items() if key != "id" and isinstance(value, str))
    return next(texts, str(node["id"]))


def _drawn(labels: Mapping[str, str], edges: list[tuple[str, str]]) -> str:
    shown = list(labels)[:NODES_MAX]
    places = {node: _place(at, len(shown)) for at, node in enumerate(shown)}
    arrows = [_arrow(places[a], places[b]) for a, b in edges if a in places and b in places]
    circles = [_circle(places[node], labels[node], node) for node in shown]
    left = len(labels) - len(shown)
    more = (
        f'<text x="8" y="{_SIZE - 8}" opacity="0.7">… and {left} more nodes</text>' if left else ""
    )
    marker = (
        '<defs><marker id="og-tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="currentColor"/>'
        "</marker></defs>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" width="{_SIZE}" '
        f'height="{_SIZE}" role="img" font-family="sans-serif" font-size="11" '
        f'fill="currentColor">{marker}{"".join(arrows)}{"".join(circles)}{more}</svg>'
    )


def _place(at: int, count: int) -> tuple[float, float]:
    """A position on a circle, the first at the top."""
    angle = 2 * math.pi * at / count - math.pi / 2
    reach = _SIZE / 2 - _MARGIN
    return _SIZE / 2 + reach * math.cos(angle), _SIZE / 2 + reach * math.sin(angle)


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    if start == end:
        x, y = start
        return (
            f'<circle cx="{x:.1f}" cy="{y - 12:.1f}" r="8" fill="none" stroke="currentColor" '
            'opacity="0.6"/>'
        )
    dx, dy = end[0] - start[0], end[1] - start[1]
    gap = (_RADIUS + 2) / math.hypot(dx, dy)
    x1, y1 = start[0] + dx * gap, start[1] + dy * gap
    x2, y2 = end[0] - dx * gap, end[1] - dy * gap
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" '
        'opacity="0.6" marker-end="url(#og-tip)"/>'
    )


def _circle(at: tuple[float, float], label: str, node: str) -> str:
    x, y = at
    is_right = x >= _SIZE / 2
    anchor, shift = ("start", _RADIUS + 4) if is_right else ("end", -_RADIUS - 4)
    text = label if len(label) <= LABEL_CHARACTERS else f"{label[: LABEL_CHARACTERS - 1]}…"
    return (
        f'<g><title>{escape(node)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}" '
        'fill="rgba(66, 133, 244, 0.6)" stroke="currentColor"/>'
        f'<text x="{x + shift:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">'
        f"{escape(text)}</text></g>"
    )
