"""How much one actor may have under way: a number of writes, and their bytes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from omnigraph.errors import TooManyRequests

log = logging.getLogger(__name__)

INFLIGHT_VARIABLE = "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX"
BYTES_VARIABLE = "OMNIGRAPH_PER_ACTOR_BYTES_MAX"
INFLIGHT_MAX = 16
BYTES_MAX = 4 * 1024**3
ANONYMOUS = "anonymous"
RETRY_AFTER_SECONDS = 60
BRANCH_OPERATION_BYTES = 256
"""What an operation on branches counts as, whatever its names are."""


@dataclass(slots=True)
class _InFlight:
    requests: int = 0
    bytes: int = 0


class Admission:
    """Counts the writes of every actor. Safe to share between threads."""

    def __init__(self, inflight_max: int = INFLIGHT_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.inflight_max = inflight_max
        self.bytes_max = bytes_max
        self._guard = threading.Lock()
        self._actors: dict[str, _InFlight] = {}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Admission:
        """The limits that variables set; a bad value is warned about and not used."""
        return cls(
            _positive(environment, INFLIGHT_VARIABLE, INFLIGHT_MAX),
            _positive(environment, BYTES_VARIABLE, BYTES_MAX),
        )

    @property
    def inflight(self) -> int:
        """The writes under way, of everybody."""
        with self._guard:
            return sum(each.requests for each in self._actors.values())

    @contextmanager
    def admit(self, actor: str | None, size: int) -> Iterator[None]:
        """Count a write of ``size`` bytes while the block runs, or raise `TooManyRequests`."""
        name = actor or ANONYMOUS
        self._enter(name, size)
        try:
            yield
        finally:
            self._leave(name, size)

    def _enter(self, name: str, size: int) -> None:
        # Both limits are looked at before either is taken from: a refusal costs nothing.
        with self._guard:
            mine = self._actors.get(name) or _InFlight()
            if mine.requests >= self.inflight_max:
                raise _refusal(f"{mine.requests} writes of yours are under way")
            if mine.bytes + size > self.bytes_max:
                raise _refusal(f"writes of yours with {mine.bytes} bytes are under way")
            mine.requests += 1
            mine.bytes += size
            self._actors[name] = mine

    def _leave(self, name: str, size: int) -> None:
        with self._guard:
            mine = self._actors[name]
            mine.requests -= 1
            mine.bytes -= size
            if not mine.requests:
                del self._actors[name]


def _refusal(reason: str) -> TooManyRequests:
    return TooManyRequests(
        f"{reason}, and no more are taken at a time", hint="wait until some of them are done"
    )


def _positive(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if text.isdecimal() and int(text) > 0:
        return int(text)
    log.warning("`%s` is not a positive number; %d is used", name, default)
    return default
