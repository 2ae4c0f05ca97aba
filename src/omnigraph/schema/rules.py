"""Second half of admission: rules for annotations, constraints and defaults.

The form of an annotation is checked where it is written, interfaces included. Rules that depend on
the other properties of a type are checked after interfaces are expanded.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from omnigraph.errors import ValueConversionError
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType
from omnigraph.model.values import assigned_value, parse_date, parse_datetime
from omnigraph.schema.catalog import Embed, Range, TypeKind
from omnigraph.schema.effective import (
    EffectiveEdge,
    EffectiveNode,
    EffectiveProperty,
    Hint,
    Properties,
    Report,
)
from omnigraph.syntax import schema_ast as ast
from omnigraph.syntax.schema_ast import LiteralValue
from omnigraph.syntax.suggest import did_you_mean

METADATA = frozenset({"description", "instruction"})
"""Annotations with text for readers."""

_ONCE_ON_TYPE = METADATA | {"rename_from"}
_ONCE_ON_PROPERTY = METADATA | {"rename_from", "key", "unique", "index", "embed", "default"}


def annotation_named(
    annotations: Iterable[ast.AnnotationExpr], name: str
) -> ast.AnnotationExpr | None:
    """The first annotation of this name."""
    return next((a for a in annotations if a.name.text == name), None)


# --- form of annotations --------------------------------------------------------------------------


def check_type_annotations(declaration: ast.NodeDecl | ast.EdgeDecl, report: Report) -> None:
    """Check the annotations in the header of a node or edge type."""
    kind = "node" if isinstance(declaration, ast.NodeDecl) else "edge"
    label = f"{kind} {declaration.name.text}"
    _check_once(declaration.annotations, _ONCE_ON_TYPE, label, report)
    for annotation in declaration.annotations:
        _check_form(annotation, label, report)
        if annotation.name.text == "default":
            report.reject(
                f"@default is only supported on properties ({label})", annotation.name.span
            )


def check_property_annotations(owner: str, declaration: ast.PropertyDecl, report: Report) -> None:
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
    annotations: Iterable[ast.AnnotationExpr], once: frozenset[str], label: str, report: Report
) -> None:
    seen: set[str] = set()
    for annotation in annotations:
        name = annotation.name.text
        if name in once and name in seen:
            report.reject(f"{label} declares @{name} multiple times", annotation.name.span)
        seen.add(name)


def _check_form(annotation: ast.AnnotationExpr, label: str, report: Report) -> None:
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


def _has_text(annotation: ast.AnnotationExpr) -> bool:
    value = annotation.value.value if annotation.value is not None else None
    return isinstance(value, str) and bool(value.strip())


# --- @embed ---------------------------------------------------------------------------------------


def ineligible_shape(value_type: ValueType) -> str | None:
    """`list`, `vector` or `blob`: types that constraints may not accept, named for messages."""
    if value_type.is_list:
        return "list"
    if value_type.is_vector:
        return "vector"
    return "blob" if value_type.is_blob else None


def check_embed(
    kind: TypeKind, owner: str, prop: EffectiveProperty, properties: Properties, report: Report
) -> None:
    """Check an `@embed`: on a vector of a node, naming a String property of that node."""
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
    annotation: ast.AnnotationExpr, owner: str, where: str, properties: Properties, report: Report
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
    """The `@embed` of an admitted property, or None."""
    annotation = annotation_named(prop.declaration.annotations, "embed")
    if annotation is None or annotation.value is None:
        return None
    model = next((o.value.value for o in annotation.options if o.name.text == "model"), None)
    return Embed(str(annotation.value.value), None if model is None else str(model))


# --- constraints ----------------------------------------------------------------------------------


EDGE_ENDS = ("src", "dst")
"""Columns of an edge that its constraints may name besides properties."""

_RULES = {ast.RangeDecl: "range", ast.CheckDecl: "check"}


def column_constraints(owner: EffectiveNode | EffectiveEdge) -> list[ast.ColumnsDecl]:
    """The `@key`, `@unique` and `@index` of a type: those of its properties, then of its body.

    A bare `@key`, `@unique` or `@index` on a property is a constraint over that one column.
    """
    found = [
        ast.ColumnsDecl(kind, (ast.Name(prop.name, annotation.name.span),), annotation.span)
        for prop in owner.properties.values()
        for annotation in prop.declaration.annotations
        for kind in ast.COLUMNS_KINDS
        if annotation.name.text == kind
    ]
    found += [c for c in owner.declaration.constraints if isinstance(c, ast.ColumnsDecl)]
    return found


def columns_of(constraint: ast.ColumnsDecl) -> tuple[str, ...]:
    """The columns of a constraint as a set, in byte order."""
    return tuple(sorted({column.text for column in constraint.columns}))


def check_node_constraints(node: EffectiveNode, report: Report) -> None:
    """Check every constraint that a node type declares or inherits from an interface."""
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
        if isinstance(rule, ast.RangeDecl):
            prop = _known("range", owner, rule.property, node, report)
            if prop is not None:
                _check_range(rule, owner, prop, report)
        elif isinstance(rule, ast.CheckDecl):
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
                hint=f"the key of an edge has both ends: write `@key(src, dst, {prop.name})`",
            )
    keys: set[tuple[str, ...]] = set()
    for rule in edge.declaration.constraints:
        if not isinstance(rule, ast.ColumnsDecl):
            name = _RULES[type(rule)]
            report.reject(f"@{name} constraint is not supported on edges (edge {owner})", rule.span)
        elif rule.kind == "key":
            keys.add(columns_of(rule))
            _check_edge_key(rule, owner, keys, report)
    for constraint in column_constraints(edge):
        if constraint.kind == "key" and constraint not in edge.declaration.constraints:
            continue  # bare on a property, reported above
        for column in constraint.columns:
            if column.text in EDGE_ENDS:
                continue
            found = _known(constraint.kind, owner, column, edge, report)
            if found is not None:
                _check_column(constraint, owner, column, found, report)


def _check_edge_key(
    rule: ast.ColumnsDecl, owner: str, keys: set[tuple[str, ...]], report: Report
) -> None:
    missing = [end for end in EDGE_ENDS if end not in columns_of(rule)]
    if missing:
        report.reject(
            f"@key on edge {owner} must contain src and dst ({' and '.join(missing)} missing)",
            rule.span,
            hint="an edge is identified by its ends: `@key(src, dst)`, and properties after them "
            "where two nodes may have several edges",
        )
    if len(keys) == 2:
        report.reject(f"edge type {owner} has multiple @key constraints", rule.span)


def range_of(rule: ast.RangeDecl, properties: Properties) -> Range:
    """An admitted `@range`, its bounds as numbers of the property's kind."""
    value_type = properties[rule.property.text].type
    return Range(
        rule.property.text, _bound(rule.minimum, value_type), _bound(rule.maximum, value_type)
    )


