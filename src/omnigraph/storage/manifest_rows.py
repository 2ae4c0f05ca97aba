"""The kinds of rows of `__manifest`, their encoding in columns, and the internal schema stamp.

Rows are decoded by `object_type` from their columns; `object_id` is a key and is never parsed. The
stamp of the internal schema is in the schema metadata, so it is checked before rows are decoded. A
stamp that contradicts the columns is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, field, fields
from typing import Any, Literal, NamedTuple, TypeAlias

import orjson
import pyarrow as pa
from lance import LanceDataset

from omnigraph.effects.uri import Root
from omnigraph.errors import RootMoved, StorageError, UnsupportedStorageVersion
from omnigraph.model.ids import INTERNAL_SCHEMA_VERSION, SCHEMA_APPLY_LOCK, EntityKind
from omnigraph.model.receipts import CommitInfo, CommitKind, LoadedType, MergedRequest, TagInfo
from omnigraph.model.records import dataclass
from omnigraph.storage.layout import MAIN

STAMP_KEY = b"omnigraph:internal_schema_version"

SCHEMA = pa.schema(
    [
        pa.field(
            "object_id",
            pa.string(),
            nullable=False,
            metadata={b"lance-schema:unenforced-primary-key": b"true"},
        ),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("item", pa.string()))),
        pa.field("table_key", pa.string()),
        pa.field("stable_table_id", pa.uint64()),
        pa.field("table_incarnation_id", pa.uint64()),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.string()),
        pa.field("row_count", pa.uint64()),
        pa.field("commit_seq", pa.uint64()),
    ],
    metadata={STAMP_KEY: str(INTERNAL_SCHEMA_VERSION).encode()},
)
"""The columns of `__manifest`, with the current stamp."""


class TableIdentity(NamedTuple):
    """Stable type id and incarnation: never reused, unchanged by renames."""

    type_id: int
    incarnation_id: int


@dataclass(frozen=True, slots=True)
class TableRow:
    """Registration of a table: its current type key and its location."""

    identity: TableIdentity
    table_key: str
    location: str
    commit_seq: int = 0


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A published pin: this version of the table is visible from ``commit_seq`` on."""

    identity: TableIdentity
    version: int
    ref: str | None
    """Physical ref that holds the version; None is main."""
    row_count: int
    commit_seq: int = 0
    digests: str | None = field(default=None, compare=False, repr=False)
    """Digests of the files that the version added, for `scrub`; `decode_rows` skips them."""


@dataclass(frozen=True, slots=True)
class TombstoneRow:
    """The table is dropped, up to and including ``version``."""

    identity: TableIdentity
    version: int
    commit_seq: int


@dataclass(frozen=True, slots=True)
class CommitRow:
    """One graph commit."""

    commit_id: str
    branch: str | None
    """Branch it landed on; None is main."""
    manifest_version: int
    commit_seq: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    kind: CommitKind
    schema_hash: str
    created_at: int
    """Microseconds since 1970."""
    recovered_by: str | None = None
    recovery_operation_id: str | None = None
    operation_id: str | None = None
    """The caller's idempotency key, by which a repeated request finds the first receipt."""
    receipt: Mapping[str, Any] | None = None
    """Counts of the write, for the receipt of a repeated request; its message and metadata."""

    @property
    def message(self) -> str | None:
        """The message of its author."""
        return (self.receipt or {}).get("message")

    @property
    def metadata(self) -> Mapping[str, Any] | None:
        """Metadata that the writing program stored with it."""
        return (self.receipt or {}).get("metadata")

    def affected(self, kind: EntityKind) -> int | None:
        """The number of inserted, updated and deleted nodes or edges; None if it was not recorded.

        Mutations, merges and replays store the two numbers, and loads their counts by type.
        """
        stored = self.receipt or {}
        if f"affected_{kind}s" in stored:
            return int(stored[f"affected_{kind}s"])
        if self.kind == "load" and f"{kind}s" in stored:
            loaded = (LoadedType(*counts) for counts in stored[f"{kind}s"])
            return sum(each.inserted + each.updated for each in loaded)
        return None

    @property
    def change_request(self) -> MergedRequest | None:
        """The change request that it merged."""
        found = (self.receipt or {}).get("change_request")
        return None if found is None else MergedRequest.from_dict(found)


