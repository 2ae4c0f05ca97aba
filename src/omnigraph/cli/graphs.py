"""`omnigraph init`, `snapshot`, `export` and `graphs …`: whole graphs, here and on a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import require_unmanaged, resolve_server, storage_target
from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import compile_schema_file, replaced_file
from omnigraph.cli.help import Commands, FileCommand, PayloadCommand, ReadCommand, ServerCommand
from omnigraph.cli.opening import graph_to_read, token_of
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    JsonFlag,
    argument,
    flag,
    one_of,
    option,
    revision,
)
from omnigraph.cli.output import Line, Styled, counted, output_of, table, warn_deprecated
from omnigraph.model.receipts import EXPORT_FORMATS, checked_export_format

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph, SnapshotSummary

GRAPHS_EXAMPLES = """
omnigraph graphs list --server https://graph.example.com
omnigraph graphs list --profile staging --json
"""
COMMANDS = Commands()
GRAPHS = Commands("graphs", "Look at the graphs of a server.", GRAPHS_EXAMPLES)

NewSchemaFile = Annotated[Path, option("--schema", "FILE.pg", "what the graph may hold")]
NewUri = Annotated[str, argument("URI", "where to create it: a path, file:// or s3://")]
InitForceFlag = Annotated[bool, flag("--force", "replace schema files that belong to no graph")]


@GRAPHS.add(ServerCommand, name="list")
def graphs_list(ctx: typer.Context, json: JsonFlag = False) -> None:
    """List the graphs that a server serves: the id, a tab, and where it is.

    The policy of the server decides who may.

    omnigraph graphs list --server https://graph.example.com
    omnigraph graphs list --profile staging --json
    """
    from omnigraph.client import list_graphs
    from omnigraph.client.exchange import Address

    root = Address.parse(resolve_server(ctx).url).root
    found = list_graphs(root, token_of(ctx, root))
    lines = ([f"{graph.graph_id}\t{graph.uri}"] for graph in found)
    output_of(ctx).show({"graphs": found}, lines, json=json)


@COMMANDS.add(FileCommand)
def init(
    ctx: typer.Context,
    schema: NewSchemaFile,
    uri: NewUri,
    force: InitForceFlag = False,
    json: JsonFlag = False,
) -> None:
    """Create an empty graph.

    A place that holds a graph already is refused, always. What an interrupted `init` left behind
    is refused too, unless `--force` says to replace it.

    omnigraph init --schema schema.pg team.omni
    omnigraph init --schema schema.pg s3://lake/graphs/team.omni
    """
    from omnigraph import graph

    output = output_of(ctx)
    target = storage_target(uri)
    require_unmanaged(target)
    compiled = compile_schema_file(schema, output)
    created = graph.init(target.uri, compiled.source, force=force)
    document = {"uri": created.uri, "initialized": True}
    output.done(document, f"created a graph at {target}", json=json)


@COMMANDS.add(ReadCommand)
def snapshot(
    ctx: typer.Context,
    branch: BranchOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Show the types of a branch and how many entities each has.

    Everything is as of one commit, the head of the branch, which is named in the last line.

    omnigraph snapshot --store team.omni
    omnigraph snapshot --store team.omni --branch review --json
    """
    summary = graph_to_read(ctx).snapshot(branch)
    output_of(ctx).show(summary, snapshot_lines(summary), json=json)


def snapshot_lines(summary: SnapshotSummary) -> Iterator[Line]:
    """A row for each type, their sum, and the commit."""
    rows = [
        (f"{each.entity_kind} {each.type_name}", each.entity_count, each.published_dataset_version)
        for each in summary.datasets
    ]
    yield from table(("type", "entities", "version"), rows)
    yield ()
    total = sum(entry.entity_count for entry in summary.datasets)
    sentence = f"{counted(total, 'entity', 'entities')} on {summary.graph_branch}"
    yield (Styled(sentence, "bold green"),)
    yield (f"commit {summary.graph_commit_id}",)


