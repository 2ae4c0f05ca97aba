"""The first pass of a load, in tasks: read, convert, check values, write uncommitted rows.

A task reads its pieces once and feeds one writer per type. It returns descriptions only: the
fragments it wrote, the number of records of each piece, and problems. Spark keeps the results of
one successful attempt per task; files of other attempts are never referred to.
"""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import field, replace
from functools import partial
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError, NotFound, StorageError
from omnigraph.loading.executors import ArrowFunction, pickled, task_numbers
from omnigraph.loading.files import Files
from omnigraph.loading.pieces import Piece, Task
from omnigraph.loading.reading import PieceReader, Reading
from omnigraph.loading.records.absence import ABSENT_FIELD
from omnigraph.loading.records.framing import NotOnLines
from omnigraph.loading.records.ids import Renamed
from omnigraph.loading.records.problems import FirstProblems, Problem, ProblemKind, plain
from omnigraph.loading.records.rows import TypedRows
from omnigraph.loading.skipping import Record, count_bad, type_key_of
from omnigraph.loading.sources import FoundFile, type_of
from omnigraph.model.records import dataclass
from omnigraph.storage.written import FRAGMENT_ROWS_MAX, TablePlace, fragment_rows, write_rows

PART_ROWS_MAX = 1 << 19
"""Rows per scratch fragment; an upsert task holds one in memory."""

_QUEUE_BATCHES = 4
_POLL_SECONDS = 0.5
_ABANDON_SECONDS = 5


@dataclass(frozen=True, slots=True)
class StageJob:
    """The arguments of the first pass, sent to workers."""

    reading: Reading
    places: dict[str, TablePlace]
    """Where the rows of each type are written, by type key."""
    tasks: tuple[Task, ...]
    problems_max: int
    """How many problems each task reports in full; all are counted."""
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    with_places: bool = False
    """Whether rows are written with the piece and the number of their record."""
    buffer: BufferedRows | None = None
    """Keeps rows in memory while there is room; only for tasks in this process."""
    tally: list[int] | None = None
    """Receives the numbers of rows read; only for tasks in this process."""
    stopped: threading.Event | None = None
    """Set when the load is cancelled; only for tasks in this process."""


def stage_frame(job: StageJob, found: FoundFile, first_piece: int) -> ArrowFunction:
    """The function Spark runs over the rows of a frame: each partition is a piece."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        piece = Piece.of_partition(found, first_piece)
        reader = PieceReader(job.reading)
        type = type_of(found.table_key or "", job.reading.catalog)
        with Staging(job) as staging:
            for batch in batches:
                if batch.num_rows:
                    staging.take(piece, *reader.table_rows(batch, type, piece))
            staging.result.records[piece.index] = reader.records
        yield pickled(staging.result)

    return run


def list_problems(reading: Reading, tasks: Sequence[Task]) -> ArrowFunction:
    """The function that lists every problem of every record, and writes nothing."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = PieceReader(reading)
        for number in task_numbers(batches):
            for piece in tasks[number]:
                for _, problems in reader.read(piece):
                    yield pickled([(piece.index, problem) for problem in problems])

    return run


