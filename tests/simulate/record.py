"""What long ranges of schedules came to: a file that a later run of `make simulate` continues.

The meaning of a seed depends on the failpoints that the code passes. Each run therefore names the
commit of the code and a digest of its deck; seeds count as done for one deck only, schedules and
cells for all of them. A cell counts as long as the code still has it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.circumstances import ROOT, circumstances
from tests.simulate.schedule import CELL_ACTS, Act, Cell, Deck, Outcome, cells_of

RECORD = ROOT / "bench" / "records" / "schedules.json"
"""The one that is kept."""


@dataclass
class Run:
    """Schedules that ran with one state of the code."""

    date: str
    commit: str | None
    deck: str
    seeds: str = ""
    """As ranges: `1-40, 43, 50-60`."""
    seconds: float = 0.0
    """How long it took, beside whatever else ran on the machine."""
    answers: dict[str, int] = field(default_factory=dict)
    findings: dict[str, list[str]] = field(default_factory=dict)
    """By seed, what was wrong."""

    def add(self, outcome: Outcome) -> None:
        """Count a schedule."""
        seed = outcome.setting.seed
        self.seeds = ranged(unranged(self.seeds) | {seed})
        self.answers = dict((Counter(self.answers) + Counter(outcome.answers)).most_common())
        if outcome.faults:
            self.findings[str(seed)] = outcome.faults


@dataclass
class Record:
    """All runs so far, and the cells that they reached."""

    runs: list[Run] = field(default_factory=list)
    places: dict[str, list[str]] = field(default_factory=dict)
    """The failpoints of each operation, as of the last run."""
    reached: dict[Act, set[Cell]] = field(default_factory=lambda: {act: set() for act in CELL_ACTS})

    @classmethod
    def read(cls, path: Path) -> Record:
        """A record, or an empty one where there is none."""
        if not path.exists():
            return cls()
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        places, missing = found["places"], found["not reached"]
        reached: dict[Act, set[Cell]] = {
            act: {
                (name, place, other)
                for name, place, other in cells_of(places)
                if other not in missing[act].get(f"{name} at {place}", ())
            }
            for act in CELL_ACTS
        }
        return cls([Run(**run) for run in found["runs"]], places, reached)

    def write(self, path: Path, deck: Deck) -> None:
        """Replace the file, at once. Cells that were not reached are told with the reason."""
        missing: dict[str, dict[str, dict[str, str]]] = {act: {} for act in CELL_ACTS}
        about = deck.seeds()
        done = {seed % len(deck) for seed in self.done(deck.digest)}
        for act in CELL_ACTS:
            for name, place, other in sorted(cells_of(self.places) - self.reached[act]):
                seed = about[act, (name, place, other)] % len(deck)
                reason = f"in seed {seed}, {other} waited or had ended when {name} stopped there"
                if seed not in done:
                    reason = f"seed {seed}, which is about it, has not run yet"
                missing[act].setdefault(f"{name} at {place}", {})[other] = reason
        content = {
            "schedules": self.schedules,
            "runs": [asdict(run) for run in self.runs],
            "places": self.places,
            "not reached": missing,
        }
        half = path.with_suffix(".half")
        half.write_text(_with_short_lists(content) + "\n", encoding="utf-8")
        half.replace(path)

    @property
    def schedules(self) -> int:
        """How many ran."""
        return sum(len(unranged(run.seeds)) for run in self.runs)

    @property
    def findings(self) -> list[str]:
        """What was wrong, in any run, by the seed and the code that show it."""
        return [
            f"seed {seed} of {run.commit}: {'; '.join(faults)}"
            for run in self.runs
            for seed, faults in run.findings.items()
        ]

    def done(self, deck: str) -> set[int]:
        """The seeds of a deck that have run."""
        return {n for run in self.runs if run.deck == deck for n in unranged(run.seeds)}

    def begin(self, places: dict[str, list[str]], deck: str) -> Run:
        """The run to add to: the last one, if it was of the same code on the same day."""
        around = circumstances(None, 0)
        self.places = places
        run = Run(around.date, around.commit, deck)
        if (
            self.runs
            and asdict(self.runs[-1]).items()
            >= {"date": run.date, "commit": run.commit, "deck": deck}.items()
        ):
            return self.runs[-1]
        self.runs.append(run)
        return run


def _with_short_lists(content: object) -> str:
    """JSON in which a list of texts is one line."""
    text = json.dumps(content, indent=1)
    return re.sub(
        r"\[\n\s*(\"[^\[\]{}]*?\")\n\s*\]",
        lambda found: "[" + re.sub(r",\n\s*", ", ", found[1]) + "]",
        text,
    )


def unranged(text: str) -> set[int]:
    """The numbers in ranges.

    >>> sorted(unranged("1-3, 7"))
    [1, 2, 3, 7]
    """
    found: set[int] = set()
    for part in filter(None, text.split(", ")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def ranged(numbers: Iterable[int]) -> str:
    """Numbers as ranges.

    >>> ranged({1, 2, 3, 7})
    '1-3, 7'
    """
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
