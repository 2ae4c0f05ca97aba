"""The runtime catalog: types of an accepted schema, as queries, validation and storage read them.

`schema.compile` creates it from the accepted IR.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.model.ids import EntityKind, TableKey
from omnigraph.model.records import dataclass
from omnigraph.model.types import IndexSpec, Scalar, ValueType
from omnigraph.syntax.schema_ast import LiteralValue

if TYPE_CHECKING:
    import pyarrow as pa


TypeKind = Literal["interface", "node", "edge"]


@dataclass(frozen=True, slots=True)
class Annotation:
    """One `@name(value, key=value…)` that is metadata rather than a constraint."""

    name: str
    value: LiteralValue | None = None
    options: tuple[tuple[str, LiteralValue], ...] = ()


@dataclass(frozen=True, slots=True)
class Embed:
    """The String property from which a vector is computed, and the model."""

    source: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a node or edge type, interface properties included."""

    name: str
    type: ValueType
    property_id: int
    default: LiteralValue | None = None
    embed: Embed | None = None
    description: str | None = None
    annotations: tuple[Annotation, ...] = ()
    """Unknown annotations, kept as written."""


@dataclass(frozen=True, slots=True)
class Range:
    """`@range(property, minimum..maximum)`, inclusive; a missing bound is open."""

    property: str
    minimum: int | float | None
    maximum: int | float | None


@dataclass(frozen=True, slots=True)
class Check:
    """`@check(property, "pattern")`: an unanchored linear-time regular expression."""

    property: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Cardinality:
    """How many edges of a type a source node may have; ``maximum`` None is no limit."""

    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class InterfaceType:
    """A set of properties that node types implement; it has no table."""

    name: str
    type_id: int
    properties: Mapping[str, Property]


@dataclass(frozen=True, slots=True)
class NodeType:
    """A node type, which has a table."""

    name: str
    type_id: int
    incarnation_id: int
    properties: Mapping[str, Property]
    """All properties, interface ones included, in byte order of name."""
    key: tuple[str, ...] = ()
    """The key properties, sorted by property id: the order in a composite entity id."""
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[Range, ...] = ()
    checks: tuple[Check, ...] = ()
    implements: tuple[str, ...] = ()
    description: str | None = None
    instruction: str | None = None
    annotations: tuple[Annotation, ...] = ()
    table_key: TableKey = field(init=False, repr=False, compare=False)
    """`node:Name`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "table_key", TableKey.node(self.name))

    @property
    def table_path(self) -> str:
        """Directory of the table below the root; a rename does not change it."""
        return table_location("node", self.type_id, self.incarnation_id)


@dataclass(frozen=True, slots=True)
class EdgeType:
    """A directed edge type, which has a table."""

    name: str
    type_id: int
    incarnation_id: int
    source: str
    """The node type of its sources, or an interface, whose node types are all allowed."""
    target: str
    properties: Mapping[str, Property]
    cardinality: Cardinality = Cardinality()
    end_types: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    """For `src` and `dst`, if that end is an interface: the names of the node types that implement
    it, and the prefixes of references to their nodes (`model.references`)."""
    key_columns: tuple[str, ...] = ()
    """Columns of `@key`: `src`, `dst`, then properties sorted by property id; empty without a key.
    At most one edge has the same values, whatever its id."""
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    description: str | None = None
    instruction: str | None = None
    annotations: tuple[Annotation, ...] = ()
    table_key: TableKey = field(init=False, repr=False, compare=False)
    """`edge:Name`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "table_key", TableKey.edge(self.name))

    @property
    def table_path(self) -> str:
        """Directory of the table below the root; a rename does not change it."""
        return table_location("edge", self.type_id, self.incarnation_id)


TableType = NodeType | EdgeType
"""A type with a table."""


@dataclass(frozen=True)
class Catalog:
    """Every type of one accepted schema, by name."""

    schema_hash: str
    """`sha256:` hash of the accepted IR of this catalog; the key of plan caches."""
    interfaces: Mapping[str, InterfaceType]
    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]
    _edges_folded: Mapping[str, EdgeType] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        folded = {edge.name.lower(): edge for edge in self.edges.values()}
        object.__setattr__(self, "_edges_folded", MappingProxyType(folded))

    @property
    def types(self) -> list[TableType]:
        """Every type with a table: nodes before edges, each kind in byte order of name."""
        return [*self.nodes.values(), *self.edges.values()]

    def edge_named(self, word: str) -> EdgeType | None:
        """The edge type of this name: exact match first, then ignoring case."""
        return self.edges.get(word) or self._edges_folded.get(word.lower())

    def node_types(self, name: str) -> tuple[NodeType, ...]:
        """The node type of this name, or those that implement the interface of this name."""
        if name in self.nodes:
            return (self.nodes[name],)
        return tuple(
            self.nodes[node] for node in sorted(self.nodes) if name in self.nodes[node].implements
        )

    def ends_at(self, edge: EdgeType, node_type: str) -> tuple[str, ...]:
        """The columns of an edge type, `src` and `dst`, that may refer to nodes of a type."""
        ends = (("src", edge.source), ("dst", edge.target))
        return tuple(
            column
            for column, name in ends
            if any(node.name == node_type for node in self.node_types(name))
        )

    def end_prefix(self, edge: EdgeType, column: str, node: NodeType) -> str:
        """The prefix of references to nodes of a type at one end of an edge.

        Empty if the end is a node type: there the reference is the id.
        """
        return edge.end_types.get(column, {}).get(node.name, "")

    def end_columns(self, edge: EdgeType) -> tuple[str, ...]:
        """The columns that show the ends of an edge; an interface adds the type of the node."""
        source = ("src", "src_type") if "src" in edge.end_types else ("src",)
        target = ("dst", "dst_type") if "dst" in edge.end_types else ("dst",)
        return (*source, *target)

    def edges_touching(self, node_type: str) -> tuple[EdgeType, ...]:
        """Edge types with ``node_type`` at either end, by name."""
        return tuple(
            self.edges[name]
            for name in sorted(self.edges)
            if self.ends_at(self.edges[name], node_type)
        )


