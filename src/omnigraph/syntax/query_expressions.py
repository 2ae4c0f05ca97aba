"""The token stream of `.gq`, and its expressions and literals.

::

    expression     = multiplicative { ( "+" | "-" ) multiplicative }
    multiplicative = primary { ( "*" | "/" | "%" ) primary }
    primary        = "(" expression ")" | call | conditional | block
                   | var [ "." ( ident | "*" ) ] | literal | ident

A binary operator always continues the expression before it, even where a new clause or item could
start: `$a.x -3` is a difference. A `-` directly before digits is a sign only where an operand is
expected, and a `[` directly after an operand is an index. A word followed by `(` is a call; any
other word names the alias of a return item.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import NoReturn, TypeVar

from omnigraph.errors import LimitExceeded, QueryParseError, ValueConversionError
from omnigraph.model.values import parse_date, parse_datetime
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Lexer, Source, Span, Token, TokenKind, TokenStream

# --- tokens ---------------------------------------------------------------------------------------


T = TypeVar("T")

I64_MAX = 2**63 - 1
U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1

OPERATORS_MAX = 100
"""Maximum number of arithmetic operators in one expression. Each may add a level to its tree, which
is processed recursively; nesting is limited for the same reason."""

TEXT_BYTES_MAX = 1 << 20
TOKENS_MAX = 50_000
CLAUSES_MAX = 2_000
VARIABLES_MAX = 1_000
"""Limits of a text and of each query in it; within them a text compiles in under a second."""

_PUNCTUATION = ["{", "}", "(", ")", "[", "]", ":", ",", ".", "@", "?"]
_SYMBOLS = ["=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%"]

FOREIGN_OPERATORS = {
    "==": "equality is written with a single `=`",
    "<>": "inequality is written `!=`",
    "->": "a hop is written `$a knows $b`, without an arrow",
}
"""Operators of other languages, lexed as tokens so that the parser can explain the mistake."""

_LEXER = Lexer(
    _PUNCTUATION + _SYMBOLS + list(FOREIGN_OPERATORS),
    QueryParseError,
    hints={
        "!": "inequality is written `!=`, negation `not { … }`",
        "&": "the clauses of a match all have to hold: write them one after another",
        "|": "write alternatives as the clauses of `any { … }`",
        "~": "texts are matched with `contains`, `starts_with` or `match_text(…)`",
    },
    tokens_max=TOKENS_MAX,
)


def require_within(count: int, limit: int, what: str) -> None:
    """Raise `LimitExceeded` if there are more than ``limit``."""
    if count > limit:
        raise LimitExceeded(
            what,
            limit,
            count,
            hint="give values as parameters, a list of them for `in`, or ask in several queries",
        )


class QueryStream(TokenStream):
    """A cursor over one `.gq` text."""

    def __init__(self, source: Source) -> None:
        super().__init__(source, _LEXER, QueryParseError)
        require_within(len(self._tokens), TOKENS_MAX, "the number of tokens in a query text")
        self.operators = 0
        """Arithmetic operators seen so far in the current expression."""
        self._clauses = 0
        self._query_began = 0

    # --- limits ----------------------------------------------------------------------------------

    def begin_query(self) -> None:
        """Reset the counts of clauses and variables."""
        self._clauses = 0
        self._query_began = self._at

    def count_clause(self) -> None:
        """Count one clause, parameter, item, key or statement; raises `LimitExceeded`."""
        self._clauses += 1
        require_within(self._clauses, CLAUSES_MAX, "the number of clauses in a query")

    def require_few_variables(self) -> None:
        """Raise `LimitExceeded` if the query that ends here has too many variables."""
        tokens = self._tokens[self._query_began : self._at]
        names = [token.text for token in tokens if token.kind is TokenKind.VAR]
        # Every `$_` is a separate variable.
        count = len(set(names)) + names.count(ast.ANONYMOUS)
        require_within(count, VARIABLES_MAX, "the number of variables in a query")

    # --- repetition ------------------------------------------------------------------------------

    def one_or_more(
        self, parse: Callable[[QueryStream], T], what: str, where: str
    ) -> tuple[T, ...]:
        """Parse `{ what … }`; an empty block is an error."""
        found: list[T] = []
        block = self.block(lambda: found.append(parse(self)), where)
        if not found:
            self.fail(f"expected {what} {where}, found '}}'", Span(block.end - 1, block.end))
        return tuple(found)

    def separated(
        self,
        parse: Callable[[QueryStream], T],
        closing: str,
        where: str,
        *,
        trailing_comma: bool = False,
    ) -> tuple[T, ...]:
        """Parse `item, item, …` up to and including ``closing``; possibly no item."""
        found: list[T] = []
        if self.take_punct(closing):
            return ()
        while True:
            found.append(parse(self))
            comma = self.take_punct(",")
            if (not comma or trailing_comma) and self.take_punct(closing):
                return tuple(found)
            if not comma:
                self.unexpected(f"`,` or `{closing}`", where, hint=self.foreign_hint())

    # --- tokens ----------------------------------------------------------------------------------

    def opens_block(self, *words: str) -> bool:
        """Whether the next tokens are one of these words and `{`."""
        return self.at_word(*words) and self.peek().text == "{"

    def variable(self, what: str = "a variable", where: str = "") -> ast.Variable:
        """Read `$name`."""
        token = self.current
        if token.kind is not TokenKind.VAR:
            name = f"write `${token.text}`" if token.kind is TokenKind.WORD else None
            self.unexpected(what, where, hint=name)
        self.advance()
        return ast.Variable(token.text, token.span)

    def name(self, what: str, where: str = "", *, hint: str | None = None) -> Token:
        """Read a lowercase identifier."""
        token = self.current
        if token.kind is not TokenKind.WORD:
            if token.kind is TokenKind.TYPE:
                hint = f"such names start with a lowercase letter: `{_lowered(token.text)}`"
            self.unexpected(what, where, hint=hint)
        return self.advance()

    def type_name(self, where: str) -> Token:
        """Read the name of a node or edge type."""
        if self.current.kind is not TokenKind.TYPE:
            word = self.current.kind is TokenKind.WORD
            hint = "type names start with an uppercase letter" if word else None
            self.unexpected("a type name", where, hint=hint)
        return self.advance()

    def string(self, where: str) -> str:
        """Read a string and decode its escapes."""
        return self.string_value(self.expect_kind(TokenKind.STRING, "a string", where))

    def integer(self, maximum: int, where: str) -> int:
        """Read an integer of at most ``maximum``."""
        return self.integer_value(self.expect_kind(TokenKind.INT, "an integer", where), maximum)

    def integer_value(self, token: Token, maximum: int) -> int:
        """The value of an integer token that was just read."""
        self.end_number(token)
        digits = token.text.lstrip("0") or "0"
        # Check the length first: converting a megabyte of digits is slow, and Python refuses it.
        if len(digits) > len(str(maximum)) or int(digits) > maximum:
            self.fail(f"{token.describe()} is too large; the largest is {maximum}", token.span)
        return int(digits)

    def end_number(self, token: Token) -> None:
        """Fail if a word directly follows the number, as in `1e3`."""
        after = self.current
        if after.span.start == token.span.end and after.kind in (TokenKind.WORD, TokenKind.TYPE):
            hint = None
            if after.text[0] in "eE":
                hint = "numbers have no exponent: write all digits"
            elif after.text[0] == "_":
                hint = "digits are written without separators"
            number = Token(TokenKind.INT, token.text + after.text, token.span.to(after.span))
            self.fail(f"{number.describe()} is not a number", number.span, hint=hint)

    # --- errors ----------------------------------------------------------------------------------

    def foreign_hint(self) -> str | None:
        """A hint if the next token is an operator of another language."""
        return FOREIGN_OPERATORS.get(self.current.text)


def _lowered(name: str) -> str:
    """The name with a lowercase first letter, for hints where only such names are allowed."""
    return name.lower() if name.isupper() else name[0].lower() + name[1:]


# --- expressions ----------------------------------------------------------------------------------


_OPERATORS: dict[str, tuple[ast.ArithmeticOperator, int]] = {
    "+": ("+", 1),
    "-": ("-", 1),
    "*": ("*", 2),
    "/": ("/", 2),
    "%": ("%", 2),
}
"""Arithmetic operators and their precedence."""

ARITHMETIC = frozenset(_OPERATORS)

_SEARCH_CALLS: dict[str, tuple[ast.SearchFunction, int, int]] = {
    "search": ("search", 2, 2),
    "match_text": ("match_text", 2, 2),
    "fuzzy": ("fuzzy", 2, 3),
    "bm25": ("bm25", 2, 2),
    "nearest": ("nearest", 2, 2),
    "rrf": ("rrf", 2, 3),
    "highlight": ("highlight", 2, 3),
}
_TEXT_QUERIES: dict[str, ast.TextQueryKind] = {kind: kind for kind in ast.TEXT_QUERY_KINDS}
_SCALAR_CALLS: dict[str, tuple[ast.ScalarFunction, int, int | None]] = {
    "lower": ("lower", 1, 1),
    "upper": ("upper", 1, 1),
    "length": ("length", 1, 1),
    "size": ("size", 1, 1),
    "coalesce": ("coalesce", 2, None),
    "abs": ("abs", 1, 1),
    "round": ("round", 1, 2),
    "date_part": ("date_part", 2, 2),
    "date_trunc": ("date_trunc", 2, 2),
    "concat": ("concat", 2, None),
    "substring": ("substring", 2, 3),
    "split": ("split", 2, 2),
    "replace": ("replace", 3, 3),
    "trim": ("trim", 1, 1),
    "floor": ("floor", 1, 1),
    "ceil": ("ceil", 1, 1),
    "sqrt": ("sqrt", 1, 1),
    "pow": ("pow", 2, 2),
    "log": ("log", 1, 1),
    **{name: (name, 1, 1) for name in ast.PERIOD_FUNCTIONS},
}
"""Each function with its minimum and maximum number of arguments; None: no maximum."""
_AGGREGATES: dict[str, ast.AggregateFunction] = {name: name for name in ast.AGGREGATE_FUNCTIONS}
_FUNCTIONS = (
    *(*_SEARCH_CALLS, *_TEXT_QUERIES, *_AGGREGATES, *_SCALAR_CALLS),
    *("if", "now", "date", "datetime"),
)


def parse_expression(stream: QueryStream) -> ast.Expression:
    """Read one expression."""
    stream.operators = 0
    return parse_operand(stream)


def parse_value(stream: QueryStream, where: str) -> ast.Expression:
    """Read a literal, a variable or `now()`."""
    token = stream.current
    if token.kind is TokenKind.VAR:
        return stream.variable()
    if token.kind is TokenKind.WORD and token.text == "now" and stream.peek().text == "(":
        return _now(stream)
    literal = _literal(stream)
    if literal is None:
        hint = None
        if stream.peek().text == "(":
            hint = "nothing is computed here; pass the result as a parameter"
        elif token.kind in (TokenKind.WORD, TokenKind.TYPE):
            hint = f'strings are written in double quotes: "{token.text}"'
        stream.unexpected("a literal, a parameter or `now()`", where, hint=hint)
    return literal


def parse_list(stream: QueryStream, where: str) -> ast.ListLiteral:
    """Read `[ … ]` in a place where a variable is allowed too."""
    if stream.current.text != "[":
        hint = (
            "lists are written in square brackets: `[1, 2]`" if stream.current.text == "(" else None
        )
        stream.unexpected("`[` or a variable", where, hint=hint)
    return _list(stream)


def parse_reference(stream: QueryStream) -> ast.Variable | ast.PropertyRef | ast.EntityRef:
    """Read `$name`, `$name.property`, `$name.@type` or `$name.*`."""
    variable = stream.variable()
    if not stream.take_punct("."):
        return variable
    if stream.take_punct("*"):
        return ast.EntityRef(variable, stream.span_from(variable.span.start))
    if stream.take_punct("@"):
        word = stream.expect_word("type", where=f"after `${variable.name}.@`")
        return ast.PropertyRef(variable, ast.TYPE, word.span, variable.span.to(word.span))
    name = stream.name("a property name", f"after `${variable.name}.`")
    return ast.PropertyRef(variable, name.text, name.span, variable.span.to(name.span))


# --- operators ------------------------------------------------------------------------------------


def parse_operand(stream: QueryStream, binding: int = 0) -> ast.Expression:
    """Read operands joined by operators that bind more tightly than ``binding``."""
    start = stream.current.span.start
    left = _primary(stream)
    while stream.current.text == "[" and stream.current.span.start == stream.span_from(start).end:
        stream.enter()
        stream.advance()
        index = parse_operand(stream)
        stream.expect_punct("]", "after the index")
        stream.leave()
        left = ast.ListItem(left, index, stream.span_from(start))
    while (entry := _OPERATORS.get(stream.current.text)) is not None and entry[1] > binding:
        operator, tightness = entry
        stream.operators += 1
        if stream.operators > OPERATORS_MAX:
            stream.fail(
                f"more than {OPERATORS_MAX} arithmetic operators in one expression",
                stream.current.span,
            )
        stream.advance()
        right = parse_operand(stream, tightness)
        # By tokens: the spans of operands do not include parentheses.
        left = ast.Arithmetic(operator, left, right, stream.span_from(start))
    return left


def _primary(stream: QueryStream) -> ast.Expression:
    token = stream.current
    if token.kind is TokenKind.VAR:
        return parse_reference(stream)
    if token.kind is TokenKind.WORD:
        if stream.peek().text == "(":
            return _call(stream)
        if stream.opens_block(*ast.BLOCK_FUNCTIONS):
            return _block(stream)
        if stream.opens_block("case"):
            return _conditional(stream)
        if token.text not in ("true", "false"):
            stream.advance()
            return ast.AliasRef(token.text, token.span)
    elif token.text == "(":
        return _parenthesised(stream)
    return _literal(stream) or _no_expression(stream)


def _parenthesised(stream: QueryStream) -> ast.Expression:
    stream.enter()
    stream.advance()
    inner = parse_operand(stream)
    if not stream.take_punct(")"):
        hint = stream.foreign_hint()
        if stream.current.text == ":":
            hint = "a node is bound as `$a: Person`, without parentheses"
        stream.unexpected("`)`", hint=hint)
    stream.leave()
    return inner


def _no_expression(stream: QueryStream) -> NoReturn:
    token = stream.current
    if token.text == "-":
        after = stream.peek()
        what = f"`0 - ${after.text}…`" if after.kind is TokenKind.VAR else "`0 - …`"
        stream.fail(
            "a sign must touch the digits of a number",
            token.span,
            hint=f"write {what} to negate a value",
        )
    hint = stream.foreign_hint()
    if token.text == ".":
        hint = "a property is written `$x.name`"
    words = _FUNCTIONS if stream.peek().text == "(" else ("true", "false")
    stream.unexpected("an expression", words=words, hint=hint)


def _block(stream: QueryStream) -> ast.BlockValue:
    # Imported late: the clauses of a block contain expressions, and an expression may be a block.
    from omnigraph.syntax.query_read import parse_block

    operators = stream.operators
    block = parse_block(stream)
    stream.operators = operators
    return block


# --- calls ----------------------------------------------------------------------------------------


def _call(stream: QueryStream) -> ast.Expression:
    name = stream.current
    if (search := _SEARCH_CALLS.get(name.text)) is not None:
        return _search_call(stream, *search)
    if (aggregate := _AGGREGATES.get(name.text)) is not None:
        return _aggregate(stream, aggregate)
    if (scalar := _SCALAR_CALLS.get(name.text)) is not None:
        function, fewest, most = scalar
        arguments, span = _arguments(stream, fewest, most)
        return ast.FunctionCall(function, arguments, span)
    if (kind := _TEXT_QUERIES.get(name.text)) is not None:
        arguments, span = _arguments(stream, 1, 1)
        return ast.TextQuery(kind, arguments[0], span)
    if name.text == "if":
        return _conditional(stream)
    if name.text == "now":
        return _now(stream)
    literal = _literal(stream)
    if literal is None:
        stream.fail(
            f"unknown function {name.describe()}",
            name.span,
            hint=did_you_mean(name.text, _FUNCTIONS)
            or f"the functions are {', '.join(sorted(_FUNCTIONS))}",
        )
    return literal


def _arguments(
    stream: QueryStream, fewest: int, most: int | None
) -> tuple[tuple[ast.Expression, ...], Span]:
    """Read `name(…)` with ``fewest`` to ``most`` arguments."""
    stream.enter()
    name = stream.advance()
    stream.advance()
    found = stream.separated(parse_operand, ")", f"in the arguments of `{name.text}`")
    stream.leave()
    span = stream.span_from(name.span.start)
    if len(found) < fewest or (most is not None and len(found) > most):
        wanted = f"{fewest} or {most}"
        if most is None:
            wanted = f"at least {fewest}"
        elif fewest == most:
            wanted = str(fewest)
        plural = "" if wanted == "1" else "s"
        stream.fail(f"`{name.text}` takes {wanted} argument{plural}, not {len(found)}", span)
    return found, span


def _search_call(
    stream: QueryStream, function: ast.SearchFunction, fewest: int, most: int
) -> ast.SearchCall:
    arguments, span = _arguments(stream, fewest, most)
    if function == "nearest" and not isinstance(arguments[0], ast.PropertyRef):
        stream.fail(
            "the first argument of `nearest` must be a property such as `$x.embedding`",
            arguments[0].span,
        )
    if function == "rrf":
        for arm in arguments[:2]:
            if not (isinstance(arm, ast.SearchCall) and arm.function in ("nearest", "bm25")):
                stream.fail(
                    "the first two arguments of `rrf` must be `nearest(…)` or `bm25(…)` calls",
                    arm.span,
                )
    return ast.SearchCall(function, arguments, span)


def _aggregate(stream: QueryStream, function: ast.AggregateFunction) -> ast.Aggregate:
    stream.enter()
    start = stream.advance().span.start
    stream.advance()
    # `count(distinct)` counts an alias of that name.
    distinct = stream.at_word("distinct") and stream.peek().text != ")"
    if distinct:
        stream.advance()
    if stream.current.text == "*" and (distinct or function != "count"):
        stream.fail("`*` stands for all rows in `count(*)` only", stream.current.span)
    argument = None if stream.take_punct("*") else parse_operand(stream)
    fraction = None
    if function == "percentile":
        stream.expect_punct(",", "and a fraction, such as `percentile($x.p, 0.9)`")
        fraction = parse_operand(stream)
    stream.expect_punct(")", f"after the argument of `{function}`")
    stream.leave()
    return ast.Aggregate(function, argument, distinct, stream.span_from(start), fraction)


def _conditional(stream: QueryStream) -> ast.Conditional:
    # Imported late: conditions contain expressions, and expressions conditions.
    from omnigraph.syntax.query_conditions import parse_conditional

    return parse_conditional(stream)


def _now(stream: QueryStream) -> ast.Now:
    _, span = _arguments(stream, 0, 0)
    return ast.Now(span)


# --- literals -------------------------------------------------------------------------------------


def _literal(stream: QueryStream) -> ast.Literal | ast.ListLiteral | None:
    """Read a literal if one starts here."""
    token = stream.current
    if token.kind is TokenKind.STRING:
        stream.advance()
        return ast.Literal(stream.string_value(token), token.span)
    if token.kind is TokenKind.INT or token.kind is TokenKind.FLOAT:
        return _number(stream, token, 1)
    if token.text == "-":
        digits = stream.peek()
        touching = digits.span.start == token.span.end
        if touching and (digits.kind is TokenKind.INT or digits.kind is TokenKind.FLOAT):
            stream.advance()
            return _number(stream, token, -1)
    elif token.text == "[":
        return _list(stream)
    elif token.kind is TokenKind.WORD:
        return _word_literal(stream, token)
    return None


def _number(stream: QueryStream, first: Token, sign: int) -> ast.Literal:
    token = stream.advance()
    span = first.span.to(token.span)
    if token.kind is TokenKind.INT:
        # The least integer has no positive counterpart.
        maximum = I64_MAX if sign > 0 else I64_MAX + 1
        return ast.Literal(sign * stream.integer_value(token, maximum), span)
    stream.end_number(token)
    value = sign * float(token.text)
    if math.isinf(value):
        stream.fail(f"{token.describe()} is too large for a number", span)
    return ast.Literal(value, span)


def _word_literal(stream: QueryStream, token: Token) -> ast.Literal | None:
    if token.text in ("true", "false"):
        stream.advance()
        return ast.Literal(token.text == "true", token.span)
    if stream.peek().text != "(":
        return None
    if token.text == "date":
        return _temporal(stream, parse_date, "a date", '`date("2031-04-09")`')
    if token.text == "datetime":
        example = '`datetime("2031-04-09T07:30:00Z")`'
        return _temporal(stream, parse_datetime, "a date-time", example)
    return None


def _temporal(
    stream: QueryStream, decode: Callable[[str], dt.date], what: str, example: str
) -> ast.Literal:
    name = stream.advance()
    stream.advance()
    where = f"in `{name.text}(…)`"
    token = stream.current
    text = stream.string(where)
    stream.expect_punct(")", where)
    try:
        value = decode(text)
    except ValueConversionError:
        stream.fail(f"{token.describe()} is not {what}", token.span, hint=f"write {example}")
    return ast.Literal(value, stream.span_from(name.span.start))


def _list(stream: QueryStream) -> ast.ListLiteral:
    stream.enter()
    start = stream.advance().span.start
    items = stream.separated(_list_item, "]", "in the list")
    stream.leave()
    return ast.ListLiteral(items, stream.span_from(start))


def _list_item(stream: QueryStream) -> ast.Literal | ast.ListLiteral:
    item = _literal(stream)
    if item is None:
        hint = None
        if stream.current.kind is TokenKind.VAR:
            hint = "a list holds literals only; pass the whole list as one parameter"
        elif stream.current.text == ":" or stream.peek().text == ":":
            hint = FOREIGN_OPERATORS["->"]
        stream.unexpected("a literal", "in the list", hint=hint)
    return item
