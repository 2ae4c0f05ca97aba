"""Transactions of Lance datasets: staging a change, its files, and the strict commit.

A dataset is addressed by its absolute URI and its physical ref. Staging a change writes data files
and returns a Lance transaction. Nothing is visible, not even to Lance, before `commit_strict`
commits it as exactly the next version. The owner of a version is determined by the transaction
uuid in it, never by its number.
"""

from __future__ import annotations

import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceFragment, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.effects.failures import FailureClass, StoreFull, StoreUnavailable
from omnigraph.effects.local_disk import files_below
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.model.arrow import BLOB_STORAGE, ID
from omnigraph.model.records import dataclass
from omnigraph.model.types import ROW_ADDRESS
from omnigraph.storage.damage import cut_off, damaged_version
from omnigraph.storage.failures import (
    LIBRARY_ERRORS,
    count_lance,
    hint_of,
    is_missing,
    is_of_a_library,
    lance_errors,
    lance_failure,
    sentence_of,
    store_failure,
    translated,
    version_file,
)
from omnigraph.storage.fragments import (
    FRAGMENT_SHIFT,
    LOOKUP_VALUES_MAX,
    OFFSET_MASK,
    Positions,
    fragment_json,
    rows_where_in,
)
from omnigraph.storage.written import replacing_rows, written_fragments

StagedTransaction: TypeAlias = Transaction
"""A transaction with written data files that is not committed yet."""

HINT = "latest_version_hint.json"
"""Lance's hint of the newest version, in the folder of versions; it may be wrong or missing."""


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """One dataset on one physical ref."""

    uri: str
    """Absolute URI of the dataset root, in canonical spelling: branches contain it."""
    ref: str | None = None
    """Physical ref, or None for main."""

    @classmethod
    def at(cls, address: str) -> DatasetRef:
        """The dataset and ref of an address."""
        uri, _, ref = address.partition("/tree/")
        return cls(uri, ref or None)

    @property
    def address(self) -> str:
        """The URI for opening it."""
        return self.uri if self.ref is None else f"{self.uri}/tree/{self.ref}"

    def on(self, ref: str | None) -> DatasetRef:
        """The same dataset on another ref."""
        return DatasetRef(self.uri, ref)


# --- staging --------------------------------------------------------------------------------------

INDEXED_BYTES_MAX = 64 << 20
"""The most bytes of rows for which an upsert may use an index on ids. With an index Lance joins
whole rows in a pool of 300 MB, and fails if they do not fit. For more rows, scanning all ids is
faster anyway."""


@translated
def stage_append(handle: LanceDataset, rows: pa.Table, uuid: str) -> Transaction:
    """Insert rows whose ids are known to be new."""
    count_lance("stage", handle.uri)
    return appended(handle, rows, uuid)


def appended(handle: LanceDataset, rows: pa.Table, uuid: str) -> Transaction:
    """`stage_append` without counting the call, for a draft on this machine."""
    transaction = write_fragments(
        rows, handle, return_transaction=True, allow_external_blob_outside_bases=True
    )
    return replace(transaction, uuid=uuid)


@translated
def stage_upsert(handle: LanceDataset, rows: pa.Table, uuid: str) -> Transaction:
    """Insert rows or replace those with the same id; ids must be unique within ``rows``.

    Lance cannot upsert external blobs. Rows with such blobs are appended, and the rows they replace
    deleted, in the same transaction.
    """
    if _has_references(rows):
        return stage_in_place_of(
            handle, rows, offsets_by_fragment(handle, rows[ID].combine_chunks()), uuid
        )
    count_lance("stage", handle.uri)
    transaction, _ = (
        handle.merge_insert(ID)
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .use_index(rows.nbytes <= INDEXED_BYTES_MAX)
        .execute_uncommitted(rows)
    )
    return replace(transaction, uuid=uuid)


def _has_references(rows: pa.Table) -> bool:
    columns = (
        rows[name] for name in rows.schema.names if rows.schema.field(name).type == BLOB_STORAGE
    )
    return any(pc.any(pc.is_valid(pc.struct_field(each, "uri"))).as_py() for each in columns)


