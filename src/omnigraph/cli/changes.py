"""Diffs, changes and merge plans for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any

import typer

from omnigraph.cli.moments import moment
from omnigraph.cli.output import Line, Output, Styled
from omnigraph.cli.tables import table
from omnigraph.errors import MergeConflicts
from omnigraph.model.changes import (
    MARKS,
    EntityChange,
    EntityVersion,
    TypeCounts,
    difference,
    short,
    spelled,
    subject,
)
from omnigraph.model.merging import HEADERS, MergePlan
from omnigraph.model.receipts import ReplayReceipt
from omnigraph.model.text_table import one_line

CHANGES_SHOWN = 50
CONFLICTS_SHOWN = 20
KindOption = Annotated[
    list[str] | None,
    typer.Option("--kind", metavar="node|edge", help="only nodes, or only edges"),
]
TypeOption = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="NAME", help="only this type; repeatable"),
]
OpOption = Annotated[
    list[str] | None,
    typer.Option("--op", metavar="insert|update|delete", help="only this operation; repeatable"),
]
LimitOption = Annotated[
    int,
    typer.Option("--limit", metavar="N", min=0, help="how many changes to list; not with --json"),
]


def diff_lines(
    types: Sequence[TypeCounts], changes: Iterator[EntityChange], limit: int
) -> Iterator[Line]:
    """How much of each type differs, then the first changes one by one."""
    if not types:
        yield ("no differences",)
        return
    rows = [(f"{each.kind} {each.type_name}", *each.numbers) for each in types]
    yield from table(("type", "inserted", "updated", "deleted"), rows)
    yield from _change_lines(changes, sum(each.total for each in types), limit)


def _change_lines(changes: Iterator[EntityChange], total: int, limit: int) -> Iterator[Line]:
    """One line a change: what happened, to whom, and for an update how the values differ."""
    if limit:
        yield ()
    yield from map(change_line, islice(changes, limit))
    if total > limit:
        left = f"{total - limit} of {total} changes"
        yield (f"… {left} are not listed; `--limit` or `--json` shows more",)


def change_line(change: EntityChange) -> Line:
    """What happened, to whom, and for an update how the values differ."""
    mark, style = MARKS[change.op]
    how = difference(change)
    return Styled(mark, style), f" {subject(change)}", Styled(f"  {how}" if how else "", "dim")


def history_lines(versions: Sequence[EntityVersion]) -> Iterator[Line]:
    """Who changed an entity, when, and how."""
    if not versions:
        yield ("no commit changed it",)
    for each in versions:
        cause, change = each.cause, each.change
        mark, style = MARKS[change.op]
        by = cause.actor_id or "-"
        yield Styled(mark, style), f" {cause.graph_commit_id}  {moment(cause.authored_at)}  {by}"
        image = change.after or change.before
        assert image is not None
        shown = difference(change) if change.op == "update" else spelled(image)
        yield (Styled(f"    {shown}", "dim"),)


def plan_lines(plan: MergePlan) -> Iterator[Line]:
    """What a merge would do, type by type, then what is in its way."""
    style = "bold red" if plan.conflicts else "bold green"
    yield (Styled(plan.title, style),)
    if plan.types:
        yield ()
        yield from table(HEADERS, [each.cells for each in plan.types])
    if plan.conflicts:
        yield ()
        yield from conflict_lines([conflict.to_dict() for conflict in plan.conflicts])


def show_plan(output: Output, plan: MergePlan, *, json: bool) -> None:
    """Write what would be done."""
    if json:
        output.json(plan.to_dict())
    else:
        output.lines(plan_lines(plan))


def show_replay(output: Output, receipt: ReplayReceipt, *, json: bool) -> None:
    """Write what became of a commit that was done again or undone."""
    if json:
        output.json(receipt.to_dict())
        return
    done = {"revert": "reverted", "cherry-pick": "picked"}[receipt.verb]
    if receipt.commit is None:
        output.line(f"{receipt.branch} needs nothing of it: there is nothing to change")
        return
    counts = f"{receipt.inserted} inserted, {receipt.updated} updated, {receipt.deleted} deleted"
    output.line(Styled(f"{done} {receipt.of_commit_id} on {receipt.branch}", "bold green"))
    output.line(counts)
    output.line(f"commit {receipt.commit.graph_commit_id}")


@contextmanager
def conflicts_shown(output: Output, *, json: bool) -> Iterator[None]:
    """List the conflicts of a merge for people before its failure is told."""
    try:
        yield
    except MergeConflicts as refused:
        if not json:
            output.notes(conflict_lines(refused.details["merge_conflicts"]))
        raise


def conflict_lines(conflicts: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """One line a conflict, as far as they can be read."""
    for conflict in conflicts[:CONFLICTS_SHOWN]:
        yield Styled(conflict["kind"], "red"), f"  {one_line(conflict['message'])}"
        if "source" in conflict or "target" in conflict:
            yield from (_side_line(conflict, side) for side in ("base", "source", "target"))
    if (more := len(conflicts) - CONFLICTS_SHOWN) > 0:
        yield (f"… and {more} more; `--json` lists them all",)


def _side_line(conflict: dict[str, Any], side: str) -> Line:
    image = conflict.get(side)
    if image is None:
        return (Styled(f"    {side:<6}  -", "dim"),)
    values = {**image.get("endpoints", {}), **image["properties"]}
    shown = conflict.get("properties") or values
    text = ", ".join(f"{name} {short(values[name])}" for name in shown)
    return (Styled(f"    {side:<6}  {text}", "dim"),)
