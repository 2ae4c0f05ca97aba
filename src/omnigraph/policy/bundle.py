"""Bundles: the groups, protected branches and rules of one policy, parsed and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

from omnigraph.errors import CompileError, PolicyInvalid
from omnigraph.model.records import dataclass
from omnigraph.policy.identity import Action, ClaimTest, Identity, PolicyKind
from omnigraph.strict_yaml import Node, Plain, read_document
from omnigraph.syntax.query_parser import parse_condition
from omnigraph.syntax.suggest import did_you_mean

# --- actions --------------------------------------------------------------------------------------


KINDS: tuple[PolicyKind, ...] = ("graph", "server")

SCOPE_KEYS: dict[str, frozenset[Action]] = {
    "branch_scope": frozenset({Action.READ, Action.EXPORT, Action.CHANGE, Action.CHECK_REPORT}),
    "target_branch_scope": frozenset(
        {
            Action.SCHEMA_APPLY,
            Action.BRANCH_CREATE,
            Action.BRANCH_DELETE,
            Action.BRANCH_MERGE,
            Action.TAG_CREATE,
            Action.TAG_DELETE,
        }
    ),
}
"""Keys that limit a rule to branches, and the actions they apply to."""

TYPED_ACTIONS = frozenset({Action.READ, Action.EXPORT, Action.CHANGE, Action.BRANCH_MERGE})
"""Actions that a rule may limit to types, properties and rows."""


class BranchProtection(StrEnum):
    """The branches a rule is limited to."""

    ANY = "any"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"


# --- bundles --------------------------------------------------------------------------------------


VERSION = 1
VERSION_WITH_REQUIREMENTS = 2
"""Adds `require` of protected branches, groups by claims, `bypass`, `branches` and `types` of
rules, the actions `check_report` and `maintain`."""

NEW_ACTIONS = frozenset({Action.CHECK_REPORT, Action.MAINTAIN})
"""Actions added in version 2."""

APPROVALS_MAX = 100


@dataclass(frozen=True, slots=True)
class BranchRequirements:
    """The requirements for merging a change request into a branch."""

    approvals: int = 0
    from_group: str | None = None
    """The group whose approvals count; None for all actors."""
    checks: tuple[str, ...] = ()
    resolved_comments: bool = False
    up_to_date: bool = False


@dataclass(frozen=True, slots=True)
class TypeGrant:
    """A rule's grant on one type."""

    type_name: str
    properties: tuple[str, ...] | None
    """None for all."""
    where: str | None
    """A condition on `$row` and `$actor`; None for all rows."""
    places: Mapping[str, str] = field(compare=False)
    """Positions in the file, by subject: `type`, `where`, and each property."""


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """Grants actions to a group, on all branches or on some."""

    id: str
    group: str
    actions: tuple[Action, ...]
    branch_scope: BranchProtection | None
    target_branch_scope: BranchProtection | None
    place: str
    """Its position in the file, for messages."""
    bypass: bool = False
    """Whether it overrides the requirements of a branch."""
    branches: tuple[str, ...] = ()
    """Branch names, and prefixes that end with `/*`, that limit it like a scope; empty for all."""
    types: tuple[TypeGrant, ...] | None = None
    """None for all types, with all properties and rows."""

    @property
    def is_about_target(self) -> bool:
        """Whether `branches` are those that its actions write to, and not those they read."""
        return self.actions[0] in SCOPE_KEYS["target_branch_scope"]


@dataclass(frozen=True, slots=True)
class Bundle:
    """The contents of one checked policy file."""

    name: str
    kind: PolicyKind
    groups: Mapping[str, tuple[str, ...]]
    protected_branches: frozenset[str]
    rules: tuple[PolicyRule, ...]
    requirements: Mapping[str, BranchRequirements] = field(default_factory=dict)
    """By branch. Such a branch accepts only merges of change requests."""
    claim_groups: Mapping[str, ClaimTest] = field(default_factory=dict)
    """Groups whose members are determined by a claim; in ``groups`` they have no members."""
    version: int = VERSION

    def groups_of(self, identity: Identity) -> frozenset[str]:
        """The groups of an actor."""
        listed = {name for name, members in self.groups.items() if identity.id in members}
        claimed = {name for name, test in self.claim_groups.items() if test.holds(identity)}
        return frozenset(listed | claimed)

    @property
    def actors(self) -> frozenset[str]:
        """All members of all groups."""
        return frozenset(actor for members in self.groups.values() for actor in members)


def parse_bundle(source: str | Path, *, kind: PolicyKind | None = None) -> Bundle:
    """The bundle in a YAML text, or in the file at a path.

    ``kind`` is the required kind; without it, `kind` in the bundle or the actions of its rules
    decide, and the default is a graph. Raises `PolicyInvalid` with the position, and `OSError` for
    an unreadable file.
    """
    document = read_document(source, PolicyInvalid)
    fields = document.fields(
        required=("version",), optional=("kind", "groups", "protected_branches", "rules")
    )
    version = check_version(fields["version"], VERSION, VERSION_WITH_REQUIREMENTS)
    groups, claim_groups = _groups(fields["groups"], version) if "groups" in fields else ({}, {})
    branches = fields["protected_branches"].items() if "protected_branches" in fields else []
    rules = _rules(fields["rules"], groups, version) if "rules" in fields else ()
    listed = {name: members for name, members in groups.items() if members}
    protected, requirements = _protected(branches, listed, version)
    return Bundle(
        str(source) if isinstance(source, Path) else "policy",
        _kind(fields.get("kind"), rules, kind),
        groups,
        protected,
        rules,
        requirements,
        claim_groups,
        version,
    )


