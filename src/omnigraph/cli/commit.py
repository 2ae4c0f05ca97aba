"""`omnigraph commit …` and `tag …`: the history of a graph, and names for its commits."""

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
    PlanLimitOption,
    TypeOption,
    change_filter,
    conflicts_shown,
    followed,
    history_lines,
    show_commit_pages,
    show_page,
    show_plan,
    show_replay,
)
from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import Commands, DestructiveCommand, ReadCommand, WriteCommand
from omnigraph.cli.opening import graph_to_read, graph_to_write
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    REVISIONS,
    BranchOption,
    CommitArgument,
    JsonFlag,
    MessageOption,
    argument,
    flag,
    option,
    revision,
)
from omnigraph.cli.output import Line, counted, fact_lines, moment, output_of, table
from omnigraph.model.receipts import CommitInfo
from omnigraph.syntax.suggest import did_you_mean

COMMANDS = Commands(
    "commit",
    "Look at the commits of a graph.",
    """
omnigraph commit list --store team.omni
omnigraph commit show 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --store team.omni
""",
)

FILTERS = ("actor",)
UNKNOWN = "-"
"""Shown where a commit has no actor, and no counts."""
LISTED_CHARACTERS = 60
"""Characters of a message that a list shows."""


def _filter(value: str | None) -> str | None:
    if value is None:
        return None
    name, _, wanted = value.partition("=")
    if name not in FILTERS or not wanted:
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
    """The type, with its kind if given, and the id, which may contain colons."""
    first, _, rest = value.partition(":")
    if first in ("node", "edge") and ":" in rest:
        name, _, id = rest.partition(":")
        return f"{first}:{name}", id
    return first, rest


FilterOption = Annotated[
    str | None,
    option("--filter", "actor=ID", "only commits this actor wrote or recovered", check=_filter),
]
EntityOption = Annotated[
    str | None,
    option(
        "--entity",
        "TYPE:ID",
        "only commits that changed this entity, and what they did to it",
        check=_entity,
    ),
]
DryRunFlag = Annotated[bool, flag("--dry-run", "show what would be undone, and change nothing")]


@COMMANDS.add(ReadCommand, name="list")
def list_(
    ctx: typer.Context,
    branch: BranchOption = DEFAULT_BRANCH,
    *,
    filter_: FilterOption = None,
    entity: EntityOption = None,
    json: JsonFlag = False,
) -> None:
    """List the commits of a branch, newest first.

    That includes the ones it shares with the branch it was created from. The ids are whole, so
    that each can be handed to `commit show` and to `mutate --if-commit`.

    omnigraph commit list --store team.omni --branch review
    omnigraph commit list --store team.omni --filter actor=act-ana --json
    omnigraph commit list --store team.omni --entity Person:ada
    """
    actor = filter_.partition("=")[2] if filter_ is not None else None
    graph = graph_to_read(ctx)
    output = output_of(ctx)
    if entity is None:
        commits = graph.list_commits(branch, actor=actor)
        output.show({"commits": commits}, commit_lines(commits), json=json)
        return
    history = graph.entity_history(*_entity_parts(entity), branch=branch)
    versions = [each for each in history if actor in (None, each.cause.actor_id)]
    output.show({"commits": versions}, history_lines(versions), json=json)


@COMMANDS.add(ReadCommand)
def show(ctx: typer.Context, commit: CommitArgument, json: JsonFlag = False) -> None:
    """Show one commit of any branch.

    omnigraph commit show 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --store team.omni
    omnigraph commit show 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --store team.omni --json
    """
    found = graph_to_read(ctx).show_commit(commit)
    output_of(ctx).show(found, _show_lines(found), json=json)


@COMMANDS.add(WriteCommand)
def revert(
    ctx: typer.Context,
    commit: CommitArgument,
    *,
    branch: BranchOption = DEFAULT_BRANCH,
    message: MessageOption = None,
    dry_run: DryRunFlag = False,
    limit: PlanLimitOption = None,
    page_token: PageTokenOption = None,
    json: JsonFlag = False,
) -> None:
    """Undo what one commit changed, as a new commit.

    What others changed since stays. If they changed the same entities, nothing is done, and the
    exit code is 1.

    omnigraph commit revert 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --store team.omni --dry-run
    omnigraph commit revert 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --store team.omni
    """
    output = output_of(ctx)
    if dry_run:
        plan = partial(graph_to_read(ctx).plan_revert, commit, branch=branch)
        show_plan(output, plan, limit, page_token, json=json)
        return
    graph = graph_to_write(ctx, "commit revert")
    with conflicts_shown(output, json=json):
        receipt = graph.revert(commit, branch=branch, message=message)
    show_replay(output, receipt, json=json)


@COMMANDS.add(ReadCommand)
def changes(
    ctx: typer.Context,
    commit: CommitArgument,
    *,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    limit: PageLimitOption = None,
    page_token: PageTokenOption = None,
    json: JsonFlag = False,
) -> None:
    """Show what one commit changed, against its first parent.

    Pages are fetched and written one after another, with `--json` into one document with every
    entity before and after. `--page-token` shows the one page it leads to, as it is.

    omnigraph commit changes 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --store team.omni
    omnigraph commit changes 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --store team.omni --type Person --json
    """
    graph = graph_to_read(ctx)
    output = output_of(ctx)
    page = partial(
        graph.commit_changes_page, commit, limit=limit, **change_filter(kinds, types, ops)
    )
    if page_token is not None:
        show_page(output, page(page_token=page_token), as_json=json)
    else:
        show_commit_pages(output, followed(page, page()), as_json=json)


