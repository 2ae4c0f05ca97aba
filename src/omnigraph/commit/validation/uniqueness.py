"""`@unique` and `@key`: no two entities hold one tuple of values.

Values are compared as what they are, not as text: tuples are numbered by hashing the columns, so
that no choice of separators can make two of them collide. A null member, and a NaN, which equals
nothing, exempt an entity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.result_graph import ResultGraph
from omnigraph.commit.validation.violations import Violation, violation
from omnigraph.model.arrow import ID
from omnigraph.model.merging import ConflictKind
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import spell
from omnigraph.query.kernels import equal_members
from omnigraph.schema.catalog import EdgeType, NodeType

EXEMPT = -1
"""The number of a tuple that is not compared."""


@dataclass(frozen=True, slots=True)
class _Group:
    columns: tuple[str, ...]
    """Sorted, as messages print them."""
    is_key: bool


@dataclass(frozen=True, slots=True)
class _Clash:
    """A row whose tuple somebody else holds."""

    holder_id: str
    entity_id: str
    row: int
    is_committed: bool = False
    """Whether the holder is an entity the write does not touch."""


def check_uniqueness(
    type: NodeType | EdgeType, graph: ResultGraph, given: pa.Table | None
) -> list[Violation]:
    """Every written entity whose tuple is taken, by id; ``given`` is the input before folding."""
    rows = graph.written(type.table_key)
    found: dict[tuple[str, _Group], str] = {}
    for group in _groups(type):
        if given is not None and given is not rows:
            for clash in _repeated(given, group):
                found.setdefault((clash.entity_id, group), _message(type, group, given, clash))
        if rows is not None:
            for clash in _taken(type, rows, group, graph):
                # Two records of one batch were reported as such, in the order they came in.
                if given is None or given is rows or clash.is_committed:
                    found.setdefault((clash.entity_id, group), _message(type, group, rows, clash))
    ordered = sorted(found.items(), key=lambda item: (item[0][0], item[0][1].columns))
    return [
        violation(type, entity_id, ConflictKind.UNIQUE_VIOLATION, text)
        for (entity_id, _), text in ordered
    ]


def _groups(type: NodeType | EdgeType) -> list[_Group]:
    key = tuple(sorted(type.key)) if isinstance(type, NodeType) else ()
    groups = {tuple(sorted(columns)) for columns in type.unique} | ({key} if key else set())
    return [_Group(columns, columns == key) for columns in sorted(groups)]


def _repeated(rows: pa.Table, group: _Group) -> Iterator[_Clash]:
    """Records of one input that repeat a tuple, even for one and the same entity."""
    numbers, count = number_tuples([rows[name] for name in group.columns])
    rows_in_order = np.arange(len(numbers))
    # One place more than there are tuples: the last one, at `EXEMPT`, is for those without.
    first = np.zeros(count + 1, np.int64)
    # Assigned backwards, so that the first record of a tuple is the one that stays.
    first[numbers[::-1]] = rows_in_order[::-1]
    ids = rows[ID]
    for row in np.flatnonzero((numbers != EXEMPT) & (first[numbers] != rows_in_order)):
        yield _Clash(ids[first[numbers[row]]].as_py(), ids[row].as_py(), int(row))


def _taken(
    type: NodeType | EdgeType, rows: pa.Table, group: _Group, graph: ResultGraph
) -> Iterator[_Clash]:
    """Written rows whose tuple another entity of the result holds.

    The holder named is one that was there before, if there is any, and else the first by id.
    """
    columns = [rows[name] for name in group.columns]
    # The id of a keyed entity is its key, so a committed holder would be the entity itself.
    kept = None if group.is_key else _committed_holders(type, columns, group, graph)
    if kept is not None:
        columns = [
            pa.chunked_array([*column.chunks, *kept[name].chunks], column.type)
            for name, column in zip(group.columns, columns, strict=True)
        ]
    numbers, count = number_tuples(columns)
    written, committed = numbers[: rows.num_rows], numbers[rows.num_rows :]
    # One place more, at `EXEMPT`, which stays without holders.
    own_holders = np.bincount(written[written != EXEMPT], minlength=count + 1)
    is_clash = own_holders > 1
    committed_holders: dict[int, str] = {}
    if kept is not None:
        taking = np.flatnonzero(own_holders[committed])
        is_clash[committed[taking]] = True
        ids = kept[ID].take(pa.array(taking)).to_pylist()
        for number, entity_id in zip(committed[taking].tolist(), ids, strict=True):
            known = committed_holders.get(number, entity_id)
            committed_holders[number] = min(entity_id, known)
    clashing = np.flatnonzero(is_clash[written])
    ids = rows[ID].take(pa.array(clashing)).to_pylist()
    first: dict[int, str] = {}
    for entity_id, row in sorted(zip(ids, clashing.tolist(), strict=True)):
        number = int(written[row])
        if number in committed_holders:
            yield _Clash(committed_holders[number], entity_id, row, is_committed=True)
        elif first.setdefault(number, entity_id) != entity_id:
            yield _Clash(first[number], entity_id, row)


def _committed_holders(
    type: NodeType | EdgeType, columns: list[pa.ChunkedArray], group: _Group, graph: ResultGraph
) -> pa.Table | None:
    """Rows that stay and may hold one of the tuples: they share the member with most values."""
    is_compared = reduce(pc.and_, [pc.is_valid(column) for column in columns])
    members = [pc.unique(column.filter(is_compared)) for column in columns]
    at = max(range(len(members)), key=lambda i: len(members[i]))
    values = equal_members(members[at], members[at].type)
    return graph.kept_where_in(type.table_key, group.columns[at], values, group.columns)


def number_tuples(columns: Sequence[pa.ChunkedArray]) -> tuple[npt.NDArray[np.int64], int]:
    """A number for each row, equal for equal tuples, `EXEMPT` if a member is null; and how many.

    >>> numbers, count = number_tuples([pa.chunked_array([["a", "b", None, "a"]])])
    >>> numbers.tolist(), count
    ([0, 1, -1, 0], 2)
    """
    numbers, count = _number_values(columns[0])
    for column in columns[1:]:
        more, size = _number_values(column)
        is_exempt = (numbers == EXEMPT) | (more == EXEMPT)
        # Both factors are at most the number of rows, so the product stays within 64 bits.
        distinct, numbers = np.unique(
            np.where(is_exempt, EXEMPT, numbers * size + more), return_inverse=True
        )
        has_exempt = bool(is_exempt.any())
        numbers, count = numbers - has_exempt, len(distinct) - has_exempt
    return numbers, count


def _number_values(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], int]:
    if pa.types.is_floating(column.type):
        # Hashing tells the zeros apart and takes NaNs for equal; as values it is the other way.
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        column = pc.add(column, pa.scalar(0.0, column.type))
    encoded = column.combine_chunks().dictionary_encode()
    numbers = encoded.indices.fill_null(EXEMPT).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers, len(encoded.dictionary)


def _message(type: NodeType | EdgeType, group: _Group, rows: pa.Table, clash: _Clash) -> str:
    values = [
        spell(rows[name][clash.row].as_py(), _column_type(type, name)) for name in group.columns
    ]
    return (
        f"@unique violation on {type.name}.{_listed(group.columns)}: "
        f"value '{_listed(values)}' held by '{clash.holder_id}' and '{clash.entity_id}'"
    )


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _column_type(type: NodeType | EdgeType, name: str) -> ValueType:
    """The type of a property, or of an endpoint."""
    declared = type.properties.get(name)
    return ValueType(Scalar.STRING) if declared is None else declared.type
