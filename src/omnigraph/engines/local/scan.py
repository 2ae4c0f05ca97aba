"""Finding the nodes of a type that satisfy conditions on them alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.frame import Frame
from omnigraph.engines.local.ids import ABSENT, Slots
from omnigraph.engines.local.lookups import value_index
from omnigraph.engines.local.nodes import CachedNodes, FetchedNodes, NodeTable
from omnigraph.engines.local.prepare import Anchor, PreparedStep
from omnigraph.engines.local.pushdown import storage_filter
from omnigraph.engines.local.rows import Positions
from omnigraph.engines.local.session import Session
from omnigraph.engines.local.values import FrameValues
from omnigraph.errors import InputError
from omnigraph.model.arrow import arrow_type
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.evaluate import ColumnExpression, scalar_operand, text_operand
from omnigraph.storage.datasets import Handle
from omnigraph.storage.search import matching_rows, nearest_rows

_WHOLE_SHARE = 2
"""From this part of a table on, a condition is tested on all of it and looked up afterwards."""


def scanned(session: Session, one: PreparedStep) -> tuple[Slots, str]:
    """The nodes a scan binds, and how they were found."""
    step, anchors, predicates = one.step, one.anchors, one.residual
    assert isinstance(step, plan.Scan)
    pinned = step.entity_id is not None
    found_by = None if pinned or anchors else _storage_search(session, step)
    whole = not pinned and not anchors and found_by is None
    nodes = session.tables.nodes(step.type_name, whole=whole)
    if pinned:
        slots, strategy = _by_id(session, nodes, step.entity_id), "id lookup"
    elif isinstance(nodes, CachedNodes):
        rows = _by_value(session, nodes, anchors)
        if rows is None:
            return _whole(session, step, nodes), "column scan" if step.predicates else "all nodes"
        slots, strategy = nodes.slots[rows], "value index"
    else:
        assert isinstance(nodes, FetchedNodes)
        slots, strategy = _fetched(session, step, nodes, found_by)
    if not predicates:
        return slots, strategy
    mask = FrameValues(session, Frame(len(slots), {step.variable: slots})).mask(predicates)
    return (slots if mask is None else slots[mask]), strategy


def masked_nodes(
    session: Session, step: plan.Expand, nodes: NodeTable, found: Slots
) -> npt.NDArray[np.bool_] | None:
    """Which of the nodes a hop found satisfy its conditions; None if all do."""
    if not step.predicates:
        return None
    if isinstance(nodes, CachedNodes) and len(found) * _WHOLE_SHARE > nodes.view.count:
        # If a value cannot be computed, it may be of a node that was not found.
        with suppress(InputError):
            whole = _WholeTable(session, nodes, step.target).mask(step.predicates)
            return None if whole is None else whole[nodes.rows(found)]
    return FrameValues(session, Frame(len(found), {step.target: found})).mask(step.predicates)


def _by_id(session: Session, nodes: NodeTable, entity_id: ex.Expression | None) -> Slots:
    assert entity_id is not None
    wanted = text_operand(entity_id, session.run.parameters, session.run.now)
    if wanted is None:
        return np.zeros(0, np.int32)
    slot = nodes.space.find_one(wanted)
    if slot == ABSENT:
        # Ids that nobody has are not remembered: there is no end of them.
        return nodes.find(wanted) if isinstance(nodes, FetchedNodes) else np.zeros(0, np.int32)
    slots = np.array([slot], np.int32)
    present = nodes.present(slots)
    return slots if present is None else slots[present]


def _by_value(
    session: Session, nodes: CachedNodes, anchors: tuple[Anchor, ...]
) -> Positions | None:
    """The rows an index of values leaves over; None if there is no index to ask."""
    best: Positions | None = None
    for anchor in anchors:
        value = scalar_operand(anchor.value, session.run.parameters, session.run.now)
        type = value.type.value_type if anchor.several else value.type
        if type != anchor.type:
            continue  # a float against an integer column, say: the index compares only equals
        index = value_index(nodes.view, anchor.property, anchor.type)
        if index is None:
            continue
        if not value.is_valid:
            rows = index.rows[:0]
        elif anchor.several:
            rows = index.rows_with_any(value.values)
        else:
            rows = index.rows_with(value)
        if best is None or len(rows) < len(best):
            best = rows
    if best is not None and nodes.view.live is not None:
        best = best[nodes.view.live[best]]
    return best


def _whole(session: Session, step: plan.Scan, nodes: CachedNodes) -> Slots:
    """The nodes that satisfy the conditions, by testing whole columns."""
    try:
        mask = _WholeTable(session, nodes, step.variable).mask(step.predicates)
    except InputError:
        # A value cannot be computed; it may be of a row that is deleted.
        slots = nodes.every()
        mask = FrameValues(session, Frame(len(slots), {step.variable: slots})).mask(step.predicates)
        return slots if mask is None else slots[mask]
    if mask is None:
        return nodes.every()
    live = nodes.view.live
    # Four times as fast as picking by the mask itself.
    return nodes.slots.take(np.flatnonzero(mask if live is None else mask & live))


_Found = Callable[[list[str]], pa.Table | None]
"""Reads the rows that a search of storage finds, with some columns."""


def _storage_search(session: Session, step: plan.Scan) -> _Found | None:
    """A search that storage can do for a table that is not in memory; None if there is none."""
    if session.tables.has_in_memory(step.type_name):
        return None
    prepared = session.prepared
    reader = session.tables.reader
    if not reader.columns(f"node:{step.type_name}").is_same:
        return None
    handle = reader.handle(f"node:{step.type_name}")
    for predicate in step.predicates:
        call = prepared.calls.get(predicate.name) if isinstance(predicate, ex.OutputValue) else None
        if isinstance(call, ex.TextMatch) and session.search.in_storage(call):
            text = session.search.text(call.query) or ""
            return lambda columns: matching_rows(handle, call.property, text, columns)
    ranked = prepared.compiled.rank
    score = None if ranked is None else ranked.score
    alone = len(prepared.pattern.steps) == 1 and not step.predicates
    kept = not (prepared.having or prepared.compiled.distinct)
    stop = session.last_row()
    if isinstance(score, ex.Nearest) and alone and kept and stop:
        return partial(_nearest, session, handle, score, stop)
    return None


def _nearest(
    session: Session, handle: Handle, score: ex.Nearest, stop: int, columns: list[str]
) -> pa.Table | None:
    """A shortlist with the nearest rows; None if it may not hold all that are wanted."""
    query = session.search.query_vector(score)
    found = nearest_rows(handle, score.property, query.tolist(), stop, columns)
    return found if found.num_rows >= stop else None


def _fetched(
    session: Session, step: plan.Scan, nodes: FetchedNodes, found_by: _Found | None
) -> tuple[Slots, str]:
    """Rows that storage finds; it may give more than satisfy the conditions, never less."""
    found = None if found_by is None else found_by(nodes.columns)
    if found is not None:
        return nodes.add(found.select(nodes.columns), paid=True), "storage search"
    wanted = storage_filter(step.predicates, session.run)
    reader = session.tables.reader
    rows = reader.rows_where(f"node:{step.type_name}", wanted, nodes.columns)
    return nodes.add(rows, paid=True), "storage scan"


class _WholeTable(FrameValues):
    """Columns of a type as they lie, deleted rows included, without a row picked out."""

    def __init__(self, session: Session, nodes: CachedNodes, variable: str) -> None:
        super().__init__(session, Frame(nodes.view.layout.size, {variable: nodes.slots}))
        self._nodes = nodes

    def _read(self, leaf: ColumnExpression) -> pa.Array:
        if isinstance(leaf, ex.PropertyValue) and leaf.property != "id":
            return self._nodes.view.column(leaf.property, arrow_type(leaf.type))
        return super()._read(leaf)
