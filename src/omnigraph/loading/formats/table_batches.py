"""Rows of Parquet, ORC, Arrow and Lance as batches, and of Avro as objects."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from omnigraph.errors import InputError, install_command
from omnigraph.loading.files import Files
from omnigraph.loading.pieces import Piece
from omnigraph.storage.failures import sentence_of

BATCH_ROWS = 65_536
_ARROW_FILE = b"ARROW1"
_STREAM_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def table_batches(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    """The rows of a piece of a table."""
    match piece.file.format:
        case "parquet":
            return _parquet(piece, files)
        case "orc":
            return _orc(piece, files)
        case "lance":
            return _lance(piece, files)
        case "arrow":
            return _arrow(piece, files)
        case _:
            raise AssertionError(piece.file.format)


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of at most `BATCH_ROWS`."""
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def arrow_reader(stream: Any) -> Any:
    """A reader for an Arrow IPC file or a stream saved as a file."""
    is_file = stream.read(len(_ARROW_FILE)) == _ARROW_FILE
    stream.seek(0)
    return pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)


def _parquet(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with files.open(piece.file.path) as stream, pq.ParquetFile(stream) as file:
        yield from file.iter_batches(batch_size=BATCH_ROWS, row_groups=list(piece.parts))


def _orc(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    file = orc.ORCFile(files.open(piece.file.path))
    for stripe in range(file.nstripes):
        yield from sliced(file.read_stripe(stripe))


def _arrow(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    with files.open(piece.file.path) as stream:
        reader = arrow_reader(stream)
        if isinstance(reader, pa.ipc.RecordBatchStreamReader):
            _require_end(stream)
            for batch in reader:
                yield from sliced(batch)
            return
        for number in range(reader.num_record_batches):
            yield from sliced(reader.get_batch(number))


def _require_end(stream: Any) -> None:
    """Refuse a truncated stream: Arrow would read the batches there are without an error."""
    position = stream.tell()
    stream.seek(stream.size() - len(_STREAM_END))
    if stream.read(len(_STREAM_END)) != _STREAM_END:
        raise pa.ArrowInvalid("the stream has no end")
    stream.seek(position)


def _lance(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    import lance

    options = dict(files.s3) or None
    dataset = lance.dataset(piece.file.path, version=piece.start, storage_options=options)
    wanted = set(piece.parts)
    chosen = [each for each in dataset.get_fragments() if each.fragment_id in wanted]
    yield from dataset.scanner(fragments=chosen, blob_handling="all_binary").to_batches()


_OBJECTS = 8_192
"""Objects converted at a time; more would not fit into the CPU caches."""


def avro_schema(stream: Any) -> pa.Schema:
    """The column names of an Avro file; values are checked when they are read."""
    schema: Any = _fastavro().reader(stream).writer_schema
    return pa.schema([(each["name"], pa.null()) for each in schema["fields"]])


def avro_objects(piece: Piece, files: Files) -> Iterator[list[dict[str, Any]]]:
    """The records of a file as JSON-like objects."""
    with files.open(piece.file.path) as stream:
        records: Iterator[Any] = iter(_fastavro().reader(stream))
        objects: list[dict[str, Any]] = []
        number = 0
        while True:
            number += 1
            try:
                record = next(records, None)
            # A broken file can raise anything in the decoder.
            except Exception as error:
                raise _broken(piece, number, error) from error
            if record is None:
                break
            objects.append({name: _json_value(value) for name, value in record.items()})
            if len(objects) == _OBJECTS:
                yield objects
                objects = []
        if objects:
            yield objects


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise InputError(
            "Avro files are read with fastavro, which is not installed",
            hint=install_command("spark"),
        ) from error
    return fastavro


def _broken(piece: Piece, number: int, error: Exception) -> InputError:
    return InputError(
        f"{piece.file.shown}:{number}: the record cannot be read: {sentence_of(error)}",
        hint="check that the file is complete; all records before this one can be read",
        details={"file": piece.file.shown, "record": number},
    )


def _json_value(value: Any) -> Any:
    match value:
        case dt.date():
            # Also datetimes. As texts: a number would be days for one type and milliseconds for
            # another.
            return value.isoformat()
        case UUID():
            return str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list():
            return [_json_value(item) for item in value]
        case _:
            return value
