"""The Spark data source `omnigraph`: frames of a graph, read and written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.effects.uri import Root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(
    root: Root,
    type: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    branch: str | None = None,
    snapshot: str | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """The rows of a type as a frame; ``columns`` and ``where`` are pushed to storage.

    Raises `InputError` for an unknown type or column, before a session is started.
    """
    # Imported here, since workers import this package and need no sessions.
    from omnigraph.pipeline.spark.session import SessionSettings, lasting_session, require_pyspark

    require_pyspark()
    from omnigraph.pipeline.data_source.source import OmnigraphSource, register

    options = {"path": root.uri, "type": type}
    names = [columns] if isinstance(columns, str) else columns
    given = {
        "columns": None if names is None else ",".join(names),
        "filter": where,
        "branch": branch,
        "snapshot": snapshot,
    }
    options |= {name: value for name, value in given.items() if value is not None}
    # Check the options first: Spark would wrap the error in its own traceback.
    OmnigraphSource(options).schema()
    session = lasting_session(spark, SessionSettings.of(os.environ))
    register(session)
    return session.read.format(OmnigraphSource.name()).options(**options).load()
