"""Resolving which graph a command addresses.

Precedence: flags and arguments, then the profile, then the defaults of the operator's
configuration.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from omnigraph.cli.failures import UsageError
from omnigraph.cli.options import Given, GlobalFlag
from omnigraph.cli.output import output_of
from omnigraph.model.records import dataclass

if TYPE_CHECKING:
    from omnigraph.cli.operator_config import OperatorConfig, Scope

PROFILE_VARIABLE = "OMNIGRAPH_PROFILE"

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/?#]*@")
_IN_CLUSTER = re.compile(r"(^|/)graphs/[^/]+\.omni/?$")
_CONFIG_KEY = "omnigraph.operator_config"


def without_password(uri: str) -> str:
    """A URI without the user and the password in it.

    >>> without_password("s3://key:secret@lake/team.omni")
    's3://lake/team.omni'
    """
    return _USER_INFO.sub("", uri)


@dataclass(frozen=True, slots=True)
class Target:
    """One graph in storage."""

    uri: str
    """The URI as it was given."""

    @property
    def is_local(self) -> bool:
        """Whether the URI is a bare path or `file://`."""
        found = _SCHEME.match(self.uri)
        return found is None or found["scheme"].lower() == "file"

    def __str__(self) -> str:
        # A password in a URL is not printed back.
        return without_password(self.uri)


@dataclass(frozen=True, slots=True)
class ServedTarget:
    """A graph behind a server, or the server itself."""

    url: str
    graph: str | None
    origin: str
    """Where the target was named (a flag, a profile, a line of the configuration), for messages."""
    is_local: ClassVar[bool] = False
    """Always False: other users may write to a server on this machine, too."""

    def __str__(self) -> str:
        address = without_password(self.url)
        return address if self.graph is None else f"{address.rstrip('/')}/graphs/{self.graph}"


def resolve(ctx: typer.Context) -> Target:
    """The graph in storage that the running command addresses.

    Raises `UsageError` when there is none, when it is named twice, or when it is not in storage.
    """
    target = resolve_any(ctx)
    if isinstance(target, ServedTarget):
        raise UsageError(
            f"{target.origin} addresses a server, and `{_name_of(ctx)}` needs storage",
            hint="pass `--store URI`, or use a profile that binds a store",
        )
    return target


def resolve_any(ctx: typer.Context) -> Target | ServedTarget:
    """The graph the running command addresses, in storage or behind a server.

    Raises `UsageError` when there is none, or when it is named twice.
    """
    given = Given.of(ctx)
    if given.server is not None:
        return server_target(ctx, given.server, given.graph, "`--server`")
    if given.cluster is not None:
        return _of_cluster(ctx, given.cluster, given.graph)
    for word, uri in given.stores().items():
        _refuse_graph(given, f"`{word}`")
        return storage_target(uri)
    scope = _scope(ctx)
    if scope is not None:
        return _target_of(ctx, scope, given)
    anyhow = (
        "pass `--store URI`, or `--server URL`, or `--profile NAME`; or choose one for all "
        f"commands with `omnigraph use`, which is kept in {config_of(ctx).path}"
    )
    raise UsageError(
        f"`{ctx.command_path}` does not know which graph is meant",
        hint=_misplaced_path(ctx) or anyhow,
    )


def resolve_server(ctx: typer.Context) -> ServedTarget:
    """The server the running command addresses; which graph of it does not matter.

    Raises `UsageError` when there is none, or when what is addressed is no server.
    """
    given = Given.of(ctx)
    if given.server is not None:
        return server_target(ctx, given.server, None, "`--server`")
    scope = _scope(ctx)
    if scope is None or scope.kind != "server":
        what = "nothing addresses a server" if scope is None else f"{scope.origin} is no server"
        raise UsageError(what, hint="pass `--server URL`, or a profile that binds a server")
    return server_target(ctx, scope.target, None, scope.origin)


def actor_of(ctx: typer.Context) -> str | None:
    """The actor of writes: `--as`, else the configured actor, else None."""
    actor = Given.of(ctx).actor
    return actor if actor is not None else config_of(ctx).actor


def storage_target(uri: str) -> Target:
    """The target at a storage URI; raises `UsageError` for the URL of a server."""
    target = Target(uri)
    found = _SCHEME.match(uri)
    if found is not None and found["scheme"].lower() in ("http", "https"):
        raise UsageError(
            f"`{target}` is a server, and a graph is addressed here by its storage",
            hint="give a path, file:// or s3://; servers are for `--server URL`",
        )
    return target


def config_of(ctx: typer.Context) -> OperatorConfig:
    """The operator's configuration, read on first use."""
    from omnigraph.cli.operator_config import OperatorConfig, read_config

    meta: dict[str, Any] = ctx.meta
    if _CONFIG_KEY not in meta:
        output = output_of(ctx)
        meta[_CONFIG_KEY] = read_config(output.environment, output.warning)
    config = meta[_CONFIG_KEY]
    assert isinstance(config, OperatorConfig)
    return config


