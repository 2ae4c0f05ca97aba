"""How many tables are worked on at once."""

from __future__ import annotations

import logging
import os

log = logging.getLogger(__name__)

CONCURRENCY_VARIABLE = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"
CONCURRENCY = 8

_reported: set[str] = set()


def maintenance_concurrency() -> int:
    """The number that is configured; a value that is none is reported once, and not used."""
    text = os.environ.get(CONCURRENCY_VARIABLE, "").strip()
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if text and text not in _reported:
        _reported.add(text)
        log.warning("%s is '%s', not a number above 0", CONCURRENCY_VARIABLE, text)
    return CONCURRENCY