@dataclass(frozen=True, slots=True)
class HeadRow:
    """The head of a branch; every publish rewrites it, so that publishes contend on it."""

    branch: str
    commit_id: str
    fence_epoch: int
    commit_seq: int


@dataclass(frozen=True, slots=True)
class BranchRow:
    """One entry of the branch registry, on main only."""

    name: str
    ref: str
    source_branch: str
    source_commit_id: str
    created_at: int
    actor_id: str | None
    root: str | None = None
    """The graph root it was created at: its refs contain that address, and work only there."""


BranchVerb: TypeAlias = Literal["create", "delete"]


@dataclass(frozen=True, slots=True)
class BranchOperationRow:
    """A registry change with an idempotency key, on main only; kept after the branch is deleted.

    Written by the transaction that creates or removes the branch. Registry changes have no commit
    to store the key in: a repeated request finds the first receipt in this row.
    """

    operation_id: str
    actor_id: str | None
    verb: BranchVerb
    branch: str
    ref: str
    created_at: int
    receipt: Mapping[str, Any]
    """Arguments and result of the request, besides the branch."""


@dataclass(frozen=True, slots=True)
class TagRow:
    """A name for one commit, on main only; cleanup keeps the versions that the commit shows."""

    name: str
    commit_id: str
    branch: str
    """The branch that the commit was written to."""
    created_at: int
    actor_id: str | None


@dataclass(frozen=True, slots=True)
class RegistryRow:
    """A counter that every change of the registry of branches and tags rewrites."""

    changes: int


ManifestRow: TypeAlias = (
    TableRow
    | VersionRow
    | TombstoneRow
    | CommitRow
    | HeadRow
    | BranchRow
    | BranchOperationRow
    | TagRow
    | RegistryRow
)


def head_object_id(branch: str) -> str:
    """The key of a branch's head row."""
    return f"graph_head:{branch}"


def branch_object_id(name: str) -> str:
    """The key of a registry entry."""
    return f"graph_branch:{name}"


def tag_object_id(name: str) -> str:
    """The key of a tag."""
    return f"graph_tag:{name}"


def operation_object_id(row: BranchOperationRow) -> str:
    """The key of a named change: unique, as a physical ref is created once and removed once."""
    return f"branch_operation:{row.verb}:{row.ref}"


def encode_rows(rows: Iterable[ManifestRow]) -> pa.Table:
    """Rows as a table that can be merged into `__manifest`."""
    return pa.Table.from_pylist([_encode(row) for row in rows], schema=SCHEMA)


DECODED_COLUMNS = [name for name in SCHEMA.names if name != "base_objects"]
"""The columns that `decode_rows` needs."""


def decode_rows(table: pa.Table) -> list[ManifestRow]:
    """The rows of a scan; raises `StorageError` for rows that this product cannot have written."""
    return [_decode(record) for record in table.to_pylist()]


def _encode(row: ManifestRow) -> dict[str, Any]:
    match row:
        case TableRow():
            return {
                "object_id": _identity_key("table", row.identity),
                "object_type": "table",
                "location": row.location,
                "table_key": row.table_key,
                **identity_columns(row.identity),
                "commit_seq": row.commit_seq,
            }
        case VersionRow():
            return {
                "object_id": f"{_identity_key('table_version', row.identity)}:{row.version:020d}",
                "object_type": "table_version",
                "metadata": row.digests,
                **identity_columns(row.identity),
                "table_version": row.version,
                "table_branch": row.ref,
                "row_count": row.row_count,
                "commit_seq": row.commit_seq,
            }
        case TombstoneRow():
            return {
                "object_id": f"{_identity_key('table_tombstone', row.identity)}:{row.version}",
                "object_type": "table_tombstone",
                **identity_columns(row.identity),
                "table_version": row.version,
                "commit_seq": row.commit_seq,
            }
        case CommitRow():
            return {
                "object_id": f"graph_commit:{row.commit_id}",
                "object_type": "graph_commit",
                "metadata": _json(_commit_metadata(row)),
                "table_version": row.manifest_version,
                "table_branch": row.branch,
                "commit_seq": row.commit_seq,
            }
        case HeadRow():
            return {
                "object_id": head_object_id(row.branch),
                "object_type": "graph_head",
                "metadata": _json(
                    {
                        "branch": row.branch,
                        "commit_id": row.commit_id,
                        "fence_epoch": row.fence_epoch,
                    }
                ),
                "commit_seq": row.commit_seq,
            }
        case BranchRow():
            return {
                "object_id": branch_object_id(row.name),
                "object_type": "graph_branch",
                "metadata": _json(row),
            }
        case BranchOperationRow():
            return {
                "object_id": operation_object_id(row),
                "object_type": "branch_operation",
                "metadata": _json(row),
            }
        case TagRow():
            return {
                "object_id": tag_object_id(row.name),
                "object_type": "graph_tag",
                "metadata": _json(row),
            }
        case RegistryRow():
            return {
                "object_id": "registry:branches",
                "object_type": "registry",
                "metadata": _json(row),
            }


