"""Backups and clones: one moment of a graph, at another place, equal in everything."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from omnigraph import copies
from omnigraph.copies import backups, image, placing
from omnigraph.copies.placing import moved_version
from omnigraph.effects.requests import measure
from omnigraph.errors import (
    AlreadyExists,
    Busy,
    Conflict,
    DamagedFile,
    InputError,
    NotFound,
    RecoveryRequired,
)
from omnigraph.graph import Graph, init, open_graph
from omnigraph.storage.digests import digest_of
from tests.support.budgets import budget

SCHEMA = "node Person { name: String @key  age: I64? @index }  edge Knows: Person -> Person"
ALL = "query q { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"


def insert(graph: Graph, name: str, branch: str = "main") -> None:
    text = f'query q {{ insert Person {{ name: "{name}", age: {len(name)} }} }}'
    graph.mutate(text, branch=branch)


def rows(graph: Graph, branch: str = "main", snapshot: str | None = None) -> list[dict[str, Any]]:
    if snapshot is not None:
        return graph.query(ALL, snapshot=snapshot).to_pylist()
    return graph.query(ALL, branch=branch).to_pylist()


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Two branches, one forked from the other, an index, deleted rows and a tag."""
    graph = init(tmp_path / "graph.omni", SCHEMA)
    for name in ("ada", "bob", "cyd"):
        insert(graph, name)
    graph.optimize()
    graph.create_branch("side")
    insert(graph, "dan", "side")
    graph.mutate('query q { delete Person where name = "bob" }', branch="side")
    graph.create_branch("deep", from_="side")
    insert(graph, "eve", "deep")
    insert(graph, "fay")
    graph.create_tag("v1", "main")
    return graph


def assert_equal(graph: Graph, copy: Graph) -> None:
    assert copy.list_branches() == graph.list_branches()
    for branch in graph.list_branches():
        assert copy.list_commits(branch) == graph.list_commits(branch)
        assert rows(copy, branch) == rows(graph, branch)
    for commit in graph.list_commits():
        assert rows(copy, snapshot=commit.graph_commit_id) == rows(
            graph, snapshot=commit.graph_commit_id
        )
    assert copy.list_tags() == graph.list_tags()


@pytest.mark.parametrize("name", ["x.omni", "a much longer name than the graph has/graph.omni"])
def test_c_ver_011_a_restored_graph_is_equal_and_stands_alone(
    graph: Graph, tmp_path: Path, name: str
) -> None:
    receipt = graph.create_backup(tmp_path / "backups")
    assert receipt.files_copied == receipt.backup.files
    copies.restore_backup(tmp_path / "backups", tmp_path / name)
    copy = open_graph(tmp_path / name)
    assert_equal(graph, copy)
    # Branches of Lance name a place: nothing may be read at the former one any more.
    (tmp_path / "graph.omni").rename(tmp_path / "away")
    copy = open_graph(tmp_path / name)
    insert(copy, "gil", "deep")
    copy.merge_branch("deep")
    assert {row["p.name"] for row in rows(copy)} >= {"dan", "eve", "gil"}
    report = copy.scrub()
    assert report.is_clean, report.findings
    assert report.files_undigested == 0
    copy.optimize()
    copy.cleanup(keep=1, confirm=True)
    assert copy.scrub().is_clean


def test_c_ver_011_a_second_backup_of_an_unchanged_graph_copies_nothing(
    graph: Graph, tmp_path: Path
) -> None:
    with measure() as first:
        made = graph.create_backup(tmp_path / "backups")
    with measure() as second:
        again = graph.create_backup(tmp_path / "backups")
    assert again.is_unchanged
    assert again.backup == made.backup
    assert again.files_copied == 0
    assert second.report().count("object", "write") == 0
    assert second.report().requests <= 0.02 * first.report().requests
    assert first.report().count("object", "write") > made.files_copied
    insert(graph, "gil")
    third = graph.create_backup(tmp_path / "backups")
    assert 0 < third.files_copied <= 8
    assert [each.backup_id for each in copies.list_backups(tmp_path / "backups")] == [
        made.backup.backup_id,
        third.backup.backup_id,
    ]
    copies.restore_backup(
        tmp_path / "backups", tmp_path / "old.omni", backup_id=made.backup.backup_id
    )
    assert len(rows(open_graph(tmp_path / "old.omni"))) == len(rows(graph)) - 1


