"""One request and how its answer is read; nothing here sends anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import orjson

from omnigraph.client.texts import Text
from omnigraph.errors import InputError
from omnigraph.wire.operations import GRAPH, Operation

Value = TypeVar("Value")

QueryItem = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """Found by any spelling of their names."""
    content: bytes

    @property
    def media_type(self) -> str:
        """The type of the content, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class Exchange(Generic[Value]):
    """One request and how its answer is read."""

    operation: Operation
    read: Callable[[Answer], Value]
    values: Mapping[str, str] = field(default_factory=dict)
    """What stands in the path."""
    query: tuple[QueryItem, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    is_read: bool = False
    """Whether it may be sent again without knowing what became of it."""
    also_fine: tuple[int, ...] = ()
    """Statuses beyond those of every success."""
    text: Text | None = None
    """The query or schema that is sent, to show where a mistake in it is."""

    @property
    def path(self) -> str:
        """The path below the graph, or below the server if it is about no graph."""
        quoted = {name: quote(value, safe="") for name, value in self.values.items()}
        return self.operation.path.removeprefix(GRAPH).format(**quoted)

    @property
    def is_about_a_graph(self) -> bool:
        """Whether the path starts at the graph, and not at the server."""
        return self.operation.path.startswith(GRAPH)

    def succeeded(self, status: int) -> bool:
        """Whether a status means that there is something to read."""
        return 200 <= status < 300 or status in self.also_fine

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers of the request, without the token."""
        headers = {"Accept": self.operation.gives[0], **self.headers}
        if self.content is not None:
            headers.setdefault("Content-Type", self.operation.takes)
        return headers


def json_body(document: Mapping[str, Any]) -> bytes:
    """A request as JSON; raises `InputError` for values that JSON does not have."""
    try:
        return orjson.dumps(document, default=_plain)
    except orjson.JSONEncodeError as problem:
        raise InputError(
            f"this cannot be sent as JSON: {problem}",
            hint="parameters are texts, numbers, booleans, lists and None",
        ) from None


def query_items(**parameters: str | int | Iterable[str] | None) -> tuple[QueryItem, ...]:
    """Parameters of a query string; a trailing underscore keeps a word off Python's own.

    >>> query_items(branch="review", from_=None, kind=["node", "edge"])
    (('branch', 'review'), ('kind', 'node'), ('kind', 'edge'))
    """
    items: list[QueryItem] = []
    for name, value in parameters.items():
        if value is None:
            continue
        several = [str(value)] if isinstance(value, str | int) else value
        items += [(name.removesuffix("_"), each) for each in several]
    return tuple(items)


def _plain(value: object) -> Any:
    """What in-process callers may pass as well."""
    if isinstance(value, bytes):
        from base64 import b64encode

        return f"base64:{b64encode(value).decode()}"
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    raise TypeError(f"a value of type {type(value).__name__}")
