"""A load in this process: records stay in memory, and committed rows are looked up.

Values, ids and endpoints in older spellings are checked while records are read, without committed
rows. So a load whose branch moves before the commit is planned again from the records in memory,
with the ids minted before.

=========  =======================================================================================
append     every record is a new entity; an id that exists is a conflict
merge      a record updates the entity of its id, or adds it; what it lacks, the entity keeps
overwrite  the records of a type replace its rows; types without records stay as they are
=========  =======================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from time import perf_counter

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import (
    BYTES_MAX_VARIABLE,
    ROWS_MAX_VARIABLE,
    Budget,
    ChangeKind,
    ChangeSet,
    TableChange,
    WriteLimits,
)
from omnigraph.commit.schema.contract import LAST_STAGED_OBJECT
from omnigraph.commit.validation import NO_IDS, InputRows, validate
from omnigraph.commit.validation.constraints import Holder
from omnigraph.errors import LimitExceeded
from omnigraph.loading.edge_identity import check_edge_ids, match_columns, match_texts
from omnigraph.loading.load import LoadChanges, LoadExecutor
from omnigraph.loading.mapping import TableMapping
from omnigraph.loading.merging import MergedRows, Merging
from omnigraph.loading.records.absence import missing_value
from omnigraph.loading.records.framing import CHUNK_BYTES, Chunk, RecordSource, read_chunks
from omnigraph.loading.records.ids import MintIds, minted_by
from omnigraph.loading.records.problems import (
    Findings,
    Grammar,
    Place,
    Problem,
    Unit,
    problem_of,
    problems_of,
    unit_of,
)
from omnigraph.loading.records.rows import (
    Renamed,
    RowBuilder,
    TypedRows,
    renames_of,
    typed_chunks,
    with_renames,
    without_bad,
)
from omnigraph.loading.request import LoadSpec
from omnigraph.loading.skipping import (
    UNREADABLE,
    BadRecord,
    Record,
    Skipping,
    count_bad,
    numbers_of,
    type_key_of,
)
from omnigraph.loading.sources import FileSource, find_all, input_digest, record_source, type_of
from omnigraph.model.arrow import ID
from omnigraph.model.receipts import LoadedType, LoadMode
from omnigraph.schema.catalog import Catalog, TableType, table_schema
from omnigraph.storage.reader import SnapshotReader


class InProcessLoad(LoadExecutor):
    """Loads graph records from files, and from bytes or blocks of them."""

    engine = "local"

    def __init__(
        self,
        kernel: Kernel,
        request: LoadSpec,
        files: Sequence[FileSource],
        data: bytes | str | Iterable[bytes] | None,
        *,
        limits: WriteLimits,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """``data`` are records that come after those of the files."""
        super().__init__(kernel, request)
        self._files = files
        self._data = data
        self._limits = limits
        self._progress = progress
        self._sources: list[RecordSource] = []
        self._input: ReadRecords | None = None

    @property
    def rows(self) -> int:
        """How many records were read."""
        tables = {} if self._input is None else self._input.tables
        return sum(table.records_read for table in tables.values())

    def plan(self) -> None:
        """Find the files; a stream has no digest."""
        found, data = find_all(self._files), self._data
        self._sources = [record_source(each) for each in found]
        is_stream = data is not None and not isinstance(data, bytes | str)
        if is_stream and not isinstance(data, bytes | str | None) and self.request.skips:
            # Skipped records are read a second time, to be reported.
            data = b"".join(data)
        if isinstance(data, bytes | str):
            self._sources.append(RecordSource.of(data))
        elif data is not None:
            self._sources.append(RecordSource.stream(data))
        if self.request.operation_id is not None and not is_stream:
            digest = input_digest(found, self.request.record_mappings)
            if isinstance(data, bytes | str):
                digest += sha256(data.encode() if isinstance(data, str) else data).hexdigest()
            self.request = replace(self.request, input_digest=digest)

    def start(self) -> None:
        """Read all records; later attempts reuse them and their minted ids."""
        started = perf_counter()
        sources = self._sources
        if self._progress is not None:
            sources = [_watched(source, self._progress) for source in sources]
        self._input = read_input(
            sources,
            catalog=self.catalog,
            mode=self.request.mode,
            keeps_absent=self.request.keeps_absent,
            grammar=self.request.grammar,
            mint=minted_by(self.kernel.ids.ulid),
            external=self.request.external,
            limits=self._limits,
            mappings=self.request.record_mappings,
            skips=self.request.skips,
        )
        if self._input.problems and self.kernel.store.exists(LAST_STAGED_OBJECT):
            # An interrupted schema apply may declare what is missing: the caller completes it.
            self._findings().raise_if_any()
        self.note("read", perf_counter() - started)

    def close(self) -> None:
        """No scratch files."""

    def changes(self, capture: Capture) -> LoadChanges:
        """The records as a change set, checked together with the captured head."""
        assert self._input is not None
        started, findings = perf_counter(), self._findings()
        if self.request.skips:
            plan = self._without_bad(self._input, capture.reader, findings)
        else:
            plan = checked_plan(
                self._input, capture.reader, self.request.replace_types, findings, self._limits
            )
        self.note("check", perf_counter() - started)
        return plan

    def _without_bad(
        self, loaded: ReadRecords, view: SnapshotReader, findings: Findings
    ) -> LoadChanges:
        """The change set of the records that are not bad, as `loading.skipping` tells them."""
        if any(problem.ends_reading for problem in loaded.problems):
            findings.raise_if_any(UNREADABLE)
        names = [source.name for source in self._sources]
        refused = {key: set(ids.to_pylist()) for key, ids in loaded.refused_ids.items()}
        account = Skipping(self.request, self.catalog, loaded.bad, refused)
        read = loaded.bad.total() + sum(each.records_read for each in loaded.tables.values())
        replaced, limits = self.request.replace_types, self._limits
        plan = LoadPlan(ChangeSet(), {})
        while not account.is_over(read):
            plan = plan_load(loaded, view, replace_types=replaced, limits=limits, skips=True)
            is_changed = account.take(bad_records(loaded, plan, view, names), plan.incomplete)
            if not is_changed or account.is_stuck:
                break
            left_out = numbers_of(account.records)
            loaded = loaded.without({names[piece]: left_out[piece] for piece in left_out})
        account.report(findings, self._inputs(account.wanted()))
        if reason := account.reason(read):
            findings.raise_if_any(reason)
        return account.completed(plan, findings)

    def _inputs(self, wanted: Mapping[int, Collection[int]]) -> dict[Record, object]:
        """Some records of the sources, which are read again."""
        return {
            (piece, number): value
            for piece, numbers in wanted.items()
            for chunk in read_chunks(self._sources[piece], self.request.grammar)
            for number, value in zip(chunk.numbers, chunk.values, strict=True)
            if number in numbers
        }

    def _findings(self) -> Findings:
        """The problems of single records."""
        findings = self.request.findings([source.name for source in self._sources])
        for problem in () if self._input is None else self._input.problems:
            findings.note(problem)
        return findings


def _watched(source: RecordSource, progress: Callable[[int], None]) -> RecordSource:
    """The same source, reporting the size of each block to ``progress``."""

    def blocks() -> Iterator[bytes]:
        for block in source.blocks():
            progress(len(block))
            yield block

    return RecordSource(source.name, blocks)


# --- reading --------------------------------------------------------------------------------------


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
    """``raw_rows`` as they were read."""
    unit: Unit
    absent: pa.ChunkedArray
    """What the records of ``rows`` lack, as in `records.absence`."""
    matched_by: tuple[str, ...] = (ID,)
    """The columns that tell which committed row a record means."""
    positions: pa.Array | None = None
    """The positions of ``rows`` in ``raw_rows``; None if they are the same."""

    @property
    def records_read(self) -> int:
        """How many records there were of this type."""
        return int(self.raw_rows.num_rows)

    def place_of_row(self, row: int) -> Place:
        """Where ``rows[row]`` was read."""
        return self.place_of(row if self.positions is None else self.positions[row].as_py())

    def place_of(self, row: int) -> Place:
        """Where ``raw_rows[row]`` was read."""
        for part in self.parts:
            if row < len(part.numbers):
                return Place(part.source, part.numbers[row].as_py(), self.unit)
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
    """By type key, ids of records that were refused and are not in ``tables``."""
    problems: Sequence[Problem] = ()
    """Of single records, in input order."""
    bad: Counter[str] = field(default_factory=Counter)
    """By type key, how many records these are; only where they are skipped."""
    grammar: Grammar = "strict"

    @classmethod
    def of(
        cls,
        parts: Mapping[str, Sequence[TypedRows]],
        catalog: Catalog,
        mode: LoadMode,
        grammar: Grammar,
    ) -> ReadRecords:
        """The records of ``parts``, which are by type key."""
        tables = {
            key: _input_table(several, mode, grammar) for key, several in sorted(parts.items())
        }
        refused = {
            key: pa.chunked_array([part.refused_ids for part in several], pa.string())
            for key, several in parts.items()
        }
        return cls(mode, catalog, tables, refused, grammar=grammar)

    def without(self, records: Mapping[str | None, pa.Int64Array]) -> ReadRecords:
        """The others; ``records`` are numbers by the name of the source."""
        none = pa.array([], pa.int64())
        parts = {
            key: [part.without(records.get(part.source, none)) for part in table.parts]
            for key, table in self.tables.items()
        }
        return ReadRecords.of(_with_rows(parts), self.catalog, self.mode, self.grammar)


def _with_rows(parts: Mapping[str, Sequence[TypedRows]]) -> dict[str, Sequence[TypedRows]]:
    """Only types with rows: an overwrite must not empty one whose records are all left out."""
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
) -> ReadRecords:
    """Read all records of ``sources``, in order; ``mappings`` of their data are by table key.

    ``keeps_absent``: properties that records lack keep their stored values. ``skips``: records with
    problems are left out. Raises `LimitExceeded` once a table exceeds ``limits``.
    """
    external = external or ExternalBlobs()
    reader = _InputReader(
        catalog, mode, grammar, mint, external, limits, mappings or {}, keeps_absent, skips
    )
    for source in sources:
        chunks = read_chunks(source, grammar, chunk_bytes=chunk_bytes)
        reader.read(chunks, source.name)
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
        """Take the records of one source."""
        for several, problems in typed_chunks(
            chunks,
            name,
            self.catalog,
            self.grammar,
            self._builder,
            mappings=self.mappings,
            skips=self.skips,
        ):
            for rows in several:
                self._parts.setdefault(rows.type.table_key, []).append(rows)
                self._charge(rows.type.table_key, rows.rows)
            self._bad += count_bad(problems, self._key_of)
            # Sorted by record, so that the first problem does not depend on the chunk size.
            self._problems += sorted(
                problems, key=lambda each: each.place.number if each.place else 0
            )

    def _key_of(self, problem: Problem) -> str:
        return type_key_of(problem, self.catalog)

    def finish(self) -> ReadRecords:
        """Apply renames and put the records of each type together."""
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
            # A replaced table keeps references to external objects; other writes copy the bytes.
            copy_external = self.mode != "overwrite"
            builder = self._builders[type.table_key] = RowBuilder(
                type,
                self.grammar,
                self.mint,
                self.external,
                copy_external=copy_external,
                keeps_absent=self.keeps_absent,
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
    return InputTable(type, raw, rows, given, tuple(parts), unit, absent, matched_by, positions)


def _is_of(problem: Problem, part: TypedRows) -> bool:
    place = problem.place
    return place is not None and place.source == part.source and problem.type_name == part.type.name


def _last_of_each(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Positions of the last record of each id or key."""
    positions = pa.table({"text": texts, "row": pa.array(range(len(texts)), pa.int64())})
    last = positions.group_by("text").aggregate([("row", "max")])["row_max"]
    return last.combine_chunks().sort()