def offsets_by_fragment(handle: LanceDataset, ids: pa.Array) -> dict[int, Positions]:
    """By fragment id: the offsets of the rows with some ids."""
    found = rows_where_in(handle, ID, ids, [ID], with_row_address=True)
    addresses = found[ROW_ADDRESS].combine_chunks().to_numpy()
    fragments, offsets = addresses >> FRAGMENT_SHIFT, addresses & OFFSET_MASK
    return {
        int(fragment): offsets[fragments == fragment].astype(np.int64)
        for fragment in np.unique(fragments)
    }


def stage_in_place_of(
    handle: LanceDataset,
    rows: pa.Table,
    gone: Mapping[int, Positions],
    uuid: str,
    written: Sequence[str] = (),
) -> Transaction:
    """Add rows and delete others, given as offsets by fragment id, in one transaction.

    ``written`` are fragments in JSON form, written to the ref before, which are added too.
    """
    count_lance("stage", handle.uri)
    updated, removed, added = [], [], written_fragments(handle, written)
    with lance_errors(handle):
        for fragment_id, offsets in gone.items():
            fragment = handle.get_fragment(fragment_id)
            assert fragment is not None
            left = fragment.delete_rows(offsets.tolist())
            if left is None:
                removed.append(fragment_id)
            else:
                updated.append(left)
        if rows.num_rows:
            added += write_fragments(
                rows, handle, mode="append", allow_external_blob_outside_bases=True
            )
    operation = replacing_rows(handle, removed, updated, added)
    return Transaction(handle.version, operation, uuid=uuid)


@translated
def stage_delete(handle: LanceDataset, ids: pa.Array, uuid: str) -> Transaction:
    """Delete the rows with these ids, which must exist: Lance would commit a no-op, too."""
    count_lance("stage", handle.uri)
    keys = pa.table([ids], schema=pa.schema([handle.schema.field(ID)]))
    transaction, _ = handle.merge_insert(ID).when_matched_delete().execute_uncommitted(keys)
    return replace(transaction, uuid=uuid)


@translated
def stage_replace(handle: LanceDataset, rows: pa.Table, uuid: str) -> Transaction:
    """Replace all rows of the table, in one transaction; ``rows`` may be empty."""
    count_lance("stage", handle.uri)
    fragments = []
    if rows.num_rows:
        fragments = write_fragments(
            rows, handle, mode="overwrite", allow_external_blob_outside_bases=True
        )
    operation = LanceOperation.Overwrite(handle.schema, fragments)
    return Transaction(handle.version, operation, uuid=uuid)


def stage_restore(handle: LanceDataset, version: int, uuid: str) -> Transaction:
    """Restore the content of an older version as the next version.

    Lance never rejects a stale restore, so the caller must hold the table and check its head.
    """
    return Transaction(handle.version, LanceOperation.Restore(version), uuid=uuid)


def adds_only(staged: Transaction) -> bool:
    """Whether a staged transaction only adds rows."""
    return _added_fragments(staged) is not None


def added_fragments(staged: Transaction) -> list[str]:
    """The fragments that a transaction adds, in the JSON form of Lance."""
    return [json.dumps(fragment_json(each)) for each in _added_fragments(staged) or ()]


def append_of(fragments: Sequence[str], rows: int, uuid: str) -> Transaction:
    """A transaction that adds fragments which another process has written.

    It has no read version yet. Raises `ValueError` unless they are plain files of the table itself
    and have ``rows`` rows in all.
    """
    added = [FragmentMetadata.from_json(each) for each in fragments]
    for each in added:
        if each.deletion_file is not None or any(
            file.base_id is not None or "/" in file.path or file.path.startswith(".")
            for file in each.files
        ):
            raise ValueError("a fragment names other files than its own")
    if sum(each.physical_rows for each in added) != rows:
        raise ValueError("the fragments have other rows")
    return Transaction(0, LanceOperation.Append(added), uuid=uuid)


SCANNED_ROWS_MAX = 10_000
"""Reading up to so many ids is faster than planning a filter for them."""


