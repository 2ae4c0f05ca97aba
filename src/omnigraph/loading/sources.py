"""Finding the input files of a load: paths, directories, patterns, formats, partition folders.

`pieces` cuts these files into tasks.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa

from omnigraph.errors import InputError, NotFound
from omnigraph.loading.files import COMPRESSED, S3, Files, Stamp, below_base, pattern_base
from omnigraph.loading.mapping import PLAIN, TableMapping
from omnigraph.loading.records.framing import RecordSource, items_on_lines
from omnigraph.loading.records.problems import close_name, name_hint
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog, TableType
from omnigraph.storage.failures import sentence_of

Format = Literal["records", "json", "csv", "parquet", "orc", "avro", "lance", "arrow"]
"""`records` are graph records of any types; the other formats hold rows of one type."""

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

_TEXTS: tuple[Format, ...] = ("records", "json", "csv")
"""Formats in which an empty file is valid: it has no rows."""
_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
_LISTED_MAX = 5


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files of one kind, as a user names them."""

    path: str
    """A file, a directory or a pattern."""
    table_key: str | None = None
    """The type of every row; None for graph records, which name their types."""
    format: Format | None = None
    """None: the format follows from the name of each file."""
    name: str | None = None
    """Its name in messages, if not the path."""
    mapping: TableMapping = PLAIN


@dataclass(frozen=True, slots=True)
class Frame:
    """A table or data frame of the caller, with rows of one type."""

    table_key: str
    rows: Any
    """An Arrow table, or a Spark DataFrame."""
    mapping: TableMapping = PLAIN

    @property
    def is_of_spark(self) -> bool:
        """Whether it is a Spark DataFrame, which only Spark can read."""
        return not isinstance(self.rows, pa.Table)

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"<frame {self.table_key.partition(':')[2]}>"

    @property
    def found(self) -> FoundFile:
        """Its description for tasks, which receive the rows from Spark."""
        return FoundFile(self.name, "arrow", self.table_key, 0, (0, 0), mapping=self.mapping)


Source = FileSource | Frame


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One file that was found for a source."""

    path: str
    format: Format
    table_key: str | None
    size: int
    stamp: Stamp
    name: str | None = None
    folder_values: FolderValues = ()
    mapping: TableMapping = PLAIN
    is_array: bool = False
    """Whether it is a JSON file that holds one array."""

    @property
    def shown(self) -> str:
        """What messages call it."""
        return self.name or self.path

    @property
    def is_compressed(self) -> bool:
        """Whether its suffix is that of a compressed file."""
        return self.path.lower().endswith(tuple(COMPRESSED))

    @property
    def identity(self) -> tuple[str, str | None]:
        """Equal for two paths (links) to the same file with the same type."""
        is_remote = self.path.startswith(S3)
        return self.path if is_remote else os.path.realpath(self.path), self.table_key


def type_of(table_key: str, catalog: Catalog) -> TableType:
    """The type of a table key; raises `InputError` if there is none."""
    key = TableKey(table_key)
    found: TableType | None = (
        catalog.nodes.get(key.type_name)
        if key.kind == "node"
        else catalog.edge_named(key.type_name)
    )
    if found is None:
        known: Iterable[str] = catalog.nodes if key.kind == "node" else catalog.edges
        raise InputError(
            f"unknown {key.kind} type '{key.type_name}'",
            hint=name_hint(key.type_name, known, f"{key.kind} types"),
        )
    return found


# --- finding files --------------------------------------------------------------------------------


def find_all(sources: Iterable[FileSource]) -> list[FoundFile]:
    """The files of several sources; raises `InputError` for a file that is named twice."""
    seen: dict[object, FoundFile] = {}
    for source in sources:
        for found in find_files(source):
            first = seen.setdefault(found.identity, found)
            if first is not found:
                also = "" if first.shown == found.shown else f", also as {found.shown}"
                raise InputError(
                    f"{first.shown} is given twice{also}",
                    hint="name each file once; directories and patterns may hold others you name",
                    details={"file": first.shown},
                )
    return [_with_array(found) for found in seen.values()]


def _with_array(found: FoundFile) -> FoundFile:
    """The file, marked if it is a JSON file that holds one array instead of an object per line."""
    may_be = found.format == "json" or (
        found.format == "records" and ".json" in PurePosixPath(found.path.lower()).suffixes
    )
    if not may_be or not found.size:
        return found
    try:
        with Files.of_environment([found.path]).stream(found.path) as stream:
            while block := stream.read(1 << 10):
                if text := block.lstrip():
                    return replace(found, is_array=text.startswith(b"["))
    except OSError as error:
        raise corrupt(found.shown, error) from error
    return found


def find_files(source: FileSource) -> list[FoundFile]:
    """The files that a path, directory or pattern names, each once, sorted by name."""
    files = Files.of_environment([source.path])
    path = source.path
    if not path.startswith(S3):
        path = str(Path(path).expanduser())
    try:
        found = [
            each
            for name, below in _named(path, files)
            for each in _found(name, below, source, files)
        ]
    except OSError as error:
        # Name the unreadable file, not the directory that was given.
        raise corrupt(error.filename or source.path, error) from error
    if not found:
        raise NotFound(
            f"there is nothing to load in {source.path}",
            hint=f"names end in {', '.join(_SUFFIXES)}",
            details={"file": source.path},
        )
    return _once(found)


def _named(path: str, files: Files) -> Iterator[tuple[str, str]]:
    """The paths that a path or pattern matches, and the part of each below the pattern's base."""
    if not files.is_pattern(path):
        yield path, ""
        return
    base = pattern_base(path)
    names = [(name, below_base(name, base)) for name in files.matching(path)]
    if not names:
        raise NotFound(
            f"no file matches {path}",
            hint="quote the pattern if your shell should not expand it",
            details={"file": path},
        )
    wants_hidden = _is_hidden(below_base(path, base))
    yield from (each for each in names if wants_hidden or not _is_hidden(each[1]))