def test_c_ver_011_a_backup_under_load_restores_to_a_state_that_existed(tmp_path: Path) -> None:
    graph = init(tmp_path / "graph.omni", SCHEMA)
    insert(graph, "ada")
    graph.create_branch("side")
    stop = threading.Event()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        handle = open_graph(tmp_path / "graph.omni")
        count = 0
        while not stop.is_set():
            insert(handle, f"w{number}x{count}", "side" if number % 2 else "main")
            count += 1

    def upkeep() -> None:
        handle = open_graph(tmp_path / "graph.omni")
        while not stop.is_set():
            with suppress(Busy, Conflict, RecoveryRequired):  # writers come first
                handle.optimize()
                handle.cleanup(keep=2, confirm=True)

    def guarded(work: Any, *args: Any) -> None:
        try:
            work(*args)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(write, n)) for n in range(budget(3, 8))]
    threads.append(threading.Thread(target=guarded, args=(upkeep,)))
    for thread in threads:
        thread.start()
    try:
        made = [graph.create_backup(tmp_path / "backups") for _ in range(budget(2, 8))]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert copies.verify_backup(tmp_path / "backups").is_clean
    for number, each in enumerate(made):
        place = tmp_path / f"copy{number}.omni"
        copies.restore_backup(tmp_path / "backups", place, backup_id=each.backup.backup_id)
        copy = open_graph(place)
        for branch, head in each.backup.heads.items():
            known = [commit.graph_commit_id for commit in graph.list_commits(branch)]
            assert head in known
            lineage = [commit.graph_commit_id for commit in copy.list_commits(branch)]
            assert lineage == known[known.index(head) :]
            inserted = sum(c.kind == "mutation" for c in copy.list_commits(branch))
            assert len(rows(copy, branch)) == inserted
        assert copy.scrub().is_clean


