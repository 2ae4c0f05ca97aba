"""`omnigraph review …`: change requests, from opening one to merging it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import orjson
import typer

from omnigraph.cli.branch import (
    ConflictOption,
    DeleteFlag,
    GranularityOption,
    IntoOption,
    merge_rules,
)
from omnigraph.cli.changes_output import (
    CHANGES_SHOWN,
    KindOption,
    LimitOption,
    OpOption,
    PageTokenOption,
    TypeOption,
    change_filter,
    conflicts_shown,
    diff_lines,
)
from omnigraph.cli.help import Commands, PayloadCommand, ReadCommand, WriteCommand
from omnigraph.cli.opening import graph_to_read, graph_to_write
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    JsonFlag,
    MessageOption,
    argument,
    branch_name,
    commit_id,
    flag,
    one_of,
    option,
)
from omnigraph.cli.output import Line, Styled, counted, fact_lines, moment, output_of, table
from omnigraph.model.reviews import Review, ReviewPage, ReviewState, short_id
from omnigraph.model.text_table import one_line

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph

COMMANDS = Commands(
    "review",
    "Ask for a merge, look at it, approve it, and merge it.",
    """
omnigraph review open agent/42 --title "New suppliers" --store team.omni
omnigraph review list --store team.omni
omnigraph review approve cr-01K3Z7M0Q8W4R6 --store team.omni --as act-ana
omnigraph review merge cr-01K3Z7M0Q8W4R6 --store team.omni
""",
)

NO_ACTOR = "-"
STYLES = {"open": "green", "merged": "magenta", "closed": "red"}

SourceArgument = Annotated[
    str, argument("SOURCE", "the branch that is to be merged", check=branch_name)
]
ReviewArgument = Annotated[str, argument("ID", "a change request, or the beginning of its id")]
TitleOption = Annotated[
    str | None, option("--title", "TEXT", "what it is about; the name of the branch by default")
]
DescriptionOption = Annotated[str | None, option("--description", "TEXT", "more about it")]
StateOption = Annotated[
    str,
    option(
        "--state",
        "open|merged|closed|all",
        "which ones; open by default",
        check=one_of((*get_args(ReviewState), "all")),
    ),
]
ListLimitOption = Annotated[
    int | None, option("--limit", "N", "how many to list; 50 by default", min=1)
]
TextArgument = Annotated[str, argument("TEXT", "what to say")]
WhyOption = Annotated[str | None, option("--text", "TEXT", "what to say about it")]
HeadOption = Annotated[
    str | None,
    option(
        "--head",
        "COMMIT",
        "the head that was looked at; the present one by default",
        check=commit_id,
    ),
]
OnTypeOption = Annotated[str | None, option("--type", "NAME", "the type it is about")]
OnEntityOption = Annotated[str | None, option("--entity", "ID", "the entity it is about")]
OnPropertyOption = Annotated[str | None, option("--property", "NAME", "the property it is about")]
OnCommitOption = Annotated[
    str | None,
    option(
        "--commit", "COMMIT", "the commit that was looked at; the head by default", check=commit_id
    ),
]
ReplyOption = Annotated[str | None, option("--reply-to", "COMMENT", "the comment it answers")]
CommentArgument = Annotated[str, argument("COMMENT", "a comment, as `review show` lists it")]
UnresolveFlag = Annotated[bool, flag("--reopen", "the thread is not resolved after all")]
ChecksOption = Annotated[
    Path | None,
    option("--checks", "FILE|DIR", "the checks.yaml, the directory it lies in, or a pipeline file"),
]
AgainFlag = Annotated[bool, flag("--again", "also what has run on this head already")]


@COMMANDS.add(WriteCommand)
def open(
    ctx: typer.Context,
    source: SourceArgument,
    *,
    into: IntoOption = DEFAULT_BRANCH,
    title: TitleOption = None,
    description: DescriptionOption = None,
    json: JsonFlag = False,
) -> None:
    """Ask to merge a branch into another.

    omnigraph review open agent/42 --title "New suppliers" --store team.omni
    omnigraph review open fixes --into release --store team.omni
    """
    graph = graph_to_write(ctx, "review open")
    found = graph.reviews.open(source, into, title=title, description=description or "")
    output_of(ctx).done(found, f"opened {found.id}: {found.title}", json=json)


@COMMANDS.add(ReadCommand, name="list")
def list_(
    ctx: typer.Context,
    *,
    state: StateOption = "open",
    limit: ListLimitOption = None,
    page_token: PageTokenOption = None,
    json: JsonFlag = False,
) -> None:
    """List change requests, newest first.

    omnigraph review list --store team.omni
    omnigraph review list --state all --store team.omni --json
    """
    wanted: Any = None if state == "all" else state
    page = graph_to_read(ctx).reviews.list(state=wanted, limit=limit, page_token=page_token)
    output_of(ctx).show(page, _page_lines(page), json=json)


@COMMANDS.add(ReadCommand)
def show(ctx: typer.Context, id: ReviewArgument, json: JsonFlag = False) -> None:
    """Show a change request: reviews, checks, comments, and everything that blocks it.

    omnigraph review show cr-01K3Z7M0Q8W4R6 --store team.omni
    """
    found = graph_to_read(ctx).reviews.get(id)
    output_of(ctx).show(found, _review_lines(found), json=json)


@COMMANDS.add(ReadCommand)
def diff(
    ctx: typer.Context,
    id: ReviewArgument,
    *,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    limit: LimitOption = CHANGES_SHOWN,
    json: JsonFlag = False,
) -> None:
    """Show what a change request would change in its target, or has changed once it is merged.

    omnigraph review diff cr-01K3Z7M0Q8W4R6 --store team.omni
    omnigraph review diff cr-01K3Z7M0Q8W4R6 --store team.omni --type Person --json
    """
    found = graph_to_read(ctx).reviews.diff(id, **change_filter(kinds, types, ops))
    output = output_of(ctx)
    if json:
        output.json(found.to_dict(images=True))
    else:
        output.line(found.header)
        output.lines(diff_lines(found.types, found.changes(images=True), limit))


@COMMANDS.add(WriteCommand)
def edit(
    ctx: typer.Context,
    id: ReviewArgument,
    *,
    title: TitleOption = None,
    description: DescriptionOption = None,
    json: JsonFlag = False,
) -> None:
    """Change the title or the description of a change request.

    omnigraph review edit cr-01K3Z7M0Q8W4R6 --title "Suppliers of May" --store team.omni
    """
    graph = graph_to_write(ctx, "review edit")
    found = graph.reviews.edit(id, title=title, description=description)
    output_of(ctx).done(found, f"edited {short_id(found.id)}: {found.title}", json=json)


@COMMANDS.add(WriteCommand)
def comment(
    ctx: typer.Context,
    id: ReviewArgument,
    text: TextArgument,
    *,
    type_name: OnTypeOption = None,
    entity: OnEntityOption = None,
    property_name: OnPropertyOption = None,
    commit: OnCommitOption = None,
    reply_to: ReplyOption = None,
    json: JsonFlag = False,
) -> None:
    """Comment on a change request, or on a type, an entity or a property of its changes.

    omnigraph review comment cr-01K3Z7M0Q8W4R6 "Who is this?" --type Person --entity ada \
