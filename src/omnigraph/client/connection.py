"""Sending requests and reading answers.

A connection's methods are coroutines. `Http` waits on the event loop. `BlockingHttp` has the same
methods, but blocks and never suspends, so a coroutine that uses it completes in one step: this is
how `RemoteGraph` runs the verbs of `AsyncRemoteGraph` without an event loop.
"""

from __future__ import annotations

import asyncio
import ssl
import time
import weakref
from collections.abc import AsyncIterator
from functools import cache
from typing import Any, TypeVar

import httpx

from omnigraph import __version__
from omnigraph.client.exchange import Address, Exchange, Response
from omnigraph.client.failures import (
    NOT_SENT,
    is_unknown,
    refusal,
    retry_after_seconds,
    unanswered,
    unreadable,
)
from omnigraph.errors import InputError
from omnigraph.model.records import dataclass

Value = TypeVar("Value")

CONNECT_SECONDS_MAX = 10.0
CONNECTIONS_MAX = 128
KEEP_ALIVE_SECONDS = 30.0
"""Shorter than the server's timeout of idle connections, so that none is used while it closes."""
RETRY_STATUSES = (429, 503)
"""Statuses after which the server has done nothing."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The number and duration of retries.

    Reads are repeated when the connection breaks, as they have no effects, and writes because the
    server recognises their idempotency key.
    """

    attempts: int = 3
    wait_seconds_max: float = 5.0
    """The longest `Retry-After` to wait for; a longer one raises an error."""
    first_wait_seconds: float = 0.05
    repeats_writes: bool = True
    """Whether writes are repeated."""

    def after_failure(
        self, failure: httpx.TransportError, exchange: Exchange[Any], attempt: int
    ) -> float | None:
        """Seconds to wait after a failed connection; None to give up."""
        if not self._may_repeat(exchange, attempt):
            return None
        is_timeout = isinstance(failure, httpx.TimeoutException)
        may_be_seen = exchange.is_read or exchange.is_keyed
        if is_timeout or not (may_be_seen or isinstance(failure, NOT_SENT)):
            return None
        return self._backoff(attempt)

    def after_answer(
        self, response: Response, exchange: Exchange[Any], attempt: int
    ) -> float | None:
        """Seconds to wait after an answer that the server is busy, or the outcome unknown.

        Returns None to give up.
        """
        if not self._may_repeat(exchange, attempt):
            return None
        if exchange.is_keyed and is_unknown(response):
            return self._backoff(attempt)
        if response.status not in RETRY_STATUSES:
            return None
        wait = retry_after_seconds(response)
        return wait if wait is not None and wait <= self.wait_seconds_max else None

    def _backoff(self, attempt: int) -> float:
        return self.first_wait_seconds * 4.0 ** (attempt - 1)

    def _may_repeat(self, exchange: Exchange[Any], attempt: int) -> bool:
        return attempt < self.attempts and (exchange.is_read or self.repeats_writes)


class Http:
    """The HTTP library's waiting calls, on the event loop."""

    def __init__(self, token: str | None, timeout: float | None) -> None:
        self._client: Any = httpx.AsyncClient(**_options(token, timeout))

    def request(self, **parts: Any) -> httpx.Request:
        """Build a request with the headers of this client."""
        request: httpx.Request = self._client.build_request(**parts)
        return request

    async def send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        """Send a request; with ``stream``, the content of the response is still unread."""
        response: httpx.Response = await self._client.send(request, stream=stream)
        return response

    async def read(self, response: httpx.Response) -> None:
        """Read the content of a streamed response."""
        await response.aread()

    async def chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The content of a streamed response, in chunks as they arrive."""
        async for chunk in response.aiter_bytes():
            yield chunk

    async def end(self, response: httpx.Response) -> None:
        """Close a streamed response."""
        await response.aclose()

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class BlockingHttp(Http):
    """The same methods, blocking and never suspending; may be shared between threads."""

    def __init__(self, token: str | None, timeout: float | None) -> None:
        self._client = httpx.Client(**_options(token, timeout))
        # Closes the sockets when the object is garbage-collected without `close`.
        self._close = weakref.finalize(self, self._client.close)

    async def send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        """Send a request; with ``stream``, the content of the response is still unread."""
        response: httpx.Response = self._client.send(request, stream=stream)
        return response

    async def read(self, response: httpx.Response) -> None:
        """Read the content of a streamed response."""
        response.read()

    async def chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The content of a streamed response, in chunks as they arrive."""
        for chunk in response.iter_bytes():
            yield chunk

    async def end(self, response: httpx.Response) -> None:
        """Close a streamed response."""
        response.close()

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        time.sleep(seconds)  # blocking on purpose

    async def close(self) -> None:
        """Close the connections."""
        self._close()