def _bound(number: ast.NumberExpr | None, value_type: ValueType) -> int | float | None:
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
    column: ast.Name,
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
    constraint: ast.ColumnsDecl,
    owner: str,
    column: ast.Name,
    prop: EffectiveProperty,
    report: Report,
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


def _check_range(rule: ast.RangeDecl, owner: str, prop: EffectiveProperty, report: Report) -> None:
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


def _check_pattern(
    rule: ast.CheckDecl, owner: str, prop: EffectiveProperty, report: Report
) -> None:
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


# --- patterns of @check ---------------------------------------------------------------------------


# Patterns are RE2, so that matching takes linear time. RE2 comes with Arrow, which validation uses
# to match whole columns; it is imported only for a schema that has a pattern, because it takes
# longer to load than most schemas take to compile.


def pattern_problem(pattern: str) -> str | None:
    """Why a pattern is not accepted, or ``None`` if it is."""
    import pyarrow as pa

    try:
        pattern_matches(pattern, "")
    except pa.ArrowInvalid as bad:
        return str(bad).removeprefix("Invalid regular expression: ")
    return None


def pattern_matches(pattern: str, text: str) -> bool:
    """Whether an accepted pattern matches anywhere in a text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pc.match_substring_regex(pa.scalar(text), pattern=pattern).as_py())


# --- @default -------------------------------------------------------------------------------------


def check_default_form(
    owner: str, declaration: ast.PropertyDecl, value_type: ValueType, report: Report
) -> None:
    """Check a default where it is written: it must be one literal that fits the property type."""
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
        if not isinstance(rule, ast.ColumnsDecl) and rule.property.text in defaults:
            default = defaults[rule.property.text]
            problem = _broken_rule(rule, default.value)
            if problem is not None:
                where = f"{name}.{rule.property.text}"
                report.reject(f"@default on {where} {problem}", default.literal.span)


class _Default(NamedTuple):
    literal: ast.LiteralExpr
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


def _broken_rule(rule: ast.RangeDecl | ast.CheckDecl, value: LiteralValue) -> str | None:
    """How a default violates a `@range` or `@check`, or None.

    A rule that does not fit the type of its property was reported elsewhere.
    """
    if isinstance(rule, ast.CheckDecl):
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


def converted_default(value_type: ValueType, literal: ast.LiteralExpr) -> LiteralValue | None:
    """The default as a value of the property type, or ``None`` if it does not fit.

    Numbers are converted to the property type (`1` on an `F64` is `1.0`); dates and date-times stay
    the text they were written as.
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
