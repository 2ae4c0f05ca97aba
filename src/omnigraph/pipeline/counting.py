"""Counting claims, in workers: which keys break a rule.

There are two ways. Keys of a rule that fit the memory of a worker are held against each other
there, in Arrow, and only broken ones leave it. Beyond that all rules are counted in one aggregation
of Spark over (rule, key), for which workers count their own claims first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.model.columns import entity_id_column, spell_column
from omnigraph.model.types import ValueType
from omnigraph.pipeline.claims import ROLES, CheckPlan, Claim, Role
from omnigraph.storage.written import TablePlace, committed_batches, read_written
from omnigraph.storage.written_upserts import OFFSET, ROW_ADDRESS, Deletions, read_stretches

ENDS_AT_ONCE = 8_000_000
"""Ends of edges that are looked for together, at about 30 bytes each."""

CLAIMS = "rule int, key string, " + ", ".join(f"{role} long" for role in ROLES)


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A fragment that workers wrote."""

    table_key: str
    place: TablePlace
    fragment: str
    rows: int
    is_raw: bool = False
    """Whether these are records as they were read, with their places."""
    held: pa.Table | None = field(default=None, repr=False, compare=False)
    """The rows, if they were not written at all."""

    def batches(
        self, columns: Sequence[str], storage_options: dict[str, str] | None
    ) -> Iterable[pa.RecordBatch]:
        """Columns of its rows."""
        if self.held is not None:
            held: list[pa.RecordBatch] = self.held.select(columns).to_batches()
            return held
        return read_written(self.place, self.fragment, columns, storage_options=storage_options)


@dataclass(frozen=True, slots=True)
class CommittedPart:
    """Some fragments of a committed table."""

    table_key: str
    address: str
    version: int
    fragment_ids: tuple[int, ...]
    rows: int
    gone: Deletions = field(default_factory=dict)
    """Rows that an upsert replaces."""


Part = WrittenPart | CommittedPart


@dataclass(frozen=True, slots=True)
class CheckJob:
    """Everything the workers of the second pass are told."""

    plan: CheckPlan
    parts: tuple[Part, ...]
    minted_prefix: str
    storage_options: dict[str, str]
    refused: Mapping[str, tuple[str, ...]]
    """Ids of records that were refused, by type key: they count as being there."""
    records: tuple[WrittenPart, ...] = ()
    """Of an upsert, all records as they were read: they say where an entity comes from."""


def count_claims(job: CheckJob) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs over the numbers of parts; one number more stands for ``refused``."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if number == len(job.parts):
                    yield from _refused_claims(job)
                else:
                    yield from _part_claims(job, job.parts[number])

    return run


def _part_claims(job: CheckJob, part: Part) -> Iterator[pa.RecordBatch]:
    claims = claims_of(job.plan, part)
    rows = PartRows(job, part, claims)
    for claim in claims:
        keys, _ = claimed_keys(claim, rows.of(claim), job.minted_prefix)
        tally = pc.value_counts(keys)
        counts = {claim.role: tally.field("counts")}
        yield _counted(claim.rule, tally.field("values"), counts)


def _refused_claims(job: CheckJob) -> Iterator[pa.RecordBatch]:
    for rule in job.plan.rules:
        ids = job.refused.get(rule.table_key, ()) if rule.kind == "entity" else ()
        if ids:
            ones = pa.array([1] * len(ids), pa.int64())
            yield _counted(rule.number, pa.array(ids, pa.string()), {"bad": ones})


def _counted(rule: int, keys: pa.Array, counts: Mapping[Role, pa.Array]) -> pa.RecordBatch:
    none = pa.repeat(pa.scalar(0, pa.int64()), len(keys))
    rules = pa.repeat(pa.scalar(rule, pa.int32()), len(keys))
    columns = [counts.get(role, none) for role in ROLES]
    return pa.RecordBatch.from_arrays([rules, keys, *columns], names=["rule", "key", *ROLES])


def claims_of(plan: CheckPlan, part: Part) -> tuple[Claim, ...]:
    """The claims that the rows of a part make."""
    if isinstance(part, CommittedPart):
        return plan.committed.get(part.table_key, ())
    return (plan.raw if part.is_raw else plan.written).get(part.table_key, ())


