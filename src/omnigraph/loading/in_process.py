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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from time import perf_counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import (
    Budget,
    ChangeKind,
    ChangeSet,
    TableChange,
    WriteLimits,
)
from omnigraph.commit.schema.contract import LAST_STAGED_OBJECT
from omnigraph.commit.validation import NO_IDS, InputRows, validate
from omnigraph.commit.validation.constraints import Holder
from omnigraph.loading.edge_identity import match_texts
from omnigraph.loading.input_tables import InputTable, ReadRecords, read_input
from omnigraph.loading.load import LoadChanges, LoadExecutor
from omnigraph.loading.records.absence import Absent, Mask, completed, is_needed, missing_value
from omnigraph.loading.records.framing import RecordSource, read_chunks
from omnigraph.loading.records.ids import minted_by
from omnigraph.loading.records.problems import (
    Findings,
    Problem,
    RecordPlace,
    problem_of,
    problems_of,
)
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
from omnigraph.schema.catalog import TableType, table_schema
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
        loaded = self._input.with_ends(capture.reader, self.request.replace_types)
        if self.request.skips:
            plan = self._without_bad(loaded, capture.reader, findings)
        else:
            plan = checked_plan(
                loaded, capture.reader, self.request.replace_types, findings, self._limits
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
    """What becomes of one type."""

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
        merging = Merging(table.type, table.rows, table.absent, table.given_ids, table.matched_by)
        return _merged(key, table, merging.result(view, limits))
    kind: ChangeKind = "append" if loaded.mode == "append" else "replace"
    change = TableChange(key, kind, table.rows)
    return _PlannedType(change, _count(table, inserted=table.rows.num_rows))


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
# What a record lacks (`records.absence`) is the stored value of its entity, so every row is checked
# and written as it will be stored.


@dataclass(frozen=True, slots=True)
class MergedRecords:
    """The complete rows to write, and the counts for the receipt."""

    rows: pa.Table
    ids: pa.ChunkedArray
    """The id of each record; an edge that was found by its key has an id of its own."""
    inserted: int
    updated: int
    unchanged: int
    kept: int
    missing: tuple[tuple[int, str], ...]
    """Records that would be new and lack a required property: the position, and its name."""
    refused_ids: pa.ChunkedArray
    """Their ids."""


class Merging:
    """Records of one type with unique ids, and the committed rows of these ids."""

    def __init__(
        self,
        type: TableType,
        rows: pa.Table,
        absent: pa.ChunkedArray,
        given_ids: pa.Array,
        matched_by: tuple[str, ...] = (ID,),
    ) -> None:
        """``given_ids`` are the ids of ``rows`` that committed entities may have.

        ``matched_by`` is `(ID,)`, or the key of an edge type: then the ids were minted.
        """
        self._key = type.table_key
        self._type = type
        self._rows = rows
        self._absent = Absent(type, absent)
        self._given_ids = given_ids
        self._matched_by = matched_by
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
        at = 0 if len(ends[0]) >= len(ends[1]) else 1  # the more there are, the fewer edges each
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
        """The records with the stored values of what they lack, blobs excepted."""
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
            if is_needed(self._type.properties[name]):
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
