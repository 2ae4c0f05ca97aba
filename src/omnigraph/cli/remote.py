"""From the arguments of a command to a graph, wherever it is: in storage or behind a server.

Commands that a server offers begin here and do not look any further: both kinds of graph have the
same verbs. What only one of them can do is refused here, before anything is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.addressing import ServedTarget, config_of, resolve_any
from omnigraph.cli.failures import UsageError
from omnigraph.cli.global_flags import Given
from omnigraph.cli.opening import opened
from omnigraph.cli.output import output_of
from omnigraph.cli.safety import announce, require_consent
from omnigraph.errors import Denied, NotFound, Unauthenticated

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph

TIMEOUT_SECONDS = 600.0
"""Of each wait: a large load or merge takes its time, and somebody sits at the keyboard."""

NO_FLAGS: Mapping[str, bool] = {}


def graph_to_read(
    ctx: typer.Context,
    uri: str | None = None,
    *,
    only_stored: Mapping[str, bool] = NO_FLAGS,
    stored_query: str | None = None,
) -> Graph | RemoteGraph:
    """The graph the command addresses; nothing is written to it.

    ``only_stored`` are flags that no server understands, and whether they were given.
    ``stored_query`` is the query a server is to run by its name, which only a server can.
    """
    target = resolve_any(ctx, uri)
    if isinstance(target, ServedTarget):
        _refuse(only_stored, target)
        return connected(ctx, target)
    _require_server(stored_query)
    return opened(target.uri, "read_only")


def graph_to_write(
    ctx: typer.Context,
    verb: str,
    uri: str | None = None,
    *,
    destructive: str | None = None,
    external_blobs: Iterable[str] = (),
    only_stored: Mapping[str, bool] = NO_FLAGS,
    stored_query: str | None = None,
) -> Graph | RemoteGraph:
    """The graph the command addresses, after saying so; ``destructive`` is asked about first."""
    target = resolve_any(ctx, uri)
    if isinstance(target, ServedTarget):
        flags = {"--external-blobs": bool(tuple(external_blobs)), **only_stored}
        _refuse(flags, target)
        if Given.of(ctx).actor is not None:
            raise UsageError(
                "`--as` names the actor of a write to storage, and a server knows who writes",
                hint="leave it out: the token decides",
            )
    else:
        _require_server(stored_query)
    announce(output_of(ctx), verb, target)
    if destructive is not None:
        require_consent(ctx, destructive, target)
    if isinstance(target, ServedTarget):
        return connected(ctx, target)
    return opened(target.uri, external_blobs=external_blobs)


def writer_of(ctx: typer.Context, graph: Graph | RemoteGraph) -> str | None:
    """Who writes: said or configured for a graph in storage; by the token behind a server."""
    from omnigraph.cli.addressing import actor_of
    from omnigraph.client import RemoteGraph

    return None if isinstance(graph, RemoteGraph) else actor_of(ctx)


def connected(ctx: typer.Context, target: ServedTarget) -> RemoteGraph:
    """The graph behind a server; closed when the command ends."""
    from omnigraph.client import connect
    from omnigraph.client.exchange import Address
    from omnigraph.client.patience import Patience

    address = Address.parse(target.url, target.graph)
    token = token_of(ctx, address.base)
    if address.graph_id is None:
        _require_graph(address.base, token)
    patience = Patience(repeats_writes=False)
    graph = connect(address.base, token, TIMEOUT_SECONDS, patience=patience)
    ctx.call_on_close(graph.close)
    return graph


def token_of(ctx: typer.Context, url: str) -> str | None:
    """The token for a URL, from the places where this user keeps tokens."""
    from omnigraph.cli.tokens import token_for

    return token_for(url, config_of(ctx), output_of(ctx).environment)


def _require_graph(url: str, token: str | None) -> None:
    """Ask which graph is meant, if the server tells which there are.

    One that does not is taken as it is: it may serve a single graph below this very URL.
    """
    from omnigraph.client import list_graphs

    try:
        graphs = list_graphs(url, token)
    except (Denied, NotFound, Unauthenticated):
        return
    if graphs:
        ids = ", ".join(graph.graph_id for graph in graphs)
        raise UsageError(f"{url} serves graphs, and none was picked", hint=f"pass `--graph`: {ids}")


def _refuse(flags: Mapping[str, bool], target: ServedTarget) -> None:
    for flag, is_given in flags.items():
        if is_given:
            raise UsageError(
                f"`{flag}` needs the storage of a graph, and {target} is served",
                hint="leave it out, or address the graph with `--store URI`",
            )


def _require_server(stored_query: str | None) -> None:
    if stored_query is not None:
        raise UsageError(
            f"running the stored query `{stored_query}` needs a server",
            hint="pass `--server URL`, or give its text with `--query FILE.gq` or `-e TEXT`",
        )