def list_frame_problems(reading: Reading, found: FoundFile, first_piece: int) -> ArrowFunction:
    """`list_problems` for the rows of a frame."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        piece = Piece.of_partition(found, first_piece)
        reader = PieceReader(reading)
        type = type_of(found.table_key or "", reading.catalog)
        for batch in batches:
            _, problems = reader.table_rows(batch, type, piece)
            yield pickled([(piece.index, problem) for problem in problems])

    return run


def read_inputs(reading: Reading, tasks: Sequence[Task]) -> Callable[[int], dict[Record, object]]:
    """The function that reads the skipped records of one task, as the input has them."""

    def run(number: int) -> dict[Record, object]:
        reader = PieceReader(reading)
        return {
            (piece.index, record): plain(value)
            for piece in tasks[number]
            if piece.index in reading.skipped
            for record, value in reader.inputs(piece).items()
        }

    return run


def write_frame(folder: str) -> ArrowFunction:
    """The function Spark runs over the rows of a frame: a file for each partition with rows."""
    files = Files.of_environment([folder])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ScratchFile(folder, files) as file:
            for batch in batches:
                file.add(batch)
        if file.path:
            yield pickled((file.partition, file.path))

    return run


class ScratchFile:
    """The rows of one attempt of a task, in a file that is created with the first row."""

    def __init__(self, folder: str, files: Files) -> None:
        """``files`` has the credentials of the driver: workers may have none."""
        self._folder = folder
        self._files = files
        self._opened = ExitStack()
        self._writer: pa.RecordBatchFileWriter | None = None
        self.path = ""
        """Empty until the first row is written."""
        self.partition = 0

    def __enter__(self) -> ScratchFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows; all batches have the same columns."""
        if self._writer is None:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            self.partition = context.partitionId()
            self.path = f"{self._folder}/{self.partition}-{uuid4().hex}.arrow"
            sink = self._opened.enter_context(self._files.create(self.path))
            self._writer = self._opened.enter_context(pa.ipc.new_file(sink, batch.schema))
        self._writer.write_batch(batch)


def stage_files(job: StageJob) -> Callable[[int], Staged]:
    """The function that reads and writes the pieces of one task.

    Problems of the input are results, not failures: Spark would run a failed task again.
    """

    def run(number: int) -> Staged:
        reader = PieceReader(job.reading)
        with Staging(job) as staging:
            for piece in job.tasks[number]:
                try:
                    for rows, problems in reader.read(piece):
                        staging.take(piece, rows, problems)
                except NotOnLines:
                    staging.result.not_on_lines = piece.file.path
                    break
                except (InputError, NotFound) as error:
                    staging.result.failure = error
                    break
                staging.result.records[piece.index] = reader.records
        return staging.result

    return run


class Staging:
    """The writers and the result of one task."""

    def __init__(self, job: StageJob) -> None:
        self.result = Staged()
        self._job = job
        self._writers: dict[str, TableWriter | BufferedWriter] = {}
        self._first = FirstProblems(job.problems_max)

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is not None:
            for writer in self._writers.values():
                writer.abandon()
            return
        for table_key, writer in self._writers.items():
            self.result.fragments[table_key] = writer.finish()
        self.result.problems = [(at[0], problem) for at, problem in self._first.in_order()]

    def take(self, piece: Piece, rows: Iterable[TypedRows], problems: Iterable[Problem]) -> None:
        """Write the rows of one chunk and note its problems."""
        if self._job.stopped is not None and self._job.stopped.is_set():
            raise StorageError("the load was given up", hint="see what went wrong before")
        for each in rows:
            self._write(piece, each)
        several = list(problems)
        for problem in several:
            self.result.counts[problem.kind] += 1
            self.result.ends_reading |= problem.ends_reading
            number = 0 if problem.place is None else problem.place.number
            self._first.add((piece.index, number), problem)
        if self._job.reading.skips:
            self.result.skipped += count_bad(several, partial(self._key_of, piece))

    def _key_of(self, piece: Piece, problem: Problem) -> str:
        """The type key of a bad record."""
        if piece.file.table_key is None:
            return type_key_of(problem, self._job.reading.catalog)
        return type_of(piece.file.table_key, self._job.reading.catalog).table_key

    def _write(self, piece: Piece, rows: TypedRows) -> None:
        key = rows.type.table_key
        if self._job.tally is not None:
            self._job.tally.append(rows.rows.num_rows)
        if rows.rows.num_rows:
            placed = with_place(rows, piece) if self._job.with_places else rows.rows
            self._writer(key, placed.schema).put(placed)
            if key not in self.result.named and not pc.all(rows.minted).as_py():
                self.result.named.add(key)
            if key not in self.result.unnamed and pc.any(rows.minted).as_py():
                self.result.unnamed.add(key)
        if len(rows.refused_ids):
            self.result.refused.setdefault(key, []).extend(rows.refused_ids.to_pylist())
        if rows.renamed:
            renamed = Renamed(rows.type.name, rows.source, rows.renamed, piece.index)
            self.result.renamed.append(renamed)

    def _writer(self, key: str, schema: pa.Schema) -> TableWriter | BufferedWriter:
        writer = self._writers.get(key)
        if writer is None:
            write = partial(
                write_rows,
                self._job.places[key],
                schema,
                storage_options=self._job.storage_options or None,
                rows_max=PART_ROWS_MAX if self._job.with_places else FRAGMENT_ROWS_MAX,
            )
            start = partial(TableWriter, write)
            buffer = self._job.buffer
            writer = start() if buffer is None else BufferedWriter(buffer, start)
            self._writers[key] = writer
        return writer


