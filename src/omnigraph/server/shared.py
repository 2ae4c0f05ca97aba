"""State that the workers of a server share: counts of writes, failed tokens, and metrics.

The counts are in a file that every worker maps into memory, guarded by a POSIX lock, which the
system releases when a worker is killed; the supervisor then clears the counts of that worker.
Metrics are files in a private folder, written periodically and read by the worker that serves the
page.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from omnigraph.access.identity import ATTEMPT_SECONDS, Attempts, require_attempts
from omnigraph.server.admission import BYTES_MAX, INFLIGHT_MAX, Admission, refusal
from omnigraph.server.metrics import Numbers, merged

WORKERS_MAX = 64
KEY_BYTES = 16
WINDOW = 32
"""Entries searched for a key. If other keys fill them, it is refused or replaces the oldest."""
ACTORS_MAX = 4096
ADDRESSES_MAX = 4096
ACCEPTED_MAX = 8192

_HELD = struct.Struct("<Iq")
"""One worker's counts of one actor: requests, and their bytes."""
_MOMENT = struct.Struct("<d")


@lru_cache(maxsize=4096)
def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).digest()


class _SharedEntries:
    """A hash table of fixed-size entries in shared memory, each beginning with its key.

    A key may be in any entry of the window that begins at its hash position, so entries can be
    freed in any order.
    """

    def __init__(self, memory: mmap.mmap, start: int, entries: int, payload: int) -> None:
        self._memory = memory
        self._start = start
        self._entries = entries
        self.entry_bytes = KEY_BYTES + payload

    @property
    def end(self) -> int:
        """The offset of its end; includes one extra window, so that none wraps around."""
        return self._start + (self._entries + WINDOW) * self.entry_bytes

    def window(self, key: bytes) -> int:
        """The offset of the window of a key."""
        place = int.from_bytes(key[:8], "little") % self._entries
        return self._start + place * self.entry_bytes

    def find(self, key: bytes) -> int | None:
        """The offset of a key's payload; None if the key is absent."""
        first = self.window(key)
        found = self._memory[first : first + WINDOW * self.entry_bytes]
        at = found.find(key)
        while at >= 0:
            if at % self.entry_bytes == 0:
                return first + at + KEY_BYTES
            at = found.find(key, at + 1)
        return None

    def places(self, key: bytes) -> range:
        """The offsets of the entries in a key's window."""
        first = self.window(key)
        return range(first, first + WINDOW * self.entry_bytes, self.entry_bytes)

    def all_places(self) -> range:
        """The offsets of all entries."""
        return range(self._start, self.end, self.entry_bytes)


class SharedState:
    """The shared memory of a server's workers, mapped from a file."""

    def __init__(self, fd: int, workers: int) -> None:
        self._fd = fd
        self._workers = workers
        self._guard = threading.Lock()
        payloads = (_HELD.size * workers, _MOMENT.size, _MOMENT.size)
        entries = (ACTORS_MAX, ADDRESSES_MAX, ACCEPTED_MAX)
        size = sum(
            (count + WINDOW) * (KEY_BYTES + payload)
            for count, payload in zip(entries, payloads, strict=True)
        )
        if os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
        self.memory = mmap.mmap(fd, size)
        self.actors = _SharedEntries(self.memory, 0, entries[0], payloads[0])
        self.addresses = _SharedEntries(self.memory, self.actors.end, entries[1], payloads[1])
        self.accepted = _SharedEntries(self.memory, self.addresses.end, entries[2], payloads[2])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, exclusive among the threads of all workers."""
        # The file lock excludes processes, not threads.
        with self._guard:
            fcntl.lockf(self._fd, fcntl.LOCK_EX, 1)
            try:
                yield
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1)

    # --- writes of actors ------------------------------------------------------------------------

    def held(self, at: int) -> list[tuple[int, int]]:
        """The counts per worker of the actor whose payload is at this offset."""
        payload = self.memory[at : at + _HELD.size * self._workers]
        return list(_HELD.iter_unpack(payload))

    def hold(self, at: int, worker: int, requests: int, size: int) -> None:
        """Set a worker's counts of that actor."""
        _HELD.pack_into(self.memory, at + worker * _HELD.size, requests, size)

    def entry_of_actor(self, key: bytes) -> int | None:
        """The offset of an actor's payload, created if needed; None if its window is full."""
        at = self.actors.find(key)
        if at is not None:
            return at
        nothing = bytes(_HELD.size * self._workers)
        for place in self.actors.places(key):
            at = place + KEY_BYTES
            if self.memory[at : at + len(nothing)] == nothing:
                self.memory[place:at] = key
                return at
        return None

    def clear(self, worker: int) -> None:
        """Reset all counts of a worker that has ended."""
        with self.locked():
            for place in self.actors.all_places():
                self.hold(place + KEY_BYTES, worker, 0, 0)

    # --- moments ---------------------------------------------------------------------------------

    def moment(self, table: _SharedEntries, key: bytes) -> float | None:
        """The time stored for a key; read without the lock, because it only grows."""
        at = table.find(key)
        return None if at is None else float(_MOMENT.unpack_from(self.memory, at)[0])

    def keep_moment(self, table: _SharedEntries, key: bytes, moment: float) -> None:
        """Store a time, replacing the oldest entry if the window is full; needs the lock."""
        at = table.find(key)
        if at is None:
            oldest = min(
                table.places(key),
                key=lambda place: _MOMENT.unpack_from(self.memory, place + KEY_BYTES)[0],
            )
            at = oldest + KEY_BYTES
        self.memory[at - KEY_BYTES : at + _MOMENT.size] = key + _MOMENT.pack(moment)


