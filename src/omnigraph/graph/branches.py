"""Branches and tags of an open graph: creating, deleting, merging, and replaying single commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.effects.environment import positive_number
from omnigraph.errors import UnresolvedRevision
from omnigraph.graph.gate import Access
from omnigraph.graph.opened import Handle, OpenGraph, engine_name
from omnigraph.model.changes import PageLimits
from omnigraph.model.ids import (
    HEAD,
    check_new_tag_name,
    checked_key,
    checked_message,
    is_branch_name,
    on_branch,
)
from omnigraph.model.load_options import SparkOptions, checked_options
from omnigraph.model.merging import ConflictPolicy, MergeGranularity, MergePlan
from omnigraph.model.receipts import (
    BranchCreated,
    BranchDeleted,
    MergeReceipt,
    ReplayReceipt,
    TagInfo,
)
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import tag_info

if TYPE_CHECKING:
    from omnigraph.branching import merge as merges
    from omnigraph.branching.table_rows import Versions
    from omnigraph.branching.workers import Choose, Workers


CompareEngine = Literal["auto", "local", "spark"]
"""The engine that compares the rows of a merge or diff."""
COMPARED_ROWS_VARIABLE = "OMNIGRAPH_SPARK_THRESHOLD_ROWS"
COMPARED_ROWS = 10_000_000
"""Differing rows from which on Spark compares two branches; one process needs half a minute."""


def list_branches(self: Handle) -> list[str]:
    """The branches, sorted."""
    from omnigraph.branching import branches

    self._may_read("branch list")
    return branches.list_branches(self._kernel)


def create_branch(
    self: Handle,
    name: str,
    from_: str | None = None,
    *,
    actor: str | None = None,
    operation_id: str | None = None,
) -> BranchCreated:
    """Create a branch at the head of another, or at any revision; costs no data copy.

    ``from_`` is a branch, main by default, or a revision as `main~2`, a tag or a commit id.
    ``operation_id`` is an idempotency key: if the same actor repeats the request, the first receipt
    is returned and no branch is created, even if the first was deleted since.
    """
    from omnigraph.branching import branches

    by, start = self._by(actor), on_branch(self._branch_of(from_), self._default_branch)
    source, at = start_of(self, start, by)
    self._opened.gate.branch_create("branch create", by, source, name)
    branches.create_branch(
        self._kernel,
        name,
        source,
        at=at,
        revision=start,
        actor_id=by.actor,
        operation_id=checked_key(operation_id),
    )
    return BranchCreated(self._kernel.root.uri, start, name, by.actor)


def start_of(self: Handle, revision: str, by: Access) -> tuple[str, str | None]:
    """The branch that a new one starts from, and the commit unless it is the head.

    A name that resolves to nothing is treated as a branch, and reported as a missing branch.
    """
    from omnigraph.branching.revisions import resolve

    known = self._kernel.manifest.known_state(MAIN)
    if revision == MAIN or (known is not None and revision in known.branches):
        return revision, None
    try:
        state, commit = resolve(self._kernel, revision, self._opened.gate.readable(by))
    except UnresolvedRevision as unresolved:
        if unresolved.details["reason"] == "ambiguous" or not is_branch_name(revision):
            raise
        return revision, None
    return state.branch, None if revision == state.branch else commit.commit_id


def create_tag(
    self: Handle,
    name: str,
    revision: str | None = None,
    *,
    branch: str | None = None,
    actor: str | None = None,
) -> TagInfo:
    """Tag a commit: the head of a branch, or the commit that ``revision`` names.

    A tag is accepted wherever a revision is, and cleanup keeps the data of its commit. If the tag
    already names this commit, nothing is done. Raises `AlreadyExists` if a branch has the name or
    the tag names another commit, and `HistoricalVersionReclaimed` if cleanup removed data of the
    commit.
    """
    from omnigraph.branching import revisions
    from omnigraph.branching.revisions import authored_branch, resolve

    by = self._by(actor)
    self._opened.gate.tag_create(by, name)
    check_new_tag_name(name)
    named = on_branch(revision or HEAD, self._branch_of(branch))
    found = resolve(self._kernel, named, self._opened.gate.readable(by))
    self._opened.gate.select("tag create", by, authored_branch(found[1]))
    return tag_info(revisions.create_tag(self._kernel, name, found, actor_id=by.actor))


def list_tags(self: Handle) -> list[TagInfo]:
    """The tags of commits that may be read, by name."""
    from omnigraph.branching import revisions

    self._may_read("tag list")
    shown = self._opened.gate.shown_branches(self._access)
    found = [tag_info(row) for row in revisions.list_tags(self._kernel)]
    return [tag for tag in found if shown(tag.graph_branch)]


def delete_tag(self: Handle, name: str, *, actor: str | None = None) -> TagInfo:
    """Delete a tag and return it; its commit stays. Raises `NotFound`."""
    from omnigraph.branching import revisions

    self._opened.gate.tag_delete(self._by(actor), name)
    return tag_info(revisions.delete_tag(self._kernel, name))


def delete_branch(
    self: Handle, name: str, *, actor: str | None = None, operation_id: str | None = None
) -> BranchDeleted:
    """Delete a branch with its commits.

    ``operation_id`` is an idempotency key: if the same actor repeats the request, the first receipt
    is returned and no branch is deleted, even if a new one has the name.
    """
    from omnigraph.branching import branches

    by = self._by(actor)
    actor = by.actor
    self._opened.gate.branch_delete(by, name)
    request = branches.BranchRequest("delete", name, actor, checked_key(operation_id))
    branches.delete_branch(self._kernel, name, request=request)
    return BranchDeleted(self._kernel.root.uri, name, actor)


def plan_merge(
    self: Handle,
    source: str,
    into: str | None = None,
    *,
    on_conflict: ConflictPolicy = "fail",
    on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
    granularity: MergeGranularity = "entity",
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
    engine: CompareEngine = "auto",
    spark: SparkOptions | None = None,
) -> MergePlan:
    """The effect that `merge_branch` would have now: counts per type, entities, and all conflicts.

    Changes nothing. An actor who sees only a part of the branches gets the plan of that part;
    `MergePlan.is_blocked_by_hidden` says whether a hidden conflict prevents the merge.

    The plan lists the first ``limit`` entities that would change (1,000 by default), of about
    ``limit_bytes`` in total; `MergePlan.next_page_token` continues. Raises `ChangeCursorRejected`
    for a token of another plan, such as one from before a branch moved.
    """
    from omnigraph.branching import merge as merges
    from omnigraph.branching.three_way import ConflictRules

    target = self._branch_of(into)
    self._may_read("branch merge --dry-run", source)
    self._may_read("branch merge --dry-run", target)
    rules = ConflictRules(on_conflict, on_conflict_of or {}, granularity)
    request = merges.MergeSpec(source, target, rules)
    with comparing(self._opened, engine, spark, "merge") as choose:
        page = _plan_page(self, page_token, limit, limit_bytes)
        return merges.plan_merge(self._kernel, request, page, choose, self._sees)


def _plan_page(
    self: Handle, page_token: str | None, limit: int | None, limit_bytes: int | None
) -> merges.PlanPage:
    from omnigraph.branching import merge as merges

    return merges.PlanPage(self._unfinished, PageLimits.of(limit, limit_bytes), page_token)


def merge_branch(
    self: Handle,
    source: str,
    into: str | None = None,
    *,
    on_conflict: ConflictPolicy = "fail",
    on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
    granularity: MergeGranularity = "entity",
    delete_branch: bool = False,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    engine: CompareEngine = "auto",
    spark: SparkOptions | None = None,
) -> MergeReceipt:
    """Merge a branch into main, or ``into`` another, as one commit with two parents.

    The merge is three-way and by entity. Where both sides changed one entity and disagree, or the
    merged graph would break the schema, `MergeConflicts` is raised and nothing has changed. For an
    actor whose policy rules are limited to types, all merged entities must be visible and granted,
    else `Denied` is raised. ``on_conflict`` lets `source` or `target` win instead,
    ``on_conflict_of`` for a type, an entity (`Type:id`), a property (`Type.property`) or one
    property of one entity (`Type.property:id`), of which the narrowest decides; rules for
    properties need ``granularity`` `property`. A broken schema has no winner. With ``granularity``
    `property`, edits of different properties of one entity go together. ``delete_branch`` deletes
    the source afterwards; the receipt says if that was refused. Raises `ReadSetChanged` when others
    wrote to the target meanwhile. ``operation_id`` is an idempotency key: if the same actor repeats
    the merge, the first receipt is returned, and only a missing deletion is still done. ``message``
    says why, and ``metadata`` is a JSON object; both are kept with the commit. ``engine`` selects
    what compares, checks and writes the rows, with the same result: this process (`local`), workers
    of Spark (`spark`), or Spark only where the branches differ in 10 million rows and more (`auto`,
    `OMNIGRAPH_SPARK_THRESHOLD_ROWS`).
    """
    from omnigraph.branching import merge as merges
    from omnigraph.branching.three_way import ConflictRules
    from omnigraph.graph.sight import rights_to_bring

    target, by = self._branch_of(into), self._by(actor)
    self._opened.gate.branch_merge(by, source, target)
    rules = ConflictRules(on_conflict, on_conflict_of or {}, granularity)
    key, why = checked_key(operation_id), checked_message(message)
    rights = rights_to_bring(self._opened.sight, by, source)
    request = merges.MergeSpec(source, target, rules, by.actor, key, metadata, why, rights=rights)
    with comparing(self._opened, engine, spark, "merge") as choose:
        receipt = merges.merge(self._kernel, request, choose)
    self._opened.notify_auto_optimizer()
    if not delete_branch:
        return receipt
    permit = partial(self._opened.gate.branch_delete, by, source)
    return merges.delete_source(self._kernel, receipt, permit, key)


def revert(
    self: Handle,
    commit_id: str,
    *,
    branch: str | None = None,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
) -> ReplayReceipt:
    """Undo what one commit of a branch changed, as a new commit; history stays as it is.

    Later changes of other entities stay. Raises `MergeConflicts`, without any effect, if the same
    entities changed again, or if the result would break the schema. A merge is reverted against its
    first parent. ``operation_id`` is an idempotency key: if the same actor repeats the request, the
    first receipt is returned. ``message`` is kept with the commit.
    """
    return _replayed(
        self, "revert", commit_id, branch, actor=actor, operation_id=operation_id, message=message
    )


def cherry_pick(
    self: Handle,
    commit_id: str,
    into: str | None = None,
    *,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
) -> ReplayReceipt:
    """Apply the changes of one commit of any branch to main, or ``into`` another branch.

    Raises `MergeConflicts`, without any effect, if the same entities differ there. ``operation_id``
    is an idempotency key: if the same actor repeats the request, the first receipt is returned.
    ``message`` is kept with the commit.
    """
    return _replayed(
        self,
        "cherry-pick",
        commit_id,
        into,
        actor=actor,
        operation_id=operation_id,
        message=message,
    )


def _replayed(
    self: Handle,
    kind: Literal["revert", "cherry-pick"],
    commit_id: str,
    branch: str | None,
    *,
    actor: str | None,
    operation_id: str | None,
    message: str | None,
) -> ReplayReceipt:
    """Raises the gate's errors, and `NotFound` for a commit that the actor may not read."""
    from omnigraph.branching import merge as merges
    from omnigraph.graph.sight import rights_to_bring

    key, why = checked_key(operation_id), checked_message(message)
    by, target, gate = self._by(actor), self._branch_of(branch), self._opened.gate
    verb = "revert" if kind == "revert" else "branch cherry-pick"
    gate.change(verb, by, target)
    commit_id = self._commit_of(commit_id, branch, gate.readable(by))
    rights = rights_to_bring(self._opened.sight, by)
    request = merges.ReplaySpec(kind, commit_id, target, by.actor, key, why, rights)
    authored = partial(self._authored_branch, request.commit_id)
    if not gate.replay(verb, by, request.branch, authored):
        raise UnresolvedRevision.no_commit(request.commit_id)
    return merges.replay(self._kernel, request)


