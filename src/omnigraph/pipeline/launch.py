"""Starting Spark's JVM without scripts: silent, and gone when this process is gone.

The usual start runs a shell script and a second JVM that only prints the command of the first. Here
the command is written down, all output goes to a file, and the classes Spark needs are kept in an
archive of the user's cache, which halves the time of every start but the first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from omnigraph.errors import InputError, StorageError
from omnigraph.pipeline.java import Java

ARCHIVE_VARIABLE = "OMNIGRAPH_SPARK_ARCHIVE"
"""`off` keeps Spark from making and using an archive of its classes."""

START_SECONDS_MAX = 120

# What Spark and Arrow reach into, by the Java module system's own spelling.
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c: %m%n%ex
"""

# Runs the JVM, and only if it ended well keeps the archive it wrote while ending.
_KEEP_ARCHIVE = 'new="$1"; kept="$2"; shift 2; "$@" && mv -f "$new" "$kept" || rm -f "$new"'


@dataclass(slots=True)
class Jvm:
    """A running JVM with Spark in it."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str
    directory: Path
    """Scratch of this JVM: its log, and what Spark spills."""
    makes_archive: bool

    @property
    def log(self) -> Path:
        """Everything the JVM printed."""
        return self.directory / "spark.log"

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End it; an archive is finished in the background."""
        if self.process.stdin is not None:
            # The JVM reads until its input ends, so it also goes when this process is killed.
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        if self.makes_archive:
            # It takes its time, and we do not: nobody is to wait for it, or to warn of it.
            self.process.returncode = 0
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            if self.is_alive:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def start_jvm(
    java: Java,
    conf: Mapping[str, str],
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Jvm:
    """Start Spark's JVM with a configuration; raises `StorageError` with its last words."""
    settings = dict(os.environ if environment is None else environment)
    directory = Path(tempfile.mkdtemp(prefix="omnigraph-spark-"))
    (directory / "log4j2.properties").write_text(_LOG4J)
    archive = _archive(java, options, settings)
    makes_archive = archive is not None and not archive.exists()
    new_archive = None if archive is None else archive.with_suffix(f".{os.getpid()}")
    command = [
        str(java.executable),
        "-cp",
        os.pathsep.join(_class_path(settings)),
        f"-Xmx{conf['spark.driver.memory']}",
        "-XX:+IgnoreUnrecognizedVMOptions",
        *_archive_flags(java, archive, new_archive if makes_archive else None),
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
    if makes_archive:
        command = ["/bin/sh", "-c", _KEEP_ARCHIVE, "sh", str(new_archive), str(archive), *command]
    connection = directory / "connection"
    with (directory / "spark.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={
                **settings,
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
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
    jvm = Jvm(process, 0, "", directory, makes_archive)
    try:
        _await(jvm, connection)
    except BaseException:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return jvm


def _await(jvm: Jvm, connection: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not connection.exists():
        if not jvm.is_alive or time.monotonic() > deadline:
            words = jvm.log.read_text(errors="replace").strip().splitlines()[-5:]
            raise StorageError(
                "Spark did not start: " + (" ".join(words) or "its JVM said nothing"),
                hint="check JAVA_HOME and the Spark settings",
            )
        time.sleep(0.02)
    with connection.open("rb") as stream:
        # As PySpark reads it: the port, then a text with its length in front.
        jvm.port, length = struct.unpack("!ii", stream.read(8))
        jvm.secret = stream.read(length).decode()


def _home() -> Path:
    assert pyspark.__file__ is not None
    return Path(pyspark.__file__).parent


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
    core = next(name for name in map(Path, _class_path(environment)) if "spark-core_" in name.name)
    return core.name.removeprefix("spark-core_").partition("-")[0]


def _class_path(environment: Mapping[str, str]) -> list[str]:
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


# --- class archive --------------------------------------------------------------------------------


def _archive(java: Java, options: Sequence[str], environment: Mapping[str, str]) -> Path | None:
    """Where the class archive of this very runtime and class path lies, or will."""
    if environment.get(ARCHIVE_VARIABLE, "").lower() in ("off", "0", "no"):
        return None
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(base) / "omnigraph" / "spark"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    # Archives are refused with another collector or compiler, so the options count too.
    key = "\n".join([java.build, str(java.executable), *_class_path(environment), *options])
    return directory / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.archive"


def _archive_flags(java: Java, archive: Path | None, new: Path | None) -> list[str]:
    if archive is None:
        return []
    # From 25 on archives hold more, and need no archive of the runtime's own classes below them.
    use, make = (
        ("-XX:AOTCache", "-XX:AOTCacheOutput")
        if java.major >= 25
        else ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit")
    )
    return [f"{use}={archive}"] if new is None else [f"{make}={new}"]
