"""A cache of what was computed, bounded by the memory it takes instead of by its entries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_LARGEST_SHARE = 4
"""One entry may take this fraction of the cache; a larger one would drop all others."""


class ByteCache(Generic[Key, Value]):
    """Keeps the entries used last, up to so many bytes. Safe to share between threads."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        """What was put under a key, if it is still there."""
        found = self._entries.get(key)
        if found is None:
            return None
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
        return found[0]

    def put(self, key: Key, value: Value, nbytes: int) -> None:
        """Keep a value that takes about so many bytes; a very large one is not kept."""
        if nbytes * _LARGEST_SHARE > self.bytes_max:
            return
        with self._lock:
            known = self._entries.pop(key, None)
            self.used += nbytes - (known[1] if known is not None else 0)
            self._entries[key] = value, nbytes
            while self.used > self.bytes_max:
                _, (_, dropped) = self._entries.popitem(last=False)
                self.used -= dropped
