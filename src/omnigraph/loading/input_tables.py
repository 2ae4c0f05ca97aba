"""The records of a load in process: read from all sources, and collected by type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.commit.plan import BYTES_MAX_VARIABLE, ROWS_MAX_VARIABLE, Budget, WriteLimits
from omnigraph.commit.validation.evaluation import ResultNodes, with_resolved_ends
from omnigraph.errors import LimitExceeded
from omnigraph.loading.edge_identity import check_edge_ids, match_columns, match_texts
from omnigraph.loading.mapping import TableMapping
from omnigraph.loading.records.framing import CHUNK_BYTES, Chunk, RecordSource, read_chunks
from omnigraph.loading.records.ids import MintIds, Renamed, renames_of, with_renames
from omnigraph.loading.records.problems import Grammar, Problem, RecordPlace, Unit, unit_of
from omnigraph.loading.records.rows import RowBuilder, TypedRows, typed_chunks, without_bad
from omnigraph.loading.skipping import count_bad, type_key_of
from omnigraph.loading.sources import type_of
from omnigraph.model.arrow import ID
from omnigraph.model.receipts import LoadMode
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, TableType, table_schema
from omnigraph.storage.reader import SnapshotReader


@dataclass(frozen=True, slots=True)
class InputTable:
    """The records of one type."""

    type: TableType
    raw_rows: pa.Table
    """One row per record, in input order."""
    rows: pa.Table
    """``raw_rows`` with one row per id: the last record of each id."""
    given_ids: pa.StringArray
    """Ids of ``rows`` that were not minted: committed entities may have them too."""
    parts: tuple[TypedRows, ...]
    """The chunks that ``raw_rows`` were read in."""
    unit: Unit
    absent: pa.ChunkedArray
    """The properties that each record of ``rows`` lacks, encoded as in `records.absence`."""
    matched_by: tuple[str, ...] = (ID,)
    """The columns by which records are matched with committed rows."""
    positions: pa.Array | None = None
    """The positions of ``rows`` in ``raw_rows``; None if they are the same."""
    unnamed: frozenset[str] = frozenset()
    """Properties that the writer cannot name."""

    @property
    def records_read(self) -> int:
        """The number of records of this type."""
        return int(self.raw_rows.num_rows)

    def place_of_row(self, row: int) -> RecordPlace:
        """The place of the record of ``rows[row]``."""
        return self.place_of(row if self.positions is None else self.positions[row].as_py())

    def place_of(self, row: int) -> RecordPlace:
        """The place of the record of ``raw_rows[row]``."""
        for part in self.parts:
            if row < len(part.numbers):
                return RecordPlace(part.source, part.numbers[row].as_py(), self.unit)
            row -= len(part.numbers)
        raise IndexError(row)


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Everything a load read, ready to be planned against a graph of the same schema."""

    mode: LoadMode
    catalog: Catalog
    tables: Mapping[str, InputTable]
    """By type key."""
    refused_ids: Mapping[str, pa.Array] = field(default_factory=dict)
    """By type key: ids of records that were refused, so that ``tables`` lack them."""
    problems: Sequence[Problem] = ()
    """The problems of single records, in input order."""
    bad: Counter[str] = field(default_factory=Counter)
    """By type key: how many records have problems; only if bad records are skipped."""
    grammar: Grammar = "strict"

    @classmethod
    def of(
        cls,
        parts: Mapping[str, Sequence[TypedRows]],
        catalog: Catalog,
        mode: LoadMode,
        grammar: Grammar,
    ) -> ReadRecords:
        """Collect chunks of rows, given by type key."""
        tables = {
            key: _input_table(several, mode, grammar) for key, several in sorted(parts.items())
        }
        refused = {
            key: pa.chunked_array([part.refused_ids for part in several], pa.string())
            for key, several in parts.items()
        }
        return cls(mode, catalog, tables, refused, grammar=grammar)

    def with_ends(self, view: SnapshotReader, replaced: Collection[str] = ()) -> ReadRecords:
        """The records, with node types for the edge ends that are given as ids only.

        Looks ids up among the nodes of the input, refused ones included, and among the committed
        nodes of ``view``, except those of ``replaced`` types.
        """
        kept = ResultNodes(
            {
                key: [table.rows[ID], *self.refused_ids[key].chunks]
                for key, table in self.tables.items()
            },
            view,
            {*replaced, *(self.tables if self.mode == "overwrite" else ())},
        )
        parts: dict[str, Sequence[TypedRows]] = {}
        for key, table in self.tables.items():
            parts[key] = table.parts
            if isinstance(table.type, EdgeType) and table.type.end_types:
                edge = table.type
                parts[key] = [
                    replace(
                        part, rows=with_resolved_ends(part.rows, edge, self.catalog, kept.existing)
                    )
                    for part in table.parts
                ]
        if all(parts[key] is self.tables[key].parts for key in parts):
            return self
        found = ReadRecords.of(parts, self.catalog, self.mode, self.grammar)
        return replace(self, tables=found.tables, refused_ids=self.refused_ids)

    def of_whole(self, catalog: Catalog) -> ReadRecords:
        """The records with all properties of their types; the writer may name only some of them."""
        parts = {
            key: [part.of_whole(type_of(key, catalog)) for part in table.parts]
            for key, table in self.tables.items()
        }
        found = ReadRecords.of(parts, catalog, self.mode, self.grammar)
        return replace(self, catalog=catalog, tables=found.tables)

    def without(self, records: Mapping[str | None, pa.Int64Array]) -> ReadRecords:
        """The records except those given: record numbers by the name of the source."""
        none = pa.array([], pa.int64())
        parts = {
            key: [part.without(records.get(part.source, none)) for part in table.parts]
            for key, table in self.tables.items()
        }
        return ReadRecords.of(_with_rows(parts), self.catalog, self.mode, self.grammar)


