"""Digests of the files of a graph: xxh3 of 128 bits and the size, recorded when a file is written.

Lance writes its files itself and does not expose the bytes, so each new file is read again right
after its commit, while it is in the page cache. On an object store that would mean fetching
everything again: there, files up to `FETCHED_BYTES_MAX` are fetched while the commit runs, and for
larger ones the store's own checksum, the e-tag, is recorded.

Digests of a table's files are published with the commit that adds them, in the `table_version` row
of the table. A version of `__manifest` cannot contain its own digest, so its files, and those of
the datasets in `LISTED`, are listed afterwards in objects below `__digests`. These are written on
local disk only, best effort: a file that is not listed is unverified, not damaged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import xxhash
from lance import LanceDataset, Transaction

from omnigraph.effects.local_disk import replace_unflushed
from omnigraph.effects.objects import ObjectStore, open_store
from omnigraph.effects.requests import concurrently
from omnigraph.effects.uri import Root
from omnigraph.errors import DamagedFile, OmnigraphError, StorageError
from omnigraph.model.records import dataclass
from omnigraph.storage.damage import damaged_content
from omnigraph.storage.failures import LIBRARY_ERRORS
from omnigraph.storage.layout import DIGESTS, MAIN, MANIFEST, PAST_SCHEMAS, RECOVERY_AUDIT, REVIEWS
from omnigraph.storage.transactions import (
    HINT,
    DatasetRef,
    fork_files,
    new_files,
    new_names,
    read_transaction,
    version_file_of,
)

FETCHED_BYTES_MAX = 8 << 20
"""On an object store: the largest file that is fetched again for its digest."""
ETAG = "etag:"
"""Prefix of a digest that is the store's e-tag."""

_CHUNK_BYTES = 1 << 20
_SMALL_BYTES = 1 << 14
"""The buffer for small files, as most of a commit are: they are read at once."""
_THREADS_FROM_BYTES = 32 << 20
"""For fewer bytes, starting threads costs more than it saves."""
_LISTING_BYTES_MAX = 96 << 10
"""Larger listings drop entries of removed files; a manifest needs about a third of this."""

LISTED = (MANIFEST, RECOVERY_AUDIT, REVIEWS)
"""Datasets whose files are listed below `__digests`."""


class FileDigest(NamedTuple):
    """The recorded content of one file: digest and size."""

    size: int
    digest: str


Digests = Mapping[str, FileDigest]
"""Digests by name of the file, relative to its table or to the root."""


def digest_of(content: bytes) -> FileDigest:
    """The digest of some bytes."""
    return FileDigest(len(content), xxhash.xxh3_128_hexdigest(content))


def digesting(chunks: Iterable[bytes], ended: Callable[[FileDigest], object]) -> Iterator[bytes]:
    """Pass chunks of a file through; ``ended`` is called with the digest at the end."""
    state, size = xxhash.xxh3_128(), 0
    for chunk in chunks:
        state.update(chunk)
        size += len(chunk)
        yield chunk
    ended(FileDigest(size, state.hexdigest()))


def digest_chunks(chunks: Iterable[bytes]) -> FileDigest:
    """The digest of a file given in parts."""
    found: list[FileDigest] = []
    for _ in digesting(chunks, found.append):
        pass
    return found[0]


def digest_file(path: Path) -> FileDigest:
    """The digest of a file on local disk; raises `OSError`."""
    state, size = xxhash.xxh3_128(), 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while size < _SMALL_BYTES and (begun := os.read(descriptor, _SMALL_BYTES)):
            state.update(begun)
            size += len(begun)
        if size >= _SMALL_BYTES:
            buffer = bytearray(_CHUNK_BYTES)
            view = memoryview(buffer)
            while read := os.readv(descriptor, [buffer]):
                state.update(view[:read])
                size += read
    finally:
        os.close(descriptor)
    return FileDigest(size, state.hexdigest())


def digest_files(files: Iterable[Path]) -> dict[Path, FileDigest]:
    """The digests of files that were just written; missing files are left out."""
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
    """Whether a file on local disk has its recorded content; True for a missing file."""
    try:
        return digest_file(path) == recorded
    except FileNotFoundError:
        return True


