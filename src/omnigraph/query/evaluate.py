"""Evaluates typed expressions over columns, for all rows at once.

Computes everything that depends on single rows: comparisons, tests, arithmetic and scalar
functions. Text search, ranking and aggregates need more than a row; an engine computes them and
passes the result as a column.

Rules beyond those of the language:

- A predicate is two-valued: where a comparison has no answer because of a null, it is false.
- Floats follow IEEE 754: a NaN is unequal to everything, itself included, so only `!=` holds for
  it; the two zeros are equal; a sum or a product too large is an infinity.
- Integers are exact. A result that does not fit I64 is an error, never a wrapped number.
- `lower` and `upper` are the full case mapping of Unicode: `ß` becomes `SS`.
- `round` goes by the digits a reader sees: 2.675 to two places is 2.68, although the float nearest
  to 2.675 lies a little below it. Halves go away from zero.
- `x % y` has the sign of `x`. Where `/`, `%`, `sqrt`, `pow` or `log` has no value, it is null.
- A conditional computes a branch only for the rows that take it.
- A value that is the same for all rows may be a scalar; `holds` always gives one value per row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeAlias, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InternalError
from omnigraph.model.arrow import TIMESTAMP, arrow_type
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import spell, to_utc_ms
from omnigraph.query import expressions as ex
from omnigraph.query import functions as fn
from omnigraph.query.kernels import (
    Datum,
    absolute,
    arithmetic,
    compare,
    list_contains,
    rounded,
    text_contains,
    text_starts_with,
    to_numeric,
)
from omnigraph.syntax.query_ast import PERIOD_FUNCTIONS, PeriodFunction, ScalarFunction

ColumnExpression: TypeAlias = (
    ex.PropertyValue
    | ex.EntityId
    | ex.OutputValue
    | ex.PathNodes
    | ex.PathLength
    | ex.BoundValue
    | ex.CarriedNode
    | ex.PathEdges
    | ex.PathCost
)
"""The leaves with one value per row."""

Columns: TypeAlias = Callable[[ColumnExpression], pa.Array | pa.ChunkedArray]
"""Returns the values of a leaf; all columns have the same length."""

Parameters: TypeAlias = Mapping[str, object]
"""Bound parameters by name, in the form of `model.values`."""


def evaluate(
    expression: ex.Expression, columns: Columns, parameters: Parameters, now: dt.datetime
) -> Datum:
    """The value of ``expression`` for every row, or a scalar if it is the same for all of them.

    Raises `InputError` if an integer result does not fit, and `InternalError` for search, ranking
    and aggregates, which are not computed row by row.
    """
    return _Evaluation(columns, parameters, now).value(expression)


def holds(
    predicate: ex.Expression,
    columns: Columns,
    parameters: Parameters,
    now: dt.datetime,
    row_count: int,
) -> pa.Array | pa.ChunkedArray:
    """For each of ``row_count`` rows, whether the predicate is true; without nulls."""
    answer = evaluate(predicate, columns, parameters, now)
    return pa.repeat(answer, row_count) if isinstance(answer, pa.Scalar) else answer


def scalar_operand(
    expression: ex.Expression, parameters: Parameters, now: dt.datetime
) -> pa.Scalar:
    """The value of an expression that reads no column."""
    return evaluate(expression, _no_columns, parameters, now)


def _no_columns(leaf: ColumnExpression) -> pa.Array:
    raise InternalError(f"there is no row to read {leaf} from")


@dataclass(frozen=True, slots=True)
class _Evaluation:
    columns: Columns
    parameters: Parameters
    now: dt.datetime

    def value(self, node: ex.Expression) -> Datum:
        match node:
            case ex.Constant():
                return _scalar(node.value, node.type)
            case ex.ParameterValue():
                return _scalar(self.parameters[node.name], node.type)
            case ex.CurrentTime():
                return pa.scalar(to_utc_ms(self.now), TIMESTAMP)
            case (
                ex.PropertyValue()
                | ex.EntityId()
                | ex.OutputValue()
                | ex.PathNodes()
                | ex.PathLength()
                | ex.BoundValue()
                | ex.CarriedNode()
                | ex.PathEdges()
                | ex.PathCost()
            ):
                return self.columns(node)
            case ex.RoundToF32():
                return pc.cast(self.value(node.operand), arrow_type(node.type), safe=False)
            case ex.KeyId():
                return _key_ids(self.value(node.operand), node)
            case ex.ArithmeticValue():
                return self._arithmetic(node)
            case ex.ScalarCall(function="coalesce"):
                return _coalesce(self._coalesce_arguments(node.arguments), node.type)
            case ex.ScalarCall():
                return call(node.function, [self.value(a) for a in node.arguments], node.type)
            case ex.ListItem():
                return fn.list_items(self.value(node.list), self.value(node.index))
            case ex.ConditionalValue():
                return self._conditional(node)
            case ex.IsNull():
                return (pc.is_valid if node.negated else pc.is_null)(self.value(node.operand))
            case ex.Combine():
                join = pc.and_ if node.operator == "and" else pc.or_
                return reduce(join, (self.value(operand) for operand in node.operands))
            case (
                ex.Compare()
                | ex.TextContains()
                | ex.TextStartsWith()
                | ex.TextEndsWith()
                | ex.TextMatches()
                | ex.ListContains()
            ):
                # Two-valued: predicates are never negated, so a null can become false here.
                return pc.fill_null(self.test(node), False)
            case ex.TextQuery():
                return self.value(node.text)
            case (
                ex.TextMatch()
                | ex.Highlight()
                | ex.Nearest()
                | ex.Bm25()
                | ex.Rrf()
                | ex.AggregateValue()
            ):
                kind = node.__class__.__name__
                raise InternalError(f"{kind} is not a value of a single row")

    def _coalesce_arguments(self, arguments: Sequence[ex.Expression]) -> list[Datum]:
        """The values to choose from; stored columns after one without nulls are not read."""
        values: list[Datum] = []
        for argument in arguments:
            is_known = any(isinstance(each, pa.Array) and not each.null_count for each in values)
            if not (is_known and isinstance(argument, ex.PropertyValue)):
                values.append(self.value(argument))
        return values

    def _arithmetic(self, node: ex.ArithmeticValue) -> Datum:
        left, right = self.value(node.left), self.value(node.right)
        if not node.left.type.scalar.is_numeric:
            if isinstance(node.right, ex.ScalarCall) and _is_period(node.right.function):
                sign = 1 if node.operator == "+" else -1
                return fn.shifted(left, right, node.right.function, sign)
            return fn.difference(left, right)
        return arithmetic(node.operator, left, right, node.type)

    def _conditional(self, node: ex.ConditionalValue) -> Datum:
        """The values of the chosen branches."""
        if _computes_anywhere(node):
            chosen: Datum = pa.scalar(None, arrow_type(node.type))
            if node.otherwise is not None:
                chosen = _converted(self.value(node.otherwise), node.type)
            for condition, value in zip(
                reversed(node.conditions), reversed(node.values), strict=True
            ):
                converted = _converted(self.value(value), node.type)
                chosen = pc.if_else(self.value(condition), converted, chosen)
            return chosen
        if not node.conditions:
            if node.otherwise is None:
                return pa.scalar(None, arrow_type(node.type))
            return _converted(self.value(node.otherwise), node.type)
        rest = replace(node, conditions=node.conditions[1:], values=node.values[1:])
        holds = self.value(node.conditions[0])
        if isinstance(holds, pa.Scalar):
            if holds.as_py():
                return _converted(self.value(node.values[0]), node.type)
            return self._conditional(rest)
        # A branch is computed only for its own rows: for others it may fail.
        if isinstance(holds, pa.ChunkedArray):
            holds = holds.combine_chunks()
        fails = pc.invert(holds)
        parts = [
            self._of_rows(holds, lambda some: _converted(some.value(node.values[0]), node.type)),
            self._of_rows(fails, lambda some: some._conditional(rest)),
        ]
        rows = np.empty(len(holds), np.int64)
        mask = holds.to_numpy(zero_copy_only=False)
        count = int(mask.sum())
        rows[mask] = np.arange(count)
        rows[~mask] = np.arange(count, len(holds))
        return pa.concat_arrays([part.cast(arrow_type(node.type)) for part in parts]).take(
            pa.array(rows)
        )

    def _of_rows(self, mask: pa.Array, compute: Callable[[_Evaluation], Datum]) -> pa.Array:
        """The values computed for the rows of a mask."""
        count = pc.sum(mask).as_py() or 0
        if not count:
            return pa.nulls(0)
        found = compute(replace(self, columns=lambda leaf: self.columns(leaf).filter(mask)))
        if isinstance(found, pa.Scalar):
            return pa.repeat(found, count)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def test(
        self,
        node: ex.Compare
        | ex.TextContains
        | ex.TextStartsWith
        | ex.TextEndsWith
        | ex.TextMatches
        | ex.ListContains,
    ) -> Datum:
        match node:
            case ex.Compare():
                return compare(node.operator, self.value(node.left), self.value(node.right))
            case ex.TextContains():
                return text_contains(self.value(node.text), self.value(node.needle))
            case ex.TextStartsWith():
                return text_starts_with(self.value(node.text), self.value(node.prefix))
            case ex.TextEndsWith():
                return fn.text_ends_with(self.value(node.text), self.value(node.suffix))
            case ex.TextMatches():
                return fn.text_matches(self.value(node.text), self.value(node.pattern))
            case ex.ListContains():
                return list_contains(self.value(node.list), self.value(node.item))


def _key_ids(given: Datum, node: ex.KeyId) -> pa.Scalar:
    """Key ids are only made of values of the run, never of rows."""
    value = given.as_py()
    if isinstance(value, list):
        value = [spell(each, node.key) for each in value]
    elif value is not None:
        value = spell(value, node.key)
    return _scalar(value, node.type)


def _is_period(function: ScalarFunction) -> TypeGuard[PeriodFunction]:
    return function in PERIOD_FUNCTIONS


def _computes_anywhere(node: ex.ConditionalValue) -> bool:
    """Whether all branches can be computed for all rows, because none can fail."""
    branches = (*node.values, *([] if node.otherwise is None else [node.otherwise]))
    return not any(map(ex.can_fail, (*node.conditions, *branches))) and all(
        branch.type.scalar is node.type.scalar
        or node.type.scalar.is_float
        or branch.type.scalar is not Scalar.U64
        for branch in branches
    )


def _converted(value: Datum, result: ValueType) -> Datum:
    """One of several values, in their common type."""
    if result.is_numeric:
        return to_numeric(value, result)
    return pc.cast(value, arrow_type(result))


def _scalar(value: object, type: ValueType) -> pa.Scalar:
    return pa.scalar(list(value) if isinstance(value, tuple) else value, arrow_type(type))


# --- scalar functions -----------------------------------------------------------------------------


def call(function: ScalarFunction, arguments: Sequence[Datum], result: ValueType) -> Datum:
    """The value of a scalar function; null for a null argument, except in `coalesce`."""
    first = arguments[0]
    match function:
        case "lower":
            return _map_case(first, pc.ascii_lower, str.lower)
        case "upper":
            return _map_case(first, pc.ascii_upper, str.upper)
        case "length" | "size":
            return _length(first)
        case "abs":
            return absolute(first, result)
        case "round":
            return rounded(first, arguments[1].as_py() if len(arguments) > 1 else 0, result)
        case "floor":
            return fn.whole(first, result, pc.floor)
        case "ceil":
            return fn.whole(first, result, pc.ceil)
        case "sqrt":
            return fn.square_root(first, result)
        case "log":
            return fn.logarithm(first, result)
        case "pow":
            return fn.power(first, arguments[1], result)
        case "date_part":
            return fn.date_part(first.as_py(), arguments[1])
        case "date_trunc":
            return fn.truncated(first.as_py(), arguments[1])
        case "concat":
            return fn.concat(arguments)
        case "substring":
            return fn.substring(first, arguments[1], arguments[2] if len(arguments) > 2 else None)
        case "split":
            return fn.split(first, arguments[1])
        case "replace":
            return fn.replaced(first, arguments[1], arguments[2])
        case "trim":
            return fn.trimmed(first)
        case (
            "years" | "months" | "weeks" | "days" | "hours" | "minutes" | "seconds" | "milliseconds"
        ):
            return first
        case "coalesce":
            return _coalesce(arguments, result)


def _map_case(
    texts: Datum, ascii_kernel: Callable[[Datum], Datum], convert: Callable[[str], str]
) -> Datum:
    """Map case by Unicode; outside ASCII, Arrow only maps one character to one."""
    if isinstance(texts, pa.Scalar):
        return pa.scalar(convert(texts.as_py()) if texts.is_valid else None, pa.string())
    is_other = pc.invert(pc.string_is_ascii(texts))
    if not pc.any(is_other).as_py():
        return ascii_kernel(texts)
    if isinstance(texts, pa.ChunkedArray):
        texts, is_other = texts.combine_chunks(), is_other.combine_chunks()
    is_other = is_other.fill_null(False)
    converted = [convert(text) for text in texts.filter(is_other).to_pylist()]
    return pc.replace_with_mask(ascii_kernel(texts), is_other, pa.array(converted, pa.string()))


def _length(operand: Datum) -> Datum:
    """Characters (code points) of a text, elements of a list."""
    is_text = pa.types.is_string(operand.type) or pa.types.is_large_string(operand.type)
    counted = pc.utf8_length(operand) if is_text else pc.list_value_length(operand)
    return pc.cast(counted, pa.int64())


def _coalesce(arguments: Sequence[Datum], result: ValueType) -> Datum:
    chosen: Datum | None = None
    for argument in arguments:
        if chosen is not None:
            # Only a value that is used has to fit the type of the result.
            unused = pa.scalar(None, argument.type)
            argument = pc.if_else(pc.is_null(chosen), argument, unused)  # noqa: PLW2901
        converted = _converted(argument, result)
        chosen = converted if chosen is None else pc.coalesce(chosen, converted)
    if chosen is None:
        raise InternalError("coalesce without arguments")
    return chosen
