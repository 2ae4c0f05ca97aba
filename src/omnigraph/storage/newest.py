"""Which version of a local dataset is the newest, without listing its versions every time.

A directory has the time of its last change. While that stays what it was when the versions were
listed, nobody has added one. Lance lists them instead, which takes longer the more there are, and
every query asks.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from omnigraph.effects.clock import SYSTEM_CLOCK

SETTLED_NS = 50_000_000
"""File systems count time in steps of some milliseconds. A change that is younger than this may
have the time of one that is still to come."""

_KNOWN_MAX = 4_096
_Signs = tuple[int, int]
_known: dict[str, tuple[_Signs, int]] = {}
"""By directory: what told it from other moments, and its newest version then."""


def newest_version(address: str, probe: Callable[[], int]) -> int:
    """The newest version of the dataset or ref at a path; ``probe`` lists them."""
    directory = f"{address}/_versions"
    signs = _signs(directory)
    known = _known.get(directory)
    if signs is not None and known is not None and known[0] == signs:
        return known[1]
    version = probe()
    if signs is not None:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[directory] = (signs, version)
    return version


def _signs(directory: str) -> _Signs | None:
    """What changes when the directory does; None if the next change might not show."""
    try:
        found = os.stat(directory)  # noqa: PTH116 - every query waits for this
    except OSError:
        return None
    changed = found.st_mtime_ns
    is_coarse = changed % 1_000_000_000 == 0
    age = SYSTEM_CLOCK.wall_us() * 1_000 - changed
    return None if is_coarse or age < SETTLED_NS else (found.st_ino, changed)
