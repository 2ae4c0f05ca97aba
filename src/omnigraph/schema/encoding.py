"""Shapes and accepted IRs as canonical JSON, the hashes over it, and the strict reader of IRs.

One encoder serves both: without ids it writes the shape, with ids the IR. A reference in an IR
holds id and name; in a shape it holds the name alone. Reading rebuilds shape and ids and encodes
them again, which must give the same text: that finds unknown members, references whose id and name
disagree, and any manual edit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from operator import attrgetter
from typing import Any, NoReturn, TypeVar

from omnigraph.errors import SchemaContractError
from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.ast import COLUMNS_KINDS, ColumnsKind
from omnigraph.schema.catalog import (
    Annotation,
    Cardinality,
    Check,
    Embed,
    LiteralValue,
    Range,
    TypeKind,
    annotation_json,
    annotation_key,
    canonical_json,
    sha256_of,
)
from omnigraph.schema.rules import EDGE_ENDS
from omnigraph.schema.shape import (
    IDENTITY_ID_MAX,
    IR_VERSION,
    ColumnsShape,
    ConstraintShape,
    EdgeShape,
    InterfaceShape,
    NodeShape,
    PropertyRef,
    PropertyShape,
    SchemaIds,
    SchemaIR,
    SchemaShape,
    TypeRef,
    checked_domain,
    constraint_key,
)

# --- writing --------------------------------------------------------------------------------------


Json = dict[str, Any]


def shape_hash(shape: SchemaShape) -> str:
    """`sha256:` hash of what a schema means; equal for texts that mean the same."""
    return sha256_of(canonical_json(_Encoder(None).schema(shape)))


def ir_text(ir: SchemaIR) -> str:
    """The canonical text of an accepted IR, as it is persisted."""
    head = {
        "ir_version": IR_VERSION,
        "schema_identity_domain": ir.domain,
        "next_identity_id": ir.next_identity_id,
    }
    return canonical_json(head | _Encoder(ir.ids).schema(ir.shape))


def ir_hash(ir: SchemaIR) -> str:
    """`sha256:` hash of the canonical text of an IR."""
    return sha256_of(ir_text(ir))


def type_json(value_type: ValueType) -> Json:
    """A property type as `{scalar, nullable, list, enum_values}`; a vector carries its dimension.

    >>> from omnigraph.model.types import Scalar
    >>> type_json(ValueType(Scalar.VECTOR, vector_dim=8))["scalar"]
    {'Vector': 8}
    """
    scalar = value_type.scalar.value
    values = value_type.enum_values
    return {
        "scalar": {scalar: value_type.vector_dim} if value_type.is_vector else scalar,
        "nullable": value_type.nullable,
        "list": value_type.is_list,
        "enum_values": list(values) if values is not None else None,
    }


class _Encoder:
    def __init__(self, ids: SchemaIds | None) -> None:
        self._ids = ids

    def schema(self, shape: SchemaShape) -> Json:
        return {
            "interfaces": [self._interface(interface) for interface in shape.interfaces],
            "nodes": [self._node(node) for node in shape.nodes],
            "edges": [self._edge(edge) for edge in shape.edges],
        }

    def _interface(self, interface: InterfaceShape) -> Json:
        form = self._identity("interface", interface.name)
        form["properties"] = [
            self._property("interface", interface.name, prop)
            | {"property_constraints": list(prop.constraints)}
            for prop in interface.properties
        ]
        return form

    def _node(self, node: NodeShape) -> Json:
        return self._table("node", node) | {
            "implements": [self._type_ref("interface", name) for name in node.implements],
            "properties": [
                self._property("node", node.name, prop)
                | {
                    "declared_directly": prop.is_direct,
                    "satisfies_interface_properties": [
                        self._type_ref("interface", name)
                        | self._property_ref("interface", name, prop.name)
                        for name in prop.satisfies
                    ],
                }
                for prop in node.properties
            ],
        }

    def _edge(self, edge: EdgeShape) -> Json:
        return self._table("edge", edge) | {
            "from_type": self._type_ref("node", edge.source),
            "to_type": self._type_ref("node", edge.target),
            "cardinality": {"min": edge.cardinality.minimum, "max": edge.cardinality.maximum},
            "properties": [self._property("edge", edge.name, prop) for prop in edge.properties],
        }

    def _table(self, kind: TypeKind, shape: NodeShape | EdgeShape) -> Json:
        form = self._identity(kind, shape.name)
        if self._ids is not None:
            form["table_incarnation_id"] = self._ids.incarnations[kind, shape.name]
        form["annotations"] = _annotations(shape.annotations)
        form["constraints"] = [self._constraint(kind, shape.name, c) for c in shape.constraints]
        return form

    def _property(self, kind: TypeKind, owner: str, prop: PropertyShape) -> Json:
        form: Json = {
            "name": prop.name,
            "prop_type": type_json(prop.type),
            "annotations": _annotations(prop.annotations),
            "default": prop.default,
            "embed_source": None,
        }
        if self._ids is not None:
            form["property_id"] = self._ids.properties[kind, owner, prop.name]
        if prop.embed is not None:
            form["embed_source"] = {
                "source": self._embed_source(kind, owner, prop.embed.source),
                "model": prop.embed.model,
            }
        return form

    def _embed_source(self, kind: TypeKind, owner: str, name: str) -> Json:
        """A reference; the source of an interface property may be declared by its nodes only."""
        foreign = kind == "interface" and (
            self._ids is not None and (kind, owner, name) not in self._ids.properties
        )
        if foreign:
            return {"property_name": name, "property_id": None}
        return self._property_ref(kind, owner, name)

    def _constraint(self, kind: TypeKind, owner: str, constraint: ConstraintShape) -> Json:
        if isinstance(constraint, ColumnsShape):
            fields = [self._field(kind, owner, column) for column in constraint.columns]
            return {"kind": constraint.kind, "fields": fields}
        field = self._field(kind, owner, constraint.property)
        if isinstance(constraint, Range):
            low, high = constraint.minimum, constraint.maximum
            return {"kind": "range", "field": field, "min": low, "max": high}
        return {"kind": "check", "field": field, "pattern": constraint.pattern}

    def _field(self, kind: TypeKind, owner: str, column: str) -> Json:
        """A column of a constraint: a property, or one end of an edge, which has no id."""
        if kind == "edge" and column in EDGE_ENDS:
            return {"system": column}
        return self._property_ref(kind, owner, column)

    def _identity(self, kind: TypeKind, name: str) -> Json:
        form: Json = {"name": name}
        if self._ids is not None:
            form["type_id"] = self._ids.types[kind, name]
        return form

    def _type_ref(self, kind: TypeKind, name: str) -> Json:
        form: Json = {"type_name": name}
        if self._ids is not None:
            form["type_id"] = self._ids.types[kind, name]
        return form

    def _property_ref(self, kind: TypeKind, owner: str, name: str) -> Json:
        form: Json = {"property_name": name}
        if self._ids is not None:
            form["property_id"] = self._ids.properties[kind, owner, name]
        return form


def _annotations(annotations: tuple[Annotation, ...]) -> list[Json]:
    return [annotation_json(annotation) for annotation in annotations]


# --- reading --------------------------------------------------------------------------------------


T = TypeVar("T")
_NAME = attrgetter("name")


def read_ir(text: str) -> SchemaIR:
    """The IR a text holds.

    Raises `SchemaContractError` when the text is of an unknown version, malformed, inconsistent, or
    not exactly what `encoding.ir_text` writes.
    """
    root = _Reader(read_json_object(text, "the accepted schema"), "$")
    version = root.value.get("ir_version")
    if version != IR_VERSION or isinstance(version, bool):
        raise SchemaContractError(
            f"unsupported ir_version {version!r} (expected {IR_VERSION})",
            hint="this graph was written by another version of the product",
        )
    ir = _decode(root)
    _check_ids(ir)
    try:
        again = ir_text(ir)
    except KeyError as dangling:
        name = ".".join(map(str, dangling.args[0]))
        raise SchemaContractError(
            f"the accepted schema refers to {name}, which it does not declare"
        ) from None
    except ValueError as number:
        raise SchemaContractError(f"the accepted schema holds no JSON value: {number}") from None
    if again != text:
        raise SchemaContractError("the accepted schema is not in its canonical form")
    return ir


def read_json_object(text: str, what: str) -> dict[str, Any]:
    """One JSON object, or `SchemaContractError` naming ``what``."""
    try:
        text.encode("utf-8")  # a lone surrogate has no UTF-8 form
        value = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise SchemaContractError(f"{what} is not valid JSON: {bad}") from None
    if not isinstance(value, dict):
        raise SchemaContractError(f"{what} is not a JSON object")
    return value


class _Reader:
    """One JSON value and its path, with readers that insist on a type."""

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def __getitem__(self, member: str) -> _Reader:
        if not isinstance(self.value, dict) or member not in self.value:
            self.fail(f"an object with member '{member}'")
        return _Reader(self.value[member], f"{self.path}.{member}")

    def text(self) -> str:
        return self.value if isinstance(self.value, str) else self.fail("a string")

    def boolean(self) -> bool:
        return self.value if isinstance(self.value, bool) else self.fail("true or false")

    def integer(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.fail("an integer")
        return self.value

    def number(self) -> int | float:
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            self.fail("a number")
        return self.value

    def literal(self) -> LiteralValue:
        return self.value if isinstance(self.value, str | int | float) else self.fail("a literal")

    def optional(self, read: Callable[[_Reader], T]) -> T | None:
        return None if self.value is None else read(self)

    def each(self, read: Callable[[_Reader], T]) -> tuple[T, ...]:
        if not isinstance(self.value, list):
            self.fail("an array")
        return tuple(
            read(_Reader(item, f"{self.path}[{at}]")) for at, item in enumerate(self.value)
        )

    def ascending(self, read: Callable[[_Reader], T], key: Callable[[T], Any]) -> tuple[T, ...]:
        """Like `each`, for members that are written sorted and without repetition."""
        items = self.each(read)
        keys = [key(item) for item in items]
        if any(earlier >= later for earlier, later in pairwise(keys)):
            self.fail("sorted members without repetition")
        return items

    def words(self, read: Callable[[_Reader], T]) -> tuple[T, ...]:
        """Ascending strings."""
        return self.ascending(read, lambda word: word)

    def one_of(self, allowed: Iterable[T]) -> T:
        found = next((choice for choice in allowed if choice == self.value), None)
        return found if found is not None else self.fail("a known word")

    def fail(self, expected: str) -> NoReturn:
        raise SchemaContractError(
            f"the accepted schema is malformed at {self.path}: expected {expected}"
        )


def _decode(root: _Reader) -> SchemaIR:
    types: dict[TypeRef, int] = {}
    properties: dict[PropertyRef, int] = {}
    incarnations: dict[TypeRef, int] = {}

    def read_type(kind: TypeKind, entry: _Reader) -> str:
        name = entry["name"].text()
        types[kind, name] = entry["type_id"].integer()
        if kind != "interface":
            incarnations[kind, name] = entry["table_incarnation_id"].integer()
        for prop in entry["properties"].each(lambda prop: prop):
            properties[kind, name, prop["name"].text()] = prop["property_id"].integer()
        return name

    def interface(entry: _Reader) -> InterfaceShape:
        name = read_type("interface", entry)
        return InterfaceShape(name, entry["properties"].ascending(_read_interface_property, _NAME))

    def node(entry: _Reader) -> NodeShape:
        return NodeShape(
            read_type("node", entry),
            _read_annotations(entry),
            entry["implements"].words(lambda ref: ref["type_name"].text()),
            entry["properties"].ascending(_read_node_property, _NAME),
            entry["constraints"].ascending(_read_constraint, constraint_key),
        )

    def edge(entry: _Reader) -> EdgeShape:
        cardinality = entry["cardinality"]
        return EdgeShape(
            read_type("edge", entry),
            entry["from_type"]["type_name"].text(),
            entry["to_type"]["type_name"].text(),
            Cardinality(cardinality["min"].integer(), cardinality["max"].optional(_Reader.integer)),
            _read_annotations(entry),
            entry["properties"].ascending(_read_property, _NAME),
            entry["constraints"].ascending(_read_constraint, constraint_key),
        )

    shape = SchemaShape(
        root["interfaces"].ascending(interface, _NAME),
        root["nodes"].ascending(node, _NAME),
        root["edges"].ascending(edge, _NAME),
    )
    return SchemaIR(
        checked_domain(root["schema_identity_domain"].text()),
        root["next_identity_id"].integer(),
        shape,
        SchemaIds(types, properties, incarnations),
    )


def _read_property(
    entry: _Reader,
    constraints: tuple[ColumnsKind, ...] = (),
    is_direct: bool = True,
    satisfies: tuple[str, ...] = (),
) -> PropertyShape:
    return PropertyShape(
        entry["name"].text(),
        _read_type(entry["prop_type"]),
        _read_annotations(entry),
        entry["default"].optional(_Reader.literal),
        entry["embed_source"].optional(_read_embed),
        constraints,
        is_direct,
        satisfies,
    )


def _read_interface_property(entry: _Reader) -> PropertyShape:
    kinds = entry["property_constraints"].words(lambda kind: kind.one_of(COLUMNS_KINDS))
    return _read_property(entry, constraints=kinds)


def _read_node_property(entry: _Reader) -> PropertyShape:
    links = entry["satisfies_interface_properties"]
    return _read_property(
        entry,
        is_direct=entry["declared_directly"].boolean(),
        satisfies=links.words(lambda link: link["type_name"].text()),
    )


def _read_type(entry: _Reader) -> ValueType:
    scalar = entry["scalar"]
    dimension = None
    if isinstance(scalar.value, dict):
        dimension = scalar[Scalar.VECTOR.value].integer()
        scalar = _Reader(Scalar.VECTOR.value, scalar.path)
    return ValueType(
        scalar.one_of(Scalar),
        nullable=entry["nullable"].boolean(),
        is_list=entry["list"].boolean(),
        enum_values=entry["enum_values"].optional(lambda values: values.words(_Reader.text)),
        vector_dim=dimension,
    )


def _read_embed(entry: _Reader) -> Embed:
    return Embed(entry["source"]["property_name"].text(), entry["model"].optional(_Reader.text))


def _read_annotations(entry: _Reader) -> tuple[Annotation, ...]:
    return entry["annotations"].ascending(_read_annotation, annotation_key)


def _read_annotation(entry: _Reader) -> Annotation:
    name = entry["name"].text()
    options: tuple[tuple[str, LiteralValue], ...] = ()
    if "kwargs" in entry.value:
        kwargs = entry["kwargs"]
        if not isinstance(kwargs.value, dict):
            kwargs.fail("an object")
        options = tuple((name, kwargs[name].literal()) for name in sorted(kwargs.value))
    return Annotation(name, entry["value"].optional(_Reader.literal), options)


def _read_constraint(entry: _Reader) -> ConstraintShape:
    kind = entry["kind"].text()
    if kind == "range":
        low, high = entry["min"].optional(_Reader.number), entry["max"].optional(_Reader.number)
        return Range(_read_field(entry["field"]), low, high)
    if kind == "check":
        return Check(_read_field(entry["field"]), entry["pattern"].text())
    return ColumnsShape(entry["kind"].one_of(COLUMNS_KINDS), entry["fields"].words(_read_field))


def _read_field(entry: _Reader) -> str:
    member = "system" if isinstance(entry.value, dict) and "system" in entry.value else None
    return entry[member or "property_name"].text()


def _check_ids(ir: SchemaIR) -> None:
    """Check that every id is used once and is below the next one to assign."""
    ids = [
        *ir.ids.types.values(),
        *ir.ids.properties.values(),
        *ir.ids.incarnations.values(),
    ]
    if not 1 <= ir.next_identity_id <= IDENTITY_ID_MAX:
        raise SchemaContractError(f"next_identity_id {ir.next_identity_id} is out of range")
    if len(set(ids)) != len(ids):
        raise SchemaContractError("the accepted schema uses an identity id twice")
    for value in ids:
        if not 1 <= value < ir.next_identity_id:
            raise SchemaContractError(
                f"identity id {value} is not below next_identity_id {ir.next_identity_id}"
            )
