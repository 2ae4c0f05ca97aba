"""Decisions: what a compiled policy answers, and what is no answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import (
    InputError,
    PolicyDenied,
    PolicyEvaluationFailed,
    install_command,
)
from omnigraph.policy import Action, Decision, Policy, load_policy
from omnigraph.policy.cedar import Uid, literal

ROOT = Path(__file__).parents[2]

BUNDLE = """\
version: 1
groups:
  team: [act-ana, act-bo]
  admins: [act-ana]
protected_branches: [main]
rules:
  - id: reads
    allow: { actors: { group: team }, actions: [read], branch_scope: any }
  - id: edits
    allow: { actors: { group: team }, actions: [change], branch_scope: unprotected }
  - id: exports-main
    allow: { actors: { group: team }, actions: [export], branch_scope: protected }
  - id: schema
    allow: { actors: { group: admins }, actions: [schema_apply], target_branch_scope: protected }
  - id: merges
    allow: { actors: { group: admins }, actions: [branch_merge], target_branch_scope: protected }
  - id: forks
    allow: { actors: { group: team }, actions: [branch_create], target_branch_scope: unprotected }
  - id: invokes
    allow: { actors: { group: team }, actions: [invoke_query] }
"""
LISTS = """\
version: 1
groups: { operators: [act-ana] }
rules:
  - id: lists
    allow: { actors: { group: operators }, actions: [graph_list] }
"""
CONTEXT: Mapping[str, Any] = {
    "has_branch": True,
    "has_target_branch": False,
    "branch_is_protected": False,
    "target_branch_is_protected": False,
    "branch": "review",
    "target_branch": "",
}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(BUNDLE, graph="knowledge")


def rule_of(decision: Decision) -> str | None:
    assert decision.allowed == (decision.matched_rule_id is not None)
    return decision.matched_rule_id


def test_c_pol_018_names_of_any_characters_compile_and_match():
    odd = 'te"am\\ \t\x00\x1b\x7f\x85é\u2028😀${}*'
    text = "".join(f"\\U{ord(character):08x}" for character in odd)
    bundle = f"""\
version: 1
groups: {{"{text}": ["{text}"]}}
protected_branches: ["{text}"]
rules:
  - id: "{text}"
    allow:
      actors: {{group: "{text}"}}
      actions: [change]
      branch_scope: protected
