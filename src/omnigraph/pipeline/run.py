"""A bulk load from what a caller names to its receipt: session, frames, job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.write_path import WritePath
from omnigraph.errors import InputError
from omnigraph.model.receipts import LoadReceipt
from omnigraph.pipeline.engine import frame_sources
from omnigraph.pipeline.jobs import Watch
from omnigraph.pipeline.load import BulkRequest, bulk_load
from omnigraph.pipeline.session import SessionSettings, SparkWhenNeeded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_bulk_load(
    kernel: Kernel,
    path: WritePath,
    request: BulkRequest,
    frames: Mapping[str, Any] | None = None,
    *,
    ensure_branch: Callable[[], bool],
    drop_branch: Callable[[], None],
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    watch: Watch | None = None,
) -> LoadReceipt:
    """Load on Spark, with a session that is found or built if one is needed; see `bulk_load`."""
    if kernel.root.scheme == "memory":
        raise InputError(
            "a graph in memory cannot be loaded on Spark: its workers are other processes",
            hint="use the local engine, or a graph on disk",
        )
    settings = SessionSettings.of(os.environ, master=master, conf=conf)
    with (
        SparkWhenNeeded(spark, settings) as session,
        frame_sources(frames, kernel.accepted_schema().catalog, session) as more,
    ):
        return bulk_load(
            kernel,
            path,
            replace(request, sources=[*request.sources, *more]),
            session,
            ensure_branch=ensure_branch,
            drop_branch=drop_branch,
            watch=watch,
        )
