"""What records claim about each other: the checks that concern more than one of them.

Every such rule is about keys, and how often they are claimed:

=======  ===========================  ============================================================
rule     key                          broken when
=======  ===========================  ============================================================
entity   the id of a node or edge     two records have it; an append meets a committed one; an edge
                                      ends there and nobody has it
unique   the values of a group        two records have them; a record and a committed entity do
degree   the source of an edge        it has too many or too few edges
=======  ===========================  ============================================================

There are two ways to count. Keys of a rule that fit the memory of a worker are held against each
other there, in Arrow, and only broken ones leave it. Beyond that all rules are counted in one
aggregation of Spark over (rule, key), for which workers count their own claims first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.records.envelope import TableType
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.columns import entity_id_column, spell_column
from omnigraph.model.receipts import LoadMode
from omnigraph.model.types import Scalar, ValueType
from omnigraph.pipeline.reading import PieceReader, Reading
from omnigraph.pipeline.sources import Task, type_of
from omnigraph.schema.catalog import Cardinality, Catalog, EdgeType, NodeType
from omnigraph.storage.written import TablePlace, committed_batches, read_written

RuleKind = Literal["entity", "unique", "degree"]
Role = Literal["new", "old", "end", "bad"]
"""A record has the key, a committed entity has it, an edge ends there, a refused record has it."""

_ROLES: tuple[Role, ...] = ("new", "old", "end", "bad")

CLAIMS = "rule int, key string, new long, old long, end long, bad long"
LOCATED = "rule int, key string, role string, piece int, number long, id string, member string"

_TEXT = ValueType(Scalar.STRING)


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that is counted."""

    number: int
    kind: RuleKind
    table_key: str
    """The type whose keys these are."""
    columns: tuple[str, ...] = ()
    """Of a unique group, in the order messages print them."""
    cardinality: Cardinality | None = None
    refuses_existing: bool = False
    """Whether a record may not have the key of a committed entity."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Which columns of a table claim keys of a rule."""

    rule: int
    role: Role
    columns: tuple[str, ...]
    types: tuple[ValueType, ...]
    member: str
    """What messages call it: `Type.column`."""
    skip_minted: bool = False
    """Ids that were minted for this load need no check: nobody else has them."""


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """Every rule of a load, and who has a say in it."""

    rules: tuple[Rule, ...]
    written: Mapping[str, tuple[Claim, ...]]
    """Claims of the records, by type key."""
    committed: Mapping[str, tuple[Claim, ...]]
    """Claims of what the graph has already."""


def plan_checks(
    catalog: Catalog,
    mode: LoadMode,
    written: Sequence[str],
    replaced: Sequence[str],
    is_empty: Callable[[str], bool],
) -> CheckPlan:
    """The rules that records of the types ``written`` can break.

    ``replaced`` are the types that lose their committed rows; ``is_empty`` says which types have
    none. For an upsert this is not enough: there, committed rows are replaced one by one.
    """
    assert mode != "merge"
    return _Planner(catalog, mode, written, replaced, is_empty).plan()


