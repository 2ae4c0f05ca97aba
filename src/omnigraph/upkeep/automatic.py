"""Upkeep in the background of an open graph.

After a number of commits through a handle, one thread of the handle compacts new data and adds it
to the indexes, one run at a time. A run starts in a pause of the writers, and is abandoned if the
branch moves: it never makes a write fail, and a write waits for it no longer than for another
write. A failure is recorded in `status`, and its effects are undone here, so that no write has to
recover them.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.recovery import Recoverer
from omnigraph.errors import Busy, Conflict, RecoveryRequired
from omnigraph.model.upkeep import AutoOptimizeStatus
from omnigraph.storage.table_upkeep import RECENT
from omnigraph.upkeep.optimize import optimize
from omnigraph.upkeep.pending import pending_operations

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.1
"""Without a commit for this long, writers are considered to pause."""
PATIENCE_SECONDS = 2.0
"""The maximum wait for a pause; afterwards a run starts in any case."""
STOP_SECONDS = 30.0
"""How long `stop` waits for a running one."""

NOT_NOW = (Conflict, Busy)
"""Errors that mean that another writer was active."""


class AutoOptimizer:
    """Compacts an open graph in the background."""

    def __init__(self, kernel: Kernel, every: int) -> None:
        self._kernel = kernel
        self._changed = threading.Condition()
        self._commits = 0
        """Commits since the last run started."""
        self._is_running = False
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._status = AutoOptimizeStatus(every)

    @property
    def status(self) -> AutoOptimizeStatus:
        """The results so far."""
        return self._status

    def count_write(self) -> None:
        """Count a published write of this handle. Cheap, and never raises."""
        with self._changed:
            if self._is_stopped:
                return
            self._commits += 1
            if self._is_due and self._thread is None:
                self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        # A daemon thread does not keep the process alive.
        thread = threading.Thread(target=self._watch, name="omnigraph-upkeep", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The thread could not be started; later commits try again.
            self._commits = 0
            self._note_failure(error)
        else:
            self._thread = thread

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is due or running; False on timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_stopped or not (self._is_due or self._is_running), seconds
            )

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Start no further run, and wait for a running one."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)

    @property
    def _is_due(self) -> bool:
        return self._commits >= self._status.every

    def _watch(self) -> None:
        while self._await_pause():
            try:
                self._run()
            finally:
                with self._changed:
                    self._is_running = False
                    self._changed.notify_all()

    def _await_pause(self) -> bool:
        """Wait until a run is due and writers pause; False once stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._is_due)
            patience = PATIENCE_SECONDS
            while patience > 0 and not self._is_stopped:
                moved = partial(self._has_moved, self._commits)
                if not self._changed.wait_for(moved, PAUSE_SECONDS):
                    break
                patience -= PAUSE_SECONDS
            self._commits = 0
            self._is_running = not self._is_stopped
            return self._is_running

    def _has_moved(self, commits: int) -> bool:
        return self._is_stopped or self._commits != commits

    def _run(self) -> None:
        try:
            self._optimize()
        except Exception as error:
            self._note_failure(error)
            if isinstance(error, RecoveryRequired):
                self._recover()

    def _optimize(self) -> None:
        before = self._status
        try:
            receipt = optimize(self._kernel, self._kernel.accepted_schema(), RECENT)
            commits = before.commits + (receipt.graph_commit_id is not None)
            self._status = replace(before, runs=before.runs + 1, commits=commits)
        except NOT_NOW:
            self._status = replace(before, postponed=before.postponed + 1)
        except RecoveryRequired as pending:
            if self._is_interrupted_run(pending.details["operation_id"]):
                raise
            self._status = replace(before, postponed=before.postponed + 1)

    def _is_interrupted_run(self, operation_id: str) -> bool:
        """Whether this is an interrupted optimization that no process is recovering."""
        for operation in pending_operations(self._kernel):
            if operation.operation_id == operation_id and operation.writer_kind == "Optimize":
                holders = self._kernel.leases.holders()
                return all(each.operation_id != operation_id for each in holders)
        return False

    def _note_failure(self, error: Exception) -> None:
        log.warning("upkeep in the background failed", exc_info=error)
        failures = self._status.failures + 1
        self._status = replace(self._status, failures=failures, last_error=str(error))

    def _recover(self) -> None:
        """Undo an interrupted run, which would block the next write."""
        try:
            Recoverer(self._kernel).run("full")
        except Exception:
            log.warning("the interrupted run is recovered by the next open", exc_info=True)
