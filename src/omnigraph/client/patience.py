"""When a request is sent again, and after how long; pure rules, no clock and no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from omnigraph.client.exchange import Exchange, Response
from omnigraph.client.failures import NOT_SENT, is_unknown, retry_after_seconds

RETRY_STATUSES = (429, 503)
"""A server that answers with these has done nothing."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long to try.

    A read is repeated when the connection breaks, because reading twice changes nothing, and a
    write because the server knows it again by its key.
    """

    attempts: int = 3
    wait_seconds_max: float = 5.0
    """The longest `Retry-After` that is waited for; a longer one becomes the caller's error."""
    first_wait_seconds: float = 0.05
    repeats_writes: bool = True
    """Whether writes are repeated at all."""

    def after_failure(
        self, failure: httpx.TransportError, exchange: Exchange[Any], attempt: int
    ) -> float | None:
        """Seconds to wait after the connection failed; None to give up."""
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
        """Seconds to wait after the answer of a server that is busy, or does not know the outcome.

        None to give up.
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
