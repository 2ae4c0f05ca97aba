"""`omnigraph pipeline …`: commands for pipeline files."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import actor_of, resolve, storage_target
from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import require_file
from omnigraph.cli.help import Commands, FileCommand
from omnigraph.cli.load import engine_reporter, stages
from omnigraph.cli.opening import INTERRUPTS, announce
from omnigraph.cli.options import (
    Given,
    GlobalFlag,
    JsonFlag,
    SparkConfOption,
    SparkMasterOption,
    argument,
    flag,
    option,
    spark_arguments,
)
from omnigraph.cli.output import Line, Output, Styled, counted, output_of, table
from omnigraph.model.load_options import LoadObserver

if TYPE_CHECKING:
    from omnigraph.pipeline.files import (
        Pipeline,
        PipelinePlan,
        PipelineReceipt,
        PipelineReport,
        PipelineSource,
        PipelineStage,
    )

COMMANDS = Commands(
    "pipeline",
    "Load a graph from sources that a file declares, with checks before the rows are visible.",
    """
omnigraph pipeline init crm.yaml people.csv jobs.parquet --store graph.omni
omnigraph pipeline validate crm.yaml
omnigraph pipeline plan crm.yaml
omnigraph pipeline run crm.yaml
""",
)

FileArgument = Annotated[Path, argument("FILE.yaml", "the pipeline")]
DataArgument = Annotated[
    list[Path] | None, argument("[DATA]…", "files to read: CSV, JSON lines, Parquet or ORC")
]
FullFlag = Annotated[
    bool, flag("--full", "run it also if nothing changed, and read everything anew")
]
ContinuousFlag = Annotated[
    bool, flag("--continuous", "go on, and load what is new in the sources as it arrives")
]
EveryOption = Annotated[
    float, option("--every", "SECONDS", "with --continuous: how often to look; 10", min=0.1)
]
SampleOption = Annotated[
    int, option("--sample", "ROWS", "how many rows of each type to look at; 1000", min=1)
]


class PipelineCommand(FileCommand):
    """A command that reads a pipeline file, and the graph that it or a flag names."""

    takes = frozenset({GlobalFlag.STORE, GlobalFlag.PROFILE})


class PipelineRunCommand(PipelineCommand):
    """A command that writes to that graph."""

    takes = PipelineCommand.takes | {GlobalFlag.ACTOR, GlobalFlag.YES}


@COMMANDS.add(PipelineCommand, name="init")
def init(
    ctx: typer.Context, file: FileArgument, data: DataArgument = None, json: JsonFlag = False
) -> None:
    """Write a first pipeline file for a graph and some files.

    Columns that are called like properties are mapped to them; comments say what is missing. An
    existing file is not replaced.

    omnigraph pipeline init crm.yaml people.csv jobs.parquet --store graph.omni
    """
    from omnigraph.graph import open_graph
    from omnigraph.pipeline.files.starter import starter_text

    output = output_of(ctx)
    if file.exists():
        raise UsageError(f"{file} is there already", hint="name another file, or remove it")
    for each in data or ():
        require_file(each)
    INTERRUPTS.raise_pending()
    graph = open_graph(resolve(ctx).uri, "read_only")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-._") or "pipeline"
    text = starter_text(name, graph, file.absolute().parent, data or [])
    file.write_text(text, encoding="utf-8")
    output.done(
        {"file": str(file), "name": name, "graph": graph.uri, "sources": len(data or ())},
        f"wrote {file}; edit it, then `omnigraph pipeline validate {file}`",
        json=json,
    )


@COMMANDS.add(PipelineCommand)
def validate(
    ctx: typer.Context,
    file: FileArgument,
    spark_master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    json: JsonFlag = False,
) -> None:
    """Check a pipeline file without reading rows.

    Types, properties, columns, expressions and queries are checked against the schema of the graph
    and the columns of the sources, and every problem is reported with its line. Exit code 1 means
    that there are some.

    omnigraph pipeline validate crm.yaml
    omnigraph pipeline validate crm.yaml --store staging.omni --json
    """
    output = output_of(ctx)
    pipeline = _pipeline(ctx, file)
    output.starting_spark(json=json)
    report = pipeline.validate(**_on(spark_master, spark_conf))
    output.show({"ok": True, **report.to_dict()}, _report_lines(report), json=json)


@COMMANDS.add(PipelineCommand)
def plan(
    ctx: typer.Context,
    *,
    file: FileArgument,
    full: FullFlag = False,
    sample: SampleOption = 1_000,
    spark_master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    json: JsonFlag = False,
) -> None:
    """Show what a run would do now, with a sample of its rows.

    Says whether there is anything to do and why, the stages, what is read of each source, and how
    many of the first rows of each type lack something that is required. Nothing is written.

    omnigraph pipeline plan crm.yaml
    omnigraph pipeline plan crm.yaml --sample 100 --json
    """
    output = output_of(ctx)
    pipeline = _pipeline(ctx, file)
    output.starting_spark(json=json)
    planned = pipeline.plan(full=full, sample_rows=sample, **_on(spark_master, spark_conf))
    output.show(planned, _plan_lines(planned), json=json)


@COMMANDS.add(PipelineRunCommand)
def run(
    ctx: typer.Context,
    *,
    file: FileArgument,
    full: FullFlag = False,
    continuous: ContinuousFlag = False,
    every: EveryOption = 10.0,
    spark_master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    json: JsonFlag = False,
) -> None:
    """Load the sources on a branch, check it, and merge it if every check passes.

    Without a change of the file or its sources nothing is done. A run that was interrupted is
    completed by the next one. If a check fails, the exit code is 3, the branch is kept and the
    target is as it was. With `--continuous` it runs until it is stopped (SIGTERM, which
    lets the current run finish), and prints a receipt for each run that changed something.

    omnigraph pipeline run crm.yaml
    omnigraph pipeline run arrivals.yaml --continuous --every 5
    omnigraph pipeline run crm.yaml --store s3://lake/crm.omni --as nightly --json
    """
    output = output_of(ctx)
    pipeline = _pipeline(ctx, file)
    is_overwrite = pipeline.mode == "overwrite"
    target = storage_target(pipeline.graph_uri)
    announce(ctx, "pipeline run", target, "pipeline run" if is_overwrite else None)
    with ExitStack() as stack:
        watch = stack.enter_context(stages(output, json=json))
        options: dict[str, Any] = {
            "full": full,
            "actor": actor_of(ctx),
            **_on(spark_master, spark_conf),
            "on_stage": lambda stage: _report_stage(output, stage, json=json),
            "observer": LoadObserver(engine_reporter(output, json=json), watch),
        }
        if continuous:
            if full:
                raise UsageError("`--continuous` and `--full` are mutually exclusive")
            _run_continuously(output, pipeline, every, options, json=json)
            return
        receipt = pipeline.run(**options)
    output.show(receipt, _receipt_lines(receipt), json=json)


def _run_continuously(
    output: Output, pipeline: Pipeline, every: float, options: dict[str, Any], *, json: bool
) -> None:
    """Run until SIGTERM, which lets the current run finish."""
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    looks: dict[str, Any] = {**options, "on_stage": None}
    try:
        for receipt in pipeline.watch(every_seconds=every, stop=stop, **looks):
            if json:
                output.line(dumps(receipt.to_dict()))
            else:
                output.lines(_receipt_lines(receipt))
            output.flush()
    finally:
        signal.signal(signal.SIGTERM, before)


def _pipeline(ctx: typer.Context, file: Path) -> Pipeline:
    """The pipeline of a file, for the graph of `--store` or `--profile`, else the one it names."""
    from omnigraph.pipeline.files import read_pipeline

    INTERRUPTS.raise_pending()
    given = Given.of(ctx)
    if given.places():
        return read_pipeline(file, graph=resolve(ctx).uri)
    pipeline = read_pipeline(file)
    return pipeline if pipeline.names_graph else read_pipeline(file, graph=resolve(ctx).uri)


_on = partial(spark_arguments, None, default="spark")
"""A pipeline has no `--engine`: it always runs on Spark."""


# --- output ---------------------------------------------------------------------------------------


def _report_stage(output: Output, stage: PipelineStage, *, json: bool) -> None:
    if output.quiet:
        return
    if json:
        output.note(dumps({"event": "stage", **stage.to_dict()}))
    else:
        output.note(f"{stage.name}: {stage.detail} ({stage.seconds:.1f} s)")


def _report_lines(report: PipelineReport) -> Iterator[Line]:
    sources, types = counted(len(report.sources), "source"), counted(len(report.types), "type")
    checks = counted(len(report.checks), "check")
    yield from _notes(report.notes)
    words = f"{report.file} is valid for {report.graph}: {sources}, {types}, {checks}"
    yield (Styled(words, "bold green"),)


def _plan_lines(plan: PipelinePlan) -> Iterator[Line]:
    yield from _source_lines(plan.sources)
    yield ()
    rows = [
        (
            each.type,
            each.source,
            f"{each.sampled:,}{'' if each.is_all else '+'}",
            ", ".join(f"{count} without {name}" for name, count in each.nulls.items()) or "–",
        )
        for each in plan.rows
    ]
    yield from table(("type", "from", "rows", "problems"), rows)
    yield ()
    yield from _notes(plan.notes)
    if plan.outcome == "no_change":
        yield (Styled(f"nothing to do: {plan.reason}", "bold green"),)
        return
    yield (f"{plan.reason}; a run would",)
    yield from ((f"  {at}. {stage}",) for at, stage in enumerate(plan.stages, 1))


def _receipt_lines(receipt: PipelineReceipt) -> Iterator[Line]:
    yield from _source_lines(receipt.sources)
    yield ()
    loaded: list[tuple[Any, ...]] = [
        (f"{kind} {each.name}", each.inserted, each.updated, each.unchanged)
        for kind, types in (("node", receipt.nodes), ("edge", receipt.edges))
        for each in types
    ]
    if loaded:
        yield from table(("type", "inserted", "updated", "unchanged"), loaded)
        yield ()
    yield from _notes(receipt.notes)
    yield from ((f"check {each.name}: passed",) for each in receipt.checks)
    commit = receipt.commit.graph_commit_id if receipt.commit is not None else None
    match receipt.outcome:
        case "no_change" if commit is not None:
            done = f"no change: the file and its sources are as in commit {commit}"
            if receipt.rows:
                done = f"no change: every row is there since commit {commit}"
        case "no_change":
            done = "no change: every row is there already"
        case "merged":
            done = f"merged {receipt.branch} into {receipt.merge_into}: commit {commit}"
        case _:
            done = f"loaded into {receipt.branch}: commit {commit}"
    yield (Styled(done, "bold green"),)


def _source_lines(sources: tuple[PipelineSource, ...]) -> Iterator[Line]:
    rows = [
        (
            each.name,
            each.format,
            "–" if not each.files else str(each.files),
            "–" if not each.files else f"{each.bytes:,}",
            "" if each.new is None else "new only",
        )
        for each in sources
    ]
    yield from table(("source", "format", "files", "bytes", ""), rows)


def _notes(notes: tuple[str, ...]) -> Iterator[Line]:
    return ((Styled("note:", "yellow"), f" {each}") for each in notes)
