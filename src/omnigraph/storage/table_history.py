"""What happened to a table after a version of it, as Lance tells it."""

from __future__ import annotations

from dataclasses import dataclass

from lance import LanceDataset, LanceOperation

from omnigraph.effects.io_counters import count
from omnigraph.storage.datasets import latest_version
from omnigraph.storage.fragments import fragments_of

RESERVATION = "ReserveFragments"
"""Sets fragment ids aside for a rewrite. Lance does not name it to Python."""

PRESERVING = frozenset({RESERVATION, "Rewrite"})
"""Operations that leave every row as it was."""

_UNREADABLE = (OSError, ValueError, TypeError, RuntimeError)
"""Lance fails with a type error where it wrote what it cannot show to Python."""


@dataclass(frozen=True, slots=True)
class TableOperation:
    """The transaction that made one version."""

    version: int
    name: str | None
    """None if it cannot be read."""
    uuid: str | None


def operations_since(handle: LanceDataset, version: int) -> list[TableOperation]:
    """The operations after ``version`` up to the newest, oldest first."""
    newest = latest_version(handle)
    return [_operation(handle, later) for later in range(version + 1, newest + 1)]


def _operation(handle: LanceDataset, version: int) -> TableOperation:
    count("lance", "read_transaction", handle.uri)
    try:
        transaction = handle.read_transaction(version)
        if transaction is None:
            return TableOperation(version, None, None)
        operation = transaction.operation
        name: str | None = type(operation).__name__
        if type(operation) is LanceOperation.BaseOperation:
            # Something without a name. A reservation is known by changing nothing at all.
            name = RESERVATION if _is_same(handle, version - 1, version) else None
        return TableOperation(version, name, str(transaction.uuid))
    except _UNREADABLE:
        return TableOperation(version, None, None)


def _is_same(handle: LanceDataset, before: int, after: int) -> bool:
    old, new = handle.checkout_version(before), handle.checkout_version(after)
    return bool(old.schema.equals(new.schema)) and fragments_of(old) == fragments_of(new)


def has_columns_of(handle: LanceDataset, version: int) -> bool:
    """Whether a table still has the columns of ``version``, or that version is gone."""
    try:
        before = handle.checkout_version(version)
    except _UNREADABLE:
        return True
    return _columns(before) == _columns(handle)


def _columns(handle: LanceDataset) -> list[tuple[str, object]]:
    return [(field.name, field.type) for field in handle.schema]
