"""Grouping rows and aggregating their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.local.bindings import BindingValues, Floats
from omnigraph.engines.local.ids import ABSENT
from omnigraph.engines.local.nodes import CachedNodes
from omnigraph.engines.local.rows import taken
from omnigraph.engines.local.sorting import (
    AT_ONCE,
    BLOCK_ROWS,
    governed_blocks,
    grouped,
    rows_by_part,
    sorted_distinct,
    stable_order,
)
from omnigraph.errors import InputError
from omnigraph.model.arrow import arrow_type
from omnigraph.model.governor import current
from omnigraph.model.hashing import StringHash, first_words
from omnigraph.model.records import dataclass
from omnigraph.model.types import ValueType
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.functions import deviations, percentiles, require_fraction
from omnigraph.query.kernels import sum_overflow
from omnigraph.syntax import query_ast as ast

# --- sorting --------------------------------------------------------------------------------------


Direction: TypeAlias = Literal["ascending", "descending"]
Place: TypeAlias = Literal["at_start", "at_end"]
SortKey: TypeAlias = tuple[pa.Array, Direction, Place]
"""Values by row, their direction, and where nulls and NaN are placed."""

_SORTED_AT_ONCE = 1 << 19
"""More rows are first split by their first key, with checks of the query's limits between."""

_SAMPLE = 4_096


