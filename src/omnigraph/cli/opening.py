"""Opening the graph that a command addresses: in storage, or behind a server.

Prints the target of a write, and asks for consent before a destructive one.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.addressing import ServedTarget, Target, actor_of, config_of, resolve, resolve_any
from omnigraph.cli.failures import UsageError
from omnigraph.cli.options import DEFAULT_BRANCH, Given
from omnigraph.cli.output import Output, Styled, output_of
from omnigraph.errors import Denied, InputError, NotFound, Unauthenticated

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph
    from omnigraph.graph.opening import OpenMode


class Interrupts:
    """Remembers Ctrl-C that arrives while libraries are imported.

    Compiled modules may swallow a `KeyboardInterrupt` that is raised while they are imported, and
    the command would then run to its end. So the interrupt is recorded, and raised again before the
    command starts its work.
    """

    def __init__(self) -> None:
        self._asked = False

    def install(self) -> None:
        """Record interrupts from now on, besides raising them as Python does."""
        self._asked = False
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupted)

    def raise_pending(self) -> None:
        """Raise an interrupt that was swallowed during an import, if there was one."""
        if self._asked:
            raise KeyboardInterrupt

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        signal.default_int_handler(number, frame)


INTERRUPTS = Interrupts()
"""The instance of this process."""


def open_to_read(ctx: typer.Context) -> Graph:
    """Open the addressed graph in storage read-only, without recovery."""
    return _opened(resolve(ctx).uri, "read_only")


def open_to_write(
    ctx: typer.Context,
    verb: str,
    *,
    destructive: str | None = None,
    settle: bool = False,
) -> Graph:
    """Open the addressed graph in storage, after printing the target.

    ``destructive`` describes the removal to ask consent for. With ``settle=False``, opening runs no
    recovery: the command does it and reports the outcome.
    """
    target = resolve(ctx)
    announce(ctx, verb, target, destructive)
    return _opened(target.uri, settle=settle)


def _opened(
    uri: str,
    mode: OpenMode = "read_write",
    *,
    settle: bool = True,
    external_blobs: Iterable[str] = (),
) -> Graph:
    """Open a graph; raises an interrupt that was swallowed while its libraries were imported."""
    from omnigraph.graph import open_graph

    graph = open_graph(uri, mode, settle=settle, external_blobs=external_blobs)
    INTERRUPTS.raise_pending()
    return graph


def announce(
    ctx: typer.Context, verb: str, target: Target | ServedTarget, destructive: str | None
) -> None:
    """Print the target of a write, unless `--quiet`, and ask before a destructive one."""
    output = output_of(ctx)
    if not output.quiet:
        output.note(Styled(f"omnigraph {verb} → {target} ({_place(target)})", "dim"))
    if destructive is not None:
        _require_consent(ctx, destructive, target)


def _place(target: Target | ServedTarget) -> str:
    if isinstance(target, ServedTarget):
        return "served"
    return "direct, local" if target.is_local else "direct, remote"


def _require_consent(ctx: typer.Context, action: str, target: Target | ServedTarget) -> None:
    """Ask for consent to a destructive write on shared storage.

    Raises `InputError` without consent; nothing has been read or written by then.
    """
    if target.is_local or Given.of(ctx).yes:
        return
    output = output_of(ctx)
    if output.failures_as_json or not _is_interactive(output):
        raise InputError(f"`{action}` on {target} needs consent", hint="pass `--yes` to give it")
    output.ask(f"`{action}` on {target}. Continue? [y/N] ")
    # Read bytes, because data may follow on the same stream.
    answer = sys.stdin.buffer.readline().decode(errors="replace").strip().lower()
    if answer not in ("y", "yes"):
        raise InputError("without consent, nothing was done")


def _is_interactive(output: Output) -> bool:
    # stdin is None if the process was started with it closed.
    return bool(sys.stdin and sys.stdin.isatty() and output.stderr.isatty())


TIMEOUT_SECONDS = 600.0
"""Timeout of each request: long enough for a large load or merge; Ctrl-C ends it."""

NO_FLAGS: Mapping[str, bool] = {}


def graph_to_read(
    ctx: typer.Context,
    *,
    only_stored: Mapping[str, bool] = NO_FLAGS,
    stored_query: str | None = None,
) -> Graph | RemoteGraph:
    """Open the addressed graph to read.

    ``only_stored`` are flags that no server supports, and whether they were given. ``stored_query``
    names a stored query, which only a server has.
    """
    target = resolve_any(ctx)
    _require_place(target, only_stored, stored_query)
    if isinstance(target, ServedTarget):
        return connected(ctx, target)
    return _opened(target.uri, "read_only")


def graph_to_write(
    ctx: typer.Context,
    verb: str,
    *,
    destructive: str | None = None,
    external_blobs: Iterable[str] = (),
    only_stored: Mapping[str, bool] = NO_FLAGS,
    stored_query: str | None = None,
) -> Graph | RemoteGraph:
    """Open the addressed graph to write, after printing the target; see `announce`."""
    target = resolve_any(ctx)
    folders = tuple(external_blobs)
    _require_place(target, {"--external-blobs": bool(folders), **only_stored}, stored_query)
    if isinstance(target, ServedTarget) and Given.of(ctx).actor is not None:
        raise UsageError(
            "`--as` names the actor of a write to storage, and a server knows who writes",
            hint="leave it out: the token decides",
        )
    announce(ctx, verb, target, destructive)
    if isinstance(target, ServedTarget):
        return connected(ctx, target)
    graph = _opened(target.uri, external_blobs=folders)
    return graph.on_branch(DEFAULT_BRANCH, actor=actor_of(ctx))


def connected(
    ctx: typer.Context, target: ServedTarget, timeout_seconds: float = TIMEOUT_SECONDS
) -> RemoteGraph:
    """The graph behind a server; closed when the command ends."""
    from omnigraph.client import Patience, connect
    from omnigraph.client.exchange import Address

    address = Address.parse(target.url, target.graph)
    token = token_of(ctx, address.base)
    if address.graph_id is None:
        _require_graph(address.base, token)
    patience = Patience(repeats_writes=False)
    graph = connect(address.base, token, timeout_seconds, patience=patience)
    ctx.call_on_close(graph.close)
    return graph


def token_of(ctx: typer.Context, url: str) -> str | None:
    """The token for a URL, from the environment, the token file or the keychain."""
    from omnigraph.cli.login import token_for

    return token_for(url, config_of(ctx), output_of(ctx).environment)


def _require_graph(url: str, token: str | None) -> None:
    """Raise `UsageError` asking for `--graph`, if the server lists its graphs.

    A server that does not list them may serve a single graph at this URL.
    """
    from omnigraph.client import list_graphs

    try:
        graphs = list_graphs(url, token)
    except (Denied, NotFound, Unauthenticated):
        return
    if graphs:
        ids = ", ".join(graph.graph_id for graph in graphs)
        raise UsageError(f"{url} serves graphs, and none was picked", hint=f"pass `--graph`: {ids}")


def _require_place(
    target: Target | ServedTarget, only_stored: Mapping[str, bool], stored_query: str | None
) -> None:
    """Raise `UsageError` for flags that need storage, or a stored query that needs a server."""
    if isinstance(target, Target) and stored_query is not None:
        otherwise = "pass `--server URL`, or give its text with `--query FILE.gq` or `-e TEXT`"
        raise UsageError(
            f"running the stored query `{stored_query}` needs a server",
            hint=f"a file has a flag: `--query {stored_query}`"
            if stored_query.endswith(".gq")
            else otherwise,
        )
    for flag, is_given in only_stored.items():
        if is_given and isinstance(target, ServedTarget):
            raise UsageError(
                f"`{flag}` needs the storage of a graph, and {target} is served",
                hint="leave it out, or address the graph with `--store URI`",
            )
