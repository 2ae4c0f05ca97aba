"""What the crash tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.templates import place_in


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the graph of a test will be."""
    return place_in(tmp_path)
