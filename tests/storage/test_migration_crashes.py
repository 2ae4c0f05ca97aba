"""Migrations that die, and migrations beside others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.kernel import Kernel
from omnigraph.graph import open_graph
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.migrations import Migration
from tests.storage.legacy_graphs import older_graph
from tests.storage.migrated import (
    BRANCHES,
    STAMPS,
    legacy_accepted,
    manifest_of,
    rows_of,
    set_stamp,
    shown,
    stamp_of,
)

# --- crashes and company --------------------------------------------------------------------------


class Crash(Exception):
    """The process ends here."""


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, commit: int, *, landed: bool) -> Iterator[None]:
    """A process that dies at its n-th commit, before or after it took effect."""
    real, calls = LanceStore.commit, 0

    def die(self: LanceStore, handle: Any, transaction: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < commit:
            return real(self, handle, transaction)
        if landed and calls == commit:
            real(self, handle, transaction)
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(LanceStore, "commit", die)
        yield


def commits_of_a_migration(root: Path, stamp: int, monkeypatch: pytest.MonkeyPatch) -> int:
    real, calls = LanceStore.commit, 0

    def counted(self: LanceStore, handle: Any, transaction: Any) -> Any:
        nonlocal calls
        calls += 1
        return real(self, handle, transaction)

    older_graph(root, stamp)
    with monkeypatch.context() as patched:
        patched.setattr(LanceStore, "commit", counted)
        open_graph(root)
    return calls


@pytest.mark.parametrize("landed", [False, True])
def test_c_sto_029_a_crash_at_any_commit_completes_on_the_next_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    total = commits_of_a_migration(tmp_path / "whole", 1, monkeypatch)
    assert total == 6  # two stamps, main, two branches, and the stamp that ends it
    for commit in range(1, total + 1):
        root = tmp_path / f"graph-{commit}"
        older = older_graph(root, 1)
        with dying(monkeypatch, commit, landed=landed), pytest.raises(Crash):
            open_graph(root)
        unfinished = commit < total or not landed
        assert (stamp_of(older) != b"4") is unfinished
        reading = open_graph(root, "read_only")
        assert shown(reading, "feature") == older.lines["feature"]
        graph = open_graph(root)
        for branch in BRANCHES:
            assert stamp_of(older, branch) == b"4"
            assert shown(graph, branch) == older.lines[branch]
            rows_of(older, branch)


def test_c_sto_029_a_graph_folded_but_not_stamped_is_completed_without_rewriting_it(
    root: Path,
) -> None:
    older = older_graph(root, 3)
    graph = open_graph(root)
    graph.mutate('query q { insert Person { name: "zoe" } }')
    graph.create_branch("young")
    before = {branch: rows_of(older, branch) for branch in BRANCHES}
    version = manifest_of(older).version
    set_stamp(older, "3")
    set_stamp(older, "3", "feature")
    again = open_graph(root)
    assert again.list_branches() == ["feature", "main", "review/1", "young"]
    assert {branch: rows_of(older, branch) for branch in BRANCHES} == before
    assert stamp_of(older) == stamp_of(older, "feature") == b"4"
    assert manifest_of(older).version == version + 2  # the stamp taken away, and the stamp


def test_c_sto_029_legacy_rows_added_after_the_fold_are_taken_in(root: Path) -> None:
    """An older version that still had the graph open goes on where it was."""
    older = older_graph(root, 3)
    open_graph(root)
    set_stamp(older, "3")
    # A manifest half way is wider than the rows of an older version.
    added = {**older._pin("node:City", 9, None, 7), "metadata": None, "location": None}
    older.publish("main", added)
    graph = open_graph(root)
    assert shown(graph, "feature") == older.lines["feature"]
    assert graph.snapshot().datasets[1].published_dataset_version == 9


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_the_loser_of_a_commit_of_the_migration_looks_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """Another process lands the very same step first."""
    older = older_graph(root, 1)
    real, calls = LanceStore.commit, 0

    def overtaken(self: LanceStore, handle: Any, transaction: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == lost:
            accepted = legacy_accepted(root)
            Migration(self, Kernel.of(self.root).store, accepted, Kernel.of(self.root).ids).run()
        return real(self, handle, transaction)

    monkeypatch.setattr(LanceStore, "commit", overtaken)
    graph = open_graph(root)
    for branch in BRANCHES:
        assert shown(graph, branch) == older.lines[branch]
        rows_of(older, branch)


OPEN = """
import sys, time
from pathlib import Path
from omnigraph.graph import open_graph
root, go = sys.argv[1:]
print("ready", flush=True)
while not Path(go).exists():
    time.sleep(0.001)
print(*open_graph(root).list_branches())
"""


@pytest.mark.parametrize("stamp", STAMPS)
def test_c_sto_027_two_processes_opening_one_graph_together_both_succeed(
    root: Path, tmp_path: Path, stamp: int
) -> None:
    older = older_graph(root, stamp)
    go = tmp_path / "go"
    command = [sys.executable, "-c", OPEN, str(root), str(go)]
    pair = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in pair:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    go.touch()
    for process in pair:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out.split() == BRANCHES
    graph = open_graph(root)
    for branch in BRANCHES:
        assert shown(graph, branch) == older.lines[branch]
        rows_of(older, branch)