def _is_hidden(below: str) -> bool:
    """Names starting with ``_`` or ``.`` are metadata of the writer, as for Spark and Hive."""
    return any(part.startswith(("_", ".")) for part in PurePosixPath(below).parts)


def _once(found: list[FoundFile]) -> list[FoundFile]:
    """Each file once, by its shortest path if links give it several."""
    chosen: dict[object, FoundFile] = {}
    for each in sorted(found, key=_detour):
        chosen.setdefault((each.identity, each.folder_values), each)
    kept = set(map(id, chosen.values()))
    return [each for each in found if id(each) in kept]


def _detour(found: FoundFile) -> tuple[int, bool]:
    is_link = not found.path.startswith(S3) and Path(found.path).is_symlink()
    return found.path.count("/"), is_link


def _found(path: str, below: str, source: FileSource, files: Files) -> Iterator[FoundFile]:
    name = PurePosixPath(path).name
    format = source.format or format_of(name, source.table_key)
    if files.is_directory(path):
        if format == "lance" or files.is_dataset(path):
            yield _file(path, "lance", below, source, files)
        else:
            yield from _directory(path, below, source, files)
        return
    if format is None and source.table_key is None:
        # A single file of graph records may have any name.
        format = "records"
    if format is None:
        raise InputError(
            f"{path} does not say what it is",
            hint=f"names end in {', '.join(_SUFFIXES)}",
            details={"file": path},
        )
    yield _file(path, format, below, source, files)


def _directory(path: str, below: str, source: FileSource, files: Files) -> Iterator[FoundFile]:
    unknown: list[str] = []
    for entry in files.entries(path):
        if _is_hidden(entry.below):
            _refuse_log(path, entry.below)
            continue
        format = source.format or format_of(entry.path, source.table_key)
        if entry.is_dataset:
            format = "lance"
        if format is None:
            unknown.append(entry.below)
        else:
            yield _file(entry.path, format, f"{below}/{entry.below}", source, files)
    # A directory of graph records may contain schemas and queries, so unknown files are ignored
    # there; in the directory of a table, an unknown file may hold rows that would be missed.
    if unknown and source.table_key is not None:
        several = len(unknown) > 1
        more = ", …" if len(unknown) > _LISTED_MAX else ""
        raise InputError(
            f"{len(unknown)} {'files' if several else 'file'} in {path} "
            f"{'do' if several else 'does'} not say what {'they are' if several else 'it is'}: "
            f"{', '.join(unknown[:_LISTED_MAX])}{more}",
            hint=f"names end in {', '.join(_SUFFIXES)}; name the files you mean with a pattern, "
            f"such as '{path}/*.csv', or start the names of others with _",
            details={"file": path},
        )


def _refuse_log(path: str, below: str) -> None:
    """Refuse a Delta or Hudi table: its log says which of the data files are current."""
    for part in PurePosixPath(below).parts:
        if part in _LOGS:
            raise InputError(
                f"{path} holds a {_LOGS[part]} table, whose files may have rows that were deleted",
                hint="read the table with Spark or Polars, and load the frame",
                details={"file": path},
            )


def format_of(name: str, table_key: str | None) -> Format | None:
    """The format by the suffix of a name; None if it is unknown."""
    name = name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    format = _SUFFIXES.get(PurePosixPath(name).suffix)
    return "json" if format == "records" and table_key is not None else format


def _missing_file_hint(path: str) -> str | None:
    """A hint for a missing file: a similar name in its directory, or the absolute path."""
    folder = Path(path).parent
    if path.startswith(S3) or not folder.is_dir():
        return None
    place = None if folder.is_absolute() else f"it was looked for in {Path.cwd()}"
    return close_name(Path(path).name, (each.name for each in folder.iterdir())) or place


