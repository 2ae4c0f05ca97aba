"""`omnigraph index`, `optimize`, `repair` and `cleanup`: what keeps a graph fast and small."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, get_args

import typer

from omnigraph.cli.failures import ExitCode, UsageError
from omnigraph.cli.help import Capability, DestructiveUpkeep, GraphCommand
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    ConfirmFlag,
    JsonFlag,
    UriArgument,
)
from omnigraph.cli.output import Line, Styled, counted, output_of, table
from omnigraph.model.upkeep import (
    KEEP_FEW,
    CleanedTable,
    CleanupReceipt,
    IndexedTable,
    IndexKind,
    IndexReceipt,
    OptimizedTable,
    OptimizeReceipt,
    RepairedTable,
    RepairReceipt,
)

OPTIMIZE_EXAMPLES = """
omnigraph optimize team.omni
omnigraph optimize team.omni --json
"""


def add_optimize(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.DIRECT.panel
    app.command("optimize", cls=GraphCommand, rich_help_panel=panel, epilog=OPTIMIZE_EXAMPLES)(
        optimize
    )


def optimize(ctx: typer.Context, uri: UriArgument = None, json: JsonFlag = False) -> None:
    """Compact the tables of main and complete their indexes.

    Small fragments become large ones, rows written since are brought into the indexes, and missing
    indexes are built, in one commit. What queries return stays the same, and old versions stay
    readable. A table that an external writer changed (drift) is skipped.
    """
    from omnigraph.cli.opening import open_to_write
    from omnigraph.cli.progress import tables_of

    output = output_of(ctx)
    graph = open_to_write(ctx, "optimize", uri, settle=False)
    with tables_of(output, "optimizing") as progress:
        receipt = graph.optimize(progress=progress)
    if json:
        output.json({"uri": graph.uri, **receipt.to_dict()})
    else:
        output.lines(_optimize_lines(receipt))


def _optimize_lines(receipt: OptimizeReceipt) -> Iterator[Line]:
    rows = [
        (
            _optimize_name(done),
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
            yield (Styled("skipped:", "yellow"), f" {_optimize_name(done)}: {drift}")
        for pending in done.pending:
            place = f"{_optimize_name(done)}.{pending.property}"
            yield (Styled("pending:", "yellow"), f" {place}: {pending.reason}")
    if not rows:
        yield (Styled("nothing to optimize", "bold green"),)
        return
    yield (Styled(f"{counted(len(rows), 'table')} optimized", "bold green"),)
    if receipt.graph_commit_id is not None:
        yield (f"commit {receipt.graph_commit_id}",)


def _optimize_name(done: OptimizedTable) -> str:
    return done.type_key.replace(":", " ")


INDEX_EXAMPLES = """
omnigraph index team.omni
omnigraph index team.omni --branch review --json
"""


def add_index(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.DIRECT.panel
    app.command("index", cls=GraphCommand, rich_help_panel=panel, epilog=INDEX_EXAMPLES)(index)


def index(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Build the indexes that are declared and missing on a branch.

    Loads and other writes build none. An index speeds queries up and never changes what they
    return, so this can run at any time; if nothing is missing, nothing is written. An index that
    cannot be built yet is listed with the reason, and built by a later run.
    """
    from omnigraph.cli.opening import open_to_write

    graph = open_to_write(ctx, "index", uri)
    receipt = graph.ensure_indices(branch)
    output = output_of(ctx)
    if json:
        output.json({"uri": graph.uri, **receipt.to_dict()})
    else:
        output.lines(_index_lines(receipt))


def _index_lines(receipt: IndexReceipt) -> Iterator[Line]:
    kinds = get_args(IndexKind)
    rows = [
        (_type_name(done.type_key), *(_columns(done, kind) for kind in kinds))
        for done in receipt.tables
        if done.built
    ]
    if rows:
        yield from table(("type", *kinds), rows)
        yield ()
    for done in receipt.tables:
        for pending in done.pending:
            place = f"{_type_name(done.type_key)}.{pending.property}"
            yield (Styled("pending:", "yellow"), f" {place}: {pending.reason}")
    if receipt.graph_commit_id is None:
        yield (Styled(f"nothing to build on {receipt.branch}", "bold green"),)
    else:
        built = counted(receipt.built_count, "index", "indexes")
        yield (Styled(f"{built} built on {receipt.branch}", "bold green"),)
        yield (f"commit {receipt.graph_commit_id}",)


