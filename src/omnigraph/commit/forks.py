"""A branch's own copy of a table: made when the branch first writes it, and found in every state.

Lance makes a fork in two steps, the copied version first and the ref that lists it second, and it
removes one in the opposite order. A process that dies in between leaves a directory which Lance
opens but can neither remove nor make again. Whoever owns the branch clears it away: without a ref
nobody can have read it, and what a fork holds is not visible before it is published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import NotFound, StorageError
from omnigraph.storage.datasets import DatasetRef, Handle, LanceStore

ForkState = Literal["absent", "half_made", "made"]


@dataclass(frozen=True, slots=True)
class Forks:
    """The forks of one graph's tables. Only the owner of a branch may change its forks."""

    lance: LanceStore
    store: ObjectStore

    def state(self, where: DatasetRef) -> ForkState:
        """What there is of a fork."""
        is_listed = where.ref in self.lance.refs(where)
        try:
            self.lance.open(where)
        except NotFound:
            return "half_made" if is_listed or self.store.exists(self._prefix(where)) else "absent"
        return "made" if is_listed else "half_made"

    def make(self, where: DatasetRef, from_ref: str | None, version: int) -> Handle:
        """Fork a table at the pin the branch inherited, and open the fork."""
        assert where.ref is not None
        hit(Failpoint.FORK_BEFORE_CLASSIFY)
        try:
            handle = self.lance.create_ref(where.on(from_ref), where.ref, version)
        except StorageError as failure:
            handle = self._make_again(where, from_ref, version, failure)
        hit(Failpoint.FORK_POST_CREATE_PRE_OPEN)
        return handle

    def remove(self, where: DatasetRef) -> None:
        """Remove a fork in whatever state it is; an absent one is fine."""
        self.lance.delete_ref(where)
        self.store.delete_prefix(self._prefix(where))

    def reclaim(self, where: DatasetRef) -> None:
        """Remove a fork that no live branch has a claim to."""
        hit(Failpoint.CLEANUP_RECONCILE_FORK)
        self.remove(where)

    def _make_again(
        self, where: DatasetRef, from_ref: str | None, version: int, failure: StorageError
    ) -> Handle:
        """Something is in the way that no pending operation claims; else the failure stands."""
        assert where.ref is not None
        state = self.state(where)
        if state == "absent":
            raise failure
        if state == "made":
            # Left by an owner that was too late to commit anything to it: as good as a new one.
            handle = self.lance.open(where)
            if handle.version == version:
                return handle
            raise StorageError(
                f"{where.address} is at version {handle.version}, but was never published"
            )
        self.remove(where)
        return self.lance.create_ref(where.on(from_ref), where.ref, version)

    def _prefix(self, where: DatasetRef) -> str:
        return where.address.removeprefix(f"{self.store.root.uri}/")
