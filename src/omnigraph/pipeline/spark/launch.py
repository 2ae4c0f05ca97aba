"""Starting Spark's JVM without scripts: silent, and gone when this process is gone.

The usual start runs a shell script and a second JVM that only prints the command of the first. Here
the command is written down, all output goes to a file, and the classes Spark needs come from an
archive if there is one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from omnigraph.errors import InputError, StorageError
from omnigraph.pipeline.spark.class_archive import ClassArchive, archive_for, recording
from omnigraph.pipeline.spark.java import Java
from omnigraph.pipeline.spark.java_failures import reason_of

START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 20
RECORD_SECONDS_MAX = 600
"""Writing an archive takes a JVM ten seconds, and longer where it has to stand back."""

# What Spark and Arrow reach into, by the Java module system's own spelling.
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)

_CONNECTION = "connection"

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c: %m%n%ex
"""


@dataclass(slots=True)
class Jvm:
    """A running JVM with Spark in it."""

    process: subprocess.Popen[bytes]
    directory: Path
    """Scratch of this JVM: its log, and what Spark spills."""
    port: int = 0
    secret: str = ""
    lacks: ClassArchive | None = None
    """The archive that would have made its start shorter, if it was not there."""
    records: Path | None = None
    """Where it writes such an archive when it ends, if it does."""

    @property
    def log(self) -> Path:
        """Everything the JVM printed."""
        return self.directory / "spark.log"

    @property
    def said(self) -> str:
        """What the JVM printed so far."""
        try:
            return self.log.read_text(errors="replace")
        except OSError:
            return ""

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def stop(self) -> bool:
        """End it; whether it ended by itself, and well."""
        self._hang_up()
        patience = STOP_SECONDS_MAX if self.records is None else RECORD_SECONDS_MAX
        try:
            return self.process.wait(patience) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, if it still runs, and remove what it left."""
        self.process.kill()
        self.process.wait()
        self._hang_up()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _hang_up(self) -> None:
        if self.process.stdin is not None:
            # The JVM reads until its input ends, so it also goes when this process is killed.
            with contextlib.suppress(OSError):
                self.process.stdin.close()


def start_jvm(
    java: Java,
    conf: Mapping[str, str],
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    records: Path | None = None,
) -> Jvm:
    """Start Spark's JVM with a configuration; `await_jvm` says when it can be used.

    ``records`` is where it writes an archive of its classes when it ends, instead of using one.
    """
    settings = dict(os.environ if environment is None else environment)
    libraries = class_path(settings)
    memory = conf["spark.driver.memory"]
    archive = archive_for(java, libraries, memory=memory, options=options, environment=settings)
    use = [] if archive is None or records is not None else archive.use()
    lacks = None if use or records is not None else archive
    directory = Path(tempfile.mkdtemp(prefix="omnigraph-spark-"))
    (directory / "log4j2.properties").write_text(_LOG4J)
    command = [
        str(java.executable),
        "-cp",
        os.pathsep.join(libraries),
        f"-Xmx{memory}",
        "-XX:+IgnoreUnrecognizedVMOptions",
        *use,
        *([] if records is None else recording(java, records)),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        "--sun-misc-unsafe-memory-access=allow",
        "--enable-native-access=ALL-UNNAMED",
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        f"-Dlog4j2.configurationFile=file:{directory / 'log4j2.properties'}",
        f"-Djava.io.tmpdir={directory}",
        *options,
        "org.apache.spark.deploy.SparkSubmit",
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
        "--conf",
        f"spark.local.dir={directory}",
        "pyspark-shell",
    ]
    with (directory / "spark.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={
                **settings,
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(directory / _CONNECTION),
                "SPARK_CONNECT_MODE": "0",
                "SPARK_HOME": _home_for(conf, settings, directory),
                "JAVA_HOME": str(java.executable.resolve().parents[1]),
                # Otherwise executors on this machine are looked for in a build of Spark.
                "SPARK_SCALA_VERSION": _scala_version(settings),
                "SPARK_LOCAL_IP": settings.get("SPARK_LOCAL_IP", "127.0.0.1"),
                "PYSPARK_PYTHON": settings.get("PYSPARK_PYTHON", sys.executable),
            },
            # Ctrl-C is for us to handle: the JVM would drop the connection we cancel through.
            process_group=0,
        )
    return Jvm(process, directory, lacks=lacks, records=records)


def await_jvm(jvm: Jvm) -> None:
    """Wait until a JVM that was started can be used; raises `StorageError` with its reason."""
    connection = jvm.directory / _CONNECTION
    deadline = time.monotonic() + START_SECONDS_MAX
    while not connection.exists():
        if not jvm.is_alive or time.monotonic() > deadline:
            raise StorageError(
                f"Spark did not start: {reason_of(jvm.said) or 'its JVM said nothing'}",
                hint="check JAVA_HOME and the Spark settings",
            )
        time.sleep(0.02)
    with connection.open("rb") as stream:
        # As PySpark reads it: the port, then a text with its length in front.
        jvm.port, length = struct.unpack("!ii", stream.read(8))
        jvm.secret = stream.read(length).decode()


def _home() -> Path:
    # Importing it takes as long as the JVM needs to come up, and can be done meanwhile.
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _home_for(conf: Mapping[str, str], settings: Mapping[str, str], directory: Path) -> str:
    """Spark's own folder; for executors on this machine a double, which they may write to."""
    home = Path(settings.get("SPARK_HOME") or _home())
    if not conf["spark.master"].startswith("local-cluster"):
        return str(home)
    double = directory / "home"
    double.mkdir()
    for name in ("bin", "jars", "python"):
        if (home / name).exists():
            (double / name).symlink_to(home / name)
    return str(double)


def _scala_version(environment: Mapping[str, str]) -> str:
    core = next(name for name in map(Path, class_path(environment)) if "spark-core_" in name.name)
    return core.name.removeprefix("spark-core_").partition("-")[0]


def class_path(environment: Mapping[str, str]) -> list[str]:
    """Spark's libraries, in the order they are searched."""
    home = Path(environment["SPARK_HOME"]) if "SPARK_HOME" in environment else _home()
    jars = sorted((home / "jars").glob("*.jar"))
    if not jars:
        raise InputError(
            f"there are no Spark libraries in {home / 'jars'}", hint="unset SPARK_HOME"
        )
    # Otherwise a bridge of the same package is found first, and logging falls silent with a scream.
    jars.sort(key=lambda jar: not jar.name.startswith("slf4j-api"))
    configured = [environment[name] for name in ("HADOOP_CONF_DIR",) if environment.get(name)]
    return [*configured, *map(str, jars)]
