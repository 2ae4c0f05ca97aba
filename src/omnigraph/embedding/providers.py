"""The two shapes of embedding requests and replies: OpenAI's, which many speak, and Gemini's."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.errors import EmbeddingError

Role: TypeAlias = Literal["query", "document"]
"""What a text is: something asked for, or something stored. Some models tell them apart."""

_GEMINI_TASKS: dict[Role, str] = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}

_MESSAGE_MAX = 300
"""Characters of a provider's words that an error repeats."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """One POST."""

    url: str
    body: dict[str, Any]
    headers: dict[str, str] = field(repr=False)


def request_for(config: EmbeddingConfig, text: str, dimension: int, role: Role) -> EmbeddingRequest:
    """What to send for one text."""
    assert config.api_key is not None, "the mock is never asked over a network"
    if config.provider == "gemini":
        return EmbeddingRequest(
            f"{config.base_url}/models/{config.model}:embedContent",
            {
                "model": f"models/{config.model}",
                "content": {"parts": [{"text": text}]},
                "taskType": _GEMINI_TASKS[role],
                "outputDimensionality": dimension,
            },
            {"x-goog-api-key": config.api_key},
        )
    return EmbeddingRequest(
        f"{config.base_url}/embeddings",
        {"model": config.model, "input": [text], "dimensions": dimension},
        {"authorization": f"Bearer {config.api_key}"},
    )


def components_of(config: EmbeddingConfig, reply: bytes) -> list[float]:
    """The vector in a reply, as it was sent; raises `EmbeddingError` for any other reply."""
    try:
        document = json.loads(reply)
        if config.provider == "gemini":
            numbers = document["embedding"]["values"]
        else:
            (numbers,) = (
                datum["embedding"]
                for place, datum in enumerate(document["data"])
                if datum.get("index", place) == 0
            )
        return [_number(each) for each in numbers]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise undecodable(config) from None


def undecodable(config: EmbeddingConfig) -> EmbeddingError:
    """The error for a reply that is not what the provider should send."""
    return EmbeddingError(
        f"the embedding provider `{config.provider}` sent a reply that cannot be decoded",
        hint="check that the base URL and the provider name belong together",
    )


def message_of(reply: bytes) -> str:
    """What a provider says about a request it refused, on one line."""
    try:
        said = json.loads(reply)["error"]
        words = str(said["message"] if isinstance(said, dict) else said)
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
