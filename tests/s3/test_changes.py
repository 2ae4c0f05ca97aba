"""The change feed of a graph in an object store."""

from __future__ import annotations

import omnigraph as og
from tests.branching.feeds import Replica, head, listed, polled
from tests.branching.histories import SCHEMA, city, content, delete, edge, load, person


def test_baseline_and_feed_follow_a_graph_in_an_object_store(uri: str) -> None:
    graph = og.init(uri, schema=SCHEMA)
    load(graph, person("ada", photo="base64:QUE="), person("bo"), city("bern"))
    replica, baseline = Replica(), graph.change_baseline()
    replica.take(baseline)
    assert baseline.handshake is not None
    other = og.open(uri)
    load(other, person("cleo"), edge("LivesIn", "l1", "cleo", "bern"), city("rome"))
    other.create_branch("review")
    load(other, person("ada", age=7), branch="review")
    delete(other, "Person", "bo")
    other.merge_branch("review", delete_branch=True)
    blocks, cursor = polled(graph, cursor=baseline.handshake.resume_cursor, limit=2)
    assert [len(block.changes) for block in blocks] == [3, 1, 1]
    replica.apply(blocks)
    assert replica.content == content(graph, "main")
    other.apply_schema(SCHEMA.replace("size: I32?", "size: I32?  country: String?"))
    load(other, city("bern", country="Switzerland"))
    then, _ = polled(graph, cursor=cursor)
    assert [listed(block.changes) for block in then] == [[], [("update", "City", "bern")]]
    whole, _ = polled(og.open(uri), start="beginning")
    assert (
        whole[0].to_dict()["changes"]
        == graph.commit_changes(graph.list_commits()[-2].graph_commit_id).to_dict()["changes"]
    )
    assert whole[-1].cause.graph_commit_id == head(graph)
