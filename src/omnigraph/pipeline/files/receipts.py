"""The results of validating, planning and running a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from omnigraph.model.json_object import OPTIONAL, PLAIN, JsonObject
from omnigraph.model.receipts import CommitInfo, EmbedResult, LoadedType, MergeReceipt
from omnigraph.model.records import dataclass

PipelineOutcome = Literal["no_change", "loaded", "merged"]


@dataclass(frozen=True, slots=True)
class PipelineStage(JsonObject):
    """One completed stage of a run."""

    name: str
    seconds: float
    detail: str
    """A description of what it did."""
    rows: Annotated[int | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True)
class PipelineSource(JsonObject):
    """The input of a run from one source."""

    name: str
    format: str
    files: int
    """The number of files; 0 for a source without files, such as a table."""
    bytes: int
    new: Annotated[int | None, OPTIONAL] = None
    """For an incremental source: the number of files or partitions that no run has loaded yet."""
    changed: Annotated[tuple[str, ...], PLAIN] = ()
    """The files or partitions that an earlier run loaded with other contents."""
    left: int = 0
    """How many new files or partitions are left to the next run."""
    is_watched: bool = True
    """Whether changes of the source can be detected."""


@dataclass(frozen=True, slots=True)
class PipelineCheckResult(JsonObject):
    """The result of a check."""

    name: str
    expect: str
    passed: bool
    rows: int
    """How many rows the query returned."""
    sample: Annotated[tuple[Mapping[str, Any], ...], PLAIN] = ()
    """The first rows of a check that failed."""


@dataclass(frozen=True, slots=True)
class PipelineReport(JsonObject):
    """The result of validating a file that has no problem."""

    name: str
    file: str
    graph: str
    sources: tuple[PipelineSource, ...]
    types: tuple[str, ...]
    """The types that get rows, such as `node:Person`."""
    checks: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedRows(JsonObject):
    """Findings from a sample of the rows of one type."""

    type: str
    """The type key, such as `node:Person`."""
    source: str
    sampled: int
    """The number of rows in the sample."""
    is_all: bool
    """Whether the sample has all rows."""
    nulls: Annotated[Mapping[str, int], PLAIN]
    """By required property or end: how many sampled rows lack it."""
    first: Annotated[Mapping[str, Any] | None, OPTIONAL] = None
    """A sampled row, with values as texts."""


@dataclass(frozen=True, slots=True)
class PipelinePlan(JsonObject):
    """The result of planning a run: what it would do now."""

    name: str
    graph: str
    branch: str
    merge_into: str | None
    outcome: Literal["no_change", "resume", "load"]
    """`no_change`: nothing to do; `resume`: a loaded branch has yet to be checked; `load`: rows to
    load."""
    reason: str
    stages: tuple[str, ...]
    sources: tuple[PipelineSource, ...]
    rows: tuple[PlannedRows, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PipelineReceipt(JsonObject):
    """The result of a run."""

    name: str
    graph: str
    outcome: PipelineOutcome
    """`merged`, `loaded` if the file names no branch to merge into, or `no_change`."""
    branch: str
    merge_into: str | None
    resumed: bool
    """Whether an earlier run that was interrupted had loaded the rows."""
    sources: tuple[PipelineSource, ...]
    nodes: tuple[LoadedType, ...]
    edges: tuple[LoadedType, ...]
    embedded: tuple[EmbedResult, ...]
    checks: tuple[PipelineCheckResult, ...]
    load_commit_id: str | None
    """The commit on the branch."""
    commit: CommitInfo | None
    """The published commit; for a run without changes, that of the run before."""
    stages: tuple[PipelineStage, ...]
    merge: Annotated[MergeReceipt | None, OPTIONAL] = None
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The duration of all stages."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def rows(self) -> int:
        """The number of rows read."""
        return sum(each.records_read for each in (*self.nodes, *self.edges))
