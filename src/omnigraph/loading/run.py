"""A bulk load from what a caller names to its receipt: session, frames, job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.write_path import WritePath
from omnigraph.loading.engine import Engine
from omnigraph.loading.executors import Watch
from omnigraph.loading.inputs import Frame, frame_sources
from omnigraph.loading.load import bulk_load
from omnigraph.loading.request import LoadBranch, LoadRequest
from omnigraph.loading.sources import FileSource
from omnigraph.model.load_options import SparkOptions
from omnigraph.model.receipts import LoadReceipt
from omnigraph.pipeline.spark.session import SessionSettings, SparkWhenNeeded


def run_bulk_load(
    kernel: Kernel,
    path: WritePath,
    files: Sequence[FileSource],
    request: LoadRequest,
    branch: LoadBranch,
    *,
    frames: Sequence[Frame] = (),
    engine: Engine,
    spark: SparkOptions,
    watch: Watch | None = None,
) -> LoadReceipt:
    """Load with an engine; Spark's session is found, or built when it is needed.

    See `bulk_load`.
    """
    with ExitStack() as used:
        session: SparkWhenNeeded | None = None
        if engine == "spark":
            settings = SessionSettings.of(os.environ, master=spark.master, conf=spark.conf)
            session = used.enter_context(SparkWhenNeeded(spark.session, settings))
        more = used.enter_context(frame_sources(frames, session))
        return bulk_load(
            kernel, path, [*files, *more], request, branch, session=session, watch=watch
        )
