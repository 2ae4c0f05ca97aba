"""`omnigraph doctor`: try everything, and say how to mend what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from omnigraph.cli.exit_codes import ExitCode
from omnigraph.cli.help import Capability, GraphCommand
from omnigraph.cli.options import JsonFlag, UriArgument
from omnigraph.cli.output import Line, Styled, counted, output_of
from omnigraph.cli.stats import finding_lines
from omnigraph.model.upkeep import Diagnosis

EXAMPLES = """
omnigraph doctor team.omni
omnigraph doctor team.omni --json
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    panel = Capability.DIRECT.panel
    app.command("doctor", cls=GraphCommand, rich_help_panel=panel, epilog=EXAMPLES)(doctor)


def doctor(ctx: typer.Context, uri: UriArgument = None, json: JsonFlag = False) -> None:
    """Try every way a graph is read, and say how to mend what is wrong.

    Every branch and every table is read: rows, keys, edges, words and vectors; also interrupted
    operations, leases, leftovers and Java are looked at. Nothing is written. Every finding names
    the command that mends it. The exit code is 1 if something is wrong, not for mere advice.
    """
    from omnigraph.cli.addressing import resolve
    from omnigraph.graph import doctor as examine

    found = examine(resolve(ctx, uri).uri)
    output = output_of(ctx)
    if json:
        output.json(found.to_dict())
    else:
        output.lines(_lines(found))
    if not found.is_healthy:
        raise typer.Exit(ExitCode.FAILURE)


def _lines(found: Diagnosis) -> Iterator[Line]:
    for check in found.checks:
        sign = Styled("ok    ", "green") if check.is_fine else Styled("wrong ", "bold red")
        yield (sign, check.name)
    yield from finding_lines(found.findings)
    yield ()
    problems = sum(finding.severity == "problem" for finding in found.findings)
    advice = len(found.findings) - problems
    if problems:
        yield (Styled(f"{counted(problems, 'problem')}, {advice} to improve", "bold red"),)
    elif advice:
        yield (Styled(f"healthy, with {advice} to improve", "bold green"),)
    else:
        yield (Styled("healthy", "bold green"),)
