"""Building the declared and missing indexes of a branch."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lance.query import MatchQuery

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import Conflict, InputError, NotFound, UncoveredDrift
from omnigraph.graph import open_graph
from omnigraph.model.upkeep import IndexReceipt
from omnigraph.storage import table_upkeep
from omnigraph.storage.datasets import Handle
from omnigraph.storage.indexes import indexes_of
from omnigraph.storage.table_upkeep import Extent
from omnigraph.upkeep.optimize import optimize, plan_indices
from tests.storage.footprint import contents
from tests.support.budgets import budget
from tests.support.graphs import with_edge_ids, with_settings

SCHEMA = """
node Memo {
    code: String @key
    body: String? @index
    lang: enum(en, de) @index
    size: I32? @index
    day: Date? @index
    leaf: Vector(4)? @index
    tags: [String]?
}
node Label { name: String @key }
edge Replies: Memo -> Memo { weight: I32? @index }
edge Marks: Label -> Memo
"""
ADD = """query add($code: String, $body: String) {
    insert Memo { code: $code, body: $body, lang: "de" }
}"""
DROP = "query drop($code: String) { delete Memo where code = $code }"
RESIZE = "query r($code: String, $n: I32) { update Memo set { size: $n } where code = $code }"

MEMO = ["body (inverted)", "code (btree)", "code (inverted)", "day (btree)", "id (btree)"]
MEMO += ["lang (btree)", "size (btree)"]
WITH_VECTOR = sorted([*MEMO, "leaf (vector)"])
EDGE = ["dst (btree)", "id (btree)", "src (btree)"]


def memo(number: int, **more: Any) -> dict[str, Any]:
    data = {"code": f"m{number}", "body": f"running thought {number}", "lang": "en"}
    return {"type": "Memo", "data": {**data, "size": number, **more}}


def load(graph: og.Graph, *records: Mapping[str, Any], branch: str | None = None) -> None:
    graph.load(data="\n".join(map(json.dumps, with_edge_ids(records))), mode="merge", branch=branch)


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Twenty memos with replies; no labels, so that two types are empty."""
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    replies = [
        {"edge": "Replies", "from": f"m{n}", "to": f"m{n // 2}", "data": {}} for n in range(1, 20)
    ]
    load(graph, *(memo(n) for n in range(20)), *replies)
    return graph


def handle(graph: og.Graph, type_key: str = "node:Memo", branch: str = "main") -> Handle:
    return graph._opened.reader(branch).handle(type_key)


def present(graph: og.Graph, type_key: str = "node:Memo", branch: str = "main") -> list[str]:
    return sorted(str(index.spec) for index in indexes_of(handle(graph, type_key, branch)))


def pending(receipt: IndexReceipt) -> list[tuple[str, str]]:
    return [(table.type_key, each.property) for table in receipt.tables for each in table.pending]


def exported(graph: og.Graph, branch: str = "main") -> bytes:
    return b"".join(graph.export(branch=branch))


