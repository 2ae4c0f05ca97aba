"""Numbers an operator sets in the environment.

A value that means nothing is reported once, and the usual one used instead: a typing error in the
environment of a service must not keep it from starting.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

log = logging.getLogger(__name__)

_reported: set[tuple[str, str]] = set()


def positive_number(
    name: str, standard: int, environment: Mapping[str, str] = os.environ, *, least: int = 1
) -> int:
    """What a variable is set to, at least ``least``; ``standard`` if it is not set."""
    text = environment.get(name, "").strip()
    if not text:
        return standard
    if text.isascii() and text.isdecimal() and int(text) >= least:
        return int(text)
    report_unusable(name, text, f"a number from {least} on; {standard} is used")
    return standard


def report_unusable(name: str, text: str, expected: str) -> None:
    """Say, once, that a variable does not hold what is expected."""
    if (name, text) not in _reported:
        _reported.add((name, text))
        log.warning("%s is '%s', not %s", name, text, expected)
