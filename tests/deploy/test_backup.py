"""Which copies of a graph are backups: what the page about deployment says of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.graph import Graph
from tests.effects import s3_server

SCHEMA = "node Person { handle: String @key }\nedge Knows: Person -> Person\n"
ADD = "query add($h: String) { insert Person { handle: $h } }"
ALL = "query all { match { $p: Person } return { $p.handle as h } order { h } }"


def add(graph: Graph, handle: str) -> None:
    graph.mutate(ADD, {"h": handle})


def people(graph: Graph) -> list[str]:
    return [row["h"] for row in graph.query(ALL).to_pylist()]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = og.init(str(tmp_path / "team.omni"), schema=SCHEMA)
    add(made, "ada")
    return made


def copy(source: Path, target: Path, *, manifest: bool) -> None:
    """Copy the manifest of a graph, or everything else."""
    for each in source.iterdir():
        if (each.name == "__manifest") is not manifest:
            continue
        if each.is_dir():
            shutil.copytree(each, target / each.name, dirs_exist_ok=True)
        else:
            target.mkdir(exist_ok=True)
            shutil.copy(each, target / each.name)


def test_tables_copied_before_a_write_and_the_manifest_after_it_are_no_backup(
    graph: Graph, tmp_path: Path
):
    torn = tmp_path / "torn.omni"
    copy(tmp_path / "team.omni", torn, manifest=False)
    add(graph, "bo")
    copy(tmp_path / "team.omni", torn, manifest=True)
    with pytest.raises(errors.DamagedFile, match="nodes/"):
        people(og.open(str(torn)))


def test_a_manifest_copied_before_a_write_and_the_rest_after_it_is_no_backup(
    graph: Graph, tmp_path: Path
):
    torn = tmp_path / "torn.omni"
    copy(tmp_path / "team.omni", torn, manifest=True)
    add(graph, "bo")
    copy(tmp_path / "team.omni", torn, manifest=False)
    with pytest.raises(errors.DamagedFile, match="__manifest"):
        og.open(str(torn))


def test_a_copy_without_writers_meanwhile_may_lie_anywhere_without_branches(
    graph: Graph, tmp_path: Path
):
    shutil.copytree(tmp_path / "team.omni", tmp_path / "copy.omni")
    add(graph, "bo")
    copied = og.open(str(tmp_path / "copy.omni"))
    add(copied, "cy")
    assert people(copied) == ["ada", "cy"]
    assert people(graph) == ["ada", "bo"]


def test_a_copy_with_branches_is_restored_to_its_place_and_refused_elsewhere(
    graph: Graph, tmp_path: Path
):
    graph.create_branch("review")
    graph.mutate(ADD, {"h": "bo"}, branch="review")
    graph.close()
    place, copied = tmp_path / "team.omni", tmp_path / "copy.omni"
    shutil.copytree(place, copied)
    with pytest.raises(errors.RootMoved):
        og.open(str(copied))
    shutil.rmtree(place)
    copied.rename(place)
    restored = og.open(str(place))
    assert restored.list_branches() == ["main", "review"]
    assert restored.query(ALL, branch="review").to_pylist() == [{"h": "ada"}, {"h": "bo"}]
    restored.mutate(ADD, {"h": "cy"}, branch="review")


def test_objects_of_a_bucket_copied_without_writers_are_a_backup(
    monkeypatch: pytest.MonkeyPatch,
):
    with s3_server.running_s3() as endpoint:
        s3_server.create_bucket(endpoint, "graphs")
        s3_server.create_bucket(endpoint, "backups")
        s3_server.use(endpoint, monkeypatch)
        graph = og.init("s3://graphs/team", schema=SCHEMA)
        add(graph, "ada")
        graph.close()
        client = boto3.client("s3", endpoint_url=endpoint)
        for page in client.get_paginator("list_objects_v2").paginate(Bucket="graphs"):
            for each in page["Contents"]:
                source = {"Bucket": "graphs", "Key": each["Key"]}
                client.copy_object(Bucket="backups", Key=each["Key"], CopySource=source)
        copied = og.open("s3://backups/team")
        add(copied, "bo")
        assert people(copied) == ["ada", "bo"]
        assert people(og.open("s3://graphs/team")) == ["ada"]
