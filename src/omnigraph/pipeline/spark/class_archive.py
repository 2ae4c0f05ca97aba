"""The archive of Spark's classes, which shortens a start: what it fits, where it lies, its making.

Recording the classes slows the JVM that does it, and nobody is to wait for that. So a start that
finds no archive runs without, and when its process ends, a process of little priority records one
for the starts to come. It also clears away what nobody has used for long.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from omnigraph.effects.os_lock import lock_descriptor
from omnigraph.errors import InputError
from omnigraph.pipeline.spark.java import Java

ARCHIVE_VARIABLE = "OMNIGRAPH_SPARK_ARCHIVE"
"""`off` keeps Spark from using an archive of its classes, and from making one."""

_SWITCH = {
    **dict.fromkeys(("", "on", "1", "yes", "true"), True),
    **dict.fromkeys(("off", "0", "no", "false"), False),
}

ARCHIVES_MAX = 4
UNUSED_DAYS_MAX = 30
FREE_BYTES_MIN = 1 << 30
"""Room there must be on the disk: an archive takes two hundred megabytes, and twice that while it
is made."""

RETRY_HOURS_MIN = 6
"""Between two attempts of which the first failed."""

_SUFFIX = ".archive"
_FITS_SUFFIX = ".json"
_LOCK = "making.lock"
# From here on pointers are not compressed, and an archive with the other kind is refused.
_WIDE_HEAP_BYTES = 32 << 30


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one Java, one Spark and one set of options, whether it is there or not."""

    path: Path
    java: Java
    spark: Path
    """A library of the Spark it fits."""
    memory: str
    options: tuple[str, ...]

    @property
    def is_there(self) -> bool:
        """Whether a start can use it."""
        return self.path.exists()

    @property
    def directory(self) -> Path:
        """Where archives lie."""
        return self.path.parent

    def use(self) -> list[str]:
        """The flags of a JVM that uses it, noting that it is used; none if it is not there."""
        if not self.is_there:
            return []
        with suppress(OSError):
            os.utime(self.path)
        flag = "-XX:AOTCache" if _is_cache(self.java) else "-XX:SharedArchiveFile"
        return [f"{flag}={self.path}"]

    def keep(self, part: Path) -> None:
        """Put a file that was recorded in its place, at once and whole."""
        fits = {"java": str(self.java.executable), "spark": str(self.spark)}
        self.path.with_suffix(_FITS_SUFFIX).write_text(json.dumps(fits))
        part.replace(self.path)


def archive_for(
    java: Java,
    class_path: Sequence[str],
    *,
    memory: str,
    options: Sequence[str],
    environment: Mapping[str, str],
) -> ClassArchive | None:
    """The archive for a start like this one; None if there is to be none."""
    word = environment.get(ARCHIVE_VARIABLE, "").strip()
    if word.lower() not in _SWITCH:
        raise InputError(f"{ARCHIVE_VARIABLE} is '{word}'", hint="it can be on or off")
    if not _SWITCH[word.lower()]:
        return None
    if any(map(os.path.isdir, class_path)):
        # Java does not record classes that may come from a folder, such as one of settings.
        return None
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(base) / "omnigraph" / "spark"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        libraries = [_described(Path(name)) for name in class_path]
        runtime = _described(java.executable.resolve())
    except OSError:
        return None
    # Java refuses an archive if any of this differs, and would then start as if there were none.
    fitting = [java.build, runtime, _heap_kind(memory), *options, *libraries]
    key = hashlib.sha256("\n".join(fitting).encode()).hexdigest()[:16]
    path = directory / f"{key}{_SUFFIX}"
    return ClassArchive(path, java, Path(class_path[-1]), memory, tuple(options))


def _described(path: Path) -> str:
    """A file and whether it is still the same."""
    found = path.stat()
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def _heap_kind(memory: str) -> str:
    units = {"k": 10, "m": 20, "g": 30, "t": 40}
    number, unit = memory[:-1], memory[-1:].lower()
    if unit not in units or not number.isdigit():
        return memory
    return "wide" if int(number) << units[unit] >= _WIDE_HEAP_BYTES else "narrow"


def _is_cache(java: Java) -> bool:
    # From 25 on archives hold more, and need no archive of the runtime's own classes below them.
    return java.major >= 25


# --- making ---------------------------------------------------------------------------------------


def make_in_background(archive: ClassArchive) -> None:
    """Have an archive made by a process that outlives this one; never fails, waits or prints."""
    if archive.is_there or not sys.executable or not os.access(archive.directory, os.W_OK):
        return
    module = "omnigraph.pipeline.spark.class_recorder"
    wanted = json.dumps([archive.memory, *archive.options])
    with suppress(OSError):
        maker = subprocess.Popen(
            # Safe: modules of the folder we happen to be in are not ours.
            [sys.executable, "-P", "-m", module, wanted],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        # Nobody waits for it, and nobody is to be warned of that.
        maker.returncode = 0


def recording(java: Java, part: Path) -> list[str]:
    """The flags of a JVM that writes an archive to a file when it ends."""
    flag = "-XX:AOTCacheOutput" if _is_cache(java) else "-XX:ArchiveClassesAtExit"
    return [f"{flag}={part}"]


@contextmanager
def making(archive: ClassArchive) -> Iterator[Path | None]:
    """A file to record an archive to, removed if it is not kept; None if it is not to be made.

    There is one maker at a time, whose lock goes with it however it ends. What could not be made is
    not tried again for a while, because every process that ends would.
    """
    part = archive.path.with_suffix(f".{os.getpid()}")
    with (archive.directory / _LOCK).open("a+") as lock:
        if not lock_descriptor(lock.fileno(), 0) or archive.is_there:
            yield None
            return
        prune(archive.directory, archives_max=ARCHIVES_MAX - 1)
        if _failed_lately(archive, lock) or shutil.disk_usage(part.parent).free < FREE_BYTES_MIN:
            yield None
            return
        try:
            yield part
        except Exception:
            lock.truncate(0)
            lock.write(archive.path.name)
            raise
        finally:
            # Java puts files of its own beside it.
            for left in archive.directory.glob(f"{part.name}*"):
                left.unlink(missing_ok=True)


def _failed_lately(archive: ClassArchive, lock: TextIO) -> bool:
    lock.seek(0)
    age_s = time.time() - os.fstat(lock.fileno()).st_mtime
    return lock.read() == archive.path.name and age_s < RETRY_HOURS_MIN * 3600


def prune(directory: Path, *, archives_max: int = ARCHIVES_MAX) -> None:
    """Remove archives that are old, too many, or of programs that are gone, and what makers left.

    Call it as the only maker. A JVM that uses an archive meanwhile keeps what it has.
    """
    archives = sorted(directory.glob(f"*{_SUFFIX}"), key=_used, reverse=True)
    oldest = time.time() - UNUSED_DAYS_MAX * 24 * 3600
    kept = [path for path in archives if _used(path) >= oldest and _is_usable(path)][:archives_max]
    names = {_LOCK} | {name for path in kept for name in (path.name, f"{path.stem}{_FITS_SUFFIX}")}
    for path in directory.iterdir():
        if path.name not in names:
            with suppress(OSError):
                path.unlink()


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_usable(archive: Path) -> bool:
    """Whether the Java and the Spark it was made for are still there."""
    try:
        fits = json.loads(archive.with_suffix(_FITS_SUFFIX).read_text())
        return all(Path(fits[name]).exists() for name in ("java", "spark"))
    except (OSError, ValueError, KeyError, TypeError):
        # Nothing says what it was made for, so no start of this version looks for it.
        return False
