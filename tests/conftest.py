"""Settings for the whole suite."""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import ssl
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling

from omnigraph.model.governor import container_limits
from tests.support.forked import GARBAGE_THRESHOLDS
from tests.support.prepared import prepare

# Tests kill processes, not machines: nothing here has to survive a loss of power, and flushing
# every file would be most of the suite's time. Tests of durability itself set it explicitly.
os.environ.setdefault("OMNIGRAPH_DURABILITY", "process")

# Of every JVM, also those that commands, clusters and executors start. Most end before a second
# compiler, threads that collect garbage and a check of Spark's bytecode pay off: a start takes half
# the processor time.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

# Almost all that collecting tests makes is kept: see `pytest_collection_finish`.
gc.disable()

# Every call of `httpx.get` would read the certificates of all authorities again.
setattr(ssl, "create_default_context", cache(ssl.create_default_context))  # noqa: B010

SPARK_PYTHON = Path(__file__).parent / "support" / "spark_python"

# No collection of garbage while Spark starts.
SPARK_JAVA = " ".join(
    [
        "-Xms512m",
        # The room that Java gives this compiler is too small for Spark: it would throw code away.
        "-XX:ReservedCodeCacheSize=240m",
        "-XX:MetaspaceSize=256m",
    ]
)

MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 8 << 30


def _keep_files_in_memory() -> bool:
    """Make a folder in memory the place of all files of tests, if there is room for them.

    Tests make many thousand small files: a file system with a journal takes a fifth of the suite's
    processor time, and makes tests wait. Of a folder that the caller names (`TMPDIR`), nothing
    changes.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_mount() or not os.access(MEMORY, os.W_OK):
        return False
    there = os.statvfs(MEMORY)
    free = there.f_bavail * there.f_frsize
    room = min([free, psutil.virtual_memory().available, *container_limits()])
    # Some tests write programs and run them.
    if room < MEMORY_BYTES_MIN or there.f_flag & os.ST_NOEXEC:
        return False
    folder = MEMORY / f"omnigraph-tests-{os.getuid()}"
    folder.mkdir(mode=0o755, exist_ok=True)  # tests run commands as other users
    # Processes that tests start find it there, too, and so do the workers of this run.
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    return True


IN_MEMORY = _keep_files_in_memory()

# Times depend on the machine, and some of our strategies build large values.
_calm = settings(
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.filter_too_much,
    ],
)
# `make test` looks at the same few examples in every run; `make test-long` searches.
settings.register_profile("small", _calm, max_examples=12, derandomize=True)
settings.register_profile("long", _calm, max_examples=500)
settings.load_profile("small")


# Each group has a Spark session of its own, and is run by one worker: those of queries and
# computations, and those of loads, streams and pipelines.
SPARK_GROUPS = (("spark_queries",), ("spark",))


def pytest_configure(config: pytest.Config) -> None:
    """Make once what each worker would make, before any is started; give each worker a core."""
    if getattr(config.option, "numprocesses", None):
        prepare(config)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None and config.getoption("--hypothesis-profile") != "long":
        _keep_to_one_core(int(worker.removeprefix("gw")))


def _keep_to_one_core(number: int) -> None:
    """Run a worker, and all it starts, on one core; workers take turns on each.

    Lance hands a request from thread to thread, and waking one on another core costs more than the
    request: a tenth of the processor time of tests in process. The long run has every core, so that
    processes and threads race as they can.
    """
    if sys.platform == "linux":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `make test-long` runs, form groups, and hand out what takes long first.

    One process runs all tests of a file that share a fixture, which several would make again. One
    process runs all of a group of Spark tests; it must not begin when the others are almost done.
    """
    if settings.get_current_profile_name() != "long":
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    for item in items:
        if not item.get_closest_marker("xdist_group") and _shares_fixture(item):
            file = re.sub(r"\W", "_", item.nodeid.partition("::")[0])
            item.add_marker(pytest.mark.xdist_group(file))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: (not _shares_session(item), not _takes_long(item)))


class Scheduling(LoadGroupScheduling):  # type: ignore[misc]
    """Hands tests out by groups, and forgets those that are done.

    The scheduler of pytest-xdist keeps them, and counts through all of them whenever a test ends:
    with thousands of tests that is a hundredth of the run.
    """

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a test, and its group with the last one of it."""
        name = self.registered_collections[node][item_index]
        group = self._split_scope(name)
        left = self.assigned_work[node][group]
        del left[name]
        if not left:
            del self.assigned_work[node][group]
        self._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """The scheduler of `--dist loadgroup`."""
    return Scheduling(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_finish() -> None:
    """Let the garbage collector forget what stays: all modules and thousands of tests.

    It would look at all of it again and again, a third of the time of small tests. As often as it
    runs by default, it takes another tenth. It looks at everything again when the process ends,
    where libraries report what is left, and not before: pytest collects five times when it is done.
    """
    atexit.register(gc.unfreeze)
    gc.freeze()
    gc.enable()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Free the memory of files that are of no use after a run without failures."""
    config: Any = session.config
    if IN_MEMORY and exitstatus == pytest.ExitCode.OK:
        shutil.rmtree(config._tmp_path_factory.getbasetemp(), ignore_errors=True)


def _shares_fixture(item: Any) -> bool:
    """Whether a test uses a fixture that is made once for all tests of its file."""
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    return any(found[-1].scope == "module" for found in fixtures)


def _shares_session(item: pytest.Item) -> bool:
    group = item.get_closest_marker("xdist_group")
    return group is not None and group.args in SPARK_GROUPS


def _takes_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("spark", "slow"))


@pytest.fixture
def patient_mcp_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the MCP client wait for the end of the program that it has started.

    After two seconds it kills the program, and later abandons it: a busy machine takes longer.
    """
    monkeypatch.setattr("mcp.client.stdio.PROCESS_TERMINATION_TIMEOUT", 60)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests of a process, small and quick to start."""
    from omnigraph.pipeline.spark.session import SessionSettings, build_session

    settings = SessionSettings(
        "local[2,4]",
        {
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            # Tests run many small jobs, each once: compiling code for them costs more than it
            # saves. Sessions that commands and clusters start compile it.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            # Every call on a column would tell the JVM from which line it comes, in ten more calls.
            "spark.python.sql.dataFrameDebugging.enabled": "false",
            # No test looks at the plans that Spark writes down for its pages.
            "spark.sql.ui.explainMode": "simple",
            "spark.driver.extraJavaOptions": SPARK_JAVA,
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        # Python processes of Spark are forked from some that have imported what they need.
        path = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SPARK_PYTHON), *([path] if path else [])]))
        session = build_session(settings.for_a_load())
    yield session
    session.stop()
