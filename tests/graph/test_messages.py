"""Words that a commit keeps: why it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.effects.failpoints import armed
from omnigraph.errors import InputError, RecoveryRequired
from omnigraph.model.ids import MESSAGE_CHARACTERS_MAX

SCHEMA = "node Person { name: String @key }"
ADA = b'{"type": "Person", "data": {"name": "ada"}}\n'
BO = b'{"type": "Person", "data": {"name": "bo"}}\n'


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


def words(graph: og.Graph) -> list[str | None]:
    """The messages of all commits, newest first, as a fresh reader finds them."""
    return [commit.message for commit in og.open(graph.uri).list_commits()]


def test_every_way_to_write_keeps_its_message(graph: og.Graph, tmp_path: Path):
    receipt = graph.load(data=ADA, mode="append", message=" the founders\n")
    assert receipt.commit is not None and receipt.commit.message == "the founders"
    assert receipt.commit.to_dict()["message"] == "the founders"
    graph.mutate('query m() { insert Person { name: "bo" } }', message="a typo\n\nsee 17")
    table = tmp_path / "people.csv"
    table.write_text("name\ncy\n")
    graph.load(nodes={"Person": table}, mode="append", message="as a table")
    silent = graph.load(data=ADA, mode="overwrite").commit
    assert words(graph) == [None, "as a table", "a typo\n\nsee 17", "the founders", None]
    assert silent is not None and "message" not in silent.to_dict()


def test_merges_replays_and_schemas_keep_their_message_too(graph: og.Graph):
    with graph.branch("review", delete_branch=False) as review:
        review.load(data=ADA, mode="append", message="on the branch")
    graph.on_branch("review").load(data=BO, mode="append")
    merged = graph.merge_branch("review", message="both founders").commit
    assert merged is not None and merged.message == "both founders"
    undone = graph.revert(merged.graph_commit_id, message="too early").commit
    assert undone is not None and undone.message == "too early"
    again = graph.cherry_pick(undone.parent_commit_id or "", "review", message="nothing to do")
    assert again.commit is None
    graph.apply_schema("node Person { name: String @key  age: I32? }", message="ages\n")
    assert words(graph)[:3] == ["ages", "too early", "both founders"]


def test_every_commit_says_its_kind_and_how_much_it_changed(graph: og.Graph):
    graph.apply_schema(SCHEMA + " edge Knows: Person -> Person")
    graph.load(data=ADA + BO, mode="append")
    text = 'query q { insert Knows { from: "ada", to: "bo" } insert Person { name: "cy" } }'
    graph.mutate(text)
    graph.create_branch("review")
    review = graph.on_branch("review")
    review.mutate('query q { delete Person where name = "bo" }')
    merged = graph.merge_branch("review").commit
    assert merged is not None
    graph.revert(merged.graph_commit_id)
    listed = og.open(graph.uri).list_commits()
    assert [(each.kind, each.affected_nodes, each.affected_edges) for each in listed] == [
        ("mutation", 1, 1),  # the node that was deleted, and its edge
        ("merge", 1, 1),
        ("mutation", 1, 1),
        ("load", 2, 0),
        ("schema", None, None),
        ("genesis", None, None),
    ]


def test_a_repeated_write_has_the_words_of_the_first(graph: og.Graph):
    first = graph.load(data=ADA, mode="append", operation_id="x", message="one").commit
    again = graph.load(data=ADA, mode="append", operation_id="x", message="two").commit
    assert first == again
    assert words(graph) == ["one", None]


def test_a_write_that_was_rolled_forward_keeps_its_words(graph: og.Graph):
    with armed("mutation.post_finalize_pre_publisher=error*1"), pytest.raises(RecoveryRequired):
        graph.load(data=ADA, mode="append", message="nearly lost")
    graph.load(data=BO, mode="append")
    assert words(graph) == [None, "nearly lost", None]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ("  ", "the message is empty"),
        ("x" * (MESSAGE_CHARACTERS_MAX + 1), "at most 2000 are kept"),
        ("red \x1b[31m", "cannot be printed"),
    ],
)
def test_a_message_is_a_few_words_of_plain_text(graph: og.Graph, message: str, complaint: str):
    with pytest.raises(InputError, match=complaint):
        graph.load(data=ADA, mode="append", message=message)
    assert words(graph) == [None]
