"""`omnigraph blob …`: one blob of a graph, its bytes or what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import Capability, Group, PayloadCommand, ReadCommand, subcommand_missing
from omnigraph.cli.options import JsonFlag
from omnigraph.cli.output import Line, Output, Styled, counted, output_of
from omnigraph.cli.query import BranchOption, SnapshotOption

if TYPE_CHECKING:
    from omnigraph.client.remote import RemoteBlob
    from omnigraph.graph.blobs import Blob
    from omnigraph.model.blobs import BlobStat

EXAMPLES = """
omnigraph blob stat node Person ada photo --store team.omni
omnigraph blob get node Person ada photo --store team.omni --out ada.png
"""
GET_EXAMPLES = """
omnigraph blob get node Person ada photo --store team.omni > ada.png
omnigraph blob get node Person ada photo --store team.omni --offset 0 --length 16 | xxd
omnigraph blob get edge Signed 01K3Z7M0Q8W4R6T2Y5V9B1N3XC scan --store team.omni --out scan.pdf
"""
STAT_EXAMPLES = """
omnigraph blob stat node Person ada photo --store team.omni
omnigraph blob stat node Person ada photo --store team.omni --branch review --json
"""

EntityArgument = Annotated[str, typer.Argument(metavar="node|edge", help="what has the blob")]
TypeArgument = Annotated[str, typer.Argument(metavar="TYPE", help="its type")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="its id; the key of a keyed node")]
PropertyArgument = Annotated[str, typer.Argument(metavar="PROPERTY", help="the Blob property")]
OffsetOption = Annotated[
    int, typer.Option("--offset", metavar="N", help="the first byte to read; 0 by default")
]
LengthOption = Annotated[
    int | None,
    typer.Option("--length", metavar="N", help="how many bytes to read; all by default"),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="write here; replaced once all of it is there"),
]


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(rich_markup_mode=None)
    panel = Capability.ANY.panel
    group.command("get", cls=PayloadCommand, rich_help_panel=panel, epilog=GET_EXAMPLES)(get)
    group.command("stat", cls=ReadCommand, rich_help_panel=panel, epilog=STAT_EXAMPLES)(stat)
    app.add_typer(
        group,
        name="blob",
        cls=Group,
        callback=blob,
        invoke_without_command=True,
        epilog=EXAMPLES,
    )


def blob(ctx: typer.Context) -> None:
    """Read a value of a Blob property."""
    if ctx.invoked_subcommand is None:
        raise subcommand_missing(ctx)


def get(
    ctx: typer.Context,
    entity: EntityArgument,
    type: TypeArgument,
    id: IdArgument,
    property: PropertyArgument,
    *,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    offset: OffsetOption = 0,
    length: LengthOption = None,
    out: OutOption = None,
    json: JsonFlag = False,
) -> None:
    """Write the bytes of a blob to stdout, or to a file.

    A range may end behind the value, but not start there. Only the bytes that are asked for are
    read. Of a value that is a URI, only the URI is told: nothing is fetched from elsewhere. stdout
    carries only the bytes, so `--json` shapes the errors on stderr and, with `--out`, the receipt.
    """
    output = output_of(ctx)
    output.stdout_is_payload = out is None
    _require_range(offset, length)
    if out is None and output.stdout.isatty():
        raise UsageError(
            "stdout is a terminal, and a blob is not text",
            hint="write it to a file with `--out FILE`, or pipe it on",
        )
    found = _find(ctx, (entity, type, id, property), branch, snapshot)
    chunks = found.chunks(offset, length)
    # The first piece comes before anything is written: most of what can go wrong is then over.
    first = next(chunks, b"")
    with _progress(output, len(found.byte_range(offset, length))) as progress:
        pieces = _watched(first, chunks, progress)
        if out is None:
            for piece in pieces:
                output.raw(piece)
            return
        size = _write(out, pieces)
    if json:
        output.json(found.stat.to_dict() | {"out": str(out), "bytes": size})
    else:
        written = f"{counted(size, 'byte')} of {found.stat.selector} written to {out}"
        output.line(Styled(written, "bold green"))


def stat(
    ctx: typer.Context,
    entity: EntityArgument,
    type: TypeArgument,
    id: IdArgument,
    property: PropertyArgument,
    *,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    json: JsonFlag = False,
) -> None:
    """Show what is known of a blob without reading it.

    A managed value has a size, and a tag that is another one whenever the bytes are; an external
    one has the URI of its object.
    """
    found = _find(ctx, (entity, type, id, property), branch, snapshot).stat
    output = output_of(ctx)
    if json:
        output.json(found.to_dict())
    else:
        output.lines(_lines(found))


def _require_range(offset: int, length: int | None) -> None:
    from omnigraph.errors import InputError
    from omnigraph.model.blobs import check_range

    try:
        check_range(offset, length)
    except InputError as wrong:
        raise UsageError(wrong.message, hint=wrong.hint) from wrong


def _find(
    ctx: typer.Context,
    selector: tuple[str, str, str, str],
    branch: str | None,
    snapshot: str | None,
) -> Blob | RemoteBlob:
    from omnigraph.cli.opening import graph_to_read
    from omnigraph.model.ids import normalize_commit_id

    if branch is not None and snapshot is not None:
        raise UsageError(
            "`--branch` and `--snapshot` are mutually exclusive",
            hint="a snapshot is a commit, whichever branch it is on",
        )
    commit_id = normalize_commit_id(snapshot) if snapshot is not None else None
    return graph_to_read(ctx).blob(*selector, branch=branch, snapshot=commit_id)


def _write(path: Path, pieces: Iterator[bytes]) -> int:
    from omnigraph.cli.files import replaced_file

    size = 0
    with replaced_file(path) as stream:
        for piece in pieces:
            stream.write(piece)
            size += len(piece)
    return size


def _watched(
    first: bytes, rest: Iterator[bytes], progress: Callable[[int], None] | None
) -> Iterator[bytes]:
    piece: bytes | None = first
    while piece is not None:
        yield piece
        if progress is not None:
            progress(len(piece))
        piece = next(rest, None)


def _progress(output: Output, total: int) -> AbstractContextManager[Callable[[int], None] | None]:
    if not output.shows_progress:
        return nullcontext()
    from omnigraph.cli.progress import progress_of

    return progress_of(output, "reading", total, "bytes")


def _lines(found: BlobStat) -> Iterator[Line]:
    yield (Styled(str(found.selector), "bold"),)
    facts = {"kind": found.kind, "size": found.size, "etag": found.etag, "uri": found.uri}
    for name, value in facts.items():
        if value is not None:
            yield (f"{name:<4}  {value}",)
    yield (f"at    {found.target}, commit {found.resolved_snapshot}",)
