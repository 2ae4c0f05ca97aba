"""A server process: start, listen, serve, drain, exit."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette

from omnigraph.access.identity import Attempts, Identities
from omnigraph.audit.auditor import Auditor
from omnigraph.audit.log import flush_all
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.server.admission import Admission, QueryLimits, StreamBudget
from omnigraph.server.app import App
from omnigraph.server.call import Services
from omnigraph.server.config import OwnHosts, ServerConfig, host_and_port, is_loopback
from omnigraph.server.connections import EXTRA_CONNECTIONS_MAX, GuardedProtocol
from omnigraph.server.generation import Generation, build, fingerprint, retried
from omnigraph.server.logs import EventLog, LogPipe, configure_logs
from omnigraph.server.metrics import Board, Metrics
from omnigraph.server.pool import EnginePool
from omnigraph.server.review_watch import ReviewWatch
from omnigraph.server.routes.service import metrics_app
from omnigraph.server.webhooks import Receiver, Webhooks, load_receivers

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 65
CLOSE_SECONDS = 1.0
"""Seconds for background upkeep to end, if requests used up the shutdown time."""
SWITCH_SECONDS = 0.001
GRAPH_FILES = 1024
"""File descriptors that graphs and logs may use, besides connections."""
BACKLOG = 512
RETRY_SECONDS = 1.0
"""Seconds until a graph that failed to open is retried; doubled after each failure."""
RETRY_SECONDS_MAX = 60.0
DRAIN_POLL_SECONDS = 0.02
NUMBERS_SECONDS = 1.0
"""The maximum age of another worker's metrics on the page."""
EXIT_INTERRUPTED = 130


class Worker(Protocol):
    """A server that shares its address with others, as seen by `RunningServer`."""

    @property
    def is_first(self) -> bool:
        """Whether this worker does the tasks that only one may do."""

    @property
    def review_notes(self) -> Path:
        """The file in which the first worker stores its review polling state for its successor."""

    @property
    def attempts(self) -> Attempts:
        """The limits of invalid tokens, shared by all workers."""

    @property
    def board(self) -> Board:
        """The exchange of metrics."""

    def admission(self, alone: Admission) -> Admission:
        """The same limits, shared by all workers."""


class HttpListener(uvicorn.Server):
    """uvicorn's server without its signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers."""
        yield


