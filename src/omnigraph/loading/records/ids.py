"""Ids of records: derived from keys, given, or minted.

A failed task is run again, so bulk loads compute minted ids from the operation, the piece of the
input and the number of the record within it: a retry mints the same ids. They are ULIDs with the
operation's time; all ids of one operation share a prefix that no earlier id has.

Older exports use other ids of keyed nodes than today's canonical ones: a date instead of its epoch
day, or one member of a composite key. The compatible grammar accepts such an id if, parsed as the
key's type, it equals the key of the node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.effects.clock import APART_CHARACTERS
from omnigraph.errors import ValueConversionError
from omnigraph.loading.records.problems import Problem, RecordPlace, Unit, ambiguous_id
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.records import dataclass
from omnigraph.model.references import UNRESOLVED
from omnigraph.model.types import ValueType
from omnigraph.model.values import WrongType, scalar_value, spell
from omnigraph.schema.catalog import EdgeType

if TYPE_CHECKING:
    from omnigraph.loading.records.rows import TypedRows

MintIds = Callable[[str | None, pa.Int64Array], Sequence[str] | pa.StringArray]
"""New ids for the records of a source with these numbers.

In tasks they are computed from the arguments, so that a retry mints the same ids; elsewhere they
are random.
"""


def minted_by(new_id: Callable[[], str]) -> MintIds:
    """A minter that calls ``new_id`` for each id."""
    return lambda _source, numbers: [new_id() for _ in numbers]


_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def names_key(text: str, members: Sequence[str], types: Sequence[ValueType]) -> bool:
    """Whether an id denotes the key with these canonical ``members``, or one member of it.

    >>> from omnigraph.model.types import Scalar
    >>> day, text = ValueType(Scalar.DATE), ValueType(Scalar.STRING)
    >>> names_key("1970-01-03", ["2"], [day])
    True
    >>> names_key('["1970-01-03", "x"]', ["2", "x"], [day, text])
    True
    """
    if any(_spelling(text, type) == own for own, type in zip(members, types, strict=True)):
        return True
    if len(members) == 1 or not text.startswith("["):
        return False
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return len(parts) == len(members) and all(
        _spelling(part, type) == own for part, own, type in zip(parts, members, types, strict=True)
    )


def _spelling(value: object, type: ValueType) -> str | None:
    """The canonical spelling of ``value`` as a key of ``type``; None if it cannot be one."""
    for meaning in _meanings(value, type):
        try:
            return spell(scalar_value(meaning, type.scalar, ""), type)
        except (WrongType, ValueConversionError):
            continue
    return None


def _meanings(value: object, type: ValueType) -> list[object]:
    """The JSON values that a text may stand for, the likeliest first."""
    if not isinstance(value, str):
        return [value]
    scalar = type.scalar
    if scalar.is_float:
        return [float(value)] if _NUMBER.fullmatch(value) else []
    if value in ("true", "false"):
        return [value == "true", value]
    return [int(value), value] if _INTEGER.fullmatch(value) else [value]


_LETTERS = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_PREFIX_CHARACTERS = APART_CHARACTERS
_PIECE_CHARACTERS = 4
_NUMBER_CHARACTERS = 6

_CHARACTERS = _PREFIX_CHARACTERS + _PIECE_CHARACTERS + _NUMBER_CHARACTERS

PIECES_MAX = 32**_PIECE_CHARACTERS
NUMBERS_MAX = 32**_NUMBER_CHARACTERS


@dataclass(frozen=True, slots=True)
class Minting:
    """Mints the ids of one operation, the same ones each time a record is read."""

    operation_id: str
    """A ULID."""

    @property
    def prefix(self) -> str:
        """The prefix of the ids of this operation; no other id has it."""
        return self.operation_id[:_PREFIX_CHARACTERS]

    def ids(self, piece: int, numbers: Sequence[int] | pa.Int64Array) -> pa.StringArray:
        """The ids of records of one piece of the input, by their numbers."""
        given = np.asarray(numbers, np.int64)
        if piece >= PIECES_MAX or (len(given) and int(given.max()) >= NUMBERS_MAX):
            raise OverflowError(f"record {given.max()} of piece {piece} has no room in an id")
        start = np.frombuffer(self.prefix.encode(), np.uint8)
        letters = np.empty((len(given), _CHARACTERS), np.uint8)
        letters[:, : len(start)] = start
        # Append both numbers in base 32, the most significant digit first.
        at = len(start)
        for value, digits in ((np.int64(piece), _PIECE_CHARACTERS), (given, _NUMBER_CHARACTERS)):
            for place in range(digits):
                letters[:, at] = _LETTERS[(value >> 5 * (digits - 1 - place)) & 31]
                at += 1
        offsets = np.arange(len(given) + 1, dtype=np.int32) * np.int32(_CHARACTERS)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
        return pa.Array.from_buffers(pa.string(), len(given), buffers)


# --- ids in older spellings -----------------------------------------------------------------------

Renames = Mapping[str, Mapping[str, str]]
"""By node type, the canonical id of each id that was given in an older spelling."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """Ids in older spellings, from one part of the records of a node type."""

    type_name: str
    source: str | None
    ids: Mapping[str, tuple[str, int]]
    """As in `TypedRows.renamed`."""
    piece: int = 0
    """The piece of the input that has these records."""


def renames_of(parts: Iterable[Renamed], unit: Unit) -> tuple[Renames, list[tuple[int, Problem]]]:
    """All renames of an input; ids that denote two nodes become problems, with their pieces."""
    renames: dict[str, dict[str, str]] = {}
    problems: list[tuple[int, Problem]] = []
    for part in parts:
        known = renames.setdefault(part.type_name, {})
        for old, (new, number) in part.ids.items():
            first = known.setdefault(old, new)
            if first != new:
                place = RecordPlace(part.source, number, unit)
                problems.append((part.piece, ambiguous_id(old, first, new, part.type_name, place)))
    return renames, problems


def with_renames(rows: TypedRows, renames: Renames, unit: Unit) -> tuple[TypedRows, list[Problem]]:
    """Rows with canonical ids as endpoints; nodes with ambiguous ids become problems."""
    if isinstance(rows.type, EdgeType):
        batch = rows.rows
        for column, node in ((SRC, rows.type.source), (DST, rows.type.target)):
            known = renames.get(node, {})
            if column in rows.type.end_types:
                known = _renamed_references(rows.type.end_types[column], renames)
            batch = _renamed_ends(batch, column, known)
        return replace(rows, rows=batch), []
    canonical = renames.get(rows.type.name, {})
    taken = pc.is_in(rows.rows[ID], value_set=pa.array(list(canonical), pa.string()))
    problems = []
    for i in pc.indices_nonzero(taken).to_pylist():
        # The id of one node in an older spelling may be the canonical id of another node.
        old, place = (
            rows.rows[ID][i].as_py(),
            RecordPlace(rows.source, rows.numbers[i].as_py(), unit),
        )
        problems.append(ambiguous_id(old, canonical[old], old, rows.type.name, place))
    return rows, problems


def _renamed_references(prefixes: Mapping[str, str], renames: Renames) -> dict[str, str]:
    """Renames for references at an interface, with and without the prefix of their node type."""
    found: dict[str, str] = {}
    for type_name, prefix in prefixes.items():
        for old, new in renames.get(type_name, {}).items():
            found[prefix + old] = prefix + new
            found[UNRESOLVED + old] = prefix + new
    return found


def _renamed_ends(rows: pa.RecordBatch, column: str, renames: Mapping[str, str]) -> pa.RecordBatch:
    if not renames:
        return rows
    olds = pa.array(list(renames), pa.string())
    news = pa.array(list(renames.values()), pa.string())
    found = news.take(pc.index_in(rows[column], value_set=olds))
    index = rows.schema.get_field_index(column)
    return rows.set_column(index, rows.schema.field(index), pc.coalesce(found, rows[column]))
