"""How long to wait for a provider, and how often to ask again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TIMEOUT_VARIABLE = "OMNIGRAPH_EMBED_TIMEOUT_MS"
DEADLINE_VARIABLE = "OMNIGRAPH_EMBED_DEADLINE_MS"
ATTEMPTS_VARIABLE = "OMNIGRAPH_EMBED_RETRY_ATTEMPTS"
BACKOFF_VARIABLE = "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS"

_NUMBER_MAX = 2**31
"""In milliseconds most of a month; more digits are a slip of the keyboard."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The limits of one call."""

    timeout_ms: int = 30_000
    """For one request."""
    deadline_ms: int = 60_000
    """For the whole call with its retries; 0 is none."""
    attempts: int = 4
    """Requests in all."""
    backoff_ms: int = 200
    """Before the second request; it doubles from there."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Patience:
        """What the variables say; an unusable number means the default."""
        default = cls()
        return cls(
            _number(environment, TIMEOUT_VARIABLE, 1, default.timeout_ms),
            _number(environment, DEADLINE_VARIABLE, 0, default.deadline_ms),
            _number(environment, ATTEMPTS_VARIABLE, 1, default.attempts),
            _number(environment, BACKOFF_VARIABLE, 0, default.backoff_ms),
        )

    def delay_ms(self, failed: int) -> int:
        """How long to wait after the attempt with this number, counted from 1."""
        return self.backoff_ms << (failed - 1)


def _number(environment: Mapping[str, str], name: str, minimum: int, default: int) -> int:
    text = environment.get(name, "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_NUMBER_MAX))):
        return default
    return int(text) if minimum <= int(text) <= _NUMBER_MAX else default
