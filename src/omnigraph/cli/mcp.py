"""`omnigraph mcp`: a graph as tools for language models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.help import Capability, PayloadCommand
from omnigraph.cli.options import JsonFlag, QueriesOption
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.mcp.toolbox import Access, Tool

EXAMPLES = """
omnigraph mcp --store team.omni --queries queries/
omnigraph mcp --server https://graph.example.com --graph team
omnigraph mcp --store team.omni --queries queries/ --allow-write 'agent/*' --adhoc
"""

WriteOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-write",
        metavar="BRANCH",
        help="allow writes to this branch, or below a prefix with `agent/*`; repeatable",
    ),
]
AdhocFlag = Annotated[
    bool, typer.Option("--adhoc", help="also run queries that the model makes up")
]
RowsOption = Annotated[
    int, typer.Option("--max-rows", metavar="N", min=1, help="rows of an answer; 200 by default")
]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.ANY.panel
    app.command("mcp", cls=PayloadCommand, rich_help_panel=panel, epilog=EXAMPLES)(mcp)


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
    """
    _require_library()
    from omnigraph.cli.addressing import config_of
    from omnigraph.mcp.stdio import serve
    from omnigraph.mcp.toolbox import Access

    access = Access.of(
        allow_write or (), adhoc=adhoc, rows_max=max_rows, actor=config_of(ctx).actor
    )
    serve(_tools(ctx, queries or [], access))


def _tools(ctx: typer.Context, queries: list[Path], access: Access) -> list[Tool]:
    from omnigraph.cli.opening import graph_to_read, graph_to_write
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


def _require_library() -> None:
    try:
        import omnigraph.mcp.stdio  # noqa: F401
    except ImportError as missing:
        if missing.name is not None and missing.name.startswith("omnigraph"):
            raise
        raise InputError(
            f"`mcp` needs {missing.name}, which is not installed",
            hint="install it with `pip install 'omnigraph[mcp]'`",
        ) from None
