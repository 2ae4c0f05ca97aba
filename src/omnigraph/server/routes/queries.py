"""Ad-hoc queries and stored queries.

A caller without the right to call stored queries cannot find out which exist: denied and unknown
names get identical answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import orjson
from starlette.responses import Response

from omnigraph.errors import CompileError, InputError, NotFound, WrongVerb
from omnigraph.graph import Graph
from omnigraph.graph.reading import hides_names, language_answer, shows_query
from omnigraph.model.governor import Governor
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.model.receipts import MutationReceipt
from omnigraph.model.result import Result
from omnigraph.model.tables import ARROW_METADATA, ipc_blocks
from omnigraph.server.call import Call, Handlers
from omnigraph.server.generation import StoredQueries, StoredQuery
from omnigraph.server.responses import block_response, json_response, wants_arrow
from omnigraph.wire import operations
from omnigraph.wire.answers import QueryCatalog
from omnigraph.wire.requests import (
    ARROW_STREAM,
    IF_GRAPH_COMMIT,
    JSON,
    ChangeRequest,
    DescribeRequest,
    ExplainRequest,
    InvokeRequest,
    LanguageRequest,
    LegacyReadRequest,
    QueryRequest,
    expected_commit,
)

Answered = TypeVar("Answered")

ARROW_ROWS = 64 * 1024
"""Rows per batch of an Arrow stream."""


async def query(call: Call) -> Response:
    """Run a query that reads."""
    asked = await call.document(QueryRequest)
    run = partial(_read, call.graph, asked, call.governor)
    return await rows_response(call, run)


async def read(call: Call) -> Response:
    """As `query`, for older clients; the answer lacks the commit."""
    old = await call.document(LegacyReadRequest)
    asked = QueryRequest(
        query=old.query_source,
        name=old.query_name,
        params=old.params,
        branch=old.branch,
        snapshot=old.snapshot,
    )
    run = partial(_read, call.graph, asked, call.governor)
    return await rows_response(call, run, with_commit=False)


async def explain(call: Call) -> Response:
    """The plan of a query."""
    asked = await call.document(ExplainRequest)
    found = await call.read(call.graph.explain, asked.query, name=asked.name)
    return json_response(found)


async def language(call: Call) -> Response:
    """Answer an editor's request about a text, with the schema of a branch."""
    asked = await call.document(LanguageRequest)
    graph = call.graph.on_branch(asked.branch or MAIN_BRANCH)
    found = await call.read(
        language_answer, graph, asked.text, asked.language, asked.line, asked.column
    )
    return json_response(found)


async def describe_queries(call: Call) -> Response:
    """The names and parameters of the queries in a text."""
    asked = await call.document(DescribeRequest)
    branch = asked.branch or MAIN_BRANCH
    found = await call.read(call.graph.on_branch(branch).describe_queries, asked.query)
    return json_response(QueryCatalog(found))


async def mutate(call: Call) -> Response:
    """Run a query that writes."""
    return await _mutate(call, None)


async def mutate_if(call: Call) -> Response:
    """Run a query that writes, if the head is the commit that the caller expects."""
    return await _mutate(call, expected_commit(call.headers(IF_GRAPH_COMMIT)))


async def _mutate(call: Call, expected: str | None) -> Response:
    asked = await call.document(ChangeRequest)
    branch = asked.branch or MAIN_BRANCH
    call.gate.change("mutate", call.access, branch)
    size = len(asked.query.encode()) + len(orjson.dumps(asked.params))
    receipt = await call.write(
        branch,
        size,
        _write,
        call.graph,
        asked,
        branch=branch,
        expected_head=expected,
        actor=call.actor,
        operation_id=asked.operation_id or call.key,
    )
    return json_response(receipt)


def _read(graph: Graph, asked: QueryRequest, governor: Governor) -> Result:
    try:
        return graph.query(
            asked.query,
            asked.params,
            name=asked.name,
            branch=asked.branch,
            snapshot=asked.snapshot,
            explain=asked.explain,
            governor=governor,
        )
    except WrongVerb as wrong:
        raise WrongVerb(wrong.message, hint="send it to `/mutate`") from None


def _write(graph: Graph, asked: ChangeRequest, **options: Any) -> MutationReceipt:
    try:
        return graph.mutate(
            asked.query,
            asked.params,
            name=asked.name,
            message=asked.message,
            **options,
        )
    except WrongVerb as wrong:
        raise WrongVerb(wrong.message, hint="send it to `/query`") from None


# --- rows ---------------------------------------------------------------------------------------


async def rows_response(
    call: Call, run: Callable[[], Result], *, with_commit: bool = True
) -> Response:
    """Run a query in a thread and return its rows in the format that the caller accepts."""
    if not wants_arrow(call):
        body = await call.read(_json, run, with_commit)
        return Response(body, media_type=JSON)
    found = await call.read(_arrow, run)
    if isinstance(found, bytes):
        return Response(found, media_type=ARROW_STREAM)
    return await block_response(call, arrow_blocks(found), ARROW_STREAM)


def _arrow(run: Callable[[], Result]) -> bytes | Result:
    """The bytes of a result that fits one batch, else the result."""
    result = run()
    return result if result.row_count > ARROW_ROWS else b"".join(arrow_blocks(result))


