"""What a run leaves behind: figures, their targets, and the machine they belong to.

A number without its machine means nothing, so a record always names it. Figures of one machine are
compared with each other through ratios, which travel better than seconds do.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from omnigraph import __version__


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure has to reach."""

    bound: float
    direction: Literal["at least", "at most"]

    def is_met(self, value: float) -> bool:
        """Whether a value reaches it."""
        return value >= self.bound if self.direction == "at least" else value <= self.bound


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. A ratio is a figure whose unit is `×`."""

    name: str
    value: float
    unit: str
    target: Target | None = None
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the target is reached; ``None`` where there is none."""
        return None if self.target is None else self.target.is_met(self.value)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        out: dict[str, Any] = {"name": self.name, "value": self.value, "unit": self.unit}
        if self.target is not None:
            out["target"] = {"direction": self.target.direction, "bound": self.target.bound}
            out["met"] = self.is_met
        if self.note:
            out["note"] = self.note
        return out


@dataclass(frozen=True, slots=True)
class SuiteRecord:
    """The figures of one suite."""

    suite: str
    figures: Sequence[Figure]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: ratios apart from what depends on the machine."""
        return {
            "suite": self.suite,
            "figures": [figure.to_dict() for figure in self.figures if figure.unit != "×"],
            "ratios": [figure.to_dict() for figure in self.figures if figure.unit == "×"],
        }


def document(records: Sequence[SuiteRecord]) -> dict[str, Any]:
    """Everything a run produced, as one JSON document."""
    return {
        "omnigraph": __version__,
        "python": platform.python_version(),
        "machine": machine(),
        "suites": [record.to_dict() for record in records],
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on; nothing that identifies a person or a network."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "load": _load(),
        "implementation": sys.implementation.name,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"


def _load() -> float | None:
    """How many processes wanted a core lately: on a busy machine, figures are too high."""
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return None


def _memory_gib() -> float | None:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    return round(size / 2**30, 1)
