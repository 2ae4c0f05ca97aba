"""`omnigraph query` and `mutate`: run a query that reads and print its rows, or one that writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import active_profile, config_of, server_target
from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import (
    NameArgument,
    ParamsFileOption,
    ParamsOption,
    QueryOption,
    TextOption,
    from_standard_input,
    json_or_text,
    parameters_of,
    source_of,
)
from omnigraph.cli.help import Command, Commands, ReadCommand, WriteCommand
from omnigraph.cli.opening import connected, graph_to_read, graph_to_write
from omnigraph.cli.operator_config import OUTPUT_FORMATS
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    ExternalBlobsOption,
    Given,
    JsonFlag,
    MessageOption,
    ReadBranchOption,
    SnapshotOption,
    SparkConfOption,
    SparkMasterOption,
    announce_spark,
    argument,
    exclusive,
    flag,
    one_of,
    option,
    read_place,
    spark_arguments,
    spark_flags,
)
from omnigraph.cli.output import Line, Output, Styled, counted, output_of, warn_deprecated
from omnigraph.model.receipts import MutationReceipt
from omnigraph.model.text_table import TextTable, one_line

if TYPE_CHECKING:
    from omnigraph.model.result import Result

COMMANDS = Commands()
ALIASES = Commands()
ENGINES = ("local", "spark")
"""The same as `graph.ENGINES`, without importing Arrow and Lance to parse a flag."""
TABLE_WIDTH_MAX = 80
"""The maximum width of a column, unless configured."""

FormatOption = Annotated[
    str | None,
    option(
        "--format",
        "|".join(OUTPUT_FORMATS),
        "how to print the rows; table by default",
        check=one_of(OUTPUT_FORMATS),
    ),
]
EngineOption = Annotated[
    str | None,
    option("--engine", "|".join(ENGINES), "what runs it; local by default", check=one_of(ENGINES)),
]
ExplainFlag = Annotated[
    bool,
    flag("--explain", "also show the typed plan, how each step ran, and what was asked of storage"),
]


class QueryCommand(ReadCommand):
    """`omnigraph query`, which still accepts the arguments of its former meaning, `lint`."""

    def make_context(
        self, info_name: Any, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse the arguments."""
        lint = parent.command.get_command(parent, "lint")
        if args and args[0] in ("lint", "check") and _only_flags_of(lint, args):
            warn_deprecated(output_of(parent), f"query {args[0]}", "lint")
            return lint.make_context("lint", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def _only_flags_of(command: Any, args: list[str]) -> bool:
    """Whether another command accepts these arguments; a query may be named `check`."""
    known = {flag for parameter in command.params for flag in parameter.opts}
    return all(word.partition("=")[0] in known for word in args if word.startswith("-"))


@COMMANDS.add(QueryCommand, former="read")
def query(
    ctx: typer.Context,
    *,
    name: NameArgument = None,
    query_file: QueryOption = None,
    text: TextOption = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    branch: ReadBranchOption = None,
    snapshot: SnapshotOption = None,
    format: FormatOption = None,
    engine: EngineOption = None,
    spark_master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    explain: ExplainFlag = False,
    json: JsonFlag = False,
) -> None:
    """Run a query that reads, and print its rows.

    All rows come from one commit: the head of a branch, or the one that `--snapshot` names. Nothing
    is written. With `--server` and no text, the stored query of that name is run. `csv`, `jsonl`
    and `json` are for programs; `--json` means the last, and errors as JSON too. `--engine spark`
    is for graphs that are too large for one process: the answer is the same, and Spark takes
    seconds to start.

    omnigraph query friends --store team.omni --query people.gq --params '{"who": "ada"}'
    omnigraph query --store team.omni -e 'query q() { match { $p: Person } return { $p.name } }'
    omnigraph query --store team.omni --query q.gq --branch review --format csv > people.csv
    omnigraph query - --store team.omni < people.gq
    omnigraph query --store team.omni --query q.gq --explain
    omnigraph query --store s3://lake/team.omni --query q.gq --engine spark --spark-master yarn
    omnigraph query friends --server http://localhost:8080/graphs/default --params '{"who": "ada"}'
    """
    from omnigraph.model.result import Result

    name, query_file = from_standard_input(name, query_file, text)
    source = source_of("query", name, query_file, text)
    values = parameters_of(params, params_file)
    place = read_place(branch, snapshot)
    shown_as = _format(ctx, format, json=json)
    layout = table_layout(ctx) if shown_as == "table" else None
    if explain and source is None:
        raise UsageError(
            "`--explain` needs the text of the query",
            hint="give it with `--query FILE.gq` or `-e TEXT`",
        )
    graph = graph_to_read(
        ctx,
        only_stored=spark_flags(engine, spark_master, spark_conf),
        stored_query=name if source is None else None,
    )
    if source is None:
        from omnigraph.client import RemoteGraph

        assert isinstance(graph, RemoteGraph) and name is not None
        result = graph.invoke(name, values, **place, expect_mutation=False)
        assert isinstance(result, Result)
    else:
        how = spark_arguments(engine, spark_master, spark_conf)
        announce_spark(output_of(ctx), how, json=json)
        result = graph.query(source, values, name=name, **place, **how, explain=explain)
    write_result(output_of(ctx), result, shown_as, layout)


def _format(ctx: typer.Context, given: str | None, *, json: bool) -> str:
    """The output format: the flag, else the configuration, else a table."""
    exclusive(json=json or None, format=given)
    if json:
        return "json"
    if given is not None:
        return given
    profile = None if Given.of(ctx).explicit() else active_profile(ctx)
    return config_of(ctx).output_format(profile) or "table"


def table_layout(ctx: typer.Context) -> TextTable:
    """The layout of tables, from the configuration."""
    config = config_of(ctx)
    width = config.table_max_column_width or TABLE_WIDTH_MAX
    return TextTable(width, "wrap" if config.table_cell_layout == "wrap" else "truncate")


NO_ROWS = "(no rows)"

_MUST_BE_QUOTED = frozenset(',"\r\n')


def write_result(
    output: Output, result: Result, format: str, layout: TextTable | None = None
) -> None:
    """Print a result, and its explanation if it has one.

    ``layout`` is for tables. With CSV, the explanation goes to stderr.
    """
    match format:
        case "table":
            output.lines(_table_lines(result, layout or TextTable()))
        case "kv":
            output.lines(_kv_lines(result))
        case "csv":
            output.verbatim(b"".join(_csv_lines(result)))
        case "jsonl":
            output.verbatim(b"".join(_jsonl_lines(result)))
        case "json":
            output.verbatim(_json_bytes(result.to_dict(), indented=True))
        case _:
            raise AssertionError(f"unknown format {format}")
    if result.explain is not None:
        lines: list[Line] = [(line,) for line in str(result.explain).split("\n")]
        if format in ("table", "kv"):
            output.lines([(), *lines])
        elif format == "csv":
            output.notes(lines)


# --- for people -----------------------------------------------------------------------------------


def _heading(result: Result) -> Line:
    caption = f"{result.row_count} rows from {result.target} via {result.query_name}"
    return (Styled(caption, "bold"),)


def _table_lines(result: Result, layout: TextTable) -> Iterator[Line]:
    yield _heading(result)
    if not result.row_count:
        yield (NO_ROWS,)
        return
    rows = result.text_rows()
    for number, line in enumerate(layout.lines(result.columns, rows, result.numeric_columns())):
        yield (Styled(line, "cyan"),) if number == 0 else (line,)


def _kv_lines(result: Result) -> Iterator[Line]:
    yield _heading(result)
    if not result.row_count:
        yield (NO_ROWS,)
    for number, row in enumerate(result.text_rows(), 1):
        yield ()
        yield (Styled(f"row {number}", "bold"),)
        for name, cell in zip(result.columns, row, strict=True):
            yield (Styled(f"{one_line(name)}:", "cyan"), f" {one_line(cell)}")


# --- for programs ---------------------------------------------------------------------------------


def _csv_lines(result: Result) -> Iterator[bytes]:
    for row in (result.columns, *result.text_rows()):
        yield (",".join(map(_csv_field, row)) + "\n").encode()


def _csv_field(text: str) -> str:
    if _MUST_BE_QUOTED.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _jsonl_lines(result: Result) -> Iterator[bytes]:
    yield _json_bytes({"kind": "metadata", **result.metadata()})
    for row in result.to_dict()["rows"]:
        yield _json_bytes(row)


def _json_bytes(document: Any, *, indented: bool = False) -> bytes:
    import orjson

    options = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if indented else 0)
    return orjson.dumps(document, option=options)


