"""The entry point of this package: parses a query, checks it against a catalog and plans it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar, assert_never

from omnigraph.errors import QueryParseError
from omnigraph.model.types import VECTOR_DIMENSION_MAX, RecordsType
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.check_functions import check_condition
from omnigraph.query.check_match import check_match
from omnigraph.query.check_mutation import check_mutation, check_where
from omnigraph.query.check_order import check_order
from omnigraph.query.check_return import check_return
from omnigraph.query.expressions import Expression
from omnigraph.query.lower import keep_locals_apart, lower_block
from omnigraph.query.operands import (
    Context,
    EdgeVariable,
    NodeVariable,
    Operands,
    VariableScope,
)
from omnigraph.query.plan import QueryPlan, ReadPlan
from omnigraph.schema.catalog import Catalog, EdgeType, TableType
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_parser import (
    parse_condition,
    parse_query_file,
    parse_where,
    select_query,
)
from omnigraph.syntax.tokens import Source

PLANS_BYTES_MAX = 64 << 20
FILES_BYTES_MAX = 16 << 20
"""Limit for the memory of the plans and parsed texts that a compiler caches."""

_FILE_BYTES_PER_CHARACTER = 60
_PLAN_BYTES_PER_CHARACTER = 100
_PLAN_BYTES_PER_PAIR = 32
"""Measured: an engine keeps a set of variables per step, at worst one entry per pair."""


def compile_query(
    origin: str | bytes | Path | Source, catalog: Catalog, name: str | None = None
) -> QueryPlan:
    """Parse, check and plan one query of a text.

    ``name`` picks a query; without it the text must hold exactly one. Raises `QueryParseError` or
    `QueryTypeError` with the position of the problem, and `NotFound` for an unknown name.
    """
    file = parse_query_file(origin)
    return check_query(select_query(file, name), file.source, catalog)


def compile_where(text: str, target: TableType, catalog: Catalog) -> Expression:
    """A condition on the rows of one type, as it follows `where` in an `update` or `delete`.

    It may also name the columns `id`, `src` and `dst`. Raises `QueryParseError` or `QueryTypeError`
    with the position of the problem.
    """
    source, predicate = parse_where(text)
    return check_where(predicate, target, Context(source, catalog, {}))


ROW = "row"
ACTOR = "actor"
"""The variables of a condition on rows."""


def compile_condition(
    text: str, target: TableType, catalog: Catalog, actor: RecordsType
) -> Expression:
    """A condition on `$row`, an entity of one type, and `$actor`, whose fields are parameters.

    Its value may depend on the row and the actor only: `now()`, text search and blocks are refused.
    Raises `QueryParseError` or `QueryTypeError` with the position.
    """
    source, condition = parse_condition(text)
    context = Context(source, catalog, {}, records={ACTOR: actor})
    bound = EdgeVariable(target) if isinstance(target, EdgeType) else NodeVariable(target)
    found = check_condition(condition, Operands(context, VariableScope(own={ROW: bound})))
    for part in ex.walk(found):
        if isinstance(part, ex.CurrentTime | ex.TextMatch | ex.Nearest | ex.Bm25 | ex.Rrf):
            what = "`now()`" if isinstance(part, ex.CurrentTime) else "a search"
            raise context.error(
                "T7", f"{what} cannot decide which rows an actor sees", condition.span
            )
        if isinstance(part, ex.AggregateValue):
            raise context.error("T7", "an aggregate is no property of a row", condition.span)
    return found


class QueryCompiler:
    """Compiles against one catalog and caches the plans, keyed by text and query name.

    A plan depends on nothing else: pass varying values as parameters, not in the text. Make a new
    compiler when the schema changes. Safe to share between threads.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._files: ByteCache[tuple[str, str | None], ast.QueryFile] = ByteCache(FILES_BYTES_MAX)
        self._plans: ByteCache[tuple[str, str | None, str | None], QueryPlan] = ByteCache(
            PLANS_BYTES_MAX
        )

    def compile(self, origin: str | bytes | Path | Source, name: str | None = None) -> QueryPlan:
        """The plan of one query; see `compile_query` for the arguments and errors."""
        if isinstance(origin, str):
            known = self._plans.get((origin, None, name))
            if known is not None:
                return known  # cached: not checked again
        source = Source.of(origin, QueryParseError)
        key = (source.text, source.path, name)
        plan = self._plans.get(key)
        if plan is None:
            plan = check_query(select_query(self._file(source), name), source, self.catalog)
            self._plans.put(key, plan, plan.memory_bytes)
        return plan

    def _file(self, source: Source) -> ast.QueryFile:
        key = (source.text, source.path)
        file = self._files.get(key)
        if file is None:
            file = parse_query_file(source)
            self._files.put(key, file, _FILE_BYTES_PER_CHARACTER * len(source.text))
        return file


