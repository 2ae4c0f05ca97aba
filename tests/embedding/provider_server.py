"""A real HTTP server on loopback that answers like a provider, or as badly as a test likes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from omnigraph.embedding.client import mock_vector
from omnigraph.embedding.config import RateLimiter

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
    model: Model | None = None
    """Answers when there is no other answer."""


class Model:
    """Gives mock vectors to whatever texts are asked for, and counts everything."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        """The texts of each request, whatever became of it."""
        self.answered: list[str] = []
        self.arrived: list[float] = []
        """When each request came, in seconds."""
        self.at_once_max = 0
        self.faults: dict[int, Answer] = {}
        """By the number of the request, counted from 1: another answer."""
        self.on_request: Callable[[int, BaseHTTPRequestHandler], None] = lambda _number, _by: None
        """Called before each answer."""
        self.refuses: Callable[[str], bool] = lambda _text: False
        """Texts that are refused with status 400, together with their batch."""
        self._at_once = 0
        self._lock = threading.Lock()

    def answer(self, handler: BaseHTTPRequestHandler, body: Mapping[str, Any]) -> None:
        """Answer one request in OpenAI's shape; a word is a token."""
        texts, dimension = body["input"], body["dimensions"]
        with self._lock:
            self.batches.append(texts)
            self.arrived.append(time.monotonic())
            number = len(self.batches)
            self._at_once += 1
            self.at_once_max = max(self.at_once_max, self._at_once)
        try:
            self.on_request(number, handler)
            answer = self._answer_to(number, texts, dimension)
        finally:
            with self._lock:
                self._at_once -= 1
        # Last of all: the client may send its next request before this call returns.
        answer(handler)

    def _answer_to(self, number: int, texts: list[str], dimension: int) -> Answer:
        if number in self.faults:
            return self.faults[number]
        if any(map(self.refuses, texts)):
            return send(400, {"error": {"message": "I do not read that"}})
        data = [
            {"index": place, "embedding": mock_vector(text, dimension)}
            for place, text in enumerate(texts)
        ]
        tokens = sum(len(text.split()) for text in texts)
        with self._lock:
            self.answered += texts
        return send(200, {"data": data, "usage": {"total_tokens": tokens}})


def moments(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When requests may be sent, as the limiter of this process says it from now on."""
    said: list[float] = []
    reserve = RateLimiter.reserve
    lock = threading.Lock()

    def noted(self: RateLimiter, texts: int) -> float:
        with lock:
            wait = reserve(self, texts)
            # Not by a look at the clock, which a busy machine may delay.
            after = max(self._request_seconds, texts * self._text_seconds)
            said.append(self._free_at - after)
        return wait

    monkeypatch.setattr(RateLimiter, "reserve", noted)
    return said


def require_rate(model: Model, said: list[float], per_second: float) -> None:
    """All requests had a moment of the limiter, none came before it, and there is room between."""
    assert len(said) == len(model.arrived)
    came, may = sorted(model.arrived), sorted(said)
    assert all(each >= at - 0.02 for each, at in zip(came, may, strict=True))
    assert may[-1] - may[0] >= (len(may) - 1) / per_second * 0.9


def send(status: int, body: object, **headers: str) -> Answer:
    """An answer with this body: bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
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
            asked = json.loads(body)
            provider.received.append(Received(self.path, headers, asked))
            if provider.answers or provider.model is None:
                provider.answers.pop(0)(self)
            else:
                provider.model.answer(self, asked)

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
