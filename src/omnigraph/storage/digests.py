"""Digests of the files of a graph: xxh3 of 128 bits and the size, recorded when a file is written.

Lance writes its files itself and does not pass on the bytes, so each new file is read once more
right after its commit, when it still lies in the page cache. On an object store that would mean
fetching everything again: there files up to `FETCHED_BYTES_MAX` are fetched while the commit is
under way, and of larger ones the store's own checksum, the e-tag, is recorded.

Digests of a table's files are published with the commit that brings them, in the `table_version`
row of the table. The files of `__manifest` itself, and of datasets beside it, are listed after the
fact in objects below `__digests`: what publishes a commit cannot contain its own digest. They are
written on local disk only, best effort: a file that is not listed is unverified, never damaged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import xxhash

from omnigraph.effects.local_disk import replace_unflushed
from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import DamagedFile
from omnigraph.storage.layout import DIGESTS, MANIFEST, PAST_SCHEMAS, RECOVERY_AUDIT, REVIEWS

FETCHED_BYTES_MAX = 8 << 20
"""On an object store: the largest file that is fetched again for its digest."""
ETAG = "etag:"
"""Leads a digest that is the store's own."""

_CHUNK_BYTES = 1 << 20
_THREADS_FROM_BYTES = 32 << 20
"""Below that, starting threads costs more than they save."""
_LISTING_BYTES_MAX = 96 << 10
"""From this size on, entries of removed files go; what a manifest needs is a third of it."""

LISTED = (MANIFEST, RECOVERY_AUDIT, REVIEWS)
"""Datasets whose files are listed below `__digests`."""


class FileDigest(NamedTuple):
    """What is known of the content of one file."""

    size: int
    digest: str


Digests = Mapping[str, FileDigest]
"""By name of a file, relative to its table or to the root."""


def digest_of(content: bytes) -> FileDigest:
    """The digest of some bytes."""
    return FileDigest(len(content), xxhash.xxh3_128_hexdigest(content))


def digesting(chunks: Iterable[bytes], ended: Callable[[FileDigest], object]) -> Iterator[bytes]:
    """A file that is read for another purpose; at its end its digest is told."""
    state, size = xxhash.xxh3_128(), 0
    for chunk in chunks:
        state.update(chunk)
        size += len(chunk)
        yield chunk
    ended(FileDigest(size, state.hexdigest()))


def digest_chunks(chunks: Iterable[bytes]) -> FileDigest:
    """The digest of a file that comes in parts."""
    found: list[FileDigest] = []
    for _ in digesting(chunks, found.append):
        pass
    return found[0]


def digest_file(path: Path) -> FileDigest:
    """The digest of a file on local disk; raises `OSError`."""
    buffer = bytearray(_CHUNK_BYTES)
    view = memoryview(buffer)
    state, size = xxhash.xxh3_128(), 0
    with path.open("rb", buffering=0) as file:
        while read := file.readinto(buffer):
            state.update(view[:read])
            size += read
    return FileDigest(size, state.hexdigest())


def digest_files(files: Iterable[Path]) -> dict[Path, FileDigest]:
    """The digests of files that were just written; one that is gone already is left out."""
    wanted = list(dict.fromkeys(files))

    def attempt(path: Path) -> FileDigest | None:
        try:
            return digest_file(path)
        except FileNotFoundError:
            return None

    if len(wanted) > 1 and sum(_size(path) for path in wanted) >= _THREADS_FROM_BYTES:
        with ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as pool:
            found = list(pool.map(attempt, wanted))
    else:
        found = [attempt(path) for path in wanted]
    return {path: each for path, each in zip(wanted, found, strict=True) if each is not None}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def is_recorded(path: Path, recorded: FileDigest) -> bool:
    """Whether a file on local disk has the content it was recorded with; absent ones pass."""
    try:
        return digest_file(path) == recorded
    except FileNotFoundError:
        return True


def digest_object(store: ObjectStore, name: str, size: int | None = None) -> FileDigest | None:
    """The digest of an object, or the store's own of a large one; None if it is not there.

    One request, if its size is known.
    """
    if size is None or size > FETCHED_BYTES_MAX:
        found = store.attributes(name)
        if found is None:
            return None
        if found.size > FETCHED_BYTES_MAX and found.tag is not None:
            return FileDigest(found.size, f"{ETAG}{found.tag}")
    return digest_chunks(store.chunks(name))


