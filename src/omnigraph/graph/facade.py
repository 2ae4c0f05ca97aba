"""The `Graph` object: one open graph, and the list of all verbs.

The command line, the server and notebooks are thin layers over it. A verb is a function in the
module of its subject: it fills in the branch and actor of its handle, asks the gate, and calls the
room below.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.graph.opened import Handle, OpenGraph, for_actor, recorded_verb
from omnigraph.storage.layout import MAIN

if TYPE_CHECKING:
    from omnigraph.audit import AuditSettings
    from omnigraph.commit.kernel import Kernel
    from omnigraph.embedding.config import EmbeddingConfig
    from omnigraph.graph import blobs, branches, history, reading, schemas, tables, upkeep, writing
    from omnigraph.graph.computing import Algorithms
    from omnigraph.graph.reviews import Reviews
    from omnigraph.model.branch_scope import BranchScope
    from omnigraph.model.merging import ConflictPolicy, MergeGranularity
    from omnigraph.model.upkeep import AutoOptimizeStatus, BlockedBranch
    from omnigraph.policy import Actor, Policy
    from omnigraph.schema.shape import SchemaIR


# --- verbs ----------------------------------------------------------------------------------------
#
# Verbs are wrapped when their class is created, so new ones are recorded, too.

NO_ACCESS: Mapping[str, str] = {
    "acting_as": "gives a handle",
    "auto_optimize": "says what this process did",
    "blocked_branches": "says what this process saw",
    "branch": "gives a handle, whose verbs are accesses",
    "check_head": "a server runs its own checks",
    "close": "ends what runs in the background",
    "compute": "gives verbs that are accesses",
    "follow": "a server looks after its own checks",
    "on_branch": "gives a handle",
    "reviews": "gives verbs that are accesses",
    "uri": "says what was opened",
}
"""Public names that access no data of a graph, with the reason."""

Recorded = TypeVar("Recorded", bound=type)


class VerbModule:
    """A module of verbs that is imported when one of them is first used.

    So a program that only reads does not import the dependencies of merges, loads and upkeep.
    """

    def __init__(self, name: str) -> None:
        """``name`` is the module's name below `omnigraph.graph`."""
        self._name = name

    def __getattr__(self, name: str) -> Verb:
        """A placeholder for a verb of the module, to be assigned in a class body."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Verb(self._name, name)


class Verb:
    """A placeholder for a verb; the first look-up imports the module and replaces it."""

    def __init__(self, module: str, function: str) -> None:
        self._module, self._function = module, function
        self._is_recorded = False

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, handle: object | None, owner: type) -> Any:
        """The function, or the method bound to ``handle``."""
        module = import_module(f"omnigraph.graph.{self._module}")
        found: Callable[..., Any] = getattr(module, self._function)
        setattr(
            self._owner,
            self._name,
            recorded_verb(found, self._name) if self._is_recorded else found,
        )
        return getattr(owner if handle is None else handle, self._name)

    def recorded(self) -> None:
        """Record every call for the audit, as `audited` does for plain functions."""
        self._is_recorded = True


def audited(cls: Recorded) -> Recorded:
    """Record calls of all verbs of a class: `Graph`, or an object that its properties return."""
    for name, found in list(vars(cls).items()):
        if name.startswith("_") or name in NO_ACCESS:
            continue
        if isinstance(found, Verb):
            found.recorded()
        elif isinstance(found, property) and found.fget is not None:
            setattr(cls, name, property(recorded_verb(found.fget), doc=found.__doc__))
        elif inspect.isfunction(found):
            setattr(cls, name, recorded_verb(found, name))
    return cls


def in_place(cls: Recorded) -> Recorded:
    """Import all verbs of a class, for code that inspects them."""
    for name in dir(cls):
        getattr(cls, name)
    return cls


if not TYPE_CHECKING:
    blobs, branches, history, reading, schemas, tables, upkeep, writing = map(
        VerbModule,
        (
            *("blobs", "branches", "history", "reading", "schemas", "tables", "upkeep"),
            "writing",
        ),
    )


@audited
class Graph(Handle):
    """One open graph. Safe to share between threads.

    Verbs that take a ``branch`` use main without one; those of a handle made with `on_branch` or
    `branch` use the branch of that handle.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        read_only: bool = False,
        embedding: EmbeddingConfig | None = None,
        policy: Policy | None = None,
        external_blobs: Iterable[str] = (),
        auto_optimize: bool | int | None = None,
        audit: AuditSettings | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            OpenGraph(
                kernel,
                read_only=read_only,
                embedding=embedding,
                policy=policy,
                external_blobs=external_blobs,
                auto_optimize=auto_optimize,
                audit=audit,
                name=name,
            )
        )

    def __repr__(self) -> str:
        on = "" if self._default_branch == MAIN else f" on {self._default_branch!r}"
        return f"Graph({self.uri!r}{on})"

    # --- reading ----------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """The canonical URI of the graph."""
        return self._kernel.root.uri

    @property
    def schema_source(self) -> str:
        """The schema text of main, or of this handle's branch, as it was written."""
        self._may_read("schema show")
        accepted = self._opened.accepted(self._default_branch)
        return self._schema_text(self._default_branch, accepted)

    @property
    def accepted_ir(self) -> SchemaIR:
        """The accepted schema of main, as migration plans use it."""
        self._may_read("schema show")
        self._require_everything("schema plan", MAIN)
        return self._opened.accepted().ir

    query = reading.query
    explain = reading.explain
    describe_queries = reading.describe_queries
    describe_schema = schemas.describe_schema
    snapshot = reading.snapshot
    export = reading.export
    export_to = reading.export_to
    entity_at = reading.entity_at
    blob = blobs.blob
    table = tables.table
    frame = tables.frame
    to_networkx = tables.to_networkx
    to_igraph = tables.to_igraph
    to_pyg = tables.to_pyg

    @property
    def compute(self) -> Algorithms:
        """Graph algorithms: `graph.compute.pagerank()`, `.connected_components()` and others."""
        from omnigraph.graph.computing import Algorithms

        return Algorithms(self)

    # --- writing ----------------------------------------------------------------------------------

    mutate = writing.mutate
    load = writing.load
    embed = writing.embed
    stream_into = writing.stream_into
    plan_schema = schemas.plan_schema
    apply_schema = schemas.apply_schema
    rebase_schema = schemas.rebase_schema

    # --- branches ---------------------------------------------------------------------------------

    list_branches = branches.list_branches

    def branch(
        self,
        name: str,
        from_: str | None = None,
        *,
        into: str | None = None,
        on_conflict: ConflictPolicy = "fail",
        on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
        granularity: MergeGranularity = "entity",
        delete_branch: bool = True,
        resume: bool = False,
        actor: str | None = None,
    ) -> BranchScope[Graph]:
        """Fork a branch for the work of one `with` block, and merge it if the block succeeds.

            with graph.branch("agent/42") as b:
                b.mutate('query add { insert Person { name: "Grace" } }')

        ``b`` is this graph with the branch, and the ``actor``, as its defaults. The branch starts
        from ``from_``, main by default, and is merged into it, or ``into`` another, by the rules of
        `merge_branch`; it is then deleted, unless ``delete_branch`` is False. If the block or the
        merge raises, the branch is kept and the error propagates. An existing branch of that name
        raises `AlreadyExists`; with ``resume`` the block continues on it.
        """
        from omnigraph.model.branch_scope import BranchScope, BranchTask

        source = self._branch_of(from_)
        merge = (into or source, on_conflict, on_conflict_of, granularity, delete_branch)
        return BranchScope(self, BranchTask(name, source, *merge, resume, self._actor_of(actor)))

    def on_branch(self, name: str, *, actor: str | None = None) -> Graph:
        """The same open graph with another default branch, and another default ``actor``.

        Nothing is read or written; verbs raise `NotFound` if there is no such branch.
        """
        handle = copy.copy(self)
        handle._default_branch = name
        handle._access = self._by(actor)
        return handle

    def acting_as(self, actor: Actor) -> Graph:
        """The same open graph for one actor: policy decides every verb, reads included.

        ``actor`` is an id, or an `omnigraph.policy.Identity` with the claims of a token. Without a
        policy everything is allowed.
        """
        return for_actor(self, actor)

    create_branch = branches.create_branch
    delete_branch = branches.delete_branch
    create_tag = branches.create_tag
    list_tags = branches.list_tags
    delete_tag = branches.delete_tag
    plan_merge = branches.plan_merge
    merge_branch = branches.merge_branch
    revert = branches.revert
    cherry_pick = branches.cherry_pick
    plan_revert = branches.plan_revert
    plan_cherry_pick = branches.plan_cherry_pick

    @property
    def reviews(self) -> Reviews:
        """Change requests: `graph.reviews.open("feature", title="…")`, `.list()`, `.merge(id)`."""
        from omnigraph.graph.reviews import Reviews

        return Reviews(self)

    # --- history and changes ----------------------------------------------------------------------

    list_commits = history.list_commits
    show_commit = history.show_commit
    entity_history = history.entity_history
    diff = history.diff
    diff_page = history.diff_page
    commit_changes = history.commit_changes
    commit_changes_page = history.commit_changes_page
    poll_changes = history.poll_changes
    change_baseline = history.change_baseline

    # --- upkeep -----------------------------------------------------------------------------------

    ensure_indices = upkeep.ensure_indices
    optimize = upkeep.optimize
    repair = upkeep.repair
    cleanup = upkeep.cleanup
    examine = upkeep.examine
    scrub = upkeep.scrub
    create_backup = upkeep.create_backup
    clone = upkeep.clone
    push = upkeep.push
    pull = upkeep.pull
    stats = upkeep.stats
    recover = upkeep.recover
    list_recoveries = upkeep.list_recoveries

    @property
    def auto_optimize(self) -> AutoOptimizeStatus | None:
        """The status of background upkeep; None if this handle has none."""
        optimizer = self._opened.auto_optimizer
        return None if optimizer is None else optimizer.status

    @property
    def blocked_branches(self) -> tuple[BlockedBranch, ...]:
        """Branches that refuse writes, as of the last background recovery."""
        return () if self._opened.healer is None else self._opened.healer.blocked

    def close(self) -> None:
        """Stop background upkeep and recovery, waiting for a run in progress.

        The handle stays usable. Garbage collection of the handle, and the end of the program, do
        the same.
        """
        if self._opened.healer is not None:
            self._opened.healer.stop()
        if self._opened.auto_optimizer is not None:
            self._opened.auto_optimizer.stop()
        if self._opened.auditor is not None:
            self._opened.auditor.log.flush()
