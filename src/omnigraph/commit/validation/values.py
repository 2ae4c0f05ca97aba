"""Constraints on single values: required, enum, `@range` and `@check`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.result_graph import ResultGraph
from omnigraph.commit.validation.violations import Violation, violation
from omnigraph.model.arrow import ID
from omnigraph.model.merging import ConflictKind
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import round_to_f32, spell
from omnigraph.query.kernels import compare
from omnigraph.schema.catalog import EdgeType, NodeType, Property, Range

_F64 = ValueType(Scalar.F64)


@dataclass(frozen=True, slots=True)
class _Rule:
    property: str
    broken: Callable[[pa.ChunkedArray], pa.ChunkedArray]
    """Which values break the rule; a null answer means no."""
    message: Callable[[Any], str]


def check_values(type: NodeType | EdgeType, graph: ResultGraph) -> list[Violation]:
    """Every written value that its property may not hold, by id, then by property."""
    rows = graph.written(type.table_key)
    if rows is None:
        return []
    broken = broken_values(type, rows)
    # Only the ids of broken rows: there are few, and a lookup per row is slow.
    ids = rows[ID].take(pa.array([each.row for each in broken], pa.int64())).to_pylist()
    found = sorted(
        (entity_id, each.property, each.order, each.message)
        for entity_id, each in zip(ids, broken, strict=True)
    )
    kind = ConflictKind.VALUE_CONSTRAINT_VIOLATION
    return [violation(type, entity_id, kind, text) for entity_id, _, _, text in found]


@dataclass(frozen=True, slots=True)
class BrokenValue:
    """A value its property may not hold."""

    row: int
    property: str
    order: int
    """Of the rule, among those of the type."""
    message: str


def broken_values(type: NodeType | EdgeType, rows: pa.Table | pa.RecordBatch) -> list[BrokenValue]:
    """What is wrong with single values of some rows, whichever write they belong to."""
    found = []
    for order, rule in enumerate(_rules(type)):
        column = rows[rule.property]
        broken = rule.broken(column)
        if not pc.any(broken).as_py():
            continue
        at = pc.indices_nonzero(pc.fill_null(broken, False)).to_pylist()
        for row, value in zip(at, column.filter(broken).to_pylist(), strict=True):
            found.append(BrokenValue(row, rule.property, order, rule.message(value)))
    return found


def _rules(type: NodeType | EdgeType) -> Iterator[_Rule]:
    for declared in type.properties.values():
        if not declared.type.nullable:
            yield _required(declared)
        if declared.type.enum_values is not None:
            yield _one_of(type, declared, declared.type.enum_values)
    if isinstance(type, EdgeType):
        return
    for bounds in type.ranges:
        yield from _within(type, type.properties[bounds.property].type, bounds)
    for check in type.checks:
        yield _matching(type, check.property, check.pattern)


def _required(declared: Property) -> _Rule:
    has_no_wrong_type = declared.type.is_vector or declared.type.is_blob
    what = "null values" if has_no_wrong_type else "null or invalid values"
    message = f"non-nullable property '{declared.name}' has {what}"
    return _Rule(declared.name, pc.is_null, lambda _: message)


def _one_of(type: NodeType | EdgeType, declared: Property, allowed: tuple[str, ...]) -> _Rule:
    values = pa.array(allowed, pa.string())
    expected = ", ".join(allowed)
    return _Rule(
        declared.name,
        lambda column: pc.and_(pc.invert(pc.is_in(column, value_set=values)), pc.is_valid(column)),
        lambda value: (
            f"invalid enum value '{value}' for {type.name}.{declared.name} (expected: {expected})"
        ),
    )


def _matching(type: NodeType, name: str, pattern: str) -> _Rule:
    return _Rule(
        name,
        lambda column: pc.invert(pc.match_substring_regex(column, pattern)),
        lambda value: (
            f"@check violation on {type.name}.{name}: "
            f"value '{value}' does not match pattern '{pattern}'"
        ),
    )


# --- ranges ---------------------------------------------------------------------------------------


def _within(type: NodeType, value_type: ValueType, bounds: Range) -> Iterator[_Rule]:
    name = bounds.property
    subject = f"@range violation on {type.name}.{name}: value"
    if value_type.scalar.is_float:
        yield _Rule(name, pc.is_nan, lambda _: f"{subject} is NaN")
    if bounds.minimum is not None:
        broken = partial(compare, "<", right=_bound(bounds.minimum, value_type))
        yield _Rule(name, broken, _beyond(subject, value_type, f"< min {_number(bounds.minimum)}"))
    if bounds.maximum is not None:
        broken = partial(compare, ">", right=_bound(bounds.maximum, value_type))
        yield _Rule(name, broken, _beyond(subject, value_type, f"> max {_number(bounds.maximum)}"))


def _beyond(subject: str, type: ValueType, what: str) -> Callable[[Any], str]:
    return lambda value: f"{subject} {_number(value, type)} {what}"


def _bound(limit: int | float, type: ValueType) -> pa.Scalar:
    """What values of ``type`` are compared with, exact in the integers."""
    if isinstance(limit, float):
        # As in queries: 0.1 in an F32 column is not 0.1, and has to satisfy `..0.1` all the same.
        return pa.scalar(round_to_f32(limit) if type.scalar is Scalar.F32 else limit, pa.float64())
    for integers in (pa.int64(), pa.uint64()):
        try:
            return pa.scalar(limit, integers)
        except (pa.ArrowInvalid, OverflowError):
            continue
    try:
        return pa.scalar(float(limit), pa.float64())
    except OverflowError:
        return pa.scalar(math.inf if limit > 0 else -math.inf, pa.float64())


def _number(value: int | float, type: ValueType = _F64) -> str:
    """A number as messages show it: its canonical spelling, or `inf` where it has none."""
    if isinstance(value, int):
        return str(value)
    return spell(value, type) if math.isfinite(value) else str(value)
