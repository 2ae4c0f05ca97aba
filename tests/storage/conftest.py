from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.graphs import TestGraph, new_graph


@pytest.fixture
def graph(tmp_path: Path) -> TestGraph:
    return new_graph(tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a graph is to be made."""
    return tmp_path / "graph.omni"
