"""`make attack` runs, and says of an attack whether it was held."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack import __main__ as attack

pytestmark = pytest.mark.slow


def test_an_attack_that_is_held_is_told_with_what_was_seen(capsys: pytest.CaptureFixture[str]):
    assert attack.run(["a web page without a token"], 1) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("held   a web page without a token")
    assert printed.endswith("1 of 1 attacks held\n")


def test_an_attack_that_is_not_held_makes_the_run_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def breaks(_folder: Path, _seconds: float) -> str:
        raise AssertionError("all is lost")

    monkeypatch.setitem(attack.ATTACKS, "half-open connections", breaks)
    assert attack.run(["half-open connections"], 1) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("BROKEN half-open connections")
    assert "all is lost" in printed.err
