"""The page about bulk loading shows what really happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.main import main
from tests.cli.conftest import ROOT
from tests.cli.test_guide import FILE, SESSION, same_but_for_chance

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PAGE = ROOT / "docs" / "guide" / "loading.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_about_loading_is_true(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    text = PAGE.read_text(encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, content in FILE.findall(text):
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for session in SESSION.findall(text):
        command, _, expected = session.partition("\n")
        main(shlex.split(command)[2:])
        assert same_but_for_chance(capsys.readouterr().out) == same_but_for_chance(expected)
    printed = []
    for block in PYTHON.findall(text):
        exec(compile(block, str(PAGE), "exec"), {})
        printed.append(capsys.readouterr().out)
    assert printed == ["spark 1\n", "2\n", "3\n"]