def _commit_id(value: str | None) -> str | None:
    if value is not None and not value.isalnum():
        raise UsageError(
            f"`--if-commit` takes one commit id, not `{value}`",
            hint="`omnigraph commit list` shows them",
        )
    return value


IfCommitOption = Annotated[
    str | None,
    option(
        "--if-commit",
        "ID",
        "write only if this commit is the head of the branch; exit code 4 if not",
        check=_commit_id,
    ),
]


@COMMANDS.add(WriteCommand, former="change")
def mutate(
    ctx: typer.Context,
    *,
    name: NameArgument = None,
    query: QueryOption = None,
    text: TextOption = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    branch: BranchOption = DEFAULT_BRANCH,
    if_commit: IfCommitOption = None,
    message: MessageOption = None,
    external_blobs: ExternalBlobsOption = None,
    json: JsonFlag = False,
) -> None:
    """Run a query that inserts, updates or deletes.

    All of it becomes visible as one commit, or nothing does. With `--if-commit`, a branch that has
    moved on ends the command with exit code 4, and nothing is written.

    omnigraph mutate sign_up --store team.omni --query people.gq --params '{"handle": "ada"}'
    omnigraph mutate --store team.omni -e 'query q() { delete Person where handle = "ada" }'
    omnigraph mutate fix --store team.omni --query people.gq --message "typos of the import"
    omnigraph mutate --store team.omni --query q.gq --if-commit 01K3Z7M0Q8W4R6T2Y5V9B1N3XC
    omnigraph mutate sign_up --server prod --graph team --params '{"handle": "ada"}'
    """
    name, query = from_standard_input(name, query, text)
    source = source_of("mutate", name, query, text)
    values = parameters_of(params, params_file)
    graph = graph_to_write(
        ctx,
        "mutate",
        external_blobs=external_blobs or (),
        stored_query=name if source is None else None,
    )
    if source is None:
        from omnigraph.client import RemoteGraph

        assert isinstance(graph, RemoteGraph) and name is not None
        found = graph.invoke(
            name,
            values,
            branch=branch,
            expect_mutation=True,
            expected_head=if_commit,
            message=message,
        )
        assert isinstance(found, MutationReceipt)
        receipt = found
    else:
        receipt = graph.mutate(
            source, values, name=name, branch=branch, expected_head=if_commit, message=message
        )
    output_of(ctx).show(receipt, mutation_lines(receipt), json=json)