def restage_new_rows(
    staged: Transaction, on: LanceDataset, newer: LanceDataset, ids: pa.Array | None, uuid: str
) -> Transaction | None:
    """A transaction that adds the rows of ``staged`` to ``newer`` instead of the version ``on``.

    None if ``staged`` does more than add rows, or if one of ``ids`` was added since ``on``;
    ``ids`` None means that they are known to be new. Both versions are of the same ref and have the
    same columns.
    """
    added = _added_fragments(staged)
    if added is None or (ids is not None and _holds_any(_changed(on, newer), newer, ids)):
        return None
    # Remove row ids, which the commit assigns: those of the older version may be taken.
    fragments = [replace(fragment, row_id_meta=None) for fragment in added]
    return Transaction(newer.version, LanceOperation.Append(fragments), uuid=uuid)


def holds_any(table: LanceDataset, ids: pa.Array) -> bool:
    """Whether a table has a row with one of ``ids``."""
    if table.count_rows() > SCANNED_ROWS_MAX:
        return bool(rows_where_in(table, ID, ids, [ID]).num_rows)
    return _holds_any(table.get_fragments(), table, ids)


def _added_fragments(staged: Transaction) -> list[FragmentMetadata] | None:
    """The fragments of a transaction that only adds some; None for other transactions."""
    match staged.operation:
        case LanceOperation.Append(fragments=added):
            return list(added)
        case LanceOperation.Update(
            removed_fragment_ids=[], updated_fragments=[], new_fragments=added
        ):
            return list(added)
        case _:
            return None


def _changed(on: LanceDataset, newer: LanceDataset) -> list[LanceFragment]:
    """The fragments of ``newer`` that may have rows which ``on`` does not have.

    The rows of a fragment never change, and ids are never reused. But a restore can bring deleted
    rows back: the fragment then has another deletion file or none.
    """
    known = {(each.fragment_id, each.deletion_file()) for each in on.get_fragments()}
    return [
        each
        for each in newer.get_fragments()
        if (each.fragment_id, each.deletion_file()) not in known
    ]


def _holds_any(fragments: list[LanceFragment], table: LanceDataset, ids: pa.Array) -> bool:
    if not fragments:
        return False
    is_selective = sum(each.physical_rows for each in fragments) > SCANNED_ROWS_MAX
    if not is_selective:
        return bool(pc.any(pc.is_in(_ids_of(fragments, table), value_set=ids)).as_py())
    count_lance("lookup", table.uri)
    wanted = pc.field(ID).isin(ids) if len(ids) <= LOOKUP_VALUES_MAX else None
    with lance_errors(table):
        found = table.scanner(
            columns=[ID], filter=wanted, fragments=fragments, use_scalar_index=False
        ).to_table()
    return bool(pc.any(pc.is_in(found[ID], value_set=ids)).as_py())


_FRAGMENTS_KNOWN_MAX = 4_096
_IDS_KEPT_MAX = 256
"""The most rows of a fragment whose ids are cached: there are few larger fragments."""
_FragmentState = tuple[str, tuple[str, ...], str]
_known_ids: OrderedDict[_FragmentState, pa.Array] = OrderedDict()
"""By dataset, data files and deletion file of a small fragment: its ids. Files are immutable, so
the same files always have the same rows. Saves a request per fragment on an object store, and
opening up to 64 files on local disk."""


def _ids_of(fragments: list[LanceFragment], table: LanceDataset) -> pa.ChunkedArray:
    """The ids in some small fragments; reads only fragments that are not cached."""
    states = {each.fragment_id: _state_of(each, table.uri) for each in fragments}
    found = {state: _known_ids.get(state) for state in states.values()}
    unknown = [each for each in fragments if found[states[each.fragment_id]] is None]
    if unknown:
        count_lance("lookup", table.uri)
        with lance_errors(table):
            read = table.scanner(
                columns=[ID], fragments=unknown, with_row_address=True, use_scalar_index=False
            ).to_table()
        of_rows = read[ROW_ADDRESS].to_numpy() >> FRAGMENT_SHIFT
        for each in unknown:
            ids = read[ID].filter(pa.array(of_rows == each.fragment_id)).combine_chunks()
            found[states[each.fragment_id]] = ids
            _keep_ids(states[each.fragment_id], ids)
    return pa.chunked_array([ids for ids in found.values() if ids is not None], pa.string())


def _state_of(fragment: LanceFragment, address: str) -> _FragmentState:
    files = tuple(file.path for file in fragment.data_files())
    return address, files, f"{fragment.deletion_file()}"


