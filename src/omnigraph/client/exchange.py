"""A request and the way its answer is read; nothing here does I/O."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import date
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlsplit
from uuid import uuid4

import orjson

from omnigraph.errors import InputError, ParameterError, UnexpectedAnswer
from omnigraph.model.ids import checked_key
from omnigraph.model.parameters import plain_value
from omnigraph.model.records import dataclass
from omnigraph.model.values import BLOB_PREFIX
from omnigraph.wire.operations import (
    GRAPH,
    GRAPH_ID_PATTERN,
    INVOKE,
    INVOKE_IF,
    Operation,
)
from omnigraph.wire.requests import (
    IDEMPOTENCY_KEY,
    IF_GRAPH_COMMIT,
    Body,
    expected_commit,
    read_document,
)

Value = TypeVar("Value")

QueryItem = tuple[str, str]

# --- the address of a graph -----------------------------------------------------------------------

_SCHEMES = ("http", "https")
_HINT = "write it as http://HOST:PORT/graphs/ID"
_GRAPH_AT_END = re.compile(r"(?P<root>.*)/graphs/(?P<graph_id>[^/]+)")


@dataclass(frozen=True, slots=True)
class Address:
    """The base URL of a graph's paths."""

    base: str
    """Without a trailing slash."""

    @classmethod
    def parse(cls, url: str, graph: str | None = None) -> Address:
        """Parse a URL; ``graph`` is the id of the graph if the URL does not contain it.

        Raises `InputError` for anything but the plain URL of a server, and if both name a graph.
        """
        parts = urlsplit(url)
        # A password in a URL would end up in logs and histories, so it is refused and not quoted.
        if parts.username is not None or parts.password is not None:
            raise InputError("the URL of a server holds a user name", hint="pass `token` instead")
        if parts.scheme.lower() not in _SCHEMES or not parts.hostname:
            raise InputError(f"`{url}` is not the URL of a server", hint=_HINT)
        if parts.query or parts.fragment:
            raise InputError(f"`{url}` has more than a path", hint=_HINT)
        found = cls(url.rstrip("/"))
        return found if graph is None else found._with_graph(graph)

    @property
    def root(self) -> str:
        """The URL of the server itself."""
        found = _GRAPH_AT_END.fullmatch(self.base)
        return found["root"] if found is not None else self.base

    @property
    def graph_id(self) -> str | None:
        """The id of the graph, if the URL contains it."""
        found = _GRAPH_AT_END.fullmatch(self.base)
        return found["graph_id"] if found is not None else None

    def __str__(self) -> str:
        return self.base

    def _with_graph(self, graph: str) -> Address:
        if self.graph_id is not None and self.graph_id != graph:
            raise InputError(
                f"`{self.base}` is graph `{self.graph_id}` already, not `{graph}`",
                hint="give the graph once",
            )
        if re.fullmatch(GRAPH_ID_PATTERN, graph) is None:
            raise InputError(
                f"`{graph}` is not the id of a graph", hint="ids have letters, digits and `-`"
            )
        return Address(f"{self.root}/graphs/{quote(graph, safe='')}")


# --- texts of queries and schemas -----------------------------------------------------------------


class HasText(Protocol):
    """A text with the file that it was read from, such as `Source`."""

    text: str
    path: str | None


@dataclass(slots=True)
class Text:
    """A text to send."""

    text: str
    path: str | None = None

    @classmethod
    def of(cls, origin: str | Path | HasText) -> Text:
        """A text, or the content of a file; raises `InputError` if it is not UTF-8."""
        if isinstance(origin, Path):
            return cls(utf8(origin.read_bytes(), f"`{origin}`").removeprefix("\ufeff"), str(origin))
        if isinstance(origin, str):
            return cls(origin.removeprefix("\ufeff"))
        return cls(origin.text, origin.path)


def utf8(raw: bytes, name: str) -> str:
    """Decode bytes; raises `InputError` naming the first invalid byte."""
    try:
        return raw.decode()
    except UnicodeDecodeError as bad:
        raise InputError(f"{name} is not UTF-8, from byte {bad.start} on") from None


