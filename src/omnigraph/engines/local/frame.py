"""Solutions of a pattern, column by column: one integer per row and variable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.integer]
"""Row numbers of a frame."""

Bound = npt.NDArray[np.int32]
"""What a variable is bound to in each row: a slot, an edge's position or a path's number."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows of bindings. A variable that nothing reads any more has no column."""

    count: int
    bound: Mapping[str, Bound]

    @classmethod
    def unit(cls) -> Frame:
        """The one empty solution every match starts from."""
        return cls(1, {})

    @property
    def is_unit(self) -> bool:
        """Whether nothing has been bound yet."""
        return self.count == 1 and not self.bound

    def take(self, rows: Rows) -> Frame:
        """The rows with these numbers, in this order."""
        # `take` reads twice as fast as an index array in brackets.
        return Frame(len(rows), {name: column.take(rows) for name, column in self.bound.items()})

    def part(self, start: int, stop: int) -> Frame:
        """Some consecutive rows."""
        rows = slice(start, stop)
        return Frame(stop - start, {name: column[rows] for name, column in self.bound.items()})

    def repeat(self, counts: Rows) -> Frame:
        """Each row as often as its count says."""
        repeated = {name: np.repeat(column, counts) for name, column in self.bound.items()}
        return Frame(int(counts.sum()), repeated)

    def filter(self, mask: npt.NDArray[np.bool_]) -> Frame:
        """The rows for which ``mask`` is true."""
        if mask.all():
            return self
        return Frame(int(mask.sum()), {name: column[mask] for name, column in self.bound.items()})

    def only(self, names: Iterable[str]) -> Frame:
        """The frame without columns that nothing reads any more."""
        kept = {name: self.bound[name] for name in names if name in self.bound}
        return self if len(kept) == len(self.bound) else Frame(self.count, kept)

    def binding(self, name: str, values: Bound) -> Frame:
        """The frame with one more variable."""
        return Frame(self.count, {**self.bound, name: values})


def joined(frames: list[Frame]) -> Frame:
    """The rows of several frames with the same variables, one frame after the other."""
    filled = [frame for frame in frames if frame.count]
    if len(filled) == 1:
        return filled[0]
    if not filled:
        return frames[0]
    names = filled[0].bound
    return Frame(
        sum(frame.count for frame in filled),
        {name: np.concatenate([frame.bound[name] for frame in filled]) for name in names},
    )