def mutation_lines(receipt: MutationReceipt) -> Iterator[Line]:
    """The counts of a mutation, and its commit."""
    if receipt.commit is None:
        yield (f"{receipt.query_name} changed nothing on {receipt.branch}",)
        return
    nodes = counted(receipt.affected_nodes, "node")
    edges = counted(receipt.affected_edges, "edge")
    summary = f"{receipt.query_name} changed {nodes} and {edges} on {receipt.branch}"
    yield (Styled(summary, "bold green"),)
    yield (f"commit {receipt.commit.graph_commit_id}",)


class AliasCommand(Command):
    """A command whose target is set by an alias of the configuration."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; refuses all flags that address a graph, in one error."""
        flags = list(Given.of(ctx).flags().values())
        if flags:
            listed = " and ".join(flags)
            raise UsageError(
                f"`alias` is a local command; {listed} {'does' if len(flags) == 1 else 'do'} not "
                "apply.",
                hint="the alias says which server and graph are meant; leave them out",
            )
        return super().invoke(ctx)


AliasName = Annotated[str, argument("ALIAS", "a name under `aliases` of the configuration")]
AliasArguments = Annotated[
    list[str] | None, argument("[VALUE]…", "its arguments, as JSON, or else as text")
]


@ALIASES.add(AliasCommand)
def alias(
    ctx: typer.Context,
    *,
    alias: AliasName,
    values: AliasArguments = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    format: FormatOption = None,
    json: JsonFlag = False,
) -> None:
    """Run a stored query of a server under the short name it has in the configuration.

    The alias says which server, graph and query are meant, and which parameters its arguments are
    for, in their order. An argument is JSON if it can be read as JSON, and else a text: `20` is a
    number, `true` a boolean, `ada` and `'"20"'` are texts. `--params` wins over arguments, and they
    over what the alias fixes. An alias never writes: the server refuses a query that would.

    omnigraph alias triage 2026-01-01
    omnigraph alias triage --params '{"limit": 5}' --format csv
    """
    from omnigraph.model.result import Result

    config = config_of(ctx)
    found = config.alias(alias)
    given = list(values or ())
    if len(given) > len(found.args):
        takes = f"takes {', '.join(found.args)}" if found.args else "takes no arguments"
        raise UsageError(
            f"alias `{alias}` {takes}, and {counted(len(given), 'value')} were given",
            hint=f"`aliases.{alias}.args` in {config.path} lists them",
        )
    bound = dict(zip(found.args, map(json_or_text, given), strict=False))
    values_of = {**found.params, **bound, **(parameters_of(params, params_file) or {})}
    if format is None and not json and found.format is not None:
        format = found.format
    shown_as = _format(ctx, format, json=json)
    layout = table_layout(ctx) if shown_as == "table" else None
    origin = f"alias `{alias}`"
    graph = connected(ctx, server_target(ctx, found.server, found.graph, origin))
    result = graph.invoke(found.query, values_of, expect_mutation=False)
    assert isinstance(result, Result)
    write_result(output_of(ctx), result, shown_as, layout)
