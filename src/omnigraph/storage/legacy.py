"""Graphs of internal schema 1 to 3, translated to rows of schema 4.

Before schema 4 the manifest identified tables by type key only, commits were stored in separate
datasets, and a branch was a Lance ref of `__manifest` with the branch's name. `OlderGraph`
translates these to current rows, and writes nothing. A migration commits the rows, and a read-only
open folds them in memory, so both show the same graph.

A manifest of an interrupted migration is read the same way: its rows of schema 4 are kept, and
missing rows are added.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.effects.clock import encode_ulid
from omnigraph.effects.uri import Root
from omnigraph.errors import HistoricalVersionReclaimed, NotFound, StorageError
from omnigraph.model.ids import SCHEMA_APPLY_LOCK, TableKey
from omnigraph.model.receipts import CommitKind
from omnigraph.model.records import dataclass
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.failures import count_lance
from omnigraph.storage.layout import MAIN, MANIFEST
from omnigraph.storage.manifest_rows import (
    BranchOperationRow,
    BranchRow,
    CommitRow,
    HeadRow,
    ManifestRow,
    RegistryRow,
    TableIdentity,
    TableRow,
    TagRow,
    TombstoneRow,
    VersionRow,
    decode_rows,
    require_unmoved,
)
from omnigraph.storage.transactions import DatasetRef

COMMITS = "_graph_commits.lance"
"""Dataset of older graphs: one row per commit, on a ref per branch."""

COMMIT_ACTORS = "_graph_commit_actors.lance"
"""Dataset of older graphs: the author of each commit, of all branches."""

RUN_PREFIX = "__run__"
"""Prefix of the refs of interrupted runs, up to schema 2."""

UNLISTED_TYPE_ID = 2**63
"""The first id for tables of types that are no longer in the schema.

The identity counter of a schema counts up from 1, so the two ranges do not collide.
"""

_TABLE_TYPES = ("table", "table_version", "table_tombstone")
_RECOVERY_ACTOR = "omnigraph:recovery"


@dataclass(frozen=True, slots=True)
class AcceptedTables:
    """The tables of the accepted schema; `storage` does not import the schema itself."""

    identities: Mapping[TableKey, TableIdentity]
    schema_hash: str


AcceptedReader: TypeAlias = Callable[[], AcceptedTables]


@dataclass(frozen=True, slots=True)
class Fork:
    """The origin of a branch of an older graph."""

    parent: str
    version: int
    """The version of the parent's manifest that it starts from."""
    created_at: int
    """Microseconds since 1970."""


