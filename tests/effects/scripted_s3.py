"""An S3 endpoint that answers as a test dictates: refusals, dropped connections, telling bodies."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

ACCESS_KEY = "AKIASECRETACCESSKEY1"
SECRET_KEY = "super/secret+key/value"
SESSION_TOKEN = "session-token-value=="
SECRETS = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)


class Reply(NamedTuple):
    """One answer; status 0 drops the connection without any."""

    status: int
    code: str = ""


class Seen(NamedTuple):
    method: str
    path: str
    if_match: str | None
    if_none_match: str | None


OK = Reply(200)
DELETED = b"<DeleteResult><Deleted><Key>x</Key></Deleted></DeleteResult>"
DROP = Reply(0)


class ScriptedS3:
    """Answers requests with the given replies in order, then with success."""

    def __init__(self) -> None:
        self.replies: deque[Reply] = deque()
        self.seen: list[Seen] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def script(self, replies: Iterable[Reply]) -> None:
        self.replies = deque(replies)
        self.seen.clear()

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_SESSION_TOKEN": SESSION_TOKEN,
        }

    @contextmanager
    def running(self) -> Iterator[ScriptedS3]:
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        script = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                script.seen.append(
                    Seen(
                        self.command,
                        self.path,
                        self.headers.get("if-match"),
                        self.headers.get("if-none-match"),
                    )
                )
                reply = script.replies.popleft() if script.replies else OK
                if reply is DROP:
                    self.connection.close()
                    return
                # What S3 does on a bad signature: it repeats what it was sent.
                body = (
                    f"<Error><Code>{reply.code or 'Failure'}</Code>"
                    f"<AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId><StringToSign>{SECRET_KEY}"
                    f"</StringToSign><CanonicalRequest>x-amz-security-token:{SESSION_TOKEN}"
                    "</CanonicalRequest></Error>"
                ).encode()
                if reply.status == 200:
                    body = DELETED if self.command == "POST" else b""
                elif self.command == "HEAD":
                    body = b""
                self.send_response(reply.status)
                self.send_header("ETag", '"scripted"')
                self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def __getattr__(self, name: str) -> Callable[[], None]:
                if name.startswith("do_"):
                    return self.answer
                raise AttributeError(name)

            def log_message(self, format: str, *args: object) -> None:
                return

        return Handler
