"""C-MNT-044: datasets that only an older version used."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from omnigraph.graph import open_graph
from tests.storage import legacy_graphs

COMMITS, ACTORS = "_graph_commits.lance", "_graph_commit_actors.lance"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "graph.omni"
    legacy_graphs.older_graph(root, 3)
    open_graph(root)
    return root


def rows(root: Path, *, confirm: bool) -> dict[str, str | None]:
    receipt = open_graph(root).cleanup(keep=1000, confirm=confirm)
    return {
        each.type_key: each.error for each in receipt.tables if each.type_key.startswith("_graph")
    }


def test_c_mnt_044_they_are_listed_in_the_preview_and_removed_once_verified(root: Path) -> None:
    graph = open_graph(root)
    before = {name: graph.list_commits(name) for name in graph.list_branches()}
    assert rows(root, confirm=False) == {COMMITS: None, ACTORS: None}
    assert (root / COMMITS).exists()
    assert rows(root, confirm=True) == {COMMITS: None, ACTORS: None}
    assert not (root / COMMITS).exists()
    assert not (root / ACTORS).exists()
    fresh = open_graph(root)
    assert {name: fresh.list_commits(name) for name in fresh.list_branches()} == before
    assert rows(root, confirm=True) == {}


def test_c_mnt_044_what_the_manifest_does_not_tell_keeps_them(root: Path) -> None:
    handle = lance.dataset(str(root / COMMITS))
    handle.update({"parent_commit_id": "'01K9WR3C5T8M2B7XQ4ZJ6V0NHD'"})
    found = rows(root, confirm=True)
    assert set(found) == {COMMITS, ACTORS}
    assert all(error is not None and "not in the manifest" in error for error in found.values())
    assert (root / COMMITS).exists()
    assert (root / ACTORS).exists()


def test_c_mnt_044_an_interrupted_removal_is_finished_by_the_next_run(root: Path) -> None:
    for file in (root / COMMITS / "_versions").iterdir():
        file.unlink()
    assert rows(root, confirm=True) == {COMMITS: None, ACTORS: None}
    assert not (root / COMMITS).exists()
