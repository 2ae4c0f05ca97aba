"""Ctrl-C that Py4J has hidden behind a failure of its own."""

from __future__ import annotations

import logging
import signal

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from omnigraph.pipeline.spark.gateway import interrupts_first, own_interrupts


def hang_up() -> None:
    """As Py4J does when it is interrupted, and the line is gone."""
    try:
        raise KeyboardInterrupt
    finally:
        raise Py4JError("Gateway must be connected to send cancel cmd.")


def test_c_pip_033_an_interrupt_behind_a_failure_is_raised_as_what_it_is():
    with pytest.raises(KeyboardInterrupt) as caught, interrupts_first():
        try:
            hang_up()
        except Py4JError as error:
            raise ValueError("at second hand") from error
    assert caught.value.__suppress_context__


def test_other_failures_pass_as_they_are():
    with pytest.raises(Py4JError, match="on its own"), interrupts_first():
        raise Py4JError("on its own")


def test_c_pip_033_what_py4j_logs_of_an_interrupt_is_not_printed(caplog):
    def logged(path: str) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            told = (type(error), error, None)
        record = logging.root.makeRecord("root", logging.ERROR, path, 1, path, (), told)
        logging.root.handle(record)

    with interrupts_first():
        with interrupts_first():
            logged("py4j/java_gateway.py")
        logged("py4j/java_gateway.py")
        logged("mine.py")
    logged("py4j/afterwards.py")
    assert caplog.messages == ["mine.py", "py4j/afterwards.py"]


def test_a_block_leaves_the_handler_of_ctrl_c_as_it_was():
    before = signal.getsignal(signal.SIGINT)
    with own_interrupts():
        signal.signal(signal.SIGINT, lambda *_: None)
    assert signal.getsignal(signal.SIGINT) is before
