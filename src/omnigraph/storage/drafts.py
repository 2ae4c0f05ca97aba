"""Commits to an object store with one request: Lance commits to a local draft, which is uploaded.

Lance itself takes three sequential requests to commit to an object store: it lists the versions,
writes the transaction, and creates the version file under a name that must not exist. The content
of the next version depends only on the previous version and the transaction, which are both known
here. So Lance commits to a *draft*: a local folder with the previous version file, which this
process has written itself or fetches once, since versions are immutable. The resulting version file
is then created in the store, on the condition that its name does not exist.

Lance uses the same compare-and-swap, so its commits and these exclude each other. This one is
stricter: Lance rebases a stale transaction, while here the name is that of the next version. It
needs no read to verify ownership: the store has accepted exactly these bytes, which contain the
transaction and its uuid. Lance reads transactions from the version file, so the separate copy of
the transaction is not uploaded.
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
"""How many datasets' newest versions are kept; others are fetched at their next write."""
DRAFTED = (
    LanceOperation.Append,
    LanceOperation.Update,
    LanceOperation.Delete,
    LanceOperation.Overwrite,
)
"""Operations that Lance can commit with only the previous version and the transaction."""


class Draft:
    """The version file of a dataset in a local folder, without data files.

    The folder is removed with the last reference to the draft and to drafts made from it.
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
        """The version in the draft."""
        version: int = self.handle.version
        return version

    @property
    def is_usable(self) -> bool:
        """Whether no version was committed to it yet."""
        return version_file(str(self.path), self.version).exists()

    def followed_by(self, handle: LanceDataset) -> Draft:
        """The draft of a version that was committed to this one."""
        return Draft(self._folder, handle)


class _Folder:
    """A temporary folder, which only the process that created it removes."""

    def __init__(self, place: str) -> None:
        top = Path(tempfile.mkdtemp(prefix="omnigraph-draft-"))
        # Lance finds the root of a branch by its path.
        self.path = top / place
        (self.path / "_versions").mkdir(parents=True)
        weakref.finalize(self, _remove, top, os.getpid())


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class DraftedVersion:
    """A version file that is ready to be uploaded."""

    address: str
    name: str
    """The object of the version, relative to the root."""
    content: bytes
    draft: Draft

    @property
    def version(self) -> int:
        """The number of the version."""
        return self.draft.version


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files of a staged transaction, which no version refers to yet."""

    store: ObjectStore
    contents: Mapping[str, bytes]
    """Contents by name relative to the root."""

    @property
    def digests(self) -> dict[str, FileDigest]:
        """The digests of the files, by name relative to the root."""
        return {name: digest_of(each) for name, each in self.contents.items()}

    @property
    def requests(self) -> list[Callable[[], None]]:
        """Functions that upload one file each."""
        return [partial(self.store.write, *each) for each in self.contents.items()]

    def send(self) -> None:
        """Upload all files."""
        concurrently(*self.requests, threads=True)


