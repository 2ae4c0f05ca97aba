"""Exports as directories: one set of files for each type, in a form that a load reads.

Files are written beside the directory, which appears atomically with all files and `_export.json`,
their description. A process that dies leaves a folder with `.partial-` in its name, whose
`_export.json` says that it is incomplete; loads refuse it.

Values are those of the tables. CSV has no types and no nested values, so lists and vectors are JSON
arrays in their cells and F32 is written with the digits of its exact value; an empty cell is null,
and `""` an empty text. Blobs are the texts of JSON in every format, `base64:…` or a URI.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

import orjson
import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.receipts import EXPORT_VERSION, ExportedType, ExportFormat, ExportReceipt
from omnigraph.model.records import dataclass
from omnigraph.model.references import END_TYPES, RECORD_END_TYPES
from omnigraph.model.result_json import rows_to_python
from omnigraph.model.tables import TableInfo

EXPORT_FILE = "_export.json"
"""The description of an export, written last. Loads ignore names that begin with `_`."""

FILE_ROWS = 4_000_000
"""Approximate number of rows per file: a larger type has several files."""
GROUP_ROWS = 1_048_576
GROUP_BYTES = 64 << 20
"""Size at which a row group of Parquet is complete."""


# --- the directory --------------------------------------------------------------------------------


@dataclass
class ExportDirectory:
    """A directory that is being written; it is moved to its place when complete."""

    staged: Path
    format: ExportFormat
    progress: Callable[[int], None] | None
    types: list[ExportedType] = field(default_factory=list)
    branch: str | None = None
    graph_commit_id: str | None = None

    def add(self, about: TableInfo, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the files of one type."""
        with self.table(about, schema) as write:
            for batch in batches:
                write(batch)

    @contextmanager
    def table(
        self, about: TableInfo, schema: pa.Schema
    ) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """Files of one type; yields the function that writes rows to them."""
        self.branch, self.graph_commit_id = about.target.branch, about.graph_commit_id
        files = _FileSet(self.staged, self.format, about, schema.remove_metadata())

        def write(batch: pa.RecordBatch) -> None:
            files.write(batch)
            if self.progress is not None:
                self.progress(batch.num_rows)

        with files:
            yield write
        self.types.append(files.written())

    def receipt(self, *, is_complete: bool) -> ExportReceipt:
        """The receipt for the files so far."""
        types = tuple(sorted(self.types, key=lambda each: (each.entity_kind, each.type_name)))
        return ExportReceipt(
            EXPORT_VERSION, self.format, is_complete, types, self.branch, self.graph_commit_id
        )

    def describe(self, *, is_complete: bool) -> None:
        """Write `_export.json`."""
        text = json.dumps(self.receipt(is_complete=is_complete).to_dict(), indent=2)
        (self.staged / EXPORT_FILE).write_text(f"{text}\n", encoding="utf-8")


