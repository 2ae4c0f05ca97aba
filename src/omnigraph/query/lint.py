"""Lint of a query file against a schema, and the descriptor of each operation.

Descriptors tell what a query returns, reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, assert_never

from omnigraph.errors import CompileError, QueryParseError, QueryTypeError
from omnigraph.model.records import dataclass
from omnigraph.model.signatures import FieldDescriptor, FieldKind
from omnigraph.model.types import RecordsType, Scalar, ValueType
from omnigraph.query import plan
from omnigraph.query.compile import check_query
from omnigraph.query.expressions import (
    AggregateValue,
    EntityId,
    EntityKind,
    EntityObject,
    OutputExpression,
    OutputValue,
    PropertyValue,
    RecordList,
)
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_parser import parse_query_file
from omnigraph.syntax.tokens import Source

# --- operations ----------------------------------------------------------------------------------

_KINDS: dict[Scalar, FieldKind] = {
    Scalar.STRING: "string",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
    Scalar.VECTOR: "vector",
}

TypeUse = tuple[EntityKind, str]
"""An entity kind and a type name."""


@dataclass(frozen=True, slots=True)
class OperationDescriptor:
    """Result fields, and the types a query reads and writes: nodes first, then by name."""

    result: tuple[FieldDescriptor, ...]
    reads: tuple[TypeUse, ...]
    writes: tuple[TypeUse, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "result": [entry.to_dict() for entry in self.result],
            "reads": [{"kind": kind, "type_name": name} for kind, name in self.reads],
            "writes": [{"kind": kind, "type_name": name} for kind, name in self.writes],
        }


def describe_operation(compiled: plan.QueryPlan, catalog: Catalog) -> OperationDescriptor:
    """The descriptor of a compiled query."""
    if isinstance(compiled, plan.ReadPlan):
        result = tuple(_result_field(column, compiled) for column in compiled.columns)
        members = {each: [name for name, _ in of] for each, of in compiled.nodes_of.items()}
        reads = {
            (kind, name)
            for kind, used in _pattern_reads(compiled.pattern)
            for name in (members.get(used, [used]) if kind == "node" else [used])
        }
        return OperationDescriptor(result, _ordered(reads), ())
    reads = set()
    writes: set[TypeUse] = set()
    for step in plan.statements_of(compiled.steps):
        match step:
            case plan.InsertNode() | plan.UpdateNodes():
                touched: set[TypeUse] = {("node", step.type_name)}
            case plan.InsertEdge():
                edge = catalog.edges[step.type_name]
                touched = {("edge", step.type_name)}
                reads |= {
                    ("node", node.name)
                    for end in (edge.source, edge.target)
                    for node in catalog.node_types(end)
                }
            case plan.DeleteNodes():
                touched = {("node", step.type_name)}
                touched |= {("edge", name) for name in step.incident_edges}
            case plan.UpdateEdges() | plan.DeleteEdges():
                touched = {("edge", step.type_name)}
        reads |= touched
        writes |= touched
    return OperationDescriptor((), _ordered(reads), _ordered(writes))


def describe_parameter(parameter: plan.TypedParameter) -> FieldDescriptor:
    """A parameter, with the same kinds as result fields; records include their fields."""
    if isinstance(parameter.type, RecordsType):
        return FieldDescriptor(
            name=parameter.name,
            kind="list",
            item_kind="object",
            nullable=parameter.type.nullable,
            fields=tuple(describe_value(name, type) for name, type in parameter.type.fields),
        )
    return describe_value(parameter.name, parameter.type)


def _result_field(column: plan.Column, compiled: plan.ReadPlan) -> FieldDescriptor:
    value = _before_grouping(column.expression, compiled.group_by)
    match value:
        case EntityObject():
            return FieldDescriptor(
                name=column.field, column=column.name, kind="object", nullable=value.nullable
            )
        case RecordList():
            return FieldDescriptor(
                name=column.field,
                column=column.name,
                kind="list",
                item_kind="object",
                nullable=False,
            )
        case EntityId() | PropertyValue(property="@id"):
            return FieldDescriptor(
                name=column.field, column=column.name, kind="object", nullable=value.type.nullable
            )
        case AggregateValue():
            # A group may have no values, so every aggregate counts as nullable.
            return describe_value(column.field, value.type.with_nullable(True), column.name)
    return describe_value(column.field, value.type, column.name)


def _before_grouping(
    expression: OutputExpression, group_by: plan.GroupBy | None
) -> OutputExpression:
    """The group item or aggregate that a grouped column contains."""
    if group_by is None or not isinstance(expression, OutputValue):
        return expression
    sources: dict[str, OutputExpression] = dict(group_by.items)
    sources |= {entry.name: entry.value for entry in group_by.aggregates}
    return sources[expression.name]


def describe_value(name: str, value_type: ValueType, column: str | None = None) -> FieldDescriptor:
    """The descriptor of a value that a query takes or returns, or of a property."""
    kind = _KINDS[value_type.scalar]
    return FieldDescriptor(
        name=name,
        column=column,
        kind="list" if value_type.is_list else kind,
        item_kind=kind if value_type.is_list else None,
        vector_dim=value_type.vector_dim,
        nullable=value_type.nullable,
    )


def _pattern_reads(pattern: plan.Pattern) -> Iterator[TypeUse]:
    """The types that a pattern reads: scanned nodes, and followed edges with both their ends."""
    for step in pattern.steps:
        match step:
            case plan.Scan():
                yield ("node", step.type_name)
            case plan.Expand():
                yield ("node", step.source_type)
                yield ("edge", step.edge_type)
                yield ("node", step.target_type)
                if step.weight_pattern is not None:
                    yield from _pattern_reads(step.weight_pattern)
            case plan.Exclude() | plan.Extend() | plan.Compute():
                yield from _pattern_reads(step.pattern)
            case plan.Exists():
                for alternative in step.alternatives:
                    yield from _pattern_reads(alternative)
            case plan.Stage():
                yield from _pattern_reads(step.read.pattern)
            case plan.FilterRows() | plan.Unnest():
                pass
            case _:
                assert_never(step)


def _ordered(uses: Iterator[TypeUse] | set[TypeUse]) -> tuple[TypeUse, ...]:
    return tuple(sorted(set(uses), key=lambda use: (use[0] != "node", use[1])))


# --- lint ----------------------------------------------------------------------------------------

HARDCODED_MUTATION = "mutation declares no params; hardcoded mutations are easy to miss"

Severity = Literal["error", "warning", "info"]
_SEVERITY_ORDER: tuple[Severity, ...] = ("error", "warning", "info")


def _filled(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in (None, [])}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result for one query."""

    name: str
    kind: Literal["read", "mutation"]
    warnings: tuple[str, ...] = ()
    error: QueryTypeError | None = None
    operation: OperationDescriptor | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; empty members are left out."""
        return _filled(
            name=self.name,
            kind=self.kind,
            status="error" if self.error else "ok",
            warnings=list(self.warnings),
            error=self.error and self.error.message,
            operation=self.operation and self.operation.to_dict(),
        )


@dataclass(frozen=True, slots=True)
class QueryFinding:
    """An error or a warning."""

    severity: Severity
    code: str
    message: str
    type_name: str | None = None
    property: str | None = None
    query_names: tuple[str, ...] = ()
    cause: CompileError | None = None
    """The compile error of an error finding, with its position."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; members that do not apply are left out."""
        position = None if self.cause is None else self.cause.position
        return _filled(
            severity=self.severity,
            code=self.code,
            message=self.message,
            type_name=self.type_name,
            property=self.property,
            query_names=list(self.query_names),
            position=position and position.to_dict(),
            hint=self.cause and self.cause.hint,
        )


