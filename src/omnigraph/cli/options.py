"""Flags that several commands share, and the global flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import typer

from omnigraph.cli.failures import UsageError
from omnigraph.cli.output import Output
from omnigraph.errors import InputError
from omnigraph.model.ids import MAIN_BRANCH, check_branch_name, normalize_commit_id
from omnigraph.syntax.suggest import did_you_mean

# --- declaring flags ------------------------------------------------------------------------------


def option(names: str, metavar: str, help: str, *, check: Any = None, **settings: Any) -> Any:
    """A flag with a value, by its spellings; ``check`` validates or converts the value."""
    return typer.Option(*names.split(), metavar=metavar, help=help, callback=check, **settings)


def flag(name: str, help: str) -> Any:
    """A flag without a value."""
    return typer.Option(name, help=help)


def argument(metavar: str, help: str, *, check: Any = None) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, help=help, callback=check)


Choice = TypeVar("Choice", bound=str)


def choice(flag: str, word: str, allowed: Iterable[Choice], hint: str | None = None) -> Choice:
    """Validate a word; raises `UsageError` with the nearest allowed word, or the hint."""
    known = list(allowed)
    for each in known:
        if word == each:
            return each
    raise UsageError(
        f"`{flag}` takes {', '.join(known)}, not `{word}`", hint=did_you_mean(word, known) or hint
    )


def one_of(allowed: Iterable[str], hint: str | None = None) -> Any:
    """The check of a flag with a closed list of words."""

    def check(ctx: typer.Context, param: Any, value: str | None) -> str | None:
        explained = hint or f"`{ctx.command_path} --help` explains it"
        return None if value is None else choice(param.opts[0], value, allowed, explained)

    return check


def exclusive(hint: str = "give one of them", **given: object) -> None:
    """Raise `UsageError` if two flags were given; the keyword `params_file` is `--params-file`."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        first, second = (f"`--{name.replace('_', '-')}`" for name in names[:2])
        raise UsageError(f"{first} and {second} are mutually exclusive", hint=hint)


Checked = TypeVar("Checked")


def usage(check: Callable[..., Checked], *args: Any, **kwargs: Any) -> Checked:
    """Call a check of the library; its `InputError` becomes a `UsageError`."""
    try:
        return check(*args, **kwargs)
    except InputError as refused:
        raise UsageError(refused.message, hint=refused.hint) from refused


class _AsTyped:
    """A parameter type that only calls ``kind``; multiple values become a list."""

    def __init__(self, kind: type[str] | type[bool] | type[Path]) -> None:
        self._kind = kind

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a flag or an argument; None where it was not given."""
        if param.multiple or param.nargs == -1:
            return [self._kind(each) for each in value or ()]
        return None if value is None else self._kind(value)


_AS_TYPED: Mapping[Any, _AsTyped] = {
    bool: _AsTyped(bool),
    str: _AsTyped(str),
    Path: _AsTyped(Path),
    list[str]: _AsTyped(str),
    list[Path]: _AsTyped(Path),
}


def take_texts_as_typed(command: Any) -> Any:
    """Skip Typer's conversion for all texts and paths of a command."""
    for parameter in command.params:
        take_as_typed(parameter)
    for inner in getattr(command, "commands", {}).values():
        take_texts_as_typed(inner)
    return command


def take_as_typed(parameter: Any) -> Any:
    """Skip Typer's conversion of a flag or argument, if it is a text, a path or a boolean.

    Typer converts every value with pydantic, also of omitted flags, and importing pydantic takes
    longer than most commands. If a future release of Typer ignores the attribute, it converts as
    before.
    """
    plain = _AS_TYPED.get(parameter.type_descriptor.annotation)
    if plain is not None:
        parameter.get_runtime_param = lambda: plain
    return parameter


# --- global flags ---------------------------------------------------------------------------------


class GlobalFlag(Enum):
    """A global flag with its purpose. The first misplaced one is reported."""

    SERVER = ("--server", "addresses a server")
    CLUSTER = ("--cluster", "addresses the graphs of a cluster")
    GRAPH = ("--graph", "picks a graph of a server or a cluster")
    STORE = ("--store", "addresses the storage of one graph")
    ACTOR = ("--as", "names the actor of a write")
    PROFILE = ("--profile", "picks a graph by its profile")
    YES = ("--yes", "consents to a destructive write")

    @property
    def spelling(self) -> str:
        """The flag as it is documented."""
        return self.value[0]

    @property
    def purpose(self) -> str:
        """The purpose, as the rest of a sentence that starts with the flag."""
        return self.value[1]


