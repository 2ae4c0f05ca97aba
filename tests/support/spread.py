"""Small graphs on Spark as if they were large: many files, a task for each, no broadcast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from lance.fragment import write_fragments

from omnigraph.storage import transactions

AUTO_BROADCAST = "spark.sql.autoBroadcastJoinThreshold"


@contextmanager
def small_files(rows: int = 3) -> Iterator[None]:
    """Writes in process make files of so few rows."""
    with pytest.MonkeyPatch.context() as patch:
        write = partial(write_fragments, max_rows_per_file=rows)
        patch.setattr(transactions, "write_fragments", write)
        yield


@contextmanager
def spread_over_tasks(spark: Any) -> Iterator[None]:
    """Queries read a task a file, shuffle the smallest tables, and keep each level of a search."""
    from omnigraph.engines.spark import reach
    from omnigraph.engines.spark import tables as spark_tables

    before = spark.conf.get(AUTO_BROADCAST)
    spark.conf.set(AUTO_BROADCAST, "-1")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spark_tables, "PART_ROWS_MIN", 1)
            patch.setattr(spark_tables, "PART_ROWS_MAX", 1)
            patch.setattr(spark_tables, "BROADCAST_BYTES", -1)
            patch.setattr(reach, "LEVELS_AT_ONCE", 0)
            yield
    finally:
        spark.conf.set(AUTO_BROADCAST, before)
