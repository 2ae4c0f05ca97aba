"""Reading a persisted IR, strictly: what this module returns was written by `encoding`.

Decoding rebuilds shape and ids; encoding them again must give the very same text. That one
comparison finds unknown members, references whose id and name disagree, and any hand edit.
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
from omnigraph.schema.canonical import annotation_key
from omnigraph.schema.catalog import (
    Annotation,
    Cardinality,
    Check,
    Embed,
    LiteralValue,
    Range,
    TypeKind,
)
from omnigraph.schema.encoding import ir_text
from omnigraph.schema.ir import (
    IDENTITY_ID_MAX,
    IR_VERSION,
    PropertyRef,
    SchemaIds,
    SchemaIR,
    TypeRef,
    checked_domain,
)
from omnigraph.schema.shape import (
    ColumnsShape,
    ConstraintShape,
    EdgeShape,
    InterfaceShape,
    NodeShape,
    PropertyShape,
    SchemaShape,
    constraint_key,
)

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
        return InterfaceShape(name, entry["properties"].ascending(_interface_property, _NAME))

    def node(entry: _Reader) -> NodeShape:
        return NodeShape(
            read_type("node", entry),
            _annotations(entry),
            entry["implements"].words(lambda ref: ref["type_name"].text()),
            entry["properties"].ascending(_node_property, _NAME),
            entry["constraints"].ascending(_constraint, constraint_key),
        )

    def edge(entry: _Reader) -> EdgeShape:
        cardinality = entry["cardinality"]
        return EdgeShape(
            read_type("edge", entry),
            entry["from_type"]["type_name"].text(),
            entry["to_type"]["type_name"].text(),
            Cardinality(cardinality["min"].integer(), cardinality["max"].optional(_Reader.integer)),
            _annotations(entry),
            entry["properties"].ascending(_property, _NAME),
            entry["constraints"].ascending(_constraint, constraint_key),
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


def _property(
    entry: _Reader,
    constraints: tuple[ColumnsKind, ...] = (),
    is_direct: bool = True,
    satisfies: tuple[str, ...] = (),
) -> PropertyShape:
    return PropertyShape(
        entry["name"].text(),
        _type(entry["prop_type"]),
        _annotations(entry),
        entry["default"].optional(_Reader.literal),
        entry["embed_source"].optional(_embed),
        constraints,
        is_direct,
        satisfies,
    )


def _interface_property(entry: _Reader) -> PropertyShape:
    kinds = entry["property_constraints"].words(lambda kind: kind.one_of(COLUMNS_KINDS))
    return _property(entry, constraints=kinds)


def _node_property(entry: _Reader) -> PropertyShape:
    links = entry["satisfies_interface_properties"]
    return _property(
        entry,
        is_direct=entry["declared_directly"].boolean(),
        satisfies=links.words(lambda link: link["type_name"].text()),
    )


def _type(entry: _Reader) -> ValueType:
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


def _embed(entry: _Reader) -> Embed:
    return Embed(entry["source"]["property_name"].text(), entry["model"].optional(_Reader.text))


def _annotations(entry: _Reader) -> tuple[Annotation, ...]:
    return entry["annotations"].ascending(_annotation, annotation_key)


def _annotation(entry: _Reader) -> Annotation:
    name = entry["name"].text()
    options: tuple[tuple[str, LiteralValue], ...] = ()
    if "kwargs" in entry.value:
        kwargs = entry["kwargs"]
        if not isinstance(kwargs.value, dict):
            kwargs.fail("an object")
        options = tuple((name, kwargs[name].literal()) for name in sorted(kwargs.value))
    return Annotation(name, entry["value"].optional(_Reader.literal), options)


def _constraint(entry: _Reader) -> ConstraintShape:
    kind = entry["kind"].text()
    if kind == "range":
        low, high = entry["min"].optional(_Reader.number), entry["max"].optional(_Reader.number)
        return Range(_field(entry["field"]), low, high)
    if kind == "check":
        return Check(_field(entry["field"]), entry["pattern"].text())
    return ColumnsShape(entry["kind"].one_of(COLUMNS_KINDS), entry["fields"].words(_field))


def _field(entry: _Reader) -> str:
    member = "system" if isinstance(entry.value, dict) and "system" in entry.value else None
    return entry[member or "property_name"].text()


def _check_ids(ir: SchemaIR) -> None:
    """Every id is used once and lies below the next one to hand out."""
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
