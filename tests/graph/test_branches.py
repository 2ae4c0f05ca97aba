"""Branches, commits and time travel through the facade."""

from __future__ import annotations

import itertools
from pathlib import Path

import orjson
import pytest

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import AlreadyExists, Conflict, InputError, NotFound, OmnigraphError

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
"""
ADD = "query add($n: String) { insert Person { name: $n } }"
AGE = "query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
KNOWS = "query knows($a: String, $b: String) { insert Knows { from: $a, to: $b } }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    graph.mutate(ADD, {"n": "base"})
    return graph


def persons(graph: og.Graph, branch: str | None = None, snapshot: str | None = None) -> list[str]:
    lines = b"".join(graph.export(branch=branch, snapshot=snapshot, types=["Person"])).splitlines()
    return [orjson.loads(line)["data"]["id"] for line in lines]


def refs(graph: og.Graph, type_key: str) -> set[str]:
    """The physical refs of a type's table."""
    kernel = graph._kernel
    kernel.manifest.main.refresh()
    capture = kernel.capture(kernel.manifest.main, "")
    entry = capture.snapshot.table(type_key)
    return set(kernel.lance.refs(capture.reader.where(entry)))


def test_c_bra_001_a_branch_is_created_listed_written_and_read_apart_from_main(
    graph: og.Graph,
) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"n": "new"}, branch="review")
    assert graph.list_branches() == ["main", "review"]
    assert persons(graph, "review") == ["base", "new"]
    assert persons(graph) == ["base"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("main", AlreadyExists),
        ("__schema_apply_lock__", InputError),
        ("", InputError),
        ("a//b", InputError),
        ("a b", InputError),
        ("../up", InputError),
        ("x" * 201, InputError),
    ],
)
def test_c_bra_002_bad_names_are_refused_before_storage_changes(
    graph: og.Graph, name: str, error: type[Exception]
) -> None:
    before = graph._kernel.store.list()
    with pytest.raises(error):
        graph.create_branch(name)
    assert graph._kernel.store.list() == before


def test_c_bra_002_an_existing_name_is_refused(graph: og.Graph) -> None:
    graph.create_branch("review")
    with pytest.raises(AlreadyExists):
        graph.create_branch("review")


def test_c_bra_003_names_may_share_a_prefix_and_live_independently(graph: og.Graph) -> None:
    graph.create_branch("review")
    graph.create_branch("review/1")
    graph.mutate(ADD, {"n": "one"}, branch="review/1")
    graph.delete_branch("review")
    assert persons(graph, "review/1") == ["base", "one"]
    graph.create_branch("review")
    assert persons(graph, "review") == ["base"]


def test_c_bra_004_only_written_tables_fork(graph: og.Graph) -> None:
    graph.create_branch("review")
    graph.mutate(KNOWS, {"a": "base", "b": "base"}, branch="review")
    assert len(refs(graph, "edge:Knows")) == 1
    assert refs(graph, "node:Person") == set()
    assert refs(graph, "node:City") == set()


def test_c_bra_005_first_touch_forks_at_the_inherited_pin_after_the_parent_advanced(
    graph: og.Graph,
) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"n": "later"})
    graph.mutate(ADD, {"n": "mine"}, branch="review")
    assert persons(graph, "review") == ["base", "mine"]
    assert persons(graph) == ["base", "later"]


def test_c_bra_006_a_branch_of_a_branch_inherits_its_state(graph: og.Graph) -> None:
    graph.create_branch("one")
    graph.mutate(ADD, {"n": "first"}, branch="one")
    graph.create_branch("two", "one")
    graph.mutate(ADD, {"n": "second"}, branch="two")
    assert persons(graph, "two") == ["base", "first", "second"]
    assert persons(graph, "one") == ["base", "first"]


def test_c_bra_007_main_and_branches_others_depend_on_cannot_be_deleted(graph: og.Graph) -> None:
    graph.create_branch("one")
    graph.create_branch("two", "one")
    with pytest.raises(InputError, match="main"):
        graph.delete_branch("main")
    with pytest.raises(Conflict, match="still depends on it"):
        graph.delete_branch("one")
    graph.delete_branch("two")
    graph.delete_branch("one")
    assert graph.list_branches() == ["main"]


