"""Arrow tables into a graph, where a load puts them after reading its input.

Reading two million edges from JSON lines would take longer than everything that is measured. The
rest is what every write does: one commit, one Lance transaction per table, the same validator.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import ChangeSet, Intent, TableChange
from omnigraph.commit.validation import validate
from omnigraph.commit.write_path import Prepared, WritePath
from omnigraph.effects.uri import Root
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, table_schema
from omnigraph.storage.layout import MAIN


def write(path: Path, changes: Sequence[TableChange], branch: str = MAIN) -> None:
    """Publish changes of several tables as one commit."""
    kernel = Kernel.of(Root.parse(path))

    def prepare(capture: Capture, catalog: Catalog) -> Prepared[None]:
        change_set = ChangeSet({each.table_key: _typed(each, catalog) for each in changes})
        validate(change_set, catalog, capture.reader)
        return Prepared(change_set, None, Intent("Load", "load"))

    WritePath(kernel).write(
        branch, prepare, kind="load", accepted=kernel.accepted_schema(), may_prepare_again=False
    )


def _typed(change: TableChange, catalog: Catalog) -> TableChange:
    """The same change with its columns in the order and types of the table."""
    if change.kind == "delete":
        return change
    types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
    schema = table_schema(next(type for type in types if type.table_key == change.table_key))
    return TableChange(change.table_key, change.kind, change.rows.select(schema.names).cast(schema))
