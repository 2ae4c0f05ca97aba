"""Reading tables into memory beside the queries that will profit from it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable

LOGGER = logging.getLogger(__name__)


class Warming:
    """One job at a time, in a thread that ends when there is nothing to do.

    A job that fails changes nothing: queries go on by lookups, and say themselves what is wrong.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, Callable[[], object]] = {}
        self._asked: set[Hashable] = set()
        self._thread: threading.Thread | None = None

    def ask(self, key: Hashable, job: Callable[[], object]) -> None:
        """Do a job when its turn comes, once however many queries ask for it meanwhile."""
        if key in self._asked:
            return
        with self._lock:
            if key in self._asked:
                return
            self._asked.add(key)
            self._waiting[key] = job
            if self._thread is None:
                # A process that wants to end does not wait for it.
                self._thread = threading.Thread(target=self._work, name="warming", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Wait until nothing is left to do."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                key, job = self._waiting.popitem()
            try:
                job()
            except Exception:  # whatever it is, a query that needs the table will meet it
                LOGGER.debug("could not read %s ahead", key, exc_info=True)
                continue  # it stays asked for: another try would end the same way
            self._asked.discard(key)
