"""A new graph with all rows, or none.

On local disk the graph is built beside its place, under a name that begins with a dot, and renamed
when it is complete. A process that is killed leaves only that folder. Object stores cannot rename:
there the graph is built in its place, and what was written is removed if anything fails.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omnigraph.commit.kernel import Kernel
from omnigraph.effects.local_disk import flush_directory
from omnigraph.effects.uri import Root
from omnigraph.errors import AlreadyInitialized, InputError, NotFound
from omnigraph.graph import Graph, init, open_graph
from omnigraph.model.receipts import LoadReceipt

_HINT = "choose another place; `omnigraph load` adds to a graph that exists"


def create_graph(
    uri: str, schema: str, load: Mapping[str, Any], *, actor: str | None
) -> tuple[Graph, LoadReceipt]:
    """The graph at ``uri``, and the receipt of its first load; ``load`` are arguments of that."""
    root = Root.parse(uri)
    if root.path is None:
        return _built_in_place(root, schema, load, actor)
    target = root.path
    _require_vacant(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.{Kernel.of(root).ids.ulid()}.importing")
    try:
        graph, receipt = _loaded(str(staged), schema, load, actor)
        graph.close()
        staged.replace(target)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    flush_directory(target.parent)
    return open_graph(uri), receipt


def _built_in_place(
    root: Root, schema: str, load: Mapping[str, Any], actor: str | None
) -> tuple[Graph, LoadReceipt]:
    store = Kernel.of(root).store
    if store.list():
        raise AlreadyInitialized(f"{root} holds objects already", hint=_HINT)
    try:
        return _loaded(root.uri, schema, load, actor)
    except BaseException:
        for name in store.list():
            store.delete(name)
        raise


def _loaded(
    uri: str, schema: str, load: Mapping[str, Any], actor: str | None
) -> tuple[Graph, LoadReceipt]:
    graph = init(uri, schema, actor=actor)
    return graph, graph.load(mode="append", actor=actor, **load)


def _require_vacant(target: Path) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        open_graph(target, "read_only")
    except NotFound:
        raise InputError(
            f"{target} is there already, and is no graph", hint="choose another place"
        ) from None
    raise AlreadyInitialized(f"{target} already holds a graph", hint=_HINT)
