"""Everything that is logged through the standard library, in the form of the events.

Tokens, parameters and rows never reach a log call. Calls carry their facts as ``fields``.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from omnigraph.server.config import LogFormat
from omnigraph.server.events import EventLog, json_line, text_line
from omnigraph.server.log_pipe import LogPipe

_LOGGERS = ("omnigraph", "uvicorn")


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


def configure_logs(format: LogFormat) -> tuple[EventLog, LogPipe]:
    """Send what the product and its HTTP library log to stderr, and events too.

    The pipe is to be closed at the end, or the last lines are lost.
    """
    line = json_line if format == "json" else text_line

    def lost(lines: int) -> str:
        return line(time.time(), "warning", "log lines lost", {"lines": lines}) + "\n"

    pipe = LogPipe(sys.stderr, lost)
    handler = logging.StreamHandler(pipe)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        # Whatever a command line set up before would say everything twice.
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    logging.getLogger("omnigraph.server").setLevel(logging.INFO)
    return EventLog(pipe.write, format), pipe


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields
