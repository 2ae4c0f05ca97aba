"""`omnigraph mcp`: a graph as tools for language models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.addressing import config_of
from omnigraph.cli.failures import require_library
from omnigraph.cli.help import Commands, PayloadCommand
from omnigraph.cli.opening import graph_to_read, graph_to_write
from omnigraph.cli.options import JsonFlag, QueriesOption, flag, option

if TYPE_CHECKING:
    from omnigraph.mcp.toolbox import Access, Tool

COMMANDS = Commands()

WriteOption = Annotated[
    list[str] | None,
    option(
        "--allow-write",
        "BRANCH",
        "allow writes to this branch, or below a prefix with `agent/*`; repeatable",
    ),
]
AdhocFlag = Annotated[bool, flag("--adhoc", "also run queries that the model makes up")]
RowsOption = Annotated[int, option("--max-rows", "N", "rows of an answer; 200 by default", min=1)]


@COMMANDS.add(PayloadCommand)
def mcp(
    ctx: typer.Context,
    *,
    queries: QueriesOption = None,
    allow_write: WriteOption = None,
    adhoc: AdhocFlag = False,
    max_rows: RowsOption = 200,
    json: JsonFlag = False,
) -> None:
    """Offer a graph to a language model, as tools of the Model Context Protocol.

    A client starts this command and talks to it over stdin and stdout. Every stored query is a tool
    with typed parameters, and others show the schema, branches and commits. Nothing is written
    unless `--allow-write` names branches; a server's policy decides on top of that. `--json` shapes
    the errors on stderr.

    omnigraph mcp --store team.omni --queries queries/
    omnigraph mcp --server https://graph.example.com --graph team
    omnigraph mcp --store team.omni --queries queries/ --allow-write 'agent/*' --adhoc
    """
    require_library("omnigraph.mcp.stdio", "mcp", extra="mcp")
    from omnigraph.mcp.stdio import serve
    from omnigraph.mcp.toolbox import Access

    access = Access.of(
        allow_write or (), adhoc=adhoc, rows_max=max_rows, actor=config_of(ctx).actor
    )
    serve(_tools(ctx, queries or [], access))


def _tools(ctx: typer.Context, queries: list[Path], access: Access) -> list[Tool]:
    from omnigraph.client import RemoteGraph
    from omnigraph.mcp.toolbox import stored_in_files, stored_on_server, tools_of

    flags = {"--queries": bool(queries)}
    if access.writes:
        graph = graph_to_write(ctx, "mcp", only_stored=flags)
    else:
        graph = graph_to_read(ctx, only_stored=flags)
    if isinstance(graph, RemoteGraph):
        stored = stored_on_server(graph)
    else:
        stored = stored_in_files(graph, queries, access.actor)
    return tools_of(graph, stored, access)