# --- request and response -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    """Keys are case-insensitive."""
    content: bytes

    @property
    def media_type(self) -> str:
        """The media type of the content, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def document(self) -> dict[str, Any]:
        """The content as a JSON object; raises `UnexpectedAnswer`."""
        found = orjson.loads(self.content)
        if not isinstance(found, dict):
            raise UnexpectedAnswer("the answer is no JSON object")
        return found


def header_key(operation_id: str | None) -> str | None:
    """The idempotency key for a header; raises `InputError` if it is not a valid header value."""
    key = checked_key(operation_id)
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise InputError(
            f"`operation_id` {key!r} cannot be sent: it becomes a header of the request",
            hint="use ASCII letters, digits and signs, without space around them",
        )
    return key


def new_key() -> str:
    """A key for a write whose caller gives none."""
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class Exchange(Generic[Value]):
    """A request and the way its answer is read."""

    operation: Operation
    read: Callable[[Response], Value]
    values: Mapping[str, str] = field(default_factory=dict)
    """The parameters of the path."""
    query: tuple[QueryItem, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    is_read: bool = False
    """Whether it can be repeated without knowing the outcome of the first attempt."""
    also_fine: tuple[int, ...] = ()
    """Accepted statuses besides 2xx."""
    text: Text | None = None
    """The query or schema that is sent, to show the position of errors in it."""
    key: str = field(default_factory=new_key)
    """The idempotency key of a write."""

    @property
    def is_keyed(self) -> bool:
        """Whether it is a write with an idempotency key, which can be repeated safely."""
        return self.operation.is_gated and not self.is_read

    @property
    def operation_id(self) -> str | None:
        """The id with which the outcome can be queried, if the verb takes one."""
        return self.key if self.is_keyed and self.operation not in (INVOKE, INVOKE_IF) else None

    @property
    def path(self) -> str:
        """The path relative to the graph, or to the server if no graph is involved."""
        quoted = {name: quote(value, safe="") for name, value in self.values.items()}
        return self.operation.path.removeprefix(GRAPH).format(**quoted)

    @property
    def is_about_a_graph(self) -> bool:
        """Whether the path is relative to the graph, and not to the server."""
        return self.operation.path.startswith(GRAPH)

    def succeeded(self, status: int) -> bool:
        """Whether a status is a success."""
        return 200 <= status < 300 or status in self.also_fine

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers of the request, without the token."""
        headers = {"Accept": self.operation.gives[0], **self.headers}
        if self.operation.has_body:  # also without a body: servers may require the type
            headers.setdefault("Content-Type", self.operation.takes)
        if self.is_keyed and self.key.isascii() and self.key.isprintable():
            headers[IDEMPOTENCY_KEY] = self.key
        return headers


def json_body(document: Mapping[str, Any]) -> bytes:
    """Encode as JSON; raises `InputError` for values that JSON cannot represent."""
    try:
        return orjson.dumps(document, default=_plain)
    except orjson.JSONEncodeError as problem:
        raise InputError(
            f"this cannot be sent as JSON: {problem}",
            hint="parameters are texts, numbers, booleans, lists and None",
        ) from None


def query_items(
    parameters: Mapping[str, str | int | bool | Iterable[str] | None],
) -> tuple[QueryItem, ...]:
    """Parameters of a query string, without None values.

    >>> query_items({"branch": "review", "from": None, "kind": ["node", "edge"], "images": True})
    (('branch', 'review'), ('kind', 'node'), ('kind', 'edge'), ('images', 'true'))
    """
    items: list[QueryItem] = []
    for name, value in parameters.items():
        match value:
            case None:
                pass
            case bool():
                items.append((name, str(value).lower()))
            case str() | int():
                items.append((name, str(value)))
            case _:
                items += [(name, each) for each in value]
    return tuple(items)


def checked_body(
    model: type[Body], fields: Mapping[str, Any], params: Mapping[str, Any] | None = None
) -> bytes:
    """A request body, validated with the server's model."""
    given = present(fields)
    read_document(model, given)
    if params is not None:
        given["params"] = {name: sendable(value, name) for name, value in params.items()}
    return json_body(given)


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def condition(expected_head: str | None) -> dict[str, str]:
    """The header of a conditional write, if it is conditional."""
    if expected_head is None:
        return {}
    return {IF_GRAPH_COMMIT: expected_commit([expected_head])}


def segment(word: str, what: str) -> str:
    """Check a path segment: an empty one would address something else."""
    if not word or word in (".", ".."):
        raise InputError(f"`{word}` is not the name of a {what}")
    return word


def sendable(given: object, name: str) -> object:
    """A parameter as JSON; raises `ParameterError` for a value of an unsupported type."""
    value = plain_value(given)
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        return [_sendable_record(item, f"{name}[{at}]") for at, item in enumerate(value)]
    for item in value if isinstance(value, list | tuple) else (value,):
        if isinstance(item, float):
            if isfinite(item):
                continue
            what, hint = str(item), "pass None for a missing value"
        elif isinstance(item, str | int | bytes | date | list | tuple | dict | NoneType):
            continue
        else:
            what, hint = "it", "pass texts, numbers, booleans, dates, bytes, or arrays of them"
        kind = type(given)
        origin = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        message = f"parameter '{name}' is a {origin}: {what} cannot be sent as JSON"
        raise ParameterError(str(name), message, hint=hint)
    return value


def _sendable_record(item: object, name: str) -> object:
    if not isinstance(item, Mapping):
        return sendable(item, name)
    return {field: sendable(value, f"{name}.{field}") for field, value in item.items()}


def _plain(value: object) -> Any:
    """Bytes as base64 text, which servers read."""
    if isinstance(value, bytes):
        return BLOB_PREFIX + b64encode(value).decode()
    raise TypeError(f"a value of type {type(value).__name__}")
