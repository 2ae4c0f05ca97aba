"""Spark sessions: an existing one is used and left running, one that is built here is stopped.

Sessions are searched in this order: the one passed in, the active one, one built from the settings.
The JVM of built sessions runs until this process ends, so that a second session starts in a
fraction of a second.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from omnigraph.errors import InputError, StorageError, install_command
from omnigraph.model.records import dataclass
from omnigraph.pipeline.spark.gateway import (
    JVM_OPTIONS,
    Jvm,
    interrupts_first,
    jvm_has_ended,
    own_interrupts,
    start_jvm,
)
from omnigraph.pipeline.spark.java import Java, find_java, reason_of
from omnigraph.pipeline.spark.workers import require_same_versions, start_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_VARIABLE = "OMNIGRAPH_SPARK_MASTER"
CONF_PREFIX = "OMNIGRAPH_SPARK_CONF_"
"""`OMNIGRAPH_SPARK_CONF_spark_executor_memory=2g` sets `spark.executor.memory`."""

DEFAULT_MASTER = "local[*,4]"
"""Four attempts per task: plain `local[*]` never retries."""

_DEFAULTS = {
    "spark.app.name": "omnigraph",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    # Spark sets these for `mapInArrow`. With the same environment, RDD jobs reuse these workers,
    # and their errors have one line too.
    "spark.executorEnv.SPARK_HIDE_TRACEBACK": "1",
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
}
_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A task starts 40 ms sooner than over TCP with its delayed acknowledgements.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a session is built when none is found."""

    master: str = DEFAULT_MASTER
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of the user; they override the defaults."""

    @classmethod
    def of(
        cls,
        environment: Mapping[str, str],
        *,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> SessionSettings:
        """The settings of the environment, overridden by the arguments."""
        from_environment = {
            name.removeprefix(CONF_PREFIX).replace("_", "."): value
            for name, value in environment.items()
            if name.startswith(CONF_PREFIX)
        }
        chosen_conf = {**from_environment, **(conf or {})}
        named = chosen_conf.pop("spark.master", None)
        chosen = master or named or environment.get(MASTER_VARIABLE) or DEFAULT_MASTER
        return cls(_retrying(chosen), chosen_conf)

    @property
    def is_local(self) -> bool:
        """Whether Spark runs in one JVM on this machine."""
        return self.master.startswith("local[") or self.master == "local"

    @property
    def is_connect(self) -> bool:
        """Whether the master is a server of Spark Connect."""
        return self.master.startswith("sc://")

    def for_a_load(self) -> SessionSettings:
        """These settings, by default with the C1 compiler only: the JVM starts sooner, and a load
        is too little work for C2 to pay off."""
        return replace(self, conf={JVM_OPTIONS: "-XX:TieredStopAtLevel=1", **self.conf})

    def complete(self) -> dict[str, str]:
        """Every setting of the session."""
        local = _LOCAL_DEFAULTS if self.master.startswith("local") else {}
        partitions = {"spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1))}
        sized = partitions if self.is_local else {}
        return {"spark.master": self.master, **_DEFAULTS, **local, **sized, **self.conf}


def _retrying(master: str) -> str:
    """A local master with four attempts per task, unless it names a number."""
    if master == "local":
        return "local[1,4]"
    if re.fullmatch(r"local\[(\*|\d+)\]", master):
        return f"{master[:-1]},4]"
    return master


def parse_conf(settings: Sequence[str]) -> dict[str, str]:
    """Settings written as ``name=value``."""
    conf = {}
    for text in settings:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise InputError(
                f"'{text}' is not a Spark setting",
                hint="write it as name=value, for example spark.executor.memory=2g",
            )
        conf[name.strip()] = value.strip()
    return conf


@contextmanager
def spark_session(
    spark: SparkSession | None = None, settings: SessionSettings | None = None
) -> Iterator[SparkSession]:
    """The session to use in a block.

    Raises `InputError` without PySpark or Java, and for a Spark Connect session.
    """
    wanted = settings or SessionSettings.of(os.environ)
    given = existing_session(spark, wanted)
    if given is not None:
        yield given
        return
    built = build_session(wanted.for_a_load())
    try:
        yield built
    finally:
        stop_session(built)


def stop_session(session: SparkSession) -> None:
    """Stop a session that was built here, even if its JVM has ended."""
    with interrupts_first():
        if jvm_has_ended():
            _forget_session()
        else:
            session.stop()


class SparkWhenNeeded:
    """The session of one operation: an existing one, or one that is built on first use.

    Starting a JVM takes seconds: planning a bad input fails before that.
    """

    def __init__(self, spark: SparkSession | None, settings: SessionSettings) -> None:
        self._found = _given_or_active(spark, settings)
        self._settings = settings
        self._session: SparkSession | None = None
        self._used = ExitStack()

    def __enter__(self) -> SparkWhenNeeded:
        return self

    def __exit__(self, *_: object) -> None:
        self._used.close()

    def get(self) -> SparkSession:
        """The session; raises as `spark_session` does."""
        if self._session is None:
            found = spark_session(self._found, self._settings)
            self._session = self._used.enter_context(found)
        return self._session

    @property
    def is_running(self) -> bool:
        """Whether the session exists already."""
        return self._session is not None or self._found is not None

    @property
    def is_local(self) -> bool:
        """Whether Spark runs in one JVM on this machine."""
        if self._found is None:
            return self._settings.is_local
        return (self._found.sparkContext.master or "").startswith("local[")

    @property
    def slots(self) -> int:
        """How many tasks run at a time."""
        if self._session is None and self._found is None and self._settings.is_local:
            return os.cpu_count() or 1
        return self.get().sparkContext.defaultParallelism


def existing_session(spark: SparkSession | None, settings: SessionSettings) -> SparkSession | None:
    """The session passed in or the active one; None if there is neither.

    Raises `InputError` for a session, or a master, of Spark Connect.
    """
    found = _given_or_active(spark, settings)
    if found is not None and not (found.sparkContext.master or "").startswith("local["):
        require_same_versions(found)
    return found


def _given_or_active(spark: SparkSession | None, settings: SessionSettings) -> SparkSession | None:
    if spark is None and settings.is_connect:
        # Even if another session is active: the caller asked for this master.
        raise _no_connect(f"master '{settings.master}'")
    found = spark if spark is not None else _active()
    if found is not None:
        require_classic(found)
    return found


def lasting_session(spark: SparkSession | None, settings: SessionSettings) -> SparkSession:
    """A session for a frame; one built here ends with the process, not with the call.

    It may be one of Spark Connect, since the data source needs no Spark context.
    """
    if spark is None and settings.is_connect:
        return _connected(settings)
    return spark or _active() or build_session(settings)


def query_session(spark: SparkSession | None, settings: SessionSettings) -> SparkSession:
    """A session for a query, whose rows may be fetched later; one built here ends with the
    process. Raises as `spark_session` does."""
    return existing_session(spark, settings) or build_session(settings)


def _active() -> SparkSession | None:
    # If PySpark was not imported, there is no session in this process.
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    if jvm_has_ended():
        _forget_session()
        return None
    return SparkSession.getActiveSession()


def _forget_session() -> None:
    """Clear PySpark's reference to a session whose JVM has ended, so that another can be built."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext
    _quieten(context._active_spark_context)
    context._active_spark_context = context._gateway = context._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def require_classic(spark: Any) -> None:
    """Raise `InputError` for a session of Spark Connect."""
    if not hasattr(spark, "_jsparkSession"):
        raise _no_connect("this session")


