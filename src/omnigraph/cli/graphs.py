"""`omnigraph init`, `snapshot` and `graphs …`: whole graphs, in storage and on a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.help import (
    Capability,
    Command,
    Group,
    ReadCommand,
    ServerCommand,
    subcommand_missing,
)
from omnigraph.cli.options import DEFAULT_BRANCH, BranchOption, JsonFlag, UriArgument
from omnigraph.cli.output import Line, Styled, counted, output_of, table

if TYPE_CHECKING:
    from omnigraph.graph import SnapshotSummary


GRAPHS_EXAMPLES = """
omnigraph graphs list --server https://graph.example.com
omnigraph graphs list --profile staging --json
"""


def add_graphs(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(rich_markup_mode=None)
    panel = Capability.SERVED.panel
    group.command("list", cls=ServerCommand, rich_help_panel=panel, epilog=GRAPHS_EXAMPLES)(
        graphs_list
    )
    app.add_typer(
        group,
        name="graphs",
        cls=Group,
        callback=graphs,
        invoke_without_command=True,
        epilog=GRAPHS_EXAMPLES,
    )


def graphs(ctx: typer.Context) -> None:
    """Look at the graphs of a server."""
    if ctx.invoked_subcommand is None:
        raise subcommand_missing(ctx)


def graphs_list(ctx: typer.Context, json: JsonFlag = False) -> None:
    """List the graphs that a server serves: the id, a tab, and where it is.

    The policy of the server decides who may.
    """
    from omnigraph.cli.addressing import resolve_server
    from omnigraph.cli.opening import token_of
    from omnigraph.client import list_graphs
    from omnigraph.client.exchange import Address

    root = Address.parse(resolve_server(ctx).url).root
    found = list_graphs(root, token_of(ctx, root))
    output = output_of(ctx)
    if json:
        output.json({"graphs": [graph.to_dict() for graph in found]})
    else:
        output.lines([f"{graph.graph_id}\t{graph.uri}"] for graph in found)


INIT_EXAMPLES = """
omnigraph init --schema schema.pg team.omni
omnigraph init --schema schema.pg s3://lake/graphs/team.omni
"""

NewSchemaFile = Annotated[
    Path, typer.Option("--schema", metavar="FILE.pg", help="what the graph may hold")
]
NewUri = Annotated[
    str, typer.Argument(metavar="URI", help="where to create it: a path, file:// or s3://")
]
InitForceFlag = Annotated[
    bool, typer.Option("--force", help="replace schema files that belong to no graph")
]


def add_init(app: typer.Typer) -> None:
    """Register the command."""
    app.command("init", cls=Command, rich_help_panel=Capability.DIRECT.panel, epilog=INIT_EXAMPLES)(
        init
    )


def init(
    ctx: typer.Context,
    schema: NewSchemaFile,
    uri: NewUri,
    force: InitForceFlag = False,
    json: JsonFlag = False,
) -> None:
    """Create an empty graph.

    A place that holds a graph already is refused, always. What an interrupted `init` left behind
    is refused too, unless `--force` says to replace it.
    """
    from omnigraph import graph
    from omnigraph.cli.addressing import storage_target
    from omnigraph.cli.files import compile_schema_file

    output = output_of(ctx)
    target = storage_target(uri)
    compiled = compile_schema_file(schema, output)
    created = graph.init(target.uri, compiled.source, force=force)
    if json:
        output.json({"uri": created.uri, "initialized": True})
    else:
        output.line(Styled(f"created a graph at {target}", "bold green"))


SNAPSHOT_EXAMPLES = """
omnigraph snapshot team.omni
omnigraph snapshot team.omni --branch review --json
"""


def add_snapshot(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.ANY.panel
    app.command("snapshot", cls=ReadCommand, rich_help_panel=panel, epilog=SNAPSHOT_EXAMPLES)(
        snapshot
    )


def snapshot(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Show the types of a branch and how many entities each has.

    Everything is as of one commit, the head of the branch, which is named in the last line.
    """
    from omnigraph.cli.opening import graph_to_read

    summary = graph_to_read(ctx, uri).snapshot(branch)
    output = output_of(ctx)
    if json:
        output.json(summary.to_dict())
    else:
        output.lines(_snapshot_lines(summary))


def _snapshot_lines(summary: SnapshotSummary) -> Iterator[Line]:
    rows = [
        (
            f"{entry.entity_kind} {entry.type_name}",
            entry.entity_count,
            entry.published_dataset_version,
        )
        for entry in summary.datasets
    ]
    yield from table(("type", "entities", "version"), rows)
    yield ()
    total = sum(entry.entity_count for entry in summary.datasets)
    sentence = f"{counted(total, 'entity', 'entities')} on {summary.graph_branch}"
    yield (Styled(sentence, "bold green"),)
    yield (f"commit {summary.graph_commit_id}",)
