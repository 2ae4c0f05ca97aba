"""The Python of the page about branches does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.cli.conftest import ROOT

PAGE = ROOT / "docs" / "guide" / "branches.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_of_the_page_merges_a_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = ROOT / "examples" / "social"
    monkeypatch.chdir(tmp_path)
    graph = og.init("social.omni", schema=example / "schema.pg")
    graph.load(example / "data.jsonl", mode="append")
    (block,) = PYTHON.findall(PAGE.read_text(encoding="utf-8"))
    known: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), known)
    assert graph.list_branches() == ["main"], "the branch was not merged and deleted"
    assert graph.entity_at("node:Group", "oats") is not None
    printed = capsys.readouterr().out.splitlines()
    assert printed[2] == "node Group |        1 |       0 |       0"
    assert [line.split()[1] for line in printed[3:]] == ["insert"]
