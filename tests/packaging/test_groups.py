"""What the Makefile relies on: tests of one group run in one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import os
import pytest

pytestmark = pytest.mark.xdist_group("one")


@pytest.mark.parametrize("number", range(4))
def test_notes_its_process(number, request):
    with open(request.config.rootpath / "processes.txt", "a") as notes:
        notes.write(f"{os.getpid()}\\n")
"""


def test_tests_of_one_group_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_group.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    processes = (tmp_path / "processes.txt").read_text().split()
    assert len(processes) == 4
    assert len(set(processes)) == 1, "the session of Spark would be started by every worker"
