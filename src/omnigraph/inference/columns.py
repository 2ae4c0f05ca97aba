"""Examines one column: the narrowest type for all of its values, and whether values repeat.

A column is read in chunks and every value is examined, so that a type fits the whole input. Whether
values fit a type is decided by the conversion that a load uses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field, replace
from types import NoneType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ValueConversionError
from omnigraph.model.arrow import (
    column_from_json,
    dates_from_texts,
    datetimes_from_texts,
    spell_column,
)
from omnigraph.model.arrow_columns import (
    accepts,
    column_from_arrow,
    declared_type,
    parsed_texts,
    sound_texts,
    values_from_text,
)
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType

ENUM_VALUES_MAX = 16
ENUM_REPETITION_MIN = 4
"""Minimum number of occurrences per value of an enum, on average."""
VECTOR_LENGTH_MIN = 8
"""Shorter lists of numbers are taken for coordinates or colours, not embeddings."""

_SAMPLE = 1_000
_DATE_LENGTH = len("2026-01-05")
_EXACT_DIGITS = 16
_EXACT_MAX = 2**53
"""Integers up to this are exact as floats."""
_F32_MAX = float(np.finfo(np.float32).max)
_ENUM_VALUE = re.compile(r"[A-Za-z0-9_-]+")
_DATE_LIKE = re.compile(r"\d{4}-\d\d-\d\d([T ]|$)")
_MOMENTS = {Scalar.DATE: r"^\d{4}-\d\d-\d\d$", Scalar.DATETIME: r"^\d{4}-\d\d-\d\d"}
"""The form of texts that are dates or times: a date must not have a time, which it would lose."""
_INTEGER_LIKE = re.compile(r"-?\d+", re.ASCII)
_NUMBER_LIKE = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_CODE_LIKE = r"^(\+|-?0[0-9])|^-?[0-9]{16,}$"

_STRING = ValueType(Scalar.STRING, nullable=True)
KEY_SCALARS = (Scalar.STRING, Scalar.DATE, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)

Hashes = npt.NDArray[np.int64]
Values: TypeAlias = "pa.Array | Sequence[object]"
"""Arrow values, texts of cells, or the JSON values of one member."""


class DoesNotFit(Exception):
    """No property type fits all values of a column; the reason completes "it has …"."""


@dataclass(slots=True, eq=False)
class InferredColumn:
    """The findings about a column in the chunks so far."""

    name: str
    key: int | str
    """Its position; its name, if columns of its table have no positions."""
    place: int
    """The number of columns of its table before it, in order of first occurrence."""
    is_text: bool
    """Whether its values are cells of a text file."""
    type: ValueType | None = None
    """Nullable, the narrowest so far; None while all values are null."""
    filled: int = 0
    """Values that are not null."""
    empty: int = 0
    """Empty texts, which are null for every type but String."""
    left_out: str | None = None
    """Why no property can have it; completes "it has …"."""
    odd_value: str | None = None
    """The first value because of which apparent numbers, dates or booleans became texts."""
    sample: list[str] = field(default_factory=list)
    """Texts of some of the first values."""
    _low: int = 0
    _high: int = 0
    _values: set[str] | None = field(default_factory=set)
    """All distinct values of a column of texts, while there are few."""
    _hashes: list[Hashes] | None = field(default_factory=list)
    """The hashes of all values, until a repetition is found."""
    _length: int | None = None
    """The length of all lists, if they have the same."""
    _are_even: bool = True

    def add(self, values: Values) -> None:
        """Examine one more chunk."""
        if self.left_out is not None:
            return
        try:
            self._add(values)
        except DoesNotFit as reason:
            self.left_out = str(reason)
            self._values = self._hashes = None

    def _add(self, values: Values) -> None:
        if not isinstance(values, pa.Array):
            column = _arrow_of_json(values)
        elif self.is_text:
            column = values
        else:
            column = _sound(values)
        column = column.drop_null()
        self.filled += len(column)
        if not len(column):
            return
        texts = self._texts_added(column) if self.is_text else self._typed_added(column)
        if texts is None:
            self._values = self._hashes = None
            return
        if len(self.sample) < _SAMPLE:
            first = texts.slice(0, _SAMPLE - len(self.sample)).to_pylist()
            self.sample += [text for text in first if text]
        self._count_values(texts)
        self._count_repetitions(texts)

    # --- types ---

    def _texts_added(self, cells: pa.StringArray) -> pa.StringArray | None:
        """Find the type of cells, and return them; None for lists."""
        filled = cells.filter(pc.not_equal(cells, ""))
        self.empty += len(cells) - len(filled)
        if not len(filled):
            return cells
        if self.type is None:
            self.type = _first_guess(filled[0].as_py())
        while self.type != _STRING and not self._holds(filled):
            self._widen(filled)
        return None if self.type.is_list else cells

    def _holds(self, cells: pa.StringArray) -> bool:
        assert self.type is not None
        if self.type.is_list:
            return self._holds_arrays(cells)
        scalar = self.type.scalar
        if scalar in (Scalar.DATE, Scalar.DATETIME):
            return _are_moments(cells, self.type)
        parsed = parsed_texts(cells, self.type)
        if parsed is None:
            return False
        if scalar.is_integer:
            if not _all(pc.equal(parsed.cast(pa.string()), cells)):
                return False  # leading zeros: codes, which a number would lose
            self._note_bounds(parsed)
            return True
        return scalar is Scalar.BOOL or not _is_code(cells)

    def _holds_arrays(self, cells: pa.StringArray) -> bool:
        try:
            lists = _arrow_of_json([orjson.loads(cell) for cell in cells.to_pylist()])
            kept = self.type
            self.type = None if kept == _ANY_LIST else kept
            self._typed_added(lists)
        except (orjson.JSONDecodeError, DoesNotFit):
            self.type = _ANY_LIST
            return False
        return True

    def _widen(self, cells: pa.StringArray) -> None:
        """Switch to the next wider type for cells that do not fit the type."""
        assert self.type is not None
        wider: Scalar | None = None
        match self.type.scalar:
            case Scalar.I64 if self._low >= 0:
                wider = Scalar.U64
            case Scalar.I64 | Scalar.U64 if -_EXACT_MAX <= self._low <= self._high <= _EXACT_MAX:
                wider = Scalar.F64
            case Scalar.DATE:
                wider = Scalar.DATETIME
        if self.type.is_list or wider is None:
            self._become_texts(cells)
        else:
            self.type = ValueType(wider, nullable=True)

    def _become_texts(self, cells: pa.StringArray) -> None:
        had_integers = self.has_integers
        for cell in cells.to_pylist():
            if _first_guess(cell) == _STRING:
                self.odd_value = cell
                break
        self.type = _STRING
        if self.filled > len(cells) + self.empty:
            self._values = None  # values of earlier chunks were not collected
        if had_integers and self._hashes:
            numbers = np.concatenate(self._hashes)
            if self._low >= 0:
                numbers = numbers.view(np.uint64)
            self._hashes = [hashes_of(pa.array(numbers).cast(pa.string()), are_numbers=False)]

    def _typed_added(self, column: pa.Array) -> pa.StringArray | None:
        """Find the type of Arrow values, and return them as texts; None for those without any."""
        found = self._type_of(column)
        self.type = found if self.type is None else self._joined(self.type, found)
        if not self.type.is_plain_scalar:
            self._note_lengths(column)
            return None
        if self.type.scalar is Scalar.STRING:
            texts = _converted(column, self.type)
            self.empty += pc.sum(pc.equal(texts, "")).as_py()
            return texts
        if self.type.scalar in (Scalar.BOOL, Scalar.F32, Scalar.F64, Scalar.DATETIME):
            return None
        return spell_column(_converted(column, self.type), self.type)

    def _type_of(self, column: pa.Array) -> ValueType:
        for candidate in _candidates(column):
            if not accepts(candidate, column.type) or _has_time(column, candidate):
                continue
            try:
                converted = _converted(column, candidate)
            except DoesNotFit:
                continue
            if candidate.scalar.is_integer and not candidate.is_list:
                self._note_bounds(converted)
            return candidate
        raise DoesNotFit(_description(column))

    def _joined(self, one: ValueType, other: ValueType) -> ValueType:
        """The common type of two; JSON files may change the type of a member."""
        if one == other:
            return one
        if one.is_list != other.is_list or one.is_vector or other.is_vector:
            raise DoesNotFit(f"values of {_bare(one)} and of {_bare(other)}")
        both = {one.scalar, other.scalar}
        if both <= {Scalar.DATE, Scalar.DATETIME, Scalar.STRING} and not one.is_list:
            if Scalar.STRING in both:
                self._values = None
                return _STRING
            return replace(one, scalar=Scalar.DATETIME)
        if both == {Scalar.I64, Scalar.U64} and self._low >= 0:
            return replace(one, scalar=Scalar.U64)
        is_exact = one.is_list or -_EXACT_MAX <= self._low <= self._high <= _EXACT_MAX
        if all(each.is_numeric for each in both) and is_exact:
            return replace(one, scalar=Scalar.F64)
        raise DoesNotFit(f"values of {_bare(one)} and of {_bare(other)}")

    def _note_bounds(self, numbers: pa.Array) -> None:
        bounds = pc.min_max(numbers)
        self._low = min(self._low, bounds["min"].as_py())
        self._high = max(self._high, bounds["max"].as_py())

    def _note_lengths(self, column: pa.Array) -> None:
        if self.type is None or not self.type.is_list:
            return
        bounds = pc.min_max(pc.list_value_length(column))
        least, most = bounds["min"].as_py(), bounds["max"].as_py()
        self._are_even &= least == most and self._length in (None, least)
        self._length = least
        if self._are_even and self.type.scalar.is_float:
            greatest = pc.max(pc.abs(column.flatten().cast(pa.float64()))).as_py()
            self._are_even = greatest is not None and greatest <= _F32_MAX

    # --- repetitions ---

    def _count_values(self, texts: pa.StringArray) -> None:
        if self.type != _STRING:
            # If the column turns out to contain texts, earlier values are unknown.
            self._values = None
        if self._values is None:
            return
        if len(texts) > _SAMPLE:
            self._collect(texts.slice(0, _SAMPLE))
        self._collect(texts)

    def _collect(self, texts: pa.StringArray) -> None:
        if self._values is not None:
            self._values |= set(texts.unique().to_pylist())
            if len(self._values) > ENUM_VALUES_MAX:
                self._values = None

    def _count_repetitions(self, texts: pa.StringArray) -> None:
        assert self.type is not None or self.empty
        if self._hashes is None:
            return
        if self.empty or (self.type is not None and self.type.scalar not in KEY_SCALARS):
            self._hashes = None
            return
        first = texts.slice(0, _SAMPLE)
        if len(first.unique()) == len(first):
            hashes = sorted_hashes(hashes_of(texts, are_numbers=self.has_integers))
            if hashes is not None:
                self._hashes.append(hashes)
                return
        self._hashes = None

    # --- what came of it ---

    @property
    def has_integers(self) -> bool:
        """Whether its values so far are integers."""
        return self.type is not None and self.type.scalar.is_integer and not self.type.is_list

    def nulls(self, rows: int) -> int:
        """How many of the rows have no value in this column."""
        is_text = self.type is None or self.type == _STRING
        return rows - self.filled + (0 if is_text else self.empty)

    def final_type(self, rows: int) -> ValueType:
        """The property type for the column."""
        type = self.type or _STRING
        if type.is_list and self._is_vector(type):
            assert self._length is not None
            type = ValueType(Scalar.VECTOR, nullable=True, vector_dim=self._length)
        return type.with_nullable(self.nulls(rows) > 0 or not rows)

    def _is_vector(self, type: ValueType) -> bool:
        return type.scalar.is_float and self._are_even and (self._length or 0) >= VECTOR_LENGTH_MIN

    def enum_values(self) -> tuple[str, ...] | None:
        """The values of an enum for the column; None if they are too many or repeat too little."""
        values = self._values
        if self.type != _STRING or values is None or len(values) < 2:
            return None
        is_repeated = self.filled >= ENUM_REPETITION_MIN * len(values)
        if not is_repeated or not all(map(_ENUM_VALUE.fullmatch, values)):
            return None
        return tuple(sorted(values))

    def unique_hashes(self, rows: int) -> Hashes | None:
        """The sorted hashes of its values if they could be keys: no null, no repetition."""
        if self._hashes is None or not rows or self.filled < rows or self.empty:
            return None
        hashes = sorted_hashes(np.concatenate(self._hashes))
        self._hashes = None if hashes is None else [hashes]
        return hashes


_ANY_LIST = ValueType(Scalar.STRING, nullable=True, is_list=True)


def hashes_of(texts: pa.StringArray, *, are_numbers: bool) -> Hashes:
    """A hash for each text, equal for equal texts within this process."""
    if are_numbers:
        numbers: Hashes
        try:
            numbers = texts.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid:
            numbers = texts.cast(pa.uint64()).to_numpy().view(np.int64)
        return numbers
    return np.fromiter(map(hash, texts.to_pylist()), np.int64, len(texts))


def sorted_hashes(hashes: Hashes) -> Hashes | None:
    """The hashes in ascending order; None if there is a duplicate."""
    if (hashes[1:] > hashes[:-1]).all():
        return hashes  # rows are often sorted by their keys
    hashes = np.sort(hashes)
    return None if (hashes[1:] == hashes[:-1]).any() else hashes


def key_texts(values: Values, type: ValueType, *, is_text: bool) -> pa.StringArray:
    """Values of a chunk as the texts that `hashes_of` compares; nulls are left out."""
    column = values if isinstance(values, pa.Array) else _arrow_of_json(values)
    column = column.drop_null()
    if is_text:
        return column if type == _STRING else column.filter(pc.not_equal(column, ""))
    plain = replace(type, enum_values=None, nullable=True)
    return spell_column(_converted(column, plain), plain)


def _first_guess(cell: str) -> ValueType:
    """The type that a cell suggests."""
    if cell.lower() in ("true", "false"):
        return ValueType(Scalar.BOOL, nullable=True)
    if _INTEGER_LIKE.fullmatch(cell):
        return ValueType(Scalar.I64, nullable=True)
    if _NUMBER_LIKE.fullmatch(cell):
        return ValueType(Scalar.F64, nullable=True)
    if _DATE_LIKE.match(cell):
        return ValueType(Scalar.DATE, nullable=True)
    return _ANY_LIST if cell.startswith("[") and cell.endswith("]") else _STRING


def _are_moments(cells: pa.StringArray, type: ValueType) -> bool:
    try:
        if type.scalar is Scalar.DATE:
            # Longer texts have a time, which a date would lose.
            is_short = _all(pc.equal(pc.binary_length(cells), _DATE_LENGTH))
            return is_short and dates_from_texts(cells) is not None
        if datetimes_from_texts(cells) is not None:
            return True
        if not _all(pc.match_substring_regex(cells, _MOMENTS[type.scalar])):
            return False
        column_from_json(values_from_text(cells, type), type, name="", strict=True)
    except (ValueConversionError, pa.ArrowInvalid):
        return False
    return True


def _is_code(cells: pa.StringArray) -> bool:
    """Whether some numbers would change as floats: leading zeros, a plus sign, too many digits."""
    may_be = pc.max(pc.binary_length(cells)).as_py() >= _EXACT_DIGITS or any(
        _any(pc.starts_with(cells, start)) for start in ("0", "-0", "+")
    )
    return may_be and _any(pc.match_substring_regex(cells, _CODE_LIKE))


def _has_time(column: pa.Array, type: ValueType) -> bool:
    """Whether a date would cut texts that include a time."""
    items = column.flatten() if type.is_list else column
    if type.scalar not in _MOMENTS or not accepts(_STRING, items.type):
        return False
    texts = _converted(items, _STRING)
    return not _all(pc.match_substring_regex(texts, _MOMENTS[type.scalar]))


def _converted(column: pa.Array, type: ValueType) -> pa.Array:
    try:
        return column_from_arrow(column, type, name="", strict=True)
    except ValueConversionError as error:
        raise DoesNotFit(_description(column)) from error


def _candidates(column: pa.Array) -> list[ValueType]:
    """The types that a column of an Arrow type may have, the narrowest first."""
    given = declared_type(pa.field("", column.type))
    kinds = pa.types
    if kinds.is_dictionary(given):
        given = given.value_type
    if kinds.is_fixed_size_list(given) and kinds.is_floating(given.value_type):
        return [ValueType(Scalar.VECTOR, nullable=True, vector_dim=given.list_size)]
    if isinstance(given, pa.FixedShapeTensorType):
        return [ValueType(Scalar.VECTOR, nullable=True, vector_dim=given.storage_type.list_size)]
    if kinds.is_list(given) or kinds.is_large_list(given) or kinds.is_fixed_size_list(given):
        items = _candidates(column.flatten().drop_null())
        return [replace(each, is_list=True) for each in items if each.is_plain_scalar]
    return [ValueType(scalar, nullable=True) for scalar in _scalars(given, column)]


def _scalars(given: pa.DataType, column: pa.Array) -> Sequence[Scalar]:
    kinds = pa.types
    if kinds.is_boolean(given) or isinstance(given, pa.Bool8Type):
        return [Scalar.BOOL]
    if kinds.is_signed_integer(given):
        return [Scalar.I64 if given.bit_width == 64 else Scalar.I32]
    if kinds.is_unsigned_integer(given):
        return [Scalar.U64 if given.bit_width == 64 else Scalar.U32]
    if kinds.is_floating(given):
        return [Scalar.F64 if given.bit_width == 64 else Scalar.F32]
    if kinds.is_decimal(given):
        return [Scalar.I64, Scalar.U64, Scalar.F64] if given.scale == 0 else [Scalar.F64]
    if kinds.is_date(given):
        return [Scalar.DATE]
    if kinds.is_timestamp(given):
        return [Scalar.DATETIME]
    if kinds.is_null(given):
        return [Scalar.STRING]
    if kinds.is_binary(given) or kinds.is_large_binary(given) or kinds.is_fixed_size_binary(given):
        return [Scalar.BLOB]
    first = column[0].as_py() if len(column) else None
    if isinstance(first, str) and _DATE_LIKE.match(first):
        return [Scalar.DATE, Scalar.DATETIME, Scalar.STRING]
    return [Scalar.STRING]


def _sound(column: pa.Array) -> pa.Array:
    if not accepts(_STRING, column.type):
        return column
    column, bad = sound_texts(column)
    if len(bad):
        raise DoesNotFit("texts that are not UTF-8")
    return column


def _arrow_of_json(values: Sequence[object]) -> pa.Array:
    """The JSON values of one member as Arrow values; raises `DoesNotFit`."""
    given = set(map(type, values)) - {NoneType}
    if dict in given:
        raise DoesNotFit("objects, which no property type holds")
    if not given <= {int, float} and len(given) > 1:
        names = sorted(_JSON_NAMES.get(each, each.__name__) for each in given)
        raise DoesNotFit(f"{' and '.join(names)}, which no one type holds")
    if given == {list}:
        items = [item for value in values if isinstance(value, list) for item in value]
        if None in items:
            raise DoesNotFit("lists with nulls among their items")
        item_type = _arrow_of_json(items).type
        if pa.types.is_list(item_type):
            raise DoesNotFit("lists of lists")
        return pa.array(values, pa.list_(item_type))
    try:
        if given == {int, float}:
            if any(isinstance(value, int) and abs(value) > _EXACT_MAX for value in values):
                raise DoesNotFit("integers that are not exact as floats")
            return pa.array(values, pa.float64())
        return pa.array(values)
    except (pa.ArrowInvalid, OverflowError):
        pass
    try:
        return pa.array(values, pa.uint64())
    except (pa.ArrowInvalid, OverflowError, pa.ArrowTypeError) as error:
        raise DoesNotFit("integers beyond 64 bits") from error


_JSON_NAMES = {
    str: "texts",
    int: "numbers",
    float: "numbers with fractions",
    bool: "truth values",
    list: "lists",
}


def _description(column: pa.Array) -> str:
    given = column.type
    if pa.types.is_floating(given) and not _all(pc.is_finite(column)):
        return "NaN or infinite numbers, which are no values here"
    return f"values of the Arrow type {given}, not all of which a property can hold"


def _bare(type: ValueType) -> str:
    return str(type.with_nullable(False))


def _all(mask: pa.BooleanArray) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())


def _any(mask: pa.BooleanArray) -> bool:
    return bool(pc.any(mask, min_count=0).as_py())
