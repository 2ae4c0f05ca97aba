"""The arguments of a load as sources: files, tables and frames; and the choice of its engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.loading.files import S3, Files
from omnigraph.loading.formats.arrow_tables import arrow_table, is_pandas, pandas_hint
from omnigraph.loading.mapping import PLAIN
from omnigraph.loading.mapping_arguments import Mappings
from omnigraph.loading.reading import check_columns
from omnigraph.loading.records.problems import MAX_ERRORS, name_hint
from omnigraph.loading.sources import (
    FileSource,
    Format,
    FoundFile,
    Frame,
    Source,
    find_files,
    type_of,
)
from omnigraph.model.exports import EXPORT_FILE, complete_export
from omnigraph.model.ids import EntityKind, TableKey
from omnigraph.model.load_options import MappingArguments
from omnigraph.model.receipts import ExportReceipt, LoadMode
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog

if TYPE_CHECKING:
    from omnigraph.pipeline.spark.session import SparkWhenNeeded

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
"""By unsigned type: the signed type that holds its values, since Spark has no unsigned types."""


# --- files ----------------------------------------------------------------------------------------


def file_sources(
    paths: Sequence[str | os.PathLike[str]],
    nodes: Mapping[str, Paths] | None,
    edges: Mapping[str, Paths] | None,
) -> list[FileSource]:
    """The files that a caller names: graph records, exports, and tables by type."""
    sources: list[FileSource] = []
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise InputError(
                f"a load takes the paths of files, and this is a {type(path).__name__}",
                hint="records go into `data=` as JSON lines, tables and frames into `frames={…}`",
            )
        sources += _of_path(os.fspath(path))
    kinds: tuple[tuple[EntityKind, Mapping[str, Paths] | None], ...] = (
        ("node", nodes),
        ("edge", edges),
    )
    for kind, named in kinds:
        for name, given in _by_type(f"{kind}s", named, '"people.parquet"').items():
            several = [given] if isinstance(given, str | os.PathLike) else given
            if not isinstance(several, Sequence) or not several:
                raise _no_file(f"{kind}s", name, given)
            for path in several:
                if not isinstance(path, str | os.PathLike):
                    raise _no_file(f"{kind}s", name, path)
                sources.append(FileSource(os.fspath(path), TableKey.of(kind, name)))
    return sources


def _of_path(path: str) -> list[FileSource]:
    export = read_export(path)
    return [FileSource(path)] if export is None else export_sources(path, export)


def types_of_exports(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The type keys of all exports among ``paths``: an overwrite replaces these types."""
    exports = (read_export(os.fspath(path)) for path in paths)
    return [key for export in exports if export is not None for key in exported_types(export)]


