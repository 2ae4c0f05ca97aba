"""Planning inside one type: its properties and its constraints, old version against new."""

from __future__ import annotations

from omnigraph.schema import codes
from omnigraph.schema.catalog import Range
from omnigraph.schema.changes import (
    classify_annotations,
    classify_type,
    metadata_of,
    with_default,
)
from omnigraph.schema.shape import ColumnsShape, ConstraintShape, PropertyShape
from omnigraph.schema.steps import (
    AddConstraint,
    AddProperty,
    DropMode,
    DropProperty,
    ExtendEnum,
    IndexConstraint,
    RenameProperty,
    StepWriter,
    UpdatePropertyMetadata,
    WidenProperty,
)
from omnigraph.schema.type_view import TypeView


def plan_properties(old: TypeView, new: TypeView, mode: DropMode, out: StepWriter) -> None:
    """Write the steps for the properties of a type by name, then the dropped ones, then the
    constraints that are not about a single property."""
    _PropertyPlanner(old, new, out).plan(mode)


class _PropertyPlanner:
    def __init__(self, old: TypeView, new: TypeView, out: StepWriter) -> None:
        self._old = old
        self._new = new
        self._out = out
        self._kind = new.kind
        self._owner = new.name

    def plan(self, mode: DropMode) -> None:
        old, new = self._old.properties, self._new.properties
        for property_id, prop in sorted(new.items(), key=lambda entry: entry[1].name):
            if property_id in old:
                self._plan_property(property_id, old[property_id], prop)
            else:
                self._plan_new(prop)
        # An interface holds no data, so that dropping its property destroys none.
        code = None if self._kind == "interface" else codes.DROP_PROPERTY.code
        for name in sorted(prop.name for pid, prop in old.items() if pid not in new):
            self._out.add(DropProperty(self._kind, self._owner, name, mode, code))
        self._plan_constraints()

    def _refuse(self, prop: PropertyShape, reason: str, code: codes.LintCode | None = None) -> None:
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
                codes.REQUIRED_WITHOUT_DEFAULT,
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
                codes.TYPE_CHANGE,
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
        removed = ", ".join(f"@{kind}" for kind in sorted(old - new))
        if removed:
            self._refuse(
                prop,
                f"removing property constraints from '{self._owner}.{prop.name}' ({removed}) "
                f"is not supported, like removing constraints from '{self._owner}' at all",
            )
        for kind in sorted(new - old):
            if kind == "index":
                self._add_index((prop.name,))
            else:
                self._refuse(
                    prop,
                    f"adding constraint @{kind}({prop.name}) to '{self._owner}' is not supported: "
                    f"adding a property-level @{kind} constraint needs stored values checked",
                )

    def _plan_constraints(self) -> None:
        """The other constraints: over several columns, over new or dropped ones, and rules."""
        surviving = self._old.properties.keys() & self._new.properties.keys()
        old = self._old.constraints(apart_from=surviving)
        new = self._new.constraints(apart_from=surviving)
        entity = f"{self._kind}:{self._owner}"
        removed = [constraint for key, constraint in old.items() if key not in new]
        if removed:
            self._out.refuse(
                entity,
                f"removing constraints from '{self._owner}' is not supported: "
                + ", ".join(map(_written, removed)),
            )
        for key, constraint in new.items():
            if key in old:
                continue
            if isinstance(constraint, ColumnsShape) and constraint.kind == "index":
                self._add_index(constraint.columns)
            else:
                self._out.refuse(
                    entity,
                    f"adding constraint {_written(constraint)} to '{self._owner}' is not supported",
                )

    def _add_index(self, columns: tuple[str, ...]) -> None:
        self._out.add(AddConstraint(self._kind, self._owner, IndexConstraint(columns)))


def _written(constraint: ConstraintShape) -> str:
    """A constraint as it is written in a schema."""
    if isinstance(constraint, ColumnsShape):
        return f"@{constraint.kind}({', '.join(constraint.columns)})"
    if isinstance(constraint, Range):
        low = "" if constraint.minimum is None else constraint.minimum
        high = "" if constraint.maximum is None else constraint.maximum
        return f"@range({constraint.property}, {low}..{high})"
    return f'@check({constraint.property}, "{constraint.pattern}")'
