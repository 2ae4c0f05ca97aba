"""Opening: what is refused, in which order things happen, and that reading writes nothing."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import orjson
import pyarrow as pa
import pytest

from omnigraph.commit import opening
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE, branch_scope
from omnigraph.commit.recovery import Recoverer
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.local_objects import Folder, LocalObjects
from omnigraph.effects.uri import Root
from omnigraph.errors import (
    NotFound,
    RecoveryRequired,
    RootMoved,
    SchemaContractError,
    UnsupportedStorageVersion,
)
from omnigraph.graph import Graph, OpenMode, init, open_graph
from omnigraph.storage import manifest as manifest_module
from omnigraph.storage.manifest_rows import SCHEMA as MANIFEST_SCHEMA
from omnigraph.storage.migrations import Migration
from tests.storage.footprint import contents, footprint
from tests.storage.legacy_graphs import SCHEMA, STAMP_KEY, older_graph
from tests.support.sidecars import interrupted

MODES: list[OpenMode] = ["read_write", "read_only"]
ADD_ADA = 'query q { insert Person { name: "ada" } }'


@pytest.fixture
def graph(root: Path) -> Graph:
    graph = init(root, SCHEMA)
    graph.mutate(ADD_ADA)
    return graph


def manifest(root: Path) -> lance.LanceDataset:
    return lance.dataset(str(root / "__manifest"))


def names(graph: Graph, branch: str = "main") -> list[str]:
    lines = b"".join(graph.export(branch=branch)).splitlines()
    return sorted(orjson.loads(line)["data"]["id"] for line in lines)


# --- stamps ---------------------------------------------------------------------------------------


def add_undecodable_row(root: Path) -> None:
    row = {"object_id": "from-the-future", "object_type": "quark"}
    manifest(root).insert(pa.Table.from_pylist([row], schema=MANIFEST_SCHEMA))


@pytest.mark.parametrize("mode", MODES)
def test_c_sto_031_a_newer_stamp_is_refused_before_anything_is_decoded(
    graph: Graph, root: Path, mode: OpenMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_undecodable_row(root)
    manifest(root).update_schema_metadata({STAMP_KEY: "5"})
    (root / "_schema.pg").unlink()

    def decode(*_: object) -> None:
        raise AssertionError("a row was decoded")

    monkeypatch.setattr(manifest_module, "decode_rows", decode)
    with pytest.raises(UnsupportedStorageVersion) as refused:
        open_graph(root, mode)
    assert "internal schema 5" in refused.value.message
    assert "supports 4" in refused.value.message
    assert refused.value.hint == "upgrade Omnigraph"
    assert (refused.value.details["stamp"], refused.value.details["supported"]) == ("5", 4)


def test_c_sto_031_a_publish_on_a_warm_handle_notices_a_newer_stamp(
    graph: Graph, root: Path
) -> None:
    manifest(root).update_schema_metadata({STAMP_KEY: "5"})
    add_undecodable_row(root)
    version = manifest(root).version
    with pytest.raises(UnsupportedStorageVersion, match="internal schema 5"):
        graph.mutate('query q { insert Person { name: "bob" } }')
    assert manifest(root).version == version


def test_c_sto_031_a_newer_stamp_on_a_branch_stops_its_readers_and_writers_only(
    graph: Graph, root: Path
) -> None:
    graph.create_branch("feature")
    where = graph._kernel.manifest.branch("feature").where
    lance.dataset(where.address).update_schema_metadata({STAMP_KEY: "5"})
    again = open_graph(root)
    assert names(again) == ["ada"]
    with pytest.raises(UnsupportedStorageVersion):
        again.snapshot("feature")
    with pytest.raises(UnsupportedStorageVersion):
        again.mutate('query q { insert Person { name: "bob" } }', branch="feature")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stamp", ["four", "4.0", "-4", "0", "", "４"])
def test_c_sto_032_a_stamp_that_is_no_version_is_refused_with_its_raw_text(
    graph: Graph, root: Path, mode: OpenMode, stamp: str
) -> None:
    manifest(root).update_schema_metadata({STAMP_KEY: stamp})
    with pytest.raises(UnsupportedStorageVersion, match="not a version number") as refused:
        open_graph(root, mode)
    assert refused.value.details["stamp"] == stamp


@pytest.mark.parametrize("mode", MODES)
def test_c_sto_032_a_modern_layout_without_a_stamp_is_refused(
    graph: Graph, root: Path, mode: OpenMode
) -> None:
    manifest(root).update_schema_metadata({}, replace=True)
    with pytest.raises(UnsupportedStorageVersion, match="no internal-schema stamp") as refused:
        open_graph(root, mode)
    assert refused.value.details["stamp"] is None
    assert "stable_table_id" in refused.value.details["columns"]


@pytest.mark.parametrize("mode", MODES)
def test_c_sto_032_the_current_stamp_on_an_older_layout_is_refused(
    root: Path, mode: OpenMode
) -> None:
    older_graph(root, 3)
    manifest(root).update_schema_metadata({STAMP_KEY: "4"})
    before = footprint(root / "__manifest")
    with pytest.raises(UnsupportedStorageVersion, match="lacks the identity columns"):
        open_graph(root, mode)
    assert footprint(root / "__manifest") == before


# --- the order of an opening ----------------------------------------------------------------------


def test_a_read_write_open_probes_checks_migrates_opens_and_recovers_in_this_order(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older_graph(root, 2)
    steps: list[str] = []

    def traced(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def step(*args: Any, **options: Any) -> Any:
            steps.append(name)
            return real(*args, **options)

        monkeypatch.setattr(owner, name, step)

    traced(LocalObjects, "probe_atomic_create")
    traced(opening, "is_current")
    traced(Migration, "run")
    traced(opening, "require_unmoved")
    traced(Recoverer, "run")
    open_graph(root)
    assert steps == ["probe_atomic_create", "is_current", "run", "require_unmoved", "run"]


@pytest.mark.parametrize("mode", MODES)
def test_a_root_without_a_graph_is_not_found_and_left_alone(root: Path, mode: OpenMode) -> None:
    with pytest.raises(NotFound, match="there is no graph") as refused:
        open_graph(root, mode)
    assert "omnigraph init" in (refused.value.hint or "")
    assert not root.exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_graph_that_lost_its_schema_source_is_not_found_with_advice(
    graph: Graph, root: Path, mode: OpenMode
) -> None:
    (root / "_schema.pg").unlink()
    with pytest.raises(NotFound, match=r"_schema\.pg is missing") as refused:
        open_graph(root, mode)
    assert "restore" in (refused.value.hint or "")


@pytest.mark.parametrize("mode", MODES)
def test_a_schema_edited_by_hand_fails_to_open(graph: Graph, root: Path, mode: OpenMode) -> None:
    with (root / "_schema.pg").open("a") as source:
        source.write("node Planet { name: String @key }\n")
    with pytest.raises(SchemaContractError, match="no longer matches"):
        open_graph(root, mode)


# --- reading writes nothing -----------------------------------------------------------------------


def interrupted_write(graph: Graph) -> str:
    """Leave a sidecar whose tables are committed but not published; its name."""
    with (
        armed({Failpoint.MUTATION_POST_FINALIZE_PRE_PUBLISHER: "error"}),
        pytest.raises(RecoveryRequired) as left,
    ):
        graph.mutate('query q { insert Person { name: "unfinished" } }')
    return str(left.value.details["operation_id"])


def pending_schema_apply(root: Path) -> str:
    """Give the graph the sidecar of a schema apply that was interrupted in another one."""
    other = interrupted(root.parent / "other", "SchemaApply")
    (root / "__recovery").mkdir(exist_ok=True)
    shutil.copy(other.root / other.name, root / other.name)
    return Path(other.name).stem


def stage_schema(root: Path) -> None:
    for name in ("_schema.pg", "_schema.ir.json", "__schema_state.json"):
        shutil.copy(root / name, root / f"{name}.staging")


def test_c_sto_034_reading_writes_nothing_with_sidecars_staging_and_leases_present(
    graph: Graph, root: Path
) -> None:
    graph.create_branch("feature")
    interrupted_write(graph)
    pending_schema_apply(root)
    stage_schema(root)
    (root / "__recovery" / "broken.json").write_text("{")
    (root / "__init_claim.json").write_text("{}")
    kernel = Kernel.of(Root.parse(root))
    with (
        kernel.leases.hold(GRAPH_SCOPE, "op-graph"),
        kernel.leases.hold(branch_scope("main"), "op-main"),
    ):
        before = footprint(root)
        reader = open_graph(root, "read_only")
        assert names(reader) == names(reader, "feature") == ["ada"]
        assert reader.list_branches() == ["feature", "main"]
        assert len(reader.list_commits()) == 2
        assert reader.show_commit(reader.snapshot().graph_commit_id).graph_branch is None
        assert reader.entity_at("node:Person", "ada")
        assert reader.list_recoveries() == []
        assert footprint(root) == before


def test_reading_serves_the_last_published_state_and_leaves_the_sidecar(
    graph: Graph, root: Path
) -> None:
    operation_id = interrupted_write(graph)
    assert names(open_graph(root, "read_only")) == ["ada"]
    assert (root / "__recovery" / f"{operation_id}.json").exists()
    assert names(open_graph(root)) == ["ada", "unfinished"]


@pytest.mark.parametrize("staged", ["_schema.pg", "_schema.ir.json", "__schema_state.json"])
def test_reading_reports_a_staged_schema_of_no_change(
    graph: Graph, root: Path, staged: str
) -> None:
    interrupted_write(graph)
    shutil.copy(root / staged, root / f"{staged}.staging")
    before = footprint(root)
    with pytest.raises(RecoveryRequired, match=r"\.staging belongs to no schema change"):
        open_graph(root, "read_only")
    assert footprint(root) == before


def test_reading_reports_a_schema_change_interrupted_between_two_objects(
    graph: Graph, root: Path
) -> None:
    operation_id = pending_schema_apply(root)
    stage_schema(root)
    (root / "_schema.pg").write_text(f"{SCHEMA}\nnode Planet {{ name: String @key }}\n")
    with pytest.raises(RecoveryRequired, match="interrupted") as refused:
        open_graph(root, "read_only")
    assert refused.value.details["operation_id"] == operation_id


def test_reading_reports_a_published_schema_change_that_is_not_promoted(
    root: Path, tmp_path: Path
) -> None:
    init(root, SCHEMA)
    init(tmp_path / "other", f"{SCHEMA}\nnode Planet {{ name: String @key }}\n")
    for name in ("_schema.pg", "_schema.ir.json", "__schema_state.json"):
        shutil.copy(tmp_path / "other" / name, root / name)
    with pytest.raises(RecoveryRequired, match="published but not completed"):
        open_graph(root, "read_only")


OBEY = """
import ctypes, os, sys
# Even root obeys the mode bits of its own files once it has given up the right to ignore them,
# which takes effect with the next program.
if os.geteuid() == 0 and ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) != 0:
    sys.exit("the right to ignore mode bits cannot be given up")
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""

