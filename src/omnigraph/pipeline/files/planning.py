"""What a run of a pipeline would do now, with samples of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from omnigraph.loading.records.absence import is_needed
from omnigraph.model.arrow import DST, SRC
from omnigraph.pipeline.files.checking import catalog_of, type_named
from omnigraph.pipeline.files.frames import Frames
from omnigraph.pipeline.files.inputs import History, is_unchanged, receipt_of, run_key, survey
from omnigraph.pipeline.files.receipts import PipelinePlan, PlannedRows

if TYPE_CHECKING:
    pass

from omnigraph.pipeline.files.running import PipelineRun


class PlannedRun(PipelineRun):
    """A run that is only planned: it reads samples, and changes nothing."""

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
