"""The configuration of embedding: provider, model, address, key, and limits.

There is one configuration for queries and for stored text. A host passes it in; otherwise it comes
from the environment, with defaults for unset values.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Literal, Protocol, TypeAlias, get_args
from urllib.parse import urlsplit

from omnigraph.errors import InputError
from omnigraph.model.records import dataclass

# --- provider -------------------------------------------------------------------------------------


ProviderName: TypeAlias = Literal["openai-compatible", "openai", "gemini", "mock"]
PROVIDER_NAMES: tuple[ProviderName, ...] = get_args(ProviderName)

PROVIDER_VARIABLE = "OMNIGRAPH_EMBED_PROVIDER"
BASE_URL_VARIABLE = "OMNIGRAPH_EMBED_BASE_URL"
MODEL_VARIABLE = "OMNIGRAPH_EMBED_MODEL"
MOCK_VARIABLE = "OMNIGRAPH_EMBEDDINGS_MOCK"

_YES = ("1", "true", "yes", "on")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Defaults:
    base_url: str | None
    model: str
    key_variables: tuple[str, ...]
    """Environment variables searched for a key, in this order; empty if no key is needed."""


_DEFAULTS: dict[ProviderName, _Defaults] = {
    "openai-compatible": _Defaults(
        "https://openrouter.ai/api/v1",
        "openai/text-embedding-3-large",
        ("OPENROUTER_API_KEY", "OPENAI_API_KEY"),
    ),
    "openai": _Defaults("https://api.openai.com/v1", "text-embedding-3-large", ("OPENAI_API_KEY",)),
    "gemini": _Defaults(
        "https://generativelanguage.googleapis.com/v1beta",
        "gemini-embedding-2",
        ("GEMINI_API_KEY",),
    ),
    "mock": _Defaults(None, "", ()),
}


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """One complete configuration; create it with `of`, which fills in the defaults."""

    provider: ProviderName
    model: str
    base_url: str | None
    """Without a trailing slash; None for the mock."""
    api_key: str | None = field(repr=False)

    @classmethod
    def of(
        cls,
        provider: str = "openai-compatible",
        *,
        model: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> EmbeddingConfig:
        """A checked configuration; raises `InputError` for an invalid one."""
        name = _provider_name(provider.strip())
        model, base_url, api_key = (_trimmed(value) for value in (model, base_url, api_key))
        defaults = _DEFAULTS[name]
        if name == "mock":
            return cls(name, model or defaults.model, None, None)
        if api_key is None:
            raise InputError(
                f"the embedding provider `{name}` needs an API key",
                hint=f"set {' or '.join(defaults.key_variables)}, "
                f"or pass a vector instead of a text",
                details={"provider": name, "variables": list(defaults.key_variables)},
            )
        return cls(
            name,
            model or defaults.model,
            _checked_url(base_url or defaults.base_url or ""),
            _checked_key(api_key, name),
        )


def config_from_environment(environment: Mapping[str, str]) -> EmbeddingConfig:
    """The configuration in the environment; raises `InputError` for an invalid one."""
    named = _trimmed(environment.get(PROVIDER_VARIABLE))
    provider = _provider_name(named or "openai-compatible")
    if (_trimmed(environment.get(MOCK_VARIABLE)) or "").lower() in _YES:
        if named is not None and provider != "mock":
            _log.warning(
                "%s is set: texts get mock vectors instead of vectors of %s",
                MOCK_VARIABLE,
                provider,
            )
        provider = "mock"
    keys = (_trimmed(environment.get(name)) for name in _DEFAULTS[provider].key_variables)
    return EmbeddingConfig.of(
        provider,
        model=_trimmed(environment.get(MODEL_VARIABLE)),
        base_url=_trimmed(environment.get(BASE_URL_VARIABLE)),
        api_key=next((key for key in keys if key is not None), None),
    )


def _trimmed(value: str | None) -> str | None:
    """A value without surrounding space; None if it is empty."""
    return (value or "").strip() or None


def _provider_name(text: str) -> ProviderName:
    for name in PROVIDER_NAMES:
        if name == text:
            return name
    raise InputError(
        f"there is no embedding provider `{text}`",
        hint=f"the providers are {', '.join(PROVIDER_NAMES)}; {PROVIDER_VARIABLE} picks one",
    )


def _checked_url(text: str) -> str:
    url = text.rstrip("/")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        # The URL is not repeated, because it may contain a key.
        raise InputError(
            "the base URL of the embedding provider is not a plain http(s) URL",
            hint=f"write it like https://host/v1 in {BASE_URL_VARIABLE}",
        )
    return url


def _checked_key(text: str, provider: ProviderName) -> str:
    # httpx refuses such a header with a message that quotes the key.
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise InputError(
            f"the API key for the embedding provider `{provider}` holds characters no key has",
            hint="copy it again, without line breaks and spaces",
        )
    return text


# --- timeouts and retries -------------------------------------------------------------------------


TIMEOUT_VARIABLE = "OMNIGRAPH_EMBED_TIMEOUT_MS"
DEADLINE_VARIABLE = "OMNIGRAPH_EMBED_DEADLINE_MS"
ATTEMPTS_VARIABLE = "OMNIGRAPH_EMBED_RETRY_ATTEMPTS"
BACKOFF_VARIABLE = "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS"

_NUMBER_MAX = 2**31
"""Larger numbers are taken for mistakes; this is 24 days in milliseconds."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Timeouts and retries of one call."""

    timeout_ms: int = 30_000
    """The timeout of one request."""
    deadline_ms: int = 60_000
    """The time limit of the whole call with its retries; 0 is none."""
    attempts: int = 4
    """Maximum number of requests."""
    backoff_ms: int = 200
    """The wait before the second request; it doubles from there."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RetryLimits:
        """The limits in the environment; an invalid number means the default."""
        default = cls()
        return cls(
            _limit(environment, TIMEOUT_VARIABLE, 1, default.timeout_ms),
            _limit(environment, DEADLINE_VARIABLE, 0, default.deadline_ms),
            _limit(environment, ATTEMPTS_VARIABLE, 1, default.attempts),
            _limit(environment, BACKOFF_VARIABLE, 0, default.backoff_ms),
        )

    def delay_ms(self, failed: int) -> int:
        """How long to wait after the attempt with this number, counted from 1."""
        return self.backoff_ms << (failed - 1)


def _limit(environment: Mapping[str, str], name: str, minimum: int, default: int) -> int:
    text = environment.get(name, "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_NUMBER_MAX))):
        return default
    return int(text) if minimum <= int(text) <= _NUMBER_MAX else default


# --- many texts -----------------------------------------------------------------------------------


BATCH_VARIABLE = "OMNIGRAPH_EMBED_BATCH_TEXTS"
CONCURRENCY_VARIABLE = "OMNIGRAPH_EMBED_CONCURRENCY"
REQUEST_RATE_VARIABLE = "OMNIGRAPH_EMBED_REQUESTS_PER_SECOND"
TEXT_RATE_VARIABLE = "OMNIGRAPH_EMBED_TEXTS_PER_SECOND"


@dataclass(frozen=True, slots=True)
class BulkLimits:
    """Limits for requests when stored texts are embedded, for all processes together."""

    batch_texts: int = 32
    """Texts of one request; some self-hosted providers take no more than 32."""
    concurrency: int = 8
    """Concurrent requests."""
    requests_per_second: float | None = None
    """None is no limit."""
    texts_per_second: float | None = None

    def __post_init__(self) -> None:
        """Raise `InputError` for numbers that allow nothing."""
        for name in ("batch_texts", "concurrency", "requests_per_second", "texts_per_second"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"`{name}` is {value}", hint="it is a number above 0")

    @property
    def has_rate(self) -> bool:
        """Whether the rate of requests is limited."""
        return (self.requests_per_second, self.texts_per_second) != (None, None)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> BulkLimits:
        """The limits in the environment; an invalid number means the default."""
        default = cls()
        return cls(
            _limit(environment, BATCH_VARIABLE, 1, default.batch_texts),
            _limit(environment, CONCURRENCY_VARIABLE, 1, default.concurrency),
            _rate(environment, REQUEST_RATE_VARIABLE),
            _rate(environment, TEXT_RATE_VARIABLE),
        )


def _rate(environment: Mapping[str, str], name: str) -> float | None:
    try:
        rate = float(environment.get(name, ""))
    except ValueError:
        return None
    return rate if 0 < rate < _NUMBER_MAX else None


# --- the rate of requests -------------------------------------------------------------------------


class Pace(Protocol):
    """Decides when the next request may be sent; `RateLimiter`, or one in another process."""

    def reserve(self, texts: int) -> float:
        """Reserve a place for a request with this many texts; returns the seconds to wait."""

    def hold(self, seconds: float) -> None:
        """Delay all requests, because the provider asked for it."""


class RateLimiter:
    """Limits requests and texts per second, as in `BulkLimits`. Safe to share between threads."""

    def __init__(
        self, limits: BulkLimits, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._request_seconds = 1 / limits.requests_per_second if limits.requests_per_second else 0
        self._text_seconds = 1 / limits.texts_per_second if limits.texts_per_second else 0
        self._monotonic = monotonic
        self._free_at = 0.0
        """The earliest time of the next request."""
        self._lock = threading.Lock()

    def reserve(self, texts: int) -> float:
        """Reserve a place for a request with this many texts; returns the seconds to wait."""
        with self._lock:
            now = self._monotonic()
            at = max(now, self._free_at)
            self._free_at = at + max(self._request_seconds, texts * self._text_seconds)
            return at - now

    def hold(self, seconds: float) -> None:
        """Delay all requests except those with a reserved place."""
        with self._lock:
            self._free_at = max(self._free_at, self._monotonic() + seconds)
