"""`omnigraph init`: a new, empty graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.help import Capability, Command
from omnigraph.cli.options import JsonFlag
from omnigraph.cli.output import Styled, output_of

EXAMPLES = """
omnigraph init --schema schema.pg team.omni
omnigraph init --schema schema.pg s3://lake/graphs/team.omni
"""

NewSchemaFile = Annotated[
    Path, typer.Option("--schema", metavar="FILE.pg", help="what the graph may hold")
]
NewUri = Annotated[
    str, typer.Argument(metavar="URI", help="where to create it: a path, file:// or s3://")
]
ForceFlag = Annotated[
    bool, typer.Option("--force", help="replace schema files that belong to no graph")
]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("init", cls=Command, rich_help_panel=Capability.DIRECT.panel, epilog=EXAMPLES)(init)


def init(
    ctx: typer.Context,
    schema: NewSchemaFile,
    uri: NewUri,
    force: ForceFlag = False,
    json: JsonFlag = False,
) -> None:
    """Create an empty graph.

    A place that holds a graph already is refused, always. What an interrupted `init` left behind
    is refused too, unless `--force` says to replace it.
    """
    from omnigraph import graph
    from omnigraph.cli.addressing import storage_target
    from omnigraph.cli.sources import compile_schema_file

    output = output_of(ctx)
    target = storage_target(uri)
    compiled = compile_schema_file(schema, output)
    created = graph.init(target.uri, compiled.source, force=force)
    if json:
        output.json({"uri": created.uri, "initialized": True})
    else:
        output.line(Styled(f"created a graph at {target}", "bold green"))