def digest_object(store: ObjectStore, name: str, size: int | None = None) -> FileDigest | None:
    """The digest of an object, for a large one its e-tag; None if it does not exist.

    One request, if the size is known.
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
    """The digests in a row of the manifest; raises `ValueError` if they are malformed."""
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
    """The object that lists the files of a subject: a dataset, one of its refs, or other files."""
    return f"{DIGESTS}/{subject}.json"


def encode_listing(files: Digests) -> bytes:
    """A line of a listing, which contains its own digest."""
    content = {name: [*files[name]] for name in sorted(files)}
    line = orjson.dumps({"files": content, "self": digest_of(orjson.dumps(content)).digest})
    return b"\n" + line


def decode_listing(name: str, content: bytes) -> dict[str, FileDigest]:
    """The entries of a listing; raises `DamagedFile` if a line does not match its digest."""
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

    One line is appended, so that the cost does not grow with the listing. A failure here does not
    affect the write before, which is published already.
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
            # The accepted schema is listed by the name it will get when it is replaced, so that
            # file need not exist yet.
            kept = {
                name: each
                for name, each in known.items()
                if name.startswith(PAST_SCHEMAS) or (root / name).exists()
            }
            replace_unflushed(path, encode_listing(kept))


def read_listing(root: Path, subject: str) -> dict[str, FileDigest]:
    """A listing on local disk, without damaged lines; empty if there is none."""
    found: dict[str, FileDigest] = {}
    with suppress(OSError):
        content = (root / listing_name(subject)).read_bytes()
        for line in content.split(b"\n"):
            with suppress(KeyError, TypeError, ValueError):
                found.update(_decoded_line(line) if line else {})
    return found


def forget_listing(root: Path, subject: str) -> None:
    """Remove the listing of a subject that was deleted."""
    with suppress(OSError):
        (root / listing_name(subject)).unlink()


def read_listings(
    store: ObjectStore, damaged: Callable[[DamagedFile], object]
) -> dict[str, FileDigest]:
    """The entries of all listings by name of the file, relative to the root.

    ``damaged`` is called for each damaged listing.
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


# --- commits --------------------------------------------------------------------------------------

_REMEMBERED_MAX = 1_024
"""How many commits' digests are kept until their publish; those of failed writes are evicted."""


