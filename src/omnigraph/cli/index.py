"""`omnigraph index`: build the indexes a schema declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import typer

from omnigraph.cli.help import Capability, GraphCommand
from omnigraph.cli.options import DEFAULT_BRANCH, BranchOption, JsonFlag, UriArgument
from omnigraph.cli.output import Line, Styled, counted, output_of
from omnigraph.model.upkeep import IndexedTable, IndexKind, IndexReceipt

EXAMPLES = """
omnigraph index team.omni
omnigraph index team.omni --branch review --json
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.DIRECT.panel
    app.command("index", cls=GraphCommand, rich_help_panel=panel, epilog=EXAMPLES)(index)


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
        output.lines(_lines(receipt))


def _lines(receipt: IndexReceipt) -> Iterator[Line]:
    from omnigraph.cli.tables import table

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