@dataclass(frozen=True, slots=True)
class LintReport:
    """The result for one query file."""

    results: tuple[QueryResult, ...]
    findings: tuple[QueryFinding, ...]

    def count(self, severity: Severity) -> int:
        """The number of problems of a severity; for warnings, those of queries are included."""
        total = sum(finding.severity == severity for finding in self.findings)
        if severity == "warning":
            total += sum(len(result.warnings) for result in self.results)
        return total

    @property
    def status(self) -> Literal["ok", "error"]:
        """`error` if anything does not compile."""
        return "error" if self.count("error") else "ok"

    def to_dict(self, schema_source: dict[str, str], query_path: str | None) -> dict[str, Any]:
        """The JSON form, with the origin of the schema and of the queries."""
        return {
            "status": self.status,
            "schema_source": schema_source,
            "query_path": query_path,
            "queries_processed": len(self.results),
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "infos": self.count("info"),
            "results": [result.to_dict() for result in self.results],
            "findings": [finding.to_dict() for finding in self.findings],
        }


def lint_queries(origin: str | bytes | Path | Source, catalog: Catalog) -> LintReport:
    """Check every query of a text; problems are reported, not raised."""
    try:
        file = parse_query_file(origin)
    except QueryParseError as error:
        return LintReport((), (QueryFinding("error", "Q000", error.message, cause=error),))
    plans: list[plan.QueryPlan] = []
    results: list[QueryResult] = []
    findings: list[QueryFinding] = []
    for query in file.queries:
        kind: Literal["read", "mutation"] = (
            "mutation" if isinstance(query.body, ast.WriteBody) else "read"
        )
        warnings = (HARDCODED_MUTATION,) if kind == "mutation" and not query.parameters else ()
        try:
            compiled = check_query(query, file.source, catalog)
        except QueryTypeError as error:
            results.append(QueryResult(query.name, kind, warnings, error))
            code = error.diagnostic or "type"
            findings.append(
                QueryFinding("error", code, error.message, query_names=(query.name,), cause=error)
            )
            continue
        plans.append(compiled)
        findings += _backward_hops(query, compiled, catalog)
        operation = describe_operation(compiled, catalog)
        results.append(QueryResult(query.name, kind, warnings, None, operation))
    findings += _never_updated(plans, catalog)
    findings.sort(
        key=lambda f: (
            _SEVERITY_ORDER.index(f.severity),
            f.type_name or "",
            f.property or "",
            f.message,
        )
    )
    return LintReport(tuple(results), tuple(findings))