def owned(graph: og.Graph, branch: str) -> set[str]:
    """The types a branch has tables of its own for."""
    return {
        f"{entry.entity_kind}:{entry.type_name}"
        for entry in graph.snapshot(branch).datasets
        if entry.native_dataset_branch is not None
    }


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Do something once, when the first write has staged its changes and owns nothing yet."""
    waiting = [work]

    def overtake(_: Failpoint) -> None:
        if waiting:
            waiting.pop()()

    with armed({Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: overtake}):
        yield
    assert not waiting


# --- what is built --------------------------------------------------------------------------------


def test_c_srch_021_the_kinds_follow_the_schema_and_a_vector_column_without_vectors_waits(
    graph: og.Graph,
) -> None:
    receipt = graph.ensure_indices()
    assert present(graph) == MEMO
    assert present(graph, "edge:Replies") == EDGE
    assert pending(receipt) == [("node:Memo", "leaf")]
    rows = {table.type_key: table for table in receipt.tables}
    assert {key for key, row in rows.items() if row.committed} == {"node:Memo", "edge:Replies"}
    assert sorted(str(spec) for spec in rows["node:Memo"].built) == MEMO
    assert rows["node:Memo"].table_key == "node:Memo"


def test_empty_types_have_no_work_until_they_have_rows(graph: og.Graph) -> None:
    graph.ensure_indices()
    assert present(graph, "node:Label") == []
    load(graph, {"type": "Label", "data": {"name": "red"}})
    receipt = graph.ensure_indices()
    assert [table.type_key for table in receipt.tables if table.committed] == ["node:Label"]


def test_an_empty_graph_has_a_row_for_every_type_and_gets_no_commit(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "empty.omni", schema=SCHEMA)
    receipt = graph.ensure_indices()
    keys = [table.type_key for table in receipt.tables]
    assert keys == ["node:Label", "node:Memo", "edge:Marks", "edge:Replies"]
    assert receipt.graph_commit_id is None
    assert len(graph.list_commits()) == 1


def test_c_mnt_018_the_second_run_writes_nothing(graph: og.Graph) -> None:
    graph.ensure_indices()
    root = Path(graph.uri)
    before = contents(root)
    again = graph.ensure_indices()
    assert (again.graph_commit_id, again.built_count) == (None, 0)
    assert pending(again) == [("node:Memo", "leaf")]
    assert contents(root) == before


def test_c_mnt_019_each_table_moves_by_one_version_and_all_share_one_commit(
    graph: og.Graph,
) -> None:
    before = {entry.type_name: entry for entry in graph.snapshot().datasets}
    commits = len(graph.list_commits())
    receipt = graph.ensure_indices()
    for entry in graph.snapshot().datasets:
        moved = 1 if entry.type_name in ("Memo", "Replies") else 0
        expected = before[entry.type_name].published_dataset_version + moved
        assert entry.published_dataset_version == expected, entry.type_name
    assert len(graph.list_commits()) == commits + 1
    (newest, *_) = graph._kernel.manifest.main.state.lineage()
    assert newest.commit_id == receipt.graph_commit_id
    assert (newest.kind, newest.actor_id) == ("maintenance", "omnigraph:upkeep")


def test_c_mnt_021_null_vectors_fail_neither_loads_nor_runs_and_vectors_are_indexed_later(
    graph: og.Graph,
) -> None:
    load(graph, memo(100, leaf=None))
    assert pending(graph.ensure_indices()) == [("node:Memo", "leaf")]
    load(graph, memo(101, leaf=[1.0, 0.0, 0.0, 0.5]), memo(102, leaf=None))
    receipt = graph.ensure_indices()
    assert (receipt.built_count, pending(receipt)) == (1, [])
    assert present(graph) == WITH_VECTOR


def test_the_plan_can_be_read_and_changes_nothing(graph: og.Graph) -> None:
    kernel = graph._kernel
    capture = kernel.capture(kernel.manifest.main, "")
    before = contents(Path(graph.uri))
    plan = plan_indices(kernel, capture, graph._opened.accepted().catalog)
    assert contents(Path(graph.uri)) == before
    lines = str(plan).splitlines()
    assert lines[0] == "node:Memo: build id (btree)"
    assert "node:Memo: leaf has to wait: there is no vector yet: every value is null" in lines
    assert len(lines) == len(MEMO) + len(EDGE) + 1


# --- what indexes do ------------------------------------------------------------------------------


def test_c_mnt_022_exports_are_the_same_bytes_with_and_without_indexes(graph: og.Graph) -> None:
    before = exported(graph)
    graph.ensure_indices()
    assert exported(graph) == before


@pytest.mark.parametrize("branch", ["main", "side"])
def test_rows_are_found_through_indexes_and_beyond_them(graph: og.Graph, branch: str) -> None:
    if branch == "side":
        graph.create_branch("side")
    graph.ensure_indices(branch)
    load(graph, memo(50), branch=branch)
    graph.mutate(RESIZE, {"code": "m3", "n": 50}, branch=branch)
    memos = handle(graph, branch=branch)
    scanner = memos.scanner(columns=["id"], filter="size = 50")
    assert "ScalarIndexQuery" in scanner.explain_plan()
    assert sorted(scanner.to_table()["id"].to_pylist()) == ["m3", "m50"]
    words = memos.scanner(columns=["id", "_score"], full_text_query=MatchQuery("thoughts", "body"))
    assert words.to_table().num_rows == 21
    replies = handle(graph, "edge:Replies", branch).scanner(columns=["dst"], filter="src = 'm9'")
    assert "ScalarIndexQuery" in replies.explain_plan()
    assert replies.to_table()["dst"].to_pylist() == ["m4"]
    found = graph.entity_at("node:Memo", "m3", branch=branch)
    assert found is not None
    assert found["size"] == 50


@pytest.mark.parametrize("seed", range(budget(3, 12)))
def test_c_mnt_022_writes_compaction_and_index_runs_in_any_order_lose_nothing(
    graph: og.Graph, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = with_settings(graph, table_compact_every=4)
    if seed % 2:
        # As in a large table: fragments and parts of indexes stay while they outweigh new rows.
        monkeypatch.setattr(table_upkeep, "SETTLED_ROWS_MIN", 2)
    choose = random.Random(seed)
    graph.create_branch("side")
    model: dict[str, dict[str, int | None]] = {
        branch: {f"m{n}": n for n in range(20)} for branch in ("main", "side")
    }
    for step in range(25):
        branch = choose.choice(["main", "side"])
        sizes = model[branch]
        code = choose.choice(sorted(sizes))
        match choose.choice(["add", "drop", "resize", "merge", "index", "recent", "optimize"]):
            case "add":
                graph.mutate(ADD, {"code": f"n{step}", "body": "new"}, branch=branch)
                sizes[f"n{step}"] = None
            case "drop":
                graph.mutate(DROP, {"code": code}, branch=branch)
                del sizes[code]
            case "resize":
                graph.mutate(RESIZE, {"code": code, "n": step}, branch=branch)
                sizes[code] = step
            case "merge":
                load(graph, memo(step), memo(step + 100), branch=branch)
                sizes |= {f"m{step}": step, f"m{step + 100}": step + 100}
            case "index":
                graph.ensure_indices(branch)
            case "recent":
                optimize(graph._kernel, graph._opened.accepted(), Extent(8))
            case _:
                graph.optimize()
                assert graph.optimize().graph_commit_id is None
    for branch, sizes in model.items():
        graph.ensure_indices(branch)
        lines = map(json.loads, exported(graph, branch).splitlines())
        data = [line["data"] for line in lines if line.get("type") == "Memo"]
        assert {each["code"]: each["size"] for each in data} == sizes
        assert len(data) == len(sizes)
        memos = handle(graph, branch=branch)
        for code, size in sizes.items():
            (row,) = memos.to_table(columns=["size"], filter=f"id = '{code}'").to_pylist()
            assert row["size"] == size


# --- branches -------------------------------------------------------------------------------------


def test_c_mnt_020_only_tables_that_get_an_index_are_forked(graph: og.Graph) -> None:
    graph.create_branch("side")
    load(graph, {"type": "Label", "data": {"name": "red"}}, branch="side")
    graph.ensure_indices("side")
    assert owned(graph, "side") == {"node:Label", "node:Memo", "edge:Replies"}
    assert present(graph, branch="side") == MEMO
    assert present(graph) == [], "main was touched"
    assert set(exported(graph).splitlines()) < set(exported(graph, "side").splitlines())


def test_c_mnt_020_a_branch_of_an_indexed_one_forks_nothing_and_gets_no_commit(
    graph: og.Graph,
) -> None:
    graph.ensure_indices()
    graph.create_branch("side")
    receipt = graph.ensure_indices("side")
    assert (receipt.graph_commit_id, owned(graph, "side")) == (None, set())
    load(graph, memo(1, leaf=[0.0, 0.0, 0.0, 1.0]), branch="side")
    assert graph.ensure_indices("side").built_count == 1
    assert owned(graph, "side") == {"node:Memo"}
    assert present(graph, branch="side") == WITH_VECTOR


def test_a_branch_that_does_not_exist_is_not_found(graph: og.Graph) -> None:
    with pytest.raises(NotFound):
        graph.ensure_indices("nowhere")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("branch", ["main", "side"])
@pytest.mark.parametrize("indexed", [False, True], ids=["with-work", "without-work"])
def test_c_mnt_023_uncovered_drift_is_refused_before_anything_is_armed(
    graph: og.Graph, branch: str, indexed: bool
) -> None:
    if branch == "side":
        graph.create_branch("side")
        graph.mutate(RESIZE, {"code": "m1", "n": 5}, branch="side")
    if indexed:
        graph.ensure_indices(branch)
    handle(graph, branch=branch).delete("code = 'm1'")
    before = contents(Path(graph.uri) / "nodes")
    with armed("recovery.sidecar_write=error") as plans, pytest.raises(UncoveredDrift) as refused:
        graph.ensure_indices(branch)
    assert plans[Failpoint.RECOVERY_SIDECAR_WRITE].hits == 0
    assert refused.value.details["table_key"] == "node:Memo"
    assert "repair" in str(refused.value.hint)
    assert contents(Path(graph.uri) / "nodes") == before


def test_a_graph_that_moved_meanwhile_is_told_and_left_alone(graph: og.Graph) -> None:
    other = open_graph(graph.uri)
    faster = {"code": "faster", "body": "new"}
    with meanwhile(lambda: other.mutate(ADD, faster)), pytest.raises(Conflict):
        graph.ensure_indices()
    assert present(graph) == []
    assert graph._kernel.sidecars.names() == []
    assert graph.ensure_indices().graph_commit_id is not None
    assert present(graph) == MEMO


def test_two_runs_at_once_build_everything_once(graph: og.Graph) -> None:
    other = open_graph(graph.uri)
    with meanwhile(other.ensure_indices):
        receipt = graph.ensure_indices()
    assert (receipt.graph_commit_id, receipt.built_count) == (None, 0)
    assert present(graph) == MEMO
    assert len(graph.list_commits()) == 3


def test_a_graph_opened_for_reading_only_is_not_indexed(graph: og.Graph) -> None:
    with pytest.raises(InputError, match="needs a graph opened for writing"):
        open_graph(graph.uri, "read_only").ensure_indices()
