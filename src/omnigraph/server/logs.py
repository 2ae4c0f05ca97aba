"""The log: one line per event, written by a separate thread.

Events of every request (`EventLog`) are written directly: the standard logging library would cost
more than a small query. Rare events go through that library, in the same form, with their values in
``fields``. Tokens, parameters and rows never reach a log call.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, TextIO

import orjson

from omnigraph.server.config import LogFormat

LINES_MAX = 20_000
BATCH_SECONDS = 0.02
"""How long the first line of a batch waits for further ones."""
KIND_LINES_MAX, KIND_SECONDS, KINDS_MAX = 10, 10.0, 1000
"""Records of one kind that are written per period of seconds, and kinds that are counted."""
CLOSE_SECONDS = 1.0
"""How long the end of the process waits for queued lines."""

Sink = Callable[[str], object]

_LOGGERS = ("omnigraph", "uvicorn")


class EventLog:
    """Writes events to a sink, or nowhere."""

    def __init__(self, sink: Sink | None = None, format: LogFormat = "text") -> None:
        self._sink = sink
        self._line = json_line if format == "json" else text_line

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        """Write one event; fields without a value are left out."""
        if self._sink is not None:
            self._sink(self._line(time.time(), "info", event, fields) + "\n")


def text_line(moment: float, level: str, event: str, fields: Mapping[str, Any]) -> str:
    """Time, level and event, then the fields as `name=value`."""
    facts = [
        f" {name}={_shown_text(value) if isinstance(value, str) else value}"
        for name, value in fields.items()
        if value is not None
    ]
    return f"{_written(moment)} {level} {event}{''.join(facts)}"


def json_line(moment: float, level: str, event: str, fields: Mapping[str, Any]) -> str:
    """One JSON object."""
    facts = {name: value for name, value in fields.items() if value is not None}
    document = {"time": _written(moment), "level": level, "event": event, **facts}
    return orjson.dumps(document, default=str).decode()


def _written(moment: float) -> str:
    whole = int(moment)
    return f"{_second(whole)}.{int((moment - whole) * 1000):03d}Z"


@lru_cache(maxsize=2)
def _second(whole: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))


@lru_cache(maxsize=1024)
def _shown_text(value: str) -> str:
    # A value from a request must not start a new log line.
    is_plain = value and value.isprintable() and " " not in value and '"' not in value
    return value if is_plain else orjson.dumps(value).decode()


class TextFormatter(logging.Formatter):
    """One line, and a traceback below it if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        line = text_line(
            record.created, record.levelname.lower(), record.getMessage(), _fields(record)
        )
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        fields = dict(_fields(record))
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json_line(record.created, record.levelname.lower(), record.getMessage(), fields)


class KindLimit(logging.Filter):
    """Limits the records of each kind per period, and counts the dropped ones.

    A client that causes the same error again and again must not fill the disk.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, int, str, str], list[float]] = {}
        """Per kind: start of the period, records written, records dropped."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        error = record.exc_info[0] if record.exc_info else None
        kind = (record.name, record.levelno, str(record.msg), error.__name__ if error else "")
        now = self._clock()
        found = self._kinds.get(kind)
        if found is None or now - found[0] >= KIND_SECONDS:
            held_back = 0 if found is None else int(found[2])
            if len(self._kinds) >= KINDS_MAX:
                self._kinds.clear()
            self._kinds[kind] = [now, 1, 0]
            if held_back:
                record.fields = {**_fields(record), "held_back": held_back}
            return True
        if found[1] < KIND_LINES_MAX:
            found[1] += 1
            return True
        found[2] += 1
        return False


def configure_logs(format: LogFormat, *, is_quiet: bool = False) -> tuple[EventLog, LogPipe]:
    """Send log records of the product and of its HTTP library, and events, to stderr.

    A quiet log has only warnings and errors. Close the pipe at the end, or the last lines are lost.
    """
    line = json_line if format == "json" else text_line

    def lost(lines: int) -> str:
        return line(time.time(), "warning", "log lines lost", {"lines": lines}) + "\n"

    pipe = LogPipe(sys.stderr, lost)
    handler = logging.StreamHandler(pipe)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    handler.addFilter(KindLimit())
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        # Remove handlers of the command line, or everything is logged twice.
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    if is_quiet:
        return EventLog(), pipe
    logging.getLogger("omnigraph.server").setLevel(logging.INFO)
    return EventLog(pipe.write, format), pipe


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields


class LogPipe:
    """A text file that a thread writes, several lines at a time.

    The event loop never waits for a slow reader of the log. Beyond a limit of queued lines, further
    ones are dropped, and the log reports their number.
    """

    def __init__(
        self, file: TextIO, lost: Callable[[int], str], lines_max: int = LINES_MAX
    ) -> None:
        self._file = file
        self._lost_line = lost
        """Makes the line that reports the number of dropped lines."""
        self._lines_max = lines_max
        self._lines: deque[str] = deque()
        self._lost = 0
        self._has_lines = threading.Event()
        self._all_written = threading.Event()
        self._all_written.set()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, line: str) -> int:
        """Queue a line; it is dropped if too many are waiting."""
        if len(self._lines) >= self._lines_max:
            self._lost += 1
            return len(line)
        self._lines.append(line)
        if not self._has_lines.is_set():
            self._all_written.clear()
            self._has_lines.set()
        return len(line)

    def flush(self) -> None:
        """A no-op: logging does not wait for the file."""

    def close(self) -> bool:
        """Wait briefly for queued lines; returns whether all were written."""
        return self._all_written.wait(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            self._has_lines.wait()
            time.sleep(BATCH_SECONDS)
            # Cleared before the queue is read, so that a line added later sets it again.
            self._has_lines.clear()
            self._write(self._take())
            if not self._has_lines.is_set():
                self._all_written.set()

    def _take(self) -> list[str]:
        taken: list[str] = []
        with suppress(IndexError):
            while True:
                taken.append(self._lines.popleft())
        if self._lost:
            lost, self._lost = self._lost, 0
            taken.append(self._lost_line(lost))
        return taken

    def _write(self, lines: list[str]) -> None:
        # The reader of the log is gone: there is nowhere to report the error.
        with suppress(OSError, ValueError):
            self._file.write("".join(lines))
            self._file.flush()
