"""`omnigraph branch …`: branches of a graph."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.help import (
    Capability,
    DestructiveCommand,
    GraphCommand,
    Group,
    WriteCommand,
    subcommand_missing,
)
from omnigraph.cli.options import DEFAULT_BRANCH, JsonFlag, UriOption, branch_name
from omnigraph.cli.output import Styled, output_of

EXAMPLES = """
omnigraph branch create review --uri team.omni
omnigraph branch list --uri team.omni
"""
CREATE_EXAMPLES = """
omnigraph branch create review --uri team.omni
omnigraph branch create fixes/may --from review --uri team.omni
"""
LIST_EXAMPLES = """
omnigraph branch list --uri team.omni
omnigraph branch list --uri team.omni --json
"""
DELETE_EXAMPLES = """
omnigraph branch delete review --uri team.omni
omnigraph branch delete review --uri s3://lake/graphs/team.omni --yes
"""

NewName = Annotated[str, typer.Argument(metavar="NAME", help="what to call it")]
OldName = Annotated[str, typer.Argument(metavar="NAME", help="which one")]
SourceOption = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="NAME",
        help="the branch to start from; main by default",
        callback=branch_name,
    ),
]


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(rich_markup_mode=None)
    panel = Capability.ANY.panel
    group.command("create", cls=WriteCommand, rich_help_panel=panel, epilog=CREATE_EXAMPLES)(create)
    group.command("list", cls=GraphCommand, rich_help_panel=panel, epilog=LIST_EXAMPLES)(list_)
    group.command("delete", cls=DestructiveCommand, rich_help_panel=panel, epilog=DELETE_EXAMPLES)(
        delete
    )
    app.add_typer(
        group,
        name="branch",
        cls=Group,
        callback=branch,
        invoke_without_command=True,
        epilog=EXAMPLES,
    )


def branch(ctx: typer.Context) -> None:
    """Create, list and delete branches."""
    if ctx.invoked_subcommand is None:
        raise subcommand_missing(ctx)


def create(
    ctx: typer.Context,
    name: NewName,
    from_: SourceOption = DEFAULT_BRANCH,
    uri: UriOption = None,
    json: JsonFlag = False,
) -> None:
    """Create a branch at the head of another.

    It costs next to nothing: no data is copied until something is written to it.
    """
    from omnigraph.cli.addressing import actor_of
    from omnigraph.cli.opening import open_to_write

    graph = open_to_write(ctx, "branch create", uri)
    created = graph.create_branch(name, from_, actor=actor_of(ctx))
    output = output_of(ctx)
    if json:
        output.json(created.to_dict())
    else:
        output.line(Styled(f"created branch {created.name} from {created.source}", "bold green"))


def list_(ctx: typer.Context, uri: UriOption = None, json: JsonFlag = False) -> None:
    """List the branches, one a line."""
    from omnigraph.cli.opening import open_to_read

    branches = open_to_read(ctx, uri).list_branches()
    output = output_of(ctx)
    if json:
        output.json({"branches": branches})
    else:
        output.lines([name] for name in branches)


def delete(
    ctx: typer.Context, name: OldName, uri: UriOption = None, json: JsonFlag = False
) -> None:
    """Delete a branch and the commits only it has.

    A branch that others were created from is refused, and so is main. On storage that others may
    share, `--yes` or an answer at the terminal is needed.
    """
    from omnigraph.cli.addressing import actor_of
    from omnigraph.cli.opening import open_to_write

    graph = open_to_write(ctx, "branch delete", uri, destructive=f"branch delete {name}")
    deleted = graph.delete_branch(name, actor=actor_of(ctx))
    output = output_of(ctx)
    if json:
        output.json(deleted.to_dict())
    else:
        output.line(Styled(f"deleted branch {deleted.name}", "bold green"))