def check_version(node: Node, *known: int) -> int:
    """The version of a file; raises `PolicyInvalid` if it is unknown."""
    for version in known:
        if node.value == Plain(str(version), "an integer"):
            return version
    found = node.value.spelling if isinstance(node.value, Plain) else "something else"
    return node.fail(f"`version` must be the integer {' or '.join(map(str, known))}, not {found}")


def _protected(
    nodes: list[Node], groups: Mapping[str, tuple[str, ...]], version: int
) -> tuple[frozenset[str], dict[str, BranchRequirements]]:
    names: list[str] = []
    requirements: dict[str, BranchRequirements] = {}
    for node in nodes:
        if version == VERSION or not isinstance(node.value, dict):
            names.append(node.text())
            continue
        fields = node.fields(required=("name",), optional=("require",))
        names.append(fields["name"].text())
        if "require" in fields:
            if names[-1] in requirements:
                node.fail(f"branch `{names[-1]}` has requirements twice")
            requirements[names[-1]] = _required(fields["require"], groups)
    return frozenset(names), requirements


def _required(node: Node, groups: Mapping[str, tuple[str, ...]]) -> BranchRequirements:
    fields = node.fields(
        optional=("approvals", "from", "checks", "resolved_comments", "up_to_date")
    )
    group = fields["from"].text() if "from" in fields else None
    if group is not None and group not in groups:
        fields["from"].fail(
            f"there is no group `{group}`",
            hint=did_you_mean(group, groups) or "declare it under `groups`",
        )
    checks = tuple(each.text() for each in fields["checks"].items()) if "checks" in fields else ()
    return BranchRequirements(
        _count(fields["approvals"]) if "approvals" in fields else 0,
        group,
        tuple(dict.fromkeys(checks)),
        "resolved_comments" in fields and fields["resolved_comments"].flag(),
        "up_to_date" in fields and fields["up_to_date"].flag(),
    )


def _count(node: Node) -> int:
    value = node.value
    is_number = isinstance(value, Plain) and value.kind == "an integer"
    if not isinstance(value, Plain) or not is_number or not value.spelling.isdecimal():
        node.fail(f"{node.label} must be a number")
    if len(value.spelling) > len(str(APPROVALS_MAX)):
        node.fail(f"{node.label} must be at most {APPROVALS_MAX}")
    count = int(value.spelling)
    if count > APPROVALS_MAX:
        node.fail(f"{node.label} must be at most {APPROVALS_MAX}")
    return count


def _groups(node: Node, version: int) -> tuple[dict[str, tuple[str, ...]], dict[str, ClaimTest]]:
    groups: dict[str, tuple[str, ...]] = {}
    claims: dict[str, ClaimTest] = {}
    for name, members in node.mapping().items():
        if not name.strip():
            members.fail("a group has a blank name")
        if version > VERSION and isinstance(members.value, dict):
            fields = members.fields(required=("claim", "value"))
            claims[name] = ClaimTest(fields["claim"].text(), fields["value"].text())
            groups[name] = ()
            continue
        groups[name] = tuple(member.text() for member in members.items())
        if not groups[name]:
            members.fail(f"group `{name}` has no members", hint="name an actor, or drop the group")
    return groups, claims


def _rules(
    node: Node, groups: Mapping[str, tuple[str, ...]], version: int
) -> tuple[PolicyRule, ...]:
    rules: dict[str, PolicyRule] = {}
    for each in node.items():
        rule = _rule(each, groups, version)
        if rule.id in rules:
            each.fail(
                f"rule `{rule.id}`: there is another rule with this id",
                hint=f"the other one is at {rules[rule.id].place}",
            )
        rules[rule.id] = rule
    return tuple(rules.values())


def _rule(node: Node, groups: Mapping[str, tuple[str, ...]], version: int) -> PolicyRule:
    is_newer = version > VERSION
    fields = node.fields(required=("id", "allow"), optional=("bypass", "types") if is_newer else ())
    rule_id = fields["id"].text()
    limits = (*SCOPE_KEYS, "branches") if is_newer else tuple(SCOPE_KEYS)
    allow = fields["allow"].fields(required=("actors", "actions"), optional=limits)
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
    if version == VERSION and (newer := [each for each in actions if each in NEW_ACTIONS]):
        _fail(
            allow["actions"],
            rule_id,
            f"there is no action `{newer[0]}` in version {VERSION}",
            hint=f"write `version: {VERSION_WITH_REQUIREMENTS}`",
        )
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
    given = [key for key in limits if key in allow]
    if len(given) > 1:
        _fail(node, rule_id, f"{' and '.join(f'`{key}`' for key in given)} exclude each other")
    scopes = {key: _scope(allow[key], rule_id, key, actions) for key in given if key in SCOPE_KEYS}
    return PolicyRule(
        rule_id,
        group.text(),
        actions,
        scopes.get("branch_scope"),
        scopes.get("target_branch_scope"),
        node.place,
        "bypass" in fields and fields["bypass"].flag(),
        _branches(allow["branches"], rule_id, actions) if "branches" in allow else (),
        _types(fields["types"], rule_id, actions) if "types" in fields else None,
    )


