"""Tests of a policy: questions with the answers their author expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from omnigraph.policy.actions import Action
from omnigraph.policy.bundle import check_version, read_action
from omnigraph.policy.decide import Policy
from omnigraph.policy.strict_yaml import Node, read_document
from omnigraph.syntax.suggest import did_you_mean

Answer = Literal["allow", "deny"]
ANSWERS: tuple[Answer, ...] = ("allow", "deny")


@dataclass(frozen=True, slots=True)
class Case:
    """One question and the answer it must get."""

    id: str
    actor: str
    action: Action
    branch: str | None
    target_branch: str | None
    expect: Answer


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that got the other answer."""

    id: str
    expected: Answer
    actual: Answer
    matched_rule: str | None

    def __str__(self) -> str:
        return f"{self.id}: expected {self.expected} but got {self.actual}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        out = {"id": self.id, "expected": self.expected, "actual": self.actual}
        return out | ({} if self.matched_rule is None else {"matched_rule": self.matched_rule})


def parse_cases(source: str | Path) -> tuple[Case, ...]:
    """The cases in a YAML text, or in the file at a path.

    Raises `PolicyInvalid` with the place, and `OSError` for an unreadable file.
    """
    fields = read_document(source).fields(required=("version", "cases"))
    check_version(fields["version"])
    cases: dict[str, Case] = {}
    for node in fields["cases"].items():
        case = _case(node)
        if case.id in cases:
            node.fail(f"case `{case.id}`: there is another case with this id")
        cases[case.id] = case
    return tuple(cases.values())


def run_cases(policy: Policy, cases: Sequence[Case]) -> list[Failure]:
    """Ask everything, and return the cases that got another answer than expected.

    Raises `PolicyEvaluationFailed` for a question the policy cannot answer.
    """
    failures = []
    for case in cases:
        decision = policy.decide(
            case.actor, case.action, branch=case.branch, target_branch=case.target_branch
        )
        actual: Answer = "allow" if decision.allowed else "deny"
        if actual != case.expect:
            failures.append(Failure(case.id, case.expect, actual, decision.matched_rule_id))
    return failures


def _case(node: Node) -> Case:
    fields = node.fields(
        required=("id", "actor", "action", "expect"), optional=("branch", "target_branch")
    )
    expect = fields["expect"].text()
    if expect not in ANSWERS:
        fields["expect"].fail(
            f"`{fields['expect'].path}` must be allow or deny, not `{expect}`",
            hint=did_you_mean(expect, ANSWERS),
        )
    return Case(
        fields["id"].text(),
        fields["actor"].text(),
        read_action(fields["action"]),
        fields["branch"].text() if "branch" in fields else None,
        fields["target_branch"].text() if "target_branch" in fields else None,
        "allow" if expect == "allow" else "deny",
    )
