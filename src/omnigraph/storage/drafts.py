"""Commits to an object store: Lance makes the next version on this machine, one write uploads it.

A commit of Lance to an object store is three requests in a row: it lists the versions, writes the
transaction, and writes the version under a name that has to be free. But what the next version
holds follows from the one before it and from the transaction, and both are known here. So Lance
commits to a *draft*: a folder with the file of that version, which this process has written itself
or fetches once, since a version never changes. The file that results is then created in the store,
on the condition that its name is free.

That is the compare-and-swap of Lance itself, so that both exclude each other. It is stricter than
a commit of Lance, which rebases a stale transaction: the name is that of the very next version. And
it needs no proof by reading: what the store has accepted under that name are our bytes, with the
transaction and its uuid in them. Lance reads transactions from the file of the version; the copy
that it writes beside its own versions is not uploaded.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.bitmap import Bitmap

from omnigraph.effects.objects import ObjectStore, open_store
from omnigraph.effects.requests import concurrently
from omnigraph.effects.uri import Root
from omnigraph.errors import StorageError
from omnigraph.model.records import dataclass
from omnigraph.storage.digests import FileDigest, digest_of
from omnigraph.storage.failures import LIBRARY_ERRORS, version_file

DRAFTS_KEPT_MAX = 128
"""Datasets whose newest version is at hand; another one is fetched when it is written to again."""
DRAFTED = (
    LanceOperation.Append,
    LanceOperation.Update,
    LanceOperation.Delete,
    LanceOperation.Overwrite,
)
"""Operations whose commit needs nothing but the version before and the transaction."""


class Draft:
    """One version of a dataset in a folder of this machine, without the files of its data.

    The folder is removed once nothing refers to the draft, or to one that was made from it.
    """

    def __init__(self, folder: _Folder, handle: LanceDataset) -> None:
        self._folder = folder
        self.handle = handle

    @property
    def path(self) -> Path:
        """The folder of the dataset, or of the ref."""
        return self._folder.path

    @property
    def version(self) -> int:
        """The version that it is a draft of."""
        version: int = self.handle.version
        return version

    @property
    def is_usable(self) -> bool:
        """Whether no other version was made of it yet."""
        return version_file(str(self.path), self.version).exists()

    def followed_by(self, handle: LanceDataset) -> Draft:
        """The draft of a version that was committed to this one."""
        return Draft(self._folder, handle)


class _Folder:
    """A temporary folder, for the process that made it."""

    def __init__(self, place: str) -> None:
        top = Path(tempfile.mkdtemp(prefix="omnigraph-draft-"))
        # Lance tells the root of a branch from its path.
        self.path = top / place
        (self.path / "_versions").mkdir(parents=True)
        weakref.finalize(self, _remove, top, os.getpid())


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class DraftedVersion:
    """A version that is ready to be uploaded."""

    address: str
    name: str
    """Of the object that holds it, below the root."""
    content: bytes
    draft: Draft

    @property
    def version(self) -> int:
        """Its number."""
        return self.draft.version


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files of a staged transaction, which no version refers to yet."""

    store: ObjectStore
    contents: Mapping[str, bytes]
    """By name below the root."""

    @property
    def digests(self) -> dict[str, FileDigest]:
        """What is written, by name below the root."""
        return {name: digest_of(each) for name, each in self.contents.items()}

    @property
    def requests(self) -> list[Callable[[], None]]:
        """Each uploads one of them."""
        return [partial(self.store.write, *each) for each in self.contents.items()]

    def send(self) -> None:
        """Upload them all."""
        concurrently(*self.requests, threads=True)


class NotUploaded(Exception):
    """A version is not in the store, for certain.

    ``failure`` is what the store said, None if another writer has made that version.
    """

    def __init__(self, failure: StorageError | None) -> None:
        super().__init__("" if failure is None else failure.message)
        self.failure = failure