class RunningServer:
    """One server from start to exit. The constructor opens the graphs; `run` serves them."""

    def __init__(
        self,
        config: ServerConfig,
        events: EventLog | None = None,
        pipe: LogPipe | None = None,
        worker: Worker | None = None,
    ) -> None:
        self.config = config
        self._pipe = pipe
        self._worker = worker
        # Bind the address before opening any graph, so that an address in use has no side effects.
        shares = worker is not None
        self._socket = bound(config.bind, shares=shares)
        self._metrics_socket: socket.socket | None = None
        try:
            if config.metrics_bind is not None:
                self._metrics_socket = bound(config.metrics_bind, shares=shares)
            # Before the generation is built, so that the first check of files finds later changes.
            self._fingerprint = fingerprint(config)
            receivers: tuple[Receiver, ...] = ()
            if config.settings is not None:
                receivers = load_receivers(config.settings, config.environment)
            attempts = None if worker is None else worker.attempts
            identities = Identities(config.jwt, config.revocations, attempts)
            self._tls = None if config.tls_cert is None else _tls_context(config)
            generation = build(config)
        except BaseException:
            self._socket.close()
            if self._metrics_socket is not None:
                self._metrics_socket.close()
            raise
        admission = Admission.from_environment(config.environment)
        self.services = Services(
            config,
            EnginePool(),
            admission if worker is None else worker.admission(admission),
            QueryLimits(config.query_seconds, config.query_seconds_of),
            StreamBudget(),
            Metrics(None if worker is None else worker.board),
            events or EventLog(),
            identities,
            None if config.audit is None else Auditor(config.audit, "server"),
        )
        self.app = App(self.services, generation)
        self.webhooks = Webhooks(receivers, self.services.metrics)
        self.watch = ReviewWatch(
            self.services,
            lambda: self.app.generation,
            self.webhooks,
            notes=None if worker is None else worker.review_notes,
        )
        self.reloader = Reloader(self.app, config)
        self._http = HttpListener(_uvicorn_config(self.app, config, self._tls))
        hosts = OwnHosts(config.metrics_bind or config.bind, config.allowed_hosts)
        numbers = metrics_app(self.services.metrics, hosts)
        self._metrics_http = HttpListener(_uvicorn_config(numbers, config))
        self._drains: asyncio.Task[None] | None = None
        self._ends_at: float | None = None
        """The time of the event loop's clock at which the process exits in any case."""
        self.is_clean = True
        """Whether all work has ended; False if threads are still running."""
        self._watch_numbers()

    @property
    def address(self) -> str:
        """The bound address, with the actual port."""
        return address_of(self._socket)

    @property
    def metrics_address(self) -> str | None:
        """The address that serves metrics without a token, if any."""
        return None if self._metrics_socket is None else address_of(self._metrics_socket)

    async def run(self, announce: Callable[[str], None], *, own_signals: bool = True) -> None:
        """Serve until `stop`; ``announce`` gets the address once connections are accepted."""
        loop = asyncio.get_running_loop()
        if own_signals:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._stop_signal)
            loop.add_signal_handler(signal.SIGHUP, self._reload_signal)
        for listening in (self._socket, self._metrics_socket):
            if listening is not None:
                listening.listen(BACKLOG)
        beside = [asyncio.create_task(self.reloader.retry())]
        if seconds := self.config.reload_seconds:
            beside.append(asyncio.create_task(self.reloader.watch(seconds, self._fingerprint)))
        metrics = asyncio.create_task(self._serve_metrics())
        if self._worker is not None:
            beside.append(asyncio.create_task(self._publish_numbers()))
        # Only one worker follows change requests, or every worker would post each webhook.
        if self._worker is None or self._worker.is_first:
            await self.watch.start()
        self._warn_of_plain_http()
        announce(self.address)
        log.info("listening", extra={"fields": {"address": self.address}})
        try:
            await self._http.serve([self._socket])
        finally:
            await self.watch.stop()
            for task in beside:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            self._metrics_http.force_exit = self._metrics_http.should_exit = True
            await metrics
            self.services.pool.close()
            self.services.metrics.publish()
            self.is_clean = await self._close_graphs() and not self.app.inflight
        log.info("stopped", extra={"fields": {"unfinished": self.app.inflight}})

    def _warn_of_plain_http(self) -> None:
        host, _ = host_and_port(self.config.bind)
        if self._tls is None and not is_loopback(host):
            log.warning(
                "plain HTTP beyond this machine: everything between a client and this server can "
                "read tokens and data, and change them; use --tls-cert and --tls-key, or a proxy "
                "with TLS",
                extra={"fields": {"bind": self.config.bind}},
            )

    async def _close_graphs(self) -> bool:
        """Stop background upkeep; False if it did not end in time."""

        def close() -> None:
            for served in self.app.generation.graphs.values():
                served.graph.close()
            ended.set()

        # A separate thread: the event loop waits for those of its executor.
        ended = threading.Event()
        threading.Thread(target=close, name="close-graphs", daemon=True).start()
        until = self._ends_at or asyncio.get_running_loop().time() + self.config.shutdown_seconds
        await self._until(
            ended.is_set, max(until, asyncio.get_running_loop().time() + CLOSE_SECONDS)
        )
        return ended.is_set()

    def stop(self) -> None:
        """Drain, then let `run` return. On the event loop only."""
        if self._drains is None:
            self._drains = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        """Accept no more connections, and let current work end within the shutdown time."""
        self.app.is_draining = True
        log.info("draining", extra={"fields": {"inflight": self.app.inflight}})
        for server in getattr(self._http, "servers", ()):
            server.close()
        self._ends_at = asyncio.get_running_loop().time() + self.config.shutdown_seconds
        await self._until(lambda: not self.app.inflight and not self._unsent(), self._ends_at)
        # Requests and unread answers that did not end in time are dropped.
        for connection in tuple(self._http.server_state.connections):
            if self._is_unsent(connection):
                connection.transport.abort()
        self._http.force_exit = self.app.inflight > 0
        self._http.should_exit = True

    def _unsent(self) -> bool:
        """Whether a client has not read all of its answer."""
        return any(map(self._is_unsent, self._http.server_state.connections))

    @staticmethod
    def _is_unsent(connection: Any) -> bool:
        return bool(connection.transport.get_write_buffer_size())

    async def _until(self, condition: Callable[[], bool], moment: float) -> None:
        """Wait for a condition, at most until a time of the loop's clock."""
        loop = asyncio.get_running_loop()
        while not condition() and loop.time() < moment:
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    def _stop_signal(self) -> None:
        if self._drains is not None:
            if self._pipe is not None:
                self._pipe.close()
            _exit_now(EXIT_INTERRUPTED)
        self.stop()

    def _reload_signal(self) -> None:
        if self._tls is not None:
            try:
                _load_certificate(self._tls, self.config)  # for connections from now on
            except InputError as problem:
                log.error("certificate not read", extra={"fields": {"reason": str(problem)}})
        self._reloading = asyncio.create_task(self.reloader.reload())

    async def _serve_metrics(self) -> None:
        if self._metrics_socket is not None:
            await self._metrics_http.serve([self._metrics_socket])

    async def _publish_numbers(self) -> None:
        """Publish the metrics for other workers periodically."""
        while True:
            await asyncio.to_thread(self.services.metrics.publish)
            await asyncio.sleep(NUMBERS_SECONDS)

    def _connections(self) -> int:
        return len(self._http.server_state.connections)

    def _watch_numbers(self) -> None:
        services, app = self.services, self.app
        watch = services.metrics.watch
        watch("connections", "Connections open", self._connections)
        if (audit := services.audit) is not None:
            lost = "Lines of the audit that could not be written"
            watch("audit_lines_lost", lost, lambda: audit.log.lost)
        watch("reads_waiting", "Reads that wait for a thread", lambda: services.pool.reads_waiting)
        watch("query_bytes", "Memory of queries", lambda: services.queries.memory.used)
        watch("writes_in_flight", "Writes under way", lambda: services.admission.inflight)
        watch("export_slots_taken", "Streams under way", lambda: services.streams.slots_taken)
        watch("graphs_ready", "Graphs served", lambda: len(app.generation.graphs))
        watch("graphs_quarantined", "Graphs left out", lambda: len(app.generation.quarantined))
        watch("review_webhooks_waiting", "Webhooks to post", lambda: self.webhooks.waiting)
        watch("reload_generation", "Generation served", lambda: app.generation.number)


