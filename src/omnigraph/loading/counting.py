"""Counting claims, in workers: what rows claim which keys, part by part.

Spark adds the counts up, in one aggregation over all rules; `keys` is the way for fewer of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.loading.claims import ROLES, CheckPlan, Claim, Role
from omnigraph.model.columns import entity_id_column, spell_column
from omnigraph.model.types import ValueType
from omnigraph.storage.written import (
    OFFSET,
    ROW_ADDRESS,
    Deletions,
    TablePlace,
    committed_batches,
    read_stretches,
    read_written,
)

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
        yield counted(claim.rule, tally.field("values"), counts)


def _refused_claims(job: CheckJob) -> Iterator[pa.RecordBatch]:
    for rule in job.plan.rules:
        ids = job.refused.get(rule.table_key, ()) if rule.kind == "entity" else ()
        if ids:
            ones = pa.array([1] * len(ids), pa.int64())
            yield counted(rule.number, pa.array(ids, pa.string()), {"bad": ones})


def counted(rule: int, keys: pa.Array, counts: Mapping[Role, pa.Array]) -> pa.RecordBatch:
    """Keys of a rule with their counts by role, as rows of `CLAIMS`."""
    none = pa.repeat(pa.scalar(0, pa.int64()), len(keys))
    rules = pa.repeat(pa.scalar(rule, pa.int32()), len(keys))
    columns = [counts.get(role, none) for role in ROLES]
    return pa.RecordBatch.from_arrays([rules, keys, *columns], names=["rule", "key", *ROLES])


def claims_by_rule(job: CheckJob) -> list[int]:
    """How many keys each rule has to hold at once: all but those at which edges end."""
    counts = [0] * len(job.plan.rules)
    for part in job.parts:
        for claim in claims_of(job.plan, part):
            if claim.role != "end":
                counts[claim.rule] += part.rows
    return counts


def claims_max(job: CheckJob) -> int:
    """The most keys that any rule has to hold."""
    return max(claims_by_rule(job), default=0)


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
