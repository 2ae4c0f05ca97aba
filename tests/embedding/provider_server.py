"""A real HTTP server on loopback that answers like a provider, or as badly as a test likes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Provider:
    """What the server will answer, in this order, and what it was asked."""

    url: str = ""
    answers: list[Answer] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)


def send(status: int, body: object) -> Answer:
    """An answer with this body: bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def openai(vector: object, **more: object) -> Answer:
    """The reply of the OpenAI shape; the datum that counts is not the first one."""
    data = [{"index": 1, "embedding": [9.0]}, {"index": 0, "embedding": vector}]
    return send(200, {"data": data, **more})


def gemini(vector: object) -> Answer:
    """The reply of the Gemini shape."""
    return send(200, {"embedding": {"values": vector}})


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without a word."""
    handler.close_connection = True


@contextmanager
def running_provider() -> Iterator[Provider]:
    """A provider that answers until the block ends."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            provider.received.append(Received(self.path, headers, json.loads(body)))
            provider.answers.pop(0)(self)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    provider.url = f"http://127.0.0.1:{server.server_port}/v1"
    # Often enough that stopping it costs a test nothing.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield provider
    finally:
        provider.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