class _Planner:
    def __init__(
        self,
        catalog: Catalog,
        mode: LoadMode,
        written: Sequence[str],
        replaced: Sequence[str],
        is_empty: Callable[[str], bool],
    ) -> None:
        self._catalog = catalog
        self._is_append = mode == "append"
        self._written_keys = set(written)
        self._replaced = set(replaced)
        self._is_empty = is_empty
        self._rules: list[Rule] = []
        self._written: dict[str, list[Claim]] = {}
        self._committed: dict[str, list[Claim]] = {}

    def plan(self) -> CheckPlan:
        nodes = [self._catalog.nodes[name] for name in sorted(self._catalog.nodes)]
        edges = [self._catalog.edges[name] for name in sorted(self._catalog.edges)]
        types: list[TableType] = [*nodes, *edges]
        for type in types:
            self._entities(type, edges if isinstance(type, NodeType) else [])
        for type in types:
            if type.table_key in self._written_keys:
                self._unique(type)
        for edge in edges:
            if edge.table_key in self._written_keys and edge.cardinality != Cardinality():
                rule = self._rule("degree", edge, cardinality=edge.cardinality)
                self._claim(edge, rule, "new", (SRC,))
                self._claim_committed(edge, rule, (SRC,))
        return CheckPlan(
            tuple(self._rules),
            {key: tuple(claims) for key, claims in self._written.items()},
            {key: tuple(claims) for key, claims in self._committed.items()},
        )

    def _entities(self, type: TableType, edges: Iterable[EdgeType]) -> None:
        key = type.table_key
        ends = [
            (edge, column)
            for edge in edges
            for column, node in ((SRC, edge.source), (DST, edge.target))
            if node == type.name and self._may_dangle(edge, key)
        ]
        if key not in self._written_keys and not ends:
            return
        rule = self._rule("entity", type, refuses_existing=self._is_append)
        if key in self._written_keys:
            self._claim(type, rule, "new", (ID,), skip_minted=True)
        self._claim_committed(type, rule, (ID,))
        for edge, column in ends:
            if edge.table_key in self._written_keys:
                self._claim(edge, rule, "end", (column,))
            elif not self._is_empty(edge.table_key):
                self._claim(edge, rule, "end", (column,), committed=True)

    def _may_dangle(self, edge: EdgeType, node_key: str) -> bool:
        """Whether edges of a type may have lost a node: they are new, or nodes were taken away."""
        if edge.table_key in self._written_keys:
            return True
        return node_key in self._replaced and edge.table_key not in self._replaced

    def _unique(self, type: TableType) -> None:
        key = tuple(sorted(type.key)) if isinstance(type, NodeType) else ()
        for columns in sorted({tuple(sorted(group)) for group in type.unique} - {key}):
            rule = self._rule("unique", type, columns=columns, refuses_existing=True)
            self._claim(type, rule, "new", columns)
            self._claim_committed(type, rule, columns)

    def _rule(self, kind: RuleKind, type: TableType, **more: object) -> Rule:
        rule = Rule(len(self._rules), kind, type.table_key, **more)  # type: ignore[arg-type]
        self._rules.append(rule)
        return rule

    def _claim_committed(self, type: TableType, rule: Rule, columns: tuple[str, ...]) -> None:
        if type.table_key not in self._replaced and not self._is_empty(type.table_key):
            self._claim(type, rule, "old", columns, committed=True)

    def _claim(
        self,
        type: TableType,
        rule: Rule,
        role: Role,
        columns: tuple[str, ...],
        *,
        skip_minted: bool = False,
        committed: bool = False,
    ) -> None:
        types = tuple(
            type.properties[name].type if name in type.properties else _TEXT for name in columns
        )
        claims = self._committed if committed else self._written
        claims.setdefault(type.table_key, []).append(
            Claim(rule.number, role, columns, types, f"{type.name}.{columns[0]}", skip_minted)
        )


# --- counting, in workers -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A fragment that the first pass wrote."""

    table_key: str
    place: TablePlace
    fragment: str
    rows: int


@dataclass(frozen=True, slots=True)
class CommittedPart:
    """Some fragments of a committed table."""

    table_key: str
    address: str
    version: int
    fragment_ids: tuple[int, ...]
    rows: int


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
    claims = _claims_of(job.plan, part)
    rows = pa.Table.from_batches(list(_part_batches(job, part, claims)))
    for claim in claims:
        keys, _ = claimed_keys(claim, rows, job.minted_prefix)
        tally = pc.value_counts(keys)
        yield _counted(claim.rule, tally.field("values"), claim.role, tally.field("counts"))


