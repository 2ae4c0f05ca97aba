"""Rows of Avro files. Their values are Python's, and are judged one by one as JSON is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.loading.files import Files
from omnigraph.loading.sources import Piece
from omnigraph.storage.datasets import sentence_of

_OBJECTS = 8_192
"""How many are judged at a time. More would leave the caches."""


def avro_schema(stream: Any) -> pa.Schema:
    """The columns of an Avro file; which values they hold is seen when they are read."""
    schema: Any = _fastavro().reader(stream).writer_schema
    return pa.schema([(each["name"], pa.null()) for each in schema["fields"]])


def avro_objects(piece: Piece, files: Files) -> Iterator[list[dict[str, Any]]]:
    """The records of a file as JSON would give them."""
    with files.open(piece.path) as stream:
        records: Iterator[Any] = iter(_fastavro().reader(stream))
        held: list[dict[str, Any]] = []
        number = 0
        while True:
            number += 1
            try:
                record = next(records, None)
            # What stands in a broken file decides what the decoder stumbles over.
            except Exception as error:
                raise _broken(piece, number, error) from error
            if record is None:
                break
            held.append({name: _json_value(value) for name, value in record.items()})
            if len(held) == _OBJECTS:
                yield held
                held = []
        if held:
            yield held


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise InputError(
            "Avro files are read with fastavro, which is not installed",
            hint="pip install 'omnigraph[spark]'",
        ) from error
    return fastavro


def _broken(piece: Piece, number: int, error: Exception) -> InputError:
    return InputError(
        f"{piece.shown}:{number}: the record cannot be read: {sentence_of(error)}",
        hint="check that the file is complete; all records before this one can be read",
        details={"file": piece.shown, "record": number},
    )


def _json_value(value: Any) -> Any:
    match value:
        case dt.date():
            # Instants, too; as texts, because a number would be days to one type and
            # milliseconds to another.
            return value.isoformat()
        case UUID():
            return str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list():
            return [_json_value(item) for item in value]
        case _:
            return value