class PartRows:
    """The rows of a part, as far as some claims need them."""

    def __init__(self, job: CheckJob, part: Part, claims: Sequence[Claim], *more: str) -> None:
        columns = sorted({name for claim in claims for name in claim.columns} | set(more))
        self._gone: pa.ChunkedArray | None = None
        options = job.storage_options or None
        if isinstance(part, WrittenPart):
            self.all = pa.Table.from_batches(list(part.batches(columns, options)))
            return
        found = committed_batches(
            part.address,
            part.version,
            part.fragment_ids,
            columns,
            storage_options=options,
            with_places=bool(part.gone),
        )
        self.all = pa.Table.from_batches(list(found))
        if part.gone:
            gone = [
                (fragment_id << 32) + offsets
                for fragment_id in part.fragment_ids
                if fragment_id in part.gone
                for offsets in read_stretches(
                    part.gone[fragment_id], [OFFSET], storage_options=options
                )
            ]
            addresses = np.concatenate([np.zeros(0, np.int64), *gone]).astype(np.uint64)
            self._gone = pc.is_in(self.all[ROW_ADDRESS], value_set=pa.array(addresses))

    def of(self, claim: Claim) -> pa.Table:
        """The rows that make a claim: those that stay, or those that are replaced."""
        if claim.role == "was":
            return self.all.slice(0, 0) if self._gone is None else self.all.filter(self._gone)
        return self.all if self._gone is None else self.all.filter(pc.invert(self._gone))


def claimed_keys(
    claim: Claim, rows: pa.Table | pa.RecordBatch, minted_prefix: str
) -> tuple[pa.Array, pa.Array | None]:
    """The keys rows claim, and which rows they are, None for all.

    Those exempt from the rule are left out.
    """
    members = [
        _spelled(rows[name], type) for name, type in zip(claim.columns, claim.types, strict=True)
    ]
    exempt = [pc.is_null(member) for member in members if member.null_count]
    if claim.skip_minted:
        exempt.append(pc.starts_with(members[0], minted_prefix))
    if not exempt or not pc.any(left_out := reduce(pc.or_kleene, exempt)).as_py():
        return entity_id_column(members), None
    at = pc.indices_nonzero(pc.invert(left_out))
    return entity_id_column([member.take(at) for member in members]), at


