"""Compiled policies answer what a person reads in the bundle, for any bundle and any question.

The bundles and questions are random, with names of any characters. The person is a dozen lines of
Python that know nothing of Cedar or of our parser.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product, starmap

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.policy import Action, load_policy
from omnigraph.policy.bundle import NEW_ACTIONS, SCOPE_KEYS


@dataclass(frozen=True)
class PlainRule:
    id: str
    group: str
    actions: tuple[str, ...]
    key: str | None
    scope: str | None

    def text(self) -> str:
        limit = f", {self.key}: {self.scope}" if self.key is not None else ""
        return (
            f"  - {{id: {quoted(self.id)}, allow: {{actors: {{group: {quoted(self.group)}}}, "
            f"actions: [{', '.join(self.actions)}]{limit}}}}}\n"
        )


@dataclass(frozen=True)
class PlainBundle:
    groups: dict[str, list[str]]
    protected: list[str]
    rules: list[PlainRule]

    def text(self) -> str:
        groups = (f"  {quoted(name)}: {listed(who)}\n" for name, who in self.groups.items())
        rules = "".join(rule.text() for rule in self.rules)
        return (
            "version: 1\n"
            f"groups:\n{''.join(groups)}"
            f"protected_branches: {listed(self.protected)}\n" + (rules and f"rules:\n{rules}")
        )


@dataclass(frozen=True)
class Question:
    actor: str
    action: str
    branch: str | None
    target_branch: str | None


def quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(character):08x}" for character in text) + '"'


def listed(texts: list[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


def plain_answer(bundle: PlainBundle, question: Question) -> str | None:
    """The rule that allows it, by reading the bundle from top to bottom."""
    fitting = []
    for rule in bundle.rules:
        branch = question.branch if rule.key == "branch_scope" else question.target_branch
        is_protected = branch is not None and branch.strip() in bundle.protected
        if question.actor not in bundle.groups[rule.group] or question.action not in rule.actions:
            continue
        if rule.scope == "protected" and not is_protected:
            continue
        if rule.scope == "unprotected" and (branch is None or is_protected):
            continue
        fitting.append(rule.id)
    return min(fitting, default=None)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6) | st.sampled_from(
    ["main", 'a"b', "a\\b", "a\nb", "\\u{41}", "\\u0041", "x:read", "é", "😀", "no", '"', "\\"]
)
VISIBLE = NAMES.filter(lambda name: bool(name.strip()))
GRAPH_ACTIONS = [
    action.value for action in Action if action.kind == "graph" and action not in NEW_ACTIONS
]


@st.composite
def rules(draw: st.DrawFn, groups: list[str]) -> PlainRule:
    key = draw(st.sampled_from([None, *SCOPE_KEYS]))
    suitable = sorted(SCOPE_KEYS[key] - NEW_ACTIONS) if key is not None else GRAPH_ACTIONS
    return PlainRule(
        draw(VISIBLE),
        draw(st.sampled_from(groups)),
        tuple(draw(st.lists(st.sampled_from(suitable), min_size=1, max_size=3))),
        key,
        draw(st.sampled_from(["any", "protected", "unprotected"])) if key is not None else None,
    )


@st.composite
def bundles(draw: st.DrawFn) -> PlainBundle:
    actors = draw(st.lists(VISIBLE, min_size=1, max_size=3))
    members = st.lists(st.sampled_from(actors), min_size=1, max_size=3)
    groups = draw(st.dictionaries(VISIBLE, members, min_size=1, max_size=3))
    branches = draw(st.lists(VISIBLE.map(str.strip), max_size=2))
    found = draw(st.lists(rules(list(groups)), max_size=5, unique_by=lambda rule: rule.id))
    return PlainBundle(groups, branches, found)


@given(bundles(), NAMES, VISIBLE)
def test_every_decision_is_what_the_bundle_says(bundle: PlainBundle, graph: str, other: str):
    policy = load_policy(bundle.text(), graph=graph)
    assert policy.bundle.groups == {name: tuple(who) for name, who in bundle.groups.items()}
    actors = {actor for members in bundle.groups.values() for actor in members} | {other}
    actions = {action for rule in bundle.rules for action in rule.actions} | {"read"}
    branches = {None, other, f" {other} ", *bundle.protected}
    for question in starmap(Question, product(actors, actions, branches, branches)):
        decision = policy.decide(
            question.actor,
            question.action,
            branch=question.branch,
            target_branch=question.target_branch,
        )
        expected = plain_answer(bundle, question)
        assert (decision.allowed, decision.matched_rule_id) == (expected is not None, expected)
