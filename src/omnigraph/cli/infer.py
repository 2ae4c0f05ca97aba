"""`omnigraph infer` and `import`: schemas from files, and graphs from them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import actor_of, storage_target
from omnigraph.cli.help import Commands, FileCommand
from omnigraph.cli.load import (
    DelimiterOption,
    DryRunFlag,
    EngineOption,
    SeparatorOption,
    engine_reporter,
    receipt_lines,
    stages,
)
from omnigraph.cli.opening import INTERRUPTS, announce
from omnigraph.cli.options import (
    GlobalFlag,
    JsonFlag,
    MessageOption,
    argument,
)
from omnigraph.cli.output import Line, Styled, counted, output_of, table
from omnigraph.model.load_options import CsvOptions, LoadObserver

if TYPE_CHECKING:
    from omnigraph.inference import InferredSchema, InferredType

COMMANDS = Commands()

FilesArgument = Annotated[
    list[str],
    argument(
        "FILE…",
        "CSV, JSON, Parquet, ORC, Avro, Arrow or Lance, a directory or a quoted pattern, each with"
        " the rows of one type; TYPE=FILE names the type",
    ),
]
NewGraph = Annotated[str, argument("GRAPH", "where to create it: a path, file:// or s3://")]


class CreateCommand(FileCommand):
    """A command that creates a graph and writes to it."""

    takes = frozenset({GlobalFlag.ACTOR, GlobalFlag.YES})


@COMMANDS.add(FileCommand)
def infer(
    ctx: typer.Context,
    files: FilesArgument,
    delimiter: DelimiterOption = None,
    list_separator: SeparatorOption = None,
    json: JsonFlag = False,
) -> None:
    """Propose a schema for files, and the load that fits it.

    Every row is read. A column of unique values becomes the key of a node type; a file with two
    columns that hold the keys of others becomes an edge type. Comments in the schema say why each
    property is declared as it is; stderr says what to look at.

    omnigraph infer airports.csv flights.csv > schema.pg
    omnigraph infer Person=people.parquet Knows='knows/*.csv' --json
    omnigraph infer person.csv place.csv --delimiter '|' --list-separator ';' > schema.pg
    """
    output = output_of(ctx)
    inferred = _inferred(files, delimiter, list_separator)
    output.show(inferred, ([line] for line in inferred.text.splitlines()), json=json)
    if not (json or output.quiet):
        output.notes(_finding_lines(inferred))
        output.note("create the graph and load the files with:")
        output.note(f"  {inferred.init_command}")
        output.note(f"  {inferred.load_command}")


@COMMANDS.add(CreateCommand, name="import")
def import_(
    ctx: typer.Context,
    *,
    files: FilesArgument,
    graph: NewGraph,
    delimiter: DelimiterOption = None,
    list_separator: SeparatorOption = None,
    engine: EngineOption = None,
    dry_run: DryRunFlag = False,
    message: MessageOption = None,
    json: JsonFlag = False,
) -> None:
    """Create a graph from files: infer a schema, and load everything.

    The plan is shown first; `--dry-run` shows nothing else. There is a graph only if all rows were
    loaded. To change the schema, write it with `infer`, edit it, and use `init` and `load`.

    omnigraph import airports.csv flights.csv air.omni
    omnigraph import airports.csv flights.csv air.omni --dry-run
    omnigraph import Person=people.parquet s3://lake/graphs/team.omni --yes
    """
    output = output_of(ctx)
    target = storage_target(graph)
    inferred = _inferred(files, delimiter, list_separator)
    if not (json or output.quiet):
        output.notes(_plan_lines(inferred))
        output.notes(_finding_lines(inferred))
    plan: dict[str, Any] = {"uri": target.uri, "dry_run": dry_run, "plan": inferred.to_dict()}
    if dry_run:
        output.show(plan, [("this was a dry run: nothing was written",)], json=json)
        return
    announce(ctx, "import", target, "import")
    with ExitStack() as stack:
        watch = stack.enter_context(stages(output, json=json))
        created, receipt = inferred.create_graph(
            target.uri,
            actor=actor_of(ctx),
            engine=engine,
            message=message,
            observer=LoadObserver(engine_reporter(output, json=json), watch),
        )
    document = {**plan, "uri": created.uri, "load": receipt.to_dict()}
    output.show(document, receipt_lines(receipt), json=json)


def _inferred(
    files: list[str], delimiter: list[str] | None, list_separator: list[str] | None
) -> InferredSchema:
    from omnigraph.inference import infer_schema

    INTERRUPTS.raise_pending()
    return infer_schema(files, csv=CsvOptions(delimiter, list_separator))


def _plan_lines(inferred: InferredSchema) -> Iterator[Line]:
    rows = [
        (
            f"{each.kind} {each.name}{_ends(each)}",
            each.rows,
            ", ".join(each.key) or "none",
            counted(len(each.properties), "property", "properties"),
            each.source,
        )
        for each in inferred.types
    ]
    yield from table(("type", "rows", "key", "properties", "from"), rows)


def _ends(type: InferredType) -> str:
    return "" if type.ends is None else f": {type.ends[0].node} -> {type.ends[1].node}"


def _finding_lines(inferred: InferredSchema) -> Iterator[Line]:
    return ((Styled("note:", "yellow"), f" {each}") for each in inferred.findings)
