"""Fragments that a merge takes over as a whole: their files are copied, and belong to the target.

Everything a merge promises holds for them as for rows that are written anew: checks, history, row
versions, and that the target does not depend on the source.
"""

from __future__ import annotations

import random
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.branching.merge_plan import MergeWrite
from omnigraph.commit.plan import ChangeSet, Intent, TableChange
from omnigraph.commit.writer import WriteAttempt
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.effects.requests import measure
from omnigraph.errors import MergeConflicts, NotFound, OmnigraphError
from omnigraph.schema.catalog import table_schema
from omnigraph.storage import row_places
from omnigraph.storage.fragments import fragments_of
from tests.branching.histories import city, content, delete, edge, load, person, seeded, step
from tests.branching.test_merge_histories import merge_and_judge
from tests.support.budgets import FEW

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique  @range(age, 0..150) }
edge Knows: Person -> Person { since: Date? }
"""
ROWS = 40


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a fragment is, it is copied."""
    monkeypatch.setattr(row_places, "WHOLE_ROWS_MIN", 1)


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A source with a fragment of its own in each table; the target has rows as well."""
    graph = og.init(tmp_path / "graph.omni", SCHEMA)
    load(graph, person("first", age=1), edge("Knows", "k", "first", "first"), mode="append")
    graph.create_branch("review")
    load(
        graph,
        *(person(f"p{n:03}", age=n, email=f"{n}@x") for n in range(ROWS)),
        *(edge("Knows", f"k{n:03}", f"p{n:03}", "first") for n in range(ROWS)),
        branch="review",
        mode="append",
    )
    return graph


def copied(graph: og.Graph, source: str = "review", target: str = "main", **options: Any) -> int:
    """How many files a merge copies."""
    with measure() as storage:
        graph.merge_branch(source, target, **options)
    return storage.report().counts.get(("object", "copy"), 0)


def exported(graph: og.Graph, branch: str = "main", **place: Any) -> bytes:
    return b"".join(graph.export(branch=branch, **place))


def test_a_branch_that_only_added_rows_is_merged_without_writing_or_reading_all_of_them(
    graph: og.Graph,
) -> None:
    wanted = exported(graph, "review")
    with measure() as storage:
        receipt = graph.merge_branch("review")
    counts = storage.report().counts
    assert receipt.outcome == "fast_forward"
    assert counts["object", "copy"] == 2
    assert exported(graph) == wanted
    assert not graph.diff("main", "review").types
    handles = [graph._opened.reader(name).handle("node:Person") for name in ("main", "review")]
    names = [{file for each in fragments_of(h) for file in each.files} for h in handles]
    # One is inherited; of the other each has a file of its own.
    assert len(names[0] & names[1]) == 1
    assert all(
        file.base_id is None
        for fragment in handles[0].get_fragments()
        for file in fragment.metadata.files
    )


def test_the_target_keeps_its_rows_when_the_source_is_deleted_and_cleaned_up(
    graph: og.Graph,
) -> None:
    wanted = exported(graph, "review")
    merged = graph.merge_branch("review", delete_branch=True)
    assert merged.branch_deleted and merged.commit is not None
    load(graph, person("later"))
    graph.cleanup(keep=2, older_than=timedelta(0), confirm=True)
    graph = og.open(graph.uri)
    assert exported(graph, snapshot=merged.commit.graph_commit_id) == wanted
    graph.optimize()
    graph.cleanup(keep=1, confirm=True)
    found = content(og.open(graph.uri), "main")
    assert len(found) == 2 * ROWS + 3
    assert not graph.examine().findings


def test_c_bra_043_the_change_feed_and_time_travel_show_copied_rows_as_inserted(
    graph: og.Graph,
) -> None:
    before = graph.list_commits()[0].graph_commit_id
    merged = graph.merge_branch("review").commit
    assert merged is not None
    changes = list(graph.commit_changes(merged.graph_commit_id))
    assert [(each.op, each.id) for each in changes] == [
        *(("insert", f"p{n:03}") for n in range(ROWS)),
        *(("insert", f"k{n:03}") for n in range(ROWS)),
    ]
    after = changes[3].after
    assert after is not None and after.properties["age"] == 3
    assert len(exported(graph, snapshot=before).splitlines()) == 2
    delete(graph, "Person", "p007")
    assert ("node:Person", "p007") not in content(graph, "main")
    assert ("node:Person", "p007") in content(graph, "review")


def test_c_bra_025_copied_rows_are_new_in_the_target_and_others_keep_their_row_versions(
    graph: og.Graph,
) -> None:
    columns = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]

    def rows() -> dict[str, dict[str, Any]]:
        handle = graph._opened.reader("main").handle("node:Person")
        found = handle.scanner(columns=columns[:1] + columns[2:], with_row_id=True).to_table()
        return {row["id"]: row for row in found.to_pylist()}

    load(graph, person("theirs"))
    before = rows()
    graph.merge_branch("review")
    after = rows()
    assert {id: after[id] for id in before} == before
    assert len({row["_rowid"] for row in after.values()}) == len(after) == ROWS + 2
    version = graph._opened.reader("main").handle("node:Person").version
    assert {after[f"p{n:03}"]["_row_created_at_version"] for n in range(ROWS)} == {version}


def test_c_bra_029_a_table_that_the_target_branch_does_not_have_yet_gets_copies(
    graph: og.Graph,
) -> None:
    graph.create_branch("stable")
    wanted = exported(graph, "review")
    assert copied(graph, "review", "stable") == 2
    assert exported(graph, "stable") == wanted
    assert len(exported(graph).splitlines()) == 2
    load(graph, person("p001", age=9), branch="stable")
    assert content(graph, "stable")["node:Person", "p001"]["age"] == 9
    # The edges, and the row that was written since; the others lie beside a deleted one.
    assert copied(graph, "stable", "main") == 2
    assert content(graph, "main")["node:Person", "p001"]["age"] == 9


def test_rows_that_lie_on_another_ref_are_written_anew(graph: og.Graph) -> None:
    graph.create_branch("child", "review")
    load(graph, person("own"), branch="child")
    wanted = exported(graph, "child")
    # The child has no edges of its own yet, and one person; the others lie on the ref of `review`.
    assert copied(graph, "child") == 2
    assert exported(graph) == wanted
    graph.delete_branch("child")
    graph.delete_branch("review")
    graph.cleanup(keep=1, confirm=True)
    assert exported(og.open(graph.uri)) == wanted


def test_rows_beside_deleted_ones_are_written_anew(graph: og.Graph) -> None:
    delete(graph, "Person", "p005", "review")
    wanted = exported(graph, "review")
    assert copied(graph) == 0
    assert exported(graph) == wanted


def test_a_target_that_moved_gets_copies_where_nothing_collides(graph: og.Graph) -> None:
    load(graph, person("theirs", email="t@x"))
    assert copied(graph) == 2
    assert len(content(graph, "main")) == 2 * ROWS + 3


def test_one_conflict_in_a_fragment_leaves_the_other_rows_of_it_to_be_written(
    graph: og.Graph,
) -> None:
    load(graph, person("p001", age=77))
    with pytest.raises(MergeConflicts) as refused:
        graph.merge_branch("review")
    assert [c["kind"] for c in refused.value.details["merge_conflicts"]] == ["divergent_insert"]
    assert copied(graph, on_conflict="target") == 1
    found = content(graph, "main")
    assert (found["node:Person", "p001"]["age"], found["node:Person", "p002"]["age"]) == (77, 2)


def test_c_bra_027_a_value_in_a_copied_fragment_that_the_target_has_is_a_conflict(
    graph: og.Graph,
) -> None:
    load(graph, person("theirs", email="3@x"))
    before = exported(graph)
    with measure() as storage, pytest.raises(MergeConflicts) as refused:
        graph.merge_branch("review")
    (found,) = refused.value.details["merge_conflicts"]
    assert (found["kind"], found["entity_id"]) == ("unique_violation", "p003")
    assert ("object", "copy") not in storage.report().counts
    assert exported(graph) == before


def test_c_bra_026_an_edge_in_a_copied_fragment_whose_node_is_gone_is_a_conflict(
    graph: og.Graph,
) -> None:
    delete(graph, "Person", "first")
    with pytest.raises(MergeConflicts) as refused:
        graph.merge_branch("review")
    found = refused.value.details["merge_conflicts"]
    assert {each["kind"] for each in found} == {"orphan_edge"}
    assert len(found) == ROWS


def test_c_bra_028_a_value_the_schema_forbids_is_found_in_a_fragment_that_would_be_copied(
    graph: og.Graph,
) -> None:
    """No write of ours leaves such a row; a writer of another kind may have."""
    kernel, accepted = graph._kernel, graph._opened.accepted()
    schema = table_schema(accepted.catalog.nodes["Person"])
    rows = pa.Table.from_pylist([{"id": "bad", "name": "bad", "age": 999}], schema=schema)
    capture = kernel.capture(kernel.manifest.refreshed("review"), accepted.schema_hash)
    changes = ChangeSet({"node:Person": TableChange("node:Person", "append", rows)})
    WriteAttempt(kernel, capture, changes, Intent("Mutation", "mutation")).run()
    with pytest.raises(MergeConflicts) as refused:
        graph.merge_branch("review")
    (found,) = refused.value.details["merge_conflicts"]
    assert (found["kind"], found["entity_id"]) == ("value_constraint_violation", "bad")


def test_a_source_that_is_deleted_before_its_files_are_copied_is_told_and_nothing_happens(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = exported(graph)
    change_set = MergeWrite.change_set

    def too_late(self: MergeWrite) -> ChangeSet:
        og.open(graph.uri).delete_branch("review")
        return change_set(self)

    monkeypatch.setattr(MergeWrite, "change_set", too_late)
    with pytest.raises(NotFound, match="review"):
        graph.merge_branch("review")
    assert exported(graph) == before
    assert graph._kernel.sidecars.names() == []


@pytest.mark.parametrize(
    ("point", "lands"),
    [
        (Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE, False),
        (Failpoint.BRANCH_MERGE_POST_SIDECAR_PRE_FORK, False),
        (Failpoint.BRANCH_MERGE_BETWEEN_CHUNKS, False),
        (Failpoint.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT, True),
    ],
    ids=str,
)
def test_recovery_does_not_need_the_source_once_files_are_copied(
    graph: og.Graph, point: Failpoint, lands: bool
) -> None:
    old, new = exported(graph), exported(graph, "review")
    with armed(f"{point}=error*1"), pytest.raises(OmnigraphError):
        graph.merge_branch("review")
    other = og.open(graph.uri, mode="read_write")
    if lands:
        shutil.rmtree(next(Path(graph.uri).glob("nodes/*/tree")))
    other.recover()
    assert exported(other) == (new if lands else old)
    if not lands:
        other.merge_branch("review")
        assert exported(other) == new


def test_a_type_with_blobs_or_another_schema_is_written_anew(tmp_path: Path) -> None:
    graph = seeded(tmp_path / "blobs.omni")
    graph.create_branch("review")
    load(graph, person("mine", photo="base64:QUE="), city("rome"), branch="review", mode="append")
    assert copied(graph) == 1, "the cities alone"
    assert content(graph, "main")["node:Person", "mine"]["photo"] == "base64:QUE="
    load(graph, city("oslo", size=3), branch="review")
    graph.apply_schema(graph.schema_source.replace("size: I32?", "size: I32?  area: F64?"))
    assert copied(graph) == 0
    assert content(graph, "main")["node:City", "oslo"] == {"name": "oslo", "size": 3, "area": None}


@pytest.mark.slow
@FEW
@given(seed=st.integers(0, 2**32))
def test_random_histories_merge_as_the_reference_does_with_copied_fragments(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    dice = random.Random(seed)
    graph = seeded(tmp_path_factory.mktemp("history") / "graph.omni")
    places = ["main", "one", "two"]
    for name in places[1:]:
        graph.create_branch(name)
    for _ in range(3):
        for _ in range(dice.randrange(1, 5)):
            step(graph, dice, dice.choice(places))
        merge_and_judge(graph, dice, *dice.sample(places, 2))
