"""A pipeline: a file of sources, mappings and checks, and the graph it loads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.errors import InputError, NotFound, SourceChanged
from omnigraph.graph import Graph, LoadObserver, SparkOptions, open_graph
from omnigraph.loading.records.absence import is_needed
from omnigraph.model.arrow import DST, SRC
from omnigraph.model.receipts import LoadMode
from omnigraph.pipeline.files.checking import catalog_of, type_named
from omnigraph.pipeline.files.document import PipelineDocument, invalid, read_file
from omnigraph.pipeline.files.frames import Frames
from omnigraph.pipeline.files.inputs import History, is_unchanged, receipt_of, run_key, survey
from omnigraph.pipeline.files.receipts import (
    PipelinePlan,
    PipelineReceipt,
    PipelineReport,
    PlannedRows,
)
from omnigraph.pipeline.files.running import PipelineRun

if TYPE_CHECKING:
    pass

from omnigraph.pipeline.files.running import OnStage

SAMPLE_ROWS = 1_000

_NO_HISTORY = History(None, {})


def read_pipeline(path: str | os.PathLike[str], *, graph: Graph | str | None = None) -> Pipeline:
    """The pipeline of a YAML file, for the graph that it names, or for ``graph``.

    Raises `PipelineInvalid` with every problem that shows without the graph and its sources, and
    `NotFound` if there is no such file.

    >>> receipt = read_pipeline("crm.yaml").run()  # doctest: +SKIP
    """
    file = Path(path)
    if not file.is_file():
        raise NotFound(f"there is no pipeline file {file}", details={"file": str(file)})
    return Pipeline(read_file(file), graph)


class Pipeline:
    """A pipeline file, ready to be checked and run; made by `read_pipeline`."""

    def __init__(self, document: PipelineDocument, graph: Graph | str | None = None) -> None:
        self._document = document
        self._given = graph

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, {str(self._document.path)!r})"

    @property
    def name(self) -> str:
        """The name that identifies its runs in commits."""
        return self._document.keys.name

    @property
    def mode(self) -> LoadMode:
        """The load mode: append, merge or overwrite."""
        return self._document.keys.mode

    @property
    def names_graph(self) -> bool:
        """Whether the file names its graph."""
        return self._document.keys.graph is not None

    @property
    def graph_uri(self) -> str:
        """The URI of the graph; raises `PipelineInvalid` if neither file nor caller names it."""
        if isinstance(self._given, Graph):
            return self._given.uri
        if self._given is not None:
            return self._given
        named = self._document.keys.graph
        if named is None:
            problem = self._document.problem(
                (), "names no graph", "add `graph`, or pass `--store` (graph=…)"
            )
            raise invalid(self._document.path.name, [problem])
        return self._document.resolved(named)

    def _graph(self, *, writes: bool) -> Graph:
        if isinstance(self._given, Graph):
            return self._given
        return open_graph(self.graph_uri, "read_write" if writes else "read_only")

    def validate(self, *, spark: SparkOptions | None = None) -> PipelineReport:
        """Check the file against the schema of its graph and the columns of its sources.

        No rows are read: Spark resolves the expressions by the footers of Parquet and ORC files,
        the first line of CSV files with a header, the catalog of tables and databases, or the
        `schema` of the source. For JSON without a `schema`, the first lines of one file are read.
        Raises `PipelineInvalid` with every problem and its place.
        """
        work = PipelineRun(self._document, self._graph(writes=False), spark)
        with work:
            frames = work.checked_frames(
                survey(self._document, _NO_HISTORY, contents=False), samples=True
            )
            return PipelineReport(
                self.name,
                str(self._document.path),
                work.graph.uri,
                work.source_reports,
                tuple(f"{each.kind}:{each.type_name}" for each in self._document.mappings),
                tuple(check.name for check in self._document.keys.checks),
                tuple(frames.notes),
            )

    def plan(
        self,
        *,
        full: bool = False,
        sample_rows: int = SAMPLE_ROWS,
        spark: SparkOptions | None = None,
    ) -> PipelinePlan:
        """What a run would do now, with a sample of the rows of each type. Changes nothing.

        Raises as `validate` does.
        """
        with PlannedRun(self._document, self._graph(writes=False), spark) as work:
            return work.plan(full=full, sample_rows=sample_rows)

    def run(
        self,
        *,
        full: bool = False,
        actor: str | None = None,
        spark: SparkOptions | None = None,
        on_stage: OnStage | None = None,
        observer: LoadObserver | None = None,
        embedding: EmbeddingConfig | None = None,
    ) -> PipelineReceipt:
        """Load the sources on the branch, check it, and merge it if every check passes.

        Does nothing if the file and its sources have not changed since the last run; ``full`` runs
        it anyway, and reads incremental sources from the beginning. Completes a run that was
        interrupted. ``on_stage`` is called at the end of each stage, ``observer`` by the load.
        ``embedding`` configures the provider of vectors; by default the environment does.
        Raises what `validate` and `Graph.load` raise, `ChecksFailed` if the branch was loaded and
        not merged, `MergeConflicts`, and `SourceChanged` if a file changed meanwhile.
        """
        graph = self._graph(writes=True)
        if actor is not None:
            graph = graph.on_branch("main", actor=actor)
        work = PipelineRun(self._document, graph, spark, on_stage, observer, embedding=embedding)
        with work:
            return work.run(full=full)

    def watch(
        self,
        *,
        every_seconds: float = 10.0,
        stop: Event | None = None,
        **options: Any,
    ) -> Iterator[PipelineReceipt]:
        """Run the pipeline whenever a source changes; yields the receipt of each run with changes.

        Examines the sources every ``every_seconds``. New input is one run, with checks and merge,
        and is loaded exactly once even if the process is killed. A file that changes while it is
        read is left to the next round. Ends after the current run when ``stop`` is set.
        ``options`` are those of `run`. Raises what `run` raises, and `InputError` at once if
        changes of a source cannot be detected.
        """
        looked = survey(self._document, _NO_HISTORY, contents=False)
        for name, found in looked.inputs.items():
            if not found.is_watched:
                raise InputError(
                    f"source `{name}` cannot show whether it changed, so it cannot be watched",
                    hint="run the pipeline by a timer instead",
                    details={"source": name},
                )
        stopped = stop or Event()
        while not stopped.is_set():
            outcome = "no_change"
            with suppress(SourceChanged):
                receipt = self.run(**options)
                outcome = receipt.outcome
                if outcome != "no_change":
                    yield receipt
            if outcome == "no_change":
                stopped.wait(every_seconds)


# --- plans ----------------------------------------------------------------------------------------

# A plan tells what a run would do now, with samples of its rows.


class PlannedRun(PipelineRun):
    """A run that is only planned: reads samples, and changes nothing."""

    def plan(self, *, full: bool, sample_rows: int) -> PipelinePlan:
        """What a run would do; see `Pipeline.plan`."""
        document = self.document
        history = self._history()
        definition = document.digest()
        frames = self.checked_frames(survey(document, history, full=full))
        self._input_words()
        key = run_key(self.keys.name, definition, self._inputs, history.last)
        outcome, reason = self._forecast(history, definition, key, full=full)
        stages = [f"load ({self._mode()}) into {document.branch}, created from {document.base}"]
        if outcome == "resume":
            stages = []
        stages += [f"embed {each.type}.{each.property}" for each in self.keys.embed]
        stages += [f"check {each.name}: {each.expect}" for each in self.keys.checks]
        if document.merge_into is not None:
            stages.append(f"merge {document.branch} into {document.merge_into}")
            if document.deletes_branch:
                stages.append(f"delete {document.branch}")
        return PipelinePlan(
            self.keys.name,
            self.graph.uri,
            document.branch,
            document.merge_into,
            outcome,
            reason,
            () if outcome == "no_change" else tuple(stages),
            self.source_reports,
            tuple(self._sampled(frames, sample_rows)),
            tuple(self._notes),
        )

    def _forecast(
        self, history: History, definition: str, key: str, *, full: bool
    ) -> tuple[Literal["no_change", "resume", "load"], str]:
        if not full and is_unchanged(definition, self._inputs, history.receipt):
            assert history.last is not None
            return "no_change", f"no change since commit {history.last.graph_commit_id}"
        branch = self.document.branch
        if self.document.merge_into is not None and branch in self.graph.list_branches():
            for commit in self.graph.list_commits(branch):
                if receipt_of(commit).get("key") == key and self._is_watched:
                    return "resume", f"commit {commit.graph_commit_id} on {branch} is not merged"
        if history.last is None:
            return "load", "it has not run yet"
        return "load", f"something changed since commit {history.last.graph_commit_id}"

    def _sampled(self, frames: Frames, sample_rows: int) -> Iterator[PlannedRows]:
        catalog = catalog_of(self.graph)
        for mapped in self.document.mappings:
            type = type_named(mapped, catalog)
            assert type is not None
            rows = frames.rows_of(mapped).limit(sample_rows + 1).toArrow()
            sample = rows.slice(0, sample_rows)
            needed = [name for name, prop in type.properties.items() if is_needed(prop)]
            needed += [SRC, DST] if mapped.kind == "edge" else []
            nulls = {
                name: sample.column(name).null_count
                for name in needed
                if name in sample.column_names and sample.column(name).null_count
            }
            first = (
                {name: str(value) for name, value in sample.slice(0, 1).to_pylist()[0].items()}
                if sample.num_rows
                else None
            )
            yield PlannedRows(
                f"{mapped.kind}:{mapped.type_name}",
                mapped.keys.source,
                sample.num_rows,
                rows.num_rows <= sample_rows,
                nulls,
                first,
            )
