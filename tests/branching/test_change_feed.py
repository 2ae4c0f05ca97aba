"""The change feed: where it starts, what a page ends with, and how it goes on."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.errors import (
    ChangeCursorRejected,
    ChangeDiffRefused,
    ChangeFeedGap,
    InputError,
    LimitExceeded,
    NotFound,
)
from tests.branching.feeds import Replica, head, listed, pages, polled
from tests.branching.histories import (
    SCHEMA,
    city,
    content,
    delete,
    edge,
    lines,
    load,
    person,
    seeded,
)


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return seeded(tmp_path / "graph.omni")


def now(graph: og.Graph, branch: str = "main", **wanted: object) -> str:
    page = graph.poll_changes(branch, **wanted)  # type: ignore[arg-type]
    assert page.cursor is not None
    return page.cursor


# --- start modes ----------------------------------------------------------------------------------


def test_c_bra_040_now_is_the_default_and_replays_nothing(graph: og.Graph) -> None:
    for page in (graph.poll_changes(), graph.poll_changes(start="now")):
        assert page.blocks == ()
        assert page.caught_up is True
        assert page.next_page_token is None
    load(graph, person("new"))
    page = graph.poll_changes(cursor=page.cursor)
    assert [block.cause.graph_commit_id for block in page.blocks] == [head(graph)]
    assert listed(page.blocks[0].changes) == [("insert", "Person", "new")]


def test_c_bra_040_the_beginning_has_every_commit_after_the_first(graph: og.Graph) -> None:
    load(graph, person("p1", age=50))
    delete(graph, "City", "oslo")
    commits = [commit.graph_commit_id for commit in graph.list_commits()]
    page = graph.poll_changes(start="beginning")
    assert [block.cause.graph_commit_id for block in page.blocks] == commits[::-1][1:]
    assert [block.to_dict() for block in page.blocks] == [
        graph.commit_changes(commit).to_dict() for commit in commits[::-1][1:]
    ]
    assert page.caught_up is True


def test_c_bra_040_a_branch_inherits_history_with_its_causes_unchanged(graph: og.Graph) -> None:
    graph.load(data=lines([person("m1")]), mode="merge", actor="act-main")
    graph.create_branch("review")
    load(graph, person("on-main"))
    graph.load(data=lines([person("r1")]), mode="merge", branch="review", actor="act-review")
    blocks, _ = polled(graph, "review", start="beginning")
    assert [(b.cause.authored_branch, b.cause.actor_id) for b in blocks] == [
        ("main", None),
        ("main", "act-main"),
        ("review", "act-review"),
    ]
    on_main, _ = polled(graph, start="beginning")
    assert [b.to_dict() for b in on_main[:2]] == [b.to_dict() for b in blocks[:2]]
    assert "r1" not in {c.id for b in on_main for c in b.changes}


def test_c_bra_040_after_a_commit_of_the_line(graph: og.Graph) -> None:
    middle = head(graph)
    load(graph, person("a"))
    graph.create_branch("review")
    load(graph, person("r"), branch="review")
    blocks, _ = polled(graph, start=f"after:{middle.lower()}")
    assert [listed(b.changes) for b in blocks] == [[("insert", "Person", "a")]]
    with pytest.raises(ChangeCursorRejected, match="not in the history of branch `main`"):
        graph.poll_changes(start=f"after:{head(graph, 'review')}")
    graph.merge_branch("review")
    with pytest.raises(ChangeCursorRejected, match="not in the history"):
        graph.poll_changes(start=f"after:{graph.list_commits()[0].merged_parent_commit_id}")


def test_c_bra_040_places_exclude_each_other_and_have_to_be_known(graph: og.Graph) -> None:
    with pytest.raises(InputError, match="cursor and start exclude each other"):
        graph.poll_changes(cursor=now(graph), start="now")
    with pytest.raises(InputError, match="cannot start at 'yesterday'"):
        graph.poll_changes(start="yesterday")
    with pytest.raises(InputError, match="not a commit id"):
        graph.poll_changes(start="after:one")
    with pytest.raises(NotFound, match="reviw"):
        graph.poll_changes("reviw")
    with pytest.raises(NotFound, match="Persn"):
        graph.poll_changes(types=["Persn"])


# --- pages and cuts -------------------------------------------------------------------------------


def test_c_bra_041_a_page_inside_a_commit_has_a_token_and_no_cursor(graph: og.Graph) -> None:
    cursor = now(graph)
    load(graph, *(person(f"n{n}") for n in range(5)))
    inside = graph.poll_changes(cursor=cursor, limit=3)
    assert set(inside.to_dict()) == {"blocks", "next_page_token"}
    ended = graph.poll_changes(page_token=inside.next_page_token)
    assert set(ended.to_dict()) == {"blocks", "cursor", "caught_up"}
    assert [len(page.blocks[0].changes) for page in (inside, ended)] == [3, 2]
    assert inside.blocks[0].cause == ended.blocks[0].cause


def test_c_bra_041_later_commits_stay_outside_the_cut(graph: og.Graph) -> None:
    cursor = now(graph)
    load(graph, *(person(f"n{n}") for n in range(5)))
    load(graph, person("second"))
    inside = graph.poll_changes(cursor=cursor, limit=2)
    load(graph, person("late"))
    found = []
    page = inside
    while page.next_page_token is not None:
        page = graph.poll_changes(page_token=page.next_page_token, limit=2)
        found += [change.id for block in page.blocks for change in block.changes]
    assert found == ["n2", "n3", "n4", "second"]
    assert page.caught_up is True  # with the head as it was
    blocks, _ = polled(graph, cursor=page.cursor)
    assert [listed(block.changes) for block in blocks] == [[("insert", "Person", "late")]]


def test_c_bra_041_a_page_that_ends_with_a_commit_has_a_cursor(graph: og.Graph) -> None:
    cursor = now(graph)
    for n in range(4):
        load(graph, person(f"a{n}"), person(f"b{n}"))
    page = graph.poll_changes(cursor=cursor, limit=4)
    assert [len(block.changes) for block in page.blocks] == [2, 2]
    assert (page.next_page_token, page.caught_up) == (None, False)
    page = graph.poll_changes(cursor=page.cursor, limit=3)
    assert [len(block.changes) for block in page.blocks] == [2, 1]
    page = graph.poll_changes(page_token=page.next_page_token, limit=3)
    assert [len(block.changes) for block in page.blocks] == [1]
    assert page.caught_up is True


def test_c_bra_041_any_page_size_delivers_the_same(graph: og.Graph) -> None:
    load(graph, *(person(f"n{n}", age=n) for n in range(6)), city("rome"))
    graph.optimize()
    delete(graph, "Person", "p0")
    graph.create_branch("review")
    load(graph, person("r"), branch="review")
    load(graph, person("m"))
    graph.merge_branch("review")
    whole, end = polled(graph, start="beginning")
    for limit in (1, 2, 3, 7):
        for commits in (1, 2, 128):
            blocks, cursor = polled(graph, start="beginning", limit=limit, limit_commits=commits)
            assert [b.to_dict() for b in blocks] == [b.to_dict() for b in whole]
            assert cursor == end


def test_a_poll_looks_at_so_many_commits(graph: og.Graph) -> None:
    cursor = now(graph)
    for n in range(5):
        load(graph, person(f"n{n}"))
    page = graph.poll_changes(cursor=cursor, limit_commits=2)
    assert [len(block.changes) for block in page.blocks] == [1, 1]
    assert page.caught_up is False
    with pytest.raises(LimitExceeded, match="commits per poll is 513"):
        graph.poll_changes(limit_commits=513)


def test_empty_blocks_advance_the_cursor(graph: og.Graph) -> None:
    cursor = now(graph, types=["City"])
    load(graph, person("a"))
    load(graph, person("b"))
    page = graph.poll_changes(cursor=cursor, types=["City"])
    assert [block.changes for block in page.blocks] == [(), ()]
    assert page.caught_up is True
    assert page.cursor != cursor
    load(graph, city("rome"))
    page = graph.poll_changes(cursor=page.cursor, types=["City"])
    assert [listed(block.changes) for block in page.blocks] == [[("insert", "City", "rome")]]


def test_c_bra_042_one_oversized_change_a_page_and_not_one_a_commit(graph: og.Graph) -> None:
    big = "base64:" + "QUJD" * 2_000
    cursor = now(graph)
    load(graph, person("a1"), person("a2", photo=big))
    load(graph, person("b1", photo=big), person("b2"))
    load(graph, person("c1", photo=big))
    load(graph, person("d1"))
    found = []
    while True:
        for page in pages(graph, cursor=cursor, limit_bytes=5_000):
            found.append([change.id for block in page.blocks for change in block.changes])
        assert page.cursor is not None
        cursor = page.cursor
        if page.caught_up:
            break
    assert found == [["a1"], ["a2"], ["b1"], ["b2"], ["c1"], ["d1"]]


def test_c_bra_043_a_merge_is_one_block_against_its_first_parent(graph: og.Graph) -> None:
    graph.create_branch("review")
    load(graph, person("r1"), branch="review")
    load(graph, person("r2"), branch="review")
    theirs = head(graph, "review")
    load(graph, person("m"))
    cursor = now(graph)
    graph.merge_branch("review")
    (block,) = graph.poll_changes(cursor=cursor).blocks
    assert block.cause.merged_parent_commit_id == theirs
    assert listed(block.changes) == [("insert", "Person", "r1"), ("insert", "Person", "r2")]


# --- cursors that do not belong -------------------------------------------------------------------


def test_c_bra_044_another_graph(graph: og.Graph, tmp_path: Path) -> None:
    other = og.init(tmp_path / "other.omni", schema=SCHEMA)
    with pytest.raises(ChangeCursorRejected, match=r"^change cursor rejected: .*another graph"):
        other.poll_changes(cursor=now(graph))


def test_c_bra_044_another_branch_and_another_identity(graph: og.Graph) -> None:
    graph.create_branch("review")
    cursor = now(graph, "review")
    with pytest.raises(ChangeCursorRejected, match="belongs to another branch"):
        graph.poll_changes(cursor=cursor)
    graph.delete_branch("review")
    with pytest.raises(NotFound):
        graph.poll_changes("review", cursor=cursor)
    graph.create_branch("review")
    with pytest.raises(ChangeCursorRejected, match="another history of the branch"):
        graph.poll_changes("review", cursor=cursor)


def test_c_bra_044_another_filter(graph: og.Graph) -> None:
    cursor = now(graph, types=["Person", "City"], ops=["insert"])
    assert graph.poll_changes(cursor=cursor, types=["City", "Person"], ops=["insert"]).caught_up
    for wanted in ({}, {"types": ["Person"]}, {"types": ["City", "Person"]}):
        with pytest.raises(ChangeCursorRejected, match="belongs to another filter"):
            graph.poll_changes(cursor=cursor, **wanted)  # type: ignore[arg-type]


def test_c_bra_044_a_text_of_another_use(graph: og.Graph) -> None:
    cursor = now(graph)
    load(graph, person("a"), person("b"))
    token = graph.poll_changes(cursor=cursor, limit=1).next_page_token
    of_commit = graph.commit_changes_page(head(graph), limit=1).next_page_token
    with pytest.raises(ChangeCursorRejected, match="a page token of the feed, not a cursor"):
        graph.poll_changes(cursor=token)
    with pytest.raises(ChangeCursorRejected, match="a cursor, not a page token of the feed"):
        graph.poll_changes(page_token=cursor)
    with pytest.raises(ChangeCursorRejected, match="a page token of a commit, not a page token of"):
        graph.poll_changes(page_token=of_commit)
    with pytest.raises(ChangeCursorRejected, match="not a page token of a commit"):
        graph.commit_changes_page(head(graph), page_token=cursor)


def test_c_bra_044_a_branch_recreated_during_a_poll_fails_it(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.create_branch("review")
    load(graph, person("a"), person("b"), branch="review")
    other = og.open(graph.uri)
    page = graph.poll_changes("review", start="beginning", limit=10)
    from omnigraph.branching import change_feed, commit_changes

    real = commit_changes.step_changes

    def recreated(*args: object) -> object:
        monkeypatch.undo()
        other.delete_branch("review")
        other.create_branch("review")
        load(other, person("foreign"), branch="review")
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(change_feed, "step_changes", recreated)
    with pytest.raises(ChangeCursorRejected, match="deleted and created again"):
        graph.poll_changes("review", start="beginning")
    with pytest.raises(ChangeCursorRejected, match="another history"):
        graph.poll_changes("review", page_token=page.next_page_token)


# --- durable cursors ------------------------------------------------------------------------------

FOLLOW = """
import json, sys
import omnigraph as og

