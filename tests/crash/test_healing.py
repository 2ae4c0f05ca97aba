"""A handle that heals writes on when the fault is over, and every failure told the truth."""

from __future__ import annotations

import json
import resource
from pathlib import Path

from omnigraph.errors import OmnigraphError, RecoveryRequired
from omnigraph.graph import Graph, init, open_graph
from tests.crash.test_storage_faults import SCHEMA, FullDisk, in_child, people, small_disk

__all__ = ["small_disk"]

ADD = """
query add($n: String, $t: String?) {
    insert Person { name: $n, text: $t }
    insert City { name: $n }
}
"""


class Ledger:
    """What a caller was told about each of its writes."""

    def __init__(self, root: Path) -> None:
        self.graph: Graph = open_graph(init(root, SCHEMA).uri, heal=True)
        self.acknowledged: list[str] = []
        self.unknown: list[str] = []
        self.failed: list[str] = []

    def add(self, name: str, text: str | None = None) -> bool:
        try:
            self.graph.mutate(ADD, {"n": name, "t": text})
        except RecoveryRequired as refused:
            (self.unknown if refused.outcome == "unknown" else self.failed).append(name)
            return False
        except OmnigraphError:
            self.failed.append(name)
            return False
        self.acknowledged.append(name)
        return True

    def problems(self) -> list[str]:
        """What was told and is not so; then the handle is closed."""
        shown = set(people(self.graph))
        self.graph.close()
        lost = [f"{name} was acknowledged" for name in self.acknowledged if name not in shown]
        late = [f"{name} landed after all" for name in self.failed if name in shown]
        return lost + late


def starve_descriptors(directory: str, answer: str) -> None:
    ledger = Ledger(Path(directory) / "graph")
    ledger.add("before")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    healed = []
    for extra in range(1, 24, 2):
        used = max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + extra, limit[1]))
        try:
            ledger.add(f"during-{extra}")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        healed.append(ledger.add(f"after-{extra}"))
    told = [len(ledger.failed) + len(ledger.unknown), healed, ledger.problems()]
    Path(answer).write_text(json.dumps(told))


def test_after_too_few_descriptors_the_same_handle_writes_on(tmp_path: Path) -> None:
    failures, healed, problems = in_child(starve_descriptors, tmp_path)
    assert failures
    assert all(healed)
    assert problems == []


def test_after_a_full_disk_the_same_handle_writes_on(small_disk: FullDisk) -> None:
    ledger = Ledger(small_disk.place / "graph")
    ledger.add("before")
    for room in range(4_096, 120_000, 9_000):
        with small_disk.room(room):
            ledger.add(f"during-{room}", "x" * 20_000)
        assert ledger.add(f"after-{room}")
    assert ledger.failed or ledger.unknown
    assert ledger.problems() == []
