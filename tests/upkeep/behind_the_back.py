"""What others may do to the tables of a graph without telling it."""

from __future__ import annotations

import omnigraph as og
from omnigraph.storage.datasets import Handle


def table(graph: og.Graph, type_key: str, branch: str = "main") -> Handle:
    """The newest version of a table, as Lance itself opens it."""
    reader = graph._opened.reader(branch)
    where = reader.where(reader.snapshot.table(type_key))
    return graph._kernel.lance.open(where)


def compacted(graph: og.Graph, type_key: str, branch: str = "main") -> None:
    """Somebody let Lance compact a table of several fragments."""
    handle = table(graph, type_key, branch)
    before = handle.version
    handle.optimize.compact_files()
    assert table(graph, type_key, branch).version > before


def deleted(
    graph: og.Graph, type_key: str, where: str = "id IS NOT NULL", branch: str = "main"
) -> None:
    """Somebody deleted rows."""
    table(graph, type_key, branch).delete(where)
