"""From the statements of a Cypher text to queries of a `.gq` file.

A `MATCH` becomes the clauses of a match (`patterns`), `WITH` a stage, and `RETURN` the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omnigraph.errors import CompileError, Position, TranslationError
from omnigraph.model.records import dataclass
from omnigraph.model.types import ValueType
from omnigraph.query.compile import compile_query
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax.formatting import format_text
from omnigraph.syntax.tokens import Source, Span
from omnigraph.translate import cypher_ast as ast
from omnigraph.translate.cypher_parser import parse_cypher, too_deep
from omnigraph.translate.expressions import (
    Expressions,
)
from omnigraph.translate.patterns import Patterns, conjuncts
from omnigraph.translate.scope import (
    I64,
    STRING,
    Bound,
    Dialect,
    Translating,
    identifier,
)

_PASSES_MAX = 4
"""Maximum number of passes; parameters whose types depend on each other need two."""
_LINE = 96
"""Longer lists of items are written on several lines."""


@dataclass(frozen=True, slots=True)
class TranslatedQuery:
    """One formatted query in `.gq`."""

    name: str
    text: str
    notes: tuple[tuple[str, Position], ...]
    """Where and how its result may differ from that of the Cypher text."""
    line: int
    """The line of the Cypher text where it begins."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The queries of a text, and errors of the statements that could not be translated."""

    queries: tuple[TranslatedQuery, ...]
    errors: tuple[TranslationError, ...]

    @property
    def text(self) -> str:
        """All queries as one `.gq` text, each below its notes."""
        blocks = []
        for query in self.queries:
            notes = [f"// Line {at.line}: {message}.\n" for message, at in query.notes]
            blocks.append("".join(notes) + query.text)
        return "\n".join(blocks)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, as printed by `--json`."""
        return {
            "queries": [
                {
                    "name": query.name,
                    "line": query.line,
                    "text": query.text,
                    "notes": [
                        {"message": message, "line": at.line, "column": at.column}
                        for message, at in query.notes
                    ],
                }
                for query in self.queries
            ],
            "errors": [error.envelope() | error.input_problems() for error in self.errors],
        }


def translate_cypher(
    origin: str | bytes | Path | Source,
    catalog: Catalog | None = None,
    dialect: Dialect = "cypher",
) -> Translation:
    """The reads of an openCypher text as `.gq`.

    With a catalog, names are those of its schema, parameters get the types of the values they are
    compared with, and every query is compiled; a text that does not fit the schema is an error.
    Without one, names are taken over, and parameters of unknown type are texts. An error in one
    statement does not affect the others. In the dialect of Kuzu a pattern may use a relationship
    twice, and the sum of nothing is null.
    """
    source = Source.of(origin, TranslationError)
    statements, errors = parse_cypher(source)
    queries: list[TranslatedQuery] = []
    names: set[str] = set()
    for number, statement in statements:
        base = identifier(statement.name) if statement.name else f"query{number}"
        name, more = base, 2
        while name in names:
            name, more = f"{base}_{more}", more + 1
        names.add(name)
        try:
            queries.append(_translated(source, statement, name, catalog, dialect))
        except TranslationError as error:
            errors.append(error)
        except RecursionError:
            errors.append(too_deep(source, statement.span))
    errors.sort(key=lambda error: error.position.byte_start if error.position else 0)
    return Translation(tuple(queries), tuple(errors))


def _translated(
    source: Source,
    statement: ast.CypherStatement,
    name: str,
    catalog: Catalog | None,
    dialect: Dialect,
) -> TranslatedQuery:
    guessed: Mapping[str, ValueType] = {}
    for _ in range(_PASSES_MAX):
        state = Translating(source, dialect, catalog, guessed)
        body = _Query(state, statement).lines()
        learned = {name: type_ for name, type_ in state.parameters.items() if type_ is not None}
        if learned == guessed:
            break
        # Types learned in this pass may apply to earlier uses of a parameter.
        guessed = learned
    declared = []
    for parameter, type_ in state.parameters.items():
        if type_ is None:
            state.note(f"the type of `${parameter}` is a guess", statement.span)
        declared.append(f"${parameter}: {type_ or STRING}")
    head = f"query {name}({', '.join(declared)}) {{"
    if len(head) > _LINE:
        head = f"query {name}(\n{', '.join(declared)}\n) {{"
    text = "\n".join([head, *body, "}", ""])
    try:
        formatted = format_text(text, "gq")
        if catalog is not None:
            compile_query(formatted, catalog)
    except CompileError as refused:
        raise source.error(
            TranslationError,
            f"the translation does not compile: {refused.reason}",
            Span(statement.span.start, statement.span.start + 1),
            hint=refused.hint,
        ) from refused
    notes = tuple((note.message, source.position(note.span)) for note in state.notes)
    line = source.position(statement.span).line
    return TranslatedQuery(name, formatted, notes, line)


class _Query:
    """One statement: its stages in order, and the names that are visible in each."""

    def __init__(self, state: Translating, statement: ast.CypherStatement) -> None:
        self._state = state
        self._statement = statement
        nodes = ast.walk(statement.stages)
        used = {node.name for node in nodes if isinstance(node, ast.CypherVariable)}
        if any(stage.projection.every for stage in statement.stages):
            used |= {
                node.variable
                for node in nodes
                if isinstance(node, ast.CypherRelationshipPattern) and node.variable is not None
            }
        # Parameters first: a bare `$x` means the parameter if both exist.
        state.taken |= {
            identifier(node.name) for node in nodes if isinstance(node, ast.CypherParameter)
        }
        self._patterns = Patterns(state, frozenset(used))

    def lines(self) -> list[str]:
        """The lines between the braces of the query."""
        found: list[str] = []
        pending: list[str] = []
        *stages, last = self._statement.stages
        for at, stage in enumerate([*stages, last]):
            clauses = [*pending, *self._patterns.clauses(stage)]
            if clauses:
                found += ["match {", *clauses, "}"]
            elif not at:
                self._state.fail("a query begins with `MATCH`", stage.projection.span)
            projected, pending = self._projected(stage.projection, is_return=stage is last)
            found += projected
        return found

    def _projected(
        self, projection: ast.CypherProjection, *, is_return: bool
    ) -> tuple[list[str], list[str]]:
        """`with` or `return` with the parts after it, and conditions for the next match."""
        items = list(projection.items)
        if projection.every:
            here = [name for name in self._patterns.scope if not name.startswith(" ")]
            span = projection.span
            items = [
                ast.CypherProjectionItem(ast.CypherVariable(n, span), None, span) for n in here
            ] + items
        aggregated = any(ast.has_aggregate(item.expression) for item in items)
        has_groups = not all(ast.has_aggregate(item.expression) for item in items)
        seen = self._patterns.expressions(has_groups=has_groups)
        following: dict[str, Bound] = {}
        shown: list[str] = []
        aliases: list[tuple[ast.Expression, str]] = []
        columns: set[str] = set()
        for item in items:
            text, key, name, bound = self._item(item, seen, columns, is_return=is_return)
            if key in columns:
                self._state.fail(f"two columns are called `{key}`", item.span, "name one with `AS`")
            columns.add(key)
            shown.append(text)
            aliases.append((item.expression, key))
            following[name] = bound
        word = "return" if is_return else "with"
        is_reduced = aggregated or projection.distinct
        # Sort keys may name returned columns first, then matched variables.
        visible = following if is_reduced else {**self._patterns.scope, **following}
        keys = [self._key(each, aliases, visible) for each in projection.order]
        distinct = " distinct" if projection.distinct else ""
        lines: list[str] = []
        if is_reduced and any(_is_property(key) and key.split()[0] not in shown for key in keys):
            # Grouped and distinct rows can only be ordered by returned columns: an additional stage
            # hands on the nodes whose properties are the keys.
            handed = [self._stage_item(item, text) for item, text in zip(items, shown, strict=True)]
            lines += _listed(f"with{distinct}", [each for each, _ in handed])
            shown = [after for _, after in handed]
            distinct = ""
        lines += _listed(f"{word}{distinct}", shown)
        where = projection.where
        pending: list[str] = []
        having: list[str] = []
        if not is_return:
            self._patterns.scope = following
        if where is not None:
            conditions = self._patterns.expressions(following).clauses(where)
            cut = projection.limit is not None or projection.skip is not None
            names = [node.name for node in ast.walk(where) if isinstance(node, ast.CypherVariable)]
            of_values = all(following[name].kind == "value" for name in names)
            if not cut and of_values and all(_is_value_filter(each) for each in conjuncts(where)):
                having = conditions
            else:
                pending = conditions
        if having:
            lines += _listed("having", having, separator="  ")
        if keys:
            lines += _listed("order", keys)
        if projection.limit is not None:
            lines.append(f"limit {self._count(projection.limit)}")
        if projection.skip is not None:
            lines.append(f"offset {self._count(projection.skip)}")
        return lines, pending

    def _stage_item(self, item: ast.CypherProjectionItem, shown: str) -> tuple[str, str]:
        """An item of the additional stage, and the item of the last stage made from it."""
        if isinstance(item.expression, ast.CypherVariable):
            bound = self._patterns.scope[item.expression.name]
            if bound.kind == "node":
                return bound.text, shown
        text, _, alias = shown.rpartition(" as ")
        if not text:
            alias = shown.rpartition(".")[2].removeprefix("$")
            return (shown, shown) if alias == shown else (f"{shown} as {alias}", alias)
        return shown, alias

    def _item(
        self,
        item: ast.CypherProjectionItem,
        seen: Expressions,
        columns: set[str],
        *,
        is_return: bool,
    ) -> tuple[str, str, str, Bound]:
        """The text of an item, its column, and the binding of its name afterwards."""
        given = item.expression
        alias = identifier(item.alias) if item.alias is not None else None
        if isinstance(given, ast.CypherVariable):
            bound = seen.bound(given)
            name = item.alias or given.name
            if bound.kind == "node" and not is_return:
                return bound.text, bound.text, name, bound
            if bound.kind in ("node", "edge") and is_return:
                column = alias or bound.text[1:]
                return f"{bound.text}.* as {column}", column, name, bound
            if bound.kind == "edge":
                self._state.fail(
                    "a relationship in `WITH` has no counterpart",
                    item.span,
                    "hand on the properties of it that matter",
                )
            if bound.kind == "value" and (alias is None or alias == bound.text):
                return bound.text, bound.text, name, bound
            text = seen.value(given)
            column = alias or bound.text.removeprefix("$")
            handed = Bound("value", column, type=bound.type, optional=bound.optional)
            return f"{text.text} as {column}", column, name, handed
        text = seen.value(given)
        name = item.alias or self._state.source.text[given.span.start : given.span.end]
        if alias is None and isinstance(given, ast.CypherProperty) and text.text.startswith("$"):
            column = text.text[1:]
            return text.text, column, name, Bound("value", column, type=text.type)
        column = alias or _column(given, text.text, columns)
        bound = Bound("value", column, type=text.type, optional=text.nullable)
        shown = text.text if text.text == column else f"{text.text} as {column}"
        return shown, column, name, bound

    def _key(
        self,
        key: ast.CypherSortItem,
        aliases: Sequence[tuple[ast.Expression, str]],
        visible: Mapping[str, Bound],
    ) -> str:
        """One sort key: an alias, or a property of a matched variable."""
        given = key.expression
        direction = " desc" if key.descending else ""
        nullable, text = True, ""
        known = visible.get(given.name) if isinstance(given, ast.CypherVariable) else None
        if known is not None and known.kind == "value":
            text, nullable = known.text, known.optional
        else:
            for expression, column in aliases:
                if ast.same(expression, given) and "." not in column:
                    text = column
                    nullable = (
                        not ast.has_aggregate(given)
                        and self._patterns.expressions().value(given).nullable
                    )
                    break
        if not text and isinstance(given, ast.CypherProperty):
            found = self._patterns.expressions(visible).value(given)
            text, nullable = found.text, found.nullable
        if not text:
            self._state.fail(
                "an order by a computed value has no counterpart",
                given.span,
                "return it with `AS`, and order by its name",
            )
        if nullable and self._state.catalog is not None:
            self._state.note(
                "null is the smallest value in an order, and the largest in Cypher", key.span
            )
        return f"{text}{direction}"

    def _count(self, given: ast.Expression) -> str:
        if isinstance(given, ast.CypherParameter) or (
            isinstance(given, ast.CypherLiteral) and isinstance(given.value, int)
        ):
            return self._patterns.expressions({}).value(given, I64).text
        return self._state.fail("a computed number of rows has no counterpart", given.span)


def _is_value_filter(condition: ast.Expression) -> bool:
    """Whether a condition may be in `having`: one comparison or null test."""
    if isinstance(condition, ast.CypherNullTest):
        return True
    return isinstance(condition, ast.CypherBinary) and condition.operator in ast.COMPARISONS


def _listed(word: str, items: Sequence[str], separator: str = ", ") -> list[str]:
    """`word { items }`, on one line if it is short."""
    line = f"{word} {{ {separator.join(items)} }}"
    if len(line) <= _LINE and "\n" not in line:
        return [line]
    end = separator.rstrip()
    return [f"{word} {{", *(f"{each}{end}" for each in items[:-1]), items[-1], "}"]


def _is_property(key: str) -> bool:
    return key.startswith("$")


def _column(given: ast.Expression, text: str, columns: set[str]) -> str:
    """A name for a computed column: the value itself, or the function it comes from."""
    base = text if text.isidentifier() else "value"
    if isinstance(given, ast.CypherCountAll | ast.CypherSubquery) or ast.is_aggregate(given):
        base = given.name if isinstance(given, ast.CypherCall) else "count"
    elif isinstance(given, ast.CypherCall):
        base = given.name
    name, number = identifier(base), 2
    while name in columns:
        name, number = f"{identifier(base)}{number}", number + 1
    return name