READ = """
import sys
from omnigraph.graph import open_graph
root, here = sys.argv[1:]
try:
    open(f"{root}/{here}", "w")
except PermissionError:
    pass
else:
    sys.exit("the directory can be written; this proves nothing")
graph = open_graph(root, "read_only")
print(*graph.list_branches(), len(graph.list_commits()), len(b"".join(graph.export())) > 0)
"""


@pytest.mark.parametrize("stamp", [3, 4])
def test_c_sto_034_reading_works_where_nothing_may_be_written(root: Path, stamp: int) -> None:
    if stamp == 4:
        graph = init(root, SCHEMA)
        graph.create_branch("feature")
        graph.mutate(ADD_ADA)
        interrupted_write(graph)
    else:
        older_graph(root, stamp)
    everything = [root, *root.rglob("*")]
    modes = {path: path.stat().st_mode for path in everything}
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        run = subprocess.run(
            [sys.executable, "-c", OBEY, READ, str(root), "new-file"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert run.returncode == 0, run.stderr
    expected = "feature main 2 True" if stamp == 4 else "feature main review/1 5 True"
    assert run.stdout.split() == expected.split()


@pytest.fixture
def no_hard_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Folder, "link", refuse)


def test_c_sto_042_a_root_without_hard_links_is_refused_for_writing_and_can_be_read(
    graph: Graph, root: Path, tmp_path: Path, no_hard_links: None
) -> None:
    before = contents(root)
    with pytest.raises(StorageFailure, match="no hard links") as refused:
        open_graph(root)
    assert refused.value.failure_class is FailureClass.CONFIGURATION
    assert contents(root) == before
    assert names(open_graph(root, "read_only")) == ["ada"]
    with pytest.raises(StorageFailure, match="no hard links"):
        init(tmp_path / "new", SCHEMA)
    assert not (tmp_path / "new").exists()


def test_c_sto_042_an_older_graph_without_hard_links_is_not_migrated(
    root: Path, no_hard_links: None
) -> None:
    older = older_graph(root, 2)
    before = footprint(root / "__manifest")
    with pytest.raises(StorageFailure, match="no hard links"):
        open_graph(root)
    assert footprint(root / "__manifest") == before
    assert open_graph(root, "read_only").snapshot().graph_commit_id == older.head().commit_id


# --- moved roots ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", [shutil.move, shutil.copytree])
def test_c_sto_049_a_moved_or_copied_root_with_only_main_opens(
    graph: Graph, root: Path, tmp_path: Path, mode: OpenMode, way: Any
) -> None:
    graph.create_branch("feature")
    graph.mutate('query q { insert Person { name: "bob" } }', branch="feature")
    graph.delete_branch("feature")
    way(root, tmp_path / "elsewhere")
    moved = open_graph(tmp_path / "elsewhere", mode)
    assert names(moved) == ["ada"]
    if mode == "read_write":
        moved.mutate('query q { insert Person { name: "cyd" } }')
        moved.create_branch("new")
        assert names(open_graph(tmp_path / "elsewhere"), "new") == ["ada", "cyd"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", [shutil.move, shutil.copytree])
def test_c_sto_049_a_moved_or_copied_root_with_branches_is_refused_with_the_ways_out(
    graph: Graph, root: Path, tmp_path: Path, mode: OpenMode, way: Any
) -> None:
    graph.create_branch("feature")
    graph.create_branch("review/1", "feature")
    there = tmp_path / "elsewhere"
    way(root, there)
    before = contents(there)
    with pytest.raises(RootMoved) as refused:
        open_graph(there, mode)
    error = refused.value
    assert error.details == {
        "recorded_root": Root.parse(root).uri,
        "root": Root.parse(there).uri,
        "branches": ["feature", "review/1"],
    }
    assert str(root) in error.message
    assert "move it back" in (error.hint or "")
    assert "export" in (error.hint or "")
    assert contents(there) == before


def test_c_sto_049_moving_it_back_is_one_of_the_ways_out(
    graph: Graph, root: Path, tmp_path: Path
) -> None:
    graph.create_branch("feature")
    shutil.move(root, tmp_path / "elsewhere")
    with pytest.raises(RootMoved):
        open_graph(tmp_path / "elsewhere")
    shutil.move(tmp_path / "elsewhere", root)
    assert names(open_graph(root), "feature") == ["ada"]


def test_c_sto_049_another_spelling_of_the_root_is_not_another_root(
    graph: Graph, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.create_branch("feature")
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    for spelled in ("link", "graph.omni", f"./link/../{root.name}", root.as_uri()):
        assert names(open_graph(spelled), "feature") == ["ada"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stamp", [1, 2, 3])
def test_c_sto_049_an_older_graph_that_was_moved_with_branches_is_refused_unmigrated(
    root: Path, tmp_path: Path, mode: OpenMode, stamp: int
) -> None:
    older_graph(root, stamp)
    there = tmp_path / "elsewhere"
    shutil.move(root, there)
    before = contents(there)
    with pytest.raises(RootMoved) as refused:
        open_graph(there, mode)
    assert refused.value.details["recorded_root"] == Root.parse(root).uri
    assert contents(there) == before


def test_c_sto_049_runs_about_to_be_swept_do_not_hold_an_older_graph_in_its_place(
    root: Path, tmp_path: Path
) -> None:
    from tests.storage.legacy_graphs import OlderGraph

    older = OlderGraph(root, 2)
    older.write("node:Person", "ada")
    older.leave_run("__run__1")
    shutil.move(root, tmp_path / "elsewhere")
    assert names(open_graph(tmp_path / "elsewhere")) == ["ada"]
