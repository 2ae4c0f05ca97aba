"""C-SRCH-027 and C-SRCH-028: what is sent, what is accepted, and when it is tried again."""

from __future__ import annotations

import logging
from http.server import BaseHTTPRequestHandler

import pytest

from omnigraph.embedding.client import EmbeddingClient, Usage, mock_vector
from omnigraph.embedding.config import EmbeddingConfig, RetryLimits
from omnigraph.errors import EmbeddingError
from tests.embedding.provider_server import Provider, gemini, hang_up, openai, send

KEY = "sk-very-secret"


class StillClock:
    """Time that passes only while somebody sleeps, or when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


def client_of(
    provider: Provider,
    clock: StillClock,
    limits: RetryLimits | None = None,
    kind: str = "openai",
    model: str | None = None,
) -> EmbeddingClient:
    config = EmbeddingConfig.of(kind, base_url=provider.url, model=model, api_key=KEY)
    return EmbeddingClient(config, limits, monotonic=clock.monotonic, sleep=clock.sleep)


# --- what is sent, and what comes back ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["openai", "openai-compatible"])
def test_the_openai_shape(provider: Provider, clock: StillClock, kind: str):
    provider.answers = [openai([3.0, 4.0], usage={"total_tokens": 2})]
    client = client_of(provider, clock, kind=kind, model="m1")
    assert client.embed("a müller", 2) == pytest.approx([0.6, 0.8])
    (request,) = provider.received
    assert request.path == "/v1/embeddings"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.body == {"model": "m1", "input": ["a müller"], "dimensions": 2}


@pytest.mark.parametrize(
    ("role", "task"), [("query", "RETRIEVAL_QUERY"), ("document", "RETRIEVAL_DOCUMENT")]
)
def test_the_gemini_shape(provider: Provider, clock: StillClock, role, task: str):
    provider.answers = [gemini([0, -2])]
    client = client_of(provider, clock, kind="gemini", model="g1")
    assert client.embed("text", 2, role) == [0.0, -1.0]
    (request,) = provider.received
    assert request.path == "/v1/models/g1:embedContent"
    assert request.headers["x-goog-api-key"] == KEY
    assert "authorization" not in request.headers
    assert request.body == {
        "model": "models/g1",
        "content": {"parts": [{"text": "text"}]},
        "taskType": task,
        "outputDimensionality": 2,
    }


def test_a_single_datum_may_leave_out_its_index(provider: Provider, clock: StillClock):
    provider.answers = [send(200, {"data": [{"embedding": [1]}]})]
    assert client_of(provider, clock).embed("x", 1) == [1.0]


def test_vectors_are_normalised_to_single_precision(provider: Provider, clock: StillClock):
    provider.answers = [openai([1e-3, 2e-3, 2e-3]), openai([1e300, 0, 1e300])]
    client = client_of(provider, clock)
    third = 0.3333333432674408  # the single float nearest to a third
    assert client.embed("x", 3) == [third, 2 * third, 2 * third]
    assert client.embed("x", 3) == pytest.approx([0.5**0.5, 0, 0.5**0.5])


def test_the_mock_sends_no_request(clock: StillClock):
    client = EmbeddingClient(EmbeddingConfig.of("mock"), sleep=clock.sleep)
    assert client.embed("alpha", 4) == mock_vector("alpha", 4)
    assert client.embed("alpha", 4, "document") == mock_vector("alpha", 4)


# --- what is refused, at once ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (openai([1.0]), "embedding dimension mismatch: expected 2, got 1"),
        (openai([1.0, 2.0, 3.0]), "embedding dimension mismatch: expected 2, got 3"),
        (openai([float("nan"), 1.0]), "not finite"),
        (openai([float("inf"), 1.0]), "not finite"),
        (openai([1.0, float("-inf")]), "not finite"),
        (openai([10**400, 1]), "not finite"),
        (openai([0.0, 0.0]), "zero norm"),
        (openai([1e-7, 0.0]), "zero norm"),
        (openai(["1.0", 2.0]), "cannot be decoded"),
        (openai([True, 2.0]), "cannot be decoded"),
        (openai(None), "cannot be decoded"),
        (send(200, {"data": []}), "cannot be decoded"),
        (send(200, {"data": [{"index": 1, "embedding": [1, 2]}]}), "cannot be decoded"),
        (send(200, []), "cannot be decoded"),
        (send(200, b"<html>"), "cannot be decoded"),
        (send(200, b"\xff\xfe"), "cannot be decoded"),
        (send(200, b"[" * 100_000), "cannot be decoded"),
        (gemini([1.0, 2.0]), "cannot be decoded"),
    ],
)
def test_c_srch_027_an_unusable_vector_is_refused_and_not_asked_for_again(
    provider: Provider, clock: StillClock, reply, message: str
):
    provider.answers = [reply]
    with pytest.raises(EmbeddingError, match=message):
        client_of(provider, clock).embed("x", 2)
    assert (len(provider.received), clock.slept) == (1, [])


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, {"error": {"message": "no such\nmodel"}}, "answered 400: no such model"),
        (401, {"error": "who are you?"}, "answered 401: who are you?"),
        (403, b"forbidden", "answered 403: forbidden"),
        (404, b"", "answered 404: "),
        (302, b"elsewhere", "answered 302: elsewhere"),
        (413, b"x" * 5000, r"answered 413: x{300}…(\n|$)"),
    ],
)
def test_c_srch_028_another_status_fails_at_once_with_the_words_of_the_provider(
    provider: Provider, clock: StillClock, status: int, body: object, said: str
):
    provider.answers = [send(status, body)]
    with pytest.raises(EmbeddingError, match=said):
        client_of(provider, clock).embed("x", 2)
    assert (len(provider.received), clock.slept) == (1, [])


def test_c_srch_027_a_body_that_cannot_be_unpacked_is_not_asked_for_again(
    provider: Provider, clock: StillClock
):
    def not_gzip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        handler.wfile.write(b"plain")

    provider.answers = [not_gzip]
    with pytest.raises(EmbeddingError, match="cannot be decoded"):
        client_of(provider, clock).embed("x", 2)
    assert (len(provider.received), clock.slept) == (1, [])


def test_a_reply_without_end_is_cut_off(provider: Provider, clock: StillClock, monkeypatch):
    monkeypatch.setattr("omnigraph.embedding.client.REPLY_BYTES_MAX", 1000)
    provider.answers = [send(200, b"x" * 1001)]
    with pytest.raises(EmbeddingError, match="more than 1000 bytes"):
        client_of(provider, clock).embed("x", 2)


def test_a_model_that_makes_no_url_is_one_sentence(provider: Provider, clock: StillClock):
    with pytest.raises(EmbeddingError, match="has no valid address"):
        client_of(provider, clock, kind="gemini", model="a\nb").embed("x", 2)
    assert provider.received == []


# --- what is tried again --------------------------------------------------------------------------


def test_c_srch_028_passing_failures_are_tried_again_with_doubling_delays(
    provider: Provider, clock: StillClock
):
    provider.answers = [send(429, {}), send(503, b""), hang_up, openai([1.0])]
    assert client_of(provider, clock).embed("x", 1) == [1.0]
    assert clock.slept == [0.2, 0.4, 0.8]
    assert len({str(request.body) for request in provider.received}) == 1


def test_c_srch_028_attempts_are_counted_in_all(provider: Provider, clock: StillClock):
    provider.answers = [send(500, b"one"), send(500, b"two")]
    limits = RetryLimits(attempts=2, backoff_ms=50)
    with pytest.raises(EmbeddingError, match="after 2 attempts: status 500: two"):
        client_of(provider, clock, limits).embed("x", 1)
    assert (len(provider.received), clock.slept) == (2, [0.05])


def test_c_srch_028_one_attempt_is_never_repeated(provider: Provider, clock: StillClock):
    provider.answers = [send(429, {"error": {"message": "slow down"}})]
    with pytest.raises(EmbeddingError, match="after 1 attempt: status 429: slow down"):
        client_of(provider, clock, RetryLimits(attempts=1)).embed("x", 1)


def test_c_srch_028_a_refused_connection_is_tried_again(provider: Provider, clock: StillClock):
    config = EmbeddingConfig.of("openai", base_url="http://127.0.0.1:1/v1", api_key=KEY)
    client = EmbeddingClient(
        config, RetryLimits(attempts=3), monotonic=clock.monotonic, sleep=clock.sleep
    )
    with pytest.raises(EmbeddingError, match=r"after 3 attempts: .*refused"):
        client.embed("x", 1)
    assert clock.slept == [0.2, 0.4]


def test_c_srch_028_a_silent_provider_is_a_timeout_and_asked_again(
    provider: Provider, clock: StillClock
):
    def silence(handler: BaseHTTPRequestHandler) -> None:
        provider.closing.wait()
        hang_up(handler)

    provider.answers = [silence, silence]
    limits = RetryLimits(timeout_ms=20, attempts=2)
    with pytest.raises(EmbeddingError, match=r"after 2 attempts: no answer in 0.02 s"):
        client_of(provider, clock, limits).embed("x", 1)
    assert clock.slept == [0.2]


def test_c_srch_028_a_body_that_trickles_in_is_a_timeout_too(provider: Provider, clock: StillClock):
    def trickle(handler: BaseHTTPRequestHandler) -> None:
        clock.now += 31
        openai([1.0])(handler)

    provider.answers = [trickle, openai([1.0])]
    assert client_of(provider, clock).embed("x", 1) == [1.0]
    assert (len(provider.received), clock.slept) == (2, [0.2])


def test_c_srch_028_the_deadline_ends_retries_before_a_wait_that_would_pass_it(
    provider: Provider, clock: StillClock
):
    provider.answers = [send(503, b"busy")] * 3
    limits = RetryLimits(attempts=9, backoff_ms=400, deadline_ms=1500)
    with pytest.raises(EmbeddingError, match="within 1500 ms: status 503: busy") as caught:
        client_of(provider, clock, limits).embed("x", 1)
    assert clock.slept == [0.4, 0.8]
    assert "OMNIGRAPH_EMBED_DEADLINE_MS" in str(caught.value.hint)


def test_c_srch_028_the_deadline_shortens_a_request(provider: Provider, clock: StillClock):
    def silence(handler: BaseHTTPRequestHandler) -> None:
        provider.closing.wait()
        hang_up(handler)

    provider.answers = [silence]
    limits = RetryLimits(timeout_ms=3_600_000, deadline_ms=20)
    with pytest.raises(EmbeddingError, match=r"within 20 ms: no answer in 0.02 s"):
        client_of(provider, clock, limits).embed("x", 1)


def test_c_srch_028_without_a_deadline_every_attempt_is_made(provider: Provider, clock: StillClock):
    provider.answers = [send(503, b"")] * 3 + [openai([1.0])]
    limits = RetryLimits(deadline_ms=0, backoff_ms=100_000_000)
    assert client_of(provider, clock, limits).embed("x", 1) == [1.0]
    assert clock.slept == [100_000, 200_000, 400_000]


# --- secrets --------------------------------------------------------------------------------------


def test_a_key_never_appears_in_messages_or_logs(
    provider: Provider, clock: StillClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    quoting = {"error": {"message": f"bad key {KEY}"}}
    provider.answers = [send(500, quoting), send(401, quoting), send(503, quoting)]
    client = client_of(provider, clock)
    with pytest.raises(EmbeddingError, match=r"bad key \*\*\*") as refused:
        client.embed("x", 1)
    with pytest.raises(EmbeddingError) as failed:
        client_of(provider, clock, RetryLimits(attempts=1)).embed("x", 1)
    for error in (refused.value, failed.value):
        assert KEY not in error.render() + repr(error) + str(error.details)
    assert any("asking again" in record.getMessage() for record in caplog.records)
    assert KEY not in caplog.text
    assert KEY not in repr(client.config)


# --- many texts at once ---------------------------------------------------------------------------


def test_several_texts_are_one_request_and_come_back_in_their_order(
    provider: Provider, clock: StillClock
):
    data = [{"index": 1, "embedding": [0, 5]}, {"index": 0, "embedding": [3, 4]}]
    provider.answers = [send(200, {"data": data, "usage": {"total_tokens": 9}})]
    used: list[Usage] = []
    client = client_of(provider, clock, model="m1")
    vectors = client.embed_all(["a", "b"], 2, count=used.append)
    assert vectors == [pytest.approx([0.6, 0.8]), [0.0, 1.0]]
    assert provider.received[0].body == {"model": "m1", "input": ["a", "b"], "dimensions": 2}
    assert used == [Usage(requests=1), Usage(tokens=9)]


def test_gemini_has_a_verb_of_its_own_for_several_texts(provider: Provider, clock: StillClock):
    reply = {"embeddings": [{"values": [1, 0]}, {"values": [0, 1]}]}
    provider.answers = [send(200, reply)]
    client = client_of(provider, clock, kind="gemini", model="g1")
    assert client.embed_all(["a", "b"], 2) == [[1.0, 0.0], [0.0, 1.0]]
    (request,) = provider.received
    assert request.path == "/v1/models/g1:batchEmbedContents"
    first, second = request.body["requests"]
    assert first["content"] == {"parts": [{"text": "a"}]}
    assert second["taskType"] == "RETRIEVAL_DOCUMENT"


def test_a_reply_with_too_few_vectors_is_refused(provider: Provider, clock: StillClock):
    provider.answers = [send(200, {"data": [{"index": 0, "embedding": [1]}]})]
    with pytest.raises(EmbeddingError, match="cannot be decoded"):
        client_of(provider, clock).embed_all(["a", "b"], 1)


def test_a_provider_is_left_alone_for_as_long_as_it_asks(provider: Provider, clock: StillClock):
    provider.answers = [send(429, {"error": "slow down"}, Retry_After="7"), openai([1.0])]
    used: list[Usage] = []
    assert client_of(provider, clock).embed_all(["x"], 1, count=used.append) == [[1.0]]
    assert clock.slept == [7.0]
    assert [(each.requests, each.retries) for each in used] == [(1, 0), (1, 1), (0, 0)]


def test_waiting_for_the_rate_takes_nothing_of_the_time_limit(
    provider: Provider, clock: StillClock
):
    class Slow:
        def reserve(self, texts: int) -> float:
            return 100.0 * texts

        def hold(self, seconds: float) -> None:
            raise AssertionError

    provider.answers = [send(500, b""), openai([1.0])]
    config = EmbeddingConfig.of("openai", base_url=provider.url, api_key=KEY)
    client = EmbeddingClient(
        config, RetryLimits(), pace=Slow(), monotonic=clock.monotonic, sleep=clock.sleep
    )
    assert client.embed("x", 1) == [1.0]
    assert clock.slept == [100.0, 0.2, 100.0]