def know_ids(handle: LanceDataset, staged: Transaction, ids: pa.Array) -> None:
    """Cache the ids of rows that were written, before they are committed."""
    added = _added_fragments(staged) or []
    if len(added) == 1:
        files = tuple(str(file.path) for file in added[0].files)
        _keep_ids((handle.uri, files, f"{None}"), ids)


def _keep_ids(state: _FragmentState, ids: pa.Array) -> None:
    if len(ids) <= _IDS_KEPT_MAX:
        _known_ids[state] = ids
        while len(_known_ids) > _FRAGMENTS_KNOWN_MAX:
            _known_ids.popitem(last=False)


# --- the files of a transaction -------------------------------------------------------------------


def _new_fragments(transaction: Transaction) -> Iterator[Any]:
    operation = transaction.operation
    yield from getattr(operation, "fragments", None) or ()
    yield from getattr(operation, "new_fragments", None) or ()
    for group in getattr(operation, "groups", None) or ():
        yield from group.new_fragments


def require_whole(address: str, transaction: Transaction) -> None:
    """Raise `CommitLost`, with the full disk as its cause, if a new file is truncated.

    Lance writes the last bytes of a local file in a thread and ignores the result: on a full disk
    the file is truncated although the write succeeds. Lance itself checks the lengths of blob
    files.
    """
    for fragment in _new_fragments(transaction):
        for file in fragment.files:
            path = f"{address}/data/{file.path}"
            try:
                size = os.stat(path).st_size  # noqa: PTH116 - every write waits for this
            except FileNotFoundError:
                continue  # an existing file at another place, which is taken over
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


def transaction_file(directory: Path, transaction: Transaction) -> Path:
    """The separate file of a transaction on local disk; the version file has a copy."""
    return directory / "_transactions" / f"{transaction.read_version}-{transaction.uuid}.txn"


def new_files(directory: Path, transaction: Transaction) -> Iterator[Path]:
    """The new files of a commit on local disk, its transaction included, without its version."""
    yield transaction_file(directory, transaction)
    yield from new_data(directory, transaction)


def new_data(
    directory: Path, transaction: Transaction, before: LanceDataset | None = None
) -> Iterator[Path]:
    """The new data, deletion and index files that a transaction lists."""
    for name, _ in new_names(transaction, before):
        file = directory / name
        # A fragment may keep its deletion file, which stays in the folder of another ref.
        if name.endswith(".lance") or file.exists():
            yield file
        # Large blobs are stored in a directory with the name of the data file.
        if name.endswith(".lance") and (blobs := file.with_suffix("")).is_dir():
            yield from blobs.glob("*.blob")
    for index in getattr(transaction.operation, "new_indices", None) or ():
        yield from files_below(directory / "_indices" / index.uuid)


def new_names(
    transaction: Transaction, before: LanceDataset | None
) -> Iterator[tuple[str, int | None]]:
    """New data and deletion files of a commit: names in the folder of the ref, and sizes.

    ``before`` is the version that the transaction was staged on, whose files are left out: a
    transaction that adds a column to every fragment also lists their previous files.
    """
    operation = transaction.operation
    known: set[str] = set()
    if before is not None and isinstance(operation, LanceOperation.Merge):
        known = {file.path for each in before.get_fragments() for file in each.data_files()}
    for fragment in _new_fragments(transaction):
        for file in fragment.files:
            # A file with a base is shared with the ref that the branch was forked from.
            if file.base_id is None and file.path not in known:
                yield f"data/{file.path}", file.file_size_bytes
    for fragment in getattr(operation, "updated_fragments", None) or ():
        if fragment.deletion_file is not None:
            yield fragment.deletion_file.path(fragment.id), None


def fork_files(where: DatasetRef) -> set[Path]:
    """The entry of a ref, and its present versions and transactions."""
    dataset, folder = Path(where.uri), Path(where.address)
    made = (file for part in ("_versions", "_transactions") for file in (folder / part).glob("*"))
    return {dataset / "_refs/branches" / f"{where.ref}.json", *made} - {folder / "_versions" / HINT}


def version_file_of(handle: LanceDataset) -> Path:
    """The file of a handle's version, on local disk."""
    return version_file(handle.uri, handle.version)


# --- committing -----------------------------------------------------------------------------------


class CommitLost(OmnigraphError):
    """A staged transaction was rejected and has no effect."""


