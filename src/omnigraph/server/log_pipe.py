"""Log lines on their way out. Whoever reads them may be slow, or have stopped: nobody waits for it.

Lines are handed to a thread, which writes what came together as one. When the reader does not keep
up, lines are lost rather than kept forever, and the log says how many.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

LINES_MAX = 20_000
TOGETHER_SECONDS = 0.02
"""How long the first line of a batch waits for others."""
GOODBYE_SECONDS = 1.0


class LogPipe:
    """A text file that is written by a thread of its own."""

    def __init__(
        self, file: TextIO, lost: Callable[[int], str], lines_max: int = LINES_MAX
    ) -> None:
        self._file = file
        self._lost_line = lost
        """The line that tells how many are missing."""
        self._lines_max = lines_max
        self._lines: deque[str] = deque()
        self._lost = 0
        self._bell = threading.Event()
        self._is_empty = threading.Event()
        self._is_empty.set()
        threading.Thread(target=self._live, name="log", daemon=True).start()

    def write(self, line: str) -> int:
        """Send a line on its way; it is lost if too many are under way already."""
        if len(self._lines) >= self._lines_max:
            self._lost += 1
            return len(line)
        self._lines.append(line)
        if not self._bell.is_set():
            self._is_empty.clear()
            self._bell.set()
        return len(line)

    def flush(self) -> None:
        """Nothing: who logs does not wait."""

    def close(self) -> bool:
        """Wait a moment for what is under way; whether all of it was written."""
        return self._is_empty.wait(GOODBYE_SECONDS)

    def _live(self) -> None:
        while True:
            self._bell.wait()
            time.sleep(TOGETHER_SECONDS)
            # First: for a line that comes after this, it is rung again.
            self._bell.clear()
            self._write(self._taken())
            if not self._bell.is_set():
                self._is_empty.set()

    def _taken(self) -> list[str]:
        taken: list[str] = []
        with suppress(IndexError):
            while True:
                taken.append(self._lines.popleft())
        if self._lost:
            lost, self._lost = self._lost, 0
            taken.append(self._lost_line(lost))
        return taken

    def _write(self, lines: list[str]) -> None:
        # Nobody reads any more, and there is nowhere to say so.
        with suppress(OSError, ValueError):
            self._file.write("".join(lines))
            self._file.flush()
