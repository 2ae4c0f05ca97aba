"""A real S3 API on loopback for tests, in a process of its own.

``with running_s3() as endpoint`` starts it; it ends with the block, and also when the test run is
killed, because it watches its standard input. ``with interruptible_s3() as server`` gives one that
can be taken away and brought back.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    import pytest

ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key"


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
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import BaseWSGIServer, make_server

    application = DomainDispatcherApplication(create_backend_app)
    one_request = threading.Lock()
    log = Path(sys.argv[1]) if len(sys.argv) > 1 else None

    # moto checks a condition and stores the object in two steps. Real stores do it in one, so
    # requests are let in one at a time.
    def serialised(environ: dict[str, Any], start_response: Any) -> Any:
        with one_request:
            if log is not None:
                with log.open("a", encoding="utf-8") as lines:
                    part = environ.get("HTTP_RANGE", "")
                    asked = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {part}"
                    lines.write(f"{asked.strip()}\n")
            return application(environ, start_response)

    def listen(port: int) -> BaseWSGIServer:
        server = make_server("127.0.0.1", port, serialised, threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    server = listen(0)
    port = server.server_port
    print(port, flush=True)
    for line in sys.stdin:
        if line == "stop\n":
            server.shutdown()
            server.server_close()
        else:
            server = listen(port)
        print(line, end="", flush=True)
    server.shutdown()


if __name__ == "__main__":
    main()
