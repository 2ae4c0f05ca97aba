"""`omnigraph stats`: a graph in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import typer

from omnigraph.cli.help import Capability, GraphCommand
from omnigraph.cli.options import DEFAULT_BRANCH, BranchOption, JsonFlag, UriArgument
from omnigraph.cli.output import Line, Styled, counted, output_of
from omnigraph.model.upkeep import GraphStats, IndexStats, TableStats, UpkeepFinding

EXAMPLES = """
omnigraph stats team.omni
omnigraph stats team.omni --branch review --json
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.DIRECT.panel
    app.command("stats", cls=GraphCommand, rich_help_panel=panel, epilog=EXAMPLES)(stats)


def stats(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Show what a graph is made of, and what needs attention.

    Rows, fragments, bytes, versions and index coverage of every type, and the operations and
    owners around them. Nothing is written. Every finding names the command that mends it.
    """
    from omnigraph.cli.opening import open_to_read

    graph = open_to_read(ctx, uri)
    found = graph.stats(branch)
    output = output_of(ctx)
    if json:
        output.json({"uri": graph.uri, **found.to_dict()})
    else:
        output.lines(_lines(found))


def _lines(found: GraphStats) -> Iterator[Line]:
    from omnigraph.cli.tables import table

    headers = ("type", "rows", "deleted", "fragments", "bytes", "versions", "version", "indexed")
    yield from table(headers, [_row(each) for each in found.tables])
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
    """What needs attention, each with the command that mends it."""
    for finding in findings:
        style = "bold red" if finding.severity == "problem" else "yellow"
        yield ()
        yield (Styled(f"{finding.severity}:", style), f" {finding.subject}: {finding.message}")
        yield (f"  {finding.command}",)


def _row(each: TableStats) -> tuple[str | int, ...]:
    version = str(each.published_dataset_version)
    if each.lance_head_version != each.published_dataset_version:
        version += f" (newest {each.lance_head_version})"
    return (
        each.type_key.replace(":", " "),
        each.rows,
        each.deleted_rows,
        each.fragments,
        each.bytes,
        each.versions,
        version,
        _coverage(each.indexes),
    )


def _coverage(indexes: Iterable[IndexStats]) -> str:
    """The least that any index covers: a query is as fast as its slowest lookup."""
    shares = [
        index.rows_covered * 100 // max(1, index.rows_covered + index.rows_uncovered)
        for index in indexes
    ]
    return f"{min(shares)}%" if shares else "-"
