"""`omnigraph export`: the entities of a branch as JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.help import Capability, PayloadCommand
from omnigraph.cli.options import DEFAULT_BRANCH, BranchOption, JsonFlag, UriArgument
from omnigraph.cli.output import Output, Styled, counted, output_of, warn_deprecated

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph

EXAMPLES = """
omnigraph export team.omni > team.jsonl
omnigraph export team.omni --type Person --type Knows --out people.jsonl
"""

TypeOption = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="NAME", help="only this type of node or edge; repeatable"),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="write here; replaced once all of it is there"),
]
JsonlFlag = Annotated[bool, typer.Option("--jsonl", hidden=True)]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.ANY.panel
    app.command("export", cls=PayloadCommand, rich_help_panel=panel, epilog=EXAMPLES)(export)


def export(
    ctx: typer.Context,
    *,
    uri: UriArgument = None,
    branch: BranchOption = DEFAULT_BRANCH,
    types: TypeOption = None,
    out: OutOption = None,
    jsonl: JsonlFlag = False,
    json: JsonFlag = False,
) -> None:
    """Write the entities of a branch as JSON lines.

    Loading them with `--mode overwrite` gives the same graph again: ids, values and ends. Two
    exports of the same content are the same bytes. stdout carries only the lines, so `--json`
    shapes the errors on stderr and, with `--out`, the receipt.
    """
    from omnigraph.cli.opening import graph_to_read

    output = output_of(ctx)
    output.stdout_is_payload = out is None
    if jsonl:
        warn_deprecated(output, "export --jsonl", "export")
    graph = graph_to_read(ctx, uri)
    blocks = graph.export(branch=branch, types=types or None)
    with _progress(output, graph, branch, types, out) as progress:
        if out is None:
            for block in _watched(blocks, progress):
                output.verbatim(block)
            return
        written = _write(out, _watched(blocks, progress))
    if json:
        output.json(
            {
                "uri": graph.uri,
                "branch": branch,
                "out": str(out),
                "entities": written.entities,
                "bytes": written.bytes,
            }
        )
    else:
        entities = counted(written.entities, "entity", "entities")
        output.line(Styled(f"{entities} exported from {branch} to {out}", "bold green"))


@dataclass(slots=True)
class Written:
    """How much went into a file."""

    entities: int = 0
    bytes: int = 0


def _write(path: Path, blocks: Iterable[bytes]) -> Written:
    from omnigraph.cli.files import replaced_file

    written = Written()
    with replaced_file(path) as stream:
        for block in blocks:
            stream.write(block)
            written.entities += block.count(b"\n")
            written.bytes += len(block)
    return written


def _watched(blocks: Iterable[bytes], progress: Callable[[int], None] | None) -> Iterator[bytes]:
    for block in blocks:
        yield block
        if progress is not None:
            progress(block.count(b"\n"))


def _progress(
    output: Output,
    graph: Graph | RemoteGraph,
    branch: str,
    types: list[str] | None,
    out: Path | None,
) -> AbstractContextManager[Callable[[int], None] | None]:
    # Lines that scroll by are progress enough.
    if not output.shows_progress or (out is None and output.stdout.isatty()):
        return nullcontext()
    from omnigraph.cli.progress import progress_of

    total = sum(
        entry.entity_count
        for entry in graph.snapshot(branch).datasets
        if not types or entry.type_name in types
    )
    return progress_of(output, "exporting", total, "entities")
