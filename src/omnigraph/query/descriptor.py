"""The operation descriptor: what a query returns, reads and writes, for tools and catalogues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

from omnigraph.model.signatures import FieldDescriptor, FieldKind
from omnigraph.model.types import RecordsType, Scalar, ValueType
from omnigraph.query import plan
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
    """A parameter with the same kinds as result fields; records also say their fields."""
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
            # A group may hold no values, so every aggregate counts as nullable.
            return describe_value(column.field, value.type.with_nullable(True), column.name)
    return describe_value(column.field, value.type, column.name)


def _before_grouping(
    expression: OutputExpression, group_by: plan.GroupBy | None
) -> OutputExpression:
    """The group item or aggregate behind a grouped column."""
    if group_by is None or not isinstance(expression, OutputValue):
        return expression
    sources: dict[str, OutputExpression] = dict(group_by.items)
    sources |= {entry.name: entry.value for entry in group_by.aggregates}
    return sources[expression.name]


def describe_value(name: str, value_type: ValueType, column: str | None = None) -> FieldDescriptor:
    """A value that a query takes or returns, or a property."""
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
    """Types a pattern touches: scanned nodes, and followed edges with both their ends."""
    for step in pattern.steps:
        match step:
            case plan.Scan():
                yield ("node", step.type_name)
            case plan.Expand():
                yield ("node", step.source_type)
                yield ("edge", step.edge_type)
                yield ("node", step.target_type)
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
