"""Opening Lance datasets by address, and the strict commit every change goes through.

A dataset is addressed by its absolute URI, its physical ref and a version. A ref other than main
lives under `tree/<ref>` and is always opened by that URI: a handle made by checking a branch out of
the root would write to the root.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

import lance
import orjson
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

from omnigraph.effects.failures import FailureClass, StoreFull, StoreUnavailable
from omnigraph.effects.local_disk import Durability, files_below, flush_tree
from omnigraph.effects.objects import open_store
from omnigraph.effects.requests import concurrently
from omnigraph.effects.uri import Root
from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.model.governor import CACHE_BYTES_VARIABLE, bytes_from_environment
from omnigraph.storage.damage import cut_off, damaged_content, damaged_version, missing
from omnigraph.storage.digests import (
    LISTED,
    FileDigest,
    digest_files,
    digest_object,
    forget_listing,
    is_recorded,
    read_listing,
    update_listing,
)
from omnigraph.storage.drafts import (
    Draft,
    DraftedVersion,
    Drafts,
    LandedDataset,
    NotUploaded,
    WrittenFiles,
)
from omnigraph.storage.failures import (
    LIBRARY_ERRORS,
    count_lance,
    hint_of,
    is_missing,
    is_of_a_library,
    lance_errors,
    lance_failure,
    reclaimed,
    sentence_of,
    store_failure,
    version_file,
    version_named,
)
from omnigraph.storage.layout import MAIN, MANIFEST

Handle: TypeAlias = LanceDataset
"""An open dataset at one version; rooms above pass it on without knowing Lance."""

StagedTransaction: TypeAlias = Transaction
"""Written data files and the change they make, not yet committed."""

FILE_FORMAT = "2.2"
"""Explicit, so that a newer Lance does not change what we write; blobs need 2.2."""


HINT = "latest_version_hint.json"
"""Lance's note of its newest version, beside the versions; it may be wrong or missing."""

_REMEMBERED_MAX = 1_024
"""Commits whose digests wait for their publish; those of failed writes stay until then."""

_LANDED_MAX = 64
"""Versions of an object store that this process has just made, and need not be opened again."""

_LISTINGS_MAX = 10
"""How often a listing is begun again because something in it was removed meanwhile."""


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """One dataset on one physical ref."""

    uri: str
    """Absolute URI of the dataset root. Branches remember it, so there is one spelling."""
    ref: str | None = None
    """Physical ref, or None for main."""

    @property
    def address(self) -> str:
        """The URI handles are opened by."""
        return self.uri if self.ref is None else f"{self.uri}/tree/{self.ref}"

    def on(self, ref: str | None) -> DatasetRef:
        """The same dataset on another ref."""
        return DatasetRef(self.uri, ref)


INDEX_BYTES_MIN = 32 << 20
"""With less, a look-up reads the same pages of an index again and again."""
METADATA_BYTES_MIN = 16 << 20
METADATA_BYTES_MAX = 64 << 20
"""Lance keeps metadata of every version it has seen; more than the recent ones is of no use."""


