"""A process of a schedule: it performs operations and stops at every failpoint until it may go on.

The scheduler also decides what time it is. Leases are those of an object store, where only time
tells whether an owner lives, so no lock of the machine comes between the processes.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from omnigraph.commit import leases, opening
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import Lease, Leases, WriteSettings
from omnigraph.effects import failpoints
from omnigraph.effects.clock import MINT
from omnigraph.effects.failpoints import ArmedFailpoint, Failpoint
from omnigraph.effects.uri import Root
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from tests.simulate.operations import OPERATIONS
from tests.simulate.plants import PLANTS
from tests.support.forked import enter

TTL_SECONDS = 30.0
SETTINGS = WriteSettings(ttl_ms=int(TTL_SECONDS * 1000), wait_ms=int(TTL_SECONDS * 4000))
WAITING = "waiting"
"""What a process says instead of a failpoint when it waits for another's lease."""


class Stage:
    """The worker's end of the conversation, and the time of day."""

    def __init__(self, scheduler: Connection) -> None:
        self.now = 1000.0
        self._scheduler = scheduler
        self._turn = threading.Lock()
        self._held: list[Lease] = []

    def stop_at(self, place: str) -> None:
        """Say where the process is, and wait for the word to go on."""
        with self._turn:
            self._scheduler.send(("at", str(place)))
            while True:
                word, self.now = self._scheduler.recv()
                if word == "go":
                    return
                for lease in self._held:
                    lease._beat()
                self._scheduler.send(("renewed", ""))

    def hold(self, lease: Lease) -> None:
        """Renew a lease when the scheduler says so, and not by a timer."""
        self._held = [each for each in self._held if each._token is not None]
        self._held.append(lease)

    # What `leases` and `opening` use of the module `time`.

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.stop_at(WAITING)


def serve(scheduler: Connection, environment: dict[str, str], plant: str | None) -> None:
    """Perform one operation after the other until the scheduler closes the connection."""
    logging.disable(logging.WARNING)
    enter({**environment, "OMNIGRAPH_MAINTENANCE_CONCURRENCY": "1"})
    stage = Stage(scheduler)
    for point in Failpoint:
        if point is not Failpoint.LEASE_BEFORE_RENEW:
            failpoints._plans[point] = ArmedFailpoint(point, stage.stop_at)
    patched: Any = leases
    patched.monotonic_seconds, patched.time = stage.monotonic, stage
    patched = opening
    patched.time = stage
    patched = Lease
    patched._schedule = stage_lease(stage)
    if plant is not None:
        PLANTS[plant]()
    while True:
        try:
            name, number, root, stage.now = scheduler.recv()
        except EOFError:
            os._exit(0)
        scheduler.send(("done", _answer(name, number, root)))


def stage_lease(stage: Stage) -> Any:
    """In place of `Lease._schedule`."""
    return lambda lease: None if lease in stage._held else stage.hold(lease)


def _answer(name: str, number: int, root: str) -> dict[str, Any]:
    try:
        return {"value": OPERATIONS[name].run(_opened(root), number)}
    except OmnigraphError as error:
        classes = [each.__name__ for each in type(error).__mro__]
        return {"error": classes, "message": str(error), "details": dict(error.details)}
    except Exception as error:  # a finding: the scheduler tells it with its seed
        return {"error": [type(error).__name__], "message": repr(error), "details": {}}


def _opened(root: str) -> Graph:
    kernel = Kernel.of(Root.parse(root))
    kernel = replace(kernel, leases=Leases(kernel.store, MINT.ulid(), SETTINGS, None))
    opening.open_for_writing(kernel, settle=True)
    return Graph(kernel)
