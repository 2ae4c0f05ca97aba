"""Embeds texts: requests to a provider with retries, and checks of its vectors."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from omnigraph.embedding.config import (
    DEADLINE_VARIABLE,
    MODEL_VARIABLE,
    EmbeddingConfig,
    Pace,
    RetryLimits,
    config_from_environment,
)
from omnigraph.errors import EmbeddingError, InputError
from omnigraph.model.records import dataclass
from omnigraph.model.values import round_to_f32

if TYPE_CHECKING:
    import httpx

REPLY_BYTES_MAX = 16 << 20
"""Larger replies are refused; a vector of 100,000 components takes about 2 MB."""

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500

_log = logging.getLogger(__name__)


class _TryAgain(Exception):
    """A transient failure: its reason without secrets, and the wait the provider asks for."""

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Usage:
    """The requests to a provider, and the tokens that it reported."""

    requests: int = 0
    """Including repeated requests."""
    retries: int = 0
    tokens: int | None = None
    """None if the provider does not report them."""

    def plus(self, other: Usage) -> Usage:
        """The sum of both."""
        known = [each.tokens for each in (self, other) if each.tokens is not None]
        return Usage(
            self.requests + other.requests,
            self.retries + other.retries,
            sum(known) if known else None,
        )


NOTHING_USED = Usage()


def _uncounted(_: Usage) -> None:
    """For callers that report no cost."""


class EmbeddingClient:
    """Embeds texts with one configuration. Safe to share between threads.

    Requests are limited by ``pace`` if there is one. ``monotonic`` and ``sleep`` are the clock, in
    seconds; tests replace them.
    """

    def __init__(
        self,
        config: EmbeddingConfig,
        limits: RetryLimits | None = None,
        *,
        pace: Pace | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config = config
        self._limits = limits or RetryLimits()
        self._pace = pace
        self._monotonic = monotonic
        self._sleep = sleep
        self._http: httpx.Client | None = None
        self._opening = threading.Lock()

    def embed(self, text: str, dimension: int, role: Role = "query") -> list[float]:
        """The vector of a text: of this dimension, finite, and of length one.

        Raises `EmbeddingError` if the provider refuses, sends something unusable, or does not
        answer in time.
        """
        (vector,) = self.embed_all([text], dimension, role)
        return vector

    def embed_all(
        self,
        texts: Sequence[str],
        dimension: int,
        role: Role = "document",
        count: Callable[[Usage], None] | None = None,
    ) -> list[list[float]]:
        """The vectors of some texts, in their order, by one request; raises as `embed` does.

        ``count`` is called for each request when it is sent, and with the tokens of its answer.
        """
        if self.config.provider == "mock":
            return [mock_vector(text, dimension) for text in texts]
        note = count or _uncounted
        reply = self._reply(request_for(self.config, texts, dimension, role), len(texts), note)
        document = decoded(self.config, reply)
        note(Usage(tokens=tokens_of(document)))
        found = components_of(self.config, document, len(texts))
        return [unit_vector(each, dimension) for each in found]

    def _reply(
        self, request: EmbeddingRequest, texts: int, count: Callable[[Usage], None]
    ) -> bytes:
        """The body of a successful answer."""
        limits = self._limits
        ends = self._monotonic() + limits.deadline_ms / 1000 if limits.deadline_ms else None
        for attempt in range(1, limits.attempts + 1):
            waited = 0.0 if self._pace is None else self._pace.reserve(texts)
            if waited:
                self._sleep(waited)
                # The time limit is for the provider, not for waiting for earlier requests.
                ends = None if ends is None else ends + waited
            count(Usage(requests=1, retries=int(attempt > 1)))
            try:
                return self._attempt(request, ends)
            except _TryAgain as failure:
                reason, asked = str(failure), failure.seconds
            if asked and self._pace is not None:
                self._pace.hold(asked)
            if attempt == limits.attempts:
                break
            delay = max(limits.delay_ms(attempt) / 1000, asked)
            if ends is not None and self._monotonic() + delay >= ends:
                raise EmbeddingError(
                    f"{self._provider} did not answer within {limits.deadline_ms} ms: {reason}",
                    hint=f"try again later, or allow more time with {DEADLINE_VARIABLE}",
                )
            _log.info("%s: %s; asking again in %g s", self._provider, reason, delay)
            self._sleep(delay)
        tries = "1 attempt" if limits.attempts == 1 else f"{limits.attempts} attempts"
        raise EmbeddingError(
            f"{self._provider} did not answer after {tries}: {reason}",
            hint="try again later, or check the provider's status and the network",
        )

    def _attempt(self, request: EmbeddingRequest, ends: float | None) -> bytes:
        """One request; raises `_TryAgain` for transient failures, `EmbeddingError` for others."""
        import httpx

        seconds = self._limits.timeout_ms / 1000
        if ends is not None:
            seconds = min(seconds, max(ends - self._monotonic(), 0.001))
        try:
            status, body, wait = self._send(request, seconds)
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
            raise _TryAgain(f"status {status}: {self._redacted(message_of(body))}", wait)
        if not 200 <= status < 300:
            raise EmbeddingError(
                f"{self._provider} answered {status}: {self._redacted(message_of(body))}",
                hint="check the key, the model and the base URL",
                details={"provider": self.config.provider, "status": status},
            )
        return body

    def _send(self, request: EmbeddingRequest, seconds: float) -> tuple[int, bytes, float]:
        """Status and body of one answer, and the seconds of its `Retry-After`."""
        import httpx

        # httpx's timeout is per read; this one bounds the whole body.
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
            asked = response.headers.get("retry-after", "")
            # The other form is a date, for hours of maintenance: the time limit ends the call.
            wait = float(asked) if asked.isascii() and asked.isdecimal() else 0.0
            return response.status_code, bytes(body), wait

    def _connection(self) -> httpx.Client:
        """The connections to the provider, opened with the first request and reused."""
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
        """A message of the provider with the API key removed."""
        key = self.config.api_key
        return words.replace(key, "***") if key else words


# --- requests and replies -------------------------------------------------------------------------


Role: TypeAlias = Literal["query", "document"]
"""Whether a text is a search query or stored text; some models treat them differently."""

_GEMINI_TASKS: dict[Role, str] = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}

_MESSAGE_MAX = 300
"""Maximum number of characters of a provider's message that an error repeats."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A POST request."""

    url: str
    body: dict[str, Any]
    headers: dict[str, str] = field(repr=False)


