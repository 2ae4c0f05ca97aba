"""Grouping rows and aggregating their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.local.codes import Coded, Grouping, codes_of
from omnigraph.engines.local.frame import Frame
from omnigraph.engines.local.nodes import CachedNodes
from omnigraph.engines.local.session import Session
from omnigraph.engines.local.values import FrameValues
from omnigraph.model.arrow import arrow_type
from omnigraph.query import expressions as ex
from omnigraph.query import plan

Groups = npt.NDArray[np.integer]


def grouped(session: Session, frame: Frame, by: plan.GroupBy) -> tuple[dict[str, pa.Array], int]:
    """The columns of the grouped rows by name, and how many groups there are."""
    values = FrameValues(session, frame)
    groups = _groups(session, values, by)
    columns: dict[str, pa.Array] = {}
    if by.items:
        leaders = FrameValues(session, frame.take(groups.first))
        columns = {name: leaders.column(item) for name, item in by.items}
    for entry in by.aggregates:
        columns[entry.name] = _aggregate(entry.value, values, groups)
    return columns, groups.count


def _groups(session: Session, values: FrameValues, by: plan.GroupBy) -> Grouping:
    count = values.frame.count
    if not by.items:
        # Without group items there is one group, also of no rows.
        alone = np.zeros(count, np.int64)
        return Grouping(alone, alone[:1], np.array([count]))
    return codes_of([_codes(session, values, item) for _, item in by.items]).grouped()


def _codes(session: Session, values: FrameValues, item: ex.Expression) -> pa.Array | Coded:
    """Codes of an item; those of a node's text or id come from integers that are there already."""
    if isinstance(item, ex.EntityId) and values.frame.count:
        codes = values.frame.bound[item.variable].astype(np.int64) + 1
        return Coded(codes, int(codes.max()) + 1)
    if isinstance(item, ex.PropertyValue) and item.kind == "node" and values.frame.count:
        nodes = session.tables.nodes(item.type_name)
        slots = values.frame.bound[item.variable]
        is_text = item.type.is_plain_scalar and pa.types.is_string(arrow_type(item.type))
        if is_text and isinstance(nodes, CachedNodes) and 4 * len(slots) > nodes.view.count:
            known = nodes.view.keep_with_files(
                ("codes", item.property),
                lambda: _ColumnCodes.of(nodes.view.column(item.property, pa.string())),
            )
            return Coded(known.codes.take(nodes.rows(slots)), known.count)
    return values.column(item)


@dataclass(frozen=True, slots=True)
class _ColumnCodes:
    """Codes of a whole column; the last entry stands for no row."""

    codes: npt.NDArray[np.int64]
    """As wide as numpy counts with, so that counting copies nothing."""
    count: int

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes)

    @classmethod
    def of(cls, column: pa.Array) -> _ColumnCodes:
        encoded = column.dictionary_encode()
        none = len(encoded.dictionary)
        indices = encoded.indices.fill_null(none).to_numpy()
        return cls(np.append(indices.astype(np.int64), none), none + 1)


def _aggregate(value: ex.AggregateValue, values: FrameValues, groups: Grouping) -> pa.Array:
    type = arrow_type(value.type)
    if value.argument is None:
        return pa.array(groups.sizes, type)
    column = values.column(value.argument)
    group, sizes = groups.group, groups.sizes
    if column.null_count:
        valid = column.is_valid()
        group = group[valid.to_numpy(zero_copy_only=False)]
        column = column.filter(valid)
        sizes = np.bincount(group, minlength=groups.count)
    if value.distinct:
        # Of equal values in one group the first stands for all.
        first = codes_of([Coded(group, groups.count), column]).grouped().first
        group, column = group[first], column.take(pa.array(first))
        sizes = np.bincount(group, minlength=groups.count)
    match value.function:
        case "count":
            return pa.array(sizes, type)
        case "sum" | "avg":
            return _sums(value.function, column, group, sizes)
        case "min" | "max":
            return _extremes(value.function, column, group, groups.count)
        case "collect":
            return _lists(column, group, groups.count, type)


def _sums(function: str, column: pa.Array, group: Groups, sizes: npt.NDArray[np.int64]) -> pa.Array:
    numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
    if len(sizes) == 1:
        with np.errstate(invalid="ignore", over="ignore"):  # infinities are values here
            sums = np.array([numbers.sum()])
    else:
        sums = np.bincount(group, weights=numbers, minlength=len(sizes))
    if function == "avg":
        sums = np.divide(sums, sizes, out=np.zeros(len(sizes)), where=sizes > 0)
    # Of no values at all, numpy makes integers.
    return pa.array(sums, pa.float64(), mask=sizes == 0)


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
