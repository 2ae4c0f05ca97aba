"""The sidecars of a graph: one object for every operation on its way or interrupted."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from omnigraph.commit.sidecar import Sidecar
from omnigraph.commit.sidecar_json import encode_sidecar, read_sidecar
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import UnreadableSidecar
from omnigraph.storage.layout import RECOVERY, sidecar_name

log = logging.getLogger(__name__)


class Sidecars:
    """The sidecars of one graph."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def names(self) -> list[str]:
        """The objects of all pending operations, oldest first; one list call."""
        hit(Failpoint.RECOVERY_SIDECAR_LIST)
        return sorted(name for name in self._store.list(RECOVERY) if name.endswith(".json"))

    def write(self, sidecar: Sidecar) -> None:
        """Phase A: make the intent durable."""
        hit(Failpoint.RECOVERY_SIDECAR_WRITE)
        self._store.write(sidecar_name(sidecar.operation_id), encode_sidecar(sidecar))

    def read(self, name: str) -> Sidecar | None:
        """The sidecar behind a listed name; None if its writer has finished meanwhile."""
        hit(Failpoint.RECOVERY_POST_SIDECAR_LIST_PRE_READ)
        content = self._store.read_if_exists(name)
        return None if content is None else read_sidecar(name, content)

    def delete(self, operation_id: str) -> None:
        """Phase D: the operation is settled."""
        hit(Failpoint.RECOVERY_SIDECAR_DELETE)
        self._store.delete(sidecar_name(operation_id))

    def pending(self, names: Iterable[str] | None = None) -> Iterator[Sidecar]:
        """Those that are there, or left of those listed; raises `UnreadableSidecar` for one."""
        for name in self.names() if names is None else names:
            sidecar = self.read(name)
            if sidecar is not None:
                yield sidecar

    def readable(self, *, without: str | None = None) -> Iterator[Sidecar]:
        """Those that this product understands, but for the operation ``without``."""
        for name in self.names():
            if without is not None and name == sidecar_name(without):
                continue
            try:
                sidecar = self.read(name)
            except UnreadableSidecar:
                continue
            if sidecar is not None:
                yield sidecar

    def forget(self, operation_id: str) -> None:
        """Phase D of an operation that is visible: it is done whatever happens here.

        A sidecar left behind only costs the next barrier.
        """
        try:
            self.delete(operation_id)
        except Exception:
            log.warning("sidecar %s was left behind", operation_id, exc_info=True)