def request_for(
    config: EmbeddingConfig, texts: Sequence[str], dimension: int, role: Role
) -> EmbeddingRequest:
    """The request for some texts, in OpenAI's format, which many providers use, or Gemini's."""
    assert config.api_key is not None, "the mock is never asked over a network"
    if config.provider == "gemini":
        asked = [
            {
                "model": f"models/{config.model}",
                "content": {"parts": [{"text": text}]},
                "taskType": _GEMINI_TASKS[role],
                "outputDimensionality": dimension,
            }
            for text in texts
        ]
        verb = "embedContent" if len(asked) == 1 else "batchEmbedContents"
        return EmbeddingRequest(
            f"{config.base_url}/models/{config.model}:{verb}",
            asked[0] if len(asked) == 1 else {"requests": asked},
            {"x-goog-api-key": config.api_key},
        )
    return EmbeddingRequest(
        f"{config.base_url}/embeddings",
        {"model": config.model, "input": list(texts), "dimensions": dimension},
        {"authorization": f"Bearer {config.api_key}"},
    )


def decoded(config: EmbeddingConfig, reply: bytes) -> Any:
    """The document of a reply; raises `EmbeddingError` if it is not JSON."""
    try:
        return json.loads(reply)
    except (ValueError, RecursionError):
        raise undecodable(config) from None


def components_of(config: EmbeddingConfig, document: Any, count: int) -> list[list[float]]:
    """The vectors in a reply to ``count`` texts, as sent, in the order of the texts.

    Raises `EmbeddingError` for any other reply.
    """
    try:
        if config.provider == "gemini":
            found = [document["embedding"]] if count == 1 else document["embeddings"]
            by_place = {place: each["values"] for place, each in enumerate(found)}
        else:
            by_place = {
                datum.get("index", place): datum["embedding"]
                for place, datum in enumerate(document["data"])
            }
        return [[_number(each) for each in by_place[place]] for place in range(count)]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise undecodable(config) from None


def tokens_of(document: Any) -> int | None:
    """The number of tokens that a provider reports, if any."""
    usage = document.get("usage") if isinstance(document, dict) else None
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None


def undecodable(config: EmbeddingConfig) -> EmbeddingError:
    """The error for a reply that is not in the expected format."""
    return EmbeddingError(
        f"the embedding provider `{config.provider}` sent a reply that cannot be decoded",
        hint="check that the base URL and the provider name belong together",
    )