TypeOption = Annotated[
    list[str] | None,
    option("--type --types", "NAME", "only this type of node or edge; repeatable, or with commas"),
]
JsonlFlag = Annotated[bool, typer.Option("--jsonl", hidden=True)]
ExportSnapshotOption = Annotated[
    str | None,
    option("--snapshot", "REVISION", "export the branch as of this commit of it", check=revision),
]
FormatOption = Annotated[
    str | None,
    option(
        "--format",
        "NAME",
        f"write a directory of files by type: {', '.join(EXPORT_FORMATS)}",
        check=one_of(EXPORT_FORMATS),
    ),
]
ExportOutOption = Annotated[
    Path | None,
    option("--out", "FILE|DIR", "write here; it appears or is replaced once all of it is there"),
]
OverwriteFlag = Annotated[
    bool, flag("--overwrite", "replace an earlier export in the directory of `--out`")
]


@COMMANDS.add(PayloadCommand)
def export(
    ctx: typer.Context,
    *,
    branch: BranchOption = DEFAULT_BRANCH,
    snapshot: ExportSnapshotOption = None,
    types: TypeOption = None,
    format: FormatOption = None,
    out: ExportOutOption = None,
    overwrite: OverwriteFlag = False,
    jsonl: JsonlFlag = False,
    json: JsonFlag = False,
) -> None:
    """Write the entities of a branch as JSON lines, or as files of one type each.

    Without `--format` they are JSON lines, on stdout or in the file `--out`. Two such exports of
    the same content are the same bytes. stdout carries only the lines, so `--json` shapes the
    errors on stderr and, with `--out`, the receipt.

    With `--format`, `--out` is a directory that gets files for each type, and `_export.json`,
    which lists them. It appears once all of it is there; an earlier export in its place is
    replaced only with `--overwrite`, and anything else never.

    Loading either with `--mode overwrite` gives the same graph again: ids, values and ends.

    omnigraph export --store team.omni > team.jsonl
    omnigraph export --store team.omni --type Person --type Knows --out people.jsonl
    omnigraph export --store team.omni --format parquet --out team-parquet
    """
    output = output_of(ctx)
    types = [name.strip() for given in types or () for name in given.split(",")]
    place: dict[str, Any] = {"branch": branch, "snapshot": snapshot, "types": types or None}
    if format is not None and out is not None:
        graph = graph_to_read(ctx)
        total = _total(graph, **place) if output.shows_progress else None
        with output.progress("exporting", total, "entities") as advance:
            receipt = graph.export_to(
                out,
                format=checked_export_format(format),
                overwrite=overwrite,
                progress=advance,
                **place,
            )
        document = {"uri": graph.uri, "out": str(out), **receipt.to_dict()}
        amount = counted(receipt.entities, "entity", "entities")
        output.done(
            {**document, "entities": receipt.entities, "bytes": receipt.bytes},
            f"{amount} exported from {branch} to {out} as {format}",
            json=json,
        )
        return
    if overwrite or format not in (None, "jsonl"):
        raise UsageError(
            f"`--{'overwrite' if overwrite else f'format {format}'}` needs a directory of files",
            hint="name the directory with `--out DIR` and the files with `--format parquet`",
        )
    output.stdout_is_payload = out is None
    if jsonl:
        warn_deprecated(output, "export --jsonl", "export")
    graph = graph_to_read(ctx)
    blocks = graph.export(**place)
    # Lines printed on a terminal need no progress bar.
    scrolls = out is None and output.stdout.isatty()
    shows_progress = output.shows_progress and not scrolls
    total = _total(graph, **place) if shows_progress else None
    entities = size = 0
    with ExitStack() as stack:
        bar = output.progress("exporting", total, "entities", unless=scrolls)
        advance = stack.enter_context(bar)
        write = output.verbatim if out is None else stack.enter_context(replaced_file(out)).write
        for block in blocks:
            write(block)
            size += len(block)
            entities += block.count(b"\n")
            advance(block.count(b"\n"))
    if out is not None:
        document = {"uri": graph.uri, "branch": branch, "out": str(out)}
        output.done(
            {**document, "entities": entities, "bytes": size},
            f"{counted(entities, 'entity', 'entities')} exported from {branch} to {out}",
            json=json,
        )


def _total(
    graph: Graph | RemoteGraph, branch: str, snapshot: str | None, types: list[str] | None
) -> int | None:
    """The number of entities; None for an older commit, whose count would need a scan."""
    if snapshot is not None:
        return None
    datasets = graph.snapshot(branch).datasets
    return sum(each.entity_count for each in datasets if not types or each.type_name in types)
