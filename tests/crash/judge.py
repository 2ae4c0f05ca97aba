"""What must hold of any graph after any crash, once it has been opened again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omnigraph.commit.kernel import Kernel
from omnigraph.effects.uri import Root
from omnigraph.graph import Graph, open_graph
from tests.crash.model import Model, shown
from tests.crash.operations import INSERT


@dataclass(frozen=True)
class Pending:
    """What a crash left behind: the operations that recovery has to settle."""

    operations: frozenset[str]
    audited: tuple[str, ...]
    """The operations that have an audit row already."""


def pending(root: Path) -> Pending:
    """Look at a graph without touching it."""
    kernel = Kernel.of(Root.parse(root))
    plans = kernel.sidecars.pending()
    operations = frozenset(each.attempt_id for plan in plans for each in plan.commits)
    audited = tuple(row.operation_id for row in open_graph(root, "read_only").list_recoveries())
    return Pending(operations, audited)


def reopened(root: Path, left: Pending) -> Graph:
    """Open a graph for writing, and check that this settled everything and broke nothing."""
    graph = open_graph(root)
    require_settled(graph)
    audited = [row.operation_id for row in graph.list_recoveries()]
    # One row per operation that was pending, whatever happened to its recovery before.
    assert sorted(audited) == sorted({*left.audited, *left.operations}), "audit rows"
    assert graph.recover() == [], "a second recovery found something to do"
    return graph


def require_settled(graph: Graph) -> None:
    """No sidecar is left, every table stands at its pin and every history is one line."""
    kernel = graph._kernel
    assert kernel.sidecars.names() == [], "sidecars are left"
    for branch in graph.list_branches():
        require_no_drift(kernel, branch)
        require_linear(kernel, branch)


def require_no_drift(kernel: Kernel, branch: str) -> None:
    """Every table a branch has of its own stands at the version that is published."""
    manifest = kernel.manifest.branch(branch)
    manifest.refresh()
    capture = kernel.capture(manifest, "")
    for entry in capture.snapshot.tables.values():
        if entry.ref == manifest.where.ref:
            head = kernel.lance.open(capture.reader.where(entry)).version
            assert head == entry.version, (
                f"{entry.table_key} on {branch}: head {head}, pin {entry.version}"
            )


def require_linear(kernel: Kernel, branch: str) -> None:
    """Each commit of a branch follows the one before it, down to the first."""
    lineage = kernel.manifest.branch(branch).refresh().lineage()
    parents: Sequence[str | None] = [commit.commit_id for commit in lineage[1:]] + [None]
    assert [commit.parent_commit_id for commit in lineage] == parents, f"lineage of {branch}"
    assert [commit.commit_seq for commit in lineage] == list(reversed(range(len(lineage))))


def require_shows(graph: Graph, expected: Model) -> None:
    """The graph equals the model, on every branch, in every entity."""
    actual = shown(graph)
    assert actual == expected, f"\nactual   {actual}\nexpected {expected}"


def require_writable(graph: Graph, expected: Model) -> None:
    """Every branch takes a write of the tables that crashes in this suite are about."""
    for branch in graph.list_branches():
        graph.mutate(INSERT, {"person": "after", "city": "after"}, branch=branch)
        expected.branches[branch].persons["after"] = 1
        expected.branches[branch].cities["after"] = 1
    require_shows(graph, expected)
    require_settled(graph)


def require_settled_once_reopened(root: Path, expected: Model) -> None:
    """A new handle finds nothing to recover, shows the expected rows and can write."""
    graph = open_graph(root)
    require_settled(graph)
    require_shows(graph, expected)
    require_writable(graph, expected)
