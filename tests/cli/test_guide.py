"""The pages that show the command line show what it really prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from omnigraph.cli.main import main
from tests.cli.conftest import ROOT

GUIDE = ROOT / "docs" / "guide"
NAMES = ("branches", "changes", "getting-started", "policy", "queries", "upkeep", "writing")
PAGES = [GUIDE / f"{name}.md" for name in NAMES]
PAGES += [ROOT / "README.md"]
FILE = re.compile(r"This is `([\w.]+)`.*?\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ID = re.compile(r"\b(?:[0-7][0-9A-HJKMNP-TV-Z]{25}\b|AQ[E-P][\w-]{90,})")
"""An id, or a cursor."""
MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b")


def same_but_for_chance(text: str) -> str:
    """A text without what differs from run to run."""
    return MOMENT.sub("(moment)", ID.sub("(id)", text))


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
    real_ids: dict[str, str] = {}
    """An id of the page and the one it stands for in this run."""
    for session in shown:
        command, _, expected = session.partition("\n")
        _, program, *arguments = shlex.split(command)
        assert Path(program).name == "omnigraph"
        main([ID.sub(lambda found: real_ids[found[0]], argument) for argument in arguments])
        printed = capsys.readouterr().out
        assert same_but_for_chance(printed) == same_but_for_chance(expected)
        for on_page, real in zip(ID.findall(expected), ID.findall(printed), strict=True):
            assert real_ids.setdefault(on_page, real) == real
    assert len(set(real_ids.values())) == len(real_ids)
