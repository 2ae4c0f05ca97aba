"""Finding keys that break a rule: in tasks that hold all keys of a rule, or by a Spark aggregation.

Keys that fit into one process are checked by `commit.validation.evaluation`. If a rule has more,
tasks count the keys of each part, Spark sums the counts in one aggregation over all rules, and the
constraints are evaluated on the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.constraints import ROLES, Role
from omnigraph.commit.validation.evaluation import broken_keys, count_batch, missing_ends
from omnigraph.errors import InputError
from omnigraph.loading.check_plan import (
    CheckJob,
    CheckPlan,
    KeyRule,
    Part,
    PartRows,
    columns_of,
    keys_by_rule,
    keys_max,
    rule_keys,
)
from omnigraph.loading.executors import (
    ArrowFunction,
    TaskRunner,
    mapped,
    mapped_tasks,
    task_numbers,
)
from omnigraph.model.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS_MAX = 16_000_000
"""The most keys of one rule in one worker, at about 60 bytes each with their index."""

PROCESS_KEYS_MAX = 64_000_000
"""The same for this process."""

ENDS_AT_ONCE = 8_000_000
"""Ends of edges that one lookup takes, at about 30 bytes each."""

COUNTS = pa.schema(
    [("rule", pa.int32()), ("key", pa.string()), *((role, pa.int64()) for role in ROLES)]
)
"""Keys with their number of rows by role."""

_START = 300_000
_PER_KEY_HELD = 1.0
_PER_KEY_COUNTED = 1.0
"""Costs of starting a share, holding a key and counting a key, relative to looking up one end of an
edge."""


# --- broken keys ----------------------------------------------------------------------------------


def count_broken(runner: TaskRunner, job: CheckJob) -> int:
    """The number of keys that break a rule."""
    if runner.uses_threads:
        if (keys := keys_max(job)) > PROCESS_KEYS_MAX:
            raise InputError(
                f"{keys:,} keys have to be held against each other, more than one process can hold",
                hint="load with the engine spark",
            )
        return sum(batch.num_rows for batch in broken_by_threads(runner, job))
    label = f"{len(job.parts)} parts"
    if keys_max(job) > KEYS_MAX:
        return runner.run("check", label, lambda: broken_by_workers(runner.spark, job).count())
    shares = shares_of(job, runner.slots)
    return sum(runner.map_workers("check", label, len(shares), count_in_shares(job, shares)))


def broken_by_threads(runner: TaskRunner, job: CheckJob) -> list[pa.RecordBatch]:
    """Every key that breaks a rule, with its counts, found by threads of this process."""
    shares = whole_rules(job)
    return runner.thread_batches("check", len(shares), check_shares(job, shares))


def broken_by_workers(spark: SparkSession, job: CheckJob) -> DataFrame:
    """Every key that breaks a rule, with its counts; evaluated when it is used."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    if keys_max(job) <= KEYS_MAX:
        shares = shares_of(job, spark.sparkContext.defaultParallelism)
        return mapped_tasks(spark, len(shares), check_shares(job, shares), COUNTS)
    counts = mapped_tasks(spark, len(job.parts) + 1, count_keys(job), COUNTS)
    sums = counts.groupBy("rule", "key").agg(*(F.sum(role).alias(role) for role in ROLES))
    return mapped(sums, keep_broken(job.plan), COUNTS)


def keep_broken(plan: CheckPlan) -> ArrowFunction:
    """The function Spark runs over summed counts: keeps the keys that break their rule."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in pc.unique(batch["rule"]).to_pylist():
                own = batch.filter(pc.equal(batch["rule"], number))
                found = [each.broken(own) for each in plan.rules[number].constraints]
                yield own.filter(reduce(pc.or_, found))

    return run


def count_keys(job: CheckJob) -> ArrowFunction:
    """The function Spark runs over part numbers; the number after the last one is ``refused``."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_numbers(batches):
            if number == len(job.parts):
                yield from _refused_counts(job)
            else:
                yield from _part_counts(job, job.parts[number])

    return run


