"""The server as a process: boot, the line it prints, signals and exit codes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import orjson
import pytest

from omnigraph.server.auth import ONE_TOKEN, TOKENS_FILE
from omnigraph.server.config import GraphSpec, flag_of
from tests.server.live import PATIENCE_SECONDS, PEOPLE
from tests.support.forked import Command

pytestmark = pytest.mark.slow
"""Every test starts a process or two."""

LISTEN = re.compile(r"OMNIGRAPH_LISTEN_ADDR=(127\.0\.0\.1:(\d+))\n")


def command(*arguments: str) -> list[str]:
    """A server in an interpreter of its own."""
    return [sys.executable, "-m", "omnigraph.cli", "serve", *arguments]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OMNIGRAPH_")}
    return kept | {"OMNIGRAPH_DURABILITY": "process"} | more


def refused(*arguments: str, **more: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a server that must not start."""
    server = Command("serve", *arguments, env=environment(**more))
    out, err = server.communicate(PATIENCE_SECONDS)
    return server.wait(), out.decode(), err.decode()


class Process:
    """A server that listens."""

    def __init__(self, process: Command | subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    @property
    def host(self) -> tuple[str, int]:
        name, _, port = self.url.removeprefix("http://").rpartition(":")
        return name, int(port)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def rest(self) -> tuple[str, str]:
        """What it still prints on stdout and on stderr until it ends."""
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        return out.decode(), err.decode()


@contextmanager
def listening(process: Command | subprocess.Popen[bytes]) -> Iterator[Process]:
    """The server that a process has become, once it listens."""
    assert process.stdout is not None and process.stderr is not None
    try:
        line = LISTEN.fullmatch(process.stdout.readline().decode())
        assert line is not None, process.stderr.read().decode()
        yield Process(process, f"http://{line[1]}")
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
        process.stdout.close()
        process.stderr.close()


@contextmanager
def started(*arguments: str, **more: str) -> Iterator[Process]:
    words = ("serve", "--bind", "127.0.0.1:0", *arguments)
    with listening(Command(*words, env=environment(**more))) as server:
        yield server


def test_c_srv_001_port_0_prints_one_line_with_the_bound_port(spec: GraphSpec):
    fresh = subprocess.Popen(
        command("--bind", "127.0.0.1:0", "--store", spec.uri, "--unauthenticated"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with listening(fresh) as server:
        assert server.host[1] > 0
        health = httpx.get(f"{server.url}/healthz").json()
        assert health["status"] == "ok" and {"version", "internal_schema_version"} <= health.keys()
        server.send(signal.SIGTERM)
        rest, logged = server.rest()
        assert rest == ""
        assert " info listening address=127.0.0.1:" in logged


def test_c_srv_002_no_boot_source_refuses_to_start_naming_cluster(spec: GraphSpec):
    code, out, err = refused("--unauthenticated")
    assert (code, out) == (2, "")
    assert "--cluster" in err and "Traceback" not in err
    code, _, err = refused("--cluster", "x", "--store", spec.uri, "--unauthenticated")
    assert code == 2 and "mutually exclusive" in err


def test_c_srv_003_a_server_that_nothing_protects_does_not_start(spec: GraphSpec, tmp_path: Path):
    code, out, err = refused("--store", spec.uri, "--bind", "127.0.0.1:0")
    assert (code, out) == (1, "")
    assert "--unauthenticated" in err
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nrules: []\n")
    open_ = ("--store", spec.uri, "--policy", str(policy), "--unauthenticated")
    code, out, err = refused(*open_, "--bind", "127.0.0.1:0")
    assert (code, out) == (1, "") and "no tokens" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--bind", "nowhere"), "host:port"),
        (("--bind", "127.0.0.1:99999"), "host:port"),
        (("--graph-id", "a/b"), "not a graph id"),
        (("--graph-id", "graphs"), "not a graph id"),
        (("--queries", "absent"), "no stored queries"),
        (("--log-format", "xml"), "takes text, json"),
        (("--shutdown-timeout", "-1"), "seconds"),
    ],
)
def test_bad_settings_are_told_before_anything_listens(
    spec: GraphSpec, arguments: tuple[str, ...], told: str
):
    code, out, err = refused("--store", spec.uri, "--unauthenticated", *arguments)
    assert code in (1, 2) and out == "" and told in err


def test_a_taken_address_is_told(spec: GraphSpec):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, out, err = refused("--store", spec.uri, "--unauthenticated", "--bind", address)
    assert (code, out) == (1, "") and "cannot listen" in err


def test_flags_beat_variables_and_variables_work(spec: GraphSpec):
    variables = {
        "OMNIGRAPH_BIND": "127.0.0.1:1",
        "OMNIGRAPH_UNAUTHENTICATED": "yes",
        "OMNIGRAPH_METRICS": "1",
        "OMNIGRAPH_CORS_ORIGINS": "https://a.example, https://b.example",
    }
    with started("--store", spec.uri, "--graph-id", "team", **variables) as server:
        assert httpx.get(f"{server.url}/graphs/team/schema").status_code == 200
        assert httpx.get(f"{server.url}/graphs/default/schema").status_code == 404
        assert httpx.get(f"{server.url}/metrics").status_code == 200
        headers = {"Origin": "https://b.example"}
        answer = httpx.get(f"{server.url}/healthz", headers=headers)
        assert answer.headers["access-control-allow-origin"] == "https://b.example"
    code, _, _ = refused("--store", spec.uri, OMNIGRAPH_UNAUTHENTICATED="0")
    assert code == 1


def test_a_boolean_variable_is_false_when_unset_blank_0_or_false():
    for false in ("", " ", "0", "false", "FALSE"):
        assert not flag_of({"X": false}, "X")
    assert not flag_of({}, "X")
    assert flag_of({"X": "1"}, "X") and flag_of({"X": "no"}, "X")


def test_c_srv_045_draining_says_so_lets_requests_end_and_exits_0(spec: GraphSpec):
    with started("--store", spec.uri, "--unauthenticated") as server:
        body = orjson.dumps({"query": PEOPLE})
        with httpx.Client(base_url=server.url) as watcher:
            assert watcher.get("/readyz").json()["status"] == "ready"
            with socket.create_connection(server.host, PATIENCE_SECONDS) as slow:
                slow.sendall(
                    b"POST /graphs/default/query HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                )
                slow.sendall(body[:5])
                # It is under way once somebody counts it; the answer to a later request shows that.
                assert watcher.get("/healthz").status_code == 200
                server.send(signal.SIGTERM)
                deadline = time.monotonic() + PATIENCE_SECONDS
                while (ready := watcher.get("/readyz")).status_code == 200:
                    assert time.monotonic() < deadline
                assert ready.status_code == 503
                assert watcher.get("/healthz").status_code == 200
                assert ready.json() == {
                    "status": "draining",
                    "graphs_ready": 1,
                    "graphs_quarantined": 0,
                    "branches_blocked": 0,
                    "blocked": [],
                    "quarantined": [],
                }
                # Probes are answered on connections from before; there are no new ones.
                with pytest.raises(httpx.ConnectError):
                    httpx.get(f"{server.url}/healthz")
                slow.sendall(body[5:])
                assert slow.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert server.wait() == 0


def test_sigterm_with_nothing_under_way_exits_0_at_once(spec: GraphSpec):
    for number in (signal.SIGTERM, signal.SIGINT):
        with started("--store", spec.uri, "--unauthenticated") as server:
            assert httpx.get(f"{server.url}/healthz").status_code == 200
            server.send(number)
            assert server.wait() == 0


def test_a_second_signal_exits_130(spec: GraphSpec):
    with (
        started("--store", spec.uri, "--unauthenticated") as server,
        httpx.Client(base_url=server.url) as watcher,
        socket.create_connection(server.host, PATIENCE_SECONDS) as slow,
    ):
        slow.sendall(
            b"POST /graphs/default/query HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
        )
        assert watcher.get("/healthz").status_code == 200
        server.send(signal.SIGTERM)
        while watcher.get("/readyz").status_code == 200:
            pass
        server.send(signal.SIGTERM)
        assert server.wait() == 130


def test_what_does_not_end_in_time_is_left_and_the_exit_code_is_0(spec: GraphSpec):
    arguments = ("--store", spec.uri, "--unauthenticated", "--shutdown-timeout", "0.2")
    with (
        started(*arguments) as server,
        socket.create_connection(server.host, PATIENCE_SECONDS) as slow,
    ):
        slow.sendall(
            b"POST /graphs/default/query HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
        )
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        server.send(signal.SIGTERM)
        assert server.wait() == 0


def test_c_srv_046_sighup_takes_up_changed_files(spec: GraphSpec, tmp_path: Path):
    tokens = tmp_path / "tokens.json"
    tokens.write_text('{"act-ana": "first-token-0001"}')
    tokens.chmod(0o600)
    arguments = ("--store", spec.uri, "--queries", str(spec.queries[0]), "--log-format", "json")
    with started(*arguments, **{TOKENS_FILE: str(tokens)}) as server:
        url = f"{server.url}/graphs/default/queries"

        def status(token: str) -> int:
            return httpx.get(url, headers={"Authorization": f"Bearer {token}"}).status_code

        assert (status("first-token-0001"), status("second-token-0002")) == (200, 401)
        tokens.write_text('{"act-ana": "second-token-0002"}')
        server.send(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while status("second-token-0002") != 200:
            assert time.monotonic() < deadline
        assert status("first-token-0001") == 401
        server.send(signal.SIGTERM)
        _, logged = server.rest()
    events = [orjson.loads(line) for line in logged.splitlines()]
    assert {"generation ready", "listening", "request", "reloaded", "draining", "stopped"} <= {
        event["event"] for event in events
    }
    assert events[0]["token_source"] == TOKENS_FILE
    assert "token-0001" not in logged and "token-0002" not in logged


def test_an_interval_takes_up_changed_files(spec: GraphSpec):
    queries = spec.queries[0]
    arguments = ("--store", spec.uri, "--queries", str(queries), "--reload-interval", "0.05")
    with started(*arguments, "--unauthenticated") as server:
        (queries / "more.gq").write_text("query more() { match { $c: City } return { $c.name } }")
        url = f"{server.url}/graphs/default/queries/more"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while httpx.post(url, json={}).status_code != 200:
            assert time.monotonic() < deadline


def test_tokens_never_reach_the_logs(spec: GraphSpec):
    with started("--store", spec.uri, **{ONE_TOKEN: "the-only-secret-token"}) as server:
        for token in ("the-only-secret-token", "a-wrong-secret-token"):
            headers = {"Authorization": f"Bearer {token}"}
            for path in ("/graphs/default/schema", f"/graphs/default/schema?token={token}", "/x"):
                httpx.get(server.url + path, headers=headers)
            httpx.post(f"{server.url}/graphs/default/mutate", headers=headers, json={"x": token})
        server.send(signal.SIGTERM)
        out, err = server.rest()
    assert "secret-token" not in out + err
    assert "status=401" in err and "status=200" in err
