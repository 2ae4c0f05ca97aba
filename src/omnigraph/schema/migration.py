"""Migration planning: from the accepted schema to a desired one, step by step.

Planning is pure: it compares two IRs and reads no data. Every difference becomes a step, and a
difference that no step covers becomes an `UnsupportedChange`, so that nothing is lost silently.
Declarations are compared by id; steps use names for display.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from omnigraph.errors import SchemaContractError, UnsupportedSchemaChange
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.catalog import Annotation, Range, TypeKind, annotation_key
from omnigraph.schema.compile import CompiledSchema, compile_schema
from omnigraph.schema.encoding import ir_text
from omnigraph.schema.rules import EDGE_ENDS, METADATA
from omnigraph.schema.shape import (
    TYPE_KINDS,
    ColumnsShape,
    ConstraintShape,
    EdgeShape,
    InterfaceShape,
    NodeShape,
    PropertyShape,
    SchemaIR,
    SchemaShape,
    TypeShape,
    end_kind,
    types_of,
)
from omnigraph.schema.steps import (
    ADD_CONSTRAINT,
    DROP_CONSTRAINT,
    DROP_EDGE_TYPE,
    DROP_NODE_TYPE,
    DROP_PROPERTY,
    REQUIRED_WITHOUT_DEFAULT,
    TYPE_CHANGE,
    AddConstraint,
    AddProperty,
    AddType,
    DropConstraint,
    DropMode,
    DropProperty,
    DropType,
    ExtendEnum,
    LintCode,
    RenameProperty,
    RenameType,
    Step,
    StepWriter,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    WidenProperty,
    written_constraint,
)
from omnigraph.syntax.schema_ast import ColumnsKind, LiteralValue
from omnigraph.syntax.tokens import Source


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The steps from one schema to another, in execution order."""

    steps: tuple[Step, ...]

    @property
    def unsupported(self) -> tuple[UnsupportedChange, ...]:
        """The changes that prevent applying the plan."""
        return tuple(step for step in self.steps if isinstance(step, UnsupportedChange))

    @property
    def supported(self) -> bool:
        """Whether the plan can be applied."""
        return not self.unsupported

    @property
    def hard_drops(self) -> tuple[DropType | DropProperty, ...]:
        """The steps that drop data irrevocably."""
        drops = (step for step in self.steps if isinstance(step, DropType | DropProperty))
        return tuple(step for step in drops if step.mode == "hard")

    def require_supported(self) -> None:
        """Raise `UnsupportedSchemaChange` if a change is unsupported; details list all of them."""
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
        """One line per step."""
        return [str(step) for step in self.steps]


@dataclass(frozen=True, slots=True)
class PlannedMigration:
    """A desired schema, compiled against the accepted one, and the migration to it."""

    compiled: CompiledSchema
    plan: MigrationPlan


def plan_change(
    accepted: SchemaIR, origin: str | bytes | Path | Source, *, allow_data_loss: bool = False
) -> PlannedMigration:
    """Compile a schema text against the accepted IR and plan the migration to it.

    Raises a `CompileError` if the text is not admissible; an admissible text always gets a plan.
    """
    compiled = compile_schema(origin, accepted=accepted)
    plan = plan_migration(accepted, compiled.ir, allow_data_loss=allow_data_loss)
    return PlannedMigration(compiled, plan)


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


def with_arrival_defaults(line: Sequence[SchemaIR]) -> SchemaIR:
    """The last of successive schemas, with each property's default as of when it was added.

    Existing entities got the default that a property had when it was added, if any. Entities of the
    first schema get the same, even if the default has changed since.
    """
    first, *later = line
    known = _defaults(first)
    arrived: dict[tuple[int, int], PropertyShape] = {}
    for ir in later:
        for ids, prop in _defaults(ir).items():
            if ids not in known:
                arrived.setdefault(ids, prop)
    last = line[-1]

    def patched(kind: TypeKind, shape: _Type) -> _Type:
        type_id = last.ids.types[kind, shape.name]
        properties = []
        for prop in shape.properties:
            ids = type_id, last.ids.properties[kind, shape.name, prop.name]
            brought = arrived.get(ids)
            default = prop.default if brought is None else _as_stored(brought)
            properties.append(replace(prop, default=default))
        return replace(shape, properties=tuple(properties))

    shape = SchemaShape(
        tuple(patched("interface", each) for each in last.shape.interfaces),
        tuple(patched("node", each) for each in last.shape.nodes),
        tuple(patched("edge", each) for each in last.shape.edges),
    )
    # The number of ids assigned in between is not a difference of the two schemas.
    return replace(last, shape=shape, next_identity_id=first.next_identity_id)


_Type = TypeVar("_Type", InterfaceShape, NodeShape, EdgeShape)


