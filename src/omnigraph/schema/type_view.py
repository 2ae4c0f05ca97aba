"""A type seen through its ids, so that two versions of it can be compared across renames."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from omnigraph.schema.admission.constraints import EDGE_ENDS
from omnigraph.schema.ast import ColumnsKind
from omnigraph.schema.catalog import Range, TypeKind
from omnigraph.schema.ir import SchemaIR, TypeShape
from omnigraph.schema.shape import ColumnsShape, ConstraintShape, InterfaceShape, PropertyShape

ConstraintKey = tuple[str, frozenset[int | str], tuple[Any, ...]]
"""A constraint without names: its kind, the ids of its columns, and its other arguments."""


class TypeView:
    """One type of one schema, whose parts are told apart by id instead of by name."""

    def __init__(self, ir: SchemaIR, kind: TypeKind, shape: TypeShape) -> None:
        self._ids = ir.ids.properties
        self._shape = shape
        self.kind = kind
        self.name = shape.name
        self.properties = {self._id(prop.name): prop for prop in shape.properties}
        self.key: set[int] = set()
        """The properties of the key, by id."""
        self._own: dict[str, set[ColumnsKind]] = {
            prop.name: set(prop.constraints) for prop in shape.properties
        }
        for constraint in self._constraints:
            if not isinstance(constraint, ColumnsShape):
                continue
            if constraint.kind == "key":
                self.key.update(map(self._id, constraint.columns))
            if len(constraint.columns) == 1 and constraint.columns[0] in self._own:
                self._own[constraint.columns[0]].add(constraint.kind)

    def _id(self, name: str) -> int:
        return self._ids[self.kind, self.name, name]

    def embed(self, prop: PropertyShape) -> tuple[int | None, str | None] | None:
        """Source by id and model of an `@embed`: renaming the source is no change.

        An interface may name a source that only its nodes have. It counts as unknown here; the
        nodes are compared as well, and they know it.
        """
        if prop.embed is None:
            return None
        source = self._ids.get((self.kind, self.name, prop.embed.source))
        return source, prop.embed.model

    def links(self, prop: PropertyShape) -> frozenset[int]:
        """The interface properties this one satisfies."""
        return frozenset(self._ids["interface", name, prop.name] for name in prop.satisfies)

    def own_constraints(self, property_id: int) -> set[ColumnsKind]:
        """`@key`, `@unique` and `@index` over one property alone."""
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
