"""The HTTP application: a Starlette application with a route for each operation.

Every request passes the same checks in the same order: request id, preflight, path, token, graph,
parameters, body, policy, admission. `App.__init__` lists the middleware, `_respond` the checks
before a handler, and handlers make the remaining ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from urllib.parse import quote, unquote_to_bytes

from starlette.applications import Starlette
from starlette.convertors import StringConvertor
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omnigraph.effects.clock import MINT
from omnigraph.errors import (
    Busy,
    Conflict,
    Denied,
    InputError,
    NotFound,
    OmnigraphError,
    PolicyDenied,
    TooManyRequests,
)
from omnigraph.server import mcp, studio
from omnigraph.server.auth import RuntimeState
from omnigraph.server.call import Call, Handler, Services
from omnigraph.server.config import OwnHosts, ServerConfig
from omnigraph.server.connections import IS_EXTRA, RECORD
from omnigraph.server.generation import Generation
from omnigraph.server.responses import error_response, internal_error
from omnigraph.server.routes import HANDLERS
from omnigraph.server.routes.service import METRICS, metrics
from omnigraph.wire.failures import MethodNotAllowed
from omnigraph.wire.operations import CONDITION, OPERATIONS, QUERY, Operation
from omnigraph.wire.requests import (
    IDEMPOTENCY_KEY,
    IF_GRAPH_COMMIT,
    JSON,
    REPLAYED,
    REQUEST_ID,
    SNAPSHOT_ID,
    TIMEOUT,
    is_request_id,
    refuse_condition,
)

log = logging.getLogger(__name__)

NO_ROUTE = "none"
"""The route of an unknown path, for logs and metrics."""
SENT_BYTES_MAX = 256 * 1024
"""Bytes of a body that are passed to a connection at a time."""
_REQUEST_ID = REQUEST_ID.lower().encode()
CLIENT_GONE = 499
"""The status, in logs and metrics, of a request whose client disconnected before an answer."""


class App(Starlette):
    """Serves one generation at a time; a request keeps the generation that it began with."""

    def __init__(self, services: Services, generation: Generation) -> None:
        self.services = services
        self.generation = generation
        self.is_draining = False
        self.repeats = Repeats()
        self.inflight = 0
        """The number of requests being answered."""
        middleware = [
            Middleware(RequestLog, server=self),
            Middleware(ThisMachine, server=self),
            Middleware(SegmentedPath),
        ]
        if origins := services.config.cors_origins:
            middleware.append(cors(origins))
        self._operation_routes = [
            OperationRoute(self, *entry) for entry in _operations(services.config)
        ]
        super().__init__(
            routes=self._operation_routes,
            middleware=middleware,
            exception_handlers={OmnigraphError: self._refused, HTTPException: self._unrouted},
        )
        self.router.redirect_slashes = False

    async def _refused(self, request: Request, error: Exception) -> Response:
        """The answer to a failed request; the details of an internal error go to the log only."""
        assert isinstance(error, OmnigraphError)
        record: RequestRecord = request.scope["state"][RECORD]
        if isinstance(error, TooManyRequests):
            self.services.metrics.rejected("admission")
        elif isinstance(error, PolicyDenied):
            self.services.metrics.rejected("denied")
        outcome = None if record.call is None else record.call.outcome_after(error)
        response = error_response(error, outcome=outcome)
        if response.status_code == 500:
            record.log_failure(error)
        elif response.status_code > 500:
            record.log_refusal(error)
        elif record.call is not None and record.call.names_storage(bytes(response.body)):
            record.log_failure(error)
            return internal_error(outcome)
        return response

    async def _unrouted(self, request: Request, error: Exception) -> Response:
        """The answer to an unknown path, or to a known one with another method."""
        methods = {
            route.operation.method
            for route in self._operation_routes
            if route.matches(request.scope)[0] is not Match.NONE
        }
        if not methods:
            return error_response(
                NotFound(
                    "there is nothing at this path", hint="`GET /openapi.json` lists every path"
                )
            )
        allow = ", ".join(sorted(methods))
        return error_response(
            MethodNotAllowed(
                f"{request.method} is not for this path",
                hint=f"it takes {allow}",
                details={"allow": allow},
            )
        )


def _operations(config: ServerConfig) -> Iterator[tuple[Operation, Handler]]:
    """The operations that are served, with their handlers."""
    # Starlette tries routes in order: the most frequent one comes first.
    for operation in sorted(OPERATIONS, key=lambda each: each is not QUERY):
        yield operation, HANDLERS[operation.id]
    if config.metrics:
        yield METRICS, metrics
    if config.studio:
        page = studio.Page()
        for operation in studio.OPERATIONS:
            yield operation, page.answer
    if config.mcp:
        tools = mcp.McpServer(HANDLERS)
        for operation in mcp.OPERATIONS:
            yield operation, tools.answer


# --- routes ---------------------------------------------------------------------------------------


class OperationRoute(Route):
    """The route of one operation."""

    def __init__(self, server: App, operation: Operation, handler: Handler) -> None:
        self.operation = operation
        endpoint = OperationEndpoint(server, operation, handler)
        super().__init__(operation.path, endpoint, name=operation.id)
        # Overridden, because Starlette adds `HEAD` to every `GET`.
        self.methods = {operation.method}
        self.param_convertors = dict.fromkeys(self.param_convertors, SegmentConvertor())


class SegmentConvertor(StringConvertor):
    """A path parameter; raises `InputError` if it is not UTF-8."""

    def convert(self, value: str) -> str:
        """Decode a percent-encoded segment."""
        try:
            return unquote_to_bytes(value).decode() if "%" in value else value
        except UnicodeDecodeError:
            raise InputError("the path is not UTF-8") from None


class SegmentedPath:
    """Lets routes match the path before it is decoded.

    An encoded slash then stays inside its segment: the branch `etl/run-1` is one segment of a URL.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Bring each segment into its canonical encoding."""
        raw: bytes = scope["raw_path"]
        if b"%" in raw:
            segments = (quote(unquote_to_bytes(segment), safe="") for segment in raw.split(b"/"))
            scope["path"] = "/".join(segments)
        return self._app(scope, receive, send)


class OperationEndpoint:
    """Makes the checks common to all requests of an operation, then calls its handler."""

    def __init__(self, server: App, operation: Operation, handler: Handler) -> None:
        self._server = server
        self._operation = operation
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        server = self._server
        record: RequestRecord = scope["state"][RECORD]
        request = Request(scope, receive)
        call = record.call = Call(
            server.services,
            server.generation,
            self._operation,
            request,
            request_id=record.request_id,
            headers=record.headers,
        )
        call.is_draining = server.is_draining
        response = await self._respond(call, record)
        await response(scope, receive, send)

    async def _respond(self, call: Call, record: RequestRecord) -> Response:
        operation = self._operation
        if not operation.is_public:
            if record.is_extra and operation is not METRICS:
                raise Busy(
                    "the server has no room for more connections",
                    hint="try again soon, and use one connection for many requests",
                )
            await call.authenticate()
            if operation.has_graph:
                call.find_graph()
            call.read_parameters()
            if operation.is_gated:
                if CONDITION not in operation.parameters:
                    refuse_condition(call.headers(IF_GRAPH_COMMIT))
                call.read_key()
        if call.key is None:
            response = await self._handler(call)
        else:
            response = await self._server.repeats.once(call, partial(self._handler, call))
        if operation.successor is not None:
            response.headers["Deprecation"] = "true"
            response.headers["Link"] = f'<{operation.successor}>; rel="successor-version"'
        return response


# --- middleware -----------------------------------------------------------------------------------


class RequestRecord:
    """One request and its answer, with the facts that are logged and counted."""

    __slots__ = (
        "call",
        "headers",
        "is_abandoned",
        "is_extra",
        "method",
        "request_id",
        "started",
        "status",
    )

    def __init__(self, scope: Scope) -> None:
        self.started = time.perf_counter()
        self.method: str = scope["method"]
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        """For a repeated header, the last value."""
        given = self.headers.get(_REQUEST_ID, b"").decode("latin-1")
        self.request_id = given if is_request_id(given) else MINT.ulid()
        self.is_extra = IS_EXTRA in scope.get("extensions", ())
        """Whether the connection is one beyond the limit, on which only probes are answered."""
        self.call: Call | None = None
        self.is_abandoned = False
        """Whether the client disconnected before it got its answer."""
        self.status = CLIENT_GONE

    @property
    def route(self) -> str:
        """The path template of the operation."""
        return NO_ROUTE if self.call is None else self.call.operation.path

    @property
    def is_probe(self) -> bool:
        """Whether the request is a health probe."""
        return self.call is not None and self.call.operation.is_public

    def abandon(self) -> None:
        """The client disconnected: stop its work."""
        self.is_abandoned = True
        if self.call is not None:
            self.call.abandon()

    def log_refusal(self, error: OmnigraphError) -> None:
        """Log in one line why the server refused a valid request, such as full storage."""
        if not self.is_abandoned:
            fields = {"request_id": self.request_id, "route": self.route, "reason": error.message}
            log.warning("request refused", extra={"fields": {**fields, "error_code": error.code}})

    def log_failure(self, error: Exception) -> None:
        """Log an internal error with its traceback."""
        log.error(
            "request failed",
            exc_info=error,
            extra={"fields": {"request_id": self.request_id, "route": self.route}},
        )


class RequestLog:
    """Gives every request an id, a log line and metrics; answers an internal error with 500."""

    def __init__(self, app: ASGIApp, server: App) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Record one request."""
        server = self._server
        record = RequestRecord(scope)
        scope["state"][RECORD] = record

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                if not record.is_abandoned:
                    record.status = message["status"]
                headers = message["headers"]
                headers.append((b"x-request-id", record.request_id.encode()))
                if record.is_extra or (server.is_draining and not record.is_probe):
                    # A probe keeps its connection, because a draining server accepts no new ones.
                    headers.append((b"connection", b"close"))
            elif len(body := message.get("body", b"")) > SENT_BYTES_MAX:
                await _send_in_pieces(message, body, send)
                return
            await send(message)

        server.inflight += 1
        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            pass
        except Exception as bug:
            record.log_failure(bug)
            # After the status is sent, uvicorn closes the connection of an incomplete answer.
            if record.status == CLIENT_GONE:
                outcome = None if record.call is None else record.call.outcome_after(bug)
                await internal_error(outcome)(scope, receive, send_with_id)
        finally:
            server.inflight -= 1
            self._record(record)
            if record.call is not None:
                record.call.close()
            # The call and the scope refer to each other: breaking the cycle leaves no garbage for
            # the collector, whose runs would cost more than this middleware.
            record.call = None

    def _record(self, record: RequestRecord) -> None:
        seconds = time.perf_counter() - record.started
        services, call = self._server.services, record.call
        services.metrics.answered(record.route, record.method, record.status, seconds)
        services.events.write(
            "request",
            {
                "request_id": record.request_id,
                "method": record.method,
                "route": record.route,
                "graph_id": None if call is None else call.values.get("graph_id"),
                "actor_id": None if call is None else call.actor,
                "status": record.status,
                "duration_ms": round(seconds * 1000, 3),
            },
        )


