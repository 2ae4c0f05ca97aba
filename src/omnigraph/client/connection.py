"""Sending requests and reading answers.

What a connection does is written once, as coroutines. `Http` waits on the event loop.
`BlockingHttp` has the same methods and never suspends: a coroutine that uses it is finished by one
step, which is how `RemoteGraph` runs the verbs of `AsyncRemoteGraph` without an event loop.
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
from omnigraph.client.failures import refusal, unanswered, unreadable
from omnigraph.client.patience import Patience
from omnigraph.errors import InputError

Value = TypeVar("Value")

CONNECT_SECONDS_MAX = 10.0
CONNECTIONS_MAX = 128
KEEP_ALIVE_SECONDS = 30.0
"""Less than servers keep a quiet connection, so that none is used while it is being closed."""


class Http:
    """The calls of the HTTP library that wait, on the event loop."""

    def __init__(self, token: str | None, timeout: float | None) -> None:
        self._client: Any = httpx.AsyncClient(**_options(token, timeout))

    def request(self, **parts: Any) -> httpx.Request:
        """A request with the headers of this client."""
        request: httpx.Request = self._client.build_request(**parts)
        return request

    async def send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        """The answer; of a stream, the content is still to be read."""
        response: httpx.Response = await self._client.send(request, stream=stream)
        return response

    async def read(self, response: httpx.Response) -> None:
        """Read the content of a stream."""
        await response.aread()

    async def chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The content of a stream as it comes."""
        async for chunk in response.aiter_bytes():
            yield chunk

    async def end(self, response: httpx.Response) -> None:
        """Read no more of a stream."""
        await response.aclose()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class BlockingHttp(Http):
    """The same methods, which block and never suspend; may be shared between threads."""

    def __init__(self, token: str | None, timeout: float | None) -> None:
        self._client = httpx.Client(**_options(token, timeout))
        # A graph that is dropped instead of closed leaves no open sockets behind either.
        self._close = weakref.finalize(self, self._client.close)

    async def send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        """The answer; of a stream, the content is still to be read."""
        response: httpx.Response = self._client.send(request, stream=stream)
        return response

    async def read(self, response: httpx.Response) -> None:
        """Read the content of a stream."""
        response.read()

    async def chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The content of a stream as it comes."""
        for chunk in response.iter_bytes():
            yield chunk

    async def end(self, response: httpx.Response) -> None:
        """Read no more of a stream."""
        response.close()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)  # blocking is its purpose

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
        """Send a request and read its answer; raises what the verb raises, or that none came."""
        found = _response(await self._open(exchange))
        if not exchange.succeeded(found.status):
            raise refusal(found, exchange, self.address)
        try:
            return exchange.read(found)
        except (KeyError, TypeError, ValueError) as problem:
            raise unreadable(problem, self.address) from problem

    async def stream(self, exchange: Exchange[None]) -> ContentStream:
        """Send a request whose content is read as it comes; a refusal is raised at once."""
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
    """Content as it comes. Close it, or read it to its end: it holds a stream of the server."""

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
        # A token is for one server: it does not follow a redirection.
        "follow_redirects": False,
        "verify": _certificates(),
    }


@cache
def _certificates() -> ssl.SSLContext:
    """Those of the authorities that HTTPX trusts: read once, which takes longer than a request."""
    return httpx.create_ssl_context()


def _headers(token: str | None) -> dict[str, str]:
    headers = {"User-Agent": f"omnigraph/{__version__}"}
    if token is not None:
        trimmed = token.strip()
        # Without repeating it: a token that is wrong here may be right elsewhere.
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
