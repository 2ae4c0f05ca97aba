"""Migration planning: from the accepted schema to a desired one, step by step.

Planning is pure: it looks at two IRs and at no data. Whatever the two differ in becomes a step, and
a difference that no step covers becomes an `UnsupportedChange`, so that nothing is lost silently.
Declarations are compared by id; names are only what a step calls them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.errors import SchemaContractError, UnsupportedSchemaChange
from omnigraph.schema import codes
from omnigraph.schema.catalog import TypeKind
from omnigraph.schema.changes import classify_annotations, metadata_of
from omnigraph.schema.compile import CompiledSchema, compile_schema
from omnigraph.schema.encoding import ir_text
from omnigraph.schema.ir import TYPE_KINDS, SchemaIR, TypeShape, types_of
from omnigraph.schema.property_plan import plan_properties
from omnigraph.schema.shape import EdgeShape, NodeShape
from omnigraph.schema.steps import (
    AddType,
    DropMode,
    DropType,
    RenameType,
    Step,
    StepWriter,
    UnsupportedChange,
    UpdateTypeMetadata,
)
from omnigraph.schema.type_view import TypeView
from omnigraph.syntax.source import Source


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The steps from one schema to another, in the order they are carried out."""

    steps: tuple[Step, ...]

    @property
    def unsupported(self) -> tuple[UnsupportedChange, ...]:
        """The changes that stand in the way of applying the plan."""
        return tuple(step for step in self.steps if isinstance(step, UnsupportedChange))

    @property
    def supported(self) -> bool:
        """Whether the plan can be applied."""
        return not self.unsupported

    def require_supported(self) -> None:
        """Raise `UnsupportedSchemaChange` if a change stands in the way; details name them all."""
        if self.unsupported:
            more = len(self.unsupported) - 1
            raise UnsupportedSchemaChange(
                self.unsupported[0].message + (f" (and {more} more)" if more else ""),
                hint="`omnigraph schema plan` lists every step",
                details={"unsupported": [step.to_json() for step in self.unsupported]},
            )

    def to_json(self) -> dict[str, Any]:
        """`{supported, steps}`."""
        return {"supported": self.supported, "steps": [step.to_json() for step in self.steps]}

    def render(self) -> list[str]:
        """One line for each step."""
        return [str(step) for step in self.steps]


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A desired schema, compiled against the accepted one, and the way to it."""

    compiled: CompiledSchema
    plan: MigrationPlan


def plan_change(
    accepted: SchemaIR, origin: str | bytes | Path | Source, *, allow_data_loss: bool = False
) -> PlannedChange:
    """Compile a schema text against the accepted IR and plan the migration to it.

    Raises a `CompileError` when the text is not admissible; an admissible text always gets a plan.
    """
    compiled = compile_schema(origin, accepted=accepted)
    plan = plan_migration(accepted, compiled.ir, allow_data_loss=allow_data_loss)
    return PlannedChange(compiled, plan)


def plan_migration(
    accepted: SchemaIR, desired: SchemaIR, *, allow_data_loss: bool = False
) -> MigrationPlan:
    """The steps from one IR to another of the same graph; ``allow_data_loss`` makes drops hard."""
    if accepted.domain != desired.domain:
        raise SchemaContractError("a migration is planned between two schemas of one graph")
    planner = _Planner(accepted, desired, "hard" if allow_data_loss else "soft")
    for kind in TYPE_KINDS:
        planner.plan_kind(kind)
    if not planner.out.steps and ir_text(accepted) != ir_text(desired):
        planner.out.refuse("schema", "the schemas differ in an unclassified way")
    return MigrationPlan(tuple(planner.out.steps))


class _Planner:
    def __init__(self, accepted: SchemaIR, desired: SchemaIR, mode: DropMode) -> None:
        self.out = StepWriter()
        self._accepted = accepted
        self._desired = desired
        self._mode: DropMode = mode

    def plan_kind(self, kind: TypeKind) -> None:
        """Desired types of one kind by name, then the dropped ones."""
        old = _by_type_id(self._accepted, kind)
        new = _by_type_id(self._desired, kind)
        for type_id, shape in sorted(new.items(), key=lambda entry: entry[1].name):
            if type_id in old:
                self._plan_type(kind, old[type_id], shape)
            else:
                self.out.add(AddType(kind, shape.name))
        for name in sorted(shape.name for type_id, shape in old.items() if type_id not in new):
            if kind == "interface":
                self.out.refuse(
                    f"interface:{name}", f"removing interface '{name}' is not supported"
                )
            else:
                code = codes.DROP_NODE_TYPE if kind == "node" else codes.DROP_EDGE_TYPE
                self.out.add(DropType(kind, name, self._mode, code.code))

    def _plan_type(self, kind: TypeKind, old: TypeShape, new: TypeShape) -> None:
        if old.name != new.name:
            self.out.add(RenameType(kind, old.name, new.name))
        if isinstance(old, NodeShape) and isinstance(new, NodeShape):
            self._plan_implements(old, new)
            self._plan_metadata(kind, old, new)
        if isinstance(old, EdgeShape) and isinstance(new, EdgeShape):
            self._plan_edge_header(old, new)
            self._plan_metadata(kind, old, new)
        plan_properties(
            TypeView(self._accepted, kind, old),
            TypeView(self._desired, kind, new),
            self._mode,
            self.out,
        )

    def _plan_implements(self, old: NodeShape, new: NodeShape) -> None:
        before = {self._accepted.ids.types["interface", name] for name in old.implements}
        after = {self._desired.ids.types["interface", name] for name in new.implements}
        if before != after:
            self.out.refuse(
                f"node:{new.name}",
                f"changing implemented interfaces of node '{new.name}' is not supported",
            )

    def _plan_edge_header(self, old: EdgeShape, new: EdgeShape) -> None:
        entity = f"edge:{new.name}"
        before = [self._accepted.ids.types["node", name] for name in (old.source, old.target)]
        after = [self._desired.ids.types["node", name] for name in (new.source, new.target)]
        if before != after:
            self.out.refuse(entity, f"changing edge endpoints of '{new.name}' is not supported")
        if old.cardinality != new.cardinality:
            self.out.refuse(entity, f"changing cardinality of edge '{new.name}' is not supported")

    def _plan_metadata(
        self, kind: TypeKind, old: NodeShape | EdgeShape, new: NodeShape | EdgeShape
    ) -> None:
        change = classify_annotations(old.annotations, new.annotations)
        if change == "other":
            self.out.refuse(
                f"{kind}:{new.name}",
                f"changing annotations beyond @description/@instruction on '{new.name}' "
                "is not supported",
            )
        elif change == "metadata":
            self.out.add(UpdateTypeMetadata(kind, new.name, metadata_of(new.annotations)))


def _by_type_id(ir: SchemaIR, kind: TypeKind) -> dict[int, TypeShape]:
    return {ir.ids.types[ref]: shape for ref, shape in types_of(ir.shape).items() if ref[0] == kind}
