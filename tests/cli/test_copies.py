"""`omnigraph scrub`, `backup …` and `clone`."""

from __future__ import annotations

import json
from pathlib import Path

from omnigraph.graph import open_graph


def test_scrub_exits_with_1_and_names_file_type_and_commit(run, full_graph: str):
    assert run("scrub", full_graph, "--adopt").code == 0
    done = run("scrub", full_graph)
    assert (done.code, done.out.splitlines()[-1]) == (0, "everything is as it was written")
    (file, *_) = sorted(Path(full_graph).glob("nodes/*/data/*.lance"))
    content = file.read_bytes()
    file.write_bytes(content[:9] + bytes([content[9] ^ 4]) + content[10:])
    done = run("scrub", full_graph)
    assert done.code == 1
    assert f"damaged: {file.relative_to(full_graph)}: its content" in done.out
    assert "written by commit" in done.out
    report = json.loads(run("scrub", full_graph, "--json").out)
    assert report["clean"] is False
    assert report["findings"][0]["kind"] == "damaged"
    assert run("doctor", full_graph, "--deep").code == 1
    file.write_bytes(content)
    assert run("doctor", full_graph, "--deep").code == 0


def test_a_backup_is_made_listed_verified_restored_and_pruned(run, full_graph: str, tmp_path: Path):
    place = str(tmp_path / "backups")
    done = run("backup", "create", full_graph, place)
    assert done.code == 0, done.err
    assert "files copied" in done.out
    assert run("backup", "create", full_graph, place).out.startswith("nothing changed since backup")
    (listed,) = json.loads(run("backup", "list", place, "--json").out)["backups"]
    assert listed["backup_id"] in run("backup", "list", place).out
    assert run("backup", "verify", place).out.endswith("everything is as it was written\n")
    copy = str(tmp_path / "copy.omni")
    done = run("backup", "restore", place, copy, "--backup", listed["backup_id"])
    assert done.code == 0, done.err
    known = [each.graph_commit_id for each in open_graph(full_graph).list_commits()]
    assert [each.graph_commit_id for each in open_graph(copy).list_commits()] == known
    again = run("backup", "restore", place, copy)
    assert again.code == 1
    assert "not empty" in again.err
    assert "0 backups, 0 files" in run("backup", "prune", place, "--keep", "1", "--confirm").out
    assert run("backup", "verify", str(tmp_path / "nothing")).code == 1


def test_a_clone_is_a_graph_of_its_own(run, full_graph: str, tmp_path: Path):
    clone = str(tmp_path / "clone.omni")
    done = run("clone", full_graph, clone, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["uri"] == clone
    assert len(open_graph(clone).list_commits()) == len(open_graph(full_graph).list_commits())
