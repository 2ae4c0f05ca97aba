"""`@default(literal)`: the value of a property that an insert leaves out.

A default has to be a value the property could hold, and one that can be used more than once: it is
refused on keys and on columns that are unique by themselves. Lists, vectors and blobs have no
literal form, so they have no defaults.
"""

from __future__ import annotations

from typing import NamedTuple

from omnigraph.errors import ValueConversionError
from omnigraph.model.temporal import parse_date, parse_datetime
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType
from omnigraph.model.values import assigned_value
from omnigraph.schema.admission.annotations import annotation_named, ineligible_shape
from omnigraph.schema.admission.constraints import column_constraints, columns_of
from omnigraph.schema.admission.effective import EffectiveEdge, EffectiveNode
from omnigraph.schema.admission.patterns import pattern_matches, pattern_problem
from omnigraph.schema.admission.report import Report
from omnigraph.schema.ast import CheckDecl, ColumnsDecl, LiteralExpr, PropertyDecl, RangeDecl
from omnigraph.schema.catalog import LiteralValue


def check_default_form(
    owner: str, declaration: PropertyDecl, value_type: ValueType, report: Report
) -> None:
    """Check a default where it is written: it is one literal that fits the property type."""
    annotation = annotation_named(declaration.annotations, "default")
    if annotation is None:
        return
    where = f"{owner}.{declaration.name.text}"
    shape = ineligible_shape(value_type)
    if shape is not None:
        report.reject(
            f"@default is not supported on {shape} property {where}", annotation.name.span
        )
    elif annotation.value is None:
        report.reject(f"@default on {where} requires a literal value", annotation.name.span)
    elif annotation.options:
        report.reject(
            f"@default on {where} does not accept keyword arguments",
            annotation.options[0].name.span,
        )
    elif converted_default(value_type, annotation.value) is None:
        report.reject(
            f"@default on {where} does not fit type {value_type}: {annotation.value.text}",
            annotation.value.span,
            hint=_expected_literal(value_type),
        )


def check_default_uses(owner: EffectiveNode | EffectiveEdge, report: Report) -> None:
    """Check the defaults of a type against its constraints."""
    defaults = _fitting_defaults(owner)
    name = owner.declaration.name.text
    for constraint in column_constraints(owner) if defaults else ():
        columns = columns_of(constraint)
        if constraint.kind == "index" or (constraint.kind == "unique" and len(columns) > 1):
            continue
        for column in columns:
            if column in defaults:
                report.reject(
                    f"@default is not supported on @{constraint.kind} property {name}.{column}",
                    defaults[column].literal.span,
                    hint="every entity that leaves the value out would get the same one",
                )
    for rule in owner.declaration.constraints:
        if not isinstance(rule, ColumnsDecl) and rule.property.text in defaults:
            default = defaults[rule.property.text]
            problem = _broken_rule(rule, default.value)
            if problem is not None:
                where = f"{name}.{rule.property.text}"
                report.reject(f"@default on {where} {problem}", default.literal.span)


class _Default(NamedTuple):
    literal: LiteralExpr
    value: LiteralValue


def _fitting_defaults(owner: EffectiveNode | EffectiveEdge) -> dict[str, _Default]:
    """The defaults of a type that fit their properties; the others were reported."""
    found: dict[str, _Default] = {}
    for prop in owner.properties.values():
        annotation = annotation_named(prop.declaration.annotations, "default")
        if annotation is not None and annotation.value is not None:
            value = converted_default(prop.type, annotation.value)
            if value is not None:
                found[prop.name] = _Default(annotation.value, value)
    return found


def _broken_rule(rule: RangeDecl | CheckDecl, value: LiteralValue) -> str | None:
    """How a default breaks a `@range` or `@check`, if it does.

    A rule that does not fit the type of its property was reported elsewhere.
    """
    if isinstance(rule, CheckDecl):
        pattern = str(rule.pattern.value)
        if isinstance(value, str) and pattern_problem(pattern) is None:
            return None if pattern_matches(pattern, value) else f"does not match '{pattern}'"
        return None
    low, high = rule.minimum, rule.maximum
    if isinstance(value, str):
        return None
    if low is not None and value < low.value:
        return f"is below the @range minimum {low.text}"
    if high is not None and value > high.value:
        return f"is above the @range maximum {high.text}"
    return None


def converted_default(value_type: ValueType, literal: LiteralExpr) -> LiteralValue | None:
    """The default as a value of the property type, or ``None`` when it does not fit.

    Numbers come out as the property holds them (`1` on an `F64` is `1.0`); dates and date-times
    stay the text they were written as.
    """
    value = literal.value
    if value_type.enum_values is not None:
        return value if isinstance(value, str) and value in value_type.enum_values else None
    if literal.is_identifier or not value_type.is_plain_scalar:
        return None
    try:
        if value_type.scalar in (Scalar.DATE, Scalar.DATETIME):
            return _checked_moment(value_type.scalar, value)
        assigned_value(value, value_type, "")
    except ValueConversionError:
        return None
    return float(value) if value_type.scalar.is_float else value


def _checked_moment(scalar: Scalar, value: LiteralValue) -> str | None:
    if not isinstance(value, str):
        return None
    if scalar is Scalar.DATE:
        parse_date(value)
    else:
        parse_datetime(value)
    return value


def _expected_literal(value_type: ValueType) -> str:
    if value_type.enum_values is not None:
        return "use one of its values: " + ", ".join(value_type.enum_values)
    scalar = value_type.scalar
    if scalar.is_integer:
        low, high = INTEGER_BOUNDS[scalar]
        return f"use an integer from {low} to {high}"
    if scalar.is_float:
        return "use a number this type can hold"
    return {
        Scalar.BOOL: "use `true` or `false`",
        Scalar.DATE: 'use a date such as `"2026-01-31"`',
        Scalar.DATETIME: 'use a time such as `"2026-01-31T12:00:00Z"`',
    }.get(scalar, 'use a string in quotes: `"…"`')
