"""Spark's Python workers: started early, with the same software versions as the driver.

A worker needs a second or two to import the modules of a load. They start in the background while
Spark sets up SQL and the load is planned.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InputError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

JOB_GROUP = "omnigraph-workers"
_WORKERS_MAX = 64
_IMPORTED_BY_LOADS = ("omnigraph.loading.checks", "omnigraph.loading.staging", "pyarrow.parquet")

_started: threading.Thread | None = None


def start_workers(context: SparkContext) -> None:
    """Start a worker for every slot in the background; ignores failures."""
    global _started  # noqa: PLW0603 - PySpark has one context per process
    _started = threading.Thread(
        target=_start, args=(context,), name="omnigraph-workers", daemon=True
    )
    _started.start()


def await_workers(seconds_max: float | None = None) -> bool:
    """Wait until the workers of the latest session have started; False on timeout."""
    if _started is None:
        return True
    _started.join(seconds_max)
    return not _started.is_alive()


def _start(context: SparkContext) -> None:
    # The session may be stopped meanwhile; any other failure will show up in the load itself.
    with suppress(Exception):
        slots = min(context.defaultParallelism, _WORKERS_MAX)
        context.setJobGroup(JOB_GROUP, "Omnigraph: starting workers")
        context.parallelize(range(slots), slots).foreach(_import)


def _import(_: Any) -> None:
    """Import the modules of a load; runs in a worker."""
    for name in _IMPORTED_BY_LOADS:
        import_module(name)


# --- versions -------------------------------------------------------------------------------------


def require_same_versions(spark: SparkSession) -> None:
    """Raise `InputError` if executors have other versions: they might write other file formats.

    Also raised if executors lack a package, or a Python at the path of `PYSPARK_PYTHON`.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    context = spark.sparkContext
    slots = max(1, min(context.defaultParallelism, _WORKERS_MAX))
    try:
        found = context.parallelize(range(slots), slots).map(lambda _: _versions()).collect()
    except (PySparkException, Py4JError) as error:
        missing = missing_on_executors(str(error))
        if missing is None:
            raise
        raise InputError(missing, hint=_HOW_TO_INSTALL) from error
    compare_versions(_versions(), found)


_HOW_TO_INSTALL = (
    "install the driver's versions of Omnigraph and its packages on every executor, or send them an"
    " archive with PYSPARK_PYTHON and spark.archives: docs/guide/spark-cluster.md has the commands"
)
_NO_MODULE = re.compile(r"No module named '(?P<name>\w+)")
_NO_PYTHON = re.compile(r'Cannot run program "(?P<path>[^"]+)"')


def missing_on_executors(text: str) -> str | None:
    """The package or Python that executors lack by an error of Spark; None for other errors."""
    if module := _NO_MODULE.search(text):
        return f"executors have no Python package '{module['name']}'"
    if python := _NO_PYTHON.search(text):
        return f"executors have no Python at '{python['path']}'"
    return None


def compare_versions(driver: Mapping[str, str], executors: Sequence[Mapping[str, str]]) -> None:
    """Raise `InputError` naming both versions of the first program that differs."""
    for found in executors:
        for program, version in driver.items():
            if found.get(program) != version:
                raise InputError(
                    f"executors have {program} {found.get(program)}, the driver has {version}",
                    hint="install the same versions on both",
                    details={"program": program, "driver": version, "executor": found},
                )


def _versions() -> dict[str, str]:
    import lance
    import pyarrow

    from omnigraph import __version__

    return {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "lance": str(lance.__version__),
        "pyarrow": str(pyarrow.__version__),
        "omnigraph": __version__,
    }
