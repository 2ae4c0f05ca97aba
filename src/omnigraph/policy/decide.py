"""Decides requests by a policy, and runs the tests of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.errors import InputError, PolicyDenied, PolicyEvaluationFailed, PolicyInvalid
from omnigraph.model.records import dataclass
from omnigraph.policy.bundle import (
    VERSION,
    BranchRequirements,
    Bundle,
    check_version,
    parse_bundle,
    read_action,
)
from omnigraph.policy.cedar import CedarPolicies
from omnigraph.policy.identity import Action, Actor, PolicyKind, identity_of
from omnigraph.policy.views import Views
from omnigraph.strict_yaml import Node, read_document
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog
    from omnigraph.views import View

DEFAULT_GRAPH = "default"
"""The id of a graph that was opened without a name."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one request, with the request."""

    allowed: bool
    actor: str | None
    """None if no actor was named."""
    action: Action
    branch: str | None
    target_branch: str | None
    matched_rule_id: str | None
    """The rule that allows it: of several, the first by id."""
    message: str
    is_bypass: bool = False
    """Whether it is allowed only by overriding the requirements of a branch; this is audited."""

    def require(
        self, hint: str | None = "`omnigraph policy explain` shows how a bundle decides"
    ) -> None:
        """Raise `PolicyDenied` unless it is allowed."""
        if not self.allowed:
            raise PolicyDenied(
                self.message,
                action=self.action,
                actor=self.actor,
                branch=self.branch,
                target_branch=self.target_branch,
                hint=hint,
            )


class Policy:
    """A compiled bundle: decides without any I/O. Safe to share between threads."""

    def __init__(self, bundle: Bundle, *, graph: str = DEFAULT_GRAPH) -> None:
        self.bundle = bundle
        self._bypassing = frozenset(rule.id for rule in bundle.rules if rule.bypass)
        self._cedar = CedarPolicies(bundle, graph)
        self._views = Views(bundle, self._cedar)

    def __repr__(self) -> str:
        return f"Policy({self.bundle.name!r}, {self.kind} {self._cedar.resource.id!r})"

    @property
    def kind(self) -> PolicyKind:
        """Whether the policy is for a graph or for the server."""
        return self.bundle.kind

    @property
    def protected_branches(self) -> frozenset[str]:
        """The branches that the bundle protects."""
        return frozenset(self.bundle.protected_branches)

    def decide(
        self,
        actor: Actor,
        action: Action | str,
        *,
        branch: str | None = None,
        target_branch: str | None = None,
        reviewed: bool = False,
    ) -> Decision:
        """Decide whether ``actor`` may do ``action``; without a rule it is denied.

        A branch with requirements accepts no direct writes, and only merges of change requests
        (``reviewed``); a rule with `bypass` exempts its actors.

        Space around branch names is ignored. Raises `InputError` for an invalid branch name, and
        `PolicyEvaluationFailed` if Cedar gives no decision.
        """
        asked = self._asked(action)
        branch = _branch_name(branch)
        target_branch = _branch_name(target_branch)
        identity = identity_of(actor)
        actor = identity.id
        what = _described(asked, branch, target_branch)
        rules: list[str] = []
        groups = self.bundle.groups_of(identity)
        if not groups:
            message = f"actor `{actor}` is unknown to the policy, and may not do {what}"
        else:
            context = self._context(branch, target_branch)
            rules = self._cedar.matching_rules(actor, asked.value, context, groups=groups)
            message = (
                f"rule `{rules[0]}` lets actor `{actor}` do {what}"
                if rules
                else f"no rule lets actor `{actor}` do {what}"
            )
        written = _written(asked, branch, target_branch)
        bypasses: list[str] = []
        if rules and not reviewed and written in self.bundle.requirements:
            bypasses = [rule for rule in rules if rule in self._bypassing]
            rules = bypasses
            message = (
                f"rule `{rules[0]}` lets actor `{actor}` do {what}, beside its requirements"
                if rules
                else f"actor `{actor}` may not do {what}: branch `{written}` has requirements, "
                "and takes only change requests (`omnigraph review open`, `review merge`)"
            )
        return Decision(
            bool(rules),
            actor,
            asked,
            branch,
            target_branch,
            rules[0] if rules else None,
            message,
            bool(bypasses),
        )

    def _context(self, branch: str | None, target_branch: str | None) -> dict[str, Any]:
        protected = self.bundle.protected_branches
        return {
            "has_branch": branch is not None,
            "has_target_branch": target_branch is not None,
            "branch_is_protected": branch in protected,
            "target_branch_is_protected": target_branch in protected,
            "branch": branch or "",
            "target_branch": target_branch or "",
        }

    def view(
        self,
        actor: Actor,
        catalog: Catalog,
        *,
        action: Action = Action.READ,
        branch: str | None = None,
        target_branch: str | None = None,
    ) -> View | None:
        """The view of an actor for an allowed action; None for the whole graph.

        Cached by actor and claims, schema, and applicable rules. If no rule applies, the view is
        empty. Raises as `decide` does.
        """
        asked = self._asked(action)
        branch, target_branch = _branch_name(branch), _branch_name(target_branch)
        context = self._context(branch, target_branch)
        return self._views.of(identity_of(actor), asked, context, catalog)

    def check_names(self, catalog: Catalog) -> None:
        """Check the types, properties and conditions of all rules against a schema.

        Raises `PolicyInvalid` with the position and a suggestion.
        """
        self._views.check_names(catalog)

    @cached_property
    def has_views(self) -> bool:
        """Whether a rule is limited to types, so that some actors may not see everything."""
        return any(rule.types is not None for rule in self.bundle.rules)

    @property
    def decides_upkeep(self) -> bool:
        """Whether `maintain` decides upkeep; bundles of version 1 lack it."""
        return self.bundle.version > VERSION

    @property
    def branches_of_rules(self) -> tuple[str, ...]:
        """One branch for each name and pattern that rules are limited to."""
        named = {name for rule in self.bundle.rules for name in rule.branches}
        return tuple(sorted(name.replace("/*", "/any") for name in named))

    def requirements_on(self, branch: str) -> BranchRequirements | None:
        """The requirements for merging a change request into a branch; None if there are none."""
        return self.bundle.requirements.get(branch)

    def _asked(self, action: Action | str) -> Action:
        try:
            asked = Action(action)
        except ValueError:
            raise PolicyEvaluationFailed(
                f"there is no action `{action}`",
                hint=did_you_mean(action, Action) or f"the actions are {', '.join(Action)}",
            ) from None
        if asked.kind != self.kind:
            raise PolicyEvaluationFailed(
                f"`{asked}` is decided by the bundle of a {asked.kind}, and this one is for a "
                f"{self.kind}"
            )
        return asked


