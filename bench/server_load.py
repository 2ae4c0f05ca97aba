"""A client that costs next to nothing: prepared requests on open sockets, in a process of its own.

A Python HTTP library takes as long for a request as the server does, and on two cores both would be
measured at once. `python -m bench.server_load` reads a JSON object from stdin and prints one.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_SUCCESS = b"HTTP/1.1 200 "
"""Both as our server writes them: a client that reads every spelling costs more."""


def request_bytes(url: str, path: str, body: bytes) -> bytes:
    """A whole POST request for a connection that is kept open."""
    parts = urlsplit(url)
    head = (
        f"POST {parts.path}{path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass
class RawConnection:
    """One open connection and the answer that is coming in."""

    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)

    @classmethod
    def to(cls, url: str) -> RawConnection:
        """Connect to the server of a URL."""
        parts = urlsplit(url)
        found = socket.create_connection((parts.hostname, parts.port))
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(found)

    def ask(self, request: bytes) -> bytes:
        """Send a request and wait for its whole answer."""
        self.socket.sendall(request)
        while True:
            self.receive()
            answer = self.taken()
            if answer is not None:
                return answer

    def receive(self) -> None:
        """Take in what has arrived."""
        arrived = self.socket.recv(1 << 16)
        if not arrived:
            raise ConnectionError("the server closed the connection")
        self.received += arrived

    def taken(self) -> bytes | None:
        """The answer, if all of it is there; raises for anything but a success."""
        received = self.received
        head_end = received.find(_END)
        if head_end < 0:
            return None
        at = received.index(_LENGTH) + len(_LENGTH)
        size = int(received[at : received.index(b"\r", at)])
        start = head_end + len(_END)
        if len(received) < start + size:
            return None
        answer = bytes(received[start : start + size])
        if not received.startswith(_SUCCESS):
            raise RuntimeError(answer.decode(errors="replace"))
        del received[: start + size]
        return answer


def answers_per_second(
    urls: list[str], requests: list[bytes], clients: int, seconds: float
) -> float:
    """How many answers several connections get, each asking again as soon as it has one.

    Connections are spread over the servers of ``urls``, which answer all requests alike.
    """
    connections = [RawConnection.to(urls[at % len(urls)]) for at in range(clients)]
    waiting = selectors.DefaultSelector()
    for at, connection in enumerate(connections):
        waiting.register(connection.socket, selectors.EVENT_READ, connection)
        connection.socket.sendall(requests[at % len(requests)])
    count, sent = 0, clients
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for key, _ in waiting.select(timeout=1):
            connection = key.data
            connection.receive()
            if connection.taken() is not None:
                count += 1
                connection.socket.sendall(requests[sent % len(requests)])
                sent += 1
    elapsed = time.perf_counter() - start
    for connection in connections:
        connection.socket.close()
    return count / elapsed


def main() -> None:
    """Do what stdin says."""
    asked = json.load(sys.stdin)
    urls = asked["urls"]
    requests = [request_bytes(urls[0], asked["path"], body.encode()) for body in asked["bodies"]]
    rate = answers_per_second(urls, requests, asked["clients"], asked["seconds"])
    print(json.dumps({"per_second": rate}))


if __name__ == "__main__":
    main()
