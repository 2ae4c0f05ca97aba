"""The bindings of the names of a Cypher query in `.gq`: variables, values, parameters and types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Literal as OneOf
from typing import NoReturn

from omnigraph.errors import TranslationError
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.catalog import Catalog, EdgeType, Property
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Source, Span

BoundKind = OneOf["node", "edge", "path", "item", "value"]


@dataclass(frozen=True, slots=True)
class Bound:
    """The binding of a Cypher variable."""

    kind: BoundKind
    text: str
    """`$name` of a variable; the bare alias of a value that an earlier stage hands on."""
    type_name: str | None = None
    """The type of a node or edge, if known."""
    type: ValueType | None = None
    """The type of a value or an item, if known."""
    optional: bool = False
    """Whether it may be null."""


@dataclass(frozen=True, slots=True)
class Note:
    """Where and how the result of a translation may differ."""

    message: str
    span: Span


Dialect = OneOf["cypher", "kuzu"]
"""openCypher, or Kuzu's dialect of it: there a pattern may use a relationship twice."""


@dataclass
class Translating:
    """The state of translating one statement: text, schema if given, names and parameters."""

    source: Source
    dialect: Dialect
    catalog: Catalog | None
    guessed: Mapping[str, ValueType]
    """Types of parameters from an earlier pass."""
    parameters: dict[str, ValueType | None] = field(default_factory=dict)
    """By their names in `.gq`, in the order of their first use."""
    notes: list[Note] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    """Names of variables that are in use."""
    _parameter_names: dict[str, str] = field(default_factory=dict)

    # --- messages --------------------------------------------------------------------------------

    def fail(self, message: str, span: Span, hint: str | None = None) -> NoReturn:
        """Raise `TranslationError` at a position of the Cypher text."""
        raise self.source.error(TranslationError, message, span, hint=hint)

    def note(self, message: str, span: Span) -> None:
        """Add a note, once, that the translation differs here."""
        found = Note(message, span)
        if found not in self.notes:
            self.notes.append(found)

    # --- names -----------------------------------------------------------------------------------

    def variable(self, wanted: str) -> str:
        """A unique variable name, as similar to the wanted one as the language allows."""
        base = identifier(wanted)
        found, number = base, 2
        while found in self.taken:
            found, number = f"{base}{number}", number + 1
        self.taken.add(found)
        return found

    def parameter(self, name: str, expected: ValueType | None) -> str:
        """The name of a parameter, whose type is learned from its use."""
        known = self._parameter_names.get(name)
        if known is None:
            known = identifier(name)
            while known in self._parameter_names.values():
                known += "_"
            self._parameter_names[name] = known
            self.parameters[known] = self.guessed.get(known)
        if self.parameters[known] is None and expected is not None:
            self.parameters[known] = _declared(expected)
        return known

    def parameter_type(self, name: str) -> ValueType | None:
        """The type of a parameter as known so far."""
        return self.parameters.get(self._parameter_names.get(name, ""), None) or self.guessed.get(
            identifier(name)
        )

    # --- the schema ------------------------------------------------------------------------------

    def node_type(self, label: str, span: Span) -> str:
        """The node type or interface that a label names; without a schema, the label."""
        if self.catalog is None:
            return type_name(label)
        known = {**self.catalog.nodes, **self.catalog.interfaces}
        found = _matching_name(label, known)
        if found is None:
            self.fail(f"the schema has no node type `{label}`", span, did_you_mean(label, known))
        return found

    def edge_type(self, name: str, span: Span) -> EdgeType | None:
        """The edge type that a relationship names; None without a schema."""
        if self.catalog is None:
            return None
        found = _matching_name(name, self.catalog.edges)
        if found is None:
            hint = did_you_mean(name, self.catalog.edges)
            self.fail(f"the schema has no edge type `{name}`", span, hint)
        return self.catalog.edges[found]

    def property(self, bound: Bound, name: str, span: Span) -> Property | None:
        """A property of a node or edge, if its type is known."""
        if self.catalog is None or bound.type_name is None:
            return None
        found: Mapping[str, Property]
        if bound.kind == "edge":
            found = self.catalog.edges[bound.type_name].properties
        elif bound.type_name in self.catalog.nodes:
            found = self.catalog.nodes[bound.type_name].properties
        else:
            found = self.catalog.interfaces[bound.type_name].properties
        spelled = _matching_name(name, found)
        if spelled is None:
            where = f"`{bound.type_name}` has no property `{name}`"
            self.fail(where, span, did_you_mean(name, found))
        return found[spelled]

    def can_be(self, one: str | None, other: str) -> bool:
        """Whether a node of one type may be of the other; types or interfaces."""
        if self.catalog is None or one is None:
            return True
        names = {node.name for node in self.catalog.node_types(one)}
        return bool(names & {node.name for node in self.catalog.node_types(other)})


def identifier(name: str) -> str:
    """A name with a lowercase first letter, made of letters, digits and underscores.

    >>> identifier("Person"), identifier("FIRST_NAME"), identifier("1st"), identifier("_")
    ('person', 'firstName', 'v1st', 'v_')
    """
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if found.isupper() and len(found) > 1:
        found = _joined(found)
    if found == "_" or not re.match(r"[A-Za-z_]", found):
        return f"v{found}"
    return found[0].lower() + found[1:]


def type_name(name: str) -> str:
    """A label or relationship type as a type name.

    >>> type_name("Person"), type_name("ACTED_IN"), type_name("wrote")
    ('Person', 'ActedIn', 'Wrote')
    """
    found = identifier(name)
    return found[0].upper() + found[1:]


def edge_word(name: str) -> str:
    """A relationship type as the word of a hop.

    >>> edge_word("ACTED_IN"), edge_word("Knows")
    ('actedIn', 'knows')
    """
    return identifier(name)


def _joined(upper: str) -> str:
    first, *rest = [part for part in upper.lower().split("_") if part] or ["v"]
    return first + "".join(part.capitalize() for part in rest)


def _matching_name(name: str, known: Iterable[str]) -> str | None:
    """The known name itself, or the one that differs only in case and underscores."""
    names = list(known)
    if name in names:
        return name
    folded = name.replace("_", "").lower()
    fitting = [each for each in names if each.replace("_", "").lower() == folded]
    return fitting[0] if len(fitting) == 1 else None


def _declared(type_: ValueType) -> ValueType:
    """The declared type of a parameter that is compared with a value: no enum, never null."""
    return ValueType(type_.scalar, is_list=type_.is_list, vector_dim=type_.vector_dim)


STRING = ValueType(Scalar.STRING)
BOOL = ValueType(Scalar.BOOL)
I64 = ValueType(Scalar.I64)
F64 = ValueType(Scalar.F64)
DATE = ValueType(Scalar.DATE)
DATETIME = ValueType(Scalar.DATETIME)
