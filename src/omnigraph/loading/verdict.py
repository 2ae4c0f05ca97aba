"""The verdict on an input: whether keys break rules, and everything there is to say about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.errors import InputError
from omnigraph.loading.blame import (
    ClaimRow,
    claims_here,
    claims_on_workers,
    explained,
)
from omnigraph.loading.checks import broken_here, count_broken
from omnigraph.loading.counting import CheckJob, claims_max
from omnigraph.loading.executors import (
    RESULTS_SCHEMA,
    TaskResult,
    TaskRunner,
    decode_result,
    decode_results,
    task_batch,
)
from omnigraph.loading.pieces import InputPlan
from omnigraph.loading.reading import Reading
from omnigraph.loading.record_places import RecordPlaces
from omnigraph.loading.records.problems import Findings
from omnigraph.loading.staging import Staged, decoded_problem, list_problems

HERE_KEYS = 64_000_000
"""Keys of one rule that this process holds, at about 60 bytes each with what finds them."""


@dataclass(slots=True)
class Verdict:
    """What is wrong with the records of one load, alone or together with the graph."""

    jobs: TaskRunner
    reading: Reading
    plan: InputPlan
    records: RecordPlaces
    findings: Findings

    def broken(self, job: CheckJob) -> int:
        """How many keys break a rule."""
        if self.jobs.uses_threads:
            _require_memory(job)
            return sum(batch.num_rows for batch in broken_here(self.jobs, job))
        return count_broken(self.jobs, job)

    def explain_records(self, staged: Staged) -> None:
        """Tell what is wrong with single records."""
        self.findings.counts.update(staged.counts)
        is_complete = len(staged.problems) == staged.counts.total()
        for payload in staged.problems:
            piece = payload["piece"]
            problem = decoded_problem(payload, self.records.first(piece))
            at = self.records.sort_key(problem.place, piece) if problem.place else (piece, 0)
            self.findings.add(at, problem, listed=is_complete)
        if self.findings.errors_out is not None and not is_complete:
            self._list_all()

    def _list_all(self) -> None:
        """Read the input once more for the problems that there was no room for."""
        count = len(self.plan.tasks)
        work = list_problems(self.reading, self.plan.tasks)
        if self.jobs.uses_threads:
            for number in range(count):
                for batch in work(task_batch(number)):
                    self._list(decode_results(batch.to_pylist()))
            return
        with self.jobs.named("check", "list every problem"):
            numbers = self.jobs.spark.range(0, count, 1, count)
            self._list(
                map(decode_result, numbers.mapInArrow(work, RESULTS_SCHEMA).toLocalIterator())
            )

    def _list(self, answers: Iterable[TaskResult]) -> None:
        for said in answers:
            piece = said.payload["piece"]
            problem = decoded_problem(said.payload, self.records.first(piece))
            self.findings.list(self.records.sort_key(problem.place, piece), problem)

    def explain_checks(self, job: CheckJob) -> None:
        """Tell whose fault it is that keys are broken."""
        if self.jobs.uses_threads:
            self._blame(claims_here(self.jobs, job, self.reading, self.plan), job)
            return
        with self.jobs.named("check", "find the records to blame"):
            self._blame(claims_on_workers(self.jobs.spark, job, self.reading, self.plan), job)

    def _blame(self, claims: Iterable[ClaimRow], job: CheckJob) -> None:
        for problem in explained(claims, job, self.reading.catalog, self.records.place):
            self.findings.counts[problem.kind] += 1
            self.findings.add(self.records.sort_key(problem.place), problem)


def _require_memory(job: CheckJob) -> None:
    keys = claims_max(job)
    if keys > HERE_KEYS:
        raise InputError(
            f"{keys:,} keys have to be held against each other, more than one process can hold",
            hint="load with the engine spark",
        )
