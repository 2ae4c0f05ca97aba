"""The contract of an engine: it runs a typed plan over one pinned snapshot and returns Arrow rows.

All engines return the same rows for the same plan, parameters and snapshot, in the same order where
the query asks for one.

A result has one column per item of ``plan.columns``, in that order. A value has the Arrow type of
its model type, a list is an Arrow list, a vector a fixed-size list of floats, and `$x.*` a struct
of the entity's columns, null where an optional match found nothing. Zero rows still have columns.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol, TypeAlias

from omnigraph.errors import InputError
from omnigraph.model.records import dataclass
from omnigraph.model.result import LazyRows
from omnigraph.model.result_json import ResultColumns
from omnigraph.query.expressions import Nearest, Rrf
from omnigraph.query.plan import ReadPlan, RowCount
from omnigraph.storage.reader import SnapshotReader

Embed: TypeAlias = Callable[[Nearest, str], Sequence[float]]
"""Turns the text of a `nearest` call into a vector; called at most once per text and property."""


@dataclass(slots=True)
class StepReport:
    """How one step of a plan ran, for `--explain`."""

    step: str
    strategy: str
    rows: int
    seconds: float
    expected_rows: float | None = None
    """What was expected before it ran."""


@dataclass(slots=True)
class Trace:
    """The step reports of one execution, in order."""

    steps: list[StepReport] = field(default_factory=list)


@dataclass(slots=True)  # not frozen, which takes three times as long to make
class Execution:
    """One run of a read plan."""

    plan: ReadPlan
    parameters: Mapping[str, object]
    """Bound parameters by name, in the form of `model.values`; a missing `?` parameter is None."""
    reader: SnapshotReader
    now: dt.datetime
    """The value of `now()`."""
    embed: Embed
    trace: Trace | None = None

    def bounded(self) -> Execution:
        """A copy whose plan has the values of the parameters that bound numbers of hops."""
        if not self.plan.is_bounded_by_parameters:
            return self
        return replace(self, plan=self.plan.within(self.parameters))

    def row_count(self, count: RowCount | None) -> int | None:
        """The value of a `limit` or `offset`; None if there is none, or a null parameter."""
        if count is None or isinstance(count, int):
            return count
        value = self.parameters[count.name]
        if value is None:
            return None
        assert isinstance(value, int)
        if value < 0:
            raise InputError(
                f"parameter '{count.name}' counts rows and cannot be negative: {value}"
            )
        return value

    def row_range(self) -> tuple[int, int | None]:
        """The first row that `offset` and `limit` select, and the one after the last."""
        limit, start = self.row_count(self.plan.limit), self.row_count(self.plan.offset) or 0
        ranked_by = None if self.plan.rank is None else self.plan.rank.score
        if limit is None and isinstance(ranked_by, Nearest | Rrf):
            raise InputError("nearest and rrf need a limit; the parameter given for it is null")
        return start, None if limit is None else start + limit


class Engine(Protocol):
    """One way to run plans."""

    @property
    def name(self) -> str:
        """The engine's name in `--explain` and in settings."""
        ...

    def execute(self, run: Execution) -> ResultColumns | LazyRows:
        """The rows of a plan over its snapshot."""
        ...
