"""Planning the multi-row checks of a bulk load: which columns feed which constraint.

Tasks read only these columns, part by part, from written and committed fragments. Ids are read once
for two constraints: that they are unique, and that the nodes at the ends of edges exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.constraints import (
    Endpoint,
    KeyConstraint,
    Role,
    degree,
    identity,
    unique_groups,
    unsettled_ends,
)
from omnigraph.commit.validation.evaluation import KeyColumns, keys_of
from omnigraph.model.arrow import ID, SRC
from omnigraph.model.receipts import LoadMode
from omnigraph.model.records import dataclass
from omnigraph.model.references import UNRESOLVED
from omnigraph.model.types import ROW_ADDRESS
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, TableType
from omnigraph.storage.written import (
    OFFSET,
    Deletions,
    TablePlace,
    committed_batches,
    fragment_rows,
    read_stretches,
    read_written,
)


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The constraints on one kind of keys: ids of a type, unique values, or sources of edges."""

    number: int
    table_key: str
    """The type that has the keys."""
    constraint: KeyConstraint | None
    """A constraint on the keys themselves; None if the load cannot break it."""
    endpoint: Endpoint | None = None
    """The constraint that edges end at these keys only."""

    @property
    def constraints(self) -> tuple[KeyConstraint, ...]:
        """``constraint`` and ``endpoint``, without None."""
        return tuple(each for each in (self.endpoint, self.constraint) if each is not None)


@dataclass(frozen=True, slots=True)
class RuleColumns:
    """The columns of a table that feed a rule."""

    rule: int
    of: KeyColumns
    skips_minted: bool = False
    """Whether minted ids are left out: no other row has them."""


_ByType = Mapping[str, tuple[RuleColumns, ...]]


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """Every rule of a load, and by type key the columns that feed it."""

    rules: tuple[KeyRule, ...]
    written: _ByType
    """Columns of the rows that the load writes."""
    committed: _ByType
    """Columns of committed rows."""
    records: _ByType = field(default_factory=dict)
    """Columns of the records as read, with several of the same id."""


