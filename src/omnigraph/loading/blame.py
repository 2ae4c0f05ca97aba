"""Who is to blame for keys that break a rule: the claims on them, and what is said about each.

Only a load pays for this that fails. Its input is read once more, unless it was kept aside.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.violations import (
    STRANDED_HINT,
    TOO_FEW_HINT,
    TOO_MANY_HINT,
    MissingNode,
    stranded,
)
from omnigraph.loading.checks import broken_here, broken_keys
from omnigraph.loading.claims import ROLES, Rule
from omnigraph.loading.counting import CheckJob, CommittedPart
from omnigraph.loading.executors import ArrowFunction, TaskRunner, task_batch
from omnigraph.loading.locating import (
    LOCATED,
    LOCATED_SCHEMA,
    NO_PIECE,
    PLACES,
    PLACES_SCHEMA,
    locate_frame,
    locate_parts,
    locate_records,
    record_places,
)
from omnigraph.loading.pieces import InputPlan
from omnigraph.loading.reading import Reading
from omnigraph.loading.record_input import first_of
from omnigraph.loading.record_problems import EXISTING_HINT
from omnigraph.loading.records.problems import Place, Problem
from omnigraph.loading.sources import type_of
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ClaimRow = Mapping[str, Any]
"""A claim on a broken key: its row of `LOCATED`, the counts of the key, and where it is shown."""

_ORDER = ("rule", "key", "piece", "number", "id", "member")
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Located:
    """One claim on a key that breaks a rule."""

    role: str
    piece: int
    """-1 for what is not a record: a committed row, and a row of an upsert."""
    number: int
    entity_id: str
    member: str
    old: int
    new: int
    at: tuple[int, int]
    """The piece and number that stand for it in messages: of an upsert, its first record's."""

    @property
    def is_committed(self) -> bool:
        """Whether no record of the input stands for it."""
        return self.at[0] < 0


# --- claims on broken keys, in the order of rules, keys and records -------------------------------


