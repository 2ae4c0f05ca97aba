"""Receipts and messages of commits; a repeated write gets the receipt of the first one."""

from __future__ import annotations

from omnigraph.errors import Conflict, InputError
from omnigraph.model.receipts import (
    CommitInfo,
    CommitKind,
    LoadedType,
    LoadReceipt,
    MutationReceipt,
)
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.snapshot import ManifestState


def commit_info(row: CommitRow) -> CommitInfo:
    """A commit as users see it."""
    return CommitInfo(
        row.commit_id,
        row.branch,
        row.manifest_version,
        row.parent_commit_id,
        row.merged_parent_commit_id,
        row.actor_id,
        row.created_at,
        row.kind,
        row.message,
    )


class AlreadyWritten(Exception):
    """The operation a request names was carried out before; its commit says what it did."""

    def __init__(self, commit: CommitRow) -> None:
        super().__init__(commit.commit_id)
        self.commit = commit


def refuse_repetition(state: ManifestState, operation_id: str | None, kind: CommitKind) -> None:
    """Raise `AlreadyWritten` if this branch has a commit of the operation."""
    if operation_id is None:
        return
    for row in state.commits.values():
        if row.operation_id == operation_id:
            if row.kind != kind:
                raise key_taken(operation_id, f"a {row.kind}", row)
            raise AlreadyWritten(row)


def key_taken(key: str, used_for: str, row: CommitRow) -> Conflict:
    """The error for an idempotency key that names another write."""
    return Conflict(
        f"the idempotency key '{key}' was already used for {used_for}",
        hint=f"use a new key for each write; this one belongs to commit {row.commit_id}",
        details={"idempotency_key": key, "graph_commit_id": row.commit_id},
    )


def mutation_receipt(row: CommitRow) -> MutationReceipt:
    """The receipt of a mutation, from its commit."""
    stored = row.receipt or {}
    return MutationReceipt(
        row.branch or MAIN,
        stored["query_name"],
        stored["affected_nodes"],
        stored["affected_edges"],
        row.actor_id,
        commit_info(row),
    )


def load_receipt(row: CommitRow) -> LoadReceipt:
    """The receipt of a load, from its commit."""
    stored = row.receipt or {}
    return LoadReceipt(
        row.branch or MAIN,
        stored["base_branch"],
        False,
        stored["mode"],
        tuple(LoadedType(*counts) for counts in stored["nodes"]),
        tuple(LoadedType(*counts) for counts in stored["edges"]),
        row.actor_id,
        commit_info(row),
        stored["engine"],
    )


MESSAGE_CHARACTERS_MAX = 2_000


def checked_message(text: str | None) -> str | None:
    """A message as a commit keeps it, without the space around it; None for none.

    Raises `InputError` for one that is empty, too long, or no plain text.
    """
    if text is None:
        return None
    message = text.strip()
    if not message:
        raise InputError("the message is empty", hint="say why, or leave the message out")
    if len(message) > MESSAGE_CHARACTERS_MAX:
        raise InputError(
            f"the message has {len(message)} characters, at most {MESSAGE_CHARACTERS_MAX} are kept",
            hint="keep it short, and put the rest where it belongs",
        )
    if not message.replace("\n", "").replace("\t", "").isprintable():
        raise InputError(
            "the message holds characters that cannot be printed",
            hint="use letters, spaces and line breaks",
        )
    return message
