"""Finds the file that made a read fail: missing, truncated or undecodable files of Lance on local
disk.

Messages of Lance often name no file, or one that never existed. So after a failure the files of a
table are examined one by one, the cheapest check first. Lance keeps no checksums: a changed byte
inside a value decodes to another value, which only `upkeep.scrub` detects.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import lance
from lance import LanceDataset, LanceFragment
from lance.blob import BlobType
from lance.file import LanceFileReader

from omnigraph.errors import DamagedFile
from omnigraph.storage.failures import version_file, version_named

_END = b"LANC"
"""The last four bytes of every data file, index file and version file."""
_ADVICE = (
    "put it back from a copy of the graph; other tables, and commits from before it was written, "
    "can be read and exported as they are"
)
NEWEST_ADVICE = (
    "put it back from a copy of the graph; without one, move it away together with the record of "
    "its branch in __lease/branch, which takes back the last commit"
)
_BLOB = b"lance-encoding:blob"
_BESIDE = (1, 2)
"""Kinds of blobs stored outside of the data file: several in one file, and one in each."""
DECODED_BYTES_MAX = 256 << 20
"""The most bytes that are decoded to find a file that cannot be decoded."""
_VERSIONS_MAX = 1_000
_NAMED = re.compile(r"((?:/[\w.+=@-]+)+\.[a-z]+)")


def missing(file: Path | str) -> DamagedFile:
    """The error for a missing file."""
    return DamagedFile(str(file), _ADVICE, "it is missing")


def damaged_content(file: Path | str) -> DamagedFile:
    """The error for a file whose content does not have its recorded digest."""
    return DamagedFile(str(file), _ADVICE, "its content is not what was written")


def damaged_version(address: str, version: int | None) -> DamagedFile | None:
    """The error if the file of a version, by default of the newest, cannot be read; else None."""
    if version is None:
        newest = min(Path(address).glob("_versions/*.manifest"), default=None)
        return None if newest is None else _error(newest, NEWEST_ADVICE)
    return _error(version_file(address, version))


def damage_behind(handle: LanceDataset, message: str) -> DamagedFile | None:
    """The file that made reading or writing a version fail, by Lance's message; None if unknown."""
    root = Path(handle.uri.partition("/tree/")[0])
    named = _named_files(root, message)
    versions = _version_files(Path(handle.uri) / "_versions")
    files = chain(named, _files_of(handle, root), versions, root.glob("_refs/*/*"))
    # Check the ends of all files before decoding the first.
    known = list(dict.fromkeys(files))
    for file in known:
        problem = "it is missing" if not file.exists() else cut_off(file)
        if problem is not None:
            return DamagedFile(str(file), _ADVICE, problem)
    return (
        next(_damaged_blobs(handle, root), None)
        or next(_undecodable(known), None)
        or _damaged_deletions(handle, root)
    )


def damaged_files(root: Path) -> Iterator[DamagedFile]:
    """Every file below a root that a version needs and that is missing or cannot be read.

    Old versions and files shared by branches are examined as well. Files that no version lists are
    ignored: they may belong to a write in progress.
    """
    told: set[Path] = set()
    folders = sorted(root.rglob("_versions"))
    files = chain.from_iterable(map(_needed, folders))
    refs, leases = sorted(root.rglob("_refs/*/*.json")), sorted(root.glob("__lease/**/*.json"))
    for file in chain(files, refs, leases):
        if file in told:
            continue
        told.add(file)
        found = _error(file)
        if found is not None:
            yield found
    for versions in folders:
        dataset = _dataset_of(versions)
        for handle in filter(None, map(_version_at, _version_files(versions))):
            yield from _damaged_blobs(handle, dataset, told)


def _dataset_of(versions: Path) -> Path:
    """The root folder of the dataset that a folder of versions belongs to, also for a ref's."""
    return Path(str(versions.parent).partition("/tree/")[0])


def _needed(versions: Path) -> Iterator[Path]:
    """The version files of a dataset or ref, and the files that readable versions list."""
    for file in _version_files(versions):
        yield file
        if (handle := _version_at(file)) is not None:
            yield from _files_of(handle, _dataset_of(versions))


