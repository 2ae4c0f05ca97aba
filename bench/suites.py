"""Every suite by its name. A module is imported when it runs: some need large libraries."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from bench.record import Figure, SuiteRecord

SUITES = {
    "languages": "bench.languages",
    "kernel": "bench.kernel",
    "queries": "bench.queries",
    "load": "bench.load",
    "upkeep": "bench.upkeep",
    "merge": "bench.merge",
    "server": "bench.server",
}


def run_suite(name: str, *, quick: bool = False) -> SuiteRecord:
    """Run one suite: its module has a function `run` that returns figures."""
    figures: Sequence[Figure] = import_module(SUITES[name]).run(quick=quick)
    return SuiteRecord(name, figures)
