"""Looking for who is to blame for broken keys, in workers: claims with the records they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from omnigraph.loading.claims import CheckPlan, Claim
from omnigraph.loading.counting import (
    CheckJob,
    PartRows,
    WrittenPart,
    claimed_keys,
    claims_of,
)
from omnigraph.loading.pieces import Piece, Task
from omnigraph.loading.reading import PieceReader, Reading
from omnigraph.loading.sources import type_of
from omnigraph.loading.staging import NUMBER, PIECE
from omnigraph.model.arrow import ID

LOCATED = (
    "rule int, key string, role string, piece int, number long, id string, member string,"
    " table string"
)
LOCATED_SCHEMA = pa.schema(
    {
        "rule": pa.int32(),
        "key": pa.string(),
        "role": pa.string(),
        "piece": pa.int32(),
        "number": pa.int64(),
        "id": pa.string(),
        "member": pa.string(),
        "table": pa.string(),
    }
)
PLACES = "table string, id string, piece int, number long"
PLACES_SCHEMA = pa.schema(
    {"table": pa.string(), "id": pa.string(), "piece": pa.int32(), "number": pa.int64()}
)
NO_PIECE = -1
"""Of what is not a record itself."""


def locate_records(
    reading: Reading, plan: CheckPlan, tasks: Sequence[Task]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs over the numbers of tasks: every claim with its record.

    The input is read once more, which only a load pays for that fails.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = PieceReader(reading)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in tasks[number].pieces:
                    for rows, _ in reader.read(piece):
                        key = rows.type.table_key
                        yield from located(
                            plan.written.get(key, ()),
                            rows.rows,
                            reading.minting.prefix,
                            pieces=_all(piece.index, rows.rows, pa.int32()),
                            numbers=rows.numbers,
                            table_key=key,
                        )

    return run


def locate_frame(
    reading: Reading, plan: CheckPlan, table_key: str, name: str, first_piece: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The same for the rows of a frame."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        piece = Piece(first_piece + partition, f"{name}[{partition}]", "arrow", table_key)
        reader = PieceReader(reading)
        type = type_of(table_key, reading.catalog)
        for batch in batches:
            rows, _ = reader.table_rows(batch, type, piece)
            yield from located(
                plan.written.get(table_key, ()),
                rows.rows,
                reading.minting.prefix,
                pieces=_all(piece.index, rows.rows, pa.int32()),
                numbers=rows.numbers,
                table_key=table_key,
            )

    return run


def locate_parts(
    job: CheckJob,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs over the numbers of parts: claims with their entities.

    Committed rows are of no piece, and so are written ones, whose records are found by their ids.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = job.parts[number]
                claims = claims_of(job.plan, part)
                is_raw = isinstance(part, WrittenPart) and part.is_raw
                rows = PartRows(job, part, claims, ID, *((PIECE, NUMBER) if is_raw else ()))
                for claim in claims:
                    for some in rows.of(claim).to_batches():
                        yield from located(
                            [claim],
                            some,
                            job.minted_prefix,
                            pieces=some[PIECE] if is_raw else _all(NO_PIECE, some, pa.int32()),
                            numbers=some[NUMBER] if is_raw else _all(0, some, pa.int64()),
                            table_key=part.table_key,
                        )

    return run


def record_places(
    job: CheckJob,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs over the numbers of ``job.records``: each one's id and place."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = job.records[number]
                for some in PartRows(job, part, (), ID, PIECE, NUMBER).all.to_batches():
                    columns = [_all(part.table_key, some, pa.string()), some[ID]]
                    yield pa.RecordBatch.from_arrays(
                        [*columns, some[PIECE], some[NUMBER]], schema=PLACES_SCHEMA
                    )

    return run


def _all(value: int | str, rows: pa.RecordBatch, type: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, type), rows.num_rows)


def located(
    claims: Iterable[Claim],
    rows: pa.RecordBatch,
    minted_prefix: str,
    *,
    pieces: pa.Int32Array,
    numbers: pa.Int64Array,
    table_key: str,
) -> Iterator[pa.RecordBatch]:
    """Every claim of some rows, one row each."""
    for claim in claims:
        keys, at = claimed_keys(claim, rows, minted_prefix)
        columns = [pieces, numbers, rows[ID]]
        if at is not None:
            columns = [column.take(at) for column in columns]
        count = len(keys)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([claim.rule] * count, pa.int32()),
                keys,
                pa.array([claim.role] * count, pa.string()),
                *columns,
                pa.array([claim.member] * count, pa.string()),
                pa.array([table_key] * count, pa.string()),
            ],
            schema=LOCATED_SCHEMA,
        )
