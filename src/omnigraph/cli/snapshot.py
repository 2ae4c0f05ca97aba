"""`omnigraph snapshot`: what a branch holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.help import Capability, ReadCommand
from omnigraph.cli.options import DEFAULT_BRANCH, BranchOption, JsonFlag, UriArgument
from omnigraph.cli.output import Line, Styled, counted, output_of

if TYPE_CHECKING:
    from omnigraph.graph import SnapshotSummary

EXAMPLES = """
omnigraph snapshot team.omni
omnigraph snapshot team.omni --branch review --json
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.ANY.panel
    app.command("snapshot", cls=ReadCommand, rich_help_panel=panel, epilog=EXAMPLES)(snapshot)


def snapshot(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Show the types of a branch and how many entities each has.

    Everything is as of one commit, the head of the branch, which is named in the last line.
    """
    from omnigraph.cli.remote import graph_to_read

    summary = graph_to_read(ctx, uri).snapshot(branch)
    output = output_of(ctx)
    if json:
        output.json(summary.to_dict())
    else:
        output.lines(_lines(summary))


def _lines(summary: SnapshotSummary) -> Iterator[Line]:
    from omnigraph.cli.tables import table

    rows = [
        (
            f"{entry.entity_kind} {entry.type_name}",
            entry.entity_count,
            entry.published_dataset_version,
        )
        for entry in summary.datasets
    ]
    yield from table(("type", "entities", "version"), rows)
    yield ()
    total = sum(entry.entity_count for entry in summary.datasets)
    said = f"{counted(total, 'entity', 'entities')} on {summary.graph_branch}"
    yield (Styled(said, "bold green"),)
    yield (f"commit {summary.graph_commit_id}",)