def _by_type(argument: str, given: Any, example: str) -> Mapping[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return given
    raise InputError(
        f"`{argument}` takes a mapping from types, not {type(given).__name__}",
        hint=f'write {argument}={{"Person": {example}}}',
    )


def _no_file(argument: str, name: str, given: object) -> InputError:
    return InputError(
        f"`{argument}` has {given!r} for '{name}', which names no file",
        hint="give a path, a pattern or a list of them",
    )


def table_mappings(
    given: MappingArguments,
    files: Sequence[FileSource],
    frames: Mapping[str, Any] | None,
    catalog: Catalog,
    *,
    has_records: bool,
) -> Mappings:
    """The mappings of all tables; raises `InputError` if one is for a table that is not loaded."""
    tables = [(each.table_key, each.path) for each in files if each.table_key is not None]
    named = [(type_key(name, catalog), None) for name in _by_type("frames", frames, "frame")]
    return Mappings(given, [*tables, *named], catalog, has_records=has_records)


# --- types ----------------------------------------------------------------------------------------


def replaced_types(given: Iterable[str], mode: LoadMode, catalog: Catalog) -> tuple[str, ...]:
    """The keys of the types that an overwrite empties if the input has no rows of them."""
    if isinstance(given, str):
        raise InputError(
            "`replace_types` takes a list of types, not a text",
            hint=f'write replace_types=["{given}"]',
        )
    keys = tuple(type_key(name, catalog) for name in given)
    if keys and mode != "overwrite":
        raise InputError(
            f"mode {mode} cannot empty {keys[0]}", hint="only mode overwrite replaces types"
        )
    return keys


def type_key(name: str, catalog: Catalog) -> str:
    """The key of a type by its name alone, or by its kind and its name: `node:Person`."""
    name = str(name)
    if name.startswith(("node:", "edge:")):
        return type_of(name, catalog).table_key
    edge = catalog.edge_named(name)
    if name in catalog.nodes and edge is not None:
        raise InputError(
            f"'{name}' is a node type and an edge type", hint=f"say node:{name} or edge:{edge.name}"
        )
    if name in catalog.nodes:
        return TableKey.node(name)
    if edge is not None:
        return edge.table_key
    known = [*catalog.nodes, *catalog.edges]
    raise InputError(f"unknown type '{name}'", hint=name_hint(name, known, "types"))


# --- frames ---------------------------------------------------------------------------------------


def named_frames(
    frames: Mapping[str, Any] | None,
    catalog: Catalog,
    mappings: Mappings | None = None,
    *,
    ignore_unknown: bool,
    keeps_absent: bool = False,
) -> list[Frame]:
    """Frames by type: Spark DataFrames as they are, others as Arrow tables with checked columns."""
    given = _by_type("frames", frames, "frame")
    return [
        _frame(
            name, rows, catalog, mappings, ignore_unknown=ignore_unknown, keeps_absent=keeps_absent
        )
        for name, rows in given.items()
    ]


def _frame(
    name: str,
    rows: Any,
    catalog: Catalog,
    mappings: Mappings | None,
    *,
    ignore_unknown: bool,
    keeps_absent: bool,
) -> Frame:
    key = type_key(name, catalog)
    type = type_of(key, catalog)
    mapping = PLAIN if mappings is None else mappings.of(key)
    mapping = mapping.checked(type, Frame(key, None).name)
    if hasattr(rows, "mapInArrow"):
        from omnigraph.pipeline.spark.session import require_classic

        require_classic(rows.sparkSession)
        return Frame(key, rows, mapping)
    frame = Frame(key, arrow_table(rows, name), mapping)
    try:
        check_columns(
            frame.rows.schema,
            frame.found,
            catalog,
            ignore_unknown=ignore_unknown,
            keeps_absent=keeps_absent,
        )
    except InputError as error:
        column = error.details.get("property", "")
        if is_pandas(rows) and (hint := pandas_hint(rows, frame.rows, type, column)):
            error.hint = hint
        raise
    return frame


@contextmanager
def frame_sources(
    frames: Sequence[Frame], session: SparkWhenNeeded | None
) -> Iterator[list[Source]]:
    """Frames as sources: Arrow tables as temporary files if the tasks run on this machine."""
    with TemporaryDirectory(prefix="omnigraph-frames-") as directory:
        sources: list[Source] = []
        for number, frame in enumerate(frames):
            key, rows = frame.table_key, frame.rows
            if frame.is_of_spark:
                sources.append(frame)
            elif session is None or session.is_local:
                path = Path(directory) / f"{number}.arrow"
                with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as out:
                    out.write_table(rows, max_chunksize=65_536)
                sources.append(FileSource(str(path), key, "arrow", frame.name, frame.mapping))
            else:
                sent = session.get().createDataFrame(_signed(rows))
                sources.append(Frame(key, sent, frame.mapping))
        yield sources


def _signed(table: pa.Table) -> pa.Table:
    """The table with unsigned columns cast to signed types: Spark has no unsigned ones."""
    for index, column in enumerate(table.schema):
        if column.type in SIGNED:
            converted = table.column(index).cast(SIGNED[column.type])
            table = table.set_column(index, column.name, converted)
    return table


# --- problems -------------------------------------------------------------------------------------


def checked_max_errors(given: object) -> int:
    """How many problems to show; raises `InputError` for less than one."""
    if given is None:
        return MAX_ERRORS
    if isinstance(given, int) and given >= 1:
        return given
    raise InputError(
        f"`max_errors` is a number from 1 on, not {given!r}",
        hint="all problems are counted, however few are shown",
    )


def checked_errors_out(
    given: str | os.PathLike[str] | None, sources: Sequence[FileSource], graph_uri: str
) -> Path | None:
    """The file for every problem; raises `InputError` if it lies in an input or in the graph."""
    if given is None:
        return None
    path = Path(given).expanduser()
    where = path.resolve()
    if where.is_dir() or not where.parent.is_dir():
        reason = "is a directory" if where.is_dir() else "is in a directory that does not exist"
        raise InputError(f"the error file {path} {reason}", hint="name a file")
    root = Path(graph_uri).resolve()
    if "://" not in graph_uri and where.is_relative_to(root):
        raise InputError(f"the error file {path} lies in the graph", hint="name another file")
    for source in sources:
        if not source.path.startswith(S3):
            _refuse_input(path, where, source)
    return path


def _refuse_input(path: Path, where: Path, source: FileSource) -> None:
    given = Path(source.path).expanduser()
    if given.is_dir() and where.is_relative_to(given.resolve()):
        raise InputError(
            f"the error file {path} lies in {source.path}, which is loaded",
            hint="name a file elsewhere",
        )
    for found in find_files(source):
        if where == Path(found.path).resolve() or (where.exists() and where.samefile(found.path)):
            raise InputError(
                f"the error file {path} is a file that is loaded", hint="name another file"
            )


LoadEngine = Literal["auto", "local", "spark"]
Engine = Literal["local", "spark"]
ENGINES: tuple[LoadEngine, ...] = get_args(LoadEngine)

ENGINE_VARIABLE = "OMNIGRAPH_ENGINE"
THRESHOLD_VARIABLE = "OMNIGRAPH_SPARK_THRESHOLD_BYTES"
THRESHOLD_BYTES = 64 << 20

BY_ARROW: tuple[Format, ...] = ("parquet", "orc", "arrow", "lance", "csv")
BY_ARROW_SHARE = 4
"""Divisor for the size of formats that Arrow reads: it releases the GIL, so threads of one process
load them about as fast as Spark workers."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of a load, and the reason as text."""

    engine: Engine
    reason: str
    is_bulk: bool
    """Whether it runs as tasks: on Spark workers, or on threads of this process."""

    def __str__(self) -> str:
        return f"{self.engine} ({self.reason})"


def choose_engine(
    asked: LoadEngine | None,
    files: Sequence[FileSource],
    frames: Sequence[Frame] = (),
    *,
    has_stream: bool,
    is_spark_named: bool,
    environment: Mapping[str, str],
) -> EngineChoice:
    """The engine for a load; raises `InputError` if the one asked for cannot run it.

    ``is_spark_named``: the caller gave a session or a Spark master.
    """
    wanted = asked or environment.get(ENGINE_VARIABLE) or "auto"
    if wanted not in ENGINES:
        raise InputError(
            f"there is no engine '{wanted}'", hint=f"the engines are {', '.join(ENGINES)}"
        )
    is_typed = bool(frames) or any(source.table_key is not None for source in files)
    if has_stream:
        if wanted == "spark" or is_typed:
            raise InputError(
                "records from a stream can neither be loaded by Spark nor together with tables:"
                " a bulk job reads files, in parts",
                hint="write the records to a file, or load them on their own with the local engine",
            )
        return EngineChoice("local", "the records come from a stream", is_bulk=False)
    needs_spark = any(frame.is_of_spark for frame in frames)
    if wanted == "local":
        if needs_spark:
            raise InputError(
                "the local engine cannot read a frame of Spark",
                hint="leave out the engine, or load `frame.toArrow()`",
            )
        return EngineChoice("local", "as asked for", is_bulk=is_typed)
    if wanted == "spark":
        return EngineChoice("spark", "as asked for", is_bulk=True)
    if needs_spark:
        return EngineChoice("spark", "the input is a frame of Spark", is_bulk=True)
    if is_spark_named:
        return EngineChoice("spark", "it was said where Spark runs", is_bulk=True)
    found = [each for source in files for each in find_files(source)]
    frame_bytes = sum(frame.rows.nbytes for frame in frames)
    size = f"{sum(each.size for each in found) + frame_bytes:,} bytes"
    if _weight(found, frame_bytes) > threshold_bytes(environment):
        return EngineChoice("spark", f"{size} are loaded faster by several processes", is_bulk=True)
    return EngineChoice("local", f"{size} are loaded before Spark has started", is_bulk=is_typed)


def _weight(files: Sequence[FoundFile], frame_bytes: int) -> int:
    """The size to compare with the threshold: Arrow formats count a `BY_ARROW_SHARE`-th."""
    by_arrow = [each for each in files if each.format in BY_ARROW and not each.is_compressed]
    light = frame_bytes + sum(each.size for each in by_arrow)
    return light // BY_ARROW_SHARE + sum(each.size for each in files if each not in by_arrow)


def threshold_bytes(environment: Mapping[str, str]) -> int:
    """The size of an input beyond which starting Spark pays off."""
    text = environment.get(THRESHOLD_VARIABLE, "")
    if not text:
        return THRESHOLD_BYTES
    if not (text.isascii() and text.isdigit()):
        raise InputError(
            f"{THRESHOLD_VARIABLE} is '{text}', not a number of bytes",
            hint=f"unset {THRESHOLD_VARIABLE}",
        )
    return int(text)


# --- directories that `export` wrote --------------------------------------------------------------


def read_export(path: str) -> ExportReceipt | None:
    """The description of the export at ``path``; None if there is none.

    Raises `InputError` for an export that is not complete.
    """
    files = Files.of_environment([path])
    place = path.rstrip("/")
    if files.is_pattern(path) or files.stat(f"{place}/{EXPORT_FILE}") is None:
        return None
    with files.open(f"{place}/{EXPORT_FILE}") as stream:
        document = stream.read()

    def size_of(file: str) -> int | None:
        stamp = files.stat(f"{place}/{file}")
        return None if stamp is None else stamp[0]

    return complete_export(document, path, size_of)


def export_sources(path: str, found: ExportReceipt) -> list[FileSource]:
    """The files of an export, each with its type; graph records name their types themselves."""
    place = path.rstrip("/")
    return [
        FileSource(
            f"{place}/{file}",
            None if found.format == "jsonl" else TableKey.of(type.entity_kind, type.type_name),
        )
        for type in found.types
        for file in type.files
    ]


def exported_types(found: ExportReceipt) -> list[str]:
    """The keys of the types that an export has, also of those without entities."""
    return [TableKey.of(each.entity_kind, each.type_name) for each in found.types]
