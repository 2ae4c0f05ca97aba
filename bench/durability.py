"""Running with one setting of durability."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.effects.local_disk import DURABILITY_VARIABLE, configured_durability


@contextmanager
def durability(setting: str) -> Iterator[None]:
    """Run with one setting of durability."""
    before = os.environ.get(DURABILITY_VARIABLE)
    os.environ[DURABILITY_VARIABLE] = setting
    configured_durability.cache_clear()
    try:
        yield
    finally:
        if before is None:
            del os.environ[DURABILITY_VARIABLE]
        else:
            os.environ[DURABILITY_VARIABLE] = before
        configured_durability.cache_clear()
