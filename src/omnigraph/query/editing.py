"""The language service for `.pg` and `.gq` texts in editors.

Diagnostics, completions, hovers, definitions and formatting. Pure functions of texts: a page asks
over HTTP, an editor through the Language Server Protocol, and both get the same answers. Completion
works on tokens, so the text need not parse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Literal

from omnigraph.errors import CompileError
from omnigraph.model.editing import (
    Completion,
    Definition,
    Diagnostic,
    Hover,
    Language,
    LanguageAnswer,
    Place,
)
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar
from omnigraph.query.lint import Severity, lint_queries
from omnigraph.schema.catalog import Catalog, EdgeType, Property, TableType
from omnigraph.schema.compile import compile_schema, lint_schema
from omnigraph.syntax.formatting import format_text
from omnigraph.syntax.query_ast import (
    AGGREGATE_FUNCTIONS,
    SCALAR_FUNCTIONS,
    SEARCH_FUNCTIONS,
    TEXT_QUERY_KINDS,
)
from omnigraph.syntax.query_expressions import QueryStream
from omnigraph.syntax.schema_parser import SchemaStream
from omnigraph.syntax.tokens import Source, Span, Token, TokenKind

QUERY_WORDS = (
    *("query", "match", "return", "order", "limit", "offset", "having", "distinct", "with"),
    *("not", "optional", "any", "all", "via", "as", "asc", "desc", "is", "null", "in"),
    *("contains", "starts_with", "and", "or", "insert", "update", "set", "delete", "where", "for"),
    *("ends_with", "matches", "per", "unnest", "cheapest", "by", "from", "to"),
)
SCHEMA_WORDS = ("node", "edge", "interface", "implements", "enum")
ANNOTATIONS = (
    *("key", "unique", "index", "default", "range", "check", "card", "embed"),
    *("description", "instruction", "rename_from"),
)


@dataclass(frozen=True)
class Document:
    """A text, and the schema in which its names are looked up.

    Without a schema, a query is only parsed; a schema text is its own schema.
    """

    text: str
    language: Language
    schema: str | None = None
    source: Source = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", Source(self.text))

    # --- asked for ------------------------------------------------------------------------------

    def answer(self, line: int | None = None, column: int | None = None) -> LanguageAnswer:
        """All answers at once; the position of the cursor counts from 1."""
        formatted = self.formatted()
        if line is None or column is None:
            return LanguageAnswer(self.diagnostics(), formatted=formatted)
        at = self.offset(line, column)
        return LanguageAnswer(
            self.diagnostics(), self.complete(at), self.hover(at), self.definition(at), formatted
        )

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The problems of the text, in text order."""
        errors: list[tuple[CompileError, Severity, str | None]] = []
        if self.language == "pg":
            errors = [(finding.error, "error", None) for finding in lint_schema(self.source)]
        elif self._catalog is None:
            if self._parse_problem is not None:
                errors = [(self._parse_problem, "error", None)]
        else:
            report = lint_queries(self.source, self._catalog)
            errors = [
                (finding.cause, finding.severity, finding.code)
                for finding in report.findings
                if finding.cause is not None
            ]
        found = [
            Diagnostic(severity, error.message, self._place_of(error), code, error.hint)
            for error, severity, code in errors
        ]
        return tuple(sorted(found, key=lambda each: (each.place.line, each.place.column)))

    def formatted(self) -> str | None:
        """The formatted text; None if it does not parse."""
        try:
            return format_text(self.source, self.language)
        except CompileError:
            return None

    def complete(self, at: int) -> tuple[Completion, ...]:
        """Completions at an offset, most likely first; the editor filters by prefix."""
        before = [token for token in self._tokens if token.span.end <= at]
        if before and before[-1].span.end == at and before[-1].kind in _NAMES:
            before.pop()  # the word that is being typed
        found = self._schema_words(before) if self.language == "pg" else self._query_words(before)
        return tuple(dict.fromkeys(found))

    def hover(self, at: int) -> Hover | None:
        """The meaning of the name at an offset; None if there is no name."""
        index = self._index_at(at)
        if index is None:
            return None
        text = self._meaning(index)
        return None if text is None else Hover(text, self._place(self._tokens[index].span))

    def definition(self, at: int) -> Definition | None:
        """Where the name at an offset is declared; None if unknown."""
        index = self._index_at(at)
        if index is None:
            return None
        token = self._tokens[index]
        if token.kind is TokenKind.VAR:
            first = next(each for each in self._query_around(index) if each.text == token.text)
            return Definition("text", self._place(first.span))
        declared = self._declared_type(index)
        if declared is None:
            return None
        document: Literal["text", "schema"] = "text"
        home = self
        if self.language == "pg":
            pass
        elif self.schema is not None:
            document, home = "schema", Document(self.schema, "pg")
        else:
            return None
        owner, prop = declared
        span = home._declaration(owner, prop)
        return None if span is None else Definition(document, home._place(span))

    # --- places -----------------------------------------------------------------------------------

    def offset(self, line: int, column: int) -> int:
        """The offset of a position, clamped to the text."""
        lines = self.text.split("\n")
        row = min(max(line, 1), len(lines)) - 1
        return sum(len(each) + 1 for each in lines[:row]) + min(max(column, 1) - 1, len(lines[row]))

    def _place(self, span: Span) -> Place:
        start, end = (self._position(offset) for offset in (span.start, max(span.end, span.start)))
        return Place(*start, *end)

    def _position(self, offset: int) -> tuple[int, int]:
        start = self.text.rfind("\n", 0, offset) + 1
        return self.text.count("\n", 0, offset) + 1, offset - start + 1

    def _place_of(self, error: CompileError) -> Place:
        position = error.position
        if position is None:
            return Place(1, 1, 1, 1)
        at = position.line, position.column
        return Place(*at, at[0], at[1] + position.width)

    # --- tokens and names -------------------------------------------------------------------------

    @cached_property
    def _tokens(self) -> Sequence[Token]:
        stream = QueryStream(self.source) if self.language == "gq" else SchemaStream(self.source)
        return [token for token in stream.tokens if token.kind is not TokenKind.END]

    @cached_property
    def _catalog(self) -> Catalog | None:
        try:
            if self.language == "pg":
                return compile_schema(self.source).catalog
            return None if self.schema is None else compile_schema(self.schema).catalog
        except CompileError:
            return None

    @cached_property
    def _parse_problem(self) -> CompileError | None:
        from omnigraph.syntax.query_parser import parse_query_file

        try:
            parse_query_file(self.source)
        except CompileError as problem:
            return problem
        return None

    def _index_at(self, at: int) -> int | None:
        for index, token in enumerate(self._tokens):
            if token.span.start <= at <= token.span.end and token.kind in _NAMES:
                return index
        return None

    def _query_around(self, index: int) -> Sequence[Token]:
        """The tokens of the query that a token is in."""
        starts = [
            at
            for at, token in enumerate(self._tokens)
            if token.text == "query" and token.kind is TokenKind.WORD
        ]
        begin = max((at for at in starts if at <= index), default=0)
        end = min((at for at in starts if at > index), default=len(self._tokens))
        return self._tokens[begin:end]

    def _variable_type(self, name: str, index: int) -> TableType | None:
        """The type of a variable, from `$name: Type` or `$name:edge` in its query."""
        tokens = self._query_around(index)
        for at, token in enumerate(tokens[:-2]):
            if token.kind is TokenKind.VAR and token.text == name and tokens[at + 1].text == ":":
                found = self._type_named(tokens[at + 2].text.strip("<"))
                if found is None and tokens[at + 2].text == "<":
                    found = self._type_named(tokens[at + 3].text)
                if found is not None:
                    return found
        return None

    def _type_named(self, name: str) -> TableType | None:
        if self._catalog is None:
            return None
        if name in self._catalog.nodes:
            return self._catalog.nodes[name]
        return self._catalog.edges.get(name) or self._catalog.edge_named(name)

    def _owner_of_property(self, index: int) -> TableType | None:
        """The type with the property that the token at ``index`` names."""
        tokens = self._tokens
        if index >= 2 and tokens[index - 1].text == "." and tokens[index - 2].kind is TokenKind.VAR:
            return self._variable_type(tokens[index - 2].text, index)
        depth = 0
        for at in range(index - 1, 0, -1):
            depth += (tokens[at].text == "}") - (tokens[at].text == "{")
            if depth < 0:
                before = [each for each in tokens[max(at - 2, 0) : at] if each.text != "set"]
                return self._type_named(before[-1].text) if before else None
        return None

    def _declared_type(self, index: int) -> tuple[str, str | None] | None:
        """The type that a token names, or the type and the property."""
        token = self._tokens[index]
        if self.language == "pg":
            return (token.text, None) if token.kind is TokenKind.TYPE else None
        if token.kind is TokenKind.TYPE:
            return token.text, None
        owner = self._owner_of_property(index)
        if owner is not None and token.text in owner.properties:
            return owner.name, token.text
        edge = None if self._catalog is None else self._catalog.edge_named(token.text)
        return None if edge is None else (edge.name, None)

    def _declaration(self, owner: str, prop: str | None) -> Span | None:
        """Where a schema text declares a type, or a property of it."""
        tokens = self._tokens
        for at, token in enumerate(tokens):
            if token.text != owner or at == 0 or tokens[at - 1].text not in SCHEMA_WORDS:
                continue
            if prop is None:
                return token.span
            for inner, following in zip(tokens[at:], tokens[at + 1 :], strict=False):
                if inner.text == prop and following.text == ":":
                    return inner.span
        return None

    # --- what names mean --------------------------------------------------------------------------

    def _meaning(self, index: int) -> str | None:
        token, catalog = self._tokens[index], self._catalog
        if catalog is None:
            return None
        if token.kind is TokenKind.VAR:
            found = self._variable_type(token.text, index)
            return None if found is None else f"${token.text}: {_heading(found)}"
        if token.kind is TokenKind.TYPE and token.text in catalog.interfaces:
            names = ", ".join(each.name for each in catalog.node_types(token.text))
            return f"interface {token.text}: {names}"
        declared = self._declared_type(index)
        if declared is None:
            return None
        name, prop = declared
        owner = self._type_named(name)
        if owner is None:
            return None
        return _described(owner) if prop is None else _property_text(owner.properties[prop])

    # --- what may come ----------------------------------------------------------------------------

    def _schema_words(self, before: Sequence[Token]) -> Iterator[Completion]:
        last = before[-1].text if before else ""
        if last == "@":
            yield from (Completion(name, "keyword") for name in ANNOTATIONS)
        elif last in (":", "[", "->", "implements", ","):
            yield from (Completion(each.value, "type") for each in Scalar)
            for token, name in zip(self._tokens, self._tokens[1:], strict=False):
                if token.text in SCHEMA_WORDS and name.kind is TokenKind.TYPE:
                    yield Completion(name.text, "type", token.text)
        else:
            yield from (Completion(name, "keyword") for name in SCHEMA_WORDS)

    def _query_words(self, before: Sequence[Token]) -> Iterator[Completion]:
        index = len(before)
        last = before[-1] if before else None
        previous = before[-2] if len(before) > 1 else None
        if last is None:
            yield Completion("query", "keyword")
        elif last.text == "." and previous is not None and previous.kind is TokenKind.VAR:
            yield from _properties(self._variable_type(previous.text, max(index - 1, 0)))
        elif last.text == ":" and previous is not None and previous.kind is TokenKind.VAR:
            if _is_in_header(before):
                yield from (Completion(each.value, "type") for each in Scalar)
            else:
                yield from self._types(edges=False)
        elif last.text in ("insert", "update", "delete"):
            yield from self._types(edges=True)
        elif last.text in ("{", ",") and (owner := self._pairs_owner(before)) is not None:
            yield from _properties(owner)
        elif last.kind is TokenKind.VAR and self._catalog is not None:
            for edge in self._catalog.edges.values():
                yield Completion(_word(edge), "edge", f"{edge.source} -> {edge.target}")
            yield from (Completion(word, "keyword") for word in ("is", "contains", "starts_with"))
        else:
            yield from self._variables(index)
            functions = (
                *(*AGGREGATE_FUNCTIONS, *SCALAR_FUNCTIONS),
                *(*SEARCH_FUNCTIONS, *TEXT_QUERY_KINDS),
            )
            yield from (Completion(word, "keyword") for word in QUERY_WORDS)
            yield from (Completion(name, "function") for name in functions)

    def _pairs_owner(self, before: Sequence[Token]) -> TableType | None:
        depth = 0
        for at in range(len(before) - 1, 0, -1):
            depth += (before[at].text == "}") - (before[at].text == "{")
            if depth < 0:
                opener = before[at - 2 if before[at - 1].text == "set" else at - 1]
                return self._type_named(opener.text) if opener.kind is TokenKind.TYPE else None
        return None

    def _variables(self, index: int) -> Iterator[Completion]:
        for token in self._query_around(max(index - 1, 0)):
            if token.kind is TokenKind.VAR:
                found = self._variable_type(token.text, max(index - 1, 0))
                yield Completion(
                    f"${token.text}", "variable", None if found is None else found.name
                )

    def _types(self, *, edges: bool) -> Iterator[Completion]:
        if self._catalog is None:
            return
        yield from (Completion(name, "type", "node") for name in self._catalog.nodes)
        if edges:
            yield from (Completion(name, "type", "edge") for name in self._catalog.edges)
        else:
            yield from (Completion(name, "type", "interface") for name in self._catalog.interfaces)


_NAMES = frozenset({TokenKind.WORD, TokenKind.TYPE, TokenKind.VAR})


def _is_in_header(before: Sequence[Token]) -> bool:
    """Whether these tokens end inside the parameters of a query."""
    for token in reversed(before):
        if token.text in ("{", "}", ")"):
            return False
        if token.text == "query":
            return True
    return False


def _properties(owner: TableType | None) -> Iterator[Completion]:
    if owner is not None:
        for prop in owner.properties.values():
            yield Completion(prop.name, "property", str(prop.type))


def _word(edge: EdgeType) -> str:
    """The name of an edge type as queries spell it."""
    return edge.name[:1].lower() + edge.name[1:]


def _heading(found: TableType) -> str:
    if isinstance(found, EdgeType):
        return f"edge {found.name}: {found.source} -> {found.target}"
    return f"node {found.name}"


def _described(found: TableType) -> str:
    lines = [_heading(found)]
    if found.description:
        lines.append(found.description)
    lines += [_property_text(prop) for prop in found.properties.values()]
    return "\n".join(lines)


def _property_text(prop: Property) -> str:
    told = f"{prop.name}: {prop.type}"
    return f"{told} — {prop.description}" if prop.description else told