class NotUploaded(Exception):
    """A version was certainly not created in the store.

    ``failure`` is the error of the store; None if another writer has created that version.
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
        """By address: the version that this process wrote last, or is about to write to."""

    @cached_property
    def _store(self) -> ObjectStore:
        return open_store(self._root)

    def of(self, handle: LanceDataset) -> Draft | None:
        """The draft of a version, fetched if it is not cached; None if there can be none."""
        known = self._known(handle.uri, handle.version)
        if known is not None:
            return known
        place = self._place(handle.uri)
        try:
            folder = _Folder(place)
            # Only the current naming of versions is known here; Lance commits to older datasets.
            file = version_file(str(folder.path), handle.version)
            content = self._store.read_if_exists(f"{place}/_versions/{file.name}")
            if content is None:
                return None
            file.write_bytes(content)
            found = Draft(folder, lance.dataset(str(folder.path), session=_session()))
        except (*LIBRARY_ERRORS, StorageError):
            # For instance no space for temporary files: Lance commits to the store itself.
            return None
        if found.version != handle.version:
            return None
        self._keep(handle.uri, found)
        return found

    def to_write(self, handle: LanceDataset) -> Draft | None:
        """A draft to stage files on, of any version with the same columns as ``handle``."""
        with self._lock:
            known = self._newest.get(handle.uri) if self._owner == os.getpid() else None
        if known is not None and known.handle.schema == handle.schema:
            return known
        return self.of(handle)

    def next(self, draft: Draft, address: str, transaction: Transaction) -> DraftedVersion | None:
        """Commit a transaction to a draft; None if Lance has to commit to the store itself.

        Sends nothing. The draft is used up: only one version can follow it.
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
        """Create a version in the store: it is committed when this returns, and not before.

        Raises `NotUploaded` if it was certainly not created, and `StorageError` if the outcome is
        unknown.
        """
        failure: StorageError | None = None
        try:
            if self._store.write_if_absent(drafted.name, drafted.content):
                self._keep(drafted.address, drafted.draft)
                return
        except StorageError as unanswered:
            failure = unanswered
        # The reply was lost or the client repeated the request: compare the object's content.
        found = self._store.read_if_exists(drafted.name)
        if found == drafted.content:
            self._keep(drafted.address, drafted.draft)
            return
        raise NotUploaded(failure if found is None else None) from failure

    def written(self, draft: Draft, address: str, names: Iterable[str]) -> WrittenFiles:
        """Remove files staged on a draft from its folder, to upload them."""
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
                # In a forked child: the folders belong to the parent.
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
    """One session with small caches for all drafts of a process."""
    found = _sessions.get(os.getpid())
    if found is None:
        found = _sessions[os.getpid()] = lance.Session(  # type: ignore[attr-defined]
            index_cache_size_bytes=1 << 20, metadata_cache_size_bytes=8 << 20
        )
    return found


class LandedDataset(LanceDataset):
    """A version that this process has just committed to an object store.

    Metadata comes from the draft. The version is opened in the store, which takes a request, only
    when data is read or written.
    """

    _draft: Draft
    _open: Callable[[bytes], LanceDataset]
    _probe: LanceDataset

    @classmethod
    def of(
        cls, before: LanceDataset, draft: Draft, open: Callable[[bytes], LanceDataset]
    ) -> LandedDataset:
        """The version in a draft, committed after ``before``; ``open`` opens it in the store."""
        found = cls.__new__(cls)
        found.__dict__.update(
            {name: each for name, each in before.__dict__.items() if name != "_ds"}
        )
        found._draft, found._open = draft, open
        # A handle of any version of the ref can report the newest version.
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
        """The draft of this version."""
        return self._draft

    def open_now(self) -> None:
        """Open the version in the store, unless it is open."""
        with suppress(*LIBRARY_ERRORS, StorageError):
            _ = self._ds

    @property
    def version(self) -> int:
        """The number of the version, from the draft."""
        return self._draft.version

    @property
    def latest_version(self) -> int:
        """The newest version in the store now."""
        newest: int = self._probe.latest_version
        return newest

    @property
    def schema(self) -> pa.Schema:
        """The schema, from the draft."""
        return self._draft.handle.schema

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether row ids are stable, from the draft."""
        stable: bool = self._draft.handle.has_stable_row_ids
        return stable

    def fragment_ids(self) -> Bitmap:
        """The ids of all fragments, from the draft."""
        return self._draft.handle.fragment_ids()

    def count_rows(self, filter: Any = None, **kwargs: Any) -> int:
        """The number of rows; from the draft, unless a filter is given."""
        if filter is None and not kwargs:
            rows: int = self._draft.handle.count_rows()
            return rows
        found: int = super().count_rows(filter, **kwargs)
        return found

    def checkout_version(self, version: Any) -> LanceDataset:
        """This handle, if ``version`` is its own version."""
        return self if version == self.version else super().checkout_version(version)
