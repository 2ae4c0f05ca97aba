"""Cutting input files into pieces that workers read independently, and reading their bytes.

A piece is a byte range of a text with one record per line, some row groups of a Parquet file, some
fragments of a Lance dataset, or a whole file of a format that cannot be split.
Several pieces make a task. Planning reads names, sizes and footers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import InputError, NotFound, SourceChanged
from omnigraph.loading.files import Files
from omnigraph.loading.formats.csv_quotes import RowTooLong, row_blocks
from omnigraph.loading.records.framing import CHUNK_BYTES, items_on_lines
from omnigraph.loading.records.ids import PIECES_MAX
from omnigraph.loading.records.problems import Grammar, Unit, unit_of
from omnigraph.loading.sources import (
    FileSource,
    FoundFile,
    Frame,
    Source,
    corrupt,
    delimiter_of,
    find_all,
    type_of,
)
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog

TASK_BYTES_MIN = 4 << 20
TASK_BYTES_MAX = 128 << 20
TASKS_PER_SLOT = 3
WHOLE_BYTES_MAX = 32 << 20
"""Text of the compatible grammar and CSV are cut only beyond this size: finding safe positions for
cuts means reading the file."""


_LINE_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one file that can be read independently."""

    index: int
    """The number within the load; part of the ids minted for its records."""
    file: FoundFile
    start: int = 0
    """The first byte of a text, where a line belongs to the piece it starts in; for Lance, the
    version."""
    end: int | None = None
    """The byte after the last; None for the whole file, which may be compressed."""
    parts: tuple[int, ...] = ()
    """Row groups of Parquet, fragments of Lance; none for all."""
    first: int = 0
    """Records of the file before this piece, if planning counts them (Parquet, Lance)."""

    @classmethod
    def of_partition(cls, frame: FoundFile, first: int) -> Piece:
        """The partition that this Spark task reads; ``first`` is the piece of partition 0."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        return cls(first + number, replace(frame, path=f"{frame.path}[{number}]"))

    def unit(self, grammar: Grammar) -> Unit:
        """The unit in which its records are numbered; ``grammar`` is that of graph records."""
        if self.file.format == "records":
            return unit_of(grammar)
        return "line" if self.file.format == "json" and not self.file.is_array else "record"

    @property
    def is_range(self) -> bool:
        """Whether it is a part of a text."""
        return self.end is not None


Task = tuple[Piece, ...]
"""Pieces that one worker reads, one after another."""


@dataclass(frozen=True, slots=True)
class InputPlan:
    """The files, tasks and frames that a load reads."""

    files: tuple[FoundFile, ...]
    tasks: tuple[Task, ...]
    frames: tuple[Frame, ...] = ()
    first_frame: int = 0
    """The piece of the first frame's partition 0."""

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(found.size for found in self.files)

    @property
    def pieces(self) -> dict[int, Piece]:
        """All pieces by their numbers."""
        return {piece.index: piece for task in self.tasks for piece in task}