def _with_rows(parts: Mapping[str, Sequence[TypedRows]]) -> dict[str, Sequence[TypedRows]]:
    """Only types with rows: an overwrite must not empty a type whose records are all skipped."""
    return {
        key: several
        for key, several in parts.items()
        if any(part.rows.num_rows for part in several)
    }


def read_input(
    sources: Iterable[RecordSource],
    *,
    catalog: Catalog,
    mode: LoadMode,
    grammar: Grammar,
    mint: MintIds,
    keeps_absent: bool = False,
    external: ExternalBlobs | None = None,
    limits: WriteLimits | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    mappings: Mapping[str, TableMapping] | None = None,
    skips: bool = False,
    tables: Iterable[tuple[list[TypedRows], list[Problem]]] = (),
) -> ReadRecords:
    """Read all records of ``sources``, in order; ``mappings`` of their data are by table key.

    ``tables`` are rows read from tables of one type each; they come after the records.

    ``keeps_absent``: properties that records lack keep their stored values. ``skips``: records with
    problems are skipped. Raises `LimitExceeded` once a table exceeds ``limits``.
    """
    external = external or ExternalBlobs()
    reader = _InputReader(
        catalog, mode, grammar, mint, external, limits, mappings or {}, keeps_absent, skips
    )
    for source in sources:
        chunks = read_chunks(source, grammar, chunk_bytes=chunk_bytes)
        reader.read(chunks, source.name)
    for several, problems in tables:
        reader.take(several, problems)
    return reader.finish()