class Given(NamedTuple):
    """The global flags of this invocation."""

    server: str | None
    cluster: str | None
    graph: str | None
    store: str | None
    uri: str | None
    """`--uri`, the former name of `--store`."""
    actor: str | None
    profile: str | None
    yes: bool
    position: str | None
    """A storage URI given as a positional argument."""

    @classmethod
    def of(cls, ctx: Any) -> Given:
        """The flags of a running command; Typer keeps them in the root context."""
        typed = {**ctx.find_root().params, "position": ctx.meta.get(_POSITION_KEY)}
        return cls(*(typed[name] for name in cls._fields))

    def flags(self) -> dict[GlobalFlag, str]:
        """The given flags, in the order they are reported, as they were spelled."""
        typed = {flag: flag.spelling for flag in GlobalFlag if getattr(self, flag.name.lower())}
        if self.uri is not None and GlobalFlag.STORE not in typed:
            typed[GlobalFlag.STORE] = "--uri"
        return {flag: typed[flag] for flag in GlobalFlag if flag in typed}

    def stores(self) -> dict[str, str]:
        """The given storage URIs, by the spelling of the flag or argument."""
        words = {"URI": self.position, "--uri": self.uri, "--store": self.store}
        return {word: value for word, value in words.items() if value is not None}

    def explicit(self) -> dict[str, str]:
        """The graphs that flags and arguments address directly; only one is allowed."""
        others = {"--server": self.server, "--cluster": self.cluster}
        return self.stores() | {word: each for word, each in others.items() if each is not None}

    def places(self) -> dict[str, str]:
        """Everything that addresses a graph, including a profile, by spelling."""
        return self.explicit() | ({} if self.profile is None else {"--profile": self.profile})

    def storage(self) -> str | None:
        """The given storage URI; None if there is none."""
        return next(iter(self.stores().values()), None)


_POSITION_KEY = "omnigraph.position"
_IS_PLACE = re.compile(r"[./:~\\]")
"""Matches paths and URIs; the name of a query has none of these characters."""


def take_position(ctx: Any) -> None:
    """Accept a storage URI after the running command's own arguments.

    An undocumented former form; help pages name `--store` alone. If the name of a query is
    optional, a word that cannot be a name is the URI.
    """
    words = list(ctx.args)
    name = ctx.params.get("name")
    is_optional = any(each.name == "name" and not each.required for each in ctx.command.params)
    is_file = name is not None and name.endswith((".gq", ".pg"))
    if is_optional and name is not None and _IS_PLACE.search(name) and not is_file:
        ctx.params["name"] = words.pop(0) if words else None
        words.append(name)
    if len(words) > 1:
        ctx.fail(f"Got unexpected extra arguments ({' '.join(words)})")
    if words:
        if not words[0]:
            raise UsageError("the URI is empty", hint="give it a value, or leave it out")
        ctx.meta[_POSITION_KEY] = words[0]


def require_one_place(named: Mapping[str, str]) -> None:
    """Raise `UsageError` if a graph is addressed twice; ``named`` has URIs by spelling."""
    if len(named) > 1:
        first, second = list(named)[:2]
        given = Path(named.get("URI", ""))
        if given.is_file():
            flag_of_file = {".gq": "--query", ".pg": "--schema"}.get(given.suffix, "--data")
            raise UsageError(
                f"`{given}` is a file, and stands where a graph may be named",
                hint=f"a file has a flag: `{flag_of_file} {given}`",
            )
        uri = f"`{named['URI']}` is taken for the URI of a graph; " if first == "URI" else ""
        raise UsageError(
            f"`{first}` and `{second}` are mutually exclusive",
            hint=f"{uri}both address a graph; give one of them",
        )


def refuse_misplaced(ctx: Any, capability: str, taken: frozenset[GlobalFlag]) -> None:
    """Raise the usage error for the first global flag that the command does not take."""
    for flag, typed in Given.of(ctx).flags().items():
        if flag not in taken:
            article = "an" if capability.startswith("a") else "a"
            name = ctx.command_path.removeprefix("omnigraph ")
            raise UsageError(
                f"`{name}` is {article} {capability} command; "
                f"{typed} {flag.purpose} and does not apply.",
                hint=_remedy(ctx, capability, flag),
            )


def _remedy(ctx: Any, capability: str, flag: GlobalFlag) -> str:
    if flag is GlobalFlag.ACTOR:
        return "leave it out: only writes to a graph have an actor"
    if flag is GlobalFlag.YES:
        return "leave it out: there is nothing to consent to"
    if GlobalFlag.STORE in ctx.command.takes:
        return "address its storage instead, with `--store URI`"
    if any(parameter.name == "uri" for parameter in ctx.command.params):
        return "pass a storage URI instead"
    if capability == "local":
        return "leave it out: this command addresses no graph"
    return f"leave it out: this command reads files; `{ctx.command_path} --help` says which"


