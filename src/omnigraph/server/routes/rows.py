"""The rows of a query as an answer: JSON, or Arrow for whoever asks for it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import orjson
from starlette.responses import Response

from omnigraph.model.result import Result
from omnigraph.server.call import Call
from omnigraph.server.responses import block_response
from omnigraph.wire.requests import ARROW_METADATA, ARROW_STREAM, JSON

ARROW_ROWS = 64 * 1024
"""Rows of a batch on the wire."""


async def rows_answer(
    call: Call, run: Callable[[], Result], *, with_commit: bool = True
) -> Response:
    """Run a query in a thread, and answer with its rows in the form that the caller accepts."""
    if not _wants_arrow(call):
        body = await call.services.pool.read(_json, run, with_commit)
        return Response(body, media_type=JSON)
    found = await call.services.pool.read(_arrow, run)
    if isinstance(found, bytes):
        return Response(found, media_type=ARROW_STREAM)
    return await block_response(call, arrow_blocks(found), ARROW_STREAM)


def _arrow(run: Callable[[], Result]) -> bytes | Result:
    """An answer of one batch, which is ready at once; otherwise the rows it is made from."""
    result = run()
    return result if result.row_count > ARROW_ROWS else b"".join(arrow_blocks(result))


def arrow_blocks(result: Result) -> Iterator[bytes]:
    """The rows as an Arrow stream in blocks; the rest of the answer is metadata of its schema."""
    import pyarrow as pa

    table = result.to_arrow()
    about = {**(table.schema.metadata or {}), ARROW_METADATA: orjson.dumps(result.metadata())}
    table = table.replace_schema_metadata(about)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=ARROW_ROWS):
            writer.write_batch(batch)
            yield _drained(sink)
    yield _drained(sink)


def _drained(sink: io.BytesIO) -> bytes:
    block = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return block


def _json(run: Callable[[], Result], with_commit: bool) -> bytes:
    result = run()
    if not with_commit:
        result.graph_commit_id = None
    return result.to_json_bytes()


def _wants_arrow(call: Call) -> bool:
    accepted = call.header("accept")
    if accepted is None or ARROW_STREAM not in accepted or ARROW_STREAM not in call.operation.gives:
        return False
    return any(each.partition(";")[0].strip() == ARROW_STREAM for each in accepted.split(","))
