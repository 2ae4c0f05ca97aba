"""`omnigraph schema …`: look at a schema, and at the way from one to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.help import Capability, Command, GraphCommand, Group, subcommand_missing
from omnigraph.cli.options import JsonFlag, UriArgument
from omnigraph.cli.output import output_of

EXAMPLES = """
omnigraph schema check examples/library/schema.pg
omnigraph schema plan --from examples/evolution/v1.pg --schema examples/evolution/v2.pg
omnigraph schema show team.omni
"""
CHECK_EXAMPLES = """
omnigraph schema check examples/library/schema.pg
omnigraph schema check schema.pg --json
"""
PLAN_EXAMPLES = """
omnigraph schema plan --from examples/evolution/v1.pg --schema examples/evolution/v2.pg
omnigraph schema plan --from old.pg --schema new.pg --allow-data-loss --json
"""
SHOW_EXAMPLES = """
omnigraph schema show team.omni
omnigraph schema show --store s3://lake/graphs/team.omni > schema.pg
"""

CheckedFile = Annotated[Path, typer.Argument(metavar="FILE.pg", help="the schema to compile")]
OldFile = Annotated[
    Path, typer.Option("--from", metavar="OLD.pg", help="the schema as it is today")
]
NewFile = Annotated[
    Path, typer.Option("--schema", metavar="NEW.pg", help="the schema as it should become")
]
DataLossFlag = Annotated[
    bool,
    typer.Option(
        "--allow-data-loss",
        help="drops are final: older versions of what is dropped are reclaimed too",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(rich_markup_mode=None)
    panel = Capability.DIRECT.panel
    group.command("check", cls=Command, rich_help_panel=panel, epilog=CHECK_EXAMPLES)(check)
    group.command("plan", cls=Command, rich_help_panel=panel, epilog=PLAN_EXAMPLES)(plan)
    anywhere = Capability.ANY.panel
    group.command("show", cls=GraphCommand, rich_help_panel=anywhere, epilog=SHOW_EXAMPLES)(show)
    group.command("get", cls=GraphCommand, rich_help_panel=anywhere, hidden=True)(show)
    app.add_typer(
        group,
        name="schema",
        cls=Group,
        callback=schema,
        invoke_without_command=True,
        epilog=EXAMPLES,
    )


def schema(ctx: typer.Context) -> None:
    """Look at schemas and plan their changes."""
    if ctx.invoked_subcommand is None:
        raise subcommand_missing(ctx)


def check(ctx: typer.Context, file: CheckedFile, json: JsonFlag = False) -> None:
    """Compile a schema and summarise it.

    Shows every type with its properties and constraints, and the hash of what the schema means,
    which comments and order do not change. A schema that does not compile is shown with all its
    problems, and the exit code is 1.
    """
    from omnigraph.cli.schema_summary import summary_document, summary_lines
    from omnigraph.cli.sources import compile_schema_file

    output = output_of(ctx)
    compiled = compile_schema_file(file, output)
    if json:
        output.json(summary_document(compiled, file))
    else:
        output.lines(summary_lines(compiled, file))


def plan(
    ctx: typer.Context,
    old: OldFile,
    new: NewFile,
    allow_data_loss: DataLossFlag = False,
    json: JsonFlag = False,
) -> None:
    """List the migration steps between two schemas.

    Nothing is read but the two files. Names are followed through `@rename_from`. A plan with
    unsupported changes is still a plan, so the exit code is 0 whenever both files compile.
    """
    from omnigraph.cli.schema_plan import plan_document, plan_lines
    from omnigraph.cli.sources import (
        compile_schema_file,
        every_problem_of,
        read_schema,
        show_warnings,
    )
    from omnigraph.schema.migration import plan_change

    output = output_of(ctx)
    accepted = compile_schema_file(old, output)
    desired = read_schema(new)
    with every_problem_of(desired):
        planned = plan_change(accepted.ir, desired, allow_data_loss=allow_data_loss)
    show_warnings(planned.compiled.warnings, output)
    if json:
        output.json(plan_document(planned.plan, old))
    else:
        output.lines(plan_lines(planned.plan, old, new))


def show(ctx: typer.Context, uri: UriArgument = None, json: JsonFlag = False) -> None:
    """Print the schema of a graph, as it was written.

    `schema get` is another name for it.
    """
    from omnigraph.cli.opening import open_to_read

    source = open_to_read(ctx, uri).schema_source
    output = output_of(ctx)
    if json:
        output.json({"schema_source": source})
    else:
        output.verbatim((source if source.endswith("\n") else f"{source}\n").encode())