def _defaults(ir: SchemaIR) -> dict[tuple[int, int], PropertyShape]:
    """The properties of a schema, by the ids of their type and their own."""
    return {
        (ir.ids.types[ref], ir.ids.properties[*ref, prop.name]): prop
        for ref, shape in types_of(ir.shape).items()
        for prop in shape.properties
    }


def _as_stored(prop: PropertyShape) -> LiteralValue | None:
    """The default as stored in rows: for an F32, the nearest representable number."""
    if prop.type.scalar is Scalar.F32 and isinstance(prop.default, int | float):
        (rounded,) = struct.unpack("f", struct.pack("f", prop.default))
        return float(rounded)
    return prop.default


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
                code = DROP_NODE_TYPE if kind == "node" else DROP_EDGE_TYPE
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
        views = TypeParts(self._accepted, kind, old), TypeParts(self._desired, kind, new)
        _PropertyPlanner(*views, self.out).plan(self._mode)

    def _plan_implements(self, old: NodeShape, new: NodeShape) -> None:
        before = {self._accepted.ids.types["interface", name] for name in old.implements}
        after = {self._desired.ids.types["interface", name] for name in new.implements}
        if before != after:
            self.out.refuse(
                TableKey.node(new.name),
                f"changing implemented interfaces of node '{new.name}' is not supported",
            )

    def _plan_edge_header(self, old: EdgeShape, new: EdgeShape) -> None:
        entity = TableKey.edge(new.name)
        before = [_end_id(self._accepted, name) for name in (old.source, old.target)]
        after = [_end_id(self._desired, name) for name in (new.source, new.target)]
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


def _end_id(ir: SchemaIR, name: str) -> int:
    """The id of the node type or interface at an end of an edge."""
    return ir.ids.types[end_kind(ir.ids.types, name), name]


def _by_type_id(ir: SchemaIR, kind: TypeKind) -> dict[int, TypeShape]:
    return {ir.ids.types[ref]: shape for ref, shape in types_of(ir.shape).items() if ref[0] == kind}


# --- one type across two schemas ------------------------------------------------------------------


ConstraintKey = tuple[str, frozenset[int | str], tuple[Any, ...]]
"""A constraint without names: its kind, the ids of its columns, and its other arguments."""


class TypeParts:
    """One type of one schema with its parts by id, to compare two versions across renames."""

    def __init__(self, ir: SchemaIR, kind: TypeKind, shape: TypeShape) -> None:
        self._ids = ir.ids.properties
        self._shape = shape
        self.kind = kind
        self.name = shape.name
        self.properties = {self._id(prop.name): prop for prop in shape.properties}
        self.key: set[int] = set()
        """The ids of the properties from which entity ids are made."""
        self._own: dict[str, set[ColumnsKind]] = {
            prop.name: set(prop.constraints) for prop in shape.properties
        }
        for constraint in self._constraints:
            if not isinstance(constraint, ColumnsShape):
                continue
            if constraint.kind == "key" and kind == "node":
                self.key.update(map(self._id, constraint.columns))
            if len(constraint.columns) == 1 and constraint.columns[0] in self._own:
                self._own[constraint.columns[0]].add(constraint.kind)

    def _id(self, name: str) -> int:
        return self._ids[self.kind, self.name, name]

    def embed(self, prop: PropertyShape) -> tuple[int | None, str | None] | None:
        """Source by id and model of an `@embed`: renaming the source is no change.

        An interface may name a source that only its nodes have. It counts as unknown here; the
        comparison of the nodes covers it.
        """
        if prop.embed is None:
            return None
        source = self._ids.get((self.kind, self.name, prop.embed.source))
        return source, prop.embed.model

    def links(self, prop: PropertyShape) -> frozenset[int]:
        """The interface properties that this one satisfies."""
        return frozenset(self._ids["interface", name, prop.name] for name in prop.satisfies)

    def own_constraints(self, property_id: int) -> set[ColumnsKind]:
        """`@key`, `@unique` and `@index` over this property alone."""
        return self._own[self.properties[property_id].name]

    def constraints(self, apart_from: Iterable[int]) -> dict[ConstraintKey, ConstraintShape]:
        """The constraints of the type, without those over one of these properties alone."""
        alone = {(self.properties[property_id].name,) for property_id in apart_from}
        return {
            self._constraint_key(constraint): constraint
            for constraint in self._constraints
            if not (isinstance(constraint, ColumnsShape) and constraint.columns in alone)
        }

    @property
    def _constraints(self) -> tuple[ConstraintShape, ...]:
        return () if isinstance(self._shape, InterfaceShape) else self._shape.constraints

    def _constraint_key(self, constraint: ConstraintShape) -> ConstraintKey:
        if isinstance(constraint, ColumnsShape):
            columns = frozenset(
                column if self.kind == "edge" and column in EDGE_ENDS else self._id(column)
                for column in constraint.columns
            )
            return constraint.kind, columns, ()
        target: frozenset[int | str] = frozenset({self._id(constraint.property)})
        if isinstance(constraint, Range):
            return "range", target, (constraint.minimum, constraint.maximum)
        return "check", target, (constraint.pattern,)


