"""`omnigraph commit …`: the history of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import Capability, GraphCommand, Group, subcommand_missing
from omnigraph.cli.moments import moment
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    JsonFlag,
    UriArgument,
    UriOption,
)
from omnigraph.cli.output import Line, output_of
from omnigraph.model.receipts import CommitInfo
from omnigraph.syntax.suggest import did_you_mean

EXAMPLES = """
omnigraph commit list team.omni
omnigraph commit show 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --uri team.omni
"""
LIST_EXAMPLES = """
omnigraph commit list team.omni --branch review
omnigraph commit list team.omni --filter actor=act-ana --json
"""
SHOW_EXAMPLES = """
omnigraph commit show 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --uri team.omni
omnigraph commit show 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --uri team.omni --json
"""

FILTERS = ("actor",)
NOBODY = "-"
"""In place of an actor that was not given."""


def _filter(value: str | None) -> str | None:
    if value is None:
        return None
    name, equals, wanted = value.partition("=")
    if name not in FILTERS or not equals or not wanted:
        raise UsageError(
            f"`--filter` takes actor=ID, not `{value}`",
            hint=did_you_mean(name, FILTERS) or "it shows the commits of one actor",
        )
    return value


FilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="actor=ID",
        help="only commits this actor wrote or recovered",
        callback=_filter,
    ),
]
CommitArgument = Annotated[
    str, typer.Argument(metavar="ID", help="a commit id, as `commit list` shows it")
]


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(rich_markup_mode=None)
    panel = Capability.ANY.panel
    group.command("list", cls=GraphCommand, rich_help_panel=panel, epilog=LIST_EXAMPLES)(list_)
    group.command("show", cls=GraphCommand, rich_help_panel=panel, epilog=SHOW_EXAMPLES)(show)
    app.add_typer(
        group,
        name="commit",
        cls=Group,
        callback=commit,
        invoke_without_command=True,
        epilog=EXAMPLES,
    )


def commit(ctx: typer.Context) -> None:
    """Look at the commits of a graph."""
    if ctx.invoked_subcommand is None:
        raise subcommand_missing(ctx)


def list_(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = DEFAULT_BRANCH,
    filter_: FilterOption = None,
    json: JsonFlag = False,
) -> None:
    """List the commits of a branch, newest first.

    That includes the ones it shares with the branch it was created from. The ids are whole, so
    that each can be handed to `commit show` and to `mutate --if-commit`.
    """
    from omnigraph.cli.opening import open_to_read

    actor = filter_.partition("=")[2] if filter_ is not None else None
    commits = open_to_read(ctx, uri).list_commits(branch, actor=actor)
    output = output_of(ctx)
    if json:
        output.json({"commits": [found.to_dict() for found in commits]})
    else:
        output.lines(_list_lines(commits))


def show(
    ctx: typer.Context, commit_id: CommitArgument, uri: UriOption = None, json: JsonFlag = False
) -> None:
    """Show one commit of any branch."""
    from omnigraph.cli.opening import open_to_read
    from omnigraph.model.ids import normalize_commit_id

    wanted = normalize_commit_id(commit_id)
    found = open_to_read(ctx, uri).show_commit(wanted)
    output = output_of(ctx)
    if json:
        output.json(found.to_dict())
    else:
        output.lines(_show_lines(found))


def _list_lines(commits: list[CommitInfo]) -> Iterator[Line]:
    from omnigraph.cli.tables import table

    rows = [
        (
            found.graph_commit_id,
            found.graph_branch or DEFAULT_BRANCH,
            found.actor_id or NOBODY,
            moment(found.created_at),
        )
        for found in commits
    ]
    yield from table(("commit", "branch", "actor", "time (UTC)"), rows)


def _show_lines(found: CommitInfo) -> Iterator[Line]:
    facts = {
        "commit": found.graph_commit_id,
        "branch": found.graph_branch or DEFAULT_BRANCH,
        "parent": found.parent_commit_id,
        "merged": found.merged_parent_commit_id,
        "actor": found.actor_id,
        "time": f"{moment(found.created_at)} UTC",
        "manifest": f"version {found.graph_manifest_version}",
    }
    for name, value in facts.items():
        if value is not None:
            yield (f"{name:<8}  {value}",)
