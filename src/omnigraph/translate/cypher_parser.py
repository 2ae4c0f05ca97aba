"""Cypher texts to syntax trees: recursive descent over the reads of openCypher.

Two forms of Kuzu are accepted as well: `*SHORTEST` in a relationship, and `CAST(x AS TYPE)`.
Clauses that are not reads, such as `CREATE`, are refused by name and position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Literal, NamedTuple, NoReturn, cast

from omnigraph.errors import TranslationError
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Source, Span
from omnigraph.translate import cypher_ast as ast

# --- tokens ---------------------------------------------------------------------------------------


class CypherTokenKind(Enum):
    """The lexical kind of a token."""

    WORD = "word"
    QUOTED = "quoted name"
    """In backticks; never a keyword."""
    PARAMETER = "parameter"
    INT = "integer"
    FLOAT = "number"
    STRING = "string"
    PUNCT = "punctuation"
    BAD = "unreadable text"
    END = "end"


class CypherToken(NamedTuple):
    """One token; for names and parameters the text is the name alone."""

    kind: CypherTokenKind
    text: str
    span: Span

    def describe(self) -> str:
        """The name of this token in messages."""
        if self.kind is CypherTokenKind.END:
            return "the end of the text"
        shown = f"${self.text}" if self.kind is CypherTokenKind.PARAMETER else self.text
        return f"`{shown[:40]}`"


_TOKEN = re.compile(
    r"(?:\s++|//[^\n]*+|/\*.*?\*/)*+"
    r"(?:(?P<WORD>[^\W\d]\w*+)"
    r"|`(?P<QUOTED>[^`]++)`"
    r"|\$(?P<PARAMETER>\w++)"
    r"|(?P<FLOAT>\d++\.\d++(?:[eE][+-]?\d++)?|\d++[eE][+-]?\d++|\.\d++(?:[eE][+-]?\d++)?)"
    r"|(?P<INT>\d++)"
    r"""|(?P<STRING>'[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+")"""
    r"|(?P<PUNCT>(?!/\*)(?:<>|<=|>=|=~|\.\.|[()\[\]{},.:;=<>+\-*/%^|]))"
    r"|(?P<END>\Z)"
    r"|(?P<BAD>.))",
    re.DOTALL,
)
_NAMED = re.compile(r"//[ \t]*(\w+)[ \t]*\r?\n(?:[ \t\r\n]*)\Z")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPES = {"'": "'", '"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def _tokens(source: Source) -> Iterator[CypherToken]:
    for hit in _TOKEN.finditer(source.text):
        name = hit.lastgroup or "END"
        kind = CypherTokenKind[name]
        # The marks around a name belong to its span.
        wide = {CypherTokenKind.QUOTED: (1, 1), CypherTokenKind.PARAMETER: (1, 0)}.get(kind, (0, 0))
        yield CypherToken(kind, hit[name], Span(hit.start(name) - wide[0], hit.end(name) + wide[1]))
        if kind in (CypherTokenKind.END, CypherTokenKind.BAD):
            break
    if kind is CypherTokenKind.BAD:
        yield CypherToken(CypherTokenKind.END, "", Span(len(source.text), len(source.text)))


# --- the parser -----------------------------------------------------------------------------------

_WRITES = ("CREATE", "MERGE", "SET", "DELETE", "DETACH", "REMOVE", "FOREACH", "COPY", "DROP")
_OTHERS = {
    "CALL": "procedures and subqueries are no part of a read here",
    "LOAD": "load files with `omnigraph load`",
    "UNION": "write one query for each part",
    "USE": "name the graph on the command line",
    "EXPLAIN": "leave it out; `omnigraph query --explain` shows the plan",
    "PROFILE": "leave it out; `omnigraph query --explain` shows the plan",
}
_CLAUSES = ("MATCH", "OPTIONAL", "WHERE", "WITH", "RETURN", "UNWIND", "ORDER", "SKIP", "LIMIT")
_SHORTEST = {"shortestpath": "one", "allshortestpaths": "all"}


def parse_cypher(
    source: Source,
) -> tuple[list[tuple[int, ast.CypherStatement]], list[TranslationError]]:
    """The statements of a text with their numbers, and the errors of the others.

    Statements are separated by semicolons and numbered from 1.
    """
    statements: list[tuple[int, ast.CypherStatement]] = []
    errors: list[TranslationError] = []
    parser = _Parser(source)
    number = 0
    while not parser.is_done():
        number += 1
        try:
            statements.append((number, parser.statement()))
        except TranslationError as error:
            errors.append(error)
            parser.skip_statement()
        except RecursionError:
            errors.append(too_deep(source, parser.place))
            parser.skip_statement()
    return statements, errors


def too_deep(source: Source, span: Span) -> TranslationError:
    """The error for a statement nested too deeply for the interpreter's stack."""
    return source.error(TranslationError, "nested too deeply", span)


class _Parser:
    """A cursor over the tokens, with one method for each rule of the grammar."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tokens = list(_tokens(source))
        self._at = 0

    # --- moving ----------------------------------------------------------------------------------

    @property
    def _token(self) -> CypherToken:
        return self._tokens[self._at]

    def _next(self) -> CypherToken:
        token = self._token
        if token.kind is not CypherTokenKind.END:
            self._at += 1
        return token

    def _ahead(self, places: int) -> CypherToken:
        return self._tokens[min(self._at + places, len(self._tokens) - 1)]

    def _is_punct(self, *texts: str) -> bool:
        return self._token.kind is CypherTokenKind.PUNCT and self._token.text in texts

    def _is_word(self, *words: str) -> bool:
        return self._token.kind is CypherTokenKind.WORD and self._token.text.upper() in words

    def _take(self, text: str) -> CypherToken | None:
        return self._next() if self._is_punct(text) else None

    def _take_word(self, *words: str) -> CypherToken | None:
        return self._next() if self._is_word(*words) else None

    def _expect(self, text: str, where: str) -> CypherToken:
        return self._take(text) or self._unexpected(f"`{text}` {where}")

    def _expect_word(self, word: str, where: str) -> CypherToken:
        return self._take_word(word) or self._unexpected(f"`{word}` {where}")

    def _name(self, what: str) -> CypherToken:
        if self._token.kind in (CypherTokenKind.WORD, CypherTokenKind.QUOTED):
            return self._next()
        return self._unexpected(what)

    def _from(self, start: Span) -> Span:
        return start.to(self._tokens[max(self._at - 1, 0)].span)

    def _unexpected(self, expected: str, words: tuple[str, ...] = ()) -> NoReturn:
        token = self._token
        if token.kind is CypherTokenKind.BAD:
            what = "an unterminated string" if token.text in "'\"" else f"`{token.text}`"
            self._fail(f"{what} cannot be read", token.span)
        hint = did_you_mean(token.text, words) if token.kind is CypherTokenKind.WORD else None
        self._fail(f"expected {expected}, found {token.describe()}", token.span, hint)

    def _fail(self, message: str, span: Span, hint: str | None = None) -> NoReturn:
        raise self._source.error(TranslationError, message, span, hint=hint)

    # --- statements ------------------------------------------------------------------------------

    @property
    def place(self) -> Span:
        """The position of the cursor."""
        return self._token.span

    def is_done(self) -> bool:
        """Whether no statement follows."""
        while self._take(";"):
            pass
        return self._token.kind is CypherTokenKind.END

    def skip_statement(self) -> None:
        """Skip to after the next semicolon."""
        while self._token.kind is not CypherTokenKind.END and not self._is_punct(";"):
            self._next()

    def statement(self) -> ast.CypherStatement:
        """One read up to its semicolon."""
        start = self._token.span
        before = self._tokens[self._at - 1].span.end if self._at else 0
        named = _NAMED.search(self._source.text, before, start.start)
        stages: list[ast.CypherStage] = []
        while True:
            clauses: list[ast.CypherMatch | ast.CypherUnwind] = []
            while self._is_word("MATCH", "OPTIONAL", "UNWIND"):
                clauses.append(self._unwind() if self._is_word("UNWIND") else self._match())
            if self._is_word("WITH"):
                stages.append(ast.CypherStage(tuple(clauses), self._projection(is_return=False)))
            elif self._is_word("RETURN"):
                stages.append(ast.CypherStage(tuple(clauses), self._projection(is_return=True)))
                break
            else:
                self._no_clause()
        if self._token.kind is not CypherTokenKind.END and not self._is_punct(";"):
            self._no_clause(ended=True)
        return ast.CypherStatement(named[1] if named else None, tuple(stages), self._from(start))

    def _no_clause(self, *, ended: bool = False) -> NoReturn:
        token = self._token
        word = token.text.upper() if token.kind is CypherTokenKind.WORD else ""
        if word in _WRITES:
            self._fail(
                f"`{word}` writes, and only reads are translated",
                token.span,
                "write it with `insert`, `update` or `delete`",
            )
        if word in _OTHERS:
            self._fail(f"`{word}` has no counterpart in a read", token.span, _OTHERS[word])
        expected = "the end of the query" if ended else "`MATCH`, `WITH` or `RETURN`"
        self._unexpected(expected, _CLAUSES)

    def _match(self) -> ast.CypherMatch:
        start = self._token.span
        optional = self._take_word("OPTIONAL") is not None
        self._expect_word("MATCH", "behind `OPTIONAL`")
        patterns = [self._pattern()]
        while self._take(","):
            patterns.append(self._pattern())
        where = self.expression() if self._take_word("WHERE") else None
        return ast.CypherMatch(optional, tuple(patterns), where, self._from(start))

    def _unwind(self) -> ast.CypherUnwind:
        start = self._next().span
        items = self.expression()
        self._expect_word("AS", "behind the list of `UNWIND`")
        name = self._name("a name for the items of `UNWIND`")
        return ast.CypherUnwind(items, name.text, self._from(start))

    def _projection(self, *, is_return: bool) -> ast.CypherProjection:
        start = self._next().span
        distinct = self._take_word("DISTINCT") is not None
        items: list[ast.CypherProjectionItem] = []
        every = self._take("*") is not None
        while not every or items or self._is_punct(","):
            if (every or items) and not self._take(","):
                break
            items.append(self._projection_item())
        order: list[ast.CypherSortItem] = []
        if self._take_word("ORDER"):
            self._expect_word("BY", "behind `ORDER`")
            order.append(self._sort_item())
            while self._take(","):
                order.append(self._sort_item())
        skip = self.expression() if self._take_word("SKIP", "OFFSET") else None
        limit = self.expression() if self._take_word("LIMIT") else None
        where = self.expression() if not is_return and self._take_word("WHERE") else None
        return ast.CypherProjection(
            tuple(items), every, distinct, tuple(order), skip, limit, where, self._from(start)
        )

    def _projection_item(self) -> ast.CypherProjectionItem:
        start = self._token.span
        found = self.expression()
        alias = self._name("a name behind `AS`").text if self._take_word("AS") else None
        return ast.CypherProjectionItem(found, alias, self._from(start))

    def _sort_item(self) -> ast.CypherSortItem:
        start = self._token.span
        found = self.expression()
        down = self._take_word("DESC", "DESCENDING") is not None
        if not down:
            self._take_word("ASC", "ASCENDING")
        return ast.CypherSortItem(found, down, self._from(start))

    # --- patterns --------------------------------------------------------------------------------

    def _pattern(self) -> ast.CypherPattern:
        start = self._token.span
        path = None
        if self._ahead(1).text == "=" and self._ahead(1).kind is CypherTokenKind.PUNCT:
            path = self._name("the name of a path").text
            self._next()
        chosen = (
            _SHORTEST.get(self._token.text.lower())
            if self._token.kind is CypherTokenKind.WORD
            else None
        )
        if chosen is not None:
            self._next()
            self._expect("(", "behind the function")
        nodes, relationships = self._chain()
        if chosen is not None:
            self._expect(")", "behind the pattern")
            if len(relationships) != 1:
                self._fail("a shortest path has one relationship", self._from(start))
            choice = cast(ast.PathChoice, chosen)
            (only,) = relationships
            lengths = only.lengths or ast.CypherLengths(1, 1, only.span)
            relationships = [
                ast.CypherRelationshipPattern(
                    only.variable, only.type_name, only.direction, lengths, choice, only.pairs,
                    only.span,
                )
            ]  # fmt: skip
        return ast.CypherPattern(path, tuple(nodes), tuple(relationships), self._from(start))

    def _chain(self) -> tuple[list[ast.CypherNodePattern], list[ast.CypherRelationshipPattern]]:
        nodes = [self._node()]
        relationships: list[ast.CypherRelationshipPattern] = []
        while self._is_punct("-", "<") and self._starts_relationship():
            relationships.append(self._relationship())
            nodes.append(self._node())
        return nodes, relationships

    def _starts_relationship(self) -> bool:
        at = 1
        if self._is_punct("<"):
            if self._ahead(1).text != "-":
                return False
            at = 2
        return self._ahead(at).kind is CypherTokenKind.PUNCT and self._ahead(at).text in ("[", "-")

    def _node(self) -> ast.CypherNodePattern:
        start = self._expect("(", "at the beginning of a node").span
        name = None
        if self._token.kind in (CypherTokenKind.WORD, CypherTokenKind.QUOTED):
            name = self._next().text
        label = None
        if self._take(":"):
            label = self._name("a label").text
            if self._is_punct(":", "|"):
                self._fail(
                    "a node with several labels has no counterpart",
                    self._token.span,
                    "a node has one type; several types are one interface",
                )
        pairs = self._pairs() if self._is_punct("{") else ()
        self._expect(")", "at the end of a node")
        return ast.CypherNodePattern(name, label, pairs, self._from(start))

    def _relationship(self) -> ast.CypherRelationshipPattern:
        start = self._token.span
        points_in = self._take("<") is not None
        self._expect("-", "in a relationship")
        name = type_name = lengths = None
        choice: ast.PathChoice = "every"
        pairs: tuple[tuple[str, ast.Expression], ...] = ()
        if self._take("["):
            if self._token.kind in (CypherTokenKind.WORD, CypherTokenKind.QUOTED):
                name = self._next().text
            if self._take(":"):
                type_name = self._name("the type of a relationship").text
                if self._is_punct("|"):
                    self._fail(
                        "a relationship of several types has no counterpart",
                        self._token.span,
                        "write one query for each type, or edges over an interface",
                    )
            if self._is_punct("*"):
                lengths, choice = self._lengths()
            pairs = self._pairs() if self._is_punct("{") else ()
            self._expect("]", "at the end of a relationship")
        self._expect("-", "in a relationship")
        points_out = self._take(">") is not None
        direction: ast.Direction = "both"
        if points_in != points_out:
            direction = "in" if points_in else "out"
        span = self._from(start)
        if type_name is None:
            self._fail(
                "a relationship without a type has no counterpart",
                span,
                "name its type: `[:KNOWS]`",
            )
        return ast.CypherRelationshipPattern(
            name, type_name, direction, lengths, choice, pairs, span
        )

    def _lengths(self) -> tuple[ast.CypherLengths, ast.PathChoice]:
        start = self._next().span
        choice: ast.PathChoice = "every"
        if self._is_word("ALL"):
            self._next()
            self._expect_word("SHORTEST", "behind `ALL`")
            choice = "all"
        elif self._take_word("SHORTEST"):
            choice = "one"
        elif self._is_word("TRAIL", "ACYCLIC", "WSHORTEST"):
            self._fail(f"`{self._token.text}` paths have no counterpart", self._token.span)
        low = int(self._next().text) if self._token.kind is CypherTokenKind.INT else None
        high = low
        if self._take(".."):
            high = int(self._next().text) if self._token.kind is CypherTokenKind.INT else None
        minimum = 1 if low is None else low
        return ast.CypherLengths(minimum, high, self._from(start)), choice

    def _pairs(self) -> tuple[tuple[str, ast.Expression], ...]:
        self._expect("{", "before properties")
        found: list[tuple[str, ast.Expression]] = []
        while not self._take("}"):
            if found:
                self._expect(",", "between properties")
            name = self._name("the name of a property").text
            self._expect(":", "behind the name of a property")
            found.append((name, self.expression()))
        return tuple(found)

    # --- expressions -----------------------------------------------------------------------------

    def expression(self) -> ast.Expression:
        """A value or a condition."""
        return self._joined(("OR",), lambda: self._joined(("XOR",), self._conjunction))

    def _conjunction(self) -> ast.Expression:
        return self._joined(("AND",), self._negation)

    def _joined(
        self, words: tuple[str, ...], operand: Callable[[], ast.Expression]
    ) -> ast.Expression:
        left = operand()
        while (token := self._take_word(*words)) is not None:
            operator = cast(ast.BinaryOperator, token.text.upper())
            right = operand()
            left = ast.CypherBinary(operator, left, right, left.span.to(right.span))
        return left

    def _negation(self) -> ast.Expression:
        token = self._take_word("NOT")
        if token is None:
            return self._comparison()
        operand = self._negation()
        return ast.CypherUnary("NOT", operand, token.span.to(operand.span))

    def _comparison(self) -> ast.Expression:
        left = self._predicate()
        found: ast.Expression | None = None
        while self._is_punct(*ast.COMPARISONS):
            operator = cast(ast.BinaryOperator, self._next().text)
            right = self._predicate()
            one = ast.CypherBinary(operator, left, right, left.span.to(right.span))
            # `a < b < c` is a conjunction.
            found = (
                one
                if found is None
                else ast.CypherBinary("AND", found, one, found.span.to(one.span))
            )
            left = right
        return left if found is None else found

    def _predicate(self) -> ast.Expression:
        left = self._sum()
        while True:
            operator: ast.BinaryOperator
            if self._take_word("IS"):
                negated = self._take_word("NOT") is not None
                self._expect_word("NULL", "behind `IS`")
                left = ast.CypherNullTest(left, negated, self._from(left.span))
                continue
            if self._take_word("IN"):
                operator = "IN"
            elif self._take_word("STARTS"):
                self._expect_word("WITH", "behind `STARTS`")
                operator = "STARTS WITH"
            elif self._take_word("ENDS"):
                self._expect_word("WITH", "behind `ENDS`")
                operator = "ENDS WITH"
            elif self._take_word("CONTAINS"):
                operator = "CONTAINS"
            elif self._take("=~"):
                operator = "=~"
            else:
                return left
            right = self._sum()
            left = ast.CypherBinary(operator, left, right, left.span.to(right.span))

    def _sum(self) -> ast.Expression:
        return self._infix(("+", "-"), lambda: self._infix(("*", "/", "%"), self._power))

    def _power(self) -> ast.Expression:
        return self._infix(("^",), self._unary)

    def _infix(
        self, operators: tuple[str, ...], operand: Callable[[], ast.Expression]
    ) -> ast.Expression:
        left = operand()
        while self._is_punct(*operators):
            operator = cast(ast.BinaryOperator, self._next().text)
            right = operand()
            left = ast.CypherBinary(operator, left, right, left.span.to(right.span))
        return left

    def _unary(self) -> ast.Expression:
        if self._take("+"):
            return self._unary()
        token = self._take("-")
        if token is None:
            return self._postfix()
        operand = self._unary()
        span = token.span.to(operand.span)
        if isinstance(operand, ast.CypherLiteral) and isinstance(operand.value, int | float):
            return ast.CypherLiteral(-operand.value, span)
        return ast.CypherUnary("-", operand, span)

    def _postfix(self) -> ast.Expression:
        found = self._atom()
        while True:
            if self._take("."):
                name = self._name("the name of a property").text
                found = ast.CypherProperty(found, name, self._from(found.span))
            elif self._is_punct("["):
                self._next()
                index = self.expression()
                if self._is_punct(".."):
                    self._fail("a slice of a list has no counterpart", self._token.span)
                self._expect("]", "behind the index")
                found = ast.CypherItem(found, index, self._from(found.span))
            elif isinstance(found, ast.CypherVariable) and self._is_punct(":"):
                self._next()
                label = self._name("a label").text
                found = ast.CypherLabelTest(found, label, self._from(found.span))
            else:
                return found

    def _atom(self) -> ast.Expression:
        token = self._token
        match token.kind:
            case CypherTokenKind.INT:
                return ast.CypherLiteral(int(self._next().text), token.span)
            case CypherTokenKind.FLOAT:
                return ast.CypherLiteral(float(self._next().text), token.span)
            case CypherTokenKind.STRING:
                return ast.CypherLiteral(self._string(self._next()), token.span)
            case CypherTokenKind.PARAMETER:
                return ast.CypherParameter(self._next().text, token.span)
            case CypherTokenKind.QUOTED:
                return ast.CypherVariable(self._next().text, token.span)
            case CypherTokenKind.WORD:
                return self._worded()
        if self._is_punct("("):
            return self._pattern_condition() or self._parenthesized()
        if self._is_punct("["):
            return self._list()
        if self._is_punct("{"):
            return ast.CypherMapExpression(self._pairs(), self._from(token.span))
        return self._unexpected("an expression")

    def _string(self, token: CypherToken) -> str:
        def decode(hit: re.Match[str]) -> str:
            if len(hit[1]) > 1:
                return chr(int(hit[1][1:], 16))
            plain = _ESCAPES.get(hit[1])
            if plain is None:
                at = token.span.start + 1 + hit.start()
                self._fail(f"unknown escape `{hit[0]}`", Span(at, at + 2))
            return plain

        return _ESCAPE.sub(decode, token.text[1:-1])

    def _parenthesized(self) -> ast.Expression:
        self._next()
        found = self.expression()
        self._expect(")", "behind the expression")
        return found

    def _list(self) -> ast.Expression:
        start = self._next().span
        items: list[ast.Expression] = []
        while not self._take("]"):
            if items:
                self._expect(",", "between the items of a list")
            items.append(self.expression())
            if self._is_punct("|") or self._is_word("WHERE"):
                self._fail("a list comprehension has no counterpart", start.to(self._token.span))
        return ast.CypherListExpression(tuple(items), self._from(start))

    def _pattern_condition(self) -> ast.Expression | None:
        """A pattern used as a condition; None if it is an expression in parentheses instead."""
        at, start = self._at, self._token.span
        try:
            nodes, relationships = self._chain()
        except TranslationError:
            if any(each.text == "[" for each in self._tokens[at : self._at]):
                raise  # past the start of a relationship, so an error of the pattern
            relationships = []
        if not relationships:
            self._at = at
            return None
        span = self._from(start)
        pattern = ast.CypherPattern(None, tuple(nodes), tuple(relationships), span)
        return ast.CypherSubquery("exists", (ast.CypherMatch(False, (pattern,), None, span),), span)

    def _worded(self) -> ast.Expression:
        token = self._next()
        word = token.text.upper()
        if word in ("TRUE", "FALSE"):
            return ast.CypherLiteral(word == "TRUE", token.span)
        if word == "NULL":
            return ast.CypherLiteral(None, token.span)
        if word == "CASE":
            return self._case(token)
        if word in ("EXISTS", "COUNT") and self._is_punct("{"):
            return self._subquery(token, "exists" if word == "EXISTS" else "count")
        if word in ("COLLECT", "CALL") and self._is_punct("{"):
            self._fail(f"`{word} {{ … }}` has no counterpart", token.span)
        if not self._take("("):
            return ast.CypherVariable(token.text, token.span)
        if word == "CAST":
            return self._cast(token)
        if word == "COUNT" and self._take("*"):
            self._expect(")", "behind `count(*`")
            return ast.CypherCountAll(self._from(token.span))
        if word == "EXISTS" and self._is_punct("("):
            found = self._pattern_condition()
            if found is not None:
                self._expect(")", "behind the pattern")
                return found
        distinct = self._take_word("DISTINCT") is not None
        arguments: list[ast.Expression] = []
        while not self._take(")"):
            if arguments:
                self._expect(",", "between arguments")
            arguments.append(self.expression())
            if self._is_word("WHERE") or self._is_punct("|", "="):
                self._fail(f"`{token.text}` over a list has no counterpart", self._from(token.span))
        return ast.CypherCall(
            token.text.lower(), tuple(arguments), distinct, self._from(token.span)
        )

    def _cast(self, token: CypherToken) -> ast.Expression:
        operand = self.expression()
        if not self._take(","):
            self._expect_word("AS", "in `CAST`")
        named = self._next()
        if self._is_punct("["):
            self._fail("a cast to a list has no counterpart", self._from(token.span))
        self._expect(")", "behind the type")
        return ast.CypherCast(operand, named.text.strip("'\"").upper(), self._from(token.span))

    def _case(self, token: CypherToken) -> ast.Expression:
        operand = None if self._is_word("WHEN") else self.expression()
        branches: list[tuple[ast.Expression, ast.Expression]] = []
        while self._take_word("WHEN"):
            condition = self.expression()
            self._expect_word("THEN", "behind the condition of `WHEN`")
            branches.append((condition, self.expression()))
        otherwise = self.expression() if self._take_word("ELSE") else None
        self._expect_word("END", "at the end of `CASE`")
        if not branches:
            self._fail("`CASE` has no `WHEN`", token.span)
        return ast.CypherCase(operand, tuple(branches), otherwise, self._from(token.span))

    def _subquery(self, token: CypherToken, function: Literal["exists", "count"]) -> ast.Expression:
        self._next()
        matches: list[ast.CypherMatch] = []
        if self._is_punct("("):
            start = self._token.span
            patterns = [self._pattern()]
            while self._take(","):
                patterns.append(self._pattern())
            where = self.expression() if self._take_word("WHERE") else None
            matches.append(ast.CypherMatch(False, tuple(patterns), where, self._from(start)))
        while self._is_word("MATCH"):
            matches.append(self._match())
        if not matches or not self._is_punct("}"):
            self._unexpected(f"patterns and `WHERE` alone in `{token.text} {{ … }}`")
        self._next()
        return ast.CypherSubquery(function, tuple(matches), self._from(token.span))
