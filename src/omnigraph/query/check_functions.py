"""Type-checks computations: arithmetic, scalar functions and conditionals."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query.operands import Operands, comparable, describe
from omnigraph.query.predicates import check_filter, check_null_test
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.suggest import did_you_mean

ROUND_DIGITS_MAX = 15
_DATE_PARTS = ("year", "quarter", "month", "week", "day", "weekday", "day_of_year")
_TIME_PARTS = ("hour", "minute", "second", "millisecond")
_DATE_UNITS = ("year", "quarter", "month", "week", "day")
_TIME_UNITS = ("hour", "minute", "second")
_DATE_PERIODS = ("years", "months", "weeks", "days")
_MOMENTS = (Scalar.DATE, Scalar.DATETIME)
_INTEGERS = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)


def check_computed(
    node: ast.Arithmetic | ast.FunctionCall | ast.Conditional | ast.ListItem, operands: Operands
) -> ex.Expression:
    """A typed computation; raises T7 for operands of the wrong types."""
    match node:
        case ast.Arithmetic():
            return _arithmetic(node, operands)
        case ast.FunctionCall():
            return _Call(node, operands).checked()
        case ast.Conditional():
            return _conditional(node, operands)
        case ast.ListItem():
            return _list_item(node, operands)


def _list_item(node: ast.ListItem, operands: Operands) -> ex.Expression:
    several, index = operands.value(node.list), operands.value(node.index)
    if not several.type.is_list:
        raise operands.context.error(
            "T7", f"{describe(node.list)} is a {several.type}, not a list", node.list.span
        )
    if not _is_integer(index.type):
        raise operands.context.error(
            "T7", f"the place in a list is an integer, not a {index.type}", node.index.span
        )
    return ex.ListItem(several, index, several.type.item.with_nullable(True))


# --- arithmetic -----------------------------------------------------------------------------------


def _arithmetic(node: ast.Arithmetic, operands: Operands) -> ex.Expression:
    if _is_period(node.right):
        return _shifted(node, node.left, node.right, operands)
    if node.operator == "+" and _is_period(node.left):
        return _shifted(node, node.right, node.left, operands)
    left, right = operands.value(node.left), operands.value(node.right)
    if node.operator == "-" and _is_moment(left.type) and left.type.scalar is right.type.scalar:
        nullable = left.type.nullable or right.type.nullable
        return ex.ArithmeticValue("-", left, right, ex.I64.with_nullable(nullable))
    for side, typed in ((node.left, left), (node.right, right)):
        if not typed.type.is_numeric:
            hint = None
            if typed.type.scalar is Scalar.STRING and node.operator == "+":
                hint = "texts are joined with `concat(a, b)`"
            elif _is_moment(typed.type):
                hint = "add a length of time such as `days(30)`, or subtract two moments"
            raise operands.context.error(
                "T7",
                f"`{node.operator}` needs numbers, but {describe(side)} is a {typed.type}",
                side.span,
                hint,
            )
    divides = node.operator in ("/", "%")
    is_float = node.operator == "/" or left.type.scalar.is_float or right.type.scalar.is_float
    # A division by zero is null.
    nullable = divides or left.type.nullable or right.type.nullable
    result = ValueType(Scalar.F64 if is_float else Scalar.I64, nullable=nullable)
    return ex.ArithmeticValue(node.operator, left, right, result)


def _is_period(node: ast.Expression) -> bool:
    return isinstance(node, ast.FunctionCall) and node.function in ast.PERIOD_FUNCTIONS


def _shifted(
    node: ast.Arithmetic, moment: ast.Expression, period: ast.Expression, operands: Operands
) -> ex.Expression:
    """A Date or DateTime plus or minus a period of time."""
    assert isinstance(period, ast.FunctionCall)
    typed = operands.value(moment)
    if node.operator not in ("+", "-") or not _is_moment(typed.type):
        raise operands.context.error(
            "T7",
            f"`{period.function}(…)` is added to or subtracted from a Date or DateTime, "
            f"and {describe(moment)} is a {typed.type}",
            node.span,
        )
    if typed.type.scalar is Scalar.DATE and period.function not in _DATE_PERIODS:
        raise operands.context.error(
            "T7",
            f"a Date has no hours: it is moved by {', '.join(_DATE_PERIODS)}",
            period.span,
        )
    amount = operands.value(period.arguments[0])
    if amount.type.is_list or amount.type.scalar not in _INTEGERS:
        raise operands.context.error(
            "T7",
            f"`{period.function}` takes an integer, got {amount.type}",
            period.arguments[0].span,
        )
    length = ex.ScalarCall(period.function, (amount,), ex.I64.with_nullable(amount.type.nullable))
    nullable = typed.type.nullable or amount.type.nullable
    result = ValueType(typed.type.scalar, nullable=nullable)
    return ex.ArithmeticValue(node.operator, typed, length, result)


# --- conditionals ---------------------------------------------------------------------------------


def _conditional(node: ast.Conditional, operands: Operands) -> ex.Expression:
    conditions = tuple(check_condition(condition, operands) for condition, _ in node.cases)
    nodes = [value for _, value in node.cases]
    if node.otherwise is not None:
        nodes.append(node.otherwise)
    values = tuple(operands.value(value) for value in nodes)
    result = _common_type("a conditional", values, nodes, operands)
    nullable = node.otherwise is None or any(value.type.nullable for value in values)
    otherwise = None if node.otherwise is None else values[-1]
    return ex.ConditionalValue(
        conditions, values[: len(conditions)], otherwise, result.with_nullable(nullable)
    )


def check_condition(node: ast.Condition, operands: Operands) -> ex.Expression:
    """A condition with `and` and `or`."""
    match node:
        case ast.BooleanCondition():
            inner = tuple(check_condition(each, operands) for each in node.operands)
            return ex.Combine(node.operator, inner)
        case ast.NullTest():
            return check_null_test(node, operands)
        case ast.Filter():
            return check_filter(node, operands, allow_aggregates=True)


def _common_type(
    what: str, values: tuple[ex.Expression, ...], nodes: list[ast.Expression], operands: Operands
) -> ValueType:
    """The common type of the values that a result is chosen from."""
    types = [value.type for value in values]
    for at, candidate in enumerate(types):
        if not candidate.is_plain_scalar:
            raise operands.context.error(
                "T7", f"{what} takes single values, got {candidate}", nodes[at].span
            )
        if not comparable(types[0], candidate):
            raise operands.context.error(
                "T7",
                f"{what} mixes {types[0]} and {candidate}",
                nodes[at].span,
                "all its values must have one type",
            )
    if types[0].scalar.is_numeric and len({t.scalar for t in types}) > 1:
        if {value.type.scalar for value in values if not _is_natural(value)} == {Scalar.U64}:
            # `coalesce($x.unsigned, 0)` keeps the large values of its property.
            return ValueType(Scalar.U64)
        return _widest(types)
    return ValueType(types[0].scalar)


def _is_natural(typed: ex.Expression) -> bool:
    """Whether this is an integer literal that fits every large integer type."""
    return isinstance(typed, ex.Constant) and isinstance(typed.value, int) and typed.value >= 0


def _widest(types: list[ValueType]) -> ValueType:
    """The numeric type of a result: F64 if any is a float, U64 if all are, else I64."""
    scalars = {t.scalar for t in types}
    if any(s.is_float for s in scalars):
        scalar = Scalar.F64
    elif scalars == {Scalar.U64}:
        scalar = Scalar.U64
    else:
        scalar = Scalar.I64
    return ValueType(scalar, nullable=any(t.nullable for t in types))


# --- functions ------------------------------------------------------------------------------------


class _Call:
    """One call of a scalar function."""

    def __init__(self, node: ast.FunctionCall, operands: Operands) -> None:
        self._node = node
        self._operands = operands
        self._arguments = tuple(operands.value(argument) for argument in node.arguments)
        self._types = [argument.type for argument in self._arguments]

    def checked(self) -> ex.Expression:
        first, node = self._types[0], self._node
        nullable = any(type.nullable for type in self._types)
        match node.function:
            case "lower" | "upper" | "trim" | "concat" | "replace":
                self._require_all(_is_text, "String")
                result = ex.STRING.with_nullable(nullable)
            case "length":
                self._require(0, _is_text(first) or first.is_list, "String or a list")
                result = ex.I64.with_nullable(nullable)
            case "size":
                self._require(0, first.is_list, "a list")
                result = ex.I64.with_nullable(nullable)
            case "substring":
                self._require(0, _is_text(first), "String")
                for at in range(1, len(self._types)):
                    self._require(at, _is_integer(self._types[at]), "integers for its positions")
                result = ex.STRING.with_nullable(nullable)
            case "split":
                self._require_all(_is_text, "String")
                result = ex.STRINGS.with_nullable(nullable)
            case "abs" | "floor" | "ceil":
                self._require(0, first.is_numeric, "a number")
                result = _widest([first])
            case "round":
                self._require(0, first.is_numeric, "a number")
                if len(self._arguments) == 2:
                    self._round_digits(node.arguments[1])
                result = _widest([first])
            case "sqrt" | "pow" | "log":
                # These functions are null for some numbers.
                self._require_all(lambda type: type.is_numeric, "numbers")
                result = ex.F64.with_nullable(True)
            case "date_part":
                self._moment_unit(_DATE_PARTS, _TIME_PARTS)
                result = ex.I64.with_nullable(self._types[1].nullable)
            case "date_trunc":
                self._moment_unit(_DATE_UNITS, _TIME_UNITS)
                result = ValueType(self._types[1].scalar, nullable=self._types[1].nullable)
            case "coalesce":
                result = _common_type(
                    "`coalesce`", self._arguments, list(node.arguments), self._operands
                ).with_nullable(all(type.nullable for type in self._types))
            case _:
                raise self._operands.context.error(
                    "T7",
                    f"`{node.function}(…)` is a length of time, not a value",
                    node.span,
                    f"add it to a Date or DateTime: `$x.p + {node.function}(1)`",
                )
        return ex.ScalarCall(node.function, self._arguments, result)

    def _round_digits(self, node: ast.Expression) -> None:
        digits = node.value if isinstance(node, ast.Literal) else None
        if (
            isinstance(digits, bool)
            or not isinstance(digits, int)
            or abs(digits) > ROUND_DIGITS_MAX
        ):
            raise self._operands.context.error(
                "T7",
                "the digits of `round` must be an integer literal between "
                f"-{ROUND_DIGITS_MAX} and {ROUND_DIGITS_MAX}",
                node.span,
            )

    def _moment_unit(self, of_dates: tuple[str, ...], of_times: tuple[str, ...]) -> None:
        """The first argument must name a unit of the second one's type."""
        node, moment = self._node.arguments[0], self._types[1]
        unit = node.value if isinstance(node, ast.Literal) else None
        self._require(1, _is_moment(moment), "Date or DateTime")
        known = of_dates if moment.scalar is Scalar.DATE else of_dates + of_times
        if not isinstance(unit, str) or unit not in known:
            raise self._operands.context.error(
                "T7",
                f"`{self._node.function}` of a {moment.scalar} takes one of {', '.join(known)}",
                node.span,
                did_you_mean(unit, known) if isinstance(unit, str) else None,
            )

    def _require_all(self, test: Callable[[ValueType], bool], expected: str) -> None:
        for at, actual in enumerate(self._types):
            self._require(at, test(actual), expected)

    def _require(self, at: int, ok: bool, expected: str) -> None:
        if not ok:
            raise self._operands.context.error(
                "T7",
                f"`{self._node.function}` takes {expected}, got {self._types[at]}",
                self._node.arguments[at].span,
            )


def _is_text(type: ValueType) -> bool:
    return type.scalar is Scalar.STRING and not type.is_list


def _is_integer(type: ValueType) -> bool:
    return type.scalar in _INTEGERS and not type.is_list


def _is_moment(type: ValueType) -> bool:
    return type.scalar in _MOMENTS and not type.is_list