--store team.omni
    """
    graph = graph_to_write(ctx, "review comment")
    found = graph.reviews.comment(
        id,
        text,
        type_name=type_name,
        entity_id=entity,
        property_name=property_name,
        commit_id=commit,
        reply_to=reply_to,
    )
    output_of(ctx).done(found, f"commented on {short_id(found.id)}", json=json)


@COMMANDS.add(WriteCommand)
def resolve(
    ctx: typer.Context,
    id: ReviewArgument,
    comment: CommentArgument,
    *,
    reopen: UnresolveFlag = False,
    json: JsonFlag = False,
) -> None:
    """Mark the thread of a comment as resolved.

    omnigraph review resolve cr-01K3Z7M0Q8W4R6 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --store team.omni
    """
    graph = graph_to_write(ctx, "review resolve")
    found = graph.reviews.resolve(id, comment, resolved=not reopen)
    sentence = f"{comment} is {'open again' if reopen else 'resolved'}"
    output_of(ctx).done(found, sentence, json=json)


@COMMANDS.add(WriteCommand)
def approve(
    ctx: typer.Context,
    id: ReviewArgument,
    *,
    text: WhyOption = None,
    head: HeadOption = None,
    json: JsonFlag = False,
) -> None:
    """Approve what a change request would merge.

    The approval is for the head of the source as it is now, and goes stale when its content moves.

    omnigraph review approve cr-01K3Z7M0Q8W4R6 --store team.omni --as act-ana
    """
    graph = graph_to_write(ctx, "review approve")
    found = graph.reviews.review(id, "approve", text=text, head=head)
    output_of(ctx).done(found, f"approved {short_id(found.id)}: {found.title}", json=json)


@COMMANDS.add(WriteCommand, name="request-changes")
def request_changes(
    ctx: typer.Context,
    id: ReviewArgument,
    *,
    text: WhyOption = None,
    head: HeadOption = None,
    json: JsonFlag = False,
) -> None:
    """Ask for changes before a change request is merged.

    omnigraph review request-changes cr-01K3Z7M0Q8W4R6 --text "names are missing" --store team.omni
    """
    graph = graph_to_write(ctx, "review request-changes")
    found = graph.reviews.review(id, "request_changes", text=text, head=head)
    output_of(ctx).done(found, f"asked for changes of {short_id(found.id)}", json=json)


@COMMANDS.add(WriteCommand)
def check(
    ctx: typer.Context,
    id: ReviewArgument,
    *,
    checks: ChecksOption = None,
    again: AgainFlag = False,
    json: JsonFlag = False,
) -> None:
    """Run the checks of a change request on the head of its source.

    A check is a stored query and the number of rows it may return, from a `checks.yaml` beside the
    queries; a server has its own. If one fails, the exit code is 1.

    omnigraph review check cr-01K3Z7M0Q8W4R6 --checks queries --store team.omni
    """
    graph = graph_to_write(ctx, "review check", only_stored={"--checks": checks is not None})
    found = _checked(graph, id, checks, again=again)
    output_of(ctx).show(found, _check_lines(found), json=json)
    if any(each.state == "failed" and not each.stale for each in found.checks):
        raise typer.Exit(1)


def _checked(graph: Graph | RemoteGraph, id: str, checks: Path | None, *, again: bool) -> Review:
    files: dict[str, Any] = {} if checks is None else {"checks": checks}
    return graph.reviews.check(id, again=again, **files)


@COMMANDS.add(WriteCommand)
def merge(
    ctx: typer.Context,
    id: ReviewArgument,
    *,
    on_conflict: ConflictOption = None,
    granularity: GranularityOption = "entity",
    delete_branch: DeleteFlag = False,
    message: MessageOption = None,
    json: JsonFlag = False,
) -> None:
    """Merge a change request, as one commit that names it.

    What was approved is what is merged: if the source has moved since, or something that the target
    requires is missing, nothing is merged, and the exit code is 1.

    omnigraph review merge cr-01K3Z7M0Q8W4R6 --store team.omni --delete-branch
    """
    options: Any = {**merge_rules(on_conflict or []), "granularity": granularity}
    graph = graph_to_write(ctx, "review merge")
    output = output_of(ctx)
    with conflicts_shown(output, json=json):
        merged = graph.reviews.merge(id, **options, delete_branch=delete_branch, message=message)
    if merged.merge.branch_delete_error is not None:
        reason = merged.merge.branch_delete_error
        output.warning(f"branch {merged.merge.source} was not deleted: {reason}")
    commit = merged.merge.commit
    done = f"merged {merged.merge.source} into {merged.merge.target}: {merged.title}"
    lines: list[Line] = [(Styled(done, "bold green"),)]
    if commit is not None:
        lines.append((f"commit {commit.graph_commit_id}",))
    output.show(merged, lines, json=json)


@COMMANDS.add(WriteCommand)
def close(ctx: typer.Context, id: ReviewArgument, json: JsonFlag = False) -> None:
    """Close a change request without merging it.

    omnigraph review close cr-01K3Z7M0Q8W4R6 --store team.omni
    """
    found = graph_to_write(ctx, "review close").reviews.close(id)
    output_of(ctx).done(found, f"closed {short_id(found.id)}: {found.title}", json=json)


@COMMANDS.add(WriteCommand)
def reopen(ctx: typer.Context, id: ReviewArgument, json: JsonFlag = False) -> None:
    """Open a closed change request again.

    omnigraph review reopen cr-01K3Z7M0Q8W4R6 --store team.omni
    """
    found = graph_to_write(ctx, "review reopen").reviews.reopen(id)
    output_of(ctx).done(found, f"reopened {short_id(found.id)}: {found.title}", json=json)


@COMMANDS.add(PayloadCommand)
def export(ctx: typer.Context) -> None:
    """Write every event of every change request, one JSON object a line.

    Exports and change feeds of the graph do not contain them.

    omnigraph review export --store team.omni > reviews.jsonl
    """
    output = output_of(ctx)
    for event in graph_to_read(ctx).reviews.export():
        output.verbatim(orjson.dumps(event.to_dict()) + b"\n")


# --- lines ----------------------------------------------------------------------------------------


def _page_lines(page: ReviewPage) -> Iterator[Line]:
    if not page.reviews:
        yield ("no change requests",)
        return
    rows = [
        (
            short_id(each.id),
            each.state,
            one_line(each.title)[:60],
            f"{each.source} → {each.target}",
            each.author or NO_ACTOR,
            moment(each.opened_at),
        )
        for each in page.reviews
    ]
    yield from table(("id", "state", "title", "branches", "author", "opened (UTC)"), rows)
    if page.next_page_token is not None:
        yield (f"… there are more: `--page-token {page.next_page_token}`",)


def _review_lines(found: Review) -> Iterator[Line]:
    yield Styled(found.title, "bold"), "  ", Styled(found.state, STYLES[found.state])
    yield from fact_lines(
        {
            "id": found.id,
            "branches": f"{found.source} → {found.target}",
            "author": found.author or NO_ACTOR,
            "opened": f"{moment(found.opened_at)} UTC",
            "head": found.source_commit_id,
            "merged": found.merge_commit_id,
            "closed": found.closed_because,
            "mergeable": found.mergeable,
        }
    )
    yield from ((f"  {reason.code}: {reason.text}",) for reason in found.reasons)
    if found.description:
        yield ()
        yield from ((line,) for line in found.description.splitlines())
    if found.reviews:
        yield ()
        rows = [
            (
                each.actor_id or NO_ACTOR,
                each.verdict.replace("_", " ") + (" (stale)" if each.stale else ""),
                one_line(each.text or ""),
            )
            for each in found.reviews
        ]
        yield from table(("reviewer", "verdict", "text"), rows)
    if found.checks:
        yield ()
        yield from _check_lines(found)
    if found.comments:
        yield ()
        for each in found.comments:
            answer = "  " if each.reply_to else ""
            about = "" if each.place is None else f" on {each.place}"
            done = " (resolved)" if each.resolved and not each.reply_to else ""
            yield (Styled(f"{answer}{each.actor_id or NO_ACTOR}{about}{done}  {each.id}", "dim"),)
            yield from ((f"{answer}  {line}",) for line in each.text.splitlines())


def _check_lines(found: Review) -> Iterator[Line]:
    if not found.checks:
        yield ("no checks have run",)
        return
    rows = [
        (each.name, each.state + (" (stale)" if each.stale else ""), one_line(each.text or ""))
        for each in found.checks
    ]
    yield from table(("check", "state", "text"), rows)
    for each in found.checks:
        if each.rows:
            yield (f"{each.name}: the first {counted(len(each.rows), 'row')}",)
            for row in each.rows[:5]:
                yield (f"  {orjson.dumps(row).decode()}",)
