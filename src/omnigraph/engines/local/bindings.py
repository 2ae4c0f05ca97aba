"""Solutions of a pattern as columns of integers, and the values of expressions over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.nodes import UnionNodes
from omnigraph.engines.local.rows import taken
from omnigraph.engines.local.sorting import BLOCK_ROWS
from omnigraph.engines.local.tables import Session
from omnigraph.errors import InternalError
from omnigraph.model.arrow import arrow_type
from omnigraph.model.governor import Governor, current
from omnigraph.model.records import dataclass
from omnigraph.query import expressions as ex
from omnigraph.query.evaluate import ColumnExpression, evaluate
from omnigraph.query.kernels import Datum, list_contains

# --- bindings -------------------------------------------------------------------------------------


Rows = npt.NDArray[np.integer]
"""Row numbers of a binding table."""

UNCOUNTED_ROWS = 4_096
"""Fewer rows are not measured: asking Arrow for their size takes longer than reading them."""

_UNCOUNTED_COLUMNS = 8

Bound = npt.NDArray[np.int32]
"""What a variable is bound to in each row: a slot, or the number of an edge, a path or a value."""


@dataclass(frozen=True, slots=True)
class BindingTable:
    """Rows of bindings; a variable that no later step reads has no column."""

    count: int
    bound: Mapping[str, Bound]

    @classmethod
    def unit(cls) -> BindingTable:
        """The one empty solution that every match starts from."""
        return cls(1, {})

    @property
    def is_unit(self) -> bool:
        """Whether nothing has been bound yet."""
        return self.count == 1 and not self.bound

    @property
    def nbytes(self) -> int:
        """Memory of the columns."""
        return 4 * self.count * len(self.bound)

    def take(self, rows: Rows) -> BindingTable:
        """The rows with these numbers, in this order."""
        # `take` is twice as fast as indexing with an array.
        return self._made(len(rows), lambda column: column.take(rows))

    def part(self, start: int, stop: int) -> BindingTable:
        """Some consecutive rows."""
        rows = slice(start, stop)
        return BindingTable(
            stop - start, {name: column[rows] for name, column in self.bound.items()}
        )

    def repeat(self, counts: Rows) -> BindingTable:
        """Each row repeated by its count."""
        return self._made(int(counts.sum()), lambda column: np.repeat(column, counts))

    def filter(self, mask: npt.NDArray[np.bool_]) -> BindingTable:
        """The rows for which ``mask`` is true."""
        if mask.all():
            return self
        return self._made(int(mask.sum()), lambda column: column[mask])

    def _made(self, count: int, change: Callable[[Bound], Bound]) -> BindingTable:
        """Another table of ``count`` rows, made column by column within the query's limits."""
        if count <= UNCOUNTED_ROWS:
            return BindingTable(count, {name: change(one) for name, one in self.bound.items()})
        governor = current()
        governor.reserve(4 * count * len(self.bound))
        bound: dict[str, Bound] = {}
        for name, column in self.bound.items():
            governor.check()
            bound[name] = change(column)
        return BindingTable(count, bound)

    def only(self, names: Iterable[str]) -> BindingTable:
        """The table with these columns only."""
        kept = {name: self.bound[name] for name in names if name in self.bound}
        return self if len(kept) == len(self.bound) else BindingTable(self.count, kept)

    def binding(self, name: str, values: Bound) -> BindingTable:
        """The table with one more variable."""
        return BindingTable(self.count, {**self.bound, name: values})


def joined(frames: list[BindingTable]) -> BindingTable:
    """The concatenated rows of several tables with the same variables."""
    filled = [frame for frame in frames if frame.count]
    if len(filled) == 1:
        return filled[0]
    if not filled:
        return frames[0]
    current().reserve(sum(frame.nbytes for frame in filled))
    names = filled[0].bound
    return BindingTable(
        sum(frame.count for frame in filled),
        {name: np.concatenate([frame.bound[name] for frame in filled]) for name in names},
    )


# --- values ---------------------------------------------------------------------------------------


Floats = npt.NDArray[np.float64]

_ID_TYPE = pa.string()
"""The type of `id`, the only node column that a prepared plan does not list."""


def is_counted(rows: int, columns: int) -> bool:
    """Whether values are worth measuring: many rows, or several rows of many columns."""
    return rows > UNCOUNTED_ROWS or (columns > _UNCOUNTED_COLUMNS and rows > 1)


