"""Schemas and migration plans, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omnigraph.cli.output import Line, Part, Styled, counted
from omnigraph.model.receipts import SchemaApplyReceipt, SchemaRebaseReceipt
from omnigraph.schema.catalog import (
    Catalog,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    cardinality_rule,
    own_constraints,
    property_rules,
    wide_rules,
)
from omnigraph.schema.compile import CompiledSchema
from omnigraph.schema.encoding import shape_hash
from omnigraph.schema.migration import MigrationPlan
from omnigraph.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    DropConstraint,
    DropProperty,
    DropType,
    Step,
    UnsupportedChange,
    read_step,
)


def summary_document(compiled: CompiledSchema, path: Path) -> dict[str, Any]:
    """A compiled schema as JSON."""
    catalog = compiled.catalog
    return {
        "status": "ok",
        "schema_path": str(path),
        "shape_hash": shape_hash(compiled.ir.shape),
        "interfaces": [_interface(entry) for entry in catalog.interfaces.values()],
        "nodes": [_node(entry) for entry in catalog.nodes.values()],
        "edges": [_edge(entry) for entry in catalog.edges.values()],
        "warnings": [
            {"message": warning.message, "position": warning.position.to_dict()}
            for warning in compiled.warnings
        ],
    }


def summary_lines(compiled: CompiledSchema, path: Path) -> Iterator[Line]:
    """Every type with its properties, then the counts and the hash."""
    catalog = compiled.catalog
    for shape in compiled.ir.shape.interfaces:
        yield _title("interface", shape.name)
        constraints = {prop.name: prop.constraints for prop in shape.properties}
        yield from _property_lines(catalog.interfaces[shape.name].properties, constraints)
        yield ()
    for node in catalog.nodes.values():
        also = f" implements {', '.join(node.implements)}" if node.implements else ""
        yield (*_title("node", node.name), also)
        yield from _entry_lines(node)
    for edge in catalog.edges.values():
        ends = f": {edge.source} -> {edge.target}{cardinality_rule(edge)}"
        yield (*_title("edge", edge.name), ends)
        yield from _entry_lines(edge)
    yield (Styled(f"{path}: {_counts(catalog)}", "bold green"),)
    yield (Styled(shape_hash(compiled.ir.shape), "dim"),)


# --- lines ----------------------------------------------------------------------------------------


def _title(kind: str, name: str) -> tuple[Part, ...]:
    return Styled(kind, "dim"), " ", Styled(name, "bold")


def _entry_lines(entry: NodeType | EdgeType) -> Iterator[Line]:
    if entry.description is not None:
        yield "  ", Styled(entry.description, "italic")
    yield from _property_lines(entry.properties, own_constraints(entry))
    yield from ((f"  {rule}",) for rule in wide_rules(entry))
    yield ()


def _property_lines(
    properties: Mapping[str, Property], constraints: Mapping[str, Sequence[str]]
) -> Iterator[Line]:
    """Columns with the name, type and annotations of each property."""
    names = max(map(len, properties), default=0)
    types = max((len(str(prop.type)) for prop in properties.values()), default=0)
    for prop in properties.values():
        said = [] if prop.description is None else [f"– {prop.description}"]
        marks = "  ".join([*property_rules(prop, constraints.get(prop.name, ())), *said])
        yield (
            f"  {prop.name:<{names}}  ",
            Styled(f"{prop.type!s:<{types}}" if marks else str(prop.type), "cyan"),
            f"  {marks}" if marks else "",
        )


def _counts(catalog: Catalog) -> str:
    groups = (catalog.interfaces, catalog.nodes, catalog.edges)
    total = sum(len(entry.properties) for group in groups for entry in group.values())
    parts = [counted(len(catalog.nodes), "node type"), counted(len(catalog.edges), "edge type")]
    if catalog.interfaces:
        parts.append(counted(len(catalog.interfaces), "interface"))
    return ", ".join([*parts, counted(total, "property", "properties")])


# --- documents ------------------------------------------------------------------------------------


def _interface(entry: InterfaceType) -> dict[str, Any]:
    return {"name": entry.name, "properties": _properties(entry.properties.values())}


def _node(entry: NodeType) -> dict[str, Any]:
    return _present(
        {
            "name": entry.name,
            "implements": list(entry.implements),
            "key": list(entry.key),
            **_groups(entry),
            "ranges": list(map(asdict, entry.ranges)),
            "checks": list(map(asdict, entry.checks)),
            "description": entry.description,
            "instruction": entry.instruction,
        }
    )


def _edge(entry: EdgeType) -> dict[str, Any]:
    return _present(
        {
            "name": entry.name,
            "source": entry.source,
            "target": entry.target,
            "cardinality": asdict(entry.cardinality),
            "key": list(entry.key_columns),
            **_groups(entry),
            "description": entry.description,
            "instruction": entry.instruction,
        }
    )


def _groups(entry: NodeType | EdgeType) -> dict[str, Any]:
    return {
        "properties": _properties(entry.properties.values()),
        "unique": [list(columns) for columns in entry.unique],
        "indexes": [list(columns) for columns in entry.indexes],
    }


def _properties(properties: Iterable[Property]) -> list[dict[str, Any]]:
    return [
        _present(
            {
                "name": prop.name,
                "type": str(prop.type),
                "nullable": prop.type.nullable,
                "default": prop.default,
                "embed": None if prop.embed is None else asdict(prop.embed),
                "description": prop.description,
            }
        )
        for prop in properties
    ]


def _present(form: dict[str, Any]) -> dict[str, Any]:
    """Without members that do not apply."""
    return {name: value for name, value in form.items() if value is not None}


def plan_document(plan: MigrationPlan, start: str, origin: str) -> dict[str, Any]:
    """`{uri, supported, step_count, steps}`; ``origin`` is the first key, `uri` or `from`."""
    form = plan.to_json()
    return {
        origin: start,
        "supported": form["supported"],
        "step_count": len(plan.steps),
        "steps": form["steps"],
    }


def plan_lines(plan: MigrationPlan, start: str, new: Path) -> Iterator[Line]:
    """One line per step, marked like a diff, then a summary."""
    yield from _step_lines(plan.steps, start, new)
    steps = counted(len(plan.steps), "step")
    if not plan.steps:
        yield (Styled("nothing to do: both schemas mean the same", "bold green"),)
    elif plan.supported:
        yield (Styled(f"{steps}, all supported", "bold green"),)
    else:
        refused = len(plan.unsupported)
        yield (Styled(f"{steps}, {refused} not supported: this cannot be applied", "bold red"),)


def applied_lines(receipt: SchemaApplyReceipt, new: Path) -> Iterator[Line]:
    """One line per step, then that they were applied."""
    yield from _step_lines([step_of(step) for step in receipt.steps], receipt.uri, new)
    if not receipt.applied:
        yield (Styled("nothing to do: the graph has this schema already", "bold green"),)
    else:
        yield (Styled(f"{counted(len(receipt.steps), 'step')} applied", "bold green"),)


def rebased_lines(receipt: SchemaRebaseReceipt) -> Iterator[Line]:
    """One line per step, what is lost by them, and whether they were applied."""
    yield from _step_lines(
        [step_of(step) for step in receipt.steps], receipt.branch, "the schema of main"
    )
    if receipt.dropped:
        yield (Styled(f"drops what the branch wrote: {', '.join(receipt.dropped)}", "yellow"),)
    steps = counted(len(receipt.steps), "step")
    if receipt.applied:
        yield (Styled(f"{receipt.branch} has the schema of main: {steps}", "bold green"),)
    elif receipt.dry_run and receipt.steps:
        yield (Styled(f"{steps} to take", "bold green"),)
    else:
        yield (Styled("nothing to do: the branch has the schema of main", "bold green"),)


def step_of(document: Mapping[str, Any]) -> Step | str:
    """Parse a step; an unknown kind of step is returned as JSON text."""
    try:
        return read_step(document)
    except (KeyError, TypeError, ValueError):  # a newer server
        return json.dumps(dict(document), ensure_ascii=False)


def _step_lines(steps: Sequence[Step | str], start: str, new: Path | str) -> Iterator[Line]:
    yield (Styled(f"{start} → {new}", "bold"),)
    yield ()
    for step in steps:
        mark, style = _mark_of(step)
        yield (Styled(f"  {mark} {step}", style),)
    if steps:
        yield ()


def _mark_of(step: Step | str) -> tuple[str, str]:
    """A mark that works without colour, and a colour by the step's effect on data."""
    match step:
        case UnsupportedChange():
            return "!", "red"
        case DropProperty() | DropType():
            return "-", "yellow"
        case AddType() | AddProperty() | AddConstraint():
            return "+", "green"
        case DropConstraint():
            return "-", "green"
    return "~", "green"
