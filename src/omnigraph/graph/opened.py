"""An open graph: the state that all its handles share (storage, gate, caches), and handles.

The caches have immutable keys, so stale entries are never used: types by the hash of the schema,
readers by the manifest state they pin, compiled plans by the catalog.
"""

from __future__ import annotations

import copy
import inspect
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.plan import WriteLimits
from omnigraph.errors import InputError, NotFound, PolicyDenied, UnresolvedRevision
from omnigraph.graph.gate import UNNAMED, Access, Gate
from omnigraph.model.ids import is_branch_name, is_ulid, on_branch
from omnigraph.model.load_options import SparkOptions, checked_options
from omnigraph.model.result import ReadTarget
from omnigraph.policy import Action, Actor, identity_of
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest import ManifestState, Snapshot
from omnigraph.storage.reader import PastReader, SnapshotReader
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Source
from omnigraph.upkeep import commits_between

if TYPE_CHECKING:
    from omnigraph.audit import Auditor, AuditSettings
    from omnigraph.branching.change_pages import Unfinished
    from omnigraph.branching.moments import SchemaHistory, Sees
    from omnigraph.commit.external_blobs import ExternalBlobs
    from omnigraph.commit.recovery import Healer
    from omnigraph.commit.write_path import WritePath
    from omnigraph.embedding.client import QueryEmbedder
    from omnigraph.embedding.config import EmbeddingConfig
    from omnigraph.engines.base import Engine
    from omnigraph.policy import Decision, Policy
    from omnigraph.query.compile import QueryCompiler
    from omnigraph.query.plan import QueryPlan
    from omnigraph.review.requests import Requests
    from omnigraph.upkeep.automatic import AutoOptimizer
    from omnigraph.views import View, WriteRights

ENGINES = ("local", "spark")
"""The engines for queries."""

READERS_KEPT_MAX = 16
"""Branches whose head reader is kept between queries."""
CATALOGS_KEPT_MAX = 64
COMPILERS_KEPT_MAX = 32
"""Schemas, and actors' views of them, whose compiled plans are kept."""


