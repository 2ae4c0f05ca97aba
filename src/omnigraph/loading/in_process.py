"""A load in this process: rows stay in memory, and committed rows are looked up.

Values, ids and endpoints in older spellings are checked while records are read, without committed
rows. If the branch moves before the commit, the load is planned again from the records in memory,
with the same minted ids.

=========  =======================================================================================
append     every record is a new entity; an id that exists is a conflict
merge      a record updates the entity of its id, or adds it; properties it lacks are kept
overwrite  the records of a type replace its rows; types without records stay as they are
=========  =======================================================================================

An actor whose rules are limited to types loads into the part of the graph that it sees: its records
may name only visible types and properties, they are matched with visible rows, an overwrite
replaces visible rows only, and the resulting rows are checked by its rules
(`commit.mutate.WriterRights`). Tables of such an actor are read here too, not by tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from hashlib import sha256
from time import perf_counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import (
    Budget,
    ChangeSet,
    Exchanged,
    TableChange,
    WriteLimits,
)
from omnigraph.commit.schema.contract import LAST_STAGED_OBJECT
from omnigraph.commit.validation import NO_IDS, InputRows, validate
from omnigraph.commit.validation.constraints import Holder
from omnigraph.errors import InputError
from omnigraph.loading.edge_identity import match_texts
from omnigraph.loading.files import Files
from omnigraph.loading.input_tables import InputTable, ReadRecords, read_input
from omnigraph.loading.load import LoadChanges, LoadExecutor
from omnigraph.loading.pieces import InputPlan, plan_sources
from omnigraph.loading.reading import PieceReader, Reading, check_headers
from omnigraph.loading.records.absence import Absent, Mask, completed, is_needed, missing_value
from omnigraph.loading.records.framing import RecordSource, read_chunks
from omnigraph.loading.records.ids import Minting, minted_by
from omnigraph.loading.records.problems import (
    Findings,
    Problem,
    RecordPlace,
    problem_of,
    problems_of,
)
from omnigraph.loading.records.rows import TypedRows
from omnigraph.loading.request import LoadSpec
from omnigraph.loading.skipping import (
    UNREADABLE,
    BadRecord,
    Record,
    Skipping,
    numbers_of,
)
from omnigraph.loading.sources import FileSource, find_all, input_digest, record_source, type_of
from omnigraph.model.arrow import DST, ID, SRC, unchanged_rows
from omnigraph.model.receipts import LoadedType
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import TableType, table_schema
from omnigraph.storage.reader import SnapshotReader


class InProcessLoad(LoadExecutor):
    """Loads graph records from files, and from bytes or blocks of bytes; for actors whose rules are
    limited to types, also tables."""

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
        """``data`` are records that are read after those of the files."""
        super().__init__(kernel, request)
        self._files = files
        self._data = data
        self._limits = limits
        self._progress = progress
        self._sources: list[RecordSource] = []
        self._tables = InputPlan((), ())
        self._input: ReadRecords | None = None
        rights = request.rights(self.catalog)
        self._named = self.catalog if rights is None else rights.catalog(self.catalog)
        self._nameable = self.catalog if rights is None else rights.told(self.catalog)
        """The types and properties that the input may name."""

    @property
    def rows(self) -> int:
        """How many records were read."""
        tables = {} if self._input is None else self._input.tables
        return sum(table.records_read for table in tables.values())

    def plan(self) -> None:
        """Find the files; a stream has no digest."""
        data = self._data
        found = find_all(each for each in self._files if each.table_key is None)
        self._sources = [record_source(each) for each in found]
        typed = [each for each in self._files if each.table_key is not None]
        if typed:
            self._tables = plan_sources(typed, self._named, slots=1, lines_only=False)
            found += self._tables.files
            check_headers(self._tables, self._reading)
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
            catalog=self._named,
            mode=self.request.mode,
            keeps_absent=self.request.keeps_absent,
            grammar=self.request.grammar,
            mint=minted_by(self.kernel.ids.ulid),
            external=self.request.external,
            limits=self._limits,
            mappings=self.request.record_mappings,
            skips=self.request.skips,
            tables=self._table_rows(),
        )
        if self._named is not self.catalog:
            self._input = self._input.of_whole(self._nameable)
        if self._input.problems and self.kernel.store.exists(LAST_STAGED_OBJECT):
            # An interrupted schema apply may declare unknown names: the caller completes it.
            self._findings().raise_if_any()
        self.note("read", perf_counter() - started)

    def close(self) -> None:
        """No scratch files."""

    def changes(self, capture: Capture) -> LoadChanges:
        """The records as a change set, checked together with the captured head."""
        assert self._input is not None
        started, findings = perf_counter(), self._findings()
        rights = self.request.rights(self.catalog)
        seen = capture.reader if rights is None else rights.seen(capture.reader)
        loaded = self._input.with_ends(seen, self.request.replace_types)
        if self.request.skips:
            plan = self._without_bad(loaded, seen, findings)
        else:
            plan = checked_plan(loaded, seen, self.request.replace_types, findings, self._limits)
        if rights is not None:
            valid = partial(validate, plan.changes, self.catalog, given=plan.given, values=False)
            rights.check(plan.changes.tables, self.catalog, capture.reader, valid)
        self.note("check", perf_counter() - started)
        return plan

    @property
    def _reading(self) -> Reading:
        """How rows of tables become typed rows."""
        request, files = self.request, [each.path for each in self._files]
        return Reading(
            self.accepted.contract,
            request.grammar,
            request.mode,
            Minting(self.kernel.ids.ulid()),
            request.keeps_absent,
            request.ignore_unknown,
            Files.of_environment(files),
            external=request.external,
            named=self._named,
        )

    def _table_rows(self) -> Iterator[tuple[list[TypedRows], list[Problem]]]:
        """The rows of tables, in order."""
        reader = PieceReader(self._reading)
        for task in self._tables.tasks:
            for piece in task:
                yield from reader.read(piece)

    def _without_bad(
        self, loaded: ReadRecords, view: SnapshotReader, findings: Findings
    ) -> LoadPlan:
        """The change set of the records that remain after `loading.skipping`."""
        if self._tables.files:
            raise InputError(
                "an actor whose rules are limited to types loads tables as a whole: their bad rows "
                "are not skipped",
                hint="leave out `on_error`, or load graph records",
            )
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
        left = account.completed(plan, findings)
        return replace(plan, counts=left.counts, skipped=left.skipped, problems=left.problems)

    def _inputs(self, wanted: Mapping[int, Collection[int]]) -> dict[Record, object]:
        """The wanted records as the sources have them; reads the sources again."""
        return {
            (piece, number): value
            for piece, numbers in wanted.items()
            for chunk in read_chunks(self._sources[piece], self.request.grammar)
            for number, value in zip(chunk.numbers, chunk.values, strict=True)
            if number in numbers
        }

    def _findings(self) -> Findings:
        """The problems of single records."""
        names = [source.name for source in self._sources]
        names += [found.shown for found in self._tables.files]
        findings = self.request.findings(names)
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


# --- planning -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadPlan(LoadChanges):
    """The changes of a load, and facts about its input for the validator."""

    given: Mapping[str, InputRows] = field(default_factory=dict)
    """By type key: the input as read, for constraints that concern it."""
    missing: Sequence[tuple[str, Problem]] = ()
    """Type key and problem of each new record that lacks a required property."""
    incomplete: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By type key: the ids of the records in ``missing``."""
    ids: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    """By type key, of a merge: the ids of `InputTable.rows`."""


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
    With ``skips``, an edge that ends at a refused record is an error too. Raises `LimitExceeded` if
    blobs that are kept exceed ``limits``.
    """
    plans = {
        key: _plan_table(key, table, loaded, view, limits) for key, table in loaded.tables.items()
    }
    for key in replace_types:
        if key not in plans:
            type = type_of(key, loaded.catalog)
            change = _overwritten(key, table_schema(type).empty_table(), view)
            plans[key] = _PlannedType(change, LoadedType(type.name, 0, 0, 0, 0))
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
class _PlannedType:
    """The plan of a load for one type."""

    change: TableChange | None
    count: LoadedType
    missing: Sequence[Problem] = ()
    refused: Sequence[pa.Array] = ()
    """Ids of the records in ``missing``."""
    ids: pa.ChunkedArray | None = None
    """The ids of a merge, as in `MergedRecords`."""


def _plan_table(
    key: str,
    table: InputTable,
    loaded: ReadRecords,
    view: SnapshotReader,
    limits: WriteLimits | None,
) -> _PlannedType:
    if loaded.mode == "merge":
        merging = Merging(
            table.type,
            table.rows,
            table.absent,
            table.given_ids,
            table.matched_by,
            unnamed=table.unnamed,
        )
        return _merged(key, table, merging.result(view, limits))
    change: TableChange | None = TableChange(key, "append", table.rows)
    if loaded.mode == "overwrite":
        change = _overwritten(key, table.rows, view)
    return _PlannedType(change, _count(table, inserted=table.rows.num_rows))


def _overwritten(key: str, rows: pa.Table, view: SnapshotReader) -> TableChange | None:
    """The change that replaces all rows of a type that the writer sees; None if nothing changes."""
    if not view.hides_rows_of(key):
        return TableChange(key, "replace", rows)
    if view.is_empty(key) or not len((found := view.places(key))[0]):
        return TableChange(key, "append", rows) if rows.num_rows else None
    ids, positions = found
    deleted = ids.filter(pc.invert(pc.is_in(ids, value_set=rows[ID].combine_chunks())))
    return TableChange(key, "exchange", rows, exchanged=Exchanged(positions, deleted))


def _merged(key: str, table: InputTable, merged: MergedRecords) -> _PlannedType:
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
    return _PlannedType(change, count, missing, merged.refused_ids.chunks, merged.ids)


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

    def place_of(table_key: str, holder: Holder, *, own: bool) -> RecordPlace | None:
        table = loaded.tables.get(table_key)
        if table is None or holder.is_kept:
            return None
        row = holder.record[1] if own else pc.index(table.raw_rows[ID], holder.entity_id).as_py()
        if row < 0 and table_key in plan.ids:  # an edge that was matched by its key
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

    def record_of(place: RecordPlace) -> Record:
        return pieces[place.source], place.number

    rows_by_id: dict[str, dict[str, int]] = {}

    def place_of(table_key: str, holder: Holder, *, own: bool = False) -> RecordPlace | None:
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


# --- merged rows ----------------------------------------------------------------------------------

# The rows a merge in process writes: new ones, and those that differ from the committed ones.
#
# A property that a record lacks (`records.absence`) keeps its stored value, so every row is checked
# and written complete.


@dataclass(frozen=True, slots=True)
class MergedRecords:
    """The complete rows to write, and the counts for the receipt."""

    rows: pa.Table
    ids: pa.ChunkedArray
    """The id of each record; an edge that was matched by its key has its committed id."""
    inserted: int
    updated: int
    unchanged: int
    kept: int
    missing: tuple[tuple[int, str], ...]
    """Position of each new record that lacks a required property, and the name of the property."""
    refused_ids: pa.ChunkedArray
    """The ids of the records in ``missing``."""


class Merging:
    """Records of one type with unique ids, and the committed rows of these ids."""

    def __init__(
        self,
        type: TableType,
        rows: pa.Table,
        absent: pa.ChunkedArray,
        given_ids: pa.Array,
        matched_by: tuple[str, ...] = (ID,),
        *,
        unnamed: frozenset[str] = frozenset(),
    ) -> None:
        """``given_ids`` are the ids of ``rows`` that committed entities may have.

        ``unnamed`` are properties that the writer cannot give: `WriterRights` refuses a new entity
        that would need one. ``matched_by`` is `(ID,)`, or the key of an edge type: then the ids
        were minted.
        """
        self._key = type.table_key
        self._type = type
        self._rows = rows
        self._absent = Absent(type, absent)
        self._given_ids = given_ids
        self._matched_by = matched_by
        self._unnamed = unnamed
        self._blobs = [prop.name for prop in type.properties.values() if prop.type.is_blob]
        self._columns = [name for name in rows.schema.names if name not in self._blobs]

    def result(self, view: SnapshotReader, limits: WriteLimits | None) -> MergedRecords:
        """Raises `LimitExceeded` if blobs that are kept exceed ``limits``."""
        if self._matched_by != (ID,):
            self._adopt_ids(view)
        # Blobs are not read for a comparison: a record that has one is always written.
        compares = set(self._blobs) <= set(self._absent.names)
        columns = self._columns if compares or self._absent.names else [ID]
        existing = self._existing(view, columns)
        at = pc.index_in(self._rows[ID], value_set=existing[ID]).fill_null(-1).to_numpy()
        is_known = at >= 0
        rows = self._completed(existing, at)
        is_same = np.zeros(rows.num_rows, np.bool_)
        if compares and existing.num_rows:
            is_same = np.asarray(unchanged_rows(rows.select(self._columns), existing))
            is_same = np.logical_and.reduce([is_same, *map(self._absent.lacking, self._blobs)])
        missing = tuple(self._missing(is_known))
        is_refused = np.zeros(rows.num_rows, np.bool_)
        is_refused[[row for row, _ in missing]] = True
        is_written = ~is_same & ~is_refused
        written = rows.filter(pa.array(is_written))
        for name in self._blobs:
            is_stored = (self._absent.lacking(name) & is_known)[is_written]
            if is_stored.any():
                written = self._with_stored_blobs(written, name, is_stored, view, limits)
        known, unchanged = int(is_known.sum()), int(is_same.sum())
        return MergedRecords(
            written,
            rows[ID],
            inserted=rows.num_rows - known,
            updated=known - unchanged,
            unchanged=unchanged,
            kept=int((self._absent.rows & is_known).sum()),
            missing=missing,
            refused_ids=rows[ID].filter(pa.array(is_refused)),
        )

    def _adopt_ids(self, view: SnapshotReader) -> None:
        """Give the records of edges that exist, by their key, the ids of these edges."""
        if view.is_empty(self._key):
            return
        ends = [pc.unique(self._rows[name]) for name in (SRC, DST)]
        at = 0 if len(ends[0]) >= len(ends[1]) else 1  # more distinct nodes: fewer edges of each
        columns = list(dict.fromkeys((ID, *self._matched_by)))
        found = view.rows_where_in(self._key, (SRC, DST)[at], ends[at], columns)
        texts = match_texts(self._type, self._matched_by, found)
        wanted = match_texts(self._type, self._matched_by, self._rows)
        adopted = found[ID].take(pc.index_in(wanted, value_set=texts, skip_nulls=True))
        self._rows = _with(self._rows, ID, pc.coalesce(adopted, self._rows[ID]))
        self._given_ids = adopted.drop_null().combine_chunks()

    def _existing(self, view: SnapshotReader, columns: list[str]) -> pa.Table:
        """The committed rows with ids of the input; minted ids cannot match."""
        if not len(self._given_ids) or view.is_empty(self._key):
            return self._rows.schema.empty_table().select(columns)
        return view.rows_where_in(self._key, ID, self._given_ids, columns)

    def _completed(self, existing: pa.Table, at: npt.NDArray[np.int64]) -> pa.Table:
        """The records, with stored values for properties they lack, blobs excepted."""
        rows = self._rows
        if not existing.num_rows:
            return rows
        for name in self._absent.names:
            if name not in self._blobs:
                is_stored = self._absent.lacking(name) & (at >= 0)
                stored = existing[name].take(pa.array(at[is_stored]))
                rows = _with(rows, name, completed(rows[name], stored, is_stored))
        return rows

    def _missing(self, is_known: Mask) -> Iterator[tuple[int, str]]:
        for name in self._absent.names:
            if is_needed(self._type.properties[name]) and name not in self._unnamed:
                is_missing = self._absent.lacking(name) & ~is_known
                yield from ((row, name) for row in np.flatnonzero(is_missing).tolist())

    def _with_stored_blobs(
        self,
        rows: pa.Table,
        name: str,
        is_stored: Mask,
        view: SnapshotReader,
        limits: WriteLimits | None,
    ) -> pa.Table:
        ids = rows[ID].filter(pa.array(is_stored)).combine_chunks()
        if limits is not None:
            size = pc.sum(view.blob_sizes(self._key, name, ids), min_count=0).as_py()
            Budget(limits, self._key).charge(rows=rows.num_rows, bytes=rows.nbytes + size)
        stored = pa.chunked_array([view.blobs(self._key, name, ids)])
        return _with(rows, name, completed(rows[name], stored, is_stored))


def _with(rows: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), column)
