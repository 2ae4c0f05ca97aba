"""Webhooks: signed, repeated with growing pauses, bounded, and nobody waits for a receiver."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx
import orjson
import pytest

from omnigraph.errors import InputError
from omnigraph.graph import open_graph
from omnigraph.server import webhooks
from omnigraph.server.config import GraphSpec
from omnigraph.server.metrics import Metrics
from omnigraph.server.webhooks import (
    ATTEMPTS_MAX,
    Receiver,
    Webhooks,
    delivery,
    load_receivers,
    signature,
)
from tests.server.live import ADD, PATIENCE_SECONDS, serving
from tests.server.test_process import started
from tests.server.test_workers import pids

SECRET = "a secret of thirty-two characters"
VARIABLE = "TEST_WEBHOOK_SECRET"


class Listening:
    """A receiver on the loopback that answers with given statuses, and then with 204."""

    def __init__(self, *statuses: int, headers: dict[str, str] | None = None) -> None:
        self.requests: SimpleQueue[tuple[dict[str, str], bytes]] = SimpleQueue()
        answers = list(statuses)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.requests.put((dict(self.headers.items()), body))
                self.send_response(answers.pop(0) if answers else 204)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?key=part-of-the-address"

    def next(self) -> tuple[dict[str, str], dict[str, Any]]:
        """The headers and the document of the next request; its signature is right."""
        headers, body = self.requests.get(timeout=PATIENCE_SECONDS)
        expected = signature(SECRET.encode(), headers["Omnigraph-Timestamp"], body)
        assert headers["Omnigraph-Signature"] == expected
        return headers, orjson.loads(body)


@contextmanager
def listening(*statuses: int, headers: dict[str, str] | None = None) -> Iterator[Listening]:
    receiver = Listening(*statuses, headers=headers)
    thread = threading.Thread(target=receiver._server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver._server.shutdown()
        receiver._server.server_close()
        thread.join()


class FakeClock:
    """Time that passes when somebody waits for it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def posting(
    *receivers: Receiver, work: Callable[[Webhooks], Awaitable[None]]
) -> tuple[FakeClock, str]:
    """Deliver what ``work`` puts; returns the clock and the numbers."""
    clock, metrics = FakeClock(), Metrics()
    hooks = Webhooks(
        receivers, metrics, now=lambda: clock.now, sleep=clock.sleep, jitter=lambda: 1.0
    )

    async def main() -> None:
        hooks.start()
        await work(hooks)
        await hooks.stop()

    asyncio.run(main())
    return clock, metrics.page().decode()


async def until(metrics_of: Webhooks, receiver: str, outcome: str, count: int) -> None:
    """Wait for a number of outcomes."""
    line = f'omnigraph_review_webhooks_total{{outcome="{outcome}",receiver="{receiver}"}} {count}.0'
    async with asyncio.timeout(PATIENCE_SECONDS):
        while line not in metrics_of._metrics.page().decode():
            await asyncio.sleep(0.001)


def test_c_rev_014_webhooks_are_repeated_with_growing_pauses_until_they_are_taken():
    with listening(500, 503, 429, headers={"Retry-After": "30"}) as receiver:

        async def work(hooks: Webhooks) -> None:
            hooks.put(delivery("e1", "opened", {"n": 1}))
            await until(hooks, "ci", "delivered", 1)

        clock, page = posting(Receiver("ci", receiver.url, SECRET.encode()), work=work)
        sent = [receiver.next() for _ in range(4)]
    assert clock.pauses == [30.0, 30.0, 30.0]
    assert {each[0]["Omnigraph-Delivery"] for each in sent} == {"e1"}
    assert [int(each[0]["Omnigraph-Timestamp"]) - 1_000_000 for each in sent] == [0, 30, 60, 90]
    assert 'omnigraph_review_webhooks_total{outcome="retried",receiver="ci"} 3.0' in page


