"""Checking keys where those of a rule fit the memory of a worker.

They are held against each other there, in Arrow, and only broken ones leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.loading.claims import Role
from omnigraph.loading.counting import (
    CheckJob,
    Part,
    PartRows,
    claimed_keys,
    claims_by_rule,
    claims_of,
    counted,
)
from omnigraph.loading.fingerprints import fingerprints

ENDS_AT_ONCE = 8_000_000
"""Ends of edges that are looked for together, at about 30 bytes each."""

_START = 300_000
_PER_KEY_HELD = 1.0
_PER_KEY_COUNTED = 1.0
"""What it costs to begin a share, to hold a key in it, and to count it: so many ends of edges could
be looked for meanwhile."""

End = tuple[int, int]
"""Edges that end somewhere: the number of their part, and of the claim among those it makes."""


@dataclass(frozen=True, slots=True)
class KeyTask:
    """One rule to be checked by one worker, or some of the edges that end at its keys."""

    rule: int
    ends: tuple[End, ...] = ()
    """Such edges; none for the keys themselves."""


Share = tuple[KeyTask, ...]
"""What one worker checks, rule by rule."""


def whole_rules(job: CheckJob) -> list[Share]:
    """The work of checking every rule, for threads that all have the same memory.

    A worker of its own looks for the ends of a rule: the join takes all cores by itself.
    """
    shares: list[Share] = []
    for rule in job.plan.rules:
        if not rule.is_settled:
            shares.append((KeyTask(rule.number),))
        ends = tuple(end for end, _ in _ends_at(job, rule.number))
        if ends:
            shares.append((KeyTask(rule.number, ends),))
    return shares


def shares_of(job: CheckJob, slots: int) -> list[Share]:
    """The work of checking every rule, for so many workers, which are done at about one time.

    A worker has to hold all keys of a rule to look for ends, so it is given as few rules as can be.
    """
    keys = claims_by_rule(job)
    work: list[tuple[float, KeyTask]] = []
    for rule in job.plan.rules:
        if not rule.is_settled:
            work.append((_PER_KEY_COUNTED * keys[rule.number], KeyTask(rule.number)))
        for end, rows in _ends_at(job, rule.number):
            work.append((rows, KeyTask(rule.number, (end,))))
    given = [_Given() for _ in range(slots)]
    # The largest first: what comes later fills what they left.
    for weight, task in sorted(work, key=itemgetter(0), reverse=True):
        held = _PER_KEY_HELD * keys[task.rule]
        idlest = min(given, key=lambda each: each.weight_with(task, held) + each.start)
        idlest.take(task, weight, held)
    return [each.share() for each in given if each.tasks]


@dataclass(slots=True)
class _Given:
    """What a worker was given so far."""

    weight: float = 0.0
    tasks: list[KeyTask] = field(default_factory=list)
    rules: set[int] = field(default_factory=set)

    @property
    def start(self) -> float:
        """What it costs to begin with it."""
        return 0.0 if self.tasks else _START

    def weight_with(self, task: KeyTask, held: float) -> float:
        """What its work costs once it holds the keys that a task needs."""
        return self.weight if task.rule in self.rules else self.weight + held

    def take(self, task: KeyTask, weight: float, held: float) -> None:
        """Do this as well."""
        self.weight = self.weight_with(task, held) + weight
        self.tasks.append(task)
        self.rules.add(task.rule)

    def share(self) -> Share:
        """Its tasks, those with ends at the keys of one rule put together."""
        share: list[KeyTask] = []
        for rule in sorted(self.rules):
            of_rule = [task for task in self.tasks if task.rule == rule]
            ends = tuple(sorted(end for task in of_rule for end in task.ends))
            if ends:
                share.append(KeyTask(rule, ends))
            if any(not task.ends for task in of_rule):
                share.append(KeyTask(rule))
        return tuple(share)


def _ends_at(job: CheckJob, rule: int) -> Iterator[tuple[End, int]]:
    """The edges that end at keys of a rule, and how many there are of each."""
    for number, part in enumerate(job.parts):
        for index, claim in enumerate(claims_of(job.plan, part)):
            if claim.rule == rule and claim.role == "end":
                yield (number, index), part.rows


# --- in workers -----------------------------------------------------------------------------------


def check_shares(
    job: CheckJob, shares: Sequence[Share]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs over the numbers of shares: broken keys with their counts."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _broken(job, shares[number])

    return run


def count_in_shares(job: CheckJob, shares: Sequence[Share]) -> Callable[[int], int]:
    """The same, of which only the number of broken keys is told."""
    return lambda number: sum(batch.num_rows for batch in _broken(job, shares[number]))


def _broken(job: CheckJob, share: Share) -> Iterator[pa.RecordBatch]:
    for _, tasks in groupby(share, key=lambda task: task.rule):
        # Keys are read once for all that is done with them.
        held: dict[Role, pa.ChunkedArray] = {}
        for task in tasks:
            yield _missing_ends(job, task, held) if task.ends else _broken_keys(job, task, held)


def _broken_keys(job: CheckJob, task: KeyTask, held: dict[Role, pa.ChunkedArray]) -> pa.RecordBatch:
    """Keys that records have twice, or too often, or that somebody else has."""
    rule = job.plan.rules[task.rule]
    keys_of = {role: _taken_keys(job, task.rule, role, held) for role in _COUNTED}
    if rule.kind != "degree" and are_distinct(keys_of.values()):
        return counted(task.rule, pa.nulls(0, pa.string()), {})
    tallies = {role: pc.value_counts(keys_of.pop(role)) for role in _COUNTED}
    claimed = [tally for role, tally in tallies.items() if role != "old" and len(tally)]
    if not claimed:
        return counted(task.rule, pa.nulls(0, pa.string()), {})
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
    chosen: Mapping[Role, pa.Array] = {role: each.filter(broken) for role, each in counts.items()}
    return counted(task.rule, keys.filter(broken), chosen)


_COUNTED: tuple[Role, ...] = ("new", "raw", "was", "old")
"""The roles in which keys are counted; the first three are those of the load."""


def are_distinct(several: Iterable[pa.ChunkedArray]) -> bool:
    """Whether it is certain that no two of some texts are the same.

    Equal texts have equal fingerprints, so if all fingerprints differ, all texts do. To sort them
    takes a fraction of the time in which texts are counted.
    """
    found = [fingerprints(chunk) for texts in several for chunk in texts.chunks]
    prints = np.concatenate([np.zeros(0, np.uint64), *found])
    prints.sort()
    return not (prints[1:] == prints[:-1]).any()


def _distinct(tallies: Sequence[pa.StructArray]) -> pa.Array:
    return pc.unique(pa.chunked_array([tally.field("values") for tally in tallies], pa.string()))


def _counts_at(keys: pa.Array, tally: pa.StructArray) -> pa.Array:
    if not len(tally):
        return pa.repeat(pa.scalar(0, pa.int64()), len(keys))
    at = pc.index_in(keys, value_set=tally.field("values"))
    return pc.fill_null(tally.field("counts").take(at), 0)


def _missing_ends(
    job: CheckJob, task: KeyTask, held: dict[Role, pa.ChunkedArray]
) -> pa.RecordBatch:
    """Keys at which edges end, and which nobody has."""
    for role in _THERE:
        held[role] = _taken_keys(job, task.rule, role, held)
    bad = job.refused.get(job.plan.rules[task.rule].table_key, ())
    known = pa.chunked_array(
        [*(keys for role in _THERE for keys in held[role].chunks), pa.array(bad, pa.string())],
        pa.string(),
    )
    missing = [keys for ends in _ends(job, task) for keys in _without(ends, known).chunks]
    tally = pc.value_counts(pa.chunked_array(missing, pa.string()))
    return counted(task.rule, tally.field("values"), {"end": tally.field("counts")})


_THERE: tuple[Role, ...] = ("new", "old")
"""Who an edge may end at."""


def _without(ends: pa.ChunkedArray, known: pa.ChunkedArray) -> pa.ChunkedArray:
    """The ends that are not known."""
    left, right = in_one_width(ends), in_one_width(known)
    if left is None or right is None or left.type != right.type:
        left, right = ends, known
    # A join is several times as fast as looking keys up one after another.
    missing = pa.table({"key": left}).join(pa.table({"key": right}), "key", join_type="left anti")
    return missing["key"] if left is ends else missing["key"].cast(pa.binary()).cast(pa.string())


def in_one_width(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Texts that take as many bytes each, as values of that width, which are joined twice as fast.

    Nothing is copied. None for texts of several lengths, as most names are; numbers with leading
    zeros, UUIDs and ULIDs have but one.
    """
    wide: list[pa.Array] = []
    width = 0
    for chunk in texts.chunks:
        if not len(chunk):
            continue
        _, offsets, values = chunk.buffers()
        at = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        width = width or int(at[1] - at[0])
        if not width or chunk.null_count or (np.diff(at) != width).any():
            return None
        bytes_of_chunk = values.slice(int(at[0]), width * len(chunk))
        wide.append(
            pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(width), len(chunk), [None, bytes_of_chunk]
            )
        )
    return pa.chunked_array(wide, pa.binary(width)) if wide else None


