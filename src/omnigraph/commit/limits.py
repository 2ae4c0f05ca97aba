"""How much of one table a write may hold in process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.errors import InputError, LimitExceeded

ROWS_MAX_VARIABLE = "OMNIGRAPH_WRITE_ROWS_MAX"
BYTES_MAX_VARIABLE = "OMNIGRAPH_WRITE_BYTES_MAX"


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """The most a write may stage for one table, inclusive."""

    rows_max: int = 1_000_000
    bytes_max: int = 512 * 1024 * 1024
    """Arrow memory."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> WriteLimits:
        """The limits an operator has set, the defaults where nothing is set."""
        standard = cls()
        return cls(
            positive_setting(environment, ROWS_MAX_VARIABLE, standard.rows_max),
            positive_setting(environment, BYTES_MAX_VARIABLE, standard.bytes_max),
        )


DEFAULT_LIMITS = WriteLimits()


def positive_setting(environment: Mapping[str, str], name: str, standard: int) -> int:
    """What a variable is set to, ``standard`` if it is not set."""
    text = environment.get(name, "")
    if not text:
        return standard
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise InputError(f"{name} is '{text}', not a positive integer", hint=f"unset {name}")
    return int(text)


@dataclass(slots=True)
class Budget:
    """What one table of a write has used up so far."""

    limits: WriteLimits
    table_key: str
    rows: int = 0
    bytes: int = 0

    def charge(self, *, rows: int = 0, bytes: int = 0) -> None:
        """Take more, or raise `LimitExceeded` and have nothing written."""
        self.rows += rows
        self.bytes += bytes
        if self.rows > self.limits.rows_max:
            raise LimitExceeded(
                f"rows of {self.table_key}",
                self.limits.rows_max,
                self.rows,
                hint=f"split the write, load the rows instead, or raise {ROWS_MAX_VARIABLE}",
            )
        if self.bytes > self.limits.bytes_max:
            raise LimitExceeded(
                f"bytes of {self.table_key}",
                self.limits.bytes_max,
                self.bytes,
                hint=f"split the write, load the rows instead, or raise {BYTES_MAX_VARIABLE}",
            )
