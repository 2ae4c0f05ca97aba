"""A table of cases as one test that tells every case which fails.

Pytest takes some milliseconds for a test, in each of several processes: more than most cases of a
large table. `pytest -k` chooses among tests; `OMNIGRAPH_TEST_CASE=words` runs only the cases that
have these words in their name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")
ONLY = os.environ.get("OMNIGRAPH_TEST_CASE", "")


def check_all(cases: Mapping[str, T] | Iterable[T], check: Callable[[T], object]) -> None:
    """Check every case, also behind one that fails; raises all failures, each with its case."""
    named = cases.items() if isinstance(cases, Mapping) else ((str(each), each) for each in cases)
    failures: list[Exception] = []
    count = 0
    for name, case in named:
        count += 1
        if ONLY not in name:
            continue
        try:
            check(case)
        except Exception as failure:
            failure.add_note(f"case: {name}")
            failures.append(failure)
    assert count, "the table is empty"
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {count} cases fail", failures)
