"""The page about blobs shows what really happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from omnigraph.cli.main import main
from tests.cli.conftest import ROOT
from tests.cli.test_guide import FILE, SESSION, same_but_for_chance

PAGE = ROOT / "docs" / "guide" / "blobs.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ETAG = re.compile(r'"[0-9a-f]{32}"')


def test_the_page_about_blobs_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    text = PAGE.read_text(encoding="utf-8")
    for name, content in FILE.findall(text):
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for session in SESSION.findall(text):
        command, _, expected = session.partition("\n")
        main(shlex.split(command)[2:])
        assert same_but_for_chance(capsys.readouterr().out) == same_but_for_chance(expected)

    stat, printed, *_ = TEXT.findall(text)
    main(["blob", "stat", "node", "Document", "d1", "scan", "--store", "archive.omni"])
    shown = ETAG.sub("(etag)", same_but_for_chance(capsys.readouterr().out))
    assert shown == ETAG.sub("(etag)", same_but_for_chance(stat))

    results = []
    for block in PYTHON.findall(text):
        exec(compile(block, str(PAGE), "exec"), {})
        results.append(capsys.readouterr().out)
    assert results == [printed, "b'To the cat.'\n"]
