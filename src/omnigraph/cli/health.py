"""`omnigraph stats`, `doctor`, `scrub`, `recover` and `recovery list`: the state of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.cli.addressing import resolve
from omnigraph.cli.failures import ExitCode, UsageError
from omnigraph.cli.help import Commands, ReadCommand, UpkeepCommand
from omnigraph.cli.opening import graph_to_read, open_to_read, open_to_write
from omnigraph.cli.options import DEFAULT_BRANCH, BranchOption, JsonFlag, flag, option
from omnigraph.cli.output import Line, Styled, counted, moment, output_of, table
from omnigraph.model.upkeep import (
    Diagnosis,
    GraphStats,
    IndexStats,
    ScrubReport,
    TableStats,
    UpkeepFinding,
)

COMMANDS = Commands()
RECOVERY = Commands(
    "recovery", "Look at recoveries of the past.", "omnigraph recovery list --store team.omni"
)

DeepFlag = Annotated[bool, flag("--deep", "also read every file against its digest")]
ScrubBranchOption = Annotated[
    str | None, option("--branch", "NAME", "only what this branch consists of")
]
SinceOption = Annotated[str | None, option("--since", "COMMIT", "only files of later commits")]
AdoptFlag = Annotated[bool, flag("--adopt", "record digests of files that have none")]
PaceOption = Annotated[
    float | None, option("--max-mb-per-second", "N", "read no more than this in a second")
]
ResumeOption = Annotated[
    Path | None, option("--resume", "FILE", "remember what was checked in FILE, and go on there")
]
RecoverForceFlag = Annotated[bool, flag("--force", "roll back through commits of others as well")]
RecoverConfirmFlag = Annotated[bool, flag("--confirm", "mean it; `--force` needs this")]


@COMMANDS.add(ReadCommand)
def stats(
    ctx: typer.Context,
    branch: BranchOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Show what a graph is made of, and what needs attention.

    Rows, fragments, bytes, versions and index coverage of every type, and the operations and
    owners around them. Nothing is written. Every finding names the command that mends it.

    omnigraph stats --store team.omni
    omnigraph stats --store team.omni --branch review --json
    """
    graph = graph_to_read(ctx)
    found = graph.stats(branch)
    output_of(ctx).show({"uri": graph.uri, **found.to_dict()}, _stats_lines(found), json=json)


def _stats_lines(found: GraphStats) -> Iterator[Line]:
    headers = ("type", "rows", "deleted", "fragments", "bytes", "versions", "version", "indexed")
    yield from table(headers, [_stats_row(each) for each in found.tables])
    yield ()
    branches = counted(len(found.branches), "branch", "branches")
    yield (f"{found.branch} at commit {found.graph_commit_id}",)
    commits = counted(found.commits, "commit")
    yield (f"{commits}, {branches}, internal schema {found.internal_schema_version}",)
    for operation in found.pending:
        yield (f"operation {operation.operation_id} ({operation.writer_kind or 'unreadable'})",)
    for holder in found.leases:
        yield (f"{holder.scope} is owned by {holder.owner_id}",)
    yield from finding_lines(found.findings)
    if not found.findings:
        yield (Styled("nothing needs attention", "bold green"),)


def finding_lines(findings: Iterable[UpkeepFinding]) -> Iterator[Line]:
    """One line per finding, with the command that mends it."""
    for finding in findings:
        style = "bold red" if finding.severity == "problem" else "yellow"
        yield ()
        yield (Styled(f"{finding.severity}:", style), f" {finding.subject}: {finding.message}")
        yield (f"  {finding.command}",)


def type_name(type_key: str) -> str:
    """`node:Person` as text for people."""
    return type_key.replace(":", " ")


def _stats_row(each: TableStats) -> tuple[str | int, ...]:
    version = str(each.published_dataset_version)
    if each.lance_head_version != each.published_dataset_version:
        version += f" (newest {each.lance_head_version})"
    return (
        type_name(each.type_key),
        each.rows,
        each.deleted_rows,
        each.fragments,
        each.bytes,
        each.versions,
        version,
        _coverage(each.indexes),
    )


def _coverage(indexes: Iterable[IndexStats]) -> str:
    """The smallest coverage of any index."""
    shares = [
        index.rows_covered * 100 // max(1, index.rows_covered + index.rows_uncovered)
        for index in indexes
    ]
    return f"{min(shares)}%" if shares else "-"


@COMMANDS.add(UpkeepCommand)
def scrub(  # noqa: PLR0917 - what a command takes, typer takes by position
    ctx: typer.Context,
    branch: ScrubBranchOption = None,
    since: SinceOption = None,
    adopt: AdoptFlag = False,
    max_mb_per_second: PaceOption = None,
    resume: ResumeOption = None,
    json: JsonFlag = False,
) -> None:
    """Read every file of a graph, and find what is damaged, missing or foreign.

    Each commit records a digest of the files it adds; this reads them all, on every branch, and
    compares. It names the type and the commit of a damaged file and the branches that show it.
    Nothing waits for it. With `--resume FILE` an interrupted run is continued. Graphs from before
    digests get them by `--adopt`. The exit code is 1 if anything was found.

    omnigraph scrub --store team.omni
    omnigraph scrub --store team.omni --max-mb-per-second 50 --resume scrub.txt
    omnigraph scrub --store team.omni --adopt --json
    """
    from omnigraph.cli.progress import bytes_of
    from omnigraph.graph import scrub as run

    output = output_of(ctx)
    with bytes_of(output, "reading") as progress:
        found = run(
            resolve(ctx).uri,
            branch,
            since=since,
            adopt=adopt,
            max_mb_per_second=max_mb_per_second,
            resume=resume,
            progress=progress,
        )
    output.show(found, _scrub_lines(found), json=json)
    if not found.is_clean:
        raise typer.Exit(ExitCode.FAILURE)


