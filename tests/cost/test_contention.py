"""What it costs to meet another writer: one more preparation, and no second turn for the branch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from omnigraph.commit.write_path import OWN_FIRST
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.graph import Graph, open_graph
from tests.cost.costs import Cost, cost_of, insert


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


def test_a_write_that_lost_its_branch_is_prepared_again_without_giving_it_back(graph: Graph):
    other = open_graph(graph.uri)
    with before_owning(lambda: insert(other, "first")):
        cost = cost_of(graph, lambda: insert(graph, "second"))
    assert staged(cost) == 2, cost.table()
    refused_taken_and_released = 3
    assert cost.shape["swap __lease"] == refused_taken_and_released, cost.table()


def test_after_meeting_another_writer_the_next_mutation_owns_the_branch_first(graph: Graph):
    other = open_graph(graph.uri)
    with before_owning(lambda: insert(other, "a")):
        insert(graph, "b")
    insert(other, "c")
    cost = cost_of(graph, lambda: insert(graph, "d"))
    verbs = [event.verb for event in cost.events]
    assert verbs.index("swap") < verbs.index("stage"), cost.table()
    assert staged(cost) == 1, cost.table()


def test_once_nobody_else_comes_a_write_costs_what_it_did_before(graph: Graph):
    usual = cost_of(graph, lambda: insert(graph, "usual"))
    other = open_graph(graph.uri)
    with before_owning(lambda: insert(other, "a")):
        insert(graph, "b")
    for n in range(OWN_FIRST):
        insert(graph, f"c{n}")
    again = cost_of(graph, lambda: insert(graph, "d"))
    assert again.shape == usual.shape, again.table()