def _branches(node: Node, rule_id: str, actions: tuple[Action, ...]) -> tuple[str, ...]:
    fitting = [key for key, suited in SCOPE_KEYS.items() if suited.issuperset(actions)]
    if not fitting:
        _fail(
            node,
            rule_id,
            f"`branches` does not go with {' and '.join(f'`{each}`' for each in actions)}",
            hint="it limits actions that all read or change a branch, or all write to one",
        )
    names = tuple(each.text() for each in node.items())
    if not names:
        _fail(node, rule_id, "`branches` is empty")
    for each, name in zip(node.items(), names, strict=True):
        if "*" in name.removesuffix("/*") or name == "/*":
            _fail(
                each,
                rule_id,
                f"`{name}` is no branch",
                hint="a `*` stands at the end, behind a slash: `agent/*`",
            )
    return names


def _types(node: Node, rule_id: str, actions: tuple[Action, ...]) -> tuple[TypeGrant, ...]:
    for action in actions:
        if action not in TYPED_ACTIONS:
            _fail(
                node,
                rule_id,
                f"`types` does not go with `{action}`",
                hint=f"it limits {', '.join(sorted(TYPED_ACTIONS))}",
            )
    return tuple(_grant(each, name, rule_id) for name, each in node.mapping().items())


def _grant(node: Node, name: str, rule_id: str) -> TypeGrant:
    places = {"type": node.place}
    if isinstance(node.value, str):
        if node.value != "all":
            _fail(node, rule_id, f"{node.label} must be `all` or a mapping, not `{node.value}`")
        return TypeGrant(name, None, None, places)
    fields = node.fields(optional=("properties", "where"))
    properties, where = None, None
    if "properties" in fields:
        listed = fields["properties"].items()
        properties = tuple(dict.fromkeys(each.text() for each in listed))
        places |= {f"property {each.text()}": each.place for each in listed}
    if "where" in fields:
        where = fields["where"].text()
        places["where"] = fields["where"].place
        try:
            parse_condition(where)
        except CompileError as problem:
            fail_condition(places["where"], rule_id, problem)
    return TypeGrant(name, properties, where, places)


def fail_condition(place: str, rule_id: str, problem: CompileError) -> NoReturn:
    """Raise `PolicyInvalid` for a condition, with its position in the file and the condition."""
    at = problem.position
    inside = "" if at is None else f" at {at.line}:{at.column}"
    Node("", place, "", PolicyInvalid).fail(
        f"rule `{rule_id}`: in `where`{inside}: {problem.reason}", hint=problem.hint
    )


def read_action(node: Node, whose: str = "") -> Action:
    """Parse an action; ``whose`` is the beginning of the error message."""
    name = node.text()
    if name not in set(Action):
        node.fail(
            f"{whose}there is no action `{name}`",
            hint=did_you_mean(name, Action) or f"the actions are {', '.join(Action)}",
        )
    return Action(name)


def _scope(node: Node, rule_id: str, key: str, actions: tuple[Action, ...]) -> BranchProtection:
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
    if name not in set(BranchProtection):
        _fail(
            node,
            rule_id,
            f"`{key}` cannot be `{name}`",
            hint=did_you_mean(name, BranchProtection)
            or f"it is one of {', '.join(BranchProtection)}",
        )
    return BranchProtection(name)


def _kind(
    declared: Node | None, rules: tuple[PolicyRule, ...], bound: PolicyKind | None
) -> PolicyKind:
    """The kind of a bundle; required, declared and used kinds must agree."""
    stated: PolicyKind | None = None
    if declared is not None:
        stated = next((kind for kind in KINDS if kind == declared.text()), None)
        if stated is None:
            declared.fail(f"`kind` must be {' or '.join(KINDS)}, not `{declared.text()}`")
        if bound is not None and stated != bound:
            declared.fail(
                f"the bundle says it is for a {stated}, but it is bound to a {bound}",
                hint="bind it where it belongs, or change `kind`",
            )
    used = rules[0].actions[0].kind if rules else "graph"
    kind = bound or stated or used
    for rule in rules:
        for action in rule.actions:
            if action.kind != kind:
                Node("", rule.place, "", PolicyInvalid).fail(
                    f"rule `{rule.id}`: `{action}` belongs in the bundle of a {action.kind}, and "
                    f"this one is for a {kind}",
                    hint="move the rule to the other bundle",
                )
    return kind


def _fail(node: Node, rule_id: str, problem: str, *, hint: str | None = None) -> NoReturn:
    node.fail(f"rule `{rule_id}`: {problem}", hint=hint)
