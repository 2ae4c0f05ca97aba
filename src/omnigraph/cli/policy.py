"""`omnigraph policy …`: who may do what; `omnigraph audit …`: who did what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import cluster_of, storage_target
from omnigraph.cli.failures import ExitCode, UsageError
from omnigraph.cli.files import require_file
from omnigraph.cli.help import Commands, ControlCommand
from omnigraph.cli.options import (
    Given,
    GlobalFlag,
    JsonFlag,
    argument,
    branch_name,
    exclusive,
    option,
)
from omnigraph.cli.output import Line, Styled, counted, output_of, table
from omnigraph.errors import InputError, NotFound, PolicyInvalid
from omnigraph.model.records import dataclass
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.audit import AuditEntry
    from omnigraph.policy import Action, Actor, Policy, PolicyCase, PolicyKind

COMMANDS = Commands(
    "policy",
    "Check who may do what, before and after it is in force.",
    """
omnigraph policy validate --file examples/policy/team.yaml
omnigraph policy test --file examples/policy/team.yaml --tests examples/policy/team_tests.yaml
omnigraph policy explain --file examples/policy/team.yaml --actor act-bo --action schema_apply
""",
)

BundleOption = Annotated[
    Path | None, option("--file", "BUNDLE", "a bundle that need not be applied")
]
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
SchemaOption = Annotated[
    Path | None, option("--schema", "SCHEMA.pg", "the schema, to also show what the actor sees")
]
QueryOption = Annotated[
    Path | None, option("--query", "QUERIES.gq", "queries, to show what is added to them")
]
ClaimsOption = Annotated[
    str | None, option("--claims", "JSON", "what the token of the actor says about it")
]


class PolicyCommand(ControlCommand):
    """A command on a bundle: in a file, or applied to a cluster."""

    takes = frozenset({GlobalFlag.CLUSTER, GlobalFlag.GRAPH, GlobalFlag.PROFILE})


@COMMANDS.add(PolicyCommand)
def validate(ctx: typer.Context, file: BundleOption = None, json: JsonFlag = False) -> None:
    """Check a policy bundle, or those that were applied to a cluster.

    It is read strictly and compiled: an unknown or misspelt word is an error, so that a rule cannot
    silently allow more than it says. With `--cluster`, every applied bundle is checked, or with
    `--graph` the one of that graph. The exit code is 1 if anything is wrong.

    omnigraph policy validate --file examples/policy/team.yaml
    omnigraph policy validate --file examples/policy/operators.yaml --json
    omnigraph policy validate --cluster fleet
    """
    output = output_of(ctx)
    graph = Given.of(ctx).graph
    found = _bundles(ctx, file)
    chosen = found if graph is None else [_of_graph(found, graph)]
    bundles, wrong, lines = [], [], []
    for each in chosen:
        try:
            bundle = each.load().bundle
        except PolicyInvalid as problem:
            if not json:
                raise
            wrong.append({"bundle": each.name, "message": problem.message})
            continue
        actors, rules = len(bundle.actors), len(bundle.rules)
        about = {"name": each.name, "kind": bundle.kind, "applies_to": list(each.applies_to)}
        bundles.append({**about, "actors": actors, "rules": rules})
        held = f"{counted(actors, 'actor')} and {counted(rules, 'rule')}"
        sentence = f"{each.name}: a valid {bundle.kind} bundle with {held}"
        lines.append([Styled(sentence, "bold green")])
    output.show({"ok": not wrong, "bundles": bundles, "errors": wrong}, lines, json=json)
    if wrong:
        raise typer.Exit(ExitCode.FAILURE)


@COMMANDS.add(PolicyCommand)
def test(
    ctx: typer.Context, tests: CasesOption, file: BundleOption = None, json: JsonFlag = False
) -> None:
    """Ask a bundle a list of questions and compare the answers with the expected ones.

    Every mismatch is listed, and the exit code is then 1. With `--cluster`, each question goes to
    the applied bundle that decides it.

    omnigraph policy test --file examples/policy/team.yaml --tests examples/policy/team_tests.yaml
    omnigraph policy test --cluster fleet --graph orders --tests orders_tests.yaml --json
    """
    from omnigraph.policy import parse_cases, run_cases

    output = output_of(ctx)
    found = _bundles(ctx, file)
    require_file(tests)
    cases = parse_cases(tests)
    asked: dict[str, tuple[Policy, list[PolicyCase]]] = {}
    for case in cases:
        chosen = _deciding_bundle(ctx, found, case.action)
        loaded = asked.setdefault(chosen.name, (chosen.load(), []))
        _require_answerable(loaded[0], case.action, f"case `{case.id}`: ")
        loaded[1].append(case)
    failures = [each for policy, some in asked.values() for each in run_cases(policy, some)]
    count = counted(len(cases), "case")
    if failures:
        verdict = Styled(f"{len(failures)} of {count} not as expected", "bold red")
    else:
        verdict = Styled(f"{count} as expected", "bold green")
    output.show(
        {"ok": not failures, "cases": len(cases), "failures": failures},
        [*([Styled(str(failure), "red")] for failure in failures), [verdict]],
        json=json,
    )
    if failures:
        raise typer.Exit(ExitCode.FAILURE)


@COMMANDS.add(PolicyCommand)
def explain(
    ctx: typer.Context,
    *,
    actor: ActorOption,
    action: ActionOption,
    branch: BranchOption = None,
    target_branch: TargetOption = None,
    file: BundleOption = None,
    schema: SchemaOption = None,
    query: QueryOption = None,
    claims: ClaimsOption = None,
    json: JsonFlag = False,
) -> None:
    """Ask a bundle one question: may this actor do this?

    Shows the decision and, if it is to allow, the rule behind it. With a schema, also what the
    actor sees by that action: types, properties and conditions on rows, and the rules they come
    from; with a query, what that adds to it. With `--cluster`, listing graphs is decided by the
    bundle of the cluster, and everything else by that of the graph. The exit code is 0 for both
    answers.

    omnigraph policy explain --file examples/policy/team.yaml --actor act-bo --action read
    omnigraph policy explain --cluster fleet --graph orders --actor act-bo --action change --json
    """
    asked = _action(action)
    if not actor.strip():
        raise UsageError("`--actor` is empty", hint="give the id of who would act")
    chosen = _deciding_bundle(ctx, _bundles(ctx, file), asked)
    loaded = chosen.load()
    _require_answerable(loaded, asked)
    who = _identity(actor, claims)
    decision = loaded.decide(who, asked, branch=branch, target_branch=target_branch)
    places = {"branch": branch, "target_branch": target_branch}
    seen = (
        {}
        if schema is None
        else _visible_schema(loaded, who, asked, places, schema=schema, query=query)
    )
    if query is not None and schema is None:
        raise UsageError("`--query` needs `--schema`", hint="name the `.pg` file of the graph")
    facts = {
        "decision": "allow" if decision.allowed else "deny",
        "actor": decision.actor,
        "action": decision.action.value,
        "branch": decision.branch,
        "target_branch": decision.target_branch,
        "matched_rule": decision.matched_rule_id,
        "message": decision.message,
    }
    if decision.allowed and asked in _SHOWS_EVERYTHING:
        facts["shows"] = _SHOWS_EVERYTHING[asked]
    known = {name: fact for name, fact in facts.items() if fact is not None}
    lines: list[tuple[Any, ...]] = [
        (Styled(f"{name}: ", "bold"), fact) for name, fact in known.items()
    ]
    for name, told in seen.get("lines", {}).items():
        lines += [(Styled(f"{name}:", "bold"),), *((f"  {line}",) for line in told)]
    shown = {name: fact for name, fact in seen.items() if name != "lines"}
    output_of(ctx).show({**known, "bundle": chosen.name, **shown}, lines, json=json)


_SHOWS_EVERYTHING = {
    "maintain": "all of the graph: a backup has every row, and `doctor` names every type",
}
"""Actions without limits by type, and the scope that they show."""


def _identity(actor: str, claims: str | None) -> Actor:
    """The actor with the claims that a token would have."""
    from omnigraph.policy import Identity

    if claims is None:
        return actor
    try:
        given = loads(claims)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise UsageError("`--claims` is no JSON object", hint='write --claims \'{"region": "eu"}\'')
    return Identity.of(actor, given)


def _visible_schema(
    loaded: Policy,
    actor: Actor,
    action: Action,
    places: dict[str, str | None],
    *,
    schema: Path,
    query: Path | None,
) -> dict[str, Any]:
    """What an actor sees of a schema, and what the queries of a file add to it."""
    from omnigraph.graph.reading import explanation
    from omnigraph.query.compile import check_query
    from omnigraph.schema.compile import compile_schema
    from omnigraph.syntax.query_parser import parse_query_file
    from omnigraph.views.explain import view_lines

    require_file(schema)
    catalog = compile_schema(schema).catalog
    loaded.check_names(catalog)
    view = loaded.view(actor, catalog, action=action, **places)
    told = {"view": ["everything"] if view is None else view_lines(view)}
    shown: dict[str, Any] = {"view": None if view is None else view.to_dict()}
    if query is not None:
        require_file(query)
        file = parse_query_file(query)
        named = catalog if view is None else view.catalog
        plans = [check_query(each, file.source, named) for each in file.queries]
        shown["queries"] = [explanation(plan, view=view).to_dict() for plan in plans]
        told["query"] = [line for plan in plans for line in explanation(plan, view=view).plan]
    return {**shown, "lines": told}


# --- which bundle ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _NamedBundle:
    """One bundle with its name."""

    name: str
    source: Path | str
    """Its file, or its verified text."""
    kind: PolicyKind | None = None
    applies_to: tuple[str, ...] = ()

    def load(self) -> Policy:
        """Compile the bundle; raises `PolicyInvalid`."""
        from omnigraph.policy import load_policy

        graphs = [each.removeprefix("graph.") for each in self.applies_to]
        if self.kind != "graph" or not graphs:
            return load_policy(self.source, kind=self.kind)
        return load_policy(self.source, graph=graphs[0], kind=self.kind)


def _bundles(ctx: typer.Context, file: Path | None) -> list[_NamedBundle]:
    """The bundle of a file, or all that were applied to the addressed cluster."""
    if file is not None:
        given = Given.of(ctx)
        for name in ("cluster", "graph", "profile"):
            exclusive("`--file` is one bundle already", file=file, **{name: getattr(given, name)})
        require_file(file)
        return [_NamedBundle(str(file), file)]
    place = cluster_of(ctx)
    if place is None:
        raise UsageError(
            f"`{ctx.command_path}` needs a bundle",
            hint="pass `--file BUNDLE`, or `--cluster DIR|URI|NAME` for those that were applied",
        )
    from omnigraph.cluster.serving import applied_policies

    texts, ledger = applied_policies(place)
    found = []
    for name, policy in ledger.policies().items():
        scopes = tuple(policy.applies_to or ())
        kind: PolicyKind = "server" if scopes == ("cluster",) else "graph"
        found.append(_NamedBundle(name, texts[name], kind, scopes))
    return found


def _deciding_bundle(ctx: typer.Context, found: list[_NamedBundle], action: Action) -> _NamedBundle:
    """The bundle that decides an action."""
    if len(found) == 1 and found[0].kind is None:
        return found[0]
    graph = Given.of(ctx).graph
    if graph is not None:
        return _of_graph(found, graph)
    fitting = [each for each in found if each.kind == action.kind]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        what = "the cluster itself" if action.kind == "server" else "any graph"
        raise NotFound(f"no bundle was applied to {what}, which decides about `{action}`")
    listed = "; ".join(f"{each.name} for {', '.join(each.applies_to)}" for each in fitting)
    raise UsageError(f"several bundles decide about `{action}`: {listed}", hint="pass `--graph ID`")


def _of_graph(found: list[_NamedBundle], graph: str) -> _NamedBundle:
    for each in found:
        if f"graph.{graph}" in each.applies_to:
            return replace(each, applies_to=(f"graph.{graph}",))
    raise NotFound(f"no bundle was applied to graph '{graph}'")


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
    """Raise for an action that another kind of bundle decides."""
    if action.kind != loaded.kind:
        raise InputError(
            f"{whose}`{action}` is decided by the bundle of a {action.kind}, and "
            f"{loaded.bundle.name} is for a {loaded.kind}",
            hint=f"ask the bundle of the {action.kind}",
        )


# --- who did what --------------------------------------------------------------------------------

AUDIT = Commands(
    "audit",
    "Ask the files of an audit who did what.",
    """
