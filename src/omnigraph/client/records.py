"""Records to load: from files, or as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from glob import glob, has_magic
from pathlib import Path

import pyarrow as pa

from omnigraph.errors import InputError, NotFound
from omnigraph.model.exports import EXPORT_FILE, complete_export
from omnigraph.model.ids import TableKey
from omnigraph.model.receipts import ExportReceipt

_BLOCK_BYTES = 1 << 20
_RECORDS = (".jsonl", ".ndjson", ".json")
_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}

Data = bytes | str | Iterable[bytes]


def read_records(
    paths: Iterable[str | os.PathLike[str]],
    data: Data | None,
    progress: Callable[[int], None] | None = None,
) -> bytes:
    """All records as one text of lines; files may be compressed, and directories or patterns.

    Raises `NotFound` for what names no file, and `InputError` for a file that is named twice. A
    server takes one request, so all of it is in memory.
    """
    parts = [_content(file) for file in _all_files(paths)]
    if isinstance(data, str):
        parts.append(data.encode())
    elif isinstance(data, bytes):
        parts.append(data)
    elif data is not None:
        parts.append(b"".join(data))
    if progress is not None:
        for part in parts:
            progress(len(part))
    return b"\n".join(part.removesuffix(b"\n") for part in parts)


# What follows finds the files that loads on the storage find; there, it is done for tables too.


def _all_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        export_at(path)
        for file in _files(Path(path).expanduser()):
            if file.resolve() in seen:
                raise InputError(
                    f"{file} is given twice",
                    hint="name each file once; directories and patterns may hold others you name",
                    details={"file": str(file)},
                )
            seen.add(file.resolve())
            yield file


def export_at(given: str | os.PathLike[str]) -> ExportReceipt | None:
    """The export that a directory is; raises `InputError` if it is not complete, or of tables."""
    path = Path(given).expanduser()
    description = path / EXPORT_FILE
    if not description.is_file():
        return None

    def size_of(file: str) -> int | None:
        return (path / file).stat().st_size if (path / file).is_file() else None

    found = complete_export(description.read_bytes(), str(path), size_of)
    if found.format != "jsonl":
        raise InputError(
            f"{path} is an export as {found.format}, and a server loads graph records",
            hint="export with `--format jsonl`, or load it on the storage with `--store`",
            details={"file": str(path)},
        )
    return found


def types_of_exports(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The keys of all types that exports among ``paths`` have: an overwrite replaces them."""
    exports = filter(None, map(export_at, paths))
    return [TableKey.of(t.entity_kind, t.type_name) for found in exports for t in found.types]


def _files(path: Path) -> list[Path]:
    """The files that a path, a directory or a pattern names, once each."""
    names = [path]
    # A file may be called like a pattern.
    if has_magic(str(path)) and not os.path.lexists(path):
        names = [Path(name) for name in sorted(glob(str(path), recursive=True))]  # noqa: PTH207
        if not names:
            raise NotFound(
                f"no file matches {path}",
                hint="quote the pattern if your shell should not expand it",
                details={"file": str(path)},
            )
        base = next(parent for parent in path.parents if not has_magic(str(parent)))
        if not _is_note(path.relative_to(base)):
            names = [name for name in names if not _is_note(name.relative_to(base))]
    found = [file for name in names for file in (_below(name) if name.is_dir() else [name])]
    if not found:
        raise NotFound(
            f"there is nothing to load in {path}",
            hint=f"names end in {', '.join(_RECORDS)}",
            details={"file": str(path)},
        )
    shortest: dict[Path, Path] = {}
    for file in sorted(found, key=lambda file: (len(file.parts), file.is_symlink())):
        shortest.setdefault(file.resolve(), file)
    return sorted(shortest.values())


def _below(directory: Path) -> Iterator[Path]:
    seen: set[str] = set()
    for current, folders, names in os.walk(directory, followlinks=True):
        if os.path.realpath(current) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(current))
        for file in (Path(current, name) for name in names):
            if _has_records(file.name) and not _is_note(file.relative_to(directory)):
                yield file


def _is_note(below: Path) -> bool:
    """Names that start so are bookkeeping of the writer of the directory, as in any data lake."""
    return any(part.startswith(("_", ".")) for part in below.parts)


def _has_records(name: str) -> bool:
    name = name.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return name.endswith(_RECORDS)


def _content(path: Path) -> bytes:
    if not path.exists():
        raise NotFound(f"there is no file `{path}`", details={"file": str(path)})
    # The name says how it is compressed, as with loads on the storage.
    compression = _COMPRESSED.get(path.suffix.lower())
    with pa.input_stream(str(path), compression=compression, buffer_size=_BLOCK_BYTES) as stream:
        content: bytes = stream.read()
    return content
