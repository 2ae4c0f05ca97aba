"""The road every request takes, as one ASGI application."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from omnigraph.effects.clock import MINT
from omnigraph.errors import Busy, InputError, OmnigraphError, TooManyRequests
from omnigraph.server import cors, mcp
from omnigraph.server.answers import Answer, Headers, Stream, internal_error, refusal
from omnigraph.server.bodies import Disconnected, Message, Receive
from omnigraph.server.call import Call, Request, Services
from omnigraph.server.config import ServerConfig
from omnigraph.server.generation import Generation
from omnigraph.server.metrics import Metrics
from omnigraph.server.metrics_app import PATH as METRICS_PATH
from omnigraph.server.protocol import IS_EXTRA
from omnigraph.server.routes import HANDLERS
from omnigraph.server.routing import Match, Router
from omnigraph.wire.failures import MethodNotAllowed
from omnigraph.wire.operations import CONDITION, OPERATIONS, Operation
from omnigraph.wire.requests import IF_GRAPH_COMMIT, is_request_id, refuse_condition

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

METRICS = Operation("metrics", "GET", "/metrics", "Numbers for Prometheus")
NO_ROUTE = "none"
"""The route of a request that leads nowhere, in logs and metrics."""


class App:
    """Serves one generation at a time; requests keep the one they began with."""

    def __init__(self, services: Services, generation: Generation) -> None:
        self.services = services
        self.generation = generation
        self.is_draining = False
        self.inflight = 0
        """Requests that are being answered."""
        self._router = _router(services.config)
        self._origins = frozenset(services.config.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        self.inflight += 1
        try:
            await Exchange(self, scope, receive, send).run()
        finally:
            self.inflight -= 1

    def find(self, raw_path: bytes) -> Match:
        """The routes of a path."""
        return self._router.find(raw_path)

    def cors_headers(self, origin: str | None) -> Headers:
        """What a browser of another origin has to be told."""
        return cors.answer_headers(origin, self._origins)


class Exchange:
    """One request and its answer."""

    def __init__(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        self._app = app
        self._scope = scope
        self._receive = receive
        self._send = send
        self._started = time.perf_counter()
        self._method: str = scope["method"]
        self._headers = dict(scope["headers"])
        self._is_extra = IS_EXTRA in scope.get("extensions", ())
        """Whether it came on a connection that there is no room for."""
        self._request_id = self._taken_request_id()
        self._route = NO_ROUTE
        self._call: Call | None = None

    async def run(self) -> None:
        """Answer, and log the answer."""
        status = 499  # the caller went away
        try:
            answer = await self._answer()
            status = answer.status
            if isinstance(answer, Stream):
                await self._stream(answer)
            else:
                await self._whole(answer)
        except Disconnected:
            pass
        finally:
            self._done(status)

    async def _answer(self) -> Answer | Stream:
        try:
            return await self._handled()
        except OmnigraphError as error:
            headers: list[tuple[str, str]] = []
            if isinstance(error, MethodNotAllowed):
                headers.append(("Allow", str(error.details["allow"])))
            if isinstance(error, TooManyRequests):
                self._app.services.metrics.rejected("admission")
            answer = refusal(error, headers)
            if answer.status >= 500:
                self._failed(error)
            elif self._call is not None and self._call.names_storage(answer.body):
                self._failed(error)
                return internal_error()
            return answer
        except Disconnected:
            raise
        except Exception as bug:  # the outermost frame: nothing may escape it
            self._failed(bug)
            return internal_error()

    async def _handled(self) -> Answer | Stream:
        if self._scope["raw_path"] == METRICS_PATH and self._app.services.config.metrics:
            return self._metrics()
        match = self._app.find(self._scope["raw_path"])
        method = self._method
        if method == "OPTIONS" and b"access-control-request-method" in self._headers:
            return self._preflight()
        found = match.routes.get(method)
        if found is None:
            raise MethodNotAllowed(
                f"{method} is not for this path",
                hint=f"it takes {match.allow}",
                details={"allow": match.allow},
            )
        route, values = found
        operation = route.operation
        self._route = operation.path
        call = self._call = self._new_call(operation, values)
        if not operation.is_public:
            if self._is_extra:
                raise Busy(
                    "the server has no room for more connections",
                    hint="try again soon, and use one connection for many requests",
                )
            call.authenticate()
            if operation.has_graph:
                call.find_graph()
            call.read_parameters()
            if operation.is_gated and CONDITION not in operation.parameters:
                refuse_condition(call.headers(IF_GRAPH_COMMIT))
        answer = await route.handler(call)
        if operation.successor is not None:
            return _deprecated(answer, operation.successor)
        return answer

    def _new_call(self, operation: Operation, values: Mapping[str, str]) -> Call:
        request = Request(self._scope, self._headers, self._receive, self._request_id)
        call = Call(self._app.services, self._app.generation, operation, values, request)
        call.is_draining = self._app.is_draining
        return call

    def _metrics(self) -> Answer:
        """The numbers, for whoever has a token."""
        if self._method != "GET":
            raise MethodNotAllowed("metrics are only read", details={"allow": "GET"})
        self._route = METRICS_PATH.decode()
        self._new_call(METRICS, {}).authenticate()
        return Answer(self._app.services.metrics.page(), 200, Metrics.content_type)

    def _preflight(self) -> Answer:
        if self._origin() not in self._app.services.config.cors_origins:
            raise InputError("this origin is not allowed here")
        return Answer(b"", 204, None, cors.preflight_headers())

    # --- sending ----------------------------------------------------------------------------------

    async def _whole(self, answer: Answer) -> None:
        headers = self._answer_headers(answer.media, answer.headers)
        if answer.status == 304:
            # Its length is that of what the caller has. The HTTP library would miss those bytes,
            # except in the answer to a HEAD.
            self._scope["method"] = "HEAD"
        if not any(name == b"content-length" for name, _ in headers) and answer.status != 204:
            headers.append((b"content-length", b"%d" % len(answer.body)))
        await self._send(
            {"type": "http.response.start", "status": answer.status, "headers": headers}
        )
        await self._send({"type": "http.response.body", "body": answer.body})

    async def _stream(self, answer: Stream) -> None:
        """Send the chunks as they are made; a failure on the way breaks the connection off."""
        headers = self._answer_headers(answer.media, answer.headers)
        if answer.length is not None:
            headers.append((b"content-length", b"%d" % answer.length))
        gone = asyncio.create_task(self._until_gone())
        try:
            await self._send(
                {"type": "http.response.start", "status": answer.status, "headers": headers}
            )
            async for chunk in answer.chunks:
                # A caller that does not take its answer must not keep others from theirs.
                async with asyncio.timeout(self._app.services.config.client_seconds):
                    await self._send(
                        {"type": "http.response.body", "body": chunk, "more_body": True}
                    )
                if gone.done():
                    raise Disconnected
            await self._send({"type": "http.response.body", "body": b""})
        except (Disconnected, asyncio.CancelledError):
            raise
        except Exception as failure:  # the status is out already: no envelope can follow
            self._failed(failure)
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone
            await answer.held.aclose()

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _answer_headers(self, media: str | None, own: Headers) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", self._request_id.encode())]
        if media is not None:
            headers.append((b"content-type", media.encode()))
        is_probe = self._call is not None and self._call.operation.is_public
        if self._is_extra or (self._app.is_draining and not is_probe):
            # Probes keep their connection: there are no new ones to ask on.
            headers.append((b"connection", b"close"))
        for name, value in (*own, *self._app.cors_headers(self._origin())):
            headers.append((name.lower().encode("ascii"), value.encode("latin-1")))
        return headers

    # --- around it --------------------------------------------------------------------------------

    def _taken_request_id(self) -> str:
        given = self._headers.get(b"x-request-id", b"").decode("latin-1")
        return given if is_request_id(given) else MINT.ulid()

    def _origin(self) -> str | None:
        origin = self._headers.get(b"origin")
        return None if origin is None else origin.decode("latin-1")

    def _failed(self, error: Exception) -> None:
        log.error(
            "request failed",
            exc_info=error,
            extra={"fields": {"request_id": self._request_id, "route": self._route}},
        )

    def _done(self, status: int) -> None:
        seconds = time.perf_counter() - self._started
        method = self._method
        self._app.services.metrics.answered(self._route, method, status, seconds)
        call = self._call
        self._app.services.events.write(
            "request",
            {
                "request_id": self._request_id,
                "method": method,
                "route": self._route,
                "graph_id": None if call is None else call.values.get("graph_id"),
                "actor_id": None if call is None else call.actor,
                "status": status,
                "duration_ms": round(seconds * 1000, 3),
            },
        )


def _router(config: ServerConfig) -> Router:
    if not config.mcp:
        return Router(OPERATIONS, HANDLERS)
    tools = mcp.McpServer(HANDLERS)
    more = {operation.id: tools.answer for operation in mcp.OPERATIONS}
    return Router((*OPERATIONS, *mcp.OPERATIONS), {**HANDLERS, **more})


def _deprecated(answer: Answer | Stream, successor: str) -> Answer | Stream:
    """The same answer, saying what to call instead."""
    told = (("Deprecation", "true"), ("Link", f'<{successor}>; rel="successor-version"'))
    return replace(answer, headers=(*answer.headers, *told))
