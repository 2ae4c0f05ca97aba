"""What a write wants to change, table by table, before anything is staged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import pyarrow as pa

from omnigraph.storage.positions import Positions
from omnigraph.storage.table_upkeep import UpkeepStep
from omnigraph.storage.written_upserts import Deletions


class GraphView(Protocol):
    """The committed rows a write is checked against: one snapshot, read by type key.

    A type whose table is to be replaced shows as empty.
    """

    def is_empty(self, table_key: str) -> bool:
        """Whether the type has no rows."""
        ...

    def scan(self, table_key: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a type."""
        ...

    def rows_where_in(
        self, table_key: str, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        """Rows whose ``column`` holds one of ``values``."""
        ...


ChangeKind: TypeAlias = Literal["append", "upsert", "delete", "replace", "exchange", "upkeep"]

UPKEEP_KINDS: frozenset[ChangeKind] = frozenset({"upkeep"})
"""Kinds that change how a table lies in storage, and nothing of its content."""

NO_ROWS = pa.table({"id": pa.array([], pa.string())})
"""What a change of such a kind carries."""


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Rows that lie in data files of their table's ref, which no version lists yet.

    Fragments are in the JSON form of Lance. An upsert also says what becomes of the fragments that
    held the former rows: ``updated`` lost some of their rows, ``removed`` all of them. For a table
    that its branch has yet to get a copy of, ``deleted`` says which rows these will be.
    """

    fragments: tuple[str, ...]
    updated: tuple[str, ...] = ()
    removed: tuple[int, ...] = ()
    deleted: Deletions = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Exchanged:
    """The committed rows that make room for those of an exchange."""

    positions: Positions
    """Where all of them lie in the version that was captured."""
    deleted: pa.Array
    """The ids among them that do not come back."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table's part of a write: exactly one Lance transaction, but for upkeep.

    ``append`` rows have new ids, ``upsert`` rows replace the entity of their id, ``replace`` rows
    become the whole table. Ids are unique within a change. ``delete`` carries ids that exist.
    ``exchange`` rows replace the entity of their id, while others are deleted.
    ``upkeep`` changes no content and has no rows: it takes ``steps`` that are one transaction each.
    """

    table_key: str
    kind: ChangeKind
    rows: pa.Table
    """Complete rows in the table's schema; for ``delete`` only the column `id`."""
    steps: tuple[UpkeepStep, ...] = ()
    written: WrittenRows | None = None
    """Rows that workers have written already, instead of ``rows``, which has none then."""
    exchanged: Exchanged | None = None
    """What an exchange takes out."""

    @property
    def ids(self) -> pa.ChunkedArray:
        """The entities this change is about."""
        return self.rows["id"]


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """All tables a write touches, by type key. Tables without work are not listed."""

    tables: dict[str, TableChange] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.tables
