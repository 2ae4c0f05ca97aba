"""`omnigraph query`: run a query that reads, and print its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.deprecated import warn_deprecated
from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import Capability, ReadCommand
from omnigraph.cli.operator_config import OUTPUT_FORMATS
from omnigraph.cli.options import JsonFlag, branch_name
from omnigraph.cli.output import output_of
from omnigraph.cli.query_input import (
    NameArgument,
    ParamsFileOption,
    ParamsOption,
    QueryOption,
    TextOption,
    parameters_of,
    source_of,
)
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.model.text_table import TextTable

EXAMPLES = """
omnigraph query friends --store team.omni --query people.gq --params '{"who": "ada"}'
omnigraph query --store team.omni -e 'query q() { match { $p: Person } return { $p.name } }'
omnigraph query --store team.omni --query q.gq --branch review --format csv > people.csv
omnigraph query --store team.omni --query q.gq --explain
omnigraph query friends --server http://localhost:8080/graphs/default --params '{"who": "ada"}'
"""

ENGINES = ("local",)
"""As `graph.ENGINES`, which would load Arrow and Lance just to parse a flag."""
TABLE_WIDTH_MAX = 80
"""Of one column, unless the configuration says otherwise."""


def _one_of(choices: tuple[str, ...]) -> Any:
    def check(ctx: typer.Context, param: Any, value: str | None) -> str | None:
        if value is not None and value not in choices:
            raise UsageError(
                f"`{param.opts[0]}` takes {', '.join(choices)}, not `{value}`",
                hint=did_you_mean(value, choices) or f"`{ctx.command_path} --help` explains it",
            )
        return value

    return check


BranchOption = Annotated[
    str | None,
    typer.Option(
        "--branch",
        metavar="NAME",
        help="read the head of this branch; main by default",
        callback=branch_name,
    ),
]
SnapshotOption = Annotated[
    str | None,
    typer.Option("--snapshot", metavar="ID", help="read the graph as of this commit instead"),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="|".join(OUTPUT_FORMATS),
        help="how to print the rows; table by default",
        callback=_one_of(OUTPUT_FORMATS),
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="|".join(ENGINES),
        help="what runs it; local by default",
        callback=_one_of(ENGINES),
    ),
]
ExplainFlag = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="also show the typed plan, how each step ran, and what was asked of storage",
    ),
]


class QueryCommand(ReadCommand):
    """The command, which was also the way to `lint` once."""

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
    """Whether another command could take these; a query may be called `check`, after all."""
    known = {flag for parameter in command.params for flag in parameter.opts}
    return all(word.partition("=")[0] in known for word in args if word.startswith("-"))


def add_to(app: typer.Typer) -> None:
    """Register the command and its former name."""
    panel = Capability.ANY.panel
    app.command("query", cls=QueryCommand, rich_help_panel=panel, epilog=EXAMPLES)(query)
    app.command("read", cls=ReadCommand, rich_help_panel=panel, hidden=True)(read)


def query(
    ctx: typer.Context,
    *,
    name: NameArgument = None,
    query_file: QueryOption = None,
    text: TextOption = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    format: FormatOption = None,
    engine: EngineOption = None,
    explain: ExplainFlag = False,
    json: JsonFlag = False,
) -> None:
    """Run a query that reads, and print its rows.

    All rows come from one commit: the head of a branch, or the one that `--snapshot` names. Nothing
    is written. With `--server` and no text, the stored query of that name is run. `csv`, `jsonl`
    and `json` are for programs; `--json` means the last, and errors as JSON too.
    """
    from omnigraph.cli.formats import write_result
    from omnigraph.cli.remote import graph_to_read
    from omnigraph.client import RemoteGraph
    from omnigraph.model.ids import normalize_commit_id
    from omnigraph.model.result import Result

    source = source_of("query", name, query_file, text)
    values = parameters_of(params, params_file)
    if branch is not None and snapshot is not None:
        raise UsageError(
            "`--branch` and `--snapshot` are mutually exclusive",
            hint="a snapshot is a commit, whichever branch it is on",
        )
    commit_id = normalize_commit_id(snapshot) if snapshot is not None else None
    shown_as = _format(ctx, format, json=json)
    layout = _table_layout(ctx) if shown_as == "table" else None
    graph = graph_to_read(
        ctx,
        only_stored={"--engine": engine is not None, "--explain": explain},
        stored_query=name if source is None else None,
    )
    target: Any = {"branch": branch, "snapshot": commit_id}
    if source is None:
        assert isinstance(graph, RemoteGraph) and name is not None
        result = graph.invoke(name, values, **target, expect_mutation=False)
        assert isinstance(result, Result)
    elif isinstance(graph, RemoteGraph):
        result = graph.query(source, values, name=name, **target)
    else:
        result = graph.query(source, values, name=name, **target, engine=engine, explain=explain)
    write_result(output_of(ctx), result, shown_as, layout)


def read(
    ctx: typer.Context,
    *,
    name: NameArgument = None,
    query_file: QueryOption = None,
    text: TextOption = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    format: FormatOption = None,
    engine: EngineOption = None,
    explain: ExplainFlag = False,
    json: JsonFlag = False,
) -> None:
    """Run a query that reads, and print its rows."""
    warn_deprecated(output_of(ctx), "read", "query")
    query(
        ctx,
        name=name,
        query_file=query_file,
        text=text,
        params=params,
        params_file=params_file,
        branch=branch,
        snapshot=snapshot,
        format=format,
        engine=engine,
        explain=explain,
        json=json,
    )


def _format(ctx: typer.Context, said: str | None, *, json: bool) -> str:
    """What the command line says, else the configuration, else a table."""
    from omnigraph.cli.addressing import config_of

    if json and said is not None:
        raise UsageError("`--json` and `--format` are mutually exclusive", hint="give one of them")
    if json:
        return "json"
    return said or config_of(ctx).output_format or "table"


def _table_layout(ctx: typer.Context) -> TextTable:
    from omnigraph.cli.addressing import config_of
    from omnigraph.model.text_table import TextTable

    config = config_of(ctx)
    width = config.table_max_column_width or TABLE_WIDTH_MAX
    return TextTable(width, "wrap" if config.table_cell_layout == "wrap" else "truncate")
