"""Everything that is wrong with an input, alone and together with the graph it goes to.

A load reports every problem. Each constraint is applied to the records that are good as far as the
ones before it say, and what it finds is put beside the record to show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow.compute as pc

from omnigraph.commit.change_set import GraphView
from omnigraph.commit.validation import validate
from omnigraph.commit.validation.constraints import Holder
from omnigraph.commit.validation.evaluation import broken_values
from omnigraph.loading.record_input import LoadInput
from omnigraph.loading.record_plan import LoadPlan, plan_load
from omnigraph.loading.records.problems import Findings, Place, Problem, Unit, problems_of
from omnigraph.loading.records.rows import TypedRows
from omnigraph.model.arrow import ID


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
) -> LoadPlan:
    """`plan_load`, or a failure with every problem; ``found`` are those of single records."""
    plan = plan_load(loaded, view, replace_types=replace_types)
    for problem in found:
        findings.note(problem)
    for table in loaded.tables.values():
        for part in table.places.parts:
            for problem in value_problems(part, table.places.unit):
                findings.note(problem)

    def place_of(table_key: str, holder: Holder, *, own: bool) -> Place | None:
        table = loaded.tables.get(table_key)
        if table is None or holder.is_kept:
            return None
        row = holder.record[1] if own else pc.index(table.raw_rows[ID], holder.entity_id).as_py()
        return table.places.of(row) if row >= 0 else None

    violations = validate(
        plan.changes, loaded.catalog, view, given=plan.given, collect=True, values=False
    )
    for problem in problems_of(violations, place_of):
        findings.note(problem)
    findings.raise_if_any()
    return plan