def arrow_blocks(result: Result) -> Iterator[bytes]:
    """The rows as blocks of an Arrow stream; counts and commit are in the schema's metadata."""
    table = result.to_arrow()
    about = {**(table.schema.metadata or {}), ARROW_METADATA: orjson.dumps(result.metadata())}
    batches = table.to_batches(max_chunksize=ARROW_ROWS)
    return ipc_blocks(table.schema.with_metadata(about), batches)


def _json(run: Callable[[], Result], with_commit: bool) -> bytes:
    result = run()
    if not with_commit:
        result.graph_commit_id = None
    return result.to_json_bytes()


# --- stored queries -----------------------------------------------------------------------------


async def list_queries(call: Call) -> Response:
    """Every stored query, with its parameters."""
    call.gate.read("queries list", call.access, MAIN_BRANCH)
    shown = [each for each in call.served.queries if shows_stored(call, each)]
    if len(shown) == len(call.served.queries):
        return Response(call.served.queries.catalog, media_type=JSON)
    return Response(StoredQueries(shown).catalog, media_type=JSON)


def shows_stored(call: Call, stored: StoredQuery) -> bool:
    """Whether a stored query names only what the caller may see; otherwise it is hidden."""
    signature = stored.signature
    return shows_query(call.graph, stored.source, signature.name, writes=signature.is_mutation)


def _as_shown(
    call: Call, stored: StoredQuery, branch: str | None, run: Callable[..., Answered]
) -> Callable[..., Answered]:
    """``run``, with a compile error reported as an unknown query if it could reveal hidden names.

    The caller did not write the text, so the error would reveal its names.
    """
    writes = stored.signature.is_mutation

    def run_hiding_names(*args: Any, **options: Any) -> Answered:
        try:
            return run(*args, **options)
        except CompileError:
            if hides_names(call.graph, branch or MAIN_BRANCH, writes=writes):
                raise _not_found() from None
            raise

    return run_hiding_names


def _not_found() -> NotFound:
    return NotFound("stored query not found")


async def invoke(call: Call) -> Response:
    """Run a stored query."""
    asked = await call.document(InvokeRequest)
    stored = _find(call)
    _require_expected(stored, asked)
    if stored.signature.is_mutation:
        return await _invoke_mutation(call, stored, asked, None)
    if asked.message is not None:
        raise InputError(
            f"stored query '{stored.signature.name}' reads, and only commits keep a `message`",
            hint="leave `message` out",
        )
    run = partial(
        _as_shown(call, stored, asked.branch, call.graph.query),
        stored.source,
        asked.params,
        name=stored.signature.name,
        branch=asked.branch,
        snapshot=asked.snapshot,
        governor=call.governor,
    )
    return await rows_response(call, run)


async def invoke_if(call: Call) -> Response:
    """Run a stored query that writes, if the head is the commit that the caller expects."""
    expected = expected_commit(call.headers(IF_GRAPH_COMMIT))
    asked = await call.document(InvokeRequest)
    stored = _find(call)
    _require_expected(stored, asked)
    if not stored.signature.is_mutation:
        raise InputError(
            f"stored query '{stored.signature.name}' reads, and a read takes no condition",
            hint="call it without `/if-graph-commit`",
        )
    return await _invoke_mutation(call, stored, asked, expected)


async def _invoke_mutation(
    call: Call, stored: StoredQuery, asked: InvokeRequest, expected: str | None
) -> Response:
    if asked.snapshot is not None:
        raise InputError(
            f"stored query '{stored.signature.name}' writes, and a snapshot never changes",
            hint="name a `branch` instead of a `snapshot`",
        )
    branch = asked.branch or MAIN_BRANCH
    call.gate.change("mutate", call.access, branch)
    size = len(stored.source.encode()) + len(orjson.dumps(asked.params))
    receipt = await call.write(
        branch,
        size,
        _as_shown(call, stored, branch, call.graph.mutate),
        stored.source,
        asked.params,
        name=stored.signature.name,
        branch=branch,
        expected_head=expected,
        actor=call.actor,
        operation_id=call.key,
        message=asked.message,
    )
    return json_response(receipt)


def _find(call: Call) -> StoredQuery:
    name = call.values["name"]
    is_allowed = call.gate.invoke_query(call.access)
    found = call.served.queries.get(name) if is_allowed else None
    if found is None or not shows_stored(call, found):
        raise _not_found()
    call.services.events.write(
        "stored query",
        {
            "request_id": call.request_id,
            "actor_id": call.actor,
            "graph_id": call.served.graph_id,
            "query_name": name,
            "mutation": found.signature.is_mutation,
        },
    )
    return found


def _require_expected(stored: StoredQuery, asked: InvokeRequest) -> None:
    if asked.expect_mutation is None or asked.expect_mutation == stored.signature.is_mutation:
        return
    is_mutation = stored.signature.is_mutation
    does, verb = ("writes", "mutate") if is_mutation else ("reads", "query")
    raise InputError(f"stored query '{stored.signature.name}' {does}", hint=f"use `{verb}` for it")


HANDLERS: Handlers = {
    operations.QUERY.id: query,
    operations.READ.id: read,
    operations.EXPLAIN.id: explain,
    operations.DESCRIBE_QUERIES.id: describe_queries,
    operations.LANGUAGE.id: language,
    operations.MUTATE.id: mutate,
    operations.CHANGE.id: mutate,
    operations.MUTATE_IF.id: mutate_if,
    operations.LIST_QUERIES.id: list_queries,
    operations.INVOKE.id: invoke,
    operations.INVOKE_IF.id: invoke_if,
}
