"""Requirements on a branch: what blocks a change request, and who may write without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.client import RemoteGraph
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import PolicyDenied, PolicyInvalid, ReviewBlocked
from omnigraph.policy import load_policy
from omnigraph.server.auth import TOKENS_JSON
from omnigraph.server.config import GraphSpec
from tests.review.test_requests import ADD, made, names, once
from tests.server.live import serving
from tests.support.templates import copy_of, place_in

POLICY = """\
version: 2
groups:
  team: [act-ana, act-bo, act-cy, act-ci]
  reviewers: [act-ana, act-bo, act-cy]
  machines: [act-ci]
  operators: [act-ops]
protected_branches:
  - name: main
    require:
      approvals: 2
      from: reviewers
      checks: [lint, no_orphans]
      resolved_comments: true
      up_to_date: true
  - release
rules:
  - id: team-works
    allow: { actors: { group: team }, actions: [read, change], branch_scope: any }
  - id: team-merges
    allow: { actors: { group: team }, actions: [branch_merge], target_branch_scope: any }
  - id: team-forks
    allow: { actors: { group: team }, actions: [branch_create], target_branch_scope: any }
  - id: machines-report
    allow: { actors: { group: machines }, actions: [check_report] }
  - id: operators-read
    allow: { actors: { group: operators }, actions: [read], branch_scope: any }
  - id: operators-repair
    bypass: true
    allow: { actors: { group: operators }, actions: [change], branch_scope: any }
  - id: operators-merge
    bypass: true
    allow: { actors: { group: operators }, actions: [branch_merge], target_branch_scope: any }
