"""A view of a schema for one actor: types, properties, and conditions on rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

from omnigraph.model.arrow import DST, SRC
from omnigraph.model.records import dataclass
from omnigraph.query.expressions import Expression, PropertyValue, walk
from omnigraph.schema.catalog import (
    Catalog,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    TableType,
    cardinality_rule,
    own_constraints,
    property_rules,
    wide_rules,
)
from omnigraph.schema.shape import ColumnsShape
from omnigraph.schema.steps import (
    AddConstraint,
    AddType,
    DropConstraint,
    DropProperty,
    DropType,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
    UpdateTypeMetadata,
)


@dataclass(frozen=True, slots=True)
class RowGrant:
    """A rule's condition on the rows of a type, bound to one actor."""

    rule_id: str
    text: str
    """The text in the rule."""
    predicate: Expression
    parameters: Mapping[str, object]
    """The values of the actor that it reads, as `actor.name`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The properties that it reads."""
        found = {part.property for part in walk(self.predicate) if isinstance(part, PropertyValue)}
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class TypeView:
    """The visible part of one type."""

    type: TableType
    """With the visible properties only."""
    rules: tuple[str, ...]
    """The rules that grant it."""
    rows: tuple[RowGrant, ...] | None
    """A row is visible if one of them holds; None for all rows."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, for `policy explain`."""
        where = None if self.rows is None else [each.text for each in self.rows]
        return {
            "type": self.type.name,
            "properties": list(self.type.properties),
            "where": where,
            "rules": list(self.rules),
        }


@dataclass(frozen=True, slots=True)
class TypeRights:
    """The grant of rules on a type: the properties and rows, each None for all."""

    rules: tuple[str, ...]
    properties: frozenset[str] | None
    rows: tuple[RowGrant, ...] | None


@dataclass(frozen=True)
class View:
    """The part of a graph that one actor sees. Views with equal keys show the same rows.

    ``catalog`` contains only visible names, so queries compiled with it cannot name hidden ones.
    Rows are filtered where tables are read (`views.rows`).
    """

    catalog: Catalog
    whole: Catalog
    """All types of the schema."""
    types: Mapping[str, TypeView]
    """By table key."""
    key: str
    granted: Mapping[str, TypeRights] = field(default_factory=dict, repr=False, compare=False)
    """The grants by type name, including those on edge types with hidden ends."""
    _restricted: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        own = {key for key, view in self.types.items() if view.rows is not None}
        found = frozenset(own | {key for key in self.types if self._has_hidden_ends(key, own)})
        object.__setattr__(self, "_restricted", found)

    @classmethod
    def of(cls, whole: Catalog, rights: Mapping[str, TypeRights]) -> View:
        """The view of a schema that results from grants by type name."""
        facts = [
            (name, each.properties and sorted(each.properties), each.rows)
            for name, each in sorted(rights.items())
        ]
        key = hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
        shown = {name: each.properties for name, each in rights.items()}
        catalog = reduced(whole, shown, f"{whole.schema_hash}/{key}")
        types = {
            str(each.table_key): TypeView(each, rights[each.name].rules, rights[each.name].rows)
            for each in catalog.types
        }
        key = f"{whole.schema_hash}/{key}"
        return cls(catalog, whole, MappingProxyType(types), key, MappingProxyType(dict(rights)))

    def shows(self, table_key: str) -> bool:
        """Whether a type is visible."""
        return table_key in self.types

    def restricts(self, table_key: str) -> bool:
        """Whether rows of a visible type, or nodes at the ends of its edges, may be hidden."""
        return table_key in self._restricted

    def hides_properties(self, table_key: str) -> bool:
        """Whether properties of a visible type are hidden."""
        seen = self.types.get(table_key)
        if seen is None:
            return False
        of = self.whole.edges if isinstance(seen.type, EdgeType) else self.whole.nodes
        return len(seen.type.properties) < len(of[seen.type.name].properties)

    @property
    def restricts_rows(self) -> bool:
        """Whether any row of a visible type may be hidden."""
        return bool(self._restricted)

    def conditions(self, table_key: str) -> tuple[RowGrant, ...] | None:
        """Conditions on a visible type's rows, one of which must hold; None if there are none."""
        return self.types[table_key].rows

    def ends(self, table_key: str) -> Mapping[str, tuple[NodeType, ...]]:
        """The visible node types at `src` and `dst` of an edge type; empty for a node type."""
        edge = self.types[table_key].type
        if not isinstance(edge, EdgeType):
            return {}
        named = {"src": edge.source, "dst": edge.target}
        return {end: self.catalog.node_types(name) for end, name in named.items()}

    def _has_hidden_ends(self, table_key: str, own: set[str]) -> bool:
        edge = self.types[table_key].type
        if not isinstance(edge, EdgeType):
            return False
        named = {"src": edge.source, "dst": edge.target}
        return any(
            len(nodes) < len(self.whole.node_types(named[end]))
            or any(str(node.table_key) in own for node in nodes)
            for end, nodes in self.ends(table_key).items()
        )

    def common(self, other: View) -> View:
        """The intersection of two views of one schema, for operations that show two branches.

        A type with different row conditions is hidden.
        """
        if self.key == other.key:
            return self
        rights = {}
        for key in self.types.keys() & other.types.keys():
            mine, theirs = self.types[key], other.types[key]
            rows = theirs.rows if mine.rows is None else mine.rows
            if None not in (mine.rows, theirs.rows) and mine.rows != theirs.rows:
                continue
            properties = frozenset(mine.type.properties) & frozenset(theirs.type.properties)
            rules = tuple(sorted({*mine.rules, *theirs.rules}))
            rights[mine.type.name] = TypeRights(rules, properties, rows)
        return View.of(self.whole, rights)

    def shows_step(self, step: Step) -> bool:
        """Whether a migration step to this schema names only visible types and properties."""
        names: tuple[str, ...] = ()
        match step:
            case UnsupportedChange() | DropType() | DropProperty():
                return False
            case RenameType(new_name=name):
                pass
            case AddType(name=name) | UpdateTypeMetadata(name=name):
                pass
            case RenameProperty(type_name=name, new_name=named):
                names = (named,)
            case AddConstraint(type_name=name) | DropConstraint(type_name=name):
                rule = step.constraint
                names = rule.columns if isinstance(rule, ColumnsShape) else (rule.property,)
            case _:
                name, names = step.type_name, (step.property_name,)
        found = [*self.catalog.types, *self.catalog.interfaces.values()]
        shown = next((set(type.properties) for type in found if type.name == name), None)
        return shown is not None and {*names} - {SRC, DST} <= shown

    def text(self) -> str:
        """The visible part of the schema, as a `.pg` text."""
        catalog = self.catalog
        lines = []
        for interface in catalog.interfaces.values():
            lines += [f"interface {interface.name} {{", *_property_lines(interface, {}), "}"]
        for node in catalog.nodes.values():
            implements = f" implements {', '.join(node.implements)}" if node.implements else ""
            lines += [f"node {node.name}{_notes(node)}{implements} {{", *_body(node), "}"]
        for edge in catalog.edges.values():
            head = f"edge {edge.name}: {edge.source} -> {edge.target}"
            lines += [f"{head}{cardinality_rule(edge)}{_notes(edge)} {{", *_body(edge), "}"]
        return "\n".join(lines) + "\n"

    def to_dict(self) -> list[dict[str, Any]]:
        """The JSON form, for `policy explain`."""
        return [each.to_dict() for each in self.types.values()]


