"""Progress bars on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import filesize
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from omnigraph.cli.output import Output, Unit, counted

if TYPE_CHECKING:
    from omnigraph.loading.executors import StageProgress

Advance = Callable[[int], None]


class AmountColumn(ProgressColumn):
    """Amount done, total, and rate."""

    def __init__(self, unit: Unit) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """The text of this column."""
        done = self._shown(task.completed)
        of = f"/{self._shown(task.total)}" if task.total is not None else ""
        speed = f" {self._shown(task.speed)}/s" if task.speed is not None else ""
        return Text(f"{done}{of}{'' if self._unit == 'bytes' else f' {self._unit}'}{speed}")

    def _shown(self, amount: float) -> str:
        whole = int(amount)
        return filesize.decimal(whole) if self._unit == "bytes" else f"{whole:,}"


def _bar(output: Output, amount: ProgressColumn) -> Progress:
    """A progress display on stderr that is removed at the end; ``amount`` is its last column."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        amount,
        TimeRemainingColumn(),
        console=Console(file=output.stderr, no_color=not output.notes_are_colored),
        transient=True,
    )


@contextmanager
def progress_of(
    output: Output, description: str, total: int | None, unit: Unit
) -> Iterator[Advance]:
    """A bar, and the function that advances it."""
    with _bar(output, AmountColumn(unit)) as bar:
        task = bar.add_task(description, total=total)

        def advance(amount: int) -> None:
            bar.advance(task, amount)

        yield advance


@contextmanager
def tables_of(output: Output, description: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar that counts tables; None without a terminal."""
    if not output.shows_progress:
        yield None
        return
    with _bar(output, TextColumn("{task.fields[amount]}")) as bar:
        task = bar.add_task(description, total=None, amount="")

        def show(done: int, of: int) -> None:
            bar.update(task, completed=done, total=of, amount=f"{done}/{of} tables")

        yield show


@contextmanager
def bytes_of(output: Output, description: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar that counts bytes; None without a terminal."""
    if not output.shows_progress:
        yield None
        return
    with _bar(output, AmountColumn("bytes")) as bar:
        task = bar.add_task(description, total=None)

        def show(done: int, of: int) -> None:
            bar.update(task, completed=done, total=of)

        yield show


@contextmanager
def stages_of(output: Output) -> Iterator[Callable[[StageProgress], None]]:
    """A line per stage of a bulk load: its rows and, while it runs, its finished tasks."""
    with _bar(output, TextColumn("{task.fields[amount]}")) as bar:
        lines: dict[str, TaskID] = {}

        def watch(progress: StageProgress) -> None:
            line = lines.get(progress.stage)
            if line is None:
                name = "starting Spark" if progress.starts_spark else progress.stage
                line = lines[progress.stage] = bar.add_task(name, total=None, amount="")
            if progress.is_session:
                bar.update(line, completed=progress.finished, total=progress.finished or None)
                return
            amount = _amount(progress)
            if progress.finished:
                bar.update(line, completed=1, total=1, amount=amount)
                return
            total = progress.tasks or None
            amount = ", ".join(part for part in (amount, _tasks(progress)) if part)
            bar.update(line, completed=progress.tasks_done, total=total, amount=amount)

        yield watch


def _amount(progress: StageProgress) -> str:
    """The progress and rate of a stage; empty while unknown."""
    if progress.files is not None:
        return counted(progress.files, "file")
    if progress.rows is None:
        return ""
    rate = f" {progress.rows / progress.seconds:,.0f}/s" if progress.seconds else ""
    return f"{progress.rows:,} rows{rate}"


def _tasks(progress: StageProgress) -> str:
    return f"{progress.tasks_done}/{progress.tasks} tasks"
