"""Names of commits: ids and their beginnings, branches, steps back, times and tags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.effects.clock import Clock
from omnigraph.errors import (
    AlreadyExists,
    Conflict,
    HistoricalVersionReclaimed,
    InputError,
    NotFound,
    UnresolvedRevision,
)
from omnigraph.graph import Graph
from omnigraph.model.ids import Revision, check_new_tag_name, is_branch_name, on_branch

SCHEMA = "node Person { name: String @key } edge Knows: Person -> Person"
PEOPLE = "query q { match { $p: Person } return { $p.name } order { $p.name } }"


def add(graph: Graph, name: str, branch: str | None = None) -> str:
    commit = graph.mutate(
        "query q($n: String) { insert Person { name: $n } }", {"n": name}, branch=branch
    ).commit
    assert commit is not None
    return commit.graph_commit_id


def people(graph: Graph, snapshot: str | None = None, branch: str | None = None) -> str:
    rows = graph.query(PEOPLE, snapshot=snapshot, branch=branch).to_pylist()
    return "".join(row["p.name"] for row in rows)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Persons a, b, c on main, one a commit; x and y on `review`, which began at b."""
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    for name in "ab":
        add(graph, name)
    graph.create_branch("review")
    add(graph, "c")
    for name in "xy":
        add(graph, name, "review")
    return graph


# --- the text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("main", ("main", None, 0)),
        ("main~", ("main", None, 1)),
        ("agent/42~12", ("agent/42", None, 12)),
        ("v1.0~0", ("v1.0", None, 0)),
        ("main@1970-01-01T00:00:00.5Z", ("main", 599_999, 0)),
        ("main@1970-01-01 00:01~1", ("main", 119_999_999, 1)),
        ("main@1970-01-01T01:00:00+01:00", ("main", 999_999, 0)),
        ("main~x", ("main~x", None, 0)),
        ("main~1~1", ("main~1~1", None, 0)),
        ("main@yesterday", ("main@yesterday", None, 0)),
        ("main@2026-13-40T00:00:00Z", ("main@2026-13-40T00:00:00Z", None, 0)),
    ],
)
def test_a_revision_is_a_name_a_time_and_steps_back(text: str, parts: tuple[str, int, int]):
    assert Revision.parse(text) == parts


def test_head_and_times_are_those_of_a_branch():
    assert on_branch("HEAD", "review") == "review"
    assert on_branch("HEAD~3", "review") == "review~3"
    assert on_branch("2026-11-16T12:53:27Z~1", "main") == "main@2026-11-16T12:53:27Z~1"
    assert on_branch("HEADS", "review") == "HEADS"


@given(st.text(alphabet="019ABZvz._-/~@:T ", max_size=30))
def test_no_tag_can_be_mistaken_for_another_revision(name: str):
    try:
        check_new_tag_name(name)
    except (InputError, AlreadyExists):
        return
    assert is_branch_name(name) and on_branch(name, "main") == name
    parsed = Revision.parse(name)
    assert (parsed.name, parsed.until, parsed.steps, parsed.prefix) == (name, None, 0, None)


# --- resolving ------------------------------------------------------------------------------------


def test_every_form_finds_its_commit(graph: Graph):
    listed = [each.graph_commit_id for each in graph.list_commits()]
    review = [each.graph_commit_id for each in graph.list_commits("review")]
    graph.create_tag("v1", "HEAD~1")
    expected = {
        listed[0]: listed[0],
        listed[0].lower(): listed[0],
        "HEAD": listed[0],
        "main": listed[0],
        "main~1": listed[1],
        "HEAD~3": listed[3],
        "review": review[0],
        "review~1": review[1],
        "v1": listed[1],
        "v1~1": listed[2],
        f"{review[0]}~2": listed[1],
    }
    assert {each: graph.show_commit(each).graph_commit_id for each in expected} == expected
    assert graph.on_branch("review").show_commit("HEAD~1").graph_commit_id == review[1]


