"""Graph records in and out: loads, exports and tables."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.responses import Response

from omnigraph.errors import InputError, NotFound
from omnigraph.graph.reading import exported_commit
from omnigraph.graph.tables import table_at
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.model.load_options import ErrorOptions
from omnigraph.model.receipts import LoadReceipt
from omnigraph.model.tables import table_blocks
from omnigraph.server.call import Call, Handlers
from omnigraph.server.responses import block_response, json_response, stream_response, wants_arrow
from omnigraph.wire import operations
from omnigraph.wire.answers import LoadReceiptAt
from omnigraph.wire.requests import (
    ARROW_STREAM,
    NDJSON_UTF8,
    ExportRequest,
    LoadOptions,
    LoadRequest,
    TableRequest,
    read_document,
)

PROBLEMS_MAX = 100
"""Problems that an error or a receipt lists; all are counted."""


async def load(call: Call) -> Response:
    """Load records given inside a JSON body."""
    asked = await call.document(LoadRequest)
    await _authorize(call, asked)
    size = len(asked.data.encode())
    work = partial(call.graph.load, data=asked.data, grammar="compatible")
    receipt = await _loaded(call, asked, size, work)
    return json_response(LoadReceiptAt.of(receipt, call.address_of(call.served.graph_id)))


async def load_ndjson(call: Call) -> Response:
    """Load records given as the body; policy decides before any of it is read."""
    call.require_body_type()
    call.require_body_length()
    asked = read_document(LoadOptions, _options(call))
    await _authorize(call, asked)
    data = await call.body()
    try:
        data.decode()
    except UnicodeDecodeError:
        raise InputError("the body is not UTF-8") from None
    work = partial(call.graph.load, data=data, grammar="strict")
    receipt = await _loaded(call, asked, len(data), work)
    return json_response(receipt)


def _options(call: Call) -> dict[str, Any]:
    """The options of a load with records as the body, from the query string."""
    found: dict[str, Any] = {}
    for parameter in call.operation.parameters:
        name = parameter.name
        if parameter.place != "query" or call.parameter(name) is None:
            continue
        match parameter.schema["type"]:
            case "array":
                found[name] = call.parameters(name)
            case "boolean":
                found[name] = call.flag_parameter(name)
            case "integer":
                found[name] = call.number_parameter(name)
            case "number":
                found[name] = call.share_parameter(name)
            case _:
                found[name] = call.parameter(name)
    return found


async def _authorize(call: Call, asked: LoadOptions) -> None:
    """Raise `PolicyDenied`, or `NotFound` for a missing branch without a base to create it from."""
    branch = asked.branch or MAIN_BRANCH
    known = await call.read(call.served.graph.list_branches)
    call.gate.load(call.access, branch, asked.from_, lambda: known)
    if branch not in known and asked.from_ is None:
        raise NotFound(
            f"there is no branch '{branch}'", hint="name the branch to create it from in `from`"
        )


async def _loaded(call: Call, asked: LoadOptions, size: int, work: Any) -> LoadReceipt:
    receipt: LoadReceipt = await call.write(
        asked.branch or MAIN_BRANCH,
        size,
        work,
        mode=asked.mode,
        absent=asked.absent,
        branch=asked.branch,
        from_=asked.from_,
        actor=call.actor,
        engine="local",
        replace_types=asked.replace_types or (),
        operation_id=asked.operation_id or call.key,
        message=asked.message,
        dry_run=asked.dry_run,
        map=asked.map,
        errors=ErrorOptions(
            max_errors=asked.max_errors or PROBLEMS_MAX,
            ignore_unknown=asked.ignore_unknown,
            on_error=asked.on_error,
            max_error_share=asked.max_error_share,
        ),
    )
    return receipt


async def export(call: Call) -> Response:
    """The entities of a branch at one commit, in the format that the caller accepts."""
    asked = await call.document(ExportRequest)
    graph, branch = call.graph, asked.branch or MAIN_BRANCH
    await call.read(exported_commit, graph, branch, asked.snapshot)  # a denial must not take a slot
    in_arrow = wants_arrow(call)
    return await stream_response(
        call,
        lambda: graph.export(
            branch=branch,
            snapshot=asked.snapshot,
            types=asked.type_names or None,
            format="arrow" if in_arrow else "jsonl",
        ),
        ARROW_STREAM if in_arrow else NDJSON_UTF8,
    )


async def table(call: Call) -> Response:
    """The rows of one type at one commit, as an Arrow stream."""
    asked = await call.document(TableRequest)
    rows: Any = {"columns": asked.columns, "where": asked.where}
    if asked.branch is not None and asked.snapshot is not None:
        work = partial(table_at, call.graph, asked.type, asked.branch, asked.snapshot, **rows)
    else:
        ends = {"branch": asked.branch, "snapshot": asked.snapshot}
        work = partial(call.graph.table, asked.type, **ends, **rows)
    found = await call.read(work)
    return await block_response(call, table_blocks(found, rows=asked.rows), ARROW_STREAM)


HANDLERS: Handlers = {
    operations.LOAD.id: load,
    operations.INGEST.id: load,
    operations.LOAD_NDJSON.id: load_ndjson,
    operations.EXPORT.id: export,
    operations.TABLE.id: table,
}