@contextmanager
def export_directory(
    path: str | os.PathLike[str],
    format: ExportFormat,
    *,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Iterator[ExportDirectory]:
    """A directory that appears at ``path`` with all its files when the block ends.

    Raises `InputError` if the path contains anything else: with ``overwrite`` only an earlier
    export is replaced. A block that fails leaves nothing behind.
    """
    target = Path(os.path.realpath(Path(path).expanduser()))
    _require_place(target, path, overwrite=overwrite)
    suffix = secrets.token_hex(4)
    staged = target.with_name(f".{target.name}.partial-{suffix}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.mkdir()
    except OSError as problem:
        raise InputError(
            f"cannot write to {path}: {problem.strerror}", hint="name another directory"
        ) from problem
    directory = ExportDirectory(staged, format, progress)
    try:
        directory.describe(is_complete=False)
        yield directory
        directory.describe(is_complete=True)
        # Another process may have written to the path since.
        _require_place(target, path, overwrite=overwrite)
        _move_into_place(staged, target, target.with_name(f".{target.name}.replaced-{suffix}"))
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise


def _move_into_place(staged: Path, target: Path, aside: Path) -> None:
    """Make ``staged`` the directory at ``target``."""
    had_one = target.exists()
    if had_one:
        target.rename(aside)
    try:
        staged.rename(target)
    except BaseException:
        if had_one:
            aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _require_place(target: Path, given: object, *, overwrite: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(f"{given} is a file", hint="an export is a directory of files")
    if not any(target.iterdir()):
        return
    if not (target / EXPORT_FILE).is_file():
        raise InputError(
            f"{given} is not empty, and no export", hint="name a new or an empty directory"
        )
    if not overwrite:
        raise InputError(
            f"{given} holds an export",
            hint="replace it with `--overwrite` (overwrite=True), or name another directory",
        )


def complete_export(
    document: bytes, path: str, size_of: Callable[[str], int | None]
) -> ExportReceipt:
    """The receipt in an `_export.json`; ``size_of`` returns the bytes of a file, or None.

    Raises `InputError` for an incomplete export: it was interrupted, or a file was removed or
    truncated since.
    """
    try:
        described = orjson.loads(document)
        version = described["omnigraph_export"]
        found = ExportReceipt.from_dict(described) if version == EXPORT_VERSION else None
    except (KeyError, TypeError, ValueError) as error:
        raise _unusable(path, f"{EXPORT_FILE} cannot be read") from error
    if found is None:
        raise _unusable(path, f"it has version {version}, and this release reads {EXPORT_VERSION}")
    if not found.is_complete:
        raise _unusable(path, "it was interrupted")
    for type in found.types:
        sizes = [size_of(file) for file in type.files]
        if None in sizes or sum(size for size in sizes if size) != type.bytes:
            raise _unusable(path, f"files of {type.type_name} are gone, or were changed")
    return found


def _unusable(path: str, reason: str) -> InputError:
    return InputError(
        f"the export in {path} is not complete: {reason}",
        hint="export again; or name the files that you want, one by one",
        details={"file": path},
    )


# --- the files of one type ------------------------------------------------------------------------


class _Writer(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class _FileSet:
    """Files of one type; a new one is started when a file has enough rows."""

    def __init__(
        self, root: Path, format: ExportFormat, about: TableInfo, schema: pa.Schema
    ) -> None:
        self._root, self._format, self._about, self._schema = root, format, about, schema
        self._folder = Path(f"{about.entity_kind}s", about.type_name)
        (root / self._folder).mkdir(parents=True)
        self._files: list[str] = []
        self._writer: _Writer | None = None
        self._rows = self._file_rows = 0

    def __enter__(self) -> _FileSet:
        self._begin()
        return self

    def __exit__(self, *failure: object) -> None:
        self._end()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if self._file_rows >= FILE_ROWS:
            self._end()
            self._begin()
        assert self._writer is not None
        if self._format != "jsonl":
            _require_loadable(batch, self._about)
        self._writer.write(batch)
        self._rows += batch.num_rows
        self._file_rows += batch.num_rows

    def written(self) -> ExportedType:
        """The receipt of the files, after closing."""
        size = sum((self._root / file).stat().st_size for file in self._files)
        about = self._about
        return ExportedType(
            about.entity_kind, about.type_name, self._rows, size, tuple(self._files)
        )

    def _begin(self) -> None:
        name = self._folder / f"part-{len(self._files):05}.{self._format}"
        self._files.append(name.as_posix())
        self._file_rows = 0
        path = str(self._root / name)
        match self._format:
            case "parquet":
                self._writer = _ParquetFile(path, self._schema)
            case "arrow":
                self._writer = _ArrowFile(path, self._schema)
            case "csv":
                self._writer = _CsvFile(path, self._schema)
            case "jsonl":
                self._writer = _JsonLines(path, self._about)

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _require_loadable(batch: pa.RecordBatch, about: TableInfo) -> None:
    """Refuse nulls inside lists, which no format but JSON lines can load."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_list(column.type) and column.flatten().null_count:
            lists = column.to_pylist()
            row = next(i for i, items in enumerate(lists) if items is not None and None in items)
            raise InputError(
                f"{about.type_name}.{name} of '{batch.column(ID)[row]}' is a list with a null in "
                "it, which a load of tables refuses",
                hint="export with `--format jsonl` (format='jsonl'), or name the other types with"
                " `--type` (types=…)",
                details={"type": about.type_name, "property": name},
            )


class _ParquetFile:
    """Rows are buffered until they make a row group: a file with small groups is slow to read."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._file = pq.ParquetWriter(path, schema)
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        if self._held:
            self._file.write_table(pa.Table.from_batches(self._held), row_group_size=self._rows)
            self._held, self._rows, self._bytes = [], 0, 0


class _ArrowFile:
    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._file = pa.ipc.new_file(path, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write_batch(batch)

    def close(self) -> None:
        self._file.close()


class _CsvFile:
    def __init__(self, path: str, schema: pa.Schema) -> None:
        import pyarrow.csv as pac

        cells = [each.with_type(_cell_type(each.type)) for each in schema]
        self._schema = pa.schema(cells)
        # `needed` quotes every text, empty ones included, and leaves nulls empty.
        self._file = pac.CSVWriter(
            path, self._schema, write_options=pac.WriteOptions(quoting_style="needed")
        )

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [
            _cells(column, cell.type)
            for column, cell in zip(batch.columns, self._schema, strict=True)
        ]
        self._file.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._file.close()


def _is_nested(type: pa.DataType) -> bool:
    return bool(pa.types.is_list(type) or pa.types.is_fixed_size_list(type))


def _cell_type(type: pa.DataType) -> pa.DataType:
    if _is_nested(type):
        return pa.large_string()
    return pa.float64() if type == pa.float32() else type


def _cells(column: pa.Array, type: pa.DataType) -> pa.Array:
    if not _is_nested(column.type):
        return column.cast(type)
    values = rows_to_python(pa.RecordBatch.from_arrays([column], names=["v"]))
    texts = [None if row["v"] is None else orjson.dumps(row["v"]).decode() for row in values]
    return pa.array(texts, type)


class _JsonLines:
    """Graph records as `Graph.export` writes them, with dates and times as epoch numbers."""

    def __init__(self, path: str, about: TableInfo) -> None:
        self._about = about
        self._file = pa.OSFile(path, "wb")

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [column.cast(_epoch_type(column.type)) for column in batch.columns]
        rows = rows_to_python(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
        name, is_edge = self._about.type_name, self._about.entity_kind == "edge"
        lines = [_line(row, name, is_edge=is_edge) for row in rows]
        self._file.write(b"".join(lines))

    def close(self) -> None:
        self._file.close()


def _line(row: dict[str, Any], name: str, *, is_edge: bool) -> bytes:
    if is_edge:
        record = {"edge": name, **record_ends(row), "data": row}
    else:
        record = {"type": name, "data": row}
    assert ID in row
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def record_ends(row: dict[str, Any]) -> dict[str, Any]:
    """The ends of an edge as members of its record; removes them from ``row``."""
    ends: dict[str, Any] = {}
    for end, member in ((SRC, "from"), (DST, "to")):
        ends[member] = row.pop(end)
        if END_TYPES[end] in row:
            ends[RECORD_END_TYPES[end]] = row.pop(END_TYPES[end])
    return ends


def _epoch_type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type):
        return pa.list_(_epoch_type(type.value_type))
    if pa.types.is_date32(type):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(type) else type
