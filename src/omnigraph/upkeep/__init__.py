"""Upkeep: operations that keep a graph fast and small without changing query results.

This module decides whether an open graph runs upkeep in the background.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from omnigraph.effects.environment import report_unusable
from omnigraph.errors import InputError

AUTO_OPTIMIZE_VARIABLE = "OMNIGRAPH_AUTO_OPTIMIZE"
AUTO_OPTIMIZE_EVERY = 32
"""Commits between runs; fewer than the 64 small fragments at which a write itself compacts."""

_WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def commits_between(wish: bool | int | None, environment: Mapping[str, str] = os.environ) -> int:
    """The number of commits between background optimizations; 0 for never.

    ``wish`` is a number, or True for the default; without it the environment decides. An invalid
    value there is logged once and ignored.
    """
    if wish is None:
        wish = _configured(environment.get(AUTO_OPTIMIZE_VARIABLE, "").strip().lower())
    if wish is True:
        return AUTO_OPTIMIZE_EVERY
    if wish < 0:
        raise InputError(
            f"auto_optimize takes a number of commits, not {wish}", hint="0 turns it off"
        )
    return int(wish)


def _configured(text: str) -> bool | int:
    if text in _WORDS:
        return _WORDS[text]
    if text.isdecimal():
        return int(text)
    if text:
        expected = "on, off or a number of commits; it is off"
        report_unusable(AUTO_OPTIMIZE_VARIABLE, text, expected)
    return False
