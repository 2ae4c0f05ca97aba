"""What is wrong with an input, gathered from many workers: the first problems, and all counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from omnigraph.commit.records.problems import Problem, ProblemKind, ProblemLog

MAX_ERRORS = 100
"""Problems that are shown in full, unless the caller says otherwise."""

_SLACK = 4
"""Problems are sorted and cut each time this many times as many are held as will be shown."""


@dataclass(slots=True)
class Findings:
    """The problems of a whole input, in the order of its files and records."""

    keep: int
    errors_out: Path | None = None
    counts: Counter[ProblemKind] = field(default_factory=Counter)
    _held: list[tuple[tuple[int, int], Problem]] = field(default_factory=list)
    _sources: dict[str, int] = field(default_factory=dict)
    _stream: IO[str] | None = None

    def note(self, problem: Problem) -> None:
        """Take note of a problem and count it; files come in the order of their first problem."""
        place = problem.place
        source = "" if place is None else place.source or ""
        at = self._sources.setdefault(source, len(self._sources))
        self.counts[problem.kind] += 1
        self.add((at, 0 if place is None else place.number), problem)

    def add(self, order: tuple[int, int], problem: Problem, *, listed: bool = True) -> None:
        """Take note of a problem at a piece and a number; ``listed`` also in the error file."""
        self._held.append((order, problem))
        if len(self._held) > _SLACK * max(1, self.keep):
            self._cut()
        if listed:
            self.list([problem])

    def list(self, problems: Iterable[Problem]) -> None:
        """Write problems to the error file, if there is one."""
        if self.errors_out is None:
            return
        if self._stream is None:
            self._stream = self.errors_out.open("w", encoding="utf-8")
        for problem in problems:
            self._stream.write(json.dumps(problem.to_dict(), ensure_ascii=False) + "\n")

    def raise_if_any(self) -> None:
        """Fail with the first problems and the counts of all."""
        if self._stream is not None:
            self._stream.close()
        self._cut()
        log = ProblemLog(self.keep, first=[each for _, each in self._held], counts=self.counts)
        log.raise_if_any()

    def _cut(self) -> None:
        self._held.sort(key=lambda each: (each[0], each[1].property_name or ""))
        del self._held[self.keep :]