# --- one file -------------------------------------------------------------------------------------


def problem_of(file: Path) -> str | None:
    """The problem of a file that is missing, truncated or cannot be decoded; None if it is fine."""
    return "it is missing" if not file.exists() else cut_off(file) or _undecoded(file)


def _error(file: Path, advice: str = _ADVICE) -> DamagedFile | None:
    problem = problem_of(file)
    return None if problem is None else DamagedFile(str(file), advice, problem)


def cut_off(file: Path) -> str | None:
    """The problem of a truncated file, from its last bytes; None if it is complete."""
    if file.suffix not in (".lance", ".manifest", ".idx"):
        return None
    try:
        with file.open("rb") as content:
            size = content.seek(0, os.SEEK_END)
            content.seek(max(0, size - len(_END)))
            return None if content.read() == _END else "its end is missing"
    except OSError:
        return None


def _undecoded(file: Path) -> str | None:
    """The error of decoding the whole file; None if that succeeds."""
    check = _CHECKS.get(file.suffix)
    if check is None or _works(lambda: check(file)):
        return None
    return "its content cannot be decoded"


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except BaseException as error:
        # Lance panics on some damage; in Python a panic does not derive from `Exception`.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        return False
    return True


def _decode(file: Path) -> None:
    """Decode a file up to its first blob column, at which the file reader stops.

    `_damaged_blobs` reads the rest through the table.
    """
    fields = LanceFileReader(str(file)).metadata().schema
    plain = takewhile(lambda field: _BLOB not in (field.metadata or {}), fields)
    names = [field.name for field in plain]
    for _ in LanceFileReader(str(file), columns=names).read_all().to_batches():
        pass


def _opened_version(file: Path) -> LanceDataset:
    return lance.dataset(str(file.parent.parent), version=version_named(file.stem))


def _version_at(file: Path) -> LanceDataset | None:
    """The dataset that a version file describes; None if it cannot be read."""
    found: list[LanceDataset] = []
    _works(lambda: found.append(_opened_version(file)))
    return found[0] if found else None


def _decode_arrow(file: Path) -> None:
    import pyarrow as pa

    with pa.OSFile(str(file)) as content:
        pa.ipc.open_file(content).read_all()


_CHECKS: dict[str, Callable[[Path], object]] = {
    ".lance": _decode,
    ".manifest": _opened_version,
    ".arrow": _decode_arrow,
    ".json": lambda file: json.loads(file.read_bytes()),
}


def _undecodable(files: Iterable[Path]) -> Iterator[DamagedFile]:
    left = DECODED_BYTES_MAX
    for file in files:
        left -= file.stat().st_size
        if left < 0:
            return
        problem = _undecoded(file)
        if problem is not None:
            yield DamagedFile(str(file), _ADVICE, problem)


# --- the files of a dataset -----------------------------------------------------------------------


def _named_files(root: Path, message: str) -> Iterator[Path]:
    """The files of a dataset that a message names."""
    for part in message.split(f"/{root.name}")[1:]:
        found = _NAMED.match(part)
        if found is None:
            continue
        file = root / found[1].removeprefix("/")
        metadata = file.with_name("metadata.lance")
        # If the metadata is missing, Lance assumes an older index format, and reports other files.
        if file.name == "tokens.lance" and not metadata.exists():
            yield metadata
        elif file.name != "tokens.lance":
            yield file


def _files_of(handle: LanceDataset, root: Path) -> Iterator[Path]:
    """Data, deletion and index files of a version.

    Files that a branch shares with the refs it was forked from lie in their folders.
    """
    folders = [root, *root.glob("tree/*")]
    for fragment in handle.get_fragments():
        names = [f"data/{file.path}" for file in fragment.data_files()]
        deleted = fragment.metadata.deletion_file
        if deleted is not None:
            names.append(deleted.path(fragment.fragment_id))
        for name in names:
            yield _in_one_of(folders, name)
    for index in _indexes_of(handle):
        for segment in index.segments:
            folder = _in_one_of(folders, f"_indices/{segment.uuid}")
            there = sorted(file for file in folder.glob("*") if file.is_file())
            yield from there
            size = sum(file.stat().st_size for file in there)
            if segment.size_bytes is not None and size < segment.size_bytes:
                yield from _lost_of_index(folder, index.index_type)


