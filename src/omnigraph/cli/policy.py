"""`omnigraph policy …`: check a policy, test it, and ask it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.failures import ExitCode, UsageError
from omnigraph.cli.files import require_file
from omnigraph.cli.help import Commands, ControlCommand
from omnigraph.cli.options import JsonFlag, branch_name, option
from omnigraph.cli.output import Styled, counted, output_of
from omnigraph.errors import InputError, PolicyInvalid
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.policy import Action, Policy

COMMANDS = Commands(
    "policy",
    "Check who may do what, before and after it is in force.",
    """
omnigraph policy validate --file examples/policy/team.yaml
omnigraph policy test --file examples/policy/team.yaml --tests examples/policy/team_tests.yaml
omnigraph policy explain --file examples/policy/team.yaml --actor act-bo --action schema_apply
""",
)

BundleOption = Annotated[Path, option("--file", "BUNDLE", "the bundle")]
CasesOption = Annotated[Path, option("--tests", "TESTS.yaml", "questions and expected answers")]
ActorOption = Annotated[str, option("--actor", "ID", "who would act")]
ActionOption = Annotated[str, option("--action", "ACTION", "what they would do, such as `change`")]
BranchOption = Annotated[
    str | None,
    option(
        "--branch", "NAME", "the branch that is read, changed, forked or merged", check=branch_name
    ),
]
TargetOption = Annotated[
    str | None,
    option(
        "--target-branch",
        "NAME",
        "the branch that is created, deleted, merged into or gets a schema",
        check=branch_name,
    ),
]


@COMMANDS.add(ControlCommand)
def validate(ctx: typer.Context, file: BundleOption, json: JsonFlag = False) -> None:
    """Check a policy bundle.

    It is read strictly and compiled: an unknown or misspelt word is an error, so that a rule cannot
    silently allow more than it says. The exit code is 1 if anything is wrong.

    omnigraph policy validate --file examples/policy/team.yaml
    omnigraph policy validate --file examples/policy/operators.yaml --json
    """
    output = output_of(ctx)
    try:
        bundle = _load(file).bundle
    except PolicyInvalid as problem:
        if not json:
            raise
        wrong = {"bundle": str(file), "message": problem.message}
        output.json({"ok": False, "bundles": [], "errors": [wrong]})
        raise typer.Exit(ExitCode.FAILURE) from None
    actors, rules = len(bundle.actors), len(bundle.rules)
    about = {"name": str(file), "kind": bundle.kind, "applies_to": []}
    held = f"{counted(actors, 'actor')} and {counted(rules, 'rule')}"
    output.done(
        {"ok": True, "bundles": [{**about, "actors": actors, "rules": rules}], "errors": []},
        f"{file}: a valid {bundle.kind} bundle with {held}",
        json=json,
    )


@COMMANDS.add(ControlCommand)
def test(
    ctx: typer.Context, tests: CasesOption, file: BundleOption, json: JsonFlag = False
) -> None:
    """Ask a bundle a list of questions and compare the answers with the expected ones.

    Every mismatch is listed, and the exit code is then 1.

    omnigraph policy test --file examples/policy/team.yaml --tests examples/policy/team_tests.yaml
    omnigraph policy test --file policy.yaml --tests policy_tests.yaml --json
    """
    from omnigraph.policy import parse_cases, run_cases

    output = output_of(ctx)
    loaded = _load(file)
    require_file(tests)
    cases = parse_cases(tests)
    for case in cases:
        _require_answerable(loaded, case.action, f"case `{case.id}`: ")
    failures = run_cases(loaded, cases)
    asked = counted(len(cases), "case")
    if failures:
        verdict = Styled(f"{len(failures)} of {asked} not as expected", "bold red")
    else:
        verdict = Styled(f"{asked} as expected", "bold green")
    output.show(
        {"ok": not failures, "cases": len(cases), "failures": failures},
        [*([Styled(str(failure), "red")] for failure in failures), [verdict]],
        json=json,
    )
    if failures:
        raise typer.Exit(ExitCode.FAILURE)


@COMMANDS.add(ControlCommand)
def explain(
    ctx: typer.Context,
    *,
    actor: ActorOption,
    action: ActionOption,
    branch: BranchOption = None,
    target_branch: TargetOption = None,
    file: BundleOption,
    json: JsonFlag = False,
) -> None:
    """Ask a bundle one question: may this actor do this?

    Shows the decision and, if it is to allow, the rule behind it. The exit code is 0 for both
    answers.

    omnigraph policy explain --file examples/policy/team.yaml --actor act-bo --action read
    omnigraph policy explain --file policy.yaml --actor act-bo --action change --branch main --json
    """
    asked = _action(action)
    if not actor.strip():
        raise UsageError("`--actor` is empty", hint="give the id of who would act")
    loaded = _load(file)
    _require_answerable(loaded, asked)
    decision = loaded.decide(actor, asked, branch=branch, target_branch=target_branch)
    facts = {
        "decision": "allow" if decision.allowed else "deny",
        "actor": decision.actor,
        "action": decision.action.value,
        "branch": decision.branch,
        "target_branch": decision.target_branch,
        "matched_rule": decision.matched_rule_id,
        "message": decision.message,
    }
    known = {name: fact for name, fact in facts.items() if fact is not None}
    lines = ((Styled(f"{name}: ", "bold"), fact) for name, fact in known.items())
    output_of(ctx).show({**known, "bundle": str(file)}, lines, json=json)


def _load(path: Path) -> Policy:
    from omnigraph.policy import load_policy

    require_file(path)
    return load_policy(path)


def _action(word: str) -> Action:
    from omnigraph.policy import Action

    try:
        return Action(word)
    except ValueError:
        raise UsageError(
            f"there is no action `{word}`",
            hint=did_you_mean(word, Action) or f"the actions are {', '.join(Action)}",
        ) from None


def _require_answerable(loaded: Policy, action: Action, whose: str = "") -> None:
    """Refuse a question that another kind of bundle decides."""
    if action.kind != loaded.kind:
        raise InputError(
            f"{whose}`{action}` is decided by the bundle of a {action.kind}, and "
            f"{loaded.bundle.name} is for a {loaded.kind}",
            hint=f"ask the bundle of the {action.kind}",
        )
