"""The results of validating, planning and running a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from omnigraph.model.embeddings import EmbedResult
from omnigraph.model.json_object import OPTIONAL, PLAIN, JsonObject
from omnigraph.model.receipts import CommitInfo, LoadedType, MergeReceipt

PipelineOutcome = Literal["no_change", "loaded", "merged"]


@dataclass(frozen=True, slots=True)
class PipelineStage(JsonObject):
    """One stage of a run, when it is over."""

    name: str
    seconds: float
    detail: str
    """What it did, in words."""
    rows: Annotated[int | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True)
class PipelineSource(JsonObject):
    """What a run reads of one source."""

    name: str
    format: str
    files: int
    """0 for a source that has none, such as a table."""
    bytes: int
    new: Annotated[int | None, OPTIONAL] = None
    """Of an incremental source: the files or partitions that no earlier run has loaded."""
    changed: Annotated[tuple[str, ...], PLAIN] = ()
    """Those among them that an earlier run loaded with another content."""
    left: int = 0
    """New ones that wait for the next run."""
    is_watched: bool = True
    """Whether a run notices that it did not change."""


@dataclass(frozen=True, slots=True)
class PipelineCheckResult(JsonObject):
    """How a check ended."""

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
    """The types that get rows, as `node:Person`."""
    checks: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedRows(JsonObject):
    """What a sample shows of the rows of one type."""

    type: str
    """As `node:Person`."""
    source: str
    sampled: int
    """Rows that were looked at."""
    is_all: bool
    """Whether there are no more."""
    nulls: Annotated[Mapping[str, int], PLAIN]
    """How many of them lack a required property or an end, by its name."""
    first: Annotated[Mapping[str, Any] | None, OPTIONAL] = None
    """One of them, as text."""


@dataclass(frozen=True, slots=True)
class PipelinePlan(JsonObject):
    """What a run would do now."""

    name: str
    graph: str
    branch: str
    merge_into: str | None
    outcome: Literal["no_change", "resume", "load"]
    """Whether there is nothing to do, a branch that waits for its checks, or rows to load."""
    reason: str
    stages: tuple[str, ...]
    sources: tuple[PipelineSource, ...]
    rows: tuple[PlannedRows, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PipelineReceipt(JsonObject):
    """What a run did."""

    name: str
    graph: str
    outcome: PipelineOutcome
    """`merged`, `loaded` if the file names no branch to merge into, or `no_change`."""
    branch: str
    merge_into: str | None
    resumed: bool
    """Whether the rows were loaded by an earlier run that did not come to its end."""
    sources: tuple[PipelineSource, ...]
    nodes: tuple[LoadedType, ...]
    edges: tuple[LoadedType, ...]
    embedded: tuple[EmbedResult, ...]
    checks: tuple[PipelineCheckResult, ...]
    load_commit_id: str | None
    """The commit on the branch."""
    commit: CommitInfo | None
    """The commit that readers see; of a run without changes, that of the run before it."""
    stages: tuple[PipelineStage, ...]
    merge: Annotated[MergeReceipt | None, OPTIONAL] = None
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """How long it took."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return sum(each.records_read for each in (*self.nodes, *self.edges))
