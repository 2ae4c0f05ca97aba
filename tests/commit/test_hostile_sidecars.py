"""Sidecars that are damaged or lie are refused and set aside, and nothing else happens."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from omnigraph.commit import sidecars
from omnigraph.errors import UncoveredDrift, UnreadableSidecar
from omnigraph.graph import Graph, doctor, init, open_graph
from omnigraph.storage.transactions import DatasetRef, transaction_uuid
from tests.support.sidecars import SCHEMA, Interrupted, contents, interrupted, names

ADD = "query add($n: String) { insert Person { name: $n } }"
ADD_CITY = "query add($n: String) { insert City { name: $n } }"
ANY_UUID = "01M7000000000000000000000Y"
NAME = "__recovery/01M7000000000000000000000X.json"

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def apply(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    """A schema apply that died after it had made its new table."""
    return interrupted(tmp_path_factory.mktemp("apply"), "SchemaApply")


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    """A mutation that died between two tables."""
    return interrupted(tmp_path_factory.mktemp("write"), "Mutation")


def forged(interrupted: Interrupted, change: Change) -> Path:
    """The graph, with one thing changed in its sidecar."""
    record = orjson.loads(orjson.dumps(interrupted.record))
    change(record)
    return interrupted.fresh(record)


def set_aside(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "__recovery_refused").glob("*.json"))]


def recover(graph: Graph) -> list[tuple[str, str]]:
    return [(found.outcome, found.reason) for found in graph.recover()]


# --- what recovery must not believe ---------------------------------------------------------------


@pytest.mark.parametrize("way", ["recover", "open", "mutate"])
def test_a_new_table_that_lies_elsewhere_deletes_nothing(apply: Interrupted, way: str) -> None:
    def change(record: dict[str, Any]) -> None:
        record["registrations"][0] |= {"location": "nodes", "transaction_uuid": ANY_UUID}

    root = forged(apply, change)
    before, content = set(contents(root / "nodes")), (root / apply.name).read_bytes()
    graph = open_graph(root, settle=False)
    if way == "recover":
        ((outcome, reason),) = recover(graph)
        assert outcome == "set_aside"
        assert "registrations[0].location" in reason
    elif way == "open":
        graph = open_graph(root)
    else:
        graph.mutate(ADD_CITY, {"n": "next"})
    assert before <= set(contents(root / "nodes"))
    assert set_aside(root) == [content]
    assert names(graph) == ["kept"]


@pytest.mark.parametrize("with_its_uuid", [True, False])
def test_a_live_table_called_new_is_not_deleted(apply: Interrupted, with_its_uuid: bool) -> None:
    city = init_entry(apply, "node:City")
    uuid = ANY_UUID
    if with_its_uuid:
        kernel = open_graph(apply.fresh(), "read_only")._kernel
        handle = kernel.lance.open(DatasetRef(kernel.table_uri(city["location"])))
        uuid = str(transaction_uuid(handle, 1))

    def change(record: dict[str, Any]) -> None:
        record["registrations"][0] |= {**city, "transaction_uuid": uuid}

    root = forged(apply, change)
    before = contents(root / "nodes")
    graph = open_graph(root, settle=False)
    assert [outcome for outcome, _ in recover(graph)] == ["set_aside"]
    assert contents(root / "nodes") == before
    assert names(graph, "City") == ["kept"]


def init_entry(apply: Interrupted, table_key: str) -> dict[str, Any]:
    graph = open_graph(apply.fresh(), "read_only")
    entry = graph._kernel.manifest.main.refresh().head_snapshot().table(table_key)
    return {
        "stable_table_id": entry.identity.type_id,
        "table_incarnation_id": entry.identity.incarnation_id,
        "table_key": table_key,
        "location": entry.location,
    }


def test_a_table_of_another_graph_is_not_restored(write: Interrupted) -> None:
    neighbour = write.root.parent / "other.omni"
    shutil.rmtree(neighbour, ignore_errors=True)
    shutil.copytree(write.copy, neighbour)
    before = contents(neighbour)

    def change(record: dict[str, Any]) -> None:
        for table in record["tables"]:
            table["location"] = f"../other.omni/{table['location']}"

    root = forged(write, change)
    untouched = contents(root)
    ((outcome, reason),) = recover(open_graph(root, settle=False))
    assert outcome == "set_aside"
    assert "../other.omni" in reason
    assert contents(neighbour) == before
    assert contents(root) == untouched


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda r: r.update(tables=7), "tables"),
        (lambda r: r["tables"][0].update(expected_version="1"), "tables[0].expected_version"),
        (lambda r: r["tables"][0].update(expected_version=True), "tables[0].expected_version"),
        (lambda r: r["tables"][0].update(transactions=[None]), "tables[0].transactions[0]"),
        (lambda r: r["tables"][0].pop("restore_uuid"), "tables[0].restore_uuid"),
        (lambda r: r.update(lease=None), "lease"),
        (lambda r: r["lease"].update(scope="../../x"), "lease.scope"),
        (lambda r: r.update(branch="../x"), "branch"),
        (lambda r: r["lineage"].update(created_at="now"), "lineage.created_at"),
        (lambda r: r.update(rollback_commit_id=r["lineage"]["commit_id"]), "rollback_commit_id"),
        (lambda r: r.update(unknown=1), "unknown"),
    ],
)
def test_a_mistyped_field_is_named_and_nothing_is_touched(
    write: Interrupted, change: Change, problem: str
) -> None:
    root = forged(write, change)
    before, content = contents(root), (root / write.name).read_bytes()
    ((outcome, reason),) = recover(open_graph(root, settle=False))
    assert outcome == "set_aside"
    assert problem in reason
    assert contents(root) == before
    assert set_aside(root) == [content]


def test_a_commit_that_another_operation_made_does_not_settle_it(write: Interrupted) -> None:
    head = open_graph(write.fresh(), "read_only").list_commits()[0].graph_commit_id
    root = forged(write, lambda record: record["lineage"].update(commit_id=head))
    before = contents(root)
    ((outcome, reason),) = recover(open_graph(root, settle=False))
    assert outcome == "set_aside"
    assert head in reason
    assert contents(root) == before


def test_a_write_is_not_published_without_the_table_that_was_taken_out(tmp_path: Path) -> None:
    """Only the sidecar knows which tables belong together; its transactions know the sidecar."""
    complete = interrupted(tmp_path, "complete Mutation")
    root = forged(complete, lambda record: record["tables"].pop())
    before = contents(root)
    graph = open_graph(root, settle=False)
    ((outcome, reason),) = recover(graph)
    assert outcome == "set_aside"
    assert "was changed" in reason
    assert contents(root) == before
    assert names(graph) == names(graph, "City") == ["kept"]


# --- what becomes of it ---------------------------------------------------------------------------


def test_other_work_goes_on_and_doctor_names_what_was_set_aside(tmp_path: Path) -> None:
    root = tmp_path / "graph.omni"
    graph = init(root, SCHEMA)
    graph.create_branch("review")
    (root / "__recovery").mkdir()
    (root / NAME).write_bytes(b"not json")
    for branch in ("main", "review"):
        graph.mutate(ADD, {"n": "a"}, branch=branch)
        assert names(graph, branch=branch) == ["a"]
    assert set_aside(root) == [b"not json"]
    found = doctor(root)
    (finding,) = [each for each in found.findings if each.code == "sidecar_refused"]
    assert "01M7000000000000000000000X" in finding.subject
    assert "not valid JSON" in finding.message
    assert not found.is_healthy
    # Removing it is the operator's decision, and ends it.
    shutil.rmtree(root / "__recovery_refused")
    assert doctor(root).is_healthy


def test_two_of_one_name_are_both_kept(tmp_path: Path) -> None:
    root = tmp_path / "graph.omni"
    graph = init(root, SCHEMA)
    (root / "__recovery").mkdir()
    for content in (b"one", b"two", b"one"):
        (root / NAME).write_bytes(content)
        assert [outcome for outcome, _ in recover(graph)] == ["set_aside"]
    assert sorted(set_aside(root)) == [b"one", b"two"]


def test_a_table_whose_sidecar_was_set_aside_is_not_written_and_says_so(write: Interrupted) -> None:
    """Nothing is known of its effects: each write proves that its own tables have none."""
    root = write.fresh(b"{}")
    graph = open_graph(root)
    moved = [
        table_key
        for table_key in ("node:City", "node:Person")
        if not _is_writable(graph, table_key)
    ]
    assert len(moved) == 1
    with pytest.raises(UncoveredDrift, match=moved[0]) as refused:
        _write(graph, moved[0])
    assert "set aside" in (refused.value.hint or "")
    graph.repair(force=True, confirm=True)
    _write(graph, moved[0])


def _is_writable(graph: Graph, table_key: str) -> bool:
    try:
        _write(graph, table_key)
    except UncoveredDrift:
        return False
    return True


def _write(graph: Graph, table_key: str) -> None:
    graph.mutate(ADD if table_key == "node:Person" else ADD_CITY, {"n": "next"})


def test_a_published_schema_is_completed_though_its_sidecar_is_damaged(tmp_path: Path) -> None:
    published = interrupted(tmp_path, "published SchemaApply")
    root = published.fresh(b"{}")
    graph = open_graph(root)
    graph.mutate("query add { insert Planet { name: 'earth' } }".replace("'", '"'))
    assert names(graph, "Planet") == ["earth"]
    assert names(open_graph(root, "read_only"), "Planet") == ["earth"]


def test_a_record_of_a_newer_version_stays_and_blocks_its_branch_alone(tmp_path: Path) -> None:
    """Its writer may be alive, and only that version can settle it."""
    root = tmp_path / "graph.omni"
    graph = init(root, SCHEMA)
    graph.create_branch("review")
    (root / "__recovery").mkdir()
    content = b'{"schema_version": 4, "branch": "review"}'
    (root / NAME).write_bytes(content)
    assert [outcome for outcome, _ in recover(graph)] == ["blocked"]
    graph.mutate(ADD, {"n": "a"})
    with pytest.raises(UnreadableSidecar, match="schema_version 4"):
        graph.mutate(ADD, {"n": "a"}, branch="review")
    open_graph(root)
    assert (root / NAME).read_bytes() == content
    assert "unsettled" in [found.code for found in doctor(root).findings]
    (root / NAME).write_bytes(b'{"schema_version": 4}')
    with pytest.raises(UnreadableSidecar):
        graph.mutate(ADD, {"n": "b"})


def test_c_ver_013_links_and_huge_sidecars_are_set_aside_and_lead_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecars, "SIDECAR_BYTES_MAX", 1_000)
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    root = tmp_path / "graph.omni"
    graph = init(root, "node Person { name: String @key }")
    folder = root / "__recovery"
    folder.mkdir(exist_ok=True)
    (folder / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json").symlink_to(outside)
    (folder / "01ARZ3NDEKTSV4RRFFQ69G5FAW.json").symlink_to("/dev/zero")
    (folder / "01ARZ3NDEKTSV4RRFFQ69G5FAX.json").write_text("x" * 2_000)
    with pytest.raises(UnreadableSidecar, match="is a symbolic link"):
        graph._kernel.sidecars.read("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAW.json")
    graph.mutate('query q { insert Person { name: "ada" } }')
    problems = [each.problem for each in graph._kernel.sidecars.refused()]
    assert problems == ["is a symbolic link", "is larger than 1000 bytes"]
    assert outside.read_text() == "{}"
