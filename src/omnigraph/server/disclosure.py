"""What a caller that may not read everything learns from errors and receipts.

A right to change a branch is no right to read it. Where rows of the branch decide how a write ends,
the caller learns that it was done or refused, and nothing of the rows: counts are zero, the commit
is null, and an error does not say which row stood in the way. A caller that may not list branches
and types gets no hint with an error of the engine, because hints suggest names that exist.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from omnigraph.errors import (
    Conflict,
    ConstraintViolation,
    InputError,
    KeyConflict,
    MergeConflicts,
    NotFound,
    OmnigraphError,
    PreconditionFailed,
    UnresolvedRevision,
)
from omnigraph.model.receipts import (
    LoadedType,
    LoadReceipt,
    MergeReceipt,
    MutationReceipt,
    ReplayReceipt,
)

_REFUSED = "the write does not fit what the branch holds"
_WHY = "what stands in the way is shown to callers that may `read` the branch"

Answered = TypeVar("Answered")


def shown_error(error: OmnigraphError, *, sees_names: bool, sees_rows: bool) -> OmnigraphError:
    """The error of the engine that a caller may see, which is the same one for most callers."""
    if not sees_rows:
        match error:
            case ConstraintViolation():
                return ConstraintViolation(_REFUSED, hint=_WHY)
            case KeyConflict() | MergeConflicts():
                return Conflict(_REFUSED, hint=_WHY)
            case PreconditionFailed():
                return PreconditionFailed(str(error.details["expected"]), None)
            case InputError():
                # A load lists its problems; some of them are about rows that are there.
                error.details = {}
    if not sees_names and isinstance(error, NotFound | InputError):
        error.hint = None
        if isinstance(error, UnresolvedRevision):
            error.details["candidates"] = []
    return error


def without_rows(receipt: Answered) -> Answered:
    """A receipt that is the same whatever the branch held before."""
    withheld: Any = {"commit": None, "withheld": True}
    match receipt:
        case MutationReceipt():
            return replace(receipt, affected_nodes=0, affected_edges=0, **withheld)
        case LoadReceipt():
            nodes, edges = (
                tuple(map(_only_read, types)) for types in (receipt.nodes, receipt.edges)
            )
            # Records may have been skipped because of rows that are there.
            nothing: Any = {"stages": (), "skipped": 0, "problems": ()}
            return replace(receipt, nodes=nodes, edges=edges, **nothing, **withheld)
        case ReplayReceipt():
            return replace(receipt, inserted=0, updated=0, deleted=0, **withheld)
        case MergeReceipt():
            return replace(receipt, **withheld)
    return receipt


def _only_read(type: LoadedType) -> LoadedType:
    return LoadedType(type.name, type.records_read, 0, 0, 0)