def sorted_rows(keys: Sequence[SortKey]) -> npt.NDArray[np.integer]:
    """The row numbers in sorted order; the sort is stable."""
    column, direction, nulls = keys[0]
    count = len(column)
    governor = current()
    governor.reserve(16 * count)
    numbers = _splitting_numbers(column) if count > _SORTED_AT_ONCE else None
    if numbers is None:
        return _sorted_at_once(keys)
    lowest_at_end = (direction == "ascending") != (nulls == "at_start")
    if lowest_at_end and (column.null_count or pa.types.is_floating(column.type)):
        return _sorted_at_once(keys)  # nulls and NaN sort lowest here
    parts = 2 * count // _SORTED_AT_ONCE
    sample = np.sort(numbers[:: max(1, count // _SAMPLE)])
    bounds = sorted_distinct(sample[:: max(1, len(sample) // parts)].copy())[1:]
    part = np.empty(count, np.int16)
    for start in range(0, count, _SORTED_AT_ONCE):
        governor.check()
        stop = start + _SORTED_AT_ONCE
        part[start:stop] = np.searchsorted(bounds, numbers[start:stop], side="right")
    if direction == "descending":
        part = np.int16(len(bounds)) - part
    rows, ends = rows_by_part(part, len(bounds) + 1)
    if np.diff(ends, prepend=0).max() == count:
        # The first key does not split the rows. If it is constant, the next key may.
        same = not pa.types.is_string(column.type) and not column.null_count
        if same and len(keys) > 1 and np.isfinite(numbers[0]) and (numbers == numbers[0]).all():
            return sorted_rows(keys[1:])
        return _sorted_at_once(keys)
    at = 0
    for end in ends:
        governor.check()
        some = rows[at:end]
        chosen = pa.array(some)
        rows[at:end] = some[
            sorted_rows([(values.take(chosen), way, place) for values, way, place in keys])
        ]
        at = end
    return rows


def _sorted_at_once(keys: Sequence[SortKey]) -> npt.NDArray[np.integer]:
    names = [str(at) for at in range(len(keys))]
    table = pa.table([key[0] for key in keys], names=names)
    by = [(name, *key[1:]) for name, key in zip(names, keys, strict=True)]
    order: npt.NDArray[np.integer] = pc.sort_indices(table, sort_keys=by).to_numpy()
    return order


def _splitting_numbers(column: pa.Array) -> npt.NDArray[np.generic] | None:
    """Numbers in the order of the values; different texts may share a number."""
    if not pa.types.is_string(column.type):
        return ordered_numbers(column)
    current().reserve(column.nbytes + 24 * len(column))
    return first_words(column)


def ordered_numbers(column: pa.Array) -> npt.NDArray[np.generic] | None:
    """A column as numbers of the same order, nulls and NaN lowest; None for other types."""
    type = column.type
    if pa.types.is_date32(type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(type):
        column = column.cast(pa.int64())
    elif not (pa.types.is_integer(type) or pa.types.is_floating(type)):
        return None
    if pa.types.is_floating(column.type):
        floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
        return np.where(np.isnan(floats), -np.inf, floats)
    if column.null_count:
        lowest = np.iinfo(column.type.to_pandas_dtype()).min
        column = column.fill_null(pa.scalar(lowest, column.type))
    numbers: npt.NDArray[np.generic] = column.to_numpy(zero_copy_only=False)
    return numbers


# --- codes ----------------------------------------------------------------------------------------


Codes = npt.NDArray[np.integer]

_OBJECTS_AT_ONCE = 1 << 14

_DENSE_FACTOR = 4
"""Up to this many codes per row, groups are found by counting instead of sorting."""
_DENSE_MAX = 1 << 23
"""More codes are never counted: that would be one long step that cannot be cancelled."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Rows in groups, numbered without gaps."""

    group: Codes
    """The group number of each row."""
    first: Codes
    """The first row of each group."""
    sizes: npt.NDArray[np.int64]
    """The number of rows of each group."""

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.sizes)


@dataclass(frozen=True, slots=True)
class Coded:
    """A code per row; equal rows have equal codes. Null is a value like any other."""

    codes: Codes
    count: int
    """An upper bound: all codes are less."""

    def grouped(self) -> Grouping:
        """The groups of rows with equal codes."""
        current().reserve(32 * len(self.codes))
        rows = len(self.codes)
        if self.count > _DENSE_FACTOR * rows + 1024 or min(rows, self.count) > _DENSE_MAX:
            found = grouped(self.codes)
            return Grouping(found.group, found.first, found.sizes)
        # `bincount` would otherwise convert to this type on every call.
        group: Codes = self.codes.astype(np.intp, copy=False)
        if rows <= _DENSE_MAX:
            counts = np.bincount(group, minlength=self.count)
        else:
            counts = np.zeros(self.count, np.int64)
            for start, stop in governed_blocks(rows):
                counts += np.bincount(group[start:stop], minlength=self.count)
        used = np.flatnonzero(counts)
        if len(used) and int(used[-1]) >= len(used):
            number = np.zeros(self.count, np.int64)
            number[used] = np.arange(len(used))
            renumbered = np.empty(rows, np.int64)
            for start, stop in governed_blocks(rows):
                number.take(group[start:stop], out=renumbered[start:stop])
            group = renumbered
        return Grouping(group, self._first_rows(used), counts[used])

    def _first_rows(self, used: Codes) -> Codes:
        """The first row of each of these codes, all of which occur."""
        first = np.full(self.count, -1, np.int64)
        begin, step = 0, 1024
        # A few groups usually all occur in the first rows.
        while (first[used] < 0).any():
            part = self.codes[begin : begin + step]
            # Assigned in reverse, so that the first row of each code is written last.
            fresh = part[::-1]
            rows = np.arange(begin + len(part) - 1, begin - 1, -1)
            unknown = first[fresh] < 0
            first[fresh[unknown]] = rows[unknown]
            begin, step = begin + step, min(step * 4, AT_ONCE)
            current().check()
        return first[used]


def codes_of(columns: Sequence[pa.Array | Coded]) -> Coded:
    """Codes of the rows of several columns together."""
    result: Coded | None = None
    for column in columns:
        one = column if isinstance(column, Coded) else _coded(column)
        if result is None:
            result = one
            continue
        if result.count * one.count >= 2**62:
            grouping = result.grouped()
            result = Coded(grouping.group, grouping.count)
        codes = result.codes.astype(np.int64) * one.count + one.codes
        result = Coded(codes, result.count * one.count)
    assert result is not None
    return result


def _coded(column: pa.Array) -> Coded:
    type = column.type
    if pa.types.is_nested(type):
        return _coded_objects(column)
    if pa.types.is_floating(type):
        # 0.0 and -0.0 are one value, and so are all NaN.
        column = pc.add(column, pa.scalar(0.0, type))
    current().reserve(16 * len(column))
    if len(column) > BLOCK_ROWS:
        return _coded_in_blocks(column)
    encoded = column.dictionary_encode(null_encoding="encode")
    return Coded(encoded.indices.to_numpy(), max(len(encoded.dictionary), 1))


def _coded_in_blocks(column: pa.Array) -> Coded:
    """Codes block by block first; then equal values of several blocks get one code."""
    governor = current()
    blocks = []
    for start in range(0, len(column), BLOCK_ROWS):
        governor.check()
        part = column.slice(start, BLOCK_ROWS)
        blocks.append(part.dictionary_encode(null_encoding="encode"))
    known, count = _codes_in_parts(pa.concat_arrays([block.dictionary for block in blocks]))
    codes = np.empty(len(column), np.int32)
    at = first = 0
    for block in blocks:
        governor.check()
        codes[at : at + len(block)] = known[first:].take(block.indices.to_numpy())
        at += len(block)
        first += len(block.dictionary)
    return Coded(codes, max(count, 1))


_PART_BITS = 8


def _codes_in_parts(values: pa.Array) -> tuple[Codes, int]:
    """A code for each value, and the number of codes; many values are partitioned by hash first."""
    part = _hashed_parts(values) if len(values) > AT_ONCE else None
    if part is None:
        encoded = values.dictionary_encode(null_encoding="encode")
        return encoded.indices.to_numpy(), len(encoded.dictionary)
    governor = current()
    governor.reserve(16 * len(values))
    rows, ends = rows_by_part(part, 1 << _PART_BITS)
    codes = np.empty(len(values), np.int32)
    count = 0
    for start, stop in pairwise([0, *ends]):
        governor.check()
        some = rows[start:stop]
        encoded = values.take(pa.array(some)).dictionary_encode(null_encoding="encode")
        codes[some] = encoded.indices.to_numpy() + np.int32(count)
        count += len(encoded.dictionary)
    return codes, count


def _hashed_parts(values: pa.Array) -> npt.NDArray[np.uint8] | None:
    """A partition number for each value, equal for equal values; None for types with few values."""
    parts = np.empty(len(values), np.uint8)
    hashing = StringHash()
    for start, stop in governed_blocks(len(values)):
        some = values.slice(start, stop - start)
        if pa.types.is_string(values.type):
            hashes = hashing.many(some.fill_null(""))
        else:
            numbers = ordered_numbers(some)
            if numbers is None:
                return None
            wide = np.float64 if numbers.dtype.kind == "f" else np.int64
            hashes = numbers.astype(wide).view(np.uint64) * np.uint64(hashing.key)
        parts[start:stop] = hashes >> np.uint64(64 - _PART_BITS)
    return parts


def _coded_objects(column: pa.Array) -> Coded:
    known: dict[str, int] = {}
    codes = [known.setdefault(_spelled(value), len(known)) for value in python_values(column)]
    return Coded(np.array(codes, np.int64), max(len(known), 1))


def python_values(column: pa.Array) -> Iterator[Any]:
    """The values of a column as Python objects; checks the limits of the query at intervals."""
    governor = current()
    for start in range(0, len(column), _OBJECTS_AT_ONCE):
        governor.check()
        yield from column.slice(start, _OBJECTS_AT_ONCE).to_pylist()


def _spelled(value: list[object] | None) -> str:
    """A text that is equal for equal lists; 0.0 and -0.0 are equal here too."""
    if value is None:
        return ""
    return repr([item + 0.0 if isinstance(item, float) else item for item in value])


# --- first rows of groups -------------------------------------------------------------------------


def first_of_groups(columns: Sequence[pa.Array | Coded], most: int) -> Codes:
    """The rows that are among the first ``most`` of those with equal values in some columns."""
    grouping = codes_of(columns).grouped()
    order = stable_order(grouping.group)
    starts = np.cumsum(grouping.sizes) - grouping.sizes
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - starts[grouping.group[order]]
    return np.flatnonzero(place < most)


# --- groups and aggregates ------------------------------------------------------------------------


_EXACT_FLOATS = 2**53
"""Up to this value, sums of floats are exact, and faster than sums of integers."""
_COUNTS_MAX = 2**63 * (1 - 1e-9)
"""Float sums below this are certainly below the largest count."""

Groups = npt.NDArray[np.integer]
Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartialGroups:
    """Groups of a part of the solutions: the values of the group items, and partial aggregates."""

    count: int
    items: dict[str, pa.Array]
    totals: dict[str, Total]


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """The number of values in each group."""

    counts: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sums:
    """The sum and the number of the values of each group."""

    sums: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]
    wrapped: npt.NDArray[np.int64] | None = None
    """Integers only: the sums modulo 2**64, which together with the float sums are exact."""


@dataclass(frozen=True, slots=True)
class GroupValues:
    """One value per group: the minimum, the maximum, or a list of all values."""

    values: pa.Array


Total: TypeAlias = GroupSizes | Sums | GroupValues


def part_of(
    values: BindingValues,
    by: plan.GroupBy,
    *,
    times: Times | None = None,
    rows_in_all: int | None = None,
    by_row: Mapping[str, Total] | None = None,
) -> PartialGroups:
    """Group some rows.

    ``times`` is the number of solutions each row stands for; ``rows_in_all`` the number of rows in
    this and all other parts. ``by_row`` has aggregates that are already known per row, by name.
    """
    many = values.frame.count if rows_in_all is None else rows_in_all
    groups = _groups(values, by, many)
    items: dict[str, pa.Array] = {}
    if by.items:
        leaders = values.taken(groups.first)
        items = {name: leaders.column(item) for name, item in by.items}
    known = by_row or {}
    totals = {
        entry.name: _merged_total(entry.value, [known[entry.name]], groups)
        if entry.name in known
        else _total(entry.value, values, groups, times)
        for entry in by.aggregates
    }
    return PartialGroups(groups.count, items, totals)


def united(parts: Sequence[PartialGroups], by: plan.GroupBy) -> tuple[dict[str, pa.Array], int]:
    """The columns of the groups of all parts by name, and the number of groups."""
    whole = parts[0] if len(parts) == 1 else _merged(parts, by)
    columns = dict(whole.items)
    for entry in by.aggregates:
        columns[entry.name] = _column(entry.value, whole.totals[entry.name])
    return columns, whole.count


def _merged(parts: Sequence[PartialGroups], by: plan.GroupBy) -> PartialGroups:
    """The groups of several parts, merged by their items."""
    items = {name: pa.concat_arrays([part.items[name] for part in parts]) for name, _ in by.items}
    if items:
        groups = codes_of(list(items.values())).grouped()
        first = pa.array(groups.first)
        items = {name: column.take(first) for name, column in items.items()}
    else:
        alone = np.zeros(len(parts), np.int64)
        groups = Grouping(alone, alone[:1], np.array([len(parts)]))
    totals = {
        entry.name: _merged_total(entry.value, [part.totals[entry.name] for part in parts], groups)
        for entry in by.aggregates
    }
    return PartialGroups(groups.count, items, totals)


def _merged_total(value: ex.AggregateValue, totals: list[Total], groups: Grouping) -> Total:
    match totals[0]:
        case GroupSizes():
            return GroupSizes(
                _added([one.counts for one in totals if isinstance(one, GroupSizes)], groups)
            )
        case Sums():
            several = [one for one in totals if isinstance(one, Sums)]
            sums = _added_floats(
                groups.group, np.concatenate([one.sums for one in several]), groups.count
            )
            wrapped = None
            parts = [one.wrapped for one in several if one.wrapped is not None]
            if parts:
                wrapped = np.zeros(groups.count, np.int64)
                np.add.at(wrapped, groups.group, np.concatenate(parts))
            return Sums(sums, _added([one.counts for one in several], groups), wrapped)
        case GroupValues():
            column = pa.concat_arrays(
                [one.values for one in totals if isinstance(one, GroupValues)]
            )
            valid = column.is_valid()
            group = groups.group[valid.to_numpy(zero_copy_only=False)]
            return GroupValues(_extremes(value.function, column.filter(valid), group, groups.count))


def totals(
    function: ast.AggregateFunction,
    argument: ex.Expression,
    values: BindingValues,
    groups: Grouping,
    *,
    distinct: bool,
) -> pa.Array:
    """An aggregate of rows whose groups are known; groups may be empty."""
    # The type of an aggregate is that of its argument, or one that `_column` knows.
    value = ex.AggregateValue(function, argument, distinct, _RESULTS.get(function, argument.type))
    return _column(value, _total(value, values, groups, None))


_RESULTS: dict[str, ValueType] = {"count": ex.I64, "avg": ex.F64}


def _added(counts: list[npt.NDArray[np.int64]], groups: Grouping) -> npt.NDArray[np.int64]:
    return _counted(groups.group, np.concatenate(counts), groups.count)


def _added_floats(
    group: Groups, numbers: npt.NDArray[np.float64], count: int
) -> npt.NDArray[np.float64]:
    # `bincount` of an empty array returns integers.
    return np.bincount(group, numbers, count).astype(np.float64, copy=False)


def _counted(group: Groups, times: Times | None, count: int) -> npt.NDArray[np.int64]:
    """The number of solutions in each group."""
    if count == 1 and times is not None and float(times.sum(dtype=np.float64)) < _EXACT_FLOATS:
        return np.array([times.sum(dtype=np.int64)])
    found = np.bincount(group, times, count)
    if times is None or not len(found):
        return found.astype(np.int64, copy=False)
    largest = float(found.max())
    if largest < _EXACT_FLOATS:
        return found.astype(np.int64)
    if largest >= _COUNTS_MAX:
        raise InputError(
            f"a count of this query is about {largest:.3g}, and a count has 63 bits",
            hint="count fewer solutions: add a condition, or group by more",
        )
    exact = np.zeros(count, np.int64)
    np.add.at(exact, group, times)
    return exact


def _groups(values: BindingValues, by: plan.GroupBy, rows_in_all: int) -> Grouping:
    count = values.frame.count
    if not by.items:
        # Without group items there is one group, also of zero rows.
        alone = np.zeros(count, np.int64)
        return Grouping(alone, alone[:1], np.array([count]))
    return codes_of([item_codes(values, item, rows_in_all) for _, item in by.items]).grouped()


def item_codes(values: BindingValues, item: ex.Expression, rows_in_all: int) -> pa.Array | Coded:
    """Codes of a group item; ids and texts of nodes use cached codes."""
    if isinstance(item, ex.EntityId | ex.CarriedNode) and values.frame.count:
        codes = values.slots(item.variable).astype(np.int64) + 1
        return Coded(codes, int(codes.max()) + 1)
    if isinstance(item, ex.PropertyValue) and item.kind == "node" and values.frame.count:
        nodes = values.session.tables.nodes(item.type_name)
        is_text = item.type.is_plain_scalar and pa.types.is_string(arrow_type(item.type))
        is_stored = item.property != ex.NODE_TYPE
        if (
            is_text
            and is_stored
            and isinstance(nodes, CachedNodes)
            and 4 * rows_in_all > nodes.view.count
        ):
            known = _codes_by_slot(nodes, item.property)
            return Coded(known.codes.take(values.slots(item.variable)), known.count)
    return values.column(item)


@dataclass(frozen=True, slots=True)
class _ColumnCodes:
    """Codes of the texts of a property; the last entry is for `ABSENT`."""

    codes: npt.NDArray[np.unsignedinteger]
    """In the narrowest type, because random reads dominate."""
    count: int

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes)

    @classmethod
    def of(cls, column: pa.Array) -> _ColumnCodes:
        encoded = column.dictionary_encode()
        none = len(encoded.dictionary)
        indices = encoded.indices.fill_null(none).to_numpy()
        narrow = np.min_scalar_type(none)
        return cls(np.append(indices, none).astype(narrow), none + 1)


def _codes_by_slot(nodes: CachedNodes, property: str) -> _ColumnCodes:
    """Codes of a property by slot, which saves looking up rows."""
    by_row = nodes.view.keep_with_files(
        ("codes", property), lambda: _ColumnCodes.of(nodes.view.column(property, pa.string()))
    )

    def make() -> _ColumnCodes:
        every = np.append(np.arange(len(nodes.space), dtype=np.int32), ABSENT)
        return _ColumnCodes(by_row.codes.take(nodes.rows(every)), by_row.count)

    return nodes.view.keep(("codes by slot", property, nodes.space.serial), make)


def _total(
    value: ex.AggregateValue, values: BindingValues, groups: Grouping, times: Times | None
) -> Total:
    """The partial aggregate of each group."""
    if value.argument is None:
        return GroupSizes(
            groups.sizes if times is None else _counted(groups.group, times, groups.count)
        )
    group = groups.group
    if value.function in ("sum", "avg") and not value.distinct and not value.sums_integers:
        numbers = values.floats(value.argument)
        if numbers is not None:
            return _summed(numbers, group, times, groups)
    if value.function == "count" and isinstance(value.argument, ex.EntityId):
        # A slot identifies a node like its id, without a text per row.
        slots = values.slots(value.argument.variable)
        column = pa.array(slots, mask=slots < 0)
    else:
        column = values.column(value.argument)
    if column.null_count:
        valid = column.is_valid()
        mask = valid.to_numpy(zero_copy_only=False)
        group, times = group[mask], None if times is None else times[mask]
        column = column.filter(valid)
    if value.distinct:
        # One row per distinct value of a group.
        first = codes_of([Coded(group, groups.count), column]).grouped().first
        group, column, times = group[first], column.take(pa.array(first)), None
    match value.function:
        case "count":
            return GroupSizes(_counted(group, times, groups.count))
        case "sum" | "avg":
            given = column.to_numpy(zero_copy_only=False)
            summed = _summed(given.astype(np.float64), group, times, groups)
            if value.sums_integers:
                return replace(summed, wrapped=_wrapped(given, group, times, groups, summed))
            return summed
        case "min" | "max":
            return GroupValues(_extremes(value.function, column, group, groups.count))
        case "median" | "percentile" | "stddev":
            numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
            if value.function == "stddev":
                return GroupValues(deviations(numbers, group, groups.count))
            return GroupValues(percentiles(numbers, group, groups.count, _fraction(value, values)))
        case "collect":
            return GroupValues(_lists(column, group, groups.count, arrow_type(value.type)))


def _fraction(value: ex.AggregateValue, values: BindingValues) -> float | None:
    """The percentile that an aggregate asks for; None if it is null."""
    if value.fraction is None:
        return 0.5
    return require_fraction(values.value(value.fraction).as_py())


def _summed(numbers: Floats, group: Groups, times: Times | None, groups: Grouping) -> Sums:
    counts = (
        groups.sizes
        if times is None and len(group) == len(groups.group)
        else _counted(group, times, groups.count)
    )
    with np.errstate(invalid="ignore", over="ignore"):  # infinities are valid values
        if times is not None:
            numbers = numbers * times
        sums = (
            np.array([numbers.sum()])
            if groups.count == 1
            else _added_floats(group, numbers, groups.count)
        )
    return Sums(sums, counts)


def _wrapped(
    given: npt.NDArray[np.integer],
    group: Groups,
    times: Times | None,
    groups: Grouping,
    summed: Sums,
) -> npt.NDArray[np.int64]:
    """The sums of integers modulo 2**64."""
    largest = max(abs(int(given.max(initial=0))), abs(int(given.min(initial=0))))
    if largest * int(summed.counts.max(initial=0)) < _EXACT_FLOATS:
        return summed.sums.astype(np.int64)
    integers = given.astype(np.int64)  # an unsigned integer becomes the same number modulo 2**64
    if times is not None:
        integers = integers * times
    if groups.count == 1:
        return np.array([integers.sum(dtype=np.int64)])
    sums = np.zeros(groups.count, np.int64)
    np.add.at(sums, group, integers)
    return sums


def _exact(total: Sums) -> npt.NDArray[np.int64]:
    """The sums of integers; raises `InputError` where one does not fit I64.

    The float sum is off by less than 2**63, so it decides which of the integers that are equal
    modulo 2**64 is the sum.
    """
    assert total.wrapped is not None
    turns = np.rint((total.sums - total.wrapped.astype(np.float64)) / 2.0**64)
    if turns.any():
        raise sum_overflow(float(total.sums[np.flatnonzero(turns)[0]]))
    return total.wrapped


def _column(value: ex.AggregateValue, total: Total) -> pa.Array:
    """The values of an aggregate, one for each group."""
    match total:
        case GroupSizes():
            return pa.array(total.counts, arrow_type(value.type))
        case Sums():
            sums, counts = total.sums, total.counts
            if value.function == "avg":
                sums = np.divide(sums, counts, out=np.zeros(len(counts)), where=counts > 0)
            elif value.sums_integers:
                return pa.array(_exact(total), pa.int64(), mask=counts == 0)
            return pa.array(sums, pa.float64(), mask=counts == 0)
        case GroupValues():
            return total.values


def _extremes(function: str, column: pa.Array, group: Groups, count: int) -> pa.Array:
    """The row of each group that sorts first or last."""
    # NaN sorts below every number: it is the minimum, and the maximum only of nothing but NaN.
    direction: Direction = "ascending" if function == "min" else "descending"
    nan: Place = "at_start" if function == "min" else "at_end"
    order = sorted_rows([(pa.array(group), "ascending", "at_end"), (column, direction, nan)])
    ordered = group[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    chosen = np.full(count, -1, np.int64)
    chosen[ordered[is_first]] = order[is_first]
    return column.take(pa.array(chosen, mask=chosen < 0))


def _lists(column: pa.Array, group: Groups, count: int, type: pa.DataType) -> pa.Array:
    """The values of each group, ascending."""
    order = sorted_rows(
        [(pa.array(group), "ascending", "at_end"), (column, "ascending", "at_start")]
    )
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(group, minlength=count), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), taken(column, order), type=type)
