"""`graph.stream_into`: streaming frames into an open graph, several types in one commit.

Each micro-batch is one Spark job, whose tasks write the rows to scratch files by type, and one load
of these files by threads of this process. Several streaming frames are combined into one frame with
a column for each, so that they share batches.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import orjson
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere
from pyspark.sql.pandas.types import to_arrow_schema

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.plan import WriteLimits
from omnigraph.commit.write_path import WritePath
from omnigraph.errors import InputError
from omnigraph.loading.changes import CHANGE_COLUMNS, ChangesLoad, read_batches
from omnigraph.loading.files import Files
from omnigraph.loading.inputs import type_key
from omnigraph.loading.load import LoadExecutor
from omnigraph.loading.reading import check_columns
from omnigraph.loading.request import LoadSpec
from omnigraph.loading.sources import FileSource, Frame, type_of
from omnigraph.loading.staging import ScratchFile
from omnigraph.loading.task_load import TaskLoad
from omnigraph.model.receipts import LoadReceipt
from omnigraph.model.records import dataclass
from omnigraph.pipeline.data_source.writing import schema_branch
from omnigraph.pipeline.spark.gateway import loss_named
from omnigraph.pipeline.spark.session import require_classic
from omnigraph.pipeline.streaming import failure_of
from omnigraph.pipeline.streaming.batches import Batch, BatchWriter, Quarantine, StreamTarget
from omnigraph.pipeline.streaming.sink import QUERY_ID
from omnigraph.storage.layout import load_scratch_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Apply = Literal["rows", "changes"]
Split = Callable[["DataFrame"], Mapping[str, "DataFrame"]]

RECEIPTS_KEPT = 100

_WAIT_SECONDS = 0.1


LATE = "late "
"""Prefix of the name of a column with late rows."""


@dataclass(frozen=True, slots=True)
class Late:
    """The rule for late records: those whose time is too far in the past when they arrive."""

    column: str
    after: str
    """An interval in Spark's syntax, such as `10 minutes`."""

    @classmethod
    def of(cls, given: tuple[str, str] | None, target: StreamTarget, apply: Apply) -> Late | None:
        """The rule of the argument `late`.

        Raises `InputError` without a quarantine, and for changes, which have no such time.
        """
        if given is None:
            return None
        if apply == "changes":
            raise InputError("changes of a graph are never too late", hint="leave out `late`")
        if target.quarantine is None:
            raise InputError(
                "`late` needs a `quarantine` for the records that come too late",
                hint="name a folder as `quarantine`",
            )
        return cls(*given)

    def condition(self, frame: DataFrame) -> Column:
        """Whether a row is late; Spark records the time of a batch, so a replay agrees."""
        if self.column not in frame.columns:
            raise InputError(
                f"the frame has no column '{self.column}' to tell late records by",
                hint=f"it has {', '.join(frame.columns)}",
            )
        past = F.current_timestamp() - F.expr(f"INTERVAL {self.after}")
        return F.coalesce(F.col(f"`{self.column}`") < past, F.lit(False))

    def keep_aside(self, files: Sequence[tuple[str, str]], into: Path) -> None:
        """Write late rows to a file of the quarantine, in the form of bad records of a load."""
        message = f"{self.column} is more than {self.after} before the record came"
        written = into.with_suffix(".part")
        with written.open("wb") as out:
            for name, path in files:
                type = name.removeprefix(LATE).rpartition(":")[2] or None
                for batch in read_batches(path):
                    for row in batch.to_pylist():
                        told = {"kind": "late", "type": type, "property": self.column}
                        told |= {"message": message, "input": row}
                        out.write(orjson.dumps(told, default=str) + b"\n")
        written.replace(into)


