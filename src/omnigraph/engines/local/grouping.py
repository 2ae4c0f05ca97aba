"""Grouping rows and aggregating their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.local.bindings import BindingValues, Floats
from omnigraph.engines.local.entities import CachedNodes
from omnigraph.engines.local.ids import ABSENT
from omnigraph.model.arrow import arrow_type
from omnigraph.query import expressions as ex
from omnigraph.query import plan

# --- codes ----------------------------------------------------------------------------------------


Codes = npt.NDArray[np.integer]

_DENSE_FACTOR = 4
"""Up to this many codes per row, groups are counted instead of sorted."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Rows in groups, numbered without gaps."""

    group: Codes
    """The group of each row."""
    first: Codes
    """The first row of each group."""
    sizes: npt.NDArray[np.int64]
    """The rows of each group."""

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.sizes)


@dataclass(frozen=True, slots=True)
class Coded:
    """A code per row; equal rows have equal codes. Null is a value like any other."""

    codes: Codes
    count: int
    """More than every code."""

    def grouped(self) -> Grouping:
        """Rows of equal codes as groups."""
        if self.count > _DENSE_FACTOR * len(self.codes) + 1024:
            _, first, inverse, sizes = np.unique(
                self.codes, return_index=True, return_inverse=True, return_counts=True
            )
            return Grouping(inverse, first, sizes)
        # `bincount` would convert to this type on every call.
        group: Codes = self.codes.astype(np.intp, copy=False)
        counts = np.bincount(group, minlength=self.count)
        used = np.flatnonzero(counts)
        if len(used) and int(used[-1]) >= len(used):
            number = np.zeros(self.count, np.int64)
            number[used] = np.arange(len(used))
            group = number.take(group)
        return Grouping(group, self._first_rows(used), counts[used])

    def _first_rows(self, used: Codes) -> Codes:
        """The first row of each of these codes, which all occur."""
        first = np.full(self.count, -1, np.int64)
        begin, step = 0, 1024
        # Few groups all begin early, so the first rows usually suffice.
        while (first[used] < 0).any():
            part = self.codes[begin : begin + step]
            # Written backwards, so that the first row of each code stays.
            fresh = part[::-1]
            rows = np.arange(begin + len(part) - 1, begin - 1, -1)
            unknown = first[fresh] < 0
            first[fresh[unknown]] = rows[unknown]
            begin, step = begin + step, step * 4
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
        # The two zeros are one value, and so are all that are not a number.
        column = pc.add(column, pa.scalar(0.0, type))
    encoded = column.dictionary_encode(null_encoding="encode")
    return Coded(encoded.indices.to_numpy(), max(len(encoded.dictionary), 1))


def _coded_objects(column: pa.Array) -> Coded:
    known: dict[str, int] = {}
    codes = [known.setdefault(_spelled(value), len(known)) for value in column.to_pylist()]
    return Coded(np.array(codes, np.int64), max(len(known), 1))


def _spelled(value: list[object] | None) -> str:
    """A text that equal lists share; the two zeros are one value here too."""
    if value is None:
        return ""
    return repr([item + 0.0 if isinstance(item, float) else item for item in value])


# --- groups and aggregates ------------------------------------------------------------------------


