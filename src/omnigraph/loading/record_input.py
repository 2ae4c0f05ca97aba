"""The records of a load, read once: typed rows with unique ids, independent of any graph.

What can be settled without committed rows is settled here: values, ids, endpoints in older
spellings, and records that repeat each other. So a load whose branch moves before it has had any
effect can be planned again without reading its sources again, and keeps the ids it minted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.change_set import BYTES_MAX_VARIABLE, ROWS_MAX_VARIABLE, Budget, WriteLimits
from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.errors import LimitExceeded
from omnigraph.loading.records.envelope import EnvelopeReader, TableType
from omnigraph.loading.records.framing import CHUNK_BYTES, RecordSource, read_chunks
from omnigraph.loading.records.ids import MintIds, minted_by
from omnigraph.loading.records.problems import Grammar, Place, Problem, ProblemLog, Unit, unit_of
from omnigraph.loading.records.rows import RowBuilder, TypedRows, ambiguous_rename
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.receipts import LoadMode
from omnigraph.model.values import spell
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, table_schema


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


def input_of(
    parts: Mapping[str, Sequence[TypedRows]],
    *,
    catalog: Catalog,
    mode: LoadMode,
    unit: Unit,
    problems: ProblemLog,
) -> LoadInput:
    """The input that rows make which were read elsewhere, by type key and in input order.

    Never fails: what is wrong is noted in ``problems``.
    """
    reader = _InputReader(
        catalog,
        mode=mode,
        grammar="strict" if unit == "line" else "compatible",
        mint=minted_by(str),
        external=ExternalBlobs(),
        limits=None,
        log=problems,
        chunk_bytes=CHUNK_BYTES,
    )
    for table_key, rows in parts.items():
        reader.take(table_key, rows)
    return reader.finish(fails=False)


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

    def take(self, table_key: str, parts: Sequence[TypedRows]) -> None:
        """Take rows that were read already."""
        self._parts.setdefault(table_key, []).extend(parts)

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
            raw = _renamed_ends(raw, SRC, renames.get(f"node:{type.source}"))
            raw = _renamed_ends(raw, DST, renames.get(f"node:{type.target}"))
        minted = pa.chunked_array([part.minted for part in parts], pa.bool_())
        places = Places(tuple(parts), unit_of(self._grammar))
        given = raw[ID].filter(pc.invert(minted)).combine_chunks()
        rows = raw
        if pc.count_distinct(given).as_py() < len(given):
            last = self._last_of_each(raw, type, places)
            rows, given = raw.take(last), pc.unique(given)
        return InputTable(type, raw, rows, given, places)

    def _last_of_each(self, raw: pa.Table, type: TableType, places: Places) -> pa.Array:
        """Positions of the last record of each id, where repeating one is allowed at all."""
        positions = pa.table({ID: raw[ID], "row": pa.array(range(raw.num_rows), pa.int64())})
        spans = positions.group_by(ID).aggregate([("row", "min"), ("row", "max")])
        is_keyed = isinstance(type, NodeType) and bool(type.key)
        if is_keyed or self._mode != "merge":
            repeated = spans.filter(pc.less(spans["row_min"], spans["row_max"]))[ID]
            several = positions.filter(pc.is_in(positions[ID], value_set=repeated))
            rows = several.group_by(ID, use_threads=False).aggregate([("row", "list")])["row_list"]
            by_second = sorted(rows.to_pylist(), key=lambda each: each[1])
            self._log.extend(_repeated(raw, type, places, each) for each in by_second)
        return spans["row_max"].combine_chunks().sort()


def _number(problem: Problem) -> int:
    return 0 if problem.place is None else problem.place.number


def first_of(place: Place, count: int) -> str:
    """Where the first of several records with one id is, and how many there are."""
    also = f"; {count:,} records have it" if count > 2 else ""
    return f"the first record with it is {place}{also}"


def _repeated(raw: pa.Table, type: TableType, places: Places, rows: Sequence[int]) -> Problem:
    """The problem of several records of one type with the same id."""
    first, second = rows[:2]
    entity_id = raw[ID][second].as_py()
    earlier = first_of(places.of(first), len(rows))
    if isinstance(type, NodeType) and type.key:
        # The words of every other broken uniqueness, although both records have one id.
        columns = sorted(type.key)
        values = [spell(raw[name][second].as_py(), type.properties[name].type) for name in columns]
        message = (
            f"@unique violation on {type.name}.{_listed(columns)}: value '{_listed(values)}'"
            f" held by '{entity_id}' and '{entity_id}'"
        )
        return Problem("repeated_key", message, places.of(second), type.name, hint=earlier)
    kind = "node" if isinstance(type, NodeType) else "edge"
    return Problem(
        "repeated_id",
        f"{kind} {type.name} repeats id '{entity_id}'",
        places.of(second),
        type.name,
        ID,
        hint=f"{earlier}; mode merge takes the last one",
    )


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _renamed_ends(rows: pa.Table, column: str, renames: Mapping[str, str] | None) -> pa.Table:
    if not renames:
        return rows
    olds = pa.array(list(renames), pa.string())
    news = pa.array(list(renames.values()), pa.string())
    found = pc.take(news, pc.index_in(rows[column], value_set=olds))
    index = rows.schema.get_field_index(column)
    return rows.set_column(index, rows.schema.field(index), pc.coalesce(found, rows[column]))