def load_policy(
    source: str | Path, *, graph: str = DEFAULT_GRAPH, kind: PolicyKind | None = None
) -> Policy:
    """Read a bundle (a YAML text, or the `Path` of a file) and compile it for one graph.

    ``kind`` is the required kind, graph or server; by default the bundle's own. Raises
    `PolicyInvalid` with the position of a mistake, `OSError` for an unreadable file, and
    `InputError` when Cedar is not installed.
    """
    return Policy(parse_bundle(source, kind=kind), graph=graph)


def _written(action: Action, branch: str | None, target_branch: str | None) -> str | None:
    """The branch to which an action writes."""
    if action is Action.CHANGE:
        return branch
    return target_branch if action is Action.BRANCH_MERGE else None


def _branch_name(name: str | None) -> str | None:
    if name is None:
        return None
    trimmed = name.strip()
    if not trimmed:
        raise InputError("a branch name is blank", hint="name the branch, or leave it out")
    try:
        trimmed.encode()
    except UnicodeEncodeError:
        raise InputError(f"a branch name has no UTF-8 form: {trimmed!a}") from None
    return trimmed


def _described(action: Action, branch: str | None, target_branch: str | None) -> str:
    if branch is not None and target_branch is not None:
        return f"`{action}` from branch `{branch}` to target branch `{target_branch}`"
    if target_branch is not None:
        return f"`{action}` on target branch `{target_branch}`"
    return f"`{action}` on branch `{branch}`" if branch is not None else f"`{action}`"


# --- tests of a policy ----------------------------------------------------------------------------


Outcome = Literal["allow", "deny"]
OUTCOMES: tuple[Outcome, ...] = ("allow", "deny")


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """A request and its expected outcome."""

    id: str
    actor: str
    action: Action
    branch: str | None
    target_branch: str | None
    expect: Outcome


@dataclass(frozen=True, slots=True)
class CaseFailure:
    """A case with an unexpected outcome."""

    id: str
    expected: Outcome
    actual: Outcome
    matched_rule: str | None

    def __str__(self) -> str:
        return f"{self.id}: expected {self.expected} but got {self.actual}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        out = {"id": self.id, "expected": self.expected, "actual": self.actual}
        return out | ({} if self.matched_rule is None else {"matched_rule": self.matched_rule})


def parse_cases(source: str | Path) -> tuple[PolicyCase, ...]:
    """The cases in a YAML text, or in the file at a path.

    Raises `PolicyInvalid` with the position, and `OSError` for an unreadable file.
    """
    fields = read_document(source, PolicyInvalid).fields(required=("version", "cases"))
    check_version(fields["version"], VERSION)
    cases: dict[str, PolicyCase] = {}
    for node in fields["cases"].items():
        case = _case(node)
        if case.id in cases:
            node.fail(f"case `{case.id}`: there is another case with this id")
        cases[case.id] = case
    return tuple(cases.values())


def run_cases(policy: Policy, cases: Sequence[PolicyCase]) -> list[CaseFailure]:
    """Decide every case, and return those with an unexpected outcome.

    Raises `PolicyEvaluationFailed` if the policy cannot decide a case.
    """
    failures = []
    for case in cases:
        decision = policy.decide(
            case.actor, case.action, branch=case.branch, target_branch=case.target_branch
        )
        actual: Outcome = "allow" if decision.allowed else "deny"
        if actual != case.expect:
            failures.append(CaseFailure(case.id, case.expect, actual, decision.matched_rule_id))
    return failures


def _case(node: Node) -> PolicyCase:
    fields = node.fields(
        required=("id", "actor", "action", "expect"), optional=("branch", "target_branch")
    )
    expect = fields["expect"].text()
    if expect not in OUTCOMES:
        fields["expect"].fail(
            f"`{fields['expect'].path}` must be allow or deny, not `{expect}`",
            hint=did_you_mean(expect, OUTCOMES),
        )
    return PolicyCase(
        fields["id"].text(),
        fields["actor"].text(),
        read_action(fields["action"]),
        fields["branch"].text() if "branch" in fields else None,
        fields["target_branch"].text() if "target_branch" in fields else None,
        "allow" if expect == "allow" else "deny",
    )
