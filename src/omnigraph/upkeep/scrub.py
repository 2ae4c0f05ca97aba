"""Reads every file of a graph against the digest that was recorded when it was written.

Files are immutable, so a run can be interrupted and continued, and does not block writers: a file
that cleanup removes during the run is no finding.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.schema.contract import (
    promoted_contract,
    schema_digest_names,
    staged_objects,
)
from omnigraph.commit.sidecars import SIDECAR_BYTES_MAX
from omnigraph.copies.census import GRAPH, Census, Needed, Recorded, take_census, version_name
from omnigraph.effects.clock import monotonic_seconds
from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.local_disk import symbolic_links
from omnigraph.errors import DamagedFile, InputError, NotFound, OmnigraphError
from omnigraph.model.ids import normalize_commit_id
from omnigraph.model.records import dataclass
from omnigraph.model.upkeep import ScrubFinding, ScrubKind, ScrubReport
from omnigraph.storage.damage import problem_of
from omnigraph.storage.digests import (
    ETAG,
    FileDigest,
    decode_listing,
    digest_chunks,
    encode_listing,
    listing_name,
)
from omnigraph.storage.layout import (
    ADJACENCY,
    DIGESTS,
    INIT_CLAIM,
    LEASES,
    LOAD_SCRATCH,
    MAIN,
    PAST_SCHEMAS,
    RECOVERY,
    REFUSED_SIDECARS,
    RESTORING,
    SCHEMA_OBJECTS,
    STAGING_SUFFIX,
    past_schema_name,
    past_source_name,
)
from omnigraph.storage.migrations import retired_datasets
from omnigraph.storage.saved_adjacency import (
    AdjacencyFiles,
    UnusableAdjacency,
    digest_in,
    is_state,
    saved_locations,
)
from omnigraph.upkeep.retention import Retention

THREADS = 4
ADOPTED = "adopted"
"""The listing of files that existed before digests were recorded."""

_FOLDERS: dict[str, tuple[str, ...]] = {
    "data": (".lance", ".blob"),
    "_versions": (".manifest", ".json"),
    "_transactions": (".txn",),
    "_deletions": (".arrow", ".bin"),
    "_indices": (),
    "_refs": (".json",),
}
"""The folders of a dataset and the suffixes of files in them; an index may contain any."""
_PREFIXES = (LEASES, RECOVERY, REFUSED_SIDECARS, LOAD_SCRATCH, PAST_SCHEMAS, DIGESTS)
_TABLES = ("nodes", "edges")

Progress = Callable[[int, int], None]


def scrub(
    kernel: Kernel,
    *,
    branch: str | None = None,
    since: str | None = None,
    adopt: bool = False,
    bytes_per_second: int | None = None,
    resume: Path | None = None,
    progress: Progress | None = None,
) -> ScrubReport:
    """Read the files of all branches, or of one, and compare them with their digests.

    With ``since``, only files of later commits and of the manifest are read. ``adopt`` records
    digests of the current content of files that have none. ``resume`` is a file that records
    checked files: a run with the same file continues there. ``progress`` gets the bytes read and
    the total.
    """
    started = monotonic_seconds()
    run = _Scrub(kernel, branch, None if since is None else normalize_commit_id(since))
    census = run.census()
    if since is not None and not any(run.since in s.commits for s in census.states.values()):
        raise NotFound(f"there is no commit {since}", hint="`omnigraph commit list` shows them")
    report = run.check(census, bytes_per_second, resume, progress)
    if adopt:
        report = replace(report, files_adopted=run.adopt(census))
    return replace(report, seconds=monotonic_seconds() - started)


@dataclass(slots=True)
class _FileResult:
    """The result of reading one file."""

    name: str
    size: int = 0
    kind: ScrubKind | None = None
    problem: str = ""


class _Scrub:
    def __init__(self, kernel: Kernel, branch: str | None, since: str | None) -> None:
        self._kernel = kernel
        self._store = kernel.store
        self._branch = branch
        self.since = since
        self._undigested: dict[str, Needed] = {}

    def census(self) -> Census:
        """The existing and the required files."""
        kernel = self._kernel
        found = take_census(kernel.store, kernel.lance, kernel.manifest, self._branch, self.since)
        if self._branch is None and MAIN in found.states:
            self._need_bases(found)
        self._need_schemas(found)
        if self._branch is None and self.since is None:
            for name, size in found.sizes.items():
                digest = digest_in(name)
                if digest is not None:
                    found.recorded[name] = Recorded(FileDigest(size, digest), ADJACENCY)
        return found

    def _need_schemas(self, census: Census) -> None:
        """Add the schemas that branches still use although main has replaced them."""
        main = census.states.get(MAIN)
        accepted = None if main is None else main.head_snapshot().commit.schema_hash
        for branch, state in census.states.items():
            schema_hash = state.head_snapshot().commit.schema_hash
            if accepted not in (None, schema_hash):
                name = past_schema_name(schema_hash)
                for each in (name, past_source_name(name)):
                    census.needed.setdefault(each, Needed(GRAPH)).branches.add(branch)

    def _need_bases(self, census: Census) -> None:
        """Add the versions that tags use, and the bases of the next merges."""
        locations = {
            identity: table for s in census.states.values() for identity, table in s.tables.items()
        }
        for (identity, ref), version in Retention.of(census.states).bases:
            table = locations.get(identity)
            if table is not None:
                folder = table.location if ref is None else f"{table.location}/tree/{ref}"
                older = f"{folder}/_versions/{version}.manifest"
                name = older if older in census.sizes else version_name(folder, version)
                census.needed.setdefault(name, Needed(table.table_key))

    # --- checking ---------------------------------------------------------------------------------

    def check(
        self,
        census: Census,
        bytes_per_second: int | None,
        resume: Path | None,
        progress: Progress | None,
    ) -> ScrubReport:
        """Read the existing files, and compare them with the recorded ones."""
        known = {name: each for name, each in census.recorded.items() if each.is_since}
        self._undigested = {
            name: each
            for name, each in census.needed.items()
            if name in census.sizes and name not in census.recorded
        }
        # With `--since`, files without a digest are older than all requested ones.
        undigested = {} if self.since is not None else self._undigested
        names = sorted(name for name in {*known, *undigested} if name in census.sizes)
        with ExitStack() as stack:
            checked = _Checked(self._kernel.root.uri, resume)
            stack.enter_context(checked)
            left = [name for name in names if name not in checked]
            total = sum(census.sizes[name] for name in left)
            pace = _ReadRate(bytes_per_second, progress, total)

            def look(name: str) -> _FileResult:
                recorded = known.get(name)
                digest = None if recorded is None else recorded.digest
                result = self._check_file(name, digest, pace)
                if result.kind is None:
                    checked.add(name)
                return result

            pool = stack.enter_context(ThreadPoolExecutor(THREADS))
            results = list(pool.map(look, left))
        findings = [*self._graph_findings(census), *self._findings(census, results)]
        return ScrubReport(
            self._kernel.root.uri,
            len(left),
            sum(each.size for each in results),
            len(names) - len(left),
            len(undigested),
            0,
            self._unreferenced(census),
            0.0,
            tuple(_one_per_file(findings)),
        )

    def _check_file(self, name: str, recorded: FileDigest | None, pace: _ReadRate) -> _FileResult:
        try:
            if recorded is not None and recorded.digest.startswith(ETAG):
                return self._check_etag(name, recorded)
            digest = digest_chunks(pace.through(self._store.chunks(name)))
        except StorageFailure as failure:
            if failure.failure_class is FailureClass.NOT_FOUND:
                return _FileResult(name, 0, "missing", "it is missing")
            return _FileResult(name, 0, "damaged", failure.message)
        if recorded is None:
            path = self._kernel.root.path
            problem = None if path is None else problem_of(path / name)
            return _FileResult(
                name, digest.size, None if problem is None else "damaged", problem or ""
            )
        if digest == recorded:
            return _FileResult(name, digest.size)
        problem = "its content is not what was written"
        if digest.size != recorded.size:
            problem = f"it has {digest.size} bytes, and {recorded.size} were written"
        return _FileResult(name, digest.size, "damaged", problem)

    def _check_etag(self, name: str, recorded: FileDigest) -> _FileResult:
        """Check a large object by its ETag, without reading it."""
        found = self._store.attributes(name)
        if found is None:
            return _FileResult(name, 0, "missing", "it is missing")
        if found.size == recorded.size and f"{ETAG}{found.tag}" == recorded.digest:
            return _FileResult(name, 0)
        return _FileResult(name, 0, "damaged", "the store holds another object under its name")

    def _findings(self, census: Census, results: list[_FileResult]) -> Iterator[ScrubFinding]:
        gone = {name for name in census.needed if name not in census.sizes}
        if self.since is not None:
            gone = {name for name in gone if (r := census.recorded.get(name)) and r.is_since}
        gone |= {each.name for each in results if each.kind == "missing"}
        # If cleanup removed them during the run, nothing needs them.
        if gone:
            again = self.census()
            gone = {name for name in gone if name in again.needed and name not in again.sizes}
        for name in sorted(gone):
            yield self._finding(census, "missing", name, "it is missing")
        for each in results:
            if each.kind == "damaged":
                yield self._finding(census, "damaged", each.name, each.problem)

    def _finding(self, census: Census, kind: ScrubKind, name: str, problem: str) -> ScrubFinding:
        needed, recorded = census.needed.get(name), census.recorded.get(name)
        table = recorded.table if recorded is not None else needed.table if needed else GRAPH
        commit_id = None if recorded is None else recorded.commit_id
        branches = tuple(sorted(needed.branches)) if needed is not None else ()
        return ScrubFinding(kind, name, table, problem, commit_id, branches)

    def _graph_findings(self, census: Census) -> Iterator[ScrubFinding]:
        """Findings about unreadable metadata, the schema, and foreign files."""
        for each in census.problems:
            yield ScrubFinding(
                "damaged", each.file, each.table, each.message, branches=each.branches
            )
        yield from self._schema(census)
        yield from self._adjacency(census)
        if self._branch is None and self.since is None:
            yield from self._foreign(census)

    def _schema(self, census: Census) -> Iterator[ScrubFinding]:
        head = census.states.get(MAIN)
        if head is None or staged_objects(self._store):
            return  # unknown, or being replaced
        listed = schema_digest_names(head.head_snapshot().commit.schema_hash)
        found = False
        for name, entry in zip(SCHEMA_OBJECTS, listed, strict=True):
            recorded = census.recorded.get(entry)
            content = self._store.read_if_exists(name)
            if content is None:
                found = True
                yield ScrubFinding("missing", name, GRAPH, "it is missing", branches=(MAIN,))
            elif recorded is not None and digest_chunks([content]) != recorded.digest:
                found = True
                problem = "its content is not what was written"
                yield ScrubFinding("damaged", name, GRAPH, problem, branches=(MAIN,))
        if not found:
            try:
                promoted_contract(self._store)
            except OmnigraphError as error:
                yield ScrubFinding("damaged", SCHEMA_OBJECTS[1], GRAPH, error.message)

    def _adjacency(self, census: Census) -> Iterator[ScrubFinding]:
        """Check the state files of saved adjacency; its arrays are checked like other files."""
        if self._branch is None and self.since is None:
            for location in saved_locations(census.sizes):
                files = AdjacencyFiles(self._store, location)
                try:
                    files.state()
                except UnusableAdjacency as error:
                    yield ScrubFinding("damaged", files.state_name, ADJACENCY, str(error))

    # --- what no version lists --------------------------------------------------------------------

    def _foreign(self, census: Census) -> Iterator[ScrubFinding]:
        root = self._kernel.root.path
        for link in () if root is None else symbolic_links(root):
            name = link.relative_to(root or link).as_posix()
            yield ScrubFinding("foreign", name, GRAPH, "it is a symbolic link, and not followed")
        own = {
            *SCHEMA_OBJECTS,
            INIT_CLAIM,
            RESTORING,
            *(f"{each}{STAGING_SUFFIX}" for each in SCHEMA_OBJECTS),
        }
        datasets = {*census.datasets, *retired_datasets(self._store)}
        for name, size in census.sizes.items():
            top = name.partition("/")[0]
            if name in own or top in _PREFIXES:
                if top in (RECOVERY, REFUSED_SIDECARS) and size > SIDECAR_BYTES_MAX:
                    yield ScrubFinding("foreign", name, GRAPH, f"a sidecar of {size} bytes")
                continue
            if top == ADJACENCY and (is_state(name) or digest_in(name) is not None):
                continue
            if not _is_of_a_dataset(name, datasets):
                yield ScrubFinding("foreign", name, GRAPH, "it does not belong to the graph")

    def _unreferenced(self, census: Census) -> int:
        """The number of unlisted data and index files: staged, or leftovers of a crashed write."""
        return sum(
            name not in census.needed and name not in census.recorded
            for name in census.sizes
            if "/data/" in name or "/_indices/" in name
        )

    # --- adopting ---------------------------------------------------------------------------------

    def adopt(self, census: Census) -> int:
        """Record digests of readable files that have none; returns their number."""
        name = listing_name(ADOPTED)
        content, known = self._store.read_if_exists(name), dict[str, FileDigest]()
        if content is not None:
            try:
                known = decode_listing(name, content)
            except DamagedFile:
                known = {}
        kept = {file: each for file, each in known.items() if file in census.sizes}
        pace = _ReadRate(None, None, 0)
        added = 0
        for file in self._undigested:
            if self._check_file(file, None, pace).kind is None:
                kept[file] = digest_chunks(self._store.chunks(file))
                added += 1
        if kept != known:
            self._store.write(name, encode_listing(kept))
        return added


def _is_of_a_dataset(name: str, datasets: set[str]) -> bool:
    """Whether a file is where Lance stores files of its kind, in a table of the graph."""
    parts = name.split("/")
    depth = 2 if parts[0] in _TABLES else 1
    if parts[0] not in _TABLES and parts[0] not in datasets:
        return False
    inside = parts[depth:]
    if inside[:1] == ["tree"]:
        inside = inside[2:]
    if len(inside) < 2 or inside[0] not in _FOLDERS:
        return False
    endings = _FOLDERS[inside[0]]
    # Versions are first written under a temporary name, which a crash leaves behind.
    return not endings or PurePosixPath(name.partition("#")[0]).suffix in endings


def _one_per_file(findings: list[ScrubFinding]) -> Iterator[ScrubFinding]:
    """One finding per file: the first is the most specific."""
    seen: set[str] = set()
    for each in sorted(findings, key=lambda each: each.table == GRAPH):
        if each.file not in seen:
            seen.add(each.file)
            yield each


class _ReadRate:
    """Counts bytes read, and limits their rate."""

    def __init__(self, bytes_per_second: int | None, progress: Progress | None, total: int) -> None:
        self._limit = bytes_per_second
        self._progress = progress
        self._total = total
        self._done = 0
        self._began = monotonic_seconds()
        self._guard = threading.Lock()

    def through(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The chunks of a file, at the rate that all files share."""
        for chunk in chunks:
            with self._guard:
                self._done += len(chunk)
                if self._progress is not None:
                    self._progress(self._done, self._total)
                due = 0.0 if self._limit is None else self._done / self._limit
            wait = due - (monotonic_seconds() - self._began)
            if wait > 0:
                time.sleep(wait)
            yield chunk


class _Checked:
    """The files that passed, recorded in a file so that another run can continue."""

    def __init__(self, uri: str, path: Path | None) -> None:
        self._path = path
        self._title = f"omnigraph scrub {uri}"
        self._names: set[str] = set()
        self._file: IO[str] | None = None
        self._guard = threading.Lock()

    def __enter__(self) -> _Checked:
        if self._path is not None:
            text = self._path.read_text() if self._path.exists() else ""
            whole, _, cut = text.rpartition("\n")  # a killed run may leave an incomplete line
            title, *names = whole.split("\n")
            if text and title != self._title:
                raise InputError(
                    f"{self._path} does not belong to a scrub of this graph",
                    hint="name another file, or delete this one",
                )
            self._names = set(names)
            self._file = self._path.open("a")
            self._file.write("\n" if cut else "" if text else f"{self._title}\n")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        """Record a file."""
        if self._file is not None:
            with self._guard:
                self._file.write(f"{name}\n")
                self._file.flush()