class OpenGraph:
    """One open graph. Safe to share between threads and between handles.

    Parts that only some verbs need are imported and created on first use, so that a program that
    reads a row does not import merging and recovery.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        read_only: bool,
        embedding: EmbeddingConfig | None,
        policy: Policy | None,
        external_blobs: Iterable[str],
        auto_optimize: bool | int | None,
        audit: AuditSettings | None = None,
        name: str | None = None,
    ) -> None:
        self.kernel = kernel
        self.policy = policy
        self.auditor = None if audit is None else _auditor(audit, name or kernel.root.uri)
        self.gate = Gate(
            policy, read_only=read_only, bypassed=self._record_bypass, auditor=self.auditor
        )
        self.is_ungated = policy is None and audit is None
        """Whether the graph has neither a policy nor an audit."""
        self.sight: Sight | None = None
        """Decides what actors see; None if everything is visible to all."""
        if policy is not None and policy.has_views:
            from omnigraph.graph.sight import Sight

            self.sight = Sight(policy, lambda branch: self.accepted(branch).catalog)
        self.limits = WriteLimits.from_environment(os.environ)
        self._external_blobs = tuple(external_blobs)
        self._embedding = embedding
        self._made: dict[str, Any] = {}
        """The parts created so far."""
        self.engines: dict[str, Engine] = {}
        self.readers: dict[str, tuple[ManifestState, SnapshotReader]] = {}
        """The head of each branch when last queried, with its open tables."""
        self.auto_optimizer: AutoOptimizer | None = None
        self._compilers: OrderedDict[str, QueryCompiler] = OrderedDict()
        self._catalogs: dict[str, Catalog] = {}
        """By schema hash: branches may have older schemas than main."""
        self._known: dict[str, Catalog] = {}
        """By branch, the types when last read."""
        self._accepted: dict[str, AcceptedSchema] = {}
        """By branch, the schema that the last write started with."""
        self._lock = threading.RLock()
        if self._external_blobs:
            _ = self.external  # raises for an invalid folder
        self.healer: Healer | None = None
        if kernel.heals:
            from omnigraph.commit.recovery import Healer

            self.healer = Healer(kernel)
            weakref.finalize(self, self.healer.stop)
        if not read_only and (every := commits_between(auto_optimize)):
            from omnigraph.upkeep.automatic import AutoOptimizer

            self.auto_optimizer = AutoOptimizer(kernel, every)
            weakref.finalize(self, self.auto_optimizer.stop)

    def _part(self, name: str, make: Callable[[], Part]) -> Part:
        """A part that all handles share, created on first use."""
        found: Part | None = self._made.get(name)
        if found is None:
            with self._lock:
                found = self._made.get(name)
                if found is None:
                    found = self._made[name] = make()
        return found

    @property
    def path(self) -> WritePath:
        """The write path of this process to this graph."""
        from omnigraph.commit.write_path import WritePath

        return self._part("path", lambda: WritePath(self.kernel))

    @property
    def external(self) -> ExternalBlobs:
        """The external objects that writes may refer to."""
        from omnigraph.commit.external_blobs import ExternalBlobs

        def make() -> ExternalBlobs:
            return ExternalBlobs.below(self._external_blobs, self.limits.bytes_max)

        return self._part("external", make)

    @property
    def embedder(self) -> QueryEmbedder:
        """Computes vectors of search texts."""
        from omnigraph.embedding.client import QueryEmbedder

        return self._part("embedder", lambda: QueryEmbedder(self._embedding))

    @property
    def schemas(self) -> SchemaHistory:
        """The schemas of older commits, each read once."""
        from omnigraph.branching.moments import SchemaHistory

        return self._part("schemas", lambda: SchemaHistory(self.kernel))

    @property
    def reviews(self) -> Requests:
        """The change requests of the graph."""
        from omnigraph.review.requests import Requests

        return self._part("reviews", lambda: Requests(self.kernel, self.schemas))

    def _record_bypass(self, decision: Decision) -> None:
        """Record, as a review event, a direct write where a change request is required."""
        from omnigraph.review.events import EventAuthor

        self.reviews.record_bypass(
            EventAuthor(decision.actor),
            {
                "action": decision.action.value,
                "source": decision.branch,
                "branch": decision.target_branch or decision.branch,
                "rule": decision.matched_rule_id,
            },
        )

    @property
    def unfinished(self) -> Unfinished:
        """Paged readings of changes that callers have begun."""
        from omnigraph.branching.change_pages import Unfinished

        return self._part("unfinished", Unfinished)

    def notify_auto_optimizer(self) -> None:
        """Count a finished write towards the next background optimization."""
        if self.auto_optimizer is not None:
            self.auto_optimizer.count_write()

    # --- types and plans --------------------------------------------------------------------------

    def accepted(self, branch: str = MAIN) -> AcceptedSchema:
        """The schema of a branch as stored now; raises `NotFound`."""
        return self.kernel.accepted_on(branch)

    def last_accepted(self, branch: str) -> AcceptedSchema:
        """The schema of a branch when last read, to start a write with."""
        found = self.kernel.accepted_on(branch, self.kernel.manifest.known_state(branch))
        self._accepted[branch] = found
        return found

    def known_accepted(self, branch: str) -> AcceptedSchema | None:
        """The last result of `last_accepted`; None if it was not called.

        For a write that needs it again, or a group leader that runs the write.
        """
        return self._accepted.get(branch)

    def known_catalog(self, branch: str) -> Catalog:
        """The types when last read, to compile before a snapshot is pinned; may be outdated."""
        known = self._known.get(branch)
        return self._remember(branch, self.accepted(branch).catalog) if known is None else known

    def catalog_of(self, snapshot: Snapshot) -> Catalog:
        """The types to read a snapshot with: always those of its branch's current schema.

        Older snapshots are read with the current types, too.
        """
        catalog = self._catalogs.get(snapshot.head_schema)
        if catalog is None:
            found = self.kernel.required_schema(snapshot.branch, snapshot.head_schema)
            catalog = found.catalog
        return self._remember(snapshot.branch, catalog)

    def _remember(self, branch: str, catalog: Catalog) -> Catalog:
        for known, key in ((self._known, branch), (self._catalogs, catalog.schema_hash)):
            if len(known) >= CATALOGS_KEPT_MAX and key not in known:
                known.clear()
            known[key] = catalog
        return catalog

    def compiled(
        self, source: str | Path | Source, name: str | None, catalog: Catalog
    ) -> QueryPlan:
        """The plan of a query; plans are cached per schema."""
        compiler = self._compilers.get(catalog.schema_hash)
        if compiler is None or compiler.catalog is not catalog:
            from omnigraph.query.compile import QueryCompiler

            compiler = QueryCompiler(catalog)
            with self._lock:
                keep_newest(self._compilers, catalog.schema_hash, compiler, COMPILERS_KEPT_MAX)
        return compiler.compile(source, name)

    def engine(self, name: str | None, spark: SparkOptions | None = None) -> Engine:
        """The engine with this name, created on first use.

        ``spark`` configures the Spark engine; naming a session or a master selects it.
        """
        wanted = "local"
        if name is not None or spark is not None:
            options = checked_options(spark, SparkOptions, "spark")
            wanted = engine_name(name, options)
            if wanted == "spark":
                return self._spark_engine(options)
        found = self.engines.get(wanted)
        if found is not None:
            return found
        from omnigraph.engines.local.engine import LocalEngine

        with self._lock:
            return self.engines.setdefault(wanted, LocalEngine())

    def _spark_engine(self, options: SparkOptions) -> Engine:
        from omnigraph.pipeline.spark.session import (
            SessionSettings,
            query_session,
            require_pyspark,
        )

        require_pyspark()
        from omnigraph.engines.spark.engine import SparkEngine

        settings = SessionSettings.of(os.environ, master=options.master, conf=options.conf)
        return SparkEngine(
            lambda: query_session(options.session, settings), self.kernel.root.storage_options()
        )

    # --- snapshots and readers --------------------------------------------------------------------

    def state(self, branch: str) -> ManifestState:
        """The newest manifest state of a branch; raises `NotFound`."""
        return self.kernel.manifest.refreshed(branch).state

    def snapshot(self, branch: str | None = None, commit_id: str | None = None) -> Snapshot:
        """The head of a branch (main by default), or one of its commits."""
        state = self.state(branch or MAIN)
        return state.head_snapshot() if commit_id is None else state.snapshot_at(commit_id)

    def snapshot_of_any_branch(self, commit_id: str) -> Snapshot:
        """The snapshot of a commit on any branch; raises `UnresolvedRevision`."""
        from omnigraph.branching.revisions import find_commit

        return find_commit(self.kernel, commit_id)[0].snapshot_at(commit_id)

    def reader(self, branch: str | None = None, commit_id: str | None = None) -> SnapshotReader:
        """A reader of the head of a branch (main by default), or of one of its commits."""
        return self.reader_of(self.snapshot(branch, commit_id))

    def reader_of(self, snapshot: Snapshot) -> SnapshotReader:
        """A reader of a snapshot; snapshots of older schemas are shown in the current one."""
        catalog = self.catalog_of(snapshot)
        root = self.kernel.root.uri
        if catalog.schema_hash == snapshot.commit.schema_hash:
            return SnapshotReader(self.kernel.lance, root, snapshot)
        from omnigraph.commit.schema.change import tables_today

        return PastReader(self.kernel.lance, root, snapshot, tables_today(catalog))

    def pinned(self, target: ReadTarget) -> SnapshotReader:
        """A reader of a query's target.

        The reader of a branch is cached, with its open tables, until the branch moves.
        """
        if target.branch is None:
            return self.reader_of(self.snapshot_of_any_branch(str(target.snapshot)))
        state = self.state(target.branch)
        kept = self.readers.get(target.branch)
        if kept is not None and kept[0] is state:
            return kept[1]
        reader = self.reader_of(state.head_snapshot())
        with self._lock:
            self.readers.pop(target.branch, None)
            if len(self.readers) >= READERS_KEPT_MAX:
                del self.readers[next(iter(self.readers))]
            self.readers[target.branch] = (state, reader)
        return reader

    # --- what an actor sees -----------------------------------------------------------------------

    def view(
        self,
        by: Access,
        branch: str,
        catalog: Catalog,
        *,
        action: Action = Action.READ,
        target_branch: str | None = None,
    ) -> View | None:
        """What an actor sees of a branch by an action; None for everything. See `Sight.view`."""
        if self.sight is None:
            return None
        return self.sight.view(by, branch, catalog, action=action, target_branch=target_branch)

    def seen(self, reader: SnapshotReader, view: View | None) -> SnapshotReader:
        """A reader restricted to the rows of a view."""
        return reader if view is None or self.sight is None else self.sight.seen(reader, view)

    def write_rights(self, by: Access, branch: str, catalog: Catalog) -> WriteRights | None:
        """What an actor sees of a branch and may change of it; None for everything."""
        return None if self.sight is None else self.sight.write_rights(by, branch, catalog)


def _auditor(settings: AuditSettings, name: str) -> Auditor:
    from omnigraph.audit import Auditor

    return Auditor(settings, name)


Part = TypeVar("Part")
Key = TypeVar("Key")
Value = TypeVar("Value")


def keep_newest(kept: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Add to an LRU cache of at most ``most`` entries; the caller holds its lock."""
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)


