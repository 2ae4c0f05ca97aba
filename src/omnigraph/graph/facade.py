"""The `Graph` object: one open graph and everything that can be done with it.

Every face (command line, server, notebook) is a thin layer over this. It decides who may do what,
and hands the work to the rooms below.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.branching.branches import create_branch, delete_branch, list_branches
from omnigraph.branching.conflict_rules import ConflictRules
from omnigraph.branching.entity_history import entity_history, find_type
from omnigraph.branching.merge import MergeRequest, delete_source, merge, plan_merge
from omnigraph.branching.replay import ReplayRequest, plan_replay, replay
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.limits import WriteLimits
from omnigraph.commit.load_records import load_records
from omnigraph.commit.mutate import mutate
from omnigraph.commit.receipts import commit_info
from omnigraph.commit.records.blobs import ExternalBlobs
from omnigraph.commit.records.problems import Grammar
from omnigraph.commit.records.source import RecordSource
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.schema_apply import apply_schema
from omnigraph.commit.schema_contract import LAST_STAGED_OBJECT
from omnigraph.commit.write_path import WritePath
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.errors import InputError, WrongVerb
from omnigraph.graph.gate import WriteGate
from omnigraph.graph.reading import no_commit
from omnigraph.graph.upkeep import GraphUpkeep
from omnigraph.model.changes import EntityVersion
from omnigraph.model.conflicts import ConflictPolicy, MergeGranularity
from omnigraph.model.merging import MergePlan
from omnigraph.model.receipts import (
    BranchCreated,
    BranchDeleted,
    CommitInfo,
    LoadMode,
    LoadReceipt,
    MergeReceipt,
    MutationReceipt,
    SchemaApplyReceipt,
)
from omnigraph.model.replays import ReplayReceipt
from omnigraph.policy import Policy
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.migration import PlannedChange, plan_change
from omnigraph.storage.layout import MAIN
from omnigraph.syntax.source import Source

if TYPE_CHECKING:
    from omnigraph.pipeline.engine import EngineChoice, LoadEngine, Paths
    from omnigraph.pipeline.jobs import Watch

Written = TypeVar("Written")


class Graph(GraphUpkeep):
    """One open graph. Safe to share between threads."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        read_only: bool = False,
        embedding: EmbeddingConfig | None = None,
        policy: Policy | None = None,
        external_blobs: Iterable[str] = (),
        auto_optimize: bool | int | None = None,
    ) -> None:
        super().__init__(kernel, read_only=read_only, embedding=embedding)
        self._gate = WriteGate(policy, read_only=read_only)
        self._path = WritePath(kernel)
        if not read_only:
            self._look_after(auto_optimize)
        self._limits = WriteLimits.from_environment(os.environ)
        self._external = ExternalBlobs.below(external_blobs, self._limits.bytes_max)

    # --- writing ----------------------------------------------------------------------------------

    def mutate(
        self,
        source: str | Path | Source,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        expected_head: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> MutationReceipt:
        """Run a write query as one commit.

        ``expected_head`` makes it conditional: it runs only if that commit is the branch's head.
        ``operation_id`` names the write: repeating it with the same id returns the first receipt.
        """
        self._gate.change("mutate", actor, branch or MAIN)
        return self._with_newest_schema(
            "mutation",
            lambda: mutate(
                self._kernel,
                self._path,
                lambda catalog: self._compiled_mutation(source, name, catalog),
                params,
                accepted=self._accepted(),
                branch=branch or MAIN,
                limits=self._limits,
                actor_id=actor,
                expected_head=expected_head,
                operation_id=operation_id,
                external=self._external,
            ),
        )

    def load(
        self,
        *paths: str | os.PathLike[str],
        mode: LoadMode,
        data: bytes | str | Iterable[bytes] | None = None,
        branch: str | None = None,
        from_: str | None = None,
        grammar: Grammar = "compatible",
        replace_types: Iterable[str] = (),
        actor: str | None = None,
        operation_id: str | None = None,
        progress: Callable[[int], None] | None = None,
        nodes: Mapping[str, Paths] | None = None,
        edges: Mapping[str, Paths] | None = None,
        frames: Mapping[str, Any] | None = None,
        engine: LoadEngine | None = None,
        dry_run: bool = False,
        max_errors: int | None = None,
        errors_out: str | os.PathLike[str] | None = None,
        ignore_unknown: bool = False,
        spark: Any = None,
        spark_master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        on_engine: Callable[[EngineChoice], None] | None = None,
        watch: Watch | None = None,
    ) -> LoadReceipt:
        """Load graph records, and tables of one type each, as one commit.

        ``paths`` are JSONL files, directories or patterns with graph records; ``data`` are records
        themselves and may arrive in blocks. ``nodes`` and ``edges`` map type names to Parquet, CSV,
        ORC, Avro, JSON, Arrow or Lance files, ``frames`` to Spark, pandas or Polars frames or Arrow
        tables. A missing ``branch`` is created from ``from_`` if that is given. See the guide for
        the modes `append`, `merge` and `overwrite`.

        ``engine`` is `auto`, `local` or `spark`; `auto` takes Spark for tables and for files beyond
        `OMNIGRAPH_SPARK_THRESHOLD_BYTES`, and tells ``on_engine``. ``operation_id`` names the load:
        repeating it with the same input returns the first receipt. ``dry_run`` says what would be
        written. ``max_errors`` problems of a bad input are shown, and with ``errors_out`` all of
        them written to a file. ``progress`` is told the bytes of each block that was read in
        process, ``watch`` how the stages of a load on Spark come along.
        """
        self._gate.load(actor, branch or MAIN, from_, self.list_branches)
        from omnigraph.commit.records.findings import MAX_ERRORS, Findings
        from omnigraph.pipeline.engine import choose_engine, file_sources
        from omnigraph.pipeline.sources import find_files, input_digest, record_source

        files = file_sources(paths, nodes, edges)
        choice = choose_engine(
            engine,
            files,
            has_frames=bool(frames),
            has_stream=data is not None,
            environment=os.environ,
        )
        if on_engine is not None:
            on_engine(choice)
        if errors_out is not None:
            Path(errors_out).write_bytes(b"")  # what an earlier load found is not true any more
        target = branch or MAIN
        if dry_run and from_ is not None and target not in self.list_branches():
            target = from_  # what the branch would start with
        if from_ is None:
            self._kernel.manifest.branch(target)  # a missing branch is told before reading input
        if choice.engine == "spark":
            from omnigraph.pipeline.load import BulkRequest
            from omnigraph.pipeline.run import run_bulk_load

            request = BulkRequest(
                files,
                target,
                mode,
                grammar,
                replace_types=tuple(replace_types),
                base_branch=from_,
                actor_id=actor,
                operation_id=operation_id,
                dry_run=dry_run,
                max_errors=MAX_ERRORS if max_errors is None else max_errors,
                errors_out=None if errors_out is None else Path(errors_out),
                ignore_unknown=ignore_unknown,
                external=self._external.on_spark(mode),
            )
            receipt = run_bulk_load(
                self._kernel,
                self._path,
                request,
                frames,
                spark=spark,
                master=spark_master,
                conf=spark_conf,
                ensure_branch=partial(self._ensure_branch, target, from_, actor),
                drop_branch=partial(delete_branch, self._kernel, target),
                watch=watch,
            )
            return self._counted(receipt)
        found = [each for source in files for each in find_files(source)]
        sources = [record_source(each) for each in found]
        if isinstance(data, bytes | str):
            sources.append(RecordSource.of(data))
        elif data is not None:
            sources.append(RecordSource.stream(data))
        if progress is not None:
            sources = [_watched(source, progress) for source in sources]
        findings: Findings | None = None
        if max_errors is not None or errors_out is not None:
            findings = Findings(
                MAX_ERRORS if max_errors is None else max_errors,
                None if errors_out is None else Path(errors_out),
            )
        work = partial(
            load_records,
            self._kernel,
            self._path,
            sources,
            branch=target,
            mode=mode,
            grammar=grammar,
            limits=self._limits,
            external=self._external,
            replace_types=replace_types,
            base_branch=from_,
            ensure_branch=partial(self._ensure_branch, target, from_, actor),
            actor_id=actor,
            operation_id=operation_id,
            input_digest=input_digest(found) if operation_id and data is None else None,
            dry_run=dry_run,
            findings=findings,
        )
        is_stream = data is not None and not isinstance(data, bytes | str)
        return self._with_newest_schema("load", work, repeatable=not is_stream)

    # --- branches and history ---------------------------------------------------------------------

    def create_branch(
        self, name: str, from_: str | None = None, *, actor: str | None = None
    ) -> BranchCreated:
        """Create a branch at the head of another; costs no data copy."""
        source = from_ or MAIN
        self._gate.branch_create("branch create", actor, source, name)
        create_branch(self._kernel, name, source, actor_id=actor)
        return BranchCreated(self.uri, source, name, actor)

    def list_branches(self) -> list[str]:
        """The branches, sorted."""
        return list_branches(self._kernel)

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

        ``type_name`` is a name, or `node:Name` or `edge:Name`. It goes back to the last change of
        the schema.
        """
        state = self._kernel.manifest.refreshed(branch or MAIN).state
        found = find_type(self._catalog_of(state.head_snapshot()), type_name)
        return entity_history(self._kernel, state, found, entity_id)

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

    # --- inside -----------------------------------------------------------------------------------

    def _compiled_mutation(
        self, source: str | Path | Source, name: str | None, catalog: Catalog
    ) -> MutationPlan:
        plan = self._compiled(source, name, catalog)
        if not isinstance(plan, MutationPlan):
            raise WrongVerb(
                f"query '{plan.name}' only reads", hint="run it with `query` instead of `mutate`"
            )
        return plan

    def _ensure_branch(self, name: str, from_: str | None, actor: str | None) -> bool:
        """Create a missing branch if the caller said from where; whether it was created."""
        if from_ is None or name in self.list_branches():
            return False
        self._gate.branch_create("load", actor, from_, name)
        create_branch(self._kernel, name, from_, actor_id=actor)
        return True

    def _with_newest_schema(
        self, operation: str, write: Callable[[], Written], *, repeatable: bool = True
    ) -> Written:
        """Run a write, and again if it failed for a schema apply that was interrupted late.

        Such an apply is completed before, so that the write can use its types. What cannot be read
        twice is not ``repeatable``: then only the next attempt can.
        """
        try:
            return self._counted(write())
        except InputError:
            if not self._kernel.store.exists(LAST_STAGED_OBJECT):
                raise
            Recoverer(self._kernel).barrier(MAIN, operation)
            if not repeatable:
                raise
        return self._counted(write())


def _watched(source: RecordSource, progress: Callable[[int], None]) -> RecordSource:
    """The same source, telling ``progress`` of every block."""

    def blocks() -> Iterator[bytes]:
        for block in source.blocks():
            progress(len(block))
            yield block

    return RecordSource(source.name, blocks)
