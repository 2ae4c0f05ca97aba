"""What a load reads, and how it is cut into pieces that workers can read on their own.

A piece is a stretch of one file: a range of bytes of a text that has its records on lines, some row
groups of a Parquet file, some fragments of a Lance dataset, or a file as a whole where nothing
smaller can be read by itself. Several pieces make a task. Planning looks at names, sizes and
footers only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.commit.records.envelope import TableType
from omnigraph.commit.records.hints import name_hint
from omnigraph.commit.records.source import RecordSource
from omnigraph.errors import InputError, NotFound
from omnigraph.pipeline.files import COMPRESSED, S3, Files, Stamp
from omnigraph.pipeline.minting import PIECES_MAX
from omnigraph.schema.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["records", "json", "csv", "parquet", "orc", "avro", "lance", "arrow"]
"""`records` are graph records of any type; all others hold rows of one type."""

_SUFFIXES: dict[str, Format] = {
    ".jsonl": "records",
    ".ndjson": "records",
    ".json": "records",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".orc": "orc",
    ".avro": "avro",
    ".lance": "lance",
    ".arrow": "arrow",
    ".feather": "arrow",
}

TASK_BYTES_MIN = 4 << 20
TASK_BYTES_MAX = 128 << 20
TASKS_PER_SLOT = 3
WHOLE_BYTES_MAX = 32 << 20
"""Text of the compatible grammar, and CSV, are cut only beyond this: finding out where they can be
cut costs a look at them."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files of one kind, as a user names them."""

    path: str
    """A file, a directory or a pattern."""
    table_key: str | None = None
    """The type of every row; None for graph records, which name theirs."""
    format: Format | None = None
    """None: by the name of each file."""
    name: str | None = None
    """What messages call it, if not by its path."""


@dataclass(frozen=True, slots=True)
class FrameSource:
    """A Spark DataFrame with rows of one type."""

    table_key: str
    frame: DataFrame

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"<frame {self.table_key.partition(':')[2]}>"


Source = FileSource | FrameSource


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one file that can be read on its own."""

    index: int
    """Within the load; ids are minted by it."""
    path: str
    format: Format
    table_key: str | None
    start: int = 0
    """First byte of a text; a line belongs to the piece it starts in."""
    end: int | None = None
    """None: the file as a whole, which may be compressed."""
    parts: tuple[int, ...] = ()
    """Row groups of Parquet, fragments of Lance; none for all."""
    first: int = 0
    """Records of the file before this piece, as far as they were known when it was planned."""
    stamp: Stamp | None = None
    """Size and time of the file when the load began."""
    name: str | None = None

    @property
    def shown(self) -> str:
        """What messages call it."""
        return self.name or self.path

    @property
    def is_range(self) -> bool:
        """Whether it is a part of a text."""
        return self.end is not None


@dataclass(frozen=True, slots=True)
class Task:
    """Pieces that one worker reads, one after another."""

    index: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """One file that was found for a source."""

    path: str
    format: Format
    table_key: str | None
    size: int
    stamp: Stamp
    name: str | None = None

    @property
    def shown(self) -> str:
        """What messages call it."""
        return self.name or self.path

    @property
    def is_compressed(self) -> bool:
        """Whether its name says so."""
        return self.path.endswith(tuple(COMPRESSED))


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a load will read."""

    files: tuple[Found, ...]
    tasks: tuple[Task, ...]
    frames: tuple[FrameSource, ...] = ()
    first_frame: int = 0
    """The number of the first frame's piece; its partitions follow."""

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(found.size for found in self.files)

    @property
    def pieces(self) -> dict[int, Piece]:
        """Every piece by its number."""
        return {piece.index: piece for task in self.tasks for piece in task.pieces}


