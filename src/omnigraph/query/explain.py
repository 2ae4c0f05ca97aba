"""A plan as text, one line a step, for `--explain`, the demo and debugging."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import assert_never

from omnigraph.model.values import BlobUri, format_date, format_datetime
from omnigraph.query import expressions as ex
from omnigraph.query import plan

_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def explain(compiled: plan.QueryPlan) -> str:
    """The steps of a plan in execution order, one per line, indented by nesting."""
    lines = _read(compiled) if isinstance(compiled, plan.ReadPlan) else _mutation(compiled.steps)
    return "\n".join([f"{_kind(compiled)} {compiled.name}{_parameters(compiled)}", *lines])


def _kind(compiled: plan.QueryPlan) -> str:
    return "read" if isinstance(compiled, plan.ReadPlan) else "mutation"


def _parameters(compiled: plan.QueryPlan) -> str:
    shown = ", ".join(f"${p.name}: {p.type}" for p in compiled.parameters)
    return f"({shown})" if shown else ""


def _read(compiled: plan.ReadPlan, last: str = "Return") -> Iterator[str]:
    """The lines of a read, which end with what it returns, or as a stage hands on."""
    yield from _pattern(compiled.pattern, "  ")
    if compiled.rank is not None:
        order = "best first" if compiled.rank.best_first else "worst first"
        yield f"  Rank ${compiled.rank.score.variable} by {show(compiled.rank.score)}, {order}"
    if compiled.group_by is not None:
        items = ", ".join(name for name, _ in compiled.group_by.items) or "all rows"
        values = ", ".join(
            f"{entry.name} = {show(entry.value)}" for entry in compiled.group_by.aggregates
        )
        yield f"  GroupBy {items}: {values}"
    for condition in compiled.having:
        yield f"  Having {show(condition)}"
    if compiled.distinct:
        yield "  Distinct"
    if compiled.order:
        yield f"  Order by {_keys(compiled.order)}"
    if compiled.per is not None:
        keys = ", ".join(map(show, compiled.per.keys))
        yield f"  Limit {_count(compiled.per.count)} per {keys}"
    if compiled.offset is not None:
        yield f"  Offset {_count(compiled.offset)}"
    if compiled.limit is not None:
        yield f"  Limit {_count(compiled.limit)}"
    columns = ", ".join(_column(column) for column in compiled.columns)
    yield f"  {last} {columns}"


def _pattern(pattern: plan.Pattern, indent: str) -> Iterator[str]:
    for step in pattern.steps:
        if isinstance(step, plan.Stage):
            yield from _read(step.read, "With")  # always the first step of a whole match
            continue
        yield indent + explain_step(step)
        match step:
            case plan.Exclude() | plan.Extend() | plan.Compute():
                yield from _pattern(step.pattern, indent + "  ")
            case plan.Expand(weight=plan.ComputedWeight() as weight):
                yield from _pattern(weight.pattern, indent + "  ")
            case plan.Exists():
                for at, alternative in enumerate(step.alternatives):
                    if at > 0:
                        yield f"{indent}or"
                    yield from _pattern(alternative, indent + "  ")


def explain_step(step: plan.Step) -> str:
    """One step of a pattern, without its inner patterns."""
    match step:
        case plan.Scan():
            among = " among those of any" if step.among else ""
            return f"Scan ${step.variable}: {step.type_name}{among}{_where(step.predicates)}"
        case plan.Expand():
            return f"{_expand(step)}{_where(step.predicates)}"
        case plan.FilterRows():
            return f"Filter{_where(step.predicates)}"
        case plan.Exclude():
            return "Exclude"
        case plan.Extend():
            return "Optional"
        case plan.Exists():
            return "Any of"
        case plan.Compute():
            return f"Compute {step.variable.removeprefix('.')}{_computed(step)}"
        case plan.Stage():
            return f"With {', '.join(column.name for column in step.read.columns)}"
        case plan.Unnest():
            return f"Unnest ${step.variable} in {show(step.list)}"


def _computed(step: plan.Compute) -> str:
    """The items of a block, their order, and the limit."""
    text = ""
    if step.items:
        shown = ", ".join(f"{name} = {show(value)}" for name, value in step.items)
        text = f" of {'distinct ' if step.distinct else ''}{shown}"
    if step.order:
        text += f" order by {_keys(step.order)}"
    return text if step.limit is None else f"{text} limit {_count(step.limit)}"


def _keys(keys: tuple[plan.SortKey, ...]) -> str:
    return ", ".join(show(key.expression) + (" desc" if key.descending else "") for key in keys)


def _expand(step: plan.Expand) -> str:
    word = f"${step.edge_variable}:{step.edge_type}" if step.edge_variable else step.edge_type
    bounds = "" if step.is_single else f"{{{_minimum(step)},{_maximum(step)}}}"
    left, right = {"out": ("-", "->"), "in": ("<-", "-"), "both": ("-", "-")}[step.direction]
    verb = "Check" if step.target_is_bound else "Expand"
    kind = "" if step.path_kind == "one" else f"{step.path_kind} "
    path = f" via {kind}${step.path_variable}" if step.path_variable else ""
    weight = step.weight.value if isinstance(step.weight, plan.ComputedWeight) else step.weight
    path += f" by {show(weight)}" if weight is not None else ""
    arrow = f"{left}{word}{bounds}{right}"
    return f"{verb} ${step.source} {arrow} ${step.target}: {step.target_type}{path}"


def _minimum(step: plan.Expand) -> str:
    return str(step.minimum) if step.minimum_from is None else show(step.minimum_from)


def _maximum(step: plan.Expand) -> str:
    if step.maximum_from is not None:
        return show(step.maximum_from)
    return "" if step.maximum == plan.HOPS_MAX else str(step.maximum)


def _mutation(steps: Iterable[plan.MutationStep], indent: str = "  ") -> Iterator[str]:
    for step in steps:
        match step:
            case plan.InsertNode():
                yield f"{indent}InsertNode {step.type_name} {_assigned(step.assignments)}"
            case plan.InsertEdge():
                ends = f"{show(step.source)} -> {show(step.target)}"
                yield f"{indent}InsertEdge {step.type_name} {ends} {_assigned(step.assignments)}"
            case plan.UpdateNodes() | plan.UpdateEdges():
                yield (
                    f"{indent}{type(step).__name__} {step.type_name} {_assigned(step.assignments)}"
                    f"{_where((step.predicate,))}"
                )
            case plan.DeleteNodes():
                cascade = f" with edges {', '.join(step.incident_edges)}"
                yield (
                    f"{indent}DeleteNodes {step.type_name}{_where((step.predicate,))}"
                    f"{cascade if step.incident_edges else ''}"
                )
            case plan.DeleteEdges():
                yield f"{indent}DeleteEdges {step.type_name}{_where((step.predicate,))}"
            case plan.ForEach():
                yield f"{indent}ForEach ${step.variable} in ${step.items}"
                yield from _mutation(step.steps, f"{indent}  ")


def _assigned(assignments: tuple[plan.Assignment, ...]) -> str:
    return "{" + ", ".join(f"{a.property}: {show(a.value)}" for a in assignments) + "}"


def _where(predicates: tuple[ex.Expression, ...]) -> str:
    return f" where {' and '.join(map(show, predicates))}" if predicates else ""


def _count(count: plan.RowCount) -> str:
    return str(count) if isinstance(count, int) else show(count)


def _column(column: plan.Column) -> str:
    if isinstance(column.expression, ex.EntityObject):
        return f"{column.name} = ${column.expression.variable}.*"
    if isinstance(column.expression, ex.RecordList):
        return f"{column.name} = {column.expression.variable.removeprefix('.')}"
    return f"{column.name} = {show(column.expression)}"


def show(expression: ex.Expression) -> str:
    """An expression in the syntax of the language, as far as it has one."""
    match expression:
        case ex.Constant():
            return show_constant(expression.value)
        case ex.ParameterValue():
            return f"${expression.name}"
        case ex.CurrentTime():
            return "now()"
        case ex.PropertyValue():
            owner = f"${expression.variable}." if expression.variable else ""
            return f"{owner}{expression.property}"
        case ex.EntityId():
            return f"${expression.variable}"
        case ex.PathNodes():
            return f"${expression.variable}.nodes"
        case ex.PathLength():
            return f"${expression.variable}.length"
        case ex.BoundValue():
            name = expression.variable
            return name[1:] if name.startswith(".") else f"${name}"
        case ex.CarriedNode():
            return f"${expression.variable}"
        case ex.PathEdges():
            return f"${expression.variable}.edges"
        case ex.PathCost():
            return f"${expression.variable}.cost"
        case ex.OutputValue():
            return expression.name
        case ex.RoundToF32():
            return f"f32({show(expression.operand)})"
        case ex.KeyId():
            return f"id({show(expression.operand)})"
        case ex.ArithmeticValue() | ex.Compare():
            return f"{_part(expression.left)} {expression.operator} {_part(expression.right)}"
        case ex.ScalarCall():
            return f"{expression.function}({', '.join(map(show, expression.arguments))})"
        case ex.TextContains():
            return f"{_part(expression.text)} contains {_part(expression.needle)}"
        case ex.TextStartsWith():
            return f"{_part(expression.text)} starts_with {_part(expression.prefix)}"
        case ex.TextEndsWith():
            return f"{_part(expression.text)} ends_with {_part(expression.suffix)}"
        case ex.TextMatches():
            return f"{_part(expression.text)} matches {_part(expression.pattern)}"
        case ex.ListItem():
            return f"{_part(expression.list)}[{show(expression.index)}]"
        case ex.ConditionalValue():
            return _conditional(expression)
        case ex.ListContains():
            return f"{_part(expression.list)} contains {_part(expression.item)}"
        case ex.IsNull():
            return f"{_part(expression.operand)} is {'not ' if expression.negated else ''}null"
        case ex.Combine():
            return f" {expression.operator} ".join(map(_part, expression.operands))
        case ex.TextMatch():
            extra = f", {show(expression.edits_max)}" if expression.edits_max is not None else ""
            return f"{expression.function}({_searched(expression)}{extra})"
        case ex.TextQuery():
            return f"{expression.kind}({show(expression.text)})"
        case ex.Highlight():
            style = "" if expression.style == "text" else f', "{expression.style}"'
            return f"highlight({_searched(expression)}{style})"
        case ex.Nearest():
            return f"nearest({_searched(expression)})"
        case ex.Bm25():
            return f"bm25({_searched(expression)})"
        case ex.Rrf():
            return f"rrf({show(expression.first)}, {show(expression.second)}, {show(expression.k)})"
        case ex.AggregateValue():
            inner = "*" if expression.argument is None else show(expression.argument)
            if expression.fraction is not None:
                inner += f", {show(expression.fraction)}"
            return f"{expression.function}({'distinct ' if expression.distinct else ''}{inner})"


def _conditional(expression: ex.ConditionalValue) -> str:
    cases = [
        (show(condition), show(value))
        for condition, value in zip(expression.conditions, expression.values, strict=True)
    ]
    otherwise = None if expression.otherwise is None else show(expression.otherwise)
    if len(cases) == 1:
        return f"if({', '.join([*cases[0], *([] if otherwise is None else [otherwise])])})"
    shown = [f"{condition}: {value}" for condition, value in cases]
    return f"case {{ {', '.join(shown if otherwise is None else [*shown, f'else: {otherwise}'])} }}"


def _searched(call: ex.TextMatch | ex.Highlight | ex.Nearest | ex.Bm25) -> str:
    return f"${call.variable}.{call.property}, {show(call.query)}"


def _part(expression: ex.Expression) -> str:
    """An operand, in parentheses if it has operators of its own."""
    text = show(expression)
    return (
        f"({text})"
        if isinstance(expression, ex.ArithmeticValue | ex.Compare | ex.Combine)
        else text
    )


def show_constant(value: ex.Value) -> str:
    """A constant in the syntax of the language; Blobs by size or address."""
    match value:
        case None:
            return "null"
        case tuple():
            return "[" + ", ".join(map(show_constant, value)) + "]"
        case bytes():
            return f"<{len(value)} bytes>"
        case BlobUri():
            return show_constant(value.uri)
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value.translate(_ESCAPES)}"'
        case int():
            return str(value)
        case float():
            digits = format(Decimal(repr(value)), "f")
            return digits if "." in digits else f"{digits}.0"
        case dt.datetime():
            return f'datetime("{format_datetime(value)}")'
        case dt.date():
            return f'date("{format_date(value)}")'
        case _:
            assert_never(value)
