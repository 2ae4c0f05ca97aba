"""Which engine runs a load, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from omnigraph.errors import InputError
from omnigraph.loading.inputs import Frame
from omnigraph.loading.sources import FileSource, Format, FoundFile, find_files

LoadEngine = Literal["auto", "local", "spark"]
Engine = Literal["local", "spark"]
ENGINES: tuple[LoadEngine, ...] = get_args(LoadEngine)

ENGINE_VARIABLE = "OMNIGRAPH_ENGINE"
THRESHOLD_VARIABLE = "OMNIGRAPH_SPARK_THRESHOLD_BYTES"
THRESHOLD_BYTES = 64 << 20

BY_ARROW: tuple[Format, ...] = ("parquet", "orc", "arrow", "lance", "csv")
BY_ARROW_SHARE = 4
"""Tables that Arrow reads count for so much less: nothing of them is read under Python's lock, so
that threads of one process load them as fast as workers do."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Who runs a load, and the reason in words."""

    engine: Engine
    reason: str
    is_bulk: bool
    """Whether it is a bulk job: workers of Spark run it, or threads of this process."""

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


def _weight(files: Sequence[FoundFile], held: int) -> int:
    """What an input counts for, in bytes that Python reads."""
    by_arrow = [each for each in files if each.format in BY_ARROW and not each.is_compressed]
    light = held + sum(each.size for each in by_arrow)
    return light // BY_ARROW_SHARE + sum(each.size for each in files if each not in by_arrow)


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
