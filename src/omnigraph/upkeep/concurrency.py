"""How many tables are worked on at once."""

from __future__ import annotations

from omnigraph.effects.settings import positive_number

CONCURRENCY_VARIABLE = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"
CONCURRENCY = 8


def maintenance_concurrency() -> int:
    """The number that is configured."""
    return positive_number(CONCURRENCY_VARIABLE, CONCURRENCY)
