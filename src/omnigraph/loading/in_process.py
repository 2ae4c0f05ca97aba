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

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import (
    ChangeKind,
    ChangeSet,
    TableChange,
    WriteLimits,
)
from omnigraph.commit.schema.contract import LAST_STAGED_OBJECT
from omnigraph.commit.validation import NO_IDS, InputRows, validate
from omnigraph.commit.validation.constraints import Holder
from omnigraph.loading.input_tables import InputTable, ReadRecords, read_input
from omnigraph.loading.load import LoadChanges, LoadExecutor
from omnigraph.loading.merging import MergedRows, Merging
from omnigraph.loading.records.absence import missing_value
from omnigraph.loading.records.framing import RecordSource, read_chunks
from omnigraph.loading.records.ids import minted_by
from omnigraph.loading.records.problems import (
    Findings,
    Place,
    Problem,
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
from omnigraph.model.arrow import ID
from omnigraph.model.receipts import LoadedType
from omnigraph.schema.catalog import table_schema
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