def _ends(job: CheckJob, task: KeyTask) -> Iterator[pa.ChunkedArray]:
    """The keys at which edges end, so many at a time."""
    held: list[pa.Array] = []
    for number, ends in groupby(task.ends, key=itemgetter(0)):
        held.extend(_claimed(job, job.parts[number], [index for _, index in ends]))
        if sum(map(len, held)) >= ENDS_AT_ONCE:
            yield pa.chunked_array(held, pa.string())
            held = []
    if held:
        yield pa.chunked_array(held, pa.string())


def _taken_keys(
    job: CheckJob, rule: int, role: Role, held: dict[Role, pa.ChunkedArray]
) -> pa.ChunkedArray:
    """All keys of a rule in one role; those that are held already are let go."""
    known = held.pop(role, None)
    if known is not None:
        return known
    found: list[pa.Array] = []
    for part in job.parts:
        claims = enumerate(claims_of(job.plan, part))
        wanted = [index for index, claim in claims if claim.rule == rule and claim.role == role]
        found.extend(_claimed(job, part, wanted))
    return pa.chunked_array(found, pa.string())


def _claimed(job: CheckJob, part: Part, indexes: Sequence[int]) -> Iterator[pa.Array]:
    """The keys that some claims of a part are about."""
    claims = [claims_of(job.plan, part)[index] for index in indexes]
    if claims:
        rows = PartRows(job, part, claims)
        for claim in claims:
            for some in rows.of(claim).to_batches():
                yield claimed_keys(claim, some, job.minted_prefix)[0]
