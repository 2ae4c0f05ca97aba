"""The second pass of a load: which keys break a rule, of all claims at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.pipeline.claims import ROLES, Rule
from omnigraph.pipeline.counting import (
    CLAIMS,
    CheckJob,
    check_keys,
    claims_max,
    count_claims,
    count_keys,
    key_tasks,
)
from omnigraph.pipeline.jobs import Jobs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


KEYS_MAX = 16_000_000
"""Keys of one rule that one worker holds, at about 60 bytes each with what finds them."""

KEYS_FEW = 100_000
"""Keys up to which a worker checks one rule after another."""


def broken_here(jobs: Jobs, job: CheckJob) -> list[pa.RecordBatch]:
    """Every key that breaks a rule, with its counts, found by this process."""
    # Ends are looked for by a join, which takes all cores by itself.
    tasks = key_tasks(job, slots=1)
    return jobs.batches_here("check", len(tasks), check_keys(job, tasks))


def count_broken(jobs: Jobs, job: CheckJob) -> int:
    """How many keys break a rule, found by workers."""
    label = f"{len(job.parts)} parts"
    if claims_max(job) > KEYS_MAX:
        return jobs.run("check", label, lambda: broken_keys(jobs.spark, job).count())
    tasks = key_tasks(job, jobs.slots)
    return sum(jobs.each_on_workers("check", label, len(tasks), count_keys(job, tasks)))


def broken_keys(spark: SparkSession, job: CheckJob) -> DataFrame:
    """Every key that breaks a rule, with its counts; evaluated when somebody asks."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    keys = claims_max(job)
    if keys <= KEYS_MAX:
        slots = spark.sparkContext.defaultParallelism
        tasks = key_tasks(job, slots)
        # Few keys are checked sooner than a task is started.
        partitions = min(len(tasks), slots) if keys <= KEYS_FEW else len(tasks)
        numbers = spark.range(0, len(tasks), 1, partitions)
        return numbers.mapInArrow(check_keys(job, tasks), CLAIMS)
    parts = len(job.parts) + 1
    claims = spark.range(0, parts, 1, parts).mapInArrow(count_claims(job), CLAIMS)
    counted = claims.groupBy("rule", "key").agg(*(F.sum(role).alias(role) for role in ROLES))
    broken: Column = F.lit(False)
    for rule in job.plan.rules:
        broken = broken | ((F.col("rule") == rule.number) & F.expr(_broken(rule)))
    return counted.filter(broken)


def _broken(rule: Rule) -> str:
    if rule.kind == "degree":
        assert rule.cardinality is not None
        low, high = rule.cardinality.minimum, rule.cardinality.maximum
        too_many = "false" if high is None else f"new + old > {high}"
        return f"new + was > 0 and (new + old < {low} or {too_many})"
    is_taken = "new > 1 or raw > 1"
    if rule.refuses_existing:
        is_taken += " or (new > 0 and old > 0)"
    if rule.kind == "unique":
        return is_taken
    return f"({is_taken} or (end > 0 and new + old + bad = 0))"