def _backward_hops(
    query: ast.Query, compiled: plan.QueryPlan, catalog: Catalog
) -> Iterator[QueryFinding]:
    """L202: hops against their edge type from a node that could also be one of its sources.

    The type of such a node is an interface, and the hop is taken backwards because the edge type
    ends there. Read from left to right, the query may have meant the other direction.
    """
    ways = {(hop.source, hop.target, hop.edge_type): hop for hop in _all_of(plan.Expand, compiled)}
    for hop in _all_of(ast.Hop, query.body):
        edge = catalog.edge_named(hop.edge_word)
        if edge is None or hop.undirected or edge.source == edge.target:
            continue
        left, right = hop.left.name, hop.right.name
        if (found := ways.get((left, right, edge.name))) is not None:
            is_backwards, own = found.direction == "in", found.source_type
        elif (found := ways.get((right, left, edge.name))) is not None:
            is_backwards, own = found.direction == "out", found.target_type
        else:
            continue
        sources = {node.name for node in catalog.node_types(edge.source)}
        if not is_backwards or own not in catalog.interfaces:
            continue
        if sources.isdisjoint(node.name for node in catalog.node_types(own)):
            continue
        yield QueryFinding(
            "warning",
            "L202",
            f"`${left} {hop.edge_word} ${right}` runs against {edge.name}, from {edge.source} to"
            f" {edge.target}: ${left} is only known as a {own}; write `${left}: {edge.source}`"
            f" before it, or `${right} {hop.edge_word} ${left}`",
            edge.name,
            query_names=(query.name,),
        )


_Part = TypeVar("_Part")


def _all_of(kind: type[_Part], node: object) -> Iterator[_Part]:
    """All parts of a class in a syntax tree or a plan, at any depth."""
    if isinstance(node, kind):
        yield node
    if isinstance(node, tuple):
        for item in node:
            yield from _all_of(kind, item)
    elif is_dataclass(node):
        for each in fields(node):
            yield from _all_of(kind, getattr(node, each.name))


def _never_updated(plans: list[plan.QueryPlan], catalog: Catalog) -> list[QueryFinding]:
    """L201: nullable properties that no update sets, of types with other updates."""
    updated: dict[str, set[str]] = {}
    queries: dict[str, set[str]] = {}
    for compiled in plans:
        if not isinstance(compiled, plan.MutationPlan):
            continue
        for step in plan.statements_of(compiled.steps):
            if isinstance(step, plan.UpdateNodes):
                updated.setdefault(step.type_name, set()).update(
                    assignment.property for assignment in step.assignments
                )
                queries.setdefault(step.type_name, set()).add(compiled.name)
    return [
        QueryFinding(
            "warning",
            "L201",
            f"{type_name}.{declared.name} exists in schema but no update query sets it",
            type_name,
            declared.name,
            tuple(sorted(queries[type_name])),
        )
        for type_name, assigned in updated.items()
        for declared in catalog.nodes[type_name].properties.values()
        if declared.type.nullable
        and declared.name not in catalog.nodes[type_name].key
        and declared.embed is None
        and declared.name not in assigned
    ]
