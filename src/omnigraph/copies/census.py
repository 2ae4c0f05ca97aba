"""The files of a graph on all branches: those that versions list, and their recorded digests.

Writes nothing. A file that cannot be read is reported and does not stop the census, so there is one
even of a graph that cannot be opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import PurePosixPath
from typing import NamedTuple

from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import OmnigraphError
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.model.records import dataclass
from omnigraph.storage.datasets import Handle, LanceStore
from omnigraph.storage.digests import LISTED, FileDigest, decode_digests, read_listings
from omnigraph.storage.failures import LIBRARY_ERRORS, is_of_a_library, lance_errors, version_named
from omnigraph.storage.layout import MAIN, MANIFEST
from omnigraph.storage.manifest import Manifest, ManifestState
from omnigraph.storage.manifest_rows import TableIdentity, is_current
from omnigraph.storage.transactions import DatasetRef

GRAPH = "graph"
"""Stands for the table, for files of the graph itself."""

_COLUMNS = ["stable_table_id", "table_incarnation_id", "table_version", "metadata", "commit_seq"]


class Recorded(NamedTuple):
    """The recorded digest of a file."""

    digest: FileDigest
    table: str
    commit_id: str | None = None
    is_since: bool = True
    """Whether it was added after the commit that the census starts from."""


@dataclass(slots=True)
class Needed:
    """A file that some version lists."""

    table: str
    branches: set[str] = field(default_factory=set)
    """The branches whose heads need it."""


class UnreadableFile(NamedTuple):
    """A file, table or branch that could not be read."""

    file: str
    table: str
    message: str
    branches: tuple[str, ...] = ()


@dataclass(slots=True)
class Census:
    """The files of a graph."""

    sizes: Mapping[str, int]
    """By name: the size of every file below the root."""
    recorded: dict[str, Recorded] = field(default_factory=dict)
    needed: dict[str, Needed] = field(default_factory=dict)
    problems: list[UnreadableFile] = field(default_factory=list)
    states: dict[str, ManifestState] = field(default_factory=dict)
    """The branches that could be read."""
    datasets: set[str] = field(default_factory=set)
    """Locations of all tables of these branches, and of the other datasets."""


Pinned = tuple[Handle, ManifestState]
"""The manifest of a branch at one version, and its state."""


def take_census(
    store: ObjectStore,
    lance: LanceStore,
    manifest: Manifest,
    branch: str | None = None,
    since: str | None = None,
) -> Census:
    """The files of all branches, or of one; with ``since``, marks those added after that commit."""
    if branch is not None and branch != MAIN:
        manifest.registration(branch)  # raises `NotFound`
    names = [branch] if branch is not None else branch_names(manifest)
    pinned: dict[str, Pinned] = {}
    failures: dict[str, OmnigraphError] = {}
    for name in names:
        try:
            pinned[name] = pin(manifest, name)
        except OmnigraphError as error:
            failures[name] = error
    # List files after reading the branches, so that the listing has all files they need.
    taker = _CensusTaker(store, lance, since)
    if MAIN in failures and not taker.has_manifest:
        raise failures[MAIN]
    return taker.take(pinned, failures)


def census_of(store: ObjectStore, lance: LanceStore, pinned: Mapping[str, Pinned]) -> Census:
    """The files of branches at their pinned states."""
    return _CensusTaker(store, lance, None).take(pinned, {})


def manifest_files(
    store: ObjectStore, lance: LanceStore, pinned: Mapping[str, Pinned]
) -> list[str]:
    """The files of the pinned manifests only, which have to be read before they are pruned."""
    return _CensusTaker(store, lance, None, MANIFEST).manifests(pinned)


def pin(manifest: Manifest, branch: str) -> Pinned:
    """The current state of a branch."""
    found = manifest.branch(branch)
    found.refresh()
    handle, state = found.current
    state.head_snapshot()
    return handle, state


def branch_names(manifest: Manifest) -> list[str]:
    """All branches, main first; main alone if its registry cannot be read."""
    try:
        registered = manifest.main.refresh().branches.keys() - {SCHEMA_APPLY_LOCK}
    except OmnigraphError:
        return [MAIN]
    return [MAIN, *sorted(registered)]


class _CensusTaker:
    def __init__(
        self, store: ObjectStore, lance: LanceStore, since: str | None, prefix: str = ""
    ) -> None:
        self._store = store
        self._lance = lance
        self._since = since
        self._root = store.root.uri
        self._found = Census(store.sizes(prefix))
        self._files: dict[tuple[str, str | None, int], tuple[str, ...] | None] = {}
        """By location, ref and version: the files the version lists; None if it is unreadable."""
        self._trees: dict[str, list[str]] = {}
        self._in_folder: dict[str, list[str]] = {}
        """By folder: its existing and recorded files."""
        for name in self._found.sizes:
            self._in_folder.setdefault(name.rpartition("/")[0], []).append(name)

    @property
    def has_manifest(self) -> bool:
        """Whether there is a graph."""
        return bool(self._versions(MANIFEST, None))

    def take(self, pinned: Mapping[str, Pinned], failures: Mapping[str, OmnigraphError]) -> Census:
        """The census of branches at these states; ``failures`` are branches that cannot be read."""
        self._listings()
        for name, error in failures.items():
            self._problem(MANIFEST, error, (name,))
        for name, (handle, state) in pinned.items():
            self._branch(name, handle, state)
        # All recorded files are known now, so that missing files can be resolved as well.
        for name, state in self._found.states.items():
            self._tables(name, state)
        for name in LISTED:
            if name != MANIFEST and self._versions(name, None):
                self._newest_of(name)
        return self._found

    def manifests(self, pinned: Mapping[str, Pinned]) -> list[str]:
        """The files of manifests."""
        for name, (handle, state) in pinned.items():
            self._need_ref(MANIFEST, MANIFEST, state.ref, name)
            self._need_version(MANIFEST, (MANIFEST, state.ref, state.version), name, handle)
        return sorted(self._found.needed)

    # --- what was recorded ------------------------------------------------------------------------

    def _listings(self) -> None:
        def damaged(error: OmnigraphError) -> None:
            self._problem(GRAPH, error)

        for name, digest in read_listings(self._store, damaged).items():
            dataset = name.partition("/")[0]
            self._record(name, Recorded(digest, dataset if dataset in LISTED else GRAPH))

    def _record(self, name: str, known: Recorded) -> None:
        # Listings come first and take precedence: a restored graph lists its rewritten files.
        if name not in self._found.recorded:
            self._found.recorded[name] = known
            if name not in self._found.sizes:
                self._in_folder.setdefault(name.rpartition("/")[0], []).append(name)

    def _recorded_rows(self, state: ManifestState, handle: Handle) -> None:
        """Collect the digests that commits of a branch recorded."""
        if not is_current(handle):
            return  # a graph from before digests
        commits = {row.commit_seq: row.commit_id for row in state.commits.values()}
        began = state.commits.get(self._since or "")
        with lance_errors(handle, "scan"):
            rows = handle.to_table(
                columns=_COLUMNS, filter="object_type = 'table_version' AND metadata IS NOT NULL"
            ).to_pylist()
        for row in rows:
            identity = TableIdentity(row["stable_table_id"], row["table_incarnation_id"])
            table = state.tables.get(identity)
            if table is None:
                continue
            try:
                digests = decode_digests(row["metadata"])
            except ValueError as error:
                message = f"the digests of version {row['table_version']} are malformed: {error}"
                self._found.problems.append(UnreadableFile(MANIFEST, table.table_key, message))
                continue
            seq = row["commit_seq"]
            is_since = began is None or seq > began.commit_seq
            for name, digest in digests.items():
                known = Recorded(digest, table.table_key, commits.get(seq), is_since)
                self._record(f"{table.location}/{name}", known)

    # --- what is needed ---------------------------------------------------------------------------

    def _branch(self, name: str, handle: Handle, state: ManifestState) -> None:
        try:
            self._recorded_rows(state, handle)
        except OmnigraphError as error:
            self._problem(MANIFEST, error, (name,))
            return
        self._found.states[name] = state
        self._found.datasets.add(MANIFEST)
        self._need_ref(MANIFEST, MANIFEST, state.ref, name)
        self._need_version(MANIFEST, (MANIFEST, state.ref, state.version), name, handle)

    def _tables(self, name: str, state: ManifestState) -> None:
        heads = {(e.location, e.ref, e.version) for e in state.head_snapshot().tables.values()}
        keys: dict[tuple[str, str | None], str] = {}
        newest: dict[tuple[str, str | None], int] = {}
        for row in state.versions:
            table = state.tables.get(row.identity)
            if table is not None:
                place = table.location, row.ref
                keys[place] = table.table_key
                newest[place] = max(row.version, newest.get(place, 0))
        for (location, ref), table_key in keys.items():
            self._found.datasets.add(location)
            shown = {version for place, of, version in heads if (place, of) == (location, ref)}
            if shown:
                self._need_ref(table_key, location, ref, name)
            # Newer versions belong to a parent branch or are not published yet.
            last = newest[location, ref]
            stored = {each for each in self._versions(location, ref) if each <= last}
            for version in stored | shown:
                seen_by = name if version in shown else None
                self._need_version(table_key, (location, ref, version), seen_by, None)

    def _newest_of(self, name: str) -> None:
        self._found.datasets.add(name)
        newest = max(self._versions(name, None))
        self._need_version(name, (name, None, newest), MAIN, None)

    def _need_ref(self, table: str, location: str, ref: str | None, branch: str) -> None:
        if ref is not None:
            self._need(f"{location}/_refs/branches/{ref}.json", table, branch)

    def _need_version(
        self, table: str, at: tuple[str, str | None, int], branch: str | None, handle: Handle | None
    ) -> None:
        """Mark a version (location, ref and number) and the files it lists as needed."""
        if at not in self._files:
            self._files[at] = self._listed(table, *at, handle=handle)
        for name in self._files[at] or ():
            self._need(name, table, branch)
        self._need(self._version_name(*at), table, branch)

    def _need(self, name: str, table: str, branch: str | None) -> None:
        needed = self._found.needed.setdefault(name, Needed(table))
        if branch is not None:
            needed.branches.add(branch)

    def _listed(
        self, table: str, location: str, ref: str | None, version: int, *, handle: Handle | None
    ) -> tuple[str, ...] | None:
        if self._version_name(location, ref, version) not in self._found.sizes:
            return None
        try:
            where = DatasetRef(f"{self._root}/{location}", ref)
            handle = handle or self._lance.open(where, version)
            with lance_errors(str(handle.uri)):
                return tuple(self._names(handle, location, ref))
        except OmnigraphError as error:
            self._problem(table, error, file=self._version_name(location, ref, version))
            return None

    def _names(self, handle: Handle, location: str, ref: str | None) -> Iterator[str]:
        """Data, deletion, blob and index files of a version.

        Files that a branch shares with the refs it was forked from are in their folders.
        """
        folders = self._folders(location, ref)
        for fragment in handle.get_fragments():
            for file in fragment.data_files():
                name = self._resolve(folders, f"data/{file.path}")
                yield name
                yield from self._in_folder.get(name.removesuffix(".lance"), ())
            deleted = fragment.metadata.deletion_file
            if deleted is not None:
                yield self._resolve(folders, deleted.path(fragment.fragment_id))
        for uuid in _index_uuids(handle):
            for folder in folders:
                yield from self._in_folder.get(f"{folder}/_indices/{uuid}", ())

    def _folders(self, location: str, ref: str | None) -> list[str]:
        """The folder of a ref, then those of main and of all other refs of its dataset."""
        tree = f"{location}/tree/"
        if location not in self._trees:
            names = (name for name in self._found.sizes if name.startswith(tree))
            refs = {name.removeprefix(tree).partition("/")[0] for name in names}
            self._trees[location] = [f"{tree}{each}" for each in sorted(refs)]
        own = [] if ref is None else [f"{tree}{ref}"]
        return [*own, location, *(each for each in self._trees[location] if each not in own)]

    def _resolve(self, folders: Iterable[str], name: str) -> str:
        places = [f"{folder}/{name}" for folder in folders]
        for known in (self._found.sizes, self._found.recorded):
            for place in places:
                if place in known:
                    return place
        return places[0]

    # --- versions ---------------------------------------------------------------------------------

    def _versions(self, location: str, ref: str | None) -> set[int]:
        folder = location if ref is None else f"{location}/tree/{ref}"
        paths = [
            PurePosixPath(name)
            for name in self._in_folder.get(f"{folder}/_versions", ())
            if name in self._found.sizes
        ]
        return {
            version_named(path.stem)
            for path in paths
            if path.suffix == ".manifest" and path.stem.isdecimal()
        }

    def _version_name(self, location: str, ref: str | None, version: int) -> str:
        folder = location if ref is None else f"{location}/tree/{ref}"
        older = f"{folder}/_versions/{version}.manifest"
        return older if older in self._found.sizes else version_name(folder, version)

    def _problem(
        self,
        table: str,
        error: OmnigraphError,
        branches: tuple[str, ...] = (),
        file: str | None = None,
    ) -> None:
        named = str(error.details.get("file", file or table)).removeprefix(f"{self._root}/")
        self._found.problems.append(UnreadableFile(named, table, error.message, branches))


def version_name(folder: str, version: int) -> str:
    """The name of the file of a version, in the folder of its dataset or ref."""
    return f"{folder}/_versions/{2**64 - 1 - version:020d}.manifest"


def _index_uuids(handle: Handle) -> list[str]:
    try:
        return [s.uuid for index in handle.describe_indices() for s in index.segments]
    except BaseException as error:
        if not is_of_a_library(error) and not isinstance(error, LIBRARY_ERRORS):
            raise
        return []  # a damaged index file is detected by its digest