def _no_connect(what: str) -> InputError:
    return InputError(
        f"{what} is Spark Connect, which has no Spark context: loads, queries, computations,"
        " embedding, `stream_into`, pipelines and upkeep schedule and cancel their jobs through it",
        hint='read and write frames and streams with format("omnigraph"), which Spark Connect can,'
        " or use a local[*], spark://, yarn or k8s:// master",
    )


CONNECT_PORT = 15002
"""The default port of a Spark Connect server."""


def _connected(settings: SessionSettings) -> SparkSession:
    """A session of a running server; raises `InputError` if the client library is missing,
    `StorageError` if the server does not reply."""
    require_pyspark()
    if find_spec("grpc") is None:
        raise InputError(
            "Spark Connect needs the client of PySpark, which is not installed",
            hint="pip install 'pyspark[connect]'",
        )
    server = urlsplit(settings.master)
    # The client itself would retry for minutes.
    failure = _connection_failure(server.hostname or "", server.port or CONNECT_PORT)
    if failure is not None:
        raise StorageError(
            f"no Spark Connect server answers at {settings.master}: {failure}",
            hint="is it running, and is its port reachable from here?",
        )
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(settings.master).getOrCreate()


# --- building -------------------------------------------------------------------------------------

_lock = threading.Lock()
_jvm: Jvm | None = None


def build_session(settings: SessionSettings) -> SparkSession:
    """A new session; the caller stops it."""
    if settings.is_connect:
        raise _no_connect(f"master '{settings.master}'")
    require_pyspark()
    java = find_java(os.environ)
    require_master(settings.master)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    conf = settings.complete()
    with _lock:
        _ensure_jvm(java, conf)
        session = _started(settings, conf)
    if not settings.is_local:
        try:
            require_same_versions(session)
        except BaseException:
            session.stop()
            raise
    return session


def require_pyspark() -> None:
    """Raise `InputError` if PySpark is not installed; does not import it."""
    if find_spec("pyspark") is None:
        raise InputError(
            "bulk jobs need PySpark, which is not installed", hint=install_command("spark")
        )


