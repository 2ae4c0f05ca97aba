"""Cypher expressions as `.gq`: values, and conditions as clauses of a match.

In Cypher a comparison with null has a third truth value, and a row is kept only if the condition is
true. That is the same for comparisons of `.gq`, but `not { … }` has two values: a negation is
pushed down to the comparisons, and where these have no opposite operator, a test for null is added.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, assert_never

from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType
from omnigraph.syntax.tokens import Span
from omnigraph.translate import cypher_ast as ast
from omnigraph.translate.scope import (
    BOOL,
    DATE,
    DATETIME,
    F64,
    I64,
    STRING,
    Bound,
    Translating,
    identifier,
)

Block = Callable[[ast.CypherSubquery, Mapping[str, Bound]], str]
"""The clauses of a subquery, given the names around it."""


@dataclass(frozen=True, slots=True)
class ValueText:
    """A value in `.gq`."""

    text: str
    type: ValueType | None = None
    nullable: bool = True
    level: int = 3
    """The precedence: 1 for a sum, 2 for a product, 3 for anything else."""

    def operand(self, level: int = 3) -> str:
        """The text as an operand of an operator, in parentheses if its precedence is lower."""
        return self.text if self.level >= level else f"({self.text})"

    def is_bare(self) -> bool:
        """Whether it is a variable alone, which would begin a hop if a word followed."""
        return re.fullmatch(r"\$\w+", self.text) is not None


_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_WORDED = {"STARTS WITH": "starts_with", "ENDS WITH": "ends_with", "CONTAINS": "contains"}
_SAME_TYPE = {"abs": "abs", "ceil": "ceil", "ceiling": "ceil", "floor": "floor", "round": "round"}
_TEXTS = {
    "tolower": "lower", "lower": "lower", "lcase": "lower",
    "toupper": "upper", "upper": "upper", "ucase": "upper",
    "trim": "trim", "replace": "replace", "concat": "concat",
}  # fmt: skip
_FLOATS = {"sqrt": "sqrt", "log": "log", "pow": "pow"}
_MOMENTS = {
    "date": ("date", DATE),
    "datetime": ("datetime", DATETIME),
    "localdatetime": ("datetime", DATETIME),
    "timestamp": ("datetime", DATETIME),
}
_PARTS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
_WHOLE_NUMBERS = ("INT64", "INT32", "INT16", "INT8", "INT", "INTEGER", "BIGINT")
_PERIODS = ("year", "month", "week", "day", "hour", "minute", "second", "millisecond")
_PERIOD = re.compile(rf"(\d+) ({'|'.join(_PERIODS)})s?")


def quoted(text: str) -> str:
    """A string literal.

    >>> quoted('a "b"')
    '"a \\\\"b\\\\""'
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f'"{escaped}"'


