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
ENGINES: tuple[LoadEngine, ...] = get_args(LoadEngine)

ENGINE_VARIABLE = "OMNIGRAPH_ENGINE"
THRESHOLD_VARIABLE = "OMNIGRAPH_SPARK_THRESHOLD_BYTES"
THRESHOLD_BYTES = 64 << 20

COLUMNAR: tuple[Format, ...] = ("parquet", "orc", "arrow", "lance")
COLUMNAR_SHARE = 4
"""On one machine, tables in columns count for so much less: threads load them as fast as workers
do, because nothing of it is done in Python."""

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Who runs a load, and the reason in words."""

    engine: Literal["local", "spark"]
    reason: str
    is_asked: bool = False
    """Whether somebody named it."""

    def __str__(self) -> str:
        return f"{self.engine} ({self.reason})"


def choose_engine(
    asked: LoadEngine | None,
    files: Sequence[FileSource],
    *,
    has_frames: bool,
    has_stream: bool,
    environment: Mapping[str, str],
) -> EngineChoice:
    """The engine for a load; raises `InputError` if the one asked for cannot run it."""
    wanted = asked or environment.get(ENGINE_VARIABLE) or "auto"
    if wanted not in ENGINES:
        raise InputError(
            f"there is no engine '{wanted}'", hint=f"the engines are {', '.join(ENGINES)}"
        )
    is_typed = has_frames or any(source.table_key is not None for source in files)
    if has_stream:
        if wanted == "spark" or is_typed:
            raise InputError(
                "Spark cannot read records from a stream: workers read files by themselves",
                hint="write the records to a file, or use the local engine",
            )
        return EngineChoice("local", "the records come from a stream")
    if wanted == "local" and is_typed:
        raise InputError(
            "the local engine reads graph records only",
            hint="use the engine spark for tables and frames",
        )
    if wanted != "auto":
        engine: Literal["local", "spark"] = "spark" if wanted == "spark" else "local"
        return EngineChoice(engine, "as asked for", is_asked=True)
    if is_typed:
        return EngineChoice("spark", "the input has tables; workers start if they are large")
    size = sum(found.size for source in files for found in find_files(source))
    threshold = threshold_bytes(environment)
    if size > threshold:
        return EngineChoice("spark", f"the input has {size} bytes, more than {threshold}")
    return EngineChoice("local", f"the input has {size} bytes")


def is_small(
    files: Sequence[Found], environment: Mapping[str, str], *, prefers_threads: bool
) -> bool:
    """Whether this process loads files in less time than workers need to start.

    ``prefers_threads`` says that workers would run on this machine, and nobody asked for them:
    then they have to be the faster ones all in all.
    """
    share = COLUMNAR_SHARE if prefers_threads else 1
    weight = sum(found.size // share if found.format in COLUMNAR else found.size for found in files)
    return weight <= threshold_bytes(environment)


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


@contextmanager
def frame_sources(
    frames: Mapping[str, Any] | None, catalog: Catalog, session: SparkWhenNeeded
) -> Iterator[list[Source]]:
    """Frames by type: of Spark as they are, all others as Arrow tables that workers can read."""
    with TemporaryDirectory(prefix="omnigraph-frames-") as directory:
        sources: list[Source] = []
        for number, (name, frame) in enumerate((frames or {}).items()):
            key = _table_key(name, catalog)
            if hasattr(frame, "mapInArrow"):
                sources.append(FrameSource(key, frame))
                continue
            table = _table(frame, name)
            if session.is_local:
                path = Path(directory) / f"{number}.arrow"
                with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
                    out.write_table(table, max_chunksize=65_536)
                shown = f"<frame {key.partition(':')[2]}>"
                sources.append(FileSource(str(path), key, "arrow", shown))
            else:
                sources.append(FrameSource(key, session.get().createDataFrame(_signed(table))))
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
