"""Webhooks: signed events of change requests, posted to receivers.

Receivers are declared in a settings file; their secrets come from the environment:

    reviews:
      webhooks:
        - url: https://ci.example.org/omnigraph
          secret_env: CI_WEBHOOK_SECRET
          name: ci
          events: [opened, reviewed, merged]

Each receiver has a bounded queue and its own task, so a dead receiver delays neither requests nor
other receivers. Events are delivered in order; a failed delivery is repeated with growing pauses,
and given up after `ATTEMPTS_MAX`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit

import orjson

from omnigraph.errors import InputError
from omnigraph.model.records import dataclass
from omnigraph.model.reviews import ReviewEventKind
from omnigraph.server.metrics import Metrics
from omnigraph.strict_yaml import Node, read_document

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

SIGNATURE = "Omnigraph-Signature"
TIMESTAMP = "Omnigraph-Timestamp"
EVENT = "Omnigraph-Event"
DELIVERY = "Omnigraph-Delivery"

RECEIVERS_MAX = 16
URL_CHARACTERS_MAX = 2_000
SECRET_CHARACTERS_MIN = 16
WAITING_MAX = 1_000
"""Events queued for one receiver; more are dropped and counted."""
ATTEMPT_SECONDS = 10.0
"""The timeout of one delivery attempt."""
ATTEMPTS_MAX = 10
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 1.0, 120.0
"""The pause after the first failed attempt, which doubles each time, and its maximum."""
_TRY_AGAIN = frozenset({408, 425, 429})

EVENTS: tuple[str, ...] = tuple(
    name for name in (*get_args(ReviewEventKind), "merged") if name != "bypassed"
)
Outcome = Literal["delivered", "retried", "failed", "dropped"]


# --- settings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Receiver:
    """The address of a receiver, its secret, and the events it gets."""

    name: str
    """The name for logs and metrics; the address may contain a secret."""
    url: str = field(repr=False)
    secret: bytes = field(repr=False)
    events: frozenset[str] = frozenset(EVENTS)


def load_receivers(path: Path, environment: Mapping[str, str]) -> tuple[Receiver, ...]:
    """The receivers of a settings file; raises `InputError` with the position of a mistake."""
    try:
        document = read_document(path, InputError)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"the settings {path} cannot be read: {reason}") from None
    fields = document.fields(optional=("reviews",))
    if "reviews" not in fields:
        return ()
    reviews = fields["reviews"].fields(optional=("webhooks",))
    if "webhooks" not in reviews:
        return ()
    nodes = reviews["webhooks"].items()
    if len(nodes) > RECEIVERS_MAX:
        reviews["webhooks"].fail(f"there are {len(nodes)} webhooks, at most {RECEIVERS_MAX} are")
    found: dict[str, Receiver] = {}
    for node in nodes:
        receiver = _receiver(node, environment)
        if receiver.name in found:
            node.fail(f"two webhooks are called `{receiver.name}`", hint="give one another `name`")
        found[receiver.name] = receiver
    return tuple(found.values())


def _receiver(node: Node, environment: Mapping[str, str]) -> Receiver:
    fields = node.fields(required=("url", "secret_env"), optional=("name", "events"))
    url = fields["url"].text()
    host = _checked_url(fields["url"], url)
    variable = fields["secret_env"].text()
    secret = environment.get(variable, "")
    if len(secret) < SECRET_CHARACTERS_MIN:
        state = "is not set" if not secret else f"has fewer than {SECRET_CHARACTERS_MIN} characters"
        fields["secret_env"].fail(
            f"the variable `{variable}` {state}",
            hint="`openssl rand -hex 32` makes a secret; the receiver needs the same",
        )
    wanted = frozenset(EVENTS)
    if "events" in fields:
        wanted = frozenset(_event(each) for each in fields["events"].items())
        if not wanted:
            fields["events"].fail("a webhook without events is never called")
    name = fields["name"].text() if "name" in fields else host
    if not name.isprintable() or len(name) > 100:
        node.fail("the name of a webhook is one line of at most 100 characters")
    return Receiver(name, url, secret.encode(), wanted)


def _event(node: Node) -> str:
    if (name := node.text()) not in EVENTS:
        node.fail(f"there is no event `{name}`", hint=f"the events are {', '.join(EVENTS)}")
    return name


def _checked_url(node: Node, url: str) -> str:
    """Check an address and return its host. Messages do not repeat the address."""
    if len(url) > URL_CHARACTERS_MAX or not url.isascii() or not url.isprintable() or " " in url:
        node.fail(
            f"the address of a webhook has at most {URL_CHARACTERS_MAX} printable ASCII characters"
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        node.fail("the address of a webhook is not a URL", hint="write https://HOST/PATH")
    if parts.scheme not in ("http", "https") or not host:
        node.fail(
            "the address of a webhook begins with `https://` or `http://` and a host",
            hint="write https://HOST/PATH",
        )
    if parts.username is not None or parts.password is not None:
        node.fail(
            "the address of a webhook holds a name or a password",
            hint="leave them out: requests are signed with the secret",
        )
    if parts.fragment:
        node.fail("the address of a webhook has a fragment, which is never sent")
    return host


# --- deliveries -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event as a webhook payload."""

    id: str
    """The same in every process that serves the graph, and in every repetition."""
    event: str
    body: bytes