class Reloader:
    """Replaces the generation of an application without a pause, one replacement at a time.

    The next generation is built beside the current one, then assigned.
    """

    def __init__(self, app: App, config: ServerConfig) -> None:
        self._app = app
        self._config = config
        self._busy = asyncio.Lock()
        self._is_incomplete = asyncio.Event()
        """Set when some graphs could not be opened."""
        self._serve(app.generation)

    def _serve(self, generation: Generation) -> None:
        """Switch the generation; running requests keep theirs."""
        self._app.generation = generation
        if generation.quarantined:
            self._is_incomplete.set()

    async def reload(self) -> bool:
        """Build the next generation and serve it; False if that failed and nothing changed."""
        async with self._busy:
            try:
                following = await asyncio.to_thread(build, self._config, self._app.generation)
            except (OmnigraphError, OSError) as problem:
                log.error(
                    "reload refused",
                    extra={
                        "fields": {
                            "generation": self._app.generation.number,
                            "reason": str(problem),
                        }
                    },
                )
                return False
            self._serve(following)
            log.info("reloaded", extra={"fields": {"generation": following.number}})
            return True

    async def retry(self) -> None:
        """Retry graphs that could not be opened, with growing pauses."""
        while True:
            await self._is_incomplete.wait()
            seconds = RETRY_SECONDS
            while self._app.generation.quarantined:
                await asyncio.sleep(seconds)
                await self._retry_once()
                seconds = min(2 * seconds, RETRY_SECONDS_MAX)
            self._is_incomplete.clear()

    async def _retry_once(self) -> None:
        async with self._busy:
            current = self._app.generation
            try:
                following = await asyncio.to_thread(retried, self._config, current)
            except (OmnigraphError, OSError) as problem:
                log.error("graphs not served", extra={"fields": {"reason": str(problem)}})
                return
            if following is not current:
                self._serve(following)

    async def watch(self, seconds: float, seen: str) -> None:
        """Reload when a file's fingerprint differs from ``seen``, checking periodically."""
        while True:
            await asyncio.sleep(seconds)
            found = await asyncio.to_thread(fingerprint, self._config)
            if found != seen:
                seen = found
                await self.reload()