def test_c_ver_011_an_interrupted_backup_is_none_and_is_continued(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = backups._BackupWriter.put
    done: list[str] = []

    def put(self: Any, name: str) -> Any:
        if len(done) >= 10:
            raise InterruptedError("killed")
        done.append(name)
        return real(self, name)

    monkeypatch.setattr(backups._BackupWriter, "put", put)
    with pytest.raises(InterruptedError):
        graph.create_backup(tmp_path / "backups")
    assert copies.list_backups(tmp_path / "backups") == []
    monkeypatch.undo()
    receipt = graph.create_backup(tmp_path / "backups")
    assert receipt.files_copied <= receipt.backup.files - 10
    assert copies.verify_backup(tmp_path / "backups").is_clean


def test_c_ver_011_an_interrupted_restore_is_no_graph_and_is_continued(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.create_backup(tmp_path / "backups")
    real = placing._Placing.put
    done: list[str] = []

    def put(self: Any, name: str) -> int:
        if len(done) >= 20:
            raise InterruptedError("killed")
        done.append(name)
        return real(self, name)

    monkeypatch.setattr(placing._Placing, "put", put)
    place = tmp_path / "copy.omni"
    with pytest.raises(InterruptedError):
        copies.restore_backup(tmp_path / "backups", place)
    with pytest.raises(NotFound):
        open_graph(place)
    monkeypatch.undo()
    with pytest.raises(AlreadyExists, match="another copy"):
        graph.clone(place)
    receipt = copies.restore_backup(tmp_path / "backups", place)
    assert receipt.files_copied < receipt.files
    assert_equal(graph, open_graph(place))
    with pytest.raises(AlreadyExists, match="not empty"):
        copies.restore_backup(tmp_path / "backups", place)


def test_a_file_that_vanishes_is_another_moment(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = image._manifest_files, []

    def vanishing(*args: Any) -> Any:
        calls.append(1)
        if len(calls) < 3:
            raise image.Vanished("gone")
        return real(*args)

    monkeypatch.setattr(image, "_manifest_files", vanishing)
    graph.create_backup(tmp_path / "backups")
    assert len(calls) == 3
    monkeypatch.setattr(image, "_pinned_together", lambda *_: None)
    insert(graph, "gil")
    assert not graph.create_backup(tmp_path / "backups").is_unchanged  # writers were kept out


def test_damaged_backups_are_found_and_not_restored(graph: Graph, tmp_path: Path) -> None:
    graph.create_backup(tmp_path / "backups")
    files = sorted((tmp_path / "backups/files/nodes").rglob("data/*.lance"))
    content = files[0].read_bytes()
    files[0].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    files[1].unlink()
    report = copies.verify_backup(tmp_path / "backups")
    assert sorted(each.kind for each in report.findings) == ["damaged", "missing"]
    with pytest.raises(DamagedFile):
        copies.restore_backup(tmp_path / "backups", tmp_path / "copy.omni")
    with pytest.raises(NotFound):
        open_graph(tmp_path / "copy.omni")
    (data, *_) = sorted((tmp_path / "graph.omni/nodes").rglob("data/*.lance"))
    data.write_bytes(b"x" * data.stat().st_size)
    with pytest.raises(DamagedFile, match="not what was written"):
        graph.create_backup(tmp_path / "other")
    assert copies.list_backups(tmp_path / "other") == []


def test_prune_keeps_the_newest_and_what_they_need(graph: Graph, tmp_path: Path) -> None:
    made = []
    for name in ("gil", "hal", "ina"):
        insert(graph, name)
        made.append(graph.create_backup(tmp_path / "backups").backup.backup_id)
    looked = copies.prune_backups(tmp_path / "backups", keep=1)
    assert looked.dry_run
    assert len(copies.list_backups(tmp_path / "backups")) == 3
    done = copies.prune_backups(tmp_path / "backups", keep=1, confirm=True)
    assert (done.removed, done.kept) == (tuple(made[:2]), (made[2],))
    assert done.files_removed == looked.files_removed > 0
    assert copies.verify_backup(tmp_path / "backups").is_clean
    copies.restore_backup(tmp_path / "backups", tmp_path / "copy.omni")
    assert_equal(graph, open_graph(tmp_path / "copy.omni"))
    with pytest.raises(InputError):
        copies.prune_backups(tmp_path / "backups", keep=0)


def test_a_clone_of_one_branch_has_main_and_that_branch(graph: Graph, tmp_path: Path) -> None:
    graph.create_tag("deepest", "deep")
    graph.clone(tmp_path / "clone.omni", branch="side")
    clone = open_graph(tmp_path / "clone.omni")
    assert clone.list_branches() == ["main", "side"]
    assert [tag.name for tag in clone.list_tags()] == ["v1"]
    assert rows(clone, "side") == rows(graph, "side")
    insert(clone, "new", "side")
    assert len(rows(clone, "side")) == len(rows(graph, "side")) + 1
    assert clone.scrub().is_clean
    with pytest.raises(NotFound, match="no branch"):
        graph.clone(tmp_path / "other.omni", branch="nowhere")


def test_c_ver_013_a_catalog_that_climbs_out_of_its_place_is_refused(
    graph: Graph, tmp_path: Path
) -> None:
    receipt = graph.create_backup(tmp_path / "backups")
    path = tmp_path / "backups/backups" / f"{receipt.backup.backup_id}.json"
    record = orjson.loads(path.read_bytes())["catalog"]
    record["entries"]["../outside"] = next(iter(record["entries"].values()))
    own = digest_of(orjson.dumps(record)).digest
    path.write_bytes(orjson.dumps({"catalog": record, "self": own}))
    with pytest.raises(DamagedFile, match="outside"):
        copies.restore_backup(tmp_path / "backups", tmp_path / "copy.omni")
    assert not (tmp_path / "outside").exists()
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DamagedFile):
        copies.list_backups(tmp_path / "backups")


def test_backups_share_no_place_with_other_things(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.png").write_bytes(b"cat")
    with pytest.raises(InputError, match="other things"):
        graph.create_backup(tmp_path / "photos")
    with pytest.raises(NotFound, match="no backup"):
        copies.verify_backup(tmp_path / "photos")


def test_a_version_file_of_unknown_form_is_refused() -> None:
    with pytest.raises(InputError, match="unknown form"):
        moved_version(bytes(64), "/a", "/b")
