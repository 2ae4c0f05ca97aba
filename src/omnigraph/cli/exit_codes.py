"""What a finished process tells the one that started it."""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from omnigraph.errors import OmnigraphError, PreconditionFailed


class ExitCode(IntEnum):
    """Every exit code the command line uses, each with its meaning."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """A number that knows what it means."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    OK = 0, "success"
    FAILURE = 1, "the command ran, and something is wrong with its input, a graph or a store"
    USAGE = 2, "the command line is wrong; nothing was read or written"
    LOST_RACE = 4, "a conditional write found another head than expected"
    # Shells report 128 and the number of the signal: SIGINT is 2, SIGPIPE is 13.
    INTERRUPTED = 130, "interrupted with Ctrl-C"
    READER_GONE = 141, "whatever read stdout went away"


def exit_code_of(error: OmnigraphError) -> ExitCode:
    """The exit code for an error of the library."""
    return ExitCode.LOST_RACE if isinstance(error, PreconditionFailed) else ExitCode.FAILURE
