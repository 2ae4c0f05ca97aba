"""`omnigraph graphs …`: what a server serves."""

from __future__ import annotations

import typer

from omnigraph.cli.help import Capability, Group, ServerCommand, subcommand_missing
from omnigraph.cli.options import JsonFlag
from omnigraph.cli.output import output_of

EXAMPLES = """
omnigraph graphs list --server https://graph.example.com
omnigraph graphs list --profile staging --json
"""


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(rich_markup_mode=None)
    panel = Capability.SERVED.panel
    group.command("list", cls=ServerCommand, rich_help_panel=panel, epilog=EXAMPLES)(list_)
    app.add_typer(
        group,
        name="graphs",
        cls=Group,
        callback=graphs,
        invoke_without_command=True,
        epilog=EXAMPLES,
    )


def graphs(ctx: typer.Context) -> None:
    """Look at the graphs of a server."""
    if ctx.invoked_subcommand is None:
        raise subcommand_missing(ctx)


def list_(ctx: typer.Context, json: JsonFlag = False) -> None:
    """List the graphs that a server serves: the id, a tab, and where it is.

    The policy of the server decides who may.
    """
    from omnigraph.cli.addressing import resolve_server
    from omnigraph.cli.remote import token_of
    from omnigraph.client import list_graphs
    from omnigraph.client.exchange import Address

    root = Address.parse(resolve_server(ctx).url).root
    found = list_graphs(root, token_of(ctx, root))
    output = output_of(ctx)
    if json:
        output.json({"graphs": [graph.to_dict() for graph in found]})
    else:
        output.lines([f"{graph.graph_id}\t{graph.uri}"] for graph in found)
