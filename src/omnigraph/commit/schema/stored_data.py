"""Checks stored entities against the constraints that a schema apply adds.

The constraints of `commit.validation` are evaluated over whole tables in their form after the
apply: with new names, wider types and defaults. Rows are streamed. A constraint on keys holds eight
bytes per row in memory, and then rows whose keys may be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.commit.schema.change import target_columns
from omnigraph.commit.validation.constraints import (
    Unique,
    ValueConstraint,
    Violation,
    unique_groups,
    value_constraints,
)
from omnigraph.commit.validation.evaluation import (
    KeyColumns,
    KeyRows,
    Prints,
    evaluate,
    fingerprints,
    keys_of,
    values_breaking,
)
from omnigraph.errors import ConstraintViolation
from omnigraph.model.arrow import ID
from omnigraph.model.ids import EntityKind
from omnigraph.model.merging import ConflictKind
from omnigraph.model.references import id_in, with_prefix
from omnigraph.schema.catalog import Catalog, Check, EdgeType, Range, TableType
from omnigraph.schema.shape import ColumnsShape, ConstraintShape
from omnigraph.schema.steps import AddConstraint, Step, written_constraint
from omnigraph.storage.columns import TargetColumn
from omnigraph.storage.reader import SnapshotReader

PROBLEMS_MAX = 20
"""How many violations an error lists; all are counted."""
NAMED_MAX = 3
"""How many violations the message names."""

SUSPECTS_MAX = 1_000_000
"""How many rows that may share keys are compared at a time; the search ends after the first part
with a violation."""


def check_stored_data(
    steps: Iterable[Step],
    old: Catalog,
    new: Catalog,
    reader: SnapshotReader,
    verb: str = "apply the schema",
) -> None:
    """Raise `ConstraintViolation` if stored entities break a constraint that ``steps`` add.

    Also raised for edges at an interface that refer to nodes of a dropped type.

    The error is about the first broken constraint, and names the entities; ``verb`` is the
    operation to repeat after correcting them.
    """
    before = {(type(each), each.type_id): each for each in old.types}
    _require_no_references(old, new, reader, verb)
    for step in steps:
        if not isinstance(step, AddConstraint) or step.code is None:
            continue
        if step.type_kind == "interface":
            continue  # an interface has no table, and its node types have their own steps
        types: Mapping[str, TableType] = new.nodes if step.type_kind == "node" else new.edges
        desired = types[step.type_name]
        stored = before[type(desired), desired.type_id]
        if not reader.is_empty(stored.table_key):
            rows = _FutureRows(reader, stored, desired)
            _require_kept(step, _violations(desired, step.constraint, rows), verb)


def _require_no_references(old: Catalog, new: Catalog, reader: SnapshotReader, verb: str) -> None:
    nodes = {node.type_id for node in new.nodes.values()}
    edges = {edge.type_id for edge in new.edges.values()}
    dropped = {name for name, node in old.nodes.items() if node.type_id not in nodes}
    for edge in old.edges.values() if dropped else ():
        if edge.type_id not in edges or reader.is_empty(edge.table_key):
            continue
        for column, prefixes in edge.end_types.items():
            for name in sorted(dropped & prefixes.keys()):
                for batch in reader.batches(edge.table_key, [ID, column]):
                    found = batch.filter(with_prefix(batch[column], prefixes[name]))
                    if found.num_rows:
                        entity_id, node_id = found[ID][0].as_py(), id_in(found[column][0].as_py())
                        raise ConstraintViolation(
                            f"cannot drop node {name}: edge {edge.name} '{entity_id}' "
                            f"refers to {name} '{node_id}'",
                            hint=f"delete the edges of its nodes first, then {verb} again",
                            details={"table_key": edge.table_key, "entity_id": entity_id},
                        )


def _require_kept(step: AddConstraint, violations: Iterator[Violation], verb: str) -> None:
    shown: list[Violation] = []
    counts: Counter[str] = Counter()
    for violation in violations:
        counts[violation.report] += 1
        if len(shown) < PROBLEMS_MAX:
            shown.append(violation)
    if not shown:
        return
    told = [_message_of(violation) for violation in shown[:NAMED_MAX]]
    if counts.total() > len(told):
        told.append(f"and {counts.total() - len(told)} more")
    where = f"{step.type_kind}:{step.type_name}"
    raise ConstraintViolation(
        f"cannot add {written_constraint(step.constraint)} to {where}, "
        f"which stored data breaks: {'; '.join(told)}",
        hint=f"mend or delete these entities first, then {verb} again",
        details={
            "constraint": written_constraint(step.constraint),
            "table_key": where,
            "problems": [violation.to_dict() for violation in shown],
            "counts": dict(counts),
        },
    )


def _message_of(violation: Violation) -> str:
    """The message, with the id of the entity added if it lacks one."""
    if violation.kind is ConflictKind.VALUE_CONSTRAINT_VIOLATION:
        return f"'{violation.entity_id}': {violation.message}"
    return violation.message


class _FutureRows:
    """The rows of a table with their columns after the apply."""

    def __init__(self, reader: SnapshotReader, stored: TableType, desired: TableType) -> None:
        self._reader = reader
        self._table_key = stored.table_key
        self._targets = {each.field.name: each for each in target_columns(stored, desired)}

    def batches(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """The id and ``names``, batch by batch."""
        targets = [self._targets[name] for name in dict.fromkeys([ID, *names])]
        reads = list(dict.fromkeys(target.stored or ID for target in targets))
        for batch in self._reader.batches(self._table_key, reads):
            yield pa.table({each.field.name: _future(each, batch) for each in targets})


def _future(target: TargetColumn, batch: pa.RecordBatch) -> pa.Array:
    if target.fill is not None:
        return target.fill(batch)
    if target.stored is None:
        return pa.nulls(batch.num_rows, target.field.type)
    return batch.column(target.stored)


def _violations(type: TableType, added: ConstraintShape, rows: _FutureRows) -> Iterator[Violation]:
    values = [each for each in value_constraints(type) if _is_part_of(each, added)]
    if values:
        yield from _broken_values(type, values, rows)
    if isinstance(added, ColumnsShape):
        for group in unique_groups(type):
            if set(group.columns) == set(added.columns):
                yield from _held_twice(type, group, rows)


def _is_part_of(constraint: ValueConstraint, added: ConstraintShape) -> bool:
    """Whether a constraint on values is the added one or a part of it."""
    match added:
        case Range():
            return constraint.kind == "range" and constraint.property == added.property
        case Check():
            is_check = constraint.kind == "check" and constraint.property == added.property
            return is_check and getattr(constraint, "pattern", None) == added.pattern
        case ColumnsShape():
            is_key = added.kind == "key" and constraint.kind == "finite"
            return is_key and constraint.property in added.columns


def _broken_values(
    type: TableType, constraints: Sequence[ValueConstraint], rows: _FutureRows
) -> Iterator[Violation]:
    entity: EntityKind = "edge" if isinstance(type, EdgeType) else "node"
    kind = ConflictKind.VALUE_CONSTRAINT_VIOLATION
    for batch in rows.batches([constraint.property for constraint in constraints]):
        for broken in values_breaking(constraints, batch):
            entity_id = batch[ID][broken.row].as_py()
            yield Violation(
                entity, type.name, entity_id, kind, broken.message, property_name=broken.property
            )


def _held_twice(type: TableType, group: Unique, rows: _FutureRows) -> Iterator[Violation]:
    of = KeyColumns.of(type, "written", group.columns)
    prints = [fingerprints(keys_of(of, batch)[0]) for batch in rows.batches(group.columns)]
    for repeated in _repeated(np.concatenate([np.zeros(0, np.uint64), *prints])):
        suspects = []
        for batch in rows.batches(group.columns):
            keys, at = keys_of(of, batch)
            chosen = pa.array(np.flatnonzero(np.isin(fingerprints(keys), repeated)))
            suspects.append(batch.take(chosen if at is None else at.take(chosen)))
        # Different texts may have equal fingerprints, so there may be no violation.
        if found := evaluate(group, [KeyRows(of, pa.concat_tables(suspects))]):
            yield from found
            return


def _repeated(prints: Prints) -> Iterator[Prints]:
    """Fingerprints of several rows, in parts of at most about `SUSPECTS_MAX` rows."""
    values, counts = np.unique(prints, return_counts=True)
    values, counts = values[counts > 1], counts[counts > 1]
    part = np.cumsum(counts) // SUSPECTS_MAX
    for at in np.unique(part):
        yield values[part == at]
