"""Failed tests get a second run alone, and no third."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.packaging.again import FAILED, TESTS_MAX, main

TESTS = """
def test_passes():
    pass

def test_fails():
    assert False
"""


@pytest.fixture(autouse=True)
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_some.py").write_text(TESTS)


def failed(*tests: str) -> None:
    """What pytest leaves behind when these tests have failed."""
    FAILED.parent.mkdir(parents=True)
    FAILED.write_text(json.dumps(dict.fromkeys(tests, True)))


def test_a_test_that_passes_alone_passes_the_gate_and_is_named(
    capfd: pytest.CaptureFixture[str],
) -> None:
    failed("test_some.py::test_passes@spark")
    assert main() == 0
    mended = "passed alone, to be mended:\n  test_some.py::test_passes\n"
    assert mended in capfd.readouterr().out


def test_a_test_that_fails_alone_too_fails_the_gate() -> None:
    failed("test_some.py::test_passes", "test_some.py::test_fails")
    assert main() == 1


def test_many_failed_tests_are_not_run_again(capfd: pytest.CaptureFixture[str]) -> None:
    failed(*(f"test_some.py::test_{number}" for number in range(TESTS_MAX + 1)))
    assert main() == 1
    assert "are not run again" in capfd.readouterr().out


def test_a_run_that_recorded_no_failed_test_is_not_excused() -> None:
    assert main() == 1
