"""The inputs of an inference as tables: files and frames, read in chunks of columns.

Files are read with the readers of a load. A record that these cannot read is an error here, because
it would be one there.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError
from omnigraph.inference.columns import InferredColumn, Values
from omnigraph.loading.files import COMPRESSED, S3, Files
from omnigraph.loading.formats.arrow_tables import arrow_table
from omnigraph.loading.formats.csv_rows import csv_rows
from omnigraph.loading.formats.table_batches import BATCH_ROWS, avro_objects, table_batches
from omnigraph.loading.map_expressions import split_texts
from omnigraph.loading.mapping import PLAIN, TableMapping
from omnigraph.loading.mapping_arguments import Mappings
from omnigraph.loading.pieces import Piece, blocks_of, pieces_of
from omnigraph.loading.records.framing import RecordSource, read_chunks
from omnigraph.loading.sources import FileSource, FoundFile, corrupt, find_all
from omnigraph.model.ids import TableKey
from omnigraph.model.load_options import CsvOptions, MappingArguments
from omnigraph.model.records import dataclass
from omnigraph.model.values import shown

TYPE_NAME = re.compile(r"[A-Z][A-Za-z0-9_]*")
_MAGIC = re.compile(r"[*?\[]")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_THREADED_ROWS_MIN = 1_000

Source = str | os.PathLike[str]


class Cells(NamedTuple):
    """The values of one column in a chunk."""

    key: int | str
    """The position of the column; its name, if columns of this table have no positions."""
    name: str
    values: Values
    is_text: bool


Chunk = tuple[int, list[Cells]]
"""A number of rows, and their values."""


@dataclass(slots=True)
class InferredTable:
    """Rows of one type."""

    type_name: str
    shown: str
    """The name in messages."""
    source: str | None
    """A file, a directory or a pattern; None for a frame."""
    frame: pa.Table | None = None
    mapping: TableMapping = PLAIN
    """How cells of a CSV file are separated."""
    rows: int = 0
    columns: dict[int | str, InferredColumn] = field(default_factory=dict)
    _lists: frozenset[int | str] | None = None

    def profile(self) -> None:
        """Examine every value once; raises `InputError` for a table that cannot be read."""
        self._find_lists()
        with ThreadPoolExecutor((os.cpu_count() or 1) + 1, "omnigraph-infer") as threads:
            for rows, cells in _read_ahead(self.chunks(), threads):
                self.rows += rows
                found = [(self._column(each), each.values) for each in cells]
                # Arrow's kernels run without the GIL.
                run = threads.map if rows >= _THREADED_ROWS_MIN else map
                for _ in run(lambda pair: pair[0].add(pair[1]), found):
                    pass
        if not self.columns:
            raise InputError(
                f"{self.shown} has no columns: there is nothing to infer from",
                hint="give a file with a header or at least one record",
                details={"file": self.shown},
            )

    def _column(self, cells: Cells) -> InferredColumn:
        known = self.columns.get(cells.key)
        if known is None:
            known = self.columns[cells.key] = InferredColumn(
                cells.name, cells.key, len(self.columns), cells.is_text
            )
        return known

    def chunks(self) -> Iterator[Chunk]:
        """The rows in order; raises `InputError` for the first bad record."""
        if self.frame is not None:
            yield from map(_batch, self.frame.to_batches(BATCH_ROWS) or [_empty(self.frame)])
            return
        assert self.source is not None
        # The list of files does not depend on the kind of their type.
        key = TableKey.node(self.type_name)
        for found in find_all([FileSource(self.source, key, mapping=self.mapping)]):
            try:
                for rows, cells in _file_chunks(found, Files.of_environment([found.path])):
                    own = self._with_lists(cells) if found.format == "csv" else cells
                    yield rows, [*own, *_folder_cells(found, rows, cells)]
            except (OSError, pa.ArrowException) as error:
                raise corrupt(found.shown, error) from error

    def _with_lists(self, cells: list[Cells]) -> list[Cells]:
        """The cells of list columns, split into their items."""
        separator = self.mapping.list_separator
        if separator is None or self._lists is None:
            return cells
        return [
            Cells(each.key, each.name, split_texts(each.values, separator), is_text=False)
            if each.key in self._lists
            else each
            for each in cells
        ]

    def _find_lists(self) -> None:
        """Find columns of CSV files in which a cell has the separator of lists."""
        separator = self.mapping.list_separator
        if separator is None:
            return
        found = {
            cells.key
            for _, chunk in self.chunks()
            for cells in chunk
            if cells.is_text and pc.any(pc.match_substring(cells.values, separator)).as_py()
        }
        self._lists = frozenset(found)


def _read_ahead(chunks: Iterator[Chunk], threads: ThreadPoolExecutor) -> Iterator[Chunk]:
    """The same chunks; the next one is read while the caller works on the current one."""
    pending = threads.submit(next, chunks, None)
    while (chunk := pending.result()) is not None:
        pending = threads.submit(next, chunks, None)
        yield chunk


# --- reading --------------------------------------------------------------------------------------


def _file_chunks(found: FoundFile, files: Files) -> Iterator[Chunk]:
    if found.format == "csv":
        for some in csv_rows(Piece(0, found), files):
            for problem in some.problems:
                raise problem.to_error()
            yield _batch(some.cells, is_text=True)
        return
    if found.format == "json":
        yield from _json_chunks(Piece(0, found), files)
    elif found.format == "avro":
        yield from map(_objects, avro_objects(Piece(0, found), files))
    else:
        for piece in pieces_of(found):
            yield from map(_batch, table_batches(piece, files))


def _json_chunks(piece: Piece, files: Files) -> Iterator[Chunk]:
    name = piece.file.shown
    source = RecordSource(name, lambda: blocks_of(piece, files), piece.unit("strict"))
    for chunk in read_chunks(source, "strict"):
        for problem in chunk.problems:
            raise problem.to_error()
        for number, value in zip(chunk.numbers, chunk.values, strict=True):
            if not isinstance(value, dict):
                raise InputError(
                    f"{name}:{number}: a record is an object, got {shown(value)}",
                    hint="write each record as one JSON object on a line of its own",
                    details={"file": name, "line": number},
                )
            if "type" in value and isinstance(value.get("data"), dict):
                raise InputError(
                    f"{name}:{number}: this is a graph record, which names its type",
                    hint="inference is for rows of one type; graph records need a schema, and are"
                    " loaded with `--data` (data=…)",
                    details={"file": name, "line": number},
                )
        yield _objects(chunk.values)


def _objects(objects: Sequence[Any]) -> Chunk:
    names = dict.fromkeys(name for each in objects for name in each)
    return len(objects), [
        Cells(name, name, [each.get(name) for each in objects], is_text=False) for name in names
    ]


def _batch(batch: pa.RecordBatch, is_text: bool = False) -> Chunk:
    return batch.num_rows, [
        Cells(position, name, batch.column(position), is_text)
        for position, name in enumerate(batch.schema.names)
    ]


def _empty(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], table.schema)


def _folder_cells(found: FoundFile, rows: int, cells: Sequence[Cells]) -> Iterator[Cells]:
    """Columns from partition folders; raises if the file has the column too, with another value."""
    named = {each.name for each in cells}
    for name, value in found.folder_values:
        if name not in named:
            yield Cells(name, name, pa.array([value] * rows, pa.string()), is_text=True)


# --- sources --------------------------------------------------------------------------------------


def tables_of(
    sources: Source | Sequence[Source] | Mapping[str, Any], csv: CsvOptions | None = None
) -> list[InferredTable]:
    """The tables that a caller names; raises `InputError` if two would be the same type.

    A text `Type=path` names the type of a path, as in a mapping; otherwise the file name does.
    """
    if isinstance(sources, Mapping):
        tables = [_named(name, given) for name, given in sources.items()]
    else:
        several = [sources] if isinstance(sources, str | os.PathLike) else sources
        if not isinstance(several, Sequence):
            raise InputError(
                f"sources are paths, or frames by the names of types, not {type(sources).__name__}",
                hint='write ["airports.csv"] or {"Airport": frame}',
            )
        tables = [_table(each) for each in several]
    if not tables:
        raise InputError("there is nothing to infer from", hint="name at least one file")
    seen: dict[str, InferredTable] = {}
    for table in tables:
        # Edge types may not differ in case alone.
        first = seen.setdefault(table.type_name.lower(), table)
        if first is not table:
            other = f"{table.type_name}2={table.shown}"
            raise InputError(
                f"{first.shown} and {table.shown} would both be type {table.type_name}",
                hint=f"name one of them, such as '{other}'; parts of one table are given as a"
                " directory or a quoted pattern",
            )
    if csv is not None:
        named = [(TableKey.node(each.type_name), each.source) for each in tables]
        mappings = Mappings(MappingArguments(csv=csv), named, None)
        for table, (key, path) in zip(tables, named, strict=True):
            table.mapping = mappings.of(key, path)
    return tables


def _named(name: object, given: Any) -> InferredTable:
    if not isinstance(name, str) or not TYPE_NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is no name of a type", hint="such as 'Airport': a capital letter first"
        )
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        return InferredTable(name, path, path)
    if hasattr(given, "toArrow"):
        raise InputError(
            f"the frame for '{name}' is one of Spark", hint="give `frame.toArrow()`, or a sample"
        )
    return InferredTable(name, f"<frame {name}>", None, arrow_table(given, name))


def _table(given: Any) -> InferredTable:
    if not isinstance(given, str | os.PathLike):
        raise InputError(
            f"{type(given).__name__} is no path",
            hint='frames are given by the names of their types: {"Airport": frame}',
        )
    path = os.fspath(given)
    name, mark, rest = path.partition("=")
    if mark and rest and TYPE_NAME.fullmatch(name) and not os.path.lexists(path):
        return InferredTable(name, rest, rest)
    return InferredTable(type_name(path), path, path)


def type_name(path: str) -> str:
    """The name of a type for the rows of a path.

    >>> [type_name(each) for each in ("flights-airport.csv", "data/cities.jsonl.gz", "2020.csv")]
    ['FlightsAirport', 'City', 'T2020']
    >>> type_name("s3://lake/people/*.parquet")
    'People'
    """
    path = path.removeprefix(S3)
    if found := _MAGIC.search(path):
        path = path[: found.start()]
    stem = PurePosixPath(path.rstrip("/")).name
    for suffix in COMPRESSED:
        stem = stem.removesuffix(suffix)
    stem = PurePosixPath(stem).stem
    found_words = words_of(stem)
    if found_words:
        found_words[-1] = _singular(found_words[-1])
    name = "".join(word[0].upper() + word[1:].lower() for word in found_words) or "Row"
    return name if name[0].isalpha() else f"T{name}"


def words_of(name: str) -> list[str]:
    """The words of a name, without accents; capitals within it begin words.

    >>> words_of("IMDB Rating"), words_of("originAirportId"), words_of("Größe (m²)")
    (['IMDB', 'Rating'], ['origin', 'Airport', 'Id'], ['Groe', 'm', '2'])
    """
    plain = unicodedata.normalize("NFKD", name)
    return _WORD.findall("".join(each for each in plain if each.isascii()))


def _singular(word: str) -> str:
    lower = word.lower()
    if lower.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if lower.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if lower.endswith("s") and not lower.endswith(("ss", "us", "is", "news", "series")):
        return word[:-1] if len(word) > 3 else word
    return word