@dataclass(slots=True)
class ChecksPlanner:
    """Plans the checks of all constraints that rows of the types ``written`` can break."""

    catalog: Catalog
    mode: LoadMode
    written: Set[str]
    replaced: Set[str]
    """Types whose committed rows are all replaced."""
    is_empty: Callable[[str], bool]
    """Whether a type has no committed rows."""
    named: Set[str]
    """Types with a record that has an id or a key; all other types have minted ids only."""
    folded: Set[str] = frozenset()
    """Types of an upsert with several records of the same id or key."""
    matched_by_key: Set[str] = frozenset()
    """Edge types of an upsert whose rows were matched by their key, which is unique therefore."""
    losing: Set[str] = frozenset()
    """Types some of whose committed rows are deleted, as in a merge of branches."""
    _rules: list[KeyRule] = field(default_factory=list)
    _written: dict[str, list[RuleColumns]] = field(default_factory=dict)
    _committed: dict[str, list[RuleColumns]] = field(default_factory=dict)
    _records: dict[str, list[RuleColumns]] = field(default_factory=dict)

    def plan(self) -> CheckPlan:
        """All rules."""
        types, edges = self.catalog.types, [*self.catalog.edges.values()]
        for type in types:
            self._ids(type, edges if isinstance(type, NodeType) else [])
        for type in types:
            if type.table_key in self.written:
                self._unique(type)
        for edge in edges:
            if edge.table_key in self.written:
                self._unsettled(edge)
            if edge.table_key in self.written | self.losing:
                self._degree(edge)
        return CheckPlan(
            tuple(self._rules),
            {key: tuple(several) for key, several in self._written.items()},
            {key: tuple(several) for key, several in self._committed.items()},
            {key: tuple(several) for key, several in self._records.items()},
        )

    def _ids(self, type: TableType, edges: Iterable[EdgeType]) -> None:
        key = type.table_key
        ends = [
            (edge, column)
            for edge in edges
            if self._may_dangle(edge, key)
            for column in self.catalog.ends_at(edge, type.name)
        ]
        named = self.written & self.named
        # An upsert writes one row per id, but records with the same declared key are an error.
        is_repeated = isinstance(type, NodeType) and bool(type.key) and key in self.folded
        is_certain = not is_repeated and (self.mode == "merge" or key not in named)
        if not ends and is_certain:
            return
        rule = self._rule(
            type,
            None if is_certain else identity(type, refuses_existing=self.mode == "append"),
            Endpoint(key, key in self.replaced) if ends else None,
        )
        if is_repeated:
            self._feed(type, rule, "record", (ID,), skips_minted=True)
        if key in named:
            self._feed(type, rule, "written", (ID,), skips_minted=True)
        self._feed_committed(type, rule, (ID,))
        for edge, column in ends:
            prefix = edge.end_types.get(column, {}).get(type.name, "")
            is_written = edge.table_key in self.written
            if is_written:
                self._feed(edge, rule, "endpoint", (column,), prefix=prefix)
            if (not is_written or key in self.losing) and not self.is_empty(edge.table_key):
                self._feed(edge, rule, "endpoint", (column,), committed=True, prefix=prefix)

    def _unsettled(self, edge: EdgeType) -> None:
        """Edge ends at an interface whose id belongs to no node or to several: each is an error."""
        for column in edge.end_types:
            endpoint = unsettled_ends(edge, column)
            rule = KeyRule(len(self._rules), endpoint.table_key, None, endpoint)
            self._rules.append(rule)
            self._feed(edge, rule, "endpoint", (column,), prefix=UNRESOLVED)

    def _may_dangle(self, edge: EdgeType, node_key: str) -> bool:
        """Whether edges may end at a missing node: edges are written, or nodes deleted."""
        if edge.table_key in self.written or node_key in self.losing:
            return True
        return node_key in self.replaced and edge.table_key not in self.replaced

    def _unique(self, type: TableType) -> None:
        for constraint in unique_groups(type):
            is_certain = constraint.is_key and type.table_key in self.matched_by_key - self.folded
            if is_certain:
                continue
            rule = self._rule(type, constraint)
            if type.table_key in self.folded:
                self._feed(type, rule, "record", constraint.columns)
            self._feed(type, rule, "written", constraint.columns)
            self._feed_committed(type, rule, constraint.columns)

    def _degree(self, edge: EdgeType) -> None:
        constraint = degree(edge)
        if constraint is None:
            return
        rule = self._rule(edge, constraint)
        if edge.table_key in self.written:
            self._feed(edge, rule, "written", (SRC,))
        self._feed_committed(edge, rule, (SRC,))
        if self.mode == "merge":
            # The source of a replaced edge may then have too few edges.
            self._feed_committed(edge, rule, (SRC,), role="replaced")

    def _rule(
        self, type: TableType, constraint: KeyConstraint | None, endpoint: Endpoint | None = None
    ) -> KeyRule:
        rule = KeyRule(len(self._rules), type.table_key, constraint, endpoint)
        self._rules.append(rule)
        return rule

    def _feed_committed(
        self, type: TableType, rule: KeyRule, columns: tuple[str, ...], *, role: Role = "committed"
    ) -> None:
        if type.table_key not in self.replaced and not self.is_empty(type.table_key):
            self._feed(type, rule, role, columns, committed=True)

    def _feed(
        self,
        type: TableType,
        rule: KeyRule,
        role: Role,
        columns: tuple[str, ...],
        *,
        skips_minted: bool = False,
        committed: bool = False,
        prefix: str = "",
    ) -> None:
        written = self._records if role == "record" else self._written
        of = self._committed if committed else written
        fed = RuleColumns(rule.number, KeyColumns.of(type, role, columns, prefix), skips_minted)
        of.setdefault(type.table_key, []).append(fed)