def test_a_unique_beginning_of_an_id_is_enough_and_another_lists_the_candidates(graph: Graph):
    ids = [each.graph_commit_id for each in [*graph.list_commits(), *graph.list_commits("review")]]
    for commit_id in set(ids):
        length = next(
            n for n in range(4, 27) if sum(each.startswith(commit_id[:n]) for each in set(ids)) == 1
        )
        assert graph.show_commit(commit_id[:length]).graph_commit_id == commit_id
        assert graph.show_commit(commit_id[:length].lower()).graph_commit_id == commit_id
    with pytest.raises(UnresolvedRevision, match="6 commits begin with") as ambiguous:
        graph.show_commit(ids[0][:4])
    assert ambiguous.value.details["reason"] == "ambiguous"
    assert ambiguous.value.details["candidates"] == sorted(set(ids), reverse=True)
    for unknown in (ids[0][:3], "7ZZZZZ", "nobody", "main~99", "main~x", "HEAD~1~1", "v1", "a b"):
        with pytest.raises(UnresolvedRevision) as told:
            graph.show_commit(unknown)
        assert told.value.details["reason"] == "unknown" and told.value.hint
    with pytest.raises(UnresolvedRevision, match="did you mean `review`") as near:
        graph.show_commit("reviw")
    assert near.value.details["candidates"] == ["review"]


def test_a_time_finds_the_newest_commit_that_is_not_later(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
):
    commits = {}
    for second in (10, 20, 30):
        now = 2_000_000_000_000_000 + second * 1_000_000 + 400_000
        monkeypatch.setattr(Clock, "wall_us", lambda self, now=now: now)
        commits[second] = add(graph, f"t{second}")
    day = "2033-05-18T03:33"
    for text, second in (
        (f"{day}:30Z", 10),  # the whole of that second
        (f"{day}:30.4Z", 10),
        (f"{day}:40.399999Z", 10),
        (f"{day}:40Z", 20),
        (f"{day}:49Z", 20),
        ("2033-05-18T05:33:50+02:00", 30),
        ("2033-05-18 03:33:50", 30),
        (f"{day}Z", 30),
        ("2100-01-01T00:00:00Z", 30),
    ):
        assert graph.show_commit(text).graph_commit_id == commits[second], text
    assert graph.show_commit(f"main@{day}:40Z~1").graph_commit_id == commits[10]
    review = graph.on_branch("review")
    head = graph.list_commits("review")[0].graph_commit_id
    assert review.show_commit("2100-01-01T00:00:00Z").graph_commit_id == head
    assert graph.show_commit("review@2100-01-01T00:00:00Z").graph_commit_id == head
    with pytest.raises(UnresolvedRevision, match="no commit as old"):
        graph.show_commit("1999-01-01T00:00:00Z")


@pytest.mark.parametrize("revision", ["HEAD~1", "main~1", "before-c", "main~2"])
def test_every_verb_that_takes_a_commit_takes_a_revision(
    graph: Graph, revision: str, tmp_path: Path
):
    graph.create_tag("before-c", "main~1")
    commit_id = graph.show_commit(revision).graph_commit_id
    shown = people(graph, revision)
    assert shown == ("ab" if revision != "main~2" else "a")
    result = graph.query(PEOPLE, snapshot=revision)
    assert result.graph_commit_id == commit_id and result.target.snapshot == commit_id
    assert [each["p.name"] for each in result.to_pylist()] == list(shown)
    assert len(graph.table("Person", snapshot=revision).to_arrow()) == len(shown)
    assert b"".join(graph.export(snapshot=revision)).count(b"\n") == len(shown)
    graph.export_to(tmp_path / "out", snapshot=revision)
    there = json.loads((tmp_path / "out" / "_export.json").read_text())
    assert there["graph_commit_id"] == commit_id
    assert graph.entity_at("node:Person", "c", snapshot=revision) is None
    diff = graph.diff(revision, "main", direct=True)
    assert len(list(diff.changes())) == 3 - len(shown)
    assert len(list(graph.commit_changes(revision))) == 1
    assert len(graph.commit_changes_page(revision).changes) == 1
    assert graph.plan_revert(revision).types[0].deleted == 1
    graph.create_branch("again", revision)
    assert people(graph, branch="again") == shown
    picked = graph.cherry_pick("HEAD", "again") if revision == "HEAD~1" else None
    assert picked is None or picked.commit is None or picked.of_commit_id != commit_id
    undone = graph.revert(revision)
    assert undone.of_commit_id == commit_id and undone.deleted == 1


# --- branches from older commits ------------------------------------------------------------------


def test_a_branch_from_an_older_commit_has_its_past_and_goes_its_own_way(graph: Graph):
    start = graph.show_commit("main~2").graph_commit_id
    graph.create_branch("old", "main~2")
    assert people(graph, branch="old") == "a"
    assert graph.list_commits("old") == graph.list_commits()[2:]
    add(graph, "z", "old")
    assert people(graph, branch="old") == "az" and people(graph) == "abc"
    assert graph.on_branch("old").show_commit("HEAD~1").graph_commit_id == start
    fresh = og.open(graph.uri)
    assert people(fresh, branch="old") == "az"
    assert fresh.diff("main", "old").before.commit_id == start
    fresh.merge_branch("old")
    assert people(fresh) == "abcz"
    add(fresh, "q", "old")
    assert people(fresh, branch="old") == "aqz"


