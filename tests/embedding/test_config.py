"""C-SRCH-026: provider table, overrides and precedence; C-SRCH-024: what is said without a key."""

from __future__ import annotations

import logging

import pytest

from omnigraph.embedding.config import EmbeddingConfig, RetryLimits, config_from_environment
from omnigraph.errors import InputError

KEYS = {"OPENROUTER_API_KEY": "sk-router", "OPENAI_API_KEY": "sk-open", "GEMINI_API_KEY": "gem"}


@pytest.mark.parametrize(
    ("provider", "base_url", "model", "key"),
    [
        (None, "https://openrouter.ai/api/v1", "openai/text-embedding-3-large", "sk-router"),
        (
            "openai-compatible",
            "https://openrouter.ai/api/v1",
            "openai/text-embedding-3-large",
            "sk-router",
        ),
        ("openai", "https://api.openai.com/v1", "text-embedding-3-large", "sk-open"),
        (
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta",
            "gemini-embedding-2",
            "gem",
        ),
        ("mock", None, "", None),
    ],
)
def test_c_srch_026_each_provider_has_its_defaults(provider, base_url, model, key):
    said = {"OMNIGRAPH_EMBED_PROVIDER": provider} if provider else {}
    config = config_from_environment(KEYS | said)
    expected = (provider or "openai-compatible", model, base_url, key)
    assert (config.provider, config.model, config.base_url, config.api_key) == expected


def test_c_srch_026_the_first_key_that_is_set_is_taken():
    assert config_from_environment({"OPENAI_API_KEY": "sk-open"}).api_key == "sk-open"
    empty_first = {"OPENROUTER_API_KEY": "  ", "OPENAI_API_KEY": " sk-open\n"}
    assert config_from_environment(empty_first).api_key == "sk-open"


def test_c_srch_026_values_are_trimmed_and_slashes_at_the_end_removed():
    config = config_from_environment(
        {
            "OMNIGRAPH_EMBED_PROVIDER": " openai ",
            "OMNIGRAPH_EMBED_BASE_URL": "\thttps://gateway.example/v1// ",
            "OMNIGRAPH_EMBED_MODEL": " m1 ",
            "OPENAI_API_KEY": " sk-open ",
        }
    )
    assert config == EmbeddingConfig("openai", "m1", "https://gateway.example/v1", "sk-open")


def test_c_srch_026_empty_values_are_unset():
    said = dict.fromkeys(
        ("OMNIGRAPH_EMBED_PROVIDER", "OMNIGRAPH_EMBED_BASE_URL", "OMNIGRAPH_EMBED_MODEL"), " "
    )
    assert config_from_environment(KEYS | said) == config_from_environment(KEYS)


def test_c_srch_026_an_unknown_provider_is_an_error_that_lists_the_valid_ones():
    with pytest.raises(InputError, match="no embedding provider `cohere`") as caught:
        config_from_environment(KEYS | {"OMNIGRAPH_EMBED_PROVIDER": "cohere"})
    assert caught.value.hint is not None
    for name in ("openai-compatible", "openai", "gemini", "mock"):
        assert name in caught.value.hint


@pytest.mark.parametrize("word", ["1", "true", "YES", " On "])
def test_c_srch_026_mock_can_be_forced(word: str, caplog: pytest.LogCaptureFixture):
    said = {"OMNIGRAPH_EMBEDDINGS_MOCK": word, "OMNIGRAPH_EMBED_MODEL": "m1"}
    assert config_from_environment(said) == EmbeddingConfig("mock", "m1", None, None)
    assert caplog.records == []
    said["OMNIGRAPH_EMBED_PROVIDER"] = "gemini"
    assert config_from_environment(said).provider == "mock"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "gemini" in record.getMessage()
    assert "OMNIGRAPH_EMBEDDINGS_MOCK" in record.getMessage()


@pytest.mark.parametrize("word", ["", "0", "false", "maybe"])
def test_c_srch_026_other_words_force_nothing(word: str):
    said = KEYS | {"OMNIGRAPH_EMBEDDINGS_MOCK": word}
    assert config_from_environment(said).provider == "openai-compatible"


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("openai-compatible", ["OPENROUTER_API_KEY", "OPENAI_API_KEY"]),
        ("openai", ["OPENAI_API_KEY"]),
        ("gemini", ["GEMINI_API_KEY"]),
    ],
)
def test_c_srch_024_a_missing_key_names_its_variables(provider: str, variables: list[str]):
    for make in (
        lambda: config_from_environment({"OMNIGRAPH_EMBED_PROVIDER": provider}),
        lambda: EmbeddingConfig.of(provider),
    ):
        with pytest.raises(InputError, match=f"`{provider}` needs an API key") as caught:
            make()
        assert caught.value.details["variables"] == variables
        assert " or ".join(variables) in str(caught.value.hint)


def test_a_host_says_what_it_knows_and_the_rest_has_defaults():
    config = EmbeddingConfig.of(" openai", api_key="sk\n", base_url="http://localhost:1/v1/ ")
    expected = EmbeddingConfig("openai", "text-embedding-3-large", "http://localhost:1/v1", "sk")
    assert config == expected


def test_a_configuration_does_not_show_its_key():
    assert "sk-secret" not in repr(EmbeddingConfig.of("openai", api_key="sk-secret"))


@pytest.mark.parametrize(
    "url", ["openrouter.ai/v1", "ftp://host/v1", "https://", "https://h:x/", "https://h/?key=sk-1"]
)
def test_a_base_url_that_cannot_work_is_refused_without_repeating_it(url: str):
    with pytest.raises(InputError, match="is not a plain http") as caught:
        EmbeddingConfig.of("openai", base_url=url, api_key="sk")
    assert "sk-1" not in caught.value.render()


@pytest.mark.parametrize("key", ["sk secret", "sk-\nsecret", "sk-sécret"])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(key: str):
    with pytest.raises(InputError, match="holds characters no key has") as caught:
        EmbeddingConfig.of("openai", api_key=key)
    assert key not in caught.value.render()


def test_c_srch_028_patience_comes_from_the_environment():
    assert RetryLimits.from_environment({}) == RetryLimits(30_000, 60_000, 4, 200)
    said = {
        "OMNIGRAPH_EMBED_TIMEOUT_MS": " 100 ",
        "OMNIGRAPH_EMBED_DEADLINE_MS": "0",
        "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": "1",
        "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "0",
    }
    assert RetryLimits.from_environment(said) == RetryLimits(100, 0, 1, 0)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "soon", "٣", "9" * 5000])
def test_c_srch_028_an_unusable_number_means_the_default(text: str):
    names = ("TIMEOUT_MS", "DEADLINE_MS", "RETRY_ATTEMPTS", "RETRY_BACKOFF_MS")
    assert (
        RetryLimits.from_environment({f"OMNIGRAPH_EMBED_{n}": text for n in names}) == RetryLimits()
    )


def test_c_srch_028_no_time_and_no_attempt_are_unusable():
    said = {"OMNIGRAPH_EMBED_TIMEOUT_MS": "0", "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": "0"}
    assert RetryLimits.from_environment(said) == RetryLimits()
