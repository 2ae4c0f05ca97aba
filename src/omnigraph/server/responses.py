"""Responses: JSON, errors in their envelope, and streams."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

import orjson
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from omnigraph.errors import (
    Busy,
    EmbeddingError,
    HistoricalVersionReclaimed,
    OmnigraphError,
    OutcomeUnknown,
    QueryCancelled,
    StorageUnavailable,
    TooManyRequests,
    Unauthenticated,
    WriterBusy,
)
from omnigraph.model.json_object import JsonObject
from omnigraph.server.admission import ANONYMOUS, RETRY_AFTER_SECONDS
from omnigraph.server.call import Call, WriteOutcome
from omnigraph.wire.failures import MethodNotAllowed, envelope_of, status_of
from omnigraph.wire.requests import ARROW_STREAM, JSON, NDJSON_UTF8

CHUNK_BYTES_MAX = 64 * 1024

INTERNAL = {"error": "an error of the server; its log has the details", "code": "internal"}
"""The body of an internal error, without details that could reveal storage locations."""

RECLAIMED = {
    "error": "this version of the graph was cleaned up",
    "code": "not_found",
    "error_code": HistoricalVersionReclaimed.code,
}

_EXPLAINED = (EmbeddingError, OutcomeUnknown)
"""Errors with status 500 whose message the caller gets."""


def json_response(value: JsonObject | Mapping[str, Any], status: int = 200) -> Response:
    """An answer or document as a JSON response."""
    document = value.to_dict() if isinstance(value, JsonObject) else value
    return Response(orjson.dumps(document), status, media_type=JSON)


def error_response(
    error: OmnigraphError,
    headers: Mapping[str, str] | None = None,
    outcome: WriteOutcome | None = None,
) -> Response:
    """An error as a response with its status, envelope and headers.

    ``outcome`` is the outcome of a write.
    """
    status = status_of(error)
    if isinstance(error, HistoricalVersionReclaimed):
        envelope: Mapping[str, Any] = RECLAIMED  # its message names files
    elif status != 500 or isinstance(error, _EXPLAINED):
        envelope = envelope_of(error)
    else:
        envelope = INTERNAL
    if outcome is not None:
        envelope = {**envelope, "outcome": outcome}
    body = orjson.dumps(envelope, default=str)
    return Response(body, status, {**(headers or {}), **_headers_of(error)}, JSON)


def internal_error(outcome: WriteOutcome | None = None) -> Response:
    """The answer to a request that failed with an unexpected exception."""
    return json_response(INTERNAL if outcome is None else {**INTERNAL, "outcome": outcome}, 500)


def _headers_of(error: OmnigraphError) -> Mapping[str, str]:
    match error:
        case Unauthenticated():
            return {"WWW-Authenticate": "Bearer"}
        case MethodNotAllowed():
            return {"Allow": str(error.details["allow"])}
        case TooManyRequests():
            return {"Retry-After": str(RETRY_AFTER_SECONDS)}
        case WriterBusy():
            seconds = math.ceil(int(error.details["retry_after_ms"]) / 1000)
            return {"Retry-After": str(max(1, seconds))}
        case Busy() | QueryCancelled() | StorageUnavailable():
            return {"Retry-After": "1"}
    return {}


# --- streams --------------------------------------------------------------------------------------


class Blocks:
    """A blocking iterator, whose next block a pool thread makes."""

    def __init__(self, call: Call, blocks: Iterator[bytes]) -> None:
        self._call = call
        self._blocks = blocks
        self._first: bytes | None = None
        self._making: asyncio.Future[bytes | None] | None = None

    async def start(self) -> None:
        """Make the first block, so that errors are raised before the status is sent."""
        self._first = await self._next()

    async def chunks(self, bytes_max: int = CHUNK_BYTES_MAX) -> AsyncIterator[bytes]:
        """The blocks, in pieces of at most ``bytes_max`` bytes."""
        block = self._first
        while block is not None:
            for start in range(0, len(block), bytes_max):
                yield block[start : start + bytes_max]
            block = await self._next()

    async def close(self) -> None:
        """Close the iterator, once a thread has finished the current block."""
        if self._making is not None:
            with suppress(Exception):
                await self._making
        close = getattr(self._blocks, "close", None)
        if close is not None:
            await self._call.services.pool.read(ANONYMOUS, close)

    async def _next(self) -> bytes | None:
        # A disconnect cancels this wait, but not the thread: the iterator must not be closed while
        # a thread runs it.
        self._making = asyncio.ensure_future(self._call.read(next, self._blocks, None))
        return await asyncio.shield(self._making)


class BlockResponse(StreamingResponse):
    """Sends blocks as they are made. A failure while sending closes the connection."""

    def __init__(
        self,
        blocks: Blocks,
        resources: AsyncExitStack,
        media: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        chunk_bytes: int = CHUNK_BYTES_MAX,
    ) -> None:
        super().__init__(self._content(blocks.chunks(chunk_bytes)), status, headers, media)
        self._resources = resources
        """Closed before the end of the response is sent, and on failure."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, unless the client stops reading or disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._resources.aclose()

    async def _content(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            yield chunk
        # Release before sending the end: a client that has read it may start another stream at
        # once, which needs the slot.
        await self._resources.aclose()


async def block_response(
    call: Call,
    blocks: Iterator[bytes],
    media: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    chunk_bytes: int = CHUNK_BYTES_MAX,
    resources: AsyncExitStack | None = None,
) -> BlockResponse:
    """A response of these blocks, of which the first is already made.

    It has no deadline: the connection limits how slowly a client may read.
    """
    resources = resources or AsyncExitStack()
    call.governor.deadline = None
    made = Blocks(call, blocks)
    resources.push_async_callback(made.close)
    try:
        await made.start()
    except BaseException:
        await resources.aclose()
        raise
    return BlockResponse(
        made, resources, media, status=status, headers=headers, chunk_bytes=chunk_bytes
    )


def wants_arrow(call: Call) -> bool:
    """Whether the caller accepts an Arrow stream, and the operation offers one."""
    accepted = call.header("accept")
    if accepted is None or ARROW_STREAM not in accepted or ARROW_STREAM not in call.operation.gives:
        return False
    return any(each.partition(";")[0].strip() == ARROW_STREAM for each in accepted.split(","))


async def stream_response(
    call: Call, begin: Callable[[], Iterator[bytes]], media: str = NDJSON_UTF8
) -> BlockResponse:
    """A stream that holds the graph's slot and a share of stream memory until it ends."""
    services = call.services
    resources = AsyncExitStack()
    await resources.enter_async_context(services.streams.stream(call.served.graph.uri))
    try:
        blocks = await call.read(begin)
    except BaseException:
        await resources.aclose()
        raise
    return await block_response(call, blocks, media, resources=resources)
