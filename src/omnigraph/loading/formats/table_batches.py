"""Tables in columns: Parquet, ORC, Arrow and Lance, as batches of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from omnigraph.loading.files import Files
from omnigraph.loading.sources import Piece

BATCH_ROWS = 65_536
_ARROW_FILE = b"ARROW1"
_STREAM_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def table_batches(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    """The rows of a piece of a table."""
    match piece.format:
        case "parquet":
            return _parquet(piece, files)
        case "orc":
            return _orc(piece, files)
        case "lance":
            return _lance(piece, files)
        case "arrow":
            return _arrow(piece, files)
        case _:
            raise AssertionError(piece.format)


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of at most `BATCH_ROWS`."""
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def arrow_reader(stream: Any) -> Any:
    """What reads the batches of an Arrow file, which may be a stream that was written to disk."""
    is_file = stream.read(len(_ARROW_FILE)) == _ARROW_FILE
    stream.seek(0)
    return pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)


def _parquet(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with files.open(piece.path) as stream, pq.ParquetFile(stream) as file:
        yield from file.iter_batches(batch_size=BATCH_ROWS, row_groups=list(piece.parts))


def _orc(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    file = orc.ORCFile(files.open(piece.path))
    for stripe in range(file.nstripes):
        yield from sliced(file.read_stripe(stripe))


def _arrow(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    with files.open(piece.path) as stream:
        reader = arrow_reader(stream)
        if isinstance(reader, pa.ipc.RecordBatchStreamReader):
            _require_end(stream)
            for batch in reader:
                yield from sliced(batch)
            return
        for number in range(reader.num_record_batches):
            yield from sliced(reader.get_batch(number))


def _require_end(stream: Any) -> None:
    """Refuse a stream whose writer did not finish: Arrow would give the batches there are."""
    position = stream.tell()
    stream.seek(stream.size() - len(_STREAM_END))
    if stream.read(len(_STREAM_END)) != _STREAM_END:
        raise pa.ArrowInvalid("the stream has no end")
    stream.seek(position)


def _lance(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    import lance

    options = dict(files.s3) or None
    dataset = lance.dataset(piece.path, version=piece.start, storage_options=options)
    wanted = set(piece.parts)
    chosen = [each for each in dataset.get_fragments() if each.fragment_id in wanted]
    yield from dataset.scanner(fragments=chosen, blob_handling="all_binary").to_batches()
