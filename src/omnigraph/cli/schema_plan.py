"""A migration plan, as lines for people and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omnigraph.cli.output import Line, Styled, counted
from omnigraph.schema.migration import MigrationPlan
from omnigraph.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    Step,
    UnsupportedChange,
)


def plan_document(plan: MigrationPlan, old: Path) -> dict[str, Any]:
    """`{from, supported, step_count, steps}`."""
    form = plan.to_json()
    return {
        "from": str(old),
        "supported": form["supported"],
        "step_count": len(plan.steps),
        "steps": form["steps"],
    }


def plan_lines(plan: MigrationPlan, old: Path, new: Path) -> Iterator[Line]:
    """One line a step, marked like a diff, and what it amounts to."""
    yield (Styled(f"{old} → {new}", "bold"),)
    yield ()
    for step in plan.steps:
        mark, style = _look(step)
        yield (Styled(f"  {mark} {step}", style),)
    if plan.steps:
        yield ()
    steps = counted(len(plan.steps), "step")
    if not plan.steps:
        yield (Styled("nothing to do: both schemas mean the same", "bold green"),)
    elif plan.supported:
        yield (Styled(f"{steps}, all supported", "bold green"),)
    else:
        refused = len(plan.unsupported)
        yield (Styled(f"{steps}, {refused} not supported: this cannot be applied", "bold red"),)


def _look(step: Step) -> tuple[str, str]:
    """A mark that works without colour, and a colour by what the step may do to data."""
    match step:
        case UnsupportedChange():
            return "!", "red"
        case DropProperty() | DropType():
            return "-", "yellow"
        case AddType() | AddProperty() | AddConstraint():
            return "+", "green"
    return "~", "green"
