"""`omnigraph schema …`: show a schema, plan the steps to another, and apply them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.addressing import require_unmanaged, resolve_any
from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import compile_schema_file, every_problem_of, read_schema, show_warnings
from omnigraph.cli.help import (
    Commands,
    DestructiveCommand,
    FileCommand,
    GraphCommand,
    ReadCommand,
    WriteCommand,
)
from omnigraph.cli.opening import graph_to_read, graph_to_write, open_to_read
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    Given,
    JsonFlag,
    MessageOption,
    argument,
    branch_name,
    flag,
    option,
)
from omnigraph.cli.output import output_of

if TYPE_CHECKING:
    from omnigraph.schema.shape import SchemaIR

COMMANDS = Commands(
    "schema",
    "Look at schemas, plan their changes and apply them.",
    """
omnigraph schema check examples/library/schema.pg
omnigraph schema plan --from examples/evolution/v1.pg --schema examples/evolution/v2.pg
omnigraph schema plan --store team.omni --schema schema.pg
omnigraph schema apply --store team.omni --schema schema.pg
omnigraph schema rebase review --store team.omni
omnigraph schema show --store team.omni
""",
)

CheckedFile = Annotated[Path, argument("FILE.pg", "the schema to compile")]
OldFile = Annotated[
    Path | None, option("--from", "OLD.pg", "the schema as it is today, instead of a graph's")
]
NewFile = Annotated[Path, option("--schema", "NEW.pg", "the schema as it should become")]
DataLossFlag = Annotated[
    bool,
    flag(
        "--allow-data-loss", "drops are final: older versions of what is dropped are reclaimed too"
    ),
]
RebasedBranch = Annotated[str, argument("BRANCH", "the branch to bring forward", check=branch_name)]
BranchLossFlag = Annotated[
    bool,
    flag("--allow-data-loss", "drop what main has dropped, also if the branch has written to it"),
]
DryRunFlag = Annotated[bool, flag("--dry-run", "show the steps, and change nothing")]


@COMMANDS.add(FileCommand)
def check(ctx: typer.Context, file: CheckedFile, json: JsonFlag = False) -> None:
    """Compile a schema and summarise it.

    Shows every type with its properties and constraints, and the hash of what the schema means,
    which comments and order do not change. A schema that does not compile is shown with all its
    problems, and the exit code is 1.

    omnigraph schema check examples/library/schema.pg
    omnigraph schema check schema.pg --json
    """
    from omnigraph.cli.schema_output import summary_document, summary_lines

    output = output_of(ctx)
    compiled = compile_schema_file(file, output)
    document = summary_document(compiled, file)
    output.show(document, summary_lines(compiled, file), json=json)


@COMMANDS.add(GraphCommand)
def plan(
    ctx: typer.Context,
    new: NewFile,
    old: OldFile = None,
    allow_data_loss: DataLossFlag = False,
    json: JsonFlag = False,
) -> None:
    """List the migration steps from the schema of a graph, or of a file, to another.

    Nothing is changed. Names are followed through `@rename_from`. A plan with unsupported changes
    is still a plan, so the exit code is 0 whenever both schemas compile.

    omnigraph schema plan --store team.omni --schema schema.pg
    omnigraph schema plan --from examples/evolution/v1.pg --schema examples/evolution/v2.pg
    omnigraph schema plan --from old.pg --schema new.pg --allow-data-loss --json
    """
    from omnigraph.cli.schema_output import plan_document, plan_lines
    from omnigraph.schema.migration import plan_change

    output = output_of(ctx)
    accepted, start = _accepted(ctx, old)
    desired = read_schema(new)
    with every_problem_of(desired):
        planned = plan_change(accepted, desired, allow_data_loss=allow_data_loss)
    show_warnings(planned.compiled.warnings, output)
    document = plan_document(planned.plan, start, "uri" if old is None else "from")
    output.show(document, plan_lines(planned.plan, start, new), json=json)


def _accepted(ctx: typer.Context, old: Path | None) -> tuple[SchemaIR, str]:
    """The schema to start from, and where it is."""
    if old is None:
        graph = open_to_read(ctx)
        return graph.accepted_ir, graph.uri
    if Given.of(ctx).places():
        raise UsageError(
            "a plan starts from a graph or from `--from`, not from both", hint="give one of them"
        )
    return compile_schema_file(old, output_of(ctx)).ir, str(old)


@COMMANDS.add(DestructiveCommand)
def apply(
    ctx: typer.Context,
    new: NewFile,
    *,
    allow_data_loss: DataLossFlag = False,
    message: MessageOption = None,
    json: JsonFlag = False,
) -> None:
    """Bring main to another schema, in one commit.

    `schema plan` shows the steps before. A plan with unsupported changes is refused; the graph is
    then as it was. Other branches keep the schema they have: `schema rebase` brings them forward.
    What is dropped stays readable at older commits, unless `--allow-data-loss` says otherwise: then
    no other branch may exist, and on storage that others may share, `--yes` or an answer at the
    terminal is needed.

    omnigraph schema apply --store team.omni --schema schema.pg --message "people have birthdays"
    omnigraph schema apply --store s3://lake/team.omni --schema schema.pg --allow-data-loss --yes
    """
    from omnigraph.cli.schema_output import applied_lines
    from omnigraph.graph import Graph
    from omnigraph.schema.compile import compile_schema

    output = output_of(ctx)
    desired = read_schema(new)
    loss = "schema apply --allow-data-loss" if allow_data_loss else None
    require_unmanaged(resolve_any(ctx))
    graph = graph_to_write(ctx, "schema apply", destructive=loss)
    accepted = graph.accepted_ir if isinstance(graph, Graph) else None
    with every_problem_of(desired):
        warnings = compile_schema(desired, accepted=accepted).warnings
        receipt = graph.apply_schema(desired, allow_data_loss=allow_data_loss, message=message)
    show_warnings(warnings, output)
    output.show(receipt, applied_lines(receipt, new), json=json)


@COMMANDS.add(WriteCommand)
def rebase(
    ctx: typer.Context,
    branch: RebasedBranch,
    allow_data_loss: BranchLossFlag = False,
    dry_run: DryRunFlag = False,
    json: JsonFlag = False,
) -> None:
    """Bring a branch to the schema that main has now, in one commit on the branch.

    A branch keeps its schema while main gets another one. Its entities get what main has added
    since, with the defaults of new properties; no data of main is brought along. What main has
    dropped and the branch has written to is dropped only with `--allow-data-loss`; older commits of
    the branch still show it. `--dry-run` lists the steps.

    omnigraph schema rebase review --store team.omni --dry-run
    omnigraph schema rebase review --store team.omni
    """
    from omnigraph.cli.schema_output import rebased_lines

    graph = graph_to_read(ctx) if dry_run else graph_to_write(ctx, "schema rebase")
    receipt = graph.rebase_schema(branch, allow_data_loss=allow_data_loss, dry_run=dry_run)
    output_of(ctx).show(receipt, rebased_lines(receipt), json=json)


@COMMANDS.add(ReadCommand, alias="get")
def show(
    ctx: typer.Context,
    branch: BranchOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Print the schema of a graph, as it was written.

    `schema get` is another name for it. A branch may have an older one than main.

    omnigraph schema show --store team.omni
    omnigraph schema show --store team.omni --branch review
    omnigraph schema show --store s3://lake/graphs/team.omni > schema.pg
    """
    source = graph_to_read(ctx).on_branch(branch).schema_source
    output = output_of(ctx)
    if json:
        output.json({"schema_source": source})
    else:
        output.verbatim((source if source.endswith("\n") else f"{source}\n").encode())
