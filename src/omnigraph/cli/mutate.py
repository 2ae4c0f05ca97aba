"""`omnigraph mutate`: run a query that writes, as one commit."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from omnigraph.cli.deprecated import warn_deprecated
from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import Capability, WriteCommand
from omnigraph.cli.options import DEFAULT_BRANCH, BranchOption, JsonFlag
from omnigraph.cli.output import Line, Styled, counted, output_of
from omnigraph.model.receipts import MutationReceipt

if TYPE_CHECKING:
    from omnigraph.syntax.source import Source

EXAMPLES = """
omnigraph mutate sign_up --store team.omni --query people.gq --params '{"handle": "ada"}'
omnigraph mutate --store team.omni -e 'query q() { delete Person where handle = "ada" }'
omnigraph mutate --store team.omni --query q.gq --if-commit 01K3Z7M0Q8W4R6T2Y5V9B1N3XC
"""

NameArgument = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="which query, if the text has several")
]
QueryOption = Annotated[
    Path | None, typer.Option("--query", metavar="FILE.gq", help="a file with the query")
]
TextOption = Annotated[
    str | None, typer.Option("--query-string", "-e", metavar="TEXT", help="the query itself")
]
ParamsOption = Annotated[
    str | None, typer.Option("--params", metavar="JSON", help="its parameters, as a JSON object")
]
ParamsFileOption = Annotated[
    Path | None, typer.Option("--params-file", metavar="FILE", help="a file with that object")
]


def _commit_id(value: str | None) -> str | None:
    if value is not None and not value.isalnum():
        raise UsageError(
            f"`--if-commit` takes one commit id, not `{value}`",
            hint="`omnigraph commit list` shows them",
        )
    return value


IfCommitOption = Annotated[
    str | None,
    typer.Option(
        "--if-commit",
        metavar="ID",
        help="write only if this commit is the head of the branch; exit code 4 if not",
        callback=_commit_id,
    ),
]


def add_to(app: typer.Typer) -> None:
    """Register the command and its former name."""
    panel = Capability.ANY.panel
    app.command("mutate", cls=WriteCommand, rich_help_panel=panel, epilog=EXAMPLES)(mutate)
    app.command("change", cls=WriteCommand, rich_help_panel=panel, hidden=True)(change)


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
    json: JsonFlag = False,
) -> None:
    """Run a query that inserts, updates or deletes.

    All of it becomes visible as one commit, or nothing does. With `--if-commit`, a branch that has
    moved on ends the command with exit code 4, and nothing is written.
    """
    from omnigraph.cli.addressing import actor_of
    from omnigraph.cli.opening import open_to_write

    source = _source(name, query, text)
    values = _parameters(params, params_file)
    graph = open_to_write(ctx, "mutate")
    receipt = graph.mutate(
        source, values, name=name, branch=branch, expected_head=if_commit, actor=actor_of(ctx)
    )
    output = output_of(ctx)
    if json:
        output.json(receipt.to_dict())
    else:
        output.lines(_lines(receipt))


def change(
    ctx: typer.Context,
    *,
    name: NameArgument = None,
    query: QueryOption = None,
    text: TextOption = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    branch: BranchOption = DEFAULT_BRANCH,
    if_commit: IfCommitOption = None,
    json: JsonFlag = False,
) -> None:
    """Run a query that inserts, updates or deletes."""
    warn_deprecated(output_of(ctx), "change", "mutate")
    mutate(
        ctx,
        name=name,
        query=query,
        text=text,
        params=params,
        params_file=params_file,
        branch=branch,
        if_commit=if_commit,
        json=json,
    )


def _source(name: str | None, query: Path | None, text: str | None) -> Source:
    from omnigraph.cli.sources import read_source
    from omnigraph.errors import QueryParseError
    from omnigraph.syntax.source import Source

    if query is not None and text is not None:
        raise UsageError(
            "`--query` and `--query-string` are mutually exclusive", hint="give one of them"
        )
    if query is not None:
        return read_source(query, QueryParseError)
    if text is not None:
        if not text.strip():
            raise UsageError("`--query-string` is empty", hint="write a query between the quotes")
        return Source.of(text, QueryParseError)
    hint = "give its text with `--query FILE.gq` or `-e TEXT`"
    if name is not None:
        raise UsageError(f"running the stored query `{name}` needs a server", hint=hint)
    raise UsageError("`omnigraph mutate` needs a query", hint=hint)


def _parameters(text: str | None, file: Path | None) -> dict[str, Any] | None:
    from omnigraph.cli.sources import read_source
    from omnigraph.errors import CompileError

    if text is not None and file is not None:
        raise UsageError(
            "`--params` and `--params-file` are mutually exclusive", hint="give one of them"
        )
    if file is not None:
        return _json_object(read_source(file, CompileError).text, f"`{file}`")
    return None if text is None else _json_object(text, "`--params`")


def _json_object(text: str, where: str) -> dict[str, Any]:
    try:
        document = json_text.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{where} is not JSON: {problem}", hint=_PARAMS_HINT) from None
    if not isinstance(document, dict):
        raise UsageError(f"{where} is not a JSON object", hint=_PARAMS_HINT)
    return document


_PARAMS_HINT = 'write an object with a member for each parameter, such as {"handle": "ada"}'


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _lines(receipt: MutationReceipt) -> Iterator[Line]:
    if receipt.commit is None:
        yield (f"{receipt.query_name} changed nothing on {receipt.branch}",)
        return
    nodes = counted(receipt.affected_nodes, "node")
    edges = counted(receipt.affected_edges, "edge")
    summary = f"{receipt.query_name} changed {nodes} and {edges} on {receipt.branch}"
    yield (Styled(summary, "bold green"),)
    yield (f"commit {receipt.commit.graph_commit_id}",)
