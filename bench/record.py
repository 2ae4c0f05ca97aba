"""What runs leave behind: one record per scale, in which every suite has its last run.

Suites may run one by one, on other days and machines, so each carries its own circumstances.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.circumstances import Circumstances
from bench.figure import Figure
from bench.scale import Scale


@dataclass(frozen=True, slots=True)
class SuiteRecord:
    """The figures of one suite."""

    suite: str
    figures: tuple[Figure, ...]
    circumstances: Circumstances
    failure: str | None = None
    """Why the run ended early; its figures are those from before."""

    @property
    def missed(self) -> list[Figure]:
        """Figures that do not reach their target."""
        return [figure for figure in self.figures if figure.is_met is False]

    @property
    def verdict(self) -> str:
        """The outcome in a few words."""
        if self.failure is not None:
            return f"FAILED ({self.failure})"
        targets = sum(figure.target is not None for figure in self.figures)
        return f"{targets - len(self.missed)} of {targets} targets met"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            **self.circumstances.to_dict(),
            "failure": self.failure,
            "figures": [figure.to_dict() for figure in self.figures],
        }

    @classmethod
    def from_dict(cls, suite: str, found: Mapping[str, Any]) -> SuiteRecord:
        """A suite that was kept."""
        rest = {name: found[name] for name in found.keys() - {"failure", "figures"}}
        figures = tuple(map(Figure.from_dict, found["figures"]))
        return cls(suite, figures, Circumstances(**rest), found["failure"])


@dataclass(frozen=True, slots=True)
class Record:
    """The last run of every suite at one scale."""

    scale: Scale
    suites: Mapping[str, SuiteRecord] = field(default_factory=dict)

    def with_suite(self, suite: SuiteRecord) -> Record:
        """The record with another run of one suite."""
        return Record(self.scale, {**self.suites, suite.suite: suite})

    def in_order(self, names: Iterable[str]) -> Record:
        """The record with its suites in the order of a list, whichever ran first."""
        return Record(
            self.scale, {name: self.suites[name] for name in names if name in self.suites}
        )

    def to_json(self) -> str:
        """The text of its file."""
        suites = {name: suite.to_dict() for name, suite in self.suites.items()}
        found = {"scale": self.scale.value, "suites": suites}
        return json.dumps(found, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """What a file holds."""
        found = json.loads(text)
        suites = {name: SuiteRecord.from_dict(name, each) for name, each in found["suites"].items()}
        return cls(Scale(found["scale"]), suites)

    @classmethod
    def kept_in(cls, folder: Path, scale: Scale) -> Record:
        """The record of a scale in a folder; an empty one where nothing was measured yet."""
        path = folder / f"{scale}.json"
        return cls.from_json(path.read_text("utf-8")) if path.exists() else cls(scale)
