"""`omnigraph version`."""

from __future__ import annotations

import typer

from omnigraph import __version__
from omnigraph.cli.help import Capability, Command
from omnigraph.cli.options import JsonFlag
from omnigraph.cli.output import output_of
from omnigraph.model.ids import INTERNAL_SCHEMA_VERSION

EXAMPLES = """
omnigraph version
omnigraph version --json
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("version", cls=Command, rich_help_panel=Capability.LOCAL.panel, epilog=EXAMPLES)(
        version
    )


def version(ctx: typer.Context, json: JsonFlag = False) -> None:
    """Print the version.

    The second line is the newest storage layout this version reads and writes.
    """
    output = output_of(ctx)
    if json:
        output.json({"version": __version__, "internal_schema": INTERNAL_SCHEMA_VERSION})
    else:
        output.line(f"omnigraph {__version__}")
        output.line(f"internal-schema {INTERNAL_SCHEMA_VERSION}")
