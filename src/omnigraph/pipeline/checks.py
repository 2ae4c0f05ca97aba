"""The second pass of a load, on the driver: count all claims at once, explain what is broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from omnigraph.commit.load_problems import EXISTING_HINT
from omnigraph.commit.records.problems import Place, Problem
from omnigraph.pipeline.claims import (
    CLAIMS,
    LOCATED,
    CheckJob,
    CommittedPart,
    Rule,
    check_keys,
    claims_max,
    count_claims,
    key_tasks,
    locate_committed,
    locate_frame,
    locate_records,
)
from omnigraph.pipeline.reading import Reading
from omnigraph.pipeline.sources import Plan, type_of
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


KEYS_MAX = 16_000_000
"""Keys of one rule that one worker holds, at about 60 bytes each with what finds them."""


@dataclass(frozen=True, slots=True)
class Located:
    """One claim on a key that breaks a rule."""

    role: str
    piece: int
    """-1 for a committed entity."""
    number: int
    entity_id: str
    member: str
    old: int
    new: int


def broken_keys(spark: SparkSession, job: CheckJob) -> DataFrame:
    """Every key that breaks a rule, with its counts; evaluated when somebody asks."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    if claims_max(job) <= KEYS_MAX:
        tasks = key_tasks(job, spark.sparkContext.defaultParallelism)
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        return numbers.mapInArrow(check_keys(job, tasks), CLAIMS)
    parts = len(job.parts) + 1
    claims = spark.range(0, parts, 1, parts).mapInArrow(count_claims(job), CLAIMS)
    counted = claims.groupBy("rule", "key").agg(
        *(F.sum(role).alias(role) for role in ("new", "old", "end", "bad"))
    )
    broken: Column = F.lit(False)
    for rule in job.plan.rules:
        broken = broken | ((F.col("rule") == rule.number) & F.expr(_broken(rule)))
    return counted.filter(broken)


def _broken(rule: Rule) -> str:
    if rule.kind == "degree":
        assert rule.cardinality is not None
        low, high = rule.cardinality.minimum, rule.cardinality.maximum
        too_many = "false" if high is None else f"new + old > {high}"
        return f"new > 0 and (new + old < {low} or {too_many})"
    is_taken = "new > 1" + (" or (new > 0 and old > 0)" if rule.refuses_existing else "")
    if rule.kind == "unique":
        return is_taken
    return f"({is_taken} or (end > 0 and new + old + bad = 0))"


def explain(
    spark: SparkSession,
    job: CheckJob,
    reading: Reading,
    plan: Plan,
    place_of: Callable[[int, int], Place],
) -> Iterator[Problem]:
    """Every problem that ``broken_keys`` stands for, rule by rule and key by key.

    ``place_of`` gives the place of a record by its piece and its number within it.
    """
    from pyspark.sql import functions as F  # noqa: N812

    committed = [number for number, part in enumerate(job.parts) if isinstance(part, CommittedPart)]
    sources: list[DataFrame] = []
    if plan.tasks:
        tasks = len(plan.tasks)
        numbers = spark.range(0, tasks, 1, tasks)
        sources.append(numbers.mapInArrow(locate_records(reading, job.plan, plan.tasks), LOCATED))
    first = plan.first_frame
    for source in plan.frames:
        located = locate_frame(reading, job.plan, source.table_key, source.name, first)
        sources.append(source.frame.mapInArrow(located, LOCATED))
        first += source.frame.rdd.getNumPartitions()
    if committed:
        numbers = spark.range(0, len(job.parts), 1, len(job.parts))
        wanted = numbers.filter(F.col("id").isin(committed))
        sources.append(wanted.mapInArrow(locate_committed(job), LOCATED))
    found = sources[0]
    for more in sources[1:]:
        found = found.union(more)
    broken = (
        broken_keys(spark, job)
        .groupBy("rule", "key")
        .agg(*(F.sum(role).alias(role) for role in ("new", "old", "end", "bad")))
    )
    joined = found.join(broken, ["rule", "key"]).orderBy(
        "rule", "key", "piece", "number", "id", "member"
    )
    rows = joined.toLocalIterator()
    catalog = reading.catalog
    for (number, key), group in groupby(rows, key=lambda row: (row["rule"], row["key"])):
        rule = job.plan.rules[number]
        claims = [_located(row) for row in group]
        yield from _Explainer(rule, key, catalog, place_of).problems(claims)


def _located(row: Any) -> Located:
    return Located(
        row["role"], row["piece"], row["number"], row["id"], row["member"], row["old"], row["new"]
    )


def listed(parts: Sequence[str]) -> str:
    """Names or values as messages show them: several in brackets."""
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


