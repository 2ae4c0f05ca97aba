"""What a handler returns, and what an error becomes."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import orjson

from omnigraph.errors import (
    Busy,
    EmbeddingError,
    HistoricalVersionReclaimed,
    OmnigraphError,
    OutcomeUnknown,
    TooManyRequests,
    Unauthenticated,
    WriterBusy,
)
from omnigraph.model.json_object import JsonObject
from omnigraph.server.admission import RETRY_AFTER_SECONDS
from omnigraph.wire.failures import envelope_of, status_of
from omnigraph.wire.requests import JSON

Headers = Sequence[tuple[str, str]]

INTERNAL = {"error": "an error of the server; its log has the details", "code": "internal"}
"""What a caller learns of an error that is not about the request: nothing of where data lies."""

RECLAIMED = {
    "error": "this version of the graph was cleaned up",
    "code": "not_found",
    "error_code": HistoricalVersionReclaimed.code,
}

_TOLD = (EmbeddingError, OutcomeUnknown)
"""Errors of the server that the caller has to hear about in words."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    body: bytes = b""
    status: int = 200
    media: str | None = JSON
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that is made while it is sent. Every check has been passed by now."""

    chunks: AsyncIterator[bytes]
    media: str
    status: int = 200
    headers: Headers = ()
    length: int | None = None
    held: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What is given back when the stream ends, however it does."""


def json_answer(value: JsonObject | Mapping[str, Any], status: int = 200) -> Answer:
    """A value in its JSON form, or a document, as an answer."""
    document = value.to_dict() if isinstance(value, JsonObject) else value
    return Answer(orjson.dumps(document), status)


def refusal(error: OmnigraphError, headers: Headers = ()) -> Answer:
    """The answer that an error stands for."""
    status = status_of(error)
    if isinstance(error, HistoricalVersionReclaimed):
        envelope: Mapping[str, Any] = RECLAIMED  # its sentence names files
    elif status != 500 or isinstance(error, _TOLD):
        envelope = envelope_of(error)
    else:
        envelope = INTERNAL
    return Answer(
        orjson.dumps(envelope, default=str), status, JSON, (*headers, *_headers_of(error))
    )


def internal_error() -> Answer:
    """The answer to a request that met a bug."""
    return Answer(orjson.dumps(INTERNAL), 500)


def _headers_of(error: OmnigraphError) -> Headers:
    match error:
        case Unauthenticated():
            return (("WWW-Authenticate", "Bearer"),)
        case TooManyRequests():
            return (("Retry-After", str(RETRY_AFTER_SECONDS)),)
        case WriterBusy():
            seconds = math.ceil(int(error.details["retry_after_ms"]) / 1000)
            return (("Retry-After", str(max(1, seconds))),)
        case Busy():
            return (("Retry-After", "1"),)
    return ()
