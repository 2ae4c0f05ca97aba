"""One rate for all requests, here and in other processes."""

from __future__ import annotations

import pickle
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.embedding.config import BulkLimits, RateLimiter
from omnigraph.errors import InputError, StorageError
from omnigraph.pipeline.embedding import PaceServer, RemotePace


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@given(
    st.floats(0.5, 100),
    st.floats(0.5, 1000),
    st.lists(st.tuples(st.integers(1, 64), st.floats(0, 2)), min_size=2, max_size=30),
)
def test_no_stretch_of_time_has_more_requests_or_texts_than_its_share(
    requests: float, texts: float, asked: list[tuple[int, float]]
):
    clock = Hands()
    limiter = RateLimiter(
        BulkLimits(requests_per_second=requests, texts_per_second=texts), monotonic=clock
    )
    sent: list[tuple[float, int]] = []
    for size, passes in asked:
        sent.append((clock.now + limiter.reserve(size), size))
        clock.now += passes
    for first in range(len(sent)):
        for last in range(first + 1, len(sent)):
            seconds = sent[last][0] - sent[first][0]
            before = sent[first:last]
            assert len(before) <= seconds * requests * 1.0001
            assert sum(size for _, size in before) <= seconds * texts * 1.0001


def test_a_request_after_a_pause_is_not_held_up():
    clock = Hands()
    limiter = RateLimiter(BulkLimits(requests_per_second=2), monotonic=clock)
    assert [limiter.reserve(1) for _ in range(3)] == [0.0, 0.5, 1.0]
    clock.now += 10
    assert limiter.reserve(1) == 0.0


def test_a_provider_that_asks_for_a_pause_holds_up_all_requests():
    clock = Hands()
    limiter = RateLimiter(BulkLimits(texts_per_second=10), monotonic=clock)
    limiter.hold(7)
    assert [limiter.reserve(5), limiter.reserve(5)] == [7.0, 7.5]


def test_workers_share_the_limiter_of_the_driver():
    limiter = RateLimiter(BulkLimits(requests_per_second=1), monotonic=Hands())
    with PaceServer(limiter, "127.0.0.1") as server:
        one, other = (pickle.loads(pickle.dumps(server.pace("127.0.0.1"))) for _ in range(2))
        assert [one.reserve(3), other.reserve(3), one.reserve(3)] == [0.0, 1.0, 2.0]
        other.hold(30)
        assert one.reserve(1) == 30.0


def test_a_stranger_is_not_answered_and_takes_no_place():
    limiter = RateLimiter(BulkLimits(requests_per_second=1), monotonic=Hands())
    with PaceServer(limiter, "127.0.0.1") as server:
        known = server.pace("127.0.0.1")
        stranger = RemotePace(*known._address, "another secret")
        with pytest.raises(StorageError, match="does not say"):
            stranger.reserve(1)
        assert known.reserve(1) == 0.0


def test_a_driver_that_cannot_be_reached_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(StorageError, match=f"127.0.0.1:{port}"):
            RemotePace("127.0.0.1", port, "s").reserve(1)


@pytest.mark.parametrize("wrong", [{"batch_texts": 0}, {"requests_per_second": 0.0}])
def test_a_limit_that_allows_nothing_is_refused(wrong: dict[str, int]):
    with pytest.raises(InputError, match="above 0"):
        BulkLimits(**wrong)


def test_limits_come_from_the_environment_and_wrong_ones_are_the_default():
    named = {
        "OMNIGRAPH_EMBED_BATCH_TEXTS": "7",
        "OMNIGRAPH_EMBED_CONCURRENCY": "0",
        "OMNIGRAPH_EMBED_REQUESTS_PER_SECOND": "2.5",
        "OMNIGRAPH_EMBED_TEXTS_PER_SECOND": "many",
    }
    assert BulkLimits.from_environment(named) == BulkLimits(7, 8, 2.5, None)
