"""Which graph a command is about.

Every invocation resolves its target anew: one that is spelled out wins over a profile, and a
profile over the defaults of the operator's configuration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from omnigraph.cli.failures import UsageError
from omnigraph.cli.global_flags import Given
from omnigraph.cli.output import output_of

if TYPE_CHECKING:
    from omnigraph.cli.operator_config import OperatorConfig, Scope

PROFILE_VARIABLE = "OMNIGRAPH_PROFILE"

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/?#]*@")
_CONFIG_KEY = "omnigraph.operator_config"


@dataclass(frozen=True, slots=True)
class Target:
    """One graph in storage."""

    uri: str
    """As it was spelled."""

    @property
    def is_local(self) -> bool:
        """Whether it lies on this machine: a bare path or `file://`."""
        found = _SCHEME.match(self.uri)
        return found is None or found["scheme"].lower() == "file"

    def __str__(self) -> str:
        # Nobody should write a password here, and nobody needs to read it back.
        return _USER_INFO.sub("", self.uri)


def resolve(ctx: typer.Context, uri: str | None = None) -> Target:
    """The graph the running command addresses; ``uri`` is its own argument or `--uri`.

    Raises `UsageError` when there is none, when it is named twice, or when it is not in storage.
    """
    given = Given.of(ctx)
    if uri is not None and given.store is not None:
        raise UsageError(
            f"`{_word_for_uri(ctx)}` and `--store` are mutually exclusive",
            hint="both address a graph; give one of them",
        )
    explicit = uri if uri is not None else given.store
    if explicit is not None:
        return storage_target(explicit)
    name = given.profile or output_of(ctx).environment.get(PROFILE_VARIABLE)
    if name:
        return _target_of(config_of(ctx).profile(name))
    scope = config_of(ctx).default_scope()
    if scope is not None:
        return _target_of(scope)
    word = _word_for_uri(ctx)
    own = f"pass `{word}`, or " if word is not None else "pass "
    raise UsageError(
        f"`{ctx.command_path}` does not know which graph is meant",
        hint=f"{own}`--store URI`, or `--profile NAME`, or set `defaults.store` in "
        f"{config_of(ctx).path}",
    )


def actor_of(ctx: typer.Context) -> str | None:
    """Who writes: `--as`, else the configured actor, else nobody in particular."""
    actor = Given.of(ctx).actor
    return actor if actor is not None else config_of(ctx).actor


def storage_target(uri: str) -> Target:
    """The target at a storage URI; raises `UsageError` for the URL of a server."""
    target = Target(uri)
    found = _SCHEME.match(uri)
    if found is not None and found["scheme"].lower() in ("http", "https"):
        raise UsageError(
            f"`{target}` is a server, and a graph is addressed here by its storage",
            hint="give a path, file:// or s3://; servers are for `--server`, "
            "which this version does not have yet",
        )
    return target


def config_of(ctx: typer.Context) -> OperatorConfig:
    """The operator's configuration, read when it is first needed."""
    from omnigraph.cli.operator_config import OperatorConfig, read_config

    meta: dict[str, Any] = ctx.meta
    if _CONFIG_KEY not in meta:
        output = output_of(ctx)
        meta[_CONFIG_KEY] = read_config(output.environment, output.warning)
    config = meta[_CONFIG_KEY]
    assert isinstance(config, OperatorConfig)
    return config


def _target_of(scope: Scope) -> Target:
    if scope.kind != "store":
        raise UsageError(
            f"{scope.origin} addresses a {scope.kind}, which this version cannot reach yet",
            hint="pass `--store URI`, or use a profile that binds a store",
        )
    # A shell expands `~` in an argument; in a file nobody does.
    is_home = scope.target.startswith("~/")
    return storage_target(str(Path(scope.target).expanduser()) if is_home else scope.target)


def _word_for_uri(ctx: typer.Context) -> str | None:
    """What the running command calls its own URI."""
    for parameter in ctx.command.params:
        if parameter.name == "uri":
            return "--uri" if parameter.param_type_name == "option" else "URI"
    return None
