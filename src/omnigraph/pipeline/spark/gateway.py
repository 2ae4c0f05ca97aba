"""Spark's JVM, started through PySpark and stopped with this process.

Its output goes to a file, which is read if the start fails. Ctrl-C while Python waits for the JVM
is raised as `KeyboardInterrupt`, and nothing is printed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.errors import StorageError
from omnigraph.model.records import dataclass
from omnigraph.pipeline.spark.java import Java, reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

STOP_SECONDS_MAX = 20

RECONNECT_TRIES = 10
RECONNECT_SECONDS = 0.1

CHECK_SECONDS = 0.1
CANCEL_SECONDS = 10.0

JVM_OPTIONS = "spark.driver.extraJavaOptions"

_JAVA = """\
#!/bin/sh
for word; do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


@dataclass(slots=True)
class Jvm:
    """A running JVM with Spark in it."""

    gateway: Any
    """PySpark's connection to the JVM."""
    directory: Path
    """The log of this JVM and Spark's spill files."""

    @property
    def printed(self) -> str:
        """The output of the JVM so far."""
        return _text(self.directory / "spark.log")

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return bool(self.gateway.proc.poll() is None)

    def stop(self) -> None:
        """Stop it; kill it after `STOP_SECONDS_MAX`."""
        self._disconnect()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.gateway.proc.wait(STOP_SECONDS_MAX)
        self.kill()

    def kill(self) -> None:
        """Kill it if it is running, and delete its directory."""
        self._disconnect()
        self.gateway.proc.kill()
        self.gateway.proc.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _disconnect(self) -> None:
        with contextlib.suppress(Exception):
            self.gateway.shutdown()
        # The JVM exits when its stdin is closed, which also happens when this process is killed.
        with contextlib.suppress(OSError):
            self.gateway.proc.stdin.close()


def start_jvm(java: Java, conf: Mapping[str, str]) -> Jvm:
    """Start Spark's JVM with a configuration; raises `StorageError` with the reason if it fails."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    directory = Path(tempfile.mkdtemp(prefix="omnigraph-spark-"))
    options = [f'"-Djava.io.tmpdir={directory}"', conf.get(JVM_OPTIONS, "")]
    here = {"spark.local.dir": str(directory), JVM_OPTIONS: " ".join(options).strip()}
    launched = SparkConf(loadDefaults=False).setAll([*{**conf, **here}.items()])
    environment = {
        "JAVA_HOME": str(_java_home(java, directory)),
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
    }
    log = directory / "spark.log"
    launch: Any = launch_gateway
    with log.open("wb") as out, _environment(environment), warnings.catch_warnings():
        # PySpark passes a `preexec_fn`, so Lance warns of a fork; the child executes Java and never
        # uses Lance.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            gateway = launch(launched, {"stdout": out, "stderr": out})
        except BaseException as error:
            # Only these frames refer to the process; clearing them closes its stdin and ends it.
            traceback.clear_frames(error.__traceback__)
            reason = reason_of(_text(log)) or "its JVM printed nothing"
            shutil.rmtree(directory, ignore_errors=True)
            if not isinstance(error, PySparkException):
                raise
            raise StorageError(
                f"Spark did not start: {reason}", hint="check JAVA_HOME and the Spark settings"
            ) from None
    return Jvm(gateway, directory)


def _java_home(java: Java, directory: Path) -> Path:
    """A folder with a `bin/java` that starts ``java`` without the option for an incubator module.

    Spark always passes that option. A small runtime, such as the bundled one, lacks the module,
    which no load needs, and would not start.
    """
    program = directory / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_JAVA.format(java=shlex.quote(str(java.executable.resolve()))))
    program.chmod(0o755)
    return program.parents[1]


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes started in a block."""
    # By default Spark's workers run the first `python3` of the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _text(log: Path) -> str:
    try:
        return log.read_text(errors="replace")
    except OSError:
        return ""


# --- loss ---------------------------------------------------------------------------------------


