"""`omnigraph branch …`: branches of a graph."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from omnigraph.cli.changes_output import (
    CHANGES_SHOWN,
    KindOption,
    LimitOption,
    OpOption,
    PageTokenOption,
    PlanLimitOption,
    TypeOption,
    change_filter,
    conflicts_shown,
    diff_lines,
    show_plan,
    show_replay,
)
from omnigraph.cli.help import Commands, DestructiveCommand, ReadCommand, WriteCommand
from omnigraph.cli.opening import graph_to_read, graph_to_write
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    REVISIONS,
    CommitArgument,
    JsonFlag,
    MessageOption,
    SparkConfOption,
    SparkMasterOption,
    announce_spark,
    argument,
    branch_name,
    choice,
    flag,
    one_of,
    option,
    revision,
    spark_arguments,
    spark_flags,
)
from omnigraph.cli.output import Line, Styled, counted, output_of
from omnigraph.errors import Denied, NotFound
from omnigraph.model.merging import ConflictPolicy, MergeGranularity
from omnigraph.model.receipts import MergeReceipt

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph

COMMANDS = Commands(
    "branch",
    "Create, list, compare, merge and delete branches.",
    """
omnigraph branch create review --store team.omni
omnigraph branch diff main review --store team.omni
omnigraph branch merge review --store team.omni --dry-run
""",
)


def _start(value: str) -> str | None:
    """The revision; refuses an empty one, as from an unset variable, which must not mean main."""
    return revision(value) if value.strip() else branch_name(value)


NewName = Annotated[str, argument("NAME", "what to call it")]
OldName = Annotated[str, argument("NAME", "which one")]
SourceOption = Annotated[
    str,
    option("--from", "REVISION", "a branch or commit to start from; main by default", check=_start),
]
TargetArgument = Annotated[str, argument("TARGET", f"what to compare with: {REVISIONS}")]
SourceArgument = Annotated[str, argument("SOURCE", "whose changes to show, likewise")]
DirectFlag = Annotated[
    bool, flag("--direct", "compare the two as they are, and not from the merge base")
]
ImagesFlag = Annotated[bool, flag("--images", "with --json, show each entity before and after")]
MergedName = Annotated[str, argument("SOURCE", "the branch to merge")]
IntoOption = Annotated[
    str, option("--into", "NAME", "the branch that gets it; main by default", check=branch_name)
]
ConflictOption = Annotated[
    list[str] | None,
    option(
        "--on-conflict",
        "[SUBJECT=]RULE",
        "fail, source or target: who wins where both sides changed an entity; fail by "
        "default. Given again as SUBJECT=RULE for TYPE, TYPE:ID, TYPE.PROPERTY or "
        "TYPE.PROPERTY:ID, the narrowest wins",
    ),
]
GranularityOption = Annotated[
    str,
    option(
        "--granularity",
        "entity|property",
        "what both sides must not change: an entity, or a property of it; entity by default",
        check=one_of(get_args(MergeGranularity)),
    ),
]
EngineOption = Annotated[
    str | None,
    option(
        "--engine",
        "auto|local|spark",
        "who compares the rows: this process, Spark, or Spark if they are many, the default",
        check=one_of(("auto", "local", "spark")),
    ),
]
DeleteFlag = Annotated[bool, flag("--delete-branch", "delete the merged branch afterwards")]
DryRunFlag = Annotated[bool, flag("--dry-run", "show what would change, and change nothing")]


@COMMANDS.add(WriteCommand)
def create(
    ctx: typer.Context,
    name: NewName,
    from_: SourceOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Create a branch at the head of another, or at an older commit.

    It costs next to nothing: no data is copied until something is written to it.

    omnigraph branch create review --store team.omni
    omnigraph branch create again --from main~2 --store team.omni
    omnigraph branch create fixes/may --from review --store team.omni
    """
    created = graph_to_write(ctx, "branch create").create_branch(name, from_)
    sentence = f"created branch {created.name} from {created.source}"
    output_of(ctx).done(created, sentence, json=json)


