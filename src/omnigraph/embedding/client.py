"""One text, one vector: asking a provider, again if that may help, until patience ends."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.embedding.mock import mock_vector
from omnigraph.embedding.patience import DEADLINE_VARIABLE, Patience
from omnigraph.embedding.providers import (
    EmbeddingRequest,
    Role,
    components_of,
    message_of,
    request_for,
    undecodable,
)
from omnigraph.embedding.vectors import unit_vector
from omnigraph.errors import EmbeddingError

if TYPE_CHECKING:
    import httpx

REPLY_BYTES_MAX = 16 << 20
"""A vector of a hundred thousand components takes a few; more is not an embedding."""

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500

_log = logging.getLogger(__name__)


class _TryAgain(Exception):
    """A failure that may pass: its reason, without any secret."""


class EmbeddingClient:
    """Embeds texts with one configuration. Safe to share between threads.

    ``monotonic`` and ``sleep`` are the clock, in seconds, so that tests need not wait.
    """

    def __init__(
        self,
        config: EmbeddingConfig,
        patience: Patience | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config = config
        self._patience = patience or Patience()
        self._monotonic = monotonic
        self._sleep = sleep
        self._http: httpx.Client | None = None
        self._opening = threading.Lock()

    def embed(self, text: str, dimension: int, role: Role = "query") -> list[float]:
        """The vector of a text: of this dimension, finite, and one long.

        Raises `EmbeddingError` when the provider refuses, sends something unusable, or does not
        answer in time.
        """
        if self.config.provider == "mock":
            return mock_vector(text, dimension)
        reply = self._reply(request_for(self.config, text, dimension, role))
        return unit_vector(components_of(self.config, reply), dimension)

    def _reply(self, request: EmbeddingRequest) -> bytes:
        """The body of a successful answer."""
        patience = self._patience
        ends = self._monotonic() + patience.deadline_ms / 1000 if patience.deadline_ms else None
        for attempt in range(1, patience.attempts + 1):
            try:
                return self._attempt(request, ends)
            except _TryAgain as failure:
                reason = str(failure)
            if attempt == patience.attempts:
                break
            delay = patience.delay_ms(attempt) / 1000
            if ends is not None and self._monotonic() + delay >= ends:
                raise EmbeddingError(
                    f"{self._provider} did not answer within {patience.deadline_ms} ms: {reason}",
                    hint=f"try again later, or allow more time with {DEADLINE_VARIABLE}",
                )
            _log.info("%s: %s; asking again in %g s", self._provider, reason, delay)
            self._sleep(delay)
        tries = "1 attempt" if patience.attempts == 1 else f"{patience.attempts} attempts"
        raise EmbeddingError(
            f"{self._provider} did not answer after {tries}: {reason}",
            hint="try again later, or check the provider's status and the network",
        )

    def _attempt(self, request: EmbeddingRequest, ends: float | None) -> bytes:
        """One request; raises `_TryAgain` for what may pass, `EmbeddingError` for the rest."""
        import httpx

        seconds = self._patience.timeout_ms / 1000
        if ends is not None:
            seconds = min(seconds, max(ends - self._monotonic(), 0.001))
        try:
            status, body = self._send(request, seconds)
        except httpx.TimeoutException:
            raise _TryAgain(f"no answer in {seconds:g} s") from None
        except httpx.TransportError as problem:
            words = str(problem) or type(problem).__name__
            raise _TryAgain(self._redacted(words)) from None
        except httpx.DecodingError:
            raise undecodable(self.config) from None
        except httpx.InvalidURL:
            raise EmbeddingError(
                f"{self._provider} has no valid address",
                hint="check the base URL, and for gemini the model, which is a part of the URL",
            ) from None
        if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR:
            raise _TryAgain(f"status {status}: {self._redacted(message_of(body))}")
        if not 200 <= status < 300:
            raise EmbeddingError(
                f"{self._provider} answered {status}: {self._redacted(message_of(body))}",
                hint="check the key, the model and the base URL",
                details={"provider": self.config.provider, "status": status},
            )
        return body

    def _send(self, request: EmbeddingRequest, seconds: float) -> tuple[int, bytes]:
        """Status and body of one answer."""
        import httpx

        # The library's timeout is for each wait, so a body that trickles in is watched as well.
        ends = self._monotonic() + seconds
        body = bytearray()
        with self._connection().stream(
            "POST", request.url, json=request.body, headers=request.headers, timeout=seconds
        ) as response:
            for block in response.iter_bytes():
                body += block
                if self._monotonic() > ends:
                    raise httpx.ReadTimeout("the reply came too slowly")
                if len(body) > REPLY_BYTES_MAX:
                    raise EmbeddingError(
                        f"{self._provider} sent more than {REPLY_BYTES_MAX} bytes",
                        hint="check that the base URL is that of an embedding API",
                    )
            return response.status_code, bytes(body)

    def _connection(self) -> httpx.Client:
        """The connections to the provider, opened with the first request and kept."""
        with self._opening:
            if self._http is None:
                import httpx

                self._http = httpx.Client()
                weakref.finalize(self, self._http.close)
            return self._http

    @property
    def _provider(self) -> str:
        return f"the embedding provider `{self.config.provider}`"

    def _redacted(self, words: str) -> str:
        """A text from outside without the key, which providers like to quote."""
        key = self.config.api_key
        return words.replace(key, "***") if key else words