def commit_lines(commits: list[CommitInfo]) -> Iterator[Line]:
    """A row for each commit."""
    headers = ["commit", "kind", "branch", "actor", "time (UTC)", "nodes", "edges"]
    has_words = any(found.message for found in commits)
    rows = [
        (
            found.graph_commit_id,
            found.kind or UNKNOWN,
            found.graph_branch or DEFAULT_BRANCH,
            found.actor_id or UNKNOWN,
            moment(found.created_at),
            *(_count(each) for each in (found.affected_nodes, found.affected_edges)),
            *((_first_line(found.message),) if has_words else ()),
        )
        for found in commits
    ]
    yield from table([*headers, "message"] if has_words else headers, rows)


def _count(affected: int | None) -> str:
    """The number of changed entities; "-" if the kind of commit does not count them."""
    return UNKNOWN if affected is None else str(affected)


def _first_line(message: str | None) -> str:
    """The first line of a message, shortened for a list; `commit show` shows the whole message."""
    first = (message or "").partition("\n")[0].strip()
    return first if len(first) <= LISTED_CHARACTERS else f"{first[: LISTED_CHARACTERS - 1]}…"


def _show_lines(found: CommitInfo) -> Iterator[Line]:
    facts = {
        "commit": found.graph_commit_id,
        "kind": found.kind,
        "branch": found.graph_branch or DEFAULT_BRANCH,
        "parent": found.parent_commit_id,
        "merged": found.merged_parent_commit_id,
        "actor": found.actor_id,
        "time": f"{moment(found.created_at)} UTC",
        "changed": _changed(found),
        "manifest": f"version {found.graph_manifest_version}",
    }
    if (request := found.change_request) is not None:
        facts["review"] = f"{request.id} {request.title}"
        facts["approved"] = ", ".join(request.approvers) or "none"
    yield from fact_lines(facts)
    for line in (found.message or "").splitlines():
        yield (f"message   {line}",)


def _changed(found: CommitInfo) -> str | None:
    if found.affected_nodes is None or found.affected_edges is None:
        return None
    return f"{counted(found.affected_nodes, 'node')}, {counted(found.affected_edges, 'edge')}"


# --- tags -----------------------------------------------------------------------------------------

TAGS = Commands(
    "tag",
    "Name commits, and keep what they show from cleanup.",
    """
omnigraph tag create v1.0 --store team.omni
omnigraph query people --store team.omni --query people.gq --snapshot v1.0
""",
)

TagName = Annotated[str, argument("NAME", "the tag")]
TaggedRevision = Annotated[
    str | None,
    argument("[REVISION]", f"which commit, the head if left out: {REVISIONS}", check=revision),
]


@TAGS.add(WriteCommand, name="create")
def create_tag(
    ctx: typer.Context,
    name: TagName,
    commit: TaggedRevision = None,
    *,
    branch: BranchOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Name a commit.

    The name can be given wherever a commit is asked for, and `cleanup` keeps what the commit shows.
    A name that a branch has, or that reads like a commit id, is refused. A tag does not move: to
    name another commit with it, delete it before.

    omnigraph tag create v1.0 --store team.omni
    omnigraph tag create before-import HEAD~1 --branch review --store team.omni
    """
    made = graph_to_write(ctx, "tag create").create_tag(name, commit, branch=branch)
    output_of(ctx).done(made, f"tag {made.name} names commit {made.graph_commit_id}", json=json)


@TAGS.add(ReadCommand, name="list")
def list_tags(ctx: typer.Context, json: JsonFlag = False) -> None:
    """List the tags by name, with their commits.

    omnigraph tag list --store team.omni
    omnigraph tag list --store team.omni --json
    """
    tags = graph_to_read(ctx).list_tags()
    rows = [
        (
            tag.name,
            tag.graph_commit_id,
            tag.graph_branch,
            tag.actor_id or "-",
            moment(tag.created_at),
        )
        for tag in tags
    ]
    headers = ("tag", "commit", "branch", "made by", "time (UTC)")
    output_of(ctx).show({"tags": tags}, table(headers, rows), json=json)


@TAGS.add(DestructiveCommand, name="delete")
def delete_tag(ctx: typer.Context, name: TagName, json: JsonFlag = False) -> None:
    """Delete a tag; its commit stays, and `cleanup` may take what it shows.

    On storage that others may share, `--yes` or an answer at the terminal is needed.

    omnigraph tag delete v1.0 --store team.omni
    omnigraph tag delete v1.0 --store s3://lake/graphs/team.omni --yes
    """
    graph = graph_to_write(ctx, "tag delete", destructive=f"tag delete {name}")
    gone = graph.delete_tag(name)
    done = f"deleted tag {gone.name}, which named commit {gone.graph_commit_id}"
    output_of(ctx).done(gone, done, json=json)
