"""For random histories, a merge is what a plain merge of whole contents is."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import MergeConflicts
from tests.branching.histories import Content, content, seeded, step
from tests.branching.reference_merge import exact, reference_merge
from tests.support.budgets import FEW


def as_text(of: Content) -> dict[Any, str]:
    return {entity: exact(value) for entity, value in of.items()}


def base_of(graph: og.Graph, source: str, target: str) -> str:
    return graph.plan_merge(source, target).base_commit_id


@pytest.mark.slow
@FEW
@given(seed=st.integers(0, 2**32))
def test_a_merge_of_random_histories_equals_the_reference_merge(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    dice = random.Random(seed)
    graph = seeded(tmp_path_factory.mktemp("history") / "graph.omni")
    places = ["main"]
    for name in ("one", "two"):
        graph.create_branch(name, dice.choice(places))
        places.append(name)
    for _ in range(5):
        for _ in range(dice.randrange(4)):
            step(graph, dice, dice.choice(places))
        if dice.random() < 0.2:
            graph.optimize()
        merge_and_judge(graph, dice, *dice.sample(places, 2))


def merge_and_judge(graph: og.Graph, dice: random.Random, source: str, target: str) -> None:
    base = content(graph, base_of(graph, source, target))
    mine, theirs = content(graph, source), content(graph, target)
    rules: Any = {
        "on_conflict": dice.choice(["fail", "fail", "source", "target"]),
        "granularity": dice.choice(["entity", "property"]),
    }
    wanted, conflicts = reference_merge(
        base, mine, theirs, rules["on_conflict"], rules["granularity"]
    )
    plan = graph.plan_merge(source, target, **rules)
    assert as_text(content(graph, target)) == as_text(theirs), "a plan changed something"
    if plan.outcome == "already_up_to_date":
        return
    found = {(c.kind.value, (c.table_key, c.entity_id)) for c in plan.conflicts}
    assert found == conflicts
    if conflicts:
        with pytest.raises(MergeConflicts):
            graph.merge_branch(source, target, **rules)
    else:
        receipt = graph.merge_branch(source, target, **rules)
        assert receipt.outcome == plan.outcome
        assert graph.plan_merge(source, target).outcome == "already_up_to_date"
        counts = [sum(getattr(t, word) for t in plan.types) for word in COUNTED]
        assert counts == [
            sum(e not in theirs for e in wanted),
            sum(e in theirs and exact(wanted[e]) != exact(theirs[e]) for e in wanted),
            sum(e not in wanted for e in theirs),
        ]
    assert as_text(content(graph, target)) == as_text(wanted)
    assert as_text(content(graph, source)) == as_text(mine), "the source was touched"


COUNTED = ("inserted", "updated", "deleted")
