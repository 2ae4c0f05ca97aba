"""A bundle: the groups, the protected branches and the rules of one policy, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from omnigraph.policy.actions import KINDS, SCOPE_KEYS, Action, PolicyKind, Scope
from omnigraph.policy.strict_yaml import Node, Plain, read_document
from omnigraph.syntax.suggest import did_you_mean

VERSION = 1


@dataclass(frozen=True, slots=True)
class Rule:
    """Lets one group do some actions, on all branches or on some."""

    id: str
    group: str
    actions: tuple[Action, ...]
    branch_scope: Scope | None
    target_branch_scope: Scope | None
    place: str
    """Where it stands, for messages."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """What one file says; every rule of it holds together."""

    name: str
    kind: PolicyKind
    groups: Mapping[str, tuple[str, ...]]
    protected_branches: frozenset[str]
    rules: tuple[Rule, ...]

    @property
    def actors(self) -> frozenset[str]:
        """Everybody named in a group."""
        return frozenset(actor for members in self.groups.values() for actor in members)


def parse_bundle(source: str | Path, *, kind: PolicyKind | None = None) -> Bundle:
    """The bundle in a YAML text, or in the file at a path.

    ``kind`` is what it is bound to; without it, `kind` in the bundle or the actions of its rules
    say so, and a bundle that says nothing is one for a graph. Raises `PolicyInvalid` with the
    place, and `OSError` for an unreadable file.
    """
    document = read_document(source)
    fields = document.fields(
        required=("version",), optional=("kind", "groups", "protected_branches", "rules")
    )
    check_version(fields["version"])
    groups = _groups(fields["groups"]) if "groups" in fields else {}
    branches = fields["protected_branches"].items() if "protected_branches" in fields else []
    rules = _rules(fields["rules"], groups) if "rules" in fields else ()
    return Bundle(
        str(source) if isinstance(source, Path) else "policy",
        _kind(fields.get("kind"), rules, kind),
        groups,
        frozenset(branch.text() for branch in branches),
        rules,
    )


def check_version(node: Node) -> None:
    """Refuse a file of another version of the format."""
    if node.value != Plain(str(VERSION), "an integer"):
        found = node.value.spelling if isinstance(node.value, Plain) else "something else"
        node.fail(f"`version` must be the integer {VERSION}, not {found}")


def _groups(node: Node) -> dict[str, tuple[str, ...]]:
    groups = {}
    for name, members in node.mapping().items():
        if not name.strip():
            members.fail("a group has a blank name")
        groups[name] = tuple(member.text() for member in members.items())
        if not groups[name]:
            members.fail(f"group `{name}` has no members", hint="name an actor, or drop the group")
    return groups


def _rules(node: Node, groups: Mapping[str, tuple[str, ...]]) -> tuple[Rule, ...]:
    rules: dict[str, Rule] = {}
    for each in node.items():
        rule = _rule(each, groups)
        if rule.id in rules:
            each.fail(
                f"rule `{rule.id}`: there is another rule with this id",
                hint=f"the other one is at {rules[rule.id].place}",
            )
        rules[rule.id] = rule
    return tuple(rules.values())


def _rule(node: Node, groups: Mapping[str, tuple[str, ...]]) -> Rule:
    fields = node.fields(required=("id", "allow"))
    rule_id = fields["id"].text()
    allow = fields["allow"].fields(required=("actors", "actions"), optional=tuple(SCOPE_KEYS))
    group = allow["actors"].fields(required=("group",))["group"]
    if group.text() not in groups:
        _fail(
            group,
            rule_id,
            f"there is no group `{group.text()}`",
            hint=did_you_mean(group.text(), groups) or "declare it under `groups`",
        )
    named = [read_action(each, f"rule `{rule_id}`: ") for each in allow["actions"].items()]
    actions = tuple(dict.fromkeys(named))
    if not actions:
        _fail(allow["actions"], rule_id, "`actions` is empty")
    kinds = {action.kind for action in actions}
    if len(kinds) > 1:
        _fail(
            allow["actions"],
            rule_id,
            f"`{Action.GRAPH_LIST}` cannot stand beside actions on a graph",
            hint="it belongs in the bundle of the server",
        )
    given = [key for key in SCOPE_KEYS if key in allow]
    if len(given) > 1:
        _fail(node, rule_id, f"{' and '.join(f'`{key}`' for key in given)} exclude each other")
    scopes = {key: _scope(allow[key], rule_id, key, actions) for key in given}
    return Rule(
        rule_id,
        group.text(),
        actions,
        scopes.get("branch_scope"),
        scopes.get("target_branch_scope"),
        node.place,
    )


def read_action(node: Node, whose: str = "") -> Action:
    """The action a text names; ``whose`` begins the message if there is none."""
    name = node.text()
    if name not in set(Action):
        node.fail(
            f"{whose}there is no action `{name}`",
            hint=did_you_mean(name, Action) or f"the actions are {', '.join(Action)}",
        )
    return Action(name)


def _scope(node: Node, rule_id: str, key: str, actions: tuple[Action, ...]) -> Scope:
    for action in actions:
        if action not in SCOPE_KEYS[key]:
            takes = [other for other, suited in SCOPE_KEYS.items() if action in suited]
            _fail(
                node,
                rule_id,
                f"`{key}` does not go with `{action}`",
                hint=f"`{action}` takes `{takes[0]}`" if takes else f"`{action}` takes no scope",
            )
    name = node.text()
    if name not in set(Scope):
        _fail(
            node,
            rule_id,
            f"`{key}` cannot be `{name}`",
            hint=did_you_mean(name, Scope) or f"it is one of {', '.join(Scope)}",
        )
    return Scope(name)


def _kind(declared: Node | None, rules: tuple[Rule, ...], bound: PolicyKind | None) -> PolicyKind:
    """The kind of a bundle: what is bound, declared and used must agree."""
    said: PolicyKind | None = None
    if declared is not None:
        said = next((kind for kind in KINDS if kind == declared.text()), None)
        if said is None:
            declared.fail(f"`kind` must be {' or '.join(KINDS)}, not `{declared.text()}`")
        if bound is not None and said != bound:
            declared.fail(
                f"the bundle says it is for a {said}, but it is bound to a {bound}",
                hint="bind it where it belongs, or change `kind`",
            )
    used = rules[0].actions[0].kind if rules else "graph"
    kind = bound or said or used
    for rule in rules:
        for action in rule.actions:
            if action.kind != kind:
                Node("", rule.place, "").fail(
                    f"rule `{rule.id}`: `{action}` belongs in the bundle of a {action.kind}, and "
                    f"this one is for a {kind}",
                    hint="move the rule to the other bundle",
                )
    return kind


def _fail(node: Node, rule_id: str, problem: str, *, hint: str | None = None) -> NoReturn:
    node.fail(f"rule `{rule_id}`: {problem}", hint=hint)
