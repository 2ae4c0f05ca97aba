"""A proxy in front of the S3 API of the tests, which lets requests fail as rules say.

    with hostile_store(endpoint) as store:
        store.arm(Fault.RESET_AFTER, nth=3)

Every request is noted from the last `arm` on, with when it began and ended. A fault happens to the
requests a rule names, and all others pass. "After" means that the store has done what was asked,
and only the answer is lost or wrong.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "date", "server"}
SLOW_SECONDS = 0.2


class Fault(StrEnum):
    """What may happen to a request."""

    ERROR_500 = "500"
    ERROR_503 = "503"
    THROTTLED = "throttled"
    """503 `SlowDown`, for this request and the two after it."""
    RESET_BEFORE = "reset before"
    RESET_AFTER = "reset after"
    ERROR_AFTER = "500 after"
    TIMEOUT_AFTER = "timeout after"
    """Done, and answered only by a gateway that has waited for too long."""
    SLOW = "slow"
    STALE_LIST = "stale list"
    """A list as it was when it was asked for before."""
    REFUSED_AFTER = "412 after"
    """A conditional write that did win, answered as if it had not: what a client sees that repeats
    a request whose answer was lost."""

    @property
    def needs(self) -> str:
        """The requests it makes a difference for: `write`, `list`, `condition` or any."""
        if self is Fault.STALE_LIST:
            return "list"
        if self is Fault.REFUSED_AFTER:
            return "condition"
        return "write" if self.endswith("after") else "any"


@dataclass
class Seen:
    """One request."""

    number: int
    method: str
    path: str
    is_conditional: bool
    began: float
    ended: float = 0.0
    fault: Fault | None = None

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and "list-type=2" in self.path

    @property
    def is_write(self) -> bool:
        return self.method in ("PUT", "POST", "DELETE")

    def fits(self, fault: Fault) -> bool:
        """Whether the fault makes a difference for this request."""
        of_kind = {"write": self.is_write, "list": self.is_list, "condition": self.is_conditional}
        return of_kind.get(fault.needs, True)

    def __str__(self) -> str:
        shown = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|[01]\w{25}", "*", self.path)
        return f"{self.number:>3} {self.method} {shown[:110]}"


@dataclass
class Rule:
    """A fault for some of the requests that it makes a difference for."""

    fault: Fault
    first: int
    last: int
    fitting: int = 0
    """How many there were so far."""

    def is_for(self, seen: Seen) -> bool:
        """Whether the next request meets the fault; counts it."""
        if not seen.fits(self.fault):
            return False
        self.fitting += 1
        return self.first <= self.fitting <= self.last


@dataclass
class HostileStore:
    """The proxy, and what it has seen."""

    upstream: str
    endpoint: str = ""
    delay_seconds: float = 0.0
    """Added to every request: an object store is not on loopback."""
    requests: list[Seen] = field(default_factory=list)
    watch: Callable[[Seen], object] = lambda seen: None
    """Called with each request before it is served."""
    _rules: list[Rule] = field(default_factory=list)
    _lists: dict[str, tuple[int, list[tuple[str, str]], bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arm(self, fault: Fault | None = None, nth: int = 1, times: int = 1) -> None:
        """From now on, the ``nth`` request meets the fault, or so many ``times`` from there on.

        Only requests are counted that it makes a difference for.
        """
        if fault is Fault.THROTTLED:
            times = max(times, 3)
        with self._lock:
            self.requests = []
            self._rules = [] if fault is None else [Rule(fault, nth, nth + times - 1)]

    @property
    def hit(self) -> list[Seen]:
        """The requests that met a fault."""
        return [seen for seen in self.requests if seen.fault is not None]

    def serial_hops(self) -> int:
        """The longest chain of requests each of which began after the one before it had ended."""
        return serial_hops([(seen.began, seen.ended) for seen in self.requests])

    # --- inside -----------------------------------------------------------------------------------

    def begin(self, method: str, path: str, is_conditional: bool) -> Seen:
        with self._lock:
            seen = Seen(len(self.requests) + 1, method, path, is_conditional, time.monotonic())
            self.requests.append(seen)
            rule = next((rule for rule in self._rules if rule.is_for(seen)), None)
            seen.fault = None if rule is None else rule.fault
        self.watch(seen)
        return seen

    def listed(
        self, path: str, now: tuple[int, list[tuple[str, str]], bytes], *, is_stale: bool
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """The answer to a list: as it is, or as it was when it was last asked for."""
        before = self._lists.get(path, now)
        self._lists[path] = now
        return before if is_stale else now


def serial_hops(spans: Sequence[tuple[float, float]]) -> int:
    """The most of these spans that follow each other.

    >>> serial_hops([(0, 2), (1, 3), (3, 4), (5, 6)])
    3
    """
    count, free_at = 0, float("-inf")
    for began, ended in sorted(spans, key=lambda span: span[1]):
        if began >= free_at:
            count, free_at = count + 1, ended
    return count


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: HostileStore
    wbufsize = -1

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        conditional = "If-None-Match" in self.headers or "If-Match" in self.headers
        is_conditional = self.command == "PUT" and conditional
        seen = self.store.begin(self.command, self.path, is_conditional)
        if self.store.delay_seconds:
            time.sleep(self.store.delay_seconds)
        try:
            self._answer(seen, body)
        finally:
            seen.ended = time.monotonic()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - the library looks for them

    def _answer(self, seen: Seen, body: bytes) -> None:
        fault = seen.fault
        match fault:
            case Fault.ERROR_500:
                return self._error(500, "InternalError")
            case Fault.ERROR_503:
                return self._error(503, "ServiceUnavailable")
            case Fault.THROTTLED:
                return self._error(503, "SlowDown")
            case Fault.RESET_BEFORE:
                return self._reset()
            case Fault.SLOW:
                time.sleep(SLOW_SECONDS)
            case _:
                pass
        status, headers, content = self._forwarded(body)
        won = status < 300
        if seen.is_list and won:
            stale = fault is Fault.STALE_LIST
            status, headers, content = self.store.listed(
                seen.path, (status, headers, content), is_stale=stale
            )
        match fault:
            case Fault.RESET_AFTER:
                return self._reset()
            case Fault.ERROR_AFTER:
                return self._error(500, "InternalError")
            case Fault.TIMEOUT_AFTER:
                return self._error(504, "GatewayTimeout")
            case Fault.REFUSED_AFTER if won:
                return self._error(412, "PreconditionFailed")
            case _:
                return self._send(status, headers, content)

    def finish(self) -> None:
        """End the connection, and the one to the store that served it."""
        try:
            super().finish()
        finally:
            if (upstream := getattr(self, "_upstream", None)) is not None:
                upstream.close()

    def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        where = urlsplit(self.store.upstream)
        headers = {name: value for name, value in self.headers.items() if name != "Connection"}
        for attempt in (1, 2):
            upstream: HTTPConnection | None = getattr(self, "_upstream", None)
            if upstream is None:
                upstream = self._upstream = HTTPConnection(where.netloc, timeout=60)
            try:
                upstream.request(self.command, self.path, body or None, headers)
                answer = upstream.getresponse()
                content = answer.read()
            except (HTTPException, ConnectionError):
                # An idle connection that the server has closed: nothing was asked on it yet.
                upstream.close()
                del self._upstream
                if attempt == 2:
                    raise
                continue
            return answer.status, answer.getheaders(), content
        raise AssertionError("unreachable: the second attempt returns or raises")

    def _error(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>as the rule says</Message></Error>"
        self._send(status, [("Content-Type", "application/xml")], text.encode())

    def _send(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        has_length = False
        for name, value in headers:
            if name.lower() == "content-length":
                has_length = self.command == "HEAD"
                if not has_length:
                    continue
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if not has_length:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    def _reset(self) -> None:
        """End the connection as a network does that fails: with no answer at all."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *arguments: object) -> None:
        """A client that goes away is no news here."""


@contextmanager
def hostile_store(upstream: str, *, delay_ms: float = 0) -> Iterator[HostileStore]:
    """Start a proxy in front of the S3 API at ``upstream``."""
    store = HostileStore(upstream, delay_seconds=delay_ms / 1_000)
    handler = type("Handler", (_Handler,), {"store": store})
    server = _Server(("127.0.0.1", 0), handler)
    store.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
