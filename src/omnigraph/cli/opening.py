"""From the arguments of a command to an open graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.addressing import resolve
from omnigraph.cli.output import output_of
from omnigraph.cli.safety import announce, require_consent

if TYPE_CHECKING:
    from omnigraph.graph import Graph


def open_to_read(ctx: typer.Context, uri: str | None = None) -> Graph:
    """The graph the command addresses; nothing is written to it, not even by recovery."""
    from omnigraph.graph import open_graph

    return open_graph(resolve(ctx, uri).uri, "read_only")


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
    from omnigraph.graph import open_graph

    target = resolve(ctx, uri)
    announce(output_of(ctx), verb, target)
    if destructive is not None:
        require_consent(ctx, destructive, target)
    return open_graph(target.uri, settle=settle, external_blobs=external_blobs)