# --- properties and constraints of a type ---------------------------------------------------------


class _PropertyPlanner:
    def __init__(self, old: TypeParts, new: TypeParts, out: StepWriter) -> None:
        self._old = old
        self._new = new
        self._out = out
        self._kind = new.kind
        self._owner = new.name

    def plan(self, mode: DropMode) -> None:
        """Properties by name, then dropped ones, then constraints over more than one property."""
        old, new = self._old.properties, self._new.properties
        for property_id, prop in sorted(new.items(), key=lambda entry: entry[1].name):
            if property_id in old:
                self._plan_property(property_id, old[property_id], prop)
            else:
                self._plan_new(prop)
        # An interface stores no data, so dropping its property destroys none.
        code = None if self._kind == "interface" else DROP_PROPERTY.code
        for name in sorted(prop.name for pid, prop in old.items() if pid not in new):
            self._out.add(DropProperty(self._kind, self._owner, name, mode, code))
        self._plan_constraints()

    def _refuse(self, prop: PropertyShape, reason: str, code: LintCode | None = None) -> None:
        self._out.refuse(f"{self._kind}:{self._owner}.{prop.name}", reason, code)

    # --- properties ------------------------------------------------------------------------------

    def _plan_new(self, prop: PropertyShape) -> None:
        if prop.type.nullable or prop.default is not None:
            self._out.add(AddProperty(self._kind, self._owner, prop.name, prop.type, prop.default))
        else:
            self._refuse(
                prop,
                f"adding required property '{self._owner}.{prop.name}' requires a backfill; "
                "make it nullable or give it a @default",
                REQUIRED_WITHOUT_DEFAULT,
            )

    def _plan_property(self, property_id: int, old: PropertyShape, new: PropertyShape) -> None:
        where = f"'{self._owner}.{new.name}'"
        if old.name != new.name:
            self._out.add(RenameProperty(self._kind, self._owner, old.name, new.name))
        self._plan_type(property_id, old, new)
        if self._old.embed(old) != self._new.embed(new):
            self._refuse(
                new,
                f"changing @embed source or model of {where} is not supported: "
                "stored vectors would no longer be what the schema says",
            )
        self._plan_own_constraints(property_id, new)
        if old.is_direct != new.is_direct:
            self._refuse(
                new,
                f"changing declaration provenance of {where} is not supported: "
                "an interface supplies it on one side, the type itself on the other",
            )
        if self._old.links(old) != self._new.links(new):
            self._refuse(new, f"changing interface satisfaction links of {where} is not supported")
        self._plan_metadata(old, new)

    def _plan_type(self, property_id: int, old: PropertyShape, new: PropertyShape) -> None:
        if old.type == new.type:
            return
        change = classify_type(old.type, new.type, is_key=property_id in self._old.key)
        if isinstance(change, str):
            self._refuse(
                new,
                f"changing property type for '{self._owner}.{new.name}' from {old.type} "
                f"to {new.type} is not supported: {change}",
                TYPE_CHANGE,
            )
            return
        if change.added_values:
            self._out.add(ExtendEnum(self._kind, self._owner, new.name, change.added_values))
        if change.widened is not None:
            self._out.add(WidenProperty(self._kind, self._owner, new.name, *change.widened))

    def _plan_metadata(self, old: PropertyShape, new: PropertyShape) -> None:
        before, after = with_default(old), with_default(new)
        change = classify_annotations(before, after)
        if change == "other":
            self._refuse(
                new,
                "changing annotations beyond @description and @default "
                f"on '{self._owner}.{new.name}' is not supported",
            )
        elif change == "metadata":
            self._out.add(
                UpdatePropertyMetadata(self._kind, self._owner, new.name, metadata_of(after))
            )

    # --- constraints -----------------------------------------------------------------------------

    def _plan_own_constraints(self, property_id: int, prop: PropertyShape) -> None:
        """Constraints over one property alone, wherever they are written."""
        old = self._old.own_constraints(property_id)
        new = self._new.own_constraints(property_id)
        before = self._old.properties[property_id].name
        for kind in sorted(old - new):
            self._drop_constraint(ColumnsShape(kind, (before,)), prop)
        for kind in sorted(new - old):
            self._add_constraint(ColumnsShape(kind, (prop.name,)), prop)

    def _plan_constraints(self) -> None:
        """The other constraints: over several columns, over new or dropped ones, and rules."""
        surviving = self._old.properties.keys() & self._new.properties.keys()
        old = self._old.constraints(apart_from=surviving)
        new = self._new.constraints(apart_from=surviving)
        for key, constraint in old.items():
            if key not in new:
                self._drop_constraint(constraint)
        for key, constraint in new.items():
            if key not in old:
                self._add_constraint(constraint)

    def _add_constraint(
        self, constraint: ConstraintShape, prop: PropertyShape | None = None
    ) -> None:
        if self._is_node_key(constraint):
            self._refuse_key(f"adding constraint {written_constraint(constraint)} to", prop)
        else:
            code = None if _is_index(constraint) else ADD_CONSTRAINT.code
            self._out.add(AddConstraint(self._kind, self._owner, constraint, code))

    def _drop_constraint(
        self, constraint: ConstraintShape, prop: PropertyShape | None = None
    ) -> None:
        if self._is_node_key(constraint):
            self._refuse_key(f"removing constraint {written_constraint(constraint)} from", prop)
        else:
            code = None if _is_index(constraint) else DROP_CONSTRAINT.code
            self._out.add(DropConstraint(self._kind, self._owner, constraint, code))

    def _is_node_key(self, constraint: ConstraintShape) -> bool:
        """Whether entity ids are made from it; an edge keeps its id whatever its key is."""
        is_key = isinstance(constraint, ColumnsShape) and constraint.kind == "key"
        return is_key and self._kind != "edge"

    def _refuse_key(self, change: str, prop: PropertyShape | None) -> None:
        part = "" if prop is None else f".{prop.name}"
        self._out.refuse(
            f"{self._kind}:{self._owner}{part}",
            f"{change} '{self._owner}' is not supported: the ids of existing nodes would be others",
        )