def test_c_bra_008_delete_succeeds_though_reclaiming_its_refs_fails(graph: og.Graph) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"n": "old"}, branch="review")
    with armed("branch_delete.before_table_cleanup=error"):
        graph.delete_branch("review")
    assert graph.list_branches() == ["main"]
    graph.create_branch("review")
    assert persons(graph, "review") == ["base"]


def test_deleting_a_branch_reclaims_its_refs(graph: og.Graph) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"n": "old"}, branch="review")
    assert len(refs(graph, "node:Person")) == 1
    graph.delete_branch("review")
    assert refs(graph, "node:Person") == set()


def test_c_bra_009_a_recreated_branch_shows_nothing_of_its_predecessor_on_a_warm_handle(
    graph: og.Graph,
) -> None:
    warm = og.open(graph.uri)
    graph.create_branch("review")
    graph.mutate(ADD, {"n": "old"}, branch="review")
    assert persons(warm, "review") == ["base", "old"]
    graph.delete_branch("review")
    graph.create_branch("review")
    assert persons(warm, "review") == ["base"]
    assert [c.actor_id for c in warm.list_commits("review")] == [None, None]


def test_a_write_prepared_on_a_branch_that_was_recreated_is_prepared_again(
    graph: og.Graph,
) -> None:
    graph.create_branch("review")
    other = og.open(graph.uri)
    done: list[bool] = []

    def recreate(_: Failpoint) -> None:
        if not done:
            done.append(True)
            other.delete_branch("review")
            other.create_branch("review")

    with armed({Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: recreate}):
        graph.mutate(ADD, {"n": "mine"}, branch="review")
    assert persons(graph, "review") == ["base", "mine"]


def test_c_bra_010_a_crash_before_the_registry_row_leaves_no_branch(graph: og.Graph) -> None:
    with armed("branch_create.post_native=error*1"), pytest.raises(OmnigraphError):
        graph.create_branch("review")
    assert graph.list_branches() == ["main"]
    graph.create_branch("review")
    assert persons(graph, "review") == ["base"]


def test_c_bra_010_a_crash_after_the_registry_row_is_gone_leaves_no_branch(
    graph: og.Graph,
) -> None:
    graph.create_branch("review")
    with armed("branch_delete.post_native=error*1"), pytest.raises(OmnigraphError):
        graph.delete_branch("review")
    assert graph.list_branches() == ["main"]
    with pytest.raises(NotFound):
        graph.delete_branch("review")


def test_c_bra_012_commits_are_listed_newest_first_with_actor_and_parent(graph: og.Graph) -> None:
    graph.mutate(ADD, {"n": "a"}, actor="ana")
    graph.mutate(ADD, {"n": "b"}, actor="bo")
    commits = graph.list_commits()
    assert [c.actor_id for c in commits] == ["bo", "ana", None, None]
    for child, parent in itertools.pairwise(commits):
        assert child.parent_commit_id == parent.graph_commit_id
    assert commits[-1].parent_commit_id is None


def test_c_bra_013_commits_of_two_handles_form_one_line(graph: og.Graph) -> None:
    other = og.open(graph.uri)
    for number in range(3):
        graph.mutate(ADD, {"n": f"a{number}"})
        other.mutate(ADD, {"n": f"b{number}"})
    commits = graph.list_commits()
    assert commits == other.list_commits()
    for child, parent in itertools.pairwise(commits):
        assert child.parent_commit_id == parent.graph_commit_id


def test_c_bra_014_a_pinned_snapshot_ignores_later_commits_and_a_new_read_sees_them(
    graph: og.Graph,
) -> None:
    pinned = graph.snapshot().graph_commit_id
    og.open(graph.uri).mutate(ADD, {"n": "later"})
    assert persons(graph, snapshot=pinned) == ["base"]
    assert persons(graph) == ["base", "later"]


def test_c_sto_011_a_reader_held_across_writes_keeps_its_data(graph: og.Graph) -> None:
    blocks = graph.export(types=["Person"])
    graph.mutate(ADD, {"n": "later"})
    assert b"later" not in b"".join(blocks)


def test_c_bra_015_every_version_of_an_entity_reads_as_it_was(graph: og.Graph) -> None:
    seen: list[tuple[str, object]] = []
    for value in (1, 2, 3, 4):
        receipt = graph.mutate(AGE, {"n": "base", "a": value})
        assert receipt.commit is not None
        seen.append((receipt.commit.graph_commit_id, value))
    for commit_id, age in seen:
        entity = graph.entity_at("node:Person", "base", snapshot=commit_id)
        assert entity is not None
        assert entity["age"] == age


