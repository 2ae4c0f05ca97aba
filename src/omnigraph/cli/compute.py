"""`omnigraph compute` and `embed`: values of nodes computed from a graph, or vectors of texts."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import actor_of
from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import replaced_file
from omnigraph.cli.help import Commands, GraphCommand
from omnigraph.cli.load import receipt_lines, stages
from omnigraph.cli.opening import open_to_read, open_to_write
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    GlobalFlag,
    JsonFlag,
    MessageOption,
    ReadBranchOption,
    SnapshotOption,
    SparkConfOption,
    SparkMasterOption,
    announce_spark,
    argument,
    branch_name,
    one_of,
    option,
    read_place,
    revision,
    spark_arguments,
)
from omnigraph.cli.output import Line, Output, Styled, counted, output_of, table
from omnigraph.model.load_options import LoadObserver
from omnigraph.model.receipts import EmbedReceipt

if TYPE_CHECKING:
    from omnigraph.model.computations import Computation

COMMANDS = Commands()
ALGORITHMS = (
    "pagerank",
    "degree",
    "betweenness",
    "closeness",
    "connected_components",
    "strongly_connected",
    "label_propagation",
    "louvain",
    "shortest_paths",
    "similarity",
    "triangles",
    "k_core",
)
"""The verbs of `Graph.compute`; a test compares them."""
ROWS_SHOWN = 20
FILES = (".parquet", ".csv")

AlgorithmArgument = Annotated[
    str, argument("ALGORITHM", ", ".join(ALGORITHMS), check=one_of(ALGORITHMS))
]
NodesOption = Annotated[
    list[str] | None,
    option("--node", "TYPE", "a node type to cover; repeatable, the ends of the edges by default"),
]
EdgesOption = Annotated[
    list[str] | None,
    option(
        "--edge", "TYPE", "an edge type to follow; repeatable, all between the nodes by default"
    ),
]
DirectionOption = Annotated[
    str | None,
    option(
        "--direction",
        "out|in|both",
        "which way edges lead; out, as they are stored, by default",
        check=one_of(("out", "in", "both")),
    ),
]
WeightOption = Annotated[
    str | None, option("--weight", "PROPERTY", "a number that edges weigh; 1 by default")
]
LandmarkOption = Annotated[
    list[str] | None,
    option("--landmark", "[TYPE:]ID", "a node that shortest_paths begins at; repeatable"),
]
DampingOption = Annotated[
    float | None, option("--damping", "SHARE", "how often a walk goes on; 0.85 by default")
]
IterationsOption = Annotated[
    int | None, option("--iterations", "N", "most rounds of pagerank or label_propagation", min=1)
]
ToleranceOption = Annotated[
    float | None, option("--tolerance", "SUM", "the change at which pagerank ends; 1e-6 by default")
]
SamplesOption = Annotated[
    int | None,
    option(
        "--samples",
        "N",
        "nodes that betweenness and closeness begin at; 256 by default, all if there are fewer",
        min=1,
    ),
]
SeedOption = Annotated[
    int | None, option("--seed", "N", "of louvain, and of samples; 1 by default", min=0)
]
ResolutionOption = Annotated[
    float | None, option("--resolution", "R", "larger for smaller groups of louvain; 1 by default")
]
PerNodeOption = Annotated[
    int | None, option("--per-node", "N", "most rows of similarity a node; 10 by default", min=1)
]
AtLeastOption = Annotated[
    float | None, option("--at-least", "S", "the least similarity of a row; 0 by default")
]
MeasureOption = Annotated[
    str | None,
    option(
        "--measure",
        "jaccard|cosine|overlap",
        "how similarity compares neighbours; jaccard by default",
        check=one_of(("jaccard", "cosine", "overlap")),
    ),
]
EngineOption = Annotated[
    str | None,
    option(
        "--engine",
        "local|spark",
        "who computes: this process, which is the default, or Spark",
        check=one_of(("local", "spark")),
    ),
]
IntoOption = Annotated[
    str | None,
    option("--into", "TYPE.PROPERTY", "write the values into this property, as one commit"),
]
ToBranchOption = Annotated[
    str | None,
    option(
        "--to-branch",
        "NAME",
        "the branch of that commit; created from the one that is read if it does not exist",
        check=branch_name,
    ),
]
LimitOption = Annotated[
    int, option("--limit", "N", f"how many rows to print; {ROWS_SHOWN} by default", min=0)
]
OutOption = Annotated[
    Path | None,
    option("--out", "FILE", "write all rows here, as .parquet or .csv; replaced once complete"),
]


class ComputeCommand(GraphCommand):
    """A command that reads a graph in storage, and may write to a branch of it."""

    takes = GraphCommand.takes | {GlobalFlag.ACTOR}


@COMMANDS.add(ComputeCommand)
def compute(
    ctx: typer.Context,
    *,
    algorithm: AlgorithmArgument,
    node: NodesOption = None,
    edge: EdgesOption = None,
    direction: DirectionOption = None,
    weight: WeightOption = None,
    landmark: LandmarkOption = None,
    damping: DampingOption = None,
    iterations: IterationsOption = None,
    tolerance: ToleranceOption = None,
    samples: SamplesOption = None,
    seed: SeedOption = None,
    resolution: ResolutionOption = None,
    per_node: PerNodeOption = None,
    at_least: AtLeastOption = None,
    measure: MeasureOption = None,
    branch: ReadBranchOption = None,
    snapshot: SnapshotOption = None,
    engine: EngineOption = None,
    spark_master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    into: IntoOption = None,
    to_branch: ToBranchOption = None,
    message: MessageOption = None,
    limit: LimitOption = ROWS_SHOWN,
    out: OutOption = None,
    json: JsonFlag = False,
) -> None:
    """Compute a value for every node: ranks, groups, distances.

    The rows with the largest values are printed; `--out` writes all of them to a file, and `--into`
    to a property on a branch, as one commit. `--engine spark` computes what exceeds the memory of
    this process, with the same results; louvain runs in this process only.

    omnigraph compute pagerank --store team.omni --node Person --edge Knows
    omnigraph compute pagerank --store team.omni --edge Knows --into Person.rank --to-branch ranks
    omnigraph compute shortest_paths --store team.omni --edge Knows --landmark ada --out far.parquet
    omnigraph compute connected_components --store team.omni --engine spark --json
    """
    if out is not None and out.suffix not in FILES:
        raise UsageError(f"`--out {out}` is no {' or '.join(FILES)} file", hint="name it so")
    own: dict[str, object] = {
        "direction": direction,
        "weight": weight,
        "landmarks": None if landmark is None else _landmarks(landmark),
        "damping": damping,
        "iterations": iterations,
        "tolerance": tolerance,
        "samples": samples,
        "seed": seed,
        "resolution": resolution,
        "per_node": per_node,
        "at_least": at_least,
        "measure": measure,
    }
    output = output_of(ctx)
    graph = open_to_read(ctx) if into is None else open_to_write(ctx, "compute")
    verb: Callable[..., Computation] = getattr(graph.compute, algorithm)
    options = {
        **_own_options(algorithm, verb, own),
        **read_place(branch, snapshot),
        "nodes": node,
        "edges": edge,
        "into": into,
        "to_branch": to_branch,
        "actor": actor_of(ctx),
        "message": message,
    }
    options |= (how := spark_arguments(engine, spark_master, spark_conf))
    announce_spark(output, how, json=json)
    with output.progress("computing", None, "rounds", unless=json) as advance:
        found = verb(**options, on_round=lambda _round, _changed: advance(1))
    if out is not None:
        _write(out, found)
    rows = found.top(limit)
    output.show(found.to_dict(rows), _lines(output, found, limit), json=json)


def _own_options(
    algorithm: str, verb: Callable[..., Any], given: dict[str, object]
) -> dict[str, object]:
    """The options of one algorithm; raises `UsageError` for an option that it does not have."""
    known = inspect.signature(verb).parameters
    for name, value in given.items():
        if value is not None and name not in known:
            shown = "--landmark" if name == "landmarks" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{algorithm} has no `{shown}`", hint="leave it out")
    if "landmarks" in known and given["landmarks"] is None:
        raise UsageError(f"{algorithm} needs `--landmark`", hint="name a node to begin at")
    return {name: value for name, value in given.items() if value is not None}


def _landmarks(texts: list[str]) -> list[str] | dict[str, list[str]]:
    """A list of ids, or ids by type if the texts name types."""
    if not any(":" in text for text in texts):
        return texts
    by_type: dict[str, list[str]] = {}
    for text in texts:
        type_name, separator, node_id = text.partition(":")
        if not separator:
            raise UsageError(
                f"`--landmark {text}` names no type, and another one does",
                hint="write all of them as TYPE:ID",
            )
        by_type.setdefault(type_name, []).append(node_id)
    return by_type


def _write(path: Path, found: Computation) -> None:
    with replaced_file(path) as file:
        if path.suffix == ".csv":
            import pyarrow.csv as pac

            pac.write_csv(found.to_arrow(), file)
        else:
            import pyarrow.parquet as pq

            pq.write_table(found.to_arrow(), file)


def _lines(output: Output, found: Computation, limit: int) -> Iterator[Line]:
    lines = repr(found).split("\n")
    yield (Styled(lines[0], "bold"),)
    rows = found.top(limit).to_pylist()
    if rows:
        yield from table([*rows[0]], [[*row.values()] for row in rows])
    if found.receipt is not None:
        yield ()
        yield from receipt_lines(found.receipt)


# --- vectors of texts -----------------------------------------------------------------------------

TypeOption = Annotated[
    str | None, option("--type", "TYPE", "only vectors of this node type; all types by default")
]
PropertyOption = Annotated[str | None, option("--property", "NAME", "only this vector of the type")]
SinceOption = Annotated[
    str | None,
    option(
        "--since",
        "REVISION",
        "look for changed texts since this commit; since the last embedding by default",
        check=revision,
    ),
]
BatchOption = Annotated[
    int | None, option("--batch-texts", "N", "texts of one request; 32 by default", min=1)
]
ConcurrencyOption = Annotated[
    int | None, option("--concurrency", "N", "requests at a time, in all; 8 by default", min=1)
]
RequestRateOption = Annotated[
    float | None, option("--requests-per-second", "N", "no more than these, in all", min=0.001)
]
TextRateOption = Annotated[
    float | None, option("--texts-per-second", "N", "no more than these, in all", min=0.001)
]


class EmbedCommand(ComputeCommand):
    """A command that reads texts of a graph in storage, and writes vectors to a branch of it."""


@COMMANDS.add(EmbedCommand)
def embed(
    ctx: typer.Context,
    *,
    type: TypeOption = None,
    property: PropertyOption = None,
    branch: BranchOption = DEFAULT_BRANCH,
    since: SinceOption = None,
    batch_texts: BatchOption = None,
    concurrency: ConcurrencyOption = None,
    requests_per_second: RequestRateOption = None,
    texts_per_second: TextRateOption = None,
    engine: EngineOption = None,
    spark_master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    message: MessageOption = None,
    json: JsonFlag = False,
) -> None:
    """Compute vectors of texts that are new or have changed.

    For properties with `@embed` in the schema: nodes that have a text and no vector, and nodes
    whose text changed after their vector was computed. Only vectors are written. If the provider
    fails or the process is killed, the next run asks for the rest only. The provider is set in the
    environment. `--engine spark` sends requests from workers of Spark, within the same limits.

    omnigraph embed --store docs.omni
    omnigraph embed --store docs.omni --type Doc --property meaning --branch vectors
    omnigraph embed --store s3://lake/docs.omni --engine spark --requests-per-second 50 --json
    """
    from omnigraph.embedding.config import BulkLimits

    output = output_of(ctx)
    given: dict[str, Any] = {
        "batch_texts": batch_texts,
        "concurrency": concurrency,
        "requests_per_second": requests_per_second,
        "texts_per_second": texts_per_second,
    }
    named = {name: value for name, value in given.items() if value is not None}
    graph = open_to_write(ctx, "embed")
    options = spark_arguments(engine, spark_master, spark_conf)
    with stages(output, json=json) as watch:
        receipt = graph.embed(
            type,
            property,
            branch=branch,
            since=since,
            limits=replace(BulkLimits.from_environment(os.environ), **named),
            actor=actor_of(ctx),
            message=message,
            observer=LoadObserver(on_stage=watch),
            **options,
        )
    output.show({"uri": graph.uri, **receipt.to_dict()}, _vector_lines(receipt), json=json)


def _vector_lines(receipt: EmbedReceipt) -> Iterator[Line]:
    counts = ("texts", "stale", "resumed", "left", "requests", "retries", "tokens")
    rows = [
        (
            f"{each.type}.{each.property}",
            *("–" if (count := getattr(each, name)) is None else f"{count:,}" for name in counts),
            f"{each.seconds:.1f}",
        )
        for each in receipt.properties
    ]
    yield from table(("vector", *counts, "seconds"), rows)
    yield ()
    commit = receipt.commit
    if commit is None:
        yield (Styled(f"nothing to embed on {receipt.branch}", "bold green"),)
    else:
        words = f"{counted(receipt.texts, 'text')} embedded on {receipt.branch}"
        yield (Styled(f"{words}: commit {commit.graph_commit_id}", "bold green"),)
