"""The second pass of a load: which keys break a rule, of all claims at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.loading.claims import ROLES, Rule
from omnigraph.loading.counting import CLAIMS, CheckJob, claims_max, count_claims
from omnigraph.loading.executors import TaskRunner
from omnigraph.loading.keys import check_shares, count_in_shares, shares_of, whole_rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


KEYS_MAX = 16_000_000
"""Keys of one rule that one worker holds, at about 60 bytes each with what finds them."""


def broken_here(jobs: TaskRunner, job: CheckJob) -> list[pa.RecordBatch]:
    """Every key that breaks a rule, with its counts, found by this process."""
    shares = whole_rules(job)
    return jobs.thread_batches("check", len(shares), check_shares(job, shares))


def count_broken(jobs: TaskRunner, job: CheckJob) -> int:
    """How many keys break a rule, found by workers."""
    label = f"{len(job.parts)} parts"
    if claims_max(job) > KEYS_MAX:
        return jobs.run("check", label, lambda: broken_keys(jobs.spark, job).count())
    shares = shares_of(job, jobs.slots)
    return sum(jobs.map_workers("check", label, len(shares), count_in_shares(job, shares)))


def broken_keys(spark: SparkSession, job: CheckJob) -> DataFrame:
    """Every key that breaks a rule, with its counts; evaluated when somebody asks."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    if claims_max(job) <= KEYS_MAX:
        shares = shares_of(job, spark.sparkContext.defaultParallelism)
        numbers = spark.range(0, len(shares), 1, len(shares))
        return numbers.mapInArrow(check_shares(job, shares), CLAIMS)
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