def plan_sources(
    sources: Sequence[Source], catalog: Catalog, *, slots: int, lines_only: bool
) -> Plan:
    """Find the files of ``sources`` and cut them for ``slots`` workers.

    ``lines_only`` says that graph records stand on lines, as the strict grammar demands. Raises
    `NotFound` and `InputError` naming the path or type that is not there.
    """
    frames = tuple(each for each in sources if isinstance(each, FrameSource))
    files: list[Found] = []
    for source in sources:
        if source.table_key is not None:
            type_of(source.table_key, catalog)
        if isinstance(source, FileSource):
            files.extend(find_files(source))
    total = sum(found.size for found in files)
    aim = min(max(total // (slots * TASKS_PER_SLOT), TASK_BYTES_MIN), TASK_BYTES_MAX)
    cut = [
        (found, list(_pieces(found, aim, lines_only=lines_only)))
        for found in files
        if found.size or found.format == "lance"
    ]
    tasks = list(_tasks(cut, aim))
    count = sum(len(task.pieces) for task in tasks)
    if count > PIECES_MAX // 2:
        raise InputError(
            f"the input has {count} pieces, at most {PIECES_MAX // 2} are allowed",
            hint="load it in parts, or put small files together",
        )
    return Plan(tuple(files), tuple(tasks), frames, first_frame=count)


def type_of(table_key: str, catalog: Catalog) -> TableType:
    """The type behind a table key; raises `InputError` if there is none."""
    kind, _, name = table_key.partition(":")
    found: TableType | None = (
        catalog.nodes.get(name) if kind == "node" else catalog.edge_named(name)
    )
    if found is None:
        raise unknown_type(table_key, catalog)
    return found


def unknown_type(table_key: str, catalog: Catalog) -> InputError:
    """The error for a source whose type the schema does not have."""
    kind, _, name = table_key.partition(":")
    known: Iterable[str] = catalog.nodes if kind == "node" else catalog.edges
    return InputError(f"unknown {kind} type '{name}'", hint=name_hint(name, known, f"{kind} types"))


# --- finding files --------------------------------------------------------------------------------


def find_files(source: FileSource, files: Files | None = None) -> list[Found]:
    """The files a path, a directory or a pattern names, in the order of their names."""
    files = files or Files.of_environment([source.path])
    path = source.path
    if not path.startswith(S3):
        path = str(Path(path).expanduser())
    names = files.matching(path)
    if not names:
        raise NotFound(
            f"no file matches {source.path}",
            hint="quote the pattern if your shell should not expand it",
            details={"file": source.path},
        )
    found = [each for name in names for each in _found(name, source, files)]
    if not found:
        raise NotFound(
            f"there is nothing to load in {source.path}",
            hint=f"names end in {', '.join(_SUFFIXES)}",
            details={"file": source.path},
        )
    return found


def _found(path: str, source: FileSource, files: Files) -> Iterator[Found]:
    name = PurePosixPath(path).name
    format = source.format or format_of(name, source.table_key)
    if format != "lance" and files.is_directory(path):
        for child, below in files.below(path):
            # As everywhere in a lake: such names are notes of whoever wrote the directory.
            if any(part.startswith(("_", ".")) for part in PurePosixPath(below).parts):
                continue
            known = source.format or format_of(PurePosixPath(child).name, source.table_key)
            if known is not None:
                yield _file(child, known, source, files)
        return
    if format is None and source.table_key is None:
        # Graph records need no particular name, as on the command line they never did.
        format = "records"
    if format is None:
        raise InputError(
            f"{path} does not say what it is",
            hint=f"names end in {', '.join(_SUFFIXES)}, or name a format",
            details={"file": path},
        )
    yield _file(path, format, source, files)


def format_of(name: str, table_key: str | None) -> Format | None:
    """What the name of a file says about its content."""
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    format = _SUFFIXES.get(Path(name).suffix.lower())
    return "json" if format == "records" and table_key is not None else format


def _file(path: str, format: Format, source: FileSource, files: Files) -> Found:
    table_key = source.table_key
    if (table_key is None) != (format == "records"):
        raise InputError(
            f"{path} holds rows of one type, and it is not said which"
            if table_key is None
            else f"{path} holds graph records, which name their types themselves",
            hint=f"--node Type={path} or --edge Type={path}"
            if table_key is None
            else f"--data {path}",
            details={"file": path},
        )
    if format == "lance":
        # A version of a dataset is pinned by its number, whoever goes on writing to it.
        sizes = [files.stat(child) for child, _ in files.below(path)]
        stamp: Stamp | None = (sum(size[0] for size in sizes if size), 0)
    else:
        try:
            stamp = files.stat(path)
        except OSError as error:
            raise corrupt(path, error) from error
    if stamp is None:
        raise NotFound(f"no such file: {path}", details={"file": path})
    # Workers have directories of their own; messages show what the user wrote.
    absolute = path if path.startswith(S3) else str(Path(path).absolute())
    return Found(absolute, format, table_key, stamp[0], stamp, source.name or path)


def input_digest(inputs: Sequence[Found]) -> str:
    """A digest of everything in some files, whatever they are called."""
    digest = hashlib.sha256()
    for found in inputs:
        digest.update(f"{found.format}:{found.table_key}:{found.size}\n".encode())
        files = Files.of_environment([found.path])
        is_folder = files.is_directory(found.path)
        paths = [path for path, _ in files.below(found.path)] if is_folder else [found.path]
        for path in paths:
            with files.open(path) as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


def record_source(found: Found) -> RecordSource:
    """A file of graph records for a load in process."""
    if not found.path.startswith(S3):
        return RecordSource(found.shown, RecordSource.file(found.path).blocks)

    def blocks() -> Iterator[bytes]:
        with Files.of_environment([found.path]).stream(found.path) as stream:
            while block := stream.read(1 << 20):
                yield block

    return RecordSource(found.shown, blocks)


# --- cutting --------------------------------------------------------------------------------------


def _pieces(found: Found, aim: int, *, lines_only: bool) -> Iterator[Piece]:
    stamp = None if found.format == "lance" else found.stamp
    whole = Piece(0, found.path, found.format, found.table_key, stamp=stamp, name=found.name)
    if found.is_compressed:
        yield whole
    elif found.format == "parquet":
        yield from _row_groups(whole, aim)
    elif found.format == "lance":
        yield from _fragments(whole, aim)
    elif found.format in ("records", "json"):
        is_cut = found.size > (aim if lines_only or found.format == "json" else WHOLE_BYTES_MAX)
        yield from _ranges(whole, found.size, aim) if is_cut else [whole]
    elif found.format == "csv" and found.size > WHOLE_BYTES_MAX:
        yield from _csv_ranges(whole, found.size, aim)
    else:
        yield whole


def _ranges(whole: Piece, size: int, aim: int) -> Iterator[Piece]:
    for start in range(0, size, aim):
        yield replace(whole, start=start, end=min(start + aim, size))


def _csv_ranges(whole: Piece, size: int, aim: int) -> Iterator[Piece]:
    """Ranges that begin outside of quotes: a quoted cell may hold line breaks.

    A place lies within quotes if there is an odd number of them before it.
    """
    start = first = rows = quotes = 0
    with Files.of_environment([whole.path]).open(whole.path) as stream:
        while block := stream.read(1 << 20):
            position = stream.tell() - len(block)
            ends = _row_ends(block, quotes)
            cut = position + int(ends[-1]) + 1 if len(ends) else start
            rows += len(ends)
            quotes += block.count(b'"')
            if cut - start >= aim and cut < size:
                yield replace(whole, start=start, end=cut, first=first)
                # The header is a row of the file, but no record.
                start, first = cut, rows - 1
    yield replace(whole, start=start, end=size, first=first)


def _row_ends(block: bytes, quotes_before: int) -> npt.NDArray[np.int64]:
    """Where rows end in a block: at line breaks outside of quotes."""
    raw = np.frombuffer(block, np.uint8)
    breaks = np.flatnonzero(raw == ord("\n"))
    quotes = np.flatnonzero(raw == ord('"'))
    before = quotes_before + np.searchsorted(quotes, breaks)
    ends: npt.NDArray[np.int64] = breaks[before % 2 == 0]
    return ends


def _row_groups(whole: Piece, aim: int) -> Iterator[Piece]:
    try:
        with Files.of_environment([whole.path]).open(whole.path) as stream:
            footer = pq.read_metadata(stream)
    except (OSError, pa.ArrowInvalid) as error:
        raise corrupt(whole.path, error) from error
    parts: list[int] = []
    held = first = rows = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        parts.append(number)
        held += group.total_byte_size
        rows += group.num_rows
        if held >= aim:
            yield replace(whole, parts=tuple(parts), first=first)
            parts, held, first = [], 0, rows
    if parts:
        yield replace(whole, parts=tuple(parts), first=first)


def _fragments(whole: Piece, aim: int) -> Iterator[Piece]:
    import lance

    try:
        options = dict(Files.of_environment([whole.path]).s3) or None
        dataset = lance.dataset(whole.path, storage_options=options)
    except (OSError, ValueError) as error:
        raise corrupt(whole.path, error) from error
    # Pinned to the version seen now: numbers of fragments mean nothing without it.
    pinned = replace(whole, start=dataset.version)
    first = 0
    for fragment in dataset.get_fragments():
        yield replace(pinned, parts=(fragment.fragment_id,), first=first)
        first += fragment.count_rows()


def corrupt(path: str, error: Exception) -> InputError:
    """The error for a file that is not what its name says."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(
        f"{path} cannot be read: {reason}",
        hint="check that the file is complete and that its name says what it is",
        details={"file": path},
    )


def _tasks(cut: Iterable[tuple[Found, list[Piece]]], aim: int) -> Iterator[Task]:
    """Pieces in tasks of about ``aim`` bytes.

    The ranges of a text have tasks of their own: if it turns out that it cannot be read in ranges,
    what they wrote has to be told from the rest.
    """
    index = number = 0
    held: list[Piece] = []
    held_bytes = 0
    for found, pieces in cut:
        size = found.size // max(1, len(pieces))
        for piece in pieces:
            numbered = replace(piece, index=number)
            number += 1
            if piece.is_range:
                yield Task(index, (numbered,))
                index += 1
                continue
            held.append(numbered)
            held_bytes += size
            if held_bytes >= aim:
                yield Task(index, tuple(held))
                index, held, held_bytes = index + 1, [], 0
    if held:
        yield Task(index, tuple(held))
