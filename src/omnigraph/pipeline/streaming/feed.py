"""A stream of the changes of commits: `spark.readStream.format("omnigraph")`.

Offsets are cursors of the change feed, so a stream can resume from its checkpoint on any machine.
Spark asks one process for offsets, which reads only the lineage of the branch; tasks read the
entities, each for some consecutive commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from math import ceil
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from omnigraph.branching.change_feed import FeedLine
from omnigraph.branching.moments import SchemaHistory
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.opening import open_for_reading
from omnigraph.effects.uri import Root
from omnigraph.errors import InputError
from omnigraph.model.changes import COMMITS_DEFAULT, ChangeFilter, EntityChange, Image
from omnigraph.model.records import dataclass
from omnigraph.pipeline.data_source.options import (
    ACTING_OPTIONS,
    SentToProcesses,
    SourceActor,
    known_options,
    names_in,
    require_decided,
    whole_number,
)
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import CommitRow

COLUMNS = pa.schema(
    [
        ("graph_commit_id", pa.string()),
        ("authored_at", pa.timestamp("us", tz="UTC")),
        ("actor_id", pa.string()),
        ("kind", pa.string()),
        ("type", pa.string()),
        ("id", pa.string()),
        ("op", pa.string()),
        ("before", pa.string()),
        ("after", pa.string()),
    ]
)
"""One row for each entity that a commit changed; images are JSON."""
SEQUENCE = pa.field("sequence", pa.int64())
"""An optional column: the position of the commit in the history of its branch."""

PARTITIONS_MAX = 16
BATCH_ROWS = 1_024

_CURSOR = "cursor"


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The checked options of one stream of changes."""

    path: str
    branch: str = MAIN
    start: str = "latest"
    """`latest`, `beginning`, `after:<commit>` or a cursor of the change feed."""
    max_commits: int = COMMITS_DEFAULT
    """The largest number of commits in a micro-batch."""
    kinds: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    sequence: bool = False
    acting: SourceActor | None = None
    """The actor by the options `policy`, `actor` and `claims`."""

    @classmethod
    def of(cls, options: Mapping[str, str], acting: SourceActor | None = None) -> FeedOptions:
        """Parse Spark's options; raises `InputError` if one is unknown or missing."""
        if any(name.lower() == "type" for name in options):
            raise InputError(
                "a stream of changes has no option 'type'",
                hint='name the types it should have as .option("types", "Person,Knows")',
            )
        known = [each.name for each in fields(cls) if each.name != "acting"]
        given = known_options(options, [*known, "actor", *ACTING_OPTIONS], "a stream of changes")
        require_decided(given, acting)

        def names(option: str) -> tuple[str, ...]:
            return names_in(option, given[option]) if option in given else ()

        return cls(
            given["path"],
            given.get("branch") or MAIN,
            given.get("start") or "latest",
            whole_number("max_commits", given.get("max_commits"), COMMITS_DEFAULT),
            names("kinds"),
            names("types"),
            names("ops"),
            _truth("sequence", given.get("sequence", "false")),
            acting,
        )

    @property
    def wanted(self) -> ChangeFilter:
        """The filter of the feed; raises `InputError` for an unknown kind or operation."""
        return ChangeFilter.of(self.kinds, self.types, self.ops)

    @property
    def position(self) -> str:
        """``start`` as a position of the change feed."""
        return "now" if self.start == "latest" else self.start

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream."""
        return COLUMNS.append(SEQUENCE) if self.sequence else COLUMNS

    def line(self) -> FeedLine:
        """The branch's change feed as the actor sees it; opens the graph in this process."""
        if self.acting is not None:
            return FeedLine(*self.acting.feed(self.path, self.branch), self.branch, self.wanted)
        kernel = Kernel.of(Root.parse(self.path), serve_older=True)
        open_for_reading(kernel)
        return FeedLine(kernel, SchemaHistory(kernel), self.branch, self.wanted)


def _truth(name: str, text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise InputError(f"the option '{name}' is '{text}'", hint="it is true or false")


class _Commits(InputPartition):
    """The commits that one task reads."""

    def __init__(self, commit_ids: tuple[str, ...]) -> None:
        super().__init__(None)
        self.commit_ids = commit_ids


class FeedReader(SentToProcesses, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Divides the feed of a branch into micro-batches, and these into tasks."""

    def __init__(self, options: FeedOptions) -> None:
        self._options = options
        self._opened: FeedLine | None = None
        self._until: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Not sent: each process opens the graph itself.
        return {**super().__getstate__(), "_opened": None}

    @property
    def _line(self) -> FeedLine:
        if self._opened is None:
            self._opened = self._options.line()
        return self._opened

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """The offset at which a stream without a checkpoint begins."""
        return {_CURSOR: self._line.starting_at(self._options.position)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """No limit of Spark's: `max_commits` limits a batch, and Spark has no limit on commits."""
        return ReadMaxFiles(self._options.max_commits)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        """The offset at which the next micro-batch ends."""
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        assert most is not None or isinstance(limit, ReadAllAvailable)
        return {_CURSOR: self._line.advanced(start[_CURSOR], most, self._until)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Leave commits from now on to the next run."""
        self._until = self._line.starting_at("now")

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The commits of a micro-batch, in order, for at most `PARTITIONS_MAX` tasks."""
        commits = self._line.between(start[_CURSOR], end[_CURSOR])
        if not commits:
            return []
        each = ceil(len(commits) / PARTITIONS_MAX)
        return [_Commits(tuple(commits[at : at + each])) for at in range(0, len(commits), each)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of some commits, in order."""
        assert isinstance(partition, _Commits)
        schema = self._options.schema
        for commit, changes in self._options.line().changes(partition.commit_ids):
            rows = iter(changes)
            while part := [_row(commit, row) for row in islice(rows, BATCH_ROWS)]:
                yield pa.RecordBatch.from_pylist(part, schema)


def _row(commit: CommitRow, change: EntityChange) -> dict[str, Any]:
    return {
        "graph_commit_id": commit.commit_id,
        "authored_at": commit.created_at,
        "actor_id": commit.actor_id,
        "kind": change.kind,
        "type": change.type_name,
        "id": change.id,
        "op": change.op,
        "before": _json(change.before),
        "after": _json(change.after),
        SEQUENCE.name: commit.commit_seq,
    }


def _json(image: Image | None) -> str | None:
    return None if image is None else orjson.dumps(image.to_dict()).decode()


def feed_schema(options: FeedOptions) -> StructType:
    """The columns of the stream as Spark's type; checks the options by opening the graph."""
    options.line().starting_at(options.position)
    return from_arrow_schema(options.schema)