def _struct(columns: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"`{column}`") for column in columns))


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """The arguments of `stream_into`."""

    frames: DataFrame | Mapping[str, DataFrame]
    type: str | None
    split: Split | None
    apply: Apply
    late: Late | None
    checkpoint: str | os.PathLike[str]
    every: str | None = None
    available_now: bool = False
    name: str | None = None

    @property
    def checkpoint_location(self) -> str:
        """The folder for Spark; relative paths are resolved in this process's directory."""
        path = os.fspath(self.checkpoint)
        return path if "://" in path else str(Path(path).resolve())

    def by_type(self) -> Mapping[str, DataFrame]:
        """The streaming frames by type; with a ``split``, the frame before it."""
        given, ways = self.frames, [self.type, self.split]
        if self.apply not in get_args(Apply):
            raise InputError(
                f"`apply` is '{self.apply}'", hint=f"it is one of {', '.join(get_args(Apply))}"
            )
        if self.apply == "changes":
            if isinstance(given, Mapping) or ways != [None, None]:
                raise InputError(
                    "changes name their types themselves",
                    hint='write stream_into(feed, apply="changes", …)',
                )
            frames = {"": given}
        elif isinstance(given, Mapping):
            if ways != [None, None] or not given:
                raise InputError(
                    "frames by type have no other `type` or `split`",
                    hint='write stream_into({"Person": people, "Knows": knows}, …)',
                )
            frames = dict(given)
        elif ways.count(None) != 1:
            raise InputError(
                "a stream needs the `type` of its rows, or a function that splits its batches",
                hint='write stream_into(people, "Person", …), or split=…',
            )
        else:
            frames = {self.type or "": given}
        for frame in frames.values():
            if not getattr(frame, "isStreaming", False):
                raise InputError(
                    f"`stream_into` takes streaming frames, not {type_name(frame)}",
                    hint="make it with spark.readStream, or load a frame with `load`",
                )
        return frames


def type_name(frame: object) -> str:
    """The name, for an error, of an argument that is not a streaming frame."""
    return "a frame that is complete" if hasattr(frame, "isStreaming") else type(frame).__name__