PIECE = "__piece"
NUMBER = "__number"


def with_place(rows: TypedRows, piece: Piece) -> pa.RecordBatch:
    """Rows with the columns `PIECE` and `NUMBER` of their records, and `ABSENT` if they have it.

    All columns are nullable, since records may lack required properties. Blobs become plain
    structs, without the metadata by which Lance recognizes them.
    """
    batch = rows.rows
    fields = [column.remove_metadata().with_nullable(True) for column in batch.schema]
    fields += [pa.field(PIECE, pa.int32()), pa.field(NUMBER, pa.int64())]
    pieces = pa.repeat(pa.scalar(piece.index, pa.int32()), batch.num_rows)
    columns = [*batch.columns, pieces, rows.numbers]
    if rows.absent is not None:
        fields.append(ABSENT_FIELD)
        columns.append(rows.absent)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


class TableWriter:
    """Writes the rows of one type on a thread of its own while the task reads."""

    def __init__(self, write: Callable[[Iterator[pa.RecordBatch]], list[str]]) -> None:
        self._queue: queue.Queue[pa.RecordBatch | None] = queue.Queue(_QUEUE_BATCHES)
        self._is_abandoned = False
        thread = ThreadPoolExecutor(1)
        self._fragments = thread.submit(write, self._batches())
        thread.shutdown(wait=False)

    def put(self, rows: pa.RecordBatch | None) -> None:
        """Queue rows, or None at their end; blocks while the queue is full."""
        while not self._fragments.done():
            try:
                self._queue.put(rows, timeout=_POLL_SECONDS)
                return
            except queue.Full:
                continue
        self._fragments.result()

    def finish(self) -> list[str]:
        """Wait for the writer; returns the fragments of all rows."""
        self.put(None)
        return self._fragments.result()

    def abandon(self) -> None:
        """Stop the thread; files written so far remain, and no commit refers to them."""
        self._is_abandoned = True
        wait([self._fragments], _ABANDON_SECONDS)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                rows = self._queue.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if self._is_abandoned:
                    raise RuntimeError("the task failed") from None
                continue
            if rows is None:
                return
            yield rows


class BufferedWriter:
    """Keeps the rows of one type in memory while there is room, and writes further rows."""

    def __init__(self, buffer: BufferedRows, start: Callable[[], TableWriter]) -> None:
        self._buffer = buffer
        self._start = start
        self._kept: list[pa.RecordBatch] = []
        self._overflow: TableWriter | None = None

    def put(self, rows: pa.RecordBatch) -> None:
        """Keep rows in memory, or queue them for the writer."""
        if self._overflow is None and not self._buffer.has_room(rows):
            self._overflow = self._start()
        if self._overflow is None:
            self._kept.append(rows)
        else:
            self._overflow.put(rows)

    def finish(self) -> list[str]:
        """The names of buffered tables and the fragments of written rows."""
        kept = [self._buffer.keep(self._kept)] if self._kept else []
        return [*kept, *(self._overflow.finish() if self._overflow is not None else ())]

    def abandon(self) -> None:
        """Stop."""
        if self._overflow is not None:
            self._overflow.abandon()


