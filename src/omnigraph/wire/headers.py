"""Names of headers and media types, and the condition a write may carry."""

from __future__ import annotations

import re
from collections.abc import Sequence

from omnigraph.errors import InputError

IF_GRAPH_COMMIT = "Omnigraph-If-Graph-Commit"
SNAPSHOT_ID = "Omnigraph-Snapshot-Id"
REQUEST_ID = "X-Request-Id"

JSON = "application/json"
NDJSON = "application/x-ndjson"
NDJSON_UTF8 = "application/x-ndjson; charset=utf-8"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
OCTETS = "application/octet-stream"

ARROW_METADATA = b"omnigraph"
"""The key of the schema metadata that carries the rest of an answer in Arrow, as JSON."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_COMMIT_ID = re.compile(r"[A-Za-z0-9]+")


def is_request_id(text: str) -> bool:
    """Whether a caller's request id may be taken over."""
    return _REQUEST_ID.fullmatch(text) is not None


def expected_commit(values: Sequence[str]) -> str:
    """The commit a conditional write expects, from every value of its header.

    Exactly one bare commit id is allowed: the list, wildcard and tag forms of HTTP mean something
    else, and a write must not depend on how they are read.
    """
    if len(values) != 1:
        found = "is missing" if not values else "was sent more than once"
        raise InputError(f"header `{IF_GRAPH_COMMIT}` {found}", hint="send one commit id in it")
    value = values[0].strip()
    if _COMMIT_ID.fullmatch(value) is None:
        raise InputError(
            f"header `{IF_GRAPH_COMMIT}` does not hold one commit id",
            hint="send the id bare: no quotes, no `W/`, no `*` and no list",
        )
    return value


def refuse_condition(values: Sequence[str]) -> None:
    """Raise `InputError` if a route that knows no condition got one: it must not be ignored."""
    if values:
        raise InputError(
            f"this route takes no `{IF_GRAPH_COMMIT}`",
            hint="conditional writes have routes of their own, which end in `/if-graph-commit`",
        )
