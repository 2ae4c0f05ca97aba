"""`omnigraph audit …`: who did what, from the files that `--audit` writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import storage_target
from omnigraph.cli.help import Commands, ControlCommand
from omnigraph.cli.options import JsonFlag, argument, option
from omnigraph.cli.output import Line, Styled, counted, output_of, table

if TYPE_CHECKING:
    from omnigraph.audit import AuditEntry

COMMANDS = Commands(
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
ActorOption = Annotated[str | None, option("--actor", "ID", "only what this actor did")]
TypeOption = Annotated[str | None, option("--type", "TYPE", "only what touched this type")]
SinceOption = Annotated[
    str | None, option("--since", "TIME", "only from then on: 2026-11-18T20:00, or 24h, 7d")
]
IntoOption = Annotated[str, option("--into", "GRAPH", "the graph, made if there is none")]


@COMMANDS.add(ControlCommand)
def show(
    ctx: typer.Context,
    files: FilesArgument,
    *,
    actor: ActorOption = None,
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


@COMMANDS.add(ControlCommand)
def load(
    ctx: typer.Context,
    files: FilesArgument,
    *,
    into: IntoOption,
    actor: ActorOption = None,
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
    from omnigraph.errors import NotFound
    from omnigraph.graph import init, open_graph

    uri = storage_target(into).uri
    wanted = AuditFilter.of(actor, type, since)
    records = list(graph_records(read_entries(files, wanted)))  # a bad file writes nothing
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