def claims_on_workers(
    spark: SparkSession, job: CheckJob, reading: Reading, plan: InputPlan
) -> Iterator[ClaimRow]:
    """Every claim on a key that breaks a rule, found by workers."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    found = _upsert_claims(spark, job) if job.records else _claims(spark, job, reading, plan)
    broken = (
        broken_keys(spark, job)
        .groupBy("rule", "key")
        .agg(*(F.sum(role).alias(role) for role in ROLES))
    )
    rows: Iterator[Any] = found.join(broken, ["rule", "key"]).orderBy(*_ORDER).toLocalIterator()
    return rows


def claims_here(
    jobs: TaskRunner, job: CheckJob, reading: Reading, plan: InputPlan
) -> Iterator[ClaimRow]:
    """The same, found by this process; they stay in Arrow, for there may be millions of them."""
    broken = pa.Table.from_batches(broken_here(jobs, job)).group_by(["rule", "key"])
    counts = broken.aggregate([(role, "sum") for role in ROLES])
    counts = counts.rename_columns(["rule", "key", *ROLES])
    keys = pc.unique(counts["key"])
    located = locate_parts(job)
    if job.records:
        found = _chosen(jobs, range(len(job.parts)), located, keys)
        at = _first_places(jobs, job, pc.unique(found["id"]))
        found = found.join(at, ["table", "id"], join_type="left outer")
        for name in ("at_piece", "at_number"):
            at_column = pc.fill_null(found[name], NO_PIECE)
            found = found.set_column(found.schema.get_field_index(name), name, at_column)
    else:
        records = locate_records(reading, job.plan, plan.tasks)
        parts = enumerate(job.parts)
        committed = [number for number, part in parts if isinstance(part, CommittedPart)]
        found = pa.concat_tables(
            [
                _chosen(jobs, range(len(plan.tasks)), records, keys),
                _chosen(jobs, committed, located, keys),
            ]
        )
        found = found.append_column("at_piece", found["piece"])
        found = found.append_column("at_number", found["number"])
    claims = found.join(counts, ["rule", "key"], join_type="inner")
    ordered = claims.sort_by([(name, "ascending") for name in _ORDER])
    return (row for batch in ordered.to_batches(_ROWS_AT_ONCE) for row in batch.to_pylist())


def _first_places(jobs: TaskRunner, job: CheckJob, ids: pa.Array) -> pa.Table:
    """Of an upsert, where the first record of an entity is, by type key and id."""
    numbers = range(len(job.records))
    found = _chosen(jobs, numbers, record_places(job), ids, column="id", schema=PLACES_SCHEMA)
    in_order = found.sort_by([("piece", "ascending"), ("number", "ascending")])
    first = in_order.group_by(["table", "id"], use_threads=False).aggregate(
        [("piece", "first"), ("number", "first")]
    )
    return first.rename_columns(["table", "id", "at_piece", "at_number"])


def _chosen(
    jobs: TaskRunner,
    numbers: Sequence[int],
    work: ArrowFunction,
    values: pa.Array,
    *,
    column: str = "key",
    schema: pa.Schema = LOCATED_SCHEMA,
) -> pa.Table:
    """The rows that some work gives and whose column has one of the values."""

    def run(number: int) -> list[pa.RecordBatch]:
        return [
            batch.filter(pc.is_in(batch[column], value_set=values))
            for batch in work(task_batch(number))
        ]

    found = jobs.map_threads("check", numbers, run)
    return pa.Table.from_batches([batch for batches in found for batch in batches], schema)


def _claims(spark: SparkSession, job: CheckJob, reading: Reading, plan: InputPlan) -> DataFrame:
    """Every claim of the input, which is read once more, and of the graph."""
    from pyspark.sql import functions as F  # noqa: N812

    sources: list[DataFrame] = []
    if plan.tasks:
        numbers = spark.range(0, len(plan.tasks), 1, len(plan.tasks))
        sources.append(numbers.mapInArrow(locate_records(reading, job.plan, plan.tasks), LOCATED))
    first = plan.first_frame
    for source in plan.frames:
        located = locate_frame(reading, job.plan, source.table_key, source.name, first)
        sources.append(source.frame.mapInArrow(located, LOCATED))
        first += source.frame.rdd.getNumPartitions()
    committed = [number for number, part in enumerate(job.parts) if isinstance(part, CommittedPart)]
    if committed:
        numbers = spark.range(0, len(job.parts), 1, len(job.parts))
        wanted = numbers.filter(F.col("id").isin(committed))
        sources.append(wanted.mapInArrow(locate_parts(job), LOCATED))
    found = sources[0]
    for more in sources[1:]:
        found = found.union(more)
    return found.withColumn("at_piece", F.col("piece")).withColumn("at_number", F.col("number"))


def _upsert_claims(spark: SparkSession, job: CheckJob) -> DataFrame:
    """Every claim of what an upsert read, what it wrote, and what stays in the graph."""
    from pyspark.sql import functions as F  # noqa: N812

    parts, records = len(job.parts), len(job.records)
    claims = spark.range(0, parts, 1, parts).mapInArrow(locate_parts(job), LOCATED)
    places = (
        spark.range(0, records, 1, records)
        .mapInArrow(record_places(job), PLACES)
        .groupBy("table", "id")
        .agg(F.min(F.struct("piece", "number")).alias("at"))
        .select(
            "table",
            "id",
            F.col("at.piece").alias("at_piece"),
            F.col("at.number").alias("at_number"),
        )
    )
    return claims.join(places, ["table", "id"], "left").na.fill(-1, ["at_piece", "at_number"])


# --- what is said ---------------------------------------------------------------------------------


def explained(
    claims: Iterable[ClaimRow],
    job: CheckJob,
    catalog: Catalog,
    place_of: Callable[[int, int], Place],
) -> Iterator[Problem]:
    """Every problem that claims on broken keys stand for, rule by rule and key by key.

    ``place_of`` gives the place of a record by its piece and its number within it.
    """
    explainers = (
        (_Explainer(job.plan.rules[number], key, catalog, place_of), list(map(_located, rows)))
        for (number, key), rows in groupby(claims, key=lambda row: (row["rule"], row["key"]))
    )
    for rule, of_rule in groupby(explainers, key=lambda each: each[0].rule):
        if rule.kind == "unique" and rule.has_raw:
            yield from _first_clashes(of_rule)
        else:
            for explainer, of_key in of_rule:
                yield from explainer.problems(of_key)


def _first_clashes(
    broken: Iterable[tuple[_Explainer, Sequence[Located]]],
) -> Iterator[Problem]:
    """One problem for each entity, although several of its records may clash with others."""
    first: dict[str, tuple[tuple[int, int], Problem]] = {}
    for explainer, claims in broken:
        for order, problem in explainer.clashes(claims):
            assert problem.entity_id is not None
            known = first.get(problem.entity_id)
            if known is None or order < known[0]:
                first[problem.entity_id] = (order, problem)
    yield from (problem for _, problem in first.values())


def _located(row: Any) -> Located:
    return Located(
        row["role"],
        row["piece"],
        row["number"],
        row["id"],
        row["member"],
        row["old"],
        row["new"],
        (row["at_piece"], row["at_number"]),
    )


def _once_each(ends: Sequence[Located]) -> Iterator[Located]:
    """The edges that lack a node; one that stays and starts and ends there lacks it once."""
    seen: set[tuple[str, str]] = set()
    for end in sorted(ends, key=lambda end: end.member, reverse=True):
        edge = (end.member.partition(".")[0], end.entity_id)
        if not end.is_committed or edge not in seen:
            yield end
        seen.add(edge)


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
        self.rule = rule
        self._key = key
        self._type = type_of(rule.table_key, catalog)
        self._place_of = place_of

    def problems(self, claims: Sequence[Located]) -> Iterator[Problem]:
        """What is said about the key; ``claims`` come in the order of the input."""
        records = [claim for claim in claims if claim.role == "new"]
        if self.rule.kind == "degree":
            yield self._degree(claims)
        elif self.rule.kind == "unique":
            yield from self._taken(records, [claim for claim in claims if claim.role == "old"])
        else:
            yield from self._entity(records, claims)

    def _entity(self, records: Sequence[Located], claims: Sequence[Located]) -> Iterator[Problem]:
        ends = [claim for claim in claims if claim.role == "end"]
        is_known = bool(records) or any(claim.role == "old" for claim in claims)
        if ends and not is_known:
            yield from map(self._dangling, _once_each(ends))
        given = [claim for claim in claims if claim.role == "raw"] or records
        if len(given) > 1:
            yield self._repeated(given)
        elif records and self.rule.refuses_existing and records[0].old:
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
        message = f"{column} '{self._key}' not found in {self._type.name}"
        hint = "add the node, or leave out the edge"
        if end.is_committed:
            node = MissingNode(column, self._type.name, self._key)
            message, hint = stranded(edge, end.entity_id, node), STRANDED_HINT
        return self._problem(
            "missing_node",
            message,
            end,
            hint,
            type_name=edge,
            member=column,
        )

    def _repeated(self, given: Sequence[Located]) -> Problem:
        first, second = given[:2]
        earlier = first_of(self._place_of(first.piece, first.number), len(given))
        second = replace(second, at=(second.piece, second.number))
        if isinstance(self._type, NodeType) and self._type.key:
            names = sorted(self._type.key)
            return self._problem(
                "repeated_key",
                f"@unique violation on {self._type.name}.{listed(names)}: value"
                f" '{self._shown(self._type.key, names)}' held by '{self._key}' and '{self._key}'",
                second,
                earlier,
            )
        kind = "node" if isinstance(self._type, NodeType) else "edge"
        return self._problem(
            "repeated_id",
            f"{kind} {self._type.name} repeats id '{self._key}'",
            second,
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
            yield self._clash(by_id[0].entity_id if holder is None else holder, claim)

    def clashes(self, claims: Sequence[Located]) -> Iterator[tuple[tuple[int, int], Problem]]:
        """The same where records repeat each other: within the input, the first one holds.

        Problems come with the order in which they count; those with the graph count last.
        """
        given = [claim for claim in claims if claim.role == "raw"]
        for claim in given[1:]:
            yield (claim.piece, claim.number), self._clash(given[0].entity_id, claim)
        holders = [claim for claim in claims if claim.role == "old"]
        if holders:
            records = [claim for claim in claims if claim.role == "new"]
            for problem in self._taken(records, holders):
                yield (sys.maxsize, 0), problem

    def _clash(self, holder: str, claim: Located) -> Problem:
        columns = self.rule.columns
        return self._problem(
            "unique",
            f"@unique violation on {self._type.name}.{listed(columns)}: value"
            f" '{self._shown(columns, columns)}' held by '{holder}' and '{claim.entity_id}'",
            claim,
            "no two entities may have the same values",
            member=columns[0] if len(columns) == 1 else None,
        )

    def _degree(self, claims: Sequence[Located]) -> Problem:
        limits = self.rule.cardinality
        assert limits is not None
        count = claims[0].new + claims[0].old
        too_few = count < limits.minimum
        bound = f"min {limits.minimum}" if too_few else f"max {limits.maximum}"
        message = f"source '{self._key}' has {count} edges ({bound})"
        written = [claim.at for claim in claims if claim.role == "new" and not claim.is_committed]
        return Problem(
            "cardinality",
            f"@card violation on edge {self._type.name}: {message}",
            self._place_of(*min(written)) if written else None,
            self._type.name,
            hint=TOO_FEW_HINT if too_few else TOO_MANY_HINT,
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
        return None if claim.is_committed else self._place_of(*claim.at)
