"""The archive of Spark's classes: what it fits, who makes it, and what is cleared away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import InputError
from omnigraph.pipeline.spark.class_archive import (
    ARCHIVES_MAX,
    UNUSED_DAYS_MAX,
    ClassArchive,
    archive_for,
    make_in_background,
    making,
    prune,
)
from omnigraph.pipeline.spark.class_recorder import exercise
from omnigraph.pipeline.spark.java import Java

# Records as far as it gets: half a file, until whoever started it is gone.
HALF_RECORDING = """\
#!/bin/sh
[ "$1" = -version ] && { echo 'openjdk version "17.0.9" 2024' >&2; exit; }
for argument; do
    case "$argument" in -XX:ArchiveClassesAtExit=*) echo half > "${argument#*=}";; esac
done
echo started >> "$RUNS"
exec cat > /dev/null
"""
PATIENCE_SECONDS = 300


@pytest.fixture
def java(tmp_path: Path) -> Java:
    executable = tmp_path / "java" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(HALF_RECORDING)
    executable.chmod(0o755)
    return Java(executable, 17, "17.0.9")


def fitting(
    java: Java, tmp_path: Path, *options: str, memory: str = "1g", **environment: str
) -> ClassArchive | None:
    library = tmp_path / "spark.jar"
    if not library.exists():
        library.write_text("classes")
    return archive_for(
        java,
        [str(library)],
        memory=memory,
        options=options,
        environment={"XDG_CACHE_HOME": str(tmp_path / "cache"), **environment},
    )


def archive_of(java: Java, tmp_path: Path) -> ClassArchive:
    archive = fitting(java, tmp_path)
    assert archive is not None
    return archive


def eventually(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- what it fits ---


def test_an_archive_fits_one_runtime_one_spark_and_one_set_of_options(java, tmp_path):
    one = fitting(java, tmp_path)
    assert fitting(java, tmp_path) == one
    assert one is not None
    others = [
        fitting(Java(java.executable, 17, "17.0.10"), tmp_path),
        fitting(java, tmp_path, "-XX:+UseSerialGC"),
        fitting(java, tmp_path, memory="64g"),
    ]
    os.utime(tmp_path / "spark.jar", (1, 1))  # as after it was installed again
    others.append(fitting(java, tmp_path))
    paths = {other.path for other in others if other is not None}
    assert len(paths) == 4
    assert one.path not in paths


def test_an_archive_fits_heaps_of_any_size_with_the_same_pointers(java, tmp_path):
    small, large = fitting(java, tmp_path, memory="512m"), fitting(java, tmp_path, memory="31G")
    assert small is not None
    assert large is not None
    assert small.path == large.path


@pytest.mark.parametrize(
    "environment", [{"OMNIGRAPH_SPARK_ARCHIVE": "off"}, {"XDG_CACHE_HOME": ""}]
)
def test_without_a_cache_there_is_no_archive(java, tmp_path, environment):
    if "XDG_CACHE_HOME" in environment:
        (tmp_path / "file").touch()
        environment = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    assert fitting(java, tmp_path, **environment) is None


def test_a_word_that_is_neither_on_nor_off_is_refused(java, tmp_path):
    assert fitting(java, tmp_path, OMNIGRAPH_SPARK_ARCHIVE="On") == fitting(java, tmp_path)
    with pytest.raises(InputError, match="OMNIGRAPH_SPARK_ARCHIVE is 'maybe'"):
        fitting(java, tmp_path, OMNIGRAPH_SPARK_ARCHIVE="maybe")


def test_an_archive_is_used_once_it_is_there_and_use_keeps_it_young(java, tmp_path):
    archive = archive_of(java, tmp_path)
    assert archive.use() == []
    archive.path.touch()
    os.utime(archive.path, (1, 1))
    assert archive.use() == [f"-XX:SharedArchiveFile={archive.path}"]
    assert archive.path.stat().st_mtime > 1
    newer = ClassArchive(archive.path, Java(java.executable, 25, ""), archive.spark, "1g", ())
    assert newer.use() == [f"-XX:AOTCache={archive.path}"]


# --- what is cleared away ---


def kept(directory: Path, name: str, *, days: float = 0, java: str = sys.executable) -> None:
    path = directory / f"{name}.archive"
    path.touch()
    path.with_suffix(".json").write_text(json.dumps({"java": java, "spark": sys.executable}))
    used = time.time() - days * 24 * 3600
    os.utime(path, (used, used))


def test_old_archives_those_of_programs_that_are_gone_and_remains_are_removed(tmp_path):
    kept(tmp_path, "used")
    kept(tmp_path, "old", days=UNUSED_DAYS_MAX + 1)
    kept(tmp_path, "gone", java=str(tmp_path / "no" / "java"))
    for name in ("unknown.archive", "used.123", "used.123.config", "alone.json", "making.lock"):
        (tmp_path / name).touch()
    prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("used.archive", "used.json", "making.lock")
    }


def test_of_many_archives_the_latest_used_stay(tmp_path):
    for day in range(ARCHIVES_MAX + 2):
        kept(tmp_path, f"used-{day}-days-ago", days=day)
    prune(tmp_path)
    assert {path.stem for path in tmp_path.glob("*.archive")} == {
        f"used-{day}-days-ago" for day in range(ARCHIVES_MAX)
    }


# --- making ---


def test_what_was_recorded_is_kept_whole_and_nothing_else_is_left(java, tmp_path):
    archive = archive_of(java, tmp_path)
    with making(archive) as part:
        assert part is not None
        part.write_text("classes")
        part.with_name(f"{part.name}.config").touch()
        assert not archive.is_there
        archive.keep(part)
    assert archive.path.read_text() == "classes"
    names = {path.suffix for path in archive.directory.iterdir()}
    assert names == {".archive", ".json", ".lock"}
    with making(archive) as again:
        assert again is None


def test_a_full_disk_and_a_maker_at_work_keep_others_from_making(java, tmp_path, monkeypatch):
    archive = archive_of(java, tmp_path)
    with making(archive) as first, making(archive) as second:
        assert first is not None
        assert second is None
    monkeypatch.setattr("omnigraph.pipeline.spark.class_archive.FREE_BYTES_MIN", 1 << 60)
    with making(archive) as part:
        assert part is None


class Makers:
    """Processes that record with a Java that does not get far."""

    def __init__(self, java: Java, tmp_path: Path) -> None:
        self.runs = tmp_path / "runs"
        self.directory = tmp_path / "cache" / "omnigraph" / "spark"
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(java.executable.parents[1]),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "TMPDIR": str(tmp_path),
            "RUNS": str(self.runs),
        }
        self.environment.pop("OMNIGRAPH_SPARK_ARCHIVE", None)

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "omnigraph.pipeline.spark.class_recorder", '["1g"]']
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def finished(self) -> tuple[int, bytes]:
        maker = self.start()
        said, _ = maker.communicate(timeout=PATIENCE_SECONDS)
        return maker.returncode, said

    def begun(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0

    def left(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())


def test_there_is_one_maker_at_a_time_and_a_killed_one_is_followed_by_another(java, tmp_path):
    makers = Makers(java, tmp_path)
    killed = makers.start()
    eventually(lambda: makers.begun() == 1)
    half = makers.left()
    assert len(half) == 2
    assert makers.finished() == (0, b"")
    assert (makers.begun(), makers.left()) == (1, half)
    killed.kill()
    assert killed.communicate(timeout=PATIENCE_SECONDS)[0] == b""
    ended = makers.start()
    eventually(lambda: makers.begun() == 2)
    assert len(makers.left()) == 2
    assert makers.left() != half
    ended.send_signal(signal.SIGTERM)
    assert ended.communicate(timeout=PATIENCE_SECONDS)[0] == b""
    assert (ended.returncode, makers.left()) == (0, ["making.lock"])


def test_what_cannot_be_made_is_not_tried_again_at_once(java, tmp_path):
    makers = Makers(java, tmp_path)
    java.executable.write_text(HALF_RECORDING.replace("exec cat", "exit 1"))
    for _ in range(2):
        assert makers.finished() == (0, b"")
        assert (makers.begun(), makers.left()) == (1, ["making.lock"])
    os.utime(makers.directory / "making.lock", (1, 1))
    assert makers.finished() == (0, b"")
    assert makers.begun() == 2


def test_nothing_is_started_for_an_archive_that_is_there(java, tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(subprocess, "Popen", refuse)
    archive = archive_of(java, tmp_path)
    with pytest.raises(AssertionError):
        make_in_background(archive)
    archive.path.touch()
    make_in_background(archive)


# --- with Spark ---

SESSION = """\
import sys
from omnigraph.pipeline.spark.session import SessionSettings, spark_session
options = ('-XX:TieredStopAtLevel=1', '-Xlog:class+load:file=' + sys.argv[1])
settings = SessionSettings('local[1,4]', {'spark.driver.memory': '512m'}, options)
with spark_session(settings=settings) as spark:
    assert spark.range(10).count() == 10
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_start_without_an_archive_leaves_one_to_the_next(tmp_path):
    def run() -> list[str]:
        ran = subprocess.run(
            [sys.executable, "-c", SESSION, str(tmp_path / "classes.log")],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "OMNIGRAPH_SPARK_ARCHIVE": ""},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
        loaded = (tmp_path / "classes.log").read_text().splitlines()
        return [line for line in loaded if "org.apache.spark." in line]

    def is_archived(line: str) -> bool:
        return "shared objects file" in line

    assert not any(map(is_archived, run()))
    eventually(lambda: [*tmp_path.rglob("*.archive")])
    spark_classes = run()
    assert sum(map(is_archived, spark_classes)) > len(spark_classes) / 2


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_what_is_recorded_is_what_spark_can_do(spark):
    exercise(spark)