class OlderGraph:
    """A graph of an older internal schema. Reads are cached: make a new object to read again."""

    def __init__(self, lance: LanceStore, root_uri: str, accepted: AcceptedTables) -> None:
        self.manifest = DatasetRef(f"{root_uri}/{MANIFEST}")
        self._lance = lance
        self._root_uri = root_uri
        self._accepted = accepted
        self._lines: dict[str, list[CommitRow]] = {}

    # --- branches -----------------------------------------------------------------------------

    def rows(self, handle: LanceDataset, branch: str) -> list[ManifestRow]:
        """All rows of the manifest of ``branch`` in schema 4; for main with the branch registry."""
        count_lance("scan", handle.uri)
        found = handle.to_table()
        is_table = pc.is_in(found["object_type"], value_set=pa.array(_TABLE_TYPES))
        known_rows = decode_rows(found.filter(pc.invert(is_table)))
        commits = self._commits(branch, known_rows)
        tables = self._tables(found.filter(is_table).to_pylist(), commits)
        heads = [row for row in known_rows if isinstance(row, HeadRow)]
        registry = [
            row
            for row in known_rows
            if isinstance(row, BranchRow | BranchOperationRow | TagRow | RegistryRow)
        ]
        if branch == MAIN and not any(isinstance(row, RegistryRow) for row in registry):
            registry = [*self.branches(), RegistryRow(0)]
        return [*tables, *commits, *_heads(branch, heads, commits[-1]), *registry]

    def branches(self) -> list[BranchRow]:
        """A registration for each branch, whose name remains its physical ref.

        Raises `RootMoved` before reading files that a moved graph does not have any more.
        """
        roots = self.recorded_roots(self.forks)
        require_unmoved(roots, self._lance.root)
        forks = {name: fork for name, fork in sorted(self.forks.items()) if name in roots}
        return [
            BranchRow(
                name=name,
                ref=name,
                source_branch=fork.parent,
                source_commit_id=self._commit_at(fork),
                created_at=fork.created_at,
                actor_id=None,
                root=roots[name],
            )
            for name, fork in forks.items()
        ]

    @cached_property
    def forks(self) -> Mapping[str, Fork]:
        """The refs of `__manifest` that are branches, by name."""
        refs = self._lance.refs(self.manifest)
        # The lock of a schema apply was a ref, too. Its owner has ended, else this open would wait.
        refs.pop(SCHEMA_APPLY_LOCK, None)
        return {
            name: Fork(
                # The parent of a branch may have been a run that was removed since.
                ref["parent_branch"] if ref["parent_branch"] in refs else MAIN,
                ref["parent_version"],
                ref["create_at"] * 1_000_000,
            )
            for name, ref in refs.items()
        }

    def recorded_roots(self, branches: Iterable[str]) -> dict[str, str]:
        """By branch: the root in its ref, since Lance stores absolute addresses of shared files.

        Refs that a concurrent migration has removed are left out.
        """
        found = {}
        for name in branches:
            try:
                found[name] = self._recorded_root(name)
            except NotFound:
                continue
        return found

    def _recorded_root(self, branch: str) -> str:
        bases = self._lance.open(self.manifest.on(branch)).base_paths().values()
        suffix = f"/{MANIFEST}"
        roots = [
            Root.parse(base.path[: -len(suffix)]).uri
            for base in bases
            if base.path.endswith(suffix)
        ]
        return roots[0] if roots else self._root_uri

    # --- lineage ------------------------------------------------------------------------------

    def _commits(self, branch: str, known_rows: list[ManifestRow]) -> list[CommitRow]:
        """The commits reachable from a branch, oldest first; at least one."""
        known = {row.commit_id: row for row in known_rows if isinstance(row, CommitRow)}
        line = self.recorded_commits(branch)
        if not (line or known):
            line = [self._unrecorded()]
        following = 1 + max((row.commit_seq for row in known.values()), default=-1)
        added = [row for row in line if row.commit_id not in known]
        numbered = [replace(row, commit_seq=following + at) for at, row in enumerate(added)]
        return sorted([*known.values(), *numbered], key=lambda row: row.commit_seq)

    def recorded_commits(self, branch: str) -> list[CommitRow]:
        """The commits of a branch in the retired datasets, oldest first, with positions from 0."""
        if branch != MAIN and branch not in self.forks:
            return []
        line = self._lines.get(branch)
        if line is None:
            reach = self._reach(branch)
            # By id, since a commit may have been written twice if the first reply was lost.
            records = {
                record["graph_commit_id"]: record
                for record in self._commit_records(reach)
                if record["manifest_version"] <= reach.get(record["manifest_branch"] or MAIN, -1)
            }
            # Manifest versions increase along the history of a branch, also across its fork.
            ordered = sorted(
                records.values(), key=lambda r: (r["manifest_version"], r["created_at"])
            )
            line = [self._commit(at, record) for at, record in enumerate(ordered)]
            self._lines[branch] = line
        return line

    def _reach(self, branch: str) -> dict[str, float]:
        """The branch and its ancestors, newest first, with the last version inherited of each."""
        reach: dict[str, float] = {}
        at, last = branch, float("inf")
        while at != MAIN:
            reach[at] = last
            fork = self.forks[at]
            at, last = fork.parent, min(last, fork.version)
        return {**reach, MAIN: last}

    def _commit_records(self, reach: Iterable[str]) -> list[dict[str, Any]]:
        """The commit rows on the first of these branches for which the dataset has a ref."""
        commits = DatasetRef(f"{self._root_uri}/{COMMITS}")
        for branch in reach:
            try:
                handle = self._lance.open(commits.on(None if branch == MAIN else branch))
            except NotFound:
                continue
            count_lance("scan", handle.uri)
            records: list[dict[str, Any]] = handle.to_table().to_pylist()
            return records
        return []

    def _commit(self, seq: int, record: Mapping[str, Any]) -> CommitRow:
        commit_id, branch = record["graph_commit_id"], record["manifest_branch"]
        actor = self._actors.get(commit_id)
        return CommitRow(
            commit_id=commit_id,
            branch=None if branch == MAIN else branch,
            manifest_version=record["manifest_version"],
            commit_seq=seq,
            parent_commit_id=record["parent_commit_id"],
            merged_parent_commit_id=record["merged_parent_commit_id"],
            actor_id=actor,
            kind=_kind(record, actor),
            schema_hash=self._accepted.schema_hash,
            created_at=_microseconds(record["created_at"]),
        )

    @cached_property
    def _actors(self) -> Mapping[str, str]:
        """The authors of commits, by commit id."""
        try:
            handle = self._lance.open(DatasetRef(f"{self._root_uri}/{COMMIT_ACTORS}"))
        except NotFound:
            return {}
        count_lance("scan", handle.uri)
        records = handle.to_table(columns=["graph_commit_id", "actor_id"]).to_pylist()
        return {r["graph_commit_id"]: r["actor_id"] for r in records}

    def _commit_at(self, fork: Fork) -> str:
        """The commit that a branch was created at."""
        line = self.recorded_commits(fork.parent) or [self._unrecorded()]
        before = [row for row in line if row.manifest_version <= fork.version]
        return (before or line[:1])[-1].commit_id

    def _unrecorded(self) -> CommitRow:
        """The single commit of a graph without recorded history.

        Its id is derived from the time of the first manifest version, so all readers agree on it.
        """
        versions: list[dict[str, Any]] = self._lance.open(self.manifest).versions()  # type: ignore[assignment]
        first = min(versions, key=lambda version: version["version"])
        # Lance returns times of versions in the local time zone.
        created_at = _microseconds(first["timestamp"].astimezone())
        return CommitRow(
            commit_id=_derived_ulid(created_at),
            branch=None,
            manifest_version=first["version"],
            commit_seq=0,
            parent_commit_id=None,
            merged_parent_commit_id=None,
            actor_id=None,
            kind="genesis",
            schema_hash=self._accepted.schema_hash,
            created_at=created_at,
        )

    # --- tables -------------------------------------------------------------------------------

    def _tables(
        self, records: list[dict[str, Any]], commits: list[CommitRow]
    ) -> Iterator[ManifestRow]:
        """Registrations, pins and tombstones, each at the commit that added it."""
        if any(record.get("commit_seq") is None for record in records):
            arrivals = self._arrivals(commits)
        else:
            arrivals = {}
        # Rows that no recorded commit shows were published without a commit: they get the head's.
        head = commits[-1].commit_seq
        rows: dict[tuple[Any, ...], ManifestRow] = {}
        # Rows of schema 4 come last, so that they override others.
        for record in sorted(records, key=lambda r: r.get("stable_table_id") is not None):
            seq = record.get("commit_seq")
            if seq is None:
                seq = arrivals.get(record["object_id"], head)
            identity = self._identity(record)
            if record["table_key"] is not None:
                # Some older schemas wrote no registration; a pin with a type key implies one.
                is_registration = record["object_type"] == "table"
                if is_registration or ("table", identity) not in rows:
                    key = record["table_key"]
                    location = (is_registration and record["location"]) or older_table_path(key)
                    rows["table", identity] = TableRow(identity, key, location, seq)
            row = _pin_or_tombstone(record, identity, seq)
            if row is not None:
                rows[record["object_type"], identity, row.version] = row
        yield from rows.values()

    def _identity(self, record: Mapping[str, Any]) -> TableIdentity:
        if record.get("stable_table_id"):
            return TableIdentity(record["stable_table_id"], record["table_incarnation_id"])
        key = record["table_key"]
        if key is None:
            raise StorageError(f"row {record['object_id']!r} of the manifest names no table")
        return self._accepted.identities.get(key) or self._unlisted[key]

    @cached_property
    def _unlisted(self) -> Mapping[str, TableIdentity]:
        """Identities for tables of dropped types, numbered by type key over all branches."""
        keys: set[str] = set()
        for ref in (None, *self.forks):
            handle = self._lance.open(self.manifest.on(ref))
            count_lance("scan", handle.uri)
            keys.update(handle.to_table(columns=["table_key"])["table_key"].to_pylist())
        unlisted = sorted(key for key in keys if key and key not in self._accepted.identities)
        return {key: TableIdentity(UNLISTED_TYPE_ID + at, 1) for at, key in enumerate(unlisted)}

    def _arrivals(self, commits: list[CommitRow]) -> dict[str, int]:
        """By object id of a manifest row: the position of the commit that added it.

        Read from the manifest version of each commit. Data files never change, so for each version
        only files that no earlier version had are read.
        """
        arrivals: dict[str, int] = {}
        seen: set[str] = set()
        for commit in commits:
            try:
                handle = self._lance.open(self.manifest.on(commit.branch), commit.manifest_version)
            except (NotFound, HistoricalVersionReclaimed):
                # The version was removed: its rows are found in the next one.
                continue
            fresh = []
            for fragment in handle.get_fragments():
                files = {file.path for file in fragment.data_files()}
                if not files <= seen:
                    fresh.append(fragment)
                seen |= files
            if fresh:
                count_lance("scan", handle.uri)
                scanned = handle.scanner(columns=["object_id"], fragments=fresh).to_table()
                for object_id in scanned["object_id"].to_pylist():
                    arrivals.setdefault(object_id, commit.commit_seq)
        return arrivals


