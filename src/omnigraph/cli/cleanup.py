"""`omnigraph cleanup`: remove old versions and leftovers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

import typer

from omnigraph.cli.exit_codes import ExitCode
from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import Capability, DestructiveUpkeep
from omnigraph.cli.options import ConfirmFlag, JsonFlag, UriArgument
from omnigraph.cli.output import Line, Styled, counted, output_of
from omnigraph.model.upkeep import KEEP_FEW, CleanedTable, CleanupReceipt

EXAMPLES = """
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


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.DIRECT.panel
    app.command("cleanup", cls=DestructiveUpkeep, rich_help_panel=panel, epilog=EXAMPLES)(cleanup)


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
        output.lines(_lines(receipt))
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


def _lines(receipt: CleanupReceipt) -> Iterator[Line]:
    from omnigraph.cli.tables import table

    busy = [done for done in receipt.tables if not done.is_idle]
    if not busy:
        yield (Styled("nothing to clean up", "bold green"),)
        return
    yield from table(("table", "versions", "bytes", "refs"), [_row(done) for done in busy])
    yield ()
    for done in busy:
        if done.error is not None:
            yield (Styled("failed:", "bold red"), f" {done.type_key}: {done.error}")
    versions = counted(sum(done.old_versions_removed for done in busy), "version")
    total = f"{versions}, {sum(done.bytes_removed for done in busy)} bytes"
    verb = "would be removed" if receipt.dry_run else "removed"
    style = "bold red" if receipt.has_errors else "bold green"
    yield (Styled(f"{total} {verb}", style),)


def _row(done: CleanedTable) -> tuple[str | int, ...]:
    return (
        done.type_key.replace(":", " "),
        done.old_versions_removed,
        done.bytes_removed,
        len(done.orphan_refs_removed),
    )
