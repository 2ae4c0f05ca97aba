"""What the crash tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the graph of a test will be."""
    return tmp_path / "graph.omni"