def older_table_path(table_key: str) -> str:
    """The path of a table in older graphs: its kind, and the FNV-1a hash of the type's name.

    >>> older_table_path("node:Person")
    'nodes/40d76f1f51639ec0'
    """
    key = TableKey(table_key)
    value = 0xCBF29CE484222325
    for byte in key.type_name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{key.kind}s/{value:016x}"


def _pin_or_tombstone(
    record: Mapping[str, Any], identity: TableIdentity, seq: int
) -> VersionRow | TombstoneRow | None:
    if record["object_type"] == "table":
        return None
    version, ref = record["table_version"], record["table_branch"]
    if version is None:
        raise StorageError(f"row {record['object_id']!r} of the manifest has no table version")
    if record["object_type"] == "table_tombstone":
        return TombstoneRow(identity, version, seq)
    if record["row_count"] is None:
        raise StorageError(f"row {record['object_id']!r} of the manifest has no row count")
    # The manifest of an interrupted migration may have digests; other metadata is not used.
    metadata = record.get("metadata") or ""
    digests = metadata if '"files"' in metadata else None
    rows, physical = record["row_count"], None if ref == MAIN else ref
    return VersionRow(identity, version, physical, rows, seq, digests)


def _heads(branch: str, known_rows: list[HeadRow], last: CommitRow) -> list[HeadRow]:
    """The head rows of a manifest: known ones, and the branch's own at its last commit."""
    own = next((row for row in known_rows if row.branch == branch), HeadRow(branch, "", 0, 0))
    head = replace(own, commit_id=last.commit_id, commit_seq=last.commit_seq)
    return [*(row for row in known_rows if row.branch != branch), head]


def _kind(record: Mapping[str, Any], actor: str | None) -> CommitKind:
    """The likely kind of a commit; never `maintenance`, which asserts that no rows changed."""
    if record["parent_commit_id"] is None:
        return "genesis"
    if record["merged_parent_commit_id"] is not None:
        return "merge"
    return "recovery" if actor == _RECOVERY_ACTOR else "mutation"


def _microseconds(value: int | dt.datetime) -> int:
    """A time of an older dataset, which is in UTC but without a zone."""
    if isinstance(value, int):
        return value
    aware = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value
    return (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _derived_ulid(created_at: int) -> str:
    """A ULID computed from a time in microseconds only."""
    digest = hashlib.sha256(f"genesis at {created_at}".encode()).digest()
    return encode_ulid(
        int.from_bytes((created_at // 1_000).to_bytes(6, "big") + digest[:10], "big")
    )