"""
OLD = "version: 1\ngroups: {a: [b]}\nrules:\n"
ACTORS = ("act-ana", "act-bo", "act-cy", "act-ci", "act-ops")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = place_in(tmp_path)
    copy_of(made, root)
    return root


@pytest.fixture
def graph(root: Path) -> og.Graph:
    return og.open(root, policy=load_policy(POLICY))


def codes(graph: og.Graph, id: str) -> list[str]:
    return [reason.code for reason in graph.reviews.get(id).reasons]


def ready(graph: og.Graph) -> str:
    """A request with everything that main requires."""
    review = graph.reviews.open("feature", title="New people", actor="act-ana")
    for actor in ("act-bo", "act-cy"):
        graph.reviews.review(review.id, "approve", actor=actor)
    for check in ("lint", "no_orphans"):
        graph.reviews.report_check(review.id, check, "passed", actor="act-ci")
    return review.id


def test_c_rev_008_every_reason_is_told_at_once_and_each_blocks_alone(graph: og.Graph):
    review = graph.reviews.open("feature", title="New people", actor="act-ana")
    graph.reviews.review(review.id, "approve", actor="act-ana")
    graph.reviews.review(review.id, "approve", actor="act-ci")  # not of the group
    graph.reviews.report_check(review.id, "lint", "failed", text="bad name", actor="act-ci")
    said = graph.reviews.comment(review.id, "hm", actor="act-bo")
    found = graph.reviews.get(review.id)
    assert found.mergeable == "blocked"
    assert [(reason.code, reason.text) for reason in found.reasons] == [
        (
            "approvals",
            "0 of 2 approvals of reviewers; the approval of its author does not count",
        ),
        ("check", "check lint is failed: bad name"),
        ("check", "check no_orphans has not run"),
        ("comments", "1 comment thread is not resolved"),
    ]
    with pytest.raises(ReviewBlocked) as blocked:
        graph.reviews.merge(review.id, actor="act-ana")
    assert [each["code"] for each in blocked.value.details["reasons"]] == [
        reason.code for reason in found.reasons
    ]
    graph.reviews.review(review.id, "approve", actor="act-bo")
    graph.reviews.review(review.id, "request_changes", actor="act-cy")
    assert codes(graph, review.id)[:2] == ["approvals", "changes_requested"]
    graph.reviews.review(review.id, "approve", actor="act-cy")
    assert codes(graph, review.id) == ["check", "check", "comments"]
    for check in ("lint", "no_orphans"):
        graph.reviews.report_check(review.id, check, "passed", actor="act-ci")
    assert codes(graph, review.id) == ["comments"]
    graph.reviews.resolve(review.id, said.comments[0].id, actor="act-bo")
    assert graph.reviews.get(review.id).mergeable == "clean"
    # The content moves: approvals and checks are those of something else.
    graph.mutate(ADD, {"name": "cy"}, branch="feature", actor="act-ana")
    found = graph.reviews.get(review.id)
    assert [reason.code for reason in found.reasons] == ["approvals", "check", "check"]
    assert "2 given for an older head" in found.reasons[0].text
    assert names(graph) == ["ada"]


def test_c_rev_008_a_request_with_all_it_needs_is_merged(graph: og.Graph):
    id = ready(graph)
    assert graph.reviews.merge(id, actor="act-bo").approvers == ("act-bo", "act-cy")
    assert names(graph) == ["ada", "bo"]


def test_c_rev_008_a_target_that_moved_leaves_the_request_behind(graph: og.Graph):
    id = ready(graph)
    graph.mutate(ADD, {"name": "fix"}, actor="act-ops")
    found = graph.reviews.get(id)
    assert (found.mergeable, codes(graph, id)) == ("behind", ["behind"])
    with pytest.raises(ReviewBlocked, match="main has commits that feature lacks"):
        graph.reviews.merge(id, actor="act-bo")
    graph.merge_branch("main", "feature", actor="act-ana")
    # What the diff shows is the same: approvals and checks stay.
    assert graph.reviews.get(id).mergeable == "clean"
    graph.reviews.merge(id, actor="act-bo")


def test_c_rev_008_an_approval_that_is_taken_back_during_the_merge_refuses_it(graph: og.Graph):
    id = ready(graph)
    other = og.open(graph.uri, policy=load_policy(POLICY))
    doubt = once(lambda: other.reviews.review(id, "request_changes", actor="act-cy"))
    point = Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with armed({point: doubt}), pytest.raises(ReviewBlocked, match="act-cy asks for changes"):
        graph.reviews.merge(id, actor="act-bo")
    assert names(graph) == ["ada"]


def writes(graph: Any, commit: str, **by: str) -> dict[str, Callable[[], object]]:
    """Every direct way to change main."""
    line = '{"type": "Person", "data": {"name": "direct"}}'
    return {
        "mutate": lambda: graph.mutate(ADD, {"name": "direct"}, **by),
        "load": lambda: graph.load(data=line, mode="merge", **by),
        "merge": lambda: graph.merge_branch("feature", **by),
        "revert": lambda: graph.revert(commit, **by),
        "cherry-pick": lambda: graph.cherry_pick(commit, **by),
    }


def test_c_rev_009_direct_writes_are_denied_embedded_and_a_bypass_is_recorded(graph: og.Graph):
    commit = graph.list_commits("feature")[0].graph_commit_id
    for actor in ("act-ana", "act-ci"):
        for write in writes(graph, commit, actor=actor).values():
            with pytest.raises(PolicyDenied, match="takes only change requests"):
                write()
    assert names(graph) == ["ada"] and list(graph.reviews.export()) == []
    writes(graph, commit, actor="act-ops")["mutate"]()
    writes(graph, commit, actor="act-ops")["merge"]()
    assert names(graph) == ["ada", "bo", "direct"]
    found = [(e.kind, e.actor_id, e.body) for e in graph.reviews.export()]
    assert found == [
        (
            "bypassed",
            "act-ops",
            {
                "action": "change",
                "source": "main",
                "branch": "main",
                "rule": "operators-repair",
            },
        ),
        (
            "bypassed",
            "act-ops",
            {
                "action": "branch_merge",
                "source": "feature",
                "branch": "main",
                "rule": "operators-merge",
            },
        ),
    ]
    assert len(graph.reviews.list(state=None)) == 0
    # Other branches are as they were, also protected ones without requirements.
    graph.mutate(ADD, {"name": "x"}, branch="feature", actor="act-ana")
    graph.create_branch("release", actor="act-ana")
    graph.mutate(ADD, {"name": "y"}, branch="release", actor="act-ana")


@pytest.fixture
def connect(root: Path, tmp_path: Path) -> Iterator[Callable[[str], RemoteGraph]]:
    (tmp_path / "policy.yaml").write_text(POLICY)
    spec = GraphSpec("default", str(root), (), tmp_path / "policy.yaml")
    tokens = {actor: f"token-of-{actor}-0001" for actor in ACTORS}
    environment = {TOKENS_JSON: json.dumps(tokens)}
    with serving(spec, environment=environment, waits=False) as live:
        yield lambda actor: og.connect(live.url, tokens[actor], graph="default")


def test_c_rev_009_direct_writes_are_denied_over_http_and_reviews_are_the_way_in(
    connect: Callable[[str], RemoteGraph], root: Path
):
    ana, bo, cy = connect("act-ana"), connect("act-bo"), connect("act-cy")
    commit = ana.list_commits("feature")[0].graph_commit_id
    for write in writes(ana, commit).values():
        with pytest.raises(PolicyDenied, match="takes only change requests"):
            write()
    review = ana.reviews.open("feature")
    with pytest.raises(PolicyDenied):
        ana.reviews.report_check(review.id, "lint", "passed")
    with pytest.raises(ReviewBlocked) as blocked:
        ana.reviews.merge(review.id)
    assert len(blocked.value.details["reasons"]) == 3
    for reviewer in (bo, cy):
        reviewer.reviews.review(review.id, "approve")
    for check in ("lint", "no_orphans"):
        connect("act-ci").reviews.report_check(review.id, check, "passed")
    assert ana.reviews.merge(review.id).approvers == ("act-bo", "act-cy")
    connect("act-ops").mutate(ADD, {"name": "repaired"})
    with pytest.raises(PolicyDenied):
        list(ana.reviews.export())  # that takes `export`, which this policy grants to nobody
    events = og.open(root, mode="read_only").reviews.export()
    (event,) = [each for each in events if each.kind == "bypassed"]
    assert (event.actor_id, event.body["rule"]) == ("act-ops", "operators-repair")


def test_without_a_policy_there_are_no_requirements(root: Path):
    graph = og.open(root)
    review = graph.reviews.open("feature")
    graph.mutate(ADD, {"name": "direct"})
    graph.reviews.merge(review.id)
    assert names(graph) == ["ada", "bo", "direct"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("version: 1\nprotected_branches: [{name: main}]\n", "must be a text"),
        ("version: 2\nprotected_branches: [{name: main, requires: {}}]\n", "unknown key"),
        ("version: 2\nprotected_branches: [{name: main, require: {approvals: -1}}]\n", "a number"),
        ("version: 2\nprotected_branches: [{name: main, require: {approvals: 101}}]\n", "at most"),
        ("version: 2\nprotected_branches: [{name: main, require: {from: x}}]\n", "no group `x`"),
        (
            "version: 2\nprotected_branches: [{name: main, require: {up_to_date: yes}}]\n",
            "true or false",
        ),
        (
            f"{OLD}  - {{id: r, bypass: true, allow: {{actors: {{group: a}}, actions: [read]}}}}\n",
            "unknown key",
        ),
        (
            f"{OLD}  - {{id: r, allow: {{actors: {{group: a}}, actions: [check_report]}}}}\n",
            "in version 1",
        ),
    ],
)
def test_a_bundle_with_bad_requirements_is_refused(text: str, problem: str):
    with pytest.raises(PolicyInvalid, match=problem):
        load_policy(text)
