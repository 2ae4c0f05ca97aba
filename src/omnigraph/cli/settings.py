"""`omnigraph use`, `profile …` and `config …`: the settings of all commands, and their origins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.cli.addressing import (
    PROFILE_VARIABLE,
    active_profile,
    config_of,
    resolve_any,
    storage_target,
    without_password,
)
from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import Command, Commands
from omnigraph.cli.login import token_source
from omnigraph.cli.operator_config import HOME_VARIABLE, OperatorConfig, Scope
from omnigraph.cli.options import Given, GlobalFlag, JsonFlag, argument, flag
from omnigraph.cli.output import Line, fact_lines, output_of, table
from omnigraph.errors import OmnigraphError
from omnigraph.model.records import dataclass

COMMANDS = Commands()
PROFILES = Commands(
    "profile",
    "Look at the profiles of the configuration.",
    """
omnigraph profile list
omnigraph profile show staging
""",
)
CONFIG = Commands(
    "config",
    "Look at the configuration.",
    """
omnigraph config path
omnigraph config show
""",
)

_NO_PLACE = "nothing"
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|KEY|CREDENTIAL", re.IGNORECASE)
_NO_SECRETS = ("OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",)
"""Variables with the name of a secret whose value is a file name."""

ProfileArgument = Annotated[str | None, argument("[PROFILE]", "a name under `profiles`")]
ClearFlag = Annotated[bool, flag("--clear", "choose nothing: every command has to name its graph")]


class UseCommand(Command):
    """A command that stores the target of its flags."""

    takes = frozenset({GlobalFlag.SERVER, GlobalFlag.GRAPH, GlobalFlag.STORE, GlobalFlag.PROFILE})


class ConfigCommand(Command):
    """A command that shows the effect of the flags."""

    takes = UseCommand.takes | {GlobalFlag.ACTOR}


@COMMANDS.add(UseCommand)
def use(
    ctx: typer.Context,
    name: ProfileArgument = None,
    clear: ClearFlag = False,
    json: JsonFlag = False,
) -> None:
    """Choose the graph of commands that name none, or show which it is.

    The choice is kept under `defaults` in the configuration, whose other lines stay as they are.
    A flag and OMNIGRAPH_PROFILE win over it. A profile is checked here; whether there is a graph
    shows with the first command that opens it.

    omnigraph use staging
    omnigraph use --store team.omni
    omnigraph use --server prod --graph team
    omnigraph use --clear
    """
    output, config = output_of(ctx), config_of(ctx)
    given = Given.of(ctx)
    wanted = _default_keys(ctx, config, name)
    if clear and (wanted or given.graph):
        raise UsageError("`--clear` chooses nothing, and a graph was named", hint="give one")
    if given.graph is not None and "server" not in wanted:
        raise UsageError(
            "`--graph` picks one of a server", hint="add `--server`, or leave `--graph` out"
        )
    if wanted or clear:
        config.choose(wanted)
        chosen = _words_of(wanted) or _NO_PLACE
        document = {"path": str(config.path), "defaults": wanted}
        output.done(document, f"{chosen} is used by commands that name no graph", json=json)
        return
    row = _graph_row(ctx, config)
    output.show(
        {"graph": row.value, "origin": row.origin},
        [(f"{row.value or _NO_PLACE}, from {row.origin}",)],
        json=json,
    )


def _default_keys(ctx: typer.Context, config: OperatorConfig, name: str | None) -> dict[str, str]:
    """The keys of `defaults` to store, from the command line."""
    given = Given.of(ctx)
    profiles = {"PROFILE": name, "--profile": given.profile}
    named = [word for word, value in profiles.items() if value is not None]
    if len(named) + len(given.explicit()) > 1:
        first, second = [*named, *given.explicit()][:2]
        raise UsageError(
            f"`{first}` and `{second}` are mutually exclusive", hint="choose one of them"
        )
    profile = name if name is not None else given.profile
    if profile is not None:
        config.profile(profile)
        return {"profile": profile}
    store = given.storage()
    if store is not None:
        target = storage_target(store)
        is_path = target.is_local and "://" not in store
        # Absolute, because later commands run in other directories.
        return {"store": str(Path(store).expanduser().absolute()) if is_path else store}
    if given.server is None:
        return {}
    if "://" not in given.server:
        config.server_url(given.server)
    graph = {} if given.graph is None else {"default_graph": given.graph}
    return {"server": given.server, **graph}


def _words_of(wanted: Mapping[str, str]) -> str:
    return ", ".join(
        f"{key.removeprefix('default_')} {without_password(value)}" for key, value in wanted.items()
    )


# --- profiles -------------------------------------------------------------------------------------


@PROFILES.add(Command, name="list")
def list_(ctx: typer.Context, json: JsonFlag = False) -> None:
    """List the profiles: what each binds, which is active, and which cannot be used.

    `*` marks the active one. A profile that cannot be used is listed with the reason, and the exit
    code is 0 all the same.

    omnigraph profile list
    omnigraph profile list --json
    """
    config, output = config_of(ctx), output_of(ctx)
    active = active_profile(ctx)
    profiles = [_profile_item(config, name, active) for name in sorted(config.profiles())]
    if not profiles and not json and not output.quiet:
        output.note(f"there are no profiles in {config.path}")
    output.show({"profiles": profiles}, _profile_lines(profiles), json=json)


@PROFILES.add(Command)
def show(ctx: typer.Context, name: ProfileArgument = None, json: JsonFlag = False) -> None:
    """Show what a profile leads to; the active one, else the defaults, if none is named.

    omnigraph profile show
    omnigraph profile show staging --json
    """
    config = config_of(ctx)
    chosen = name if name is not None else active_profile(ctx)
    scope = config.default_scope() if chosen is None else config.profile(chosen)
    document = {
        "name": "(defaults)" if chosen is None else chosen,
        "scope_kind": "none" if scope is None else scope.kind,
        "target": None if scope is None else without_password(scope.target),
        "endpoint": None if scope is None else without_password(config.endpoint(scope)),
        "default_graph": None if scope is None else scope.graph,
        "output_format": config.output_format(chosen),
    }
    output_of(ctx).show(document, fact_lines(document), json=json)


def _profile_item(config: OperatorConfig, name: str, active: str | None) -> dict[str, Any]:
    bound: dict[str, str] = {}
    scope: Scope | None = None
    error = None
    try:
        bound = config.bindings(name)
        scope = config.profile(name)
        config.endpoint(scope)
    except OmnigraphError as problem:
        error = problem.message
    listed = (f"{kind} {without_password(target)}" for kind, target in bound.items())
    return {
        "name": name,
        "binding": ", ".join(listed) or "none",
        "scope_kind": "none" if scope is None else scope.kind,
        "target": None if scope is None else without_password(scope.target),
        "valid": error is None,
        "error": error,
        "default_graph": None if scope is None else scope.graph,
        "active": name == active,
    }


def _profile_lines(profiles: list[dict[str, Any]]) -> Iterator[Line]:
    if not profiles:
        return
    rows = [
        (
            "*" if each["active"] else "",
            each["name"],
            each["binding"],
            each["default_graph"] or "-",
            "ok" if each["valid"] else f"invalid: {each['error']}",
        )
        for each in profiles
    ]
    yield from table(("", "profile", "binds", "graph", "state"), rows)


# --- configuration --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One setting, its value and its origin."""

    setting: str
    value: str | None
    origin: str


