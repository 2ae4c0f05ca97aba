"""`omnigraph commit …`: the history of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from omnigraph.cli.changes_output import (
    KindOption,
    OpOption,
    PageLimitOption,
    PageTokenOption,
    TypeOption,
    conflicts_shown,
    followed,
    history_lines,
    show_commit_pages,
    show_page,
    show_plan,
    show_replay,
)
from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import (
    Capability,
    DirectWriteCommand,
    Group,
    ReadCommand,
    subcommand_missing,
)
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    JsonFlag,
    UriArgument,
    UriOption,
)
from omnigraph.cli.output import Line, moment, output_of, table
from omnigraph.model.receipts import CommitInfo
from omnigraph.syntax.suggest import did_you_mean

EXAMPLES = """
omnigraph commit list team.omni
omnigraph commit show 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --uri team.omni
"""
LIST_EXAMPLES = """
omnigraph commit list team.omni --branch review
omnigraph commit list team.omni --filter actor=act-ana --json
omnigraph commit list team.omni --entity Person:ada
"""
SHOW_EXAMPLES = """
omnigraph commit show 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --uri team.omni
omnigraph commit show 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --uri team.omni --json
"""
CHANGES_EXAMPLES = """
omnigraph commit changes 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --uri team.omni
omnigraph commit changes 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --uri team.omni --type Person --json
"""
REVERT_EXAMPLES = """
omnigraph commit revert 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --uri team.omni --dry-run
omnigraph commit revert 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --uri team.omni
"""

FILTERS = ("actor",)
NO_ACTOR = "-"
"""Shown for a commit without an actor."""
LISTED_CHARACTERS = 60
"""What a list shows of a message."""


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


def _entity(value: str | None) -> str | None:
    if value is not None and not all(_entity_parts(value)):
        raise UsageError(
            f"`--entity` takes TYPE:ID, not `{value}`",
            hint="write it as Person:ada, or as node:Person:ada",
        )
    return value


def _entity_parts(value: str) -> tuple[str, str]:
    """The type, with its kind if that was given, and the id, which may hold colons itself."""
    first, _, rest = value.partition(":")
    if first in ("node", "edge") and ":" in rest:
        name, _, id = rest.partition(":")
        return f"{first}:{name}", id
    return first, rest


FilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="actor=ID",
        help="only commits this actor wrote or recovered",
        callback=_filter,
    ),
]
EntityOption = Annotated[
    str | None,
    typer.Option(
        "--entity",
        metavar="TYPE:ID",
        help="only commits that changed this entity, and what they did to it",
        callback=_entity,
    ),
]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="show what would be undone, and change nothing")
]
CommitArgument = Annotated[
    str, typer.Argument(metavar="ID", help="a commit id, as `commit list` shows it")
]


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(rich_markup_mode=None)
    panel = Capability.ANY.panel
    group.command("list", cls=ReadCommand, rich_help_panel=panel, epilog=LIST_EXAMPLES)(list_)
    group.command("show", cls=ReadCommand, rich_help_panel=panel, epilog=SHOW_EXAMPLES)(show)
    group.command("revert", cls=DirectWriteCommand, rich_help_panel=panel, epilog=REVERT_EXAMPLES)(
        revert
    )
    group.command("changes", cls=ReadCommand, rich_help_panel=panel, epilog=CHANGES_EXAMPLES)(
        changes
    )
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
    *,
    filter_: FilterOption = None,
    entity: EntityOption = None,
    json: JsonFlag = False,
) -> None:
    """List the commits of a branch, newest first.

    That includes the ones it shares with the branch it was created from. The ids are whole, so
    that each can be handed to `commit show` and to `mutate --if-commit`.
    """
    from omnigraph.cli.opening import graph_to_read
    from omnigraph.client import RemoteGraph

    actor = filter_.partition("=")[2] if filter_ is not None else None
    graph = graph_to_read(ctx, uri, only_stored={"--entity": entity is not None})
    output = output_of(ctx)
    if entity is not None:
        assert not isinstance(graph, RemoteGraph)
        history = graph.entity_history(*_entity_parts(entity), branch=branch)
        versions = [each for each in history if actor in (None, each.cause.actor_id)]
        if json:
            output.json({"commits": [each.to_dict() for each in versions]})
        else:
            output.lines(history_lines(versions))
        return
    commits = graph.list_commits(branch, actor=actor)
    if json:
        output.json({"commits": [found.to_dict() for found in commits]})
    else:
        output.lines(_list_lines(commits))


def show(
    ctx: typer.Context, commit_id: CommitArgument, uri: UriOption = None, json: JsonFlag = False
) -> None:
    """Show one commit of any branch."""
    from omnigraph.cli.opening import graph_to_read
    from omnigraph.model.ids import normalize_commit_id

    wanted = normalize_commit_id(commit_id)
    found = graph_to_read(ctx, uri).show_commit(wanted)
    output = output_of(ctx)
    if json:
        output.json(found.to_dict())
    else:
        output.lines(_show_lines(found))


def changes(
    ctx: typer.Context,
    commit_id: CommitArgument,
    *,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    limit: PageLimitOption = None,
    page_token: PageTokenOption = None,
    uri: UriOption = None,
    json: JsonFlag = False,
) -> None:
    """Show what one commit changed, against its first parent.

    Pages are fetched and written one after another, with `--json` into one document with every
    entity before and after. `--page-token` shows the one page it leads to, as it is.
    """
    from omnigraph.cli.opening import graph_to_read
    from omnigraph.model.ids import normalize_commit_id

    graph = graph_to_read(ctx, uri)
    output = output_of(ctx)
    page = partial(
        graph.commit_changes_page,
        normalize_commit_id(commit_id),
        limit=limit,
        kinds=kinds or (),
        types=types or (),
        ops=ops or (),
    )
    if page_token is not None:
        show_page(output, page(page_token=page_token), as_json=json)
    else:
        show_commit_pages(output, followed(page, page()), as_json=json)


def revert(
    ctx: typer.Context,
    commit_id: CommitArgument,
    *,
    branch: BranchOption = DEFAULT_BRANCH,
    dry_run: DryRunFlag = False,
    uri: UriOption = None,
    json: JsonFlag = False,
) -> None:
    """Undo what one commit changed, as a new commit.

    What others changed since stays. If they changed the same entities, nothing is done, and the
    exit code is 1.
    """
    from omnigraph.cli.addressing import actor_of
    from omnigraph.cli.opening import open_to_read, open_to_write
    from omnigraph.model.ids import normalize_commit_id

    wanted = normalize_commit_id(commit_id)
    output = output_of(ctx)
    if dry_run:
        plan = open_to_read(ctx, uri).plan_revert(wanted, branch=branch)
        show_plan(output, plan, json=json)
        return
    graph = open_to_write(ctx, "commit revert", uri)
    with conflicts_shown(output, json=json):
        receipt = graph.revert(wanted, branch=branch, actor=actor_of(ctx))
    show_replay(output, receipt, json=json)


def _list_lines(commits: list[CommitInfo]) -> Iterator[Line]:
    headers = ["commit", "branch", "actor", "time (UTC)"]
    has_words = any(found.message for found in commits)
    rows = [
        (
            found.graph_commit_id,
            found.graph_branch or DEFAULT_BRANCH,
            found.actor_id or NO_ACTOR,
            moment(found.created_at),
            *((_first_line(found.message),) if has_words else ()),
        )
        for found in commits
    ]
    yield from table([*headers, "message"] if has_words else headers, rows)


def _first_line(message: str | None) -> str:
    """What a list shows of a message; `commit show` shows all of it."""
    first = (message or "").partition("\n")[0].strip()
    return first if len(first) <= LISTED_CHARACTERS else f"{first[: LISTED_CHARACTERS - 1]}…"


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
    for line in (found.message or "").splitlines():
        yield (f"message   {line}",)