def _bounded_session() -> Any:
    """Lance's caches, by the memory that is set for tables; its own defaults are 7 GB."""
    limit = bytes_from_environment(CACHE_BYTES_VARIABLE)
    return lance.Session(  # type: ignore[attr-defined]
        index_cache_size_bytes=max(INDEX_BYTES_MIN, limit // 4),
        metadata_cache_size_bytes=max(METADATA_BYTES_MIN, min(limit // 8, METADATA_BYTES_MAX)),
    )


@dataclass(slots=True)
class Flushes:
    """The files of one operation on local disk, by what still has to be put there.

    What a commit lists is flushed before it: after a loss of power recovery may find the version,
    and publishes it. What the commit itself adds may wait for the other commits of the operation.
    """

    done: set[Path] = field(default_factory=set)
    due: set[Path] = field(default_factory=set)


class CommitLost(OmnigraphError):
    """A staged transaction was rejected and has no effect."""


class CommitNotOwned(OmnigraphError):
    """A commit landed, but not as the very next version, so it may rest on foreign changes."""


class CommitOutcomeUnknown(OmnigraphError):
    """The reply of the store was lost: the commit may have landed."""


@dataclass(frozen=True, slots=True)
class DraftedCommit:
    """A commit to a dataset on an object store that was made on this machine and not sent yet."""

    before: LanceDataset
    transaction: Transaction
    version: DraftedVersion
    landed: LandedDataset
    """The new version, which can be read once it was sent."""


@dataclass(slots=True)
class LanceStore:
    """The datasets of one root: one set of storage options, one shared metadata cache."""

    root: Root
    durability: Durability = Durability.DISK
    is_pinned: Callable[[DatasetRef, int], bool] = field(default=lambda where, version: False)
    """Whether a live branch shows a version, which cleanup then keeps: asked after a failure."""
    _session: Any = field(default_factory=_bounded_session)
    _digests: dict[tuple[str, int], dict[str, FileDigest]] = field(default_factory=dict)
    """By address and version: digests of commits that this process has not published yet."""
    _sent: dict[str, FileDigest] = field(default_factory=dict)
    """By name: digests of files that this process has written and not yet committed."""
    _drafts: Drafts = field(init=False)
    _landed: OrderedDict[tuple[str, int], LandedDataset] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._drafts = Drafts(self.root)

    def __reduce__(self) -> tuple[Any, ...]:
        """For a worker: with caches of its own, and credentials from its environment."""
        return LanceStore, (self.root, self.durability)

    def open(self, where: DatasetRef, version: int | None = None) -> LanceDataset:
        """The dataset at ``version``, or at its newest.

        Raises `NotFound` for an absent dataset or ref, `HistoricalVersionReclaimed` when cleanup
        removed the version, and `DamagedFile` when its file is lost or cannot be read.
        """
        landed = None if version is None else self._landed.get((where.address, version))
        return self._opened(where, version) if landed is None else landed

    def _opened(
        self, where: DatasetRef, version: int | None, manifest: bytes | None = None
    ) -> LanceDataset:
        count_lance("open", where.address)
        try:
            return LanceDataset(
                where.address,
                version=version,
                session=self._session,
                storage_options=self.root.storage_options() or None,
                serialized_manifest=manifest,
            )
        except BaseException as error:
            if not is_of_a_library(error):
                raise
            problem = self._open_error(where, version, error)
            # For a missing dataset the message of Lance adds nothing.
            raise problem from (None if isinstance(problem, NotFound) else error)

    def exists(self, where: DatasetRef) -> bool:
        """Whether the dataset or ref has any version."""
        try:
            self.open(where)
        except NotFound:
            return False
        return True

    def create(
        self, where: DatasetRef, schema: pa.Schema, rows: pa.Table | None, uuid: str
    ) -> LanceDataset:
        """Create a dataset with its first rows in one commit; raises `CommitLost` if it exists."""
        count_lance("create", where.address)
        options = self.root.storage_options() or None
        fragments = []
        try:
            if rows is not None and rows.num_rows:
                fragments = write_fragments(
                    rows,
                    where.address,
                    schema=schema,
                    mode="create",
                    data_storage_version=FILE_FORMAT,
                    enable_stable_row_ids=True,
                    storage_options=options,
                )
            transaction = Transaction(0, LanceOperation.Overwrite(schema, fragments), uuid=uuid)
            flushes = Flushes()
            if self.root.is_local:
                _require_whole(where.address, transaction)
                self._flush_data(_new_data(Path(where.address), transaction), flushes)
            created = LanceDataset.commit(
                where.address,
                transaction,
                enable_stable_row_ids=True,
                max_retries=0,
                storage_options=options,
            )
        except LIBRARY_ERRORS as error:
            raise CommitLost(
                f"{where.address} could not be created: {sentence_of(error)}", hint=hint_of(error)
            ) from error
        self._finish_commit(created, transaction, flushes)
        self.flush_commits(flushes)
        return created

    def commit(
        self,
        handle: LanceDataset,
        transaction: Transaction,
        operation_id: str | None = None,
        sidecar_digest: str | None = None,
        flushes: Flushes | None = None,
    ) -> LanceDataset:
        """Commit strictly (see `commit_strict`) and put it on disk as far as configured.

        ``operation_id`` is written into the transaction, for readers of the table's history, and
        ``sidecar_digest`` for recovery (see `sidecar_digest_of`). With ``flushes``, what the
        commit adds to the files that it lists waits for `flush_commits`.
        """
        _announce(transaction, operation_id, sidecar_digest)
        if self.root.is_local:
            _require_whole(handle.uri, transaction)
            known = Flushes() if flushes is None else flushes
            self.flush_staged([(handle, transaction)], known)
            landed = commit_strict(handle, transaction)
            self._finish_commit(landed, transaction, known, handle)
            if flushes is None:
                self.flush_commits(known)
            return landed
        drafted = self.draft(handle, transaction)
        if drafted is not None:
            return concurrently(
                partial(self.land, drafted), partial(self.digest, drafted), threads=True
            )[0]
        # What the commit lists is there already: it is fetched while the commit is under way.
        landed, digests = concurrently(
            partial(commit_strict, handle, transaction),
            partial(self._remote_digests, handle, transaction),
            threads=True,
        )
        self._remember(landed.uri, landed.version, digests)
        return landed

    # --- commits that are drafted on this machine -------------------------------------------------

    def draft(
        self,
        handle: LanceDataset,
        transaction: Transaction,
        operation_id: str | None = None,
        sidecar_digest: str | None = None,
    ) -> DraftedCommit | None:
        """A commit to a dataset on an object store, made but not sent: `land` sends it.

        None if Lance has to commit it itself.
        """
        if self.root.is_local:
            return None
        draft: Draft | None = handle.draft if isinstance(handle, LandedDataset) else None
        if draft is None or not draft.is_usable:
            draft = self._drafts.of(handle)
        if draft is None:
            return None
        _announce(transaction, operation_id, sidecar_digest)
        version = self._drafts.next(draft, handle.uri, transaction)
        if version is None:
            return None
        opened = partial(self._opened, _place_of(handle.uri), version.version)
        landed = LandedDataset.of(handle, version.draft, opened)
        return DraftedCommit(handle, transaction, version, landed)

    def land(self, drafted: DraftedCommit) -> LanceDataset:
        """Send a commit: it is there afterwards; raises like `commit_strict`."""
        version = drafted.version
        try:
            self._drafts.upload(version)
        except NotUploaded as lost:
            is_taken = lost.failure is None
            reason = "another writer was first" if lost.failure is None else lost.failure.message
            raise CommitLost(
                f"a commit to {version.address} was rejected: {reason}",
                hint=None if lost.failure is None else lost.failure.hint,
                details={"conflict": is_taken},
            ) from lost.failure
        except StorageError as unanswered:
            raise CommitOutcomeUnknown(
                f"a commit to {version.address} was not acknowledged: {unanswered.message}"
            ) from unanswered
        self._landed[version.address, version.version] = drafted.landed
        while len(self._landed) > _LANDED_MAX:
            self._landed.popitem(last=False)
        return drafted.landed

    def digest(self, drafted: DraftedCommit) -> None:
        """Have the digests of the files that a commit lists: fetch those not written here."""
        digests = self._remote_digests(drafted.before, drafted.transaction)
        self._remember(drafted.version.address, drafted.version.version, digests)

    def stage_apart(
        self,
        handle: LanceDataset,
        stage: Callable[[LanceDataset], Transaction | None],
        *,
        only_adds: bool,
    ) -> tuple[Transaction, WrittenFiles] | None:
        """Stage a change of a dataset on an object store on this machine; the caller sends files.

        For small changes that read nothing but metadata. A change that ``only_adds`` rows may be
        staged on any version with the same columns. None if it has to be staged in the store,
        as ``stage`` may also find.
        """
        if self.root.is_local:
            return None
        draft = self._drafts.to_write(handle) if only_adds else self._drafts.of(handle)
        if draft is None:
            return None
        transaction = stage(draft.handle)
        if transaction is None:
            return None
        names = (name for name, _ in _new_names(transaction, None))
        written = self._drafts.written(draft, handle.uri, names)
        if self._listed_subject(_place_of(handle.uri)) is None:
            self._know(written.digests)
        return replace(transaction, read_version=handle.version), written

    def _know(self, digests: Mapping[str, FileDigest]) -> None:
        if len(self._sent) >= _REMEMBERED_MAX:
            self._sent.clear()
        self._sent.update(digests)

    def digests_between(self, where: DatasetRef, after: int, version: int) -> dict[str, FileDigest]:
        """Digests of the files that a table got behind version ``after``, by name in the table.

        Those of commits of this process are known. For others, which recovery and repair publish,
        the files are read now; a transaction that Lance cannot show is left out.
        """
        found: dict[str, FileDigest] = {}
        for number in range(after + 1, version + 1):
            known = self._digests.pop((where.address, number), None)
            if known is None:
                known = self._digested_again(where, number)
            found.update(known)
        return {self._in_table(where, name): each for name, each in found.items()}

    def fork_digests(self, where: DatasetRef) -> dict[str, FileDigest]:
        """Digests of what makes a fork, by name in the table; on local disk only."""
        if (root := self.root.path) is None:
            return {}
        found = self._relative(root, digest_files(_fork_files(where)))
        return {self._in_table(where, name): each for name, each in found.items()}

    def _digested_again(self, where: DatasetRef, version: int) -> dict[str, FileDigest]:
        with suppress(*LIBRARY_ERRORS, TypeError, OmnigraphError):
            handle = self.open(where, version)
            transaction = _transaction(handle, version)
            if transaction is None:
                return {}
            if (root := self.root.path) is None:
                return self._remote_digests(handle, transaction)
            files = {*_new_files(Path(handle.uri), transaction), _version_file_of(handle)}
            return self._relative(root, digest_files(files))
        return {}

    def _in_table(self, where: DatasetRef, name: str) -> str:
        location = where.uri.removeprefix(f"{self.root.uri}/")
        return name.removeprefix(f"{location}/")

    def insert_new(self, where: DatasetRef, key: str, rows: pa.Table) -> None:
        """Insert the rows whose key is not there yet.

        Lance repeats the merge when others commit at once; with a declared primary key, of two
        that insert one key only the first does.
        """
        dataset = self.open(where)
        count_lance("commit", where.address)
        root, directory = self.root.path, Path(where.address)
        known = frozenset() if root is None else files_below(directory)
        with lance_errors(dataset):
            dataset.merge_insert(key).when_not_matched_insert_all().execute(rows)
        if root is not None:
            self._finish_files(root, where, known)

    def append(self, where: DatasetRef, rows: pa.Table, uuid: str) -> None:
        """Append rows to a dataset that only grows, whatever others append or compact meanwhile.

        Appends do not conflict, so Lance puts this one behind theirs. After an error the rows may
        be there all the same: readers have to know rows that they have seen.
        """
        dataset = self.open(where)
        count_lance("commit", where.address)
        options = self.root.storage_options() or None
        with lance_errors(dataset):
            fragments = write_fragments(
                rows,
                where.address,
                schema=rows.schema,
                mode="append",
                data_storage_version=FILE_FORMAT,
                enable_stable_row_ids=True,
                storage_options=options,
            )
            transaction = Transaction(dataset.version, LanceOperation.Append(fragments), uuid=uuid)
            flushes = Flushes()
            if self.root.is_local:
                _require_whole(where.address, transaction)
                self.flush_staged([(dataset, transaction)], flushes)
            landed = LanceDataset.commit(dataset, transaction, storage_options=options)
        self._finish_commit(landed, transaction, flushes)
        self.flush_commits(flushes)

    def compact(
        self, where: DatasetRef, indexes: Mapping[str, Literal["BTREE", "BITMAP"]], keep: timedelta
    ) -> tuple[int, int, int]:
        """Rewrite a dataset of `append` as few fragments, with all rows in its indexes.

        ``indexes`` are columns and the kind of index of each. Versions older than ``keep`` go:
        no reader needs one, but writers on their way compare with those they began at. Returns the
        version, how many fragments there were, and how many there are.
        """
        dataset = self.open(where)
        count_lance("commit", where.address)
        before = fragment_count(dataset)
        root, directory = self.root.path, Path(where.address)
        known = frozenset() if root is None else files_below(directory)
        with lance_errors(dataset):
            try:
                dataset.optimize.compact_files(target_rows_per_fragment=1 << 20)
                there = {name for each in dataset.describe_indices() for name in each.field_names}
                for column, kind in indexes.items():
                    if column not in there:
                        dataset.create_scalar_index(column, kind)
                dataset.optimize.optimize_indices()
            except LIBRARY_ERRORS as error:
                # One of several that compact at once wins, and has done what the others would have.
                if not _is_conflict(error) and "preempted by concurrent" not in str(error):
                    raise
        if root is not None:
            self._finish_files(root, where, known)
        with lance_errors(dataset):
            newest = self.open(where)
            newest.cleanup_old_versions(older_than=keep)
        return int(newest.version), before, fragment_count(newest)

    def create_ref(self, where: DatasetRef, ref: str, version: int) -> LanceDataset:
        """Fork ``where`` at ``version`` into a new physical ref."""
        count_lance("create_ref", where.address)
        # Only listed versions of the very ref can be forked, so the parent is opened there first.
        parent = self.open(where, version)
        with lance_errors(parent):
            parent.create_branch(ref, version)
        if (root := self.root.path) is not None:
            files = _fork_files(where.on(ref))
            flush_tree(root, files, self.durability)
            self._list_new(root, where.on(ref), files)
        return self.open(where.on(ref))

    def delete_ref(self, where: DatasetRef) -> None:
        """Remove a physical ref; an absent one is fine."""
        assert where.ref is not None
        count_lance("delete_ref", where.address)
        try:
            self.open(where.on(None)).branches.delete(where.ref)
        except NotFound:
            return
        except LIBRARY_ERRORS as error:
            if where.ref in self.refs(where):
                raise lance_failure(where.uri, error) from error
        if (root := self.root.path) is not None and self._listed_subject(where) is not None:
            forget_listing(root, f"{self._listed_subject(where)}")

    def refs(self, where: DatasetRef) -> dict[str, Any]:
        """The physical refs of a dataset, by name."""
        for _ in range(_LISTINGS_MAX):
            count_lance("list_refs", where.uri)
            dataset = self.open(where.on(None))
            try:
                return dict(dataset.branches.list())
            except LIBRARY_ERRORS as error:
                # Lance lists the names and then reads each: one that goes in between fails it all.
                if not is_missing(error):
                    raise lance_failure(dataset, error) from error
        raise StorageError(
            f"the refs of {where.uri} could not be listed: they kept changing", hint="try again"
        )

    # --- files of commits -------------------------------------------------------------------------

    def flush_staged(
        self, staged: Iterable[tuple[LanceDataset, Transaction]], flushes: Flushes
    ) -> None:
        """Put the files that transactions list on local disk, before the first is committed."""
        if self.root.path is None or self.durability is Durability.PROCESS:
            return
        files = {
            file
            for handle, transaction in staged
            for file in _new_data(Path(handle.uri), transaction, handle)
        }
        self._flush_data(files, flushes)

    def _flush_data(self, files: Iterable[Path], flushes: Flushes) -> None:
        if (root := self.root.path) is not None and (new := {*files} - flushes.done):
            flush_tree(root, new, self.durability, flushes.done)
            flushes.done |= new

    def flush_commits(self, flushes: Flushes) -> None:
        """Put what commits have added on local disk, of all of them at once."""
        if (root := self.root.path) is not None:
            flush_tree(root, flushes.due, self.durability, flushes.done)
            flushes.due.clear()

    def flush_versions(self, where: DatasetRef, after: int, version: int) -> None:
        """Put versions that another process may have committed on local disk, with their data.

        Those before the last may be gone, or be of a kind that Lance cannot show.
        """
        if (root := self.root.path) is None or self.durability is Durability.PROCESS:
            return
        files = {_version_file_of(self.open(where, version))}
        for number in range(after + 1, version + 1):
            with suppress(*LIBRARY_ERRORS, TypeError, OmnigraphError):
                handle = self.open(where, number)
                files.add(_version_file_of(handle))
                transaction = _transaction(handle, number)
                if transaction is not None:
                    before = self.open(where, number - 1) if number > 1 else None
                    # The version has a copy of its transaction: the file of it may be lost.
                    folder = Path(handle.uri)
                    files.update(_new_data(folder, transaction, before))
                    files.update(filter(Path.exists, [_transaction_file(folder, transaction)]))
        flush_tree(root, files, self.durability)

    def remove_cut_off(self, where: DatasetRef, above: int) -> None:
        """Remove version files that a loss of power has cut off, above a version.

        For the owner of a branch: a commit that was flushed, or that is under way, has a whole one.
        Above 0, the entry of a fork as well.
        """
        if self.root.path is None:
            return
        entry = Path(where.uri, "_refs/branches", f"{where.ref}.json")
        if not above and where.ref is not None and entry.exists():
            try:
                orjson.loads(entry.read_bytes())
            except ValueError:
                entry.unlink()
        for file in Path(where.address).glob("_versions/*.manifest"):
            if version_named(file.stem) > above and cut_off(file):
                file.unlink()

    def flush_fork(self, where: DatasetRef) -> None:
        """Flush a fork to local disk; its maker may have ended before it did."""
        if (root := self.root.path) is not None:
            flush_tree(root, _fork_files(where), self.durability)

    def _finish_commit(
        self,
        landed: LanceDataset,
        transaction: Transaction,
        flushes: Flushes,
        before: LanceDataset | None = None,
    ) -> None:
        """Note what a commit adds on local disk, where Lance flushes nothing, and digest it."""
        if (root := self.root.path) is None:
            return
        folder = Path(landed.uri)
        added = {_version_file_of(landed), _transaction_file(folder, transaction)}
        flushes.due |= added
        files = {*added, *_new_data(folder, transaction, before)}
        where = _place_of(landed.uri)
        if self._listed_subject(where) is not None:
            self._list_new(root, where, files)
        else:
            found = self._relative(root, digest_files(files))
            self._remember(landed.uri, landed.version, found)

    def _finish_files(self, root: Path, where: DatasetRef, known: frozenset[Path]) -> None:
        """The same for the files that Lance added by itself to a dataset that had ``known``."""
        new = files_below(Path(where.address)) - known
        flush_tree(root, new, self.durability)
        self._list_new(root, where, new)

    def _list_new(self, root: Path, where: DatasetRef, files: Iterable[Path]) -> None:
        subject = self._listed_subject(where)
        if subject is not None:
            # Lance replaces this file with every commit, and does not need it.
            kept = (file for file in files if file.name != HINT)
            update_listing(root, subject, self._relative(root, digest_files(kept)))

    def _listed_subject(self, where: DatasetRef) -> str | None:
        """The listing of a dataset whose digests no row of the manifest can hold."""
        name = where.uri.removeprefix(f"{self.root.uri}/")
        return f"{name}/{where.ref or MAIN}" if name in LISTED else None

    def _relative(self, root: Path, digests: Mapping[Path, FileDigest]) -> dict[str, FileDigest]:
        return {path.relative_to(root).as_posix(): each for path, each in digests.items()}

    def _remember(self, address: str, version: int, digests: dict[str, FileDigest]) -> None:
        if len(self._digests) >= _REMEMBERED_MAX:
            self._digests.clear()
        self._digests[address, version] = digests

    def _remote_digests(
        self, handle: LanceDataset, transaction: Transaction
    ) -> dict[str, FileDigest]:
        """Digests of the data, deletion and index files of a commit on an object store.

        A file that cannot be fetched now has no digest: the commit does not wait for it.
        """
        if self._listed_subject(_place_of(handle.uri)) is not None:
            return {}
        store = open_store(self.root)
        folder = handle.uri.removeprefix(f"{self.root.uri}/")
        sizes = {f"{folder}/{name}": size for name, size in _new_names(transaction, handle)}
        with suppress(StorageError):
            for index in getattr(transaction.operation, "new_indices", None) or ():
                sizes |= store.sizes(f"{folder}/_indices/{index.uuid}")
            known = {name: self._sent.pop(name) for name in [*sizes] if name in self._sent}
            asked = [name for name in sizes if name not in known]
            work = (partial(digest_object, store, name, sizes[name]) for name in asked)
            pairs = zip(asked, concurrently(*work, threads=True), strict=True)
            return known | {name: each for name, each in pairs if each is not None}
        return {}

    def require_recorded(self, handle: LanceDataset) -> None:
        """Raise `DamagedFile` if a file of a listed dataset is not what was written.

        For a manifest that is read as a whole, where it costs little beside reading it. Files that
        are not listed are not looked at; neither are those a branch shares with another ref.
        """
        where, root = _place_of(handle.uri), self.root.path
        subject = self._listed_subject(where)
        if root is None or subject is None:
            return
        listed = read_listing(root, subject)
        folder = Path(handle.uri)
        files = [_version_file_of(handle)]
        for fragment in handle.get_fragments():
            files += (folder / "data" / file.path for file in fragment.data_files())
            if (deleted := fragment.metadata.deletion_file) is not None:
                files.append(folder / deleted.path(fragment.fragment_id))
        for file in files:
            known = listed.get(file.relative_to(root).as_posix())
            if known is not None and not is_recorded(file, known):
                raise damaged_content(file)

    def _open_error(
        self, where: DatasetRef, version: int | None, error: BaseException
    ) -> OmnigraphError:
        if not is_missing(error):
            failure = lance_failure(where.address, error)
            # Errors of the OS or the store are recognised first, before a file is examined.
            if hint_of(error) is not None or not self.root.is_local:
                return failure
            return damaged_version(where.address, version) or failure
        if version is None:
            return self._missing(where)
        try:
            self.open(where)
        except NotFound as nothing_there:
            lost = missing(version_file(where.address, version))
            return lost if self._is_pinned(where, version) else nothing_there
        except OmnigraphError as unreadable:
            return unreadable
        if self.root.is_local and version_file(where.address, version).exists():
            return StorageError(f"{where.address} could not be opened: {sentence_of(error)}")
        # Cleanup removes no version that a branch shows.
        if self._is_pinned(where, version):
            return missing(version_file(where.address, version))
        return reclaimed(where.address, version)

    def _is_pinned(self, where: DatasetRef, version: int) -> bool:
        with suppress(OmnigraphError):
            return self.is_pinned(where, version)
        return False

    def _missing(self, where: DatasetRef) -> NotFound:
        """The error for a missing dataset, in terms of the graph that was opened."""
        place = where.address.removeprefix(f"{self.root}/")
        if place == MANIFEST:
            return NotFound(
                f"there is no graph at {self.root}",
                hint=f"create one with `omnigraph init --schema schema.pg {self.root}`",
            )
        return NotFound(
            f"the graph at {self.root} has lost a part: {place} is missing",
            hint="restore it from a copy; "
            f"`omnigraph doctor --store {self.root}` shows what else is wrong",
        )


def _is_local(handle: LanceDataset) -> bool:
    return "://" not in handle.uri


def latest_version(handle: LanceDataset) -> int:
    """The newest version of the ref a handle belongs to: one cheap probe.

    Raises `NotFound` when the ref was deleted since the handle was opened.
    """
    count_lance("latest_version", handle.uri)
    try:
        if _is_local(handle):
            return newest_version(handle.uri, lambda: handle.latest_version)
        version: int = handle.latest_version
    except LIBRARY_ERRORS as error:
        if is_missing(error):
            raise NotFound(
                f"{handle.uri} is not there any more",
                hint="the graph, or this branch of it, was deleted or moved while it was open",
            ) from error
        raise lance_failure(handle, error) from error
    return version


def fragment_count(handle: LanceDataset) -> int:
    """How many fragments a version has; known from its metadata."""
    with lance_errors(handle):
        return len(handle.fragment_ids())


def row_count(handle: LanceDataset, version: int) -> int:
    """The number of rows of one version, from its metadata."""
    with lance_errors(handle):
        rows: int = handle.checkout_version(version).count_rows()
    return rows


SIDECAR_DIGEST = "sidecar"
"""The property of a transaction that has the digest of the sidecar it was announced in."""


def _announce(
    transaction: Transaction, operation_id: str | None, sidecar_digest: str | None
) -> None:
    """Write the operation into a transaction, and the digest of the sidecar that announces it."""
    if operation_id is not None:
        properties = {"operation": operation_id}
        if sidecar_digest is not None:
            properties[SIDECAR_DIGEST] = sidecar_digest
        transaction.transaction_properties = properties


def transaction_uuid(handle: LanceDataset, version: int) -> str | None:
    """The uuid of the transaction that made ``version``; None if that version does not exist."""
    transaction = _transaction(handle, version)
    return None if transaction is None else str(transaction.uuid)


def sidecar_digest_of(handle: LanceDataset, version: int, uuid: str) -> str | None:
    """The digest in the transaction that made ``version``, if that is the one with this uuid.

    None where there is no such transaction, and for one of a release that wrote no digests.
    """
    transaction = _transaction(handle, version)
    if transaction is None or str(transaction.uuid) != uuid:
        return None
    digest = (transaction.transaction_properties or {}).get(SIDECAR_DIGEST)
    return None if digest is None else str(digest)


def transaction_property(handle: LanceDataset, version: int, name: str) -> str | None:
    """A property of the transaction that made a version; None if there is none."""
    transaction = _transaction(handle, version)
    found = None if transaction is None else (transaction.transaction_properties or {}).get(name)
    return None if found is None else str(found)


def _transaction(handle: LanceDataset, version: int) -> Transaction | None:
    count_lance("read_transaction", handle.uri)
    try:
        transaction: Transaction | None = handle.read_transaction(version)
    except BaseException as error:
        if not is_of_a_library(error):
            raise
        if is_missing(error):
            return None
        damaged = damaged_version(handle.uri, version) if _is_local(handle) else None
        raise damaged or lance_failure(handle, error) from error
    return transaction


def transactions_since(handle: LanceDataset, version: int) -> list[str | None]:
    """The uuids of the transactions after ``version``, oldest first."""
    newest = latest_version(handle)
    return [transaction_uuid(handle, later) for later in range(version + 1, newest + 1)]


COMMIT_ATTEMPTS_MAX = 3
"""How often a commit is sent to an object store that does not get it."""


def commit_strict(handle: LanceDataset, transaction: Transaction) -> LanceDataset:
    """Commit a staged transaction as exactly the next version, and prove that it is ours.

    Lance rebases a stale transaction silently, and a failing call may still have landed. So a
    commit counts only if the version after the one it was staged on carries its uuid. A request
    that never reached an object store is sent again: that version can be made only once.

    Raises `CommitLost` when it certainly had no effect, `CommitNotOwned` when it landed on top of
    foreign versions, `CommitOutcomeUnknown` when the store cannot be asked.
    """
    expected = transaction.read_version + 1
    for left in reversed(range(COMMIT_ATTEMPTS_MAX)):
        count_lance("commit", handle.uri)
        try:
            landed = LanceDataset.commit(handle, transaction, max_retries=0)
            break
        except LIBRARY_ERRORS as error:
            try:
                return _settle_failed_commit(handle, transaction, expected, error)
            except CommitLost as lost:
                if not left or not isinstance(lost.__cause__, StoreUnavailable):
                    raise
    if landed.version != expected:
        raise CommitNotOwned(
            f"a commit to {handle.uri} landed as version {landed.version} instead of {expected}",
            details={"version": landed.version, "uuid": transaction.uuid},
        )
    if transaction_uuid(landed, expected) != transaction.uuid:
        raise CommitNotOwned(
            f"version {expected} of {handle.uri} belongs to another writer",
            details={"version": expected, "uuid": transaction.uuid},
        )
    return landed


def _settle_failed_commit(
    handle: LanceDataset, transaction: Transaction, expected: int, error: Exception
) -> LanceDataset:
    """After a failed call: find out whether the commit landed all the same."""
    try:
        newest = latest_version(handle)
        mine = newest >= expected and transaction_uuid(handle, expected) == transaction.uuid
    except OmnigraphError:
        raise CommitOutcomeUnknown(
            f"a commit to {handle.uri} was not acknowledged: {sentence_of(error)}",
            details={"uuid": transaction.uuid},
        ) from error
    if mine:
        return handle.checkout_version(expected)
    for version in range(expected + 1, newest + 1):
        if transaction_uuid(handle, version) == transaction.uuid:
            raise CommitNotOwned(
                f"a commit to {handle.uri} landed as version {version} instead of {expected}",
                details={"version": version, "uuid": transaction.uuid},
            ) from error
    reason = "another writer was first" if _is_conflict(error) else sentence_of(error)
    raise CommitLost(
        f"a commit to {handle.uri} was rejected: {reason}",
        hint=hint_of(error),
        details={"conflict": _is_conflict(error)},
    ) from (store_failure(handle.uri, error) or error)


def _is_conflict(error: Exception) -> bool:
    return isinstance(error, CommitConflictError) or "Too many concurrent writers" in str(error)


def _new_fragments(transaction: Transaction) -> Iterator[Any]:
    operation = transaction.operation
    yield from getattr(operation, "fragments", None) or ()
    yield from getattr(operation, "new_fragments", None) or ()
    for group in getattr(operation, "groups", None) or ():
        yield from group.new_fragments


def _require_whole(address: str, transaction: Transaction) -> None:
    """Raise `CommitLost`, with the full disk as its cause, if a new file is not all there.

    Lance writes the last bytes of a local file in a thread and ignores its result: on a full disk
    the file is truncated and the write succeeds all the same. Lance itself checks the lengths of
    blob files.
    """
    for fragment in _new_fragments(transaction):
        for file in fragment.files:
            path = f"{address}/data/{file.path}"
            try:
                size = os.stat(path).st_size  # noqa: PTH116 - every write waits for this
            except FileNotFoundError:
                continue  # it was there before, at another place, and is taken over
            if file.file_size_bytes and size != file.file_size_bytes:
                _refuse_cut(path, f"only {size} of {file.file_size_bytes} bytes were written")
    for index in getattr(transaction.operation, "new_indices", None) or ():
        for part in Path(address, "_indices", index.uuid).iterdir():
            if problem := cut_off(part):
                _refuse_cut(str(part), problem)


def _refuse_cut(path: str, problem: str) -> NoReturn:
    full = StoreFull(
        FailureClass.PERMANENT, "write", path, problem, hint="free some disk space and try again"
    )
    raise CommitLost(full.message, hint=full.hint, details={"conflict": False}) from full


def _transaction_file(directory: Path, transaction: Transaction) -> Path:
    return directory / "_transactions" / f"{transaction.read_version}-{transaction.uuid}.txn"


def _new_files(
    directory: Path, transaction: Transaction, before: LanceDataset | None = None
) -> Iterator[Path]:
    """The files of a commit on local disk, but for its version: what it lists, its transaction."""
    yield _transaction_file(directory, transaction)
    yield from _new_data(directory, transaction, before)


def _new_data(
    directory: Path, transaction: Transaction, before: LanceDataset | None = None
) -> Iterator[Path]:
    """The files that a transaction lists: its data, its deletions, its indexes."""
    for name, _ in _new_names(transaction, before):
        file = directory / name
        # A fragment may keep the deletion file it had, which lies where it was made.
        if file.suffix == ".lance" or file.exists():
            yield file
        # Blobs too large for the file lie in a directory of its name.
        if file.suffix == ".lance":
            yield from file.with_suffix("").glob("*.blob")
    for index in getattr(transaction.operation, "new_indices", None) or ():
        yield from files_below(directory / "_indices" / index.uuid)


def _new_names(
    transaction: Transaction, before: LanceDataset | None
) -> Iterator[tuple[str, int | None]]:
    """The data and deletion files of a commit, by their names in the folder of the ref, with sizes.

    ``before`` is the version that the transaction was staged on: a column that is added to every
    fragment lists the files they had as well.
    """
    operation = transaction.operation
    known: set[str] = set()
    if before is not None and isinstance(operation, LanceOperation.Merge):
        known = {file.path for each in before.get_fragments() for file in each.data_files()}
    for fragment in _new_fragments(transaction):
        for file in fragment.files:
            # With a base, a branch shares it with the ref it was forked from.
            if file.base_id is None and file.path not in known:
                yield f"data/{file.path}", file.file_size_bytes
    for fragment in getattr(operation, "updated_fragments", None) or ():
        if fragment.deletion_file is not None:
            yield fragment.deletion_file.path(fragment.id), None


def _fork_files(where: DatasetRef) -> set[Path]:
    """The entry of a ref, and its versions and transactions so far."""
    dataset, folder = Path(where.uri), Path(where.address)
    made = (file for part in ("_versions", "_transactions") for file in (folder / part).glob("*"))
    return {dataset / "_refs/branches" / f"{where.ref}.json", *made} - {folder / "_versions" / HINT}


def _place_of(address: str) -> DatasetRef:
    """The dataset and ref of an address."""
    uri, _, ref = address.partition("/tree/")
    return DatasetRef(uri, ref or None)


def _version_file_of(handle: LanceDataset) -> Path:
    return version_file(handle.uri, handle.version)


# --- the newest version ---------------------------------------------------------------------------
#
# Every query asks for it, and listing versions takes longer the more there are. While inode and
# mtime of the directory stay the same, no version was added since the last listing.

MTIME_RESOLUTION_NS = 50_000_000
"""File systems count time in steps of some milliseconds: a directory changed more recently than
this may change again without another mtime."""

_KNOWN_MAX = 4_096
_Fingerprint = tuple[int, int]
_known: dict[str, tuple[_Fingerprint, int]] = {}
"""By directory: its inode and mtime fingerprint, and its newest version then."""


def newest_version(address: str, probe: Callable[[], int]) -> int:
    """The newest version of the dataset or ref at a path; ``probe`` lists them."""
    directory = f"{address}/_versions"
    fingerprint = _fingerprint(directory)
    known = _known.get(directory)
    if fingerprint is not None and known is not None and known[0] == fingerprint:
        return known[1]
    version = probe()
    if fingerprint is not None:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[directory] = (fingerprint, version)
    return version


def _fingerprint(directory: str) -> _Fingerprint | None:
    """Inode and mtime; None if the next change might not show in them."""
    try:
        found = os.stat(directory)  # noqa: PTH116 - every query waits for this
    except OSError:
        return None
    changed = found.st_mtime_ns
    is_coarse = changed % 1_000_000_000 == 0
    age = time.time_ns() - changed
    return None if is_coarse or age < MTIME_RESOLUTION_NS else (found.st_ino, changed)
