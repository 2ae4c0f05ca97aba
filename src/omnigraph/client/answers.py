"""From an answer to the values that `Graph` gives for the same verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from omnigraph.client.exchange import Answer
from omnigraph.errors import UnexpectedAnswer
from omnigraph.model.changes import EntityRecord, Handshake
from omnigraph.model.json_object import JsonObject
from omnigraph.model.receipts import MutationReceipt
from omnigraph.model.result import ReadTarget, Result
from omnigraph.wire.requests import ARROW_METADATA, ARROW_STREAM

Json = Mapping[str, Any]
Value = TypeVar("Value", bound=JsonObject)


def document(answer: Answer) -> dict[str, Any]:
    """The JSON object of an answer."""
    found = orjson.loads(answer.content)
    if not isinstance(found, dict):
        raise UnexpectedAnswer("the answer is no JSON object")
    return found


def value_of(kind: type[Value]) -> Callable[[Answer], Value]:
    """How an answer of one kind is read."""
    return lambda answer: kind.from_dict(document(answer))


def baseline_line(line: bytes) -> EntityRecord | Handshake:
    """One line of a baseline: an entity, or at the end where the feed goes on."""
    found = orjson.loads(line)
    if "baseline" in found:
        return Handshake.from_dict(found["baseline"])
    return EntityRecord.from_dict(found)


# --- rows -----------------------------------------------------------------------------------------


def result(answer: Answer) -> Result:
    """The rows of a query, from Arrow or from JSON."""
    if answer.media_type == ARROW_STREAM:
        return _arrow_result(answer.content)
    found = document(answer)
    return _result(_table(found.get("columns"), found["rows"]), found)


def result_or_receipt(answer: Answer) -> Result | MutationReceipt:
    """What a stored query gave: rows, or what it changed."""
    if answer.media_type == ARROW_STREAM:
        return _arrow_result(answer.content)
    found = document(answer)
    if "affected_nodes" in found:
        return MutationReceipt.from_dict(found)
    return _result(_table(found.get("columns"), found["rows"]), found)


def _arrow_result(content: bytes) -> Result:
    table = pa.ipc.open_stream(content).read_all()
    metadata = dict(table.schema.metadata or {})
    about = orjson.loads(metadata.pop(ARROW_METADATA))
    return _result(table.replace_schema_metadata(metadata or None), about)


def _result(table: pa.Table, about: Json) -> Result:
    return Result(
        table,
        query_name=about["query_name"],
        target=ReadTarget.from_dict(about["target"]),
        graph_commit_id=about.get("graph_commit_id"),
    )


def _table(columns: Sequence[str] | None, rows: Sequence[Json]) -> pa.Table:
    """Rows of JSON as a table, with the types that their values show."""
    names = list(columns) if columns is not None else sorted({name for row in rows for name in row})
    if not names:
        # A table without columns still has a number of rows.
        return pa.table({"": pa.nulls(len(rows))}).select([])
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # The one column whose values differ in kind: JSON has names for what is no finite number.
        return pa.array([_NON_FINITE.get(v, v) if isinstance(v, str) else v for v in values])