class Batches(Protocol):
    """How micro-batches become writes: as rows by type, or as changes to apply."""

    def tagged(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """One frame with a column for each given frame; raises `InputError` for wrong columns."""

    def executor(
        self, files: Sequence[tuple[str, str]], batch: Batch, request: LoadSpec
    ) -> LoadExecutor:
        """The executor that loads files of tasks, given as pairs of column name and path."""


class TypedBatches:
    """Batches of rows by type."""

    def __init__(self, kernel: Kernel, target: StreamTarget, late: Late | None) -> None:
        self._kernel = kernel
        self._target = target
        self._late = late
        self._keeps_absent = target.mode == "merge" and target.absent == "keep"

    def tagged(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """A column for each type, named by its key."""
        target, kernel = self._target, self._kernel
        catalog = kernel.accepted_on(schema_branch(kernel, target.branch, target.from_)).catalog
        parts: list[DataFrame] = []
        for name, frame in frames.items():
            key = type_key(name, catalog)
            rows, late = frame, self._late
            if late is not None and late.column not in type_of(key, catalog).properties:
                rows = frame.drop(late.column)
            check_columns(
                to_arrow_schema(rows.schema, timezone="UTC"),
                Frame(key, None).found,
                catalog,
                ignore_unknown=False,
                keeps_absent=self._keeps_absent,
            )
            if late is None:
                parts.append(frame.select(_struct(frame.columns).alias(key)))
                continue
            is_late = late.condition(frame)
            on_time = F.when(~is_late, _struct(rows.columns)).alias(key)
            too_late = F.when(is_late, _struct(frame.columns)).alias(f"{LATE}{key}")
            parts.append(frame.select(on_time, too_late))
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)

    def executor(
        self, files: Sequence[tuple[str, str]], batch: Batch, request: LoadSpec
    ) -> LoadExecutor:
        """Loads the files as tables, of any size."""
        sources = [
            FileSource(path, key, "arrow", f"<batch {batch.number} of {key}>[{at}]")
            for at, (key, path) in enumerate(files)
        ]
        return TaskLoad(self._kernel, request, sources, None)


class ChangeBatches:
    """Batches of a change feed."""

    def __init__(self, kernel: Kernel, limits: WriteLimits) -> None:
        self._kernel = kernel
        self._limits = limits

    def tagged(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """One column with the changes."""
        (feed,) = frames.values()
        for name in CHANGE_COLUMNS:
            if name not in feed.columns:
                raise InputError(
                    f"the changes have no column '{name}'",
                    hint='they come from spark.readStream.format("omnigraph")'
                    '.option("sequence", "true"), whose rows may be filtered',
                )
        return feed.select(F.struct(*CHANGE_COLUMNS).alias("changes"))

    def executor(
        self, files: Sequence[tuple[str, str]], batch: Batch, request: LoadSpec
    ) -> LoadExecutor:
        """Applies the changes, which have to fit into memory."""
        return ChangesLoad(self._kernel, request, [path for _, path in files], self._limits)


def put_aside(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that writes tagged rows to one file per column, and returns names and paths."""
    access = Files.of_environment([folder])

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files: dict[str, ScratchFile] = {}
        with ExitStack() as opened:
            for batch in batches:
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    rows = column.drop_null() if column.null_count else column
                    if len(rows):
                        if name not in files:
                            files[name] = opened.enter_context(ScratchFile(folder, access))
                        files[name].add(pa.RecordBatch.from_struct_array(rows))
        paths = [file.path for file in files.values()]
        yield pa.RecordBatch.from_arrays(
            [pa.array([*files], pa.string()), pa.array(paths, pa.string())], ["name", "path"]
        )

    return write


class GraphStream:
    """A running or ended stream into a graph. Safe to use from several threads.

    `stop` finishes the batch that is being written.
    """

    def __init__(
        self,
        kernel: Kernel,
        writer: BatchWriter,
        batches: Batches,
        *,
        split: Split | None,
        late: Late | None,
        quarantine: Quarantine | None,
        permit: Callable[[], None],
        written: Callable[[], None],
    ) -> None:
        self._kernel = kernel
        self._writer = writer
        self._batches = batches
        self._split = split
        self._late = late
        self._quarantine = quarantine
        self._permit = permit
        self._written = written
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._busy = threading.Lock()
        self._last: int | None = None
        self.receipts: deque[LoadReceipt] = deque(maxlen=RECEIPTS_KEPT)
        """The receipts of the last batches; ``commit`` is None for a batch that changed nothing."""
        self.query: Any
        """Spark's `StreamingQuery`."""

    def __repr__(self) -> str:
        state = "running" if self.query.isActive else "ended"
        return f"GraphStream({self.query.id}, {state})"

    @property
    def receipt(self) -> LoadReceipt | None:
        """The receipt of the last batch; None before the first."""
        return self.receipts[-1] if self.receipts else None

    def await_end(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the stream has ended, or for some time; True if it has ended.

        Raises the error that ended it.
        """
        try:
            with loss_named("stream"):
                if timeout_seconds is None:
                    self.query.awaitTermination()
                    return True
                return bool(self.query.awaitTermination(timeout_seconds))
        except StreamingQueryException as error:
            if isinstance(self._failure, _Stopped):
                return True
            raise (self._failure or failure_of(error) or error) from None

    def stop(self) -> None:
        """Finish the batch that is being written, record it in the checkpoint, and end.

        Raises the error of that batch, if it fails.
        """
        self._stopping.set()
        while self.query.isActive:
            with self._busy:
                last = self._last
            progress = self.query.lastProgress
            if last is None or (progress is not None and progress["batchId"] >= last):
                self.query.stop()
            elif self.await_end(_WAIT_SECONDS):
                return

    def run(self) -> None:
        """Wait until the stream has ended; SIGTERM and Ctrl-C finish the current batch.

        Has to be called in the main thread. Raises the error that ended the stream.
        """
        with _signals(self._stopping):
            while not self.await_end(_WAIT_SECONDS):
                if self._stopping.is_set():
                    self.stop()

    # --- batches ---

    def write_batch(self, rows: DataFrame, number: int) -> None:
        """Write one micro-batch; Spark calls this in a thread of its own."""
        try:
            with self._busy:
                if self._stopping.is_set():
                    raise _Stopped
                self._write(rows, number)
                self._last = number
        except BaseException as error:
            # Spark passes on only the text of an exception.
            self._failure = error
            raise

    def _write(self, rows: DataFrame, number: int) -> None:
        context = rows.sparkSession.sparkContext
        query_id = context.getLocalProperty(QUERY_ID)
        assert query_id is not None
        batch = Batch(query_id, number)
        self._permit()
        if self._writer.written(batch) is not None:
            executor = partial(self._batches.executor, [], batch)
            self.receipts.append(self._writer.write(batch, executor))
            return
        scratch = load_scratch_name(self._kernel.ids.ulid())
        folder = self._kernel.root.join(scratch)
        Files.of_environment([folder]).make_folder(folder)
        try:
            with self._tagged(rows) as tagged:
                found = tagged.mapInArrow(put_aside(folder), "name string, path string").collect()
            files = [(row["name"], row["path"]) for row in found]
            late = [each for each in files if each[0].startswith(LATE)]
            if late:
                assert self._late is not None and self._quarantine is not None
                self._late.keep_aside(late, self._quarantine.file(batch, "late"))
                files = [each for each in files if each not in late]
            executor = partial(self._batches.executor, files, batch)
            self.receipts.append(self._writer.write(batch, executor))
        finally:
            self._kernel.store.delete_prefix(scratch)
        self._written()

    @contextmanager
    def _tagged(self, rows: DataFrame) -> Iterator[DataFrame]:
        if self._split is None:
            yield rows
            return
        rows.persist()  # several frames may be derived from it
        try:
            if self._late is None:
                yield self._batches.tagged(self._split(rows))
                return
            is_late = self._late.condition(rows)
            on_time = self._batches.tagged(self._split(rows.where(~is_late)))
            late = rows.where(is_late).select(_struct(rows.columns).alias(LATE))
            yield on_time.unionByName(late, allowMissingColumns=True)
        finally:
            rows.unpersist()


class _Stopped(Exception):
    """Raised to end the stream before its next batch."""


@contextmanager
def _signals(stopping: threading.Event) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C set an event during a block."""

    def stop(*_: Any) -> None:
        stopping.set()

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def stream_into(
    kernel: Kernel,
    path: WritePath,
    spec: StreamSpec,
    target: StreamTarget,
    *,
    permit: Callable[[], None],
    written: Callable[[], None],
) -> GraphStream:
    """Start a stream into a graph.

    ``permit`` is called before each batch, and raises if the actor may not write; ``written`` is
    called after each batch. Raises `InputError` before the query is started.
    """
    frames = spec.by_type()
    plain = (target.mode, target.absent, target.quarantine) == ("merge", "keep", None)
    if spec.apply == "changes" and not plain:
        raise InputError(
            "changes are applied as they are: `mode`, `absent` and `quarantine` are for rows",
            hint="leave them out; a change that does not fit ends the stream",
        )
    batches: Batches = (
        TypedBatches(kernel, target, spec.late if spec.split is None else None)
        if spec.apply == "rows"
        else ChangeBatches(kernel, WriteLimits.from_environment(os.environ))
    )
    first = next(iter(frames.values()))
    require_classic(first.sparkSession)
    writer = BatchWriter(kernel, target, path)
    stream = GraphStream(
        kernel,
        writer,
        batches,
        split=spec.split,
        late=spec.late,
        quarantine=target.quarantine,
        permit=permit,
        written=written,
    )
    rows = first if spec.split is not None else batches.tagged(frames)
    started = rows.writeStream.foreachBatch(stream.write_batch)
    started = started.option("checkpointLocation", spec.checkpoint_location)
    if spec.available_now:
        started = started.trigger(availableNow=True)
    elif spec.every is not None:
        started = started.trigger(processingTime=spec.every)
    if spec.name is not None:
        started = started.queryName(spec.name)
    stream.query = started.start()
    return stream