Groups = npt.NDArray[np.integer]
Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """Groups of some of the solutions: the values of the items, and partial aggregates."""

    count: int
    items: dict[str, pa.Array]
    totals: dict[str, Total]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many values there are in each group."""

    counts: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sums:
    """The sum of the values of each group, and how many there are."""

    sums: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GroupValues:
    """One value for each group: its least, its greatest, or all of them as a list."""

    values: pa.Array


Total: TypeAlias = Sizes | Sums | GroupValues


def part_of(
    values: BindingValues,
    by: plan.GroupBy,
    *,
    times: Times | None = None,
    rows_in_all: int | None = None,
) -> Part:
    """Group some rows.

    ``times`` says how many solutions each row stands for; ``rows_in_all`` how many rows there are
    in this and all other parts.
    """
    many = values.frame.count if rows_in_all is None else rows_in_all
    groups = _groups(values, by, many)
    items: dict[str, pa.Array] = {}
    if by.items:
        leaders = values.taken(groups.first)
        items = {name: leaders.column(item) for name, item in by.items}
    totals = {entry.name: _total(entry.value, values, groups, times) for entry in by.aggregates}
    return Part(groups.count, items, totals)


def united(parts: Sequence[Part], by: plan.GroupBy) -> tuple[dict[str, pa.Array], int]:
    """The columns of the groups of all parts by name, and how many groups there are."""
    whole = parts[0] if len(parts) == 1 else _merged(parts, by)
    columns = dict(whole.items)
    for entry in by.aggregates:
        columns[entry.name] = _column(entry.value, whole.totals[entry.name])
    return columns, whole.count


def _merged(parts: Sequence[Part], by: plan.GroupBy) -> Part:
    """The groups of several parts, those of equal items as one."""
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
    return Part(groups.count, items, totals)


def _merged_total(value: ex.AggregateValue, totals: list[Total], groups: Grouping) -> Total:
    match totals[0]:
        case Sizes():
            return Sizes(_added([one.counts for one in totals if isinstance(one, Sizes)], groups))
        case Sums():
            several = [one for one in totals if isinstance(one, Sums)]
            sums = _added_floats(
                groups.group, np.concatenate([one.sums for one in several]), groups.count
            )
            return Sums(sums, _added([one.counts for one in several], groups))
        case GroupValues():
            column = pa.concat_arrays(
                [one.values for one in totals if isinstance(one, GroupValues)]
            )
            valid = column.is_valid()
            group = groups.group[valid.to_numpy(zero_copy_only=False)]
            return GroupValues(_extremes(value.function, column.filter(valid), group, groups.count))


def _added(counts: list[npt.NDArray[np.int64]], groups: Grouping) -> npt.NDArray[np.int64]:
    return _counted(groups.group, np.concatenate(counts), groups.count)


def _added_floats(
    group: Groups, numbers: npt.NDArray[np.float64], count: int
) -> npt.NDArray[np.float64]:
    # `bincount` of no values gives integers.
    return np.bincount(group, numbers, count).astype(np.float64, copy=False)


def _counted(group: Groups, times: Times | None, count: int) -> npt.NDArray[np.int64]:
    """How many solutions are in each group."""
    found = np.bincount(group, times, count)
    return found if times is None else found.astype(np.int64)


def _groups(values: BindingValues, by: plan.GroupBy, rows_in_all: int) -> Grouping:
    count = values.frame.count
    if not by.items:
        # Without group items there is one group, also of no rows.
        alone = np.zeros(count, np.int64)
        return Grouping(alone, alone[:1], np.array([count]))
    return codes_of([_codes(values, item, rows_in_all) for _, item in by.items]).grouped()


def _codes(values: BindingValues, item: ex.Expression, rows_in_all: int) -> pa.Array | Coded:
    """Codes of an item; ids and texts of nodes use codes that are cached."""
    if isinstance(item, ex.EntityId) and values.frame.count:
        codes = values.slots(item.variable).astype(np.int64) + 1
        return Coded(codes, int(codes.max()) + 1)
    if isinstance(item, ex.PropertyValue) and item.kind == "node" and values.frame.count:
        nodes = values.session.tables.nodes(item.type_name)
        is_text = item.type.is_plain_scalar and pa.types.is_string(arrow_type(item.type))
        if is_text and isinstance(nodes, CachedNodes) and 4 * rows_in_all > nodes.view.count:
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
        return Sizes(groups.sizes if times is None else _counted(groups.group, times, groups.count))
    group = groups.group
    if value.function in ("sum", "avg") and not value.distinct:
        numbers = values.floats(value.argument)
        if numbers is not None:
            return _summed(numbers, group, times, groups)
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
            return Sizes(_counted(group, times, groups.count))
        case "sum" | "avg":
            numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
            return _summed(numbers, group, times, groups)
        case "min" | "max":
            return GroupValues(_extremes(value.function, column, group, groups.count))
        case "collect":
            return GroupValues(_lists(column, group, groups.count, arrow_type(value.type)))


def _summed(numbers: Floats, group: Groups, times: Times | None, groups: Grouping) -> Sums:
    counts = (
        groups.sizes
        if times is None and len(group) == len(groups.group)
        else _counted(group, times, groups.count)
    )
    with np.errstate(invalid="ignore", over="ignore"):  # infinities are values here
        if times is not None:
            numbers = numbers * times
        sums = (
            np.array([numbers.sum()])
            if groups.count == 1
            else _added_floats(group, numbers, groups.count)
        )
    return Sums(sums, counts)


def _column(value: ex.AggregateValue, total: Total) -> pa.Array:
    """The values of an aggregate, one for each group."""
    match total:
        case Sizes():
            return pa.array(total.counts, arrow_type(value.type))
        case Sums():
            sums, counts = total.sums, total.counts
            if value.function == "avg":
                sums = np.divide(sums, counts, out=np.zeros(len(counts)), where=counts > 0)
            return pa.array(sums, pa.float64(), mask=counts == 0)
        case GroupValues():
            return total.values


def _extremes(function: str, column: pa.Array, group: Groups, count: int) -> pa.Array:
    """The row of each group that sorts first or last."""
    # A NaN is smaller than every number: the least of all, and the greatest only on its own.
    direction, nan = ("ascending", "at_start") if function == "min" else ("descending", "at_end")
    table = pa.table([pa.array(group), column], names=["group", "value"])
    order = pc.sort_indices(
        table,
        sort_keys=[("group", "ascending", "at_end"), ("value", direction, nan)],
    ).to_numpy()
    ordered = group[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    chosen = np.full(count, -1, np.int64)
    chosen[ordered[is_first]] = order[is_first]
    return column.take(pa.array(chosen, mask=chosen < 0))


def _lists(column: pa.Array, group: Groups, count: int, type: pa.DataType) -> pa.Array:
    """The values of each group, ascending."""
    table = pa.table([pa.array(group), column], names=["group", "value"])
    order = pc.sort_indices(
        table,
        sort_keys=[("group", "ascending", "at_end"), ("value", "ascending", "at_start")],
    )
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(group, minlength=count), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), column.take(order), type=type)
