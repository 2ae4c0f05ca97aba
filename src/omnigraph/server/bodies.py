"""Reading what a caller sends: never more than allowed, and never forever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel

from omnigraph.errors import InputError, LimitExceeded
from omnigraph.wire.failures import UnsupportedMedia
from omnigraph.wire.requests import JSON, read_document

Message = MutableMapping[str, Any]
Receive = Callable[[], Coroutine[Any, Any, Message]]
Document = TypeVar("Document", bound=BaseModel)

BODY_RESOURCE = "request_body_bytes"
BATCH_RESOURCE = "graph_batch_request_bytes"


class Disconnected(Exception):
    """The caller went away before its request was whole; there is nobody to answer."""


def require_media(content_type: str | None, encoding: str | None, wanted: str) -> None:
    """Raise `UnsupportedMedia` for a body of another type.

    JSON may come without a type, as older clients send it; graph records may not.
    """
    if encoding is not None and encoding.strip().lower() != "identity":
        raise UnsupportedMedia("the body is compressed", hint="send it as it is")
    media = (content_type or "").partition(";")[0].strip().lower()
    is_json = media == JSON or (media.startswith("application/") and media.endswith("+json"))
    if media == wanted or (wanted == JSON and (is_json or not media)):
        return
    found = f"'{media}'" if media else "missing"
    raise UnsupportedMedia(
        f"the content type is {found}, and this route reads {wanted}",
        hint=f"send the header `Content-Type: {wanted}`",
    )


def require_length(declared: str | None, limit: int, resource: str) -> None:
    """Refuse a body that is too long by its own account, before a byte of it is read."""
    if declared is not None and declared.isdecimal() and int(declared) > limit:
        raise LimitExceeded(resource, limit, int(declared), hint="send less at a time")


async def read_body(receive: Receive, limit: int, resource: str, patience_seconds: float) -> bytes:
    """The body; raises `LimitExceeded` as soon as it is too long, and does not wait forever."""
    pieces: list[bytes] = []
    total = 0
    while True:
        message = _at_hand(receive)
        if message is None:
            message = await _next(receive, patience_seconds)
        if message["type"] == "http.disconnect":
            raise Disconnected
        piece = message.get("body", b"")
        total += len(piece)
        if total > limit:
            raise LimitExceeded(resource, limit, total, hint="send less at a time")
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _at_hand(receive: Receive) -> Message | None:
    """The next piece if it is there, as it is for most requests: then no timer has to be set."""
    asking = receive()
    try:
        asking.send(None)
    except StopIteration as answered:
        message: Message = answered.value
        return message
    asking.close()
    return None


async def _next(receive: Receive, patience_seconds: float) -> Message:
    try:
        async with asyncio.timeout(patience_seconds):
            return await receive()
    except TimeoutError:
        raise InputError(
            f"the request did not go on for {patience_seconds:g} seconds",
            hint="send it again, without a pause",
        ) from None


def read_json(model: type[Document], body: bytes, *, may_be_empty: bool) -> Document:
    """The request that a JSON body stands for; raises `InputError`."""
    if may_be_empty and not body.strip():
        return read_document(model, {})
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        raise InputError(f"the body is not JSON: {problem}") from None
    if document is None and may_be_empty:
        document = {}
    if not isinstance(document, dict):
        raise InputError("the body is not a JSON object")
    return read_document(model, document)