def delivery(id: str, event: str, facts: Mapping[str, object]) -> Delivery:
    """An event with its payload as JSON."""
    return Delivery(id, event, orjson.dumps({"id": id, "event": event, **facts}))


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """The value of the signature header: HMAC-SHA256 of the timestamp, a dot and the body.

    >>> signature(b"secret", "1763480000", b"{}")[:11]
    'v1=64db5603'
    """
    digest = hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256)
    return f"v1={digest.hexdigest()}"


class Webhooks:
    """Posts events to receivers. Used on the event loop only.

    ``now`` and ``sleep`` are in seconds, ``jitter`` returns a number from 0 to 1; tests replace
    them.
    """

    def __init__(
        self,
        receivers: tuple[Receiver, ...],
        metrics: Metrics,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._metrics = metrics
        self._now, self._sleep, self._jitter = now, sleep, jitter
        self._queues = {each: asyncio.Queue[Delivery](WAITING_MAX) for each in receivers}
        self._tasks: list[asyncio.Task[None]] = []

    def __bool__(self) -> bool:
        """Whether any receiver is configured."""
        return bool(self._queues)

    @property
    def waiting(self) -> int:
        """The number of queued events."""
        return sum(queue.qsize() for queue in self._queues.values())

    def start(self) -> None:
        """Start the delivery tasks."""
        if not self._queues:
            return
        import httpx

        # It would log every address.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        # No proxies or credentials from the environment and no redirects: events go only to the
        # configured addresses.
        self._client = httpx.AsyncClient(
            trust_env=False, follow_redirects=False, timeout=ATTEMPT_SECONDS
        )
        for receiver, queue in self._queues.items():
            task = asyncio.create_task(self._deliver_all(receiver, queue))
            self._tasks.append(task)

    async def stop(self) -> None:
        """Stop delivering and drop queued events."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks:
            await self._client.aclose()
        self._tasks.clear()
        for receiver, queue in self._queues.items():
            while not queue.empty():
                self._drop(receiver, queue.get_nowait(), "the server stops")

    def put(self, delivery: Delivery) -> None:
        """Queue an event for every receiver that subscribed to its kind; never waits."""
        for receiver, queue in self._queues.items():
            if delivery.event not in receiver.events:
                continue
            try:
                queue.put_nowait(delivery)
            except asyncio.QueueFull:
                self._drop(receiver, delivery, f"{WAITING_MAX} events wait already")

    def _drop(self, receiver: Receiver, delivery: Delivery, reason: str) -> None:
        self._metrics.posted(receiver.name, "dropped")
        _log("webhook dropped", receiver, delivery, reason=reason)

    async def _deliver_all(self, receiver: Receiver, queue: asyncio.Queue[Delivery]) -> None:
        while True:
            delivery = await queue.get()
            try:
                await self._deliver(receiver, delivery)
            except asyncio.CancelledError:
                self._drop(receiver, delivery, "the server stops")
                raise

    async def _deliver(self, receiver: Receiver, delivery: Delivery) -> None:
        """Post one event until it is accepted, rejected permanently, or given up."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            problem, is_final, wanted = await self._attempt(receiver, delivery)
            if problem is None:
                self._metrics.posted(receiver.name, "delivered")
                return
            if is_final or attempt == ATTEMPTS_MAX:
                self._metrics.posted(receiver.name, "failed")
                _log("webhook failed", receiver, delivery, attempts=attempt, reason=problem)
                return
            self._metrics.posted(receiver.name, "retried")
            longest = min(PAUSE_SECONDS * 2 ** (attempt - 1), PAUSE_SECONDS_MAX)
            # Half of the pause is random, so that receivers that failed together are not retried
            # together.
            pause = longest * (0.5 + 0.5 * self._jitter())
            await self._sleep(max(pause, min(wanted, PAUSE_SECONDS_MAX)))

    async def _attempt(
        self, receiver: Receiver, delivery: Delivery
    ) -> tuple[str | None, bool, float]:
        """The error if any, whether it is permanent, and the pause that the receiver asked for."""
        import httpx

        timestamp = str(int(self._now()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "omnigraph",
            EVENT: delivery.event,
            DELIVERY: delivery.id,
            TIMESTAMP: timestamp,
            SIGNATURE: signature(receiver.secret, timestamp, delivery.body),
        }
        post = partial(self._client.stream, "POST", receiver.url, headers=headers)
        try:
            # The timeout covers the whole attempt, also if the receiver sends single bytes slowly.
            # Only the status counts; the body is not read.
            async with asyncio.timeout(ATTEMPT_SECONDS), post(content=delivery.body) as answer:
                return _judged(answer)
        except TimeoutError:
            return f"no answer in {ATTEMPT_SECONDS:g} seconds", False, 0.0
        except httpx.HTTPError as problem:
            return type(problem).__name__, False, 0.0


def _judged(answer: httpx.Response) -> tuple[str | None, bool, float]:
    if answer.is_success:
        return None, True, 0.0
    after = answer.headers.get("retry-after", "")
    wanted = float(after) if after.isascii() and after.isdecimal() else 0.0
    is_final = answer.status_code < 500 and answer.status_code not in _TRY_AGAIN
    told = "; redirects are not followed" if answer.is_redirect else ""
    return f"status {answer.status_code}{told}", is_final, wanted


def _log(what: str, receiver: Receiver, delivery: Delivery, **more: object) -> None:
    about = {"receiver": receiver.name, "event": delivery.event, "delivery": delivery.id}
    log.warning(what, extra={"fields": {**about, **more}})