# --- parts of the rows ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A fragment that a task wrote."""

    table_key: str
    place: TablePlace
    fragment: str
    holds_records: bool = False
    """Whether these are scratch rows, which hold the place of each record."""
    buffered: pa.Table | None = field(default=None, repr=False, compare=False)
    """The rows, if they are kept in memory."""

    rows: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", fragment_rows(self.fragment))

    def batches(
        self, columns: Sequence[str], storage_options: dict[str, str] | None
    ) -> Iterable[pa.RecordBatch]:
        """Columns of its rows."""
        if self.buffered is not None:
            batches: list[pa.RecordBatch] = self.buffered.select(columns).to_batches()
            return batches
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
    """Rows of these fragments that the write replaces or deletes."""


class UnwrittenPart(Protocol):
    """Rows to write that a worker reads from their source, since they are not written yet."""

    @property
    def table_key(self) -> str:
        """The type of the rows."""
        ...

    @property
    def rows(self) -> int:
        """How many rows there are."""
        ...

    def batches(
        self, columns: Sequence[str], storage_options: dict[str, str] | None
    ) -> Iterable[pa.RecordBatch]:
        """Columns of its rows."""
        ...


Part = WrittenPart | CommittedPart | UnwrittenPart


Match = tuple[TableType, tuple[str, ...]]
"""An edge type of an upsert, and the columns of its key that edges are matched by."""


@dataclass(frozen=True, slots=True)
class CheckJob:
    """The arguments of the tasks of a check."""

    plan: CheckPlan
    parts: tuple[Part, ...]
    minted_prefix: str
    storage_options: dict[str, str]
    refused: Mapping[str, tuple[str, ...]]
    """Ids of refused records by type key: edges that end there are not reported too."""
    records: tuple[WrittenPart, ...] = ()
    """All scratch rows of an upsert, to find the places of entities."""
    matched_by: Mapping[str, Match] = field(default_factory=dict)
    """By type key: the columns that identify the entity of such a row, if not its id."""


def columns_of(plan: CheckPlan, part: Part) -> tuple[RuleColumns, ...]:
    """The columns of a part that feed rules."""
    if isinstance(part, CommittedPart):
        return plan.committed.get(part.table_key, ())
    holds_records = isinstance(part, WrittenPart) and part.holds_records
    return (plan.records if holds_records else plan.written).get(part.table_key, ())


def keys_by_rule(job: CheckJob) -> list[int]:
    """By rule: how many keys to hold in memory; ends of edges are only looked up."""
    counts = [0] * len(job.plan.rules)
    for part in job.parts:
        for fed in columns_of(job.plan, part):
            if fed.of.role != "endpoint":
                counts[fed.rule] += part.rows
    return counts


def keys_max(job: CheckJob) -> int:
    """The largest of `keys_by_rule`."""
    return max(keys_by_rule(job), default=0)


def rule_keys(
    fed: RuleColumns, rows: pa.Table | pa.RecordBatch, minted_prefix: str
) -> tuple[pa.Array, pa.Array | None]:
    """The keys of rows, and the positions of the rows that have one (None: all rows)."""
    return keys_of(fed.of, rows, minted_prefix if fed.skips_minted else None)


class PartRows:
    """The rows of a part, with the columns of some rules."""

    def __init__(
        self, job: CheckJob, part: Part, several: Sequence[RuleColumns], *more: str
    ) -> None:
        columns = sorted({name for fed in several for name in fed.of.columns} | set(more))
        self._gone: pa.ChunkedArray | None = None
        options = job.storage_options or None
        if not isinstance(part, CommittedPart):
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

    def of(self, fed: RuleColumns) -> pa.Table:
        """The rows that have these columns: the replaced ones in that role, else the others."""
        if fed.of.role == "replaced":
            return self.all.slice(0, 0) if self._gone is None else self.all.filter(self._gone)
        return self.all if self._gone is None else self.all.filter(pc.invert(self._gone))
