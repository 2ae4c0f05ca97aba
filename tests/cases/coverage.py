"""Few cases that together have every form of every node of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from omnigraph.errors import OmnigraphError
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.compile import compile_query
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from tests.cases.format import Case

Planned = tuple[Case, plan.ReadPlan]


def answered(cases: Sequence[Case]) -> list[Planned]:
    """The cases that an engine runs, with their plans: not those that the compiler refuses."""
    catalogs: dict[str, Catalog] = {}
    found = []
    for case in cases:
        schema = case.setup.schema
        if schema not in catalogs:
            catalogs[schema] = compile_schema(schema).catalog
        try:
            compiled = compile_query(case.query, catalogs[schema], case.select)
        except OmnigraphError:
            continue
        if isinstance(compiled, plan.ReadPlan):
            found.append((case, compiled))
    return found


def representative(cases: Sequence[Planned]) -> list[Planned]:
    """Cases that have, together, every form that one of them has; the richest first."""
    missing = [set(forms(each)) for _, each in cases]
    chosen = []
    while any(missing):
        best = max(range(len(cases)), key=lambda at: len(missing[at]))
        chosen.append(cases[best])
        covered = missing[best]
        missing = [rest - covered for rest in missing]
    return chosen


def forms(read: plan.ReadPlan) -> Iterator[str]:
    """The nodes of a plan and their variants, by name; not those of expressions."""
    yield from _pattern(read.pattern, "")
    if read.rank is not None:
        yield f"rank {type(read.rank.score).__name__} {read.rank.best_first}"
    if read.group_by is not None:
        yield f"group by {min(len(read.group_by.items), 2)}"
        for entry in read.group_by.aggregates:
            yield f"{entry.value.function} distinct={entry.value.distinct}"
    yield from (f"order descending={key.descending}" for key in read.order)
    for name in ("having", "distinct", "limit", "offset", "per"):
        if getattr(read, name):
            yield name
    for column in read.columns:
        if isinstance(column.expression, ex.EntityObject):
            yield "whole entity"


def _pattern(pattern: plan.Pattern, inside: str) -> Iterator[str]:
    for at, step in enumerate(pattern.steps):
        name = f"{inside}{type(step).__name__}"
        yield name
        match step:
            case plan.Scan():
                yield f"{name} first={at == 0} id={step.entity_id is not None}"
            case plan.Expand():
                yield f"{name} {step.direction}"
                yield f"{name} hops={min(step.maximum, 3)} least={min(step.minimum, 2)}"
                yield (
                    f"{name} edge={step.edge_variable is not None}"
                    f" path={step.path_variable and step.path_kind} test={step.target_is_bound}"
                )
            case plan.Exclude() | plan.Extend():
                yield from _pattern(step.pattern, "inner ")
            case plan.Compute():
                yield f"{name} {step.function} items={min(len(step.items), 2)}"
                yield f"{name} ordered={bool(step.order)} limited={step.limit is not None}"
                yield f"{name} distinct={step.distinct}"
                yield from _pattern(step.pattern, "inner ")
            case plan.Exists():
                yield f"{name} {min(len(step.alternatives), 2)}"
                for each in step.alternatives:
                    yield from _pattern(each, "inner ")
            case plan.Stage():
                yield from (f"staged {form}" for form in forms(step.read))
                yield from (f"{name} optional={node.optional}" for node in step.nodes)
            case plan.FilterRows() | plan.Unnest():
                pass
            case _:
                assert_never(step)
