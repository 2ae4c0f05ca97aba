"""Property types and cardinalities: from what was written to what it means."""

from __future__ import annotations

from omnigraph.model.types import VECTOR_DIMENSION_MAX, Scalar, ValueType
from omnigraph.schema.admission.report import Report
from omnigraph.schema.ast import CardinalityDecl, NumberExpr, TypeExpr
from omnigraph.schema.catalog import Cardinality

CARDINALITY_MAX = 2**32 - 1
"""Largest bound of a `@card`."""


def resolve_type(expr: TypeExpr, report: Report) -> ValueType:
    """The type an expression stands for; enum values come out sorted.

    A type that breaks a rule is reported and still returned, so that the checks after this one can
    go on.
    """
    if expr.is_list and expr.scalar is Scalar.BLOB:
        report.reject(
            "list of Blob is not supported",
            expr.span,
            hint="use one `Blob` property, or a node type of its own linked by an edge",
        )
    if expr.enum_values is not None:
        seen: set[str] = set()
        for value in expr.enum_values:
            if value.text in seen:
                report.reject(
                    f"enum type cannot include duplicate values: '{value.text}'",
                    value.span,
                )
            seen.add(value.text)
        return ValueType(Scalar.STRING, nullable=expr.nullable, enum_values=tuple(sorted(seen)))
    return ValueType(
        expr.scalar,
        nullable=expr.nullable,
        is_list=expr.is_list,
        vector_dim=_dimension(expr.dimension, report) if expr.dimension is not None else None,
    )


def _dimension(number: NumberExpr, report: Report) -> int:
    dimension = int(number.value)
    if dimension == 0:
        report.reject("Vector dimension must be greater than zero", number.span)
    elif dimension > VECTOR_DIMENSION_MAX:
        report.reject(
            f"Vector dimension {dimension} exceeds maximum supported {VECTOR_DIMENSION_MAX}",
            number.span,
        )
    return dimension


def resolve_cardinality(decl: CardinalityDecl | None, report: Report) -> Cardinality:
    """The bounds of an edge type; `0..` where nothing is written."""
    if decl is None:
        return Cardinality()
    minimum = int(decl.minimum.value)
    maximum = int(decl.maximum.value) if decl.maximum is not None else None
    if minimum > CARDINALITY_MAX:
        report.reject(f"invalid cardinality min: {minimum}", decl.minimum.span)
    elif decl.maximum is not None and maximum is not None:
        if maximum > CARDINALITY_MAX:
            report.reject(
                f"invalid cardinality max: {maximum}",
                decl.maximum.span,
                hint=f"leave it out for no upper bound: `@card({minimum}..)`",
            )
        elif minimum > maximum:
            report.reject(f"cardinality min ({minimum}) exceeds max ({maximum})", decl.minimum.span)
    return Cardinality(minimum, maximum)
