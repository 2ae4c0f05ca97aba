"""Creating a graph: one commit point, typed outcomes, and nothing left behind by a failure."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import lance
import orjson
import pytest

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE
from omnigraph.effects.failpoints import Failpoint, InjectedFault, armed
from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.local_objects import LocalObjects
from omnigraph.effects.uri import Root
from omnigraph.errors import (
    AlreadyInitialized,
    InitializationClaimed,
    InitializationCommitted,
    InitializationIndeterminate,
    NotFound,
    StorageError,
)
from omnigraph.graph import init, open_graph
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.manifest_rows import STAMP_KEY
from omnigraph.storage.transactions import CommitLost
from tests.storage.footprint import contents
from tests.storage.legacy_graphs import SCHEMA

OTHER_SCHEMA = "node Planet { name: String @key  moons: I32? }"
CONTRACT = ["__schema_state.json", "_schema.ir.json", "_schema.pg"]


def objects(root: Path) -> list[str]:
    return Kernel.of(Root.parse(root)).store.list()


def fail_creation_of(name: str, error: Exception, *, landed: bool = False) -> Any:
    """A store whose creation of one dataset fails, before or after it took effect."""
    real = LanceStore.create

    def create(self: LanceStore, where: Any, *args: Any) -> Any:
        if name not in where.uri:
            return real(self, where, *args)
        if landed:
            real(self, where, *args)
        raise error

    return create


# --- the commit point -----------------------------------------------------------------------------


def test_c_sto_022_the_creating_commit_carries_the_stamp_and_everything_else(root: Path) -> None:
    init(root, SCHEMA)
    first = lance.dataset(str(root / "__manifest"), version=1)
    assert first.schema.metadata[STAMP_KEY] == b"4"
    assert lance.dataset(str(root / "__manifest")).version == 1
    kinds = first.to_table(columns=["object_type"])["object_type"].to_pylist()
    assert sorted(set(kinds)) == [
        "graph_commit",
        "graph_head",
        "registry",
        "table",
        "table_version",
    ]


def test_c_sto_022_a_failure_right_after_the_commit_point_leaves_an_openable_graph(
    root: Path,
) -> None:
    with (
        armed({Failpoint.INIT_POST_MANIFEST_CREATE: "error"}),
        pytest.raises(InitializationCommitted) as outcome,
    ):
        init(root, SCHEMA)
    # Nothing is taken back: not even the claim, which the next opening does not ask for.
    assert (root / "__init_claim.json").exists()
    graph = open_graph(root)
    assert graph.snapshot().graph_commit_id == outcome.value.details["graph_commit_id"]
    graph.mutate('query q { insert Person { name: "ada" } }')
    with pytest.raises(AlreadyInitialized):
        init(root, SCHEMA)
    assert not (root / "__init_claim.json").exists()


def test_a_claim_that_cannot_be_dropped_is_a_committed_init(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalObjects, key: str) -> None:
        raise StorageFailure(FailureClass.TRANSIENT, "delete", key, "timed out")

    with monkeypatch.context() as patched:
        patched.setattr(LocalObjects, "delete", refuse)
        with pytest.raises(InitializationCommitted, match="timed out"):
            init(root, SCHEMA)
    assert open_graph(root).list_branches() == ["main"]


def test_a_lost_acknowledgement_of_a_create_that_landed_is_success(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = CommitLost("connection reset")
    monkeypatch.setattr(LanceStore, "create", fail_creation_of("__manifest", lost, landed=True))
    graph = init(root, SCHEMA)
    assert graph.snapshot().graph_manifest_version == 1
    assert not (root / "__init_claim.json").exists()


def test_a_create_that_landed_but_could_not_be_flushed_is_a_committed_init(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError("the disk does not answer")
    monkeypatch.setattr(LanceStore, "create", fail_creation_of("__manifest", error, landed=True))
    with pytest.raises(InitializationCommitted, match="does not answer"):
        init(root, SCHEMA)
    assert open_graph(root).list_branches() == ["main"]


# --- what stands in the way -----------------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
def test_a_graph_is_never_replaced(root: Path, force: bool) -> None:
    graph = init(root, SCHEMA)
    graph.mutate('query q { insert Person { name: "ada" } }')
    before = {name: seen for name, seen in contents(root).items() if "__lease" not in name}
    with pytest.raises(AlreadyInitialized, match="already holds a graph"):
        init(root, OTHER_SCHEMA, force=force)
    after = {name: seen for name, seen in contents(root).items() if "__lease" not in name}
    assert after == before
    assert open_graph(root).entity_at("node:Person", "ada") is not None


def test_orphan_schema_objects_are_replaced_with_force_only(root: Path) -> None:
    root.mkdir()
    (root / "_schema.pg").write_text("node Left { name: String @key }")
    with pytest.raises(AlreadyInitialized, match=r"_schema\.pg but no graph") as refused:
        init(root, SCHEMA)
    assert "--force" in (refused.value.hint or "")
    assert (root / "_schema.pg").read_text() == "node Left { name: String @key }"
    assert objects(root) == ["_schema.pg"]
    graph = init(root, SCHEMA, force=True)
    assert graph.schema_source == SCHEMA
    assert open_graph(root).list_branches() == ["main"]


def test_a_running_init_keeps_others_out_and_they_change_nothing(root: Path) -> None:
    other = Kernel.of(Root.parse(root))
    with other.leases.hold(GRAPH_SCOPE, "op-other"):
        before = contents(root)
        with pytest.raises(InitializationClaimed, match="is running"):
            init(root, SCHEMA)
        assert contents(root) == before
    assert init(root, SCHEMA).list_branches() == ["main"]


def test_c_sto_044_of_concurrent_inits_one_makes_the_graph_and_the_others_are_told(
    tmp_path: Path,
) -> None:
    def run(root: Path, start: threading.Barrier, outcomes: list[str]) -> None:
        start.wait()
        try:
            init(root, SCHEMA)
        except (InitializationClaimed, AlreadyInitialized) as told:
            outcomes.append(type(told).__name__)
        except BaseException as error:
            outcomes.append(repr(error))
        else:
            outcomes.append("created")

    for attempt in range(12):
        # Deep, so that they also contend for the directories above the root.
        root = tmp_path / f"{attempt}" / "graphs" / "graph.omni"
        start, outcomes = threading.Barrier(4), list[str]()
        threads = [threading.Thread(target=run, args=(root, start, outcomes)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 4
        assert outcomes.count("created") == 1
        assert set(outcomes) <= {"created", "InitializationClaimed", "AlreadyInitialized"}
        assert len(open_graph(root).list_commits()) == 1


def test_the_claim_and_schema_of_a_dead_init_are_taken_over(root: Path) -> None:
    root.mkdir()
    (root / "__init_claim.json").write_bytes(orjson.dumps({"operation_id": "op-dead"}))
    (root / "_schema.pg").write_text("node Left { name: String @key }")
    assert init(root, SCHEMA).schema_source == SCHEMA


def test_empty_tables_of_a_dead_init_are_taken_over_also_under_another_schema(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = OSError("power lost")
    with monkeypatch.context() as patched:
        patched.setattr(LanceStore, "create", fail_creation_of("__manifest", died))
        with pytest.raises(OSError, match="power lost"):
            init(root, SCHEMA)
    assert (root / "nodes").is_dir()
    graph = init(root, OTHER_SCHEMA)
    graph.mutate('query q { insert Planet { name: "Io", moons: 0 } }')
    assert open_graph(root).snapshot().datasets[0].entity_count == 1


def test_tables_with_data_but_no_manifest_are_not_touched(root: Path) -> None:
    import shutil

    graph = init(root, SCHEMA)
    graph.mutate('query q { insert Person { name: "ada" } }')
    shutil.rmtree(root / "__manifest")
    before = contents(root)
    with pytest.raises(AlreadyInitialized, match="tables with data"):
        init(root, SCHEMA, force=True)
    after = contents(root)
    assert {name: seen for name, seen in before.items() if "__lease" not in name} == after


# --- failures before there is a graph -------------------------------------------------------------


def test_c_sto_045_a_failure_before_physical_creation_leaves_no_object_and_is_returned(
    root: Path,
) -> None:
    with (
        armed({Failpoint.INIT_AFTER_SCHEMA_CONTRACT_WRITTEN: "error"}),
        pytest.raises(InjectedFault),
    ):
        init(root, SCHEMA)
    assert objects(root) == []
    assert list(root.iterdir()) == []
    with pytest.raises(NotFound):
        open_graph(root)
    assert init(root, SCHEMA).list_branches() == ["main"]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_c_sto_045_a_contract_that_could_be_written_in_part_only_is_taken_back(
    root: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    real, calls = LocalObjects.write, 0

    def write(self: LocalObjects, key: str, data: bytes) -> None:
        nonlocal calls
        if key in CONTRACT:
            calls += 1
            if calls == at:
                raise StorageFailure(FailureClass.PERMANENT, "write", key, "no space left")
        real(self, key, data)

    monkeypatch.setattr(LocalObjects, "write", write)
    with pytest.raises(StorageFailure, match="no space left"):
        init(root, SCHEMA)
    assert objects(root) == []


def test_c_sto_045_a_failing_clean_up_does_not_hide_the_first_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalObjects, key: str) -> None:
        raise StorageFailure(FailureClass.TRANSIENT, "delete", key, "timed out")

    with (
        monkeypatch.context() as patched,
        armed({Failpoint.INIT_AFTER_SCHEMA_CONTRACT_WRITTEN: "error"}),
    ):
        patched.setattr(LocalObjects, "delete", refuse)
        with pytest.raises(InjectedFault):
            init(root, SCHEMA)
    # The claim is still there, so the next init knows whose schema objects these are.
    assert objects(root)[:2] == ["__init_claim.json", "__lease/graph.json"]
    assert init(root, SCHEMA).list_branches() == ["main"]


def test_a_bad_schema_writes_nothing(root: Path) -> None:
    with pytest.raises(ValueError, match="parse error"):
        init(root, "node {")
    assert not root.exists()


def test_a_create_that_certainly_had_no_effect_is_cleaned_up(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = CommitLost("access denied")
    monkeypatch.setattr(LanceStore, "create", fail_creation_of("__manifest", refused))
    with pytest.raises(CommitLost, match="access denied"):
        init(root, SCHEMA)
    assert not [name for name in objects(root) if "/" not in name]


@pytest.mark.parametrize("landed", [False, True])
def test_an_unanswered_create_that_cannot_be_looked_up_is_indeterminate_and_keeps_everything(
    root: Path, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    lost = CommitLost("connection reset")
    real = LanceStore.open

    def unreachable(self: LanceStore, where: Any, version: int | None = None) -> Any:
        if "__manifest" in where.uri and (root / "_schema.pg").exists():
            raise StorageError("the store does not answer")
        return real(self, where, version)

    with monkeypatch.context() as patched:
        patched.setattr(LanceStore, "create", fail_creation_of("__manifest", lost, landed=landed))
        patched.setattr(LanceStore, "open", unreachable)
        with pytest.raises(InitializationIndeterminate, match="connection reset"):
            init(root, SCHEMA)
    assert (root / "__init_claim.json").exists()
    assert all((root / name).exists() for name in CONTRACT)
    if landed:
        assert open_graph(root).list_branches() == ["main"]
        with pytest.raises(AlreadyInitialized):
            init(root, SCHEMA)
    else:
        assert init(root, OTHER_SCHEMA).schema_source == OTHER_SCHEMA