def _columns(done: IndexedTable, kind: str) -> str:
    return ", ".join(spec.column for spec in done.built if spec.kind == kind) or "-"


def _type_name(type_key: str) -> str:
    return type_key.replace(":", " ")


REPAIR_EXAMPLES = """
omnigraph repair team.omni
omnigraph repair team.omni --confirm
omnigraph repair team.omni --branch review --force --confirm
"""

RepairForceFlag = Annotated[
    bool, typer.Option("--force", help="also adopt what may have changed rows; needs --confirm")
]


def add_repair(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.DIRECT.panel
    app.command("repair", cls=GraphCommand, rich_help_panel=panel, epilog=REPAIR_EXAMPLES)(repair)


def repair(  # noqa: PLR0917
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = DEFAULT_BRANCH,
    confirm: ConfirmFlag = False,
    force: RepairForceFlag = False,
    json: JsonFlag = False,
) -> None:
    """Publish what external writers did to tables (drift).

    A table whose newest version is not the published one cannot be written. With `--confirm`,
    versions that only rearranged rows are published; with `--force --confirm` also those that may
    have changed some, as they are. The exit code is 1 if a table was refused.
    """
    from omnigraph.cli.opening import open_to_write

    if force and not confirm:
        raise UsageError("`--force` needs `--confirm`", hint="give both, or neither")
    graph = open_to_write(ctx, "repair", uri, settle=False)
    receipt = graph.repair(branch, confirm=confirm, force=force)
    output = output_of(ctx)
    if json:
        output.json({"uri": graph.uri, **receipt.to_dict()})
    else:
        output.lines(_repair_lines(receipt))
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
    if receipt.graph_commit_id is not None:
        yield (f"commit {receipt.graph_commit_id}",)


def _repair_row(done: RepairedTable) -> tuple[str | int, ...]:
    return (
        done.type_key.replace(":", " "),
        done.published_dataset_version,
        done.lance_head_version,
        done.classification.replace("_", " "),
        done.action.replace("_", " "),
        ", ".join(done.operations) or "-",
    )


CLEANUP_EXAMPLES = """
omnigraph cleanup team.omni --keep 10
omnigraph cleanup team.omni --keep 10 --confirm
omnigraph cleanup s3://lake/team.omni --keep 10 --older-than 7d --confirm --yes
"""

_DURATION = re.compile(r"(?P<number>\d+)(?P<unit>[smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

KeepOption = Annotated[
    int | None,
    typer.Option("--keep", metavar="N", min=0, help="how many of the newest versions stay"),
]
OlderThanOption = Annotated[
    str | None,
    typer.Option("--older-than", metavar="AGE", help="only what is older goes: 90s, 12h, 7d, 2w"),
]


def add_cleanup(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.DIRECT.panel
    app.command("cleanup", cls=DestructiveUpkeep, rich_help_panel=panel, epilog=CLEANUP_EXAMPLES)(
        cleanup
    )


def cleanup(  # noqa: PLR0917
    ctx: typer.Context,
    uri: UriArgument = None,
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
    """
    from omnigraph.cli.opening import open_to_write
    from omnigraph.cli.progress import tables_of

    if keep is None and older_than is None:
        raise UsageError("`cleanup` needs `--keep` or `--older-than`", hint="`--keep 10` is usual")
    age = None if older_than is None else _duration(older_than)
    output = output_of(ctx)
    if keep is not None and keep < KEEP_FEW:
        output.warning(f"`--keep {keep}` leaves little room for a restore by hand")
    action = "cleanup --confirm" if confirm else None
    graph = open_to_write(ctx, "cleanup", uri, destructive=action, settle=False)
    with tables_of(output, "cleaning up" if confirm else "looking") as progress:
        receipt = graph.cleanup(keep=keep, older_than=age, confirm=confirm, progress=progress)
    if not confirm and not output.quiet:
        output.note(f"only a preview: versions {receipt.policy}; `--confirm` removes them")
    if json:
        output.json({"uri": graph.uri, **receipt.to_dict()})
    else:
        output.lines(_cleanup_lines(receipt))
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
        done.type_key.replace(":", " "),
        done.old_versions_removed,
        done.bytes_removed,
        len(done.orphan_refs_removed),
    )
