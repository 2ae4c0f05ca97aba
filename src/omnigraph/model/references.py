"""References to nodes, at the ends of edges that may end at nodes of several types.

Ids are unique per type only. An edge type with an interface at an end stores, in `src` or `dst`,
the number of the node's type and its id: `12:p1`. These numbers do not depend on type names, so a
rename changes no edge. With the prefix, everything that compares ends (keys, counts, indexes,
changes and merges) distinguishes two nodes with the same id.

A record may give the id alone. Until its type is looked up, the prefix is empty: `:p1`. If nodes of
several types have that id, the prefix lists all of them: `12,15:p1`. Neither is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.model.arrow import DST, SRC
from omnigraph.model.ids import REFERENCE_SEPARATOR
from omnigraph.model.records import dataclass

END_TYPES = {SRC: "src_type", DST: "dst_type"}
"""The columns with the type at each end, in tables and objects that show such edges."""
RECORD_END_TYPES = {SRC: "from_type", DST: "to_type"}
"""The same in records."""

_PREFIX = r"^[0-9,]*:"
_PARTS = r"^(?P<type>[0-9,]*):(?P<id>(?s:.*))$"

Column: TypeAlias = "pa.Array | pa.ChunkedArray"


UNRESOLVED = REFERENCE_SEPARATOR
"""The prefix of an id whose type has not been looked up."""


def qualified(ids: Column, prefix: str) -> Column:
    """Ids as references with one prefix; with an empty prefix they stay ids."""
    if not prefix:
        return ids
    return pc.binary_join_element_wise(prefix, ids, "")


def ids_in(references: Column) -> Column:
    """The ids of references, without the prefix."""
    return pc.replace_substring_regex(references, pattern=_PREFIX, replacement="")


def with_prefix(references: Column, prefix: str) -> Column:
    """Which references have this prefix."""
    return pc.starts_with(references, pattern=prefix)


def are_settled(references: Column) -> Column:
    """Which references name exactly one type."""
    return pc.match_substring_regex(references, pattern=r"^[0-9]+:")


def id_in(reference: str) -> str:
    """The id of one reference."""
    return reference.partition(REFERENCE_SEPARATOR)[2]


def type_names_in(references: Column, names: Mapping[int, str]) -> Column:
    """The names of the types of references, from their numbers."""
    prefixes = pc.struct_field(pc.extract_regex(references, pattern=_PARTS), "type")
    numbers = pa.array([str(number) for number in names], pa.string())
    shown = pa.array(list(names.values()), pa.string())
    return shown.take(pc.index_in(prefixes, value_set=numbers)) if len(names) else prefixes


def resolved(references: Column, existing: Mapping[int, Callable[[pa.Array], Column]]) -> Column:
    """References without a type, with the types of the nodes that have these ids.

    ``existing`` has for each type number a function that tells which ids exist. An id without a
    node keeps the empty prefix, and one of several types gets all their numbers.
    """
    is_open = with_prefix(references, UNRESOLVED)
    if not pc.any(is_open).as_py():
        return references
    texts = pc.unique(references.filter(is_open))
    ids = ids_in(texts)
    prefixes = pa.array([""] * len(ids), pa.string())
    for type_id, having in existing.items():
        there = pc.is_in(ids, value_set=_flat(having(ids)))
        first = pc.equal(prefixes, "")
        added = pc.if_else(
            first, str(type_id), pc.binary_join_element_wise(prefixes, f",{type_id}", "")
        )
        prefixes = pc.if_else(there, added, prefixes)
    known = pc.binary_join_element_wise(prefixes, texts, "")
    at = pc.index_in(references, value_set=texts)
    return pc.coalesce(known.take(at), references)


def _flat(column: Column) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


# --- edges as they are shown ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownEnds:
    """How the ends of an edge type are shown: as ids, and for an interface with type names."""

    prefixes: Mapping[str, Mapping[str, str]]
    """As in `EdgeType.end_types`."""

    @classmethod
    def of(cls, type: object) -> ShownEnds:
        """The shown ends of a type; a node type has none."""
        return cls(getattr(type, "end_types", {}))

    @property
    def columns(self) -> list[str]:
        """The columns with type names."""
        return [END_TYPES[end] for end in (SRC, DST) if end in self.prefixes]

    def stored(self, column: str) -> str:
        """The stored column from which a shown one is computed."""
        for end in self.prefixes:
            if column == END_TYPES[end]:
                return end
        return column

    def column(self, name: str, rows: pa.Table | pa.RecordBatch) -> Column:
        """A shown column, computed from stored ones."""
        end = self.stored(name)
        if end not in self.prefixes:
            return rows[name]
        if name == end:
            return ids_in(rows[end])
        numbers = {
            int(prefix.removesuffix(REFERENCE_SEPARATOR)): type_name
            for type_name, prefix in self.prefixes[end].items()
        }
        return type_names_in(rows[end], numbers)

    def references(self, end: str, ids: pa.Array) -> pa.Array:
        """The stored references that each shown id may stand for."""
        if end not in self.prefixes:
            return ids
        several = [_flat(qualified(ids, prefix)) for prefix in self.prefixes[end].values()]
        return pa.concat_arrays([pa.array([], pa.string()), *several])

    def schema(self, stored: pa.Schema) -> pa.Schema:
        """The schema of the shown columns."""
        fields: list[pa.Field] = []
        for field in stored:
            fields.append(field)
            if field.name in self.prefixes:
                fields.append(pa.field(END_TYPES[field.name], pa.string(), nullable=False))
        return pa.schema(fields)

    def table(self, rows: pa.Table) -> pa.Table:
        """Rows with ids at their ends, each followed by the type names if there are any."""
        for end in (SRC, DST):
            if end not in self.prefixes or end not in rows.column_names:
                continue
            shown = self.column(END_TYPES[end], rows)
            at = rows.schema.get_field_index(end)
            rows = rows.set_column(at, rows.schema.field(at), self.column(end, rows))
            if END_TYPES[end] not in rows.column_names:
                rows = rows.add_column(at + 1, pa.field(END_TYPES[end], pa.string()), shown)
        return rows