def _file(path: str, format: Format, below: str, source: FileSource, files: Files) -> FoundFile:
    table_key = source.table_key
    if (table_key is None) != (format == "records"):
        raise InputError(
            f"{path} holds rows of one type, and it is not said which"
            if table_key is None
            else f"{path} holds graph records, which name their types themselves",
            hint=f"--node Type={path} or --edge Type={path} (nodes= and edges= in Python)"
            if table_key is None
            else f"--data {path} (data= in Python)",
            details={"file": path},
        )
    stamp = _dataset_stamp(path, files) if format == "lance" else files.stat(path)
    if stamp is None:
        raise NotFound(
            f"no such file: {path}", hint=_missing_file_hint(path), details={"file": path}
        )
    # Workers may have another current directory; messages show the path as given.
    absolute = path if path.startswith(S3) else str(Path(path).absolute())
    found = FoundFile(
        absolute, format, table_key, stamp[0], stamp, source.name or path, mapping=source.mapping
    )
    if not found.size and (found.is_compressed or format not in _TEXTS):
        # An interrupted writer leaves empty files.
        raise corrupt(path, ValueError("it has no bytes at all"))
    if table_key is None:
        return found
    folders = PurePosixPath(below).parts[:-1]
    return replace(found, folder_values=folder_values(folders, path))


def _dataset_stamp(path: str, files: Files) -> Stamp | None:
    """The size of a dataset, without an mtime: its version is pinned by number instead."""
    if not files.is_directory(path):
        if files.stat(path) is not None:
            raise corrupt(path, ValueError("it is no dataset, which is a directory"))
        return None
    sizes = [files.stat(child) for child, _ in files.below(path)]
    return sum(size[0] for size in sizes if size), 0


def input_digest(inputs: Sequence[FoundFile], mappings: Mapping[str, TableMapping]) -> str:
    """A digest of the contents of some files and their mappings, independent of file names.

    ``mappings`` are those of graph records.
    """
    digest = hashlib.sha256()
    for key, mapping in sorted(mappings.items()):
        digest.update(f"{key}:{mapping}\n".encode())
    for found in inputs:
        digest.update(f"{found.format}:{found.table_key}:{found.size}\n".encode())
        if found.folder_values:
            digest.update(f"{found.folder_values}\n".encode())
        if found.mapping != PLAIN:
            digest.update(f"{found.mapping}\n".encode())
        files = Files.of_environment([found.path])
        is_folder = files.is_directory(found.path)
        paths = [path for path, _ in files.below(found.path)] if is_folder else [found.path]
        for path in paths:
            try:
                with files.open(path) as stream:
                    while block := stream.read(1 << 20):
                        digest.update(block)
            except OSError as error:
                raise corrupt(found.shown, error) from error
    return digest.hexdigest()


def delimiter_of(found: FoundFile) -> str:
    """The delimiter of a CSV file: the given one, else that of the suffix."""
    is_tabs = ".tsv" in map(str.lower, PurePosixPath(found.path).suffixes)
    return found.mapping.delimiter or ("\t" if is_tabs else ",")


def record_source(found: FoundFile) -> RecordSource:
    """A file of graph records for a load in process."""

    def blocks() -> Iterator[bytes]:
        try:
            with Files.of_environment([found.path]).stream(found.path) as stream:
                while block := stream.read(1 << 20):
                    yield block
        except OSError as error:
            raise corrupt(found.shown, error) from error

    if found.is_array:
        return RecordSource(found.shown, lambda: items_on_lines(blocks(), found.shown))
    return RecordSource(found.shown, blocks)


def corrupt(path: str, error: Exception) -> InputError:
    """The error for a file that cannot be read, or that does not have the format of its suffix."""
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
        return InputError(
            f"{path} cannot be read: permission denied",
            hint=f"`ls -ld {path}` shows who may read it",
            details={"file": path},
        )
    return InputError(
        f"{path} cannot be read: {sentence_of(error)}",
        hint="check that the file is complete and that its name says what it is",
        details={"file": path},
    )


NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The folder value by which Hive and Spark write null."""

FolderValues = tuple[tuple[str, str | None], ...]
"""Partition columns of a file: names, and values as text."""


def folder_values(folders: Iterable[str], path: str) -> FolderValues:
    """Columns from partition folders (``name=value``); other folders are skipped.

    Raises `InputError` naming ``path`` if two folders name the same column.

    >>> folder_values(["people", "country=DE", "day=2026-01-05 10%3A00"], "people/…/0.parquet")
    (('country', 'DE'), ('day', '2026-01-05 10:00'))
    """
    values: dict[str, str | None] = {}
    for folder in folders:
        name, mark, text = folder.partition("=")
        name = unquote(name)
        if not (name and mark):
            continue
        if name in values:
            raise InputError(
                f"{path}: column '{name}' is named by two folders",
                hint="keep one of them",
                details={"file": path},
            )
        values[name] = None if text in ("", NULL_FOLDER) else unquote(text)
    return tuple(values.items())
