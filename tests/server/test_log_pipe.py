"""A log that nobody reads must not stop the server."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from omnigraph.server.auth import TOKENS_JSON
from omnigraph.server.logs import LogPipe
from tests.server.live import PATIENCE_SECONDS, PEOPLE, TOKENS, bearer, new_graph, with_tokens
from tests.server.test_process import LISTEN, command, environment


class Slow:
    """A file whose reader has stopped, until it is let go."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.is_writing = threading.Event()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.is_writing.set()
        assert self.may_go_on.wait(PATIENCE_SECONDS)
        self.texts.append(text)
        return len(text)

    def flush(self) -> None:
        pass


@pytest.fixture
def slow() -> Iterator[Slow]:
    file = Slow()
    yield file
    file.may_go_on.set()


def pipe_to(file: Slow, lines_max: int = 10) -> LogPipe:
    return LogPipe(file, lambda lost: f"{lost} lost\n", lines_max)  # type: ignore[arg-type]


def test_lines_come_out_whole_and_in_order(slow: Slow):
    slow.may_go_on.set()
    pipe = pipe_to(slow, 1000)
    for number in range(500):
        pipe.write(f"{number}\n")
    pipe.close()
    assert "".join(slow.texts).split() == [str(number) for number in range(500)]


def test_requests_do_not_wait_for_the_reader_and_what_is_lost_is_counted(slow: Slow):
    pipe = pipe_to(slow)
    pipe.write("first\n")
    assert slow.is_writing.wait(PATIENCE_SECONDS)
    for number in range(15):
        pipe.write(f"{number}\n")
    slow.may_go_on.set()
    pipe.close()
    assert "".join(slow.texts).split("\n") == [
        "first",
        *(str(number) for number in range(10)),
        "5 lost",
        "",
    ]


@pytest.mark.slow
def test_a_server_whose_log_is_not_read_goes_on_and_ends(tmp_path: Path):
    new_graph(tmp_path / "team.omni")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)  # it is full from the beginning
    os.set_blocking(writing, True)
    tokens = with_tokens()[TOKENS_JSON]
    with subprocess.Popen(
        command("--store", str(tmp_path / "team.omni"), "--bind", "127.0.0.1:0"),
        stdout=subprocess.PIPE,
        stderr=writing,
        text=True,
        env=environment(**{TOKENS_JSON: tokens}),
    ) as process:
        try:
            os.close(writing)
            assert process.stdout is not None
            found = LISTEN.fullmatch(process.stdout.readline())
            assert found is not None
            url = f"http://{found[1]}/graphs/default/query"
            with httpx.Client(headers=bearer("act-ana"), timeout=PATIENCE_SECONDS) as client:
                for _ in range(20):
                    answer = client.post(url, json={"query": PEOPLE})
                    assert answer.status_code == 200
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
    logged = b""
    while piece := os.read(reading, 65_536):
        logged += piece
    os.close(reading)
    assert not any(token.encode() in logged for token in TOKENS.values())