class Connection:
    """Requests to one server."""

    def __init__(self, address: Address, http: Http, patience: Patience) -> None:
        self.address = address
        self._http = http
        self._patience = patience

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address.base!r})"

    async def send(self, exchange: Exchange[Value]) -> Value:
        """Send a request and read its answer; raises the verb's errors, and for a lost answer."""
        found = _response(await self._open(exchange))
        if not exchange.succeeded(found.status):
            raise refusal(found, exchange, self.address)
        try:
            return exchange.read(found)
        except (KeyError, TypeError, ValueError) as problem:
            raise unreadable(problem, self.address) from problem

    async def stream(self, exchange: Exchange[None]) -> ContentStream:
        """Send a request whose content is streamed; an error answer is raised at once."""
        response = await self._open(exchange, stream=True)
        if not exchange.succeeded(response.status_code):
            raise refusal(_response(response), exchange, self.address)
        return ContentStream(self._http, response, exchange, self.address)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _open(self, exchange: Exchange[Any], *, stream: bool = False) -> httpx.Response:
        start = self.address.base if exchange.is_about_a_graph else self.address.root
        request = self._http.request(
            method=exchange.operation.method,
            url=start + exchange.path,
            params=exchange.query or None,
            headers=exchange.all_headers,
            content=exchange.content,
        )
        attempt = 0
        while True:
            attempt += 1
            try:
                response = await self._http.send(request, stream=stream)
                if stream and not exchange.succeeded(response.status_code):
                    await self._http.read(response)
            except httpx.TransportError as failure:
                wait = self._patience.after_failure(failure, exchange, attempt)
                if wait is None:
                    raise unanswered(failure, exchange, self.address) from failure
            else:
                if exchange.succeeded(response.status_code):
                    return response
                wait = self._patience.after_answer(_response(response), exchange, attempt)
                if wait is None:
                    return response
            await self._http.sleep(wait)


class ContentStream:
    """Streamed content. Close it or read it to its end: it occupies a stream of the server."""

    def __init__(
        self, http: Http, response: httpx.Response, exchange: Exchange[None], address: Address
    ) -> None:
        self._http = http
        self._response = response
        self._exchange = exchange
        self._address = address

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._http.chunks(self._response):
                yield chunk
        except httpx.TransportError as failure:
            raise unanswered(failure, self._exchange, self._address) from failure
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop reading."""
        await self._http.end(self._response)


def _response(response: httpx.Response) -> Response:
    return Response(response.status_code, response.headers, response.content)


def _options(token: str | None, timeout: float | None) -> dict[str, Any]:
    return {
        "headers": _headers(token),
        "timeout": _timeouts(timeout),
        "limits": httpx.Limits(
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=CONNECTIONS_MAX,
            keepalive_expiry=KEEP_ALIVE_SECONDS,
        ),
        # A token is for one server: never follow a redirect.
        "follow_redirects": False,
        "verify": _certificates(),
    }


@cache
def _certificates() -> ssl.SSLContext:
    """The CA certificates that HTTPX trusts; cached, as reading them is slower than a request."""
    return httpx.create_ssl_context()


def _headers(token: str | None) -> dict[str, str]:
    headers = {"User-Agent": f"omnigraph/{__version__}"}
    if token is not None:
        trimmed = token.strip()
        # Do not quote the token: it may be valid elsewhere.
        if not trimmed or not trimmed.isascii() or not trimmed.isprintable():
            raise InputError("the token is empty or not plain text", hint="pass it as it was given")
        headers["Authorization"] = f"Bearer {trimmed}"
    return headers


def _timeouts(timeout: float | None) -> httpx.Timeout:
    if timeout is None:
        return httpx.Timeout(None, connect=CONNECT_SECONDS_MAX)
    if timeout <= 0:
        raise InputError(f"a timeout of {timeout} s leaves no time", hint="None waits for ever")
    return httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS_MAX))
