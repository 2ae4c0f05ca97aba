"""From stored tables to rows, and from rows to JSON."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import omnigraph as og
from omnigraph.graph.reading import plain_columns
from omnigraph.schema.catalog import Catalog
from tests.support.reference.run import Tables
from tests.support.reference.solutions import Answer


def tables_of(
    graph: og.Graph, catalog: Catalog, branch: str | None = None, snapshot: str | None = None
) -> Tables:
    """Every stored row of one snapshot, without the blobs."""
    reader = graph._opened.reader(branch, snapshot)
    keys = [node.table_key for node in catalog.nodes.values()]
    keys += [edge.table_key for edge in catalog.edges.values()]
    return {key: reader.scan(key, plain_columns(key, catalog)).to_pylist() for key in keys}


def json_rows(answer: Answer) -> list[list[Any]]:
    """The rows with their values as JSON has them."""
    return [[json_value(value) for value in row] for row in answer.rows]


def json_value(value: Any) -> Any:
    """One value as JSON has it."""
    match value:
        case float() if not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case dt.datetime():
            utc = value.astimezone(dt.UTC)
            return utc.strftime("%Y-%m-%dT%H:%M:%S.") + f"{utc.microsecond // 1000:03}Z"
        case dt.date():
            return value.isoformat()
        case list():
            return [json_value(item) for item in value]
        case dict():
            return {name: json_value(item) for name, item in value.items()}
    return value
