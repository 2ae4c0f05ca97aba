"""`omnigraph backup …` and `clone`: copies of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from omnigraph.cli.addressing import actor_of
from omnigraph.cli.branch import GranularityOption
from omnigraph.cli.failures import ExitCode
from omnigraph.cli.help import Commands, FileCommand
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    ConfirmFlag,
    GlobalFlag,
    JsonFlag,
    MessageOption,
    argument,
    branch_name,
    one_of,
    option,
)
from omnigraph.cli.output import Line, Styled, counted, moment, output_of, table
from omnigraph.model.merging import ConflictPolicy, MergeGranularity

if TYPE_CHECKING:
    from omnigraph.copies.receipts import TransferReceipt

BACKUP = Commands(
    "backup",
    "Make, check, restore and remove backups.",
    "omnigraph backup create team.omni /backups/team",
)
COMMANDS = Commands()

SourceArgument = Annotated[str, argument("SRC", "the graph: a folder or s3://bucket/prefix")]
BackupsArgument = Annotated[str, argument("DST", "where the backups lie: a folder or bucket")]
NewArgument = Annotated[str, argument("NEW", "where the graph is made; nothing may lie there")]
CloneArgument = Annotated[str, argument("DST", "where the clone is made; nothing may lie there")]
CopiedBranchOption = Annotated[
    str | None, option("--branch", "NAME", "copy main and this branch only")
]
BackupOption = Annotated[str | None, option("--backup", "ID", "this backup instead of the newest")]
VerifiedOption = Annotated[str | None, option("--backup", "ID", "this backup instead of all")]
GraphArgument = Annotated[str, argument("GRAPH", "this graph: a folder or s3://bucket/prefix")]
PushedToArgument = Annotated[str, argument("DST", "the graph that gets the commits")]
PulledFromArgument = Annotated[str, argument("SRC", "the graph that has the commits")]
BroughtBranchOption = Annotated[
    str, option("--branch", "NAME", "the branch; main by default", check=branch_name)
]
BroughtConflictOption = Annotated[
    str,
    option(
        "--on-conflict",
        "fail|source|target",
        "who wins where both graphs changed an entity; fail by default",
        check=one_of(get_args(ConflictPolicy)),
    ),
]
KeepOption = Annotated[int, option("--keep", "N", "how many of the newest backups stay", min=1)]


class TransferCommand(FileCommand):
    """A command that transfers commits from one graph in storage to another."""

    takes = frozenset({GlobalFlag.ACTOR})


@BACKUP.add(FileCommand)
def create(
    ctx: typer.Context,
    source: SourceArgument,
    destination: BackupsArgument,
    branch: CopiedBranchOption = None,
    json: JsonFlag = False,
) -> None:
    """Copy one moment of a graph to a folder or bucket, while writers go on.

    Only files that no former backup there has are copied, and each is compared with its digest. An
    interrupted run leaves no backup; the next one continues it.

    omnigraph backup create team.omni /backups/team
    omnigraph backup create s3://lake/team.omni s3://safe/team
    """
    from omnigraph.graph import open_graph

    receipt = open_graph(source, "read_only").create_backup(destination, branch=branch)

    def lines() -> Iterator[Line]:
        if receipt.is_unchanged:
            yield (f"nothing changed since backup {receipt.backup.backup_id}",)
            return
        copied = counted(receipt.files_copied, "file")
        yield (f"backup {receipt.backup.backup_id} of {_heads(receipt.backup.heads)}",)
        yield (Styled(f"{copied} copied, {receipt.bytes_copied} bytes", "bold green"),)

    output_of(ctx).show(receipt, lines(), json=json)


@BACKUP.add(FileCommand)
def verify(
    ctx: typer.Context,
    destination: BackupsArgument,
    backup: VerifiedOption = None,
    json: JsonFlag = False,
) -> None:
    """Read every file of the backups at a place against its digest.

    The exit code is 1 if a file is damaged or missing.

    omnigraph backup verify /backups/team
    """
    from omnigraph.copies import verify_backup

    report = verify_backup(destination, backup)

    def lines() -> Iterator[Line]:
        for each in report.findings:
            yield (Styled(f"{each.kind}:", "bold red"), f" {each.file}: {each.problem}")
        read = f"{counted(report.files_checked, 'file')}, {report.bytes_read} bytes read"
        yield (f"{counted(len(report.backups), 'backup')}, {read}",)
        style = "bold green" if report.is_clean else "bold red"
        found = "everything is as it was written"
        if not report.is_clean:
            found = counted(len(report.findings), "finding")
        yield (Styled(found, style),)

    output_of(ctx).show(report, lines(), json=json)
    if not report.is_clean:
        raise typer.Exit(ExitCode.FAILURE)


@BACKUP.add(FileCommand)
def restore(
    ctx: typer.Context,
    destination: BackupsArgument,
    graph: NewArgument,
    backup: BackupOption = None,
    json: JsonFlag = False,
) -> None:
    """Make a graph from a backup, at a place of its own.

    Its commits, branches and ids are those of the graph that was copied, and every file is compared
    with its digest on the way. An interrupted run is continued by the same command.

    omnigraph backup restore /backups/team team.omni
    """
    from omnigraph.copies import restore_backup

    receipt = restore_backup(destination, graph, backup_id=backup)
    output_of(ctx).show(
        receipt, [(Styled(f"{receipt.uri} has {_heads(receipt.heads)}", "bold green"),)], json=json
    )


@BACKUP.add(FileCommand, name="list")
def list_(ctx: typer.Context, destination: BackupsArgument, json: JsonFlag = False) -> None:
    """List the finished backups at a place, oldest first.

    omnigraph backup list /backups/team
    """
    from omnigraph.copies import list_backups

    found = list_backups(destination)
    rows = [
        (each.backup_id, moment(each.created_at), len(each.heads), each.files, each.bytes)
        for each in found
    ]
    lines = table(("backup", "time (UTC)", "branches", "files", "bytes"), rows)
    document = {"backups": [each.to_dict() for each in found]}
    output_of(ctx).show(document, lines, json=json)


@BACKUP.add(FileCommand)
def prune(
    ctx: typer.Context,
    destination: BackupsArgument,
    keep: KeepOption,
    confirm: ConfirmFlag = False,
    json: JsonFlag = False,
) -> None:
    """Remove all but the newest backups, and files that no other one needs.

    Nothing is removed without `--confirm`, and while a backup is being made.

    omnigraph backup prune /backups/team --keep 7 --confirm
    """
    from omnigraph.copies import prune_backups

    receipt = prune_backups(destination, keep=keep, confirm=confirm)
    verb = "would be removed" if receipt.dry_run else "removed"
    files = f"{counted(receipt.files_removed, 'file')}, {receipt.bytes_removed} bytes"
    line = f"{counted(len(receipt.removed), 'backup')}, {files} {verb}"
    output_of(ctx).show(receipt, [(Styled(line, "bold green"),)], json=json)


@COMMANDS.add(FileCommand)
def clone(
    ctx: typer.Context,
    source: SourceArgument,
    destination: CloneArgument,
    branch: CopiedBranchOption = None,
    json: JsonFlag = False,
) -> None:
    """Copy a graph to a place of its own, where it can be written.

    Commits, branches and ids are equal. Writers of the source go on meanwhile.

    omnigraph clone s3://lake/team.omni team.omni
    omnigraph clone team.omni experiment.omni --branch review
    """
    from omnigraph.graph import open_graph

    receipt = open_graph(source, "read_only").clone(destination, branch=branch)
    output_of(ctx).show(
        receipt, [(Styled(f"{receipt.uri} has {_heads(receipt.heads)}", "bold green"),)], json=json
    )


@COMMANDS.add(TransferCommand)
def push(  # noqa: PLR0917 - what a command takes, typer takes by position
    ctx: typer.Context,
    graph: GraphArgument,
    destination: PushedToArgument,
    branch: BroughtBranchOption = DEFAULT_BRANCH,
    on_conflict: BroughtConflictOption = "fail",
    granularity: GranularityOption = "entity",
    message: MessageOption = None,
    json: JsonFlag = False,
) -> None:
    """Bring the commits of a branch to the graph that this one was cloned from, or to a clone.

    Each new commit is made there with its id, author and time. Where both graphs have gone on, the
    two heads are merged there; conflicts change nothing and exit with 1. A branch that is not there
    yet is made. Repeated, it goes on where it stopped.

    omnigraph push team.omni s3://lake/team.omni
    omnigraph push team.omni s3://lake/team.omni --branch agent/42 --message "reviewed"
    """
    from omnigraph.graph import open_graph

    receipt = open_graph(graph).push(
        destination,
        branch=branch,
        on_conflict=cast(ConflictPolicy, on_conflict),
        granularity=cast(MergeGranularity, granularity),
        actor=actor_of(ctx),
        message=message,
    )
    output_of(ctx).show(receipt, _transfer_lines(receipt), json=json)


@COMMANDS.add(TransferCommand)
def pull(  # noqa: PLR0917 - what a command takes, typer takes by position
    ctx: typer.Context,
    graph: GraphArgument,
    source: PulledFromArgument,
    branch: BroughtBranchOption = DEFAULT_BRANCH,
    on_conflict: BroughtConflictOption = "fail",
    granularity: GranularityOption = "entity",
    message: MessageOption = None,
    json: JsonFlag = False,
) -> None:
    """Bring the commits of a branch from the graph that this one was cloned from, or from a clone.

    As `push`, in the other direction: nothing is written to the source. Of two conflicting changes
    of an entity, `--on-conflict source` takes that of the source.

    omnigraph pull team.omni s3://lake/team.omni
    omnigraph pull team.omni s3://lake/team.omni --on-conflict source
    """
    from omnigraph.graph import open_graph

    receipt = open_graph(graph).pull(
        source,
        branch=branch,
        on_conflict=cast(ConflictPolicy, on_conflict),
        granularity=cast(MergeGranularity, granularity),
        actor=actor_of(ctx),
        message=message,
    )
    output_of(ctx).show(receipt, _transfer_lines(receipt), json=json)


def _transfer_lines(receipt: TransferReceipt) -> Iterator[Line]:
    if receipt.outcome == "already_up_to_date":
        yield (Styled(f"{receipt.branch} is up to date", "bold green"),)
    elif receipt.outcome == "merged":
        yield (Styled(f"{receipt.branch} had gone on at both: merged", "bold green"),)
    else:
        done = f"{counted(len(receipt.commits), 'commit')} of {receipt.branch} brought"
        yield (Styled(done, "bold green"),)
    yield (f"{receipt.destination} is at {receipt.head}",)


def _heads(heads: Mapping[str, str]) -> str:
    shown = ", ".join(f"{name} at {commit}" for name, commit in list(heads.items())[:3])
    return shown if len(heads) <= 3 else f"{shown} and {len(heads) - 3} more"