def _part_counts(job: CheckJob, part: Part) -> Iterator[pa.RecordBatch]:
    several = columns_of(job.plan, part)
    rows = PartRows(job, part, several)
    for fed in several:
        keys, _ = rule_keys(fed, rows.of(fed), job.minted_prefix)
        counts = pc.value_counts(keys)
        yield _of_rule(
            fed.rule, count_batch(counts.field("values"), {fed.of.role: counts.field("counts")})
        )


def _refused_counts(job: CheckJob) -> Iterator[pa.RecordBatch]:
    for rule in job.plan.rules:
        ids = job.refused.get(rule.table_key, ()) if rule.endpoint is not None else ()
        if ids:
            ones = pa.array([1] * len(ids), pa.int64())
            yield _of_rule(rule.number, count_batch(pa.array(ids, pa.string()), {"refused": ones}))


def _of_rule(rule: int, counts: pa.RecordBatch) -> pa.RecordBatch:
    """Counts as rows of `COUNTS`."""
    rules = pa.repeat(pa.scalar(rule, pa.int32()), counts.num_rows)
    names = ["rule", *counts.schema.names]
    return pa.RecordBatch.from_arrays([rules, *counts.columns], names=names)


# --- shares of the work ---------------------------------------------------------------------------

End = tuple[int, int]
"""Ends of the edges of a part: its number, and the index of the column in `columns_of`."""


@dataclass(frozen=True, slots=True)
class KeyTask:
    """Check the keys of one rule, or look up ends of edges among them."""

    rule: int
    ends: tuple[End, ...] = ()
    """The ends to look up; none to check the keys themselves."""


Share = tuple[KeyTask, ...]
"""The tasks of one worker, grouped by rule."""


def whole_rules(job: CheckJob) -> list[Share]:
    """All checks, for threads, which share memory: one share per rule, one for its ends.

    Ends are not split further: the join uses all cores by itself.
    """
    shares: list[Share] = []
    for rule in job.plan.rules:
        if rule.constraint is not None:
            shares.append((KeyTask(rule.number),))
        ends = tuple(end for end, _ in _ends_at(job, rule.number))
        if ends:
            shares.append((KeyTask(rule.number, ends),))
    return shares


def shares_of(job: CheckJob, slots: int) -> list[Share]:
    """All checks, balanced over ``slots`` workers.

    A worker has to hold all keys of a rule to look up ends, so each gets as few rules as possible.
    """
    keys = keys_by_rule(job)
    work: list[tuple[float, KeyTask]] = []
    for rule in job.plan.rules:
        if rule.constraint is not None:
            work.append((_PER_KEY_COUNTED * keys[rule.number], KeyTask(rule.number)))
        for end, rows in _ends_at(job, rule.number):
            work.append((rows, KeyTask(rule.number, (end,))))
    workers = [_WorkerTasks() for _ in range(slots)]
    # Greedy, the largest first.
    for weight, task in sorted(work, key=itemgetter(0), reverse=True):
        key_cost = _PER_KEY_HELD * keys[task.rule]
        idlest = min(workers, key=lambda each: each.weight_with(task, key_cost) + each.start)
        idlest.take(task, weight, key_cost)
    return [each.share() for each in workers if each.tasks]


@dataclass(slots=True)
class _WorkerTasks:
    """The tasks assigned to one worker so far."""

    weight: float = 0.0
    tasks: list[KeyTask] = field(default_factory=list)
    rules: set[int] = field(default_factory=set)

    @property
    def start(self) -> float:
        """The cost of its first task."""
        return 0.0 if self.tasks else _START

    def weight_with(self, task: KeyTask, key_cost: float) -> float:
        """Its cost, plus that of holding the keys of a task's rule if they are new to it."""
        return self.weight if task.rule in self.rules else self.weight + key_cost

    def take(self, task: KeyTask, weight: float, key_cost: float) -> None:
        """Assign a task."""
        self.weight = self.weight_with(task, key_cost) + weight
        self.tasks.append(task)
        self.rules.add(task.rule)

    def share(self) -> Share:
        """The tasks, with one lookup of all ends for each rule."""
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
    """The edges that end at keys of a rule, and their number of rows."""
    for number, part in enumerate(job.parts):
        for index, fed in enumerate(columns_of(job.plan, part)):
            if fed.rule == rule and fed.of.role == "endpoint":
                yield (number, index), part.rows


