"""C-REC-043: kill -9 at every failpoint of every kind of writer, and look at what is left.

A real process is killed at one step of one operation. Whoever opens the graph next must find the
old graph or the new one, whole, and be able to go on. Which of the two is no accident: it is the
old one until every table has its commit, and the new one from then on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from omnigraph.effects.failpoints import Failpoint
from omnigraph.errors import NotFound
from omnigraph.graph import open_graph
from tests.crash import judge, processes
from tests.crash.model import Model
from tests.crash.operations import GROUP, OPERATIONS, passed_by, seeded

Which = Literal["old", "new"]


@dataclass(frozen=True)
class Step:
    """One passing of a failpoint, and the graph that a death there must lead to."""

    failpoint: Failpoint
    nth: int
    leads_to: Which

    def __str__(self) -> str:
        return f"{self.failpoint}@{self.nth}"

    @property
    def kill(self) -> str:
        return f"{self.failpoint}=kill@{self.nth}"


def steps(text: str, leads_to: Which = "old") -> list[Step]:
    """Steps from `name` or `name@n`, separated by spaces."""
    found = []
    for word in text.split():
        name, _, nth = word.partition("@")
        found.append(Step(Failpoint(name), int(nth or 1), leads_to))
    return found


OPENING = "recovery.sidecar_list"
ENTERING = "recovery.sidecar_list@2 mutation.post_stage_pre_effect_gate recovery.sidecar_list@3"
PUBLISHED = "graph_publish.after_manifest_commit recovery.sidecar_delete"


def write_steps(tables: int) -> list[Step]:
    """The way of a write through tables its branch already has."""
    before = [
        *steps(f"{OPENING} {ENTERING} recovery.sidecar_write mutation.post_sidecar_pre_fork"),
        *(step for n in range(1, tables) for step in steps(f"mutation.post_table_commit@{n}")),
    ]
    after = steps(
        f"mutation.post_table_commit@{tables} mutation.post_finalize_pre_publisher {PUBLISHED}",
        "new",
    )
    return [*before, *after]


def group_steps(members: int) -> list[Step]:
    """The way of a group through two tables."""
    staged = [f"mutation.post_stage_pre_effect_gate@{n}" for n in range(1, members + 1)]
    between = [f"group.between_members@{n}" for n in range(1, 2 * members - 1)]
    before = [
        OPENING,
        *staged,
        "recovery.sidecar_list@2 group.pre_admission",
        "recovery.sidecar_write mutation.post_sidecar_pre_fork",
        *between[: members - 1],
        "mutation.post_table_commit@1",
        *between[members - 1 :],
    ]
    after = f"mutation.post_table_commit@2 mutation.post_finalize_pre_publisher {PUBLISHED}"
    return [*steps(" ".join(before)), *steps(after, "new")]


def fork_steps(n: int) -> str:
    """The way of a table's first write on a branch, up to its commit."""
    names = ("fork.before_classify", "fork.post_create_pre_open", "mutation.post_fork_pre_commit")
    return " ".join(f"{name}@{n}" for name in names)


STEPS: dict[str, list[Step]] = {
    "insert": write_steps(2),
    "group": group_steps(len(GROUP)),
    "update": write_steps(2),
    "delete": write_steps(3),
    "append": write_steps(2),
    "merge": write_steps(2),
    "overwrite": write_steps(2),
    "first-touch": [
        *steps(f"{OPENING} {ENTERING} recovery.sidecar_write mutation.post_sidecar_pre_fork"),
        *steps(f"{fork_steps(1)} mutation.post_table_commit@1 {fork_steps(2)}"),
        *steps(
            f"mutation.post_table_commit@2 mutation.post_finalize_pre_publisher {PUBLISHED}", "new"
        ),
    ],
    "update-nothing": steps(f"{OPENING} recovery.sidecar_list@2 mutation.post_no_effect_pre_gate"),
    "branch-create": [
        *steps(f"{OPENING} branch_create.post_native"),
        *steps("branch_create.post_register", "new"),
    ],
    "branch-delete": [
        *steps(OPENING),
        *steps(
            "branch_delete.post_native branch_delete.before_table_cleanup@1"
            " branch_delete.before_table_cleanup@2 branch_delete.before_table_cleanup@3",
            "new",
        ),
    ],
    "tag-create": [*steps(OPENING), *steps("tag_create.post_register", "new")],
    "tag-delete": [*steps(OPENING), *steps("tag_delete.post_unregister", "new")],
    "init": [
        *steps("init.after_schema_contract_written"),
        *steps("init.post_manifest_create", "new"),
    ],
}
"""Every step of every kind, in the order they are passed."""

CASES = [
    pytest.param(kind, step, id=f"{kind}-{step}") for kind, way in STEPS.items() for step in way
]

