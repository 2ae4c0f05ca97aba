"""A short run of the processes of `make jepsen`: some seconds on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories import __main__ as histories
from tests.support.budgets import budget

SECONDS = budget(6, 120)


@pytest.mark.slow
def test_c_ver_005_a_history_with_kills_and_pauses_is_linearizable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_TTL_MS", str(histories.TTL_MS))
    monkeypatch.setenv("OMNIGRAPH_UNAUTHENTICATED", "1")
    code = histories.run(str(tmp_path / "graph.omni"), SECONDS, seed=7)
    assert code == 0, capsys.readouterr().out