def serve(config: ServerConfig, announce: Callable[[str], None]) -> int:
    """Serve until a signal, in this process or by workers; returns the exit code."""
    if config.workers > 1:
        from omnigraph.server.workers import supervise

        return supervise(config, announce)
    return serve_here(config, announce)


def serve_here(
    config: ServerConfig,
    announce: Callable[[str], None],
    worker: Worker | None = None,
    *,
    beside: Callable[[RunningServer], object] | None = None,
) -> int:
    """Serve in this process; ``beside`` is called on its loop before connections are accepted."""
    events, pipe = configure_logs(config.log_format, is_quiet=not config.logs_requests)
    _raise_file_limit(config.connections_max)
    # Engine threads yield the interpreter this often, so that the event loop and short queries wait
    # for 1 ms and not 5 ms.
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        server = RunningServer(config, events, pipe, worker)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(server, announce, beside))
            if not server.is_clean:
                # Threads are still running, so exit without finalizing Python. Unpublished writes
                # have no effect.
                pipe.close()
                _exit_now(0)
    finally:
        is_logged = pipe.close()
    if not is_logged:
        _exit_now(0)
    return 0


async def _run(
    server: RunningServer,
    announce: Callable[[str], None],
    beside: Callable[[RunningServer], object] | None,
) -> None:
    if beside is not None:
        beside(server)
    await server.run(announce)


def _raise_file_limit(connections_max: int) -> None:
    """Raise the limit of open files for connections and graphs, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + EXTRA_CONNECTIONS_MAX + GRAPH_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _exit_now(code: int) -> None:
    sys.stdout.flush()
    flush_all()
    os._exit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _tls_context(config: ServerConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, config)
    return context


def _load_certificate(context: ssl.SSLContext, config: ServerConfig) -> None:
    assert config.tls_cert is not None
    assert config.tls_key is not None
    try:
        # With an empty password, OpenSSL does not prompt for the password of an encrypted key.
        context.load_cert_chain(config.tls_cert, config.tls_key, password=lambda: "")
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(
            f"the certificate {config.tls_cert} with the key {config.tls_key} cannot be used: "
            f"{reason}",
            hint="both are PEM files, and the key is not encrypted",
        ) from None


def _uvicorn_config(
    app: Starlette, config: ServerConfig, tls: ssl.SSLContext | None = None
) -> uvicorn.Config:
    protocol: Any = partial(GuardedProtocol, write_seconds=config.client_seconds)
    found = uvicorn.Config(
        app,
        limit_concurrency=config.connections_max,
        http=protocol,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    found.load()
    found.ssl = tls
    return found


def bound(bind: str, *, shares: bool = False) -> socket.socket:
    """A socket bound to this address, which other workers may share.

    Raises `InputError` if the address cannot be bound.
    """
    host, port = host_and_port(bind)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shares:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(
            f"cannot listen on {bind}: {reason}",
            hint="stop what listens there, or name another address with `--bind`; port 0 takes a "
            "free one",
        ) from None
    return listener


def address_of(listener: socket.socket) -> str:
    """The address of a socket, with its actual port."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