class _ChargedBytes:
    """Bytes that are charged to the query as long as this object lives."""

    _nbytes = 0

    def __init__(self, governor: Governor, nbytes: int) -> None:
        self._governor = governor
        governor.hold(nbytes)
        self._nbytes = nbytes

    def __del__(self) -> None:
        self._governor.release(self._nbytes)


def flags_of(answer: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Truth values of rows; unpacking the bits is much faster than Arrow's own conversion."""
    if len(answer) <= UNCOUNTED_ROWS or not isinstance(answer, pa.BooleanArray):
        found: npt.NDArray[np.bool_] = answer.to_numpy(zero_copy_only=False)
        return found
    if answer.null_count:
        return flags_of(answer.fill_null(False))
    first, spare = divmod(answer.offset, 8)
    packed = np.frombuffer(answer.buffers()[1], np.uint8)[first:]
    bits = np.unpackbits(packed, count=spare + len(answer), bitorder="little")
    return bits[spare:].view(np.bool_)


class BindingValues:
    """Evaluates expressions over the rows of a binding table; each leaf is read once."""

    def __init__(
        self, session: Session, frame: BindingTable, scores: dict[str, pa.Array] | None = None
    ) -> None:
        self.session = session
        self.frame = frame
        self._scores = scores or {}
        self._blocks: dict[str, pa.Array] = {}
        # Keyed by identity, because hashing a leaf costs more than reading a value. The leaf is
        # stored too, so that its `id` is not reused.
        self._known: dict[int, tuple[ColumnExpression, pa.Array, _ChargedBytes | None]] = {}

    def __call__(self, leaf: ColumnExpression) -> pa.Array:
        """The values of a leaf."""
        known = self._known.get(id(leaf))
        if known is None:
            column = self._read(leaf)
            many = self.frame.count > 1 and is_counted(self.frame.count, len(self._known))
            held = _ChargedBytes(self.session.governor, column.nbytes) if many else None
            known = self._known[id(leaf)] = (leaf, column, held)
        return known[1]

    def part(self, start: int, stop: int) -> BindingValues:
        """The values of some consecutive rows."""
        if type(self) is BindingValues and not self._scores:
            return BindingValues(self.session, self.frame.part(start, stop))
        return _Part(self, start, stop)

    def slots(self, variable: str) -> Bound:
        """What a variable is bound to in each row."""
        return self.frame.bound[variable]

    def taken(self, rows: Rows) -> BindingValues:
        """The values of some of the rows."""
        return BindingValues(self.session, self.frame.take(rows))

    def column(self, expression: ex.Expression) -> pa.Array:
        """An expression as one array of its own type."""
        if isinstance(expression, ex.PropertyValue | ex.EntityId | ex.CarriedNode):
            return self(expression)
        if self.frame.count > BLOCK_ROWS:
            return self._column_in_blocks(expression)
        value = self.value(expression)
        if isinstance(value, pa.Scalar):
            value = pa.repeat(value, self.frame.count)
        elif isinstance(value, pa.ChunkedArray):
            value = value.combine_chunks()
        type = arrow_type(expression.type)
        return value if value.type == type else value.cast(type)

    def _column_in_blocks(self, expression: ex.Expression) -> pa.Array:
        parts: list[pa.Array] = []
        held = 0
        for start in range(0, self.frame.count, BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, self.frame.count)
            parts.append(_Part(self, start, stop).column(expression))
            held = self.session.governor.hold_instead(held, held + parts[-1].nbytes)
        self.session.governor.reserve(held)
        self.session.governor.release(held)
        return pa.concat_arrays(parts)

    def floats(self, expression: ex.Expression) -> Floats | None:
        """A number as doubles; None if it is null in any row."""
        column = self.column(expression)
        if column.null_count:
            return None
        numbers: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
        return numbers

    def value(self, expression: ex.Expression) -> Datum:
        """The values of an expression; a scalar if they are the same for all rows."""
        if isinstance(expression, ex.ListContains) and isinstance(expression.list, ex.BoundValue):
            # A list collected by a stage is not copied for every row.
            shared = self._shared(expression.list)
            if shared is not None:
                return list_contains(shared, self.value(expression.item))
        if isinstance(expression, ex.ListContains) and isinstance(expression.list, ex.PathNodes):
            item = expression.item
            if isinstance(item, ex.EntityId):
                space = self.session.tables.space(
                    self.session.prepared.variables[item.variable].type_name
                )
                numbers, slots = self.slots(expression.list.variable), self.slots(item.variable)
                passed = self.session.paths.passes(numbers, slots, space)
                if passed is not None:
                    return pa.array(passed)
        run = self.session.run
        return evaluate(expression, self, run.parameters, run.now)

    def _shared(self, leaf: ex.BoundValue) -> pa.Scalar | None:
        """The scalar that a stage has handed to all rows; None if rows have different values."""
        if not self.frame.count or leaf.variable in self.session.prepared.blocks:
            return None
        slots = self.slots(leaf.variable)
        if slots[0] < 0 or (slots != slots[0]).any():
            return None
        return self.session.values_of[leaf.variable][int(slots[0])]

    def mask(self, predicates: tuple[ex.Expression, ...]) -> npt.NDArray[np.bool_] | None:
        """Where every predicate is true; None if they are true in all rows."""
        count = self.frame.count
        if not predicates or count <= BLOCK_ROWS:
            return self._mask(predicates)
        self.session.governor.reserve(count)
        found = np.ones(count, np.bool_)
        for start in range(0, count, BLOCK_ROWS):
            self.session.governor.check()
            stop = min(start + BLOCK_ROWS, count)
            one = self.part(start, stop)._mask(predicates)
            if one is not None:
                found[start:stop] = one
        return None if found.all() else found

    def _mask(self, predicates: tuple[ex.Expression, ...]) -> npt.NDArray[np.bool_] | None:
        mask: npt.NDArray[np.bool_] | None = None
        for predicate in predicates:
            answer = self.value(predicate)
            if isinstance(answer, pa.Scalar):
                if answer.as_py():
                    continue
                return np.zeros(self.frame.count, np.bool_)
            one = flags_of(answer)
            mask = one if mask is None else mask & one
        return mask

    def _read(self, leaf: ColumnExpression) -> pa.Array:
        if not self.frame.count:
            # Edge variables of steps that did not run have no table.
            return pa.array([], arrow_type(leaf.type))
        match leaf:
            case ex.PropertyValue(kind="node"):
                nodes = self.session.tables.nodes(leaf.type_name)
                if leaf.property == ex.NODE_TYPE and not isinstance(nodes, UnionNodes):
                    slots = self.slots(leaf.variable)
                    return pa.array([leaf.type_name], pa.string()).take(
                        pa.array(np.zeros(len(slots), np.int32), mask=slots < 0)
                    )
                columns = self.session.prepared.node_columns.get(leaf.type_name, {})
                type = columns.get(leaf.property, _ID_TYPE)
                return nodes.values(leaf.property, type, self.slots(leaf.variable))
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
            case ex.BoundValue() if leaf.variable in self.session.prepared.blocks:
                return self.block(leaf.variable)
            case ex.BoundValue():
                return taken(self.session.values_of[leaf.variable], self.slots(leaf.variable))
            case ex.CarriedNode():
                slots = self.slots(leaf.variable)
                return pa.array(slots, pa.int32(), mask=slots < 0)
            case ex.PathEdges():
                return self.session.paths.edges(self.slots(leaf.variable))
            case ex.PathCost():
                return self.session.paths.costs(self.slots(leaf.variable))
            case ex.OutputValue():
                return self._searched(leaf.name)

    def block(self, variable: str) -> pa.Array:
        """The values of a block, in the block's type."""
        # Imported late: blocks run patterns, whose steps evaluate expressions.
        from omnigraph.engines.local.blocks import block_values

        known = self._blocks.get(variable)
        if known is None:
            block = self.session.prepared.blocks[variable]
            known = self._blocks[variable] = block_values(self.session, block, self.frame)
        return known

    def keep_blocks(self, other: BindingValues, rows: Rows) -> None:
        """Take over the block values of ``other``; the rows here are its rows ``rows``."""
        self._blocks = {name: taken(column, rows) for name, column in other._blocks.items()}

    def _searched(self, name: str) -> pa.Array:
        known = self._scores.get(name)
        if known is not None:
            return known
        call = self.session.prepared.calls.get(name)
        if call is None:
            raise InternalError(f"nothing computes the column {name}")
        return self.session.search.values(call, self.slots(call.variable))


class _Part(BindingValues):
    """Consecutive rows of other values; leaves are read once for all parts."""

    def __init__(self, whole: BindingValues, start: int, stop: int) -> None:
        super().__init__(whole.session, whole.frame.part(start, stop))
        self._whole = whole
        self._start = start

    def __call__(self, leaf: ColumnExpression) -> pa.Array:
        return self._whole(leaf).slice(self._start, self.frame.count)
