"""Reading `__manifest`: its rows folded into the state of a branch and into snapshots.

A branch is scanned when it is first used; afterwards one probe shows whether it has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, partial
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.effects.requests import concurrently
from omnigraph.errors import DamagedFile, InternalError, NotFound, StorageError, UnresolvedRevision
from omnigraph.model.ids import EntityKind, TableKey
from omnigraph.model.records import dataclass
from omnigraph.model.types import LAST_UPDATED_AT, ROW_ADDRESS
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.failures import count_lance, lance_errors, version_file
from omnigraph.storage.layout import LEASES, MAIN, MANIFEST
from omnigraph.storage.legacy import AcceptedReader, OlderGraph
from omnigraph.storage.manifest_rows import (
    DECODED_COLUMNS,
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
    check_stamp,
    decode_rows,
    head_object_id,
    is_current,
    read_stamp,
)
from omnigraph.storage.transactions import DatasetRef, latest_version
from omnigraph.syntax.suggest import did_you_mean


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
    """Physical ref of the branch; a branch that is deleted and created again has another."""
    manifest_version: int
    commit: CommitRow
    tables: Mapping[str, TableEntry]
    """By table key, sorted."""
    head_schema: str
    """Hash of the branch's current schema, whose names are used for older commits, too."""
    commit_id: str = field(init=False)
    """The public id of this snapshot."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "commit_id", self.commit.commit_id)

    def table(self, table_key: str) -> TableEntry:
        """The table of a type; raises `NotFound` if it does not exist at this snapshot."""
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
    operations: Mapping[tuple[str | None, str], CommitRow]
    """Commits by actor and operation id, to find a repeated write."""
    heads: Mapping[str, HeadRow]
    branches: Mapping[str, BranchRow]
    branch_operations: Mapping[tuple[str | None, str], BranchOperationRow]
    """The recent named changes by actor and operation id; on main only."""
    tags: Mapping[str, TagRow]
    """Tags by name; on main only."""
    registry_changes: int
    pins: Mapping[TableIdentity, VersionRow]
    """The live tables at the head, updated incrementally so that a publish needs no new fold."""

    @classmethod
    def fold(
        cls, branch: str, ref: str | None, version: int, rows: list[ManifestRow]
    ) -> ManifestState:
        """The state from the rows of a full scan at ``version``."""
        empty = cls(branch, ref, version, {}, (), (), {}, {}, {}, {}, {}, {}, 0, {})
        return empty.with_rows(version, rows)

    def with_rows(self, version: int, rows: list[ManifestRow]) -> ManifestState:
        """This state after ``rows`` were inserted or updated; deletions need a new fold."""
        tables, commits, operations = dict(self.tables), dict(self.commits), dict(self.operations)
        heads, branches = dict(self.heads), dict(self.branches)
        branch_operations, tags = dict(self.branch_operations), dict(self.tags)
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
                    if row.operation_id is not None:
                        operations.setdefault((row.actor_id, row.operation_id), row)
                case HeadRow():
                    heads[row.branch] = row
                case BranchRow():
                    branches[row.name] = row
                case BranchOperationRow():
                    branch_operations.setdefault((row.actor_id, row.operation_id), row)
                case TagRow():
                    tags[row.name] = row
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
            operations,
            heads,
            branches,
            branch_operations,
            tags,
            registry_changes,
            _fold_pins(self.pins, rows),
        )

    def following(self, version: int, rows: list[ManifestRow]) -> ManifestState:
        """This state at a newer version, given the ``rows`` of its new fragments.

        These may include rows that a compaction only moved. Every publish takes the next position
        on its branch, so new rows are those with a greater position.
        """
        top = self.head.commit_seq
        new = [
            row
            for row in rows
            if not isinstance(row, VersionRow | TombstoneRow) or row.commit_seq > top
        ]
        return self.with_rows(version, new)

    def without(
        self, removed: BranchRow | TagRow | None, operations: Collection[BranchOperationRow]
    ) -> ManifestState:
        """This state after a branch or tag and named changes were removed from the registry."""
        branches = {name: row for name, row in self.branches.items() if row != removed}
        tags = {name: row for name, row in self.tags.items() if row != removed}
        kept = {key: row for key, row in self.branch_operations.items() if row not in operations}
        return replace(self, branches=branches, tags=tags, branch_operations=kept)

    @cached_property
    def head(self) -> HeadRow:
        """The head row of this branch.

        A branch that was created without one lacks it until its next publish: its head is then
        the last commit it inherited.
        """
        row = self.heads.get(self.branch)
        if row is not None:
            return row
        last = max(self.commits.values(), key=lambda commit: commit.commit_seq, default=None)
        if last is None:
            raise InternalError(f"branch {self.branch} has no commit")
        return HeadRow(self.branch, last.commit_id, 0, last.commit_seq)

    @property
    def head_schema(self) -> str:
        """Hash of the branch's current schema."""
        return self.commits[self.head.commit_id].schema_hash

    def head_snapshot(self) -> Snapshot:
        """The snapshot at the head."""
        commit = self.commits[self.head.commit_id]
        entries = self._entries(self.pins)
        return Snapshot(self.branch, self.ref, self.version, commit, entries, self.head_schema)

    def snapshot_at(self, commit_id: str) -> Snapshot:
        """The snapshot at one of the branch's commits, inherited ones included."""
        commit = self.commits.get(commit_id)
        if commit is None:
            raise UnresolvedRevision(
                f"branch {self.branch} has no commit {commit_id}",
                commit_id,
                hint="list its commits with `omnigraph commit list`",
            )
        history: list[VersionRow | TombstoneRow] = [*self.versions, *self.tombstones]
        pins = _fold_pins({}, (row for row in history if row.commit_seq <= commit.commit_seq))
        entries = self._entries(pins, past=True)
        return Snapshot(self.branch, self.ref, self.version, commit, entries, self.head_schema)

    def pins_along(
        self, commits: Iterable[CommitRow]
    ) -> Iterator[Mapping[TableIdentity, VersionRow]]:
        """The live tables at each of some commits of this branch's history, given oldest first."""
        history: list[VersionRow | TombstoneRow] = [*self.versions, *self.tombstones]
        pins: Mapping[TableIdentity, VersionRow] = {}
        for commit in commits:
            seq = commit.commit_seq
            pins = _fold_pins(pins, (row for row in history if row.commit_seq <= seq))
            # Only the rows after this commit remain to be folded, usually few.
            history = [row for row in history if row.commit_seq > seq]
            yield pins

    def _entries(
        self, pins: Mapping[TableIdentity, VersionRow], *, past: bool = False
    ) -> Mapping[str, TableEntry]:
        """The pins joined with their registrations, by type key.

        With ``past``, a type that was dropped since may have the name of a current type: the name
        then refers to the current one.
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

    def wrote_to(self, identity: TableIdentity, since: int = -1) -> bool:
        """Whether a commit of this branch after ``since`` may have changed rows of a table.

        Recovery, upkeep and schema changes create versions of a table without changing its rows.
        """
        kinds = {row.commit_seq: row.kind for row in self.commits.values()}
        return any(
            kinds.get(row.commit_seq) not in ("recovery", "maintenance", "schema")
            for row in self.versions
            if row.identity == identity and row.ref == self.ref and row.commit_seq > since
        )

    @cached_property
    def schema_positions(self) -> Mapping[str, int]:
        """By schema hash: the last position of the branch's history with this schema."""
        commits = sorted(self.commits.values(), key=lambda row: row.commit_seq)
        return {row.schema_hash: row.commit_seq for row in commits}

    def lineage(self) -> list[CommitRow]:
        """The history of the branch by first parents, newest first."""
        top = self.head.commit_seq
        reached = [row for row in self.commits.values() if row.commit_seq <= top]
        return sorted(reached, key=lambda row: (row.commit_seq, row.commit_id), reverse=True)