class Handle:
    """An open graph, with the default branch and actor of its verbs.

    The verbs of `Graph` are functions of a handle, each in the module of its subject.
    """

    def __init__(self, opened: OpenGraph) -> None:
        self._opened = opened
        self._kernel = opened.kernel
        self._default_branch = MAIN
        self._access = UNNAMED

    def _view_of(self, snapshot: Snapshot) -> View | None:
        """The view of a read verb on a snapshot; None for everything."""
        opened = self._opened
        if opened.sight is None:
            return None
        catalog = opened.catalog_of(snapshot)
        return opened.view(self._access, snapshot.branch, catalog)

    def _seen(
        self, reader: SnapshotReader, action: Action = Action.READ
    ) -> tuple[SnapshotReader, Catalog]:
        """The reader restricted to what a verb may show, and the types that the verb can name."""
        opened = self._opened
        catalog = opened.catalog_of(reader.snapshot)
        if opened.sight is None:
            return reader, catalog
        view = opened.view(self._access, reader.snapshot.branch, catalog, action=action)
        return (reader, catalog) if view is None else (opened.seen(reader, view), view.catalog)

    def _named_types(self, branch: str, catalog: Catalog) -> Catalog:
        """The types of a branch that a verb can name."""
        view = self._opened.view(self._access, branch, catalog)
        return catalog if view is None else view.catalog

    def _schema_text(self, branch: str, accepted: AcceptedSchema) -> str:
        """The text of a schema, reduced to its visible part."""
        view = self._opened.view(self._access, branch, accepted.catalog)
        if view is None:
            return accepted.contract.source
        from omnigraph.syntax.formatting import format_text

        return format_text(view.text(), "pg")

    @property
    def _schemas(self) -> SchemaHistory:
        """The schemas of older commits, as visible to a read verb."""
        return self._schemas_by(Action.READ)

    def _schemas_by(self, action: Action) -> SchemaHistory:
        sees = self._sees_by(action)
        return self._opened.schemas if sees is None else self._opened.schemas.seen_by(sees)

    @property
    def _sees(self) -> Sees | None:
        """The views of a read verb by branch; None if nothing is hidden."""
        return self._sees_by(Action.READ)

    def _sees_by(self, action: Action) -> Sees | None:
        sight = self._opened.sight
        return None if sight is None else sight.sees(self._access, action)

    @property
    def _unfinished(self) -> Unfinished:
        """This caller's paged readings of changes."""
        opened = self._opened
        if opened.sight is None:
            return opened.unfinished
        return opened.sight.unfinished_of(self._access)

    def _require_everything(self, verb: str, *branches: str, action: Action = Action.READ) -> None:
        """Raise `PolicyDenied` for an actor who sees only a part of one of the branches."""
        opened = self._opened
        for branch in branches:
            catalog = opened.accepted(branch).catalog
            if opened.view(self._access, branch, catalog, action=action) is not None:
                raise PolicyDenied(
                    f"`{verb}` shows all of branch `{branch}`, and the rules show "
                    f"actor `{self._access.actor}` a part of it",
                    action=action,
                    actor=self._access.actor,
                    branch=branch,
                    target_branch=None,
                    hint="`omnigraph policy explain` shows what an actor sees",
                )

    def _branch_of(self, branch: str | None) -> str:
        return branch or self._default_branch

    def _actor_of(self, actor: str | None) -> str | None:
        return self._access.actor if actor is None else actor

    def _by(self, actor: str | None = None) -> Access:
        """The access of a verb: the actor that it names, or that of this handle."""
        return self._access.by(actor)

    # --- targets of reads, checked by the gate ----------------------------------------------------

    @property
    def _reads_freely(self) -> bool:
        """Whether reads need neither a decision nor an audit record."""
        return self._opened.is_ungated and not self._access.is_served

    def _may_read(self, verb: str, branch: str | None = None) -> None:
        """Check a read of a branch, or of the graph as a whole; raises `PolicyDenied`."""
        if not self._reads_freely:
            self._opened.gate.read(verb, self._access, branch)

    def _read_target(
        self,
        verb: str,
        branch: str | None,
        snapshot: str | None,
    ) -> ReadTarget:
        """The branch or commit that a verb reads, checked by the gate.

        Raises `InputError` if both are given, and as `_read_commit` does.
        """
        if branch is not None and snapshot is not None:
            raise InputError(
                "a query reads a branch or a snapshot, not both",
                hint="leave `branch` out: a snapshot is a commit, whichever branch it is on",
            )
        if snapshot is None:
            target = self._branch_of(branch)
            if not self._reads_freely:
                self._opened.gate.read(verb, self._access, target)
            return ReadTarget(target)
        return ReadTarget(None, self._read_commit(verb, snapshot, None))

    def _read_commit(
        self, verb: str, revision: str, branch: str | None, action: Action = Action.READ
    ) -> str:
        """The id of a commit that may be read.

        A commit of an unreadable branch is treated like a commit that does not exist, for which the
        decision about main counts, so that errors do not reveal which commits exist. Raises
        `PolicyDenied`, or `UnresolvedRevision`.
        """
        gate, by = self._opened.gate, self._access
        try:
            wanted = self._commit_of(revision, branch)
        except NotFound:
            gate.read(verb, by, MAIN, action)
            raise
        if not gate.decides_reads(by):
            gate.read(verb, by, branch, action)
            return wanted
        found = self._authored_branch(wanted)
        if found is None or not gate.may_read(by, found, action):
            gate.read(verb, by, MAIN, action)
            raise UnresolvedRevision.no_commit(wanted)
        return wanted

    def _read_known_commit(self, verb: str, revision: str, branch: str | None = None) -> str:
        """The id of a commit that may be read; unreadable ones are reported as missing."""
        gate, by = self._opened.gate, self._access
        try:
            wanted = self._commit_of(revision, branch)
        except NotFound:
            gate.may_read(by, branch or self._default_branch)  # records the decision
            raise
        if not gate.decides_reads(by):
            gate.read(verb, by, branch)
            return wanted
        found = self._authored_branch(wanted)
        if found is None or not gate.may_read(by, found):
            raise UnresolvedRevision.no_commit(wanted)
        return wanted

    def _read_end(self, verb: str, name: str) -> str:
        """The canonical name of one end of a comparison: a branch or commit that may be read.

        A missing or unreadable name is decided as a branch, by the name alone.
        """
        end = on_branch(name, self._default_branch)
        gate, by = self._opened.gate, self._access
        if not gate.decides_reads(by):
            gate.read(verb, by, end if is_branch_name(end) else None)
            return end
        if end == MAIN or end in self._kernel.manifest.refreshed(MAIN).state.branches:
            gate.read(verb, by, end)
            return end
        try:
            wanted = self._commit_of(end)
        except NotFound:
            if is_branch_name(end):
                gate.read(verb, by, end)
            raise
        return self._read_commit(verb, wanted, None)

    def _authored_branch(self, commit_id: str) -> str | None:
        """The branch on which a commit was made; None if there is no such commit."""
        from omnigraph.branching.revisions import authored_branch, find_commit

        try:
            return authored_branch(find_commit(self._kernel, commit_id)[1])
        except NotFound:
            return None

    def _commit_of(
        self,
        revision: str,
        branch: str | None = None,
        readable: Callable[[str], bool] | None = None,
    ) -> str:
        """The id of the commit that a revision names; full ids are returned without a look-up.

        `HEAD` is that of ``branch``, or of this handle's branch. Raises `UnresolvedRevision`, also
        for commits of branches that are not ``readable`` or hidden from this handle.
        """
        if is_ulid(revision.upper()):
            return revision.upper()
        from omnigraph.branching.revisions import resolve

        named = on_branch(revision, self._branch_of(branch))
        shown = self._opened.gate.shown_branches(self._access) if readable is None else readable
        return resolve(self._kernel, named, shown)[1].commit_id


