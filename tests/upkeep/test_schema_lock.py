"""Upkeep beside a change of schema: what would write is refused, and what looks goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE, WriteSettings, branch_scope
from omnigraph.commit.schema.lock import release_lock, take_lock
from omnigraph.effects.uri import Root
from omnigraph.errors import Conflict
from omnigraph.upkeep import stats
from tests.storage.footprint import footprint

SCHEMA = "node Memo { code: String @key }"
ADD = "query add($code: String) { insert Memo { code: $code } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    """A graph whose schema somebody else is about to change, and has done nothing so far."""
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    for number in range(5):
        graph.mutate(ADD, {"code": f"m{number}"})
    other = Kernel.of(Root.parse(graph.uri), WriteSettings())
    with (
        other.leases.hold(GRAPH_SCOPE, "op-apply"),
        other.leases.hold(branch_scope("main"), "op-apply") as lease,
    ):
        take_lock(other, lease, "op-apply", None)
        yield graph
        release_lock(other, lease)


VERBS: dict[str, Callable[[og.Graph], object]] = {
    "optimize": lambda graph: graph.optimize(),
    "repair": lambda graph: graph.repair(),
    "repair --confirm": lambda graph: graph.repair(confirm=True),
    "cleanup": lambda graph: graph.cleanup(keep=1),
    "cleanup --confirm": lambda graph: graph.cleanup(keep=1, confirm=True),
    "maintenance": lambda graph: graph.ensure_indices(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_c_mnt_016_a_schema_apply_in_progress_refuses_all_upkeep(
    graph: og.Graph, verb: str
) -> None:
    before = footprint(Path(graph.uri))
    name = verb.partition(" ")[0]
    with pytest.raises(Conflict, match=f"^{name} is unavailable while schema apply is in progress"):
        VERBS[verb](graph)
    assert footprint(Path(graph.uri)) == before


def test_stats_and_doctor_do_not_take_the_lock_for_a_branch(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "VERSIONS_MANY", 1)
    found = graph.stats()
    assert found.branches == ("main",)
    assert "versions" in {finding.code for finding in found.findings}
    checks = {check.name: check.is_fine for check in graph.examine().checks}
    assert checks["leftovers"]
    assert all(checks.values())
