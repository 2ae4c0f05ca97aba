"""Few cases that together have every form of every node of a plan, or of all its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, assert_never

from omnigraph.errors import OmnigraphError
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.compile import compile_query
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from tests.cases.format import Case, ExpectedError

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


def representative(
    cases: Sequence[Planned], has: Callable[[Planned], Iterator[str]] | None = None
) -> list[Planned]:
    """Cases that have, together, every form that one of them has; the richest first.

    ``has`` gives the forms of a case; without it, those of the nodes of its plan count.
    """
    missing = [set(forms(each[1]) if has is None else has(each)) for each in cases]
    chosen = []
    while any(missing):
        best = max(range(len(cases)), key=lambda at: len(missing[at]))
        chosen.append(cases[best])
        covered = missing[best]
        missing = [rest - covered for rest in missing]
    return chosen


def all_forms(planned: Planned) -> Iterator[str]:
    """The forms of a case in full: nodes, expressions by place and by type, what it answers with.

    How an operation computes a type does not depend on its place: workers run the same kernels
    everywhere. So places and types need not meet each other.
    """
    case, read = planned
    tail = _tail(read)
    yield from forms(read)
    yield from (f"{tail} {form}" for form in forms(read) if form.startswith("rank"))
    yield from _expressions(read, "")
    if isinstance(case.expected, ExpectedError):
        yield f"error {case.expected.code}"
        return
    yield tail
    if not case.expected.rows:
        yield f"{tail} of no row"
    for at, column in enumerate(read.columns):
        for kind in {_kind(row[at]) for row in case.expected.rows}:
            yield f"{tail} answers {kind}"
            yield f"{type(column.expression).__name__} answers {kind}"
    for name in ("branch", "snapshot", "now", "environment"):
        if getattr(case, name) is not None:
            yield name


def _tail(read: plan.ReadPlan) -> str:
    """How the rows of a plan become its answer."""
    grouped = "grouped" if read.group_by is not None else "rows"
    return " ".join([grouped, *(each for each in ("distinct", "order") if getattr(read, each))])


def _kind(value: Any) -> str:
    """What is special about a value of an answer."""
    match value:
        case None:
            return "null"
        case "" | [] | {} | 0:
            return f"an empty {type(value).__name__}"
        case "NaN" | "Infinity" | "-Infinity":
            return str(value)
        case list():
            return f"a list of {' and '.join(sorted({_kind(item) for item in value}))}"
        case int() | float() if value < 0:
            return f"a negative {type(value).__name__}"
    return type(value).__name__


def _expressions(part: Any, place: str) -> Iterator[str]:
    """Every expression of a plan: its class and its place; what it does, and the type of that."""
    if isinstance(part, tuple):
        for each in part:
            yield from _expressions(each, place)
    elif isinstance(part, ex.Whole):
        yield f"{place} {type(part).__name__}"
    elif isinstance(part, ex.Expression):
        does = [getattr(part, name, "") for name in ("operator", "function", "negated", "distinct")]
        yield f"{place} {type(part).__name__}"
        yield f"{type(part).__name__} {does} {part.type}"
        for operand in ex.children(part):
            yield from _expressions(operand, place)
    elif is_dataclass(part):
        for entry in fields(part):
            yield from _expressions(
                getattr(part, entry.name), f"{type(part).__name__}.{entry.name}"
            )


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
                if step.weight_pattern is not None:
                    yield f"{name} computed weight"
                    yield from _pattern(step.weight_pattern, "inner ")
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
