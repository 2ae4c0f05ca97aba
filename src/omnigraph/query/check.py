"""Type-checks one parsed query against a catalog and turns it into a plan."""

from __future__ import annotations

from omnigraph.model.types import VECTOR_DIMENSION_MAX
from omnigraph.query import ast, plan
from omnigraph.query.check_match import check_match
from omnigraph.query.check_mutation import check_mutation
from omnigraph.query.check_order import check_order
from omnigraph.query.check_return import check_return
from omnigraph.query.expressions import ParameterValue
from omnigraph.query.lower import lower_block
from omnigraph.query.scope import Context, EdgeVariable, NodeVariable, Scope
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax.source import Source

RESERVED_PARAMETER = "__nanograph_now"
"""A parameter name the reference implementation uses internally; queries cannot declare it."""


def check_query(query: ast.Query, source: Source, catalog: Catalog) -> plan.Plan:
    """The typed plan of ``query``; raises `QueryTypeError` at the first problem."""
    context = Context(source, catalog, {})
    for parameter in query.parameters:
        _declare(parameter, context)
    if isinstance(query.body, ast.Write):
        return check_mutation(query, query.body, context)
    return _check_read(query, query.body, context)


def _declare(parameter: ast.Parameter, context: Context) -> None:
    if parameter.name in (RESERVED_PARAMETER, ast.ANONYMOUS):
        raise context.error(None, f"parameter `${parameter.name}` is reserved", parameter.span)
    dimension = parameter.type.vector_dim
    if dimension is not None and not 1 <= dimension <= VECTOR_DIMENSION_MAX:
        raise context.error(
            None,
            f"unknown parameter type `{parameter.type}`",
            parameter.span,
            f"a vector has between 1 and {VECTOR_DIMENSION_MAX} dimensions",
        )
    if parameter.name in context.parameters:
        raise context.error(
            "T26", f"parameter `${parameter.name}` is declared twice", parameter.span
        )
    context.parameters[parameter.name] = parameter


def _check_read(query: ast.Query, body: ast.Read, context: Context) -> plan.ReadPlan:
    block, scope = check_match(body.clauses, context)
    output = check_return(body, context, scope)
    ordering = check_order(body, output, context, scope)
    return plan.ReadPlan(
        query.name,
        tuple(plan.Parameter(p.name, p.type) for p in query.parameters),
        lower_block(block, context.catalog),
        _bound_variables(scope),
        ordering.rank,
        output.group_by,
        output.columns,
        output.having,
        body.distinct,
        ordering.keys,
        ordering.tie_breakers,
        _row_count(body.limit, "limit", context),
        _row_count(body.offset, "offset", context),
        query.description,
        query.instruction,
    )


def _bound_variables(scope: Scope) -> tuple[plan.BoundVariable, ...]:
    found: list[plan.BoundVariable] = []
    for name in sorted(scope.own):
        bound = scope.own[name]
        if isinstance(bound, NodeVariable):
            found.append(plan.BoundVariable(name, "node", bound.type.name))
        elif isinstance(bound, EdgeVariable):
            found.append(plan.BoundVariable(name, "edge", bound.type.name))
    return tuple(found)


def _row_count(count: ast.Count | None, word: str, context: Context) -> plan.RowCount | None:
    if count is None:
        return None
    if isinstance(count.value, int):
        return count.value
    declared = context.parameter(count.value)
    if declared.type.is_list or not declared.type.scalar.is_integer:
        raise context.error(
            "T7",
            f"`{word}` takes an integer parameter, but `${declared.name}` is {declared.type}",
            count.span,
        )
    return ParameterValue(declared.name, declared.type)