class Expressions:
    """Translates expressions over the names in scope."""

    def __init__(
        self,
        state: Translating,
        scope: Mapping[str, Bound],
        block: Block,
        *,
        has_groups: bool = False,
    ) -> None:
        self._state = state
        self._scope = scope
        self._block = block
        self._has_groups = has_groups
        """Whether aggregates are of groups, none of which is empty."""

    # --- values ----------------------------------------------------------------------------------

    def value(self, given: ast.Expression, expected: ValueType | None = None) -> ValueText:
        """A value; ``expected`` is the type of a parameter in its place."""
        match given:
            case ast.CypherLiteral():
                return self._literal(given)
            case ast.CypherParameter():
                name = self._state.parameter(given.name, expected)
                return ValueText(f"${name}", self._state.parameters[name], nullable=False)
            case ast.CypherVariable():
                return self._variable(given)
            case ast.CypherProperty():
                return self._property(given)
            case ast.CypherListExpression():
                item = expected.item if expected is not None and expected.is_list else None
                items = [self.value(each, item) for each in given.items]
                if any(not isinstance(each, ast.CypherLiteral) for each in given.items):
                    self._fail(
                        "a list of anything but literals has no counterpart",
                        given.span,
                        "make the whole list a parameter",
                    )
                type_ = items[0].type if items else None
                listed = ValueType(type_.scalar, is_list=True) if type_ is not None else None
                return ValueText(
                    f"[{', '.join(each.text for each in items)}]", listed, nullable=False
                )
            case ast.CypherItem():
                listed_text = self.value(given.list)
                index = self.value(given.index, I64)
                type_ = listed_text.type.item if listed_text.type is not None else None
                return ValueText(f"{listed_text.operand()}[{index.text}]", type_)
            case ast.CypherCall():
                return self._call(given, expected)
            case ast.CypherCountAll():
                return ValueText("count(*)", I64, nullable=False)
            case ast.CypherCast():
                return self._cast(given.operand, given.type_name, given.span)
            case ast.CypherUnary(operator="-"):
                operand = self.value(given.operand, expected)
                return ValueText(f"0 - {operand.operand(2)}", operand.type, operand.nullable, 1)
            case ast.CypherCase():
                return self._case(given, expected)
            case ast.CypherSubquery(function="count"):
                block = self._block(given, self._scope)
                return ValueText(f"count {{\n{block}\n}}", I64, nullable=False)
            case ast.CypherBinary(operator="+" | "-" | "*" | "/" | "%" | "^"):
                return self._arithmetic(given, expected)
            case ast.CypherMapExpression():
                self._fail("a map has no counterpart as a value", given.span)
            case (
                ast.CypherUnary()
                | ast.CypherBinary()
                | ast.CypherNullTest()
                | ast.CypherLabelTest()
                | ast.CypherSubquery()
            ):
                return self._truth(given)
        assert_never(given)

    def _literal(self, given: ast.CypherLiteral) -> ValueText:
        value = given.value
        if value is None:
            self._fail(
                "`null` as a value has no counterpart", given.span, "use `IS NULL`, or leave it out"
            )
        if isinstance(value, bool):
            return ValueText("true" if value else "false", BOOL, nullable=False)
        if isinstance(value, int):
            return ValueText(str(value), I64, nullable=False)
        if isinstance(value, float):
            if not math.isfinite(value):
                self._fail("a number that large has no counterpart", given.span)
            shown = repr(value)
            shown = f"{value:f}" if "e" in shown else shown
            return ValueText(shown, F64, nullable=False)
        return ValueText(quoted(value), STRING, nullable=False)

    def bound(self, variable: ast.CypherVariable) -> Bound:
        """The binding of a variable."""
        found = self._scope.get(variable.name)
        if found is None:
            self._fail(f"`{variable.name}` is not bound here", variable.span)
        return found

    def _variable(self, given: ast.CypherVariable) -> ValueText:
        found = self.bound(given)
        if found.kind == "path":
            self._fail(
                "a path as a value has no counterpart", given.span, "use `length(…)` of the path"
            )
        return ValueText(found.text, found.type, found.optional or found.type is None)

    def _property(self, given: ast.CypherProperty) -> ValueText:
        if isinstance(given.subject, ast.CypherVariable):
            found = self.bound(given.subject)
            if found.kind in ("node", "edge"):
                property_ = self._state.property(found, given.name, given.span)
                if property_ is None:
                    return ValueText(f"{found.text}.{identifier(given.name)}")
                nullable = property_.type.nullable or found.optional
                return ValueText(f"{found.text}.{property_.name}", property_.type, nullable)
        if given.name in _PARTS:
            moment = self.value(given.subject)
            if moment.type is None or moment.type.scalar in (Scalar.DATE, Scalar.DATETIME):
                return ValueText(
                    f"date_part({quoted(given.name)}, {moment.text})", I64, moment.nullable
                )
        return self._fail(f"`.{given.name}` of a value has no counterpart", given.span)

    def _arithmetic(self, given: ast.CypherBinary, expected: ValueType | None) -> ValueText:
        period = self._period(given.right)
        if period is not None and given.operator in ("+", "-"):
            left = self.value(given.left, expected)
            shown = f"{left.operand(1)} {given.operator} {period}"
            return ValueText(shown, left.type, left.nullable, 1)
        hint = expected if expected is not None and expected.is_numeric else None
        left = self.value(given.left, self.type_of(given.right) or hint)
        right = self.value(given.right, self.type_of(given.left) or hint)
        nullable = left.nullable or right.nullable
        kinds = [each.type for each in (left, right)]
        if given.operator == "^":
            return ValueText(f"pow({left.text}, {right.text})", F64, nullable)
        if given.operator == "+" and STRING.scalar in [k.scalar for k in kinds if k is not None]:
            return ValueText(f"concat({left.text}, {right.text})", STRING, nullable)
        is_float = any(kind is not None and kind.scalar.is_float for kind in kinds)
        if given.operator == "/":
            known = all(kind is not None for kind in kinds)
            if not is_float:
                self._fail(
                    "a division of integers has no counterpart: here every division is of floats"
                    if known
                    else "this division may be one of integers, which has no counterpart",
                    given.span,
                    "divide `toFloat(…)`" if known else "give a schema, or divide `toFloat(…)`",
                )
            parts = [self._without_float_cast(each) for each in (given.left, given.right)]
            return ValueText(f"{parts[0].operand(2)} / {parts[1].operand()}", F64, True, 2)
        type_ = F64 if is_float else (I64 if all(k is not None for k in kinds) else None)
        if given.operator == "-" and _both_moments(kinds):
            type_ = I64
        level = 1 if given.operator in ("+", "-") else 2
        shown = f"{left.operand(level)} {given.operator} {right.operand(level + 1)}"
        return ValueText(shown, type_, nullable, level)

    def _without_float_cast(self, given: ast.Expression) -> ValueText:
        """An operand of a division, without a cast to float, since `/` always divides floats."""
        if isinstance(given, ast.CypherCast):
            return self.value(given.operand)
        if (
            isinstance(given, ast.CypherCall)
            and given.name == "tofloat"
            and len(given.arguments) == 1
        ):
            return self.value(given.arguments[0])
        return self.value(given)

    def _period(self, given: ast.Expression) -> str | None:
        """`duration({days: 2})`, or `INTERVAL('2 days')` of Kuzu."""
        if not isinstance(given, ast.CypherCall) or len(given.arguments) != 1:
            return None
        (argument,) = given.arguments
        if given.name == "duration" and isinstance(argument, ast.CypherMapExpression):
            if len(argument.pairs) == 1 and argument.pairs[0][0].rstrip("s") in _PERIODS:
                unit, length = argument.pairs[0]
                return f"{unit.rstrip('s')}s({self.value(length, I64).text})"
            self._fail("a duration of several units has no counterpart", given.span)
        if given.name == "interval" and isinstance(argument, ast.CypherLiteral):
            hit = _PERIOD.fullmatch(str(argument.value).lower())
            if hit is not None:
                return f"{hit[2]}s({hit[1]})"
            self._fail(f"the interval {argument.value!r} has no counterpart", given.span)
        return None

    def _call(self, given: ast.CypherCall, expected: ValueType | None) -> ValueText:
        name, arguments = given.name, given.arguments
        if name in ast.AGGREGATES:
            return self._aggregate(given)
        if given.distinct:
            self._fail(f"`DISTINCT` in `{name}` has no counterpart", given.span)
        if name in _MOMENTS:
            return self._moment(given)
        if name == "coalesce":
            wanted = next((t for t in map(self.type_of, arguments) if t is not None), expected)
            found = [self.value(each, wanted) for each in arguments]
            type_ = next((each.type for each in found if each.type is not None), None)
            nullable = all(each.nullable for each in found)
            return ValueText(f"coalesce({_listed(found)})", type_, nullable)
        if name in _SAME_TYPE and len(arguments) == 1:
            operand = self.value(arguments[0], expected)
            return ValueText(f"{_SAME_TYPE[name]}({operand.text})", operand.type, operand.nullable)
        if name in _TEXTS:
            found = [self.value(each, STRING) for each in arguments]
            return ValueText(f"{_TEXTS[name]}({_listed(found)})", STRING, _any_null(found))
        if name in _FLOATS:
            found = [self.value(each, F64) for each in arguments]
            return ValueText(f"{_FLOATS[name]}({_listed(found)})", F64)
        if name in ("substring", "left") and len(arguments) in (2, 3):
            text = self.value(arguments[0], STRING)
            numbers = [self.value(each, I64).text for each in arguments[1:]]
            if name == "left":
                numbers.insert(0, "0")
            elif self._state.dialect == "kuzu":
                numbers[0] = f"{numbers[0]} - 1"  # Cypher counts characters from 1
            return ValueText(f"substring({text.text}, {', '.join(numbers)})", STRING, text.nullable)
        if name == "split" and len(arguments) == 2:
            found = [self.value(each, STRING) for each in arguments]
            return ValueText(f"split({_listed(found)})", ValueType(Scalar.STRING, is_list=True))
        if name in ("size", "length", "char_length") and len(arguments) == 1:
            return self._length(arguments[0])
        if name in ("tofloat", "tointeger") and len(arguments) == 1:
            return self._cast(arguments[0], "DOUBLE" if name == "tofloat" else "INT64", given.span)
        if (
            name == "date_part"
            and len(arguments) == 2
            and isinstance(arguments[0], ast.CypherLiteral)
        ):
            moment = self.value(arguments[1], DATETIME)
            part = str(arguments[0].value).lower()
            if part in _PARTS:
                return ValueText(f"date_part({quoted(part)}, {moment.text})", I64, moment.nullable)
        if name in ("exists", "list_contains"):
            return self._truth(given)
        if name == "list_sort" and len(arguments) == 1:
            (inner,) = arguments
            if isinstance(inner, ast.CypherCall) and inner.name == "collect":
                return self._aggregate(inner, is_sorted=True)
        return self._fail(f"the function `{name}` has no counterpart", given.span)

    def _moment(self, given: ast.CypherCall) -> ValueText:
        word, type_ = _MOMENTS[given.name]
        if not given.arguments and type_ is DATETIME:
            return ValueText("now()", DATETIME, nullable=False)
        if len(given.arguments) == 1:
            (argument,) = given.arguments
            if isinstance(argument, ast.CypherLiteral) and isinstance(argument.value, str):
                return ValueText(f"{word}({quoted(argument.value)})", type_, nullable=False)
            if isinstance(argument, ast.CypherParameter):
                return self.value(argument, type_)
        return self._fail(f"`{given.name}` of a computed value has no counterpart", given.span)

    def _length(self, argument: ast.Expression) -> ValueText:
        if isinstance(argument, ast.CypherVariable):
            found = self.bound(argument)
            if found.kind == "path":
                return ValueText(f"{found.text}.length", I64, found.optional)
        operand = self.value(argument)
        return ValueText(f"length({operand.text})", I64, operand.nullable)

    def _cast(self, operand: ast.Expression, wanted: str, span: Span) -> ValueText:
        found = self.value(operand)
        if wanted in _WHOLE_NUMBERS and found.type is not None and found.type.scalar.is_integer:
            return found
        if wanted in ("DOUBLE", "FLOAT") and found.type is not None and found.type.is_numeric:
            if found.type.scalar.is_float:
                return found
            return ValueText(f"{found.operand(2)} * 1.0", F64, found.nullable, 2)
        known = str(found.type) if found.type is not None else "a value of unknown type"
        return self._fail(
            f"a conversion of {known} to {wanted} has no counterpart",
            span,
            None if found.type is not None else "give a schema",
        )

    def _aggregate(self, given: ast.CypherCall, *, is_sorted: bool = False) -> ValueText:
        name = ast.AGGREGATES[given.name]
        if not given.arguments or any(ast.has_aggregate(each) for each in given.arguments):
            self._fail(f"`{given.name}` takes a value of each row", given.span)
        first = given.arguments[0]
        node = self._entity(first)
        if node is not None and name != "count":
            self._fail(
                f"`{given.name}` of whole nodes or relationships has no counterpart",
                given.span,
                "collect a property of them, such as the key",
            )
        operand = (
            ValueText(node.text, None, node.optional) if node is not None else self.value(first)
        )
        if isinstance(first, ast.CypherLiteral) and name == "count":
            return ValueText("count(*)", I64, nullable=False)
        rest = [self.value(each, F64).text for each in given.arguments[1:]]
        word = "distinct " if given.distinct else ""
        shown = f"{name}({word}{', '.join([operand.text, *rest])})"
        match name:
            case "count":
                return ValueText(shown, I64, nullable=False)
            case "sum":
                # In openCypher the sum of nothing is 0; in `.gq`, as in Kuzu, it is null.
                type_ = None
                if operand.type is not None:
                    type_ = F64 if operand.type.scalar.is_float else I64
                is_filled = self._has_groups and not operand.nullable
                if is_filled or self._state.dialect == "kuzu":
                    return ValueText(shown, type_, nullable=not is_filled)
                return ValueText(f"coalesce({shown}, 0)", type_, nullable=False)
            case "collect":
                if not is_sorted:
                    self._state.note(
                        "`collect` gives its values in ascending order, not in that of the rows",
                        given.span,
                    )
                type_ = operand.type
                listed = ValueType(type_.scalar, is_list=True) if type_ is not None else None
                return ValueText(shown, listed, nullable=False)
            case "min" | "max":
                return ValueText(shown, operand.type, nullable=operand.nullable)
        return ValueText(shown, F64)

    def _case(self, given: ast.CypherCase, expected: ValueType | None) -> ValueText:
        parts = [value for _, value in given.branches]
        if given.otherwise is not None and not _is_null(given.otherwise):
            parts.append(given.otherwise)
        wanted = next((t for t in map(self.type_of, parts) if t is not None), expected)
        cases: list[str] = []
        values: list[ValueText] = []
        for condition, value in given.branches:
            if given.operand is not None:
                span = condition.span
                condition = ast.CypherBinary("=", given.operand, condition, span)  # noqa: PLW2901
            if _is_null(value):
                self._fail("a branch with `null` has no counterpart", value.span)
            values.append(self.value(value, wanted))
            cases.append(f"{self.condition(condition)}: {values[-1].text}")
        nullable = True
        if given.otherwise is not None and not _is_null(given.otherwise):
            values.append(self.value(given.otherwise, wanted))
            cases.append(f"else: {values[-1].text}")
            nullable = _any_null(values)
        types = [each.type for each in values if each.type is not None]
        type_ = next((each for each in types if each.scalar.is_float), types[0] if types else None)
        return ValueText(f"case {{ {', '.join(cases)} }}", type_, nullable)

    def _truth(self, given: ast.Expression) -> ValueText:
        """A condition as a Bool, null where it is null in Cypher."""
        holds = self.condition(given)
        if isinstance(given, ast.CypherNullTest | ast.CypherLabelTest | ast.CypherSubquery):
            return ValueText(f"if({holds}, true, false)", BOOL, nullable=False)
        fails = self.condition(given, negated=True)
        return ValueText(f"case {{ {holds}: true, {fails}: false }}", BOOL)

    def type_of(self, given: ast.Expression) -> ValueType | None:
        """The type of a value, as far as known without translating it."""
        match given:
            case ast.CypherParameter():
                return self._state.parameter_type(given.name)
            case ast.CypherLiteral(value=None) | ast.CypherMapExpression():
                return None
            case ast.CypherBinary(operator="+" | "-" | "*" | "/" | "%"):
                return self.type_of(given.left) or self.type_of(given.right)
            case ast.CypherCall() if self._period(given) is not None:
                return None
            case ast.CypherSubquery():
                return I64 if given.function == "count" else BOOL
            case (
                ast.CypherLiteral()
                | ast.CypherVariable()
                | ast.CypherProperty()
                | ast.CypherCall()
                | ast.CypherCountAll()
            ):
                if isinstance(given, ast.CypherVariable) and self._entity(given) is not None:
                    return None
                return self.value(given).type
        return None

    def _entity(self, given: ast.Expression) -> Bound | None:
        """The node or edge that is named, directly or by `id(…)`."""
        if isinstance(given, ast.CypherCall) and given.name in ("id", "elementid"):
            (given,) = given.arguments or (given,)
        if isinstance(given, ast.CypherVariable):
            found = self.bound(given)
            return found if found.kind in ("node", "edge") else None
        return None

    # --- conditions ------------------------------------------------------------------------------

    def clauses(self, given: ast.Expression, *, negated: bool = False) -> list[str]:
        """The clauses of a match that together are equivalent to the condition."""
        match given:
            case ast.CypherUnary(operator="NOT"):
                return self.clauses(given.operand, negated=not negated)
            case ast.CypherBinary(operator="AND" | "OR"):
                sides = [self.clauses(side, negated=negated) for side in (given.left, given.right)]
                if (given.operator == "AND") != negated:
                    return sides[0] + sides[1]
                # An alternative without clauses is always true.
                return [_any(sides)] if all(sides) else []
            case ast.CypherSubquery(function="exists"):
                block = self._block(given, self._scope)
                return [f"{'not' if negated else 'exists'} {{\n{block}\n}}"]
            case ast.CypherBinary(operator="IN" | "STARTS WITH" | "ENDS WITH" | "CONTAINS" | "=~"):
                return self._worded(given, negated=negated)
            case ast.CypherCall(name="list_contains", arguments=(listed, item)):
                turned = ast.CypherBinary("IN", item, listed, given.span)
                return self._worded(turned, negated=negated)
            case ast.CypherLiteral(value=bool() as value) if value != negated:
                return []
        return [self._one(given, negated=negated)]

    def condition(self, given: ast.Expression, *, negated: bool = False) -> str:
        """A condition inside a conditional."""
        match given:
            case ast.CypherUnary(operator="NOT"):
                return self.condition(given.operand, negated=not negated)
            case ast.CypherBinary(operator="AND" | "OR"):
                sides = [
                    self.condition(side, negated=negated) for side in (given.left, given.right)
                ]
                word = "and" if (given.operator == "AND") != negated else "or"
                return f"({sides[0]} {word} {sides[1]})"
            case ast.CypherSubquery(function="exists"):
                block = self._block(given, self._scope)
                return f"exists {{\n{block}\n}} = {'false' if negated else 'true'}"
            case ast.CypherBinary(operator="IN" | "STARTS WITH" | "ENDS WITH" | "CONTAINS" | "=~"):
                found = self._worded(given, negated=negated)
                if negated:
                    self._fail(
                        f"`NOT … {given.operator}` as a value has no counterpart", given.span
                    )
                return found[0]
        return self._one(given, negated=negated)

    def _one(self, given: ast.Expression, *, negated: bool) -> str:
        """A condition that is one filter."""
        match given:
            case ast.CypherBinary(operator="XOR"):
                self._fail("`XOR` has no counterpart", given.span)
            case ast.CypherBinary(operator="=" | "<>" | "<" | "<=" | ">" | ">="):
                return self._comparison(given, negated=negated)
            case ast.CypherNullTest():
                node = self._entity(given.operand)
                if node is not None and node.kind == "edge":
                    text = self._null_only_with_edge(node, given.span)
                else:
                    text = node.text if node is not None else self.value(given.operand).text
                return f"{text} is {'not ' if given.negated != negated else ''}null"
            case ast.CypherLabelTest():
                found = self.bound(given.variable)
                type_name = self._state.node_type(given.label, given.span)
                return f"{found.text} is {'not ' if negated else ''}{type_name}"
            case ast.CypherCall(name="exists", arguments=(argument,)):
                return f"{self.value(argument).text} is {'' if negated else 'not '}null"
            case ast.CypherLiteral():
                self._fail("a condition that is never true selects nothing", given.span)
        found_value = self.value(given, BOOL)
        return f"{found_value.text} = {'false' if negated else 'true'}"

    def _null_only_with_edge(self, edge: Bound, span: Span) -> str:
        """A property of an edge that is null only if the edge is."""
        catalog = self._state.catalog
        if catalog is not None and edge.type_name is not None:
            for property_ in catalog.edges[edge.type_name].properties.values():
                if property_.type.is_plain_scalar and not property_.type.nullable:
                    return f"{edge.text}.{property_.name}"
        return self._fail(
            "a relationship that may be null has no counterpart",
            span,
            "test a node of the optional pattern",
        )

    def _comparison(self, given: ast.CypherBinary, *, negated: bool) -> str:
        operator = _OPPOSITE[given.operator] if negated else given.operator
        sides = [self._entity(given.left), self._entity(given.right)]
        for side in (given.left, given.right):
            if _is_null(side):
                self._fail("a comparison with `null` is never true", side.span, "use `IS NULL`")
        spelled = "!=" if operator == "<>" else operator
        if sides[0] is not None and sides[1] is not None:
            if operator not in ("=", "<>"):
                self._fail("nodes and relationships have no order", given.span)
            return f"{sides[0].text} {spelled} {sides[1].text}"
        left = self.value(given.left, self.type_of(given.right))
        right = self.value(given.right, self.type_of(given.left))
        return f"{left.text} {spelled} {right.text}"

    def _worded(self, given: ast.CypherBinary, *, negated: bool) -> list[str]:
        """`IN` and text comparisons, which have no opposite operator."""
        if given.operator == "IN":
            item = self.type_of(given.left)
            listed = ValueType(item.scalar, is_list=True) if item is not None else None
            right = self.value(given.right, listed)
            known = self.type_of(given.right)
            left = self.value(given.left, known.item if known is not None else None)
        else:
            left, right = self.value(given.left, STRING), self.value(given.right, STRING)
        first = f"({left.text})" if left.is_bare() else left.text
        if given.operator == "IN":
            if isinstance(given.right, ast.CypherListExpression | ast.CypherParameter):
                shown = f"{first} in {right.text}"
            else:
                owner = f"({right.text})" if right.is_bare() else right.text
                shown = f"{owner} contains {left.text}"
        elif given.operator == "=~":
            if not isinstance(given.right, ast.CypherLiteral):
                return self._fail(
                    "a pattern that is no literal has no counterpart", given.right.span
                )
            # In Cypher the pattern has to match the whole text.
            shown = f"{first} matches {quoted(f'^(?:{given.right.value})$')}"
        else:
            shown = f"{first} {_WORDED[given.operator]} {right.text}"
        if not negated:
            return [shown]
        tests = [f"{each.text} is not null" for each in (left, right) if each.nullable]
        return [*tests, f"not {{ {shown} }}"]

    def _fail(self, message: str, span: Span, hint: str | None = None) -> NoReturn:
        self._state.fail(message, span, hint)


def _any(alternatives: Sequence[Sequence[str]]) -> str:
    """At least one of several conjunctions; nested alternatives are flattened."""
    shown: list[str] = []
    for clauses in alternatives:
        if len(clauses) == 1 and clauses[0].startswith("any {\n"):
            shown.append(clauses[0].removeprefix("any {\n").removesuffix("\n}"))
        elif len(clauses) == 1:
            shown.append(clauses[0])
        else:
            shown.append("all {\n" + "\n".join(clauses) + "\n}")
    return "any {\n" + "\n".join(shown) + "\n}"


def _is_null(given: ast.Expression) -> bool:
    return isinstance(given, ast.CypherLiteral) and given.value is None


def _listed(found: Sequence[ValueText]) -> str:
    return ", ".join(each.text for each in found)


def _any_null(found: Sequence[ValueText]) -> bool:
    return any(each.nullable for each in found)


def _both_moments(kinds: Sequence[ValueType | None]) -> bool:
    return all(k is not None and k.scalar in (Scalar.DATE, Scalar.DATETIME) for k in kinds)
