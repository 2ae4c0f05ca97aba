"""Spark Connect: frames and streams work, and what needs a Spark context is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline import connect_session

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("connect")]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one program with one server came to."""
    folder = tmp_path_factory.mktemp("connect")
    program = [sys.executable, str(Path(connect_session.__file__)), str(folder)]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_frames_and_streams_are_read_and_written_through_spark_connect(done: dict[str, Any]):
    assert done["is_connect"]
    assert done["frame"] == ["a"]
    assert done["slugs"] == ["a", "b", "c"]
    assert done["stream_out"] == 3


def test_what_needs_a_spark_context_is_refused_before_anything_starts(done: dict[str, Any]):
    for kind, message, hint in done["refused"].values():
        assert kind == "InputError"
        assert message.startswith("this session is Spark Connect, which has no Spark context")
        assert 'format("omnigraph")' in hint
    assert len(done["refused"]) == 7
    assert (done["new commits"], done["new files"]) == (0, [])