def plan_sources(
    sources: Sequence[Source], catalog: Catalog, *, slots: int, lines_only: bool
) -> InputPlan:
    """Find the files of ``sources`` and cut them for ``slots`` workers.

    ``lines_only``: graph records are one per line, as in the strict grammar. Raises `NotFound` and
    `InputError` naming the missing path or type.
    """
    sources = [_checked(source, catalog) for source in sources]
    frames = tuple(each for each in sources if isinstance(each, Frame))
    files = find_all(each for each in sources if isinstance(each, FileSource))
    total = sum(found.size for found in files)
    aim = min(max(total // (slots * TASKS_PER_SLOT), TASK_BYTES_MIN), TASK_BYTES_MAX)
    cut = [
        (found, list(pieces_of(found, aim, lines_only=lines_only)))
        for found in files
        if found.size or found.format == "lance"
    ]
    tasks = list(_tasks(cut, aim))
    count = sum(map(len, tasks))
    if count > PIECES_MAX // 2:
        raise InputError(
            f"the input has {count} pieces, at most {PIECES_MAX // 2} are allowed",
            hint="load it in parts, or put small files together",
        )
    return InputPlan(tuple(files), tuple(tasks), frames, first_frame=count)


def _checked(source: Source, catalog: Catalog) -> Source:
    """The source with a mapping to properties that its type has."""
    if source.table_key is None:
        return source
    type = type_of(source.table_key, catalog)
    shown = source.name if isinstance(source, Frame) else source.name or source.path
    return replace(source, mapping=source.mapping.checked(type, shown))


# --- cutting --------------------------------------------------------------------------------------


def pieces_of(
    found: FoundFile, aim: int = TASK_BYTES_MAX, *, lines_only: bool = True
) -> Iterator[Piece]:
    """Pieces of about ``aim`` bytes; raises `InputError` if the file is damaged."""
    whole = Piece(0, found)
    try:
        yield from _cut(whole, aim, lines_only=lines_only)
    except (OSError, pa.ArrowInvalid) as error:
        raise corrupt(whole.file.shown, error) from error


def _cut(whole: Piece, aim: int, *, lines_only: bool) -> Iterator[Piece]:
    found = whole.file
    if found.is_compressed:
        yield whole
    elif found.format == "parquet":
        yield from _row_groups(whole, aim)
    elif found.format == "lance":
        yield from _fragments(whole, aim)
    elif found.is_array:
        yield whole
    elif found.format in ("records", "json"):
        is_cut = found.size > (aim if lines_only or found.format == "json" else WHOLE_BYTES_MAX)
        for start in range(0, found.size, aim) if is_cut else ():
            yield replace(whole, start=start, end=min(start + aim, found.size))
        if not is_cut:
            yield whole
    elif found.format == "csv" and found.size > WHOLE_BYTES_MAX:
        yield from _csv_ranges(whole, found.size, aim)
    else:
        yield whole


def _csv_ranges(whole: Piece, size: int, aim: int) -> Iterator[Piece]:
    """Ranges of whole rows: quoted cells may contain line breaks."""
    start = end = 0
    step = min(aim, 1 << 20)
    with (
        Files.of_environment([whole.file.path]).open(whole.file.path) as stream,
        # The reader of the last range reports the row that is too long, with its number.
        suppress(RowTooLong),
    ):
        blocks = iter(lambda: stream.read(step), b"")
        for block in row_blocks(blocks, delimiter_of(whole.file), step):
            if end - start >= aim:
                yield replace(whole, start=start, end=end)
                start = end
            end += len(block.raw)
    yield replace(whole, start=start, end=size)


def _row_groups(whole: Piece, aim: int) -> Iterator[Piece]:
    with Files.of_environment([whole.file.path]).open(whole.file.path) as stream:
        footer = pq.read_metadata(stream)
    parts: list[int] = []
    group_bytes = first = rows = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        parts.append(number)
        group_bytes += group.total_byte_size
        rows += group.num_rows
        if group_bytes >= aim:
            yield replace(whole, parts=tuple(parts), first=first)
            parts, group_bytes, first = [], 0, rows
    if parts:
        yield replace(whole, parts=tuple(parts), first=first)


def _fragments(whole: Piece, aim: int) -> Iterator[Piece]:
    import lance

    try:
        options = dict(Files.of_environment([whole.file.path]).s3) or None
        dataset = lance.dataset(whole.file.path, storage_options=options)
    except (OSError, ValueError) as error:
        raise corrupt(whole.file.shown, error) from error
    # Pinned to the current version: fragment ids are valid only within it.
    pinned = replace(whole, start=dataset.version)
    first = 0
    for fragment in dataset.get_fragments():
        yield replace(pinned, parts=(fragment.fragment_id,), first=first)
        first += fragment.count_rows()


def _tasks(cut: Iterable[tuple[FoundFile, list[Piece]]], aim: int) -> Iterator[Task]:
    """Pieces in tasks of at most ``aim`` bytes, unless a single piece is larger.

    Each byte range is a task of its own: if the text turns out not to be one record per line, the
    results of its ranges are dropped.
    """
    number = 0
    pending: list[Piece] = []
    pending_bytes = 0
    for found, pieces in cut:
        size = found.size // max(1, len(pieces))
        for piece in pieces:
            numbered = replace(piece, index=number)
            number += 1
            if piece.is_range:
                yield (numbered,)
                continue
            if pending and pending_bytes + size > aim:
                yield tuple(pending)
                pending, pending_bytes = [], 0
            pending.append(numbered)
            pending_bytes += size
    if pending:
        yield tuple(pending)


# --- bytes ----------------------------------------------------------------------------------------


def require_unchanged(piece: Piece, files: Files) -> None:
    """Raise `SourceChanged` or `NotFound` if the file differs from the planned one."""
    if piece.file.format == "lance":
        return  # a Lance dataset is read at a pinned version
    found = files.stat(piece.file.path)
    if found is None:
        raise NotFound(
            f"{piece.file.shown} vanished while it was loaded", details={"file": piece.file.path}
        )
    if found != piece.file.stamp:
        raise SourceChanged(
            f"{piece.file.shown} changed while it was loaded",
            hint="load a file once its writer is done with it",
            details={"file": piece.file.path},
        )


def blocks_of(piece: Piece, files: Files) -> Iterator[bytes]:
    """The bytes of a text: of a range, the lines that start in it; of an array, items as lines."""
    blocks = _blocks(piece, files)
    return items_on_lines(blocks, piece.file.shown) if piece.file.is_array else blocks


def _blocks(piece: Piece, files: Files) -> Iterator[bytes]:
    try:
        if piece.end is None:
            with files.stream(piece.file.path) as stream:
                while block := stream.read(CHUNK_BYTES):
                    yield block
            return
        with files.open(piece.file.path) as stream:
            yield from _range(stream, piece.start, piece.end)
    except OSError as error:
        raise corrupt(piece.file.shown, error) from error


def _range(stream: Any, start: int, end: int) -> Iterator[bytes]:
    if start:
        stream.seek(start - 1)
        start += len(_line(stream)) - 1
    while start < end:
        stream.seek(start)
        block = stream.read(min(end - start, CHUNK_BYTES))
        if not block:
            return
        start += len(block)
        if start == end and not block.endswith(b"\n"):
            block += _line(stream)
        yield block


def _line(stream: Any) -> bytes:
    """The rest of the current line."""
    blocks: list[bytes] = []
    while block := stream.read(_LINE_BYTES):
        end = block.find(b"\n") + 1
        if end:
            return b"".join([*blocks, block[:end]])
        blocks.append(block)
    return b"".join(blocks)
