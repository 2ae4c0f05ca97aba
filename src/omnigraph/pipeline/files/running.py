"""One run of a pipeline: load, vectors, checks, merge, and recovery of an interrupted run.

Write, audit, publish: the rows are one commit on a branch, the checks are queries there, and only
if all checks pass is the branch merged, as one commit on the target. The receipt of a run is stored
in these two commits, so the next run completes or restarts a run that was killed:

==============================  ====================================================================
killed                          then the next run
==============================  ====================================================================
before the load's commit        deletes the branch if it exists, and starts over
after it, before the merge      finds the run's key on the branch, continues with vectors and checks
after the merge                 finds the receipt on the target and deletes the branch: no change
==============================  ====================================================================
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.errors import ChecksFailed, Conflict, NotFound, ReadSetChanged
from omnigraph.graph import ErrorOptions, Graph, LoadObserver, LoadOrigin, SparkOptions
from omnigraph.graph.embedding import AS_OF, last_embedding
from omnigraph.loading.inputs import EngineChoice
from omnigraph.model.receipts import (
    EMBEDS,
    CommitInfo,
    EmbedResult,
    LoadedType,
    LoadMode,
    LoadReceipt,
    MergeReceipt,
)
from omnigraph.pipeline.files.checking import catalog_of, frame_problems, graph_problems
from omnigraph.pipeline.files.document import (
    EmbedKeys,
    PipelineDocument,
    PipelineKeys,
    PipelineProblem,
    invalid,
)
from omnigraph.pipeline.files.frames import Frames
from omnigraph.pipeline.files.inputs import (
    METADATA,
    History,
    SourceInput,
    Survey,
    history_of,
    is_unchanged,
    receipt_of,
    run_key,
    survey,
)
from omnigraph.pipeline.files.receipts import (
    PipelineCheckResult,
    PipelineReceipt,
    PipelineSource,
    PipelineStage,
)
from omnigraph.pipeline.spark.session import (
    SessionSettings,
    build_session,
    existing_session,
    stop_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.loading.executors import StageProgress

FAILED_ROWS_SHOWN = 20
MERGE_ATTEMPTS = 5

OnStage = Callable[[PipelineStage], None]


class PipelineRun:
    """One validation, plan or run."""

    def __init__(
        self,
        document: PipelineDocument,
        graph: Graph,
        spark: SparkOptions | None,
        on_stage: OnStage | None = None,
        observer: LoadObserver | None = None,
        *,
        embedding: EmbeddingConfig | None = None,
    ) -> None:
        self.document = document
        self.graph = graph
        self._options = spark or SparkOptions()
        self._on_stage = on_stage
        self._observer = observer or LoadObserver()
        self._embedding = embedding
        self._built: SparkSession | None = None
        self._inputs: dict[str, SourceInput] = {}
        self._stages: list[PipelineStage] = []
        self._notes: list[str] = []
        self._key = ""
        """The idempotency key, the same for every attempt at the run."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._built is not None:
            stop_session(self._built)

    @cached_property
    def session(self) -> SparkSession:
        """The caller's session, the active one, or a new one that is stopped at the end."""
        settings = SessionSettings.of(
            os.environ, master=self._options.master, conf=self._options.conf
        )
        found = existing_session(self._options.session, settings)
        if found is None:
            if self._observer.on_engine is not None:
                why = "pipelines run on it; it takes some seconds to start"
                self._observer.on_engine(EngineChoice("spark", why, is_bulk=True))
            found = self._built = build_session(settings)
        return found

    @property
    def keys(self) -> PipelineKeys:
        """The keys of the file."""
        return self.document.keys

    # --- checking ---

    def checked_frames(self, found: Survey, *, samples: bool = False) -> Frames:
        """The frames of the file; raises `PipelineInvalid` with all problems."""
        self._inputs = found.inputs
        catalog = catalog_of(self.graph)
        problems = [*found.problems, *graph_problems(self.document, self.graph, catalog)]
        frames = Frames(self.document, self.session, found.inputs, samples=samples)
        problems += frame_problems(self.document, frames, catalog)
        if problems:
            raise invalid(self.document.path.name, sorted(problems, key=_line))
        return frames

    @property
    def source_reports(self) -> tuple[PipelineSource, ...]:
        """The input from each source."""
        return tuple(
            PipelineSource(
                each.name,
                each.keys.format,
                len(each.stamps),
                each.bytes,
                None if each.keys.incremental is None else len(each.units or {}),
                each.changed,
                each.left,
                each.is_watched,
            )
            for each in self._inputs.values()
        )

    # --- stages ---

    @contextmanager
    def _stage(self, name: str) -> Iterator[_StageNotes]:
        started = perf_counter()
        notes = _StageNotes()
        yield notes
        stage = PipelineStage(name, round(perf_counter() - started, 3), notes.detail, notes.rows)
        self._stages.append(stage)
        if self._on_stage is not None:
            self._on_stage(stage)

    def _seconds(self) -> dict[str, float]:
        return {stage.name: stage.seconds for stage in self._stages}

    # --- running ---

    def run(self, *, full: bool) -> PipelineReceipt:
        """Load, check and merge; see `Pipeline.run`."""
        document = self.document
        with self._stage("inputs") as stage:
            history = self._history()
            found = survey(document, history, full=full)
            self._inputs = found.inputs
            stage.detail = self._input_words()
        if found.problems or document.missing_files:
            self.checked_frames(found)
        definition = document.digest()
        if not full and is_unchanged(definition, self._inputs, history.receipt):
            return self._unchanged(history)
        key = self._key = run_key(self.keys.name, definition, self._inputs, history.last)
        receipt = self._receipt_parts(definition, key)
        before = self._before(key)
        if before is None:
            loaded = self._load(self.checked_frames(found), key, receipt)
            if loaded.commit is None:
                return self._nothing_loaded(loaded, history)
            load_commit, nodes, edges = loaded.commit, loaded.nodes, loaded.edges
        else:
            load_commit, (nodes, edges) = before, self._counts_of(before)
            self._notes.append(f"went on with commit {before.graph_commit_id} on {document.branch}")
            if document.opens_review and self._is_merged():
                return self._accepted(before, nodes, edges)
        receipt |= {
            "load_commit_id": load_commit.graph_commit_id,
            "nodes": [each.to_dict() for each in nodes],
            "edges": [each.to_dict() for each in edges],
        }
        hit(Failpoint.PIPELINE_POST_LOAD_PRE_CHECKS)
        told = partial(
            self._told,
            load_commit_id=load_commit.graph_commit_id,
            resumed=before is not None,
            nodes=nodes,
            edges=edges,
        )
        if document.merge_into is None:
            return told("loaded", commit=load_commit)
        try:
            embedded = self._embed(load_commit)
            checks = self._check()
            receipt |= {
                "embedded": [each.to_dict() for each in embedded],
                "checks": [each.to_dict() for each in checks],
                "seconds": self._seconds(),
            }
            hit(Failpoint.PIPELINE_POST_CHECKS_PRE_MERGE)
            kept = {**_metadata(receipt), **merged_vectors(embedded, load_commit)}
            merge = self._merge(document.merge_into, kept)
        except NotFound:
            # Another process may have found this load, merged the branch and deleted it.
            published = self._history().last
            if published is None or receipt_of(published).get("key") != key:
                raise
            self._notes.append("another run has merged the branch meanwhile")
            return told("merged", commit=published)
        commit = merge.commit or self._history().last
        return told("merged", commit=commit, embedded=embedded, checks=checks, merge=merge)

    def _told(
        self,
        outcome: Any,
        *,
        commit: CommitInfo | None,
        load_commit_id: str | None = None,
        resumed: bool = False,
        nodes: tuple[LoadedType, ...] = (),
        edges: tuple[LoadedType, ...] = (),
        embedded: tuple[EmbedResult, ...] = (),
        checks: tuple[PipelineCheckResult, ...] = (),
        merge: MergeReceipt | None = None,
    ) -> PipelineReceipt:
        return PipelineReceipt(
            self.keys.name,
            self.graph.uri,
            outcome,
            self.document.branch,
            self.document.merge_into,
            resumed,
            self.source_reports,
            nodes,
            edges,
            embedded,
            checks,
            load_commit_id,
            commit,
            tuple(self._stages),
            merge,
            tuple(self._notes),
        )

    def _history(self) -> History:
        """The runs of this pipeline among the commits of the target."""
        target = self.document.merge_into or self.document.branch
        if target not in self.graph.list_branches():
            target = self.document.base
        return history_of(self.keys.name, self.graph.list_commits(target))

    def _input_words(self) -> str:
        files = sum(len(each.stamps) for each in self._inputs.values())
        size = sum(each.bytes for each in self._inputs.values())
        for each in self._inputs.values():
            if each.changed:
                names = ", ".join(islice(each.changed, 3)) + (
                    ", …" if len(each.changed) > 3 else ""
                )
                self._notes.append(f"source {each.name}: changed since they were loaded: {names}")
            if each.left:
                self._notes.append(
                    f"source {each.name}: {each.left} new {each.keys.incremental} wait for the"
                    " next run"
                )
            if not each.is_watched:
                self._notes.append(
                    f"source {each.name}: whether it changed is not known, so it is always read"
                )
        return f"{len(self._inputs)} sources, {files} files, {size:,} bytes"

    def _receipt_parts(self, definition: str, key: str) -> dict[str, Any]:
        return {
            "name": self.keys.name,
            "definition": definition,
            "key": key,
            "sources": {name: each.to_receipt() for name, each in self._inputs.items()},
        }

    # --- earlier runs ---

    def _before(self, key: str) -> CommitInfo | None:
        """The load commit of an earlier attempt at this run; deletes the branch of any other run.

        Raises `Conflict` if the branch has commits that the pipeline did not write.
        """
        branch, into = self.document.branch, self.document.merge_into
        if into is None or branch not in self.graph.list_branches():
            return None
        own = [each for each in self.graph.list_commits(branch) if each.graph_branch == branch]
        for commit in own:
            if receipt_of(commit).get("key") == key and self._is_watched:
                return commit
        foreign = [each for each in own if receipt_of(each).get("name") != self.keys.name]
        if foreign:
            raise Conflict(
                f"branch `{branch}` has commits that this pipeline did not write, such as"
                f" {foreign[0].graph_commit_id}",
                hint=f"merge or delete it (`omnigraph branch delete {branch}`), or name another"
                " branch in `target`",
                details={"branch": branch, "graph_commit_id": foreign[0].graph_commit_id},
            )
        self._notes.append(f"replaced branch {branch} of an earlier run, which was not merged")
        self.graph.delete_branch(branch)
        return None

    def _counts_of(self, load: CommitInfo) -> tuple[tuple[LoadedType, ...], tuple[LoadedType, ...]]:
        """The rows changed by the load of an earlier attempt; unchanged rows are not counted."""
        counts: dict[str, list[LoadedType]] = {"node": [], "edge": []}
        assert load.parent_commit_id is not None
        for each in self.graph.diff(load.parent_commit_id, load.graph_commit_id).types:
            changed = each.inserted + each.updated
            counted = LoadedType(each.type_name, changed, each.inserted, each.updated, 0)
            counts[each.kind].append(counted)
        return tuple(counts["node"]), tuple(counts["edge"])

    @property
    def _is_watched(self) -> bool:
        return all(each.is_watched for each in self._inputs.values())

    def _unchanged(self, history: History) -> PipelineReceipt:
        """The receipt without changes; deletes a branch that was merged but not deleted."""
        assert history.last is not None
        branch, into = self.document.branch, self.document.merge_into
        is_left = self.document.deletes_branch and branch in self.graph.list_branches()
        if into is not None and is_left:
            self._delete_merged(into)
        return self._told("no_change", commit=history.last)

    def _nothing_loaded(self, loaded: LoadReceipt, history: History) -> PipelineReceipt:
        """The receipt of a load without changes; deletes the branch, which equals its base."""
        if loaded.branch_created:
            self.graph.delete_branch(self.document.branch)
        self._notes.append("all rows were there already")
        return self._told("no_change", commit=history.last, nodes=loaded.nodes, edges=loaded.edges)

    def _is_merged(self) -> bool:
        """Whether the target contains all commits of the branch."""
        into = self.document.merge_into
        plan = None if into is None else self.graph.plan_merge(self.document.branch, into)
        return plan is not None and plan.outcome == "already_up_to_date"

    def _accepted(
        self, load: CommitInfo, nodes: tuple[LoadedType, ...], edges: tuple[LoadedType, ...]
    ) -> PipelineReceipt:
        """The receipt if a reviewer merged the branch despite failed checks: none runs again."""
        branch, into = self.document.branch, self.document.merge_into
        assert into is not None
        self._notes.append(f"branch {branch} was merged into {into} after a review")
        if self.document.deletes_branch:
            self._delete_merged(into)
        return self._told(
            "merged",
            commit=load,
            load_commit_id=load.graph_commit_id,
            resumed=True,
            nodes=nodes,
            edges=edges,
        )

    # --- loading ---

    def _load(self, frames: Frames, key: str, receipt: Mapping[str, Any]) -> LoadReceipt:
        with self._stage("load") as stage, frames.told_where():
            loaded = self.graph.load(
                frames=self._by_type(frames),
                mode=self._mode(),
                absent=self.keys.absent if self._mode() == "merge" else "keep",
                branch=self.document.branch,
                from_=self.document.base,
                engine="spark",
                operation_id=key,
                errors=self._error_options(),
                origin=LoadOrigin(_metadata(receipt), key),
                spark=SparkOptions(session=frames.session),
                observer=LoadObserver(on_stage=self._watch),
            )
            rows = sum(each.records_read for each in loaded.types)
            stage.rows = rows
            stage.detail = f"{rows:,} rows into {self.document.branch}"
        if loaded.skipped:
            self._notes.append(f"{loaded.skipped} bad records were left out")
        return loaded

    def _error_options(self) -> ErrorOptions:
        file = self.keys.errors_out
        return ErrorOptions(
            errors_out=None if file is None else self.document.resolved(file),
            on_error=self.keys.on_error,
            max_error_share=self.keys.max_error_share,
        )

    def _mode(self) -> LoadMode:
        """The mode of the file; `merge` if units were loaded before with other contents."""
        if self.keys.mode == "append" and any(each.changed for each in self._inputs.values()):
            return "merge"
        mode: LoadMode = self.keys.mode
        return mode

    def _by_type(self, frames: Frames) -> dict[str, Any]:
        whole: dict[str, Any] = {}
        for mapped in self.document.mappings:
            name = f"{mapped.kind}:{mapped.type_name}"
            rows = frames.rows_of(mapped)
            whole[name] = rows if name not in whole else whole[name].unionByName(rows)
        return whole

    def _watch(self, progress: StageProgress) -> None:
        if self._observer.on_stage is not None:
            self._observer.on_stage(progress)
        if progress.stage == "read" and progress.finished:
            # An error raised here ends the load before its commit.
            for each in self._inputs.values():
                each.require_unchanged()

    # --- vectors ---

    def _embed(self, load: CommitInfo) -> tuple[EmbedResult, ...]:
        """Compute vectors on the branch, where texts are new or have changed."""
        results = []
        for each in self.keys.embed:
            with self._stage(f"embed {each.type}.{each.property}") as stage:
                result = embed_on_branch(
                    self.graph,
                    self.document.branch,
                    each,
                    pipeline=self.keys.name,
                    load=load,
                    spark=SparkOptions(session=self.session),
                    embedding=self._embedding,
                )
                results.append(result)
                stage.rows = result.texts
                stage.detail = (
                    f"{result.texts:,} texts, {result.characters:,} characters,"
                    f" {result.requests:,} requests"
                )
        return tuple(results)

    # --- checks ---

    def _check(self) -> tuple[PipelineCheckResult, ...]:
        results = []
        for check in self.keys.checks:
            with self._stage(f"check {check.name}") as stage:
                answer = self.graph.query(
                    Path(self.document.resolved(check.file)),
                    check.params,
                    name=check.query,
                    branch=self.document.branch,
                )
                rows: list[dict[str, Any]] = answer.to_dict()["rows"]
                passed = check.meets(rows)
                sample = () if passed else tuple(rows[:FAILED_ROWS_SHOWN])
                results.append(
                    PipelineCheckResult(check.name, check.expect, passed, len(rows), sample)
                )
                stage.rows = len(rows)
                stage.detail = "passed" if passed else f"failed: {len(rows)} rows"
        failed = [each for each in results if not each.passed]
        if failed:
            raise self._checks_failed(failed, self._open_review(results))
        return tuple(results)

    def _open_review(self, results: Sequence[PipelineCheckResult]) -> str | None:
        """A change request for the branch with the results of its checks, if the file asks for one.

        Another attempt at this run finds the same request, and reports again if the head has moved.
        """
        document, failed = self.document, [each.name for each in results if not each.passed]
        if not document.opens_review:
            return None
        reviews = self.graph.reviews
        review = reviews.open(
            document.branch,
            document.merge_into,
            title=f"Pipeline {self.keys.name}: {len(failed)} of {len(results)} checks failed",
            description="The rows are on the branch; they were not merged because of "
            + ", ".join(failed),
            operation_id=self._key,
        )
        if review.state != "open":
            return review.id  # the request was closed meanwhile
        for each in results:
            told = hashlib.sha256(f"{review.source_commit_id}:{each.name}".encode()).hexdigest()
            rows = f"{each.rows} row{'' if each.rows == 1 else 's'}"
            reviews.report_check(
                review.id,
                each.name,
                "passed" if each.passed else "failed",
                text=rows if each.passed else f"{rows}, expected {each.expect}",
                rows=each.sample,
                operation_id=f"{self._key}:{told[:16]}",
            )
        return review.id

    def _checks_failed(
        self, failed: list[PipelineCheckResult], review_id: str | None
    ) -> ChecksFailed:
        document = self.document
        lines = []
        for each in failed:
            lines.append(f"check {each.name} expects {each.expect}, and found {each.rows} rows")
            lines += [f"  {_shown(row)}" for row in each.sample]
            if each.rows > len(each.sample):
                lines.append(f"  … and {each.rows - len(each.sample)} more")
        head = (
            f"{len(failed)} of {len(self.keys.checks)} checks failed on branch"
            f" `{document.branch}`; `{document.merge_into}` is as it was"
        )
        details = {
            "branch": document.branch,
            "merge_into": document.merge_into,
            "checks": [each.to_dict() for each in failed],
        }
        if review_id is not None:
            return ChecksFailed(
                "\n".join([head, *lines]),
                hint=f"{review_id} asks for a decision: `omnigraph review show {review_id}`, then"
                " `review merge` or `review close`",
                details={**details, "review_id": review_id},
            )
        return ChecksFailed(
            "\n".join([head, *lines]),
            hint=f"look at the branch, mend the sources or the branch itself, and run the pipeline"
            f" again; `omnigraph branch delete {document.branch}` drops it",
            details=details,
        )

    # --- merging ---

    def _merge(self, into: str, metadata: Mapping[str, Any]) -> MergeReceipt:
        branch = self.document.branch
        with self._stage("merge") as stage:
            for attempt in range(MERGE_ATTEMPTS):
                try:
                    merged = self.graph.merge_branch(branch, into, metadata=metadata)
                    break
                except ReadSetChanged:
                    # The target moved while the merge was planned.
                    if attempt == MERGE_ATTEMPTS - 1:
                        raise
            hit(Failpoint.PIPELINE_POST_MERGE_PRE_DELETE)
            stage.detail = f"{branch} into {into}"
        if self.document.deletes_branch:
            self._delete_merged(into)
        return merged

    def _delete_merged(self, into: str) -> None:
        """Delete the branch, unless it has commits that were not merged."""
        branch = self.document.branch
        plan = self.graph.plan_merge(branch, into)
        if plan.outcome == "already_up_to_date":
            deleted = self.graph.merge_branch(branch, into, delete_branch=True)
            if deleted.branch_delete_error is not None:
                self._notes.append(f"branch {branch} is kept: {deleted.branch_delete_error}")
        else:
            self._notes.append(f"branch {branch} is kept: it has commits that were not merged")


