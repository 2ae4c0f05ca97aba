"""Ids of committed rows, read while the records of a small input are.

Neither of both needs the other before they are matched, and reading records is mostly the work of
one thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from omnigraph.loading.counting import CommittedPart
from omnigraph.loading.upserting import CommittedIds, committed_ids

AHEAD_ROWS = 2_000_000
"""Committed rows whose ids are kept until they are matched, at about 40 bytes each."""

_Key = tuple[str, int, tuple[int, ...]]


class IdsAhead:
    """Ids of some parts of the committed rows; those of others are read when they are taken."""

    def __init__(self, storage_options: dict[str, str] | None) -> None:
        self._options = storage_options
        self._started: dict[_Key, Future[list[CommittedIds]]] = {}

    def start(self, parts: Iterable[CommittedPart]) -> None:
        """Begin to read, as far as there is room."""
        room = AHEAD_ROWS
        beside = ThreadPoolExecutor(1)
        for part in parts:
            if part.rows > room:
                break
            room -= part.rows
            self._started[_key(part)] = beside.submit(committed_ids, part, self._options)
        beside.shutdown(wait=False)

    def take(self, part: CommittedPart) -> Iterable[CommittedIds]:
        """The ids of a part, which are kept no longer."""
        started = self._started.pop(_key(part), None)
        return committed_ids(part, self._options) if started is None else started.result()


def _key(part: CommittedPart) -> _Key:
    return part.address, part.version, part.fragment_ids
