"""What killed loads left behind goes after a week; what a running one needs stays."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.effects.clock import MINT, SYSTEM_CLOCK, ulid_at
from omnigraph.model.upkeep import CleanedTable
from omnigraph.storage.layout import LOAD_SCRATCH, load_scratch_name
from omnigraph.upkeep.retention import ABANDONED_DAYS

DAY_MS = 86_400_000


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "graph.omni", schema="node Memo { code: String @key }")


def test_only_loads_of_long_ago_are_given_up(graph: og.Graph) -> None:
    store = graph._kernel.store
    now = SYSTEM_CLOCK.wall_us() // 1_000
    old = load_scratch_name(ulid_at(now - (ABANDONED_DAYS + 1) * DAY_MS))
    recent = load_scratch_name(ulid_at(now - (ABANDONED_DAYS - 1) * DAY_MS))
    running = load_scratch_name(MINT.ulid())
    strange = f"{LOAD_SCRATCH}/notes-of-somebody"
    for folder in (old, recent, running, strange):
        store.write(f"{folder}/node-Memo/part.lance", b"rows")

    preview = graph.cleanup(keep=1)
    assert CleanedTable(LOAD_SCRATCH, 0, 1) in preview.tables
    assert len(store.list(LOAD_SCRATCH)) == 4

    done = graph.cleanup(keep=1, confirm=True)
    assert CleanedTable(LOAD_SCRATCH, 0, 1) in done.tables
    left = {name.rsplit("/", 2)[0] for name in store.list(LOAD_SCRATCH)}
    assert left == {recent, running, strange}
    assert all(row.type_key != LOAD_SCRATCH for row in graph.cleanup(keep=1).tables)
