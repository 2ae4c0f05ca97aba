"""Everything that is wrong with an input, alone and together with the graph it goes to.

A load stops at its first problem unless its caller wants them all. Then each rule is applied to the
records that are good as far as the rules before it say, and what it finds is put beside the record
that is to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.change_set import GraphView
from omnigraph.commit.validation import Violation, validate
from omnigraph.commit.validation.values import broken_values
from omnigraph.commit.validation.violations import MissingNode
from omnigraph.loading.record_input import InputTable, LoadInput
from omnigraph.loading.record_plan import LoadPlan, plan_load
from omnigraph.loading.records.problems import Findings, Place, Problem, ProblemKind, Unit
from omnigraph.loading.records.rows import TypedRows
from omnigraph.model.arrow import ID, SRC
from omnigraph.model.merging import ConflictKind

EXISTING_HINT = "use mode merge to update existing entities"

_KINDS: dict[ConflictKind, ProblemKind] = {
    ConflictKind.UNIQUE_VIOLATION: "unique",
    ConflictKind.ORPHAN_EDGE: "missing_node",
    ConflictKind.CARDINALITY_VIOLATION: "cardinality",
}


def value_problems(rows: TypedRows, unit: Unit) -> list[Problem]:
    """The values of some rows that their properties may not hold."""
    broken = broken_values(rows.type, rows.rows)
    return [
        Problem(
            "constraint",
            each.message,
            Place(rows.source, rows.numbers[each.row].as_py(), unit),
            rows.type.name,
            each.property,
            entity_id=rows.rows[ID][each.row].as_py(),
        )
        for each in broken
    ]


def checked_plan(
    loaded: LoadInput,
    view: GraphView,
    replace_types: Iterable[str],
    found: Sequence[Problem],
    findings: Findings,
    *,
    values: bool = True,
) -> LoadPlan:
    """`plan_load`, or a failure with every problem; ``found`` are those of single records.

    Without ``values``, those have been held against their constraints where they were read.
    """
    existing: dict[str, pa.Array] = {}
    plan = plan_load(loaded, view, replace_types=replace_types, existing_ids=existing)
    problems = list(found)
    for table in loaded.tables.values() if values else ():
        for part in table.places.parts:
            problems += value_problems(part, table.places.unit)
    for key, ids in existing.items():
        problems += _existing(loaded.tables[key], ids)
    said = {problem.message for problem in problems}
    stranded: set[tuple[str, str | None, str]] = set()
    for violation in validate(plan.changes, loaded.catalog, view, given=plan.given, collect=True):
        # Values were looked at above, and a key that repeats was told as such.
        if violation.kind not in _KINDS or violation.message in said:
            continue
        if violation.missing is not None and violation.missing.is_removed:
            # An edge may start and end at one node, and lacks it once.
            edge = (violation.type_name, violation.entity_id, violation.missing.entity_id)
            if edge in stranded:
                continue
            stranded.add(edge)
        problems += _located(violation, loaded)
    for problem in problems:
        findings.note(problem)
    findings.raise_if_any()
    return plan


def _existing(table: InputTable, ids: pa.Array) -> list[Problem]:
    kind = table.type.table_key.partition(":")[0]
    taken = pc.indices_nonzero(pc.is_in(table.raw_rows[ID], value_set=ids)).to_pylist()
    return [
        Problem(
            "existing_id",
            f"{kind} {table.type.name} '{entity_id}' already exists",
            table.places.of(row),
            table.type.name,
            ID,
            EXISTING_HINT,
            entity_id,
        )
        for row, entity_id in ((row, table.raw_rows[ID][row].as_py()) for row in taken)
    ]


def _located(violation: Violation, loaded: LoadInput) -> list[Problem]:
    """A violation beside its record; none for what a refused record would have prevented."""
    kind = _KINDS[violation.kind]
    member: str | None = None
    if violation.missing is not None:
        member = violation.missing.member
        if _names_refused(violation.missing, loaded):
            return []
    elif kind == "unique":
        columns = violation.message.partition(": ")[0].rpartition(".")[2]
        member = None if columns.startswith("(") else columns
    key = f"{violation.entity_kind}:{violation.type_name}"
    table = loaded.tables.get(key)
    place = None
    if table is not None and violation.entity_id is not None:
        row = pc.index(table.raw_rows[ID], violation.entity_id).as_py()
        place = table.places.of(row) if row >= 0 else None
    elif table is not None and violation.degree is not None:
        place = _first_edge(table, violation.degree.source)
    return [
        Problem(
            kind,
            violation.sentence,
            place,
            violation.type_name,
            member,
            violation.hint,
            violation.entity_id,
        )
    ]


def _first_edge(table: InputTable, source: str) -> Place | None:
    """Where the first record of an edge with this source is."""
    ids = table.rows[ID].filter(pc.equal(table.rows[SRC], source))
    row = pc.index(pc.is_in(table.raw_rows[ID], value_set=ids), True).as_py()
    return table.places.of(row) if row >= 0 else None


def _names_refused(node: MissingNode, loaded: LoadInput) -> bool:
    refused = loaded.refused_ids.get(f"node:{node.type_name}")
    return refused is not None and pc.index(refused, node.entity_id).as_py() >= 0
