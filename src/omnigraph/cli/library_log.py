"""What the library logs, among the other notes.

Without this the standard library would print its warnings, and tracebacks with them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.cli.output import Output


class NoteHandler(logging.Handler):
    """Writes log records as warnings; what caused them only for whoever debugs."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self._output.warning(record.getMessage())
        if self._output.debug and record.exc_info:
            self._output.note(logging.Formatter().formatException(record.exc_info))


@contextmanager
def library_warnings(output: Output) -> Iterator[None]:
    """Show what the library logs while a command runs."""
    logger = logging.getLogger("omnigraph")
    handler = NoteHandler(output)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