def _fold_pins(
    known: Mapping[TableIdentity, VersionRow], rows: Iterable[ManifestRow]
) -> Mapping[TableIdentity, VersionRow]:
    """The greatest version of each identity, without those that a tombstone covers."""
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


@dataclass(frozen=True, slots=True)
class Published:
    """A manifest version that was published on a branch."""

    ref: str | None
    version: int


LastPublished = Callable[[str], Published | None]
"""Returns the last published version of a branch by a record outside the manifest: its lease."""


ROWS_OF_A_COMMIT = 16
"""More rows than most commits write: one per table, the commit and the head."""

_GONE = StorageError
"""The error of reading a version that was removed meanwhile; also that of a store's failure."""


class ManifestBranch:
    """The manifest of one branch, with a cached state that is refreshed incrementally.

    A state and the handle it was read from are replaced together: a failed refresh keeps the
    previous pair.

    With ``older``, graphs of an older internal schema can be read without migrating them.
    """

    def __init__(
        self,
        lance: LanceStore,
        root_uri: str,
        branch: str,
        ref: str | None,
        older: AcceptedReader | None = None,
        *,
        last_published: LastPublished = lambda branch: None,
    ) -> None:
        self.branch = branch
        self.where = DatasetRef(f"{root_uri}/{MANIFEST}", ref)
        self.lance = lance
        self._root_uri = root_uri
        self._older = older
        self._last_published = last_published
        self._current: tuple[LanceDataset, ManifestState] | None = None
        self._head_at: tuple[int, int] | None = None
        """A version, and the row address of the branch's head row in it."""

    @property
    def current(self) -> tuple[LanceDataset, ManifestState]:
        """The state read last, and the dataset at the same version.

        To stage a change, take both with one call: another thread may refresh between two calls,
        and a change validated against one version must not be staged on another.
        """
        return self._loaded()

    @property
    def handle(self) -> LanceDataset:
        """The dataset at the version of `state`."""
        return self._loaded()[0]

    @property
    def state(self) -> ManifestState:
        """The state read last; call `refresh` for the newest."""
        return self._loaded()[1]

    @property
    def stamp(self) -> int:
        """The internal schema version of the stored manifest."""
        return read_stamp(self.handle)

    @property
    def published(self) -> Published | None:
        """The version read last by this process; None before the first read."""
        return (
            None if self._current is None else Published(self.where.ref, self._current[1].version)
        )

    def require_published(self, known: Published | None) -> None:
        """Raise `DamagedFile` if the manifest lacks a version that is known to be published."""
        if known is None or known.ref != self.where.ref or self.state.version >= known.version:
            return
        version = self.refresh().version
        if version < known.version:
            raise self._lost(known.version)

    def refresh(self) -> ManifestState:
        """The newest state: one probe if the branch has not moved, else reads only changed rows."""
        try:
            return self._refreshed()
        except _GONE:
            # Cleanup may have removed the version while it was read.
            self._current = self._opened()
            return self._current[1]

    def _refreshed(self) -> ManifestState:
        handle, state = self._loaded()
        newest = latest_version(handle)
        if newest == state.version:
            return state
        if newest < state.version:
            self._current = self._opened()
            return self._current[1]
        moved = self.lance.open(self.where, newest)
        following = self._following(handle, state, moved)
        self._current = (moved, following)
        return following

    def head_address(self, handle: LanceDataset) -> int:
        """The row address of the head row in ``handle``; looked up unless it is cached."""
        known = self._head_at
        if known is not None and known[0] == handle.version:
            return known[1]
        return _find_head_address(handle, self.branch)

    def adopt(
        self, handle: LanceDataset, state: ManifestState, head_address: int | None = None
    ) -> None:
        """Cache a state that this process has just published."""
        self._current = (handle, state)
        self._head_at = None if head_address is None else (handle.version, head_address)

    def _loaded(self) -> tuple[LanceDataset, ManifestState]:
        if self._current is None:
            try:
                self._current = self._opened()
            except _GONE:
                self._current = self._opened()
        return self._current

    def _opened(self) -> tuple[LanceDataset, ManifestState]:
        """Open the newest version; raises `DamagedFile` if it is older than the last published one.

        Lance finds the newest version by listing files, so a lost file would silently show the
        previous commit. The last published version is that of the record outside the manifest, or
        without one the last version this process has read. A graph restored from a copy also has
        the record from that time.
        """
        known, handle = concurrently(
            partial(self._last_published, self.branch),
            partial(self.lance.open, self.where),
            threads=not self.lance.is_local,
        )
        if known is None or known.ref != self.where.ref:
            known = self.published
        least = 0 if known is None else known.version
        if handle.version < least:
            # The record may be of a publish after the listing: list again.
            handle = self.lance.open(self.where)
        if handle.version < least:
            raise self._lost(least)
        state = self._scan(handle)
        self.lance.digests.require_recorded(handle)
        return handle, state

    def _lost(self, version: int) -> DamagedFile:
        file = version_file(self.where.address, version)
        record = f"{LEASES}/branch/{self.branch}.json"
        return DamagedFile(
            str(file),
            "put it back from a copy of the graph; without one, delete "
            f"{record} below the root, which takes back the last commit",
            f"it is missing, though {self.branch} was published with it",
        )

    def _following(
        self, handle: LanceDataset, state: ManifestState, moved: LanceDataset
    ) -> ManifestState:
        """The state at a newer version; reads only the changed rows if these can be identified."""
        if not (is_current(handle) and is_current(moved) and moved.has_stable_row_ids):
            # Only datasets with stable row ids record the version a row was changed at. Some older
            # graphs lack them, and the filter below would find nothing.
            return self._scan(moved)
        count_lance("scan", self.where.address)
        # Changed rows are in new fragments; fragments of the previous version are not read.
        known = handle.fragment_ids()
        fragments = [each for each in moved.get_fragments() if each.fragment_id not in known]
        rows = sum(each.metadata.physical_rows for each in fragments)
        # A compaction also moves all old rows into new fragments. Filtering these out costs more
        # than reading all rows of a few commits.
        few = rows <= ROWS_OF_A_COMMIT * (moved.version - state.version)
        with lance_errors(moved):
            changed = moved.scanner(
                columns=DECODED_COLUMNS,
                filter=None if few else f"{LAST_UPDATED_AT} > {state.version}",
                fragments=fragments,
                with_row_address=True,
            ).to_table()
        # None if only a compaction moved the rows: the old address is wrong then.
        head_address = _head_address_among(changed, self.branch)
        self._head_at = None if head_address is None else (moved.version, head_address)
        following = state.following(moved.version, decode_rows(changed))
        if following.registry_changes != state.registry_changes:
            # A registry change may have deleted rows, which the filter does not find.
            return self._scan(moved)
        return following

    def _scan(self, handle: LanceDataset) -> ManifestState:
        """The state by a scan of the whole manifest; checks the stamp before decoding rows."""
        if self._older is not None and not is_current(handle):
            rows = OlderGraph(self.lance, self._root_uri, self._older()).rows(handle, self.branch)
        else:
            check_stamp(handle)
            count_lance("scan", self.where.address)
            with lance_errors(handle):
                stored = handle.to_table()
            rows = decode_rows(stored)
        return ManifestState.fold(self.branch, self.where.ref, handle.version, rows)


