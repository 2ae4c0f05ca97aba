"""Rows of an upsert, back from the workers that read them.

An upsert within the budget of one process is planned, checked and merged there, by the code of
every other write: it has to be held against the committed rows of the same ids, which one process
does several times faster than a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.limits import BYTES_MAX_VARIABLE, ROWS_MAX_VARIABLE, Budget, WriteLimits
from omnigraph.commit.load_input import LoadInput, input_of
from omnigraph.commit.records.envelope import TableType
from omnigraph.commit.records.problems import Place, Problem, ProblemLog, Unit
from omnigraph.commit.records.rows import TypedRows
from omnigraph.errors import LimitExceeded
from omnigraph.model.arrow import ID
from omnigraph.model.receipts import LoadMode
from omnigraph.pipeline.sources import type_of
from omnigraph.pipeline.staging import NUMBER, PIECE
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.table_schema import table_schema
from omnigraph.storage.written import TablePlace, read_written

_NOTHING = pa.nulls(0, pa.string())


@dataclass(frozen=True, slots=True)
class MergeRows:
    """Reads rows that were written aside together with their places."""

    catalog: Catalog
    places: Mapping[str, TablePlace]
    storage_options: dict[str, str]
    limits: WriteLimits
    place_of: Callable[[int, int], Place]
    unit: Unit
    """What the records of the input are counted by."""
    mode: LoadMode = "merge"

    def read(
        self, fragments: Mapping[str, Sequence[str]], minted_prefix: str
    ) -> tuple[LoadInput, list[Problem]]:
        """All rows as the input of a load, and the problems that records have with each other.

        Raises `LimitExceeded` if they are more than one process may hold.
        """
        log = ProblemLog(keep=1 << 62)
        parts = {
            key: list(self._parts(key, written, minted_prefix))
            for key, written in fragments.items()
        }
        loaded = input_of(parts, catalog=self.catalog, mode=self.mode, unit=self.unit, problems=log)
        return loaded, log.first

    def _parts(self, key: str, fragments: Sequence[str], minted_prefix: str) -> Iterator[TypedRows]:
        type = type_of(key, self.catalog)
        budget = Budget(self.limits, key)
        columns = [*table_schema(type).names, PIECE, NUMBER]
        options = self.storage_options or None
        for fragment in fragments:
            for batch in read_written(self.places[key], fragment, columns, storage_options=options):
                try:
                    budget.charge(rows=batch.num_rows, bytes=batch.nbytes)
                except LimitExceeded as error:
                    error.hint = (
                        f"load it in parts, or raise {ROWS_MAX_VARIABLE} or {BYTES_MAX_VARIABLE}"
                    )
                    raise
                yield from self._by_piece(type, batch, minted_prefix)

    def _by_piece(
        self, type: TableType, batch: pa.RecordBatch, minted_prefix: str
    ) -> Iterator[TypedRows]:
        """The rows of each piece for themselves: their places have one source."""
        schema = table_schema(type)
        for piece in pc.unique(batch[PIECE]).to_pylist():
            own = batch.filter(pc.equal(batch[PIECE], piece))
            first = self.place_of(piece, 0)
            rows = pa.RecordBatch.from_arrays([own[name] for name in schema.names], schema=schema)
            yield TypedRows(
                type,
                first.source,
                rows,
                pc.add(own[NUMBER], first.number),
                pc.starts_with(rows[ID], minted_prefix),
                {},
                _NOTHING,
            )
