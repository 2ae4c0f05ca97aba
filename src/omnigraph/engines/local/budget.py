"""How much memory the engine may keep between queries, and what goes first.

Everything kept (columns, ids, adjacency, text indexes) is registered with its size. When the sum
passes the limit, what was not used for the longest time is forgotten. Queries that are running hold
references of their own, so nothing is ever taken away from under them.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "OMNIGRAPH_CACHE_BYTES"
DEFAULT_SHARE = 4
"""By default a quarter of the memory there is."""

CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where the limit of a container is written, by the newer and the older way to set it."""


@dataclass(slots=True)
class _Kept:
    nbytes: int
    forget: Callable[[], object]


class MemoryBudget:
    """What is kept, least recently used first. Safe to use from many threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.queries = 0
        """How many queries have begun: the clock by which things are old."""
        self._lock = threading.RLock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def keep(self, key: Hashable, nbytes: int, forget: Callable[[], object]) -> None:
        """Register something that was just made; older things may be forgotten for it."""
        with self._lock:
            # Registered again it is the same thing, made known by two threads: not forgotten.
            known = self._kept.pop(key, None)
            self._kept[key] = _Kept(nbytes, forget)
            self.used += nbytes - (known.nbytes if known is not None else 0)
            self._make_room(key)

    def resize(self, key: Hashable, nbytes: int) -> bool:
        """Say that something has grown, and was used; False if it is not kept."""
        with self._lock:
            known = self._kept.get(key)
            if known is None:
                return False
            self.used += nbytes - known.nbytes
            known.nbytes = nbytes
            self._kept.move_to_end(key)
            self._make_room(key)
            return True

    def touch(self, keys: Iterable[Hashable]) -> None:
        """Say that some things were used."""
        with self._lock:
            for key in keys:
                if key in self._kept:
                    self._kept.move_to_end(key)

    def _make_room(self, newest: Hashable) -> None:
        """Forget what is oldest until the rest fits; ``newest`` stays in any case."""
        while self.used > self.limit and (oldest := next(iter(self._kept))) != newest:
            self._release(oldest)

    def _release(self, key: Hashable) -> None:
        known = self._kept.pop(key, None)
        if known is not None:
            self.used -= known.nbytes
            known.forget()


def configured_limit() -> int:
    """The limit in bytes: `OMNIGRAPH_CACHE_BYTES`, or a share of the memory there is."""
    text = os.environ.get(VARIABLE, "").strip()
    if text.isdigit() and int(text) > 0:
        return int(text)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_container_limits()]) // DEFAULT_SHARE


def _container_limits() -> Iterator[int]:
    """What the kernel lets this process have, if it is less than the machine."""
    for path in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # no such file, or the word `max`
            yield int(path.read_text())