@COMMANDS.add(ReadCommand, name="list")
def list_(ctx: typer.Context, json: JsonFlag = False) -> None:
    """List the branches, one a line.

    omnigraph branch list --store team.omni
    omnigraph branch list --store team.omni --json
    """
    branches = graph_to_read(ctx).list_branches()
    output_of(ctx).show({"branches": branches}, ([name] for name in branches), json=json)


@COMMANDS.add(DestructiveCommand)
def delete(ctx: typer.Context, name: OldName, json: JsonFlag = False) -> None:
    """Delete a branch and the commits only it has.

    A branch that others were created from is refused, and so is main. What was not merged is gone
    with it; `branch diff main NAME` shows it before. On storage that others may share, `--yes` or
    an answer at the terminal is needed.

    omnigraph branch delete review --store team.omni
    omnigraph branch delete review --store s3://lake/graphs/team.omni --yes
    """
    output = output_of(ctx)
    graph = graph_to_write(ctx, "branch delete", destructive=f"branch delete {name}")
    lost = _unmerged(graph, name)
    deleted = graph.delete_branch(name)
    if lost:
        output.warning(f"main never got {counted(lost, 'commit')} of {name}")
    output.done(deleted, f"deleted branch {deleted.name}", json=json)


@COMMANDS.add(ReadCommand)
def diff(
    ctx: typer.Context,
    target: TargetArgument,
    source: SourceArgument,
    *,
    direct: DirectFlag = False,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    limit: LimitOption = CHANGES_SHOWN,
    images: ImagesFlag = False,
    engine: EngineOption = None,
    spark_master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    json: JsonFlag = False,
) -> None:
    """Show what a branch changed since it went apart from another.

    Compared are the merge base of the two and the head of SOURCE, as in a pull request: what TARGET
    got meanwhile is not shown. `--direct` compares the two as they are. Each may also be a commit.
    Values decide: what was rewritten as it was, or only lies elsewhere now, is no difference. Spark
    compares what differs in 10 million rows and more, or with `--engine spark`.

    omnigraph branch diff main review --store team.omni
    omnigraph branch diff main review --store team.omni --type Person --op update --json
    omnigraph branch diff main review --store team.omni --direct
    omnigraph branch diff main ingest --store s3://lake/team.omni --engine spark
    """
    how = spark_arguments(engine, spark_master, spark_conf, default="auto")
    graph = graph_to_read(ctx, only_stored=spark_flags(engine, spark_master, spark_conf))
    output = output_of(ctx)
    announce_spark(output, how, json=json)
    found = graph.diff(target, source, direct=direct, **change_filter(kinds, types, ops), **how)
    if json:
        output.json(found.to_dict(images=images))
    else:
        output.line(found.header)
        output.lines(diff_lines(found.types, found.changes(images=True), limit))


@COMMANDS.add(WriteCommand)
def merge(
    ctx: typer.Context,
    source: MergedName,
    *,
    into: IntoOption = DEFAULT_BRANCH,
    on_conflict: ConflictOption = None,
    granularity: GranularityOption = "entity",
    delete_branch: DeleteFlag = False,
    message: MessageOption = None,
    dry_run: DryRunFlag = False,
    limit: PlanLimitOption = None,
    page_token: PageTokenOption = None,
    engine: EngineOption = None,
    spark_master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    json: JsonFlag = False,
) -> None:
    """Merge a branch into another, as one commit.

    Both sides are compared with the commit they went apart at, entity by entity. If both changed
    one and disagree, or the result would break the schema, nothing is merged, and the exit code is
    1. `--on-conflict` lets one side win instead. `--dry-run` lists the entities that would change,
    what changes of each, and every conflict. Spark compares, checks and writes what differs in
    10 million rows and more, or with `--engine spark`, and the result is the same.

    omnigraph branch merge review --store team.omni --dry-run
    omnigraph branch merge review --store team.omni --delete-branch --message "May corrections"
    omnigraph branch merge fixes --into review --store team.omni --on-conflict source
    omnigraph branch merge ingest --store s3://lake/team.omni --engine spark
    """
    how = spark_arguments(engine, spark_master, spark_conf, default="auto")
    options: Any = {**merge_rules(on_conflict or []), "granularity": granularity, **how}
    only_stored = spark_flags(engine, spark_master, spark_conf)
    output = output_of(ctx)
    if dry_run:
        graph = graph_to_read(ctx, only_stored=only_stored)
        announce_spark(output, how, json=json)
        plan = partial(graph.plan_merge, source, into, **options)
        show_plan(output, plan, limit, page_token, json=json)
        return
    graph = graph_to_write(ctx, "branch merge", only_stored=only_stored)
    announce_spark(output, how, json=json)
    with conflicts_shown(output, json=json):
        receipt = graph.merge_branch(
            source, into, **options, delete_branch=delete_branch, message=message
        )
    if delete_branch and receipt.branch_deleted is None:
        output.warning(f"branch {source} was not deleted: the server does not know how")
    if receipt.branch_delete_error is not None:
        output.warning(f"branch {source} was not deleted: {receipt.branch_delete_error}")
    output.show(receipt, _merged_lines(receipt), json=json)


