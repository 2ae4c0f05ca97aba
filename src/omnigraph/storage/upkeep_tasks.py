"""Work on one version of a table that any process can do: rewriting fragments, building indexes.

A task writes files that nothing refers to, and gives what a transaction needs to know of them. It
may be run again, in another process: the files of the first attempt stay unreferenced.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import lance
from lance import LanceDataset
from lance.dataset import Index
from lance.optimize import CompactionTask, RewriteResult

from omnigraph.model.records import dataclass
from omnigraph.model.types import IndexSpec
from omnigraph.storage.failures import lance_errors

VECTORS_PER_PARTITION = 4_096
"""A search that is exact probes all partitions; one that need not be should read few vectors."""


class UpkeepTask(Protocol):
    """One task; it can be pickled."""

    def run(self, handle: LanceDataset) -> bytes:
        """Do it on the version of ``handle``."""
        ...


class UpkeepWorkers(Protocol):
    """Runs tasks: in this process, or on several workers."""

    @property
    def spread(self) -> int:
        """Into how many tasks work on one table is divided, if it is large enough."""
        ...

    def run(self, handle: LanceDataset, tasks: Sequence[UpkeepTask]) -> list[bytes]:
        """The results of all tasks, in their order."""
        ...


class _ThisProcess:
    """Lance itself uses all cores for one task."""

    spread = 1

    def run(self, handle: LanceDataset, tasks: Sequence[UpkeepTask]) -> list[bytes]:
        return [task.run(handle) for task in tasks]


THIS_PROCESS: UpkeepWorkers = _ThisProcess()


def run_at(
    address: str, version: int, task: UpkeepTask, storage_options: dict[str, str] | None
) -> bytes:
    """Run a task in a worker that opens the table itself."""
    with lance_errors(address, "compact"):
        return task.run(lance.dataset(address, version=version, storage_options=storage_options))


def divided(
    handle: LanceDataset, fragment_ids: Sequence[int], tasks: int, rows_min: int
) -> Iterator[tuple[int, ...]]:
    """Fragments in groups of at least ``rows_min`` rows each, and no more groups than ``tasks``."""
    rows = {each.fragment_id: each.physical_rows for each in handle.get_fragments()}
    total = sum(rows[each] for each in fragment_ids)
    size = max(rows_min, -(-total // tasks))
    group: list[int] = []
    held = 0
    left = total
    for fragment in fragment_ids:
        group.append(fragment)
        held += rows[fragment]
        left -= rows[fragment]
        if held >= size and left >= rows_min:
            yield tuple(group)
            group, held = [], 0
    if group:
        yield tuple(group)


def vector_count(handle: LanceDataset, column: str) -> int:
    """How many rows have a vector."""
    vectors: int = handle.count_rows(f"`{column}` IS NOT NULL")
    return vectors


@dataclass(frozen=True, slots=True)
class RewriteFragments:
    """Write the rows of some fragments into as few as possible."""

    task: str
    """As Lance describes it."""

    def run(self, handle: LanceDataset) -> bytes:
        """The result as Lance describes it."""
        task: CompactionTask = CompactionTask.from_json(self.task)  # type: ignore[attr-defined]
        result: Any = task.execute(handle)
        description: str = result.json()
        return description.encode()

    @staticmethod
    def result(given: bytes) -> RewriteResult:
        """What `run` gave."""
        result: RewriteResult = RewriteResult.from_json(given.decode())  # type: ignore[attr-defined]
        return result


@dataclass(frozen=True, slots=True)
class BuildIndexPart:
    """Write the files of an index over some fragments, or of a further part of one."""

    spec: IndexSpec
    name: str
    fragment_ids: tuple[int, ...]
    part_of: str | None = None
    """The index whose partitions a further part of a vector index uses."""

    def run(self, handle: LanceDataset) -> bytes:
        """The index as Lance knows it, pickled."""
        return pickle.dumps(self._build(handle))

    @staticmethod
    def result(given: bytes) -> Index:
        """What `run` gave."""
        index: Index = pickle.loads(given)  # noqa: S301 - from workers of this operation
        return index

    def _build(self, handle: LanceDataset) -> Index:
        # The name may be taken by the index that is replaced or extended: `replace` allows that.
        spec, fragments = self.spec, list(self.fragment_ids)
        shared: Any = {"name": self.name, "fragment_ids": fragments, "replace": True}
        match spec.kind:
            case "btree":
                return handle.create_index_uncommitted(spec.column, "BTREE", **shared)
            case "inverted":
                part = handle.create_index_uncommitted(spec.column, "INVERTED", **shared)
                # An unmerged part could be committed, but not searched.
                return handle.merge_existing_index_segments([part])
            case "vector":
                partitions = max(1, vector_count(handle, spec.column) // VECTORS_PER_PARTITION)
                centroids = None
                if self.part_of is not None:
                    # All parts use the same partitions, so only the first is trained.
                    centroids = handle.get_ivf_model(self.part_of).centroids
                    partitions = len(centroids)
                return handle.create_index_uncommitted(
                    spec.column,
                    "IVF_FLAT",
                    metric="L2",
                    num_partitions=partitions,
                    ivf_centroids=centroids,
                    **shared,
                )
