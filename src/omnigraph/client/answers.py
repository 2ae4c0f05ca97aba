"""From an answer to the values that `Graph` gives for the same verb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from omnigraph.client.exchange import Answer
from omnigraph.errors import UnexpectedAnswer
from omnigraph.model.changes import (
    ChangeBlock,
    CommitCause,
    CommitPage,
    Endpoints,
    EntityChange,
    EntityRecord,
    FeedPage,
    Handshake,
    Image,
)
from omnigraph.model.receipts import (
    BranchCreated,
    BranchDeleted,
    CommitInfo,
    LoadedType,
    LoadReceipt,
    LoadStage,
    MergeReceipt,
    MutationReceipt,
    SchemaApplyReceipt,
)
from omnigraph.model.result import ReadTarget, Result, SnapshotSummary, TableSummary
from omnigraph.wire.headers import ARROW_METADATA, ARROW_STREAM
from omnigraph.wire.queries import QueryCatalog, QueryEntry
from omnigraph.wire.service import GraphList, Health, ServedGraph

Json = Mapping[str, Any]


def document(answer: Answer) -> dict[str, Any]:
    """The JSON object of an answer."""
    found = orjson.loads(answer.content)
    if not isinstance(found, dict):
        raise UnexpectedAnswer("the answer is no JSON object")
    return found


# --- rows -----------------------------------------------------------------------------------------


def result(answer: Answer) -> Result:
    """The rows of a query, from Arrow or from JSON."""
    if answer.media_type == ARROW_STREAM:
        return _arrow_result(answer.content)
    found = document(answer)
    return _result(_table(found.get("columns"), found["rows"]), found)


def result_or_receipt(answer: Answer) -> Result | MutationReceipt:
    """What a stored query gave: rows, or what it changed."""
    if answer.media_type == ARROW_STREAM:
        return _arrow_result(answer.content)
    found = document(answer)
    if "affected_nodes" in found:
        return _mutation(found)
    return _result(_table(found.get("columns"), found["rows"]), found)


def _arrow_result(content: bytes) -> Result:
    table = pa.ipc.open_stream(content).read_all()
    metadata = dict(table.schema.metadata or {})
    about = orjson.loads(metadata.pop(ARROW_METADATA))
    return _result(table.replace_schema_metadata(metadata or None), about)


def _result(table: pa.Table, about: Json) -> Result:
    target = about["target"]
    return Result(
        table,
        query_name=about["query_name"],
        target=ReadTarget(target["branch"], target["snapshot"]),
        graph_commit_id=about.get("graph_commit_id"),
    )


def _table(columns: Sequence[str] | None, rows: Sequence[Json]) -> pa.Table:
    """Rows of JSON as a table, with the types that their values show."""
    names = list(columns) if columns is not None else sorted({name for row in rows for name in row})
    if not names:
        # A table without columns still has a number of rows.
        return pa.table({"": pa.nulls(len(rows))}).select([])
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # The one column whose values differ in kind: JSON has names for what is no finite number.
        return pa.array([_NON_FINITE.get(v, v) if isinstance(v, str) else v for v in values])


# --- writes ---------------------------------------------------------------------------------------


def mutation(answer: Answer) -> MutationReceipt:
    """What a write query did."""
    return _mutation(document(answer))


def _mutation(found: Json) -> MutationReceipt:
    return MutationReceipt(
        found["branch"],
        found["query_name"],
        found["affected_nodes"],
        found["affected_edges"],
        found["actor_id"],
        _optional_commit(found["commit"]),
    )


def loaded(answer: Answer) -> LoadReceipt:
    """What a load did."""
    found = document(answer)
    return LoadReceipt(
        found["branch"],
        found["base_branch"],
        found["branch_created"],
        found["mode"],
        tuple(map(_loaded_type, found["nodes"])),
        tuple(map(_loaded_type, found["edges"])),
        found["actor_id"],
        _optional_commit(found["commit"]),
        found.get("engine", "local"),
        tuple(LoadStage(s["name"], s["rows"], s["seconds"]) for s in found.get("stages", ())),
    )


def _loaded_type(found: Json) -> LoadedType:
    entities = found["entities_loaded"]
    return LoadedType(
        found["name"],
        found.get("records_read", entities),
        found.get("inserted", entities),
        found.get("updated", 0),
        found.get("unchanged", 0),
    )


def schema_applied(answer: Answer) -> SchemaApplyReceipt:
    """How a schema apply ended."""
    found = document(answer)
    return SchemaApplyReceipt(
        found["uri"],
        found["supported"],
        found["applied"],
        found["graph_manifest_version"],
        tuple(found["steps"]),
    )


# --- branches and history -------------------------------------------------------------------------


def branches(answer: Answer) -> list[str]:
    """The names of branches."""
    return list(document(answer)["branches"])


def branch_created(answer: Answer) -> BranchCreated:
    """A branch that exists now."""
    found = document(answer)
    return BranchCreated(found["uri"], found["from"], found["name"], found["actor_id"])


def branch_deleted(answer: Answer) -> BranchDeleted:
    """A branch that is gone."""
    found = document(answer)
    return BranchDeleted(found["uri"], found["name"], found["actor_id"])


def merged(answer: Answer) -> MergeReceipt:
    """How a merge ended."""
    found = document(answer)
    return MergeReceipt(
        found["source"],
        found["target"],
        found["outcome"],
        found["actor_id"],
        _optional_commit(found.get("commit")),
        found.get("branch_deleted"),
        found.get("branch_delete_error"),
    )


def commits(answer: Answer) -> list[CommitInfo]:
    """Several commits."""
    return [_commit(found) for found in document(answer)["commits"]]


def commit(answer: Answer) -> CommitInfo:
    """One commit."""
    return _commit(document(answer))


def _optional_commit(found: Json | None) -> CommitInfo | None:
    return None if found is None else _commit(found)


def _commit(found: Json) -> CommitInfo:
    return CommitInfo(
        found["graph_commit_id"],
        found["graph_branch"],
        found["graph_manifest_version"],
        found["parent_commit_id"],
        found["merged_parent_commit_id"],
        found["actor_id"],
        found["created_at"],
        None,
        found.get("message"),
    )


# --- changes --------------------------------------------------------------------------------------


def commit_page(answer: Answer) -> CommitPage:
    """Some of what one commit changed."""
    found = document(answer)
    block = _block(found)
    return CommitPage(block.cause, block.changes, found.get("next_page_token"))


def feed_page(answer: Answer) -> FeedPage:
    """Some of what a branch's commits changed."""
    found = document(answer)
    return FeedPage(
        tuple(map(_block, found["blocks"])),
        found.get("next_page_token"),
        found.get("cursor"),
        found.get("caught_up"),
    )


