"""Identity: matches declarations with the accepted ones; the others are new.

`resolve` compares a shape with the accepted IR by name and rename hint, per kind and, for
properties, per owner. Matched declarations keep their ids; all others get new ones, in an order
that does not depend on the order of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import partial
from itertools import count
from typing import Literal, TypeVar

from omnigraph.errors import IdentityError, Position
from omnigraph.model.records import dataclass
from omnigraph.schema.admission import AdmittedSchema
from omnigraph.schema.catalog import TypeKind
from omnigraph.schema.effective import EffectiveInterface, EffectiveType, Report
from omnigraph.schema.rules import annotation_named
from omnigraph.schema.shape import (
    IDENTITY_ID_MAX,
    TYPE_KINDS,
    PropertyRef,
    SchemaIds,
    SchemaIR,
    SchemaShape,
    TypeRef,
    TypeShape,
    checked_domain,
    shape_of,
    types_of,
)
from omnigraph.syntax.schema_ast import AnnotationExpr
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Span

R = TypeVar("R", TypeRef, PropertyRef)


@dataclass(frozen=True, slots=True)
class RenameHint:
    """`@rename_from("old")` on a type or a property."""

    old: str
    span: Span
    is_inherited: bool = False
    """Written on the interface that declares the property, not on the node itself.

    Such a hint also renames the properties of nodes that have the old one, and is ignored for nodes
    that never had it.
    """


@dataclass(frozen=True, slots=True)
class IdentityWarning:
    """A rename hint that had no effect."""

    kind: Literal["ignored_rename_hint", "inert_rename_hint"]
    entity: str
    hint: str
    position: Position

    @property
    def message(self) -> str:
        """One sentence for users."""
        why = (
            "the name already exists"
            if self.kind == "ignored_rename_hint"
            else "a new graph has nothing to rename"
        )
        return f'@rename_from("{self.hint}") on {self.entity} is ignored: {why}'


@dataclass(frozen=True, slots=True)
class Resolution:
    """A schema with its ids, and the hints without effect."""

    ir: SchemaIR
    warnings: tuple[IdentityWarning, ...]


def initialize(admitted: AdmittedSchema, domain: str) -> Resolution:
    """Assign ids to every declaration of a new graph; warns about rename hints."""
    empty = SchemaIR(checked_domain(domain), 1, SchemaShape((), (), ()), SchemaIds({}, {}, {}))
    resolver = _Resolver(admitted, empty)
    for hints in (resolver.type_hints, resolver.property_hints):
        for ref, hint in hints.items():
            resolver.warn("inert_rename_hint", ref, hint)
    resolver.type_hints.clear()
    resolver.property_hints.clear()
    return resolver.resolve()


def resolve(admitted: AdmittedSchema, accepted: SchemaIR) -> Resolution:
    """Match a schema with the accepted one, keeping the ids of declarations that still exist.

    Raises `IdentityError` if a rename hint names nothing, something of another kind or owner, or
    something that another declaration already matches.
    """
    return _Resolver(admitted, accepted).resolve()


def entity_name(ref: TypeRef | PropertyRef) -> str:
    """`node:Person` or `node:Person.name`."""
    return f"{ref[0]}:{'.'.join(ref[1:])}"


@dataclass
class _Resolver:
    admitted: AdmittedSchema
    accepted: SchemaIR
    shape: SchemaShape = field(init=False)
    desired: dict[TypeRef, TypeShape] = field(init=False)
    type_hints: dict[TypeRef, RenameHint] = field(init=False)
    property_hints: dict[PropertyRef, RenameHint] = field(init=False)

    def __post_init__(self) -> None:
        self.shape = shape_of(self.admitted)
        self.desired = types_of(self.shape)
        self.type_hints, self.property_hints = _hints(self.admitted)
        self._report = Report(self.admitted.source)
        self._warnings: list[tuple[Span, IdentityWarning]] = []

    def resolve(self) -> Resolution:
        origin = self._match_types()
        self._report.raise_first()
        known = self._match_properties(origin)
        self._report.raise_first()
        ids, following = self._allocate(origin, known)
        self._warnings.sort(key=lambda entry: entry[0])
        return Resolution(
            SchemaIR(self.accepted.domain, following, self.shape, ids),
            tuple(warning for _, warning in self._warnings),
        )

    def warn(
        self,
        kind: Literal["ignored_rename_hint", "inert_rename_hint"],
        ref: TypeRef | PropertyRef,
        hint: RenameHint,
    ) -> None:
        """Add a warning about a hint without effect, once per place where it is written."""
        if not hint.is_inherited:
            position = self.admitted.source.position(hint.span)
            warning = IdentityWarning(kind, entity_name(ref), hint.old, position)
            self._warnings.append((hint.span, warning))

    # --- types -----------------------------------------------------------------------------------

    def _match_types(self) -> dict[TypeRef, TypeRef]:
        """The accepted type of each desired type that has one; the others are new."""
        accepted = self.accepted.ids.types
        origin: dict[TypeRef, TypeRef] = {ref: ref for ref in self.desired if ref in accepted}
        claimed = set(origin.values())
        for ref, hint in sorted(self.type_hints.items(), key=lambda entry: entry[1].span):
            kind, name = ref
            if ref in origin:
                self.warn("ignored_rename_hint", ref, hint)
                continue
            old: TypeRef = (kind, hint.old)
            if old not in accepted:
                self._unknown_type(ref, hint)
            elif old in claimed:
                self._report.unresolved(
                    f"accepted {kind} '{hint.old}' is consumed by more than one declaration",
                    hint.span,
                    hint=f"`{name}` cannot take it over as well",
                )
            else:
                origin[ref] = old
                claimed.add(old)
        return origin

    def _unknown_type(self, ref: TypeRef, hint: RenameHint) -> None:
        kind, name = ref
        accepted = self.accepted.ids.types
        elsewhere = [other for other in TYPE_KINDS if (other, hint.old) in accepted]
        if elsewhere:
            self._report.unresolved(
                f"{kind} '{name}' cannot rename accepted {elsewhere[0]} '{hint.old}' "
                "across declaration kinds",
                hint.span,
            )
        else:
            names = [other for other_kind, other in accepted if other_kind == kind]
            self._report.unresolved(
                f"{kind} '{name}' declares @rename_from(\"{hint.old}\") "
                "but no accepted declaration has that name",
                hint.span,
                hint=partial(did_you_mean, hint.old, names),
            )

    # --- properties ------------------------------------------------------------------------------

    def _match_properties(self, origin: Mapping[TypeRef, TypeRef]) -> dict[PropertyRef, int]:
        """The ids of the desired properties that match accepted ones."""
        accepted = self.accepted.ids.properties
        known: dict[PropertyRef, int] = {}
        for owner, shape in self.desired.items():
            if owner not in origin:
                continue
            for prop in shape.properties:
                same_name = accepted.get((*origin[owner], prop.name))
                if same_name is not None:
                    known[*owner, prop.name] = same_name
        claimed = set(known.values())
        for ref, hint in sorted(self.property_hints.items(), key=lambda entry: entry[1].span):
            owner_kind, owner_name, name = ref
            old_owner = origin.get((owner_kind, owner_name))
            if ref in known:
                self.warn("ignored_rename_hint", ref, hint)
            elif old_owner is None:
                self._new_owner(ref, hint)
            elif (*old_owner, hint.old) not in accepted:
                self._unknown_property(ref, old_owner, hint)
            elif accepted[*old_owner, hint.old] in claimed:
                self._report.unresolved(
                    f"accepted property '{hint.old}' of {owner_kind} '{owner_name}' "
                    "is consumed more than once",
                    hint.span,
                    hint=f"`{name}` cannot take it over as well",
                )
            else:
                known[ref] = accepted[*old_owner, hint.old]
                claimed.add(known[ref])
        return known

    def _new_owner(self, ref: PropertyRef, hint: RenameHint) -> None:
        if not hint.is_inherited:
            kind, owner, name = ref
            self._report.unresolved(
                f"property '{owner}.{name}' of the new {kind} '{owner}' cannot import property "
                f'identity with @rename_from("{hint.old}")',
                hint.span,
                hint=f"rename the type too, with `@rename_from` on {owner}, or remove this hint",
            )

    def _unknown_property(self, ref: PropertyRef, old_owner: TypeRef, hint: RenameHint) -> None:
        if hint.is_inherited:
            return
        _, owner, name = ref
        accepted = self.accepted.ids.properties
        start = f"property '{owner}.{name}' declares @rename_from(\"{hint.old}\"):"
        if any(other == hint.old for *_, other in accepted):
            self._report.unresolved(
                f"{start} property moves across stable owners are not supported", hint.span
            )
        else:
            names = [other for *holder, other in accepted if tuple(holder) == old_owner]
            self._report.unresolved(
                f"{start} no accepted property with that name exists on {old_owner[1]}",
                hint.span,
                hint=partial(did_you_mean, hint.old, names),
            )

    # --- allocation ------------------------------------------------------------------------------

    def _allocate(
        self, origin: Mapping[TypeRef, TypeRef], known: Mapping[PropertyRef, int]
    ) -> tuple[SchemaIds, int]:
        """Assign new ids: to types by kind and name, then to properties by owner and name, then to
        tables by type. `desired` is already in the first of these orders."""
        new = count(self.accepted.next_identity_id)
        old = self.accepted.ids
        types = {
            ref: old.types[origin[ref]] if ref in origin else next(new) for ref in self.desired
        }
        by_id = sorted(self.desired, key=types.__getitem__)
        properties: dict[PropertyRef, int] = {}
        for owner in by_id:
            for prop in self.desired[owner].properties:
                ref = (*owner, prop.name)
                properties[ref] = known[ref] if ref in known else next(new)
        incarnations = {
            ref: old.incarnations[origin[ref]] if ref in origin else next(new)
            for ref in by_id
            if ref[0] != "interface"
        }
        following = next(new)
        if following > IDENTITY_ID_MAX:
            raise IdentityError("the identity counter of this graph is exhausted")
        return SchemaIds(types, properties, incarnations), following


def _hints(
    admitted: AdmittedSchema,
) -> tuple[dict[TypeRef, RenameHint], dict[PropertyRef, RenameHint]]:
    """Every rename hint of a schema, by the declaration that has it."""
    types = admitted.types
    type_hints: dict[TypeRef, RenameHint] = {}
    property_hints: dict[PropertyRef, RenameHint] = {}
    kinds: tuple[tuple[TypeKind, Mapping[str, EffectiveType]], ...] = (
        ("interface", types.interfaces),
        ("node", types.nodes),
        ("edge", types.edges),
    )
    for kind, holders in kinds:
        for name, holder in holders.items():
            if not isinstance(holder, EffectiveInterface):
                _keep_hint(type_hints, (kind, name), holder.declaration.annotations)
            for prop in holder.properties.values():
                _keep_hint(
                    property_hints,
                    (kind, name, prop.name),
                    prop.declaration.annotations,
                    is_inherited=not prop.is_direct,
                )
    return type_hints, property_hints


def _keep_hint(
    hints: dict[R, RenameHint],
    ref: R,
    annotations: Iterable[AnnotationExpr],
    *,
    is_inherited: bool = False,
) -> None:
    annotation = annotation_named(annotations, "rename_from")
    if annotation is not None and annotation.value is not None:
        hints[ref] = RenameHint(str(annotation.value.value), annotation.span, is_inherited)
