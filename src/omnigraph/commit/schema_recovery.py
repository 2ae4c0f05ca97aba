"""The part of recovery that only a change of schema needs: its new tables and its contract."""

from __future__ import annotations

from typing import Literal

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.schema_contract import discard_staged, promote_contract, staged_contract
from omnigraph.commit.sidecar import NewTable, SchemaDelta
from omnigraph.errors import NotFound
from omnigraph.storage.datasets import DatasetRef, transaction_uuid
from omnigraph.storage.publisher import Registration, TablePin

FIRST_VERSION = 1
"""The version of a freshly created dataset."""

TableState = Literal["absent", "made", "foreign"]


class SchemaRecovery:
    """What an interrupted change of schema left beside the tables that were there before."""

    def __init__(self, kernel: Kernel, delta: SchemaDelta) -> None:
        self._kernel = kernel
        self._delta = delta

    @property
    def foreign(self) -> list[str]:
        """New types at whose place somebody else has made a table."""
        return [t.table_key for t in self._delta.registrations if self._state(t) == "foreign"]

    def is_ready(self) -> bool:
        """Whether nothing but the publish and the promotion is missing."""
        staged = staged_contract(self._kernel.store)
        return (
            staged is not None
            and staged.schema_hash == self._delta.target_hash
            and all(self._state(table) == "made" for table in self._delta.registrations)
        )

    def complete(self) -> None:
        """After the publish: the new contract becomes the accepted one."""
        promote_contract(self._kernel.store, self._delta.target_hash)

    def undo(self) -> None:
        """Remove the tables that were made for it, and the staged contract."""
        for table in self._delta.registrations:
            if self._state(table) != "foreign":
                self._kernel.store.delete_prefix(table.location)
        discard_staged(self._kernel.store)

    def _state(self, table: NewTable) -> TableState:
        where = DatasetRef(self._kernel.table_uri(table.location))
        try:
            handle = self._kernel.lance.open(where)
        except NotFound:
            return "absent"
        return "made" if transaction_uuid(handle, FIRST_VERSION) == table.uuid else "foreign"


def new_pins(delta: SchemaDelta) -> tuple[TablePin, ...]:
    """The first versions of the tables it creates."""
    return tuple(TablePin(new.identity, FIRST_VERSION, None, 0) for new in delta.registrations)


def registrations(delta: SchemaDelta) -> tuple[Registration, ...]:
    """The tables it creates, and those that get another alias."""
    made = (Registration(new.identity, new.table_key, new.location) for new in delta.registrations)
    return (*made, *delta.renames)
