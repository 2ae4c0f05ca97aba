"""One rate for all requests to a provider: each is told how long it has to wait before it is sent.

Requests are spaced evenly and have no bursts, so that no second has more of them than its share.
A caller reserves the next place at once and waits by itself: a limiter never blocks, and can serve
callers of other processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from omnigraph.embedding.config import BulkLimits


class Pace(Protocol):
    """When the next request may be sent, as `RateLimiter` says it here or in another process."""

    def reserve(self, texts: int) -> float:
        """Seconds to wait before a request with so many texts is sent."""

    def hold(self, seconds: float) -> None:
        """Let no request be sent for so long: the provider asked for it."""


class RateLimiter:
    """Requests and texts per second, as `BulkLimits` has them. Safe to share between threads."""

    def __init__(
        self, limits: BulkLimits, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._request_seconds = 1 / limits.requests_per_second if limits.requests_per_second else 0
        self._text_seconds = 1 / limits.texts_per_second if limits.texts_per_second else 0
        self._monotonic = monotonic
        self._free_at = 0.0
        """When the next request may be sent."""
        self._lock = threading.Lock()

    def reserve(self, texts: int) -> float:
        """Seconds to wait before a request with so many texts is sent; its place is taken."""
        with self._lock:
            now = self._monotonic()
            at = max(now, self._free_at)
            self._free_at = at + max(self._request_seconds, texts * self._text_seconds)
            return at - now

    def hold(self, seconds: float) -> None:
        """Let no request be sent for so long, except those that have a place already."""
        with self._lock:
            self._free_at = max(self._free_at, self._monotonic() + seconds)
