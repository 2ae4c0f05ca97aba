"""`omnigraph optimize`: make a graph compact and its indexes complete."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from omnigraph.cli.help import Capability, GraphCommand
from omnigraph.cli.options import JsonFlag, UriArgument
from omnigraph.cli.output import Line, Styled, counted, output_of
from omnigraph.model.upkeep import OptimizedTable, OptimizeReceipt

EXAMPLES = """
omnigraph optimize team.omni
omnigraph optimize team.omni --json
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.DIRECT.panel
    app.command("optimize", cls=GraphCommand, rich_help_panel=panel, epilog=EXAMPLES)(optimize)


def optimize(ctx: typer.Context, uri: UriArgument = None, json: JsonFlag = False) -> None:
    """Compact the tables of main and complete their indexes.

    Small fragments become large ones, rows written since are brought into the indexes, and missing
    indexes are built, in one commit. What queries return stays the same, and old versions stay
    readable. A table that was changed behind the graph's back is skipped.
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
        output.lines(_lines(receipt))


def _lines(receipt: OptimizeReceipt) -> Iterator[Line]:
    from omnigraph.cli.tables import table

    rows = [
        (_name(done), done.fragments_removed, done.fragments_added, done.published_dataset_version)
        for done in receipt.tables
        if done.committed
    ]
    if rows:
        yield from table(("table", "removed", "added", "version"), rows)
        yield ()
    for done in receipt.tables:
        if done.skipped is not None:
            drift = f"version {done.lance_head_version} is not published; run `omnigraph repair`"
            yield (Styled("skipped:", "yellow"), f" {_name(done)}: {drift}")
        for pending in done.pending:
            place = f"{_name(done)}.{pending.property}"
            yield (Styled("pending:", "yellow"), f" {place}: {pending.reason}")
    if not rows:
        yield (Styled("nothing to optimize", "bold green"),)
        return
    yield (Styled(f"{counted(len(rows), 'table')} optimized", "bold green"),)
    if receipt.graph_commit_id is not None:
        yield (f"commit {receipt.graph_commit_id}",)


def _name(done: OptimizedTable) -> str:
    return done.type_key.replace(":", " ")