def active_profile(ctx: typer.Context) -> str | None:
    """The profile of this invocation: from the flag, the environment or the configuration."""
    given = Given.of(ctx).profile or output_of(ctx).environment.get(PROFILE_VARIABLE)
    return given or config_of(ctx).default_profile


def _scope(ctx: typer.Context) -> Scope | None:
    name = active_profile(ctx)
    return config_of(ctx).profile(name) if name else config_of(ctx).default_scope()


def _target_of(ctx: typer.Context, scope: Scope, given: Given) -> Target | ServedTarget:
    if scope.kind == "server":
        return server_target(ctx, scope.target, given.graph or scope.graph, scope.origin)
    if scope.kind == "cluster":
        if GlobalFlag.CLUSTER not in getattr(ctx.command, "takes", ()):
            raise UsageError(
                f"{scope.origin} addresses a cluster, and `{_name_of(ctx)}` needs one graph",
                hint="pass `--server URL` of a server of the cluster, or `--store URI`",
            )
        return _of_cluster(ctx, scope.target, given.graph or scope.graph)
    _refuse_graph(given, scope.origin)
    # A shell expands `~` in an argument; in a file it is expanded here.
    is_home = scope.target.startswith("~/")
    return storage_target(str(Path(scope.target).expanduser()) if is_home else scope.target)


def cluster_place(ctx: typer.Context, name_or_place: str) -> str:
    """The directory or storage root of a cluster, given by name or by place."""
    if _SCHEME.match(name_or_place) or Path(name_or_place).exists():
        return name_or_place
    root = config_of(ctx).cluster_root(name_or_place)
    return str(Path(root).expanduser()) if root.startswith("~/") else root


def cluster_of(ctx: typer.Context) -> str | None:
    """The cluster that the running command addresses by `--cluster` or by a profile, if any."""
    named = Given.of(ctx).cluster
    scope = None if named is not None else _scope(ctx)
    if scope is not None and scope.kind == "cluster":
        named = scope.target
    return None if named is None else cluster_place(ctx, named)


def _of_cluster(ctx: typer.Context, name_or_place: str, graph_id: str | None) -> Target:
    """A graph that was applied to a cluster; without an id, its only graph."""
    from omnigraph.cluster.serving import applied_graph_uri

    return Target(applied_graph_uri(cluster_place(ctx, name_or_place), graph_id))


def require_unmanaged(target: Target | ServedTarget) -> None:
    """Raise `ClusterRefused` if the graph's schema is managed by a cluster."""
    # The cluster's ledger is read only for URIs of the form that clusters use.
    if isinstance(target, Target) and _IN_CLUSTER.search(target.uri):
        from omnigraph.cluster.serving import require_unmanaged as require

        require(target.uri)


def server_target(
    ctx: typer.Context, name_or_url: str, graph: str | None, origin: str
) -> ServedTarget:
    """A server by its URL, or by its name in the configuration."""
    if _SCHEME.match(name_or_url) is None:
        return ServedTarget(config_of(ctx).server_url(name_or_url), graph, origin)
    return ServedTarget(name_or_url, graph, origin)


def _refuse_graph(given: Given, origin: str) -> None:
    if given.graph is not None:
        raise UsageError(
            f"{origin} is already a single graph, and `--graph` picks one of several",
            hint="leave `--graph` out",
        )


def _misplaced_path(ctx: typer.Context) -> str | None:
    """A hint if the name of a query is really the URI or directory of a graph; else None."""
    name = ctx.params.get("name")
    if isinstance(name, str) and (_SCHEME.match(name) or Path(name).is_dir()):
        return f"a graph is named by a flag here: `--store {name}`"
    return None


def _name_of(ctx: typer.Context) -> str:
    return ctx.command_path.removeprefix("omnigraph ")