def renumbered(problem: Problem, first: int) -> Problem:
    """A problem of a piece, with its record numbered from the beginning of the file."""
    place, message = problem.place, problem.message
    if place is None or not first:
        return problem
    number = first + place.number
    for unit in ("line", "record"):
        # The message about invalid JSON contains the number, too.
        words = f"at {unit} {place.number}"
        if f"JSON {words}" in message:
            message = message.replace(words, f"at {unit} {number}", 1)
    return replace(problem, message=message, place=replace(place, number=number))


BUFFER_BYTES_MAX = 256 << 20


class BufferedRows:
    """Tables in memory, each under a name that is used like the description of a fragment.

    Thread-safe. Once there is no more room, rows have to be written.
    """

    def __init__(self, bytes_max: int = BUFFER_BYTES_MAX) -> None:
        self._room = bytes_max
        self._tables: dict[str, pa.Table] = {}
        self._lock = threading.Lock()

    def has_room(self, rows: pa.RecordBatch) -> bool:
        """Reserve room for these rows; False if there is not enough."""
        with self._lock:
            if self._room < rows.nbytes:
                return False
            self._room -= rows.nbytes
            return True

    def keep(self, batches: Sequence[pa.RecordBatch]) -> str:
        """Keep rows; returns the name to `get` them by."""
        table = pa.Table.from_batches(batches)
        with self._lock:
            name = json.dumps({"buffered": len(self._tables), "physical_rows": table.num_rows})
            self._tables[name] = table
        return name

    def get(self, fragment: str) -> pa.Table | None:
        """The rows kept under a name; None if it describes a fragment."""
        return self._tables.get(fragment)


@dataclass(slots=True)
class Staged:
    """The results of the first pass."""

    fragments: dict[str, list[str]] = field(default_factory=dict)
    """By type key: the fragments written, in the order of the input."""
    records: dict[int, int] = field(default_factory=dict)
    """By piece: how many records it has."""
    problems: list[tuple[int, Problem]] = field(default_factory=list)
    """The first problems of each task, with their pieces."""
    counts: Counter[ProblemKind] = field(default_factory=Counter)
    refused: dict[str, list[str]] = field(default_factory=dict)
    """By type key: ids of refused records."""
    renamed: list[Renamed] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """Keys of types with at least one record that has an id or a key."""
    unnamed: set[str] = field(default_factory=set)
    """Keys of types with at least one record whose id was minted."""
    skipped: Counter[str] = field(default_factory=Counter)
    """By type key: how many records were skipped for problems of their own."""
    ends_reading: bool = False
    """Whether after one of the problems the rest of a file could not be read."""
    has_ends: bool = False
    """Whether missing node types of edge ends have been looked up."""
    not_on_lines: str | None = None
    """A file that does not have one record per line, so its ranges cannot be used."""
    failure: InputError | NotFound | None = None
    """The error because of which a piece could not be read."""

    def add(self, other: Staged) -> None:
        """Add the results of a task; raises its failure."""
        if other.failure is not None:
            raise other.failure
        for table_key, fragments in other.fragments.items():
            self.fragments.setdefault(table_key, []).extend(fragments)
        for table_key, ids in other.refused.items():
            self.refused.setdefault(table_key, []).extend(ids)
        self.records |= other.records
        self.problems += other.problems
        self.counts += other.counts
        self.renamed += other.renamed
        self.skipped += other.skipped
        self.ends_reading |= other.ends_reading
        self.named |= other.named
        self.unnamed |= other.unnamed

    def rows(self, table_key: str) -> int:
        """How many rows of a type were written."""
        return sum(map(fragment_rows, self.fragments.get(table_key, ())))