def _spelled(column: pa.Array | pa.ChunkedArray, type: ValueType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if type.scalar.is_float:
        # A NaN equals nothing, so it takes nothing from anybody.
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    return spell_column(column, type)


# --- counting where the keys of a rule fit a worker -----------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyTask:
    """One rule to be checked by one worker, or some of the edges that end at its keys."""

    rule: int
    ends: tuple[int, ...] = ()
    """Parts with such edges; none for the keys themselves."""


def key_tasks(job: CheckJob, slots: int) -> list[KeyTask]:
    """The work of checking every rule, for so many workers."""
    tasks: list[KeyTask] = []
    for rule in job.plan.rules:
        if not rule.is_settled:
            tasks.append(KeyTask(rule.number))
        ends = [
            number
            for number, part in enumerate(job.parts)
            if any(c.rule == rule.number and c.role == "end" for c in claims_of(job.plan, part))
        ]
        tasks.extend(
            KeyTask(rule.number, tuple(ends[i::slots])) for i in range(min(slots, len(ends)))
        )
    return tasks


def claims_max(job: CheckJob) -> int:
    """The most keys that any rule has to hold at once: all but those at which edges end."""
    counts = [0] * len(job.plan.rules)
    for part in job.parts:
        for claim in claims_of(job.plan, part):
            if claim.role != "end":
                counts[claim.rule] += part.rows
    return max(counts, default=0)


def check_keys(
    job: CheckJob, tasks: Sequence[KeyTask]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs over the numbers of tasks: broken keys with their counts."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _checked(job, tasks[number])

    return run


def count_keys(job: CheckJob, tasks: Sequence[KeyTask]) -> Callable[[int], int]:
    """The same, of which only the number of broken keys is told."""
    return lambda number: _checked(job, tasks[number]).num_rows


def _checked(job: CheckJob, task: KeyTask) -> pa.RecordBatch:
    return _missing_ends(job, task) if task.ends else _broken_keys(job, task)


def _broken_keys(job: CheckJob, task: KeyTask) -> pa.RecordBatch:
    """Keys that records have twice, or too often, or that somebody else has."""
    rule = job.plan.rules[task.rule]
    tallies = {role: pc.value_counts(_all_keys(job, task.rule, role)) for role in _COUNTED}
    claimed = [tally for role, tally in tallies.items() if role != "old" and len(tally)]
    if not claimed:
        return _counted(task.rule, pa.nulls(0, pa.string()), {})
    keys = claimed[0].field("values") if len(claimed) == 1 else _distinct(claimed)
    counts = {
        # Mostly there is one way in which keys are claimed, and it has them in this order.
        role: tally.field("counts")
        if len(claimed) == 1 and tally is claimed[0]
        else _counts_at(keys, tally)
        for role, tally in tallies.items()
    }
    if rule.kind == "degree":
        assert rule.cardinality is not None
        total = pc.add(counts["new"], counts["old"])
        broken = pc.less(total, rule.cardinality.minimum)
        if rule.cardinality.maximum is not None:
            broken = pc.or_(broken, pc.greater(total, rule.cardinality.maximum))
    else:
        broken = pc.or_(pc.greater(counts["new"], 1), pc.greater(counts["raw"], 1))
        if rule.refuses_existing:
            is_met = pc.and_(pc.greater(counts["new"], 0), pc.greater(counts["old"], 0))
            broken = pc.or_(broken, is_met)
    chosen = {role: each.filter(broken) for role, each in counts.items()}
    return _counted(task.rule, keys.filter(broken), chosen)


_COUNTED: tuple[Role, ...] = ("new", "raw", "was", "old")
"""The roles in which keys are counted; the first three are those of the load."""


def _distinct(tallies: Sequence[pa.StructArray]) -> pa.Array:
    return pc.unique(pa.chunked_array([tally.field("values") for tally in tallies], pa.string()))


def _counts_at(keys: pa.Array, tally: pa.StructArray) -> pa.Array:
    if not len(tally):
        return pa.repeat(pa.scalar(0, pa.int64()), len(keys))
    at = pc.index_in(keys, value_set=tally.field("values"))
    return pc.fill_null(tally.field("counts").take(at), 0)


def _missing_ends(job: CheckJob, task: KeyTask) -> pa.RecordBatch:
    """Keys at which edges end, and which nobody has."""
    bad = job.refused.get(job.plan.rules[task.rule].table_key, ())
    known = pa.chunked_array(
        [
            *_all_keys(job, task.rule, "new").chunks,
            *_all_keys(job, task.rule, "old").chunks,
            pa.array(bad, pa.string()),
        ],
        pa.string(),
    )
    nodes = pa.table({"key": known})
    missing = [
        # A join is several times as fast as looking keys up one after another.
        pa.table({"key": ends}).join(nodes, "key", join_type="left anti")["key"]
        for ends in _ends(job, task)
    ]
    tally = pc.value_counts(
        pa.chunked_array([keys for each in missing for keys in each.chunks], pa.string())
    )
    return _counted(task.rule, tally.field("values"), {"end": tally.field("counts")})


def _ends(job: CheckJob, task: KeyTask) -> Iterator[pa.ChunkedArray]:
    """The keys at which edges end, so many at a time."""
    held: list[pa.Array] = []
    for number in task.ends:
        held.extend(_keys_of_part(job, job.parts[number], task.rule, "end"))
        if sum(map(len, held)) >= ENDS_AT_ONCE or number == task.ends[-1]:
            yield pa.chunked_array(held, pa.string())
            held = []


def _all_keys(job: CheckJob, rule: int, role: Role) -> pa.ChunkedArray:
    parts = [keys for part in job.parts for keys in _keys_of_part(job, part, rule, role)]
    return pa.chunked_array(parts, pa.string())


def _keys_of_part(job: CheckJob, part: Part, rule: int, role: Role) -> Iterator[pa.Array]:
    claims = [c for c in claims_of(job.plan, part) if c.rule == rule and c.role == role]
    if claims:
        rows = PartRows(job, part, claims)
        for claim in claims:
            yield claimed_keys(claim, rows.of(claim), job.minted_prefix)[0]
