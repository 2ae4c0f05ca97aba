"""What every worker of a run would make for itself: tests with rewritten assertions, read cases.

Pytest rewrites the assertions of a test file when it is imported first, and keeps what it made
beside it. On a fresh checkout all workers import the same file at the same time, and each would
rewrite all of them. The process that starts the workers does it before, on all cores.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from itertools import chain
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

TESTS = Path(__file__).parents[1]


def prepare(config: pytest.Config) -> None:
    """Make what is missing. Whatever could not be made, a worker makes when it needs it."""
    if sys.dont_write_bytecode:
        return
    missing = [path for path in _rewritten() if not _is_fresh(path)]
    processes = os.cpu_count() or 1
    context = multiprocessing.get_context("fork")
    started = [
        context.Process(target=_make, args=(config, missing[nth::processes], nth == 0))
        for nth in range(processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()


def _rewritten() -> list[Path]:
    return sorted(chain(TESTS.rglob("test_*.py"), TESTS.rglob("conftest.py")))


def _kept(path: Path) -> Path:
    """Where pytest looks for a file with rewritten assertions."""
    return rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"


def _is_fresh(path: Path) -> bool:
    try:
        return _kept(path).stat().st_mtime >= path.stat().st_mtime
    except FileNotFoundError:
        return False


def _make(config: pytest.Config, paths: list[Path], reads_cases: bool) -> None:
    state = config.stash[rewrite.assertstate_key]
    for path in paths:
        stat, code = rewrite._rewrite_test(path, config)
        rewrite.try_makedirs(rewrite.get_cache_dir(path))
        rewrite._write_pyc(state, code, stat, _kept(path))
    if reads_cases:
        from tests.cases.format import all_cases

        all_cases()
    os._exit(0)  # nothing of the process that was forked is this one's to end