# --- in tasks -------------------------------------------------------------------------------------


def check_shares(job: CheckJob, shares: Sequence[Share]) -> ArrowFunction:
    """The function Spark runs over share numbers: broken keys with their counts."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_numbers(batches):
            yield from _broken(job, shares[number])

    return run


def count_in_shares(job: CheckJob, shares: Sequence[Share]) -> Callable[[int], int]:
    """The function that counts the broken keys of one share."""
    return lambda number: sum(batch.num_rows for batch in _broken(job, shares[number]))


_COUNTED: tuple[Role, ...] = ("written", "record", "replaced", "committed")
_THERE: tuple[Role, ...] = ("written", "committed")
"""The roles of nodes that exist after the load, so that an edge may end at them."""


def _broken(job: CheckJob, share: Share) -> Iterator[pa.RecordBatch]:
    for number, tasks in groupby(share, key=lambda task: task.rule):
        rule = job.plan.rules[number]
        # Keys are read once for all tasks of a rule.
        cache: dict[Role, pa.ChunkedArray] = {}
        for task in tasks:
            if task.ends:
                found = _missing_ends(job, rule, task, cache)
            else:
                assert rule.constraint is not None
                keys = {role: _role_keys(job, number, role, cache) for role in _COUNTED}
                found = broken_keys(rule.constraint, keys)
            yield _of_rule(number, found)


def _missing_ends(
    job: CheckJob, rule: KeyRule, task: KeyTask, cache: dict[Role, pa.ChunkedArray]
) -> pa.RecordBatch:
    assert rule.endpoint is not None
    for role in _THERE:
        cache[role] = _role_keys(job, rule.number, role, cache)
    refused = pa.array(job.refused.get(rule.table_key, ()), pa.string())
    known = [*(keys for role in _THERE for keys in cache[role].chunks), refused]
    return missing_ends(rule.endpoint, _ends(job, task), pa.chunked_array(known, pa.string()))


def _ends(job: CheckJob, task: KeyTask) -> Iterator[pa.ChunkedArray]:
    """The keys at which edges end, about `ENDS_AT_ONCE` at a time."""
    keys: list[pa.Array] = []
    for number, ends in groupby(task.ends, key=itemgetter(0)):
        keys.extend(_part_keys(job, job.parts[number], [index for _, index in ends]))
        if sum(map(len, keys)) >= ENDS_AT_ONCE:
            yield pa.chunked_array(keys, pa.string())
            keys = []
    if keys:
        yield pa.chunked_array(keys, pa.string())


def _role_keys(
    job: CheckJob, rule: int, role: Role, cache: dict[Role, pa.ChunkedArray]
) -> pa.ChunkedArray:
    """All keys of a rule in one role, taken out of the cache if they are there."""
    known = cache.pop(role, None)
    if known is not None:
        return known
    found: list[pa.Array] = []
    for part in job.parts:
        several = enumerate(columns_of(job.plan, part))
        wanted = [i for i, fed in several if fed.rule == rule and fed.of.role == role]
        found.extend(_part_keys(job, part, wanted))
    return pa.chunked_array(found, pa.string())


def _part_keys(job: CheckJob, part: Part, indexes: Sequence[int]) -> Iterator[pa.Array]:
    """The keys of the rows of a part, by some of its `columns_of`."""
    several = [columns_of(job.plan, part)[index] for index in indexes]
    if several:
        rows = PartRows(job, part, several)
        for fed in several:
            for some in rows.of(fed).to_batches():
                yield rule_keys(fed, some, job.minted_prefix)[0]
