"""Digests, scrub, backups and clones between a folder and an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import copies
from omnigraph.effects.objects import open_store
from omnigraph.effects.uri import Root
from omnigraph.errors import DamagedFile
from omnigraph.graph import Graph, init, open_graph
from omnigraph.storage import digests

SCHEMA = "node Memo { code: String @key  body: String? @index }"
ALL = "query all { match { $m: Memo } return { $m.code } order { $m.code } }"


@pytest.fixture
def graph(uri: str) -> Graph:
    graph = init(f"{uri}/graph", SCHEMA)
    graph.mutate('query q { insert Memo { code: "a", body: "one" } }')
    graph.create_branch("side")
    graph.mutate('query q { insert Memo { code: "b" } }', branch="side")
    graph.optimize()
    return graph


def codes(graph: Graph, branch: str = "main") -> list[str]:
    return [row["m.code"] for row in graph.query(ALL, branch=branch).to_pylist()]


def test_c_ver_008_scrub_on_s3_finds_replaced_and_missing_files(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert graph.scrub().is_clean
    adopted = graph.scrub(adopt=True)
    assert adopted.files_adopted > 0
    assert graph.scrub().files_undigested == 0
    # A file that is too large to be fetched again is known by the checksum of the store.
    monkeypatch.setattr(digests, "FETCHED_BYTES_MAX", 10)
    graph.mutate('query q { insert Memo { code: "c" } }')
    assert graph.scrub().is_clean
    store = open_store(Root.parse(graph.uri))
    handle = graph._opened.reader().handle("node:Memo")
    names = [file.path for each in handle.get_fragments() for file in each.data_files()]
    places = [name for name in store.list("nodes") if name.rpartition("/")[2] in names]
    content = store.read(places[0])
    store.write(places[0], content[:-1] + b"!")
    store.delete(places[1])
    found = {(each.kind, each.file) for each in graph.scrub().findings}
    assert found == {("damaged", places[0]), ("missing", places[1])}


def test_c_ver_011_backups_go_to_a_bucket_and_come_back(
    graph: Graph, uri: str, tmp_path: Path
) -> None:
    receipt = graph.create_backup(f"{uri}/backups")
    assert graph.create_backup(f"{uri}/backups").is_unchanged
    assert copies.verify_backup(f"{uri}/backups").is_clean
    for place in (tmp_path / "local.omni", f"{uri}/other place/graph"):
        copies.restore_backup(f"{uri}/backups", place)
        copy = open_graph(place)
        assert codes(copy) == ["a"]
        assert codes(copy, "side") == ["a", "b"]
        assert copy.list_commits("side") == graph.list_commits("side")
        copy.mutate('query q { insert Memo { code: "c" } }', branch="side")
        copy.merge_branch("side")
        assert codes(copy) == ["a", "b", "c"]
        assert copy.scrub().is_clean
    # And the other way: a graph on disk becomes one in a bucket.
    open_graph(tmp_path / "local.omni").clone(f"{uri}/clone")
    assert codes(open_graph(f"{uri}/clone")) == ["a", "b", "c"]
    store = open_store(Root.parse(f"{uri}/backups"))
    name = next(each for each in store.list("files") if each.endswith(".lance"))
    store.write(name, b"other")
    (finding,) = copies.verify_backup(f"{uri}/backups", receipt.backup.backup_id).findings
    assert finding.file == name
    with pytest.raises(DamagedFile):
        copies.restore_backup(f"{uri}/backups", tmp_path / "again.omni")