def encode_digests(files: Digests) -> str:
    """The form in which a row of the manifest holds digests."""
    return orjson.dumps({"files": {name: [*each] for name, each in files.items()}}).decode()


def decode_digests(text: str | None) -> dict[str, FileDigest]:
    """What a row of the manifest says about files; raises `ValueError` if it is malformed."""
    record = {} if text is None else orjson.loads(text)
    if not isinstance(record, dict):
        raise ValueError("digests are not an object")
    return _decoded(record.get("files", {}))


def _decoded(files: Any) -> dict[str, FileDigest]:
    if not isinstance(files, dict):
        raise ValueError("files are not an object")
    found = {}
    for name, value in files.items():
        match value:
            case [int(size), str(digest)]:
                found[name] = FileDigest(size, digest)
            case _:
                raise ValueError(f"the digest of {name!r} is malformed")
    return found


# --- listings -------------------------------------------------------------------------------------


def listing_name(subject: str) -> str:
    """The object that lists the files of a dataset, one of its refs, or another subject."""
    return f"{DIGESTS}/{subject}.json"


def encode_listing(files: Digests) -> bytes:
    """A line of a listing, with a digest of itself."""
    content = {name: [*files[name]] for name in sorted(files)}
    line = orjson.dumps({"files": content, "self": digest_of(orjson.dumps(content)).digest})
    return b"\n" + line


def decode_listing(name: str, content: bytes) -> dict[str, FileDigest]:
    """The entries of a listing; raises `DamagedFile` if a line is not what was written."""
    found: dict[str, FileDigest] = {}
    for line in content.split(b"\n"):
        if not line:
            continue
        try:
            found.update(_decoded_line(line))
        except (KeyError, TypeError, ValueError) as error:
            advice = "delete it and run `omnigraph scrub --adopt`"
            raise DamagedFile(name, advice, f"{error}") from error
    if not found:
        raise DamagedFile(name, "run `omnigraph scrub --adopt`", "it is empty")
    return found


def _decoded_line(line: bytes) -> dict[str, FileDigest]:
    record = orjson.loads(line)
    files = _decoded(record["files"])
    if record["self"] != digest_of(orjson.dumps(record["files"])).digest:
        raise ValueError("it does not have the digest it names")
    return files


def update_listing(root: Path, subject: str, new: Digests) -> None:
    """Add files to a listing on local disk, best effort and unflushed.

    One line is appended, so that the cost does not grow with the listing. The write it follows is
    published and acknowledged whatever happens here.
    """
    if not new:
        return
    path = root / listing_name(subject)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            file.write(encode_listing(new))
            size = file.tell()
        if size > _LISTING_BYTES_MAX:
            known = read_listing(root, subject)
            # An accepted schema is listed by the name it gets when it is replaced.
            kept = {
                name: each
                for name, each in known.items()
                if name.startswith(PAST_SCHEMAS) or (root / name).exists()
            }
            replace_unflushed(path, encode_listing(kept))


def read_listing(root: Path, subject: str) -> dict[str, FileDigest]:
    """A listing on local disk, without lines that cannot be believed; empty if there is none."""
    found: dict[str, FileDigest] = {}
    with suppress(OSError):
        content = (root / listing_name(subject)).read_bytes()
        for line in content.split(b"\n"):
            with suppress(KeyError, TypeError, ValueError):
                found.update(_decoded_line(line) if line else {})
    return found


def forget_listing(root: Path, subject: str) -> None:
    """Remove the listing of something that is gone."""
    with suppress(OSError):
        (root / listing_name(subject)).unlink()


def read_listings(
    store: ObjectStore, damaged: Callable[[DamagedFile], object]
) -> dict[str, FileDigest]:
    """The entries of all listings by name of the file, relative to the root.

    ``damaged`` is called with each listing that cannot be believed.
    """
    found: dict[str, FileDigest] = {}
    for name in store.list(DIGESTS):
        content = store.read_if_exists(name)
        if content is None:
            continue
        try:
            found.update(decode_listing(name, content))
        except DamagedFile as error:
            damaged(error)
    return found
