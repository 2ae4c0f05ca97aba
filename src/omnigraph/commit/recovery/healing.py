"""Recovery by a handle that stays open, as a server's does.

A process that died, a full disk or a store that was unreachable leaves a sidecar that only a full
recovery settles. A handle that heals runs one: at the barrier of the next write to the branch, and
in the background, so that the branch is unblocked before the next write. Both act as any recovery
does, as the owner of the branch; a live writer's sidecar is left alone.
"""

from __future__ import annotations

import logging
import threading

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.recovery.settling import Settlement
from omnigraph.errors import UnreadableSidecar
from omnigraph.model.upkeep import BlockedBranch

log = logging.getLogger(__name__)

EVERY_SECONDS = 5.0
"""Between two checks, each of which costs one list call while nothing is pending."""
STOP_SECONDS = 30.0
"""How long `stop` waits for a run that has begun."""


class Healer:
    """Recovers one open graph in the background, and knows which branches are blocked."""

    def __init__(self, kernel: Kernel, every_seconds: float = EVERY_SECONDS) -> None:
        self._kernel = kernel
        self._every_seconds = every_seconds
        self._woken = threading.Event()
        self._is_stopped = False
        self.blocked: tuple[BlockedBranch, ...] = ()
        """As of the last check; replaced as a whole."""
        self._seen: frozenset[str] = frozenset()
        """The sidecars that the last check found."""
        # A daemon thread: it does not keep the program from ending.
        self._thread = threading.Thread(target=self._watch, name="omnigraph-heal", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Check now, and recover what is pending."""
        self._woken.set()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End the checks, and wait for one that has begun."""
        self._is_stopped = True
        self._woken.set()
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _watch(self) -> None:
        while not self._is_stopped:
            is_urgent = self._woken.wait(self._every_seconds)
            self._woken.clear()
            if not self._is_stopped:
                self._check_pending(is_urgent)

    def _check_pending(self, is_urgent: bool) -> None:
        """Recover sidecars that the last check found, too: a live writer would have finished."""
        try:
            names = self._kernel.sidecars.names()
            due = [name for name in names if is_urgent or name in self._seen]
            self._seen = frozenset(names)
            if due or self.blocked:
                self.blocked = self._blocked_by(Recoverer(self._kernel).heal(due))
        except Exception:
            # The store is unreachable or full: writes raise that, and the next check may succeed.
            log.warning("recovery in the background failed", exc_info=True)

    def _blocked_by(self, settled: list[Settlement]) -> tuple[BlockedBranch, ...]:
        reasons = {each.operation_id: each for each in settled if not each.needs_nothing_now}
        since = {each.operation_id: each.since_us for each in self.blocked}
        found = []
        for name in self._kernel.sidecars.names() if reasons else ():
            operation_id = name.rpartition("/")[2].removesuffix(".json")
            settlement = reasons.get(operation_id)
            if settlement is None:
                continue
            branch: str | None
            try:
                plan = self._kernel.sidecars.read(name)
                branch = None if plan is None else plan.branch
            except UnreadableSidecar as refused:
                branch = refused.branch
            began = since.get(operation_id, self._kernel.clock.wall_us())
            found.append(BlockedBranch(branch, operation_id, settlement.reason, began))
        return tuple(found)
