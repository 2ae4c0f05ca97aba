"""The Python of the page about upkeep runs, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.cli.conftest import ROOT

PAGE = ROOT / "docs" / "guide" / "upkeep.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCHEMA = re.compile(r"^```pg\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_a_handle_looks_after_its_graph_and_tells_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (block,), (schema,) = PYTHON.findall(text), SCHEMA.findall(text)
    monkeypatch.chdir(tmp_path)
    og.init("team.omni", schema=schema)
    known: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), known)
    assert "every=32" in capsys.readouterr().out
    status = known["graph"].auto_optimize
    assert set(status.to_dict()) - {"every"} == set(re.findall(r"\w+", block.split("# ")[1])) - {
        *("graph", "close"),
    }
