"""`omnigraph init`, `snapshot` and `graphs …`: whole graphs, in storage and on a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.addressing import resolve_server, storage_target
from omnigraph.cli.files import compile_schema_file
from omnigraph.cli.help import Commands, FileCommand, ReadCommand, ServerCommand
from omnigraph.cli.opening import graph_to_read, token_of
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    JsonFlag,
    UriArgument,
    argument,
    flag,
    option,
)
from omnigraph.cli.output import Line, Styled, counted, output_of, table

if TYPE_CHECKING:
    from omnigraph.graph import SnapshotSummary

GRAPHS_EXAMPLES = """
omnigraph graphs list --server https://graph.example.com
omnigraph graphs list --profile staging --json
"""
COMMANDS = Commands()
GRAPHS = Commands("graphs", "Look at the graphs of a server.", GRAPHS_EXAMPLES)

NewSchemaFile = Annotated[Path, option("--schema", "FILE.pg", "what the graph may hold")]
NewUri = Annotated[str, argument("URI", "where to create it: a path, file:// or s3://")]
InitForceFlag = Annotated[bool, flag("--force", "replace schema files that belong to no graph")]


@GRAPHS.add(ServerCommand, name="list")
def graphs_list(ctx: typer.Context, json: JsonFlag = False) -> None:
    """List the graphs that a server serves: the id, a tab, and where it is.

    The policy of the server decides who may.

    omnigraph graphs list --server https://graph.example.com
    omnigraph graphs list --profile staging --json
    """
    from omnigraph.client import list_graphs
    from omnigraph.client.exchange import Address

    root = Address.parse(resolve_server(ctx).url).root
    found = list_graphs(root, token_of(ctx, root))
    lines = ([f"{graph.graph_id}\t{graph.uri}"] for graph in found)
    output_of(ctx).show({"graphs": found}, lines, json=json)


@COMMANDS.add(FileCommand)
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

    omnigraph init --schema schema.pg team.omni
    omnigraph init --schema schema.pg s3://lake/graphs/team.omni
    """
    from omnigraph import graph

    output = output_of(ctx)
    target = storage_target(uri)
    compiled = compile_schema_file(schema, output)
    created = graph.init(target.uri, compiled.source, force=force)
    document = {"uri": created.uri, "initialized": True}
    output.done(document, f"created a graph at {target}", json=json)


@COMMANDS.add(ReadCommand)
def snapshot(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Show the types of a branch and how many entities each has.

    Everything is as of one commit, the head of the branch, which is named in the last line.

    omnigraph snapshot team.omni
    omnigraph snapshot team.omni --branch review --json
    """
    summary = graph_to_read(ctx, uri).snapshot(branch)
    output_of(ctx).show(summary, _snapshot_lines(summary), json=json)


def _snapshot_lines(summary: SnapshotSummary) -> Iterator[Line]:
    rows = [
        (f"{each.entity_kind} {each.type_name}", each.entity_count, each.published_dataset_version)
        for each in summary.datasets
    ]
    yield from table(("type", "entities", "version"), rows)
    yield ()
    total = sum(entry.entity_count for entry in summary.datasets)
    sentence = f"{counted(total, 'entity', 'entities')} on {summary.graph_branch}"
    yield (Styled(sentence, "bold green"),)
    yield (f"commit {summary.graph_commit_id}",)
