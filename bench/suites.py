"""Every suite by its name, and a run of one that always leaves a record.

A suite is a module with a function `run`, which takes a scale and gives figures one by one, and the
`SEED` of what it generates. It is imported when it runs: some need large libraries.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from importlib import import_module

from bench.circumstances import circumstances
from bench.figure import Figure
from bench.progress import note
from bench.record import SuiteRecord
from bench.report import cells
from bench.scale import Scale

SUITES = {
    "languages": "bench.languages",
    "kernel": "bench.kernel",
    "digests": "bench.digests",
    "queries": "bench.queries",
    "aggregates": "bench.aggregates",
    "ldbc": "bench.ldbc.suite",
    "infer": "bench.infer",
    "load": "bench.load",
    "streams": "bench.streams",
    "export": "bench.export",
    "merge": "bench.merge",
    "upkeep": "bench.upkeep",
    "server": "bench.server",
    "studio": "bench.studio",
    "reviews": "bench.reviews",
    "clusters": "bench.clusters",
    "spark": "bench.spark_queries",
    "compute": "bench.compute",
    "pipeline": "bench.pipeline_files",
}


def run_suite(name: str, scale: Scale, only: Sequence[str] = ()) -> SuiteRecord:
    """Run one suite. If it fails, the record says so and keeps the figures it had by then.

    ``only`` is for a suite of several questions: those that are asked.
    """
    began = time.perf_counter()
    figures: list[Figure] = []
    seed: int | None = None
    failure: str | None = None
    try:
        module = import_module(SUITES[name])
        seed = module.SEED
        for figure in module.run(scale, only) if only else module.run(scale):
            note(f"  {' | '.join(filter(None, cells(figure)))}")
            figures.append(figure.rounded())
    except Exception as failed:
        traceback.print_exc()
        failure = f"{type(failed).__name__}: {failed}"
    seconds = time.perf_counter() - began
    record = SuiteRecord(name, tuple(figures), circumstances(seed, seconds), failure)
    note(f"{name}: {record.verdict}, {seconds:.0f} s")
    return record
