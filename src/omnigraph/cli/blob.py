"""`omnigraph blob …`: one blob of a graph, its bytes or what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import replaced_file
from omnigraph.cli.help import Commands, PayloadCommand, ReadCommand
from omnigraph.cli.opening import graph_to_read
from omnigraph.cli.options import (
    JsonFlag,
    OutOption,
    ReadBranchOption,
    SnapshotOption,
    argument,
    option,
    read_place,
    usage,
)
from omnigraph.cli.output import Line, Styled, counted, fact_lines, output_of

if TYPE_CHECKING:
    from omnigraph.client.remote import RemoteBlob
    from omnigraph.graph.blobs import Blob
    from omnigraph.model.blobs import BlobStat

COMMANDS = Commands(
    "blob",
    "Read a value of a Blob property.",
    """
omnigraph blob stat node Person ada photo --store team.omni
omnigraph blob get node Person ada photo --store team.omni --out ada.png
""",
)

EntityArgument = Annotated[str, argument("node|edge", "what has the blob")]
TypeArgument = Annotated[str, argument("TYPE", "its type")]
IdArgument = Annotated[str, argument("ID", "its id; the key of a keyed node")]
PropertyArgument = Annotated[str, argument("PROPERTY", "the Blob property")]
OffsetOption = Annotated[int, option("--offset", "N", "the first byte to read; 0 by default")]
LengthOption = Annotated[
    int | None, option("--length", "N", "how many bytes to read; all by default")
]


@COMMANDS.add(PayloadCommand)
def get(
    ctx: typer.Context,
    entity: EntityArgument,
    type: TypeArgument,
    id: IdArgument,
    property: PropertyArgument,
    *,
    branch: ReadBranchOption = None,
    snapshot: SnapshotOption = None,
    offset: OffsetOption = 0,
    length: LengthOption = None,
    out: OutOption = None,
    json: JsonFlag = False,
) -> None:
    """Write the bytes of a blob to stdout, or to a file.

    A range may end behind the value, but not start there. Only the bytes that are asked for are
    read. Of a value that is a URI, only the URI is shown: nothing is fetched from elsewhere. stdout
    carries only the bytes, so `--json` shapes the errors on stderr and, with `--out`, the receipt.

    omnigraph blob get node Person ada photo --store team.omni > ada.png
    omnigraph blob get node Person ada photo --store team.omni --offset 0 --length 16 | xxd
    omnigraph blob get edge Signed 01K3Z7M0Q8W4R6T2Y5V9B1N3XC scan --store team.omni --out scan.pdf
    """
    from omnigraph.model.blobs import check_range

    output = output_of(ctx)
    output.stdout_is_payload = out is None
    usage(check_range, offset, length)
    if out is None and output.stdout.isatty():
        raise UsageError(
            "stdout is a terminal, and a blob is not text",
            hint="write it to a file with `--out FILE`, or pipe it on",
        )
    found = _find(ctx, (entity, type, id, property), branch, snapshot)
    chunks = found.chunks(offset, length)
    # Read the first piece before opening the output: most errors are raised by then.
    piece: bytes | None = next(chunks, b"")
    size = 0
    with ExitStack() as stack:
        total = len(found.byte_range(offset, length))
        advance = stack.enter_context(output.progress("reading", total, "bytes"))
        write = output.raw if out is None else stack.enter_context(replaced_file(out)).write
        while piece is not None:
            write(piece)
            size += len(piece)
            advance(len(piece))
            piece = next(chunks, None)
    if out is not None:
        written = f"{counted(size, 'byte')} of {found.stat.selector} written to {out}"
        output.done(found.stat.to_dict() | {"out": str(out), "bytes": size}, written, json=json)


@COMMANDS.add(ReadCommand)
def stat(
    ctx: typer.Context,
    entity: EntityArgument,
    type: TypeArgument,
    id: IdArgument,
    property: PropertyArgument,
    *,
    branch: ReadBranchOption = None,
    snapshot: SnapshotOption = None,
    json: JsonFlag = False,
) -> None:
    """Show what is known of a blob without reading it.

    A managed value has a size, and a tag that is another one whenever the bytes are; an external
    one has the URI of its object.

    omnigraph blob stat node Person ada photo --store team.omni
    omnigraph blob stat node Person ada photo --store team.omni --branch review --json
    """
    found = _find(ctx, (entity, type, id, property), branch, snapshot).stat
    output_of(ctx).show(found, _lines(found), json=json)


def _find(
    ctx: typer.Context,
    selector: tuple[str, str, str, str],
    branch: str | None,
    snapshot: str | None,
) -> Blob | RemoteBlob:
    place = read_place(branch, snapshot)
    return graph_to_read(ctx).blob(*selector, **place)


def _lines(found: BlobStat) -> Iterator[Line]:
    yield (Styled(str(found.selector), "bold"),)
    yield from fact_lines(
        {
            "kind": found.kind,
            "size": found.size,
            "etag": found.etag,
            "uri": found.uri,
            "at": f"{found.target}, commit {found.resolved_snapshot}",
        }
    )
