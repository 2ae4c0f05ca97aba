"""`omnigraph export`: the entities of a branch as JSON lines."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.files import replaced_file
from omnigraph.cli.help import Commands, PayloadCommand
from omnigraph.cli.opening import graph_to_read
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    JsonFlag,
    OutOption,
    UriArgument,
    option,
)
from omnigraph.cli.output import counted, output_of, warn_deprecated

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph

COMMANDS = Commands()

TypeOption = Annotated[
    list[str] | None, option("--type", "NAME", "only this type of node or edge; repeatable")
]
JsonlFlag = Annotated[bool, typer.Option("--jsonl", hidden=True)]


@COMMANDS.add(PayloadCommand)
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

    omnigraph export team.omni > team.jsonl
    omnigraph export team.omni --type Person --type Knows --out people.jsonl
    """
    output = output_of(ctx)
    output.stdout_is_payload = out is None
    if jsonl:
        warn_deprecated(output, "export --jsonl", "export")
    graph = graph_to_read(ctx, uri)
    blocks = graph.export(branch=branch, types=types or None)
    # Lines that scroll by are progress enough.
    scrolls = out is None and output.stdout.isatty()
    total = _total(graph, branch, types) if output.shows_progress and not scrolls else None
    entities = size = 0
    with ExitStack() as stack:
        bar = output.progress("exporting", total, "entities", unless=scrolls)
        advance = stack.enter_context(bar)
        write = output.verbatim if out is None else stack.enter_context(replaced_file(out)).write
        for block in blocks:
            write(block)
            size += len(block)
            entities += block.count(b"\n")
            advance(block.count(b"\n"))
    if out is not None:
        output.done(
            {
                "uri": graph.uri,
                "branch": branch,
                "out": str(out),
                "entities": entities,
                "bytes": size,
            },
            f"{counted(entities, 'entity', 'entities')} exported from {branch} to {out}",
            json=json,
        )


def _total(graph: Graph | RemoteGraph, branch: str, types: list[str] | None) -> int:
    datasets = graph.snapshot(branch).datasets
    return sum(each.entity_count for each in datasets if not types or each.type_name in types)