def _commit_metadata(row: CommitRow) -> dict[str, Any]:
    """The fields without columns; optional ones only if they are set."""
    return {
        each.name: value
        for each in fields(row)
        if each.name not in ("branch", "manifest_version", "commit_seq")
        and ((value := getattr(row, each.name)) is not None or each.default is MISSING)
    }


def _decode(record: dict[str, Any]) -> ManifestRow:
    kind = record["object_type"]
    try:
        match kind:
            case "table":
                return TableRow(
                    _identity(record), record["table_key"], record["location"], record["commit_seq"]
                )
            case "table_version":
                return VersionRow(
                    _identity(record),
                    record["table_version"],
                    record["table_branch"],
                    record["row_count"],
                    record["commit_seq"],
                )
            case "table_tombstone":
                return TombstoneRow(
                    _identity(record), record["table_version"], record["commit_seq"]
                )
            case "graph_commit":
                return CommitRow(
                    branch=record["table_branch"],
                    manifest_version=record["table_version"],
                    commit_seq=record["commit_seq"],
                    **orjson.loads(record["metadata"]),
                )
            case "graph_head":
                return HeadRow(**orjson.loads(record["metadata"]), commit_seq=record["commit_seq"])
            case "graph_branch":
                return BranchRow(**orjson.loads(record["metadata"]))
            case "branch_operation":
                return BranchOperationRow(**orjson.loads(record["metadata"]))
            case "graph_tag":
                return TagRow(**orjson.loads(record["metadata"]))
            case "registry":
                return RegistryRow(**orjson.loads(record["metadata"]))
    except (TypeError, ValueError, KeyError) as error:
        raise StorageError(
            f"row {record.get('object_id')!r} of {MAIN} __manifest is damaged: {error}"
        ) from error
    # Rows of a newer release: an upkeep that does not know them might remove their data.
    raise UnsupportedStorageVersion(
        f"row {record['object_id']!r} has the unknown object type {kind!r}",
        hint="upgrade Omnigraph: a newer release has written to this graph",
    )


def _identity(record: dict[str, Any]) -> TableIdentity:
    identity = TableIdentity(record["stable_table_id"], record["table_incarnation_id"])
    if not all(identity):
        raise StorageError(f"row {record['object_id']!r} has no table identity")
    return identity


def _identity_key(prefix: str, identity: TableIdentity) -> str:
    return f"{prefix}:{identity.type_id}:{identity.incarnation_id}"


def identity_columns(identity: TableIdentity) -> dict[str, int]:
    """The identity of a table, in the form used by manifest rows and sidecars."""
    return {"stable_table_id": identity.type_id, "table_incarnation_id": identity.incarnation_id}


def _json(value: Mapping[str, Any] | BranchRow | BranchOperationRow | TagRow | RegistryRow) -> str:
    return orjson.dumps(value).decode()


def commit_info(row: CommitRow) -> CommitInfo:
    """The public form of a commit."""
    return CommitInfo(
        row.commit_id,
        row.branch,
        row.manifest_version,
        row.parent_commit_id,
        row.merged_parent_commit_id,
        row.actor_id,
        row.created_at,
        row.kind,
        row.message,
        row.metadata,
        row.affected("node"),
        row.affected("edge"),
        row.change_request,
    )


def tag_info(row: TagRow) -> TagInfo:
    """The public form of a tag."""
    return TagInfo(row.name, row.commit_id, row.branch, row.created_at, row.actor_id)


# --- the stamp ------------------------------------------------------------------------------------