def _refused_claims(job: CheckJob) -> Iterator[pa.RecordBatch]:
    for rule in job.plan.rules:
        ids = job.refused.get(rule.table_key, ()) if rule.kind == "entity" else ()
        if ids:
            ones = pa.array([1] * len(ids), pa.int64())
            yield _counted(rule.number, pa.array(ids, pa.string()), "bad", ones)


def _counted(rule: int, keys: pa.Array, role: Role, counts: pa.Array) -> pa.RecordBatch:
    none = pa.array([0] * len(keys), pa.int64())
    rules = pa.array([rule] * len(keys), pa.int32())
    columns = [counts if role == each else none for each in _ROLES]
    return pa.RecordBatch.from_arrays([rules, keys, *columns], names=["rule", "key", *_ROLES])


def _claims_of(plan: CheckPlan, part: Part) -> tuple[Claim, ...]:
    source = plan.written if isinstance(part, WrittenPart) else plan.committed
    return source.get(part.table_key, ())


def _part_batches(
    job: CheckJob, part: Part, claims: Sequence[Claim], *more: str
) -> Iterator[pa.RecordBatch]:
    columns = sorted({name for claim in claims for name in claim.columns} | set(more))
    options = job.storage_options or None
    if isinstance(part, WrittenPart):
        yield from read_written(part.place, part.fragment, columns, storage_options=options)
    else:
        yield from committed_batches(
            part.address, part.version, part.fragment_ids, columns, storage_options=options
        )


def claimed_keys(
    claim: Claim, rows: pa.Table | pa.RecordBatch, minted_prefix: str
) -> tuple[pa.Array, pa.Array]:
    """The keys rows claim, and which rows they are; those exempt from the rule are left out."""
    members = [
        _spelled(rows[name], type) for name, type in zip(claim.columns, claim.types, strict=True)
    ]
    is_compared = reduce(pc.and_, [member.is_valid() for member in members])
    if claim.skip_minted:
        is_compared = pc.and_(is_compared, pc.invert(pc.starts_with(members[0], minted_prefix)))
    at = pc.indices_nonzero(is_compared)
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
        tasks.append(KeyTask(rule.number))
        ends = [
            number
            for number, part in enumerate(job.parts)
            if any(c.rule == rule.number and c.role == "end" for c in _claims_of(job.plan, part))
        ]
        tasks.extend(
            KeyTask(rule.number, tuple(ends[i::slots])) for i in range(min(slots, len(ends)))
        )
    return tasks


def claims_max(job: CheckJob) -> int:
    """The most keys that any rule has to do with."""
    counts = [0] * len(job.plan.rules)
    for part in job.parts:
        for claim in _claims_of(job.plan, part):
            counts[claim.rule] += part.rows
    return max(counts, default=0)


