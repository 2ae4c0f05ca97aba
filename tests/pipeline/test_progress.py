"""How far a load by threads has come, told while it runs."""

from __future__ import annotations

import json
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from omnigraph.cli.load import stages
from omnigraph.cli.options import announce_spark
from omnigraph.cli.output import Output
from omnigraph.errors import InputError, StorageError
from omnigraph.graph import Graph, LoadObserver, SparkOptions
from omnigraph.loading.executors import StageProgress, TaskRunner


def test_c_pip_034_tasks_are_told_while_others_run():
    seen: list[tuple[int, int]] = []
    is_told = threading.Event()

    def watch(progress: StageProgress) -> None:
        seen.append((progress.tasks_done, progress.tasks))
        if progress.tasks_done:
            is_told.set()

    def work(number: int) -> int:
        return number if number == 0 or is_told.wait(60) else -1

    jobs = TaskRunner(None, "op", watch)
    assert jobs.map_threads("read", range(2), work) == [0, 1]
    assert (1, 2) in seen and seen[-1] == (2, 2)
    jobs.finished("read", 7, 1.0)
    assert seen[-1] == (2, 2)


@pytest.mark.parametrize("error", [InputError("no"), OSError("no")])
def test_a_task_that_fails_ends_the_others(error):
    jobs = TaskRunner(None, "op", lambda _: None)

    def work(number: int) -> None:
        if number:
            raise error
        assert jobs.stopped.wait(60)

    with pytest.raises((InputError, StorageError), match="no"):
        jobs.map_threads("read", range(2), work)


def test_rows_are_counted_while_they_are_read(graph: Graph, tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(f"slug\na{number}\nb{number}\n")
    seen: list[StageProgress] = []
    tables = {"Person": tmp_path / "*.csv"}
    receipt = graph.load(
        nodes=tables, mode="append", engine="local", observer=LoadObserver(on_stage=seen.append)
    )
    running = [each for each in seen if each.stage == "read" and not each.finished]
    assert (running[-1].rows, running[-1].tasks_done) == (4, running[-1].tasks)
    assert seen[0].files == 2 and seen[0].rows is None
    assert [(stage.name, stage.rows) for stage in receipt.stages][:2] == [("plan", 0), ("read", 4)]


class NotYetRunning:
    """A session that is started on first use."""

    is_running = False
    ui: str | None = None

    def get(self) -> Any:
        self.is_running = True
        return SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl=self.ui))


def test_c_pip_034_the_start_of_spark_is_told_before_it_takes_its_seconds():
    session: Any = NotYetRunning()
    seen: list[tuple[bool, dict[str, Any]]] = []
    jobs = TaskRunner(session, "op", lambda each: seen.append((session.is_running, each.to_dict())))
    assert jobs.begin()
    assert seen == [(False, {"event": "session", "state": "starting"})]
    assert not jobs.begin() and len(seen) == 1
    session.ui = "http://x:4040"
    jobs.begin()
    assert seen[-1] == (True, {"event": "session", "ui": "http://x:4040"})
    assert not TaskRunner(None, "op", lambda _: pytest.fail("told")).begin()


@pytest.mark.parametrize(
    ("how", "is_told"),
    [
        ({}, False),
        ({"engine": "local"}, False),
        ({"engine": "spark"}, True),
        ({"spark": SparkOptions(master="local[2]")}, True),
        ({"spark": SparkOptions(conf={"spark.ui.enabled": "true"})}, False),
    ],
)
def test_c_pip_034_a_command_that_names_spark_says_that_it_starts(how, is_told, capsys):
    output = Output(sys.stdout, sys.stderr)
    announce_spark(output, how, json=True)
    assert not capsys.readouterr().err
    announce_spark(output, how, json=False)
    assert ("starting Spark" in capsys.readouterr().err) == is_told


@pytest.mark.parametrize("is_terminal", [True, False])
def test_c_pip_034_the_command_says_that_spark_starts(is_terminal, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR" if is_terminal else "NO_COLOR", "1")
    monkeypatch.delenv("NO_COLOR" if is_terminal else "FORCE_COLOR", raising=False)
    output = SimpleNamespace(
        quiet=False,
        shows_progress=is_terminal,
        notes_are_colored=False,
        stderr=sys.stderr,
        note=lambda text: print(text, file=sys.stderr),
    )
    begun, ended = StageProgress("session", 0, 0, 0.0), StageProgress("session", 0, 0, 5.0, 0, True)
    with stages(output, json=False) as watch:  # type: ignore[arg-type]
        watch(begun)
        watch(ended)
    assert "starting Spark" in capsys.readouterr().err
    with stages(output, json=True) as watch:  # type: ignore[arg-type]
        watch(begun)
        watch(ended)
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert told[0] == {"event": "session", "state": "starting"}
    assert (told[1]["event"], told[1]["stage"], told[1]["seconds"]) == ("finished", "session", 5.0)
