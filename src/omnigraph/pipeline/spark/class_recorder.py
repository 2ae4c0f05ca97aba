"""Recording the classes of Spark: a short session of its own, beside the user's work.

Run as `python -m omnigraph.pipeline.spark.class_recorder '["1g"]'`, with the memory and the options
of the sessions the archive is for. It says nothing, and whatever goes wrong, the next start is as
the last one was.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from omnigraph.errors import StorageError
from omnigraph.pipeline.spark.class_archive import archive_for, making
from omnigraph.pipeline.spark.java import find_java
from omnigraph.pipeline.spark.launch import class_path
from omnigraph.pipeline.spark.session import SessionSettings, build_session, end_jvm
from omnigraph.pipeline.spark.warming import await_workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_LEAST_PRIORITY = 19
_ROWS = 1000


def record(memory: str, options: Sequence[str] = ()) -> None:
    """Make the archive for sessions of this environment, unless it is there or being made."""
    archive = archive_for(
        find_java(os.environ),
        class_path(os.environ),
        memory=memory,
        options=options,
        environment=os.environ,
    )
    if archive is None:
        return
    with making(archive) as part:
        if part is None:
            return
        settings = SessionSettings("local[2,4]", {"spark.driver.memory": memory}, tuple(options))
        try:
            session = build_session(settings, records=part)
            # An archive of fewer classes is one all the same.
            with suppress(Exception):
                exercise(session)
            session.stop()
            if not end_jvm():
                raise StorageError("Spark's JVM recorded no archive of its classes")
            archive.keep(part)
        finally:
            end_jvm(at_once=True)


def exercise(spark: SparkSession) -> None:
    """Have Spark do a little of everything that loads and frames have it do."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    await_workers()
    numbers = spark.range(0, _ROWS, 1, 2).mapInArrow(_same, "id long")
    large = F.count_if(F.col("id") > 9).alias("large")
    first = F.min(F.struct("id")).alias("first")
    by_key = numbers.groupBy((F.col("id") % 7).alias("key"))
    counted = by_key.agg(F.sum("id").alias("sum"), first, large)
    joined = numbers.join(counted, numbers.id == counted["sum"], "left").orderBy("id")
    list(joined.toLocalIterator())
    joined.limit(5).toArrow()
    with tempfile.TemporaryDirectory() as directory:
        for form in ("parquet", "json", "csv"):
            numbers.write.format(form).save(f"{directory}/{form}")
            spark.read.schema("id long").format(form).load(f"{directory}/{form}").collect()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def main() -> None:
    """Record what the arguments ask for, or leave everything as it is."""
    # So that what is half made is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    os.nice(_LEAST_PRIORITY)
    memory, *options = json.loads(sys.argv[1])
    with suppress(Exception):
        record(memory, options)


if __name__ == "__main__":
    main()