def test_a_branch_from_before_a_change_of_schema_has_the_types_of_then(graph: Graph):
    renamed = """
    node Human @rename_from("Person") { name: String @key  age: I32? }
    edge Knows: Human -> Human
    node City { name: String @key }
    """
    graph.apply_schema(renamed)
    graph.mutate('query q { insert City { name: "oslo" } }')
    graph.create_branch("old", "main~2")
    old = graph.on_branch("old")
    assert people(graph, branch="old") == "abc"
    assert "Person" in old.schema_source and "City" not in old.schema_source
    add(graph, "d", "old")
    assert graph.snapshot("old").datasets[0].type_name != "Human"
    assert [each.type_name for each in graph.snapshot("old").datasets] == ["Knows", "Person"]
    graph.rebase_schema("old")
    graph.merge_branch("old")
    rows = graph.query("query q { match { $p: Human } return { $p.name } order { $p.name } }")
    assert [row["p.name"] for row in rows.to_pylist()] == list("abcd")


# --- tags -----------------------------------------------------------------------------------------


def test_tags_are_made_listed_and_deleted_and_share_their_names_with_branches(graph: Graph):
    made = graph.create_tag("v1", "HEAD~1", actor="ana")
    assert made.graph_commit_id == graph.show_commit("HEAD~1").graph_commit_id
    assert graph.create_tag("v1", "HEAD~1") == made  # asked again, nothing changes
    second = graph.create_tag("release/2", branch="review")
    assert second.graph_branch == "review"
    for name, refused in (
        ("v1", AlreadyExists),
        ("review", AlreadyExists),
        ("main", InputError),
        ("HEAD", InputError),
        ("2026", InputError),
        ("01KDEAD", InputError),
        ("a b", InputError),
        ("x~1", InputError),
        ("", InputError),
    ):
        with pytest.raises(refused):
            graph.create_tag(name)
    for name in ("v1", "HEAD"):
        with pytest.raises((AlreadyExists, InputError)):
            graph.create_branch(name)
    assert og.open(graph.uri).list_tags() == [second, made]
    assert graph.delete_tag("v1") == made
    with pytest.raises(NotFound, match="no tag `v1`"):
        graph.delete_tag("v1")
    graph.create_branch("v1")
    assert [each.name for each in graph.list_tags()] == ["release/2"]


def test_cleanup_keeps_what_a_tag_names_and_takes_it_when_the_tag_is_gone(graph: Graph):
    graph.delete_branch("review")
    graph.create_tag("before", "HEAD~2")
    graph.cleanup(keep=1, confirm=True)
    assert people(graph, "before") == "a"
    with pytest.raises(HistoricalVersionReclaimed):
        people(graph, "HEAD~1")
    with pytest.raises(HistoricalVersionReclaimed):
        graph.create_tag("too-late", "HEAD~1")
    with pytest.raises(HistoricalVersionReclaimed):
        graph.create_branch("too-late", "HEAD~1")
    assert graph.list_branches() == ["main"] and len(graph.list_tags()) == 1
    graph.delete_tag("before")
    graph.cleanup(keep=1, confirm=True)
    with pytest.raises(HistoricalVersionReclaimed):
        people(og.open(graph.uri), "HEAD~2")


def test_a_branch_stays_while_a_tag_names_a_commit_that_only_it_has(graph: Graph):
    graph.create_tag("reviewed", "review~1")
    with pytest.raises(Conflict, match="tag `reviewed`"):
        graph.delete_branch("review")
    merged = graph.merge_branch("review", delete_branch=True)
    assert merged.branch_deleted is False and "reviewed" in (merged.branch_delete_error or "")
    assert people(graph, "reviewed") == "abx"
    graph.delete_tag("reviewed")
    graph.create_tag("shared", "review~2")  # main has it as well
    graph.delete_branch("review")
    assert people(graph, "shared") == "ab"


def test_data_is_not_dropped_for_good_while_tags_keep_it(graph: Graph):
    graph.delete_branch("review")
    graph.create_tag("v1")
    with pytest.raises(Conflict, match="found tags: v1"):
        graph.apply_schema("node Person { name: String @key }", allow_data_loss=True)
    graph.delete_tag("v1")
    graph.apply_schema("node Person { name: String @key }", allow_data_loss=True)
