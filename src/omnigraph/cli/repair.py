"""`omnigraph repair`: publish what was done to tables behind the graph's back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from omnigraph.cli.exit_codes import ExitCode
from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import Capability, GraphCommand
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    ConfirmFlag,
    JsonFlag,
    UriArgument,
)
from omnigraph.cli.output import Line, Styled, counted, output_of
from omnigraph.model.upkeep import RepairedTable, RepairReceipt

EXAMPLES = """
omnigraph repair team.omni
omnigraph repair team.omni --confirm
omnigraph repair team.omni --branch review --force --confirm
"""

ForceFlag = Annotated[
    bool, typer.Option("--force", help="also adopt what may have changed rows; needs --confirm")
]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.DIRECT.panel
    app.command("repair", cls=GraphCommand, rich_help_panel=panel, epilog=EXAMPLES)(repair)


def repair(  # noqa: PLR0917
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = DEFAULT_BRANCH,
    confirm: ConfirmFlag = False,
    force: ForceFlag = False,
    json: JsonFlag = False,
) -> None:
    """Publish what was done to tables behind the graph's back.

    A table whose newest version is not the published one cannot be written. With `--confirm`,
    versions that only rearranged rows are published; with `--force --confirm` also those that may
    have changed some, as they are. The exit code is 1 if a table was refused.
    """
    from omnigraph.cli.opening import open_to_write

    if force and not confirm:
        raise UsageError("`--force` needs `--confirm`", hint="give both, or neither")
    graph = open_to_write(ctx, "repair", uri, settle=False)
    receipt = graph.repair(branch, confirm=confirm, force=force)
    output = output_of(ctx)
    if json:
        output.json({"uri": graph.uri, **receipt.to_dict()})
    else:
        output.lines(_lines(receipt))
    if receipt.has_refusals:
        raise typer.Exit(ExitCode.FAILURE)


def _lines(receipt: RepairReceipt) -> Iterator[Line]:
    from omnigraph.cli.tables import table

    drifted = [done for done in receipt.tables if done.action != "no_op"]
    if not drifted:
        yield (Styled(f"nothing to repair on {receipt.branch}", "bold green"),)
        return
    headers = ("type", "published", "newest", "found", "action", "written by")
    yield from table(headers, [_row(done) for done in drifted])
    yield ()
    for done in drifted:
        if done.error is not None:
            yield (Styled(f"{done.action}:", "yellow"), f" {done.type_key}: {done.error}")
    if not receipt.confirm:
        shown = counted(len(drifted), "table")
        yield (Styled(f"{shown} would be repaired; `--confirm` does it", "bold"),)
        return
    refused = sum(done.action == "refused" for done in drifted)
    style = "bold red" if refused else "bold green"
    yield (Styled(f"{len(drifted) - refused} repaired, {refused} refused", style),)
    if receipt.graph_commit_id is not None:
        yield (f"commit {receipt.graph_commit_id}",)


def _row(done: RepairedTable) -> tuple[str | int, ...]:
    return (
        done.type_key.replace(":", " "),
        done.published_dataset_version,
        done.lance_head_version,
        done.classification.replace("_", " "),
        done.action.replace("_", " "),
        ", ".join(done.operations) or "-",
    )
