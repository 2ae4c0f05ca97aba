"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 120
"""Much longer than anything takes on a busy machine."""


def until(condition: Callable[[], object]) -> None:
    """Wait until something is true; fails if that takes minutes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
