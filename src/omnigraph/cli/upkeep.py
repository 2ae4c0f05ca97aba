"""`omnigraph index`, `optimize`, `repair` and `cleanup`: what keeps a graph fast and small."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, get_args

import typer

from omnigraph.cli.failures import ExitCode, UsageError
from omnigraph.cli.health import type_name
from omnigraph.cli.help import Commands, DestructiveUpkeep, UpkeepCommand
from omnigraph.cli.opening import open_to_write
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    ConfirmFlag,
    JsonFlag,
    SparkConfOption,
    SparkMasterOption,
    announce_spark,
    flag,
    one_of,
    option,
    spark_arguments,
)
from omnigraph.cli.output import Line, Styled, counted, output_of, table
from omnigraph.model.types import IndexKind
from omnigraph.model.upkeep import (
    KEEP_FEW,
    CleanedTable,
    CleanupReceipt,
    IndexedTable,
    IndexReceipt,
    OptimizedTable,
    OptimizeReceipt,
    RepairedTable,
    RepairReceipt,
)

COMMANDS = Commands()

_DURATION = re.compile(r"(?P<number>\d+)(?P<unit>[smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

RepairForceFlag = Annotated[
    bool, flag("--force", "also adopt what may have changed rows; needs --confirm")
]
EngineOption = Annotated[
    str | None,
    option(
        "--engine",
        "local|spark",
        "who does the work: this process, which is the default, or Spark",
        check=one_of(("local", "spark")),
    ),
]
KeepOption = Annotated[
    int | None, option("--keep", "N", "how many of the newest versions stay", min=0)
]
OlderThanOption = Annotated[
    str | None, option("--older-than", "AGE", "only what is older goes: 90s, 12h, 7d, 2w")
]


@COMMANDS.add(UpkeepCommand)
def index(
    ctx: typer.Context,
    branch: BranchOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Build the indexes that are declared and missing on a branch.

    Loads and other writes build none. An index speeds queries up and never changes what they
    return, so this can run at any time; if nothing is missing, nothing is written. An index that
    cannot be built yet is listed with the reason, and built by a later run.

    omnigraph index --store team.omni
    omnigraph index --store team.omni --branch review --json
    """
    graph = open_to_write(ctx, "index", settle=True)
    receipt = graph.ensure_indices(branch)
    document = {"uri": graph.uri, **receipt.to_dict()}
    output_of(ctx).show(document, _index_lines(receipt), json=json)


def _index_lines(receipt: IndexReceipt) -> Iterator[Line]:
    kinds = get_args(IndexKind)
    rows = [
        (type_name(done.type_key), *(_columns(done, kind) for kind in kinds))
        for done in receipt.tables
        if done.built
    ]
    if rows:
        yield from table(("type", *kinds), rows)
        yield ()
    for done in receipt.tables:
        yield from _pending_lines(done)
    if receipt.graph_commit_id is None:
        yield (Styled(f"nothing to build on {receipt.branch}", "bold green"),)
    else:
        built = counted(receipt.built_count, "index", "indexes")
        yield (Styled(f"{built} built on {receipt.branch}", "bold green"),)
        yield from _commit_lines(receipt)


def _columns(done: IndexedTable, kind: str) -> str:
    return ", ".join(spec.column for spec in done.built if spec.kind == kind) or "-"


@COMMANDS.add(UpkeepCommand)
def optimize(
    ctx: typer.Context,
    *,
    engine: EngineOption = None,
    spark_master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    json: JsonFlag = False,
) -> None:
    """Compact the tables of main and complete their indexes.

    Small fragments become large ones, rows written since are brought into the indexes, and missing
    indexes are built, in one commit. What queries return stays the same, and old versions stay
    readable. A table that an external writer changed (drift) is skipped. With `--engine spark`
    executors do the work, and the result is the same.

    omnigraph optimize --store team.omni
    omnigraph optimize --store s3://lake/team.omni --engine spark --spark-master spark://host:7077
    omnigraph optimize --store team.omni --json
    """
    from omnigraph.cli.progress import tables_of

    output = output_of(ctx)
    how = spark_arguments(engine, spark_master, spark_conf)
    graph = open_to_write(ctx, "optimize")
    announce_spark(output, how, json=json)
    with tables_of(output, "optimizing") as progress:
        receipt = graph.optimize(progress=progress, **how)
    document = {"uri": graph.uri, **receipt.to_dict()}
    output.show(document, _optimize_lines(receipt), json=json)


def _optimize_lines(receipt: OptimizeReceipt) -> Iterator[Line]:
    rows = [
        (
            type_name(done.type_key),
            done.fragments_removed,
            done.fragments_added,
            done.published_dataset_version,
        )
        for done in receipt.tables
        if done.committed
    ]
    if rows:
        yield from table(("table", "removed", "added", "version"), rows)
        yield ()
    for done in receipt.tables:
        if done.skipped is not None:
            drift = f"version {done.lance_head_version} is not published; run `omnigraph repair`"
            yield (Styled("skipped:", "yellow"), f" {type_name(done.type_key)}: {drift}")
        yield from _pending_lines(done)
    if not rows:
        yield (Styled("nothing to optimize", "bold green"),)
        return
    yield (Styled(f"{counted(len(rows), 'table')} optimized", "bold green"),)
    yield from _commit_lines(receipt)


def _pending_lines(done: OptimizedTable | IndexedTable) -> Iterator[Line]:
    for pending in done.pending:
        place = f"{type_name(done.type_key)}.{pending.property}"
        yield (Styled("pending:", "yellow"), f" {place}: {pending.reason}")


def _commit_lines(receipt: OptimizeReceipt | IndexReceipt | RepairReceipt) -> Iterator[Line]:
    if receipt.graph_commit_id is not None:
        yield (f"commit {receipt.graph_commit_id}",)


