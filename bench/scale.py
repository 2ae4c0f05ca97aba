"""How much is measured."""

from __future__ import annotations

from enum import StrEnum


class Scale(StrEnum):
    """A scale of the whole benchmark; each suite says what it means there."""

    SMALL = "small"
    """All suites in some minutes: what `make bench` does."""
    FULL = "full"
    """The sizes that targets were set for."""
    LARGE = "large"
    """As full, and queries on ten million edges."""
