"""Expressions over columns: what a typed expression is worth, for all rows at once.

Everything that looks at one row at a time is computed here: comparisons, tests, arithmetic and
scalar functions. Text search, ranking and aggregates need more than a row; an engine computes them
and hands the outcome in as a column.

The rules, beyond what the language says:

- A predicate is two-valued: where a comparison has no answer because of a null, it is false.
- Floats follow IEEE 754: a NaN is unequal to everything, itself included, so only `!=` holds for
  it; the two zeros are equal; a sum or a product too large is an infinity.
- Integers are exact. A result that does not fit I64 is an error, never a wrapped number.
- `lower` and `upper` are the full case mapping of Unicode: `ß` becomes `SS`.
- `round` goes by the digits a reader sees: 2.675 to two places is 2.68, although the float nearest
  to 2.675 lies a little below it. Halves go away from zero.
- A value that is the same for all rows may be a scalar; a caller with rows to filter asks `holds`.
"""

from omnigraph.query.evaluate.evaluator import (
    ColumnExpression,
    Columns,
    Parameters,
    evaluate,
    holds,
    scalar_operand,
    text_operand,
)

__all__ = [
    "ColumnExpression",
    "Columns",
    "Parameters",
    "evaluate",
    "holds",
    "scalar_operand",
    "text_operand",
]