def jvm_has_ended() -> bool:
    """Whether the JVM that PySpark was connected to has ended, for instance by lack of memory."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def is_loss(error: BaseException) -> bool:
    """Whether an error means that the JVM has ended or no longer replies."""
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

    if isinstance(error, (ConnectionError, Py4JNetworkError)):
        return True
    return isinstance(error, Py4JError) and jvm_has_ended()


def spark_stopped(work: str) -> StorageError:
    """The error of an operation whose JVM ended."""
    return StorageError(f"Spark stopped while the {work} was running", hint=f"repeat the {work}")


def checkpoint_copies(context: Any) -> Any:
    """The storage level of a checkpoint in executors, for a context without a checkpoint directory.

    Two executors hold each partition, so that one may be lost. A local JVM is driver and executor
    at once: it holds one copy, since both end together.
    """
    from pyspark import StorageLevel

    is_local = (context.master or "").startswith("local[")
    return StorageLevel.MEMORY_AND_DISK if is_local else StorageLevel.MEMORY_AND_DISK_2


def lost_checkpoint(text: str, work: str) -> StorageError | None:
    """The error of an operation that lost a checkpoint with its executors; None for other texts."""
    if _LOST_CHECKPOINT not in text:
        return None
    return StorageError(
        f"the {work} lost intermediate results with the executors that kept them",
        hint="set spark.checkpoint.dir to a directory that the driver and all executors reach, for"
        f" example --spark-conf spark.checkpoint.dir=hdfs:///checkpoints (spark=SparkOptions("
        f'conf={{"spark.checkpoint.dir": …}})), and repeat the {work}',
    )


_LOST_CHECKPOINT = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


@contextmanager
def loss_named(work: str) -> Iterator[None]:
    """Raise the loss of the JVM during a block as a `StorageError` that names ``work``."""
    with _silent(_NoLosses()):
        try:
            yield
        except Exception as error:
            if not is_loss(error):
                raise
            raise spark_stopped(work) from error


# --- jobs -----------------------------------------------------------------------------------------


def run_group(
    spark: SparkSession,
    action: Callable[[], T],
    *,
    group: tuple[str, str],
    work: str,
    check: Callable[[], None],
    translated: Callable[[BaseException], BaseException],
) -> T:
    """The result of ``action``, which may start any number of jobs.

    They are one ``group``, an id with a description. ``check`` is called while they run. If it
    raises, or on Ctrl-C, the group is cancelled; the session stays usable. A failure of the action
    is raised as ``translated`` says, and the end of the JVM as `StorageError`, which calls the
    action ``work``.
    """
    from pyspark import inheritable_thread_target

    done: list[T] = []
    failed: list[BaseException] = []
    context = spark.sparkContext

    def run() -> None:
        try:
            context.setJobGroup(*group, interruptOnCancel=True)
            done.append(action())
        except BaseException as error:
            failed.append(error)

    with loss_named(work):
        target = inheritable_thread_target(spark)(run)
    thread = threading.Thread(target=target, name=f"omnigraph-{work}", daemon=True)
    thread.start()
    try:
        with interrupts_first(), loss_named(work):
            while thread.is_alive():
                thread.join(CHECK_SECONDS)
                check()
    except BaseException:
        with contextlib.suppress(Exception):
            context.cancelJobGroup(group[0])
        thread.join(CANCEL_SECONDS)
        raise
    if failed:
        raise translated(failed[0])
    return done[0]


# --- Ctrl-C ---------------------------------------------------------------------------------------

_LOGGERS = (None, "py4j.java_gateway", "py4j.clientserver")
"""The loggers to which Py4J reports interrupts and losses: mostly the root logger."""


@contextmanager
def interrupts_first() -> Iterator[None]:
    """Raise Ctrl-C in a block as `KeyboardInterrupt`, even if Py4J replaced it.

    Py4J closes its connection when it is interrupted. If the connection is closed already, that
    raises another error, which would hide the interrupt. The block ends with a working connection.
    """
    with _silent(_NoInterrupts()):
        try:
            yield
        except BaseException as error:
            if not _is_interrupted(error):
                raise
            _reconnect()
            raise KeyboardInterrupt from None


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep this process's SIGINT handler if a Spark context is created in the block.

    Spark's handler would call the JVM in the middle of the interrupted call. Loads cancel their
    jobs themselves.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and before is not None:
            signal.signal(signal.SIGINT, before)


def _reconnect() -> None:
    """Call the JVM until a call succeeds.

    Py4J asks the JVM to close the interrupted connection. The JVM may close others too, even the
    next one opened, and a call on that one, such as stopping the session, would fail.
    """
    from pyspark import SparkContext

    if SparkContext._jvm is None:
        return
    for _ in range(RECONNECT_TRIES):
        with contextlib.suppress(Exception):
            SparkContext._jvm.java.lang.System.nanoTime()
            return
        time.sleep(RECONNECT_SECONDS)


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether `KeyboardInterrupt` is in the chain of an error."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


@contextmanager
def _silent(quiet: logging.Filter) -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(quiet)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(quiet)


class _NoInterrupts(logging.Filter):
    """Drops Py4J's log records of interrupts; one instance per block, as blocks may overlap."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not ("py4j" in record.pathname and _is_interrupted(error))


class _NoLosses(logging.Filter):
    """Drops Py4J's log records of a lost connection."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not ("py4j" in record.pathname and error is not None and is_loss(error))