def _block(found: Json) -> ChangeBlock:
    cause = found["cause"]
    return ChangeBlock(
        CommitCause(
            cause["graph_commit_id"],
            cause.get("parent_commit_id"),
            cause.get("merged_parent_commit_id"),
            cause["authored_branch"],
            cause.get("actor_id"),
            cause["authored_at"],
        ),
        tuple(map(_change, found["changes"])),
    )


def _change(found: Json) -> EntityChange:
    before, after = _image(found.get("before")), _image(found.get("after"))
    latest = after or before
    return EntityChange(
        found["kind"],
        found["type"]["id"],
        found["type"]["name"],
        found["id"],
        found["op"],
        latest.endpoints if latest is not None else None,
        before,
        after,
    )


def _image(found: Json | None) -> Image | None:
    if found is None:
        return None
    ends = found.get("endpoints")
    return Image(found["properties"], None if ends is None else Endpoints(ends["from"], ends["to"]))


def baseline_line(line: bytes) -> EntityRecord | Handshake:
    """One line of a baseline: an entity, or at the end where the feed goes on."""
    found = orjson.loads(line)
    if "baseline" in found:
        end = found["baseline"]
        return Handshake(end["snapshot_commit_id"], end["resume_cursor"])
    image = _image(found)
    assert image is not None
    type = found["type"]
    return EntityRecord(found["kind"], type["id"], type["name"], found["id"], image)


# --- the graph and the server ---------------------------------------------------------------------


def schema_source(answer: Answer) -> str:
    """The text of a schema."""
    return str(document(answer)["schema_source"])


def snapshot(answer: Answer) -> SnapshotSummary:
    """What a branch holds."""
    found = document(answer)
    return SnapshotSummary(
        found["graph_branch"],
        found["graph_commit_id"],
        found["graph_manifest_version"],
        found["internal_schema_version"],
        tuple(
            TableSummary(**{name: entry[name] for name in TableSummary.__slots__})
            for entry in found["datasets"]
        ),
    )


def stored_queries(answer: Answer) -> list[QueryEntry]:
    """The stored queries."""
    return QueryCatalog.model_validate(document(answer)).queries


def graphs(answer: Answer) -> list[ServedGraph]:
    """The graphs of a server."""
    return GraphList.model_validate(document(answer)).graphs


def health(answer: Answer) -> Health:
    """What a server says about itself."""
    return Health.model_validate(document(answer))
