"""Sending requests and reading answers, blocking and not. Everything else is elsewhere."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from omnigraph import __version__
from omnigraph.client.address import Address
from omnigraph.client.exchange import Answer, Exchange
from omnigraph.client.failures import refusal, unanswered, unreadable
from omnigraph.client.patience import Patience
from omnigraph.errors import InputError

Value = TypeVar("Value")

CONNECT_SECONDS_MAX = 10.0
CONNECTIONS_MAX = 128
KEEP_ALIVE_SECONDS = 30.0
"""Less than servers keep a quiet connection, so that none is used while it is being closed."""


class _Endpoint:
    """What both connections share."""

    def __init__(self, address: Address, patience: Patience) -> None:
        self.address = address
        self.patience = patience

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address.base!r})"

    def _request(self, exchange: Exchange[Any]) -> dict[str, Any]:
        start = self.address.base if exchange.is_about_a_graph else self.address.root
        return {
            "method": exchange.operation.method,
            "url": start + exchange.path,
            "params": exchange.query or None,
            "headers": exchange.all_headers,
            "content": exchange.content,
        }

    def _read(self, answer: Answer, exchange: Exchange[Value]) -> Value:
        if not exchange.succeeded(answer.status):
            raise refusal(answer, exchange, self.address)
        try:
            return exchange.read(answer)
        except (KeyError, TypeError, ValueError) as problem:
            raise unreadable(problem, self.address) from problem


class Connection(_Endpoint):
    """Blocking requests to one server; may be shared between threads."""

    def __init__(
        self, address: Address, token: str | None, timeout: float | None, patience: Patience
    ) -> None:
        super().__init__(address, patience)
        self._http = httpx.Client(**_options(token, timeout))
        # Who drops a graph instead of closing it leaves no open sockets behind either.
        self.close = weakref.finalize(self, self._http.close)
        """Let the connections go."""

    def send(self, exchange: Exchange[Value]) -> Value:
        """Send a request and read its answer; raises what the verb raises, or that none came."""
        response = self._open(exchange)
        return self._read(_answer(response), exchange)

    def stream(self, exchange: Exchange[None]) -> Stream:
        """Send a request whose content is read as it comes; a refusal is raised at once."""
        response = self._open(exchange, stream=True)
        if not exchange.succeeded(response.status_code):
            raise refusal(_answer(response), exchange, self.address)
        return Stream(response, exchange, self.address)

    def _open(self, exchange: Exchange[Any], *, stream: bool = False) -> httpx.Response:
        request = self._http.build_request(**self._request(exchange))
        attempt = 0
        while True:
            attempt += 1
            try:
                response = self._http.send(request, stream=stream)
                if stream and not exchange.succeeded(response.status_code):
                    response.read()
            except httpx.TransportError as failure:
                wait = self.patience.after_failure(failure, exchange, attempt)
                if wait is None:
                    raise unanswered(failure, exchange, self.address) from failure
            else:
                if exchange.succeeded(response.status_code):
                    return response
                wait = self.patience.after_answer(_answer(response), exchange, attempt)
                if wait is None:
                    return response
            time.sleep(wait)


class AsyncConnection(_Endpoint):
    """The same without blocking."""

    def __init__(
        self, address: Address, token: str | None, timeout: float | None, patience: Patience
    ) -> None:
        super().__init__(address, patience)
        self._http = httpx.AsyncClient(**_options(token, timeout))

    async def send(self, exchange: Exchange[Value]) -> Value:
        """Send a request and read its answer; raises what the verb raises, or that none came."""
        response = await self._open(exchange)
        return self._read(_answer(response), exchange)

    async def stream(self, exchange: Exchange[None]) -> AsyncStream:
        """Send a request whose content is read as it comes; a refusal is raised at once."""
        response = await self._open(exchange, stream=True)
        if not exchange.succeeded(response.status_code):
            raise refusal(_answer(response), exchange, self.address)
        return AsyncStream(response, exchange, self.address)

    async def close(self) -> None:
        """Let the connections go."""
        await self._http.aclose()

    async def _open(self, exchange: Exchange[Any], *, stream: bool = False) -> httpx.Response:
        request = self._http.build_request(**self._request(exchange))
        attempt = 0
        while True:
            attempt += 1
            try:
                response = await self._http.send(request, stream=stream)
                if stream and not exchange.succeeded(response.status_code):
                    await response.aread()
            except httpx.TransportError as failure:
                wait = self.patience.after_failure(failure, exchange, attempt)
                if wait is None:
                    raise unanswered(failure, exchange, self.address) from failure
            else:
                if exchange.succeeded(response.status_code):
                    return response
                wait = self.patience.after_answer(_answer(response), exchange, attempt)
                if wait is None:
                    return response
            await asyncio.sleep(wait)


class Stream:
    """Content as it comes. Close it, or read it to its end: a server keeps room for it."""

    def __init__(self, response: httpx.Response, exchange: Exchange[None], address: Address):
        self._response = response
        self._exchange = exchange
        self._address = address

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._response.iter_bytes()
        except httpx.TransportError as failure:
            raise unanswered(failure, self._exchange, self._address) from failure
        finally:
            self.close()

    def close(self) -> None:
        """Stop reading."""
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncStream:
    """The same without blocking."""

    def __init__(self, response: httpx.Response, exchange: Exchange[None], address: Address):
        self._response = response
        self._exchange = exchange
        self._address = address

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except httpx.TransportError as failure:
            raise unanswered(failure, self._exchange, self._address) from failure
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop reading."""
        await self._response.aclose()


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.headers, response.content)


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
    }


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
