"""Looking after an open graph: indexes, layout, repair, cleanup, recovery, and what they find."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.recovery.audit import RecoveryAudit, RecoveryRow
from omnigraph.commit.recovery.settling import Settlement
from omnigraph.commit.write_path import WritePath
from omnigraph.graph.following import GraphFollowing
from omnigraph.graph.gate import WriteGate
from omnigraph.model.upkeep import (
    AutoOptimizeStatus,
    CleanupPolicy,
    CleanupReceipt,
    Diagnosis,
    GraphStats,
    IndexReceipt,
    OptimizeReceipt,
    RepairReceipt,
)
from omnigraph.storage.layout import MAIN
from omnigraph.upkeep.automatic import AutoOptimizer, commits_between
from omnigraph.upkeep.cleanup import cleanup
from omnigraph.upkeep.optimize import ensure_indices, optimize
from omnigraph.upkeep.pending import release_abandoned
from omnigraph.upkeep.repair import repair
from omnigraph.upkeep.stats import examine, graph_stats

Done = TypeVar("Done")


class GraphUpkeep(GraphFollowing):
    """What keeps one open graph fast, small and sound."""

    _gate: WriteGate
    _path: WritePath
    _auto: AutoOptimizer | None = None

    def ensure_indices(self, branch: str | None = None) -> IndexReceipt:
        """Build the indexes that the schema declares and the head of a branch is missing.

        One commit, or none if nothing is missing. What cannot be built yet is listed with the
        reason. Queries return the same with and without indexes. Raises `Conflict` when others
        wrote to the branch meanwhile.
        """
        self._gate.require_writable("index")
        return ensure_indices(self._kernel, self._path, self._accepted(), branch or MAIN)

    def optimize(self, *, progress: Callable[[int, int], None] | None = None) -> OptimizeReceipt:
        """Make main compact and its indexes complete: one commit, or none if nothing is due.

        Old versions stay. A table that was changed behind the graph's back is skipped. ``progress``
        is told how many tables are done, of how many. Raises `RecoveryRequired` while an
        interrupted operation is unsettled, and `Conflict` when others wrote to main meanwhile.
        """
        self._gate.require_writable("optimize")
        return optimize(self._kernel, self._accepted(), progress=progress)

    def repair(
        self, branch: str | None = None, *, confirm: bool = False, force: bool = False
    ) -> RepairReceipt:
        """Publish what was done to the tables of a branch behind the graph's back.

        Without ``confirm`` nothing is changed and the receipt says what would be. Only versions
        that are known to change no row are published, unless ``force`` vouches for the content of
        the others. Raises `RecoveryRequired` while an interrupted operation is unsettled.
        """
        self._gate.require_writable("repair")
        return repair(self._kernel, self._accepted(), branch or MAIN, confirm=confirm, force=force)

    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: timedelta | None = None,
        confirm: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> CleanupReceipt:
        """Remove old versions of tables, and what deleted branches left behind.

        Versions beyond the newest ``keep`` go, and those ``older_than`` some age; with both, only
        what is both. What a live branch sees always stays. Commits whose versions are gone stay
        listed, and reading them raises `HistoricalVersionReclaimed`. Without ``confirm`` nothing is
        removed and the receipt says what would be. ``progress`` is told how many tables are done,
        of how many. Raises `RecoveryRequired` while an interrupted operation is unsettled, and
        `UncoveredDrift`.
        """
        self._gate.require_writable("cleanup")
        seconds = None if older_than is None else int(older_than.total_seconds())
        policy = CleanupPolicy(keep, seconds)
        return cleanup(self._kernel, policy, confirm=confirm, progress=progress)

    def examine(self) -> Diagnosis:
        """Try every way the graph is read, on every branch; writes nothing.

        Every finding names the command that mends it. `doctor` does the same for a graph that may
        not even open.
        """
        return examine(self._kernel, self._accepted())

    def stats(self, branch: str | None = None) -> GraphStats:
        """The head of a branch and the graph around it in numbers; writes nothing.

        What needs attention is listed with the command that mends it.
        """
        return graph_stats(self._kernel, self._accepted(), branch or MAIN)

    # --- recovery ---------------------------------------------------------------------------------

    def recover(self, *, force: bool = False) -> list[Settlement]:
        """Finish or undo every interrupted operation; ``force`` also through foreign commits."""
        self._gate.require_writable("recover")
        settled = Recoverer(self._kernel).run("full", force=force)
        release_abandoned(self._kernel)
        return settled

    def list_recoveries(self) -> list[RecoveryRow]:
        """Every recovery so far, oldest first."""
        return RecoveryAudit(self._kernel.lance, self._kernel.root.uri).rows()

    # --- in the background ------------------------------------------------------------------------

    @property
    def auto_optimize(self) -> AutoOptimizeStatus | None:
        """What upkeep in the background has done; None if this handle has none."""
        return None if self._auto is None else self._auto.status

    def close(self) -> None:
        """End upkeep in the background, waiting for a run that has begun.

        The handle can be used on. It happens by itself when the handle, or the program, goes.
        """
        if self._auto is not None:
            self._auto.stop()

    def _look_after(self, wish: bool | int | None) -> None:
        every = commits_between(wish)
        if every:
            self._auto = AutoOptimizer(self._kernel, every)
            weakref.finalize(self, self._auto.stop)

    def _counted(self, done: Done) -> Done:
        """Tell upkeep in the background of a write that is done."""
        if self._auto is not None:
            self._auto.noticed()
        return done