ELSEWHERE = {
    Failpoint.RECOVERY_POST_SIDECAR_LIST_PRE_READ: "test_kill_during_recovery",
    Failpoint.RECOVERY_RECORD_AUDIT: "test_kill_during_recovery",
    Failpoint.RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH: "test_kill_during_recovery",
    Failpoint.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH: "test_kill_during_recovery",
    Failpoint.RECOVERY_POST_ROLLBACK_PUBLISH_PRE_AUDIT: "test_kill_during_recovery",
    Failpoint.RECOVERY_ORPHAN_DISCARD_AUDIT_APPEND: "test_kill_during_recovery",
    Failpoint.GROUP_PRE_CLAIM: "test_handing_over",
    Failpoint.LEASE_AFTER_TAKEOVER: "test_kill_during_recovery",
    Failpoint.LEASE_BEFORE_RENEW: "test_owners",
    Failpoint.SCHEMA_APPLY_BEFORE_STAGING_WRITE: "test_schema_apply",
    Failpoint.SCHEMA_APPLY_AFTER_STAGING_WRITE: "test_schema_apply",
    Failpoint.SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT: "test_schema_apply",
    Failpoint.SCHEMA_APPLY_POST_TABLE_COMMIT: "test_schema_apply",
    Failpoint.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT: "test_schema_apply",
    **{point: "test_schema_rebase" for point in Failpoint if point.startswith("schema_rebase.")},
    Failpoint.OPTIMIZE_BEFORE_COMPACT: "test_optimize",
    Failpoint.OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT: "test_optimize",
    **{point: "test_merge" for point in Failpoint if point.startswith("branch_merge.")},
    **{
        point: "test_pipeline_interruptions" for point in Failpoint if point.startswith("pipeline.")
    },
    **{point: "tests/cluster" for point in Failpoint if point.startswith("cluster_")},
    **{point: "test_cleanup" for point in Failpoint if point.startswith("cleanup.")},
    Failpoint.STREAM_POST_COMMIT_PRE_CHECKPOINT: "tests/pipeline/test_streams",
    Failpoint.ENSURE_INDICES_POST_TABLE_EFFECT: "test_indices",
    Failpoint.ENSURE_INDICES_POST_PHASE_B_PRE_MANIFEST_COMMIT: "test_indices",
}
"""Failpoints that are not on the way of an undisturbed operation: the file that kills there."""


def prepared(kind: str, root: Path) -> Model:
    """The graph before the operation; none at all before `init`."""
    if kind == "init":
        return Model()
    model = seeded(str(root))
    if kind == "tag-delete":
        open_graph(root).create_tag("v1")
        model.tags.add("v1")
    return model


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "step"), CASES)
def test_c_rec_043_a_death_at_any_step_leaves_the_old_graph_or_the_new_one(
    root: Path, kind: str, step: Step
) -> None:
    model = prepared(kind, root)
    victim = processes.killed(kind, root, step.kill)
    assert victim.answer is None
    if step.leads_to == "new":
        OPERATIONS[kind].apply(model)
    if not model.branches:
        with pytest.raises(NotFound):
            open_graph(root)
        assert processes.start(kind, root).finished()["value"]
        OPERATIONS[kind].apply(model)
    graph = judge.reopened(root, judge.pending(root))
    judge.require_shows(graph, model)
    judge.require_writable(graph, model)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind, way in STEPS.items() if way[-1].leads_to == "new"])
def test_an_acknowledged_operation_is_there_after_its_process_ends(root: Path, kind: str) -> None:
    model = prepared(kind, root)
    assert "value" in processes.start(kind, root).finished()
    OPERATIONS[kind].apply(model)
    graph = judge.reopened(root, judge.pending(root))
    judge.require_shows(graph, model)


@pytest.mark.parametrize("kind", STEPS)
def test_the_steps_of_each_kind_are_exactly_those_it_passes(root: Path, kind: str) -> None:
    prepared(kind, root)
    passed = passed_by(lambda: OPERATIONS[kind].run(str(root)))
    assert passed == [str(step) for step in STEPS[kind]]


def test_every_failpoint_of_the_catalog_is_killed_at_or_known_to_be_unreachable() -> None:
    here = {step.failpoint for way in STEPS.values() for step in way}
    assert here | ELSEWHERE.keys() == set(Failpoint)
    assert not here & ELSEWHERE.keys()


def test_every_failpoint_is_passed_by_some_code() -> None:
    source = Path(__file__).parents[2] / "src" / "omnigraph"
    passed = "\n".join(path.read_text(encoding="utf-8") for path in source.rglob("*.py"))
    reached = {point for point in Failpoint if re.search(rf"Failpoint\.{point.name}\b", passed)}
    assert reached == set(Failpoint)


@pytest.mark.slow
def test_the_child_is_killed_the_same_when_started_from_nothing(root: Path) -> None:
    model = seeded(str(root))
    code, answer = processes.spawned("insert", root, "mutation.post_table_commit=kill@2")
    assert (code, answer) == (-9, None)
    OPERATIONS["insert"].apply(model)
    graph = judge.reopened(root, judge.pending(root))
    judge.require_shows(graph, model)
    code, answer = processes.spawned("delete", root)
    assert code == 0
    assert answer is not None
    assert answer["value"]["affected_nodes"] == 1