class Drafts:
    """The drafts of one root on an object store."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._newest: OrderedDict[str, Draft] = OrderedDict()
        """By address, of what this process has written last, or is about to write to."""

    @cached_property
    def _store(self) -> ObjectStore:
        return open_store(self._root)

    def of(self, handle: LanceDataset) -> Draft | None:
        """The draft of a version, fetched unless it is at hand; None if it cannot be had."""
        known = self._known(handle.uri, handle.version)
        if known is not None:
            return known
        place = self._place(handle.uri)
        try:
            folder = _Folder(place)
            # The name of a version in the scheme of today; older datasets are committed by Lance.
            file = version_file(str(folder.path), handle.version)
            content = self._store.read_if_exists(f"{place}/_versions/{file.name}")
            if content is None:
                return None
            file.write_bytes(content)
            found = Draft(folder, lance.dataset(str(folder.path), session=_session()))
        except (*LIBRARY_ERRORS, StorageError):
            # No room for temporary files, say. Lance asks the store, and tells what is wrong there.
            return None
        if found.version != handle.version:
            return None
        self._keep(handle.uri, found)
        return found

    def to_write(self, handle: LanceDataset) -> Draft | None:
        """A draft to write files with, of any version with the columns of ``handle``."""
        with self._lock:
            known = self._newest.get(handle.uri) if self._owner == os.getpid() else None
        if known is not None and known.handle.schema == handle.schema:
            return known
        return self.of(handle)

    def next(self, draft: Draft, address: str, transaction: Transaction) -> DraftedVersion | None:
        """The version that a transaction makes of a draft; None if Lance has to commit it itself.

        Nothing is sent. The draft is used up: only one version can follow it.
        """
        expected = transaction.read_version + 1
        is_drafted = isinstance(transaction.operation, DRAFTED)
        if draft.version != expected - 1 or not is_drafted or not draft.is_usable:
            return None
        self._forget(address, draft)
        try:
            landed = LanceDataset.commit(draft.handle, transaction, max_retries=0)
            file = version_file(str(draft.path), expected)
            copy = draft.path / "_transactions" / f"{expected - 1}-{transaction.uuid}.txn"
            copy.unlink(missing_ok=True)
            made = landed.read_transaction(expected)
            content = file.read_bytes()
            version_file(str(draft.path), expected - 1).unlink(missing_ok=True)
        except LIBRARY_ERRORS:
            return None
        if landed.version != expected or made is None or made.uuid != transaction.uuid:
            return None
        name = f"{self._place(address)}/_versions/{file.name}"
        return DraftedVersion(address, name, content, draft.followed_by(landed))

    def upload(self, drafted: DraftedVersion) -> None:
        """Create a version in the store: after this it is there, and before it is not.

        Raises `NotUploaded` if it is certainly not there, and `StorageError` if that cannot be
        told.
        """
        failure: StorageError | None = None
        try:
            if self._store.write_if_absent(drafted.name, drafted.content):
                self._keep(drafted.address, drafted.draft)
                return
        except StorageError as unanswered:
            failure = unanswered
        # A lost answer, or a request that the client has repeated: the object tells whose it is.
        found = self._store.read_if_exists(drafted.name)
        if found == drafted.content:
            self._keep(drafted.address, drafted.draft)
            return
        raise NotUploaded(failure if found is None else None) from failure

    def written(self, draft: Draft, address: str, names: Iterable[str]) -> WrittenFiles:
        """Take files that were staged on a draft out of it, to upload them."""
        place, contents = self._place(address), {}
        for name in names:
            file = draft.path / name
            contents[f"{place}/{name}"] = file.read_bytes()
            file.unlink()
        return WrittenFiles(self._store, contents)

    def _place(self, address: str) -> str:
        return address.removeprefix(f"{self._root.uri}/")

    def _known(self, address: str, version: int) -> Draft | None:
        with self._lock:
            if self._owner != os.getpid():
                # A forked child: the folders are the parent's.
                self._newest.clear()
                self._owner = os.getpid()
            found = self._newest.get(address)
            return found if found is not None and found.version == version else None

    def _keep(self, address: str, draft: Draft) -> None:
        with self._lock:
            known = self._newest.get(address)
            if known is not None and known.version > draft.version:
                return
            self._newest[address] = draft
            self._newest.move_to_end(address)
            while len(self._newest) > DRAFTS_KEPT_MAX:
                self._newest.popitem(last=False)

    def _forget(self, address: str, draft: Draft) -> None:
        with self._lock:
            if self._newest.get(address) is draft:
                del self._newest[address]


_sessions: dict[int, Any] = {}


def _session() -> Any:
    """Small caches, one for all drafts of a process: their files are written once."""
    found = _sessions.get(os.getpid())
    if found is None:
        found = _sessions[os.getpid()] = lance.Session(  # type: ignore[attr-defined]
            index_cache_size_bytes=1 << 20, metadata_cache_size_bytes=8 << 20
        )
    return found


class LandedDataset(LanceDataset):
    """A version that this process has just committed to an object store.

    What its metadata says is known from the draft. It is opened in the store, which takes a
    request, when something of it is read or written.
    """

    _draft: Draft
    _open: Callable[[bytes], LanceDataset]
    _probe: LanceDataset

    @classmethod
    def of(
        cls, before: LanceDataset, draft: Draft, open: Callable[[bytes], LanceDataset]
    ) -> LandedDataset:
        """The version of a draft, which was committed to ``before``; ``open`` opens it."""
        found = cls.__new__(cls)
        found.__dict__.update(
            {name: each for name, each in before.__dict__.items() if name != "_ds"}
        )
        found._draft, found._open = draft, open
        # An open handle tells the newest version, whichever it is a handle of.
        found._probe = before._probe if isinstance(before, LandedDataset) else before
        return found

    def __getattr__(self, name: str) -> Any:
        if name != "_ds":
            raise AttributeError(name)
        self._ds = self._open(self._draft.handle._ds.serialized_manifest())._ds
        return self._ds

    def __reduce__(self) -> tuple[Any, ...]:
        return LanceDataset.__reduce__(self)  # type: ignore[no-untyped-call, no-any-return]

    @property
    def draft(self) -> Draft:
        """What it was made as."""
        return self._draft

    def open_now(self) -> None:
        """Open it ahead, at most once."""
        with suppress(*LIBRARY_ERRORS, StorageError):
            _ = self._ds

    @property
    def version(self) -> int:
        """Known without opening it."""
        return self._draft.version

    @property
    def latest_version(self) -> int:
        """The newest version in the store now."""
        newest: int = self._probe.latest_version
        return newest

    @property
    def schema(self) -> pa.Schema:
        """Known without opening it."""
        return self._draft.handle.schema

    @property
    def has_stable_row_ids(self) -> bool:
        """Known without opening it."""
        stable: bool = self._draft.handle.has_stable_row_ids
        return stable

    def fragment_ids(self) -> Bitmap:
        """Known without opening it."""
        return self._draft.handle.fragment_ids()

    def count_rows(self, filter: Any = None, **kwargs: Any) -> int:
        """Known without opening it, if all rows are counted."""
        if filter is None and not kwargs:
            rows: int = self._draft.handle.count_rows()
            return rows
        found: int = super().count_rows(filter, **kwargs)
        return found

    def checkout_version(self, version: Any) -> LanceDataset:
        """Itself, if it is asked for."""
        return self if version == self.version else super().checkout_version(version)
