"""What a change amounts to: of a type, more values or a wider type; of annotations, metadata."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.admission.annotations import METADATA
from omnigraph.schema.canonical import annotation_key
from omnigraph.schema.catalog import Annotation
from omnigraph.schema.shape import PropertyShape

Annotations = tuple[Annotation, ...]
AnnotationChange = Literal["none", "metadata", "other"]

_WIDER = {Scalar.I32: Scalar.I64, Scalar.U32: Scalar.U64, Scalar.F32: Scalar.F64}
"""Each type on the left fits into the one on the right without loss."""


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A supported change, in the order it happens: first the enum grows, then the type widens."""

    added_values: tuple[str, ...] = ()
    widened: tuple[ValueType, ValueType] | None = None


def classify_type(old: ValueType, new: ValueType, *, is_key: bool) -> TypeChange | str:
    """How to get from one type to another, or why that is not supported.

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
        # 0.1 is spelled 0.1 as F32 but 0.10000000149011612 as F64. Integers and enums keep theirs.
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
    """Whether annotations differ, and if so in more than metadata."""
    before, after = set(map(annotation_key, old)), set(map(annotation_key, new))
    if before == after:
        return "none"
    old_rest = before - set(map(annotation_key, metadata_of(old)))
    new_rest = after - set(map(annotation_key, metadata_of(new)))
    return "metadata" if old_rest == new_rest else "other"


def metadata_of(annotations: Annotations) -> Annotations:
    """The annotations a migration may change: text for readers, and defaults."""
    return tuple(a for a in annotations if a.name in METADATA or a.name == "default")


def with_default(prop: PropertyShape) -> Annotations:
    """The annotations of a property with its default among them, where people write it."""
    if prop.default is None:
        return prop.annotations
    default = Annotation("default", prop.default)
    return tuple(sorted((*prop.annotations, default), key=annotation_key))
