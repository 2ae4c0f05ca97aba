"""Frames of a graph: the rows of a type as a Spark DataFrame, without spelling out options."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.effects.uri import Root
from omnigraph.pipeline.session import SessionSettings, lasting_session

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
    """The rows of a type, pinned now; ``columns`` and ``where`` reach storage.

    Raises `InputError` for a type or a column that is not there, before anything is read.
    """
    options = {"path": root.uri, "type": type}
    given = {
        "columns": None if columns is None else ",".join(columns),
        "filter": where,
        "branch": branch,
        "snapshot": snapshot,
    }
    options |= {name: value for name, value in given.items() if value is not None}
    session = lasting_session(spark, SessionSettings.of(os.environ))
    from omnigraph.pipeline.data_source import OmnigraphSource, register

    # Spark would wrap what is wrong with the options in a traceback of its own.
    OmnigraphSource(options).schema()
    register(session)
    return session.read.format(OmnigraphSource.name()).options(**options).load()