def check_keys(
    job: CheckJob, tasks: Sequence[KeyTask]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs over the numbers of tasks: broken keys with their counts."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task = tasks[number]
                yield _missing_ends(job, task) if task.ends else _broken_keys(job, task)

    return run


def _broken_keys(job: CheckJob, task: KeyTask) -> pa.RecordBatch:
    """Keys that records have twice, or too often, or that somebody else has."""
    rule = job.plan.rules[task.rule]
    new = pc.value_counts(_all_keys(job, task.rule, "new"))
    keys, counts = new.field("values"), new.field("counts")
    old = pc.value_counts(_all_keys(job, task.rule, "old"))
    at = pc.index_in(keys, value_set=old.field("values"))
    held = pc.fill_null(old.field("counts").take(at), 0)
    if rule.kind == "degree":
        assert rule.cardinality is not None
        total = pc.add(counts, held)
        broken = pc.less(total, rule.cardinality.minimum)
        if rule.cardinality.maximum is not None:
            broken = pc.or_(broken, pc.greater(total, rule.cardinality.maximum))
    else:
        broken = pc.greater(counts, 1)
        if rule.refuses_existing:
            broken = pc.or_(broken, pc.greater(held, 0))
    none = pa.array([0] * pc.sum(broken).as_py() if len(keys) else [], pa.int64())
    return _counts(task.rule, keys.filter(broken), counts.filter(broken), held.filter(broken), none)


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
    ends = pa.chunked_array(
        [
            keys
            for number in task.ends
            for keys in _keys_of_part(job, job.parts[number], task.rule, "end")
        ],
        pa.string(),
    )
    tally = pc.value_counts(ends.filter(pc.invert(pc.is_in(ends, value_set=known))))
    none = pa.array([0] * len(tally), pa.int64())
    return _counts(task.rule, tally.field("values"), none, none, tally.field("counts"))


def _all_keys(job: CheckJob, rule: int, role: Role) -> pa.ChunkedArray:
    parts = [keys for part in job.parts for keys in _keys_of_part(job, part, rule, role)]
    return pa.chunked_array(parts, pa.string())


def _keys_of_part(job: CheckJob, part: Part, rule: int, role: Role) -> Iterator[pa.Array]:
    claims = [c for c in _claims_of(job.plan, part) if c.rule == rule and c.role == role]
    if claims:
        rows = pa.Table.from_batches(list(_part_batches(job, part, claims)))
        for claim in claims:
            yield claimed_keys(claim, rows, job.minted_prefix)[0]


def _counts(
    rule: int, keys: pa.Array, new: pa.Array, old: pa.Array, end: pa.Array
) -> pa.RecordBatch:
    none = pa.array([0] * len(keys), pa.int64())
    rules = pa.array([rule] * len(keys), pa.int32())
    return pa.RecordBatch.from_arrays(
        [rules, keys, new, old, end, none], names=["rule", "key", *_ROLES]
    )


# --- looking for who is to blame, in workers ------------------------------------------------------


def locate_records(
    reading: Reading, plan: CheckPlan, tasks: Sequence[Task]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs over the numbers of tasks: every claim with its record.

    The input is read once more, which only a load pays for that fails.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = PieceReader(reading)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in tasks[number].pieces:
                    for rows, _ in reader.read(piece):
                        yield from located(
                            plan.written.get(rows.type.table_key, ()),
                            rows.rows,
                            reading.minting.prefix,
                            piece.index,
                            rows.numbers,
                        )

    return run


def locate_frame(
    reading: Reading, plan: CheckPlan, table_key: str, name: str, first_piece: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The same for the rows of a frame."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from omnigraph.pipeline.sources import Piece

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        piece = Piece(first_piece + partition, f"{name}[{partition}]", "arrow", table_key)
        reader = PieceReader(reading)
        type = type_of(table_key, reading.catalog)
        for batch in batches:
            rows, _ = reader.table_rows(batch, type, piece)
            claims = plan.written.get(table_key, ())
            yield from located(claims, rows.rows, reading.minting.prefix, piece.index, rows.numbers)

    return run


def locate_committed(
    job: CheckJob,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs over the numbers of committed parts: claims with their entities."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = job.parts[number]
                claims = _claims_of(job.plan, part)
                for rows in _part_batches(job, part, claims, ID):
                    nowhere = pa.array([0] * rows.num_rows, pa.int64())
                    yield from located(claims, rows, job.minted_prefix, -1, nowhere)

    return run


def located(
    claims: Iterable[Claim],
    rows: pa.RecordBatch,
    minted_prefix: str,
    piece: int,
    numbers: pa.Int64Array,
) -> Iterator[pa.RecordBatch]:
    """Every claim of some rows, one row each."""
    for claim in claims:
        keys, at = claimed_keys(claim, rows, minted_prefix)
        count = len(at)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([claim.rule] * count, pa.int32()),
                keys,
                pa.array([claim.role] * count, pa.string()),
                pa.array([piece] * count, pa.int32()),
                numbers.take(at),
                rows[ID].take(at),
                pa.array([claim.member] * count, pa.string()),
            ],
            names=["rule", "key", "role", "piece", "number", "id", "member"],
        )