class _Explainer:
    """The problems of one key that breaks one rule."""

    def __init__(
        self,
        rule: Rule,
        key: str,
        catalog: Catalog,
        place_of: Callable[[int, int], Place],
    ) -> None:
        self._rule = rule
        self._key = key
        self._type = type_of(rule.table_key, catalog)
        self._place_of = place_of

    def problems(self, claims: Sequence[Located]) -> Iterator[Problem]:
        """What is said about the key; ``claims`` come in the order of the input."""
        records = [claim for claim in claims if claim.role == "new" and claim.piece >= 0]
        if self._rule.kind == "degree":
            yield self._degree(claims[0].new + claims[0].old)
        elif self._rule.kind == "unique":
            yield from self._taken(records, [claim for claim in claims if claim.piece < 0])
        else:
            yield from self._entity(records, claims)

    def _entity(self, records: Sequence[Located], claims: Sequence[Located]) -> Iterator[Problem]:
        ends = [claim for claim in claims if claim.role == "end"]
        is_known = bool(records) or any(claim.role == "old" for claim in claims)
        if ends and not is_known:
            yield from map(self._dangling, ends)
        if len(records) > 1:
            yield self._repeated(records[0], records[-1])
        elif records and self._rule.refuses_existing and records[0].old:
            kind = "edge" if isinstance(self._type, EdgeType) else "node"
            yield self._problem(
                "existing_id",
                f"{kind} {self._type.name} '{self._key}' already exists",
                records[0],
                EXISTING_HINT,
                member="id",
            )

    def _dangling(self, end: Located) -> Problem:
        edge, _, column = end.member.partition(".")
        return self._problem(
            "missing_node",
            f"{column} '{self._key}' not found in {self._type.name}",
            end,
            "add the node, or leave out the edge",
            type_name=edge,
            member=column,
        )

    def _repeated(self, first: Located, last: Located) -> Problem:
        earlier = f"the first record with it is {self._at(first)}"
        if isinstance(self._type, NodeType) and self._type.key:
            names = sorted(self._type.key)
            return self._problem(
                "repeated_key",
                f"@unique violation on {self._type.name}.{listed(names)}: value"
                f" '{self._shown(self._type.key, names)}' held by '{self._key}' and '{self._key}'",
                last,
                earlier,
            )
        kind = "node" if isinstance(self._type, NodeType) else "edge"
        return self._problem(
            "repeated_id",
            f"{kind} {self._type.name} repeats id '{self._key}'",
            last,
            f"{earlier}; mode merge takes the last one",
            member="id",
        )

    def _taken(self, records: Sequence[Located], holders: Sequence[Located]) -> Iterator[Problem]:
        """Records whose values somebody holds: whoever was there before, or the first by id."""
        by_id = sorted(records, key=lambda claim: (claim.entity_id, claim.piece, claim.number))
        # An entity that the write itself replaces, or that it meets again, holds nothing.
        written = {claim.entity_id for claim in records}
        before = [claim.entity_id for claim in holders if claim.entity_id not in written]
        holder = min(before, default=None)
        for claim in by_id if holder is not None else by_id[1:]:
            other = by_id[0].entity_id if holder is None else holder
            columns = self._rule.columns
            yield self._problem(
                "unique",
                f"@unique violation on {self._type.name}.{listed(columns)}: value"
                f" '{self._shown(columns, columns)}' held by '{other}' and '{claim.entity_id}'",
                claim,
                "no two entities may have the same values",
                member=columns[0] if len(columns) == 1 else None,
            )

    def _degree(self, count: int) -> Problem:
        limits = self._rule.cardinality
        assert limits is not None
        bound = f"min {limits.minimum}" if count < limits.minimum else f"max {limits.maximum}"
        message = f"source '{self._key}' has {count} edges ({bound})"
        return Problem(
            "cardinality",
            f"@card violation on edge {self._type.name}: {message}",
            None,
            self._type.name,
            entity_id=self._key,
        )

    def _shown(self, order: Sequence[str], names: Sequence[str]) -> str:
        """The values of the key, in the order of ``names``; they are spelled in it already."""
        if len(order) == 1:
            return self._key
        values = dict(zip(order, json.loads(self._key), strict=True))
        return listed([values[name] for name in names])

    def _problem(
        self,
        kind: Any,
        message: str,
        claim: Located,
        hint: str,
        *,
        member: str | None = None,
        type_name: str | None = None,
    ) -> Problem:
        return Problem(
            kind,
            message,
            self._at(claim),
            type_name or self._type.name,
            member,
            hint,
            claim.entity_id,
        )

    def _at(self, claim: Located) -> Place | None:
        return None if claim.piece < 0 else self._place_of(claim.piece, claim.number)