def _in_one_of(folders: list[Path], name: str) -> Path:
    found = (folder / name for folder in folders if (folder / name).exists())
    return next(found, folders[0] / name)


def _indexes_of(handle: LanceDataset) -> list[Any]:
    found: list[Any] = []
    _works(lambda: found.extend(handle.describe_indices()))
    return found


def _lost_of_index(folder: Path, kind: str) -> Iterator[Path]:
    """The missing files of an index that has fewer bytes than when it was built."""
    names = ["index.idx", "auxiliary.idx"]
    if kind == "BTree":
        names = ["page_data.lance", "page_lookup.lance"]
    elif kind == "Inverted":
        parts = {file.name.rpartition("_")[0] for file in folder.glob("part_*")} or {"part_0"}
        kinds = ("docs", "invert", "tokens")
        names = ["metadata.lance", *(f"{part}_{end}.lance" for part in parts for end in kinds)]
    yield from (folder / name for name in sorted(names) if not (folder / name).exists())


def _version_files(versions: Path) -> list[Path]:
    return sorted(versions.glob("*.manifest"))[:_VERSIONS_MAX]


def _damaged_blobs(
    handle: LanceDataset, root: Path, seen: set[Path] | None = None
) -> Iterator[DamagedFile]:
    """Blob files that are missing or too short for their values, and data files with broken blobs.

    Files in ``seen`` are skipped; examined files are added to it.
    """
    seen = set() if seen is None else seen
    folders = [root, *root.glob("tree/*")]
    columns = {
        field.id(): field.name()
        for field in handle.lance_schema.fields()
        if isinstance(handle.schema.field(field.name()).type, BlobType)
    }
    for fragment in handle.get_fragments() if columns else ():
        for data in fragment.data_files():
            names = [columns[field] for field in data.fields if field in columns]
            file = _in_one_of(folders, f"data/{data.path}")
            if not names or (beside := file.with_suffix("")) in seen or not file.exists():
                continue
            seen.add(beside)
            if not _works(partial(_read_all, fragment)):
                yield DamagedFile(str(file), _ADVICE, "its content cannot be decoded")
                continue
            for blob_id, length in sorted(_blob_lengths(fragment, names).items()):
                # Lance names the file by its number in binary, the lowest bit first.
                blobs = beside / f"{f'{blob_id:032b}'[::-1]}.blob"
                if not blobs.exists():
                    yield missing(blobs)
                elif (there := blobs.stat().st_size) < length:
                    problem = f"only {there} of {length} bytes are there"
                    yield DamagedFile(str(blobs), _ADVICE, problem)


def _read_all(fragment: LanceFragment) -> None:
    for _ in fragment.to_batches():
        pass


def _blob_lengths(fragment: LanceFragment, columns: list[str]) -> dict[int, int]:
    """By number of a blob file: the length it needs for its values."""
    lengths: dict[int, int] = {}
    table = fragment.to_table(columns=columns)
    for each in chain.from_iterable(table[name].to_pylist() for name in columns):
        if each is not None and each["kind"] in _BESIDE:
            end = each["position"] + each["size"]
            lengths[each["blob_id"]] = max(lengths.get(each["blob_id"], 0), end)
    return lengths


def _look_at(fragment: LanceFragment) -> object:
    """Read only the deletions of a fragment."""
    return fragment.to_table(columns=[], with_row_address=True)


def _damaged_deletions(handle: LanceDataset, root: Path) -> DamagedFile | None:
    """A damaged deletion file of the bitmap kind, which only Lance can read; None without one."""
    folders = [root, *root.glob("tree/*")]
    for fragment in handle.get_fragments():
        deleted = fragment.metadata.deletion_file
        if deleted is not None and not _works(partial(_look_at, fragment)):
            file = _in_one_of(folders, deleted.path(fragment.fragment_id))
            return DamagedFile(str(file), _ADVICE, "its content cannot be decoded")
    return None
