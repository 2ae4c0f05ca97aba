"""From the arguments of a command to an open graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.addressing import resolve
from omnigraph.cli.interrupts import INTERRUPTS
from omnigraph.cli.output import output_of
from omnigraph.cli.safety import announce, require_consent

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.graph.opening import OpenMode


def open_to_read(ctx: typer.Context, uri: str | None = None) -> Graph:
    """The graph the command addresses; nothing is written to it, not even by recovery."""
    return opened(resolve(ctx, uri).uri, "read_only")


def open_to_write(
    ctx: typer.Context,
    verb: str,
    uri: str | None = None,
    *,
    destructive: str | None = None,
    settle: bool = True,
    external_blobs: Iterable[str] = (),
) -> Graph:
    """The graph the command addresses, after saying so.

    ``destructive`` names what may remove something, and is then asked about. ``settle`` is for the
    command that reports itself what interrupted writes left behind. ``external_blobs`` are the
    folders whose objects the command may name.
    """
    target = resolve(ctx, uri)
    announce(output_of(ctx), verb, target)
    if destructive is not None:
        require_consent(ctx, destructive, target)
    return opened(target.uri, settle=settle, external_blobs=external_blobs)


def opened(
    uri: str,
    mode: OpenMode = "read_write",
    *,
    settle: bool = True,
    external_blobs: Iterable[str] = (),
) -> Graph:
    """An open graph, unless somebody wanted to stop while the libraries for it were loaded."""
    from omnigraph.graph import open_graph

    graph = open_graph(uri, mode, settle=settle, external_blobs=external_blobs)
    INTERRUPTS.heed()
    return graph