async def _send_in_pieces(message: Message, body: bytes, send: Send) -> None:
    """Send a large body in parts, each once the client has received most of the previous ones.

    Sent at once, the whole body would be copied and buffered until the client reads it.
    """
    rest = memoryview(body)
    while len(rest) > SENT_BYTES_MAX:
        await send({**message, "body": rest[:SENT_BYTES_MAX], "more_body": True})
        rest = rest[SENT_BYTES_MAX:]
    await send({**message, "body": rest})


class ThisMachine:
    """Refuses requests of other sites' pages to a server without tokens.

    Such a server treats every request as its operator's. A page on the internet can make a browser
    send requests to this machine (CSRF), and through DNS rebinding under its own host name; the
    headers `Host` and `Origin` reveal them. Together with the content type, which
    `Call.require_body_type` demands, no request of such a page has an effect.
    """

    def __init__(self, app: ASGIApp, server: App) -> None:
        self._app = app
        self._server = server
        config = server.services.config
        self._is_known_host = OwnHosts(config.bind, config.allowed_hosts).knows

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass the request on, or answer 403."""
        app = self._app
        if self._server.generation.state is RuntimeState.OPEN and not self._is_from_here(scope):
            refused = Denied(
                "a server without tokens answers requests to this machine, of no other site",
                hint="address it as 127.0.0.1, or start it with `--allowed-host` or "
                "`--cors-origin`",
            )
            self._server.services.metrics.rejected("denied")
            app = error_response(refused)
        return app(scope, receive, send)

    def _is_from_here(self, scope: Scope) -> bool:
        record: RequestRecord = scope["state"][RECORD]
        host = record.headers.get(b"host", b"")
        if not self._is_known_host(host):
            return False
        sent = record.headers.get(b"origin")
        if sent is None:
            return True
        origin = sent.decode("latin-1")
        own: str = f"{scope['scheme']}://{host.decode('latin-1')}"
        return origin in self._server.services.config.cors_origins or origin.lower() == own.lower()


class Cors(CORSMiddleware):
    """Starlette's CORS, whose answers to a preflight are a 204 or our error envelope."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """The answer to a preflight request."""
        asked = super().preflight_response(request_headers)
        if asked.status_code == 200:
            kept = {name: value for name, value in asked.headers.items() if name[0] in "av"}
            return Response(None, 204, kept)
        refused = InputError("this origin, method or header is not allowed here")
        return error_response(refused, {"Vary": "Origin"})


