"""Past commits: their tables with the names and types of their own schema.

The manifest has tables by identity and current name. Their names and properties at the time of a
commit are in the schema whose hash the commit contains; replaced schemas are kept for that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from types import MappingProxyType

from omnigraph.branching.branches import reclaimed, require_tables
from omnigraph.branching.revisions import resolve
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.schema.change import identity_of, tables_forward, tables_today
from omnigraph.commit.schema.contract import past_catalog
from omnigraph.commit.schema.rebase import SchemaPath, first_entry, schema_position
from omnigraph.errors import ChangeDiffRefused, HistoricalVersionReclaimed, NotFound, StorageError
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.datasets import Handle
from omnigraph.storage.manifest import ManifestState, Snapshot, TableEntry
from omnigraph.storage.manifest_rows import CommitRow, TableIdentity, VersionRow
from omnigraph.storage.reader import PastReader, SnapshotReader
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.views import View

SCHEMAS_KNOWN_MAX = 32

Sees = Callable[[Catalog, Collection[str]], View | None]
"""Returns the visible part of some branches with these types; None for everything."""

Pins = Mapping[TableIdentity, VersionRow]


class SchemaHistory:
    """The current and former schemas of commits, each read once."""

    def __init__(self, kernel: Kernel, sees: Sees | None = None) -> None:
        self._kernel = kernel
        self._known: dict[str, Catalog] = {}
        self._sees = sees

    def seen_by(self, sees: Sees) -> SchemaHistory:
        """The same schemas for an actor who may not see all of their names."""
        seen = SchemaHistory(self._kernel, sees)
        seen._known = self._known
        return seen

    def view(self, catalog: Catalog, *branches: str) -> View | None:
        """The visible part of branches with these types; None for everything."""
        return None if self._sees is None else self._sees(catalog, dict.fromkeys(branches))

    def named(self, *commits: CommitRow, state: ManifestState) -> Iterator[Catalog]:
        """As `back_from`, reduced to what is visible on the branch."""
        for catalog in self.back_from(*commits, state=state):
            view = self.view(catalog, state.branch)
            yield catalog if view is None else view.catalog

    def catalog_of(self, commit: CommitRow) -> Catalog:
        """The types of a commit.

        Raises `ChangeDiffRefused` if its schema was replaced before replaced schemas were kept.
        """
        known = self._known.get(commit.schema_hash)
        if known is None:
            known = self._read(commit)
            if len(self._known) >= SCHEMAS_KNOWN_MAX:
                self._known.clear()
            self._known[commit.schema_hash] = known
        return known

    def back_from(self, *commits: CommitRow, state: ManifestState) -> Iterator[Catalog]:
        """The types of some commits, then of all earlier commits, newest first, as far as kept.

        A schema of consecutive commits is yielded once.
        """
        last: str | None = None
        for commit in chain(commits, first_parents(state, commits[-1].commit_id)):
            if commit.schema_hash == last:
                continue
            last = commit.schema_hash
            try:
                catalog = self.catalog_of(commit)
            except ChangeDiffRefused:
                continue
            yield catalog

    def position(self, commit: CommitRow) -> int:
        """The index of a commit's schema in the order in which main had them.

        Branches take over main's schemas later, so the order of commits may differ.
        """
        found = schema_position(self._kernel, commit.schema_hash)
        if found is None:
            raise ChangeDiffRefused("schema_boundary", commit.commit_id)
        return found

    def path(self, older: CommitRow, newer: CommitRow) -> SchemaPath | None:
        """The schema changes from one commit to another; None if a schema is no longer kept."""
        ends = [self._kernel.schema_of(each.schema_hash) for each in (older, newer)]
        if ends[0] is None or ends[1] is None:
            return None
        return SchemaPath.between(self._kernel, ends[0], ends[1])

    def _read(self, commit: CommitRow) -> Catalog:
        accepted = self._kernel.accepted_schema(commit.schema_hash).catalog
        if accepted.schema_hash == commit.schema_hash:
            return accepted
        past = past_catalog(self._kernel.store, commit.schema_hash)
        if past is None:
            raise ChangeDiffRefused("schema_boundary", commit.commit_id)
        return past


@dataclass(frozen=True)
class Moment:
    """A graph at one commit of one branch."""

    kernel: Kernel
    state: ManifestState
    commit: CommitRow
    pins: Pins
    """Its live tables."""
    opened: LastOpened

    def row_count(self, identity: TableIdentity) -> int:
        """The number of entities of a type; 0 if it did not exist."""
        pin = self.pins.get(identity)
        return 0 if pin is None else pin.row_count

    def require_there(self) -> None:
        """Check in storage, bypassing caches, that every table exists.

        Raises `HistoricalVersionReclaimed`.
        """
        require_tables(self.kernel, self.state, self.pins)

    def reader(self, catalog: Catalog) -> SnapshotReader:
        """A reader with the names of ``catalog``, the schema of the commit."""
        return _MomentReader(self, self._snapshot(catalog))

    def reader_through(self, catalog: Catalog) -> SnapshotReader:
        """A reader with the names of another schema; properties it did not have yet are null."""
        lance, root = self.kernel.lance, self.kernel.root.uri
        return PastReader(lance, root, self._snapshot(catalog), tables_today(catalog))

    def forward(self, path: SchemaPath) -> SnapshotReader:
        """A reader with the names and types at the end of a path from its schema."""
        lance, root = self.kernel.lance, self.kernel.root.uri
        shown = self._snapshot(path.catalog)
        return PastReader(lance, root, shown, tables_forward(path.catalog))

    def _snapshot(self, catalog: Catalog) -> Snapshot:
        names = {identity_of(each): each.table_key for each in catalog.types}
        entries: dict[str, TableEntry] = {
            names[identity]: TableEntry(
                identity,
                names[identity],
                self.state.tables[identity].location,
                pin.version,
                pin.ref,
                pin.row_count,
            )
            for identity, pin in self.pins.items()
            if identity in names
        }
        state = self.state
        return Snapshot(
            state.branch,
            state.ref,
            state.version,
            self.commit,
            MappingProxyType(entries),
            catalog.schema_hash,
        )


class LastOpened:
    """The last opened version of each table, from which the next commit's is opened."""

    def __init__(self) -> None:
        self._last: dict[TableIdentity, tuple[str | None, int, Handle]] = {}

    def get(self, entry: TableEntry) -> Handle | None:
        """The version of an entry, if it was the last one opened."""
        ref, version, handle = self._last.get(entry.identity, (None, 0, None))
        return handle if (ref, version) == (entry.ref, entry.version) else None

    def keep(self, entry: TableEntry, handle: Handle) -> None:
        """Remember the opened version of an entry."""
        self._last[entry.identity] = (entry.ref, entry.version, handle)