@COMMANDS.add(UpkeepCommand)
def repair(
    ctx: typer.Context,
    branch: BranchOption = DEFAULT_BRANCH,
    confirm: ConfirmFlag = False,
    force: RepairForceFlag = False,
    json: JsonFlag = False,
) -> None:
    """Publish what external writers did to tables (drift).

    A table whose newest version is not the published one cannot be written. With `--confirm`,
    versions that only rearranged rows are published; with `--force --confirm` also those that may
    have changed some, as they are. The exit code is 1 if a table was refused.

    omnigraph repair --store team.omni
    omnigraph repair --store team.omni --confirm
    omnigraph repair --store team.omni --branch review --force --confirm
    """
    if force and not confirm:
        raise UsageError("`--force` needs `--confirm`", hint="give both, or neither")
    graph = open_to_write(ctx, "repair")
    receipt = graph.repair(branch, confirm=confirm, force=force)
    document = {"uri": graph.uri, **receipt.to_dict()}
    output_of(ctx).show(document, _repair_lines(receipt), json=json)
    if receipt.has_refusals:
        raise typer.Exit(ExitCode.FAILURE)


def _repair_lines(receipt: RepairReceipt) -> Iterator[Line]:
    drifted = [done for done in receipt.tables if done.action != "no_op"]
    if not drifted:
        yield (Styled(f"nothing to repair on {receipt.branch}", "bold green"),)
        return
    headers = ("type", "published", "newest", "found", "action", "written by")
    yield from table(headers, [_repair_row(done) for done in drifted])
    yield ()
    for done in drifted:
        if done.error is not None:
            yield (Styled(f"{done.action}:", "yellow"), f" {done.type_key}: {done.error}")
    if not receipt.confirm:
        shown = counted(len(drifted), "table")
        yield (Styled(f"{shown} would be repaired; `--confirm` does it", "bold"),)
        return
    refused = sum(done.action == "refused" for done in drifted)
    style = "bold red" if refused else "bold green"
    yield (Styled(f"{len(drifted) - refused} repaired, {refused} refused", style),)
    yield from _commit_lines(receipt)


def _repair_row(done: RepairedTable) -> tuple[str | int, ...]:
    return (
        type_name(done.type_key),
        done.published_dataset_version,
        done.lance_head_version,
        done.classification.replace("_", " "),
        done.action.replace("_", " "),
        ", ".join(done.operations) or "-",
    )


@COMMANDS.add(DestructiveUpkeep)
def cleanup(
    ctx: typer.Context,
    keep: KeepOption = None,
    older_than: OlderThanOption = None,
    confirm: ConfirmFlag = False,
    json: JsonFlag = False,
) -> None:
    """Remove old versions of tables, and what deleted branches left behind.

    `--keep` or `--older-than` say what is old; with both, only what is both. What a branch sees now
    stays. Commits stay listed, but those whose versions are gone cannot be read any more. Nothing
    is removed without `--confirm`; on storage that others may share, `--yes` or an answer at the
    terminal is needed as well. The exit code is 1 if something could not be removed.

    omnigraph cleanup --store team.omni --keep 10
    omnigraph cleanup --store team.omni --keep 10 --confirm
    omnigraph cleanup --store s3://lake/team.omni --keep 10 --older-than 7d --confirm --yes
    """
    from omnigraph.cli.progress import tables_of

    if keep is None and older_than is None:
        raise UsageError("`cleanup` needs `--keep` or `--older-than`", hint="`--keep 10` is usual")
    age = None if older_than is None else _duration(older_than)
    output = output_of(ctx)
    if keep is not None and keep < KEEP_FEW:
        output.warning(f"`--keep {keep}` leaves little room for a restore by hand")
    action = "cleanup --confirm" if confirm else None
    graph = open_to_write(ctx, "cleanup", destructive=action)
    with tables_of(output, "cleaning up" if confirm else "looking") as progress:
        receipt = graph.cleanup(keep=keep, older_than=age, confirm=confirm, progress=progress)
    if not confirm and not output.quiet:
        output.note(f"only a preview: versions {receipt.policy}; `--confirm` removes them")
    document = {"uri": graph.uri, **receipt.to_dict()}
    output.show(document, _cleanup_lines(receipt), json=json)
    if receipt.has_errors:
        raise typer.Exit(ExitCode.FAILURE)


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"`--older-than` takes an age such as 90s, 30m, 12h, 7d or 2w, not `{text}`",
            hint="a number without a unit means seconds",
        )
    try:
        return timedelta(seconds=int(found["number"]) * _SECONDS[found["unit"]])
    except OverflowError:
        raise UsageError(f"`--older-than {text}` is too long", hint="nothing is that old") from None


def _cleanup_lines(receipt: CleanupReceipt) -> Iterator[Line]:
    busy = [done for done in receipt.tables if not done.is_idle]
    if not busy:
        yield (Styled("nothing to clean up", "bold green"),)
        return
    yield from table(("table", "versions", "bytes", "refs"), [_cleanup_row(done) for done in busy])
    yield ()
    for done in busy:
        if done.error is not None:
            yield (Styled("failed:", "bold red"), f" {done.type_key}: {done.error}")
    versions = counted(sum(done.old_versions_removed for done in busy), "version")
    total = f"{versions}, {sum(done.bytes_removed for done in busy)} bytes"
    verb = "would be removed" if receipt.dry_run else "removed"
    style = "bold red" if receipt.has_errors else "bold green"
    yield (Styled(f"{total} {verb}", style),)


def _cleanup_row(done: CleanedTable) -> tuple[str | int, ...]:
    return (
        type_name(done.type_key),
        done.old_versions_removed,
        done.bytes_removed,
        len(done.orphan_refs_removed),
    )