class Manifest:
    """The manifests of all branches of one graph; main's holds the registry of the others."""

    def __init__(
        self,
        lance: LanceStore,
        root_uri: str,
        older: AcceptedReader | None = None,
        last_published: LastPublished = lambda branch: None,
    ) -> None:
        self.lance = lance
        self.root_uri = root_uri
        self.main = ManifestBranch(
            lance, root_uri, MAIN, None, older, last_published=last_published
        )
        self._older = older
        self._last_published = last_published
        self._branches: dict[str, ManifestBranch] = {}

    def branch(self, name: str) -> ManifestBranch:
        """The manifest of a branch, by its current registration; raises `NotFound`."""
        if name == MAIN:
            return self.main
        row = self.registration(name)
        known = self._branches.get(name)
        if known is None or known.where.ref != row.ref:
            # A branch of this name with another ref is a new branch: drop the cached one.
            known = ManifestBranch(
                self.lance,
                self.root_uri,
                name,
                row.ref,
                self._older,
                last_published=self._last_published,
            )
            self._branches[name] = known
        return known

    def known_state(self, name: str) -> ManifestState | None:
        """The cached state of a branch, without a request; None if it was never read."""
        known = self.main if name == MAIN else self._branches.get(name)
        return None if known is None or known.published is None else known.state

    def known(self, name: str) -> ManifestBranch:
        """The cached manifest of a branch, without a request."""
        return self.main if name == MAIN else self._branches[name]

    def refreshed(self, name: str) -> ManifestBranch:
        """The manifest of a branch at its newest state; raises `NotFound`.

        The registry and a cached branch are probed concurrently.
        """
        known = self._branches.get(name)
        if known is None:
            branch = self.branch(name)
            branch.refresh()
            return branch
        branch, failure = concurrently(
            partial(self.branch, name),
            partial(_failure_of, known.refresh),
            threads=not self.lance.is_local,
        )
        if branch is not known:
            # The name was registered again with another ref: ignore a failed probe of the old one.
            branch.refresh()
        elif failure is not None:
            raise failure
        return branch

    def is_pinned(self, where: DatasetRef, version: int) -> bool:
        """Whether the current head of a branch shows a version of a table."""
        location = where.uri.removeprefix(f"{self.root_uri}/")
        names = [MAIN, *self.main.refresh().branches]
        heads = (self.refreshed(name).state.head_snapshot() for name in names)
        return any(
            (entry.location, entry.ref, entry.version) == (location, where.ref, version)
            for head in heads
            for entry in head.tables.values()
        )

    def registration(self, name: str) -> BranchRow:
        """The registry entry of a branch other than main, read fresh."""
        branches = self.main.refresh().branches
        row = branches.get(name)
        if row is None:
            raise NotFound(
                f"there is no branch `{name}`",
                hint=did_you_mean(name, [MAIN, *branches])
                or f"create it with `omnigraph branch create {name}`",
            )
        return row


def _failure_of(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as failure:
        return failure
    return None


def _find_head_address(handle: LanceDataset, branch: str) -> int:
    """Look the head row of a branch up."""
    count_lance("lookup", handle.uri)
    key = head_object_id(branch).replace("'", "''")
    with lance_errors(handle):
        found = handle.to_table(["object_id"], f"object_id = '{key}'", with_row_address=True)
    if found.num_rows != 1:
        raise InternalError(f"branch {branch} has {found.num_rows} head rows")
    return int(found[ROW_ADDRESS][0].as_py())


def _head_address_among(rows: pa.Table, branch: str) -> int | None:
    """The address of a branch's head row among scanned rows; None if it is not among them."""
    at: int = pc.index(rows["object_id"], head_object_id(branch)).as_py()
    return None if at < 0 else int(rows[ROW_ADDRESS][at].as_py())