class SharedAdmission(Admission):
    """Counts the writes of every actor over all workers. Thread-safe."""

    def __init__(
        self,
        state: SharedState,
        worker: int,
        inflight_max: int = INFLIGHT_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        super().__init__(inflight_max, bytes_max)
        self._state = state
        self._worker = worker
        self._own = 0

    @property
    def inflight(self) -> int:
        """The writes in flight of this worker, of all actors."""
        return self._own

    def _enter(self, name: str, size: int) -> None:
        with self._state.locked():
            at = self._state.entry_of_actor(_key(name))
            if at is None:
                raise refusal("writes of too many others are under way")
            held = self._state.held(at)
            self.require_room(sum(each for each, _ in held), sum(each for _, each in held), size)
            requests, total = held[self._worker]
            self._state.hold(at, self._worker, requests + 1, total + size)
            self._own += 1

    def _leave(self, name: str, size: int) -> None:
        with self._state.locked():
            at = self._state.entry_of_actor(_key(name))
            assert at is not None  # not freed while counts are above zero
            requests, total = self._state.held(at)[self._worker]
            self._state.hold(at, self._worker, requests - 1, total - size)
            self._own -= 1


class SharedAttempts(Attempts):
    """Limits invalid tokens by address, over all workers."""

    def __init__(self, state: SharedState, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        self._state = state

    def require(self, address: str, token: str) -> None:
        """Raise `TooManyRequests` for an address that has no attempts left."""
        full_at = self._state.moment(self._state.addresses, _key(address))
        if full_at is None or self.knows(address, token):
            return
        if self._state.moment(self._state.accepted, _accepted_key(address, token)) is not None:
            return
        require_attempts(full_at - self._now())

    def failed(self, address: str) -> None:
        """Count a failed attempt."""
        now, key = self._now(), _key(address)
        with self._state.locked():
            before = self._state.moment(self._state.addresses, key)
            full_at = max(now if before is None else before, now) + ATTEMPT_SECONDS
            self._state.keep_moment(self._state.addresses, key, full_at)

    def succeeded(self, address: str, token: str) -> None:
        """Remember an accepted token."""
        if not self.knows(address, token):
            with self._state.locked():
                key = _accepted_key(address, token)
                self._state.keep_moment(self._state.accepted, key, self._now())
        super().succeeded(address, token)


def _accepted_key(address: str, token: str) -> bytes:
    # Not cached: a token must not stay in memory after its request.
    text = f"{address}\n{token}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()


# --- numbers --------------------------------------------------------------------------------------

_ENDED = "ended.json"


class MetricsBoard:
    """The folder through which workers exchange metrics."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._own = folder / f"worker-{name}.json"

    def publish(self, numbers: Numbers) -> None:
        """Publish metrics; readers see the old or the new file, never a part."""
        _replace(self._own, numbers)

    def page_of(self, own: Numbers) -> Numbers:
        """This worker's metrics, those of running workers, and counters of ended ones, merged."""
        others = [_read(path) for path in sorted(self._folder.glob("*.json")) if path != self._own]
        return merged([own, *others])


def retire(folder: Path, name: str) -> None:
    """Keep the counters of a worker that has ended, and drop its gauges."""
    path = folder / f"worker-{name}.json"
    ended = folder / _ENDED
    counters = [family for family in _read(path) if family["type"] in ("counter", "histogram")]
    _replace(ended, merged([counters, _read(ended)]))
    path.unlink(missing_ok=True)


def _read(path: Path) -> Numbers:
    try:
        found: Any = json.loads(path.read_text())
    except FileNotFoundError:
        return []
    numbers: Numbers = found
    return numbers


def _replace(path: Path, numbers: Numbers) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(numbers))
    part.replace(path)
