"""`omnigraph embed`: vectors of the texts that a graph holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import typer

from omnigraph.cli.addressing import actor_of
from omnigraph.cli.compute import ComputeCommand, EngineOption
from omnigraph.cli.help import Commands
from omnigraph.cli.load import stages
from omnigraph.cli.opening import open_to_write
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    JsonFlag,
    MessageOption,
    SparkConfOption,
    SparkMasterOption,
    option,
    revision,
    spark_arguments,
)
from omnigraph.cli.output import Line, Styled, counted, output_of, table
from omnigraph.model.embeddings import EmbedReceipt
from omnigraph.model.load_options import LoadObserver

COMMANDS = Commands()

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
    output.show({"uri": graph.uri, **receipt.to_dict()}, _lines(receipt), json=json)


def _lines(receipt: EmbedReceipt) -> Iterator[Line]:
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
