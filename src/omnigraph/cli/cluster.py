"""`omnigraph cluster …`: a deployment as code."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.addressing import actor_of
from omnigraph.cli.failures import ExitCode
from omnigraph.cli.files import replaced_file
from omnigraph.cli.help import Commands, ControlCommand
from omnigraph.cli.options import GlobalFlag, JsonFlag, argument, option
from omnigraph.cli.output import Line, Output, Styled, counted, output_of

if TYPE_CHECKING:
    from omnigraph.cluster import Cluster
    from omnigraph.cluster.answers import ClusterAnswer, StateObservations
    from omnigraph.cluster.plan import Change

COMMANDS = Commands(
    "cluster",
    "Declare graphs, schemas, stored queries and policies, and apply them.",
    """
omnigraph cluster validate --config examples/fleet
omnigraph cluster plan --config fleet
omnigraph cluster import --config fleet
omnigraph cluster apply --config fleet --as act-ana
omnigraph cluster status --config fleet
""",
)

ConfigOption = Annotated[
    Path, option("--config", "DIR", "the directory with cluster.yaml; this one by default")
]
PlanOutOption = Annotated[
    Path | None, option("--out", "FILE", "write the plan here, for `cluster apply --plan`")
]
PlanFileOption = Annotated[
    Path | None,
    option("--plan", "FILE", "apply exactly this plan; refused if anything changed since"),
]
AddressArgument = Annotated[str, argument("ADDRESS", "the gated change, such as graph.sales")]
LockArgument = Annotated[str, argument("LOCK_ID", "the id of the lock, as `status` shows it")]

HERE = Path()
_SIGNS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}


class ActingCommand(ControlCommand):
    """A command that records its actor."""

    takes = frozenset({GlobalFlag.ACTOR})


@COMMANDS.add(ControlCommand)
def validate(ctx: typer.Context, config: ConfigOption = HERE, json: JsonFlag = False) -> None:
    """Check cluster.yaml and every file it names.

    Schemas and queries are compiled, policies too; nothing is opened and no secret is needed. All
    mistakes are listed, each with a code, its place and what to do. The exit code is 1 if there is
    any.

    omnigraph cluster validate --config examples/fleet
    omnigraph cluster validate --config examples/fleet --json
    """
    found = _cluster(config).validate()
    lines: list[Line] = [[f"{each.digest[:12]}  {each.address}"] for each in found.resources]
    summary = f"{found.config_file}: valid, with {counted(len(found.resources), 'resource')}"
    _finish(ctx, found, [*lines, [Styled(summary, "bold green")]], json=json)


@COMMANDS.add(ControlCommand)
def plan(
    ctx: typer.Context,
    config: ConfigOption = HERE,
    out: PlanOutOption = None,
    json: JsonFlag = False,
) -> None:
    """Show what apply would do.

    The difference between the files and what was applied, with the steps of every migration, what
    depends on it, and what waits for an approval. Nothing is changed. With `--out`, the plan
    becomes a file that `cluster apply --plan` can be held to.

    omnigraph cluster plan --config fleet
    omnigraph cluster plan --config fleet --out plan.json
    """
    from omnigraph.cluster import plan_document

    found = _cluster(config).plan()
    if out is not None and found.ok:
        text = json_module.dumps(plan_document(found), indent=2, ensure_ascii=False)
        with replaced_file(out) as file:
            file.write(f"{text}\n".encode())
    lines = [*_change_lines(found.changes)]
    for gate in found.approvals_required:
        consent = "approved" if gate.satisfied else "needs an approval"
        lines.append([Styled(f"{gate.resource} {consent}: {gate.reason}", "yellow")])
    if not found.changes:
        lines = [[Styled("nothing to do: what is declared is applied", "bold green")]]
    _finish(ctx, found, lines, json=json)


@COMMANDS.add(ActingCommand)
def apply(
    ctx: typer.Context,
    config: ConfigOption = HERE,
    plan: PlanFileOption = None,
    json: JsonFlag = False,
) -> None:
    """Make the world as it is declared.

    Graphs are created and get their schemas, queries and policies are published, and graphs whose
    removal was approved are removed. What a former run left unfinished is settled first. Drops of
    schemas are soft: data stays readable at older commits. The exit code is 0 also if something
    waits; the last line says whether anything does.

    omnigraph cluster apply --config fleet --as act-ana
    omnigraph cluster apply --config fleet --plan plan.json --as act-ana --json
    """
    actor = actor_of(ctx)
    done = _cluster(config).apply(actor=actor, plan=plan)
    lines = list(_change_lines(done.changes))
    if done.converged and not done.changes:
        lines.append([Styled("nothing to do: what is declared is applied", "bold green")])
    elif done.converged:
        revision = done.state_observations.state_revision
        sentence = f"applied {counted(len(done.changes), 'change')}; the ledger is at {revision}"
        lines.append([Styled(sentence, "bold green")])
    else:
        lines.append([Styled("not everything is as it is declared yet", "yellow")])
    _finish(ctx, done, lines, json=json)


@COMMANDS.add(ActingCommand)
def approve(
    ctx: typer.Context,
    address: AddressArgument,
    config: ConfigOption = HERE,
    json: JsonFlag = False,
) -> None:
    """Consent to the removal of a graph.

    It needs an actor, and counts for the files and the ledger as they are now: after another edit
    or another apply it has to be given again.

    omnigraph cluster approve graph.sales --config fleet --as act-ana
    """
    actor = actor_of(ctx)
    found = _cluster(config).approve(address, actor=actor)
    sentence = f"{found.approved_by} approved to {found.operation} {found.resource}"
    _finish(ctx, found, [[Styled(sentence, "bold green")]], json=json)


@COMMANDS.add(ControlCommand)
def status(ctx: typer.Context, config: ConfigOption = HERE, json: JsonFlag = False) -> None:
    """Show what was applied, and how it is.

    Reads the ledger and checks the catalog against it; graphs are not opened, and no lock is
    taken.

    omnigraph cluster status --config fleet
    omnigraph cluster status --config fleet --json
    """
    found = _cluster(config).status()
    lines: list[Line] = []
    for address, digest in found.resource_digests.items():
        lines.append([f"{digest[:12]}  {address}", *_shown(found.resource_statuses.get(address))])
    for address, seen in found.resource_statuses.items():
        if address not in found.resource_digests:
            lines.append([f"{'-' * 12}  {address}", *_shown(seen)])
    lines.append([_state_sentence(found.state_observations)])
    _finish(ctx, found, lines, json=json)


@COMMANDS.add(ControlCommand)
def refresh(ctx: typer.Context, config: ConfigOption = HERE, json: JsonFlag = False) -> None:
    """Look for drift: compare the graphs and the catalog with the ledger.

    What is not as it was applied is written into the ledger, and the next plan shows how it is put
    right. Graphs are only read.

    omnigraph cluster refresh --config fleet
    """
    _observed(ctx, _cluster(config).refresh(), json=json)


@COMMANDS.add(ControlCommand, name="import")
def import_(ctx: typer.Context, config: ConfigOption = HERE, json: JsonFlag = False) -> None:
    """Begin a ledger.

    A new cluster begins with an empty one. Declared graphs that exist are taken in as they are;
    queries and policies are published by the first apply.

    omnigraph cluster import --config fleet
    """
    _observed(ctx, _cluster(config).import_(), json=json)


@COMMANDS.add(ControlCommand, name="force-unlock")
def force_unlock(
    ctx: typer.Context, lock_id: LockArgument, config: ConfigOption = HERE, json: JsonFlag = False
) -> None:
    """Remove a lock whose holder is gone.

    Only the lock with exactly this id is removed. Look first whether its process still runs: a
    command that lost its lock finds out only when it writes the ledger.

    omnigraph cluster force-unlock 01M7R3YCHCNNDJJ8QWRN8DH0Y7 --config fleet
    """
    found = _cluster(config).force_unlock(lock_id)
    _finish(ctx, found, [[Styled(f"removed lock {lock_id}", "bold green")]], json=json)


def _cluster(directory: Path) -> Cluster:
    from omnigraph.cluster import Cluster

    return Cluster(directory)


def _observed(ctx: typer.Context, found: ClusterAnswer, *, json: bool) -> None:
    from omnigraph.cluster.answers import Refreshed

    assert isinstance(found, Refreshed)
    lines: list[Line] = []
    for address, status in found.resource_statuses.items():
        if status["status"] != "applied":
            lines.append([address, *_shown(status)])
    lines.append([_state_sentence(found.state_observations)])
    _finish(ctx, found, lines, json=json)


def _shown(status: dict[str, object] | None) -> Iterator[str | Styled]:
    if status is None:
        return
    word = str(status["status"])
    style = {"applied": "green", "error": "red"}.get(word, "yellow")
    yield "  "
    yield Styled(word, style)
    conditions = status.get("conditions")
    if isinstance(conditions, list):
        yield f" ({', '.join(map(str, conditions))})"


def _state_sentence(state: StateObservations) -> str:
    if not state.state_found:
        return "there is no ledger yet"
    held = f"; locked by `cluster {state.lock_operation}`" if state.locked else ""
    resources = counted(state.resource_count, "resource")
    return f"revision {state.state_revision} with {resources}{held}"


def _change_lines(changes: Iterable[Change]) -> Iterator[Line]:
    from omnigraph.cli.schema_output import step_of

    for change in changes:
        sign, style = _SIGNS[change.operation]
        about = "" if change.disposition in ("applied", None) else f"  {change.disposition}"
        reason = "" if change.reason is None else f": {change.reason}"
        yield [Styled(f"{sign} {change.resource}", style), f"{about}{reason}"]
        if change.binding_change is not None:
            before, after = change.binding_change.before, change.binding_change.after
            yield [f"    applies to {', '.join(after)}; before: {', '.join(before) or 'nothing'}"]
        if change.migration is not None:
            for step in change.migration.steps:
                yield [f"    {step_of(step)}"]


def _finish(ctx: typer.Context, found: ClusterAnswer, lines: Iterable[Line], *, json: bool) -> None:
    """Print an answer and its diagnostics; the exit code is 1 if there is an error among them."""
    output = output_of(ctx)
    if json:
        output.json(found)
    else:
        _explain(output, found)
        if found.ok:
            output.lines(lines)
    if not found.ok:
        raise typer.Exit(ExitCode.FAILURE)


def _explain(output: Output, found: ClusterAnswer) -> None:
    for each in found.diagnostics:
        style = "bold red" if each.severity == "error" else "yellow"
        head = Styled(f"{each.severity}: {each.code}", style)
        output.note(head, f" {each.path}: {each.message}")
