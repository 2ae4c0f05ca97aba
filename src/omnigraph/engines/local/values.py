"""The values expressions are computed from, for the rows of a frame or of a whole table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.frame import Bound, Frame, Rows
from omnigraph.engines.local.session import Session
from omnigraph.errors import InternalError
from omnigraph.model.arrow import arrow_type
from omnigraph.query import expressions as ex
from omnigraph.query.evaluate import ColumnExpression, evaluate
from omnigraph.query.kernels import Datum

Floats = npt.NDArray[np.float64]


class FrameValues:
    """What each leaf of an expression is worth in the rows of a frame; each is read once."""

    def __init__(
        self, session: Session, frame: Frame, scores: dict[str, pa.Array] | None = None
    ) -> None:
        self.session = session
        self.frame = frame
        self._scores = scores or {}
        # By identity, since hashing a leaf costs more than reading a value; each is kept beside its
        # values, so that no other leaf can take its place in memory.
        self._known: dict[int, tuple[ColumnExpression, pa.Array]] = {}

    def __call__(self, leaf: ColumnExpression) -> pa.Array:
        """One leaf."""
        known = self._known.get(id(leaf))
        if known is None:
            known = self._known[id(leaf)] = (leaf, self._read(leaf))
        return known[1]

    def slots(self, variable: str) -> Bound:
        """What a variable is bound to in each row."""
        return self.frame.bound[variable]

    def taken(self, rows: Rows) -> FrameValues:
        """The values of some of the rows."""
        return FrameValues(self.session, self.frame.take(rows))

    def column(self, expression: ex.Expression) -> pa.Array:
        """An expression as one array of its own type."""
        if isinstance(expression, ex.PropertyValue | ex.EntityId):
            return self(expression)
        value = self.value(expression)
        if isinstance(value, pa.Scalar):
            value = pa.repeat(value, self.frame.count)
        elif isinstance(value, pa.ChunkedArray):
            value = value.combine_chunks()
        type = arrow_type(expression.type)
        return value if value.type == type else value.cast(type)

    def floats(self, expression: ex.Expression) -> Floats | None:
        """A number as doubles; None if it is null in some row."""
        column = self.column(expression)
        if column.null_count:
            return None
        numbers: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
        return numbers

    def value(self, expression: ex.Expression) -> Datum:
        """An expression as it comes: one value if it is the same for all rows."""
        run = self.session.run
        return evaluate(expression, self, run.parameters, run.now)

    def mask(self, predicates: tuple[ex.Expression, ...]) -> npt.NDArray[np.bool_] | None:
        """Where every predicate is true; None if that is everywhere."""
        mask: npt.NDArray[np.bool_] | None = None
        for predicate in predicates:
            answer = self.value(predicate)
            if isinstance(answer, pa.Scalar):
                if answer.as_py():
                    continue
                return np.zeros(self.frame.count, np.bool_)
            one = answer.to_numpy(zero_copy_only=False)
            mask = one if mask is None else mask & one
        return mask

    def _read(self, leaf: ColumnExpression) -> pa.Array:
        if not self.frame.count:
            # Steps that were never reached have not said where their values are.
            return pa.array([], arrow_type(leaf.type))
        match leaf:
            case ex.PropertyValue(kind="node"):
                nodes = self.session.tables.nodes(leaf.type_name)
                return nodes.values(leaf.property, arrow_type(leaf.type), self.slots(leaf.variable))
            case ex.PropertyValue():
                return self.session.edge_values(
                    leaf.variable, leaf.property, arrow_type(leaf.type), self.slots(leaf.variable)
                )
            case ex.EntityId():
                type_name = self.session.prepared.variables[leaf.variable].type_name
                return self.session.tables.space(type_name).strings(self.slots(leaf.variable))
            case ex.PathNodes():
                return self.session.paths.nodes(self.slots(leaf.variable))
            case ex.PathLength():
                return self.session.paths.lengths(self.slots(leaf.variable))
            case ex.OutputValue():
                return self._searched(leaf.name)

    def _searched(self, name: str) -> pa.Array:
        known = self._scores.get(name)
        if known is not None:
            return known
        call = self.session.prepared.calls.get(name)
        if call is None:
            raise InternalError(f"nothing computes the column {name}")
        return self.session.search.values(call, self.slots(call.variable))