# --- the text of a schema -------------------------------------------------------------------------


def _body(type: NodeType | EdgeType) -> list[str]:
    constraints = own_constraints(type)
    return [*_property_lines(type, constraints), *(f"  {rule}" for rule in wide_rules(type))]


def _property_lines(
    type: NodeType | EdgeType | InterfaceType, constraints: Mapping[str, Sequence[str]]
) -> list[str]:
    return [
        " ".join([f"  {name}: {each.type}", *property_rules(each, constraints.get(name, ()))])
        + _notes(each)
        for name, each in type.properties.items()
    ]


def _notes(each: NodeType | EdgeType | Property) -> str:
    words = {
        "description": each.description,
        "instruction": getattr(each, "instruction", None),
    }
    return "".join(
        f" @{word}({json.dumps(text, ensure_ascii=False)})" for word, text in words.items() if text
    )


# --- reducing a catalog ---------------------------------------------------------------------------


def reduced(
    catalog: Catalog, shown: Mapping[str, frozenset[str] | None], schema_hash: str
) -> Catalog:
    """A catalog reduced to some types, and some properties of each (None for all).

    An edge type is kept only with its ends, and a node type implements an interface only with all
    of its properties. Constraints on a hidden property are removed.
    """
    nodes = {
        name: _reduced_node(node, shown[name], catalog.interfaces)
        for name, node in catalog.nodes.items()
        if name in shown
    }
    implemented = {name for node in nodes.values() for name in node.implements}
    interfaces = {name: each for name, each in catalog.interfaces.items() if name in implemented}
    ends = {*nodes, *interfaces}
    edges = {
        name: _reduced_edge(edge, shown[name], nodes)
        for name, edge in catalog.edges.items()
        if name in shown and edge.source in ends and edge.target in ends
    }
    return Catalog(schema_hash, interfaces, nodes, edges)


def _reduced_node(
    node: NodeType, shown: frozenset[str] | None, interfaces: Mapping[str, InterfaceType]
) -> NodeType:
    if shown is None:
        return node
    properties = _properties(node.properties, shown)
    return replace(
        node,
        properties=properties,
        unique=within(node.unique, properties),
        indexes=within(node.indexes, properties),
        ranges=tuple(each for each in node.ranges if each.property in properties),
        checks=tuple(each for each in node.checks if each.property in properties),
        implements=tuple(
            name
            for name in node.implements
            if properties.keys() >= interfaces[name].properties.keys()
        ),
    )


def _reduced_edge(
    edge: EdgeType, shown: frozenset[str] | None, nodes: Mapping[str, NodeType]
) -> EdgeType:
    named = {"src": edge.source, "dst": edge.target}
    ends = {
        end: MappingProxyType(
            {
                name: prefix
                for name, prefix in types.items()
                if name in nodes and named[end] in nodes[name].implements
            }
        )
        for end, types in edge.end_types.items()
    }
    properties = edge.properties if shown is None else _properties(edge.properties, shown)
    columns = {*properties, "src", "dst"}
    return replace(
        edge,
        properties=properties,
        end_types=MappingProxyType(ends),
        key_columns=edge.key_columns if columns.issuperset(edge.key_columns) else (),
        unique=within(edge.unique, columns),
        indexes=within(edge.indexes, columns),
    )


def _properties(
    properties: Mapping[str, Property], shown: frozenset[str]
) -> Mapping[str, Property]:
    kept = {name: each for name, each in properties.items() if name in shown}
    for name, each in kept.items():
        if each.embed is not None and each.embed.source not in shown:
            kept[name] = replace(each, embed=None)
    return MappingProxyType(kept)


def within(
    groups: Sequence[tuple[str, ...]], known: Mapping[str, Any] | set[str]
) -> tuple[tuple[str, ...], ...]:
    """The groups all of whose names are known."""
    return tuple(group for group in groups if all(name in known for name in group))
