"""Snapshots: one immutable view of the graph, folded from manifest rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from omnigraph.errors import InternalError, NotFound
from omnigraph.model.ids import EntityKind, TableKey
from omnigraph.storage.manifest_rows import (
    BranchRow,
    CommitRow,
    HeadRow,
    ManifestRow,
    RegistryRow,
    TableIdentity,
    TableRow,
    TombstoneRow,
    VersionRow,
)


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One visible table of a snapshot."""

    identity: TableIdentity
    table_key: TableKey
    location: str
    version: int
    ref: str | None
    row_count: int

    @property
    def kind(self) -> EntityKind:
        """`node` or `edge`."""
        return self.table_key.kind

    @property
    def type_name(self) -> str:
        """The type's current name."""
        return self.table_key.type_name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tables visible at one commit of one branch."""

    branch: str
    ref: str | None
    """Physical ref of the branch; deleting and re-creating a branch changes it."""
    manifest_version: int
    commit: CommitRow
    tables: Mapping[str, TableEntry]
    """By table key, sorted."""
    commit_id: str = field(init=False)
    """The public id of this snapshot."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "commit_id", self.commit.commit_id)

    def table(self, table_key: str) -> TableEntry:
        """The table of a type; raises `NotFound` where it does not exist at this snapshot."""
        entry = self.tables.get(table_key)
        if entry is None:
            raise NotFound(f"{table_key} does not exist at this snapshot")
        return entry


