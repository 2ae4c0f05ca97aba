"""A clock that stands still until it is told to go on."""

from __future__ import annotations

from omnigraph.effects.clock import Clock


class FakeClock(Clock):
    def __init__(self, wall_us: int = 1_700_000_000_000_000) -> None:
        self.now_us = wall_us

    def wall_us(self) -> int:
        return self.now_us

    def advance(self, seconds: float) -> None:
        self.now_us += round(seconds * 1e6)

    def set_back(self, seconds: float) -> None:
        """What an administrator or a time server may do to the wall clock."""
        self.now_us -= round(seconds * 1e6)
