"""Flags that several commands share, so that they mean and read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.model.ids import MAIN_BRANCH, check_branch_name

ConfirmFlag = Annotated[
    bool, typer.Option("--confirm", help="do it; without this, it is only shown")
]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="print the result as JSON, and errors as JSON too")
]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", metavar="FILE.pg", help="the schema to check against")
]


def branch_name(value: str | None) -> str | None:
    """Refuse a malformed name; an empty one is an unset variable, and must not mean main."""
    if value is not None:
        check_branch_name(value)
    return value


_URI_HELP = "where the graph lies: a path, file:// or s3://"
UriArgument = Annotated[str | None, typer.Argument(metavar="[URI]", help=_URI_HELP)]
UriOption = Annotated[str | None, typer.Option("--uri", metavar="URI", help=_URI_HELP)]
BranchOption = Annotated[
    str,
    typer.Option(
        "--branch", metavar="NAME", help="the branch; main by default", callback=branch_name
    ),
]
ExternalBlobsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--external-blobs",
        metavar="URI",
        help="a folder, s3:// or file://, whose objects blobs may name; repeatable",
    ),
]
QueriesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--queries",
        metavar="DIR|FILE.gq",
        help="stored queries: a file, or a directory of them; repeatable",
    ),
]
DEFAULT_BRANCH = MAIN_BRANCH
