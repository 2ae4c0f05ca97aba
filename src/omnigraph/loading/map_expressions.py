"""Expressions of a mapping: a column of the input, or functions of columns and constants.

The left side of `column=property` is the name of a column, plain or in backticks or quotes; its
position from 1 (`#2`); or a call of one of `FUNCTIONS`. Within a call, words and names in backticks
are columns, and texts in quotes, numbers, `true`, `false` and `null` are constants, as in `.gq`.
Functions that `.gq` has too return the same values; null gives null, except in `coalesce`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError
from omnigraph.loading.records.problems import name_hint
from omnigraph.model.arrow import TIMESTAMP
from omnigraph.model.arrow_columns import sound_texts
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import MS_MAX, MS_MIN
from omnigraph.query.evaluate import call

FUNCTIONS: Mapping[str, tuple[int, int, str]] = {
    "lower": (1, 1, "lower(text)"),
    "upper": (1, 1, "upper(text)"),
    "trim": (1, 1, "trim(text)"),
    "replace": (3, 3, 'replace(text, "old", "new")'),
    "concat": (2, 20, "concat(a, b, …)"),
    "coalesce": (2, 20, "coalesce(a, b, …)"),
    "nullif": (2, 2, 'nullif(text, "N/A")'),
    "split": (2, 2, 'split(text, ";")'),
    "date": (2, 2, 'date(text, "%d/%m/%Y")'),
    "datetime": (2, 2, 'datetime(text, "%d/%m/%Y %H:%M")'),
    "from_seconds": (1, 1, "from_seconds(number)"),
    "from_millis": (1, 1, "from_millis(number)"),
    "const": (1, 1, 'const("text")'),
}
"""By name: the least and the greatest number of arguments, and the signature for messages."""

_CONSTANT_ARGUMENTS = {
    "replace": (1, 2),
    "nullif": (1,),
    "split": (1,),
    "date": (1,),
    "datetime": (1,),
    "const": (0,),
}
"""By function: positions of arguments that must be constants, which are texts except in `const`."""
_DEPTH_MAX = 20
_DIRECTIVES = "YmdyHMSIpbBaAjz%"
"""Directives allowed after `%` in a format: those that mean the same in Arrow and in Python."""
_TEXT = ValueType(Scalar.STRING, nullable=True)


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column by its name, or by its position from 1."""

    name: str
    position: int | None = None

    def __str__(self) -> str:
        return f"#{self.position}" if self.position is not None else self.name


@dataclass(frozen=True, slots=True)
class MapConstant:
    """The same value for all rows."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class MapCall:
    """A function of other expressions."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = ColumnRef | MapConstant | MapCall


def columns_of(expression: Expression) -> Iterator[ColumnRef]:
    """The columns an expression reads."""
    if isinstance(expression, ColumnRef):
        yield expression
    elif isinstance(expression, MapCall):
        for argument in expression.arguments:
            yield from columns_of(argument)


# --- parsing --------------------------------------------------------------------------------------