UNSTAMPED = 1
"""The stamp of a manifest without one: the oldest layout had none."""

IDENTITY_COLUMNS = ("stable_table_id", "table_incarnation_id")
"""The columns that only the layout of version 4 has."""


def check_stamp(handle: LanceDataset) -> None:
    """Refuse any layout but the current one, before rows are decoded."""
    if not is_current(handle):
        raise _refused(
            handle,
            f"this graph has internal schema {read_stamp(handle)}; "
            f"this version of Omnigraph writes {INTERNAL_SCHEMA_VERSION}",
            "open it read-write once to migrate it",
        )


def is_current(handle: LanceDataset) -> bool:
    """Whether a manifest has the current layout; all branches of a graph have that of main."""
    return read_stamp(handle) == INTERNAL_SCHEMA_VERSION


def read_stamp(handle: LanceDataset) -> int:
    """The stamp of a manifest this product can read, 1 to 4.

    Raises `UnsupportedStorageVersion` with the raw values for a newer stamp, for one that is not a
    version number, and if stamp and columns contradict each other.
    """
    raw = _raw_stamp(handle)
    identity = [name for name in IDENTITY_COLUMNS if name in handle.schema.names]
    if raw is None:
        if identity:
            raise _refused(
                handle,
                "the manifest has identity columns but no internal-schema stamp",
                "restore the graph from a copy; the stamp is never guessed",
            )
        return UNSTAMPED
    if not (raw.isascii() and raw.isdecimal() and int(raw) >= UNSTAMPED):
        raise _refused(
            handle,
            f"the internal-schema stamp of the manifest is {raw!r}, not a version number",
            "restore the graph from a copy; the stamp is never guessed",
        )
    stamp = int(raw)
    if stamp > INTERNAL_SCHEMA_VERSION:
        raise _refused(
            handle,
            f"this graph has internal schema {stamp}; "
            f"this version of Omnigraph supports {INTERNAL_SCHEMA_VERSION}",
            "upgrade Omnigraph",
        )
    if stamp == INTERNAL_SCHEMA_VERSION and len(identity) < len(IDENTITY_COLUMNS):
        raise _refused(
            handle,
            f"the manifest is stamped {stamp} but lacks the identity columns of that version",
            "restore the graph from a copy; the stamp is never guessed",
        )
    return stamp


def _raw_stamp(handle: LanceDataset) -> str | None:
    raw = (handle.schema.metadata or {}).get(STAMP_KEY)
    return None if raw is None else raw.decode("utf-8", "replace")


def _refused(handle: LanceDataset, message: str, hint: str) -> UnsupportedStorageVersion:
    return UnsupportedStorageVersion(
        message,
        hint=hint,
        details={
            "stamp": _raw_stamp(handle),
            "supported": INTERNAL_SCHEMA_VERSION,
            "manifest_version": handle.version,
            "columns": list(handle.schema.names),
        },
    )


# --- moved roots ----------------------------------------------------------------------------------
#
# A Lance ref contains the absolute address of the dataset it was forked from. A graph with only
# main contains no addresses and may be moved or copied. After a move, refs of branches would look
# for files at the previous address; after a copy, they would read them there.


def recorded_roots(branches: Iterable[BranchRow]) -> dict[str, str]:
    """By branch: the root it was created at, if that is recorded."""
    return {
        row.name: row.root
        for row in branches
        if row.root is not None and row.name != SCHEMA_APPLY_LOCK
    }


def require_unmoved(recorded_roots: Mapping[str, str], root: Root) -> None:
    """Raise `RootMoved` if branches were created at another root than ``root``."""
    moved = {name: at for name, at in sorted(recorded_roots.items()) if at != root.uri}
    if not moved:
        return
    names, recorded = list(moved), next(iter(moved.values()))
    raise RootMoved(
        f"this graph was moved or copied from {recorded} to {root}, "
        f"and the files of {_listed(names)} are looked for at the former place",
        hint=f"move it back to {recorded}; or export there what you need, "
        "import it into a new graph, and use that",
        details={"recorded_root": recorded, "root": root.uri, "branches": names},
    )


def _listed(names: list[str]) -> str:
    return f"branch `{names[0]}`" if len(names) == 1 else f"branches `{'`, `'.join(names)}`"
