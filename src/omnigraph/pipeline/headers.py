"""Looking at headers and footers before any row is read: a wrong column is refused by its name."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.pipeline.files import Files
from omnigraph.pipeline.reading import csv_header, mapped_columns
from omnigraph.pipeline.sources import Found, Plan, corrupt, type_of
from omnigraph.schema.catalog import Catalog


def check_headers(plan: Plan, catalog: Catalog, files: Files, *, ignore_unknown: bool) -> None:
    """Raise `InputError` for the first column that no row of its type may have, or that lacks.

    Formats without a header (JSON) are looked at when they are read.
    """
    for found in plan.files:
        if found.table_key is None or not found.size:
            continue
        schema = _schema(found, files)
        if schema is not None:
            mapped_columns(
                schema,
                type_of(found.table_key, catalog),
                catalog,
                found.shown,
                are_texts=found.format == "csv",
                ignore_unknown=ignore_unknown,
            )
    for source in plan.frames:
        from pyspark.sql.pandas.types import to_arrow_schema

        mapped_columns(
            to_arrow_schema(source.frame.schema, timezone="UTC"),
            type_of(source.table_key, catalog),
            catalog,
            source.name,
            are_texts=False,
            ignore_unknown=ignore_unknown,
        )


def _schema(found: Found, files: Files) -> pa.Schema | None:
    try:
        match found.format:
            case "parquet":
                import pyarrow.parquet as pq

                with files.open(found.path) as stream:
                    return pq.read_schema(stream)
            case "csv":
                return pa.schema([(name, pa.string()) for name in csv_header(found.path, files)])
            case "orc":
                from pyarrow import orc

                with files.open(found.path) as stream:
                    return orc.ORCFile(stream).schema
            case "arrow":
                with files.open(found.path) as source:
                    return pa.ipc.open_file(source).schema
            case "lance":
                import lance

                options = dict(files.s3) or None
                return lance.dataset(found.path, storage_options=options).schema
            case _:
                return None
    except (OSError, ValueError) as error:
        raise corrupt(found.shown, error) from error
