"""`omnigraph recover` and `omnigraph recovery list`: what interrupted writes left behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from omnigraph.cli.exit_codes import ExitCode
from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import Capability, GraphCommand, Group, subcommand_missing
from omnigraph.cli.moments import moment
from omnigraph.cli.options import JsonFlag, UriArgument
from omnigraph.cli.output import Line, Styled, counted, output_of

EXAMPLES = """
omnigraph recover team.omni
omnigraph recover team.omni --force --confirm
"""
GROUP_EXAMPLES = """
omnigraph recovery list team.omni
"""
LIST_EXAMPLES = """
omnigraph recovery list team.omni
omnigraph recovery list team.omni --json
"""

ForceFlag = Annotated[
    bool, typer.Option("--force", help="roll back through commits of others as well")
]
ConfirmFlag = Annotated[bool, typer.Option("--confirm", help="mean it; `--force` needs this")]


def add_to(app: typer.Typer) -> None:
    """Register the command and the group."""
    panel = Capability.DIRECT.panel
    app.command("recover", cls=GraphCommand, rich_help_panel=panel, epilog=EXAMPLES)(recover)
    group = typer.Typer(rich_markup_mode=None)
    group.command("list", cls=GraphCommand, rich_help_panel=panel, epilog=LIST_EXAMPLES)(list_)
    app.add_typer(
        group,
        name="recovery",
        cls=Group,
        callback=recovery,
        invoke_without_command=True,
        epilog=GROUP_EXAMPLES,
    )


def recover(
    ctx: typer.Context,
    uri: UriArgument = None,
    force: ForceFlag = False,
    confirm: ConfirmFlag = False,
    json: JsonFlag = False,
) -> None:
    """Finish or undo what interrupted writes left behind.

    Every write does this first for what stands in its way, so it is rarely needed. The exit code
    is 1 if anything is left unsettled: its writer may still be running, or somebody changed a
    table behind the graph's back, which only `--force --confirm` rolls back through.
    """
    from omnigraph.cli.opening import open_to_write

    if force != confirm:
        given, other = ("--force", "--confirm") if force else ("--confirm", "--force")
        raise UsageError(f"`{given}` needs `{other}`", hint="give both, or neither")
    graph = open_to_write(ctx, "recover", uri, settle=False)
    operations = [
        {
            "operation_id": found.operation_id,
            "outcome": found.outcome,
            "settled": found.is_settled,
            "reason": found.reason or None,
        }
        for found in graph.recover(force=force)
    ]
    output = output_of(ctx)
    if json:
        output.json({"uri": graph.uri, "force": force, "operations": operations})
    else:
        output.lines(_operation_lines(operations))
    if not all(found["settled"] for found in operations):
        raise typer.Exit(ExitCode.FAILURE)


def recovery(ctx: typer.Context) -> None:
    """Look at recoveries of the past."""
    if ctx.invoked_subcommand is None:
        raise subcommand_missing(ctx)


def list_(ctx: typer.Context, uri: UriArgument = None, json: JsonFlag = False) -> None:
    """List every recovery so far, oldest first."""
    from omnigraph.cli.opening import open_to_read

    recoveries = [row.to_dict() for row in open_to_read(ctx, uri).list_recoveries()]
    output = output_of(ctx)
    if json:
        output.json({"recoveries": recoveries})
    else:
        output.lines(_recovery_lines(recoveries))


def _operation_lines(operations: Sequence[dict[str, Any]]) -> Iterator[Line]:
    for found in operations:
        outcome = found["outcome"].replace("_", " ")
        reason = f": {found['reason']}" if found["reason"] else ""
        yield (f"{found['operation_id']}  {outcome}{reason}",)
    unsettled = sum(not found["settled"] for found in operations)
    total = counted(len(operations), "operation")
    if not operations:
        yield (Styled("nothing to recover", "bold green"),)
    elif unsettled:
        yield (Styled(f"{unsettled} of {total} not settled", "bold red"),)
    else:
        yield (Styled(f"{total} settled", "bold green"),)


def _recovery_lines(recoveries: Sequence[dict[str, Any]]) -> Iterator[Line]:
    from omnigraph.cli.tables import table

    if not recoveries:
        yield ("no recovery was ever needed",)
        return
    yield from table(
        ("operation", "of", "ended", "commit", "actor", "time (UTC)"),
        [
            (
                found["operation_id"],
                found["sidecar_writer_kind"],
                found["recovery_kind"],
                found["graph_commit_id"] or "-",
                found["recovery_for_actor"] or "-",
                moment(found["created_at"]),
            )
            for found in recoveries
        ],
    )
