"""Retry rules: pure functions, without clock and I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from omnigraph.client.exchange import Exchange, Response
from omnigraph.client.failures import NOT_SENT, is_unknown, retry_after_seconds

RETRY_STATUSES = (429, 503)
"""Statuses after which the server has done nothing."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The number and duration of retries.

    Reads are repeated when the connection breaks, as they have no effects, and writes because the
    server recognises their idempotency key.
    """

    attempts: int = 3
    wait_seconds_max: float = 5.0
    """The longest `Retry-After` to wait for; a longer one raises an error."""
    first_wait_seconds: float = 0.05
    repeats_writes: bool = True
    """Whether writes are repeated."""

    def after_failure(
        self, failure: httpx.TransportError, exchange: Exchange[Any], attempt: int
    ) -> float | None:
        """Seconds to wait after a failed connection; None to give up."""
        if not self._may_repeat(exchange, attempt):
            return None
        is_timeout = isinstance(failure, httpx.TimeoutException)
        may_be_seen = exchange.is_read or exchange.is_keyed
        if is_timeout or not (may_be_seen or isinstance(failure, NOT_SENT)):
            return None
        return self._backoff(attempt)

    def after_answer(
        self, response: Response, exchange: Exchange[Any], attempt: int
    ) -> float | None:
        """Seconds to wait after an answer that the server is busy, or the outcome unknown.

        Returns None to give up.
        """
        if not self._may_repeat(exchange, attempt):
            return None
        if exchange.is_keyed and is_unknown(response):
            return self._backoff(attempt)
        if response.status not in RETRY_STATUSES:
            return None
        wait = retry_after_seconds(response)
        return wait if wait is not None and wait <= self.wait_seconds_max else None

    def _backoff(self, attempt: int) -> float:
        return self.first_wait_seconds * 4.0 ** (attempt - 1)

    def _may_repeat(self, exchange: Exchange[Any], attempt: int) -> bool:
        return attempt < self.attempts and (exchange.is_read or self.repeats_writes)