def _scrub_lines(found: ScrubReport) -> Iterator[Line]:
    for each in found.findings:
        yield (Styled(f"{each.kind}:", "bold red"), f" {each.file}: {each.problem}")
        shown = f"shown by {', '.join(each.branches)}" if each.branches else "no branch head has it"
        commit = f", written by commit {each.graph_commit_id}" if each.graph_commit_id else ""
        yield (f"  {type_name(each.table)}{commit}; {shown}",)
    resumed = f", {found.files_resumed} checked before" if found.files_resumed else ""
    yield (f"{counted(found.files_checked, 'file')}, {found.bytes_read} bytes read{resumed}",)
    if found.files_adopted:
        yield (f"{counted(found.files_adopted, 'file')} got a digest",)
    elif found.files_undigested:
        missing = counted(found.files_undigested, "file")
        yield (f"{missing} without a digest: `omnigraph scrub --adopt` records it",)
    if found.is_clean:
        yield (Styled("everything is as it was written", "bold green"),)
    else:
        problems = counted(len(found.findings), "finding")
        yield (Styled(f"{problems}; put the files back from a backup", "bold red"),)


@COMMANDS.add(UpkeepCommand)
def doctor(ctx: typer.Context, deep: DeepFlag = False, json: JsonFlag = False) -> None:
    """Try every way a graph is read, and say how to mend what is wrong.

    Every branch and every table is read: rows, keys, edges, words and vectors; also interrupted
    operations, leases, leftovers and Java are looked at; with `--deep` every file is compared with
    its digest, as `scrub` does. Nothing is written. Every finding names the command that mends it.
    The exit code is 1 if something is wrong, not for mere advice.

    omnigraph doctor --store team.omni
    omnigraph doctor --store team.omni --deep
    omnigraph doctor --store team.omni --json
    """
    from omnigraph.graph import doctor as examine

    found = examine(resolve(ctx).uri, deep=deep)
    output_of(ctx).show(found, _doctor_lines(found), json=json)
    if not found.is_healthy:
        raise typer.Exit(ExitCode.FAILURE)


def _doctor_lines(found: Diagnosis) -> Iterator[Line]:
    for check in found.checks:
        sign = Styled("ok    ", "green") if check.is_fine else Styled("wrong ", "bold red")
        yield (sign, check.name)
    yield from finding_lines(found.findings)
    yield ()
    problems = sum(finding.severity == "problem" for finding in found.findings)
    advice = len(found.findings) - problems
    if problems:
        yield (Styled(f"{counted(problems, 'problem')}, {advice} to improve", "bold red"),)
    elif advice:
        yield (Styled(f"healthy, with {advice} to improve", "bold green"),)
    else:
        yield (Styled("healthy", "bold green"),)


@COMMANDS.add(UpkeepCommand)
def recover(
    ctx: typer.Context,
    force: RecoverForceFlag = False,
    confirm: RecoverConfirmFlag = False,
    json: JsonFlag = False,
) -> None:
    """Finish or undo what interrupted writes left behind.

    Every write does this first for what stands in its way, so it is rarely needed. The exit code
    is 1 if anything is left unsettled: its writer may still be running, or an external writer
    changed a table (drift), which only `--force --confirm` rolls back through.

    omnigraph recover --store team.omni
    omnigraph recover --store team.omni --force --confirm
    """
    if force != confirm:
        given, other = ("--force", "--confirm") if force else ("--confirm", "--force")
        raise UsageError(f"`{given}` needs `{other}`", hint="give both, or neither")
    graph = open_to_write(ctx, "recover")
    operations = [
        {
            "operation_id": found.operation_id,
            "outcome": found.outcome,
            "settled": found.is_settled,
            "reason": found.reason or None,
        }
        for found in graph.recover(force=force)
    ]
    document = {"uri": graph.uri, "force": force, "operations": operations}
    output_of(ctx).show(document, _operation_lines(operations), json=json)
    if not all(found["settled"] for found in operations):
        raise typer.Exit(ExitCode.FAILURE)


@RECOVERY.add(UpkeepCommand, name="list")
def recovery_list(ctx: typer.Context, json: JsonFlag = False) -> None:
    """List every recovery so far, oldest first.

    omnigraph recovery list --store team.omni
    omnigraph recovery list --store team.omni --json
    """
    recoveries = [row.to_dict() for row in open_to_read(ctx).list_recoveries()]
    output_of(ctx).show({"recoveries": recoveries}, _recovery_lines(recoveries), json=json)


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