class CommitNotOwned(OmnigraphError):
    """A commit landed, but not as the next version, so it may be based on changes of others."""


class CommitOutcomeUnknown(OmnigraphError):
    """The reply of the store was lost: the commit may have landed."""


def _is_local(handle: LanceDataset) -> bool:
    return "://" not in handle.uri


def latest_version(handle: LanceDataset) -> int:
    """The newest version of a handle's ref: one cheap probe.

    Raises `NotFound` if the ref was deleted since the handle was opened.
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


SIDECAR_DIGEST = "sidecar"
"""The transaction property with the digest of the sidecar that announces it."""


def announce(
    transaction: Transaction, operation_id: str | None, sidecar_digest: str | None
) -> None:
    """Write the operation id and the digest of the sidecar into a transaction."""
    if operation_id is not None:
        properties = {"operation": operation_id}
        if sidecar_digest is not None:
            properties[SIDECAR_DIGEST] = sidecar_digest
        transaction.transaction_properties = properties


def transaction_uuid(handle: LanceDataset, version: int) -> str | None:
    """The uuid of the transaction that made ``version``; None if that version does not exist."""
    transaction = read_transaction(handle, version)
    return None if transaction is None else str(transaction.uuid)


def sidecar_digest_of(handle: LanceDataset, version: int, uuid: str) -> str | None:
    """The digest in the transaction that made ``version``, if that is the one with this uuid.

    None if there is no such transaction, or if an older release wrote it without a digest.
    """
    transaction = read_transaction(handle, version)
    if transaction is None or str(transaction.uuid) != uuid:
        return None
    digest = (transaction.transaction_properties or {}).get(SIDECAR_DIGEST)
    return None if digest is None else str(digest)


def transaction_property(handle: LanceDataset, version: int, name: str) -> str | None:
    """A property of the transaction that made a version; None if there is none."""
    transaction = read_transaction(handle, version)
    found = None if transaction is None else (transaction.transaction_properties or {}).get(name)
    return None if found is None else str(found)


def read_transaction(handle: LanceDataset, version: int) -> Transaction | None:
    """The transaction that made ``version``; None if that version does not exist."""
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
"""How often a commit is sent to an object store that does not receive it."""


def commit_strict(handle: LanceDataset, transaction: Transaction) -> LanceDataset:
    """Commit a staged transaction as exactly the next version, and verify that it is ours.

    Lance rebases a stale transaction silently, and a failed call may have landed. So a commit is
    successful only if the version after the one it was staged on has its uuid. A request that did
    not reach an object store is sent again, which is safe: that version can be created only once.

    Raises `CommitLost` if it certainly had no effect, `CommitNotOwned` if it landed after versions
    of others, `CommitOutcomeUnknown` if the store does not reply.
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
    """The landed version after a failed call; raises the error for the outcome otherwise."""
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
    reason = "another writer was first" if is_conflict(error) else sentence_of(error)
    raise CommitLost(
        f"a commit to {handle.uri} was rejected: {reason}",
        hint=hint_of(error),
        details={"conflict": is_conflict(error)},
    ) from (store_failure(handle.uri, error) or error)


def is_conflict(error: Exception) -> bool:
    """Whether Lance rejected a commit because of a concurrent one."""
    return isinstance(error, CommitConflictError) or "Too many concurrent writers" in str(error)


# --- the newest version ---------------------------------------------------------------------------
#
# Every query needs it, and listing versions takes longer the more there are. While inode and mtime
# of the directory stay the same, no version was added since the last listing.

MTIME_RESOLUTION_NS = 50_000_000
"""File systems record time in steps of some milliseconds: a directory that changed more recently
than this may change again with the same mtime."""

_KNOWN_MAX = 4_096
_Fingerprint = tuple[int, int]
_known: dict[str, tuple[_Fingerprint, int]] = {}
"""By directory: its inode and mtime fingerprint, and the newest version at that time."""


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
    """Inode and mtime; None if a further change might not change them."""
    try:
        found = os.stat(directory)  # noqa: PTH116 - every query waits for this
    except OSError:
        return None
    changed = found.st_mtime_ns
    is_coarse = changed % 1_000_000_000 == 0
    age = time.time_ns() - changed
    return None if is_coarse or age < MTIME_RESOLUTION_NS else (found.st_ino, changed)