@CONFIG.add(Command)
def path(ctx: typer.Context, json: JsonFlag = False) -> None:
    """Print where the configuration lies, whether there is one or not.

    omnigraph config path
    """
    found = config_of(ctx).path
    document = {"path": str(found), "exists": found.exists()}
    output_of(ctx).show(document, [(str(found),)], json=json)


@CONFIG.add(ConfigCommand, name="show")
def config_show(ctx: typer.Context, json: JsonFlag = False) -> None:
    """Show every setting in force, and where it comes from: a flag, a variable, a line of the file.

    Of a secret only its origin is shown, never its value. Flags count, so that
    `omnigraph config show --profile staging` says what they would mean.

    omnigraph config show
    omnigraph config show --profile staging --json
    """
    config, output = config_of(ctx), output_of(ctx)
    rows = [*_rows(ctx, config, output.environment)]
    document = {
        "path": str(config.path),
        "settings": [
            {"setting": row.setting, "value": row.value, "origin": row.origin} for row in rows
        ],
    }
    shown = [(row.setting, "-" if row.value is None else row.value, row.origin) for row in rows]
    output.show(document, table(("setting", "value", "origin"), shown), json=json)


def _rows(
    ctx: typer.Context, config: OperatorConfig, environment: Mapping[str, str]
) -> Iterator[Row]:
    is_moved = bool(environment.get(HOME_VARIABLE))
    yield Row("folder", str(config.path.parent), HOME_VARIABLE if is_moved else "default")
    yield _graph_row(ctx, config)
    given = Given.of(ctx)
    if given.actor is not None:
        yield Row("actor", given.actor, "--as")
    else:
        yield Row("actor", config.actor, _origin(config, "operator", "actor"))
    profile = None if given.explicit() else active_profile(ctx)
    of_profile = profile is not None and _origin(config, "profiles", profile, "output")
    yield Row(
        "output",
        config.output_format(profile) or "table",
        of_profile
        if of_profile and of_profile != "default"
        else _origin(config, "defaults", "output"),
    )
    width = config.table_max_column_width
    yield Row(
        "table_max_column_width",
        None if width is None else str(width),
        _origin(config, "defaults", "table_max_column_width"),
    )
    yield Row(
        "table_cell_layout",
        config.table_cell_layout or "truncate",
        _origin(config, "defaults", "table_cell_layout"),
    )
    yield from _file_rows(config, environment)
    yield from _variable_rows(environment)