# --- planning -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadPlan(LoadChanges):
    """What a load writes, and what the validator needs to know of its input."""

    given: Mapping[str, InputRows] = field(default_factory=dict)
    """By type key."""
    missing: Sequence[tuple[str, Problem]] = ()
    """Of records that would be new and lack a required property, with the keys of their types."""
    incomplete: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By type key, their ids."""
    ids: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    """Of a merge, by type key: the ids of `InputTable.rows`."""


def plan_load(
    loaded: ReadRecords,
    view: SnapshotReader,
    *,
    replace_types: Iterable[str] = (),
    limits: WriteLimits | None = None,
    skips: bool = False,
) -> LoadPlan:
    """The change set of a load against the committed rows of ``view``.

    ``replace_types`` are type keys that an overwrite empties if it has no records of them.
    ``skips``: edges may not end at refused records. Raises `LimitExceeded` if blobs that are kept
    exceed ``limits``.
    """
    plans = {
        key: _plan_table(key, table, loaded, view, limits) for key, table in loaded.tables.items()
    }
    for key in replace_types:
        if key not in plans:
            type = type_of(key, loaded.catalog)
            change = TableChange(key, "replace", table_schema(type).empty_table())
            plans[key] = _Planned(change, LoadedType(type.name, 0, 0, 0, 0))
    changes = {key: plan.change for key, plan in sorted(plans.items()) if plan.change is not None}
    given = {
        key: InputRows(
            table.raw_rows if table.rows is not table.raw_rows else None,
            table.given_ids if loaded.mode == "append" else NO_IDS,
            NO_IDS
            if skips
            else pa.chunked_array(
                [*loaded.refused_ids[key].chunks, *plans[key].refused], pa.string()
            ),
        )
        for key, table in loaded.tables.items()
    }
    missing = [(key, problem) for key, plan in plans.items() for problem in plan.missing]
    counts = {key: plan.count for key, plan in plans.items()}
    ids = {key: plan.ids for key, plan in plans.items() if plan.ids is not None}
    incomplete = {
        key: [each for ids in plan.refused for each in ids.to_pylist()]
        for key, plan in plans.items()
        if plan.refused
    }
    return LoadPlan(
        ChangeSet(changes),
        counts,
        given=given,
        missing=missing,
        incomplete=incomplete,
        ids=ids,
    )


@dataclass(frozen=True, slots=True)
class _Planned:
    """What becomes of one type."""

    change: TableChange | None
    count: LoadedType
    missing: Sequence[Problem] = ()
    refused: Sequence[pa.Array] = ()
    """Ids of the records in ``missing``."""
    ids: pa.ChunkedArray | None = None
    """The ids of a merge, as in `MergedRows`."""


def _plan_table(
    key: str,
    table: InputTable,
    loaded: ReadRecords,
    view: SnapshotReader,
    limits: WriteLimits | None,
) -> _Planned:
    if loaded.mode == "merge":
        merging = Merging(table.type, table.rows, table.absent, table.given_ids, table.matched_by)
        return _merged(key, table, merging.result(view, limits))
    kind: ChangeKind = "append" if loaded.mode == "append" else "replace"
    change = TableChange(key, kind, table.rows)
    return _Planned(change, _count(table, inserted=table.rows.num_rows))


def _merged(key: str, table: InputTable, merged: MergedRows) -> _Planned:
    count = _count(
        table,
        inserted=merged.inserted,
        updated=merged.updated,
        unchanged=merged.unchanged,
        kept=merged.kept,
    )
    missing = [
        missing_value(table.type, name, table.place_of_row(row)) for row, name in merged.missing
    ]
    change = TableChange(key, "upsert", merged.rows) if merged.rows.num_rows else None
    return _Planned(change, count, missing, merged.refused_ids.chunks, merged.ids)


def _count(
    table: InputTable, *, inserted: int, updated: int = 0, unchanged: int = 0, kept: int = 0
) -> LoadedType:
    return LoadedType(table.type.name, table.records_read, inserted, updated, unchanged, kept)


# --- checking -------------------------------------------------------------------------------------


def checked_plan(
    loaded: ReadRecords,
    view: SnapshotReader,
    replace_types: Iterable[str],
    findings: Findings,
    limits: WriteLimits | None = None,
) -> LoadPlan:
    """`plan_load`; raises `InputError` with every problem and those in ``findings``."""
    plan = plan_load(loaded, view, replace_types=replace_types, limits=limits)
    for _, problem in plan.missing:
        findings.note(problem)

    def place_of(table_key: str, holder: Holder, *, own: bool) -> Place | None:
        table = loaded.tables.get(table_key)
        if table is None or holder.is_kept:
            return None
        row = holder.record[1] if own else pc.index(table.raw_rows[ID], holder.entity_id).as_py()
        if row < 0 and table_key in plan.ids:  # an edge that was found by its key
            row = pc.index(plan.ids[table_key], holder.entity_id).as_py()
            return table.place_of_row(row) if row >= 0 else None
        return table.place_of(row) if row >= 0 else None

    violations = validate(
        plan.changes, loaded.catalog, view, given=plan.given, collect=True, values=False
    )
    for problem in problems_of(violations, place_of):
        findings.note(problem)
    findings.raise_if_any()
    return plan


def bad_records(
    loaded: ReadRecords, plan: LoadPlan, view: SnapshotReader, names: Sequence[str | None]
) -> Iterator[BadRecord]:
    """Every record that breaks a constraint in ``plan``; ``names`` are those of the sources."""
    catalog = loaded.catalog
    pieces = {name: piece for piece, name in enumerate(names)}

    def record_of(place: Place) -> Record:
        return pieces[place.source], place.number

    rows_by_id: dict[str, dict[str, int]] = {}

    def place_of(table_key: str, holder: Holder, *, own: bool = False) -> Place | None:
        table = loaded.tables.get(table_key)
        if table is None or holder.is_kept:
            return None
        if own or holder.role == "record":
            return table.place_of(holder.record[1])
        if table_key not in rows_by_id:
            ids = plan.ids.get(table_key, table.rows[ID])
            rows_by_id[table_key] = {each: row for row, each in enumerate(ids.to_pylist())}
        row = rows_by_id[table_key].get(holder.entity_id)
        return None if row is None else table.place_of_row(row)

    for key, problem in plan.missing:
        assert problem.place is not None
        yield BadRecord(record_of(problem.place), key, problem)
    for violation in validate(
        plan.changes, catalog, view, given=plan.given, collect=True, values=False, by_record=True
    ):
        problem = problem_of(violation, place_of)
        culprit = violation.culprit
        place = None if culprit is None else place_of(violation.table_key, culprit)
        record = None if place is None else record_of(place)
        yield BadRecord.of(record, violation, replace(problem, place=place), catalog)
