"""What a query is going to do, and what it did: for `explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ExplainedStep:
    """One step of a plan as it ran."""

    step: str
    strategy: str
    rows: int
    """Rows that came out of it."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "step": self.step,
            "strategy": self.strategy,
            "rows": self.rows,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class ExplainedRun:
    """One execution of a plan."""

    engine: str
    seconds: float
    steps: tuple[ExplainedStep, ...]
    storage: Mapping[str, Any]
    """`requests`, serial `round_trips`, and `calls` by kind and verb."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "engine": self.engine,
            "seconds": self.seconds,
            "steps": [step.to_dict() for step in self.steps],
            "storage": dict(self.storage),
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """The typed plan of a query and, if it ran, how."""

    plan: tuple[str, ...]
    """One line a step, indented by nesting."""
    run: ExplainedRun | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; what did not run has only its plan."""
        return {"plan": list(self.plan)} | (self.run.to_dict() if self.run is not None else {})

    def __repr__(self) -> str:
        return "\n".join([*self.plan, *(_run_lines(self.run) if self.run is not None else ())])

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def _run_lines(run: ExplainedRun) -> Iterator[str]:
    yield ""
    yield f"ran on the {run.engine} engine in {_duration(run.seconds)}"
    cells = [("step", "strategy", "rows", "time")]
    cells += [
        (step.step, step.strategy, str(step.rows), _duration(step.seconds)) for step in run.steps
    ]
    if run.steps:
        first, second, third, fourth = (
            max(map(len, column)) for column in zip(*cells, strict=True)
        )
        for step, strategy, rows, time in cells:
            yield f"  {step:<{first}}  {strategy:<{second}}  {rows:>{third}}  {time:>{fourth}}"
    calls = [
        f"{number} {kind} {verb}"
        for kind, verbs in run.storage["calls"].items()
        for verb, number in verbs.items()
    ]
    requests, round_trips = run.storage["requests"], run.storage["round_trips"]
    said = f"storage: {requests} requests in {round_trips} round trips"
    yield f"{said} ({', '.join(calls)})" if calls else said


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"
