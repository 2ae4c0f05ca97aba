"""How many rows threads of this process have dealt with."""

from __future__ import annotations


class RowTally:
    """A count that many threads add to and one reads, without waiting for each other."""

    def __init__(self) -> None:
        self._counts: list[int] = []

    def add(self, rows: int) -> None:
        """Take note of rows."""
        self._counts.append(rows)  # one step for all threads, which adding to a number is not

    def clear(self) -> None:
        """Begin anew."""
        self._counts.clear()

    @property
    def rows(self) -> int:
        """All of them so far."""
        return sum(self._counts)
