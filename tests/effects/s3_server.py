"""A real S3 API on loopback for tests, in a process of its own.

``with running_s3() as endpoint`` starts it; it ends with the block, and also when the test run is
killed, because it watches its standard input. ``with interruptible_s3() as server`` gives one that
can be taken away and brought back.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    import pytest

ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key"

XML = '<?xml version="1.0" encoding="utf-8"?>\n'
S3_NAMES = "http://s3.amazonaws.com/doc/2006-03-01/"


def environment(endpoint: str) -> dict[str, str]:
    """The variables with which Omnigraph reaches the server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }


def use(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach this server, and no other, from here and from processes started from here."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)


def create_bucket(endpoint: str, bucket: str) -> None:
    urlopen(Request(f"{endpoint}/{bucket}", method="PUT"), timeout=30).close()


class InterruptibleS3:
    """A server that stops to listen, as one that is restarted, and keeps its objects."""

    def __init__(self, process: subprocess.Popen[str], port: str) -> None:
        self._process = process
        self.endpoint = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """Refuse connections, once the requests under way are answered."""
        self._tell("stop")

    def start(self) -> None:
        """Listen again, at the same address."""
        self._tell("start")

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == f"{word}\n"


@contextmanager
def running_s3(request_log: Path | None = None) -> Iterator[str]:
    """Start the server and give its endpoint; each request becomes a line of ``request_log``."""
    with interruptible_s3(request_log) as server:
        yield server.endpoint


@contextmanager
def interruptible_s3(request_log: Path | None = None) -> Iterator[InterruptibleS3]:
    """Start the server; each request becomes a line of ``request_log``."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__)), *([str(request_log)] if request_log else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=clean,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        port = server.stdout.readline().strip()
        assert port, "the S3 server did not start"
        yield InterruptibleS3(server, port)
    finally:
        server.stdin.close()
        server.wait(timeout=30)
        server.stdout.close()


def main() -> None:
    from moto.moto_server.werkzeug_app import create_backend_app
    from moto.s3.responses import S3Response

    write_lists_quickly(S3Response)
    server = Server(create_backend_app("s3"), Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    print(server.start(0), flush=True)
    for line in sys.stdin:
        if line == "stop\n":
            server.stop()
        else:
            server.start(server.port)
        print(line, end="", flush=True)
    server.stop()


class _Listening(ThreadingHTTPServer):
    request_queue_size = 128
    """Connections that may wait. The default of 5 is too few for clients that open many at once:
    the kernel drops the others, and they are tried again after a second or more."""


class Server:
    """Keeps connections open and writes no log of its own: half the work of Werkzeug's server.

    moto checks a condition and stores the object in two steps. Real stores do it in one, so
    requests are let in one at a time.
    """

    def __init__(self, application: Any, log: Path | None) -> None:
        self.port = 0
        self._application, self._log = application, log
        self._one_request = threading.Lock()
        self._changes = threading.Condition()
        self._under_way = 0
        self._connections: set[socket.socket] = set()
        self._listening: ThreadingHTTPServer | None = None

    def start(self, port: int) -> int:
        """Listen, and give the port."""
        handler = type("Handler", (Handler,), {"server_of_all": self})
        self._listening = _Listening(("127.0.0.1", port), handler)
        threading.Thread(target=self._listening.serve_forever, args=(0.05,), daemon=True).start()
        self.port = self._listening.server_port
        return self.port

    def stop(self) -> None:
        """Refuse connections, answer the requests under way, and end the connections there are."""
        assert self._listening is not None
        self._listening.shutdown()
        self._listening.socket.close()
        with self._changes:
            self._changes.wait_for(lambda: self._under_way == 0)
            for each in self._connections:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def connected(self, connection: socket.socket) -> Iterator[None]:
        with self._changes:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._changes:
                self._connections.remove(connection)

    @contextmanager
    def serving(self) -> Iterator[None]:
        with self._changes:
            self._under_way += 1
        try:
            yield
        finally:
            with self._changes:
                self._under_way -= 1
                self._changes.notify_all()

    def answer(self, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        """Status, headers and body."""
        started: list[Any] = []
        with self._one_request:
            if self._log is not None:
                part = environ.get("HTTP_RANGE", "")
                asked = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {part}"
                with self._log.open("a", encoding="utf-8") as lines:
                    lines.write(f"{asked.strip()}\n")
            body = self._application(environ, lambda *given: started.extend(given[:2]))
            whole = b"".join(body)
            body.close()
        return started[0], started[1], whole


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    server_of_all: Server

    def handle(self) -> None:
        with self.server_of_all.connected(self.connection), suppress(ConnectionError):
            super().handle()

    def _serve(self) -> None:
        with self.server_of_all.serving():
            body = self._body()
            status, headers, answer = self.server_of_all.answer(self._environ(body))
            lines = [f"HTTP/1.1 {status}", f"Date: {self.date_time_string()}"]
            lines += [f"{name}: {value}" for name, value in headers]
            if not any(name.lower() == "content-length" for name, _ in headers):
                lines.append(f"Content-Length: {len(answer)}")
            self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1") + answer)
            self.wfile.flush()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(chunks)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - the library looks for them

    def _environ(self, body: bytes) -> dict[str, Any]:
        """The request as WSGI wants it."""
        path, _, query = self.path.partition("?")
        environ = {
            "REQUEST_METHOD": self.command,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query,
            "RAW_URI": self.path,
            "REQUEST_URI": self.path,
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": str(self.server_of_all.port),
            "SERVER_PROTOCOL": self.request_version,
            "REMOTE_ADDR": self.client_address[0],
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in self.headers.items():
            key = name.upper().replace("-", "_")
            environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
        # Of what came in chunks as well: the whole of it is here.
        environ["CONTENT_LENGTH"] = str(len(body))
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        return environ


def write_lists_quickly(response: Any) -> None:
    """Write lists of objects as moto does, without looking every member up in a model of S3."""
    serialized = response.serialized

    def quickly(self: Any, action: Any) -> Any:
        if self.data.get("Action") != "ListObjectsV2":
            return serialized(self, action)
        body = f'<ListBucketResult xmlns="{S3_NAMES}">{"".join(_members(action.result))}'
        headers = {"Content-Type": "application/xml", **self.response_headers}
        return 200, headers, f"{XML}{body}</ListBucketResult>"

    response.serialized = quickly


def _members(structure: Mapping[str, Any]) -> Iterator[str]:
    for name, value in structure.items():
        if isinstance(value, Mapping):
            yield f"<{name}>{''.join(_members(value))}</{name}>"
        elif isinstance(value, list):
            yield from chain.from_iterable(_members({name: each}) for each in value)
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield f"<{name}>{escape(text)}</{name}>"


if __name__ == "__main__":
    main()
