"""The pages that show the command line show what it really prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from omnigraph.cli.main import main
from tests.cli.conftest import ROOT

PAGES = [ROOT / "docs" / "guide" / "getting-started.md", ROOT / "README.md"]
FILE = re.compile(r"This is `([\w.]+)`.*?\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sessions_print_what_the_page_shows(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    text = page.read_text(encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, content in FILE.findall(text):
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    shown = [session for session in SESSION.findall(text) if "omnigraph " in session]
    assert shown
    for session in shown:
        command, _, expected = session.partition("\n")
        _, program, *arguments = shlex.split(command)
        assert Path(program).name == "omnigraph"
        main(arguments)
        assert capsys.readouterr().out == expected
