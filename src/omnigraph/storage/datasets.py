"""The Lance datasets of a root: opening them by address, committing to them, their refs.

A dataset is addressed by its absolute URI, its physical ref and a version. A ref other than main
lives under `tree/<ref>` and is always opened by that URI: a handle made by checking a branch out of
the root would write to the root.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import lance
import orjson
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.effects.local_disk import Durability, files_below, flush_tree
from omnigraph.effects.requests import concurrently
from omnigraph.effects.uri import Root
from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.model.governor import CACHE_BYTES_VARIABLE, bytes_from_environment
from omnigraph.model.records import dataclass
from omnigraph.storage.damage import cut_off, damaged_version, missing
from omnigraph.storage.digests import CommitDigests
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
    version_file,
    version_named,
)
from omnigraph.storage.layout import FILE_FORMAT, MANIFEST
from omnigraph.storage.transactions import (
    CommitLost,
    CommitOutcomeUnknown,
    DatasetRef,
    announce,
    commit_strict,
    fork_files,
    is_conflict,
    new_data,
    new_names,
    read_transaction,
    require_whole,
    transaction_file,
    version_file_of,
)

Handle: TypeAlias = LanceDataset
"""An open dataset at one version; rooms above pass it on without knowing Lance."""


_LANDED_MAX = 64
"""Versions of an object store that this process has just made, and need not be opened again."""

_LISTINGS_MAX = 10
"""How often a listing is begun again because something in it was removed meanwhile."""

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
    is_local: bool = field(init=False)
    """Whether the datasets are files of this machine."""
    digests: CommitDigests = field(init=False)
    _drafts: Drafts = field(init=False)
    _landed: OrderedDict[tuple[str, int], LandedDataset] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.is_local = self.root.is_local
        self.digests = CommitDigests(self.root, self.open)
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
            if self.is_local:
                require_whole(where.address, transaction)
                self._flush_data(new_data(Path(where.address), transaction), flushes)
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
        announce(transaction, operation_id, sidecar_digest)
        if self.is_local:
            require_whole(handle.uri, transaction)
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
            partial(self.digests.of_remote, handle, transaction),
            threads=True,
        )
        self.digests.remember(landed.uri, landed.version, digests)
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
        if self.is_local:
            return None
        draft: Draft | None = handle.draft if isinstance(handle, LandedDataset) else None
        if draft is None or not draft.is_usable:
            draft = self._drafts.of(handle)
        if draft is None:
            return None
        announce(transaction, operation_id, sidecar_digest)
        version = self._drafts.next(draft, handle.uri, transaction)
        if version is None:
            return None
        opened = partial(self._opened, DatasetRef.at(handle.uri), version.version)
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
        digests = self.digests.of_remote(drafted.before, drafted.transaction)
        self.digests.remember(drafted.version.address, drafted.version.version, digests)

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
        if self.is_local:
            return None
        draft = self._drafts.to_write(handle) if only_adds else self._drafts.of(handle)
        if draft is None:
            return None
        transaction = stage(draft.handle)
        if transaction is None:
            return None
        names = (name for name, _ in new_names(transaction, None))
        written = self._drafts.written(draft, handle.uri, names)
        self.digests.sent(handle, written.digests)
        return replace(transaction, read_version=handle.version), written

    def insert_new(self, where: DatasetRef, key: str, rows: pa.Table) -> None:
        """Insert the rows whose key is not there yet.

        Lance repeats the merge when others commit at once; with a declared primary key, of two
        that insert one key only the first does.
        """
        dataset = self.open(where)
        count_lance("commit", where.address)
        known = self._present(where)
        with lance_errors(dataset):
            dataset.merge_insert(key).when_not_matched_insert_all().execute(rows)
        self._finish_files(where, known)

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
            if self.is_local:
                require_whole(where.address, transaction)
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
        known = self._present(where)
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
                if not is_conflict(error) and "preempted by concurrent" not in str(error):
                    raise
        self._finish_files(where, known)
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
        self._finish_fork(where.on(ref))
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
        self.digests.forget(where)

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

    # --- files on local disk --------------------------------------------------------------------

    def flush_staged(
        self, staged: Iterable[tuple[LanceDataset, Transaction]], flushes: Flushes
    ) -> None:
        """Put the files that transactions list on local disk, before the first is committed."""
        if self.root.path is None or self.durability is Durability.PROCESS:
            return
        files = {
            file
            for handle, transaction in staged
            for file in new_data(Path(handle.uri), transaction, handle)
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
        files = {version_file_of(self.open(where, version))}
        for number in range(after + 1, version + 1):
            with suppress(*LIBRARY_ERRORS, TypeError, OmnigraphError):
                handle = self.open(where, number)
                files.add(version_file_of(handle))
                transaction = read_transaction(handle, number)
                if transaction is not None:
                    before = self.open(where, number - 1) if number > 1 else None
                    # The version has a copy of its transaction: the file of it may be lost.
                    folder = Path(handle.uri)
                    files.update(new_data(folder, transaction, before))
                    files.update(filter(Path.exists, [transaction_file(folder, transaction)]))
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
            flush_tree(root, fork_files(where), self.durability)

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
        added = {version_file_of(landed), transaction_file(folder, transaction)}
        flushes.due |= added
        files = {*added, *new_data(folder, transaction, before)}
        self.digests.of_commit(root, landed, files)

    def _present(self, where: DatasetRef) -> frozenset[Path]:
        """The files that a dataset has on local disk now."""
        return frozenset() if self.root.path is None else files_below(Path(where.address))

    def _finish_files(self, where: DatasetRef, known: frozenset[Path]) -> None:
        """The same for files that Lance added by itself to a dataset with ``known``."""
        if (root := self.root.path) is None:
            return
        new = self._present(where) - known
        flush_tree(root, new, self.durability)
        self.digests.list_new(root, where, new)

    def _finish_fork(self, where: DatasetRef) -> None:
        """The same for the files of a new fork."""
        if (root := self.root.path) is None:
            return
        files = fork_files(where)
        flush_tree(root, files, self.durability)
        self.digests.list_new(root, where, files)

    def _open_error(
        self, where: DatasetRef, version: int | None, error: BaseException
    ) -> OmnigraphError:
        if not is_missing(error):
            failure = lance_failure(where.address, error)
            # Errors of the OS or the store are recognised first, before a file is examined.
            if hint_of(error) is not None or not self.is_local:
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
        if self.is_local and version_file(where.address, version).exists():
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


def fragment_count(handle: LanceDataset) -> int:
    """How many fragments a version has; known from its metadata."""
    with lance_errors(handle):
        return len(handle.fragment_ids())


def row_count(handle: LanceDataset, version: int) -> int:
    """The number of rows of one version, from its metadata."""
    with lance_errors(handle):
        rows: int = handle.checkout_version(version).count_rows()
    return rows