@dataclass(slots=True)
class _InputReader:
    catalog: Catalog
    mode: LoadMode
    grammar: Grammar
    mint: MintIds
    external: ExternalBlobs
    limits: WriteLimits | None
    mappings: Mapping[str, TableMapping]
    keeps_absent: bool = False
    skips: bool = False
    _bad: Counter[str] = field(default_factory=Counter)
    _problems: list[Problem] = field(default_factory=list)
    _builders: dict[str, RowBuilder] = field(default_factory=dict)
    _parts: dict[str, list[TypedRows]] = field(default_factory=dict)
    _budgets: dict[str, Budget] = field(default_factory=dict)

    def read(self, chunks: Iterable[Chunk], name: str | None) -> None:
        """Add the records of one source."""
        for several, problems in typed_chunks(
            chunks,
            name,
            self.catalog,
            self.grammar,
            self._builder,
            mappings=self.mappings,
            skips=self.skips,
        ):
            self.take(several, problems)

    def take(self, several: Iterable[TypedRows], problems: Sequence[Problem]) -> None:
        """Add rows, and the problems of all records of the chunk."""
        for rows in several:
            self._parts.setdefault(rows.type.table_key, []).append(rows)
            self._charge(rows.type.table_key, rows.rows)
        self._bad += count_bad(problems, self._key_of)
        # Sorted by record, so that the first problem does not depend on the chunk size.
        self._problems += sorted(problems, key=lambda each: each.place.number if each.place else 0)

    def _key_of(self, problem: Problem) -> str:
        return type_key_of(problem, self.catalog)

    def finish(self) -> ReadRecords:
        """Apply renames and collect the records of each type."""
        parts = [part for parts in self._parts.values() for part in parts]
        renamed = [Renamed(each.type.name, each.source, each.renamed) for each in parts]
        if any(each.ids for each in renamed):
            self._rename(parts, renamed)
        kept = _with_rows(self._parts) if self.skips else self._parts
        read = ReadRecords.of(kept, self.catalog, self.mode, self.grammar)
        refused = {
            key: pa.chunked_array([part.refused_ids for part in several], pa.string())
            for key, several in self._parts.items()
        }
        return replace(read, problems=self._problems, bad=self._bad, refused_ids=refused)

    def _rename(self, parts: Sequence[TypedRows], renamed: Sequence[Renamed]) -> None:
        unit = unit_of(self.grammar)
        renames, ambiguous = renames_of(renamed, unit)
        problems = [problem for _, problem in ambiguous]
        self._parts = {}
        for part in parts:
            rows, found = with_renames(part, renames, unit)
            self._parts.setdefault(part.type.table_key, []).append(rows)
            problems += found
        self._problems += problems
        if self.skips and problems:
            self._bad += count_bad(problems, self._key_of)
            for key, several in self._parts.items():
                self._parts[key] = [
                    row
                    for part in several
                    for row in without_bad([part], [p for p in problems if _is_of(p, part)])
                ]

    def _builder(self, type: TableType) -> RowBuilder:
        builder = self._builders.get(type.table_key)
        if builder is None:
            # An overwrite stores references to external objects; other loads copy the bytes.
            copy_external = self.mode != "overwrite"
            builder = self._builders[type.table_key] = RowBuilder(
                type,
                self.grammar,
                self.mint,
                self.external,
                copy_external=copy_external,
                keeps_absent=self.keeps_absent,
                skips=self.skips,
            )
        return builder

    def _charge(self, table_key: str, added: pa.RecordBatch) -> None:
        if self.limits is None:
            return
        budget = self._budgets.setdefault(table_key, Budget(self.limits, table_key))
        try:
            budget.charge(rows=added.num_rows, bytes=added.nbytes)
        except LimitExceeded as error:
            error.hint = f"load it in parts, or raise {ROWS_MAX_VARIABLE} or {BYTES_MAX_VARIABLE}"
            raise


def _input_table(parts: Sequence[TypedRows], mode: LoadMode, grammar: Grammar) -> InputTable:
    """The records of one type."""
    type = parts[0].type
    raw = pa.Table.from_batches([part.rows for part in parts], table_schema(type))
    minted = pa.chunked_array([part.minted for part in parts], pa.bool_())
    given = raw[ID].filter(pc.invert(minted)).combine_chunks()
    lacks = [part.absent for part in parts if part.absent is not None]
    absent = pa.chunked_array(lacks or [pa.nulls(raw.num_rows, pa.binary())], pa.binary())
    rows, positions = raw, None
    matched_by: tuple[str, ...] = (ID,)
    if mode == "merge":
        has_ids, lacks_ids = len(given) > 0, len(given) < raw.num_rows
        check_edge_ids(type, has_ids=has_ids, lacks_ids=lacks_ids)
        matched_by = match_columns(type, has_ids=has_ids)
    texts = given if matched_by == (ID,) else match_texts(type, matched_by, raw)
    if pc.count_distinct(texts).as_py() < len(texts) - texts.null_count:
        positions = _last_of_each(raw[ID] if matched_by == (ID,) else texts)
        rows, given = raw.take(positions), pc.unique(given)
        absent = absent.take(positions)
    unit = unit_of(grammar)
    return InputTable(
        type,
        raw,
        rows,
        given,
        tuple(parts),
        unit,
        absent,
        matched_by,
        positions,
        parts[0].unnamed,
    )


def _is_of(problem: Problem, part: TypedRows) -> bool:
    place = problem.place
    return place is not None and place.source == part.source and problem.type_name == part.type.name


def _last_of_each(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Positions of the last record of each id or key."""
    positions = pa.table({"text": texts, "row": pa.array(range(len(texts)), pa.int64())})
    last = positions.group_by("text").aggregate([("row", "max")])["row_max"]
    return last.combine_chunks().sort()
