"""Skipping bad records: which records a load with `on_error="skip"` skips, and why.

A record is skipped if it has a problem of its own (invalid JSON, an unknown type, a value that does
not fit), or if it is involved in a broken constraint. The remaining records are checked again until
no check fails, so the load writes exactly what the input without the skipped records would write.
The rules are the same for every engine:

- If several records break a constraint together, such as by having the same key, all are skipped.
  Committed rows stay.
- Each round skips records for the first broken constraint in `_RANKS` only, so that a skipped
  record does not make others look bad: an edge is skipped because its node was, but never a node
  because of its edges.
- Where a merge would take the last of several records with the same id and that one is skipped, it
  takes the one before.
- Two problems cannot be skipped, and the load fails: one that no record causes, such as a committed
  edge whose node an overwrite removes, and a syntax error after which the following records cannot
  be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace

import pyarrow as pa

from omnigraph.commit.validation.constraints import Violation
from omnigraph.errors import LimitExceeded
from omnigraph.loading.load import LoadChanges
from omnigraph.loading.records.problems import Findings, Problem, ProblemKind, plain
from omnigraph.loading.request import LoadSpec
from omnigraph.loading.sources import type_of
from omnigraph.model.arrow import SRC
from omnigraph.model.ids import TableKey
from omnigraph.model.receipts import LoadedType
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog

SKIPPED_MAX = 1_000_000
"""The most records that a load skips for broken constraints: they are held in memory with the
reasons. Records with problems of their own are not counted."""

UNTYPED = ""
"""The type key of records of no known type."""

UNREADABLE = ", behind which records cannot be told apart, so that skipping does not mend them"
"""The reason why a load fails on a syntax error after which a file cannot be read."""

Record = tuple[int, int]
"""A record: the number of its piece or source, and its number within that."""

_RANKS: tuple[tuple[ProblemKind, ...], ...] = (
    ("bad_value", "bad_id", "repeated_key", "repeated_id", "existing_id"),
    ("unique",),
    ("missing_node",),
    ("unique",),
    ("cardinality",),
)
_EDGE_UNIQUE = 3
"""The rank of `unique` for edges, which is after those of nodes."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that breaks a constraint, by itself or together with others."""

    record: Record | None
    """None if no record of the input is the cause."""
    table_key: str
    problem: Problem
    missing: tuple[tuple[str, ...], str] | None = None
    """For an edge whose node is missing: the type keys that the node may have, and its id."""

    @classmethod
    def of(
        cls, record: Record | None, violation: Violation, problem: Problem, catalog: Catalog
    ) -> BadRecord:
        """The record that a violation blames."""
        key = violation.table_key
        if violation.culprit is not None:
            problem = replace(problem, entity_id=violation.culprit.entity_id)
        missing = None
        if violation.missing_id is not None:
            edge = catalog.edges[violation.type_name]
            node = edge.source if violation.property_name == SRC else edge.target
            keys = tuple(TableKey.node(each.name) for each in catalog.node_types(node))
            missing = (keys, violation.missing_id)
        return cls(record, key, problem, missing)

    @property
    def rank(self) -> int:
        """The index of its problem in `_RANKS`."""
        kind = self.problem.kind
        if kind == "unique" and TableKey(self.table_key).kind == "edge":
            return _EDGE_UNIQUE
        return next(rank for rank, kinds in enumerate(_RANKS) if kind in kinds)


