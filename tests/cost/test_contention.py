"""What it costs to meet another writer: one more preparation, but no row is written twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import orjson

from omnigraph.commit.kernel import Kernel
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.effects.local_disk import _waiting
from omnigraph.effects.uri import Root
from omnigraph.graph import Graph, open_graph
from tests.cost.costs import Cost, cost_of, insert

KNOW = "query know($a: String, $b: String) { insert Knows { from: $a, to: $b } }"


def before_owning(work: Callable[[], object]) -> AbstractContextManager[object]:
    """Do something once, when a writer has staged and does not own the branch yet; not counted."""
    pending = [work]

    def act(_: Failpoint) -> None:
        if pending:
            aside = threading.Thread(target=pending.pop())
            aside.start()
            aside.join()

    return armed({Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: act})


def staged(cost: Cost) -> int:
    return cost.shape["stage table"]


def exported(graph: Graph, type_name: str) -> list[dict[str, Any]]:
    lines = b"".join(graph.export(types=[type_name])).splitlines()
    return [orjson.loads(line) for line in lines]


def people(graph: Graph) -> list[str]:
    return [record["data"]["name"] for record in exported(graph, "Person")]


def test_c_wrt_026_a_write_that_lost_its_branch_neither_gives_it_back_nor_writes_rows_twice(
    graph: Graph,
):
    other = open_graph(graph.uri)
    with before_owning(lambda: insert(other, "first")):
        cost = cost_of(graph, lambda: insert(graph, "second"))
    assert staged(cost) == 1, cost.table()
    refused_taken_and_released = 3
    assert cost.shape["swap __lease"] == refused_taken_and_released, cost.table()
    assert sorted(people(graph)) == ["ana", "ben", "first", "second"]


def test_a_row_that_another_has_written_meanwhile_is_staged_again(graph: Graph):
    other = open_graph(graph.uri)
    with before_owning(lambda: insert(other, "same")):
        cost = cost_of(graph, lambda: insert(graph, "same"))
    assert staged(cost) == 2, cost.table()
    assert people(graph).count("same") == 1


def test_a_new_edge_keeps_its_id_and_is_written_once(graph: Graph):
    other = open_graph(graph.uri)
    insert(graph, "a")
    insert(graph, "b")
    with before_owning(lambda: other.mutate(KNOW, {"a": "b", "b": "a"})):
        cost = cost_of(graph, lambda: graph.mutate(KNOW, {"a": "a", "b": "b"}))
    assert staged(cost) == 1, cost.table()
    ends = [(edge["from"], edge["to"]) for edge in exported(graph, "Knows")]
    assert sorted(ends) == [("a", "b"), ("b", "a")]


def test_an_update_in_a_crowd_owns_the_branch_before_it_is_prepared(graph: Graph):
    other = Kernel.of(Root.parse(graph.uri)).leases
    update = 'query q { update Person set { age: 7 } where name = "ana" }'
    costs: list[Cost] = []
    with other.queued("main") as queue:
        waiting = threading.Thread(
            target=lambda: costs.append(cost_of(graph, lambda: graph.mutate(update)))
        )
        waiting.start()
        while not _waiting:
            time.sleep(0.001)
        queue.leave()
        waiting.join(timeout=30)
    (cost,) = costs
    verbs = [f"{event.verb} {event.target.partition('/')[0]}" for event in cost.events]
    assert verbs.index("swap __lease") < verbs.index("open nodes"), cost.table()
    assert staged(cost) == 1, cost.table()


def test_once_no_other_writer_comes_a_write_costs_what_it_did_before(graph: Graph):
    usual = cost_of(graph, lambda: insert(graph, "usual"))
    other = open_graph(graph.uri)
    with before_owning(lambda: insert(other, "a")):
        insert(graph, "b")
    again = cost_of(graph, lambda: insert(graph, "d"))
    assert again.shape == usual.shape, again.table()
