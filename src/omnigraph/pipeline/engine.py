"""Which engine runs a load, and why; and the way from what a caller names to sources."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from omnigraph.commit.records.hints import name_hint
from omnigraph.errors import InputError
from omnigraph.pipeline.sources import (
    FileSource,
    Format,
    Found,
    FrameSource,
    Source,
    find_files,
)
from omnigraph.schema.catalog import Catalog

if TYPE_CHECKING:
    from omnigraph.pipeline.session import SparkWhenNeeded

LoadEngine = Literal["auto", "local", "spark"]
Engine = Literal["local", "spark"]
ENGINES: tuple[LoadEngine, ...] = get_args(LoadEngine)

ENGINE_VARIABLE = "OMNIGRAPH_ENGINE"
THRESHOLD_VARIABLE = "OMNIGRAPH_SPARK_THRESHOLD_BYTES"
THRESHOLD_BYTES = 64 << 20

COLUMNAR: tuple[Format, ...] = ("parquet", "orc", "arrow", "lance")
COLUMNAR_SHARE = 4
"""Tables in columns count for so much less: nothing of them is read in Python, so that threads of
one process load them as fast as workers do."""

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Who runs a load, and the reason in words."""

    engine: Engine
    reason: str
    is_bulk: bool
    """Whether it is a bulk job: workers of Spark run it, or threads of this process."""

    def __str__(self) -> str:
        return f"{self.engine} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows of one type that somebody holds in memory, or knows how to compute."""

    table_key: str
    rows: Any
    """An Arrow table, or a frame of Spark."""

    @property
    def is_of_spark(self) -> bool:
        """Whether only Spark can read it."""
        return not isinstance(self.rows, pa.Table)


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

    ``is_spark_named`` says that the caller gave a session, or said where Spark runs.
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
    held = sum(frame.rows.nbytes for frame in frames)
    size = f"{sum(each.size for each in found) + held:,} bytes"
    if _weight(found, held) > threshold_bytes(environment):
        return EngineChoice("spark", f"{size} are loaded faster by several processes", is_bulk=True)
    return EngineChoice("local", f"{size} are loaded before Spark has started", is_bulk=is_typed)


def _weight(files: Sequence[Found], held: int) -> int:
    """What an input counts for, in bytes of text."""
    columnar = held + sum(found.size for found in files if found.format in COLUMNAR)
    return columnar // COLUMNAR_SHARE + sum(
        found.size for found in files if found.format not in COLUMNAR
    )


def threshold_bytes(environment: Mapping[str, str]) -> int:
    """The size of an input beyond which Spark's workers are worth their start."""
    text = environment.get(THRESHOLD_VARIABLE, "")
    if not text:
        return THRESHOLD_BYTES
    if not (text.isascii() and text.isdigit()):
        raise InputError(
            f"{THRESHOLD_VARIABLE} is '{text}', not a number of bytes",
            hint=f"unset {THRESHOLD_VARIABLE}",
        )
    return int(text)


def file_sources(
    paths: Sequence[str | os.PathLike[str]],
    nodes: Mapping[str, Paths] | None,
    edges: Mapping[str, Paths] | None,
) -> list[FileSource]:
    """The files a caller names: graph records, and tables by type."""
    sources = [FileSource(os.fspath(path)) for path in paths]
    for kind, named in (("node", nodes or {}), ("edge", edges or {})):
        for name, given in named.items():
            several = [given] if isinstance(given, str | os.PathLike) else given
            sources.extend(FileSource(os.fspath(path), f"{kind}:{name}") for path in several)
    return sources


def named_frames(frames: Mapping[str, Any] | None, catalog: Catalog) -> list[Frame]:
    """Frames by type: of Spark as they are, all others as Arrow tables."""
    return [
        Frame(
            _table_key(name, catalog),
            frame if hasattr(frame, "mapInArrow") else _table(frame, name),
        )
        for name, frame in (frames or {}).items()
    ]


@contextmanager
def frame_sources(
    frames: Sequence[Frame], session: SparkWhenNeeded | None
) -> Iterator[list[Source]]:
    """Frames as sources: Arrow tables as files, if whoever loads them can read files of ours."""
    with TemporaryDirectory(prefix="omnigraph-frames-") as directory:
        sources: list[Source] = []
        for number, frame in enumerate(frames):
            key, rows = frame.table_key, frame.rows
            if frame.is_of_spark:
                sources.append(FrameSource(key, rows))
            elif session is None or session.is_local:
                path = Path(directory) / f"{number}.arrow"
                with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as out:
                    out.write_table(rows, max_chunksize=65_536)
                shown = f"<frame {key.partition(':')[2]}>"
                sources.append(FileSource(str(path), key, "arrow", shown))
            else:
                sources.append(FrameSource(key, session.get().createDataFrame(_signed(rows))))
        yield sources


def _table_key(name: str, catalog: Catalog) -> str:
    """The type a frame is for: a node type's name, an edge type's, or a table key."""
    if ":" in name:
        return name
    edge = catalog.edge_named(name)
    if name in catalog.nodes and edge is not None:
        raise InputError(
            f"'{name}' is a node type and an edge type",
            hint=f"say node:{name} or edge:{edge.name}",
        )
    if name in catalog.nodes:
        return f"node:{name}"
    if edge is not None:
        return edge.table_key
    known = [*catalog.nodes, *catalog.edges]
    raise InputError(f"unknown type '{name}'", hint=name_hint(name, known, "types"))


def _table(frame: Any, name: str) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if hasattr(frame, "to_arrow"):  # Polars
        return frame.to_arrow()
    if type(frame).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(frame, preserve_index=False)
    raise InputError(
        f"the frame for '{name}' is a {type(frame).__name__}",
        hint="give a Spark, pandas or Polars frame, or an Arrow table",
    )


def _signed(table: pa.Table) -> pa.Table:
    """Unsigned columns in types that Spark has."""
    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
    }
    for index, column in enumerate(table.schema):
        if column.type in wider:
            converted = table.column(index).cast(wider[column.type])
            table = table.set_column(index, column.name, converted)
    return table
