"""What all tests of the benchmark leave out."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def no_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring collects garbage first, which takes long beside the objects of a whole suite."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
