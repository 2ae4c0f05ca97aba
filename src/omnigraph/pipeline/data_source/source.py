"""The Spark data source `omnigraph`: rows of one type, read from a snapshot or written as a commit.

Spark pickles these objects and runs their methods in different processes: those of the source where
a frame is created, the reader and the writer's `commit` where a job is planned and ended, the rest
in workers. A reader therefore pins a snapshot: a frame has the same rows each time it is evaluated,
whatever is committed meanwhile.

Filters of Spark are not pushed down: Spark 4.3 remembers a pushed filter for the frame, so that the
next query on the same frame silently misses rows. The options `filter` and `columns` reach Lance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.types import StructType

from omnigraph.effects.environment import s3_variables, take_over_s3_variables
from omnigraph.pipeline.data_source.options import SentToProcesses, SourceActor, SourceOptions
from omnigraph.pipeline.data_source.reading import Pinned, PinnedReader, spark_schema
from omnigraph.pipeline.data_source.writing import FrameWriter
from omnigraph.pipeline.streaming.feed import FeedOptions, FeedReader, feed_schema
from omnigraph.pipeline.streaming.sink import SinkOptions, StreamWriter

SHORT_NAME = "omnigraph"


class OmnigraphSource(SentToProcesses, DataSource):
    """`spark.read.format("omnigraph")` and `frame.write.format("omnigraph")`.

    Options: `path` (the graph), `type` (`Person`, or `node:Person`), `branch`; to read, `snapshot`
    (a commit), `columns` (comma-separated names) and `filter` (SQL, as Lance reads it); to write,
    `mode` (append, merge or overwrite), `actor` and `idempotency_key`; to apply a policy, `policy`
    (the file of a bundle), `actor` and `claims`. Streams have the options of
    `streaming.sink.SinkOptions` and `streaming.feed.FeedOptions`.
    """

    s3_variables: ClassVar[Mapping[str, str] | None] = None
    """The driver's `AWS_*` variables, set by `register`; None: Spark's processes use their own."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        if self.s3_variables is not None:
            take_over_s3_variables(self.s3_variables)
        self._pinned: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return SHORT_NAME

    def acting(self) -> SourceActor | None:
        """The actor, if a policy applies; overridden in `omnigraph.spark`."""
        return None

    def schema(self) -> StructType:
        """The columns of the type, or the selected ones, in Spark's types; of a stream, its own."""
        if "type" not in self.options or "start" in self.options:
            return feed_schema(self._of_feed())
        self._pinned = Pinned.of(self._of_frame())
        return spark_schema(self._pinned.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the pinned snapshot."""
        return PinnedReader(self._pinned or Pinned.of(self._of_frame()), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of rows of one type as one commit."""
        return FrameWriter(self._of_frame(), schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of the change feed."""
        return FeedReader(self._of_feed())

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """A writer of each micro-batch as one commit."""
        options = SinkOptions.of(self.options, self.acting())
        return StreamWriter(options, schema, overwrite=overwrite)

    def _of_frame(self) -> SourceOptions:
        return SourceOptions.of(self.options, self.acting())

    def _of_feed(self) -> FeedOptions:
        return FeedOptions.of(self.options, self.acting())


def register(spark: Any) -> None:
    """Register the data source `omnigraph` with a session, with the current `AWS_*` variables.

    They are not sent to Spark Connect, whose server uses its own.
    """
    from pyspark_omnigraph import DefaultSource  # found by sessions without a registration

    source: type[DataSource] = DefaultSource
    if hasattr(spark, "_jsparkSession"):
        # A class without an importable name: Spark pickles it by value, with this attribute.
        source = type(SHORT_NAME, (DefaultSource,), {"s3_variables": s3_variables()})
    spark.dataSource.register(source)