def test_c_bra_015_filters_traversals_and_negations_are_right_at_every_version(
    graph: og.Graph,
) -> None:
    older = "query q { match { $p: Person  $p.age >= 2 } return { $p.name as name } }"
    known = "query q { match { $p: Person  $p knows $q } return { $q.name as name } }"
    alone = """query q {
        match { $p: Person  not { $p knows $_ } } return { $p.name as name } order { name }
    }"""
    steps: list[tuple[str, dict[str, object]]] = [
        (AGE, {"n": "base", "a": 1}),
        (AGE, {"n": "base", "a": 2}),
        (ADD, {"n": "next"}),
        (KNOWS, {"a": "base", "b": "next"}),
        ('query q { delete Person where name = "next" }', {}),
    ]
    commits = []
    for text, params in steps:
        receipt = graph.mutate(text, params)
        assert receipt.commit is not None
        commits.append(receipt.commit.graph_commit_id)

    def names(query: str, commit_id: str) -> list[object]:
        return [row["name"] for row in graph.query(query, snapshot=commit_id)]

    shown = [[names(query, commit) for query in (older, known, alone)] for commit in commits]
    assert shown == [
        [[], [], ["base"]],
        [["base"], [], ["base"]],
        [["base"], [], ["base", "next"]],
        [["base"], ["next"], ["next"]],
        [["base"], [], ["base"]],
    ]


def test_c_bra_016_an_unknown_commit_or_type_is_not_found(graph: og.Graph) -> None:
    with pytest.raises(NotFound):
        persons(graph, snapshot="01M7000000000000000000000X")
    with pytest.raises(NotFound, match="node:Nobody"):
        graph.entity_at("node:Nobody", "x")
    with pytest.raises(NotFound):
        graph.show_commit("01M7000000000000000000000X")


def test_c_bra_017_the_history_of_a_branch_is_its_own_after_the_fork(graph: og.Graph) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"n": "a"}, actor="main-actor")
    graph.mutate(ADD, {"n": "b"}, branch="review", actor="branch-actor")
    assert [c.actor_id for c in graph.list_commits("review")] == ["branch-actor", None, None]
    assert "branch-actor" not in [c.actor_id for c in graph.list_commits()]
    own = graph.list_commits("review")[0]
    assert own.graph_branch == "review"
    assert graph.show_commit(own.graph_commit_id) == own


def test_a_misspelt_branch_is_suggested(graph: og.Graph) -> None:
    graph.create_branch("review")
    with pytest.raises(NotFound) as missing:
        persons(graph, "reveiw")
    assert missing.value.hint == "did you mean `review`?"


def test_c_bra_048_export_and_overwrite_reproduce_a_branch_in_another_graph(
    graph: og.Graph, tmp_path: Path
) -> None:
    graph.create_branch("review")
    graph.mutate(KNOWS, {"a": "base", "b": "base"}, branch="review")
    graph.mutate(AGE, {"n": "base", "a": 9}, branch="review")
    exported = b"".join(graph.export(branch="review"))
    copy = og.init(tmp_path / "copy.omni", schema=graph.schema_source)
    copy.load(data=exported, mode="overwrite", grammar="strict")
    assert b"".join(copy.export()) == exported


def test_c_bra_011_the_loser_of_two_first_writes_is_prepared_again_or_told_to_retry(
    graph: og.Graph,
) -> None:
    graph.create_branch("review")
    other = og.open(graph.uri)
    done: list[bool] = []

    def write_first(_: Failpoint) -> None:
        if not done:
            done.append(True)
            other.mutate(ADD, {"n": "other"}, branch="review")

    with armed({Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: write_first}):
        graph.mutate(ADD, {"n": "mine"}, branch="review")
    assert persons(graph, "review") == ["base", "mine", "other"]
    graph.create_branch("strict")
    done.clear()

    def write_strict(_: Failpoint) -> None:
        if not done:
            done.append(True)
            other.mutate(ADD, {"n": "other"}, branch="strict")

    with (
        armed({Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: write_strict}),
        pytest.raises(Conflict) as lost,
    ):
        graph.mutate(AGE, {"n": "base", "a": 1}, branch="strict")
    assert "repeat the write" in (lost.value.hint or "")
    assert "cleanup" not in (lost.value.hint or "")
