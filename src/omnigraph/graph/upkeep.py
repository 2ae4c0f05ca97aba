"""Upkeep of an open graph: indexes, compaction, repair, cleanup, recovery, statistics, copies.

Bundles of version 1 do not decide about these verbs: any process that can write to the storage may
run them. A process that can read the storage could copy its files anyway.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from omnigraph import copies
from omnigraph.branching.three_way import ConflictRules
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.recovery.audit import RecoveryAudit, RecoveryRow
from omnigraph.commit.recovery.settling import Settlement
from omnigraph.copies.receipts import BackupReceipt, CopyReceipt, TransferReceipt
from omnigraph.copies.transfer import TransferSpec, transfer
from omnigraph.errors import InputError
from omnigraph.graph.opened import Handle, engine_name
from omnigraph.graph.reading import visible_counts
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.governor import CACHE_BYTES_VARIABLE, bytes_from_environment
from omnigraph.model.ids import checked_message
from omnigraph.model.load_options import SparkOptions, checked_options
from omnigraph.model.merging import ConflictPolicy, MergeGranularity
from omnigraph.model.upkeep import (
    CleanupPolicy,
    CleanupReceipt,
    Diagnosis,
    GraphStats,
    IndexReceipt,
    OptimizedTable,
    OptimizeReceipt,
    RepairReceipt,
    ScrubReport,
)
from omnigraph.storage.layout import REVIEWS
from omnigraph.storage.saved_adjacency import is_worth_saving
from omnigraph.upkeep.cleanup import cleanup as run_cleanup
from omnigraph.upkeep.optimize import ensure_indices as build_indices
from omnigraph.upkeep.optimize import optimize as run_optimize
from omnigraph.upkeep.pending import release_abandoned
from omnigraph.upkeep.repair import repair as run_repair
from omnigraph.upkeep.scrub import scrub as run_scrub
from omnigraph.upkeep.stats import examine as run_examine
from omnigraph.upkeep.stats import graph_stats


def ensure_indices(self: Handle, branch: str | None = None) -> IndexReceipt:
    """Build the indexes that the schema declares and the head of a branch is missing.

    Makes one commit, or none if nothing is missing. Indexes that cannot be built yet are listed
    with the reason. Queries return the same with and without indexes. Raises `Conflict` when others
    wrote to the branch meanwhile.
    """
    self._opened.gate.maintain("index", self._access)
    return build_indices(
        self._kernel,
        self._opened.path,
        self._opened.accepted(self._branch_of(branch)),
        self._branch_of(branch),
    )


def optimize(
    self: Handle,
    *,
    progress: Callable[[int, int], None] | None = None,
    engine: Literal["local", "spark"] | None = None,
    spark: SparkOptions | None = None,
) -> OptimizeReceipt:
    """Compact main and complete its indexes, in one commit, or none if nothing is due.

    The events of change requests are compacted, too, and the sorted edges of large edge types are
    saved, so that later processes need not sort them. Old versions stay. A table that an external
    writer has changed (drift) is skipped. ``progress`` gets the number of finished tables and the
    total. With ``engine="spark"`` executors rewrite fragments and build indexes; the result is the
    same. Raises `RecoveryRequired` while an interrupted operation is unsettled, and `Conflict` when
    others wrote to main meanwhile.
    """
    self._opened.gate.maintain("optimize", self._access)
    options = checked_options(spark, SparkOptions, "spark")
    if engine_name(engine, options) == "local":
        done = run_optimize(self._kernel, self._opened.accepted(), progress=progress)
        return _with_reviews(self, _with_adjacency(self, done))
    from omnigraph.pipeline.merging import spark_workers

    with spark_workers(self._kernel.root, options, self._kernel.ids.ulid()) as workers:
        done = run_optimize(
            self._kernel, self._opened.accepted(), progress=progress, workers=workers
        )
    return _with_reviews(self, _with_adjacency(self, done))


def _with_adjacency(self: Handle, done: OptimizeReceipt) -> OptimizeReceipt:
    """Save the sorted edges of large edge types, and list them in the receipt."""
    snapshot = self._kernel.manifest.main.state.head_snapshot()
    edges = [entry for entry in snapshot.tables.values() if entry.kind == "edge"]
    if not any(is_worth_saving(entry.row_count) for entry in edges):
        return done
    from omnigraph.engines.local.saved import save_adjacency

    limit = bytes_from_environment(CACHE_BYTES_VARIABLE)
    reader = self._opened.reader_of(snapshot)
    saved = save_adjacency(reader, self._opened.catalog_of(snapshot), limit)
    tables = (replace(row, adjacency_saved=row.type_key in saved) for row in done.tables)
    return replace(done, tables=tuple(tables))


def _with_reviews(self: Handle, done: OptimizeReceipt) -> OptimizeReceipt:
    """Compact the events of change requests, if any, and list them in the receipt."""
    found = self._opened.reviews.events.compact()
    if found is None:
        return done
    version, before, after = found
    is_smaller = after < before
    removed, added = (before, after) if is_smaller else (0, 0)
    row = OptimizedTable(REVIEWS, version, version, removed, added, is_smaller)
    return replace(done, tables=(*done.tables, row))


def repair(
    self: Handle, branch: str | None = None, *, confirm: bool = False, force: bool = False
) -> RepairReceipt:
    """Publish changes that external writers made to the tables of a branch (drift).

    Without ``confirm`` this is a dry run. Only versions that are known to change no row are
    published, unless ``force`` accepts the content of the others. Raises `RecoveryRequired` while
    an interrupted operation is unsettled.
    """
    self._opened.gate.maintain("repair", self._access)
    return run_repair(
        self._kernel,
        self._opened.accepted(self._branch_of(branch)),
        self._branch_of(branch),
        confirm=confirm,
        force=force,
    )


def cleanup(
    self: Handle,
    *,
    keep: int | None = None,
    older_than: timedelta | None = None,
    confirm: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CleanupReceipt:
    """Remove old versions of tables, and data of deleted branches.

    Removed are versions beyond the newest ``keep``, or ``older_than`` an age; with both, versions
    to which both apply. Versions that a branch head or a tag uses stay. Commits whose versions were
    removed stay listed, and reading them raises `HistoricalVersionReclaimed`. Without ``confirm``
    this is a dry run. ``progress`` gets the number of finished tables and the total. Raises
    `RecoveryRequired` while an interrupted operation is unsettled, and `UncoveredDrift`.
    """
    self._opened.gate.maintain("cleanup", self._access)
    seconds = None if older_than is None else int(older_than.total_seconds())
    policy = CleanupPolicy(keep, seconds)
    return run_cleanup(self._kernel, policy, confirm=confirm, progress=progress)


def scrub(
    self: Handle,
    branch: str | None = None,
    *,
    since: str | None = None,
    adopt: bool = False,
    max_mb_per_second: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ScrubReport:
    """Read every file of the graph against the digest that was recorded when it was written.

    All branches are read, or the one that is named; with ``since``, only the files of later
    commits. The report lists damaged, missing and foreign files, with their type and commit.
    ``adopt`` records digests of files that have none, which graphs from before digests need once.
    ``max_mb_per_second`` limits the speed. ``resume`` is a file that records checked files, so that
    an interrupted run can be continued. ``progress`` gets the bytes read and the total. Without
    ``adopt`` nothing is written, and no writer is blocked. Raises `NotFound` for a missing branch
    or commit.
    """
    verb = "scrub --adopt" if adopt else "scrub"
    self._opened.gate.maintain(verb, self._access, writes=adopt)
    return scrub_kernel(
        self._kernel,
        branch=branch,
        since=since,
        adopt=adopt,
        max_mb_per_second=max_mb_per_second,
        resume=resume,
        progress=progress,
    )


def scrub_kernel(
    kernel: Kernel,
    *,
    max_mb_per_second: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    **chosen: Any,
) -> ScrubReport:
    """`Graph.scrub` for a graph that need not be open."""
    if max_mb_per_second is not None and max_mb_per_second <= 0:
        raise InputError(
            "scrub has to read at least something", hint="max_mb_per_second is above 0"
        )
    limit = None if max_mb_per_second is None else max(1, int(max_mb_per_second * 1_000_000))
    path = None if resume is None else Path(resume)
    return run_scrub(kernel, bytes_per_second=limit, resume=path, **chosen)


def create_backup(
    self: Handle, destination: str | os.PathLike[str], *, branch: str | None = None
) -> BackupReceipt:
    """Copy a consistent state of the graph to a folder or bucket, without blocking writers.

    All branches are copied, or main and the one that is named. Files of earlier backups at the same
    place are not copied again. `omnigraph.copies` lists, verifies, restores and prunes backups.
    Raises `DamagedFile` for a file that does not match its digest.
    """
    self._opened.gate.maintain("backup create", self._access, writes=False)
    return copies.create_backup(self._kernel, destination, branch=branch)


def clone(
    self: Handle, destination: str | os.PathLike[str], *, branch: str | None = None
) -> CopyReceipt:
    """Copy a consistent state of the graph to another place, as a graph of its own.

    Commits, branches and ids are the same; with a ``branch``, only main and that one are copied.
    Raises `AlreadyExists` if the place is not empty.
    """
    self._opened.gate.maintain("clone", self._access, writes=False)
    return copies.clone(self._kernel, destination, branch=branch)


def push(
    self: Handle,
    destination: str | os.PathLike[str],
    *,
    branch: str | None = None,
    on_conflict: ConflictPolicy = "fail",
    granularity: MergeGranularity = "entity",
    actor: str | None = None,
    message: str | None = None,
) -> TransferReceipt:
    """Push the commits of a branch to a clone, or to the graph that this one was cloned from.

    If the destination has no new commits, it gets each of ours with its id, author and time. If
    both sides have new ones, the two heads are merged there, as by `merge_branch`; ``on_conflict``
    and ``granularity`` apply to that, and ``actor`` and ``message`` are kept with the merge. A
    missing branch is created. An interrupted push continues when repeated. Raises `Conflict` for
    graphs without a common commit or with different schemas, `MergeConflicts`, and `ReadSetChanged`
    when others kept writing to the destination.
    """
    name, by = self._branch_of(branch), self._by(actor)
    self._opened.gate.select("push", by, name)
    self._require_everything("push", name)
    with _opened(destination, "read_write") as other:
        rules = ConflictRules(on_conflict, granularity=granularity)
        request = TransferSpec("push", name, rules, by.actor, checked_message(message))
        return transfer(self._kernel, other._kernel, request)


def pull(
    self: Handle,
    source: str | os.PathLike[str],
    *,
    branch: str | None = None,
    on_conflict: ConflictPolicy = "fail",
    granularity: MergeGranularity = "entity",
    actor: str | None = None,
    message: str | None = None,
) -> TransferReceipt:
    """Pull the commits of a branch from a clone, or from the graph that this one was cloned from.

    As `push`, in the other direction: nothing is written to the source. The policy of this handle
    decides as for a merge into the branch; for `push`, as for reading it. For an actor whose rules
    are limited to types, `Denied` is raised at the first commit that the actor may not make or not
    fully see; earlier ones are kept.
    """
    from omnigraph.graph.sight import rights_to_bring

    name, by = self._branch_of(branch), self._by(actor)
    self._opened.gate.branch_merge(by, name, name)
    with _opened(source, "read_only") as other:
        rules = ConflictRules(on_conflict, granularity=granularity)
        rights = rights_to_bring(self._opened.sight, by, name)
        request = TransferSpec("pull", name, rules, by.actor, checked_message(message), rights)
        receipt = transfer(other._kernel, self._kernel, request)
    self._opened.notify_auto_optimizer()
    return receipt


@contextmanager
def _opened(
    place: str | os.PathLike[str], mode: Literal["read_write", "read_only"]
) -> Iterator[Handle]:
    """Open the graph at the other end."""
    from omnigraph.graph.opening import open_graph

    other = open_graph(place, mode)
    try:
        yield other
    finally:
        other.close()


def examine(self: Handle, *, deep: bool = False) -> Diagnosis:
    """Test all read paths of the graph, on every branch; writes nothing.

    Every finding names the command that mends it. ``deep`` also reads every file against its
    digest, as `scrub` does. `doctor` does the same for a graph that may fail to open.
    """
    self._opened.gate.maintain("doctor", self._access, writes=False)
    return run_examine(self._kernel, deep=deep)


def stats(self: Handle, branch: str | None = None) -> GraphStats:
    """Statistics of the head of a branch and of the graph; writes nothing.

    Findings name the command that mends them.
    """
    target = self._branch_of(branch)
    self._opened.gate.numbers(self._access, target)
    found = graph_stats(self._kernel, target)
    view = self._view_of(self._opened.snapshot(target))
    if view is None:
        return found
    counts = visible_counts(self._opened.seen(self._opened.reader(target), view))
    shown = []
    for each in found.tables:
        key = each.type_key
        if view.restricts(key):
            # Sizes and fragment counts would reveal the number of hidden rows.
            told = replace(each, rows=counts[key], fragments=0, small_fragments=0, indexes=())
            shown.append(replace(told, deleted_rows=0, bytes=0))
        elif view.hides_properties(key):
            columns = {ID, SRC, DST, *view.types[key].type.properties}
            known = tuple(index for index in each.indexes if index.spec.column in columns)
            shown.append(replace(each, indexes=known, bytes=0))
        elif view.shows(key):
            shown.append(each)
    # Findings and pending operations name tables, including hidden ones.
    return replace(found, tables=tuple(shown), findings=(), pending=())


def recover(self: Handle, *, force: bool = False) -> list[Settlement]:
    """Finish or undo every interrupted operation; ``force`` also through drift."""
    self._opened.gate.maintain("recover", self._access)
    settled = Recoverer(self._kernel).run("full", force=force)
    release_abandoned(self._kernel)
    return settled


def list_recoveries(self: Handle) -> list[RecoveryRow]:
    """Every recovery so far, oldest first."""
    self._opened.gate.maintain("recover list", self._access, writes=False)
    return RecoveryAudit(self._kernel.lance, self._kernel.root.uri).rows()
