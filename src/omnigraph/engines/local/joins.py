"""Joining rows by equal values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.adjacency import spread
from omnigraph.engines.local.codes import codes_of
from omnigraph.engines.local.prepare import PreparedStep
from omnigraph.model.types import Scalar
from omnigraph.query import expressions as ex
from omnigraph.query import plan

Keys = tuple[tuple[ex.Expression, ex.Expression], ...]
"""Pairs of what is bound already and what the scan brings."""


def join_keys(scan: PreparedStep, following: PreparedStep | None) -> Keys | None:
    """The equalities by which a scan can be joined to the rows before it, if there are any."""
    if not isinstance(scan.step, plan.Scan) or following is None:
        return None
    if not isinstance(following.step, plan.FilterRows):
        return None
    variable = scan.step.variable
    keys = []
    for predicate in following.step.predicates:
        if not (isinstance(predicate, ex.Compare) and predicate.operator == "="):
            continue
        for bound, fresh in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
            outside = ex.variables_of(bound)
            if (
                ex.variables_of(fresh) == {variable}
                and outside
                and variable not in outside
                and _joinable(bound)
                and _joinable(fresh)
                and bound.type.scalar == fresh.type.scalar
            ):
                keys.append((bound, fresh))
    return tuple(keys) or None


def _joinable(expression: ex.Expression) -> bool:
    """Equal values have equal codes: true of everything but floats, and of stored values only."""
    kinds = (ex.PropertyValue, ex.EntityId)
    return (
        isinstance(expression, kinds)
        and expression.type.is_plain_scalar
        and expression.type.scalar not in (Scalar.F32, Scalar.F64)
    )


def matched_rows(
    left: list[pa.Array], right: list[pa.Array]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The pairs of rows that agree in every column; null agrees with nothing."""
    size = len(left[0])
    together = [pa.concat_arrays([one, other]) for one, other in zip(left, right, strict=True)]
    valid = np.ones(size + len(right[0]), np.bool_)
    for column in together:
        if column.null_count:
            valid &= column.is_valid().to_numpy(zero_copy_only=False)
    codes = codes_of(together).codes
    left_codes, right_codes = codes[:size], codes[size:]
    right_rows = np.flatnonzero(valid[size:])
    order = right_rows[np.argsort(right_codes[right_rows], kind="stable")]
    ordered = right_codes[order]
    left_rows = np.flatnonzero(valid[:size])
    begin = np.searchsorted(ordered, left_codes[left_rows])
    counts = np.searchsorted(ordered, left_codes[left_rows], side="right") - begin
    return np.repeat(left_rows, counts), order[spread(begin, counts)]
