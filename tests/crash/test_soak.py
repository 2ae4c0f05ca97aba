"""A short soak: three processes that write at once and are killed at random."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.crash import soak
from tests.crash.soak_judge import Report, judge
from tests.crash.soak_worker import Entry
from tests.support.budgets import budget

SECONDS = budget(4, 60)


@pytest.mark.slow
@pytest.mark.parametrize("leases", ["local", "remote"])
def test_nothing_is_lost_or_half_done_however_writers_die(tmp_path: Path, leases: str) -> None:
    report = soak.Soak(tmp_path, "test", SECONDS, remote=leases == "remote").run()
    assert report.discrepancies == [], str(report)
    assert report.acknowledged > 0
    assert report.kills > 0


def test_a_soak_that_fails_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    class Broken(soak.Soak):
        def _put_to_sleep(self, number: int) -> None:
            started.extend(process.pid for process in self._running.values())
            os.kill(self._running[number].pid, signal.SIGSTOP)
            raise RuntimeError("broken")

    monkeypatch.setattr(soak, "SLEEP_SHARE", 1)
    with pytest.raises(RuntimeError, match="broken"):
        Broken(tmp_path, "test", 60, remote=True).run()
    assert len(started) == soak.WORKERS
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_soak_that_loses_something_says_so(tmp_path: Path) -> None:
    seen = soak.Soak(tmp_path, "test", seconds=0).run()
    assert seen.discrepancies == []
    insert = {"kind": "insert", "branch": "main", "names": ["never"], "value": 1}
    claimed = Entry(0, 10_000, insert, 0, 1, "done", "01M7000000000000000000000X")
    report = Report("test", 0)
    judge(tmp_path / "graph.omni", [claimed], report)
    assert len(report.lost) == 1
    assert "never" in str(report)