_POSITION = re.compile(r"#([1-9][0-9]{0,5})")
_QUOTED = re.compile(r'`([^`]+)`|"([^"\\]+)"')
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(.*\)", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>"(?:[^"\\]|\\.)*")
    | `(?P<name>[^`]+)`
    | \#(?P<position>[1-9][0-9]{0,5})
    | (?P<number>-?[0-9]+(?:\.[0-9]+)?)
    | (?P<word>[^\W\d][\w.]*)
    | (?P<mark>[(),])
    )""",
    re.VERBOSE,
)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def parse_expression(text: str) -> Expression:
    """The left side of a mapping; raises `InputError` naming what is wrong with it.

    >>> parse_expression("IMDB Rating")
    ColumnRef(name='IMDB Rating', position=None)
    >>> parse_expression("#2")
    ColumnRef(name='#2', position=2)
    >>> parse_expression("lower(trim(`e mail`))").arguments[0].arguments
    (ColumnRef(name='e mail', position=None),)
    """
    text = text.strip()
    if found := _POSITION.fullmatch(text):
        return ColumnRef(text, int(found[1]))
    if found := _QUOTED.fullmatch(text):
        return ColumnRef(found[1] or found[2])
    if (found := _CALL.fullmatch(text)) and found[1] in FUNCTIONS:
        return _Parser(text).whole()
    if not text:
        raise InputError("a mapping has no column", hint='write it as "Full Name=name"')
    return ColumnRef(text)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> Expression:
        parsed = self._value()
        if self._text[self._at :].strip():
            raise self._wrong("there is more behind its closing bracket")
        return parsed

    def _value(self) -> Expression:
        found = self._next()
        match found.lastgroup:
            case "text":
                return MapConstant(self._unescaped(found["text"]))
            case "number":
                number = found["number"]
                return MapConstant(float(number) if "." in number else int(number))
            case "name":
                return ColumnRef(found["name"])
            case "position":
                return ColumnRef(f"#{found['position']}", int(found["position"]))
            case "word":
                return self._word(found["word"])
            case _:
                raise self._wrong(f"'{found['mark']}' stands where a value should")

    def _word(self, word: str) -> Expression:
        rest = self._text[self._at :].lstrip()
        if not rest.startswith("("):
            return MapConstant(_WORDS[word]) if word in _WORDS else ColumnRef(word)
        if word not in FUNCTIONS:
            raise InputError(
                f"the mapping '{self._text}' has no function '{word}'",
                hint=name_hint(word, FUNCTIONS, "functions"),
            )
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._wrong(f"it has more than {_DEPTH_MAX} calls within each other")
        self._next()
        arguments = [self._value()]
        while (mark := self._next()["mark"]) == ",":
            arguments.append(self._value())
        if mark != ")":
            raise self._wrong("a comma or a closing bracket is missing")
        self._depth -= 1
        return self._checked(word, tuple(arguments))

    def _checked(self, function: str, arguments: tuple[Expression, ...]) -> Expression:
        least, greatest, written = FUNCTIONS[function]
        if not least <= len(arguments) <= greatest:
            raise self._wrong(f"'{function}' is written {written}")
        for position in _CONSTANT_ARGUMENTS.get(function, ()):
            given = arguments[position]
            is_fitting = isinstance(given, MapConstant) and (
                function == "const" or isinstance(given.value, str)
            )
            if not is_fitting:
                raise self._wrong(f"'{function}' takes a constant there: {written}")
        if function in ("split", "replace") and arguments[1] == MapConstant(""):
            raise self._wrong(f"'{function}' looks for a text that is not empty: {written}")
        if function in ("date", "datetime"):
            self._check_format(arguments[1])
        if function == "const":
            return arguments[0]
        return MapCall(function, arguments)

    def _check_format(self, given: Expression) -> None:
        assert isinstance(given, MapConstant)
        format = str(given.value)
        for directive in re.findall(r"%(.?)", format):
            if directive not in _DIRECTIVES or not directive:
                known = ", ".join(f"%{each}" for each in _DIRECTIVES)
                raise self._wrong(f"a format has no '%{directive}'; it has {known}")
        if "%" not in format:
            raise self._wrong('a format says where the parts are, as in "%d/%m/%Y"')

    def _next(self) -> re.Match[str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            rest = self._text[self._at :].strip()
            raise self._wrong(f"'{rest}' cannot be read" if rest else "it ends too early")
        self._at = found.end()
        return found

    def _unescaped(self, quoted: str) -> str:
        def decode(hit: re.Match[str]) -> str:
            if hit[1] not in _ESCAPES:
                raise self._wrong(f"a text has no '\\{hit[1]}'")
            return _ESCAPES[hit[1]]

        return re.sub(r"\\(.)", decode, quoted[1:-1], flags=re.DOTALL)

    def _wrong(self, reason: str) -> InputError:
        return InputError(
            f"the mapping '{self._text}' cannot be read: {reason}",
            hint="columns are words or names in `backticks`, texts are in quotes",
        )


# --- evaluation -----------------------------------------------------------------------------------


class WrongColumnType(Exception):
    """A function cannot take a column of this type; the message says which."""


@dataclass(slots=True)
class MapEvaluation:
    """Evaluates expressions over the columns of some rows."""

    column: Callable[[ColumnRef], pa.Array]
    rows: int
    refuse: Callable[[int, str, str], None]
    """Called with a row, a message and a hint for a value that a function cannot take."""

    def values(self, expression: Expression) -> pa.Array:
        """One value per row; raises `WrongColumnType`."""
        found = self._value(expression)
        if isinstance(found, pa.Scalar):
            return pa.repeat(found, self.rows)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def _value(self, expression: Expression) -> Any:
        match expression:
            case ColumnRef():
                column, bad = sound_texts(self.column(expression))
                for row in bad:
                    self.refuse(
                        row, f"column '{expression}' is not UTF-8", "save the texts as UTF-8"
                    )
                return column
            case MapConstant():
                return pa.scalar(expression.value)
            case MapCall():
                return self._call(expression.function, expression.arguments)

    def _call(self, function: str, arguments: Sequence[Expression]) -> Any:
        constants = [each.value for each in arguments if isinstance(each, MapConstant)]
        match function:
            case "lower" | "upper":
                return call(function, [self._text(arguments[0], function)], _TEXT)
            case "trim":
                return pc.utf8_trim_whitespace(self._text(arguments[0], function))
            case "replace":
                pattern, replacement = arguments[1:]
                assert isinstance(pattern, MapConstant) and isinstance(replacement, MapConstant)
                return pc.replace_substring(
                    self._text(arguments[0], function),
                    pattern=pattern.value,
                    replacement=replacement.value,
                )
            case "concat":
                parts = [self._text(each, function) for each in arguments]
                return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")
            case "coalesce":
                return self._coalesced(arguments)
            case "nullif":
                texts = self._text(arguments[0], function)
                return _without(texts, str(constants[-1]))
            case "split":
                return split_texts(self._array(arguments[0], function), str(constants[-1]))
            case "date" | "datetime":
                moments = self._moments(arguments[0], function, str(constants[-1]))
                return moments.cast(pa.date32()) if function == "date" else moments
            case _:
                return self._from_epoch(function, arguments[0])

    def _text(self, argument: Expression, function: str) -> Any:
        given = self._value(argument)
        if pa.types.is_string(given.type):
            return given
        fitting = (pa.types.is_integer, pa.types.is_large_string, pa.types.is_null)
        if any(fits(given.type) for fits in fitting):
            return given.cast(pa.string())
        raise WrongColumnType(f"'{function}' takes texts, not {given.type}")

    def _array(self, argument: Expression, function: str) -> pa.Array:
        texts = self._text(argument, function)
        return pa.repeat(texts, self.rows) if isinstance(texts, pa.Scalar) else texts

    def _coalesced(self, arguments: Sequence[Expression]) -> Any:
        values = [self._value(each) for each in arguments]
        kinds = {each.type for each in values if not pa.types.is_null(each.type)}
        if len(kinds) > 1:
            names = sorted(map(str, kinds))
            raise WrongColumnType(f"'coalesce' takes values of one type, not {' and '.join(names)}")
        if kinds:
            (kind,) = kinds
            values = [each.cast(kind) for each in values]
        return pc.coalesce(*values)

    def _moments(self, argument: Expression, function: str, format: str) -> pa.Array:
        texts = self._array(argument, function)
        texts = _without(texts, "")
        parsed = pc.strptime(texts, format=format, unit="ms", error_is_null=True)
        parsed = parsed.cast(pa.timestamp("ms")) if parsed.type.tz is None else parsed
        failed = pc.and_(pc.is_null(parsed), pc.is_valid(texts))
        # Arrow reads 31 February as 2 March: results in the first days of a month are suspect.
        early = pc.less_equal(pc.day(parsed.view(pa.int64()).cast(pa.timestamp("ms"))), 3)
        suspects = pc.unique(texts.filter(early.fill_null(False))).to_pylist()
        wrong = [text for text in suspects if not _is_moment(text, format)]
        if wrong:
            failed = pc.or_(failed, pc.is_in(texts, value_set=pa.array(wrong, pa.string())))
            parsed = pc.if_else(failed, pa.scalar(None, parsed.type), parsed)
        for row in pc.indices_nonzero(failed).to_pylist():
            what = "date" if function == "date" else "moment"
            message = f"'{texts[row].as_py()}' is no {what} in the format \"{format}\""
            self.refuse(row, message, "change the format, or the value")
        return parsed.view(pa.int64()).cast(TIMESTAMP)

    def _from_epoch(self, function: str, argument: Expression) -> pa.Array:
        given = self._value(argument)
        given = pa.repeat(given, self.rows) if isinstance(given, pa.Scalar) else given
        if pa.types.is_string(given.type) or pa.types.is_null(given.type):
            texts = given.cast(pa.string())
            is_number = pc.match_substring_regex(texts, r"^-?[0-9]{1,18}$")
            given = pc.if_else(is_number, texts, pa.scalar(None, pa.string())).cast(pa.int64())
            shown = _without(texts, "")
        elif pa.types.is_integer(given.type):
            shown = given
            if pa.types.is_uint64(given.type):
                given = pc.min_element_wise(given, pa.scalar(2**63 - 1, pa.uint64()))
            given = given.cast(pa.int64())
        else:
            raise WrongColumnType(f"'{function}' takes integers, not {given.type}")
        factor = 1_000 if function == "from_seconds" else 1
        is_within = pc.and_(
            pc.greater_equal(given, MS_MIN // factor), pc.less_equal(given, MS_MAX // factor)
        )
        numbers = pc.if_else(is_within, given, pa.scalar(None, pa.int64()))
        unit = "seconds" if factor > 1 else "milliseconds"
        for row in pc.indices_nonzero(pc.and_(pc.is_null(numbers), pc.is_valid(shown))).to_pylist():
            message = f"'{shown[row].as_py()}' is no number of {unit} since 1970"
            self.refuse(row, message, "give an integer, of a year from 1 to 9999")
        return pc.multiply(numbers, factor).cast(TIMESTAMP)


def _without(texts: Any, value: str) -> Any:
    """The texts, with nulls instead of ``value``."""
    return pc.if_else(pc.equal(texts, value), pa.scalar(None, pa.string()), texts)


def _is_moment(text: str, format: str) -> bool:
    try:
        dt.datetime.strptime(text, format)
    except ValueError:
        return False
    return True


def split_texts(texts: pa.StringArray, separator: str) -> pa.ListArray:
    """Texts as lists of their parts; an empty text is an empty list."""
    parts = pc.split_pattern(texts, separator)
    empty = pa.scalar([], parts.type)
    return pc.if_else(pc.equal(texts, ""), empty, parts)
