"""Flags that several commands share, and the global ones that only some commands take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.cli.failures import UsageError
from omnigraph.model.ids import MAIN_BRANCH, check_branch_name


class GlobalFlag(Enum):
    """A global flag with the reason it exists. The first misplaced one is reported."""

    SERVER = ("--server", "addresses a server")
    GRAPH = ("--graph", "picks a graph of a server")
    STORE = ("--store", "addresses the storage of one graph")
    ACTOR = ("--as", "names the actor of a write")
    PROFILE = ("--profile", "picks a graph by its profile")
    YES = ("--yes", "consents to a destructive write")

    @property
    def spelling(self) -> str:
        """The flag as it is typed."""
        return self.value[0]

    @property
    def purpose(self) -> str:
        """What it does, as the rest of a sentence that starts with the flag."""
        return self.value[1]


NO_FLAGS: frozenset[GlobalFlag] = frozenset()
GRAPH_FLAGS = frozenset({GlobalFlag.STORE, GlobalFlag.PROFILE})
DIRECT_WRITE_FLAGS = GRAPH_FLAGS | {GlobalFlag.ACTOR}
DESTRUCTIVE_UPKEEP_FLAGS = GRAPH_FLAGS | {GlobalFlag.YES}
SERVER_FLAGS = frozenset({GlobalFlag.SERVER, GlobalFlag.PROFILE})
READ_FLAGS = GRAPH_FLAGS | {GlobalFlag.SERVER, GlobalFlag.GRAPH}
WRITE_FLAGS = READ_FLAGS | {GlobalFlag.ACTOR}
DESTRUCTIVE_FLAGS = WRITE_FLAGS | {GlobalFlag.YES}


@dataclass(frozen=True, slots=True)
class Given:
    """What this invocation says in its global flags."""

    server: str | None
    graph: str | None
    store: str | None
    actor: str | None
    profile: str | None
    yes: bool

    @classmethod
    def of(cls, ctx: Any) -> Given:
        """The flags of a running command; the parser keeps them at the root."""
        params = ctx.find_root().params
        names = ("server", "graph", "store", "actor", "profile", "yes")
        return cls(*(params[name] for name in names))

    def flags(self) -> list[GlobalFlag]:
        """The flags that were given, in the order they are reported."""
        present = {
            GlobalFlag.SERVER: self.server is not None,
            GlobalFlag.GRAPH: self.graph is not None,
            GlobalFlag.STORE: self.store is not None,
            GlobalFlag.ACTOR: self.actor is not None,
            GlobalFlag.PROFILE: self.profile is not None,
            GlobalFlag.YES: self.yes,
        }
        return [flag for flag in GlobalFlag if present[flag]]


def refuse_misplaced(ctx: Any, capability: str, taken: frozenset[GlobalFlag]) -> None:
    """Raise the usage error for the first flag the running command cannot use."""
    for flag in Given.of(ctx).flags():
        if flag not in taken:
            article = "an" if capability.startswith("a") else "a"
            name = ctx.command_path.removeprefix("omnigraph ")
            raise UsageError(
                f"`{name}` is {article} {capability} command; "
                f"{flag.spelling} {flag.purpose} and does not apply.",
                hint=_remedy(ctx, capability, flag),
            )


def _remedy(ctx: Any, capability: str, flag: GlobalFlag) -> str:
    if flag is GlobalFlag.ACTOR:
        return "leave it out: only writes to a graph have an actor"
    if flag is GlobalFlag.YES:
        return "leave it out: there is nothing to consent to"
    if any(parameter.name == "uri" for parameter in ctx.command.params):
        return "pass a storage URI instead"
    if capability == "local":
        return "leave it out: this command addresses no graph"
    return f"leave it out: this command reads files; `{ctx.command_path} --help` says which"


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
