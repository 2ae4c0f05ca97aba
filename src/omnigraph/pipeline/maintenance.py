"""Upkeep on Spark: fragments are rewritten and indexes built by executors.

The driver plans, stages the transactions and publishes once, as it does in process; see
`upkeep/optimize.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.effects.uri import Root
from omnigraph.loading.executors import TaskRunner
from omnigraph.model.load_options import SparkOptions
from omnigraph.pipeline.spark.session import SessionSettings, SparkWhenNeeded
from omnigraph.storage.upkeep_tasks import UpkeepTask, run_at

if TYPE_CHECKING:
    from lance import LanceDataset


class SparkWorkers:
    """Runs the tasks of upkeep as a job each; the session starts with the first one."""

    def __init__(self, root: Root, session: SparkWhenNeeded, operation_id: str) -> None:
        self._options = root.storage_options() or None
        self._session = session
        self._runner = TaskRunner(session, operation_id, work="upkeep")

    @property
    def spread(self) -> int:
        """As many tasks as run at a time, and two at least."""
        return max(2, self._session.slots)

    def run(self, handle: LanceDataset, tasks: Sequence[UpkeepTask]) -> list[bytes]:
        """The results of all tasks, in their order."""
        options, address, version, given = self._options, handle.uri, handle.version, list(tasks)

        def work(number: int) -> bytes:
            return run_at(address, version, given[number], options)

        return self._runner.map_workers("upkeep", _label(handle), len(given), work)


def _label(handle: LanceDataset) -> str:
    return handle.uri.rsplit("/", 1)[-1]


@contextmanager
def spark_workers(root: Root, options: SparkOptions, operation_id: str) -> Iterator[SparkWorkers]:
    """Workers of the session that is given or active, or of one that ends with the block."""
    settings = SessionSettings.of(os.environ, master=options.master, conf=options.conf)
    with SparkWhenNeeded(options.session, settings) as session:
        yield SparkWorkers(root, session, operation_id)
