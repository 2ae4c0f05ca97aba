"""One request and how its answer is read; nothing here sends anything."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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

# --- where a graph is served ----------------------------------------------------------------------

_SCHEMES = ("http", "https")
_HINT = "write it as http://HOST:PORT/graphs/ID"
_GRAPH_AT_END = re.compile(r"(?P<root>.*)/graphs/(?P<graph_id>[^/]+)")


@dataclass(frozen=True, slots=True)
class Address:
    """The URL below which the paths of one graph lie."""

    base: str
    """Without a slash at its end."""

    @classmethod
    def parse(cls, url: str, graph: str | None = None) -> Address:
        """An address from what a caller wrote; ``graph`` names the graph if the URL does not.

        Raises `InputError` for anything but the plain URL of a server, and for two graphs.
        """
        parts = urlsplit(url)
        # A password in a URL ends up in logs and histories, so it is refused and not repeated.
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
        """The graph, if the URL says so."""
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
    """A text that was read already, with the file it came from; `Source` is one."""

    text: str
    path: str | None


@dataclass(slots=True)
class Text:
    """One text to be sent."""

    text: str
    path: str | None = None

    @classmethod
    def of(cls, origin: str | Path | HasText) -> Text:
        """A text, or what is in a file; raises `InputError` for what is not UTF-8."""
        if isinstance(origin, Path):
            return cls(utf8(origin.read_bytes(), f"`{origin}`").removeprefix("\ufeff"), str(origin))
        if isinstance(origin, str):
            return cls(origin.removeprefix("\ufeff"))
        return cls(origin.text, origin.path)


def utf8(raw: bytes, name: str) -> str:
    """Bytes as a text; raises `InputError` naming the first bad byte."""
    try:
        return raw.decode()
    except UnicodeDecodeError as bad:
        raise InputError(f"{name} is not UTF-8, from byte {bad.start} on") from None


# --- request and response -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Response:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """Found by any spelling of their names."""
    content: bytes

    @property
    def media_type(self) -> str:
        """The type of the content, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def document(self) -> dict[str, Any]:
        """The JSON object that the content is; raises `UnexpectedAnswer`."""
        found = orjson.loads(self.content)
        if not isinstance(found, dict):
            raise UnexpectedAnswer("the answer is no JSON object")
        return found


def header_key(operation_id: str | None) -> str | None:
    """The key of a write that only a header can carry; raises `InputError` for what it cannot."""
    key = checked_key(operation_id)
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise InputError(
            f"`operation_id` {key!r} cannot be sent: it becomes a header of the request",
            hint="use ASCII letters, digits and signs, without space around them",
        )
    return key


def new_key() -> str:
    """A name for a write whose caller gives none."""
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class Exchange(Generic[Value]):
    """One request and how its answer is read."""

    operation: Operation
    read: Callable[[Response], Value]
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
    key: str = field(default_factory=new_key)
    """The name of the write, by which the server knows it again."""

    @property
    def is_keyed(self) -> bool:
        """Whether it is a write with a name, which can be sent again and is not done again."""
        return self.operation.is_gated and not self.is_read

    @property
    def operation_id(self) -> str | None:
        """The id to ask with what became of it, if its verb takes one."""
        return self.key if self.is_keyed and self.operation not in (INVOKE, INVOKE_IF) else None

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
        if self.operation.has_body:  # also one that is left out: a server may insist on the type
            headers.setdefault("Content-Type", self.operation.takes)
        if self.is_keyed and self.key.isascii() and self.key.isprintable():
            headers[IDEMPOTENCY_KEY] = self.key
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


def query_items(
    parameters: Mapping[str, str | int | bool | Iterable[str] | None],
) -> tuple[QueryItem, ...]:
    """Parameters of a query string, without those that are None.

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
    """A request body, validated with the model that the server reads it with."""
    given = present(fields)
    read_document(model, given)
    if params is not None:
        given["params"] = {name: sendable(value, name) for name, value in params.items()}
    return json_body(given)


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def condition(expected_head: str | None) -> dict[str, str]:
    """The header of a conditional write, if there is a condition."""
    if expected_head is None:
        return {}
    return {IF_GRAPH_COMMIT: expected_commit([expected_head])}


def segment(word: str, what: str) -> str:
    """A word that becomes a segment of a path, where an empty one would name something else."""
    if not word or word in (".", ".."):
        raise InputError(f"`{word}` is not the name of a {what}")
    return word


def sendable(given: object, name: str) -> object:
    """A parameter as JSON has it; raises `ParameterError` for a value that no parameter takes."""
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
    """Bytes as the text that servers read."""
    if isinstance(value, bytes):
        return BLOB_PREFIX + b64encode(value).decode()
    raise TypeError(f"a value of type {type(value).__name__}")
