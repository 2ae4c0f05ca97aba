"""What `query` and `mutate` share: which query is meant, and with which parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from omnigraph.cli.failures import UsageError

if TYPE_CHECKING:
    from omnigraph.syntax.source import Source

NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="which query: one of several in the text, or a stored one of a server",
    ),
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


def source_of(verb: str, name: str | None, query: Path | None, text: str | None) -> Source | None:
    """The text a command is to run; None if it is to run the stored query of that name.

    Raises `UsageError` if there is neither, or two texts.
    """
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
    if name is not None:
        return None
    raise UsageError(
        f"`omnigraph {verb}` needs a query",
        hint="give its text with `--query FILE.gq` or `-e TEXT`, or the name of a stored one",
    )


def parameters_of(text: str | None, file: Path | None) -> dict[str, Any] | None:
    """The parameters a command was given; raises `UsageError` for anything but one object."""
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
        document = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{where} is not JSON: {problem}", hint=_PARAMS_HINT) from None
    if not isinstance(document, dict):
        raise UsageError(f"{where} is not a JSON object", hint=_PARAMS_HINT)
    return document


_PARAMS_HINT = 'write an object with a member for each parameter, such as {"handle": "ada"}'


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")