# --- flags of several commands --------------------------------------------------------------------


def branch_name(value: str | None) -> str | None:
    """Refuse a malformed name, or an empty one: an unset variable must not mean main."""
    if value is not None:
        check_branch_name(value)
    return value


def commit_id(value: str | None) -> str | None:
    """The canonical form of a whole commit id."""
    return None if value is None else normalize_commit_id(value)


def revision(value: str | None) -> str | None:
    """Refuse an empty revision, which comes from an unset variable."""
    if value is not None and not value.strip():
        raise UsageError("a revision is empty", hint=f"give {REVISIONS}")
    return None if value is None else value.strip()


DEFAULT_BRANCH = MAIN_BRANCH
REVISIONS = "a commit id or its first characters, a tag, a branch, HEAD~2, or 2026-11-16T12:53:27Z"
"""The forms of a revision, for help texts."""

ConfirmFlag = Annotated[bool, flag("--confirm", "do it; without this, it is only shown")]
JsonFlag = Annotated[bool, flag("--json", "print the result as JSON, and errors as JSON too")]
SchemaFile = Annotated[Path | None, option("--schema", "FILE.pg", "the schema to check against")]
CommitArgument = Annotated[str, argument("REVISION", f"which commit: {REVISIONS}", check=revision)]
BranchOption = Annotated[
    str, option("--branch", "NAME", "the branch; main by default", check=branch_name)
]
ReadBranchOption = Annotated[
    str | None,
    option("--branch", "NAME", "read the head of this branch; main by default", check=branch_name),
]
SparkMasterOption = Annotated[
    str | None, option("--spark-master", "URL", "where Spark runs; local[*] by default")
]
SparkConfOption = Annotated[
    list[str] | None, option("--spark-conf", "NAME=VALUE", "a Spark setting; repeatable")
]
SnapshotOption = Annotated[
    str | None,
    option(
        "--snapshot", "REVISION", f"read the graph as of this commit: {REVISIONS}", check=revision
    ),
]
MessageOption = Annotated[
    str | None,
    option("--message", "TEXT", "why; kept with the commit and shown by `commit list`"),
]
OutOption = Annotated[
    Path | None, option("--out", "FILE", "write here; replaced once all of it is there")
]
ExternalBlobsOption = Annotated[
    list[str] | None,
    option(
        "--external-blobs",
        "URI",
        "a folder, s3:// or file://, whose objects blobs may name; repeatable",
    ),
]
QueriesOption = Annotated[
    list[Path] | None,
    option(
        "--queries", "DIR|FILE.gq", "stored queries: a file, or a directory of them; repeatable"
    ),
]


def read_place(branch: str | None, snapshot: str | None) -> dict[str, Any]:
    """The keyword arguments ``branch`` and ``snapshot`` of a verb that reads one of them."""
    exclusive("a snapshot is a commit, whichever branch it is on", branch=branch, snapshot=snapshot)
    return {"branch": branch, "snapshot": snapshot}


def spark_flags(
    engine: str | None, master: str | None, conf: Sequence[str] | None
) -> dict[str, bool]:
    """The flags that choose an engine, and whether they were given; no server supports them."""
    return {
        "--engine": engine is not None,
        "--spark-master": master is not None,
        "--spark-conf": bool(conf),
    }


def spark_arguments(
    engine: str | None,
    master: str | None,
    conf: Sequence[str] | None,
    *,
    default: Literal["local", "auto", "spark"] = "local",
) -> dict[str, Any]:
    """The keyword arguments ``engine`` and ``spark`` of a verb, as far as flags set them.

    ``default`` is the engine if neither an engine nor a master is given. Raises `UsageError` where
    a flag about Spark would have no effect.
    """
    wanted = engine or ("spark" if master is not None else default)
    for flag_name, is_given in spark_flags(None, master, conf).items():
        if is_given and wanted == "local":
            hint = "leave out `--engine local`" if engine == "local" else "add `--engine spark`"
            raise UsageError(f"`{flag_name}` is for work on Spark", hint=f"{hint}, or leave it out")
    given: dict[str, Any] = {} if engine is None else {"engine": engine}
    if master is not None or conf:
        from omnigraph.model.load_options import SparkOptions
        from omnigraph.pipeline.spark.session import parse_conf

        given["spark"] = SparkOptions(master=master, conf=parse_conf(conf or ()))
    return given


def announce_spark(output: Output, how: Mapping[str, Any], *, json: bool) -> None:
    """Print that Spark is being started, if `spark_arguments` selected it."""
    spark = how.get("spark")
    if how.get("engine") == "spark" or (spark is not None and spark.master is not None):
        output.starting_spark(json=json)
