"""Mutations, loads and changes of the schema of a served graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from omnigraph.client.exchange import (
    Text,
    checked_body,
    condition,
    header_key,
    present,
    utf8,
)
from omnigraph.client.failures import require_no_actor
from omnigraph.client.handle import AsyncHandle, SourceText
from omnigraph.client.records import Data, read_records, types_of_exports
from omnigraph.errors import InputError, LimitExceeded
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.model.load_options import (
    ErrorOptions,
    MapArgument,
    checked_options,
    map_texts,
)
from omnigraph.model.receipts import (
    AbsentMeaning,
    LoadMode,
    LoadReceipt,
    MutationReceipt,
    SchemaApplyReceipt,
    SchemaPlan,
    SchemaRebaseReceipt,
)
from omnigraph.wire import operations, requests
from omnigraph.wire.requests import read_document

Grammar = Literal["strict", "compatible"]


async def mutate(
    self: AsyncHandle,
    source: SourceText,
    params: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    branch: str | None = None,
    expected_head: str | None = None,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
) -> MutationReceipt:
    """Run a write query as one commit.

    ``expected_head`` makes it conditional: it runs only if that commit is the branch's head.
    ``operation_id`` names the write: repeating it with the same id returns the first receipt.
    ``message`` is kept with the commit.
    """
    require_no_actor(actor)
    text = Text.of(source)
    fields = {
        "query": text.text,
        "name": name,
        "branch": self._branch_of(branch),
        "operation_id": operation_id,
        "message": message,
    }
    return await self._ask(
        # Only the route for conditions knows them: an older server refuses it.
        operations.MUTATE if expected_head is None else operations.MUTATE_IF,
        MutationReceipt,
        headers=condition(expected_head),
        content=checked_body(requests.ChangeRequest, fields, params),
        text=text,
        key=operation_id,
    )


async def load(
    self: AsyncHandle,
    *paths: str | os.PathLike[str],
    mode: LoadMode,
    absent: AbsentMeaning = "keep",
    data: Data | None = None,
    map: MapArgument | None = None,
    branch: str | None = None,
    from_: str | None = None,
    grammar: Grammar = "compatible",
    replace_types: Iterable[str] = (),
    dry_run: bool = False,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
    progress: Callable[[int], None] | None = None,
    errors: ErrorOptions | None = None,
) -> LoadReceipt:
    """Load graph records, from files of JSON lines or as ``data``, as one commit.

    The options mean what they mean for `Graph.load`, but a server writes no file of errors. It
    takes up to 32 MiB at once; more is loaded on the storage.
    """
    require_no_actor(actor)
    errors = checked_options(errors, ErrorOptions, "errors")
    if errors.errors_out is not None:
        raise InputError(
            "a served graph writes no file of errors",
            hint="leave `errors_out` out: the problems are in the error or the receipt",
        )
    records = read_records(paths, data, progress)
    if mode == "overwrite":
        replace_types = [*replace_types, *types_of_exports(paths)]
    limit = operations.LOAD_BYTES_MAX
    if len(records) > limit:
        raise LimitExceeded(
            "graph_batch_request_bytes",
            limit,
            len(records),
            hint="load it in parts, or on the storage of the graph with `--store`",
        )
    options: dict[str, Any] = {
        "branch": self._branch_of(branch),
        "from": from_,
        "mode": mode,
        "absent": None if absent == "keep" else absent,
        "replace_types": list(replace_types) or None,
        "operation_id": operation_id,
        "message": message,
        "dry_run": dry_run or None,
        "max_errors": errors.max_errors,
        "ignore_unknown": errors.ignore_unknown or None,
        "on_error": None if errors.on_error == "fail" else errors.on_error,
        "max_error_share": errors.max_error_share,
        "map": map_texts(map),
    }
    if grammar == "compatible":
        content = checked_body(requests.LoadRequest, options | {"data": utf8(records, "the data")})
        return await self._ask(operations.LOAD, LoadReceipt, content=content, key=operation_id)
    read_document(requests.LoadOptions, present(options))
    return await self._ask(
        operations.LOAD_NDJSON, LoadReceipt, query=options, content=records, key=operation_id
    )


async def plan_schema(
    self: AsyncHandle, desired: SourceText, *, allow_data_loss: bool = False
) -> SchemaPlan:
    """The steps from the accepted schema to another; changes nothing."""
    text = Text.of(desired)
    fields = {"schema_source": text.text, "allow_data_loss": allow_data_loss}
    content = checked_body(requests.SchemaRequest, fields)
    return await self._ask(
        operations.PLAN_SCHEMA, SchemaPlan, content=content, text=text, is_read=True
    )


async def apply_schema(
    self: AsyncHandle,
    desired: SourceText,
    *,
    allow_data_loss: bool = False,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
) -> SchemaApplyReceipt:
    """Bring main to another schema (a text, or the path of a `.pg` file) as one commit.

    ``operation_id`` names the change: repeating it with the same id returns the first receipt.
    ``message`` is kept with the commit.
    """
    require_no_actor(actor)
    text = Text.of(desired)
    fields = {
        "schema_source": text.text,
        "allow_data_loss": allow_data_loss,
        "message": message,
    }
    return await self._ask(
        operations.APPLY_SCHEMA,
        SchemaApplyReceipt,
        content=checked_body(requests.SchemaApplyRequest, fields),
        text=text,
        key=header_key(operation_id),
    )


async def rebase_schema(
    self: AsyncHandle,
    branch: str | None = None,
    *,
    allow_data_loss: bool = False,
    dry_run: bool = False,
    actor: str | None = None,
    operation_id: str | None = None,
) -> SchemaRebaseReceipt:
    """Bring a branch to the schema that main has now, as one commit on the branch.

    The options mean what they mean for `Graph.rebase_schema`. ``operation_id`` names the
    request: repeating it with the same id returns the first receipt.
    """
    require_no_actor(actor)
    target = self._branch_of(branch) or MAIN_BRANCH
    fields = {"branch": target, "allow_data_loss": allow_data_loss, "dry_run": dry_run}
    content = checked_body(requests.SchemaRebaseRequest, fields)
    return await self._ask(
        operations.REBASE_SCHEMA,
        SchemaRebaseReceipt,
        content=content,
        key=header_key(operation_id),
        is_read=dry_run,
    )
