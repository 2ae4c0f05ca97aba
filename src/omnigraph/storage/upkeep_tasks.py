"""Tasks on one version of a table for any process: rewriting fragments, building indexes.

A task writes files that nothing refers to yet, and returns their description for a transaction. It
may be repeated in another process: the files of the first attempt stay unreferenced.
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
"""Small partitions, so that an approximate search reads few vectors; an exact one reads all."""


class UpkeepTask(Protocol):
    """One task; it can be pickled."""

    def run(self, handle: LanceDataset) -> bytes:
        """Run the task on the version of ``handle``."""
        ...


class UpkeepWorkers(Protocol):
    """Runs tasks: in this process, or on several workers."""

    @property
    def spread(self) -> int:
        """The number of tasks for one table, if it is large enough."""
        ...

    def run(self, handle: LanceDataset, tasks: Sequence[UpkeepTask]) -> list[bytes]:
        """The results of all tasks, in their order."""
        ...


class _ThisProcess:
    """Runs tasks one after another: Lance uses all cores for each."""

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
    """The number of rows with a vector."""
    vectors: int = handle.count_rows(f"`{column}` IS NOT NULL")
    return vectors


@dataclass(frozen=True, slots=True)
class RewriteFragments:
    """Writes the rows of some fragments into as few fragments as possible."""

    task: str
    """The task in Lance's JSON form."""

    def run(self, handle: LanceDataset) -> bytes:
        """The result in Lance's JSON form."""
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
    """Writes the files of an index over some fragments, or of a further part of one."""

    spec: IndexSpec
    name: str
    fragment_ids: tuple[int, ...]
    part_of: str | None = None
    """The vector index whose partitions a further part reuses."""

    def run(self, handle: LanceDataset) -> bytes:
        """The Lance index, pickled."""
        return pickle.dumps(self._build(handle))

    @staticmethod
    def result(given: bytes) -> Index:
        """What `run` gave."""
        index: Index = pickle.loads(given)  # noqa: S301 - from workers of this operation
        return index

    def _build(self, handle: LanceDataset) -> Index:
        # `replace` allows the name of the index that is replaced or extended.
        spec, fragments = self.spec, list(self.fragment_ids)
        shared: Any = {"name": self.name, "fragment_ids": fragments, "replace": True}
        match spec.kind:
            case "btree":
                return handle.create_index_uncommitted(spec.column, "BTREE", **shared)
            case "inverted":
                part = handle.create_index_uncommitted(spec.column, "INVERTED", **shared)
                # Without this merge a part could be committed, but not searched.
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