def message_of(reply: bytes) -> str:
    """The error message in a reply, on one line."""
    try:
        error = json.loads(reply)["error"]
        words = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, TypeError, KeyError, RecursionError):
        words = reply.decode(errors="replace")
    line = " ".join(words.split())
    return line if len(line) <= _MESSAGE_MAX else line[:_MESSAGE_MAX] + "…"


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    try:
        return float(value)
    except OverflowError:
        return float("inf")


# --- vectors --------------------------------------------------------------------------------------


NORM_MIN = 1.19e-7
"""A shorter vector has no reliable direction."""


def unit_vector(components: Sequence[float], dimension: int) -> list[float]:
    """The components divided by their L2 norm, in single precision as vectors are stored.

    Raises `EmbeddingError` for another length than ``dimension``, for non-finite components, and
    for a vector without a direction.
    """
    if len(components) != dimension:
        raise EmbeddingError(
            f"embedding dimension mismatch: expected {dimension}, got {len(components)}",
            hint="choose a model that can give vectors of the property's dimension",
        )
    norm = math.hypot(*components)
    if not math.isfinite(norm):
        raise EmbeddingError("embedding is not finite: the provider sent NaN or an infinity")
    if norm <= NORM_MIN:
        raise EmbeddingError("embedding has zero norm: the provider sent a vector of zeros")
    return [round_to_f32(component / norm) for component in components]


# --- mock vectors ---------------------------------------------------------------------------------


_BITS = 2**64 - 1
_FNV_OFFSET = 14695981039346656037
_FNV_PRIME = 1099511628211


def mock_vector(text: str, dimension: int) -> list[float]:
    """A unit vector that depends only on the text and the dimension.

    Rounds to single precision at every step, so that every platform gives the same bits.

    >>> [round(component, 6) for component in mock_vector("alpha", 4)]
    [-0.542049, -0.471799, 0.160905, 0.676534]
    """
    state = _fnv_1a(text)
    components = []
    for _ in range(dimension):
        state ^= (state << 13) & _BITS
        state ^= state >> 7
        state ^= (state << 17) & _BITS
        components.append(round_to_f32(round_to_f32(float(state) / float(_BITS)) * 2 - 1))
    norm = round_to_f32(math.sqrt(sum(component * component for component in components)))
    return [round_to_f32(component / norm) for component in components] if norm else components


def _fnv_1a(text: str) -> int:
    state = _FNV_OFFSET
    for byte in text.encode():
        state = ((state ^ byte) * _FNV_PRIME) & _BITS
    return state


# --- texts of queries -----------------------------------------------------------------------------


NewClient = Callable[[EmbeddingConfig, RetryLimits], EmbeddingClient]


class QueryEmbedder:
    """Embeds query texts for one open graph. Safe to share between threads.

    The configuration is resolved with the first text, so that a graph queried only by vectors needs
    no provider and no key. An injected ``config`` takes precedence over the environment.
    """

    def __init__(
        self,
        config: EmbeddingConfig | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        new_client: NewClient = EmbeddingClient,
    ) -> None:
        self._config = config
        self._environment = environment
        self._new_client = new_client
        self._client: EmbeddingClient | None = None
        self._resolving = threading.Lock()

    def embed(
        self, text: str, *, dimension: int, property_name: str, recorded_model: str | None = None
    ) -> list[float]:
        """The vector of a text with which to search ``property_name``, such as `Memo.vec`.

        Raises `InputError`, before anything is sent, if the schema records another model for the
        property than the one that would embed the text: their vectors cannot be compared.
        """
        client = self._resolved()
        if recorded_model is not None:
            require_model(client.config, recorded_model, property_name)
        return client.embed(text, dimension, "query")

    @property
    def config(self) -> EmbeddingConfig:
        """The configuration that was injected, or that of the environment."""
        return self._resolved().config

    def _resolved(self) -> EmbeddingClient:
        with self._resolving:
            if self._client is None:
                config = self._config or config_from_environment(self._environment)
                limits = RetryLimits.from_environment(self._environment)
                self._client = self._new_client(config, limits)
            return self._client


def require_model(config: EmbeddingConfig, recorded: str, property_name: str) -> None:
    """Raise `InputError` if a property's vectors were made with another model than this one."""
    if config.model != recorded:
        ours = f"`{config.model}`" if config.model else "no named model"
        raise InputError(
            f"the vectors of {property_name} were made with the model `{recorded}`, "
            f"but texts are embedded with {ours}",
            hint=f"set {MODEL_VARIABLE}={recorded}, or pass a vector instead of a text",
            details={"property": property_name, "recorded": recorded, "embedder": config.model},
        )