# --- checking -------------------------------------------------------------------------------------


RESERVED_PARAMETER = "__nanograph_now"
"""A parameter name the reference implementation uses internally; queries cannot declare it."""


def check_query(query: ast.Query, source: Source, catalog: Catalog) -> QueryPlan:
    """The typed plan of ``query``; raises `QueryTypeError` at the first problem."""
    context = Context(source, catalog, {})
    for parameter in query.parameters:
        _declare(parameter, context, is_mutation=isinstance(query.body, ast.WriteBody))
    plan: QueryPlan
    if isinstance(query.body, ast.WriteBody):
        plan = check_mutation(query, query.body, context)
    else:
        plan = _check_read(query, query.body, context)
    variables = len(plan.variables) if isinstance(plan, ReadPlan) else 0
    characters = query.span.end - query.span.start
    memory = _PLAN_BYTES_PER_CHARACTER * characters + _PLAN_BYTES_PER_PAIR * variables**2
    return replace(plan, memory_bytes=memory)


def _declare(parameter: ast.ParameterDecl, context: Context, *, is_mutation: bool) -> None:
    if parameter.name in (RESERVED_PARAMETER, ast.ANONYMOUS):
        raise context.error(None, f"parameter `${parameter.name}` is reserved", parameter.span)
    if parameter.name in (*context.parameters, *context.record_lists):
        raise context.error(
            "T26", f"parameter `${parameter.name}` is declared twice", parameter.span
        )
    if isinstance(parameter.type, RecordsType):
        if not is_mutation:
            raise context.error(
                "T7",
                f"parameter `${parameter.name}` is a list of records, which only mutations take",
                parameter.span,
                "declare a list for each field",
            )
        context.record_lists[parameter.name] = parameter.type
        return
    dimension = parameter.type.vector_dim
    if dimension is not None and not 1 <= dimension <= VECTOR_DIMENSION_MAX:
        raise context.error(
            None,
            f"unknown parameter type `{parameter.type}`",
            parameter.span,
            f"a vector has between 1 and {VECTOR_DIMENSION_MAX} dimensions",
        )
    context.parameters[parameter.name] = ex.ParameterValue(parameter.name, parameter.type)


def _check_read(query: ast.Query, body: ast.ReadBody, context: Context) -> plan.ReadPlan:
    """The plan of a read; the plan of each stage is nested in the plan of the next one."""
    stage: plan.Stage | None = None
    for each in body.stages:
        stage = _stage_of(_check_part(query, each, context, stage, is_stage=True))
        values = {one.name: ex.BoundValue(one.variable, one.type) for one in stage.values}
        context = replace(context, values=values)
    read = _check_part(query, body, context, stage)
    if stage is not None:
        # Nodes handed from stage to stage need the same references in all stages.
        read = _with_interfaces(read, read.interfaces, read.references)
    return read


def _stage_of(read: plan.ReadPlan) -> plan.Stage:
    """The step that binds the rows of a stage."""
    carried = dict(read.group_by.items) if read.group_by is not None else {}
    nodes: list[plan.StageNode] = []
    values: list[plan.StageValue] = []
    for column in read.columns:
        assert not isinstance(column.expression, ex.Whole)
        value = carried.get(column.name, column.expression)
        if isinstance(value, ex.CarriedNode):
            nodes.append(plan.StageNode(column.name, value.type_name, value.type.nullable))
        else:
            values.append(plan.StageValue(column.name, column.expression.type))
    return plan.Stage(read, tuple(nodes), tuple(values))


def _with_interfaces(
    read: plan.ReadPlan,
    interfaces: tuple[plan.InterfaceNodes, ...],
    references: tuple[plan.TypeNumber, ...],
) -> plan.ReadPlan:
    """The plan and its stages, all with the interfaces that any of them names."""
    first, *rest = read.pattern.steps
    if isinstance(first, plan.Stage):
        first = replace(first, read=_with_interfaces(first.read, interfaces, references))
    pattern = plan.Pattern((first, *rest))
    return replace(read, pattern=pattern, interfaces=interfaces, references=references)


def _check_part(
    query: ast.Query,
    body: ast.ReadBody,
    context: Context,
    stage: plan.Stage | None,
    *,
    is_stage: bool = False,
) -> plan.ReadPlan:
    """The plan of one match and its return or `with`."""
    matched = check_match(body.clauses, context, stage)
    scope = matched.scope
    output = check_return(body, context, scope, matched.check_block, is_stage=is_stage)
    ordering = check_order(body, output, context, scope)
    keep_locals_apart(matched.block)
    pattern = lower_block(matched.block, context.catalog)
    interfaces = _interfaces(pattern, context.catalog)
    return plan.ReadPlan(
        query.name,
        tuple(plan.TypedParameter(p.name, p.type) for p in query.parameters),
        pattern,
        _bound_variables(scope, context),
        ordering.rank,
        output.group_by,
        output.columns,
        output.having,
        output.is_distinct,
        ordering.keys,
        ordering.tie_breakers,
        context.row_count(body.limit, "limit"),
        context.row_count(body.offset, "offset"),
        query.description,
        query.instruction,
        interfaces,
        referenced_types(interfaces, context.catalog),
        is_bounded_by_parameters=_is_bounded_by_parameters(pattern),
        per=ordering.per,
    )


