"""Statistics of a graph, and findings that need attention. Writes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial

import pyarrow as pa

from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.recovery.examining import REPAIR_ADVICE, drift_error
from omnigraph.effects.requests import concurrently
from omnigraph.effects.uri import Root
from omnigraph.errors import DamagedFile, OmnigraphError, RootMoved, UncoveredDrift
from omnigraph.model.ids import MAIN_BRANCH, SCHEMA_APPLY_LOCK
from omnigraph.model.records import dataclass
from omnigraph.model.upkeep import (
    KEEP_RECOMMENDED,
    CleanupPolicy,
    Diagnosis,
    DoctorCheck,
    FindingCode,
    GraphStats,
    IndexStats,
    LeaseHolder,
    PendingOperation,
    TableStats,
    UpkeepFinding,
    command_on,
)
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, declared_indexes
from omnigraph.storage.damage import damaged_files
from omnigraph.storage.datasets import Handle
from omnigraph.storage.indexes import indexes_of, why_not_buildable
from omnigraph.storage.layout import ADJACENCY
from omnigraph.storage.manifest import TableEntry
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.search import has_text_index, matching_rows, nearest_rows
from omnigraph.storage.versions import live_states, size_of, version_count, version_numbers
from omnigraph.upkeep.cleanup import plan_cleanup
from omnigraph.upkeep.pending import pending_operations
from omnigraph.upkeep.repair import TableDrift, plan_repair
from omnigraph.upkeep.retention import Retention
from omnigraph.upkeep.scrub import scrub

FRAGMENTS_MANY = 16
"""Small fragments from which on they are reported, because every lookup visits all fragments."""
DELETED_SHARE = 0.2
DELETED_ROWS_FEW = 1_000
"""Up to this many deleted rows are not reported."""
UNCOVERED_SHARE = 0.1
UNCOVERED_ROWS_MANY = 100_000
"""Rows without index coverage from which on they are reported: queries scan them."""
VERSIONS_MANY = 100


def graph_stats(kernel: Kernel, branch: str = MAIN_BRANCH) -> GraphStats:
    """The statistics of a branch head and of its graph."""
    manifest = kernel.manifest.refreshed(branch)
    accepted = kernel.accepted_at(manifest.state.head_snapshot())
    capture = kernel.capture(manifest, accepted.schema_hash)
    drifts = plan_repair(kernel, capture).tables
    tables = _tables(kernel, capture, accepted.catalog, drifts)
    pending = tuple(pending_operations(kernel))
    leases = tuple(kernel.leases.holders())
    registered = set(kernel.manifest.main.refresh().branches) - {SCHEMA_APPLY_LOCK}
    stats = GraphStats(
        branch,
        capture.snapshot.commit_id,
        manifest.stamp,
        tuple(sorted({MAIN_BRANCH, *registered})),
        len(manifest.state.lineage()),
        version_count(kernel.store, manifest.where),
        tables,
        pending,
        leases,
    )
    findings = [
        *unsettled(kernel.root.uri, pending, leases),
        *abandoned(kernel.root.uri, leases, pending),
        *refused_sidecars(kernel),
        *(found for drift in drifts for found in _drift_findings(kernel, branch, drift)),
        *(found for table in tables for found in _table_findings(kernel.root.uri, branch, table)),
        *_version_findings(kernel, capture, stats),
    ]
    return replace(stats, findings=tuple(findings))


def _tables(
    kernel: Kernel, capture: Capture, catalog: Catalog, drifts: Iterable[TableDrift]
) -> tuple[TableStats, ...]:
    heads = {drift.type_key: drift.head for drift in drifts}
    types = [each for each in catalog.types if each.table_key in heads]
    work = [partial(_table, kernel, capture, each, heads[each.table_key]) for each in types]
    return concurrently(*work, threads=kernel.is_remote)


def _table(kernel: Kernel, capture: Capture, type: NodeType | EdgeType, head: int) -> TableStats:
    entry = capture.snapshot.table(type.table_key)
    handle = capture.reader.handle(type.table_key)
    size = size_of(handle)
    return TableStats(
        type.table_key,
        entry.row_count,
        size.fragments,
        size.small_fragments,
        size.deleted_rows,
        size.bytes,
        version_count(kernel.store, capture.reader.where(entry)),
        entry.version,
        head,
        tuple(_indexes(handle, entry, type)),
    )


def _indexes(handle: Handle, entry: TableEntry, type: NodeType | EdgeType) -> Iterator[IndexStats]:
    """The existing indexes, and those that are declared and could be built."""
    if entry.row_count == 0:
        return
    built = {index.spec: index for index in indexes_of(handle)}
    for spec in sorted({*built, *declared_indexes(type)}, key=str):
        index = built.get(spec)
        if index is not None:
            yield IndexStats(spec, index.rows_covered, index.rows_uncovered)
        elif why_not_buildable(handle, spec) is None:
            yield IndexStats(spec, 0, entry.row_count)


# --- findings -------------------------------------------------------------------------------------


def unsettled(
    uri: str, pending: Iterable[PendingOperation], leases: Iterable[LeaseHolder]
) -> Iterator[UpkeepFinding]:
    """Interrupted operations whose writers are gone."""
    running = {holder.operation_id for holder in leases if holder.is_alive is not False}
    for operation in pending:
        if operation.operation_id in running:
            continue
        what = f"{operation.writer_kind} on {operation.branch} was interrupted"
        if operation.writer_kind is None:
            what = "what an interrupted operation left behind cannot be read"
        yield UpkeepFinding(
            "unsettled", "problem", operation.operation_id, what, command_on(uri, "recover")
        )


def abandoned(
    uri: str, leases: Iterable[LeaseHolder], pending: Iterable[PendingOperation]
) -> Iterator[UpkeepFinding]:
    """Leases whose owners are gone, and that belong to no unsettled operation."""
    known = {operation.operation_id for operation in pending}
    for holder in leases:
        if holder.is_alive is False and holder.operation_id not in known:
            yield UpkeepFinding(
                "lease_abandoned",
                "advice",
                holder.scope,
                "its owner ended without giving it back; the next writer takes it over",
                command_on(uri, "recover"),
            )


def refused_sidecars(kernel: Kernel) -> Iterator[UpkeepFinding]:
    """Sidecars that recovery set aside for an operator."""
    for found in kernel.sidecars.refused():
        file = kernel.table_uri(found.place)
        remove = ("rm",) if kernel.root.is_local else ("aws", "s3", "rm")
        yield UpkeepFinding(
            "sidecar_refused",
            "problem",
            found.operation_id,
            f"a recovery sidecar was set aside in {file} and not acted on: it {found.problem}; "
            "read it, then remove it",
            shlex.join((*remove, file)),
        )


def _drift_findings(kernel: Kernel, branch: str, drift: TableDrift) -> Iterator[UpkeepFinding]:
    kind = drift.classification
    if kind == "no_drift":
        return
    uri = kernel.root.uri
    versions = f"version {drift.head} is not published, {drift.entry.version} is"
    error = drift_error(kernel, branch, drift.entry, drift.head)
    if not isinstance(error, UncoveredDrift):
        # A writer is publishing or has published; `unsettled` reports dead writers.
        return
    if not (error.hint or "").startswith(REPAIR_ADVICE):
        command = command_on(uri, "recover")
    elif kind == "verified_maintenance":
        command = command_on(uri, "repair", "--confirm", branch=branch)
    else:
        names = ", ".join(sorted(set(drift.names)))
        versions += f"; adopting it accepts what was written by {names}"
        command = command_on(uri, "repair", "--force", "--confirm", branch=branch)
    yield UpkeepFinding("drift", "problem", _subject_of(branch, drift.type_key), versions, command)


def _table_findings(uri: str, branch: str, table: TableStats) -> Iterator[UpkeepFinding]:
    subject = _subject_of(branch, table.type_key)
    missing = [str(index.spec) for index in table.indexes if index.is_missing]
    if missing:
        message = f"indexes are missing: {', '.join(missing)}"
        command = command_on(uri, "index", branch=branch)
        yield UpkeepFinding("index_missing", "advice", subject, message, command)
    if branch != MAIN_BRANCH:
        return  # only main is optimized
    stale = [
        f"{index.spec} by {index.rows_uncovered} rows" for index in table.indexes if _stale(index)
    ]
    command = command_on(uri, "optimize")
    if stale:
        message = f"indexes are behind: {', '.join(stale)}"
        yield UpkeepFinding("index_stale", "advice", subject, message, command)
    physical = table.rows + table.deleted_rows
    if table.small_fragments >= FRAGMENTS_MANY:
        message = f"its rows lie in {table.fragments} fragments"
        yield UpkeepFinding("fragments", "advice", subject, message, command)
    elif table.deleted_rows > max(DELETED_ROWS_FEW, DELETED_SHARE * physical):
        message = f"{table.deleted_rows} of {physical} rows in its files are deleted"
        yield UpkeepFinding("fragments", "advice", subject, message, command)


def _version_findings(
    kernel: Kernel, capture: Capture, stats: GraphStats
) -> Iterator[UpkeepFinding]:
    """Too many old versions that no branch uses."""
    if stats.branch != MAIN_BRANCH:
        return
    uri = kernel.root.uri
    if stats.manifest_versions >= VERSIONS_MANY:
        yield _too_many(uri, "__manifest", stats.manifest_versions)
    many = [table.type_key for table in stats.tables if table.versions >= VERSIONS_MANY]
    if not many:
        return
    retention = Retention.of(live_states(kernel.manifest))
    for type_key in many:
        entry = capture.snapshot.table(type_key)
        place = (entry.identity, entry.ref)
        stored = version_numbers(kernel.store, capture.reader.where(entry))
        old = [number for number in stored if not retention.needs(place, number)]
        if len(old) >= VERSIONS_MANY - KEEP_RECOMMENDED:
            yield _too_many(uri, type_key, len(old))


def _too_many(uri: str, subject: str, versions: int) -> UpkeepFinding:
    command = command_on(uri, "cleanup", "--keep", str(KEEP_RECOMMENDED), "--confirm")
    return UpkeepFinding(
        "versions", "advice", subject, f"{versions} old versions are kept", command
    )


def _stale(index: IndexStats) -> bool:
    if index.is_missing:
        return False
    rows = index.rows_covered + index.rows_uncovered
    return index.rows_uncovered > min(UNCOVERED_SHARE * rows, UNCOVERED_ROWS_MANY)


def _subject_of(branch: str, type_key: str) -> str:
    return type_key if branch == MAIN_BRANCH else f"{type_key} on {branch}"


EVERYTHING = CleanupPolicy(keep=2**31)
"""A policy that removes no version, to find only leftovers."""

GRAPH_WIDE: frozenset[FindingCode] = frozenset({"unsettled", "lease_abandoned", "sidecar_refused"})
"""Findings that are the same for every branch, so they are reported once."""


MENDED_FIRST: tuple[FindingCode, ...] = ("damaged", "unsettled", "sidecar_refused", "drift")
"""In this order: while these are unresolved, the commands for other findings fail."""


def unopened(root: Root, error: OmnigraphError) -> Diagnosis:
    """The diagnosis of a graph that cannot be opened; its files are still checked."""
    uri = root.uri
    if isinstance(error, RootMoved):
        back = shlex.join(("mv", str(error.details["root"]), str(error.details["recorded_root"])))
        finding = UpkeepFinding("root_moved", "problem", "graph", error.message, back)
    else:
        finding = _damage("graph", uri, error)
    lost = [each for each in _file_findings(root) if each.subject != finding.subject]
    checks = DoctorCheck("open", is_fine=False), DoctorCheck(FILES, is_fine=not lost)
    return Diagnosis(uri, checks, (finding, *lost))


FILES = "files"


def _file_findings(root: Root) -> list[UpkeepFinding]:
    """Required files that are missing or unreadable; on local disk only."""
    if root.path is None:
        return []
    return [_damage("graph", root.uri, each) for each in damaged_files(root.path)]


def examine(kernel: Kernel, *, deep: bool = False) -> Diagnosis:
    """Test all read paths on every branch; with ``deep``, also every file by its digest."""
    examination = _Examination(kernel)
    branches = examination.branches()
    for branch in branches:
        examination.check(f"numbers of {branch}", branch, partial(examination.numbers, branch))
        for type in examination.types(branch):
            subject = _subject_of(branch, type.table_key)
            examination.check(f"read {subject}", subject, partial(examination.read, branch, type))
    examination.check(FILES, "graph", partial(_file_findings, kernel.root))
    if deep:
        examination.check("digests", "graph", partial(_scrubbed, kernel))
    examination.check("operations and leases", "graph", examination.owners)
    examination.check("leftovers", "graph", examination.leftovers)
    findings = sorted(examination.findings, key=_turn)
    return Diagnosis(kernel.root.uri, tuple(examination.checks), tuple(findings))


def _scrubbed(kernel: Kernel) -> Iterator[UpkeepFinding]:
    for each in scrub(kernel).findings:
        if each.table == ADJACENCY:
            told = f"{each.file}: {each.problem}; it is not used, and can be made anew"
            command = command_on(kernel.root.uri, "optimize")
            yield UpkeepFinding("damaged", "problem", each.file, told, command)
            continue
        file = f"{kernel.root.uri}/{each.file}"
        error = DamagedFile(file, f"it belongs to {each.table}", each.problem)
        yield _damage(each.file, kernel.root.uri, error)


def _turn(finding: UpkeepFinding) -> int:
    return MENDED_FIRST.index(finding.code) if finding.code in MENDED_FIRST else len(MENDED_FIRST)


@dataclass
class _Examination:
    """The state of one examination."""

    kernel: Kernel
    checks: list[DoctorCheck] = field(default_factory=list)
    findings: list[UpkeepFinding] = field(default_factory=list)

    def check(
        self, name: str, subject: str, attempt: Callable[[], Iterable[UpkeepFinding]]
    ) -> None:
        """Run a check; an error becomes a finding."""
        try:
            found = list(attempt())
        except OmnigraphError as error:
            found = [_damage(subject, self.kernel.root.uri, error)]
        # Several checks find the same damage: report it once.
        known = {(each.code, each.subject) for each in self.findings if each.code == "damaged"}
        self.findings += [
            each
            for each in found
            if each not in self.findings and (each.code, each.subject) not in known
        ]
        self.checks.append(DoctorCheck(name, all(each.severity == "advice" for each in found)))

    def branches(self) -> list[str]:
        """All branches, main first."""
        names = set(self.kernel.manifest.main.refresh().branches) - {SCHEMA_APPLY_LOCK}
        return [MAIN_BRANCH, *sorted(names)]

    def types(self, branch: str) -> Sequence[NodeType | EdgeType]:
        """The types of a branch; empty if its schema is unreadable, which `numbers` reports."""
        try:
            return self.kernel.accepted_on(branch).catalog.types
        except OmnigraphError:
            return ()

    def numbers(self, branch: str) -> Iterable[UpkeepFinding]:
        """Findings of drift and of possible improvements."""
        stats = graph_stats(self.kernel, branch)
        return (found for found in stats.findings if found.code not in GRAPH_WIDE)

    def owners(self) -> Iterable[UpkeepFinding]:
        """Interrupted operations, and leases of dead owners."""
        uri = self.kernel.root.uri
        pending = pending_operations(self.kernel)
        leases = self.kernel.leases.holders()
        return [
            *unsettled(uri, pending, leases),
            *abandoned(uri, leases, pending),
            *refused_sidecars(self.kernel),
        ]

    def leftovers(self) -> Iterable[UpkeepFinding]:
        """Forks that no branch uses, unless an operation must be recovered first."""
        if any(found.severity == "problem" for found in self.findings):
            return
        plan = plan_cleanup(self.kernel, EVERYTHING, live_states(self.kernel.manifest))
        command = command_on(
            self.kernel.root.uri, "cleanup", "--keep", str(KEEP_RECOMMENDED), "--confirm"
        )
        for table in plan.tables:
            if table.orphans:
                message = f"{len(table.orphans)} refs belong to no branch"
                yield UpkeepFinding("orphan_ref", "advice", table.type_key, message, command)

    def read(self, branch: str, type: NodeType | EdgeType) -> Iterable[UpkeepFinding]:
        """Read all rows, and look up rows by id, endpoint, word and vector distance."""
        snapshot = self.kernel.manifest.branch(branch).state.head_snapshot()
        reader = SnapshotReader(self.kernel.lance, self.kernel.root.uri, snapshot)
        key = type.table_key
        columns = [each.name for each in type.properties.values() if not each.type.is_blob]
        ends = ["src", "dst"] if isinstance(type, EdgeType) else []
        first: dict[str, object] | None = None
        for batch in reader.batches(key, ["id", *ends, *columns]):
            if first is None and batch.num_rows:
                first = batch.slice(0, 1).to_pylist()[0]
        if first is None:
            return ()
        for column in ("id", *ends):
            reader.rows_where_in(key, column, pa.array([first[column]]), ["id"])
        handle = reader.handle(key)
        for spec in declared_indexes(type):
            value = first.get(spec.column)
            if spec.kind == "inverted" and isinstance(value, str):
                if has_text_index(handle, spec.column):
                    matching_rows(handle, spec.column, value)
            elif spec.kind == "vector" and isinstance(value, list):
                nearest_rows(handle, spec.column, value, 1)
        return ()


def _damage(subject: str, uri: str, error: OmnigraphError) -> UpkeepFinding:
    """The finding for something unreadable."""
    command = command_on(uri, "recover")
    if "file" in error.details:
        subject = str(error.details["file"]).removeprefix(f"{uri}/")
        command = f"cp -a {shlex.quote(f'COPY/{subject}')} {shlex.quote(f'{uri}/{subject}')}"
    elif error.code not in ("recovery_required", "unreadable_sidecar"):
        command = f"cp -a COPY/. {shlex.quote(uri)}"
    hint = f"; {error.hint}" if error.hint else ""
    return UpkeepFinding("damaged", "problem", subject, f"{error.message}{hint}", command)