def test_c_rev_014_a_dead_receiver_is_given_up_and_delays_no_other():
    with listening() as receiver:
        dead = Receiver("dead", "http://127.0.0.1:1/", SECRET.encode())

        async def work(hooks: Webhooks) -> None:
            hooks.put(delivery("e1", "opened", {}))
            hooks.put(delivery("e2", "merged", {}))
            await until(hooks, "ci", "delivered", 2)
            await until(hooks, "dead", "failed", 2)

        clock, page = posting(dead, Receiver("ci", receiver.url, SECRET.encode()), work=work)
        assert [receiver.next()[1]["id"] for _ in range(2)] == ["e1", "e2"]
    pauses = clock.pauses[: ATTEMPTS_MAX - 1]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 120.0, 120.0]
    assert f'{{outcome="retried",receiver="dead"}} {2 * (ATTEMPTS_MAX - 1)}.0' in page


@pytest.mark.parametrize("status", [301, 307, 400, 404])
def test_c_rev_014_a_refusal_is_final_and_redirects_are_not_followed(status: int):
    with listening(status, headers={"Location": "/elsewhere"}) as receiver:

        async def work(hooks: Webhooks) -> None:
            hooks.put(delivery("e1", "opened", {}))
            await until(hooks, "ci", "failed", 1)

        clock, _ = posting(Receiver("ci", receiver.url, SECRET.encode()), work=work)
        receiver.next()
        assert receiver.requests.empty()
    assert clock.pauses == []


def test_c_rev_014_a_full_queue_drops_and_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(webhooks, "WAITING_MAX", 3)
    receiver = Receiver("dead", "http://127.0.0.1:1/", SECRET.encode())
    metrics = Metrics()
    hooks = Webhooks((receiver,), metrics)
    for number in range(5):  # nobody delivers yet
        hooks.put(delivery(f"e{number}", "opened", {}))
    assert hooks.waiting == 3
    dropped = 'omnigraph_review_webhooks_total{outcome="dropped",receiver="dead"}'
    assert f"{dropped} 2.0" in metrics.page().decode()
    asyncio.run(hooks.stop())
    assert f"{dropped} 5.0" in metrics.page().decode()


def settings(folder: Path, *receivers: dict[str, Any]) -> Path:
    path = folder / "server.yaml"
    path.write_bytes(orjson.dumps({"reviews": {"webhooks": receivers}}))
    return path


@pytest.mark.parametrize(
    ("receiver", "told"),
    [
        ({"url": "ftp://host/x"}, "begins with `https://` or `http://`"),
        ({"url": "https:///x"}, "and a host"),
        ({"url": "https://user:pass@host/"}, "holds a name or a password"),
        ({"url": "https://host/#part"}, "has a fragment"),
        ({"url": "https://host:70000/"}, "is not a URL"),
        ({"url": "https://host/a b"}, "printable ASCII"),
        ({"url": "https://host/", "secret_env": "UNSET"}, "`UNSET` is not set"),
        ({"url": "https://host/", "secret_env": "SHORT"}, "`SHORT` has fewer than 16"),
        ({"url": "https://host/", "events": ["open"]}, "there is no event `open`"),
        ({"url": "https://host/", "secret": "x"}, "unknown key"),
    ],
)
def test_c_rev_014_bad_receivers_are_refused_by_place_without_secrets(
    tmp_path: Path, receiver: dict[str, Any], told: str
):
    path = settings(tmp_path, {"secret_env": VARIABLE, **receiver})
    with pytest.raises(InputError) as refused:
        load_receivers(path, {VARIABLE: SECRET, "SHORT": "tiny"})
    assert told in refused.value.message and str(path) in refused.value.message
    assert "pass@" not in str(refused.value) and "tiny" not in str(refused.value)


def test_two_receivers_of_one_name_are_refused(tmp_path: Path):
    one = {"url": "https://host/", "secret_env": VARIABLE}
    with pytest.raises(InputError, match="two webhooks are called `host`"):
        load_receivers(settings(tmp_path, one, one), {VARIABLE: SECRET})


