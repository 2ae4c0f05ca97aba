"""Graphs that tests load with Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.graph import Graph
from tests.pipeline.workbench import Workbench

SCHEMA = """
node Person {
    slug: String @key
    name: String?
    age: I32?
    visits: U64?
    small: U32?
    height: F32?
    weight: F64?
    active: Bool?
    born: Date?
    seen: DateTime?
    tags: [String]?
    leaf: Vector(2)?
    photo: Blob?
    level: I32? @default(3)
    email: String?
    mood: enum(calm, wild)?
    @unique(email)
    @range(age, 0..150)
    @check(slug, "^[a-z0-9-]+$")
}
node Slot {
    region: String
    code: I32
    on: Date?
    note: String?
    @key(region, code)
    @unique(on, note)
}
node Note { text: String  stars: I64? }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge About: Note -> Person @card(0..2)
edge Owns: Person -> Slot { note: String? }
edge Rates: Person -> Note { on: Date  stars: I32?  @key(src, dst, on) }
"""


@pytest.fixture(autouse=True)
def on_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the input, it is read by workers of Spark and not by this process."""
    monkeypatch.setenv("OMNIGRAPH_SPARK_THRESHOLD_BYTES", "0")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return omnigraph.init(tmp_path / "graph.omni", SCHEMA)


@pytest.fixture
def bench(tmp_path: Path, spark: Any) -> Workbench:
    return Workbench(tmp_path, spark)
