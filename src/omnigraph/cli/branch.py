"""`omnigraph branch …`: branches of a graph."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.changes_output import (
    CHANGES_SHOWN,
    KindOption,
    LimitOption,
    OpOption,
    TypeOption,
    conflicts_shown,
    diff_lines,
    show_plan,
    show_replay,
)
from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import (
    Capability,
    DestructiveCommand,
    DirectWriteCommand,
    GraphCommand,
    Group,
    ReadCommand,
    WriteCommand,
    subcommand_missing,
)
from omnigraph.cli.options import DEFAULT_BRANCH, JsonFlag, UriOption, branch_name
from omnigraph.cli.output import Styled, counted, output_of
from omnigraph.model.receipts import MergeReceipt
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.graph import Graph

EXAMPLES = """
omnigraph branch create review --uri team.omni
omnigraph branch diff main review --uri team.omni
omnigraph branch merge review --uri team.omni --dry-run
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
DIFF_EXAMPLES = """
omnigraph branch diff main review --uri team.omni
omnigraph branch diff main review --uri team.omni --type Person --op update --json
"""
MERGE_EXAMPLES = """
omnigraph branch merge review --uri team.omni --dry-run
omnigraph branch merge review --uri team.omni --delete-branch
omnigraph branch merge fixes --into review --uri team.omni --on-conflict source
"""
PICK_EXAMPLES = """
omnigraph branch cherry-pick 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --uri team.omni --dry-run
omnigraph branch cherry-pick 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --into review --uri team.omni
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
BeforeArgument = Annotated[
    str, typer.Argument(metavar="BEFORE", help="a branch or a commit to start from")
]
AfterArgument = Annotated[
    str, typer.Argument(metavar="AFTER", help="a branch or a commit to arrive at")
]
ImagesFlag = Annotated[
    bool, typer.Option("--images", help="with --json, show each entity before and after")
]
PickedCommit = Annotated[
    str, typer.Argument(metavar="ID", help="a commit of any branch, as `commit list` shows it")
]
MergedName = Annotated[str, typer.Argument(metavar="SOURCE", help="the branch to merge")]
IntoOption = Annotated[
    str,
    typer.Option(
        "--into",
        metavar="NAME",
        help="the branch that gets it; main by default",
        callback=branch_name,
    ),
]
ConflictOption = Annotated[
    list[str] | None,
    typer.Option(
        "--on-conflict",
        metavar="[TYPE=]RULE",
        help="fail, source or target: who wins where both sides changed an entity; fail by "
        "default. Given again as TYPE=RULE, for one type",
    ),
]
GranularityOption = Annotated[
    str,
    typer.Option(
        "--granularity",
        metavar="entity|property",
        help="what both sides must not change: an entity, or a property of it; entity by default",
    ),
]
DeleteFlag = Annotated[
    bool, typer.Option("--delete-branch", help="delete the merged branch afterwards")
]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="show what would change, and change nothing")
]

RULES = ("fail", "source", "target")
GRANULARITIES = ("entity", "property")


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(rich_markup_mode=None)
    panel = Capability.ANY.panel
    group.command("create", cls=WriteCommand, rich_help_panel=panel, epilog=CREATE_EXAMPLES)(create)
    group.command("list", cls=ReadCommand, rich_help_panel=panel, epilog=LIST_EXAMPLES)(list_)
    group.command("delete", cls=DestructiveCommand, rich_help_panel=panel, epilog=DELETE_EXAMPLES)(
        delete
    )
    group.command("diff", cls=GraphCommand, rich_help_panel=panel, epilog=DIFF_EXAMPLES)(diff)
    group.command("merge", cls=WriteCommand, rich_help_panel=panel, epilog=MERGE_EXAMPLES)(merge)
    group.command(
        "cherry-pick", cls=DirectWriteCommand, rich_help_panel=panel, epilog=PICK_EXAMPLES
    )(cherry_pick)
    app.add_typer(
        group,
        name="branch",
        cls=Group,
        callback=branch,
        invoke_without_command=True,
        epilog=EXAMPLES,
    )


def branch(ctx: typer.Context) -> None:
    """Create, list, compare, merge and delete branches."""
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
    from omnigraph.cli.opening import graph_to_write, writer_of

    graph = graph_to_write(ctx, "branch create", uri)
    created = graph.create_branch(name, from_, actor=writer_of(ctx, graph))
    output = output_of(ctx)
    if json:
        output.json(created.to_dict())
    else:
        output.line(Styled(f"created branch {created.name} from {created.source}", "bold green"))


def list_(ctx: typer.Context, uri: UriOption = None, json: JsonFlag = False) -> None:
    """List the branches, one a line."""
    from omnigraph.cli.opening import graph_to_read

    branches = graph_to_read(ctx, uri).list_branches()
    output = output_of(ctx)
    if json:
        output.json({"branches": branches})
    else:
        output.lines([name] for name in branches)


def delete(
    ctx: typer.Context, name: OldName, uri: UriOption = None, json: JsonFlag = False
) -> None:
    """Delete a branch and the commits only it has.

    A branch that others were created from is refused, and so is main. What was not merged is gone
    with it; `branch diff main NAME` shows it before. On storage that others may share, `--yes` or
    an answer at the terminal is needed.
    """
    from omnigraph.cli.opening import graph_to_write, writer_of
    from omnigraph.client import RemoteGraph

    output = output_of(ctx)
    graph = graph_to_write(ctx, "branch delete", uri, destructive=f"branch delete {name}")
    lost = 0 if isinstance(graph, RemoteGraph) else _unmerged(graph, name)
    deleted = graph.delete_branch(name, actor=writer_of(ctx, graph))
    if lost:
        output.warning(f"main never got {counted(lost, 'commit')} of {name}")
    if json:
        output.json(deleted.to_dict())
    else:
        output.line(Styled(f"deleted branch {deleted.name}", "bold green"))


def diff(
    ctx: typer.Context,
    before: BeforeArgument,
    after: AfterArgument,
    *,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    limit: LimitOption = CHANGES_SHOWN,
    images: ImagesFlag = False,
    uri: UriOption = None,
    json: JsonFlag = False,
) -> None:
    """Show the entities that differ between two branches or commits.

    Values decide: what was rewritten as it was, or only lies elsewhere now, is no difference.
    """
    from omnigraph.cli.opening import open_to_read

    graph = open_to_read(ctx, uri)
    found = graph.diff(before, after, kinds=kinds or (), types=types or (), ops=ops or ())
    output = output_of(ctx)
    if json:
        output.json(found.to_dict(images=images))
    else:
        output.lines(diff_lines(found.types, found.changes(images=True), limit))


def merge(
    ctx: typer.Context,
    source: MergedName,
    *,
    into: IntoOption = DEFAULT_BRANCH,
    on_conflict: ConflictOption = None,
    granularity: GranularityOption = "entity",
    delete_branch: DeleteFlag = False,
    dry_run: DryRunFlag = False,
    uri: UriOption = None,
    json: JsonFlag = False,
) -> None:
    """Merge a branch into another, as one commit.

    Both sides are compared with the commit they went apart at, entity by entity. If both changed
    one and disagree, or the result would break the schema, nothing is merged, and the exit code is
    1. `--on-conflict` lets one side win instead.
    """
    from omnigraph.cli.opening import graph_to_write, open_to_read, writer_of
    from omnigraph.client import RemoteGraph

    options: Any = _rules(on_conflict or [], granularity)
    output = output_of(ctx)
    if dry_run:
        show_plan(output, open_to_read(ctx, uri).plan_merge(source, into, **options), json=json)
        return
    unserved = {"--on-conflict": bool(on_conflict), "--granularity": granularity != "entity"}
    graph = graph_to_write(ctx, "branch merge", uri, only_stored=unserved)
    if isinstance(graph, RemoteGraph):
        options = {}
    actor = writer_of(ctx, graph)
    with conflicts_shown(output, json=json):
        receipt = graph.merge_branch(
            source, into, **options, delete_branch=delete_branch, actor=actor
        )
    if delete_branch and receipt.branch_deleted is None:
        output.warning(f"branch {source} was not deleted: the server does not know how")
    if receipt.branch_delete_error is not None:
        output.warning(f"branch {source} was not deleted: {receipt.branch_delete_error}")
    if json:
        output.json(receipt.to_dict())
    else:
        output.line(Styled(_merged(receipt), "bold green"))
        if receipt.commit is not None:
            output.line(f"commit {receipt.commit.graph_commit_id}")


def cherry_pick(
    ctx: typer.Context,
    commit_id: PickedCommit,
    *,
    into: IntoOption = DEFAULT_BRANCH,
    dry_run: DryRunFlag = False,
    uri: UriOption = None,
    json: JsonFlag = False,
) -> None:
    """Apply what one commit changed to another branch, as a commit there.

    If the same entities are different there, nothing is done, and the exit code is 1.
    """
    from omnigraph.cli.addressing import actor_of
    from omnigraph.cli.opening import open_to_read, open_to_write
    from omnigraph.model.ids import normalize_commit_id

    wanted = normalize_commit_id(commit_id)
    output = output_of(ctx)
    if dry_run:
        show_plan(output, open_to_read(ctx, uri).plan_cherry_pick(wanted, into), json=json)
        return
    graph = open_to_write(ctx, "branch cherry-pick", uri)
    with conflicts_shown(output, json=json):
        receipt = graph.cherry_pick(wanted, into, actor=actor_of(ctx))
    show_replay(output, receipt, json=json)


def _unmerged(graph: Graph, name: str) -> int:
    """How many commits of a branch main has neither itself nor by a merge."""
    if name == DEFAULT_BRANCH:
        return 0
    reached = graph.list_commits()
    there = {commit.graph_commit_id for commit in reached}
    there |= {commit.merged_parent_commit_id or "" for commit in reached}
    own = itertools.takewhile(
        lambda commit: commit.graph_commit_id not in there, graph.list_commits(name)
    )
    return sum(commit.kind != "maintenance" for commit in own)


def _merged(receipt: MergeReceipt) -> str:
    if receipt.outcome == "already_up_to_date":
        done = f"{receipt.target} already has everything of {receipt.source}"
    else:
        how = "" if receipt.outcome == "merged" else ", which had not moved"
        done = f"merged {receipt.source} into {receipt.target}{how}"
    return f"{done}; {receipt.source} is deleted" if receipt.branch_deleted else done


def _rules(words: list[str], granularity: str) -> dict[str, Any]:
    """The options of a merge from their words, refused before anything is opened."""
    everywhere, of_types = "fail", {}
    for word in words:
        type_name, equals, rule = word.rpartition("=")
        _require_word("--on-conflict", rule, RULES)
        if equals:
            of_types[type_name] = rule
        else:
            everywhere = rule
    _require_word("--granularity", granularity, GRANULARITIES)
    return {"on_conflict": everywhere, "on_conflict_of": of_types, "granularity": granularity}


def _require_word(flag: str, word: str, allowed: tuple[str, ...]) -> None:
    if word not in allowed:
        raise UsageError(
            f"`{flag}` takes {', '.join(allowed[:-1])} or {allowed[-1]}, not `{word}`",
            hint=did_you_mean(word, allowed),
        )
