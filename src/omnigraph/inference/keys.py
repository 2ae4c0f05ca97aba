"""Finds the column that identifies a row, and columns that refer to rows of another table.

A reference is proved by the values: all of them are keys of the other table. Small integers are
keys of many tables, so for numbers, and for very few texts, the names have to agree as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.inference.columns import (
    KEY_SCALARS,
    Hashes,
    InferredColumn,
    hashes_of,
    key_texts,
    sorted_hashes,
)
from omnigraph.inference.tables import Cells, InferredTable, words_of
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar

SOURCE_WORDS = frozenset(
    {
        *("from", "src", "source", "origin", "start", "sender", "subject"),
        *("follower", "citing", "caller", "parent", "buyer"),
    }
)
TARGET_WORDS = frozenset(
    {
        *("to", "dst", "dest", "target", "destination", "end", "recipient", "receiver", "object"),
        *("followee", "followed", "cited", "callee", "child", "seller"),
    }
)
PAIRED_ROWS_MAX = 20_000_000
"""Up to this many rows, pairs of ends are compared; takes eight bytes per row."""

THIRD_SCALARS = (*KEY_SCALARS, Scalar.DATETIME)

_GENERIC_WORDS = frozenset({"id", "key", "code", "no", "nr", "number", "uuid", "name"})
_KEY_NAMES = (
    *("id", "key", "uuid", "guid", "code", "slug", "handle", "email"),
    *("iata", "icao", "isbn", "issn", "doi", "sku", "number", "no", "nr"),
)
_TITLES = ("name", "title")
_KEY_NAME, _FIRST_TEXT, _TITLE, _FIRST_NUMBER, _OTHER_KEY_NAME, _NO_KEY = range(6)
"""Indications of a key, the strongest first."""
_TEXTS_MIN = 3
"""Minimum number of distinct texts that prove a reference without regard to names."""
_MISSES_MAX = 0.1
"""Maximum share of values without a key for which a column is still reported."""


@dataclass(frozen=True, slots=True)
class KeyCandidate:
    """A column without nulls and duplicates."""

    table: InferredTable
    column: InferredColumn
    hashes: Hashes = field(repr=False)
    """The sorted hashes of all values."""

    @property
    def rank(self) -> tuple[int, int, int]:
        """How likely it is the key, by name and position: lower is likelier."""
        place = self.column.place
        words = [word.lower() for word in words_of(self.column.name)]
        owner = "".join(words_of(self.table.type_name)).lower()
        own = "".join(words).removeprefix(owner)
        last = words[-1] if words else ""
        if own in _KEY_NAMES or (not place and last in _KEY_NAMES):
            return _KEY_NAME, _KEY_NAMES.index(own if own in _KEY_NAMES else last), place
        if not place:
            return _FIRST_NUMBER if self.column.has_integers else _FIRST_TEXT, 0, place
        if own in _TITLES:
            return _TITLE, 0, place
        # Such as `person_id` in a table of orders.
        return _OTHER_KEY_NAME if last in _KEY_NAMES else _NO_KEY, 0, place

    @property
    def has_key_name(self) -> bool:
        """Whether it has a typical name of a key."""
        return self.rank[0] == _KEY_NAME

    @property
    def is_likely(self) -> bool:
        """Whether it may be the key even if no other table refers to it."""
        return self.rank[0] < _NO_KEY

    def holds(self, texts: pa.StringArray) -> npt.NDArray[np.bool_]:
        """Which of some values are keys."""
        hashes = hashes_of(texts, are_numbers=self.column.has_integers)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        found: npt.NDArray[np.bool_] = self.hashes[at] == hashes
        return found


@dataclass(slots=True)
class Reference:
    """A column whose values are those of a key, or nearly all."""

    column: InferredColumn
    key: KeyCandidate
    values: int = 0
    misses: int = 0
    """Number of values that are not keys."""
    missing: str | None = None
    """The first value that is not a key."""

    @property
    def is_complete(self) -> bool:
        """Whether every value is a key."""
        return not self.misses

    @property
    def is_near(self) -> bool:
        """Whether so few values are not keys that these may be mistakes."""
        return 0 < self.misses <= _MISSES_MAX * self.values

    def compare(self, texts: pa.StringArray, counts: npt.NDArray[np.int64]) -> None:
        """Check the distinct values of one more chunk, with their numbers of occurrences."""
        is_key = self.key.holds(texts)
        self.values += int(counts.sum())
        self.misses += int(counts[~is_key].sum())
        if self.missing is None and not is_key.all():
            self.missing = texts[int(np.argmin(is_key))].as_py()


def key_candidates(table: InferredTable) -> list[KeyCandidate]:
    """The columns that could be the key of a table, the likeliest first."""
    found = [
        KeyCandidate(table, column, hashes)
        for column in table.columns.values()
        if (hashes := column.unique_hashes(table.rows)) is not None
    ]
    return sorted(found, key=lambda each: each.rank)


# --- references -----------------------------------------------------------------------------------


@dataclass(slots=True)
class References:
    """The references of the columns of one table."""

    table: InferredTable
    found: list[Reference]
    row_hashes: dict[int | str, list[Hashes]] = field(default_factory=dict)
    """The hashes of every row by column, up to `PAIRED_ROWS_MAX` rows."""

    @classmethod
    def of(cls, table: InferredTable, keys: Sequence[KeyCandidate]) -> References:
        """Compare all values of likely columns with the keys they may refer to."""
        likely = [
            Reference(column, key)
            for column in table.columns.values()
            for key in keys
            if key.column is not column and _is_likely(column, key)
        ]
        references = cls(table, likely)
        if likely:
            references._read()
        references.found = [each for each in likely if each.is_complete or each.is_near]
        return references

    def _read(self) -> None:
        by_column: dict[int | str, list[Reference]] = {}
        for reference in self.found:
            by_column.setdefault(reference.column.key, []).append(reference)
        self.row_hashes = {key: [] for key in by_column}
        for _, chunk in self.table.chunks():
            for cells in chunk:
                if cells.key in by_column:
                    self._compare(cells, by_column[cells.key])

    def _compare(self, cells: Cells, references: Sequence[Reference]) -> None:
        type = references[0].column.type
        assert type is not None
        texts = key_texts(cells.values, type, is_text=cells.is_text).dictionary_encode()
        indices = texts.indices.to_numpy()
        counts = np.bincount(indices, minlength=len(texts.dictionary))
        for reference in references:
            reference.compare(texts.dictionary, counts)
        if self.table.rows <= PAIRED_ROWS_MAX:
            hashes = hashes_of(texts.dictionary, are_numbers=False)
            self.row_hashes[cells.key].append(hashes[indices])

    def are_distinct(self, first: InferredColumn, second: InferredColumn) -> bool | None:
        """Whether no pair of values occurs twice; None if that is not known."""
        if self.table.rows > PAIRED_ROWS_MAX:
            return None
        return sorted_hashes(self._pairs(first, second)) is not None

    def _pairs(self, first: InferredColumn, second: InferredColumn) -> Hashes:
        one, other = (np.concatenate(self.row_hashes[each.key]) for each in (first, second))
        return _combined(one, other)

    def third(self, first: InferredColumn, second: InferredColumn) -> InferredColumn | None:
        """The first column that makes pairs of values unique; reads the table again."""
        others = [
            column
            for column in self.table.columns.values()
            if column not in (first, second) and _may_be_third(column, self.table.rows)
        ]
        if not others:
            return None
        pairs = self._pairs(first, second)
        found: dict[int | str, list[Hashes]] = {each.key: [] for each in others}
        types = {each.key: each.type for each in others}
        start = 0
        for rows, chunk in self.table.chunks():
            for cells in chunk:
                type = types.get(cells.key)
                if type is not None:
                    texts = key_texts(cells.values, type, is_text=cells.is_text)
                    hashes = hashes_of(texts, are_numbers=False)
                    found[cells.key].append(_combined(pairs[start : start + rows], hashes))
            start += rows
        for column in others:
            if sorted_hashes(np.concatenate(found[column.key])) is not None:
                return column
        return None


def _combined(one: Hashes, other: Hashes) -> Hashes:
    return one * np.int64(0x1E3779B97F4A7C15) + other


def _may_be_third(column: InferredColumn, rows: int) -> bool:
    """Whether a property of an edge may be part of its key: no null, and a suitable type."""
    type = column.type
    if type is None or column.left_out is not None or not type.is_plain_scalar:
        return False
    return type.scalar in THIRD_SCALARS and not column.nulls(rows) and not column.empty


def _is_likely(column: InferredColumn, key: KeyCandidate) -> bool:
    """Whether types, names and the first values allow a reference."""
    if column.type is None or column.left_out is not None or not column.sample:
        return False
    if not _are_comparable(column, key.column):
        return False
    distinct = len(set(column.sample))
    is_proved_by_texts = column.type.scalar is Scalar.STRING and distinct >= _TEXTS_MIN
    if not (is_proved_by_texts or names_agree(column.name, key)):
        return False
    is_key = key.holds(pa.array(column.sample, pa.string()))
    return bool(is_key.mean() >= 1 - _MISSES_MAX)


def _are_comparable(column: InferredColumn, key: InferredColumn) -> bool:
    assert column.type is not None and key.type is not None
    if column.type.is_list or column.type.is_vector:
        return False
    if key.type.scalar.is_integer:
        return column.type.scalar.is_integer
    if key.type.scalar is not Scalar.STRING:
        return False
    # A code of digits only is a text in a text file.
    is_code = column.is_text and column.type.scalar.is_integer
    return column.type.scalar is Scalar.STRING or is_code


def names_agree(name: str, key: KeyCandidate) -> bool:
    """Whether the name of a column agrees with the table, or with an end of an edge."""
    words = {word.lower() for word in words_of(name)}
    about = set(_meaningful(key.column.name)) | set(_meaningful(key.table.type_name))
    plurals = {f"{word}s" for word in about}
    return bool(words & (about | plurals | SOURCE_WORDS | TARGET_WORDS))


def _meaningful(name: str) -> Iterator[str]:
    return (word.lower() for word in words_of(name) if word.lower() not in _GENERIC_WORDS)