def _started(settings: SessionSettings, conf: Mapping[str, str]) -> SparkSession:
    """A session in the running JVM; raises `StorageError` if Spark refuses the settings."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        with interrupts_first():
            with own_interrupts():
                context = SparkContext.getOrCreate(SparkConf().setAll([*conf.items()]))
            _quieten(context)
            if settings.is_local:
                # Workers start in the background while the next line sets up SQL.
                start_workers(context)
            return SparkSession.builder.config(map={**conf}).getOrCreate()
    except BaseException as error:
        # Some exceptions fetch their text from the JVM, so read it while the JVM runs.
        text = str(error)
        reason = reason_of(text, "" if _jvm is None else _jvm.printed)
        with suppress(Exception):
            if SparkContext._active_spark_context is not None:
                SparkContext._active_spark_context.stop()
        # The JVM has the wrong settings, or is still starting the context.
        end_jvm(at_once=True)
        if not isinstance(error, (Py4JError, PySparkException, ConnectionError)):
            raise
        raise StorageError(
            f"Spark did not start on {settings.master}: {reason}",
            hint="check the Spark settings, and the log of the master if it is another machine",
        ) from RuntimeError(text)


def _ensure_jvm(java: Java, conf: Mapping[str, str]) -> None:
    """Start the JVM of this process, unless it is running."""
    global _jvm  # noqa: PLW0603 - PySpark has one JVM per process
    if _jvm is not None and _jvm.is_alive:
        return
    if _jvm is None:
        atexit.register(end_jvm)
    else:
        _jvm.kill()
    from pyspark import SparkContext

    started = start_jvm(java, conf)
    context: Any = SparkContext
    context._gateway, context._jvm = started.gateway, started.gateway.jvm
    _jvm = started


def end_jvm(*, at_once: bool = False) -> None:
    """Stop the JVM of this process, if there is one; ``at_once`` kills it."""
    global _jvm
    ending, _jvm = _jvm, None
    if ending is None:
        return
    from pyspark import SparkContext

    # Py4J logs errors when objects are garbage-collected after the JVM has ended, and reports
    # interrupted calls to the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    context: Any = SparkContext
    _quieten(context._active_spark_context)
    if at_once:
        ending.kill()
    else:
        ending.stop()
    context._gateway = context._jvm = None


def _quieten(context: Any) -> None:
    accumulators = getattr(context, "_accumulatorServer", None)
    if accumulators is not None:
        # The accumulator thread would print an error when the JVM closes the connection.
        accumulators.handle_error = lambda *_: None


# --- masters --------------------------------------------------------------------------------------

ANSWER_SECONDS_MAX = 5.0
"""Connection timeout per machine of a cluster."""

_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(\s*,\s*\d+)?\])?")
_EXECUTORS_HERE = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
_MACHINE = re.compile(r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^\s:/@?#\[\]]+):(?P<port>\d{1,5})")
_CLUSTER = "spark://"


def require_master(master: str) -> None:
    """Raise `InputError` for a malformed master, `StorageError` for one that does not reply.

    Spark itself would wait for a minute without a message. YARN and Kubernetes masters are not
    checked, since their addresses come from Spark's own configuration.
    """
    if master.startswith("local"):
        if not (_LOCAL.fullmatch(master) or _EXECUTORS_HERE.fullmatch(master)):
            raise _malformed(master, "local[4] runs four tasks at a time, local[*] one a core")
    elif master.startswith(_CLUSTER):
        _require_answer(master)


def _require_answer(master: str) -> None:
    machines = master.removeprefix(_CLUSTER).split(",")
    reasons = [_connection_failure(*_address(master, machine)) for machine in machines]
    if None not in reasons:
        raise StorageError(
            f"no Spark master answers at {master}: {reasons[0]}",
            hint="is it running, and is its port reachable from here?"
            " its own page shows the address it has",
        )


def _address(master: str, machine: str) -> tuple[str, int]:
    found = _MACHINE.fullmatch(machine)
    if found is None or not 0 < int(found["port"]) < 1 << 16:
        raise _malformed(master, "write it as spark://host:port, for example spark://master:7077")
    return found["host"].strip("[]"), int(found["port"])


def _connection_failure(host: str, port: int) -> str | None:
    """Why the connection failed; None if it succeeded."""
    try:
        socket.create_connection((host, port), ANSWER_SECONDS_MAX).close()
    except (OSError, UnicodeError) as error:
        # `UnicodeError`: a host name that cannot be encoded.
        return (getattr(error, "strerror", None) or str(error)).lower()
    return None


def _malformed(master: str, hint: str) -> InputError:
    return InputError(f"'{master}' is not a Spark master", hint=hint)
