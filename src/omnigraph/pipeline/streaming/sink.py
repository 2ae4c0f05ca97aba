"""A sink for streams of one type: `frame.writeStream.format("omnigraph")`.

As for a frame that is written at once, tasks write scratch files, and `commit` loads the files of
the successful attempts in a process of Spark's. Spark creates a writer in each process, so writers
share only the messages of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from omnigraph.errors import InputError
from omnigraph.loading.staging import ScratchFile
from omnigraph.loading.task_load import TaskLoad
from omnigraph.model.merging import ConflictPolicy
from omnigraph.model.records import dataclass
from omnigraph.pipeline.data_source.options import (
    SentToProcesses,
    SourceActor,
    SourceOptions,
    error_share,
    whole_number,
)
from omnigraph.pipeline.data_source.writing import FrameRows
from omnigraph.pipeline.streaming.batches import Batch, BatchWriter, Quarantine, StreamTarget
from omnigraph.storage.layout import MAIN

QUERY_ID = "sql.streaming.queryId"
"""The property of Spark's jobs with the id of their streaming query."""

_OF_SPARK = ("checkpointlocation", "queryname")
_NOT_OF_STREAMS = {
    "snapshot": "a stream writes to the head of a branch",
    "columns": "select the columns of the frame",
    "filter": "filter the frame",
    "idempotency_key": "its batches have keys of their own",
    "on_error": "with a folder as `quarantine`, bad records are skipped",
    "errors_out": "bad records are kept in the folder `quarantine`, a file for each batch",
}
"""Options of frames that are not available for streams, and the reasons."""
_OWN = ("from", "merge_every", "merge_into", "on_conflict", "quarantine", "max_error_share")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a stream that is written."""

    rows: SourceOptions
    from_: str | None = None
    merge_every: int | None = None
    merge_into: str = MAIN
    on_conflict: str = "fail"
    quarantine: str | None = None
    max_error_share: float | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], acting: SourceActor | None = None) -> SinkOptions:
        """Parse Spark's options; raises `InputError` if one is unknown or missing."""
        given = {name.lower(): value for name, value in options.items()}
        for name, hint in _NOT_OF_STREAMS.items():
            if name in given:
                raise InputError(f"a stream into a graph has no option '{name}'", hint=hint)
        rows = {n: each for n, each in given.items() if n not in (*_OWN, *_OF_SPARK)}
        every = given.get("merge_every")
        return cls(
            SourceOptions.of(rows, acting),
            given.get("from"),
            None if every is None else whole_number("merge_every", every, 1),
            given.get("merge_into", MAIN),
            given.get("on_conflict", "fail"),
            given.get("quarantine"),
            error_share(given.get("max_error_share")),
        )

    def target(self, rows: FrameRows) -> StreamTarget:
        """The target of batches; raises `InputError` for options that exclude each other."""
        if rows.options.acting is not None and self.merge_every is not None:
            branch, path = rows.options.branch, rows.options.path
            rows.options.acting.require_merger(path, branch, self.merge_into)
        return StreamTarget(
            rows.options.branch,
            rows.mode,
            rows.absent,
            rows.actor,
            self.from_,
            self.merge_every,
            self.merge_into,
            cast(ConflictPolicy, self.on_conflict),
            Quarantine.of(self.quarantine, self.max_error_share, rows.options.path),
            (rows.table_key,),
        )


@dataclass
class _PutAside(WriterCommitMessage):
    """The file that a task wrote, and the query it belongs to."""

    query_id: str
    scratch: str
    path: str


class StreamWriter(SentToProcesses, DataSourceStreamArrowWriter):
    """Writes the rows of each micro-batch as one commit."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        self._rows = FrameRows(options.rows, schema, overwrite=overwrite, from_=options.from_)
        self._target = options.target(self._rows)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task to a scratch file of this attempt."""
        context = TaskContext.get()
        assert context is not None
        query_id = context.getLocalProperty(QUERY_ID)
        assert query_id is not None
        folder, files = self._rows.folder, self._rows.files
        files.make_folder(folder, exist_ok=True)
        with ScratchFile(folder, files) as file:
            for batch in iterator:
                file.add(batch)
        return _PutAside(query_id, self._rows.scratch, file.path)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Load the files of the successful tasks, unless the batch was committed before."""
        written = [each for each in messages if isinstance(each, _PutAside)]
        if not written:
            return
        kernel, rows = self._rows.kernel(), self._rows
        sources = rows.sources([each.path for each in written], f"<batch {batchId}>")
        try:
            BatchWriter(kernel, self._target).write(
                Batch(written[0].query_id, batchId),
                lambda request: TaskLoad(kernel, request, sources, None),
            )
        finally:
            self._delete(written)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete the scratch files."""
        self._delete([each for each in messages if isinstance(each, _PutAside)])

    def _delete(self, written: list[_PutAside]) -> None:
        store = self._rows.kernel().store
        for scratch in {each.scratch for each in written}:
            store.delete_prefix(scratch)
