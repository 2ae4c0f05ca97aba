"""What others do to the branches of a merge while it runs, and what must not come of it.

A merge holds no lease on its source: all it needs of it is read before the first effect, from
versions that nobody changes. A source that is deleted takes its files along, so what has not been
read by then fails the merge, and nothing has happened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import NotFound, OmnigraphError, ReadSetChanged
from omnigraph.storage.transactions import DatasetRef
from tests.branching.histories import content, edge, load, person, seeded
from tests.support.budgets import budget

CAPTURED = Failpoint.BRANCH_MERGE_POST_AUTHORITY_CAPTURE
STAGED = Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE
PUBLISHED = Failpoint.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A source with rows of several types, and a target that has moved."""
    graph = seeded(tmp_path / "graph.omni")
    graph.create_branch("review")
    load(
        graph,
        person("mine", age=1, photo="base64:QUE="),
        edge("Knows", "k-mine", "mine", "p1"),
        branch="review",
    )
    load(graph, person("theirs"))
    return graph


def once(action: Callable[[], object]) -> Callable[[Failpoint], None]:
    """An action for a failpoint that the action may pass itself."""
    done: list[Failpoint] = []

    def act(point: Failpoint) -> None:
        if not done:
            done.append(point)
            action()

    return act


def recreate(graph: og.Graph) -> None:
    """Another branch of the same name."""
    graph.delete_branch("review")
    graph.create_branch("review")
    load(graph, person("foreign"), branch="review")


def require_mine(graph: og.Graph) -> None:
    """Everything of the source as it was captured is there, and nothing else."""
    found = content(og.open(graph.uri), "main")
    assert found["node:Person", "mine"]["photo"] == "base64:QUE="
    assert {("edge:Knows", "k-mine"), ("node:Person", "theirs")} <= found.keys()
    assert not {("node:Person", "foreign"), ("node:Person", "late")} & found.keys()


# --- the source -----------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [CAPTURED, STAGED])
def test_c_bra_030_a_source_that_moves_is_merged_as_it_was(
    graph: og.Graph, point: Failpoint
) -> None:
    other = og.open(graph.uri)
    captured = graph.list_commits("review")[0].graph_commit_id
    late = once(lambda: load(other, person("late"), person("mine", age=7), branch="review"))
    with armed({point: late}):
        receipt = graph.merge_branch("review")
    assert receipt.commit is not None
    assert receipt.commit.merged_parent_commit_id == captured
    require_mine(graph)
    assert graph.plan_merge("review").outcome == "merged", "the rest is merged next time"


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created-again"])
def test_a_source_that_goes_before_it_was_read_fails_the_merge_without_a_trace(
    graph: og.Graph, again: bool
) -> None:
    other = og.open(graph.uri)
    before = b"".join(graph.export()), graph.list_commits()
    gone = once(lambda: recreate(other) if again else other.delete_branch("review"))
    refusal = ReadSetChanged if again else NotFound
    with armed({CAPTURED: gone}), pytest.raises(refusal) as refused:
        graph.merge_branch("review")
    assert "gb-" in str(refused.value) if again else "no branch `review`" in str(refused.value)
    assert (b"".join(graph.export()), graph.list_commits()) == before
    assert graph._kernel.sidecars.names() == []
    load(graph, person("later"))


@pytest.mark.parametrize("point", [STAGED, Failpoint.BRANCH_MERGE_POST_SIDECAR_PRE_FORK])
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created-again"])
def test_a_source_that_goes_after_it_was_read_cannot_harm_the_merge(
    graph: og.Graph, point: Failpoint, again: bool
) -> None:
    other = og.open(graph.uri)
    captured = graph.list_commits("review")[0].graph_commit_id
    gone = once(lambda: recreate(other) if again else other.delete_branch("review"))
    if point is not STAGED:
        # The owner of main holds its lease from here on, and changing branches needs that too.
        gone = once(lambda: other._kernel.lance.delete_ref(source_table(other)))
    with armed({point: gone}):
        receipt = graph.merge_branch("review")
    assert receipt.commit is not None
    assert receipt.commit.merged_parent_commit_id == captured
    require_mine(graph)


def source_table(graph: og.Graph) -> DatasetRef:
    """Where the branch has its own persons."""
    reader = graph._opened.reader("review")
    return reader.where(reader.snapshot.table("node:Person"))


def test_a_target_that_is_deleted_meanwhile_gets_nothing(graph: og.Graph) -> None:
    graph.create_branch("stage")
    load(graph, person("on stage"), branch="stage")
    other = og.open(graph.uri)
    with armed({STAGED: once(lambda: other.delete_branch("stage"))}), pytest.raises(NotFound):
        graph.merge_branch("review", "stage")
    assert graph.list_branches() == ["main", "review"]
    assert graph._kernel.sidecars.names() == []


# --- deleting the source afterwards ---------------------------------------------------------------


@pytest.mark.parametrize("point", [CAPTURED, STAGED, PUBLISHED])
def test_a_source_that_was_written_to_meanwhile_is_not_deleted(
    graph: og.Graph, point: Failpoint
) -> None:
    other = og.open(graph.uri)
    late = once(lambda: load(other, person("late"), branch="review"))
    with armed({point: late}):
        receipt = graph.merge_branch("review", delete_branch=True)
    assert (receipt.outcome, receipt.branch_deleted) == ("merged", False)
    assert "was written to meanwhile" in str(receipt.branch_delete_error)
    assert ("node:Person", "late") in content(graph, "review"), "an acknowledged write is lost"
    assert graph.merge_branch("review", delete_branch=True).branch_deleted
    assert ("node:Person", "late") in content(graph, "main")
    assert graph.list_branches() == ["main"]


def test_an_up_to_date_source_that_is_written_to_is_not_deleted(graph: og.Graph) -> None:
    graph.merge_branch("review")
    other = og.open(graph.uri)
    late = once(lambda: load(other, person("late"), branch="review"))
    with armed({CAPTURED: late}):
        receipt = graph.merge_branch("review", delete_branch=True)
    assert (receipt.outcome, receipt.branch_deleted) == ("already_up_to_date", False)
    assert ("node:Person", "late") in content(graph, "review")


def test_nothing_a_busy_writer_was_told_is_lost_when_its_branch_is_merged_and_deleted(
    graph: og.Graph,
) -> None:
    acknowledged: list[str] = []
    started = threading.Event()

    def write() -> None:
        mine = og.open(graph.uri)
        for n in range(budget(40, 200)):
            try:
                load(mine, person(f"w{n}"), branch="review")
            except OmnigraphError:
                return  # the branch is gone
            acknowledged.append(f"w{n}")
            started.set()

    writer = threading.Thread(target=write)
    writer.start()
    started.wait()
    try:
        while not graph.merge_branch("review", delete_branch=True).branch_deleted:
            pass
    finally:
        writer.join()
    found = content(graph, "main")
    assert acknowledged, "the writer did not write"
    assert [name for name in acknowledged if ("node:Person", name) not in found] == []