@dataclass(slots=True)
class CommitDigests:
    """The digests of files that this process commits to one root, until they are published."""

    root: Root
    open: Callable[[DatasetRef, int], LanceDataset]
    """Opens a version of a dataset."""
    _digests: dict[tuple[str, int], dict[str, FileDigest]] = field(default_factory=dict)
    """By address and version: digests of commits that this process has not published yet."""
    _sent: dict[str, FileDigest] = field(default_factory=dict)
    """By name: digests of files that this process has written and not yet committed."""

    def sent(self, handle: LanceDataset, digests: Mapping[str, FileDigest]) -> None:
        """Remember the digests of files that were written for the next commit to a dataset."""
        if self._listed_subject(DatasetRef.at(handle.uri)) is not None:
            return
        if len(self._sent) >= _REMEMBERED_MAX:
            self._sent.clear()
        self._sent.update(digests)

    def between(self, where: DatasetRef, after: int, version: int) -> dict[str, FileDigest]:
        """Digests of the files added to a table after version ``after``, by name in the table.

        Those of this process's commits are remembered. For other commits, which recovery and repair
        publish, the files are read now; transactions that Lance cannot show are left out.
        """
        found: dict[str, FileDigest] = {}
        for number in range(after + 1, version + 1):
            known = self._digests.pop((where.address, number), None)
            if known is None:
                known = self._digested_again(where, number)
            found.update(known)
        return {self._in_table(where, name): each for name, each in found.items()}

    def of_fork(self, where: DatasetRef) -> dict[str, FileDigest]:
        """Digests of the files of a new fork, by name in the table; on local disk only."""
        if (root := self.root.path) is None:
            return {}
        found = _relative(root, digest_files(fork_files(where)))
        return {self._in_table(where, name): each for name, each in found.items()}

    def _digested_again(self, where: DatasetRef, version: int) -> dict[str, FileDigest]:
        with suppress(*LIBRARY_ERRORS, TypeError, OmnigraphError):
            handle = self.open(where, version)
            transaction = read_transaction(handle, version)
            if transaction is None:
                return {}
            if (root := self.root.path) is None:
                return self.of_remote(handle, transaction)
            files = {*new_files(Path(handle.uri), transaction), version_file_of(handle)}
            return _relative(root, digest_files(files))
        return {}

    def _in_table(self, where: DatasetRef, name: str) -> str:
        location = where.uri.removeprefix(f"{self.root.uri}/")
        return name.removeprefix(f"{location}/")

    def of_commit(self, root: Path, landed: LanceDataset, files: Iterable[Path]) -> None:
        """Digest the files of a commit on local disk, which all exist."""
        where = DatasetRef.at(landed.uri)
        if self._listed_subject(where) is not None:
            self.list_new(root, where, files)
        else:
            self.remember(landed.uri, landed.version, _relative(root, digest_files(files)))

    def list_new(self, root: Path, where: DatasetRef, files: Iterable[Path]) -> None:
        """List the digests of new files, if their dataset has a listing."""
        subject = self._listed_subject(where)
        if subject is not None:
            # Lance replaces the hint file with every commit, and does not need it.
            kept = (file for file in files if file.name != HINT)
            update_listing(root, subject, _relative(root, digest_files(kept)))

    def _listed_subject(self, where: DatasetRef) -> str | None:
        """The listing of a dataset in `LISTED`; None for tables: the manifest has their digests."""
        name = where.uri.removeprefix(f"{self.root.uri}/")
        return f"{name}/{where.ref or MAIN}" if name in LISTED else None

    def remember(self, address: str, version: int, digests: dict[str, FileDigest]) -> None:
        """Keep the digests of a commit until it is published."""
        if len(self._digests) >= _REMEMBERED_MAX:
            self._digests.clear()
        self._digests[address, version] = digests

    def of_remote(self, handle: LanceDataset, transaction: Transaction) -> dict[str, FileDigest]:
        """Digests of the data, deletion and index files of a commit on an object store.

        A file that cannot be fetched gets no digest: the commit does not fail because of it.
        """
        if self._listed_subject(DatasetRef.at(handle.uri)) is not None:
            return {}
        store = open_store(self.root)
        folder = handle.uri.removeprefix(f"{self.root.uri}/")
        sizes = {f"{folder}/{name}": size for name, size in new_names(transaction, handle)}
        with suppress(StorageError):
            for index in getattr(transaction.operation, "new_indices", None) or ():
                sizes |= store.sizes(f"{folder}/_indices/{index.uuid}")
            known = {name: self._sent.pop(name) for name in [*sizes] if name in self._sent}
            asked = [name for name in sizes if name not in known]
            work = (partial(digest_object, store, name, sizes[name]) for name in asked)
            pairs = zip(asked, concurrently(*work, threads=True), strict=True)
            return known | {name: each for name, each in pairs if each is not None}
        return {}

    def forget(self, where: DatasetRef) -> None:
        """Remove the listing of a deleted ref."""
        root, subject = self.root.path, self._listed_subject(where)
        if root is not None and subject is not None:
            forget_listing(root, subject)

    def require_recorded(self, handle: LanceDataset) -> None:
        """Raise `DamagedFile` if a file of a listed dataset does not have its recorded content.

        For a manifest that is read as a whole, where the check costs little in comparison. Files
        that are not listed are not checked, nor those a branch shares with another ref.
        """
        where, root = DatasetRef.at(handle.uri), self.root.path
        subject = self._listed_subject(where)
        if root is None or subject is None:
            return
        listed = read_listing(root, subject)
        folder = Path(handle.uri)
        files = [version_file_of(handle)]
        for fragment in handle.get_fragments():
            files += (folder / "data" / file.path for file in fragment.data_files())
            if (deleted := fragment.metadata.deletion_file) is not None:
                files.append(folder / deleted.path(fragment.fragment_id))
        for file in files:
            known = listed.get(file.relative_to(root).as_posix())
            if known is not None and not is_recorded(file, known):
                raise damaged_content(file)


def _relative(root: Path, digests: Mapping[Path, FileDigest]) -> dict[str, FileDigest]:
    above = len(f"{root}/")
    return {f"{path}"[above:]: each for path, each in digests.items()}
