"""Starting Spark's Python workers before they are needed.

A worker takes a second or two until it has imported what a load runs in it. That is as long as
Spark needs to set up its SQL, and as a load needs to plan, so both are done at the same time.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

JOB_GROUP = "omnigraph-workers"
_WORKERS_MAX = 64
_OF_A_LOAD = ("omnigraph.loading.checks", "omnigraph.loading.staging", "pyarrow.parquet")

_started: threading.Thread | None = None


def start_workers(context: SparkContext) -> None:
    """Have a worker started for every slot; returns at once, and is silent if that fails."""
    global _started  # noqa: PLW0603 - as PySpark knows one context per process
    _started = threading.Thread(
        target=_start, args=(context,), name="omnigraph-workers", daemon=True
    )
    _started.start()


def await_workers(seconds_max: float | None = None) -> bool:
    """Wait until the workers of the latest session are there; whether they are, as far as known."""
    if _started is None:
        return True
    _started.join(seconds_max)
    return not _started.is_alive()


def _start(context: SparkContext) -> None:
    # Whoever stops the session meanwhile needs no workers, and what else is wrong a load will find.
    with suppress(Exception):
        slots = min(context.defaultParallelism, _WORKERS_MAX)
        context.setJobGroup(JOB_GROUP, "Omnigraph: starting workers")
        context.parallelize(range(slots), slots).foreach(_import)


def _import(_: Any) -> None:
    """In a worker: what the workers of a load import."""
    for name in _OF_A_LOAD:
        import_module(name)
