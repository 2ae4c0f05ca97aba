"""Texts of queries: what an open graph asks for the vector of a `nearest` text."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from omnigraph.embedding.client import EmbeddingClient
from omnigraph.embedding.config import MODEL_VARIABLE, EmbeddingConfig, config_from_environment
from omnigraph.embedding.patience import Patience
from omnigraph.errors import InputError

NewClient = Callable[[EmbeddingConfig, Patience], EmbeddingClient]


class QueryEmbedder:
    """Embeds query texts for one open graph. Safe to share between threads.

    Nothing is resolved before the first text: a graph that is only asked with vectors needs no
    provider and no key. An injected ``config`` wins over the environment.
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
        """The vector to look for in ``property_name``, such as `Memo.vec`.

        Raises `InputError`, before anything is sent, when the schema records another model for the
        property than the one that would embed the text: their vectors cannot be compared.
        """
        client = self._resolved()
        if recorded_model is not None:
            _require_model(client.config, recorded_model, property_name)
        return client.embed(text, dimension, "query")

    def _resolved(self) -> EmbeddingClient:
        with self._resolving:
            if self._client is None:
                config = self._config or config_from_environment(self._environment)
                patience = Patience.from_environment(self._environment)
                self._client = self._new_client(config, patience)
            return self._client


def _require_model(config: EmbeddingConfig, recorded: str, property_name: str) -> None:
    if config.model != recorded:
        ours = f"`{config.model}`" if config.model else "no named model"
        raise InputError(
            f"the vectors of {property_name} were made with the model `{recorded}`, "
            f"but texts are embedded with {ours}",
            hint=f"set {MODEL_VARIABLE}={recorded}, or pass a vector instead of a text",
            details={"property": property_name, "recorded": recorded, "embedder": config.model},
        )
