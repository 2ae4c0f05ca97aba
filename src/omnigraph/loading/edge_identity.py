"""Which committed edge a record of a merge load updates: the one with its id, or with its key.

Edges of a type with `@key(src, dst, …)` are matched by that key if their records have no ids; a
committed edge keeps its id. For a type without a key, a merge needs ids: without them every
repetition of the load would add parallel edges, so it is refused.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.evaluation import KeyColumns
from omnigraph.errors import InputError
from omnigraph.model.arrow import ID, spell_column
from omnigraph.schema.catalog import EdgeType, TableType


def match_columns(type: TableType, *, has_ids: bool) -> tuple[str, ...]:
    """The columns by which records of a merge are matched with committed rows."""
    if isinstance(type, EdgeType) and type.key_columns and not has_ids:
        return type.key_columns
    return (ID,)


def check_edge_ids(type: TableType, *, has_ids: bool, lacks_ids: bool) -> None:
    """Raise `InputError` if a merge cannot match records with committed edges.

    ``has_ids`` and ``lacks_ids``: whether there are records of the type with, and without an id.
    """
    if not isinstance(type, EdgeType) or not lacks_ids:
        return
    details = {"type": type.name}
    if not type.key_columns:
        raise InputError(
            f"a merge cannot tell which {type.name} edges are meant: they have no ids, and the "
            "type has no key, so that every repetition would add parallel edges",
            hint=f"declare `@key(src, dst)` in edge {type.name}, give the edges ids, "
            "or load new edges with mode append",
            details=details,
        )
    if has_ids:
        raise InputError(
            f"some {type.name} edges have ids and others not: a merge matches them by id, "
            "or by their key",
            hint="give all of them ids or none, or load the two kinds one after the other",
            details=details,
        )


def match_texts(
    type: TableType, columns: tuple[str, ...], rows: pa.Table | pa.RecordBatch
) -> pa.StringArray:
    """A text per row, equal for equal values of ``columns``; null if one of them is null."""
    of = KeyColumns.of(type, "written", columns)
    members = []
    for name, value_type in zip(of.columns, of.types, strict=True):
        column = rows[name]
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        members.append(spell_column(column, value_type))
    if len(members) == 1:
        return members[0]
    # Lengths first, so that different members cannot join to the same text.
    lengths = [pc.binary_length(member).cast(pa.string()) for member in members[:-1]]
    return pc.binary_join_element_wise(*lengths, *members, ",")
