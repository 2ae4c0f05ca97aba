"""Trying every way a graph is read, and saying what is wrong and how to mend it.

Nothing is written. A check that fails stops no other.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from omnigraph.commit.kernel import Kernel
from omnigraph.errors import DamagedFile, OmnigraphError, RootMoved
from omnigraph.model.ids import MAIN_BRANCH, SCHEMA_APPLY_LOCK
from omnigraph.model.upkeep import (
    KEEP_RECOMMENDED,
    Check,
    CleanupPolicy,
    Diagnosis,
    Finding,
    FindingCode,
    command_on,
)
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.schema.index_intent import declared_indexes
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.reclaiming import live_states
from omnigraph.storage.search import has_text_index, matching_rows, nearest_rows
from omnigraph.upkeep.cleanup import plan_cleanup
from omnigraph.upkeep.indices import types_in_order
from omnigraph.upkeep.pending import pending_operations
from omnigraph.upkeep.stats import abandoned, graph_stats, unsettled

EVERYTHING = CleanupPolicy(keep=2**31)
"""Calls no version old: only leftovers are looked for."""

GRAPH_WIDE: frozenset[FindingCode] = frozenset({"unsettled", "lease_abandoned"})
"""What the numbers of every branch tell again."""


MENDED_FIRST: tuple[FindingCode, ...] = ("damaged", "unsettled", "drift")
"""In this order; before that, the commands for all others would be refused."""


def unopened(uri: str, error: OmnigraphError) -> Diagnosis:
    """The diagnosis of a graph that cannot even be opened."""
    if isinstance(error, RootMoved):
        back = shlex.join(("mv", str(error.details["root"]), str(error.details["recorded_root"])))
        finding = Finding("root_moved", "problem", "graph", error.message, back)
    else:
        finding = _damage("graph", uri, error)
    return Diagnosis(uri, (Check("open", is_fine=False),), (finding,))


def examine(kernel: Kernel, accepted: AcceptedSchema) -> Diagnosis:
    """Try everything that can be read, on every branch."""
    visit = _Visit(kernel, accepted)
    branches = visit.branches()
    for branch in branches:
        visit.check(f"numbers of {branch}", branch, partial(visit.numbers, branch))
        for type in types_in_order(accepted.catalog):
            subject = _on(branch, type.table_key)
            visit.check(f"read {subject}", subject, partial(visit.read, branch, type))
    visit.check("operations and leases", "graph", visit.owners)
    visit.check("leftovers", "graph", visit.leftovers)
    findings = sorted(visit.findings, key=_turn)
    return Diagnosis(kernel.root.uri, tuple(visit.checks), tuple(findings))


def _turn(finding: Finding) -> int:
    return MENDED_FIRST.index(finding.code) if finding.code in MENDED_FIRST else len(MENDED_FIRST)


@dataclass
class _Visit:
    """One examination on its way."""

    kernel: Kernel
    accepted: AcceptedSchema
    checks: list[Check] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def check(self, name: str, subject: str, attempt: Callable[[], Iterable[Finding]]) -> None:
        """Try something; a failure is a finding like those it returns."""
        try:
            found = list(attempt())
        except OmnigraphError as error:
            found = [_damage(subject, self.kernel.root.uri, error)]
        # What is broken is met on every way that leads there.
        self.findings += [each for each in found if each not in self.findings]
        self.checks.append(Check(name, all(each.severity == "advice" for each in found)))

    def branches(self) -> list[str]:
        """All branches, main first."""
        names = set(self.kernel.manifest.main.refresh().branches) - {SCHEMA_APPLY_LOCK}
        return [MAIN_BRANCH, *sorted(names)]

    def numbers(self, branch: str) -> Iterable[Finding]:
        """Drift, and what could be faster or smaller."""
        stats = graph_stats(self.kernel, self.accepted, branch)
        return (found for found in stats.findings if found.code not in GRAPH_WIDE)

    def owners(self) -> Iterable[Finding]:
        """Operations that were interrupted, and leases nobody gives back."""
        uri = self.kernel.root.uri
        pending = pending_operations(self.kernel)
        leases = self.kernel.leases.holders()
        return [*unsettled(uri, pending, leases), *abandoned(uri, leases, pending)]

    def leftovers(self) -> Iterable[Finding]:
        """Forks that nobody has a claim to, unless something has to be settled first."""
        if any(found.severity == "problem" for found in self.findings):
            return
        plan = plan_cleanup(self.kernel, EVERYTHING, live_states(self.kernel.manifest))
        command = command_on(
            self.kernel.root.uri, "cleanup", "--keep", str(KEEP_RECOMMENDED), "--confirm"
        )
        for table in plan.tables:
            if table.orphans:
                message = f"{len(table.orphans)} refs belong to no branch"
                yield Finding("orphan_ref", "advice", table.type_key, message, command)

    def read(self, branch: str, type: NodeType | EdgeType) -> Iterable[Finding]:
        """Every row, and rows by id, by endpoint, by word and by distance."""
        snapshot = self.kernel.manifest.branch(branch).state.head_snapshot()
        reader = SnapshotReader(self.kernel.lance, self.kernel.root.uri, snapshot)
        key = type.table_key
        columns = [each.name for each in type.properties.values() if not each.type.is_blob]
        ends = ["src", "dst"] if isinstance(type, EdgeType) else []
        first: dict[str, object] | None = None
        for batch in reader.batches(key, ["id", *ends, *columns]):
            if first is None and batch.num_rows:
                first = batch.slice(0, 1).to_pylist()[0]
        if first is None:
            return ()
        for column in ("id", *ends):
            reader.rows_where_in(key, column, pa.array([first[column]]), ["id"])
        handle = reader.handle(key)
        for spec in declared_indexes(type):
            value = first.get(spec.column)
            if spec.kind == "inverted" and isinstance(value, str):
                if has_text_index(handle, spec.column):
                    matching_rows(handle, spec.column, value)
            elif spec.kind == "vector" and isinstance(value, list):
                nearest_rows(handle, spec.column, value, 1)
        return ()


def _damage(subject: str, uri: str, error: OmnigraphError) -> Finding:
    """What to say about something that cannot be read."""
    command = command_on(uri, "recover")
    if isinstance(error, DamagedFile):
        file = str(error.details["file"])
        command = f"cp -a COPY{file.removeprefix(uri)} {shlex.quote(file)}"
    elif error.code not in ("recovery_required", "unreadable_sidecar"):
        command = f"cp -a COPY/. {shlex.quote(uri)}"
    hint = f"; {error.hint}" if error.hint else ""
    return Finding("damaged", "problem", subject, f"{error.message}{hint}", command)


def _on(branch: str, type_key: str) -> str:
    return type_key if branch == MAIN_BRANCH else f"{type_key} on {branch}"
