"""The `Graph` object: one open graph and everything that can be done with it.

Every face (command line, server, notebook) is a thin layer over this. It decides who may do what,
and hands the work to the rooms below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from omnigraph.branching.branches import create_branch, delete_branch
from omnigraph.branching.entity_history import entity_history, find_type
from omnigraph.branching.merge import (
    MergeRequest,
    ReplayRequest,
    delete_source,
    merge,
    plan_merge,
    plan_replay,
    replay,
)
from omnigraph.branching.three_way import ConflictRules
from omnigraph.commit.receipts import commit_info
from omnigraph.commit.schema.apply import apply_schema
from omnigraph.graph.reading import no_commit
from omnigraph.graph.writing import GraphWriting
from omnigraph.model.changes import EntityVersion
from omnigraph.model.merging import ConflictPolicy, MergeGranularity, MergePlan
from omnigraph.model.receipts import (
    BranchCreated,
    BranchDeleted,
    CommitInfo,
    MergeReceipt,
    ReplayReceipt,
    SchemaApplyReceipt,
)
from omnigraph.schema.migration import PlannedChange, plan_change
from omnigraph.storage.layout import MAIN
from omnigraph.syntax.source import Source


class Graph(GraphWriting):
    """One open graph. Safe to share between threads."""

    # --- branches and history ---------------------------------------------------------------------

    def create_branch(
        self, name: str, from_: str | None = None, *, actor: str | None = None
    ) -> BranchCreated:
        """Create a branch at the head of another; costs no data copy."""
        source = from_ or MAIN
        self._gate.branch_create("branch create", actor, source, name)
        create_branch(self._kernel, name, source, actor_id=actor)
        return BranchCreated(self.uri, source, name, actor)

    def delete_branch(self, name: str, *, actor: str | None = None) -> BranchDeleted:
        """Delete a branch; its commits are gone with it."""
        self._gate.branch_delete(actor, name)
        delete_branch(self._kernel, name)
        return BranchDeleted(self.uri, name, actor)

    def plan_merge(
        self,
        source: str,
        into: str | None = None,
        *,
        on_conflict: ConflictPolicy = "fail",
        on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
        granularity: MergeGranularity = "entity",
    ) -> MergePlan:
        """What `merge_branch` would do now: per type, and every conflict. Changes nothing."""
        rules = ConflictRules(on_conflict, on_conflict_of or {}, granularity)
        request = MergeRequest(source, into or MAIN, rules)
        return plan_merge(self._kernel, self._accepted(), request)

    def merge_branch(
        self,
        source: str,
        into: str | None = None,
        *,
        on_conflict: ConflictPolicy = "fail",
        on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
        granularity: MergeGranularity = "entity",
        delete_branch: bool = False,
        actor: str | None = None,
    ) -> MergeReceipt:
        """Merge a branch into main, or ``into`` another, as one commit with two parents.

        The merge is three-way and by entity. Where both sides changed one entity and disagree, or
        the merged graph would break the schema, `MergeConflicts` is raised and nothing has changed.
        ``on_conflict`` lets `source` or `target` win instead, ``on_conflict_of`` by type name; a
        broken schema has no winner. With ``granularity`` `property`, edits of different properties
        of one entity go together. ``delete_branch`` deletes the source afterwards; the receipt says
        if that was refused. Raises `ReadSetChanged` when others wrote to the target meanwhile.
        """
        self._gate.branch_merge(actor, source, into or MAIN)
        rules = ConflictRules(on_conflict, on_conflict_of or {}, granularity)
        request = MergeRequest(source, into or MAIN, rules, actor)
        receipt = self._counted(merge(self._kernel, self._accepted(), request))
        if not delete_branch:
            return receipt
        permit = partial(self._gate.branch_delete, actor, source)
        return delete_source(self._kernel, receipt, permit)

    def list_commits(
        self, branch: str | None = None, *, actor: str | None = None
    ) -> list[CommitInfo]:
        """The commits a branch's head reaches, newest first; ``actor`` as author or recoverer."""
        lineage = self._kernel.manifest.refreshed(branch or MAIN).state.lineage()
        return [
            commit_info(row)
            for row in lineage
            if actor is None or actor in (row.actor_id, row.recovered_by)
        ]

    def revert(
        self, commit_id: str, *, branch: str | None = None, actor: str | None = None
    ) -> ReplayReceipt:
        """Undo what one commit of a branch changed, as a new commit; history stays as it is.

        What happened to other entities since stays. Raises `MergeConflicts` where the same entities
        changed again, or where the schema needs what the commit brought; nothing is done then. A
        merge is reverted against its first parent.
        """
        self._gate.change("revert", actor, branch or MAIN)
        request = ReplayRequest("revert", commit_id, branch or MAIN, actor)
        return replay(self._kernel, self._accepted(), request)

    def cherry_pick(
        self, commit_id: str, into: str | None = None, *, actor: str | None = None
    ) -> ReplayReceipt:
        """Do what one commit of any branch changed once more on main, or ``into`` another branch.

        Raises `MergeConflicts` where the same entities differ there; nothing is done then.
        """
        self._gate.change("branch cherry-pick", actor, into or MAIN)
        request = ReplayRequest("cherry-pick", commit_id, into or MAIN, actor)
        return replay(self._kernel, self._accepted(), request)

    def plan_revert(self, commit_id: str, *, branch: str | None = None) -> MergePlan:
        """What `revert` would do now. Changes nothing."""
        request = ReplayRequest("revert", commit_id, branch or MAIN)
        return plan_replay(self._kernel, self._accepted(), request)

    def plan_cherry_pick(self, commit_id: str, into: str | None = None) -> MergePlan:
        """What `cherry_pick` would do now. Changes nothing."""
        request = ReplayRequest("cherry-pick", commit_id, into or MAIN)
        return plan_replay(self._kernel, self._accepted(), request)

    def entity_history(
        self, type_name: str, entity_id: str, *, branch: str | None = None
    ) -> Iterator[EntityVersion]:
        """The commits of a branch that changed one entity, newest first, with what they did to it.

        ``type_name`` is a name, or `node:Name` or `edge:Name`. Each is told in the words of its own
        schema; a change of the schema is no change of an entity.
        """
        state = self._kernel.manifest.refreshed(branch or MAIN).state
        found = find_type(self._catalog_of(state.head_snapshot()), type_name)
        return entity_history(self._kernel, self._schemas, state, found, entity_id)

    def show_commit(self, commit_id: str) -> CommitInfo:
        """One commit of any branch; raises `NotFound`."""
        for branch in self.list_branches():
            row = self._kernel.manifest.branch(branch).refresh().commits.get(commit_id)
            if row is not None:
                return commit_info(row)
        raise no_commit(commit_id)

    # --- schema -----------------------------------------------------------------------------------

    def plan_schema(
        self, desired: str | Path | Source, *, allow_data_loss: bool = False
    ) -> PlannedChange:
        """The steps from the accepted schema to another; changes nothing.

        A plan with unsupported changes is a plan all the same: `MigrationPlan.supported` says so.
        Raises the compile error of a bad schema.
        """
        return plan_change(self._accepted().ir, desired, allow_data_loss=allow_data_loss)

    def apply_schema(
        self,
        desired: str | Path | Source,
        *,
        allow_data_loss: bool = False,
        actor: str | None = None,
    ) -> SchemaApplyReceipt:
        """Bring the graph to another schema (a text, or the path of a `.pg` file) as one commit.

        Without any difference nothing is published. What is dropped stays readable at older
        commits, unless ``allow_data_loss`` reclaims it. Raises the compile error of a bad schema,
        `UnsupportedSchemaChange` if a step has no migration, and `Conflict` while there are
        branches other than main or while another apply runs; the graph is then as it was.
        """
        self._gate.schema_apply(actor)
        done = apply_schema(self._kernel, desired, allow_data_loss=allow_data_loss, actor_id=actor)
        plan = done.planned.plan
        return SchemaApplyReceipt(
            self.uri,
            plan.supported,
            done.commit is not None,
            done.manifest_version,
            tuple(step.to_json() for step in plan.steps),
        )