class _MomentReader(SnapshotReader):
    """A reader that shares open tables with the moments before and after it."""

    def __init__(self, moment: Moment, snapshot: Snapshot) -> None:
        super().__init__(moment.kernel.lance, moment.kernel.root.uri, snapshot)
        self._opened = moment.opened

    def handle(self, table_key: str) -> Handle:
        """The table of a type at its pinned version; raises `HistoricalVersionReclaimed`."""
        entry = self.snapshot.table(table_key)
        known = self._handles.get(table_key)
        if known is None:
            known = self._opened.get(entry)
        if known is None:
            try:
                known = super().handle(table_key)
            except NotFound as gone:
                raise reclaimed(table_key) from gone
            self._opened.keep(entry, known)
        self._handles[table_key] = known
        return known


@contextmanager
def reclaimed_told(*moments: Moment) -> Iterator[None]:
    """Within the block, reading a table that was removed concurrently raises the right error.

    Cleanup in another process may remove files that are open here; the next read then fails like a
    storage error.
    """
    try:
        yield
    except HistoricalVersionReclaimed:
        raise
    except StorageError:
        for moment in moments:
            moment.require_there()
        raise


def moments(kernel: Kernel, state: ManifestState, commits: Iterable[CommitRow]) -> Iterator[Moment]:
    """The moments of some commits of a branch, given oldest first."""
    rows = list(commits)
    opened = LastOpened()
    for commit, pins in zip(rows, state.pins_along(rows), strict=True):
        yield Moment(kernel, state, commit, pins, opened)


def moment_of(kernel: Kernel, revision: str) -> Moment:
    """The moment of the commit that a revision names; raises `UnresolvedRevision`."""
    state, commit = resolve(kernel, revision)
    return next(moments(kernel, state, [commit]))


def first_commit(state: ManifestState) -> CommitRow:
    """The first commit of a graph."""
    return min(state.commits.values(), key=attrgetter("commit_seq"))


def first_parents(state: ManifestState, commit_id: str) -> Iterator[CommitRow]:
    """A commit and its first parents, newest first."""
    commit = state.commits.get(commit_id)
    while commit is not None:
        yield commit
        commit = state.commits.get(commit.parent_commit_id or "")


def no_type(name: str, known: Sequence[str]) -> NotFound:
    """The error for a type that the schema does not have; ``known`` are the existing ones."""
    return NotFound(
        f"there is no type '{name}'",
        hint=did_you_mean(name.rpartition(":")[2], known) or f"the types are {', '.join(known)}",
        details={"type": name},
    )


def reader_of(kernel: Kernel, snapshot: Snapshot, path: SchemaPath) -> SnapshotReader:
    """A reader of a snapshot with the names and types at the end of a path from its schema.

    Types that the snapshot does not have are empty.
    """
    lance, root = kernel.lance, kernel.root.uri
    stored = {entry.identity: entry for entry in snapshot.tables.values()}
    entries: dict[str, TableEntry] = {}
    for type in path.catalog.types:
        entry = stored.get(identity_of(type)) or first_entry(type)
        entries[type.table_key] = replace(entry, table_key=TableKey(type.table_key))
    shown = replace(snapshot, tables=MappingProxyType(entries))
    if path.is_trivial:
        return SnapshotReader(lance, root, shown)
    return PastReader(lance, root, shown, tables_forward(path.catalog))
