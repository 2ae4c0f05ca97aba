"""Evaluating constraints: finds values and keys that break one, and the rows with these keys.

The same code runs for the change set of a mutation, a merge or a small load, and for the parts of a
bulk load, in threads or Spark workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.constraints import (
    NO_RECORD,
    ROLES,
    Endpoint,
    Holder,
    KeyConstraint,
    Role,
    ValueConstraint,
    Violation,
    value_constraints,
)
from omnigraph.model.arrow import ID, entity_id_column, spell_column
from omnigraph.model.records import dataclass
from omnigraph.model.references import (
    UNRESOLVED,
    Column,
    are_settled,
    ids_in,
    resolved,
    with_prefix,
)
from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, TableType
from omnigraph.storage.reader import SnapshotReader

_TEXT = ValueType(Scalar.STRING)
_JOIN_KEYS = 10_000
"""From so many keys on, a join is faster than single lookups."""

# --- single values --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokenValue:
    """A value that breaks a constraint of its property."""

    row: int
    property: str
    order: int
    """The index of the constraint among those of the type."""
    message: str


def broken_values(type: TableType, rows: pa.Table | pa.RecordBatch) -> list[BrokenValue]:
    """Every value of some rows that breaks a constraint of its property."""
    return values_breaking(value_constraints(type), rows)


def values_breaking(
    constraints: Iterable[ValueConstraint], rows: pa.Table | pa.RecordBatch
) -> list[BrokenValue]:
    """Every value of some rows that breaks one of ``constraints``."""
    found = []
    for order, constraint in enumerate(constraints):
        column = rows[constraint.property]
        broken = constraint.broken(column)
        if not pc.any(broken).as_py():
            continue
        at = pc.indices_nonzero(pc.fill_null(broken, False)).to_pylist()
        for row, value in zip(at, column.filter(broken).to_pylist(), strict=True):
            message = constraint.message(value)
            found.append(BrokenValue(row, constraint.property, order, message))
    return found


# --- keys -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns that give rows of a table their keys, and the role of the rows."""

    role: Role
    columns: tuple[str, ...]
    types: tuple[ValueType, ...]
    member: str
    """The name for messages: `Type.column`."""
    prefix: str = ""
    """For an end at an interface: only references with this prefix have keys, which are the ids
    after it. `UNRESOLVED` stands for all references that do not resolve to one node."""

    @classmethod
    def of(
        cls, type: TableType, role: Role, columns: Sequence[str], prefix: str = ""
    ) -> KeyColumns:
        """Key columns of properties, endpoints or the id of a type."""
        types = tuple(
            type.properties[name].type if name in type.properties else _TEXT for name in columns
        )
        return cls(role, tuple(columns), types, f"{type.name}.{columns[0]}", prefix)


def keys_of(
    of: KeyColumns, rows: pa.Table | pa.RecordBatch, minted_prefix: str | None = None
) -> tuple[pa.Array, pa.Array | None]:
    """The keys of rows, and the positions of the rows with a key; None for all rows.

    A row with a null or a NaN among the columns has no key. Ids with ``minted_prefix`` are left
    out: they were minted for this write, so no other row has them.
    """
    if of.prefix:
        return _reference_keys(of, rows)
    members = [_spelled(rows[name], type) for name, type in zip(of.columns, of.types, strict=True)]
    exempt = [pc.is_null(member) for member in members if member.null_count]
    if minted_prefix is not None:
        exempt.append(pc.starts_with(members[0], minted_prefix))
    if not exempt or not pc.any(left_out := reduce(pc.or_kleene, exempt)).as_py():
        return entity_id_column(members), None
    at = pc.indices_nonzero(pc.invert(left_out))
    return entity_id_column([member.take(at) for member in members]), at


def _reference_keys(
    of: KeyColumns, rows: pa.Table | pa.RecordBatch
) -> tuple[pa.Array, pa.Array | None]:
    """The ids in references with the prefix, and the positions of these references."""
    (name,) = of.columns
    references = rows[name]
    if isinstance(references, pa.ChunkedArray):
        references = references.combine_chunks()
    if of.prefix == UNRESOLVED:
        at = pc.indices_nonzero(pc.invert(are_settled(references)))
        return references.take(at), at
    at = pc.indices_nonzero(with_prefix(references, of.prefix))
    return ids_in(references.take(at)), at


