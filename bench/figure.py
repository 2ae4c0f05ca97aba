"""What is measured: a value and its unit, what it is compared with, and what it has to reach."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

ENGINES = ("Kuzu", "DuckDB", "bare Lance", "Spark → Parquet")
"""Peers of other makes. Everything else a figure is compared with is Omnigraph in another state."""

DIGITS = 5
"""Significant digits that are kept: more would be noise in every record."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure has to reach."""

    bound: float
    direction: Literal["at least", "at most"]

    def is_met(self, value: float) -> bool:
        """Whether a value reaches it."""
        return value >= self.bound if self.direction == "at least" else value <= self.bound


@dataclass(frozen=True, slots=True)
class Versus:
    """The other side of a comparison, in the unit of ours, and which way the ratio goes.

    ``ours to theirs`` says how many times theirs we take, which is right for costs and for rates
    we want to keep; ``theirs to ours`` says how many times faster we are.
    """

    name: str
    value: float
    ratio: Literal["ours to theirs", "theirs to ours"] = "ours to theirs"

    @property
    def is_engine(self) -> bool:
        """Whether this is an engine of another make."""
        return self.name in ENGINES


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. A target is for the ratio where there is one, else for the value."""

    name: str
    value: float
    unit: str
    target: Target | None = None
    note: str = ""
    versus: Versus | None = None

    @property
    def ratio(self) -> float | None:
        """The ratio to the other side; ``None`` where nothing is compared."""
        if self.versus is None:
            return None
        if self.versus.ratio == "theirs to ours":
            return self.versus.value / self.value
        return self.value / self.versus.value

    @property
    def is_met(self) -> bool | None:
        """Whether the target is reached; ``None`` where there is none."""
        if self.target is None:
            return None
        ratio = self.ratio
        return self.target.is_met(self.value if ratio is None else ratio)

    def rounded(self) -> Figure:
        """The figure as records keep it."""
        versus = self.versus
        if versus is not None:
            versus = replace(versus, value=_rounded(versus.value))
        return replace(self, value=_rounded(self.value), versus=versus)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, which also says what follows from the values."""
        out: dict[str, Any] = {"name": self.name, "value": self.value, "unit": self.unit}
        if self.versus is not None and self.ratio is not None:
            out["versus"] = {"name": self.versus.name, "value": self.versus.value}
            out["ratio"] = {"of": self.versus.ratio, "value": _rounded(self.ratio)}
        if self.target is not None:
            out["target"] = {"direction": self.target.direction, "bound": self.target.bound}
            out["met"] = self.is_met
        if self.note:
            out["note"] = self.note
        return out

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Figure:
        """A figure that was kept."""
        target = Target(**found["target"]) if "target" in found else None
        versus = None
        if "versus" in found:
            versus = Versus(**found["versus"], ratio=found["ratio"]["of"])
        return cls(
            found["name"], found["value"], found["unit"], target, found.get("note", ""), versus
        )


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
