"""Time: the wall clock for records, a monotonic clock for waiting, and sleeping."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a room may know about time. Tests bring a clock of their own."""

    def wall_us(self) -> int:
        """Microseconds since 1970 in UTC; may jump, so it is for records and never for waiting."""

    def monotonic_us(self) -> int:
        """Microseconds since some fixed moment; never runs backwards."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


# A lease runs out while a laptop sleeps, so its owner has to see that time pass. Linux stops
# CLOCK_MONOTONIC during suspend and keeps CLOCK_BOOTTIME running; elsewhere the plain monotonic
# clock is the best there is.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clocks of this machine."""

    def wall_us(self) -> int:
        """Microseconds since 1970 in UTC."""
        return time.time_ns() // 1_000

    def monotonic_us(self) -> int:
        """Microseconds of a clock that never runs backwards and counts suspended time."""
        return time.clock_gettime_ns(_MONOTONIC) // 1_000

    def sleep(self, seconds: float) -> None:
        """Wait, releasing the interpreter lock."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