@dataclass(slots=True)
class Skipping:
    """The records that one attempt at a load has skipped so far, and the reasons."""

    request: LoadSpec
    catalog: Catalog
    refused: Counter[str] = field(default_factory=Counter)
    """By type key: how many records had problems of their own."""
    refused_ids: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By type key: the known ids of these records."""
    records: dict[int, set[int]] = field(default_factory=dict)
    """By piece: the records skipped for broken constraints."""
    _broken: list[BadRecord] = field(default_factory=list)
    """The reasons for ``records``."""
    _ids: dict[str, set[str]] = field(default_factory=dict)

    def take(
        self, found: Iterable[BadRecord], incomplete: Mapping[str, Iterable[str]] | None = None
    ) -> bool:
        """Skip the records with the problems of lowest rank; False if nothing was found.

        ``incomplete`` are the ids of new nodes that lack a required property, by type key. A
        problem without a record makes the load fail: `is_stuck`.
        """
        for key, ids in (incomplete or {}).items():
            self._ids.setdefault(key, set()).update(ids)
        several = list(found)
        if not several:
            return False
        rank = min(each.rank for each in several)
        chosen = [each for each in several if each.rank == rank]
        known: set[tuple[Record | None, str, str | None]] = set()
        for each in sorted(chosen, key=lambda each: each.record or (-1, 0)):
            reason = (each.record, each.problem.message, each.problem.property_name)
            if reason in known:
                continue
            known.add(reason)
            self._broken.append(self._with_cause(each))
            if each.record is not None:
                piece, number = each.record
                self.records.setdefault(piece, set()).add(number)
                if each.problem.entity_id is not None:
                    self._ids.setdefault(each.table_key, set()).add(each.problem.entity_id)
        count = sum(map(len, self.records.values()))
        if count > SKIPPED_MAX:
            raise LimitExceeded(
                "the records that a load skips because of others",
                SKIPPED_MAX,
                count,
                hint="look at the first problems without `on_error='skip'`: such an input is "
                "mostly mapped wrongly, or lacks a file",
            )
        return True

    def _with_cause(self, bad: BadRecord) -> BadRecord:
        """The problem; for an edge whose node was skipped, with a message that says so."""
        if bad.missing is None:
            return bad
        keys, missing_id = bad.missing
        left_out = (ids.get(key, ()) for key in keys for ids in (self._ids, self.refused_ids))
        if not any(missing_id in ids for ids in left_out):
            return bad
        message = f"{bad.problem.message}: the record of this node was skipped"
        hint = "mend the record of the node, and load both again"
        return replace(bad, problem=replace(bad.problem, message=message, hint=hint))

    # --- reports ---

    @property
    def is_stuck(self) -> bool:
        """Whether there is a problem that no record of the input causes."""
        return any(each.record is None for each in self._broken)

    @property
    def counts(self) -> Counter[str]:
        """By type key: how many records are skipped."""
        by_record = {each.record: each.table_key for each in self._broken if each.record}
        return self.refused + Counter(by_record.values())

    def is_over(self, read: int) -> bool:
        """Whether more of ``read`` records are skipped than the request allows."""
        share = self.request.max_error_share
        return share is not None and self.counts.total() > share * read

    def wanted(self) -> dict[int, set[int]]:
        """By piece: the records to report with their problems: all, or only those shown."""
        shown = sorted({each.record for each in self._broken if each.record})
        if self.request.errors_out is None:
            shown = shown[: self.request.max_errors]
        wanted: dict[int, set[int]] = {}
        for piece, number in shown:
            wanted.setdefault(piece, set()).add(number)
        return wanted

    def report(self, findings: Findings, inputs: Mapping[Record, object]) -> None:
        """Report why records are skipped; ``inputs`` are the `wanted` records as they were read."""
        for each in self._broken:
            found = None if each.record is None else plain(inputs.get(each.record))
            findings.note(replace(each.problem, input=found))

    def reason(self, read: int) -> str:
        """Why the load fails, for `Findings.raise_if_any`; empty if all problems can be skipped."""
        if self.is_stuck:
            return ", some of which no single record causes, so that skipping does not mend them"
        if self.is_over(read):
            count, share = self.counts.total(), self.request.max_error_share
            return f" in {count:,} of {read:,} records, more than the allowed share of {share}"
        return ""

    def completed(self, changes: LoadChanges, findings: Findings) -> LoadChanges:
        """The changes with counts and problems of skipped records; closes the error file."""
        findings.close()
        return LoadChanges(
            changes.changes,
            self._counted(changes.counts),
            self.counts.total(),
            [findings.shown(problem) for problem in findings.first],
        )

    def _counted(self, loaded: Mapping[str, LoadedType]) -> dict[str, LoadedType]:
        counts = dict(loaded)
        for key, count in self.counts.items():
            if key == UNTYPED:
                continue
            known = counts.get(key) or LoadedType(type_of(key, self.catalog).name, 0, 0, 0, 0)
            read = known.records_read + count
            counts[key] = replace(known, records_read=read, skipped=count)
        return counts


def type_key_of(problem: Problem, catalog: Catalog) -> str:
    """The type key of a bad record; `UNTYPED` if its type is unknown."""
    name = problem.type_name
    if name is None:
        return UNTYPED
    edge = catalog.edge_named(name)
    if name in catalog.nodes and not (
        edge is not None and isinstance(problem.input, dict) and "edge" in problem.input
    ):
        return TableKey.node(name)
    return UNTYPED if edge is None else edge.table_key


def count_bad(problems: Iterable[Problem], key_of: Callable[[Problem], str]) -> Counter[str]:
    """By type key: how many distinct records of one source have problems."""
    by_record = {each.place.number: key_of(each) for each in problems if each.place is not None}
    return Counter(by_record.values())


def numbers_of(records: Mapping[int, Iterable[int]]) -> dict[int, pa.Int64Array]:
    """Record numbers by piece, as sorted arrays for workers."""
    return {piece: pa.array(sorted(numbers), pa.int64()) for piece, numbers in records.items()}
