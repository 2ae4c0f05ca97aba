"""What must hold after a soak, whatever was killed when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from omnigraph.graph import Graph, open_graph
from omnigraph.storage.manifest_rows import CommitRow
from tests.crash.judge import require_linear, require_no_drift
from tests.crash.soak_model import COMMON, SHARED, Contents, shown
from tests.crash.soak_worker import Entry

SILENT_KINDS = {"genesis", "maintenance", "recovery"}
"""Commits that change nothing anyone can read."""


@dataclass
class Report:
    """What a soak did and found."""

    seed: str
    seconds: float
    processes: int = 0
    kills: int = 0
    killed_at_failpoints: int = 0
    sleeps: int = 0
    begun: int = 0
    acknowledged: int = 0
    refused: int = 0
    branches: int = 0
    commits: int = 0
    recoveries: int = 0
    lost: list[str] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def discrepancies(self) -> list[str]:
        return [*self.lost, *self.partial, *self.wrong]

    def __str__(self) -> str:
        killed = f"{self.kills} kills, {self.killed_at_failpoints} deaths at failpoints"
        killed += f", {self.sleeps} sleeps" if self.sleeps else ""
        lines = [
            f"seed {self.seed}, {self.seconds:g} s: {self.processes} processes, {killed}",
            f"{self.begun} operations: {self.acknowledged} acknowledged, {self.refused} refused",
            f"{self.branches} branches, {self.commits} commits, {self.recoveries} recoveries",
            f"lost {len(self.lost)}, partial {len(self.partial)}, wrong {len(self.wrong)}",
        ]
        lines += [f"seed {self.seed}: {found}" for found in self.discrepancies[:1]]
        return "\n".join(lines)


def judge(root: Path, entries: list[Entry], report: Report) -> None:
    """Recover the graph and compare it with what the workers wrote down."""
    graph = open_graph(root)
    report.wrong += [f"{entry}\n{entry.error}" for entry in entries if entry.outcome == "broken"]
    _judge_settled(graph, report)
    _judge_branches(graph, entries, report)
    by_id = {entry.operation_id(report.seed): entry for entry in entries}
    for branch in graph.list_branches():
        lineage = graph._kernel.manifest.branch(branch).refresh().lineage()
        _judge_contents(graph, branch, lineage, by_id, report)
        _judge_acknowledged(branch, lineage, by_id, report)
    report.branches = len(graph.list_branches())
    report.commits = len(graph.list_commits())
    report.recoveries = len(graph.list_recoveries())
    if graph.recover():
        report.wrong.append("a second recovery found something to do")


def _judge_settled(graph: Graph, report: Report) -> None:
    kernel = graph._kernel
    report.wrong += [f"sidecar {name} is left" for name in kernel.sidecars.names()]
    rows = Counter(row.operation_id for row in graph.list_recoveries())
    report.wrong += [f"{count} audit rows of {name}" for name, count in rows.items() if count > 1]
    for branch in graph.list_branches():
        for require in (require_no_drift, require_linear):
            try:
                require(kernel, branch)
            except AssertionError as failure:
                report.wrong.append(str(failure))


def _judge_branches(graph: Graph, entries: list[Entry], report: Report) -> None:
    """A branch whose creation was acknowledged exists until its deletion was begun."""
    known = set(graph.list_branches())
    created = [e for e in entries if e.operation["kind"] == "branch_create"]
    deleted = [e for e in entries if e.operation["kind"] == "branch_delete"]
    possible = {"main", SHARED, *(e.operation["branch"] for e in created)}
    report.wrong += [f"branch {name} was never created" for name in known - possible]
    for entry in created:
        branch = entry.operation["branch"]
        if branch == COMMON:
            continue
        ends = {e.outcome for e in deleted if e.operation["branch"] == branch}
        if entry.outcome == "done" and not ends & {"done", "unknown"} and branch not in known:
            report.lost.append(f"branch {branch} is gone; {entry}")
        if (entry.outcome == "refused" or "done" in ends) and branch in known:
            report.wrong.append(f"branch {branch} exists; {entry}")


def _judge_contents(
    graph: Graph,
    branch: str,
    lineage: list[CommitRow],
    by_id: dict[str, Entry],
    report: Report,
) -> None:
    """The commits of a branch, played back in their order, give exactly what it shows."""
    expected = Contents()
    for commit in reversed(lineage):
        entry = by_id.get(commit.operation_id or "")
        if entry is not None:
            expected.apply(entry.operation)
        elif commit.kind not in SILENT_KINDS:
            report.wrong.append(f"nobody meant to make commit {commit.commit_id} on {branch}")
    differences = expected.differences(shown(graph, branch))
    report.partial += [f"{branch}: {difference}" for difference in differences]


def _judge_acknowledged(
    branch: str, lineage: list[CommitRow], by_id: dict[str, Entry], report: Report
) -> None:
    """What was acknowledged is in the lineage, once and as it was said; what was refused is not."""
    visible = Counter(commit.operation_id for commit in lineage if commit.operation_id)
    ids = {commit.operation_id: commit.commit_id for commit in lineage if commit.operation_id}
    for operation_id, entry in by_id.items():
        count = visible[operation_id]
        if count > 1:
            report.wrong.append(f"{count} commits on {branch}: {entry}")
        if count and entry.outcome == "refused":
            report.wrong.append(f"a refused operation is on {branch}: {entry}")
        if entry.commit_id is None or entry.operation["branch"] != branch:
            continue
        if not count and not _may_be_deleted(entry, by_id.values()):
            report.lost.append(f"not on {branch}: {entry}")
        elif count and ids[operation_id] != entry.commit_id:
            report.wrong.append(f"another commit than was acknowledged, on {branch}: {entry}")


def _may_be_deleted(entry: Entry, entries: Iterable[Entry]) -> bool:
    """Whether the branch of a write may have been deleted, and made again, after it."""
    return any(
        other.operation["kind"] == "branch_delete"
        and other.operation["branch"] == entry.operation["branch"]
        and other.outcome in ("done", "unknown")
        and other.ended > entry.began
        for other in entries
    )
