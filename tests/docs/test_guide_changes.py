"""The Python of the page about changes keeps a copy of a graph up to date."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.cli.conftest import ROOT

PAGE = ROOT / "docs" / "guide" / "changes.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIRST_POLL = "page = graph.poll_changes(cursor=cursor)\n"
GROUP = '{"type": "Group", "data": {"name": "%s", "topic": "Bread"}}'


def test_the_copy_of_the_page_is_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = ROOT / "examples" / "social"
    monkeypatch.chdir(tmp_path)
    graph = og.init("social.omni", schema=example / "schema.pg")
    graph.load(example / "data.jsonl", mode="append")
    (block,) = PYTHON.findall(PAGE.read_text(encoding="utf-8"))
    assert block.count(FIRST_POLL) == 1
    copied, followed = block.split(FIRST_POLL)
    known: dict[str, Any] = {}
    exec(compile(copied, str(PAGE), "exec"), known)
    assert len(known["copy"]) == 36
    # Others write between the two, more than a page holds.
    graph.load(data="\n".join(GROUP % f"g{n:04}" for n in range(1_200)), mode="merge")
    graph.mutate('query gone { delete Group where name = "sourdough" }')
    exec(compile(FIRST_POLL + followed, str(PAGE), "exec"), known)
    now = {(record.type_id, record.id): record.image for record in graph.change_baseline()}
    assert known["copy"] == now
    assert graph.poll_changes(cursor=known["cursor"]).blocks == ()