def _file_rows(config: OperatorConfig, environment: Mapping[str, str]) -> Iterator[Row]:
    """The settings of the file that have names, and the tokens of its servers."""
    for name in config.servers():
        url = without_password(config.server_url(name))
        yield Row(f"servers.{name}", url, _origin(config, "servers", name, "url"))
        source = token_source(name, config, environment)
        yield Row(f"servers.{name}.token", None if source is None else "(set)", source or "not set")
    for name in config.profiles():
        item = _profile_item(config, name, None)
        yield Row(f"profiles.{name}", item["binding"], _origin(config, "profiles", name))
    for name in config.aliases():
        try:
            alias = config.alias(name)
            value = f"{alias.query} on {without_password(alias.server)}"
        except OmnigraphError as problem:
            value = f"invalid: {problem.message}"
        yield Row(f"aliases.{name}", value, _origin(config, "aliases", name))


def _variable_rows(environment: Mapping[str, str]) -> Iterator[Row]:
    """Environment variables that have no row of their own."""
    for name, value in sorted(environment.items()):
        if not name.startswith("OMNIGRAPH_") or name in (HOME_VARIABLE, PROFILE_VARIABLE):
            continue
        is_secret = _SECRET.search(name) is not None and name not in _NO_SECRETS
        yield Row(name, "(set)" if is_secret else without_password(value), "environment")


def _graph_row(ctx: typer.Context, config: OperatorConfig) -> Row:
    """The graph of a command that addresses no graph itself."""
    given = Given.of(ctx)
    profile = active_profile(ctx)
    if given.explicit():
        origin = next(iter(given.explicit()))
    elif given.profile is not None:
        origin = "--profile"
    elif profile is not None and config.default_profile != profile:
        origin = PROFILE_VARIABLE
    else:
        keys = ("profile", "store", "server")
        origin = next(
            (_origin(config, "defaults", key) for key in keys if config.line_of("defaults", key)),
            "default",
        )
    try:
        return Row("graph", str(resolve_any(ctx)), origin)
    except UsageError as none:
        has_place = bool(given.explicit() or profile or config.default_scope())
        return Row("graph", f"invalid: {none.message}" if has_place else None, origin)
    except OmnigraphError as problem:
        return Row("graph", f"invalid: {problem.message}", origin)


def _origin(config: OperatorConfig, *keys: str) -> str:
    line = config.line_of(*keys)
    return "default" if line is None else f"{config.path.name}:{line}"
