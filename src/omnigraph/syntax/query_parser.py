"""From `.gq` text to `ast.QueryFile`: files, query headers, and the bodies of writes.

::

    parameter = var ":" ( scalar | "[" ( scalar | record ) "]" | "Vector" "(" int ")" ) [ "?" ]
    record    = "{" ident ":" ( scalar | "[" scalar "]" ) [ "?" ] { "," … } "}"

    statement = "insert" Type "{" assignment { assignment } "}"
              | "update" [ var ":" ] Type "set" "{" assignment { assignment } "}" "where" predicate
              | "delete" Type "where" predicate
              | "for" var "in" ( var | var "." ident ) "{" statement { statement } "}"
    assignment = ident ":" ( "null" | expression ) [ "," ]
    predicate = conjunction { "or" conjunction }
    conjunction = test { "and" test }
    test      = "(" predicate ")"
              | ident ( comparison expression | "in" list | "is" [ "not" ] "null" )

Parsing knows no schema: names are not resolved here, and the only values decoded are literals, so
that a malformed date is reported like any other syntax error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NoReturn

from omnigraph.errors import InputError, NotFound, QueryParseError
from omnigraph.model.types import SCALAR_NAMES, ParameterType, RecordsType, Scalar, ValueType
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_conditions import COMPARISONS, parse_combined, parse_null_test
from omnigraph.syntax.query_expressions import (
    I64_MAX,
    TEXT_BYTES_MAX,
    QueryStream,
    parse_expression,
    parse_list,
    parse_reference,
    parse_value,
    require_within,
)
from omnigraph.syntax.query_read import parse_read
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Source, Token, TokenKind

_STATEMENT_WORDS = ("insert", "update", "delete", "for")
_BODY_WORDS = ("match", *_STATEMENT_WORDS)
_CYPHER_WORDS = ("match", "optional", "create", "merge", "call")
_ANNOTATIONS = ("description", "instruction")
_NAMES_MAX = 20
"""Maximum number of query names that an error lists; its details contain all of them."""


def parse_query_file(origin: str | bytes | Path | Source) -> ast.QueryFile:
    """Parse all queries of a text, of raw UTF-8 bytes or of a file.

    Raises `QueryParseError`, always with a position, at the first problem; a file that cannot be
    read raises ``OSError``, and a text beyond the limits of the language `LimitExceeded`. A text
    without queries is legal.

    >>> file = parse_query_file("query all_books() { match { $b: Book } return { $b.title } }")
    >>> [query.name for query in file.queries]
    ['all_books']
    """
    source, stream = _stream_of(origin)
    queries: list[ast.Query] = []
    while stream.current.kind is not TokenKind.END:
        queries.append(_query(stream))
    return ast.QueryFile(source, tuple(queries))


def parse_where(origin: str | Source) -> tuple[Source, ast.Predicate]:
    """A condition, as it follows the `where` of an update; raises `QueryParseError`.

    >>> parse_where('age > 30 and city in ["Oslo"]')[1].operator
    'and'
    """
    source, stream = _stream_of(origin)
    predicate = _predicate(stream)
    _require_end(stream, "in `where`")
    return source, predicate


def parse_condition(origin: str | Source) -> tuple[Source, ast.Condition]:
    """A condition over variables; raises `QueryParseError`.

    >>> parse_condition("$row.city = $actor.city or $row.is_open")[1].operator
    'or'
    """
    source, stream = _stream_of(origin)
    condition = parse_combined(stream)
    _require_end(stream, "in a condition")
    return source, condition


def _require_end(stream: QueryStream, where: str) -> None:
    if stream.current.kind is not TokenKind.END:
        stream.unexpected("`and`, `or` or the end", where, ("and", "or"))


def _stream_of(origin: str | bytes | Path | Source) -> tuple[Source, QueryStream]:
    """A text and its tokens; raises `LimitExceeded` for a text that is too long."""
    source = Source.of(origin, QueryParseError)
    require_within(len(source.text.encode()), TEXT_BYTES_MAX, "the size of a query text in bytes")
    return source, QueryStream(source)


def select_query(file: ast.QueryFile, name: str | None) -> ast.Query:
    """The query called ``name``, or the only one of the file if no name is given.

    Of several queries with the same name, returns the first. Raises `NotFound` for an unknown name
    and `InputError` if a name is needed to choose; both list the names.
    """
    names = list(dict.fromkeys(query.name for query in file.queries))
    if name is None:
        if len(file.queries) == 1:
            return file.queries[0]
        message = f"expected exactly one query, but the file has {len(file.queries)}"
        hint = f"name one of them; {_listing(names)}" if names else None
        raise InputError(message, hint=hint, details={"queries": names})
    for query in file.queries:
        if query.name == name:
            return query
    guess = did_you_mean(name, names)
    hint = f"{guess} {_listing(names)}" if guess else _listing(names)
    raise NotFound(f"query '{name}' not found", hint=hint, details={"queries": names})


def _listing(names: list[str]) -> str:
    if not names:
        return "the file has no queries"
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"the file has {', '.join(names[:_NAMES_MAX])}{more}"


# --- one query ------------------------------------------------------------------------------------


def _query(stream: QueryStream) -> ast.Query:
    start = stream.current.span.start
    stream.begin_query()
    if not stream.take_word("query"):
        _no_query(stream)
    name = stream.name("a query name", "after `query`")
    parameters: tuple[ast.ParameterDecl, ...] = ()
    if stream.take_punct("("):
        parameters = stream.separated(_parameter, ")", "in the parameters")
    annotations = _annotations(stream)
    body = _body(stream, name.text)
    stream.require_few_variables()
    return ast.Query(
        name=name.text,
        name_span=name.span,
        parameters=parameters,
        description=annotations.get("description"),
        instruction=annotations.get("instruction"),
        body=body,
        span=stream.span_from(start),
    )


def _no_query(stream: QueryStream) -> NoReturn:
    word = stream.current.text.lower()
    hint = None
    if word in _CYPHER_WORDS and stream.peek().text == "(":
        hint = "this looks like Cypher; `omnigraph translate --from cypher FILE` writes it anew"
    elif word in _BODY_WORDS:
        hint = "wrap it in a named query: `query name() { … }`"
    elif stream.current.kind in (TokenKind.WORD, TokenKind.TYPE):
        example = "a text holds queries: `query name() { match { … } return { … } }`"
        hint = did_you_mean(word, ("query",)) or example
    stream.unexpected("`query`", "or the end of the input", ("query",), hint=hint)


def _annotations(stream: QueryStream) -> dict[str, str]:
    found: dict[str, str] = {}
    while stream.take_punct("@"):
        word = stream.expect_word(*_ANNOTATIONS, where="after `@`")
        if word.text in found:
            stream.fail(f"`@{word.text}` is given twice", word.span)
        where = f"of `@{word.text}`"
        stream.expect_punct("(", where)
        found[word.text] = stream.string(where)
        stream.expect_punct(")", where)
    return found


def _body(stream: QueryStream, query_name: str) -> ast.ReadBody | ast.WriteBody:
    if not stream.take_punct("{"):
        stream.unexpected("`{`", f"to open the body of `{query_name}`")
    body: ast.ReadBody | ast.WriteBody
    if stream.at_word("match"):
        body = parse_read(stream)
    elif stream.at_word(*_STATEMENT_WORDS):
        body = parse_write(stream)
    else:
        stream.unexpected(
            "`match`, `insert`, `update`, `delete` or `for`", f"in `{query_name}`", _BODY_WORDS
        )
    stream.expect_punct("}", f"at the end of `{query_name}`")
    return body


# --- parameters -----------------------------------------------------------------------------------


def _parameter(stream: QueryStream) -> ast.ParameterDecl:
    stream.count_clause()
    variable = stream.variable("a parameter")
    stream.expect_punct(":", f"after `${variable.name}`")
    type_ = _parameter_type(stream)
    if stream.take_punct("?"):
        type_ = type_.with_nullable(True)
    return ast.ParameterDecl(variable.name, type_, stream.span_from(variable.span.start))


def _parameter_type(stream: QueryStream) -> ParameterType:
    if stream.current.text == "[" and stream.peek().text == "{":
        stream.advance()
        records = _record(stream)
        stream.expect_punct("]", "after the record type")
        return records
    if stream.take_punct("["):
        item = _scalar(stream, "in the list type")
        stream.expect_punct("]", "after the list type")
        return ValueType(item, is_list=True)
    if stream.current.text == "Vector" and stream.current.kind is TokenKind.TYPE:
        stream.advance()
        stream.expect_punct("(", "after `Vector`")
        dimension = stream.integer(I64_MAX, "for the dimension")
        stream.expect_punct(")", "after the dimension")
        return ValueType(Scalar.VECTOR, vector_dim=dimension)
    return ValueType(_scalar(stream, "for the parameter"))


def _record(stream: QueryStream) -> RecordsType:
    opening = stream.advance()
    where = "in the record type"
    fields = stream.separated(_field, "}", where, trailing_comma=True)
    names = [name.text for name, _ in fields]
    for at, (name, _) in enumerate(fields):
        if name.text in names[:at]:
            stream.fail(f"field `{name.text}` is declared twice", name.span)
    if not fields:
        stream.fail(f"expected a field {where}", stream.span_from(opening.span.start))
    return RecordsType(tuple((name.text, type_) for name, type_ in fields))


def _field(stream: QueryStream) -> tuple[Token, ValueType]:
    stream.count_clause()
    name = stream.name("a field name", "or `}`")
    stream.expect_punct(":", f"after `{name.text}`")
    is_list = stream.take_punct("[") is not None
    type_ = ValueType(_scalar(stream, f"for `{name.text}`"), is_list=is_list)
    if is_list:
        stream.expect_punct("]", "after the list type")
    return name, type_.with_nullable(stream.take_punct("?") is not None)


def _scalar(stream: QueryStream, where: str) -> Scalar:
    token = stream.current
    if token.kind is not TokenKind.TYPE or token.text not in SCALAR_NAMES:
        stream.unexpected("a type", where, (*SCALAR_NAMES, "Vector"))
    stream.advance()
    return Scalar(token.text)


# --- writes ---------------------------------------------------------------------------------------


_IN = "after `in`"
_TRUTHS = ("true", "false")


def parse_write(stream: QueryStream) -> ast.WriteBody:
    """Read the body of a query that starts with a statement."""
    statements: list[ast.Statement] = []
    while stream.current.text != "}":
        statements.append(_statement(stream))
    return ast.WriteBody(tuple(statements))


def _statement(stream: QueryStream) -> ast.Statement:
    stream.count_clause()
    word = stream.take_word(*_STATEMENT_WORDS)
    if word is None:
        hint = None
        if stream.current.text.lower() in ("and", "or"):
            hint = "`and` and `or`, in lowercase, join the tests of one `where`"
        stream.unexpected(
            "`insert`, `update`, `delete`, `for` or `}`",
            "after the statement",
            _STATEMENT_WORDS,
            hint=hint,
        )
    if word.text == "for":
        return _loop(stream, word)
    variable = None
    if word.text == "update" and stream.current.kind is TokenKind.VAR:
        variable = stream.variable()
        stream.expect_punct(":", f"and a type after `update ${variable.name}`")
    name = stream.type_name(f"after `{word.text}`")
    if word.text == "insert":
        assignments = _assignments(stream, f"in `insert {name.text}`")
        return ast.Insert(name.text, name.span, assignments, stream.span_from(word.span.start))
    if word.text == "update":
        stream.expect_word("set", where=f"after `update {name.text}`")
        assignments = _assignments(stream, f"in `update {name.text}`")
        where = _where(stream, "the assignments")
        span = stream.span_from(word.span.start)
        return ast.Update(name.text, name.span, assignments, where, span, variable)
    where = _where(stream, f"`delete {name.text}`")
    return ast.Delete(name.text, name.span, where, stream.span_from(word.span.start))


def _loop(stream: QueryStream, word: Token) -> ast.ForEach:
    variable = stream.variable("a variable", "after `for`")
    stream.expect_word("in", where=f"after `for ${variable.name}`")
    items = _list_reference(stream, _IN)
    statements = stream.one_or_more(_statement, "a statement", "in the loop")
    return ast.ForEach(variable, items, statements, stream.span_from(word.span.start))


def _list_reference(stream: QueryStream, where: str) -> ast.Variable | ast.PropertyRef:
    """Read `$list`, or `$record.list`."""
    if stream.current.kind is not TokenKind.VAR:
        hint = "pass the list as a parameter" if stream.current.text == "[" else None
        stream.unexpected("a list parameter", where, hint=hint)
    found = parse_reference(stream)
    if isinstance(found, ast.EntityRef):
        stream.fail("expected a list parameter, found all of an entity", found.span)
    return found


# --- assignments ----------------------------------------------------------------------------------


def _assignments(stream: QueryStream, where: str) -> tuple[ast.Pair, ...]:
    return stream.one_or_more(_assignment, "an assignment", where)


def _assignment(stream: QueryStream) -> ast.Pair:
    name = stream.name("a property name or `}`")
    if not stream.take_punct(":"):
        hint = f"an assignment is written `{name.text}: value`"
        stream.unexpected("`:`", f"after `{name.text}`", hint=hint)
    value: ast.Expression
    if stream.at_word("null"):
        value = ast.NullLiteral(stream.advance().span)
    else:
        value = _computed(stream, f"for `{name.text}`")
    stream.take_punct(",")
    return ast.Pair(name.text, name.span, value)


def _computed(stream: QueryStream, where: str) -> ast.Expression:
    """Read an expression; a bare word is refused, because there are no aliases here."""
    token = stream.current
    is_word = token.kind in (TokenKind.WORD, TokenKind.TYPE) and token.text not in _TRUTHS
    if is_word and stream.peek().text != "(" and not stream.opens_block("case"):
        return parse_value(stream, where)
    return parse_expression(stream)


# --- predicates -----------------------------------------------------------------------------------


def _where(stream: QueryStream, after: str) -> ast.Predicate:
    stream.expect_word("where", where=f"after {after}")
    return _predicate(stream)


def _predicate(stream: QueryStream) -> ast.Predicate:
    return _joined(stream, "or", _conjunction)


def _conjunction(stream: QueryStream) -> ast.Predicate:
    return _joined(stream, "and", _test)


def _joined(
    stream: QueryStream,
    word: Literal["and", "or"],
    parse_operand: Callable[[QueryStream], ast.Predicate],
) -> ast.Predicate:
    """Read operands joined by ``word``; nested operands of the same word are flattened."""
    start = stream.current.span.start
    operands = [parse_operand(stream)]
    while stream.take_word(word):
        operands.append(parse_operand(stream))
    if len(operands) == 1:
        return operands[0]
    flat: list[ast.Predicate] = []
    for operand in operands:
        if isinstance(operand, ast.BooleanPredicate) and operand.operator == word:
            flat.extend(operand.operands)
        else:
            flat.append(operand)
    return ast.BooleanPredicate(word, tuple(flat), stream.span_from(start))


def _test(stream: QueryStream) -> ast.Predicate:
    stream.count_clause()
    if stream.current.text == "(":
        stream.enter()
        stream.advance()
        inner = _predicate(stream)
        stream.expect_punct(")", "after the predicate")
        stream.leave()
        return inner
    hint = None
    if stream.current.kind is TokenKind.VAR:
        hint = "`where` names a property of the type directly: `age > 3`"
    name = stream.name("a property name", "in `where`", hint=hint)
    operator = COMPARISONS.get(stream.current.text)
    if operator is not None:
        return _comparison(stream, name, operator)
    if stream.take_word("in"):
        values = (
            _list_reference(stream, _IN)
            if stream.current.kind is TokenKind.VAR
            else parse_list(stream, _IN)
        )
        return ast.Membership(name.text, name.span, values, stream.span_from(name.span.start))
    if not stream.at_word("is"):
        _no_test(stream, name)
    negated = parse_null_test(stream)
    return ast.PropertyNullTest(name.text, name.span, negated, stream.span_from(name.span.start))


def _comparison(
    stream: QueryStream, name: Token, operator: ast.ComparisonOperator
) -> ast.Comparison:
    stream.advance()
    if stream.at_word("null"):
        hint = f"write `{name.text} is null` or `{name.text} is not null`"
        stream.unexpected("a value", f"after `{operator}`", hint=hint)
    value = _computed(stream, f"after `{operator}`")
    return ast.Comparison(name.text, name.span, operator, value, stream.span_from(name.span.start))


def _no_test(stream: QueryStream, name: Token) -> NoReturn:
    hint = stream.foreign_hint()
    if stream.at_word("contains", "starts_with"):
        hint = "`where` compares whole values only; find the keys with a read first"
    elif name.text == "not":
        hint = "there is no `not` in `where`: turn the comparison around, as in `!=`"
    stream.unexpected("a comparison", f"after `{name.text}`", ("in", "is"), hint=hint)