omnigraph audit audit.jsonl --type Person --since 7d
omnigraph audit load audit.jsonl --into audit.omni
""",
    default="show",
)

FilesArgument = Annotated[
    list[Path], argument("FILE", "files that `--audit` has written, also those put aside")
]
AuditActorOption = Annotated[str | None, option("--actor", "ID", "only what this actor did")]
TypeOption = Annotated[str | None, option("--type", "TYPE", "only what touched this type")]
SinceOption = Annotated[
    str | None, option("--since", "TIME", "only from then on: 2026-11-18T20:00, or 24h, 7d")
]
IntoOption = Annotated[str, option("--into", "GRAPH", "the graph, made if there is none")]


@AUDIT.add(ControlCommand, name="show")
def show_audit(
    ctx: typer.Context,
    files: FilesArgument,
    *,
    actor: AuditActorOption = None,
    type: TypeOption = None,
    since: SinceOption = None,
    json: JsonFlag = False,
) -> None:
    """Show the lines of an audit; no graph is opened.

    With `--type`, they answer who read or wrote a type. The word `show` may be left out.

    omnigraph audit audit.jsonl --type Person
    omnigraph audit show audit.jsonl* --actor act-bo --since 24h --json
    """
    from omnigraph.audit import AuditFilter, read_entries

    output = output_of(ctx)
    found = list(read_entries(files, AuditFilter.of(actor, type, since)))
    output.show({"entries": [dict(each.facts) for each in found]}, list(_shown(found)), json=json)


@AUDIT.add(ControlCommand, name="load")
def load_audit(
    ctx: typer.Context,
    files: FilesArgument,
    *,
    into: IntoOption,
    actor: AuditActorOption = None,
    type: TypeOption = None,
    since: SinceOption = None,
    json: JsonFlag = False,
) -> None:
    """Load the lines of an audit into a graph, to query them.

    The graph has accesses, actors and types. A line that is there already is not loaded twice.

    omnigraph audit load audit.jsonl --into audit.omni
    omnigraph audit load audit.jsonl* --into audit.omni --since 7d
    """
    from omnigraph.audit.reading import SCHEMA, AuditFilter, graph_records, read_entries
    from omnigraph.graph import init, open_graph

    uri = storage_target(into).uri
    wanted = AuditFilter.of(actor, type, since)
    records = list(graph_records(read_entries(files, wanted)))  # a malformed file writes nothing
    try:
        graph = open_graph(uri)
    except NotFound:
        graph = init(uri, SCHEMA)
    receipt = graph.load(data=iter(records), mode="merge", message="audit load")
    loaded = counted(len(records), "line")
    output_of(ctx).done(
        {"uri": graph.uri, "lines": len(records), "commit": receipt.commit},
        f"{loaded} of the audit loaded into {graph.uri}",
        json=json,
    )


def _shown(found: list[AuditEntry]) -> Iterator[Line]:
    if not found:
        yield (Styled("no line of the audit fits", "dim"),)
        return
    headers = ("time", "actor", "what", "branch", "types", "rows", "decision")
    yield from table(headers, [_row(each.facts) for each in found])


def _row(facts: Any) -> tuple[str, ...]:
    what = facts.get("verb") or facts.get("action") or ""
    query = f" {facts['query']}" if facts.get("query") else ""
    rules = ", ".join(facts.get("rules", ()))
    return (
        str(facts.get("time", ""))[:19],
        facts.get("actor") or "-",
        f"{what}{query}",
        facts.get("branch") or facts.get("target_branch") or "",
        ", ".join(facts.get("types", ())),
        "" if facts.get("rows") is None else str(facts["rows"]),
        facts.get("decision", "") + (f" by {rules}" if rules else ""),
    )