graph = og.open(sys.argv[1])
page = graph.poll_changes(cursor=sys.argv[2])
print(json.dumps(page.to_dict()))
"""
WRITE = """
import sys
import threading
import omnigraph as og

og.open(sys.argv[1]).load(data=sys.argv[2], mode="merge")
"""


def process(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout


def test_c_bra_045_a_cursor_resumes_in_another_process_and_follows_its_commits(
    graph: og.Graph,
) -> None:
    import json

    cursor = now(graph)
    load(graph, person("here"))
    process(WRITE, graph.uri, lines([person("there"), city("rome")]))
    there = json.loads(process(FOLLOW, graph.uri, cursor))
    assert [[change["id"] for change in block["changes"]] for block in there["blocks"]] == [
        ["here"],
        ["rome", "there"],
    ]
    assert graph.poll_changes(cursor=cursor).to_dict() == there
    process(WRITE, graph.uri, lines([person("again")]))
    (block,) = graph.poll_changes(cursor=there["cursor"]).blocks
    assert listed(block.changes) == [("insert", "Person", "again")]


# --- what stops a feed ----------------------------------------------------------------------------


def test_c_bra_046_after_cleanup_a_gap_then_a_baseline_then_no_loss(graph: og.Graph) -> None:
    cursor = now(graph)
    for n in range(6):
        load(graph, person(f"n{n}"))
    commits = [commit.graph_commit_id for commit in graph.list_commits()][::-1]
    graph.cleanup(keep=2, confirm=True)
    with pytest.raises(ChangeFeedGap) as gap:
        graph.poll_changes(cursor=cursor)
    assert gap.value.details == {"cursor": cursor, "first_unreadable_commit_id": commits[2]}
    assert gap.value.envelope()["change_feed_gap"] == gap.value.details
    assert "changes baseline" in str(gap.value.hint)
    with pytest.raises(ChangeFeedGap) as gap:
        graph.commit_changes(commits[2])
    assert gap.value.details == {"first_unreadable_commit_id": commits[2]}
    replica = Replica()
    baseline = graph.change_baseline()
    replica.take(baseline)
    load(graph, person("after"), person("n1", age=5))
    assert baseline.handshake is not None
    blocks, _ = polled(graph, cursor=baseline.handshake.resume_cursor)
    replica.apply(blocks)
    assert [block.cause.graph_commit_id for block in blocks] == [head(graph)]
    assert replica.content == content(graph, "main")


def test_c_bra_046_a_change_of_schema_is_delivered_up_to_and_then_refused(graph: og.Graph) -> None:
    cursor = now(graph)
    load(graph, person("before"))
    graph.apply_schema(SCHEMA.replace("age: I32?", "age: I64?"))
    changed = head(graph)
    load(graph, person("after"))
    page = graph.poll_changes(cursor=cursor)
    assert [listed(block.changes) for block in page.blocks] == [[("insert", "Person", "before")]]
    assert page.caught_up is False
    with pytest.raises(ChangeDiffRefused) as refused:
        graph.poll_changes(cursor=page.cursor)
    assert refused.value.details["graph_commit_id"] == changed
    assert "changes baseline" in str(refused.value.hint)
    blocks, _ = polled(graph, start=f"after:{changed}")
    assert [listed(block.changes) for block in blocks] == [[("insert", "Person", "after")]]


def test_a_feed_follows_a_renamed_type(graph: og.Graph) -> None:
    towns = SCHEMA.replace("node City {", 'node Town @rename_from("City") {').replace(
        "-> City", "-> Town"
    )
    cursor = now(graph, types=["City"])
    load(graph, city("rome"))
    graph.apply_schema(towns)
    load(graph, person("ada"), {"type": "Town", "data": {"name": "bonn"}})
    load(graph, edge("LivesIn", "l9", "ada", "bonn"))
    page = graph.poll_changes(cursor=cursor, types=["City"])
    names = [[(c.type_name, c.id) for c in block.changes] for block in page.blocks]
    assert names == [[("City", "rome")], [], [("Town", "bonn")], []]
    again = graph.poll_changes(start="beginning", types=["Town"])
    seeds = [("City", "bern"), ("City", "oslo")]
    assert [[(c.type_name, c.id) for c in b.changes] for b in again.blocks] == [seeds, *names]
    # The old name goes on to mean the type, in the middle of a commit, too.
    blocks, _ = polled(graph, start="beginning", types=["City"], limit=1, limit_commits=1)
    assert [[(c.type_name, c.id) for c in b.changes] for b in blocks] == [seeds, *names]


def test_a_feed_outlives_the_branches_that_were_merged(graph: og.Graph) -> None:
    for name, person_name in (("one", "a"), ("two", "b")):
        graph.create_branch(name)
        load(graph, person(person_name), city("rome", size=len(name)), branch=name)
        load(graph, person(f"main-{name}"))
        graph.merge_branch(name, delete_branch=True)
    assert graph.list_branches() == ["main"]
    blocks, _ = polled(graph, start="beginning")
    replica = Replica()
    replica.apply(blocks)
    assert replica.content == content(graph, "main")


def test_threads_share_one_handle(graph: og.Graph) -> None:
    start = now(graph)
    for n in range(4):
        load(graph, *(person(f"{n}-{m}") for m in range(5)))
    expected = [block.to_dict() for block in polled(graph, cursor=start)[0]]
    found: list[list[object]] = []

    def follow() -> None:
        blocks, _ = polled(graph, cursor=start, limit=2)
        found.append([block.to_dict() for block in blocks])

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


@pytest.mark.parametrize("compacted", [False, True])
def test_c_bra_037_a_table_put_back_behind_the_graphs_back_is_reported_by_content(
    graph: og.Graph, compacted: bool
) -> None:
    """Its rows carry older stamps than those they replace."""
    load(graph, person("p0", age=100))
    load(graph, person("x"))
    delete(graph, "Person", "p3")
    if compacted:
        assert graph.optimize().graph_commit_id is not None
    start = now(graph)
    state = graph._kernel.manifest.main.refresh()
    table = state.head_snapshot().table("node:Person")
    first = min(row.version for row in state.versions if row.identity == table.identity)
    lance.dataset(graph._kernel.table_uri(table.location), version=first + 1).restore()
    graph.repair(confirm=True, force=True)
    (block,) = graph.poll_changes(cursor=start).blocks
    assert listed(block.changes) == [
        ("update", "Person", "p0"),
        ("insert", "Person", "p3"),
        ("delete", "Person", "x"),
    ]