def _spelled(column: pa.Array | pa.ChunkedArray, type: ValueType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not type.scalar.is_float:
        return spell_column(column, type)
    finite = pc.is_finite(column)
    if pc.all(finite, min_count=0).as_py():
        return spell_column(column, type)
    # NaN does not equal itself, so its row has no key; infinity has no canonical spelling.
    texts = spell_column(pc.if_else(finite, column, pa.scalar(None, column.type)), type)
    return pc.if_else(pc.is_inf(column), column.cast(pa.string()), texts)


def count_batch(keys: pa.Array, counts: Mapping[Role, pa.Array]) -> pa.RecordBatch:
    """Keys with the number of their rows in a column per role."""
    none = pa.repeat(pa.scalar(0, pa.int64()), len(keys))
    columns = [counts.get(role, none) for role in ROLES]
    return pa.RecordBatch.from_arrays([keys, *columns], names=["key", *ROLES])


_NO_KEYS = count_batch(pa.nulls(0, pa.string()), {})


def broken_keys(constraint: KeyConstraint, keys: dict[Role, pa.ChunkedArray]) -> pa.RecordBatch:
    """The keys that break a constraint, with their counts; ``keys`` are those of all rows.

    Empties ``keys``, to free memory: there may be millions of keys.
    """
    if constraint.needs_repeats and are_distinct(keys.values()):
        return _NO_KEYS
    counts = {role: pc.value_counts(keys.pop(role)) for role in list(keys)}
    # Keys that only committed rows have cannot be broken.
    touched = [count for role, count in counts.items() if role != "committed" and len(count)]
    if not touched:
        return _NO_KEYS
    found = touched[0].field("values")
    if len(touched) > 1:
        several = [count.field("values") for count in touched]
        found = pc.unique(pa.chunked_array(several, pa.string()))
    batch = count_batch(
        found,
        {
            # Common case: only one role has keys, in the same order.
            role: count.field("counts")
            if len(touched) == 1 and count is touched[0]
            else _counts_at(found, count)
            for role, count in counts.items()
        },
    )
    return batch.filter(constraint.broken(batch))


def _counts_at(keys: pa.Array, counts: pa.StructArray) -> pa.Array:
    if not len(counts):
        return pa.repeat(pa.scalar(0, pa.int64()), len(keys))
    at = pc.index_in(keys, value_set=counts.field("values"))
    return pc.fill_null(counts.field("counts").take(at), 0)


def missing_ends(
    constraint: Endpoint, ends: Iterable[pa.ChunkedArray], known: pa.ChunkedArray
) -> pa.RecordBatch:
    """The keys of ``ends`` that are not among ``known``, with their counts."""
    missing = [keys for some in ends for keys in _without(some, known).chunks]
    if not missing:
        return _NO_KEYS
    counts = pc.value_counts(pa.chunked_array(missing, pa.string()))
    batch = count_batch(counts.field("values"), {"endpoint": counts.field("counts")})
    return batch.filter(constraint.broken(batch))


def _without(keys: pa.ChunkedArray, known: pa.ChunkedArray) -> pa.ChunkedArray:
    """The keys that are not among ``known``."""
    if len(keys) < _JOIN_KEYS:
        return keys.filter(pc.invert(pc.is_in(keys, value_set=known.combine_chunks())))
    left, right = in_one_width(keys), in_one_width(known)
    if left is None or right is None or left.type != right.type:
        left, right = keys, known
    # A join is several times as fast as single lookups.
    missing = pa.table({"key": left}).join(pa.table({"key": right}), "key", join_type="left anti")
    return missing["key"] if left is keys else missing["key"].cast(pa.binary()).cast(pa.string())


def in_one_width(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Texts of equal length as fixed-width values, which are joined twice as fast; no copy.

    None for texts of several lengths, such as names; UUIDs, ULIDs and zero-padded numbers have one
    length.
    """
    wide: list[pa.Array] = []
    width = 0
    for chunk in texts.chunks:
        if not len(chunk):
            continue
        _, offsets, values = chunk.buffers()
        at = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        width = width or int(at[1] - at[0])
        if not width or chunk.null_count or (np.diff(at) != width).any():
            return None
        bytes_of_chunk = values.slice(int(at[0]), width * len(chunk))
        wide.append(
            pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(width), len(chunk), [None, bytes_of_chunk]
            )
        )
    return pa.chunked_array(wide, pa.binary(width)) if wide else None


def are_distinct(several: Iterable[pa.ChunkedArray]) -> bool:
    """Whether all texts are certainly distinct.

    Equal texts have equal fingerprints, so distinct fingerprints imply distinct texts. Sorting
    fingerprints takes a fraction of the time of counting texts.
    """
    found = [fingerprints(chunk) for texts in several for chunk in texts.chunks]
    prints = np.concatenate([np.zeros(0, np.uint64), *found])
    prints.sort()
    return not (prints[1:] == prints[:-1]).any()


# --- fingerprints ---------------------------------------------------------------------------------

Prints = npt.NDArray[np.uint64]

_WORD = 8
_LONG = 2 * _WORD
"""Up to so many bytes, the first and the last word of a text contain all of it."""

_KEEP = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
"""By number of bytes: the mask that keeps so many bytes of a word."""

_SPREAD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
"""Odd multipliers for hashing, which propagate differences to the high bits."""


def fingerprints(texts: pa.StringArray) -> Prints:
    """A 64-bit hash of each text."""
    if not len(texts):
        return np.zeros(0, np.uint64)
    _, offsets, values = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    raw = np.frombuffer(values, np.uint8) if values is not None else np.zeros(0, np.uint8)
    sizes = np.diff(ends)
    least, most = int(sizes.min()), int(sizes.max())
    if least < _WORD:
        # Words of short texts extend into the next text, or beyond the last one.
        raw = np.concatenate([raw[: ends[-1]], np.zeros(_WORD, np.uint8)])
    words = np.lib.stride_tricks.as_strided(raw[:_WORD].view("<u8"), (len(raw) - 7,), (1,))
    if _WORD <= least == most:
        return _prints_of_even(words[ends[0] :], most, len(texts))
    start = ends[:-1].astype(np.int64)
    first, last = words[start], words[start + np.maximum(sizes - _WORD, 0)]
    if least < _WORD:
        kept = _KEEP[np.minimum(sizes, _WORD)]
        first, last = first & kept, last & kept
    prints = _mixed(_mixed(sizes.astype(np.uint64), first), last)
    long = np.flatnonzero(sizes > _LONG)
    if len(long):
        third = (sizes[long] - _WORD) // 3
        inner = [words[start[long] + shift] for shift in (third, 2 * third)]
        prints[long] = _mixed(_mixed(prints[long], inner[0]), inner[1])
    return prints


def _prints_of_even(words: Prints, width: int, count: int) -> Prints:
    """`fingerprints` for texts of equal length, which needs no offsets."""
    third = (width - _WORD) // 3
    prints = np.full(count, width, np.uint64)
    for shift in (0, width - _WORD, *((third, 2 * third) if width > _LONG else ())):
        prints = _mixed(prints, words[shift::width][:count])
    return prints


def _mixed(prints: Prints, word: Prints) -> Prints:
    """Hashes mixed with a further word."""
    prints ^= word
    prints *= _SPREAD[0]
    prints ^= prints >> np.uint64(29)
    prints *= _SPREAD[1]
    return prints


# --- rows in memory -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Rows in memory with keys of a constraint: `id`, and the key columns."""

    of: KeyColumns
    rows: pa.Table
    is_kept: bool = False
    """Whether these are committed rows that the write does not change."""


def evaluate(
    constraint: KeyConstraint, rows: Sequence[KeyRows], *, by_record: bool = False
) -> list[Violation]:
    """All violations of a constraint; ``rows`` have all keys that concern it.

    ``by_record``: one violation for each record involved, as in `KeyConstraint`.
    """
    keyed = [(each, *keys_of(each.of, each.rows)) for each in rows]
    keys: dict[Role, pa.ChunkedArray] = {
        role: pa.chunked_array([found for each, found, _ in keyed if each.of.role == role])
        for role in {each.of.role for each in rows}
    }
    if isinstance(constraint, Endpoint):
        nothing = pa.chunked_array([], pa.string())
        there = [keys.get(role, nothing) for role in ("written", "committed", "refused")]
        known = pa.chunked_array([chunk for some in there for chunk in some.chunks], pa.string())
        broken = missing_ends(constraint, [keys.get("endpoint", nothing)], known)
    else:
        broken = broken_keys(constraint, keys)
    if not broken.num_rows:
        return []
    holders = _by_key(_holders(keyed, broken["key"]))
    if by_record:
        return [each for key, own in holders for each in constraint.by_record(key, own)]
    return list(constraint.explain(holders))


def _holders(
    keyed: Sequence[tuple[KeyRows, pa.Array, pa.Array | None]], broken: pa.Array
) -> list[tuple[str, Holder]]:
    """The rows with one of the broken keys."""
    found: list[tuple[str, Holder]] = []
    for each, keys, at in keyed:
        chosen = pc.indices_nonzero(pc.is_in(keys, value_set=broken))
        rows = chosen if at is None else at.take(chosen)
        ids = each.rows[ID].take(rows).to_pylist()
        is_record = not each.is_kept and each.of.role != "committed"
        for key, row, entity_id in zip(
            keys.take(chosen).to_pylist(), rows.to_pylist(), ids, strict=True
        ):
            record = (0, row) if is_record else NO_RECORD
            holder = Holder(each.of.role, entity_id, record, each.of.member, each.is_kept)
            found.append((key, holder))
    return found


def _by_key(found: list[tuple[str, Holder]]) -> Iterator[tuple[str, list[Holder]]]:
    found.sort(key=itemgetter(0))
    for key, rows in groupby(found, key=itemgetter(0)):
        yield key, [holder for _, holder in rows]


# --- ends at interfaces ---------------------------------------------------------------------------
#
# A record may refer to a node by id alone. Before edges are matched and checked, each such
# reference gets the type of the node with the id. An id that no node has, or nodes of several
# types, stays unresolved (`model.references`), and the endpoint constraint reports it.

Existing = Callable[[NodeType, pa.Array], Column]
"""Returns the given ids that nodes of a type have; may return further ids."""

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def with_resolved_ends(rows: Rows, edge: EdgeType, catalog: Catalog, existing: Existing) -> Rows:
    """Edges with node types added to references that resolve to one node."""
    for column in edge.end_types:
        name = edge.source if column == "src" else edge.target
        nodes = {node.type_id: node for node in catalog.node_types(name)}
        lookup = {number: partial(existing, node) for number, node in nodes.items()}
        known = resolved(rows[column], lookup)
        if known is not rows[column]:
            index = rows.schema.get_field_index(column)
            rows = rows.set_column(index, rows.schema.field(index), known)
    return rows


class ResultNodes:
    """The ids of the nodes after a write: written ones, and committed ones that stay."""

    def __init__(
        self,
        written: Mapping[str, Sequence[Column]],
        view: SnapshotReader,
        replaced: Collection[str] = (),
    ) -> None:
        """``written`` and ``replaced`` are by type key."""
        self._written = written
        self._view = view
        self._replaced = replaced

    def existing(self, node: NodeType, ids: pa.Array) -> Column:
        """The given ids that committed nodes of a type have, and all written ids."""
        key = node.table_key
        found = [c for column in self._written.get(key, ()) for c in _chunks(column)]
        if key not in self._replaced and not self._view.is_empty(key) and len(ids):
            found += self._view.rows_where_in(key, ID, pc.unique(ids), [ID])[ID].chunks
        return pa.chunked_array(found, pa.string())


def _chunks(column: Column) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
