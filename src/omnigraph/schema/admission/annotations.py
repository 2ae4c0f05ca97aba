"""Annotations: where they may stand and what they must say.

The form of an annotation is checked where it is written, interfaces included. What depends on the
type that ends up with the property is checked after interfaces are expanded, because only then is
it known which properties stand beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.admission.effective import EffectiveProperty, Properties
from omnigraph.schema.admission.report import Report
from omnigraph.schema.ast import AnnotationExpr, EdgeDecl, NodeDecl, PropertyDecl
from omnigraph.schema.catalog import Embed, TypeKind
from omnigraph.syntax.suggest import did_you_mean

METADATA = frozenset({"description", "instruction"})
"""Annotations that are text for readers."""

_ONCE_ON_TYPE = METADATA | {"rename_from"}
_ONCE_ON_PROPERTY = METADATA | {"rename_from", "key", "unique", "index", "embed", "default"}


def annotation_named(annotations: Iterable[AnnotationExpr], name: str) -> AnnotationExpr | None:
    """The first annotation of this name."""
    return next((a for a in annotations if a.name.text == name), None)


# --- form -----------------------------------------------------------------------------------------


def check_type_annotations(declaration: NodeDecl | EdgeDecl, report: Report) -> None:
    """Check the annotations in the header of a node or edge type."""
    kind = "node" if isinstance(declaration, NodeDecl) else "edge"
    label = f"{kind} {declaration.name.text}"
    _check_once(declaration.annotations, _ONCE_ON_TYPE, label, report)
    for annotation in declaration.annotations:
        _check_form(annotation, label, report)
        if annotation.name.text == "default":
            report.reject(
                f"@default is only supported on properties ({label})", annotation.name.span
            )


def check_property_annotations(owner: str, declaration: PropertyDecl, report: Report) -> None:
    """Check the form of a property's annotations where they are written."""
    label = f"property {owner}.{declaration.name.text}"
    _check_once(declaration.annotations, _ONCE_ON_PROPERTY, label, report)
    for annotation in declaration.annotations:
        if annotation.name.text == "instruction":
            report.reject(
                f"@instruction is only supported on node and edge types ({label})",
                annotation.name.span,
                hint="use `@description` on a property",
            )
        else:
            _check_form(annotation, label, report)


def _check_once(
    annotations: Iterable[AnnotationExpr], once: frozenset[str], label: str, report: Report
) -> None:
    seen: set[str] = set()
    for annotation in annotations:
        name = annotation.name.text
        if name in once and name in seen:
            report.reject(f"{label} declares @{name} multiple times", annotation.name.span)
        seen.add(name)


def _check_form(annotation: AnnotationExpr, label: str, report: Report) -> None:
    name = annotation.name.text
    at = annotation.value.span if annotation.value is not None else annotation.name.span
    if name in METADATA and not _has_text(annotation):
        report.reject(
            f"@{name} on {label} requires a non-empty value",
            at,
            hint=f'write it as a string: `@{name}("…")`',
        )
    if name == "rename_from":
        if not _has_text(annotation):
            report.reject(
                f"@rename_from on {label} requires exactly one non-empty positional value",
                at,
                hint='name the old declaration: `@rename_from("Old")`',
            )
        if annotation.options:
            report.reject(
                f"@rename_from on {label} does not accept keyword arguments",
                annotation.options[0].name.span,
            )


def _has_text(annotation: AnnotationExpr) -> bool:
    value = annotation.value.value if annotation.value is not None else None
    return isinstance(value, str) and bool(value.strip())


# --- @embed ---------------------------------------------------------------------------------------


def ineligible_shape(value_type: ValueType) -> str | None:
    """`list`, `vector` or `blob`: the types a constraint may not accept, named for messages."""
    if value_type.is_list:
        return "list"
    if value_type.is_vector:
        return "vector"
    return "blob" if value_type.is_blob else None


def check_embed(
    kind: TypeKind, owner: str, prop: EffectiveProperty, properties: Properties, report: Report
) -> None:
    """Check an `@embed`: it belongs on a vector of a node and names a String beside it."""
    annotation = annotation_named(prop.declaration.annotations, "embed")
    if annotation is None:
        return
    where = f"{owner}.{prop.name}"
    at = annotation.name.span
    if kind == "edge":
        report.reject(f"@embed is not supported on edge properties (edge {where})", at)
        return
    shape = ineligible_shape(prop.type)
    if shape in ("list", "blob"):
        report.reject(f"@embed is not supported on {shape} property {where}", at)
        return
    if shape != "vector":
        report.reject(
            f"@embed is only supported on vector properties ({where} is {prop.type})",
            at,
            hint="give the property a type such as `Vector(768)`",
        )
        return
    _check_embed_source(annotation, owner, where, properties, report)
    for option in annotation.options:
        if option.name.text != "model":
            report.reject(
                f"@embed on {where} has unknown argument '{option.name.text}=' "
                "(only 'model' is supported)",
                option.name.span,
            )
        elif not isinstance(option.value.value, str) or not option.value.value.strip():
            report.reject(
                f"@embed on {where} requires a non-empty string as its model", option.value.span
            )


def _check_embed_source(
    annotation: AnnotationExpr, owner: str, where: str, properties: Properties, report: Report
) -> None:
    if annotation.value is None or not _has_text(annotation):
        report.reject(
            f"@embed on {where} requires a source property name",
            annotation.value.span if annotation.value is not None else annotation.name.span,
            hint='name a String property: `@embed("title")`',
        )
        return
    name = str(annotation.value.value)
    source = properties.get(name)
    if source is None:
        report.reject(
            f"@embed on {where} references unknown source property {name}",
            annotation.value.span,
            hint=partial(did_you_mean, name, properties),
        )
    elif source.type.is_list or source.type.scalar is not Scalar.STRING:
        report.reject(
            f"@embed source property {owner}.{name} must be String, got {source.type}",
            annotation.value.span,
        )


def embed_of(prop: EffectiveProperty) -> Embed | None:
    """What an admitted property is computed from, if it has an `@embed`."""
    annotation = annotation_named(prop.declaration.annotations, "embed")
    if annotation is None or annotation.value is None:
        return None
    model = next((o.value.value for o in annotation.options if o.name.text == "model"), None)
    return Embed(str(annotation.value.value), None if model is None else str(model))
