"""The two streams: results go to stdout, everything else to stderr.

Text is given in parts, some with a style. Styles become escape sequences around the same
characters, or are dropped without colour, so the text itself is never altered. Styles are Rich's,
which is imported when the first styled part is written.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TextIO

import typer

from omnigraph.model.records import dataclass

WIDTH_WITHOUT_TERMINAL = 80
WIDTH_MAX = 100
"""Longer lines of running text are hard to read."""

# Control characters of the input are escaped, so that a file cannot move the cursor or repaint the
# terminal. Newlines and tabs are kept.
_VISIBLE_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}


class ColorMode(StrEnum):
    """When to colour: on a terminal, always, or never."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Styled(NamedTuple):
    """A piece of text with a style in Rich's notation, such as `bold red`."""

    text: str
    style: str


Unit = Literal["bytes", "entities", "rounds"]
"""The unit of a progress bar."""
Part = str | Styled
Line = Sequence[Part]


@dataclass
class Output:
    """The output streams of one invocation, and how to write to them."""

    stdout: TextIO
    stderr: TextIO
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    color: ColorMode = ColorMode.AUTO
    quiet: bool = False
    debug: bool = False
    failures_as_json: bool = False
    """Whether a failure is also written to stdout as a JSON envelope."""
    stdout_is_payload: bool = False
    """Whether stdout is a data stream, into which no envelope may be written."""

    @classmethod
    def of_process(cls) -> Output:
        """The standard streams, made to accept any character of a file name or text."""
        return cls(_standard_stream(sys.stdout), _standard_stream(sys.stderr))

    # --- results ---------------------------------------------------------------------------------

    def line(self, *parts: Part) -> None:
        """Write one line of a result."""
        self.stdout.write(self._text(parts, self.stdout) + "\n")

    def lines(self, lines: Iterable[Line]) -> None:
        """Write several lines of a result."""
        for line in lines:
            self.line(*line)

    def json(self, document: object) -> None:
        """Write a receipt, an answer, or a document of such, as JSON."""
        self.stdout.write(_json_text(document))

    def show(self, document: object, lines: Iterable[Line], *, json: bool) -> None:
        """Write a result as JSON, or as lines."""
        if json:
            self.json(document)
        else:
            self.lines(lines)

    def done(self, document: object, sentence: str, *, json: bool) -> None:
        """Write the result of a successful command, as JSON or as one sentence."""
        self.show(document, [(Styled(sentence, "bold green"),)], json=json)

    def verbatim(self, data: bytes) -> None:
        """Write UTF-8 text unchanged; on a terminal, its control characters are escaped."""
        if self.stdout.isatty() or not hasattr(self.stdout, "buffer"):
            self.stdout.write(data.decode().translate(_VISIBLE_CONTROLS))
        else:
            self.raw(data)

    def raw(self, data: bytes) -> None:
        """Write bytes, which need not be text."""
        self.stdout.flush()
        rest = memoryview(data)
        while rest:
            # An unbuffered stream may write only a part.
            rest = rest[self.stdout.buffer.write(rest) :]

    # --- everything else -------------------------------------------------------------------------

    def note(self, *parts: Part) -> None:
        """Write one line that is not a result."""
        self.stderr.write(self._text(parts, self.stderr) + "\n")

    def notes(self, lines: Iterable[Line]) -> None:
        """Write several lines that are not results."""
        for line in lines:
            self.note(*line)

    def starting_spark(self, *, json: bool) -> None:
        """Note that Spark is starting, which takes seconds."""
        if not (json or self.quiet):
            self.note(Styled("starting Spark, which takes some seconds", "dim"))

    def json_note(self, document: Mapping[str, Any]) -> None:
        """Write JSON that is not a result."""
        self.stderr.write(_json_text(document))

    def ask(self, question: str) -> None:
        """Write a question, to be answered on the same line."""
        self.stderr.write(self._text([question], self.stderr))
        self.stderr.flush()

    def warning(self, message: str) -> None:
        """Write a warning."""
        self.note(Styled("warning:", "yellow"), f" {message}")

    # --- streams ---------------------------------------------------------------------------------

    def paint(self, lines: Iterable[Line]) -> str:
        """Lines as one text for stdout."""
        return "\n".join(self._text(line, self.stdout) for line in lines)

    @property
    def is_colored(self) -> bool:
        """Whether stdout gets colours."""
        return self._takes_color(self.stdout)

    @property
    def notes_are_colored(self) -> bool:
        """Whether stderr gets colours."""
        return self._takes_color(self.stderr)

    @property
    def shows_progress(self) -> bool:
        """Whether stderr is a terminal, and progress was not disabled."""
        is_dumb = self.environment.get("TERM") == "dumb"
        return self.stderr.isatty() and not (self.quiet or self.failures_as_json or is_dumb)

    @contextmanager
    def progress(
        self, description: str, total: int | None, unit: Unit, *, unless: bool = False
    ) -> Iterator[Callable[[int], None]]:
        """A progress bar and the function that advances it; without a terminal a no-op."""
        if unless or not self.shows_progress:
            yield lambda amount: None
            return
        from omnigraph.cli.progress import progress_of

        with progress_of(self, description, total, unit) as advance:
            yield advance

    @property
    def width(self) -> int:
        """The width of running text on stdout; constant if it is no terminal."""
        if not self.stdout.isatty():
            return WIDTH_WITHOUT_TERMINAL
        return max(40, min(shutil.get_terminal_size().columns, WIDTH_MAX))

    def flush(self) -> None:
        """Flush stdout; raises ``BrokenPipeError`` if its reader has closed it."""
        self.stdout.flush()

    def abandon(self) -> None:
        """Discard stdout after its reader has closed it, so that nothing is flushed at exit."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stdout.fileno())
            os.close(nowhere)

    def _takes_color(self, stream: TextIO) -> bool:
        if self.color is not ColorMode.AUTO:
            return self.color is ColorMode.ALWAYS
        if self.environment.get("NO_COLOR") or self.environment.get("TERM") == "dumb":
            return False
        return stream.isatty()

    def _text(self, parts: Line, stream: TextIO) -> str:
        shown = [(_plain(part).translate(_VISIBLE_CONTROLS), part) for part in parts]
        if not self._takes_color(stream):
            return "".join(text for text, _ in shown)
        from rich.style import Style

        return "".join(
            Style.parse(part.style).render(text) if isinstance(part, Styled) else text
            for text, part in shown
        )


def _standard_stream(stream: TextIO | None) -> TextIO:
    # A stream is None if the process was started with it closed.
    found = stream if stream is not None else io.StringIO()
    if isinstance(found, io.TextIOWrapper):
        found.reconfigure(errors="backslashreplace")
    return found


def _json_text(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, default=_to_dict) + "\n"


def _to_dict(value: Any) -> dict[str, Any]:
    document: dict[str, Any] = value.to_dict()
    return document


def _plain(part: Part) -> str:
    return part.text if isinstance(part, Styled) else part


def output_of(context: typer.Context) -> Output:
    """The `Output` of the running invocation."""
    output = context.obj
    assert isinstance(output, Output)
    return output


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "query", "queries"), counted(3, "error"), counted(0, "warning")
    ('1 query', '3 errors', '0 warnings')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def moment(microseconds: int) -> str:
    """A timestamp in UTC, to the second.

    >>> moment(0)
    '1970-01-01 00:00:00'
    """
    start = dt.datetime(1970, 1, 1)
    return (start + dt.timedelta(microseconds=microseconds)).strftime("%Y-%m-%d %H:%M:%S")


Cell = str | int


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[Line]:
    """Aligned columns under their headers, two spaces apart; columns of numbers to the right."""
    numeric = [
        bool(rows) and all(isinstance(row[at], int) for row in rows) for at in range(len(headers))
    ]
    texts = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in texts) for at in range(len(headers))]
    for number, row in enumerate(texts):
        cells = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numeric, strict=True)
        ]
        line = "  ".join(cells).rstrip()
        yield (Styled(line, "bold"),) if number == 0 else (line,)


def fact_lines(facts: Mapping[str, object]) -> Iterator[Line]:
    """Names and values in two columns; None values are left out."""
    width = max(map(len, facts))
    return ((f"{name:<{width}}  {value}",) for name, value in facts.items() if value is not None)


def warn_deprecated(output: Output, old: str, new: str) -> None:
    """Warn once that a spelling is deprecated."""
    output.warning(f"`{old}` is deprecated; write `{new}`")
