"""Constraints: that the properties they name exist, are of a fitting type, and make sense."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.admission.annotations import annotation_named, ineligible_shape
from omnigraph.schema.admission.effective import (
    EffectiveEdge,
    EffectiveNode,
    EffectiveProperty,
    Properties,
)
from omnigraph.schema.admission.patterns import pattern_problem
from omnigraph.schema.admission.report import Hint, Report
from omnigraph.schema.ast import COLUMNS_KINDS, CheckDecl, ColumnsDecl, Name, NumberExpr, RangeDecl
from omnigraph.schema.catalog import Range
from omnigraph.syntax.suggest import did_you_mean

EDGE_ENDS = ("src", "dst")
"""Structural columns the constraints of an edge may name."""

_RULES = {RangeDecl: "range", CheckDecl: "check"}


def column_constraints(owner: EffectiveNode | EffectiveEdge) -> list[ColumnsDecl]:
    """The `@key`, `@unique` and `@index` of a type: those of its properties, then of its body.

    A bare `@key`, `@unique` or `@index` on a property is a constraint over that one column.
    """
    found = [
        ColumnsDecl(kind, (Name(prop.name, annotation.name.span),), annotation.span)
        for prop in owner.properties.values()
        for annotation in prop.declaration.annotations
        for kind in COLUMNS_KINDS
        if annotation.name.text == kind
    ]
    found += [c for c in owner.declaration.constraints if isinstance(c, ColumnsDecl)]
    return found


def columns_of(constraint: ColumnsDecl) -> tuple[str, ...]:
    """The columns of a constraint as a set, in byte order."""
    return tuple(sorted({column.text for column in constraint.columns}))


def check_node_constraints(node: EffectiveNode, report: Report) -> None:
    """Check every constraint a node type declares or gains from an interface."""
    owner = node.declaration.name.text
    keys: set[tuple[str, ...]] = set()
    for constraint in sorted(column_constraints(node), key=attrgetter("span")):
        for column in constraint.columns:
            prop = _known(constraint.kind, owner, column, node, report)
            if prop is not None:
                _check_column(constraint, owner, column, prop, report)
        if constraint.kind == "key":
            keys.add(columns_of(constraint))
            if len(keys) == 2:
                report.reject(
                    f"node type {owner} has multiple @key constraints",
                    constraint.span,
                    hint="several columns that are a key together go into one `@key(a, b)`",
                )
    for rule in node.declaration.constraints:
        if isinstance(rule, RangeDecl):
            prop = _known("range", owner, rule.property, node, report)
            if prop is not None:
                _check_range(rule, owner, prop, report)
        elif isinstance(rule, CheckDecl):
            prop = _known("check", owner, rule.property, node, report)
            if prop is not None:
                _check_pattern(rule, owner, prop, report)


def check_edge_constraints(edge: EffectiveEdge, report: Report) -> None:
    """Check the constraints of an edge type, which may also name `src` and `dst`."""
    owner = edge.declaration.name.text
    for prop in edge.properties.values():
        bare_key = annotation_named(prop.declaration.annotations, "key")
        if bare_key is not None:
            report.reject(
                f"@key is not supported on edge properties (edge {owner}.{prop.name})",
                bare_key.name.span,
                hint="use `@unique`; an edge is identified by its id",
            )
    for rule in edge.declaration.constraints:
        name = rule.kind if isinstance(rule, ColumnsDecl) else _RULES[type(rule)]
        if name not in ("unique", "index"):
            report.reject(f"@{name} constraint is not supported on edges (edge {owner})", rule.span)
    for constraint in column_constraints(edge):
        for column in constraint.columns if constraint.kind != "key" else ():
            if column.text in EDGE_ENDS:
                continue
            found = _known(constraint.kind, owner, column, edge, report)
            if found is not None:
                _check_column(constraint, owner, column, found, report)


def range_of(rule: RangeDecl, properties: Properties) -> Range:
    """An admitted `@range`, its bounds in the kind of number the property holds."""
    value_type = properties[rule.property.text].type
    return Range(
        rule.property.text,
        _bound(rule.minimum, value_type),
        _bound(rule.maximum, value_type),
    )


def _bound(number: NumberExpr | None, value_type: ValueType) -> int | float | None:
    """`0..5` and `0.0..5.0` mean the same, so they get the same form.

    A fractional bound of an integer property stays as it is: comparing is exact either way.
    """
    if number is None:
        return None
    if value_type.scalar.is_float:
        return float(number.value) + 0.0  # so that -0.0 becomes 0.0
    whole = int(number.value)
    return whole if whole == number.value else number.value


def _known(
    constraint: str,
    owner: str,
    column: Name,
    holder: EffectiveNode | EffectiveEdge,
    report: Report,
) -> EffectiveProperty | None:
    prop = holder.properties.get(column.text)
    incomplete = isinstance(holder, EffectiveNode) and not holder.is_complete
    if prop is None and not incomplete:
        hint: Hint = partial(did_you_mean, column.text, holder.properties)
        if isinstance(holder, EffectiveEdge) and column.text in ("from", "to"):
            hint = "the ends of an edge are called `src` and `dst` here"
        report.reject(
            f"@{constraint} on {owner} references unknown property '{column.text}'",
            column.span,
            hint=hint,
        )
    return prop


def _check_column(
    constraint: ColumnsDecl, owner: str, column: Name, prop: EffectiveProperty, report: Report
) -> None:
    shape = ineligible_shape(prop.type)
    if shape is not None and not (shape == "vector" and constraint.kind == "index"):
        report.reject(
            f"@{constraint.kind} is not supported on {shape} property {owner}.{prop.name}",
            column.span,
        )
    elif constraint.kind == "key" and prop.type.nullable:
        report.reject(
            f"@key property {owner}.{prop.name} cannot be nullable",
            column.span,
            hint=f"remove the `?` from the type of `{prop.name}`",
        )


def _check_range(rule: RangeDecl, owner: str, prop: EffectiveProperty, report: Report) -> None:
    where = f"{owner}.{prop.name}"
    if not prop.type.is_numeric:
        report.reject(
            f"@range on {where} requires a numeric type, got {prop.type}", rule.property.span
        )
    elif (
        rule.minimum is not None
        and rule.maximum is not None
        and rule.minimum.value > rule.maximum.value
    ):
        report.reject(
            f"@range on {where} has min {rule.minimum.text} greater than max {rule.maximum.text}",
            rule.minimum.span.to(rule.maximum.span),
        )


def _check_pattern(rule: CheckDecl, owner: str, prop: EffectiveProperty, report: Report) -> None:
    where = f"{owner}.{prop.name}"
    if prop.type.is_list or prop.type.scalar is not Scalar.STRING:
        report.reject(
            f"@check on {where} requires String type, got {prop.type}", rule.property.span
        )
        return
    pattern = str(rule.pattern.value)
    problem = pattern_problem(pattern)
    if problem is not None:
        report.reject(
            f"@check on {where} has invalid regex '{pattern}': {problem}",
            rule.pattern.span,
            hint="patterns use RE2 syntax, which has no look-around and no back-references",
        )
