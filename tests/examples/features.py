"""Which features of the languages a set of texts uses.

Features are read off the parsed trees, so that a comment or a name cannot pretend to be one. What
the languages offer is read off their own modules where they list it: a new kind of node, function
or operator is then missing from the examples until somebody writes one.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, get_args

from omnigraph.model.types import RecordsType, Scalar, ValueType
from omnigraph.syntax import query_ast as gq
from omnigraph.syntax import schema_ast as pg
from omnigraph.syntax.schema_ast import COLUMNS_KINDS

# --- trees ----------------------------------------------------------------------------------------


def walk(node: Any) -> Iterator[Any]:
    """Every record inside a tree, itself included: dataclasses and named tuples."""
    if is_record(type(node)):
        yield node
        for name in _field_names(node):
            yield from walk(getattr(node, name))
    elif isinstance(node, tuple | list):
        for item in node:
            yield from walk(item)
    elif isinstance(node, Mapping):
        yield from walk(list(node.values()))


def is_record(kind: type) -> bool:
    """Whether a class is a dataclass or a named tuple."""
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _field_names(record: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(record):
        return tuple(field.name for field in dataclasses.fields(record))
    return tuple(record._fields)


def kinds_in(trees: Iterable[Any], module: ModuleType) -> set[str]:
    """The classes of a module that occur in trees."""
    return {
        type(node).__name__
        for tree in trees
        for node in walk(tree)
        if type(node).__module__ == module.__name__
    }


def kinds_of(module: ModuleType) -> set[str]:
    """Every record a module defines."""
    found = {
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and is_record(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }
    assert found, f"{module.__name__} defines no records"
    return found


# --- queries --------------------------------------------------------------------------------------

_LITERALS = ("text", "integer", "float", "truth value", "date", "datetime")
_LITERAL_TYPES = (str, int, float, bool, dt.date, dt.datetime)

QUERY_FEATURES: set[str] = {
    *(f"call {name}" for name in gq.SEARCH_FUNCTIONS),
    *(f"call {name}" for name in gq.AGGREGATE_FUNCTIONS),
    *(f"call {name}" for name in gq.SCALAR_FUNCTIONS),
    *(f"filter {operator}" for operator in get_args(gq.FilterOperator)),
    *(f"where {operator}" for operator in get_args(gq.ComparisonOperator)),
    *(f"compute {operator}" for operator in get_args(gq.ArithmeticOperator)),
    *(f"parameter {scalar}" for scalar in Scalar),
    *(f"literal {name}" for name in _LITERALS),
    "parameter list",
    "parameter records",
    "parameter nullable",
    "literal negative integer",
    "literal negative float",
    "query @description",
    "query @instruction",
    "query without parameters",
    "pair on a binding",
    "hop forwards or backwards",
    "hop undirected",
    "hop with bounds",
    "hop with open bounds",
    "hop bounded by a parameter",
    "hop of no steps",
    "hop with an edge variable",
    "hop with a path",
    "hop with all shortest paths",
    "hop with the cheapest path",
    "hop with a computed weight",
    "hop to anyone",
    "hop to itself",
    "any with all",
    "any without all",
    "text predicate alone",
    "text predicate = true",
    "filter in a list",
    "filter in a parameter",
    "filter is null",
    "filter is not null",
    "return distinct",
    "return a node",
    "return a parameter",
    "return a literal",
    "return the time",
    "return without alias",
    "return a text predicate",
    "return by alias",
    "aggregate distinct",
    "aggregate of rows",
    "having an alias",
    "having an aggregate",
    "having is not null",
    "order asc",
    "order desc",
    "order without direction",
    "order by a property",
    "order by an alias",
    "order by nearest",
    "order by bm25",
    "limit number",
    "limit parameter",
    "offset number",
    "offset parameter",
    "nearest a text",
    "nearest a written vector",
    "rrf with k",
    "where and",
    "where or",
    "where is null",
    "where is not null",
    "where in a parameter",
    "where from",
    "assign null",
    "assign now()",
    "assign a parameter",
    "assign a literal",
    "assign a computed value",
    "assign a field of a record",
    "several statements",
}
"""What the query language offers, beyond the kinds of its tree."""


def query_features(file: gq.QueryFile) -> set[str]:
    """The features of `QUERY_FEATURES` that one file uses."""
    found: set[str] = set()
    for query in file.queries:
        found |= _header_features(query)
        found |= {feature for node in walk(query) for feature in _node_features(node) if feature}
        body = query.body
        found |= _read_features(body, query) if isinstance(body, gq.ReadBody) else _write(body)
    return found


def _header_features(query: gq.Query) -> set[str]:
    types = [parameter.type for parameter in query.parameters]
    found = {f"parameter {type.scalar}" for type in types if isinstance(type, ValueType)}
    if any(isinstance(type, RecordsType) for type in types):
        found.add("parameter records")
    if any(isinstance(type, ValueType) and type.is_list for type in types):
        found.add("parameter list")
    if any(parameter.type.nullable for parameter in query.parameters):
        found.add("parameter nullable")
    if not query.parameters:
        found.add("query without parameters")
    if query.description is not None:
        found.add("query @description")
    if query.instruction is not None:
        found.add("query @instruction")
    return found


def _node_features(node: Any) -> Iterator[str]:
    match node:
        case gq.Literal():
            name = _LITERALS[_LITERAL_TYPES.index(type(node.value))]
            yield f"literal {name}"
            if name in ("integer", "float") and node.value < 0:  # type: ignore[operator]
                yield f"literal negative {name}"
        case gq.SearchCall():
            yield f"call {node.function}"
            if node.function == "nearest":
                wanted = node.arguments[1]
                written = isinstance(wanted, gq.ListLiteral)
                yield "nearest a written vector" if written else "nearest a text"
            if node.function == "rrf" and len(node.arguments) == 3:
                yield "rrf with k"
        case gq.FunctionCall():
            yield f"call {node.function}"
        case gq.Aggregate():
            yield f"call {node.function}"
            if node.distinct:
                yield "aggregate distinct"
            if node.argument is None:
                yield "aggregate of rows"
        case gq.Arithmetic():
            yield f"compute {node.operator}"
        case gq.Binding() if node.pairs:
            yield "pair on a binding"
        case gq.Hop():
            yield from _hop_features(node)
        case gq.Filter():
            yield f"filter {node.operator}"
            if node.operator == "in":
                listed = isinstance(node.right, gq.ListLiteral)
                yield "filter in a list" if listed else "filter in a parameter"
            if isinstance(node.left, gq.SearchCall):
                # Where nothing is written behind the call, the parser puts `true` at its place.
                alone = node.right.span == node.left.span
                yield "text predicate alone" if alone else "text predicate = true"
        case gq.NullTest():
            yield "filter is not null" if node.negated else "filter is null"
        case gq.Any():
            grouped = any(len(alternative) > 1 for alternative in node.alternatives)
            yield "any with all" if grouped else "any without all"
        case gq.Comparison():
            yield f"where {node.operator}"
            if node.name == "from":
                yield "where from"
        case gq.BooleanPredicate():
            yield f"where {node.operator}"
        case gq.Membership() if isinstance(node.values, gq.Variable):
            yield "where in a parameter"
        case gq.PropertyNullTest():
            yield "where is not null" if node.negated else "where is null"


def _hop_features(hop: gq.Hop) -> Iterator[str]:
    yield "hop undirected" if hop.undirected else "hop forwards or backwards"
    if hop.bounds is not None:
        yield "hop with bounds"
        if hop.bounds.maximum is None:
            yield "hop with open bounds"
        if isinstance(hop.bounds.maximum, gq.Variable):
            yield "hop bounded by a parameter"
        if hop.bounds.minimum == 0:
            yield "hop of no steps"
    if hop.edge_variable is not None:
        yield "hop with an edge variable"
    if hop.path_variable is not None:
        yield {
            "one": "hop with a path",
            "all": "hop with all shortest paths",
            "cheapest": "hop with the cheapest path",
        }[hop.path_kind]
    if hop.path_step is not None:
        yield "hop with a computed weight"
    if hop.right.is_anonymous:
        yield "hop to anyone"
    if hop.left.name == hop.right.name:
        yield "hop to itself"


def _read_features(body: gq.ReadBody, query: gq.Query) -> set[str]:
    found: set[str] = {"return distinct"} if body.distinct else set()
    parameters = {parameter.name for parameter in query.parameters}
    for item in body.items:
        if item.alias is None:
            found.add("return without alias")
        match item.expression:
            case gq.Variable():
                given = item.expression.name in parameters
                found.add("return a parameter" if given else "return a node")
            case gq.Literal():
                found.add("return a literal")
            case gq.Now():
                found.add("return the time")
            case gq.SearchCall() if item.expression.function in gq.TEXT_PREDICATES:
                found.add("return a text predicate")
        if any(isinstance(node, gq.AliasRef) for node in walk(item.expression)):
            found.add("return by alias")
    for test in body.having:
        nodes = list(walk(test))
        if any(isinstance(node, gq.AliasRef) for node in nodes):
            found.add("having an alias")
        if any(isinstance(node, gq.Aggregate) for node in nodes):
            found.add("having an aggregate")
        if isinstance(test, gq.NullTest) and test.negated:
            found.add("having is not null")
    for key in body.order:
        direction = {None: "without direction", True: "desc", False: "asc"}[key.descending]
        found.add(f"order {direction}")
        match key.expression:
            case gq.PropertyRef():
                found.add("order by a property")
            case gq.AliasRef():
                found.add("order by an alias")
            case gq.SearchCall():
                found.add(f"order by {key.expression.function}")
    for word, count in (("limit", body.limit), ("offset", body.offset)):
        if count is not None:
            given = isinstance(count.value, gq.Variable)
            found.add(f"{word} {'parameter' if given else 'number'}")
    return found


def _write(body: gq.WriteBody) -> set[str]:
    found = {"several statements"} if len(body.statements) > 1 else set()
    statements = [node for node in walk(body) if isinstance(node, gq.Insert | gq.Update)]
    for statement in statements:
        for pair in statement.assignments:
            match pair.value:
                case gq.Arithmetic() | gq.FunctionCall():
                    found.add("assign a computed value")
                case gq.PropertyRef():
                    found.add("assign a field of a record")
                case gq.NullLiteral():
                    found.add("assign null")
                case gq.Now():
                    found.add("assign now()")
                case gq.Variable():
                    found.add("assign a parameter")
                case _:
                    found.add("assign a literal")
    return found


# --- schemas --------------------------------------------------------------------------------------

SCHEMA_FEATURES: set[str] = {
    *(f"type {scalar}" for scalar in Scalar),
    *(f"bare @{kind}" for kind in COLUMNS_KINDS),
    *(f"body @{kind}" for kind in COLUMNS_KINDS),
    "type list",
    "type enum",
    "type nullable",
    "type required",
    "node implements one",
    "node implements several",
    "edge without body",
    "edge with properties",
    "edge within a type",
    "edge across types",
    "constraint on an edge",
    "key of an edge",
    "constraint over ends",
    "@card low..high",
    "@card low..",
    "@range low..high",
    "@range low..",
    "@range ..high",
    "@range of integers",
    "@range of floats",
    "@range below zero",
    "@check",
    "@embed by name",
    "@embed by string",
    "@embed with model",
    "@default text",
    "@default word",
    "@default integer",
    "@default negative",
    "@default float",
    "@default truth value",
    "node @description",
    "node @instruction",
    "node @rename_from",
    "edge @description",
    "edge @instruction",
    "edge @rename_from",
    "property @description",
    "property @rename_from",
    "annotation of one's own",
    "annotation with a value and options",
    "line comment",
    "block comment",
}
"""What the schema language offers, beyond the kinds of its tree."""

_KNOWN_ANNOTATIONS = {
    *COLUMNS_KINDS,
    *("embed", "default", "description", "instruction", "rename_from"),
}


def schema_features(document: pg.SchemaDocument) -> set[str]:
    """The features of `SCHEMA_FEATURES` that one schema uses."""
    found = {feature for node in walk(document) for feature in _schema_node(node)}
    text = document.source.text
    if "//" in text:
        found.add("line comment")
    if "/*" in text:
        found.add("block comment")
    return found


def _schema_node(node: Any) -> Iterator[str]:
    match node:
        case pg.TypeExpr():
            yield f"type {node.scalar}"
            yield "type nullable" if node.nullable else "type required"
            if node.is_list:
                yield "type list"
            if node.enum_values is not None:
                yield "type enum"
        case pg.NodeDecl():
            yield from (f"node @{annotation.name.text}" for annotation in node.annotations)
            if node.implements:
                yield f"node implements {'one' if len(node.implements) == 1 else 'several'}"
        case pg.EdgeDecl():
            yield from _edge(node)
        case pg.PropertyDecl():
            for annotation in node.annotations:
                yield from _property_annotation(annotation)
        case pg.ColumnsDecl():
            yield f"body @{node.kind}"
            if {"src", "dst"} & {column.text for column in node.columns}:
                yield "constraint over ends"
        case pg.RangeDecl():
            yield from _range(node)
        case pg.CheckDecl():
            yield "@check"
        case pg.CardinalityDecl():
            yield "@card low.." if node.maximum is None else "@card low..high"
        case pg.AnnotationExpr() if node.name.text not in _KNOWN_ANNOTATIONS:
            yield "annotation of one's own"
            if node.value is not None and node.options:
                yield "annotation with a value and options"


def _edge(edge: pg.EdgeDecl) -> Iterator[str]:
    yield from (f"edge @{annotation.name.text}" for annotation in edge.annotations)
    yield "edge within a type" if edge.source.text == edge.target.text else "edge across types"
    if edge.properties:
        yield "edge with properties"
    if edge.constraints:
        yield "constraint on an edge"
    if any(isinstance(each, pg.ColumnsDecl) and each.kind == "key" for each in edge.constraints):
        yield "key of an edge"
    if not edge.properties and not edge.constraints:
        yield "edge without body"


def _property_annotation(annotation: pg.AnnotationExpr) -> Iterator[str]:
    name, value = annotation.name.text, annotation.value
    if name in COLUMNS_KINDS:
        yield f"bare @{name}"
    elif name in ("description", "rename_from"):
        yield f"property @{name}"
    elif name == "embed" and value is not None:
        yield "@embed by name" if value.is_identifier else "@embed by string"
        if annotation.options:
            yield "@embed with model"
    elif name == "default" and value is not None:
        yield f"@default {_default(value)}"


def _default(value: pg.LiteralExpr) -> str:
    if value.is_identifier:
        return "word"
    if isinstance(value.value, bool):
        return "truth value"
    if isinstance(value.value, str):
        return "text"
    if value.value < 0:
        return "negative"
    return "float" if isinstance(value.value, float) else "integer"


def _range(rule: pg.RangeDecl) -> Iterator[str]:
    low, high = rule.minimum, rule.maximum
    yield f"@range {'low' if low else ''}..{'high' if high else ''}"
    for bound in (low, high):
        if bound is not None:
            yield "@range of floats" if isinstance(bound.value, float) else "@range of integers"
            if bound.value < 0:
                yield "@range below zero"
