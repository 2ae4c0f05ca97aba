"""Looking at headers and footers before any row is read: a wrong column is refused by its name."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.errors import InputError, ValueConversionError
from omnigraph.loading.files import Files
from omnigraph.loading.formats.avro_rows import avro_schema
from omnigraph.loading.formats.csv_rows import csv_header
from omnigraph.loading.formats.json_rows import refuse_array
from omnigraph.loading.formats.table_batches import arrow_reader
from omnigraph.loading.formats.table_columns import UNKNOWN_LEFT_OUT, mapped_columns
from omnigraph.loading.records.envelope import TableType
from omnigraph.loading.records.hints import name_hint, value_hint
from omnigraph.loading.sources import Found, Plan, corrupt, type_of
from omnigraph.model.text_columns import values_from_text
from omnigraph.model.values import property_value
from omnigraph.schema.catalog import Catalog


def check_headers(plan: Plan, catalog: Catalog, files: Files, *, ignore_unknown: bool) -> None:
    """Raise `InputError` for the first column that no row of its type may have, or that lacks.

    Of JSON, which has no header, only the form is looked at.
    """
    for found in plan.files:
        if found.table_key is None or not found.size:
            continue
        type = type_of(found.table_key, catalog)
        _check_folders(found, type, ignore_unknown=ignore_unknown)
        schema = _schema(found, files)
        if schema is not None:
            mapped_columns(
                schema,
                type,
                catalog,
                found.shown,
                are_texts=found.format == "csv",
                ignore_unknown=ignore_unknown,
                folder_values=dict(found.folder_values),
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


def _check_folders(found: Found, type: TableType, *, ignore_unknown: bool) -> None:
    """Refuse a folder whose name is no property of its rows, or no value of it."""
    for name, text in found.folder_values:
        prop = type.properties.get(name)
        if prop is None and ignore_unknown:
            continue
        folder = f"{found.shown}: {type.name}: the folder '{name}={text or ''}'"
        details = {"file": found.shown, "type": type.name, "property": name}
        if prop is None:
            known = name_hint(name, type.properties, f"properties of {type.name}")
            raise InputError(
                f"{folder} is no property", hint=f"{known}; {UNKNOWN_LEFT_OUT}", details=details
            )
        (value,) = values_from_text(pa.array([text], pa.string()), prop.type)
        try:
            property_value(value, prop.type, name, strict=True)
        except ValueConversionError as error:
            hint = error.hint or value_hint(prop.type)
            raise InputError(f"{folder}: {error.message}", hint=hint, details=details) from error


def _schema(found: Found, files: Files) -> pa.Schema | None:
    try:
        match found.format:
            case "parquet":
                import pyarrow.parquet as pq

                with files.open(found.path) as stream:
                    return pq.read_schema(stream)
            case "csv":
                names = csv_header(found.path, files, shown=found.shown)
                return pa.schema([(name, pa.string()) for name in names])
            case "json":
                refuse_array(found.path, files, shown=found.shown)
                return None
            case "avro":
                with files.open(found.path) as stream:
                    return avro_schema(stream)
            case "orc":
                from pyarrow import orc

                with files.open(found.path) as stream:
                    return orc.ORCFile(stream).schema
            case "arrow":
                with files.open(found.path) as source:
                    return arrow_reader(source).schema
            case "lance":
                import lance

                options = dict(files.s3) or None
                dataset = lance.dataset(found.path, storage_options=options)
                # As it is read: blobs as bytes.
                return dataset.scanner(blob_handling="all_binary").projected_schema
            case _:
                return None
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise corrupt(found.shown, error) from error
