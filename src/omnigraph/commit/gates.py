"""In-process gates: writers of one process queue here before they contend for a lease.

All handles of one canonical root share them. They are always taken in one order: schema, then
branches by name, so that no two writers can wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager


class SharedGate:
    """A lock many may share, or one may have alone. Waiting for alone keeps new sharers out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._alone = False
        self._waiting_alone = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the gate together with others."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting_alone)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the gate with nobody else."""
        with self._changed:
            self._waiting_alone += 1
            self._changed.wait_for(lambda: not self._alone and not self._sharing)
            self._waiting_alone -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


class Gates:
    """The gates of one root."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._schema = SharedGate()
        self._branches: dict[str, threading.Lock] = {}
        self._streams = 0
        self._streams_changed = threading.Condition()

    @contextmanager
    def stream(self) -> Iterator[None]:
        """For a read that goes on while its caller does other things, such as an export."""
        with self._streams_changed:
            self._streams += 1
        try:
            yield
        finally:
            with self._streams_changed:
                self._streams -= 1
                self._streams_changed.notify_all()

    def wait_for_streams(self, timeout_ms: int) -> bool:
        """Wait until no such read is under way; False if one takes longer."""
        with self._streams_changed:
            return self._streams_changed.wait_for(lambda: not self._streams, timeout_ms / 1000)

    @contextmanager
    def write(self, branches: Iterable[str]) -> Iterator[None]:
        """For a write to these branches: shares the schema, has the branches alone."""
        with ExitStack() as held:
            held.enter_context(self._schema.shared())
            for name in sorted(set(branches)):
                held.enter_context(self._branch(name))
            yield

    @contextmanager
    def whole_graph(self) -> Iterator[None]:
        """For operations on the schema or the set of branches: no write runs beside them."""
        with self._schema.alone():
            yield

    def _branch(self, name: str) -> threading.Lock:
        with self._guard:
            return self._branches.setdefault(name, threading.Lock())


_gates_by_root: dict[str, Gates] = {}
_registry_guard = threading.Lock()


def gates_of(root_uri: str) -> Gates:
    """The gates shared by every handle of a canonical root in this process."""
    with _registry_guard:
        return _gates_by_root.setdefault(root_uri, Gates())