@dataclass(frozen=True)
class ManifestState:
    """Every row of a branch's `__manifest` at one version, ready to be folded at any commit."""

    branch: str
    ref: str | None
    version: int
    tables: Mapping[TableIdentity, TableRow]
    versions: tuple[VersionRow, ...]
    tombstones: tuple[TombstoneRow, ...]
    commits: Mapping[str, CommitRow]
    heads: Mapping[str, HeadRow]
    branches: Mapping[str, BranchRow]
    registry_changes: int
    pins: Mapping[TableIdentity, VersionRow]
    """The live tables of the newest rows, kept up to date so that a publish needs no new fold."""

    @classmethod
    def fold(
        cls, branch: str, ref: str | None, version: int, rows: list[ManifestRow]
    ) -> ManifestState:
        """The state that a full scan at ``version`` shows."""
        empty = cls(branch, ref, version, {}, (), (), {}, {}, {}, 0, {})
        return empty.with_rows(version, rows)

    def with_rows(self, version: int, rows: list[ManifestRow]) -> ManifestState:
        """This state after ``rows`` were inserted or updated; deletions need a new fold."""
        tables, commits = dict(self.tables), dict(self.commits)
        heads, branches = dict(self.heads), dict(self.branches)
        versions, tombstones = list(self.versions), list(self.tombstones)
        registry_changes = self.registry_changes
        for row in rows:
            match row:
                case TableRow():
                    tables[row.identity] = row
                case VersionRow():
                    versions.append(row)
                case TombstoneRow():
                    tombstones.append(row)
                case CommitRow():
                    commits[row.commit_id] = row
                case HeadRow():
                    heads[row.branch] = row
                case BranchRow():
                    branches[row.name] = row
                case RegistryRow():
                    registry_changes = row.changes
        return ManifestState(
            self.branch,
            self.ref,
            version,
            tables,
            tuple(versions),
            tuple(tombstones),
            commits,
            heads,
            branches,
            registry_changes,
            _fold_pins(self.pins, rows),
        )

    def following(self, version: int, rows: list[ManifestRow]) -> ManifestState:
        """This state at a newer version, in whose new fragments ``rows`` lie.

        Among them may be rows that a compaction only moved. Every publish takes the next position
        on its branch, so new rows are those with a greater position.
        """
        top = self.head.commit_seq
        new = [
            row
            for row in rows
            if not isinstance(row, VersionRow | TombstoneRow) or row.commit_seq > top
        ]
        return self.with_rows(version, new)

    def without_branch(self, name: str) -> ManifestState:
        """This state after a branch was taken out of the registry."""
        left = {known: row for known, row in self.branches.items() if known != name}
        return replace(self, branches=left)

    @cached_property
    def head(self) -> HeadRow:
        """The head row of this branch.

        Every live branch has one. Where it is missing, it is the one that the branch was created
        without: nothing was published on it since, so it ends with the last commit it inherited.
        """
        row = self.heads.get(self.branch)
        if row is not None:
            return row
        last = max(self.commits.values(), key=lambda commit: commit.commit_seq, default=None)
        if last is None:
            raise InternalError(f"branch {self.branch} has no commit")
        return HeadRow(self.branch, last.commit_id, 0, last.commit_seq)

    @property
    def has_head_row(self) -> bool:
        """Whether the head is a row that publishes can contend for."""
        return self.branch in self.heads

    def head_snapshot(self) -> Snapshot:
        """What the branch shows now."""
        commit = self.commits[self.head.commit_id]
        return Snapshot(self.branch, self.ref, self.version, commit, self._entries(self.pins))

    def snapshot_at(self, commit_id: str) -> Snapshot:
        """What the branch showed at one of its commits, inherited ones included."""
        commit = self.commits.get(commit_id)
        if commit is None:
            raise NotFound(
                f"branch {self.branch} has no commit {commit_id}",
                hint="list its commits with `omnigraph commit list`",
            )
        history: list[VersionRow | TombstoneRow] = [*self.versions, *self.tombstones]
        pins = _fold_pins({}, (row for row in history if row.commit_seq <= commit.commit_seq))
        return Snapshot(self.branch, self.ref, self.version, commit, self._entries(pins, past=True))

    def pins_along(
        self, commits: Iterable[CommitRow]
    ) -> Iterator[Mapping[TableIdentity, VersionRow]]:
        """The live tables at each of some commits of this branch's line, given oldest first."""
        history: list[VersionRow | TombstoneRow] = [*self.versions, *self.tombstones]
        pins: Mapping[TableIdentity, VersionRow] = {}
        for commit in commits:
            seq = commit.commit_seq
            pins = _fold_pins(pins, (row for row in history if row.commit_seq <= seq))
            # What is left comes after the first of the commits, and is little as a rule.
            history = [row for row in history if row.commit_seq > seq]
            yield pins

    def _entries(
        self, pins: Mapping[TableIdentity, VersionRow], *, past: bool = False
    ) -> Mapping[str, TableEntry]:
        """The pins joined with their registrations, by type key.

        In the past, a type that was dropped since may have the name another one has today: there,
        the name means the one that lives.
        """
        entries: dict[str, TableEntry] = {}
        for identity, pin in pins.items():
            registration = self.tables.get(identity)
            if registration is None:
                raise InternalError(f"table {identity} is pinned but not registered")
            other = entries.get(registration.table_key)
            if other is not None and past and identity not in self.pins:
                continue
            if other is not None and not (past and other.identity not in self.pins):
                raise InternalError(f"two live tables are called {registration.table_key}")
            entries[registration.table_key] = TableEntry(
                identity,
                TableKey(registration.table_key),
                registration.location,
                pin.version,
                pin.ref,
                pin.row_count,
            )
        return MappingProxyType({key: entries[key] for key in sorted(entries)})

    def lineage(self) -> list[CommitRow]:
        """The commits the head reaches on this branch's line, newest first."""
        top = self.head.commit_seq
        reached = [row for row in self.commits.values() if row.commit_seq <= top]
        return sorted(reached, key=lambda row: (row.commit_seq, row.commit_id), reverse=True)


def _fold_pins(
    known: Mapping[TableIdentity, VersionRow], rows: Iterable[ManifestRow]
) -> Mapping[TableIdentity, VersionRow]:
    """The greatest version per identity, less what a tombstone of that identity covers."""
    pins = dict(known)
    stones: list[TombstoneRow] = []
    for row in rows:
        if isinstance(row, VersionRow):
            pin = pins.get(row.identity)
            if pin is None or row.version > pin.version:
                pins[row.identity] = row
        elif isinstance(row, TombstoneRow):
            stones.append(row)
    for stone in stones:
        pin = pins.get(stone.identity)
        if pin is not None and stone.version >= pin.version:
            del pins[stone.identity]
    return pins
