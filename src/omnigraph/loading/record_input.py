"""The records of a load, read once: typed rows with unique ids, independent of any graph.

What can be settled without committed rows is settled here: values, ids, endpoints in older
spellings, and records that repeat each other. So a load whose branch moves before it has had any
effect can be planned again without reading its sources again, and keeps the ids it minted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.change_set import BYTES_MAX_VARIABLE, ROWS_MAX_VARIABLE, Budget, WriteLimits
from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.errors import LimitExceeded
from omnigraph.loading.records.envelope import EnvelopeReader, TableType
from omnigraph.loading.records.framing import CHUNK_BYTES, RecordSource, read_chunks
from omnigraph.loading.records.ids import MintIds
from omnigraph.loading.records.problems import Grammar, Place, Problem, ProblemLog, Unit, unit_of
from omnigraph.loading.records.rows import RowBuilder, TypedRows, ambiguous_rename
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.ids import TableKey
from omnigraph.model.receipts import LoadMode
from omnigraph.schema.catalog import Catalog, EdgeType, table_schema


@dataclass(frozen=True, slots=True)
class InputTable:
    """The records of one type."""

    type: TableType
    raw_rows: pa.Table
    """One row per record, in input order."""
    rows: pa.Table
    """``raw_rows`` with one row per id: of records with the same id the last one."""
    given_ids: pa.StringArray
    """Ids that another entity may have too: those of ``rows`` that were not minted for them."""
    places: Places

    @property
    def records_read(self) -> int:
        """How many records there were of this type."""
        return int(self.raw_rows.num_rows)


@dataclass(frozen=True, slots=True)
class Places:
    """Where each row of an `InputTable` was read."""

    parts: tuple[TypedRows, ...]
    unit: Unit

    def of(self, row: int) -> Place:
        """The place of ``raw_rows[row]``."""
        for part in self.parts:
            if row < len(part.numbers):
                return Place(part.source, part.numbers[row].as_py(), self.unit)
            row -= len(part.numbers)
        raise IndexError(row)


@dataclass(frozen=True, slots=True)
class LoadInput:
    """Everything a load read, ready to be planned against a graph of the same schema."""

    mode: LoadMode
    catalog: Catalog
    tables: Mapping[str, InputTable]
    """By type key."""
    refused_ids: Mapping[str, pa.Array] = field(default_factory=dict)
    """By type key, ids of records that have problems of their own and are not in ``tables``."""


def read_input(
    sources: Iterable[RecordSource],
    *,
    catalog: Catalog,
    mode: LoadMode,
    grammar: Grammar,
    mint: MintIds,
    external: ExternalBlobs | None = None,
    limits: WriteLimits | None = None,
    problems: ProblemLog | None = None,
    goes_on: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
) -> LoadInput:
    """Read all records of ``sources``, in order.

    Without ``problems`` the first bad record raises `InputError`; with it the whole input is read
    and every problem noted before it fails. With ``goes_on`` it does not fail even then, and the
    caller looks for more problems among the records that are good so far. ``limits`` raises
    `LimitExceeded` as soon as a table is over them.
    """
    log = problems if problems is not None else _FirstProblem()
    reader = _InputReader(
        catalog,
        mode=mode,
        grammar=grammar,
        mint=mint,
        external=external or ExternalBlobs(),
        limits=limits,
        log=log,
        chunk_bytes=chunk_bytes,
    )
    for source in sources:
        reader.read(source)
    return reader.finish(fails=not goes_on)


class _FirstProblem(ProblemLog):
    """Fails at once, for a caller that wants no list."""

    def extend(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            raise problem.to_error()


class _InputReader:
    def __init__(
        self,
        catalog: Catalog,
        *,
        mode: LoadMode,
        grammar: Grammar,
        mint: MintIds,
        external: ExternalBlobs,
        limits: WriteLimits | None,
        log: ProblemLog,
        chunk_bytes: int,
    ) -> None:
        self._catalog = catalog
        self._mode = mode
        self._grammar = grammar
        self._mint = mint
        self._external = external
        self._limits = limits
        self._log = log
        self._chunk_bytes = chunk_bytes
        self._envelopes = EnvelopeReader(catalog, grammar)
        self._builders: dict[str, RowBuilder] = {}
        self._parts: dict[str, list[TypedRows]] = {}
        self._budgets: dict[str, Budget] = {}

    def read(self, source: RecordSource) -> None:
        """Take the records of one source."""
        for chunk in read_chunks(source, self._grammar, chunk_bytes=self._chunk_bytes):
            groups, problems = self._envelopes.sort(chunk, source.name)
            problems.extend(chunk.problems)
            for records in groups:
                table_key = records.type.table_key
                rows, found = self._builder(table_key, records.type).build(records, source.name)
                problems.extend(found)
                self._parts.setdefault(table_key, []).append(rows)
                self._charge(table_key, rows.rows)
            # By record, so that the first problem does not depend on how the input was cut.
            self._log.extend(sorted(problems, key=_number))

    def finish(self, *, fails: bool = True) -> LoadInput:
        """Settle what concerns several records."""
        renames = {
            key: self._renames(parts)
            for key, parts in self._parts.items()
            if any(part.renamed for part in parts)
        }
        tables = {key: self._table(key, renames) for key in sorted(self._parts)}
        if fails:
            self._log.raise_if_any()
        refused = {
            key: pa.chunked_array([part.refused_ids for part in parts], pa.string())
            for key, parts in self._parts.items()
        }
        return LoadInput(self._mode, self._catalog, tables, refused)

    def _builder(self, table_key: str, type: TableType) -> RowBuilder:
        builder = self._builders.get(table_key)
        if builder is None:
            # A replaced table keeps references to external objects; other writes copy the bytes.
            copy_external = self._mode != "overwrite"
            builder = self._builders[table_key] = RowBuilder(
                type, self._grammar, self._mint, self._external, copy_external=copy_external
            )
        return builder

    def _charge(self, table_key: str, added: pa.RecordBatch) -> None:
        if self._limits is None:
            return
        budget = self._budgets.setdefault(table_key, Budget(self._limits, table_key))
        try:
            budget.charge(rows=added.num_rows, bytes=added.nbytes)
        except LimitExceeded as error:
            error.hint = f"load it in parts, or raise {ROWS_MAX_VARIABLE} or {BYTES_MAX_VARIABLE}"
            raise

    # --- older ids ---

    def _renames(self, parts: list[TypedRows]) -> dict[str, str]:
        """The canonical id of each id that was given in an older spelling."""
        canonical: dict[str, str] = {}
        for part in parts:
            for old, (new, number) in part.renamed.items():
                known = canonical.setdefault(old, new)
                if known != new:
                    self._ambiguous(part, number, ambiguous_rename(old, known, new))
        olds = pa.array(list(canonical), pa.string())
        for part in parts:
            # An older spelling of one node can be the canonical id of another.
            for i in pc.indices_nonzero(pc.is_in(part.rows[ID], value_set=olds)).to_pylist():
                taken = part.rows[ID][i].as_py()
                message = ambiguous_rename(taken, canonical[taken], taken)
                self._ambiguous(part, part.numbers[i].as_py(), message)
        return canonical

    def _ambiguous(self, part: TypedRows, number: int, message: str) -> None:
        place = Place(part.source, number, unit_of(self._grammar))
        hint = "give these nodes their canonical ids"
        self._log.extend([Problem("bad_id", message, place, part.type.name, ID, hint)])

    # --- tables ---

    def _table(self, table_key: str, renames: Mapping[str, Mapping[str, str]]) -> InputTable:
        parts = self._parts[table_key]
        type = parts[0].type
        raw = pa.Table.from_batches([part.rows for part in parts], table_schema(type))
        if isinstance(type, EdgeType):
            raw = _renamed_ends(raw, SRC, renames.get(TableKey.node(type.source)))
            raw = _renamed_ends(raw, DST, renames.get(TableKey.node(type.target)))
        minted = pa.chunked_array([part.minted for part in parts], pa.bool_())
        places = Places(tuple(parts), unit_of(self._grammar))
        given = raw[ID].filter(pc.invert(minted)).combine_chunks()
        rows = raw
        if pc.count_distinct(given).as_py() < len(given):
            rows, given = raw.take(_last_of_each(raw)), pc.unique(given)
        return InputTable(type, raw, rows, given, places)


def _number(problem: Problem) -> int:
    return 0 if problem.place is None else problem.place.number


def _last_of_each(raw: pa.Table) -> pa.Array:
    """Positions of the last record of each id."""
    positions = pa.table({ID: raw[ID], "row": pa.array(range(raw.num_rows), pa.int64())})
    last = positions.group_by(ID).aggregate([("row", "max")])["row_max"]
    return last.combine_chunks().sort()


def _renamed_ends(rows: pa.Table, column: str, renames: Mapping[str, str] | None) -> pa.Table:
    if not renames:
        return rows
    olds = pa.array(list(renames), pa.string())
    news = pa.array(list(renames.values()), pa.string())
    found = pc.take(news, pc.index_in(rows[column], value_set=olds))
    index = rows.schema.get_field_index(column)
    return rows.set_column(index, rows.schema.field(index), pc.coalesce(found, rows[column]))
