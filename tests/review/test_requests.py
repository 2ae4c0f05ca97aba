"""Change requests: their events, the state that follows from them, and merging them."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.effects.clock import MINT, ulid_at
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import (
    InputError,
    MergeConflicts,
    NotFound,
    OmnigraphError,
    ReadSetChanged,
    ReviewBlocked,
)
from omnigraph.model.reviews import Review, ReviewEvent
from omnigraph.review.events import EventAuthor, Events, fold
from tests.support.forked import Command
from tests.support.templates import copy_of, place_in

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
ADD = "query add($name: String) { insert Person { name: $name } }"
CALLER = EventAuthor("act-bo")
AGE = "query age($name: String, $age: I32) { update Person set { age: $age } where name = $name }"


def made(root: Path) -> None:
    """A branch `feature` that has one person more than main."""
    graph = og.init(root, schema=SCHEMA)
    graph.mutate(ADD, {"name": "ada"})
    graph.create_branch("feature")
    graph.mutate(ADD, {"name": "bo"}, branch="feature")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    root = place_in(tmp_path)
    copy_of(made, root)
    return og.open(root)


def opened(graph: og.Graph) -> Review:
    return graph.reviews.open("feature", title="New people", actor="act-ana")


def names(graph: og.Graph, branch: str = "main") -> list[str]:
    found = graph.query("query q { match { $p: Person } return { $p.name } }", branch=branch)
    return sorted(row["p.name"] for row in found.to_pylist())


def once(action: Callable[[], object]) -> Callable[[Failpoint], None]:
    done: list[Failpoint] = []

    def act(point: Failpoint) -> None:
        if not done:
            done.append(point)
            action()

    return act


# --- events ---------------------------------------------------------------------------------------


def test_c_rev_004_what_is_said_about_a_request_survives_a_reopen(graph: og.Graph):
    review = opened(graph)
    assert (review.state, review.author, review.mergeable) == ("open", "act-ana", "clean")
    graph.reviews.edit(review.id, description="from the registry", actor="act-ana")
    about = {"type_name": "Person", "entity_id": "bo", "property_name": "age"}
    said = graph.reviews.comment(review.id, "how old?", **about, actor="act-bo")
    answered = graph.reviews.comment(
        review.id, "unknown", reply_to=said.comments[0].id, actor="act-ana"
    )
    assert [each.resolved for each in answered.comments] == [False, False]
    graph.reviews.resolve(review.id, answered.comments[1].id, actor="act-bo")
    graph.reviews.review(review.id, "request_changes", text="age?", actor="act-bo")
    graph.reviews.review(review.id, "approve", actor="act-bo")
    graph.reviews.close(review.id, actor="act-ana")
    assert len(graph.reviews.list()) == 0
    graph.reviews.reopen(review.id, actor="act-ana")

    again = og.open(graph.uri, mode="read_only")
    (listed,) = again.reviews.list()
    assert (listed.id, listed.comment_count, listed.state) == (review.id, 2, "open")
    found = again.reviews.get(review.id[:17])
    assert found.description == "from the registry"
    assert [each.place for each in found.comments] == ["Person:bo.age", None]
    assert all(each.resolved for each in found.comments)
    assert [(each.actor_id, each.verdict) for each in found.reviews] == [("act-bo", "approved")]
    assert found.approvers == ("act-bo",)
    assert "New people" in found._repr_html_() and "act-bo" in found._repr_html_()
    kinds = [event.kind for event in again.reviews.export()]
    assert kinds[0] == "opened" and kinds[-2:] == ["closed", "reopened"] and len(kinds) == 9
    with pytest.raises(InputError, match="opened for writing"):
        again.reviews.comment(review.id, "x")


def test_a_repeated_operation_adds_nothing(graph: og.Graph):
    first = graph.reviews.open("feature", actor="act-ana", operation_id="open-1")
    assert graph.reviews.open("feature", actor="act-ana", operation_id="open-1").id == first.id
    for _ in range(2):
        found = graph.reviews.comment(first.id, "once", actor="act-bo", operation_id="say-1")
        assert len(found.comments) == 1
    merged = graph.reviews.merge(first.id, actor="act-ana", operation_id="merge-1")
    assert graph.reviews.merge(first.id, actor="act-ana", operation_id="merge-1") == merged


def test_bad_input_adds_no_event(graph: og.Graph):
    review = opened(graph)
    before = len(list(graph.reviews.export()))
    refused: list[Callable[[], object]] = [
        lambda: graph.reviews.open("feature", title=" "),
        lambda: graph.reviews.open("feature", title="x" * 201),
        lambda: graph.reviews.open("feature", title="two\nlines"),
        lambda: graph.reviews.open("feature", "feature"),
        lambda: graph.reviews.open("absent"),
        lambda: graph.reviews.comment(review.id, ""),
        lambda: graph.reviews.comment(review.id, "x" * 10_000_000),
        lambda: graph.reviews.comment(review.id, "x", type_name="Nobody"),
        lambda: graph.reviews.comment(review.id, "x", type_name="Person", property_name="agee"),
        lambda: graph.reviews.comment(review.id, "x", entity_id="bo"),
        lambda: graph.reviews.comment(review.id, "x", reply_to=MINT.ulid()),
        lambda: graph.reviews.review(review.id, "maybe"),  # type: ignore[arg-type]
        lambda: graph.reviews.review(review.id, "approve", head=MINT.ulid()),
        lambda: graph.reviews.get("cr-' OR 1=1 --"),
        lambda: graph.reviews.get(f"cr-{MINT.ulid()}"),
        lambda: graph.reviews.list(state="new"),  # type: ignore[arg-type]
        lambda: graph.reviews.list(limit=0),
    ]
    for attempt in refused:
        with pytest.raises((InputError, NotFound)):
            attempt()
    graph.create_branch("empty")
    with pytest.raises(InputError, match="nothing to review"):
        graph.reviews.open("empty")
    assert len(list(graph.reviews.export())) == before


def test_texts_are_kept_as_they_are(graph: og.Graph):
    text = "<script>alert('x')</script> \u202eright to left \U0001f600 \"quoted\" ' -- \\"
    review = graph.reviews.open("feature", title="<b>x</b>", description=text)
    found = graph.reviews.comment(review.id, text)
    assert (found.description, found.comments[0].text) == (text, text)
    assert "<script>" not in found._repr_html_() and "<b>x" not in found._repr_html_()


def test_an_id_that_begins_several_requests_names_them(graph: og.Graph):
    both = [opened(graph).id, opened(graph).id]
    with pytest.raises(InputError) as refused:
        graph.reviews.get(both[0][:6])
    assert refused.value.hint is not None and all(id in refused.value.hint for id in both)


def test_a_list_is_cut_into_pages_newest_first(graph: og.Graph):
    ids = [opened(graph).id for _ in range(5)]
    page = graph.reviews.list(limit=2)
    seen = [each.id for each in page]
    while page.next_page_token is not None:
        page = graph.reviews.list(limit=2, page_token=page.next_page_token)
        seen += [each.id for each in page]
    assert seen == ids[::-1]


# --- merging --------------------------------------------------------------------------------------


def test_c_rev_010_the_merge_commit_names_the_request_its_title_and_who_approved(
    graph: og.Graph,
):
    review = opened(graph)
    graph.reviews.review(review.id, "approve", actor="act-ana")  # the author's own
    graph.reviews.review(review.id, "approve", actor="act-bo")
    merged = graph.reviews.merge(review.id, actor="act-cy", message="as agreed", delete_branch=True)
    assert merged.merge.branch_deleted
    assert merged.merge.commit is not None
    commit = og.open(graph.uri).show_commit(merged.merge.commit.graph_commit_id)
    assert commit.change_request is not None
    assert commit.change_request.to_dict() == {
        "id": review.id,
        "title": "New people",
        "approvers": ["act-bo"],
    }
    assert (commit.message, commit.actor_id) == ("as agreed", "act-cy")
    found = graph.reviews.get(review.id)
    assert (found.state, found.merge_commit_id) == ("merged", commit.graph_commit_id)
    assert [change.id for change in graph.reviews.diff(review.id).changes()] == ["bo"]
    assert names(graph) == ["ada", "bo"]
    for attempt in (graph.reviews.merge, graph.reviews.close, graph.reviews.reopen):
        with pytest.raises(ReviewBlocked, match="it is merged"):
            attempt(review.id)


def test_conflicts_refuse_a_merge_and_are_shown_before(graph: og.Graph):
    graph.mutate(AGE, {"name": "ada", "age": 1})
    graph.mutate(AGE, {"name": "ada", "age": 2}, branch="feature")
    review = opened(graph)
    assert review.mergeable == "conflicts"
    assert [reason.code for reason in review.reasons] == ["conflicts"]
    with pytest.raises(MergeConflicts):
        graph.reviews.merge(review.id)
    assert graph.reviews.get(review.id).state == "open"
    graph.reviews.merge(review.id, on_conflict="source")
    assert graph.reviews.get(review.id).state == "merged"


CAPTURED = Failpoint.BRANCH_MERGE_POST_AUTHORITY_CAPTURE
STAGED = Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE


@pytest.mark.parametrize("point", [CAPTURED, STAGED])
def test_c_rev_007_a_source_that_moves_during_the_merge_refuses_it(
    graph: og.Graph, point: Failpoint
):
    review = opened(graph)
    graph.reviews.review(review.id, "approve", actor="act-bo")
    other = og.open(graph.uri)
    late = once(lambda: other.mutate(ADD, {"name": "late"}, branch="feature"))
    head = graph.list_commits()[0]
    with armed({point: late}), pytest.raises(ReadSetChanged) as refused:
        graph.reviews.merge(review.id)
    assert refused.value.details["member"] == "source_head"
    assert refused.value.details["expected"] == review.source_commit_id
    assert graph.list_commits()[0] == head and names(graph) == ["ada"]
    found = graph.reviews.get(review.id)
    assert found.state == "open" and found.reviews[0].stale


def test_c_rev_007_a_source_that_was_made_again_during_the_merge_refuses_it(graph: og.Graph):
    review = opened(graph)
    other = og.open(graph.uri)

    def again() -> None:
        other.delete_branch("feature")
        other.create_branch("feature")
        other.mutate(ADD, {"name": "foreign"}, branch="feature")

    with armed({STAGED: once(again)}), pytest.raises(ReadSetChanged):
        graph.reviews.merge(review.id)
    assert names(graph) == ["ada"]
    assert graph.reviews.get(review.id).state == "closed"


def test_c_rev_007_a_request_that_is_closed_during_the_merge_is_not_merged(graph: og.Graph):
    review = opened(graph)
    other = og.open(graph.uri)
    with (
        armed({STAGED: once(lambda: other.reviews.close(review.id))}),
        pytest.raises(ReviewBlocked, match="it was closed"),
    ):
        graph.reviews.merge(review.id)
    assert names(graph) == ["ada"]


def test_c_rev_007_of_two_reviewers_who_merge_at_once_one_is_told_that_it_is_done(
    graph: og.Graph,
):
    review = opened(graph)
    other = og.open(graph.uri)
    merged = []
    faster = once(lambda: merged.append(other.reviews.merge(review.id, actor="act-bo")))
    with armed({STAGED: faster}), pytest.raises(ReviewBlocked) as refused:
        graph.reviews.merge(review.id, actor="act-cy")
    commit = merged[0].merge.commit
    assert commit is not None
    assert f"it is merged, as commit {commit.graph_commit_id}" in refused.value.message
    assert refused.value.details["reasons"][0]["code"] == "not_open"
    assert f"omnigraph review show {review.id}" in (refused.value.hint or "")
    assert [each.kind for each in graph.list_commits()].count("merge") == 1


# --- hostile input --------------------------------------------------------------------------------

HUGE = "x" * 10_000_000


def test_huge_texts_are_refused_by_name_and_repeated_in_no_message(graph: og.Graph):
    review = opened(graph)
    said = graph.reviews.comment(review.id, "x")
    reviews = graph.reviews
    before = len(list(reviews.export()))
    for attempt in (
        lambda: reviews.open(HUGE),
        lambda: reviews.open("feature", HUGE),
        lambda: reviews.open("feature", title=HUGE),
        lambda: reviews.open("feature", description=HUGE),
        lambda: reviews.edit(review.id, title=HUGE),
        lambda: reviews.comment(review.id, HUGE),
        lambda: reviews.comment(review.id, "x", reply_to=HUGE),
        lambda: reviews.comment(review.id, "x", type_name=HUGE),
        lambda: reviews.comment(review.id, "x", type_name="Person", property_name=HUGE),
        lambda: reviews.comment(review.id, "x", type_name="Person", entity_id=HUGE),
        lambda: reviews.comment(review.id, "x", operation_id=HUGE),
        lambda: reviews.resolve(review.id, HUGE),
        lambda: reviews.review(review.id, "approve", text=HUGE),
        lambda: reviews.review(review.id, HUGE),  # type: ignore[arg-type]
        lambda: reviews.review(review.id, "approve", head=HUGE),
        lambda: reviews.report_check(review.id, HUGE, "passed"),
        lambda: reviews.get(HUGE),
    ):
        with pytest.raises((InputError, NotFound)) as refused:
            attempt()
        assert len(str(refused.value)) < 2_000
        assert len(str(refused.value.details)) < 2_000
    assert len(list(reviews.export())) == before
    rows = [{"text": HUGE, HUGE: 1}] * 200
    reported = reviews.report_check(review.id, "lint", "failed", rows=rows)
    kept = reported.checks[0].rows
    assert 0 < len(kept) <= 100 and sum(len(str(row)) for row in kept) <= 256 * 1024
    assert said.comments[0].text == "x"


@pytest.mark.parametrize(
    "name",
    ["../main", "a/../b", "<script>alert(1)</script>", "a b", "a\nb", "a\x00b", "\u202egnp.exe",
     "😀", "main'; drop", "a//b", "", "/", "-" * 300, "gb-01k3z7m0q8w4r6t2y5v9b1n3xc/%2e%2e"],
)  # fmt: skip
def test_hostile_branch_names_are_refused_or_not_found(graph: og.Graph, name: str):
    for ends in ((name, None), ("feature", name)):
        if ends[1] == "":
            continue  # main
        with pytest.raises((InputError, NotFound)):
            graph.reviews.open(*ends)
    assert len(graph.reviews.list(state=None)) == 0


# --- derived state --------------------------------------------------------------------------------


def test_c_rev_011_a_merge_by_hand_merges_the_request(graph: og.Graph):
    review = opened(graph)
    receipt = graph.merge_branch("feature", delete_branch=True)
    assert receipt.commit is not None
    found = graph.reviews.get(review.id)
    assert (found.state, found.merge_commit_id) == ("merged", receipt.commit.graph_commit_id)
    assert len(graph.reviews.list()) == 0
    assert [each.state for each in graph.reviews.list(state="merged")] == ["merged"]


def test_c_rev_011_content_that_came_by_another_branch_merges_the_request(graph: og.Graph):
    review = opened(graph)
    graph.create_branch("train")
    graph.merge_branch("feature", "train")
    assert graph.reviews.get(review.id).state == "open"
    graph.merge_branch("train")
    assert graph.reviews.get(review.id).state == "merged"


def test_c_rev_011_a_merged_request_stays_merged_when_its_source_goes_on(graph: og.Graph):
    review = opened(graph)
    graph.merge_branch("feature")
    graph.mutate(ADD, {"name": "cy"}, branch="feature")
    assert graph.reviews.get(review.id).state == "merged"
    second = opened(graph)
    assert graph.reviews.get(second.id).state == "open"


def test_c_rev_011_a_deleted_source_closes_and_its_name_does_not_revive(graph: og.Graph):
    review = opened(graph)
    graph.delete_branch("feature")
    found = graph.reviews.get(review.id)
    assert (found.state, found.closed_because) == ("closed", "branch feature is gone")
    assert found.source_commit_id == review.source_commit_id
    graph.create_branch("feature")
    graph.mutate(ADD, {"name": "cy"}, branch="feature")
    assert graph.reviews.get(review.id).state == "closed"
    with pytest.raises(ReviewBlocked, match="branch feature is gone"):
        graph.reviews.reopen(review.id)
    graph.merge_branch("feature")
    assert graph.reviews.get(review.id).state == "closed"


@pytest.mark.parametrize(
    "point",
    [
        CAPTURED,
        STAGED,
        Failpoint.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
    ],
)
def test_c_rev_005_a_merge_that_fails_at_any_step_leaves_state_and_commit_in_agreement(
    graph: og.Graph, point: Failpoint
):
    review = opened(graph)
    with armed({point: "error"}), suppress(OmnigraphError):
        graph.reviews.merge(review.id, actor="act-ana")
    again = og.open(graph.uri)
    marked = [
        commit.graph_commit_id
        for commit in again.list_commits()
        if commit.change_request is not None and commit.change_request.id == review.id
    ]
    found = again.reviews.get(review.id)
    assert (found.state == "merged") == bool(marked)
    assert ("bo" in names(again)) == bool(marked)
    assert found.merge_commit_id == (marked[0] if marked else None)


def test_c_rev_005_events_alone_never_merge_a_request(graph: og.Graph):
    review = opened(graph)
    verbs: list[Callable[[], object]] = [
        lambda: graph.reviews.review(review.id, "approve", actor="act-bo"),
        lambda: graph.reviews.close(review.id),
        lambda: graph.reviews.reopen(review.id),
        lambda: graph.reviews.comment(review.id, "merged"),
        lambda: graph.reviews.report_check(review.id, "lint", "passed"),
    ]
    chosen = random.Random(7)
    for _ in range(12):
        try:
            chosen.choice(verbs)()
        except ReviewBlocked:
            continue
        assert graph.reviews.get(review.id).state in ("open", "closed")
        assert all(commit.change_request is None for commit in graph.list_commits())


# --- staleness ------------------------------------------------------------------------------------


def test_c_rev_006_a_review_goes_stale_when_the_content_of_the_source_moves(graph: og.Graph):
    review = opened(graph)
    graph.reviews.review(review.id, "approve", actor="act-bo")
    graph.reviews.report_check(review.id, "lint", "passed", actor="act-ci")
    graph.mutate(ADD, {"name": "cy"}, branch="feature")
    found = graph.reviews.get(review.id)
    assert [each.stale for each in found.reviews] == [True]
    assert [each.stale for each in found.checks] == [True]
    assert found.approvers == ()
    graph.reviews.review(review.id, "approve", actor="act-bo")
    assert graph.reviews.get(review.id).approvers == ("act-bo",)


def test_c_rev_006_upkeep_and_the_target_make_no_review_stale(graph: og.Graph):
    review = opened(graph)
    graph.reviews.review(review.id, "approve", actor="act-bo")
    graph.mutate(ADD, {"name": "meanwhile"})
    graph.optimize()
    graph.ensure_indices("feature")
    assert not graph.reviews.get(review.id).reviews[0].stale
    # The target merged into the source shows the same changes.
    graph.merge_branch("main", "feature")
    found = graph.reviews.get(review.id)
    assert found.source_commit_id != review.source_commit_id
    assert not found.reviews[0].stale
    # What was changed back is as if it had not been changed.
    graph.mutate(AGE, {"name": "bo", "age": 9}, branch="feature")
    assert graph.reviews.get(review.id).reviews[0].stale
    graph.revert(graph.list_commits("feature")[0].graph_commit_id, branch="feature")
    assert not graph.reviews.get(review.id).reviews[0].stale
    assert graph.reviews.merge(review.id).approvers == ("act-bo",)


def test_a_review_is_for_the_head_that_was_looked_at(graph: og.Graph):
    review = opened(graph)
    graph.mutate(ADD, {"name": "cy"}, branch="feature")
    found = graph.reviews.review(review.id, "approve", head=review.source_commit_id, actor="act-bo")
    assert found.reviews[0].stale and found.approvers == ()


# --- checks ---------------------------------------------------------------------------------------

CHECKS = """
checks:
  - name: no_one_called_bo
    query: called
    params: { name: bo }
    expect: empty
  - name: enough
    query: everyone
    expect: { min: 2 }
  - name: impossible
    query: absent
  - name: writes
    query: grow
  - name: endless
    query: everyone
    timeout_seconds: 0.000000001
    expect: { min: 0 }
