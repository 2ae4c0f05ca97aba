"""`omnigraph schema …`: look at a schema, plan the way from one to another, and go it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.help import (
    Capability,
    Command,
    DestructiveCommand,
    GraphCommand,
    Group,
    ReadCommand,
    subcommand_missing,
)
from omnigraph.cli.options import JsonFlag, UriArgument
from omnigraph.cli.output import output_of
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.schema.shape import SchemaIR

EXAMPLES = """
omnigraph schema check examples/library/schema.pg
omnigraph schema plan --from examples/evolution/v1.pg --schema examples/evolution/v2.pg
omnigraph schema plan team.omni --schema schema.pg
omnigraph schema apply team.omni --schema schema.pg
omnigraph schema show team.omni
"""
CHECK_EXAMPLES = """
omnigraph schema check examples/library/schema.pg
omnigraph schema check schema.pg --json
"""
PLAN_EXAMPLES = """
omnigraph schema plan team.omni --schema schema.pg
omnigraph schema plan --from examples/evolution/v1.pg --schema examples/evolution/v2.pg
omnigraph schema plan --from old.pg --schema new.pg --allow-data-loss --json
"""
APPLY_EXAMPLES = """
omnigraph schema apply team.omni --schema schema.pg
omnigraph schema apply s3://lake/graphs/team.omni --schema schema.pg --allow-data-loss --yes
"""
SHOW_EXAMPLES = """
omnigraph schema show team.omni
omnigraph schema show --store s3://lake/graphs/team.omni > schema.pg
"""

CheckedFile = Annotated[Path, typer.Argument(metavar="FILE.pg", help="the schema to compile")]
OldFile = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="OLD.pg", help="the schema as it is today, instead of a graph's"
    ),
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
    group.command("plan", cls=GraphCommand, rich_help_panel=panel, epilog=PLAN_EXAMPLES)(plan)
    anywhere = Capability.ANY.panel
    group.command("apply", cls=DestructiveCommand, rich_help_panel=anywhere, epilog=APPLY_EXAMPLES)(
        apply
    )
    group.command("show", cls=ReadCommand, rich_help_panel=anywhere, epilog=SHOW_EXAMPLES)(show)
    group.command("get", cls=ReadCommand, rich_help_panel=anywhere, hidden=True)(show)
    app.add_typer(
        group,
        name="schema",
        cls=Group,
        callback=schema,
        invoke_without_command=True,
        epilog=EXAMPLES,
    )


def schema(ctx: typer.Context) -> None:
    """Look at schemas, plan their changes and apply them."""
    if ctx.invoked_subcommand is None:
        raise subcommand_missing(ctx)


def check(ctx: typer.Context, file: CheckedFile, json: JsonFlag = False) -> None:
    """Compile a schema and summarise it.

    Shows every type with its properties and constraints, and the hash of what the schema means,
    which comments and order do not change. A schema that does not compile is shown with all its
    problems, and the exit code is 1.
    """
    from omnigraph.cli.files import compile_schema_file
    from omnigraph.cli.schema_output import summary_document, summary_lines

    output = output_of(ctx)
    compiled = compile_schema_file(file, output)
    if json:
        output.json(summary_document(compiled, file))
    else:
        output.lines(summary_lines(compiled, file))


def plan(  # noqa: PLR0917 - what a command takes, typer takes by position
    ctx: typer.Context,
    new: NewFile,
    uri: UriArgument = None,
    old: OldFile = None,
    allow_data_loss: DataLossFlag = False,
    json: JsonFlag = False,
) -> None:
    """List the migration steps from the schema of a graph, or of a file, to another.

    Nothing is changed. Names are followed through `@rename_from`. A plan with unsupported changes
    is still a plan, so the exit code is 0 whenever both schemas compile.
    """
    from omnigraph.cli.files import every_problem_of, read_schema, show_warnings
    from omnigraph.cli.schema_output import plan_document, plan_lines
    from omnigraph.schema.migration import plan_change

    output = output_of(ctx)
    accepted, start = _accepted(ctx, uri, old)
    desired = read_schema(new)
    with every_problem_of(desired):
        planned = plan_change(accepted, desired, allow_data_loss=allow_data_loss)
    show_warnings(planned.compiled.warnings, output)
    if json:
        output.json(plan_document(planned.plan, start, "uri" if old is None else "from"))
    else:
        output.lines(plan_lines(planned.plan, start, new))


def _accepted(ctx: typer.Context, uri: str | None, old: Path | None) -> tuple[SchemaIR, str]:
    """The schema to start from, and where it is."""
    from omnigraph.cli.files import compile_schema_file
    from omnigraph.cli.opening import open_to_read

    if old is None:
        graph = open_to_read(ctx, uri)
        return graph.accepted_ir, graph.uri
    if uri is not None:
        raise InputError("a plan starts from a graph or from `--from`, not from both")
    return compile_schema_file(old, output_of(ctx)).ir, str(old)


def apply(
    ctx: typer.Context,
    new: NewFile,
    uri: UriArgument = None,
    allow_data_loss: DataLossFlag = False,
    json: JsonFlag = False,
) -> None:
    """Bring a graph to another schema, in one commit.

    `schema plan` shows the steps before. A graph with branches other than main is refused, and so
    is a plan with unsupported changes; the graph is then as it was. What is dropped stays readable
    at older commits, unless `--allow-data-loss` says otherwise: then, on storage that others may
    share, `--yes` or an answer at the terminal is needed.
    """
    from omnigraph.cli.files import every_problem_of, read_schema, show_warnings
    from omnigraph.cli.opening import graph_to_write, writer_of
    from omnigraph.cli.schema_output import applied_lines, served_lines
    from omnigraph.client import RemoteGraph
    from omnigraph.schema.compile import compile_schema

    output = output_of(ctx)
    desired = read_schema(new)
    loss = "schema apply --allow-data-loss" if allow_data_loss else None
    graph = graph_to_write(ctx, "schema apply", uri, destructive=loss)
    actor = writer_of(ctx, graph)
    with every_problem_of(desired):
        # A server plans for itself, so that here the text is only checked.
        if isinstance(graph, RemoteGraph):
            planned, warnings = None, compile_schema(desired).warnings
        else:
            planned = graph.plan_schema(desired, allow_data_loss=allow_data_loss)
            warnings = planned.compiled.warnings
        receipt = graph.apply_schema(desired, allow_data_loss=allow_data_loss, actor=actor)
    show_warnings(warnings, output)
    if json:
        output.json(receipt.to_dict())
    elif planned is None:
        output.lines(served_lines(receipt, new))
    else:
        output.lines(applied_lines(planned.plan, receipt, new))


def show(ctx: typer.Context, uri: UriArgument = None, json: JsonFlag = False) -> None:
    """Print the schema of a graph, as it was written.

    `schema get` is another name for it.
    """
    from omnigraph.cli.opening import graph_to_read

    source = graph_to_read(ctx, uri).schema_source
    output = output_of(ctx)
    if json:
        output.json({"schema_source": source})
    else:
        output.verbatim((source if source.endswith("\n") else f"{source}\n").encode())
