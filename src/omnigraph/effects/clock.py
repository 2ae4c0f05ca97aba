"""Time, and the ids minted from it.

The wall clock is for records, the monotonic clock for waiting. A ULID is 48 bits of milliseconds
and 80 random bits in Crockford's base 32. ULIDs are minted here and not by a library, because ids
must ascend even if the wall clock is set back, and a forked child must not continue its parent's
sequence: both would mint the same ids.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial


class Clock:
    """The clock of this machine; tests replace it."""

    def wall_us(self) -> int:
        """Microseconds since 1970 in UTC; may jump, so it is for records and never for waiting."""
        return time.time_ns() // 1_000


SYSTEM_CLOCK = Clock()

# A lease expires while a machine is suspended, so its owner's clock has to count that time. On
# Linux CLOCK_BOOTTIME does, and CLOCK_MONOTONIC does not; other systems have only the monotonic
# clock.
monotonic_seconds: Callable[[], float] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""Seconds of a clock that never runs backwards and counts suspended time."""


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
APART_CHARACTERS = 16
"""Ids of one mint differ in their first 16 of 26 characters: ten of time and six of randomness.
An operation may derive further ids from one by changing the other ten."""
_DERIVED_BITS = 5 * (26 - APART_CHARACTERS)
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(120, -1, -10)

PHYSICAL_REF_PREFIX = "gb-"


def encode_ulid(value: int) -> str:
    """The text of a ULID: its time and its random bits, as one number of 128 bits."""
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in _SHIFTS])


def ulid_at(milliseconds: int) -> str:
    """The smallest ULID of a millisecond: ULIDs minted earlier are smaller."""
    return encode_ulid(milliseconds << _RANDOM_BITS)


def later_ulid(after: str, fresh: str) -> str:
    """A ULID a millisecond later than ``after``, with the random part of a ``fresh`` one.

    Two processes that continue from the same ULID get different ones.

    >>> later_ulid("01K3Z7M0Q8W4R6T2Y5V9B1N3XZ", "01K3Z00000AAAAAABBBBBBCCCC")
    '01K3Z7M0Q9AAAAAABBBBBBCCCC'
    """
    milliseconds = 0
    for character in after[:10]:
        milliseconds = milliseconds << 5 | _ALPHABET.index(character)
    return ulid_at(milliseconds + 1)[:10] + fresh[10:]


class IdMint:
    """A source of ids; the process shares `MINT`, tests make their own from a clock and entropy."""

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, entropy: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self.forget()

    def forget(self) -> None:
        """Start a new sequence, as a forked child must."""
        self._lock = threading.Lock()
        self._last = 0

    def ulid(self) -> str:
        """A new ULID, greater than all previous ones of this mint."""
        now = (self._clock.wall_us() // 1_000) << _RANDOM_BITS
        random = int.from_bytes(self._entropy(_RANDOM_BITS // 8), "big")
        with self._lock:
            # Within one millisecond, and while the clock is behind an earlier reading, count up
            # in the characters in which ids differ.
            if now >> _RANDOM_BITS <= self._last >> _RANDOM_BITS:
                counted = (self._last >> _DERIVED_BITS) + 1
                value = counted << _DERIVED_BITS | random & (1 << _DERIVED_BITS) - 1
            else:
                value = now | random
            self._last = value
        return encode_ulid(value)

    def ulids(self, count: int) -> list[str]:
        """``count`` new ULIDs, ascending."""
        return [self.ulid() for _ in range(count)]

    def physical_ref(self) -> str:
        """A new Lance branch name: without slashes, lower-case, unique."""
        return PHYSICAL_REF_PREFIX + self.ulid().lower()


MINT = IdMint()
os.register_at_fork(after_in_child=MINT.forget)
