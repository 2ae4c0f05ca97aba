"""A process dies while it carries out a named request: asked again, it is there once, or done once.

The record of the request is written by the very transaction that makes its effect visible. So the
one who asks again after the death gets the receipt that the dead process owed, or has the request
carried out; there is no third case.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.graph import Graph, init, open_graph
from tests.crash import processes
from tests.crash.model import SCHEMA, seed_records
from tests.crash.operations import KEYED, seeded

PUBLISHED = "graph_publish.after_manifest_commit"

DEATHS = [
    ("create", "branch_create.post_native", 0),
    ("create", "branch_create.post_register", 1),
    ("delete", "branch_delete.post_native", 1),
    ("merge", "branch_merge.between_chunks", 0),
    ("merge", "branch_merge.post_phase_b_pre_manifest_commit", 1),
    ("merge", PUBLISHED, 1),
    ("merge", "branch_delete.post_native", 1),
    ("revert", "mutation.post_stage_pre_effect_gate", 0),
    ("revert", PUBLISHED, 1),
    ("cherry-pick", PUBLISHED, 1),
    ("schema", "schema_apply.post_sidecar_pre_effect", 0),
    ("schema", "schema_apply.after_manifest_commit", 1),
]
"""Verb, the step that kills, and whether recovery must lead to the effect by itself."""


def seeded_for(verb: str, root: Path) -> Graph:
    if verb == "schema":
        # A schema is applied while there are no branches.
        init(root, SCHEMA).load(data=seed_records(), mode="append")
    else:
        seeded(str(root))
    return open_graph(root)


def effects(graph: Graph) -> tuple[list[str], list[str | None], str]:
    """Everything that one of the requests changes, but for commits of recovery."""
    commits = [each for each in graph.list_commits() if each.kind != "recovery"]
    return graph.list_branches(), [each.kind for each in commits], graph.schema_source


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "step", "is_done"), DEATHS)
def test_a_named_request_is_carried_out_once_though_its_process_died(
    root: Path, verb: str, step: str, is_done: int
) -> None:
    before = effects(seeded_for(verb, root))
    assert processes.killed(f"keyed {verb}", root, f"{step}=kill@1").answer is None
    graph = open_graph(root)
    assert (effects(graph) != before) == bool(is_done)
    receipt = KEYED[verb](graph).to_dict()
    after = effects(graph)
    assert after != before
    for again in (graph, open_graph(root)):
        assert KEYED[verb](again).to_dict() == receipt
        assert effects(again) == after
    if verb == "merge":
        assert receipt["branch_deleted"] is True and receipt["commit"] is not None
        assert "old" not in after[0]
        assert after[1].count("merge") == 1