def test_c_rev_014_everything_that_happens_to_a_request_is_posted(
    spec: GraphSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    with listening() as receiver:
        hooks = (
            {"url": receiver.url, "secret_env": VARIABLE, "name": "ci"},
            {"url": "http://127.0.0.1:1/", "secret_env": VARIABLE, "name": "dead"},
        )
        with serving(
            spec,
            environment={VARIABLE: SECRET},
            unauthenticated=True,
            settings=settings(tmp_path, *hooks),
        ) as live:
            client = live.client()
            client.post("/branches", json={"name": "side"}).raise_for_status()
            body = {"query": ADD, "params": {"name": "cy"}, "branch": "side"}
            client.post("/mutate", json=body).raise_for_status()

            def say(path: str, **asked: Any) -> dict[str, Any]:
                answer = client.post(path, json=asked)
                assert answer.status_code == 200, answer.text
                found: dict[str, Any] = answer.json()
                return found

            def expect(event: str) -> dict[str, Any]:
                headers, document = receiver.next()
                assert headers["Omnigraph-Event"] == document["event"] == event
                assert document["graph_id"] == "default" and document["review"]["id"] == id
                return document

            id = say("/reviews", source="side", title="One more")["id"]
            assert expect("opened")["review"]["title"] == "One more"
            at = f"/reviews/{id}"
            say(f"{at}/edit", title="Another")
            expect("edited")
            comment = say(f"{at}/comments", text="Who is cy?")["comments"][0]["id"]
            assert expect("commented")["details"]["text"] == "Who is cy?"
            say(f"{at}/comments/{comment}/resolve", resolved=True)
            expect("resolved")
            say(f"{at}/review", verdict="approve")
            expect("reviewed")
            say(f"{at}/checks/lint", state="failed", rows=[{"secret": 1}])
            assert "rows" not in expect("check_reported")["details"]
            say(f"{at}/close")
            expect("closed")
            say(f"{at}/reopen")
            expect("reopened")
            merged = say(f"{at}/merge")
            document = expect("merged")
            assert (
                document["details"]["graph_commit_id"]
                == merged["merge"]["commit"]["graph_commit_id"]
            )
            assert document["review"]["state"] == "merged"

            # What another process does is posted as well.
            graph = live.graph()
            graph.create_branch("embedded")
            graph.mutate(ADD, {"name": "di"}, branch="embedded")
            id = graph.reviews.open("embedded", actor="act-x").id
            live.loop.call_soon_threadsafe(live.server.services.reviews_touched.set)
            assert expect("opened")["actor_id"] == "act-x"
            graph.delete_branch("embedded")
            live.loop.call_soon_threadsafe(live.server.services.reviews_touched.set)
            assert expect("closed")["details"] == {"because": "branch embedded is gone"}
            live.call(partial(until, live.server.webhooks, "ci", "delivered", 11))
        assert receiver.requests.empty()
    said = caplog.text + "".join(str(vars(each)) for each in caplog.records) + "".join(live.events)
    assert SECRET not in said and "part-of-the-address" not in said
    assert SECRET not in repr(live.server.webhooks._queues)


@pytest.mark.slow
def test_c_rev_014_workers_post_an_event_once_also_if_the_one_that_follows_them_dies(
    spec: GraphSpec, tmp_path: Path
):
    with listening() as receiver:
        hook = {"url": receiver.url, "secret_env": VARIABLE, "name": "ci"}
        arguments = ("--store", spec.uri, "--unauthenticated", "--workers", "2")
        told = ("--settings", str(settings(tmp_path, hook)))
        with started(*arguments, *told, **{VARIABLE: SECRET}) as server:
            graph = open_graph(spec.uri)

            def opened(branch: str) -> str:
                graph.create_branch(branch)
                graph.mutate(ADD, {"name": branch}, branch=branch)
                body = {"source": branch, "title": branch}
                answer = httpx.post(f"{server.url}/graphs/default/reviews", json=body)
                answer.raise_for_status()
                return str(answer.json()["id"])

            def expect(event: str, id: str) -> None:
                _, document = receiver.next()
                assert (document["event"], document["review"]["id"]) == (event, id)

            first = opened("first")
            expect("opened", first)
            os.kill(min(pids(server)), signal.SIGKILL)  # it was started before the other
            graph.reviews.comment(first, "while nothing follows")
            graph.reviews.merge(first)
            events = {receiver.next()[1]["event"] for _ in range(2)}
            assert events == {"commented", "merged"}
            expect("opened", opened("second"))
            server.send(signal.SIGTERM)
            assert server.wait() == 0
        assert receiver.requests.empty()


def test_settings_that_cannot_be_read_stop_a_server(spec: GraphSpec, tmp_path: Path):
    with (
        pytest.raises(InputError, match="cannot be read"),
        serving(spec, settings=tmp_path / "none.yaml"),
    ):
        pass