def plan_revert(
    self: Handle,
    commit_id: str,
    *,
    branch: str | None = None,
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
) -> MergePlan:
    """The plan of `revert`, with pages and visibility as in `plan_merge`. Changes nothing."""
    from omnigraph.branching import merge as merges

    target = self._branch_of(branch)
    self._may_read("revert --dry-run", target)
    wanted = self._read_known_commit("revert --dry-run", commit_id, target)
    request = merges.ReplaySpec("revert", wanted, target)
    page = _plan_page(self, page_token, limit, limit_bytes)
    return merges.plan_replay(self._kernel, request, page, self._sees)


def plan_cherry_pick(
    self: Handle,
    commit_id: str,
    into: str | None = None,
    *,
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
) -> MergePlan:
    """The plan of `cherry_pick`, with pages and visibility as in `plan_merge`. Changes nothing."""
    from omnigraph.branching import merge as merges

    verb, target = "branch cherry-pick --dry-run", self._branch_of(into)
    wanted = self._read_known_commit(verb, commit_id, target)
    self._may_read(verb, target)
    request = merges.ReplaySpec("cherry-pick", wanted, target)
    page = _plan_page(self, page_token, limit, limit_bytes)
    return merges.plan_replay(self._kernel, request, page, self._sees)


# --- comparing rows -------------------------------------------------------------------------------


@contextmanager
def comparing(
    opened: OpenGraph, engine: CompareEngine, spark: SparkOptions | None, work: str
) -> Iterator[Choose | None]:
    """The function that chooses Spark for a comparison within the block; None for this process.

    Naming a session or a master selects Spark.
    """
    options = checked_options(spark, SparkOptions, "spark")
    is_auto = engine == "auto" and not options.is_named
    if not is_auto and engine_name(None if engine == "auto" else engine, options) == "local":
        yield None
        return
    from omnigraph.branching.workers import InProcess, rows_to_compare

    enough = positive_number(COMPARED_ROWS_VARIABLE, COMPARED_ROWS, strict=True)
    with ExitStack() as stack:

        def choose(versions: Sequence[Versions]) -> Workers:
            if is_auto and (
                rows_to_compare(versions, enough) < enough or find_spec("pyspark") is None
            ):
                return InProcess(opened.kernel)
            from omnigraph.pipeline.merging import spark_comparison

            return stack.enter_context(spark_comparison(opened.kernel, options, work))

        yield choose
