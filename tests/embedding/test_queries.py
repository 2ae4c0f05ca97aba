"""C-SRCH-023, C-SRCH-024 and C-SRCH-026: the embedder an open graph has for its queries."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from omnigraph.embedding.client import EmbeddingClient, QueryEmbedder, mock_vector
from omnigraph.embedding.config import EmbeddingConfig, RetryLimits
from omnigraph.errors import InputError
from tests.embedding.provider_server import Provider, gemini, openai

MOCK = {"OMNIGRAPH_EMBED_PROVIDER": "mock"}


def embed(embedder: QueryEmbedder, text: str = "alpha", model: str | None = None) -> list[float]:
    return embedder.embed(text, dimension=4, property_name="Memo.vec", recorded_model=model)


def test_without_a_recorded_model_nothing_is_checked():
    assert embed(QueryEmbedder(environment=MOCK)) == mock_vector("alpha", 4)


def test_c_srch_023_the_recorded_model_passes(provider: Provider):
    provider.answers = [openai([0.0, 0.0, 2.0, 0.0])]
    config = EmbeddingConfig.of("openai", base_url=provider.url, model="m1", api_key="sk")
    assert embed(QueryEmbedder(config), model="m1") == [0.0, 0.0, 1.0, 0.0]
    named_mock = MOCK | {"OMNIGRAPH_EMBED_MODEL": "m1"}
    assert embed(QueryEmbedder(environment=named_mock), model="m1") == mock_vector("alpha", 4)


@pytest.mark.parametrize("ours", ["m1", "gateway/m2", "M2"])
def test_c_srch_023_another_model_fails_before_any_call_and_names_both(
    provider: Provider, ours: str
):
    config = EmbeddingConfig.of("openai", base_url=provider.url, model=ours, api_key="sk")
    with pytest.raises(InputError) as caught:
        embed(QueryEmbedder(config), model="m2")
    for word in ("Memo.vec", "`m2`", f"`{ours}`"):
        assert word in caught.value.message
    assert "OMNIGRAPH_EMBED_MODEL=m2" in str(caught.value.hint)
    assert provider.received == []


def test_c_srch_023_a_mock_without_a_model_is_not_the_recorded_one():
    with pytest.raises(InputError, match="embedded with no named model"):
        embed(QueryEmbedder(environment=MOCK), model="m1")


def test_c_srch_024_a_missing_key_is_told_with_the_first_text_only():
    environment: dict[str, str] = {}
    embedder = QueryEmbedder(environment=environment)
    with pytest.raises(InputError, match="needs an API key"):
        embed(embedder)
    environment |= MOCK
    assert embed(embedder) == mock_vector("alpha", 4)


def test_c_srch_026_an_injected_configuration_wins_over_the_environment(provider: Provider):
    provider.answers = [gemini([1.0, 0.0, 0.0, 0.0])]
    config = EmbeddingConfig.of("gemini", base_url=provider.url, api_key="sk")
    environment = MOCK | {"OMNIGRAPH_EMBEDDINGS_MOCK": "1", "OMNIGRAPH_EMBED_MODEL": "other"}
    assert embed(QueryEmbedder(config, environment=environment)) == [1.0, 0.0, 0.0, 0.0]
    (request,) = provider.received
    assert request.body["taskType"] == "RETRIEVAL_QUERY"
    assert request.path == "/v1/models/gemini-embedding-2:embedContent"


def test_the_configuration_is_resolved_once_and_kept():
    environment = dict(MOCK)
    made: list[RetryLimits] = []

    def new_client(config: EmbeddingConfig, limits: RetryLimits) -> EmbeddingClient:
        made.append(limits)
        return EmbeddingClient(config, limits)

    embedder = QueryEmbedder(environment=environment, new_client=new_client)
    together = threading.Barrier(4)
    results: list[list[float]] = []

    def work() -> None:
        together.wait()
        results.append(embed(embedder))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    environment["OMNIGRAPH_EMBED_PROVIDER"] = "nonsense"
    assert embed(embedder) == mock_vector("alpha", 4)
    assert results == [mock_vector("alpha", 4)] * 4
    assert made == [RetryLimits()]


def test_patience_comes_from_the_environment_also_for_an_injected_configuration():
    made: list[RetryLimits] = []

    def new_client(config: EmbeddingConfig, limits: RetryLimits) -> EmbeddingClient:
        made.append(limits)
        return EmbeddingClient(config, limits)

    embedder = QueryEmbedder(
        EmbeddingConfig.of("mock"),
        environment={"OMNIGRAPH_EMBED_TIMEOUT_MS": "7"},
        new_client=new_client,
    )
    embed(embedder)
    assert made == [RetryLimits(timeout_ms=7)]


def test_the_room_loads_no_http_library_before_the_first_request():
    code = "import sys, omnigraph.embedding.client; assert 'httpx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