def _interfaces(pattern: plan.Pattern, catalog: Catalog) -> tuple[plan.InterfaceNodes, ...]:
    """The interfaces that the steps of a pattern name."""
    return interface_nodes(_type_names(pattern), catalog)


def interface_nodes(names: Iterable[str], catalog: Catalog) -> tuple[plan.InterfaceNodes, ...]:
    """The interfaces among some types."""
    named = sorted(name for name in set(names) if name not in catalog.nodes)
    return tuple(
        plan.InterfaceNodes(
            name, tuple((node.name, node.type_id) for node in catalog.node_types(name))
        )
        for name in named
    )


def _type_names(pattern: plan.Pattern) -> Iterator[str]:
    for step in pattern.steps:
        match step:
            case plan.Scan():
                yield step.type_name
            case plan.Expand():
                yield from (step.source_type, step.target_type, *step.declared)
                if step.weight_pattern is not None:
                    yield from _type_names(step.weight_pattern)
            case plan.Exclude() | plan.Extend() | plan.Compute():
                yield from _type_names(step.pattern)
            case plan.Exists():
                for alternative in step.alternatives:
                    yield from _type_names(alternative)
            case plan.Stage():
                yield from (node.type_name for node in step.nodes)
                yield from _type_names(step.read.pattern)
            case plan.FilterRows() | plan.Unnest():
                pass
            case _:
                assert_never(step)


def _is_bounded_by_parameters(pattern: plan.Pattern) -> bool:
    for step in pattern.steps:
        match step:
            case plan.Expand():
                if step.minimum_from is not None or step.maximum_from is not None:
                    return True
                if step.weight_pattern and _is_bounded_by_parameters(step.weight_pattern):
                    return True
            case plan.Exclude() | plan.Extend() | plan.Compute():
                if _is_bounded_by_parameters(step.pattern):
                    return True
            case plan.Exists():
                if any(map(_is_bounded_by_parameters, step.alternatives)):
                    return True
            case plan.Stage():
                if step.read.is_bounded_by_parameters:
                    return True
            case plan.Scan() | plan.FilterRows() | plan.Unnest():
                pass
            case _:
                assert_never(step)
    return False


def referenced_types(
    interfaces: tuple[plan.InterfaceNodes, ...], catalog: Catalog
) -> tuple[plan.TypeNumber, ...]:
    """The types of these interfaces, of all other interfaces that these types implement, and so on.

    So all plans that mix the nodes of some types agree on the set of types, and can use the same
    caches.
    """
    found = {name: number for each in interfaces for name, number in each.types}
    waiting = list(found)
    while waiting:
        for interface in catalog.nodes[waiting.pop()].implements:
            for node in catalog.node_types(interface):
                if node.name not in found:
                    found[node.name] = node.type_id
                    waiting.append(node.name)
    return tuple(sorted(found.items()))


def _bound_variables(scope: VariableScope, context: Context) -> tuple[plan.BoundVariable, ...]:
    given = context.values.values()
    return (
        *scope.own_variables(with_paths=True),
        *(plan.BoundVariable(each.variable, "value", "", each.type) for each in given),
    )


# --- the cache: bounded by the memory that plans take instead of by their number ------------------

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_LARGEST_SHARE = 4
"""A single entry may take at most one in this many bytes of the cache."""


class ByteCache(Generic[Key, Value]):
    """An LRU cache limited by the bytes of its entries. Safe to share between threads."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        """The value cached under a key, or None."""
        found = self._entries.get(key)
        if found is None:
            return None
        if 2 * self.used > self.bytes_max:
            # Only a cache that fills up needs the order of use.
            with self._lock:
                if key in self._entries:
                    self._entries.move_to_end(key)
        return found[0]

    def put(self, key: Key, value: Value, nbytes: int) -> None:
        """Cache a value of about ``nbytes`` bytes; a very large one is not cached."""
        if nbytes * _LARGEST_SHARE > self.bytes_max:
            return
        with self._lock:
            known = self._entries.pop(key, None)
            self.used += nbytes - (known[1] if known is not None else 0)
            self._entries[key] = value, nbytes
            while self.used > self.bytes_max:
                _, (_, dropped) = self._entries.popitem(last=False)
                self.used -= dropped