"""
QUERIES = """
query called($name: String) { match { $p: Person { name: $name } } return { $p.name } }
query everyone { match { $p: Person } return { $p.name } }
query grow { insert Person { name: "x" } }
"""


def test_c_rev_012_checks_run_once_per_head_and_say_why_they_failed(
    graph: og.Graph, tmp_path: Path
):
    queries = tmp_path / "queries"
    queries.mkdir()
    (queries / "checks.yaml").write_text(CHECKS)
    (queries / "all.gq").write_text(QUERIES)
    review = opened(graph)
    found = graph.reviews.check(review.id, checks=queries, actor="act-ci")
    results = {each.name: each for each in found.checks}
    assert {name: each.state for name, each in results.items()} == {
        "no_one_called_bo": "failed",
        "enough": "passed",
        "impossible": "failed",
        "writes": "failed",
        "endless": "failed",
    }
    failed = results["no_one_called_bo"]
    assert failed.text == "`called` returned 1 row, expected none"
    assert failed.rows == ({"p.name": "bo"},)
    assert failed.graph_commit_id == review.source_commit_id
    assert "no query `absent`" in (results["impossible"].text or "")
    assert "time" in (results["endless"].text or "") or "deadline" in (
        results["endless"].text or ""
    )
    events = len(list(graph.reviews.export()))
    graph.reviews.check(review.id, checks=queries / "checks.yaml")
    assert len(list(graph.reviews.export())) == events
    graph.reviews.check(review.id, checks=queries, again=True)
    assert len(list(graph.reviews.export())) == events + 5
    graph.mutate(ADD, {"name": "cy"}, branch="feature")
    again = graph.reviews.check(review.id, checks=queries)
    assert not any(each.stale for each in again.checks)
    assert names(graph, "feature") == ["ada", "bo", "cy"]


def test_c_rev_012_checks_of_a_pipeline_file_are_run(graph: og.Graph, tmp_path: Path):
    (tmp_path / "one.gq").write_text(
        "query count { match { $p: Person } return { count(*) as n } }"
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "version: 1\nname: people\nsources: { people: { path: people.csv } }\nchecks:\n"
        "  - { name: two, file: one.gq, expect: value(2) }\n"
        "  - { name: three, file: one.gq, query: count, expect: value(3) }\n"
        "  - { name: some, file: one.gq, expect: nonempty }\n"
        "  - { name: gone, file: none.gq, expect: rows(1) }\n"
    )
    found = graph.reviews.check(opened(graph).id, checks=file)
    results = {each.name: (each.state, each.text) for each in found.checks}
    assert results == {
        "gone": ("failed", "the query of `gone` cannot be read: no such file or directory"),
        "two": ("passed", "`one.gq` returned 1 row"),
        "three": ("failed", "`count` returned 1 row, expected one row with 3"),
        "some": ("passed", "`one.gq` returned 1 row"),
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("checks:\n  - name: a\n", "needs the key `query`"),
        ("checks:\n  - { name: a, query: q, expects: empty }\n", "unknown key"),
        ("checks:\n  - { name: a, query: q, expect: full }\n", "`full` is no expectation"),
        ("checks:\n  - { name: a, query: q, expect: { min: -1 } }\n", "a number of rows"),
        ("checks:\n  - { name: a, query: q }\n  - { name: a, query: q }\n", "two checks"),
        ("checks:\n  - { name: a, query: q, timeout_seconds: 0 }\n", "a positive number"),
    ],
)
def test_a_bad_checks_file_is_refused_with_its_place(
    graph: og.Graph, tmp_path: Path, text: str, problem: str
):
    file = tmp_path / "checks.yaml"
    file.write_text(text)
    review = opened(graph)
    with pytest.raises(InputError, match=problem) as refused:
        graph.reviews.check(review.id, checks=file)
    assert f"{file}:" in refused.value.message


# --- several at once ------------------------------------------------------------------------------


def test_c_rev_013_reviewers_and_a_writer_at_once_as_processes_lose_no_event(graph: og.Graph):
    review = opened(graph)
    common = ("--uri", graph.uri, "--quiet")
    rounds = 4
    commands = []
    for n in range(rounds):
        for who in ("act-bo", "act-cy"):
            text = f"{who} {n}"
            commands.append(Command("review", "comment", review.id, text, *common, "--as", who))
        query = f'query q {{ insert Person {{ name: "w{n}" }} }}'
        commands.append(
            Command("mutate", "--store", graph.uri, "-e", query, "--branch", "feature", "--quiet")
        )
        commands.append(Command("review", "approve", review.id, *common, "--as", f"act-r{n}"))
    for command in commands:
        out, err = command.communicate()
        assert command.returncode == 0, (out, err)
    events = list(og.open(graph.uri).reviews.export())
    assert len(events) == 1 + rounds * 3
    said = sorted(e.body["text"] for e in events if e.kind == "commented")
    assert said == sorted(f"{who} {n}" for who in ("act-bo", "act-cy") for n in range(rounds))
    expected = fold(events)
    for seed in range(5):
        shuffled = [*events, events[seed]]
        random.Random(seed).shuffle(shuffled)
        assert fold(shuffled) == expected


def test_c_rev_013_events_that_follow_one_of_a_clock_ahead_have_ids_of_their_own(graph: og.Graph):
    ahead = ulid_at(5_000_000_000_000)
    events = Events(graph._kernel)
    followers = [
        events.append("commented", "cr-1", EventAuthor("act-bo"), {"text": str(n)}, ahead)
        for n in range(3)
    ]
    assert all(each.event_id > ahead for each in followers)
    assert {each.event_id for each in events.of_request("cr-1")} == {
        each.event_id for each in followers
    }
    assert len({each.event_id for each in followers}) == 3


def test_c_rev_013_threads_that_append_and_compact_lose_no_event(graph: og.Graph):
    review = opened(graph)
    failures: list[BaseException] = []

    def say(who: int) -> None:
        try:
            own = og.open(graph.uri)
            for n in range(6):
                own.reviews._requests.events.append(
                    "commented", review.id, CALLER, {"text": f"{who}-{n}"}
                )
                if n % 3 == who % 3:
                    own.reviews._requests.events.compact()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=say, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(graph.reviews.get(review.id).comments) == 18


KINDS = st.sampled_from(
    ["commented", "resolved", "reviewed", "check_reported", "closed", "reopened"]
)


@given(
    st.lists(st.tuples(KINDS, st.sampled_from(["a", "b", None]), st.integers(0, 3)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_c_rev_013_the_fold_is_the_same_in_every_order_of_arrival(
    steps: list[tuple[str, str | None, int]], order: random.Random
):
    request = f"cr-{MINT.ulid()}"
    events = [_event(request, "opened", "a", 0)]
    events += [_event(request, kind, actor, n, events) for kind, actor, n in steps]
    shuffled = [*events, *events[: len(events) // 2]]
    order.shuffle(shuffled)
    assert fold(shuffled) == fold(events)
    folded = fold(events)[request]
    closing = [kind for kind, _, _ in steps if kind in ("closed", "reopened")]
    assert folded.outline.is_closed == (closing[-1:] == ["closed"])
    verdicts = {actor: n % 2 for kind, actor, n in steps if kind == "reviewed"}
    assert {v.actor_id: int(v.outcome == "approved") for v in folded.verdicts} == verdicts


def _event(
    request: str, kind: str, actor: str | None, n: int, before: list[ReviewEvent] | None = None
) -> ReviewEvent:
    comments = [each.event_id for each in before or [] if each.kind == "commented"]
    bodies: dict[str, dict[str, object]] = {
        "opened": {
            "title": "t",
            "source": "s",
            "target": "main",
            "source_commit_id": "h0",
            "target_commit_id": "m0",
        },
        "commented": {"text": str(n)},
        "resolved": {
            "comment_id": comments[n % len(comments)] if comments else "",
            "resolved": n > 0,
        },
        "reviewed": {
            "verdict": "approved" if n % 2 else "changes_requested",
            "source_commit_id": f"h{n}",
        },
        "check_reported": {"name": f"c{n}", "state": "passed", "source_commit_id": "h"},
        "closed": {},
        "reopened": {},
    }
    return ReviewEvent(MINT.ulid(), request, kind, actor, n, bodies[kind])  # type: ignore[arg-type]


# --- upkeep ---------------------------------------------------------------------------------------


def test_c_rev_016_cleanup_keeps_the_diffs_of_open_requests_readable(graph: og.Graph):
    review = opened(graph)
    graph.reviews.review(review.id, "approve", actor="act-bo")
    before = graph.reviews.diff(review.id).to_dict(images=True)
    for n in range(4):
        graph.mutate(ADD, {"name": f"m{n}"})
        graph.mutate(AGE, {"name": "ada", "age": n})
    graph.optimize()
    graph.cleanup(keep=1, confirm=True)
    again = og.open(graph.uri)
    assert again.reviews.diff(review.id).to_dict(images=True) == before
    found = again.reviews.get(review.id)
    assert not found.reviews[0].stale and found.mergeable == "clean"
    again.reviews.merge(review.id)
    assert "bo" in names(again)


def test_reviews_are_in_no_export_and_no_change_feed(graph: og.Graph):
    start = graph.poll_changes().cursor
    exported = b"".join(graph.export())
    review = opened(graph)
    graph.reviews.comment(review.id, "secret")
    assert b"".join(graph.export()) == exported
    assert graph.poll_changes(cursor=start).blocks == ()
    lines = [json.dumps(event.to_dict()) for event in graph.reviews.export()]
    assert "secret" in lines[1]
