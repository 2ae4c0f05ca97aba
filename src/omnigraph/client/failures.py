"""Errors for answers that are no success, and for missing answers.

The error classes are those of `Graph`. A note on each has the server and the request id, which is
in the server's logs; errors never contain a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from omnigraph.client.exchange import Address, Exchange, Response, Text
from omnigraph.errors import (
    AnswerLost,
    CompileError,
    InputError,
    NotFound,
    OmnigraphError,
    OutcomeUnknown,
    Position,
    ServerUnreachable,
    TooManyRequests,
    Unauthenticated,
    UnexpectedAnswer,
    WrongVerb,
)
from omnigraph.wire import operations
from omnigraph.wire.failures import error_of
from omnigraph.wire.requests import REQUEST_ID

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
"""Failures before the server received any part of a request."""

_LOGIN = (
    "the server knows no such token, or got none: pass `token`, or on the command line run "
    "`omnigraph login` or set OMNIGRAPH_BEARER_TOKEN"
)


def refusal(response: Response, exchange: Exchange[Any], address: Address) -> OmnigraphError:
    """The error for an error answer."""
    envelope = _envelope(response)
    error = (
        _foreign(response, exchange, address)
        if envelope is None
        else _stated_error(response, envelope, exchange, address)
    )
    request_id = response.headers.get(REQUEST_ID)
    named = f", request {request_id}" if request_id is not None else ""
    error.add_note(f"answered by {address} with status {response.status}{named}")
    return error


def unreadable(problem: Exception, address: Address) -> UnexpectedAnswer:
    """The error for a success answer with an invalid shape."""
    if isinstance(problem, UnexpectedAnswer):
        return problem
    return UnexpectedAnswer(
        f"the answer of {address} is not what was expected: {type(problem).__name__}: {problem}",
        hint="client and server may be of different versions; `omnigraph version` shows yours",
    )


def unanswered(
    failure: httpx.TransportError, exchange: Exchange[Any], address: Address
) -> OmnigraphError:
    """The error for a request without a complete answer."""
    if isinstance(failure, httpx.TimeoutException) and not isinstance(failure, NOT_SENT):
        if not exchange.is_read:
            return AnswerLost(
                f"{address} did not answer in time, and may still do the write",
                exchange.operation_id,
            )
        return ServerUnreachable(
            f"{address} did not answer in time", hint="give it more with `timeout`"
        )
    if isinstance(failure, NOT_SENT):
        return ServerUnreachable(
            f"cannot reach {address}: {_reason(failure)}",
            hint="check the URL, and that the server runs: `omnigraph serve`",
        )
    if not exchange.is_read:
        return AnswerLost(
            f"the connection to {address} broke before the write was answered",
            exchange.operation_id,
        )
    return ServerUnreachable(
        f"the connection to {address} broke: {_reason(failure)}", hint="try again"
    )


def retry_after_seconds(response: Response) -> float | None:
    """The seconds of `Retry-After`; None if absent or in another form."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdecimal() else None


def is_unknown(response: Response) -> bool:
    """Whether the server reported a write with unknown outcome."""
    envelope = _envelope(response) if response.status >= 409 else None
    return envelope is not None and envelope.get("outcome") == "unknown"


def _reason(failure: httpx.TransportError) -> str:
    return str(failure).strip().rstrip(".").lower() or type(failure).__name__


def _envelope(response: Response) -> dict[str, Any] | None:
    try:
        found = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("error"), str) else None


def _foreign(response: Response, exchange: Exchange[Any], address: Address) -> OmnigraphError:
    """The error for an answer of another product's server, such as a proxy."""
    location = response.headers.get("location")
    if 300 <= response.status < 400 and location is not None:
        return UnexpectedAnswer(
            f"{address} has moved: it answers with a redirection",
            hint="tokens are not sent elsewhere; use the new URL if you trust it",
            details={"location": location},
        )
    if exchange.operation.method == "HEAD":
        # Answers to HEAD have no content, so only the status is known.
        return error_of(response.status, {"error": f"{address} answered with {response.status}"})
    return UnexpectedAnswer(
        f"{address} is no Omnigraph server: it answered {response.status} "
        f"with {response.media_type or 'nothing'}",
        hint="check host, port and path; the URL of a graph ends in /graphs/ID",
    )


def _stated_error(
    response: Response, envelope: Mapping[str, Any], exchange: Exchange[Any], address: Address
) -> OmnigraphError:
    error = error_of(response.status, envelope)
    if is_unknown(response) and not isinstance(error, OutcomeUnknown):
        return AnswerLost(f"{address} failed: {error.message}", exchange.operation_id)
    if isinstance(error, CompileError) and exchange.text is not None:
        error.position = _position(envelope.get("position"), exchange.text)
    wait = retry_after_seconds(response)
    if isinstance(error, Unauthenticated):
        error.hint = _LOGIN
    elif isinstance(error, TooManyRequests) and wait is not None:
        error.details["retry_after_seconds"] = wait
        error.hint = error.hint or f"try again in {wait:.0f} s, or with fewer requests at a time"
    elif isinstance(error, WrongVerb):
        # The server's message names paths, callers of the client know verbs.
        is_read = exchange.operation in (operations.QUERY, operations.READ)
        right, wrong = ("mutate", "query") if is_read else ("query", "mutate")
        error.hint = f"run it with `{right}` instead of `{wrong}`"
    elif isinstance(error, NotFound) and address.graph_id is None:
        error.hint = "the URL names no graph: pass `graph` (`--graph ID`), or end it in /graphs/ID"
    return error


def _position(found: Any, text: Text) -> Position | None:
    """The position of an error in the query or schema text that was sent."""
    if not isinstance(found, Mapping):
        return None
    lines = text.text.split("\n")
    try:
        line, column = int(found["line"]), int(found["column"])
        start, end = int(found["byte_start"]), int(found["byte_end"])
        shown = lines[line - 1].rstrip("\r")
    except (KeyError, ValueError, IndexError):
        return None
    marked = text.text.encode()[start:end].decode(errors="ignore").partition("\n")[0]
    return Position(text.path, line, column, shown, max(1, len(marked)), start, end)


def require_no_actor(actor: str | None) -> None:
    """Refuse an actor: a server derives it from the token."""
    if actor is not None:
        raise InputError(
            "the actor of a served write is the one its token belongs to",
            hint="leave `actor` out, and connect with the token of that actor",
        )