def _is_index(constraint: ConstraintShape) -> bool:
    return isinstance(constraint, ColumnsShape) and constraint.kind == "index"


# --- kinds of change ------------------------------------------------------------------------------


Annotations = tuple[Annotation, ...]
AnnotationChange = Literal["none", "metadata", "other"]

_WIDER = {Scalar.I32: Scalar.I64, Scalar.U32: Scalar.U64, Scalar.F32: Scalar.F64}
"""Each type on the left converts to the one on the right without loss."""


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A supported change, in order: first the enum is extended, then the type widened."""

    added_values: tuple[str, ...] = ()
    widened: tuple[ValueType, ValueType] | None = None


def classify_type(old: ValueType, new: ValueType, *, is_key: bool) -> TypeChange | str:
    """The change from one type to another, or why it is not supported.

    >>> from omnigraph.model.types import Scalar
    >>> classify_type(ValueType(Scalar.I32), ValueType(Scalar.I64), is_key=True).widened is not None
    True
    """
    added: tuple[str, ...] = ()
    grown = old
    if old.enum_values is not None and new.enum_values is not None:
        removed = sorted(set(old.enum_values) - set(new.enum_values))
        if removed:
            return f"stored values could be among the removed ones: {', '.join(removed)}"
        added = tuple(sorted(set(new.enum_values) - set(old.enum_values)))
        grown = replace(old, enum_values=new.enum_values)
    if grown == new:
        return TypeChange(added)
    if old.nullable and not new.nullable:
        return "stored values could be null"
    if not _is_lossless(grown.with_nullable(new.nullable), new):
        return f"not every {old.with_nullable(False)} is kept as it is"
    if is_key and old.scalar is Scalar.F32 and new.scalar is Scalar.F64:
        # 0.1 is spelled 0.1 as F32 but 0.10000000149011612 as F64. The spelling of integers and
        # enums stays.
        return "it is part of the key, and the ids of existing nodes would be spelled differently"
    return TypeChange(added, (grown, new))


def _is_lossless(old: ValueType, new: ValueType) -> bool:
    if old == new:
        return True
    if old.is_list or new.is_list or new.enum_values is not None:
        return False
    if old.enum_values is not None:
        return new.scalar is Scalar.STRING
    return _WIDER.get(old.scalar) is new.scalar


def classify_annotations(old: Annotations, new: Annotations) -> AnnotationChange:
    """Whether annotations differ, and if so whether only in metadata."""
    before, after = set(map(annotation_key, old)), set(map(annotation_key, new))
    if before == after:
        return "none"
    old_rest = before - set(map(annotation_key, metadata_of(old)))
    new_rest = after - set(map(annotation_key, metadata_of(new)))
    return "metadata" if old_rest == new_rest else "other"


def metadata_of(annotations: Annotations) -> Annotations:
    """The annotations that a migration may change: descriptions, instructions and defaults."""
    return tuple(a for a in annotations if a.name in METADATA or a.name == "default")


def with_default(prop: PropertyShape) -> Annotations:
    """The annotations of a property, including its default as an annotation."""
    if prop.default is None:
        return prop.annotations
    default = Annotation("default", prop.default)
    return tuple(sorted((*prop.annotations, default), key=annotation_key))
