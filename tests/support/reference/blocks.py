"""The value of a block such as `count { … }`, from its solutions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key, partial
from typing import Any

from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.support.reference.order import compare, identity
from tests.support.reference.solutions import shown_id
from tests.support.reference.tail import aggregate
from tests.support.reference.values import Row


def block_value(step: plan.Compute, rows: Sequence[Row], limit: int | None) -> Any:
    """What a block gives for one row outside of it."""
    if step.function == "exists":
        return bool(rows)
    if len(step.items) == 1:
        ((_, value),) = step.items
        rows = [row for row in rows if row.value(value) is not None]
    if step.distinct:
        first: dict[Any, Row] = {}
        for row in rows:
            first.setdefault(identity(_shown(step, row)), row)
        rows = list(first.values())
    if step.function == "count":
        return len(rows)
    if step.function != "collect":
        ((_, value),) = step.items
        return aggregate(ex.AggregateValue(step.function, value, False, value.type), rows)
    ordered = sorted(rows, key=cmp_to_key(partial(_compare, step)))[:limit]
    if len(step.items) == 1:
        return [_shown(step, row)[0] for row in ordered]
    names = [name for name, _ in step.items]
    return [dict(zip(names, _shown(step, row), strict=True)) for row in ordered]


def _shown(step: plan.Compute, row: Row) -> list[Any]:
    return [row.value(value) for _, value in step.items]


def _compare(step: plan.Compute, left: Row, right: Row) -> int:
    for key in step.order:
        difference = compare(left.value(key.expression), right.value(key.expression))
        if difference != 0:
            return -difference if key.descending else difference
    if not step.order or step.distinct:
        return compare(_shown(step, left), _shown(step, right))
    return compare(*([_tie(row, tie) for tie in step.ties] for row in (left, right)))


def _tie(row: Row, tie: plan.BoundVariable) -> Any:
    return row.solution[tie.name] if tie.kind == "value" else shown_id(row.solution, tie.name)
