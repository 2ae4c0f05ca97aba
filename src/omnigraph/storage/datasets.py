"""The Lance datasets of a root: opening them by address, committing to them, their refs.

A dataset is addressed by its absolute URI, its physical ref and a version. A ref other than main is
stored under `tree/<ref>` and is always opened by that URI: a handle made by checking a branch out
of the root would write to the root.
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
"""How many versions that this process has just committed to an object store are cached."""

_LISTINGS_MAX = 10
"""How often a listing is restarted because an entry was removed meanwhile."""

INDEX_BYTES_MIN = 32 << 20
"""A smaller cache makes lookups read the same pages of an index repeatedly."""
METADATA_BYTES_MIN = 16 << 20
METADATA_BYTES_MAX = 64 << 20
"""Lance caches metadata of every version it has read; only recent ones are useful."""


def _bounded_session() -> Any:
    """A session with caches of the memory configured for tables; Lance's defaults are 7 GB."""
    limit = bytes_from_environment(CACHE_BYTES_VARIABLE)
    return lance.Session(  # type: ignore[attr-defined]
        index_cache_size_bytes=max(INDEX_BYTES_MIN, limit // 4),
        metadata_cache_size_bytes=max(METADATA_BYTES_MIN, min(limit // 8, METADATA_BYTES_MAX)),
    )


@dataclass(slots=True)
class Flushes:
    """The files of one operation on local disk that still have to be flushed.

    Files that a commit lists are flushed before it: after a power loss recovery may find the
    version, and publishes it. Files that the commit itself writes are flushed together with those
    of the other commits of the operation.
    """

    done: set[Path] = field(default_factory=set)
    due: set[Path] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class DraftedCommit:
    """A commit to a dataset on an object store that was prepared here and not sent yet."""

    before: LanceDataset
    transaction: Transaction
    version: DraftedVersion
    landed: LandedDataset
    """The new version, which can be read after it was sent."""


@dataclass(slots=True)
class LanceStore:
    """The datasets of one root: one set of storage options, one shared metadata cache."""

    root: Root
    durability: Durability = Durability.DISK
    is_pinned: Callable[[DatasetRef, int], bool] = field(default=lambda where, version: False)
    """Whether a live branch shows a version, so that cleanup keeps it; called after failures."""
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
        """For workers: with their own caches, and credentials from their environment."""
        return LanceStore, (self.root, self.durability)

    def open(self, where: DatasetRef, version: int | None = None) -> LanceDataset:
        """The dataset at ``version``, by default the newest.

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
            # The message of Lance for a missing dataset adds nothing.
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
        """Commit strictly (see `commit_strict`) and flush to local disk, if that is configured.

        ``operation_id`` is written into the transaction for readers of the table's history, and
        ``sidecar_digest`` for recovery (see `sidecar_digest_of`). With ``flushes``, the files that
        the commit itself writes are flushed later, by `flush_commits`.
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
        # The files that the commit lists exist already: fetch them while the commit runs.
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
        """Prepare a commit to a dataset on an object store; `land` sends it.

        None if Lance has to make the commit itself.
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
        """Send a commit, which is durable afterwards; raises like `commit_strict`."""
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
        """Compute the digests of files that a commit lists; fetches files not written here."""
        digests = self.digests.of_remote(drafted.before, drafted.transaction)
        self.digests.remember(drafted.version.address, drafted.version.version, digests)

    def stage_apart(
        self,
        handle: LanceDataset,
        stage: Callable[[LanceDataset], Transaction | None],
        *,
        only_adds: bool,
    ) -> tuple[Transaction, WrittenFiles] | None:
        """Stage a change of a dataset on an object store locally; the caller uploads the files.

        For small changes that read only metadata. A change that ``only_adds`` rows may be staged on
        any version with the same columns. None if it has to be staged in the store, which ``stage``
        may also decide by returning None.
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
        """Insert the rows whose key does not exist yet.

        Lance repeats the merge after concurrent commits. With a declared primary key, only one of
        two concurrent inserts of the same key succeeds.
        """
        dataset = self.open(where)
        count_lance("commit", where.address)
        known = self._present(where)
        with lance_errors(dataset):
            dataset.merge_insert(key).when_not_matched_insert_all().execute(rows)
        self._finish_files(where, known)

    def append(self, where: DatasetRef, rows: pa.Table, uuid: str) -> None:
        """Append rows to an append-only dataset, despite concurrent appends and compactions.

        Appends do not conflict, so Lance rebases this one onto them. After an error the rows may
        still have landed, so a retry can duplicate them: readers have to skip duplicates.
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

        ``indexes`` are columns and the kind of index of each. Versions older than ``keep`` are
        removed: no reader needs them, but a concurrent commit is compared with the version it
        started from. Returns the version, and the numbers of fragments before and after.
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
                # Another process compacted at the same time, with the same result.
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
        # Lance forks only listed versions of the same ref, so open the parent on its ref.
        parent = self.open(where, version)
        with lance_errors(parent):
            parent.create_branch(ref, version)
        self._finish_fork(where.on(ref))
        return self.open(where.on(ref))

    def delete_ref(self, where: DatasetRef) -> None:
        """Remove a physical ref, if it exists."""
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
                # Lance lists the names and then reads each: it fails if one is removed in between.
                if not is_missing(error):
                    raise lance_failure(dataset, error) from error
        raise StorageError(
            f"the refs of {where.uri} could not be listed: they kept changing", hint="try again"
        )

    # --- files on local disk --------------------------------------------------------------------

    def flush_staged(
        self, staged: Iterable[tuple[LanceDataset, Transaction]], flushes: Flushes
    ) -> None:
        """Flush the files that transactions list to local disk, before the first is committed."""
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
        """Flush the files that all commits have written to local disk."""
        if (root := self.root.path) is not None:
            flush_tree(root, flushes.due, self.durability, flushes.done)
            flushes.due.clear()

    def flush_versions(self, where: DatasetRef, after: int, version: int) -> None:
        """Flush versions that another process may have committed to local disk, with their data.

        Versions before the last may have been removed, or have an operation that Lance cannot show.
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
                    # The version file contains the transaction, whose own file may be missing.
                    folder = Path(handle.uri)
                    files.update(new_data(folder, transaction, before))
                    files.update(filter(Path.exists, [transaction_file(folder, transaction)]))
        flush_tree(root, files, self.durability)

    def remove_cut_off(self, where: DatasetRef, above: int) -> None:
        """Remove version files above a version that a power loss has truncated.

        Only for the owner of a branch: flushed commits and running ones have complete files. With
        ``above`` 0, a truncated entry of a fork is removed, too.
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
        """Flush a fork to local disk, in case the process that made it was killed before."""
        if (root := self.root.path) is not None:
            flush_tree(root, fork_files(where), self.durability)

    def _finish_commit(
        self,
        landed: LanceDataset,
        transaction: Transaction,
        flushes: Flushes,
        before: LanceDataset | None = None,
    ) -> None:
        """Record and digest the files of a commit on local disk, where Lance flushes nothing."""
        if (root := self.root.path) is None:
            return
        folder = Path(landed.uri)
        added = {version_file_of(landed), transaction_file(folder, transaction)}
        flushes.due |= added
        files = {*added, *new_data(folder, transaction, before)}
        self.digests.of_commit(root, landed, files)

    def _present(self, where: DatasetRef) -> frozenset[Path]:
        """The present files of a dataset on local disk."""
        return frozenset() if self.root.path is None else files_below(Path(where.address))

    def _finish_files(self, where: DatasetRef, known: frozenset[Path]) -> None:
        """Flush and digest files that Lance itself added to a dataset with ``known`` files."""
        if (root := self.root.path) is None:
            return
        new = self._present(where) - known
        flush_tree(root, new, self.durability)
        self.digests.list_new(root, where, new)

    def _finish_fork(self, where: DatasetRef) -> None:
        """Flush and digest the files of a new fork."""
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
            # Recognise errors of the OS or the store before examining files.
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
        # Cleanup keeps versions that a branch shows, so this one is lost.
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
    """The number of fragments of a version, from its metadata."""
    with lance_errors(handle):
        return len(handle.fragment_ids())


def row_count(handle: LanceDataset, version: int) -> int:
    """The number of rows of one version, from its metadata."""
    with lance_errors(handle):
        rows: int = handle.checkout_version(version).count_rows()
    return rows