@COMMANDS.add(WriteCommand, name="cherry-pick")
def cherry_pick(
    ctx: typer.Context,
    commit: CommitArgument,
    *,
    into: IntoOption = DEFAULT_BRANCH,
    message: MessageOption = None,
    dry_run: DryRunFlag = False,
    limit: PlanLimitOption = None,
    page_token: PageTokenOption = None,
    json: JsonFlag = False,
) -> None:
    """Apply what one commit changed to another branch, as a commit there.

    If the same entities are different there, nothing is done, and the exit code is 1.

    omnigraph branch cherry-pick 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --store team.omni --dry-run
    omnigraph branch cherry-pick 01K3Z7M0Q8W4R6T2Y5V9B1N3XC --into review --store team.omni
    """
    output = output_of(ctx)
    if dry_run:
        plan = partial(graph_to_read(ctx).plan_cherry_pick, commit, into)
        show_plan(output, plan, limit, page_token, json=json)
        return
    graph = graph_to_write(ctx, "branch cherry-pick")
    with conflicts_shown(output, json=json):
        receipt = graph.cherry_pick(commit, into, message=message)
    show_replay(output, receipt, json=json)


def _unmerged(graph: Graph | RemoteGraph, name: str) -> int:
    """The number of commits of a branch that main lacks and has not merged; 0 if none can be read.

    A server may let an actor delete a branch that the actor cannot read.
    """
    if name == DEFAULT_BRANCH:
        return 0
    with suppress(Denied, NotFound):
        reached = graph.list_commits()
        there = {commit.graph_commit_id for commit in reached}
        there |= {commit.merged_parent_commit_id or "" for commit in reached}
        own = itertools.takewhile(
            lambda commit: commit.graph_commit_id not in there, graph.list_commits(name)
        )
        return sum(commit.kind != "maintenance" for commit in own)
    return 0


def _merged_lines(receipt: MergeReceipt) -> Iterator[Line]:
    if receipt.outcome == "already_up_to_date":
        done = f"{receipt.target} already has everything of {receipt.source}"
    else:
        how = "" if receipt.outcome == "merged" else ", which had not moved"
        done = f"merged {receipt.source} into {receipt.target}{how}"
    gone = f"; {receipt.source} is deleted" if receipt.branch_deleted else ""
    yield (Styled(done + gone, "bold green"),)
    if receipt.commit is not None:
        yield (f"commit {receipt.commit.graph_commit_id}",)


def merge_rules(words: list[str]) -> dict[str, Any]:
    """Parse the rules of a merge, before any graph is opened."""
    everywhere, of_types = "fail", {}
    for word in words:
        type_name, equals, rule = word.rpartition("=")
        choice("--on-conflict", rule, get_args(ConflictPolicy))
        if equals:
            of_types[type_name] = rule
        else:
            everywhere = rule
    return {"on_conflict": everywhere, "on_conflict_of": of_types}