class _StageNotes:
    """The details of a stage, for its report."""

    def __init__(self) -> None:
        self.detail = ""
        self.rows: int | None = None


def _metadata(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """The receipt as metadata of a commit."""
    return {METADATA: json.loads(json.dumps(receipt))}


def _line(problem: PipelineProblem) -> tuple[int, int]:
    _, line, column = problem.place.rsplit(":", 2)
    return int(line), int(column)


def _shown(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in row.items())


# --- vectors --------------------------------------------------------------------------------------


def embed_on_branch(
    graph: Graph,
    branch: str,
    keys: EmbedKeys,
    *,
    pipeline: str,
    load: CommitInfo,
    spark: SparkOptions,
    embedding: EmbeddingConfig | None,
) -> EmbedResult:
    """Compute vectors for texts that are new or changed since vectors were last computed.

    If no commit of the branch has computed vectors yet, only texts changed by this run, whose
    commit is ``load``, count as changed.
    """
    name = f"{keys.type}.{keys.property}"
    is_first = not last_embedding(graph.list_commits(branch), name)
    receipt = graph.embed(
        keys.type,
        keys.property,
        branch=branch,
        since=load.parent_commit_id if is_first else None,
        spark=spark,
        embedding=embedding,
        origin=LoadOrigin({METADATA: {"name": pipeline, "embeds": name}}),
    )
    (result,) = receipt.properties
    return result


def merged_vectors(embedded: Sequence[EmbedResult], load: CommitInfo) -> Mapping[str, Any]:
    """Metadata of the merge commit on the branch's vectors, where the next run starts.

    The vectors are current as of the commit that the branch was created from: texts of the target
    may have changed since then.
    """
    if not embedded:
        return {}
    names = [f"{each.type}.{each.property}" for each in embedded]
    return {EMBEDS: names, AS_OF: load.parent_commit_id}