def cors(origins: tuple[str, ...]) -> Middleware:
    """Lets browsers of listed origins send requests and read answers."""
    return Middleware(
        Cors,
        allow_origins=origins,
        allow_methods=("GET", "HEAD", "POST", "DELETE"),
        allow_headers=(
            "Authorization",
            "If-Match",
            "If-None-Match",
            "If-Range",
            "Range",
            IDEMPOTENCY_KEY,
            IF_GRAPH_COMMIT,
            REQUEST_ID,
            TIMEOUT,
        ),
        expose_headers=(
            "ETag",
            "Content-Range",
            SNAPSHOT_ID,
            "Deprecation",
            "Link",
            "Retry-After",
            REPLAYED,
            REQUEST_ID,
        ),
    )


# --- idempotent writes ----------------------------------------------------------------------------
#
# The engine stores the caller's key with the commit, or with the change of branches, so it outlives
# this process. Here a repetition waits for a running first request, and answers that the engine
# cannot repeat are cached: the stages of a load, and a write that changed nothing.

ANSWERS_KEPT_MAX = 4096
ANSWER_BYTES_MAX = 64 * 1024
"""Larger answers are not cached: only loads of very many types have such."""

Key = tuple[str, str | None, str]


class Repeats:
    """The writes of this process that have an idempotency key. Used on the event loop only."""

    def __init__(self) -> None:
        self._running: dict[Key, tuple[str, asyncio.Future[None]]] = {}
        self._answers: OrderedDict[Key, tuple[str, bytes]] = OrderedDict()

    async def once(self, call: Call, run: Callable[[], Awaitable[Response]]) -> Response:
        """Run a write once: a repetition gets the cached answer, or waits for the running request.

        Raises `Conflict` if the key was used for another request. Failures are not cached.
        """
        assert call.key is not None
        key = (call.values["graph_id"], call.actor, call.key)
        asked = await _digest(call)
        while (running := self._running.get(key)) is not None:
            _require_same(running[0], asked, call.key)
            await asyncio.shield(running[1])
        if (kept := self._answers.get(key)) is not None:
            _require_same(kept[0], asked, call.key)
            self._answers.move_to_end(key)
            return Response(kept[1], headers={REPLAYED: "true"}, media_type=JSON)
        ended = asyncio.get_running_loop().create_future()
        self._running[key] = asked, ended
        try:
            response = await run()
            if call.has_written and len(response.body) <= ANSWER_BYTES_MAX:
                self._answers[key] = asked, bytes(response.body)
                if len(self._answers) > ANSWERS_KEPT_MAX:
                    self._answers.popitem(last=False)
            return response
        finally:
            del self._running[key]
            ended.set_result(None)


async def _digest(call: Call) -> str:
    """A digest of the request, without streamed records, which are read after policy decides."""
    scope = call.request.scope
    digest = hashlib.sha256(call.operation.id.encode() + b"\0" + scope["raw_path"])
    digest.update(b"\0" + scope["query_string"] + b"\0")
    if call.operation.body is not None:
        digest.update(await call.body())
    return digest.hexdigest()


def _require_same(known: str, asked: str, key: str) -> None:
    if known != asked:
        raise Conflict(
            f"the idempotency key '{key}' was already used for another request",
            hint="use a new key for each write",
        )
