"""A migration plan, as lines for people and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omnigraph.cli.output import Line, Styled, counted
from omnigraph.model.receipts import SchemaApplyReceipt
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


def plan_document(plan: MigrationPlan, start: str, origin: str) -> dict[str, Any]:
    """`{uri, supported, step_count, steps}`, or `from` instead of `uri`: that is ``origin``."""
    form = plan.to_json()
    return {
        origin: start,
        "supported": form["supported"],
        "step_count": len(plan.steps),
        "steps": form["steps"],
    }


def plan_lines(plan: MigrationPlan, start: str, new: Path) -> Iterator[Line]:
    """One line a step, marked like a diff, and what it amounts to."""
    yield from _step_lines(plan, start, new)
    steps = counted(len(plan.steps), "step")
    if not plan.steps:
        yield (Styled("nothing to do: both schemas mean the same", "bold green"),)
    elif plan.supported:
        yield (Styled(f"{steps}, all supported", "bold green"),)
    else:
        refused = len(plan.unsupported)
        yield (Styled(f"{steps}, {refused} not supported: this cannot be applied", "bold red"),)


def applied_lines(plan: MigrationPlan, receipt: SchemaApplyReceipt, new: Path) -> Iterator[Line]:
    """One line a step, and that they were taken."""
    yield from _step_lines(plan, receipt.uri, new)
    yield from _outcome(receipt)


def served_lines(receipt: SchemaApplyReceipt, new: Path) -> Iterator[Line]:
    """The same from what a server tells of its steps."""
    yield (Styled(f"{receipt.uri} → {new}", "bold"),)
    yield ()
    for step in receipt.steps:
        words = [str(value) for value in step.values() if isinstance(value, str | int)]
        yield (Styled(f"  ~ {' '.join(words)}", "green"),)
    if receipt.steps:
        yield ()
    yield from _outcome(receipt)


def _outcome(receipt: SchemaApplyReceipt) -> Iterator[Line]:
    if not receipt.applied:
        yield (Styled("nothing to do: the graph has this schema already", "bold green"),)
    else:
        yield (Styled(f"{counted(len(receipt.steps), 'step')} applied", "bold green"),)


def _step_lines(plan: MigrationPlan, start: str, new: Path) -> Iterator[Line]:
    yield (Styled(f"{start} → {new}", "bold"),)
    yield ()
    for step in plan.steps:
        mark, style = _look(step)
        yield (Styled(f"  {mark} {step}", style),)
    if plan.steps:
        yield ()


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