"""
    policy = load_policy(bundle, graph=odd)
    assert rule_of(policy.decide(odd, "change", branch=odd)) == odd
    assert rule_of(policy.decide(odd, "change", branch="main")) is None
    assert rule_of(policy.decide("te", "change", branch=odd)) is None


def test_a_rule_id_may_look_like_that_of_another_action():
    text = BUNDLE.replace("id: edits", "id: 'edits:read'")
    assert rule_of(load_policy(text).decide("act-bo", "change", branch="x")) == "edits:read"


def test_texts_of_cedar_escape_what_would_end_them():
    assert literal('a"b\\c\n\r\t\0') == '"a\\"b\\\\c\\n\\r\\t\\0"'
    assert literal("\x01\x7f\x9f") == '"\\u{1}\\u{7f}\\u{9f}"'
    assert literal("é😀") == '"é😀"'


def test_c_pol_019_a_change_of_unprotected_branches(policy: Policy):
    assert rule_of(policy.decide("act-bo", Action.CHANGE, branch="feature")) == "edits"
    assert rule_of(policy.decide("act-bo", Action.CHANGE, branch="main")) is None


def test_c_pol_020_a_schema_apply_on_protected_branches(policy: Policy):
    assert rule_of(policy.decide("act-ana", "schema_apply", target_branch="main")) == "schema"
    assert rule_of(policy.decide("act-ana", "schema_apply", target_branch="feature")) is None


def test_c_pol_021_a_merge_into_a_protected_branch(policy: Policy):
    question: Any = {"branch": "feature", "target_branch": "main"}
    assert rule_of(policy.decide("act-ana", "branch_merge", **question)) == "merges"
    assert rule_of(policy.decide("act-bo", "branch_merge", **question)) is None


@pytest.mark.parametrize("action", ["change", "export"])
def test_c_pol_022_without_a_branch_no_limited_rule_matches(policy: Policy, action: str):
    assert rule_of(policy.decide("act-bo", action)) is None
    assert rule_of(policy.decide("act-bo", action, target_branch="main")) is None


@pytest.mark.parametrize("action", ["schema_apply", "branch_create", "branch_merge"])
def test_c_pol_022_without_a_target_no_limited_rule_matches(policy: Policy, action: str):
    assert rule_of(policy.decide("act-ana", action, branch="main")) is None
    assert rule_of(policy.decide("act-ana", action, branch="feature")) is None


def test_c_pol_023_a_rule_without_a_limit_matches_always(policy: Policy):
    for branch in (None, "main", "feature"):
        assert rule_of(policy.decide("act-bo", "read", branch=branch)) == "reads"
        assert rule_of(policy.decide("act-bo", "invoke_query", branch=branch)) == "invokes"


def test_c_pol_024_an_unknown_actor_is_denied_by_name(policy: Policy):
    for actor in ("act-eve", "", "ACT-ANA", " act-ana"):
        decision = policy.decide(actor, "read", branch="main")
        assert rule_of(decision) is None
        assert f"actor `{actor}` is unknown to the policy" in decision.message


def test_a_denial_names_what_was_asked(policy: Policy):
    merge = policy.decide("act-bo", "branch_merge", branch="feature", target_branch="main").message
    for word in ("`branch_merge`", "`feature`", "`main`", "`act-bo`"):
        assert word in merge
    assert policy.decide("act-bo", "admin").message == "no rule lets actor `act-bo` do `admin`"


def test_c_pol_025_the_smallest_of_several_rules_is_reported():
    text = BUNDLE + "".join(
        f"  - {{id: {name}, allow: {{actors: {{group: team}}, actions: [read, change]}}}}\n"
        for name in ("zz", "a-10", "a-9", "B")
    )
    policy = load_policy(text)
    assert rule_of(policy.decide("act-bo", "read", branch="main")) == "B"
    assert rule_of(policy.decide("act-bo", "change", branch="main")) == "B"


def test_c_pol_026_stored_queries_are_allowed_without_a_branch(policy: Policy):
    assert rule_of(policy.decide("act-bo", Action.INVOKE_QUERY)) == "invokes"
    assert rule_of(policy.decide("act-eve", Action.INVOKE_QUERY)) is None


def test_c_pol_027_a_bundle_of_two_graphs_decides_for_each():
    here, there = load_policy(BUNDLE, graph="here"), load_policy(BUNDLE, graph="there")
    assert rule_of(here.decide("act-bo", "read")) == rule_of(there.decide("act-bo", "read"))
    # Rules that were compiled for one graph do not reach the other.
    assert here._cedar.matching_rules("act-bo", "change", CONTEXT) == ["edits"]
    here._cedar.resource = there._cedar.resource
    assert here._cedar.matching_rules("act-bo", "change", CONTEXT) == []


@pytest.mark.parametrize("rules", ["", "rules: []\n"])
def test_c_pol_028_without_rules_everything_is_denied(rules: str):
    policy = load_policy(f"version: 1\ngroups: {{team: [act-ana]}}\n{rules}")
    for action in Action:
        if action.kind == "graph":
            decision = policy.decide("act-ana", action, branch="main", target_branch="main")
            assert rule_of(decision) is None


def test_the_bundle_of_a_server_decides_about_its_list_of_graphs():
    policy = load_policy(LISTS, kind="server")
    assert rule_of(policy.decide("act-ana", "graph_list")) == "lists"
    assert rule_of(policy.decide("act-bo", "graph_list")) is None


def test_spaces_around_branch_names_cannot_change_a_decision(policy: Policy):
    assert rule_of(policy.decide("act-bo", "change", branch=" main\t")) is None
    assert rule_of(policy.decide("act-bo", "change", branch=" x ")) == "edits"
    assert policy.decide("act-bo", "change", branch=" x ").branch == "x"


def test_what_cannot_be_a_branch_is_no_question(policy: Policy):
    with pytest.raises(InputError, match="a branch name is blank"):
        policy.decide("act-bo", "change", branch=" ")
    with pytest.raises(InputError, match="a branch name has no UTF-8 form"):
        policy.decide("act-bo", "branch_create", target_branch="x\ud800")
    assert rule_of(policy.decide("act-\ud800", "read")) is None


def test_a_denial_can_be_raised_with_its_facts(policy: Policy):
    policy.decide("act-bo", "read").require()
    with pytest.raises(PolicyDenied) as caught:
        policy.decide("act-bo", "branch_merge", branch="x", target_branch="main").require()
    error = caught.value
    assert (error.action, error.actor) == ("branch_merge", "act-bo")
    assert (error.branch, error.target_branch) == ("x", "main")
    assert error.envelope()["code"] == "forbidden"
    assert isinstance(error, PermissionError)


def test_a_policy_can_be_asked_by_many_threads(policy: Policy):
    def ask(number: int) -> str | None:
        branch = "main" if number % 2 else f"b{number}"
        return policy.decide("act-bo", "change", branch=branch).matched_rule_id

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(400)))
    assert answers == ["edits", None] * 200


# --- no answer ------------------------------------------------------------------------------------


def test_c_pol_029_an_ill_typed_question_is_an_error(policy: Policy):
    asked = load_policy(BUNDLE)
    asked._cedar.resource = Uid("Server", "root")  # no resource that `read` could be about
    with pytest.raises(PolicyEvaluationFailed, match="cannot tell whether actor `act-bo`"):
        asked.decide("act-bo", "read")
    for context in ({}, {**CONTEXT, "has_branch": "yes"}, {**CONTEXT, "more": 1}):
        with pytest.raises(PolicyEvaluationFailed):
            policy._cedar.matching_rules("act-bo", "read", context)
    with pytest.raises(PolicyEvaluationFailed):
        policy._cedar.matching_rules("act-bo", "fly", CONTEXT)


def test_c_pol_029_an_error_beside_a_matching_rule_is_no_allow():
    policy = load_policy(BUNDLE.replace("[invoke_query]", "[change]"))
    cedar = policy._cedar
    assert cedar.matching_rules("act-bo", "change", CONTEXT) == ["edits", "invokes"]
    cedar._schema = None  # type: ignore[assignment] # so that the gap shows only when rules run
    with pytest.raises(PolicyEvaluationFailed, match="has_branch"):
        cedar.matching_rules("act-bo", "change", {})


def test_c_pol_029_a_failing_library_is_no_denial(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> object:
        raise RuntimeError("out of order")

    policy = load_policy(BUNDLE)
    monkeypatch.setattr("cedarpy.is_authorized", broken)
    with pytest.raises(PolicyEvaluationFailed, match="out of order") as caught:
        policy.decide("act-bo", "read")
    assert caught.value.envelope()["code"] == "internal"


def test_questions_of_another_kind_and_unknown_actions_are_errors(policy: Policy):
    with pytest.raises(PolicyEvaluationFailed, match="`graph_list` is decided by the bundle of a"):
        policy.decide("act-ana", "graph_list")
    with pytest.raises(PolicyEvaluationFailed, match="`read` is decided by the bundle of a graph"):
        load_policy(LISTS).decide("act-ana", "read")
    with pytest.raises(PolicyEvaluationFailed, match="there is no action `raed`") as caught:
        policy.decide("act-ana", "raed")
    assert caught.value.hint == "did you mean `read`?"


# --- what is loaded when --------------------------------------------------------------------------


def python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_cedar_and_yaml_are_loaded_by_the_first_policy_only():
    code = """
import sys
import omnigraph.graph, omnigraph.policy
print([name for name in ("cedarpy", "ruamel") if name in sys.modules])
omnigraph.policy.load_policy("version: 1")
print([name for name in ("cedarpy", "ruamel") if name in sys.modules])
"""
    assert python(code) == "[]\n['cedarpy', 'ruamel']\n"


def test_without_cedar_the_error_says_what_to_install():
    code = """
import sys
sys.modules["cedarpy"] = None
from omnigraph.errors import InputError
from omnigraph.policy import load_policy
try:
    load_policy("version: 1")
except InputError as error:
    print(error.render())
"""
    assert python(code) == (
        f"policies need Cedar, which is not installed\nhint: {install_command('policy')}\n"
    )