def table_location(kind: EntityKind, type_id: int, incarnation_id: int) -> str:
    """Where the table of a new type is stored below the root, by its ids instead of its name."""
    directory = "nodes" if kind == "node" else "edges"
    return f"{directory}/{type_id:016x}-{incarnation_id:016x}"


# --- canonical JSON -------------------------------------------------------------------------------


def canonical_json(value: Any) -> str:
    """Compact JSON with sorted members; texts are equal exactly if the values are.

    >>> canonical_json({"b": 1.0, "a": "é"})
    '{"a":"é","b":1.0}'
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_of(text: str) -> str:
    """`sha256:` and the hexadecimal digest of a text's UTF-8 bytes."""
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def annotation_json(annotation: Annotation) -> dict[str, Any]:
    """An annotation as JSON: `name`, `value` and, if it has options, `kwargs`."""
    form: dict[str, Any] = {"name": annotation.name, "value": annotation.value}
    if annotation.options:
        form["kwargs"] = dict(annotation.options)
    return form


def annotation_key(annotation: Annotation) -> tuple[str, str]:
    """The key by which annotations are sorted and compared: the name, then the JSON form.

    The objects cannot be compared: in Python `True`, `1` and `1.0` are equal, in a schema they are
    three different values.
    """
    return annotation.name, canonical_json(annotation_json(annotation))


# --- rules as text --------------------------------------------------------------------------------


def own_constraints(type: TableType) -> dict[str, list[str]]:
    """The constraints over a single property, by property."""
    groups = [("unique", type.unique), ("index", type.indexes)]
    if isinstance(type, NodeType):
        groups.insert(0, ("key", (type.key,)))
    found: dict[str, list[str]] = {}
    for kind, members in groups:
        for columns in members:
            if len(columns) == 1:
                found.setdefault(columns[0], []).append(kind)
    return found


def property_rules(prop: Property, constraints: Sequence[str]) -> list[str]:
    """The annotations and constraints of one property, as written in a schema."""
    rules = [f"@{kind}" for kind in constraints]
    if prop.embed is not None:
        model = f", model={json.dumps(prop.embed.model)}" if prop.embed.model else ""
        rules.append(f"@embed({prop.embed.source}{model})")
    if prop.default is not None:
        rules.append(f"@default({json.dumps(prop.default, ensure_ascii=False)})")
    return rules


def wide_rules(type: TableType) -> list[str]:
    """Constraints over several properties, and those that cannot be written at a property."""
    rules = [f"@{kind}({', '.join(columns)})" for kind, columns in _wide_groups(type)]
    if isinstance(type, NodeType):
        for limit in type.ranges:
            low = "" if limit.minimum is None else limit.minimum
            high = "" if limit.maximum is None else limit.maximum
            rules.append(f"@range({limit.property}, {low}..{high})")
        rules += [
            f"@check({check.property}, {json.dumps(check.pattern, ensure_ascii=False)})"
            for check in type.checks
        ]
    return rules


def _wide_groups(type: TableType) -> Iterator[tuple[str, tuple[str, ...]]]:
    key = type.key if isinstance(type, NodeType) else type.key_columns
    if len(key) > 1:
        yield "key", key
    for kind, groups in (("unique", type.unique), ("index", type.indexes)):
        yield from ((kind, columns) for columns in groups if len(columns) > 1)


def cardinality_rule(edge: EdgeType) -> str:
    """` @card(1..2)`; empty if any number of edges is allowed."""
    bounds = edge.cardinality
    if bounds.minimum == 0 and bounds.maximum is None:
        return ""
    return f" @card({bounds.minimum}..{'' if bounds.maximum is None else bounds.maximum})"


# --- tables and indexes ---------------------------------------------------------------------------


def declared_indexes(type: TableType) -> tuple[IndexSpec, ...]:
    """The indexes that a type declares: ids and endpoints first, then properties by name.

    Constraints over several properties, and those of edges, declare none. Indexes never change the
    result of a query.
    """
    if isinstance(type, EdgeType):
        return tuple(IndexSpec(column, "btree") for column in ("id", "src", "dst"))
    declared = {group[0] for group in (type.key, *type.indexes) if len(group) == 1}
    specs = [IndexSpec("id", "btree")]
    for name in sorted(declared):
        specs += _of_property(name, type.properties[name].type, is_key=type.key == (name,))
    return tuple(specs)


def _of_property(name: str, type: ValueType, *, is_key: bool) -> list[IndexSpec]:
    if type.is_list or type.is_blob:
        return []
    if type.is_vector:
        return [IndexSpec(name, "vector")]
    if type.scalar is not Scalar.STRING or type.enum_values is not None:
        return [IndexSpec(name, "btree")]
    text = IndexSpec(name, "inverted")
    # A key is mostly looked up by its whole value, for which a word index is no help.
    return [IndexSpec(name, "btree"), text] if is_key else [text]


def table_schema(type: TableType) -> pa.Schema:
    """The Arrow schema of a type's table."""
    from omnigraph.model.arrow import edge_schema, node_schema

    columns = [(prop.name, prop.type, prop.property_id) for prop in type.properties.values()]
    return node_schema(columns) if isinstance(type, NodeType) else edge_schema(columns)
