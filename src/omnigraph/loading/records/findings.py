"""What is wrong with an input, gathered from many workers: the first problems, and all counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from omnigraph.loading.records.problems import Problem, ProblemKind, ProblemLog

MAX_ERRORS = 100
"""Problems that are shown in full, unless the caller says otherwise."""

_SLACK = 4
"""Problems are sorted and cut each time this many times as many are held as will be shown."""

_LISTED_AT_ONCE = 10_000
"""Problems that are sorted before they are written: most error files are in order all through."""

Order = tuple[int, int]
"""Where a problem is in the input: the number of its file or piece, and that of its record."""

NOWHERE: Order = (-1, 0)
"""The order of what no single record is to blame for: it is told first."""

_Placed = tuple[Order, Problem]


@dataclass(slots=True)
class FirstProblems:
    """The first of many problems, whichever order they are found in."""

    keep: int
    _held: list[_Placed] = field(default_factory=list)

    def add(self, order: Order, problem: Problem) -> None:
        """Take note of a problem."""
        self._held.append((order, problem))
        if len(self._held) > _SLACK * max(1, self.keep):
            self._cut()

    def in_order(self) -> list[_Placed]:
        """As many as are kept."""
        self._cut()
        return self._held

    def _cut(self) -> None:
        self._held.sort(key=_in_input)
        del self._held[self.keep :]


@dataclass(slots=True)
class Findings:
    """The problems of a whole input, in the order of its files and records."""

    keep: int
    errors_out: Path | None = None
    counts: Counter[ProblemKind] = field(default_factory=Counter)
    _first: FirstProblems = field(init=False)
    _sources: dict[str, int] = field(default_factory=dict)
    _unwritten: list[_Placed] = field(default_factory=list)
    _stream: IO[str] | None = None

    def __post_init__(self) -> None:
        self._first = FirstProblems(self.keep)

    @classmethod
    def of(
        cls, keep: int, errors_out: Path | None = None, sources: Sequence[str | None] = ()
    ) -> Findings:
        """Findings about ``sources``, which are told in this order."""
        findings = cls(keep, errors_out)
        for name in sources:
            findings._sources.setdefault(name or "", len(findings._sources))
        return findings

    def note(self, problem: Problem) -> None:
        """Take note of a problem and count it."""
        self.counts[problem.kind] += 1
        place = problem.place
        if place is None:
            self.add(NOWHERE, problem)
            return
        at = self._sources.setdefault(place.source or "", len(self._sources))
        self.add((at, place.number), problem)

    def add(self, order: Order, problem: Problem, *, listed: bool = True) -> None:
        """Take note of a problem at a piece and a number; ``listed`` also in the error file."""
        self._first.add(order, problem)
        if listed:
            self.list(order, problem)

    def list(self, order: Order, problem: Problem) -> None:
        """Put a problem into the error file, if there is one."""
        if self.errors_out is None:
            return
        self._unwritten.append((order, problem))
        if len(self._unwritten) >= _LISTED_AT_ONCE:
            self._write(self.errors_out)

    def _write(self, path: Path) -> None:
        if self._stream is None:
            self._stream = path.open("w", encoding="utf-8")
        for _, problem in sorted(self._unwritten, key=_in_input):
            self._stream.write(json.dumps(problem.to_dict(), ensure_ascii=False) + "\n")
        self._unwritten.clear()

    def raise_if_any(self) -> None:
        """Fail with the first problems and the counts of all."""
        if self.errors_out is not None and self._unwritten:
            self._write(self.errors_out)
        if self._stream is not None:
            self._stream.close()
        first = [problem for _, problem in self._first.in_order()]
        ProblemLog(self.keep, first=first, counts=self.counts).raise_if_any()


def _in_input(placed: _Placed) -> tuple[Order, str]:
    order, problem = placed
    return order, problem.property_name or ""
