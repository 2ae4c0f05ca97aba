"""Ctrl-C, also while libraries are loaded.

Compiled modules may lose the interrupt that comes while they are imported: they run Python code as
they start, and forget what it raised. A command that went on would then read its input to the end,
as if nothing had been said. So the interrupt is remembered, and heeded before anything is done.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupts:
    """Whether somebody has pressed Ctrl-C."""

    def __init__(self) -> None:
        self._asked = False

    def listen(self) -> None:
        """Remember interrupts from here on, besides raising them as Python does."""
        self._asked = False
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupted)

    def heed(self) -> None:
        """Raise the interrupt that came while somebody was not listening."""
        if self._asked:
            raise KeyboardInterrupt

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        signal.default_int_handler(number, frame)


INTERRUPTS = Interrupts()
"""Those of this process."""
