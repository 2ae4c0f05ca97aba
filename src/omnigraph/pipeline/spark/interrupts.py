"""Ctrl-C while Python talks to Spark's JVM: it arrives as what it is, and nothing is printed."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = (None, "py4j.java_gateway", "py4j.clientserver")
"""Where Py4J says that it was interrupted: mostly at the root, which nobody has silenced."""


@contextmanager
def interrupts_first() -> Iterator[None]:
    """Raise Ctrl-C in a block as `KeyboardInterrupt`, whatever Py4J made of it.

    Py4J hangs up when it is interrupted. Where the line is gone already that fails, and its failure
    hides what happened.
    """
    with _silent():
        try:
            yield
        except Exception as error:
            if _is_interrupted(error):
                raise KeyboardInterrupt from None
            raise


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep whatever handles Ctrl-C, also if a Spark context is made in the block.

    Its own handler calls the JVM in the midst of the call that was interrupted. Loads cancel their
    jobs themselves, and in order.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and before is not None:
            signal.signal(signal.SIGINT, before)


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether an error came of Ctrl-C, at first or at second hand."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


@contextmanager
def _silent() -> Iterator[None]:
    loggers, quiet = [logging.getLogger(name) for name in _LOGGERS], _WorthTelling()
    for logger in loggers:
        logger.addFilter(quiet)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(quiet)


class _WorthTelling(logging.Filter):
    """Everything but what Py4J says of an interrupt; one for each block, as blocks may overlap."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not ("py4j" in record.pathname and _is_interrupted(error))