OneHandle = TypeVar("OneHandle", bound=Handle)


def gate_of(graph: Handle) -> Gate:
    """The gate of a graph, for a server that asks before the verb."""
    return graph._opened.gate


def for_access(graph: OneHandle, access: Access) -> OneHandle:
    """The same open graph for one caller: policy decides every verb, reads included."""
    handle = copy.copy(graph)
    handle._access = access
    return handle


def for_actor(graph: OneHandle, actor: Actor) -> OneHandle:
    """The same open graph for one actor, as for a caller of a server."""
    return for_access(graph, Access(identity_of(actor), is_served=True))


def engine_name(given: str | None, spark: SparkOptions) -> str:
    """The selected engine: naming a session or a master selects Spark.

    Raises `InputError` for an unknown name.
    """
    wanted = given or ("spark" if spark.is_named else "local")
    if wanted not in ENGINES:
        raise InputError(
            f"there is no engine `{wanted}`",
            hint=did_you_mean(wanted, ENGINES) or f"leave `engine` out, or {ENGINES[0]}",
        )
    return wanted


# --- recording verbs for the audit ----------------------------------------------------------------

_TYPE_ARGUMENTS = ("type", "types", "type_name", "type_key")


def recorded_verb(verb: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    """Wrap a verb to record its calls if the graph has an audit."""
    called = name or verb.__name__
    places = [
        (place, parameter)
        for place, parameter in enumerate(inspect.signature(verb).parameters)
        if parameter in _TYPE_ARGUMENTS
    ]
    takes_params = "params" in inspect.signature(verb).parameters

    @wraps(verb)
    def run(self: Any, *args: Any, **options: Any) -> Any:
        handle = _handle_of(self)
        auditor = handle._opened.auditor
        if auditor is None or handle._access.is_system:
            return verb(self, *args, **options)
        describing = auditor.describing
        line, outer = auditor.begin(called)
        for place, parameter in places:
            given = args[place - 1] if place - 1 < len(args) else options.get(parameter)
            line.types |= frozenset(describing.names_in(given))
        if takes_params and auditor.keeps_params:
            line.params = args[1] if len(args) > 1 else options.get("params")
        try:
            found = verb(self, *args, **options)
            describing.describe(line, found)
        except BaseException as failure:
            auditor.end(line, outer, failure)
            raise
        auditor.end(line, outer, None)
        return found

    return run


def _handle_of(self: Any) -> Handle:
    found: Handle = getattr(self, "_handle", None) or getattr(self, "_graph", None) or self
    return found
