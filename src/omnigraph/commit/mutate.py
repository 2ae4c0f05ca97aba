"""Runs a mutation: from the compiled plan to the receipt."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.mutation_rows import Inputs, Matcher, PendingTable, unassigned
from omnigraph.commit.plan import (
    DEFAULT_LIMITS,
    Budget,
    ChangeSet,
    Intent,
    TableChange,
    WriteLimits,
)
from omnigraph.commit.validation import validate
from omnigraph.commit.validation.evaluation import ResultNodes, with_resolved_ends
from omnigraph.commit.write_path import AlreadyWritten, Prepared, WritePath, key_taken
from omnigraph.errors import InputError, InternalError, LimitExceeded, OmnigraphError
from omnigraph.model.arrow import DST, ID, SRC, node_schema
from omnigraph.model.ids import TableKey
from omnigraph.model.parameters import bind_parameters
from omnigraph.model.receipts import MutationReceipt
from omnigraph.model.records import dataclass
from omnigraph.model.references import RECORD_END_TYPES, UNRESOLVED, qualified
from omnigraph.model.values import Value, datetime_from_ms, entity_id, spell
from omnigraph.query import expressions as ex
from omnigraph.query import plan as plans
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, TableType
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import CommitRow, commit_info
from omnigraph.storage.reader import SnapshotReader


class WriterRights(Protocol):
    """The rights of a writer that are limited to types: what it sees and may change."""

    def catalog(self, whole: Catalog) -> Catalog:
        """The types and properties that the writer may name."""

    def told(self, whole: Catalog) -> Catalog:
        """The types with the constraints whose violations may be reported to the writer."""

    def seen(self, whole: SnapshotReader) -> SnapshotReader:
        """A reader of the rows that the writer sees."""

    def check(
        self,
        changes: Mapping[str, TableChange],
        catalog: Catalog,
        whole: SnapshotReader,
        validate: Callable[[SnapshotReader], object],
    ) -> None:
        """Raise if a write is not granted, or conflicts with rows that the writer does not see.

        The caller has validated it by `told` on the visible rows; ``validate`` validates it by the
        whole schema on the rows of a given reader.
        """


def everything(catalog: Catalog) -> WriterRights | None:
    """The rights of a writer without limits: None."""
    return None


def mutate(
    kernel: Kernel,
    path: WritePath,
    compile_for: Callable[[Catalog], MutationPlan],
    params: Mapping[str, Any] | None,
    *,
    accepted: AcceptedSchema,
    read_again: Callable[[], AcceptedSchema] | None = None,
    branch: str,
    limits: WriteLimits,
    actor_id: str | None = None,
    expected_head: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
    external: ExternalBlobs | None = None,
    rights: Callable[[Catalog], WriterRights | None] = everything,
) -> MutationReceipt:
    """Run a mutation and publish it as one commit; no commit if it changes nothing.

    It is compiled again if the schema changes before the commit. With ``read_again``, a schema that
    may be outdated is read again concurrently with other requests. Blobs may be given by URIs that
    ``external`` allows; their bytes are copied.
    """
    try:
        plan, parameters = _bound(compile_for, accepted.catalog, params)
    except OmnigraphError:
        newest = accepted if read_again is None else read_again()
        if newest.schema_hash == accepted.schema_hash:
            raise
        accepted, read_again = newest, None
        plan, parameters = _bound(compile_for, accepted.catalog, params)
    # All attempts at a request use the same time and the same new ids.
    now: dt.datetime = datetime_from_ms(kernel.clock.wall_us() // 1000)
    minted: list[str] = []

    def prepare(capture: Capture, catalog: Catalog) -> Prepared[MutationOutcome]:
        nonlocal plan, parameters
        if catalog is not accepted.catalog:
            plan, parameters = _bound(compile_for, catalog, params)
        limited = rights(catalog)
        seen = capture.reader if limited is None else limited.seen(capture.reader)
        outcome = run_mutation(
            plan,
            parameters,
            catalog,
            seen,
            now=now,
            mint_id=_again(minted, kernel.ids.ulid),
            limits=limits,
            external=external,
        )
        check = partial(validate, outcome.change_set, catalog)
        if limited is None:
            check(seen)
        else:
            validate(outcome.change_set, limited.told(catalog), seen)
            limited.check(outcome.change_set.tables, catalog, capture.reader, check)
        counts = {
            "query_name": plan.name,
            "affected_nodes": outcome.affected_nodes,
            "affected_edges": outcome.affected_edges,
        }
        intent = Intent(
            "Mutation", "mutation", actor_id, expected_head, operation_id, counts, message=message
        )
        is_additive = plan.is_insert_only and not has_open_ends(outcome.change_set, catalog)
        return Prepared(outcome.change_set, outcome, intent, is_additive)

    try:
        written = path.write(
            branch,
            prepare,
            kind="mutation",
            accepted=accepted,
            read_again=read_again,
            may_prepare_again=plan.is_insert_only,
            expected_head=expected_head,
            operation_id=operation_id,
            actor_id=actor_id,
        )
    except AlreadyWritten as earlier:
        return mutation_receipt(earlier.commit, operation_id)
    return MutationReceipt(
        branch,
        plan.name,
        written.result.affected_nodes,
        written.result.affected_edges,
        actor_id,
        commit_info(written.commit) if written.commit is not None else None,
    )


def has_open_ends(changes: ChangeSet, catalog: Catalog) -> bool:
    """Whether it has edges at interfaces, whose references depend on the existing nodes."""
    keys = map(TableKey, changes.tables)
    return any(key.kind == "edge" and catalog.edges[key.type_name].end_types for key in keys)


def _again(minted: list[str], mint: Callable[[], str]) -> Callable[[], str]:
    """A minter that repeats the ids in ``minted``, then mints and appends new ones."""
    at = count()

    def next_id() -> str:
        if (number := next(at)) == len(minted):
            minted.append(mint())
        return minted[number]

    return next_id


def _bound(
    compile_for: Callable[[Catalog], MutationPlan],
    catalog: Catalog,
    params: Mapping[str, Any] | None,
) -> tuple[MutationPlan, Mapping[str, Any]]:
    plan = compile_for(catalog)
    return plan, bind_parameters({each.name: each.type for each in plan.parameters}, params)


_IDS_ONLY = pa.schema([node_schema([]).field(ID)])


@dataclass(frozen=True, slots=True)
class MutationOutcome:
    """The change set of a mutation, and the counts for its receipt."""

    change_set: ChangeSet
    affected_nodes: int
    affected_edges: int


def run_mutation(
    plan: plans.MutationPlan,
    parameters: Mapping[str, Value | None],
    catalog: Catalog,
    view: SnapshotReader,
    *,
    now: dt.datetime,
    mint_id: Callable[[], str],
    limits: WriteLimits = DEFAULT_LIMITS,
    external: ExternalBlobs | None = None,
) -> MutationOutcome:
    """Run a compiled mutation with bound parameters in memory; writes nothing.

    Without ``external`` blobs cannot be given by URI. Raises `ValueConversionError` for a value
    that its property cannot hold, and `LimitExceeded` for a table over its budget. The caller
    validates the change set.
    """
    inputs = Inputs(parameters, now, external or ExternalBlobs())
    execution: _Construction | _Deletion
    if plan.is_destructive:
        execution = _Deletion(catalog, view, limits)
    else:
        execution = _Construction(catalog, view, limits, mint_id)
    for number, (statement, given) in enumerate(_unrolled(plan.steps, inputs), start=1):
        if number > STATEMENTS_MAX:
            raise LimitExceeded(
                "the number of statements that a mutation runs",
                STATEMENTS_MAX,
                number,
                hint="pass shorter lists in several mutations, or load the rows",
            )
        execution.run(statement, given)
    return execution.outcome()


STATEMENTS_MAX = 20_000
"""The most statements that the loops of one mutation may run."""


def _unrolled(
    steps: Iterable[plans.MutationStep], inputs: Inputs
) -> Iterator[tuple[plans.Statement, Inputs]]:
    """The statements to run with their inputs: those in a loop once per item."""
    for step in steps:
        if isinstance(step, plans.ForEach):
            items = inputs.parameters[step.items]
            assert isinstance(items, list | None)
            for item in items or ():
                yield from _unrolled(step.steps, inputs.at_item(step.variable, item))
        else:
            yield step, inputs


# --- inserts and updates --------------------------------------------------------------------------


class _Construction:
    def __init__(
        self,
        catalog: Catalog,
        view: SnapshotReader,
        limits: WriteLimits,
        mint_id: Callable[[], str],
    ) -> None:
        self._catalog = catalog
        self._view = view
        self._limits = limits
        self._mint_id = mint_id
        self._tables: dict[str, PendingTable] = {}
        self._nodes = 0
        self._edges = 0

    def run(self, step: plans.Statement, inputs: Inputs) -> None:
        match step:
            case plans.InsertNode():
                self._insert_node(step, self._catalog.nodes[step.type_name], inputs)
                self._nodes += 1
            case plans.InsertEdge():
                self._insert_edge(step, self._catalog.edges[step.type_name], inputs)
                self._edges += 1
            case plans.UpdateNodes():
                self._nodes += self._update(step, self._catalog.nodes[step.type_name], inputs)
            case plans.UpdateEdges():
                self._edges += self._update(step, self._catalog.edges[step.type_name], inputs)
            case plans.DeleteNodes() | plans.DeleteEdges():
                raise InternalError("one mutation both deletes and writes")

    def outcome(self) -> MutationOutcome:
        changes = [
            self._with_ends(table.change(self._view)) for _, table in sorted(self._tables.items())
        ]
        return MutationOutcome(_change_set(changes), self._nodes, self._edges)

    def _insert_node(self, step: plans.InsertNode, type: NodeType, inputs: Inputs) -> None:
        row = _properties(step.assignments, type, inputs)
        pending = self._pending(type)
        if type.key:
            # If the key exists, this row replaces the whole entity.
            spellings = [spell(row[name], type.properties[name].type) for name in type.key]
            pending.insert({ID: entity_id(spellings), **row})
            pending.replaces_committed = True
        else:
            pending.insert({ID: self._mint_id(), **row})

    def _insert_edge(self, step: plans.InsertEdge, type: EdgeType, inputs: Inputs) -> None:
        ends = {
            SRC: _end(type, SRC, step.source, step.source_type, inputs),
            DST: _end(type, DST, step.target, step.target_type, inputs),
        }
        row = _properties(step.assignments, type, inputs)
        self._pending(type).insert({ID: self._mint_id(), **ends, **row})

    def _with_ends(self, change: TableChange | None) -> TableChange | None:
        """The change, with node types added to references by the nodes after this mutation."""
        if change is None:
            return None
        type = self._catalog.edges.get(TableKey(change.table_key).type_name)
        if TableKey(change.table_key).kind != "edge" or type is None or not type.end_types:
            return change
        written = {key: [table.ids] for key, table in self._tables.items()}
        existing = ResultNodes(written, self._view).existing
        return replace(change, rows=with_resolved_ends(change.rows, type, self._catalog, existing))

    def _update(
        self, step: plans.UpdateNodes | plans.UpdateEdges, type: TableType, inputs: Inputs
    ) -> int:
        """Assign to pending rows, and to committed ones without a pending row; returns how many."""
        key = type.key if isinstance(type, NodeType) else (SRC, DST, *type.key_columns)
        if any(each.property in key for each in step.assignments):
            raise InternalError("an update assigns to a key")
        # Convert constants first, so that a wrong one is reported even if no row matches.
        values = {
            each.property: inputs.assigned(each) for each in step.assignments if not each.by_row
        }
        pending = self._pending(type)
        matcher = Matcher(self._view, type, step.predicate, inputs)
        own = pending.rows
        budget = Budget(self._limits, type.table_key)
        budget.charge(rows=own.num_rows, bytes=own.nbytes)
        found = matcher.rows(pending.readable_columns, budget, shadowed=pending.ids)
        parts = [own.filter(matcher.matches(own))]
        if found is not None:
            parts.append(pending.adopt(found))
            pending.replaces_committed = True
        rows = pa.concat_tables(parts)
        if rows.num_rows:
            computed = {
                each.property: inputs.computed(each, rows)
                for each in step.assignments
                if each.by_row
            }
            pending.put(pending.assign_columns(pending.assign(rows, values), computed))
        return int(rows.num_rows)

    def _pending(self, type: TableType) -> PendingTable:
        table = self._tables.get(type.table_key)
        if table is None:
            table = self._tables[type.table_key] = PendingTable(type, self._limits)
        return table


def _end(
    type: EdgeType,
    column: str,
    given: ex.Expression,
    of_type: ex.Expression | None,
    inputs: Inputs,
) -> str:
    """The reference to a node; at an interface, a type that is not given is looked up later."""
    id = inputs.endpoint(given, "from" if column == SRC else "to")
    prefixes = type.end_types.get(column)
    if prefixes is None:
        return id
    if of_type is None:
        return UNRESOLVED + id
    member = RECORD_END_TYPES[column]
    name = inputs.endpoint(of_type, member)
    if name not in prefixes:
        end = type.source if column == SRC else type.target
        raise InputError(
            f"'{name}' is no type that implements {end}",
            hint=f"`{member}` is one of {', '.join(sorted(prefixes)) or 'no types'}",
        )
    return prefixes[name] + id


def _properties(
    assignments: Sequence[plans.Assignment], type: TableType, inputs: Inputs
) -> dict[str, Value | None]:
    given = {each.property: inputs.assigned(each) for each in assignments}
    return {
        name: given[name] if name in given else unassigned(declared)
        for name, declared in type.properties.items()
    }


# --- deletes --------------------------------------------------------------------------------------


class _Deletion:
    def __init__(self, catalog: Catalog, view: SnapshotReader, limits: WriteLimits) -> None:
        self._catalog = catalog
        self._view = view
        self._limits = limits
        self._ids: dict[str, pa.Array] = {}
        """Distinct ids by type key, so that overlapping statements count an entity once."""

    def run(self, step: plans.Statement, inputs: Inputs) -> None:
        match step:
            case plans.DeleteNodes():
                nodes = self._catalog.nodes[step.type_name]
                ids = self._delete(nodes, step, inputs)
                for name in step.incident_edges:
                    self._cascade(self._catalog.edges[name], nodes.name, ids)
            case plans.DeleteEdges():
                self._delete(self._catalog.edges[step.type_name], step, inputs)
            case _:
                raise InternalError("one mutation both deletes and writes")

    def outcome(self) -> MutationOutcome:
        counts = {"node": 0, "edge": 0}
        for table_key, ids in self._ids.items():
            counts[TableKey(table_key).kind] += len(ids)
        changes = [
            TableChange(key, "delete", pa.table([ids], schema=_IDS_ONLY))
            for key, ids in sorted(self._ids.items())
            if len(ids)
        ]
        return MutationOutcome(_change_set(changes), counts["node"], counts["edge"])

    def _delete(
        self, type: TableType, step: plans.DeleteNodes | plans.DeleteEdges, inputs: Inputs
    ) -> pa.Array:
        matcher = Matcher(self._view, type, step.predicate, inputs)
        ids = matcher.ids(Budget(self._limits, type.table_key))
        self._add(type, ids)
        return ids

    def _cascade(self, type: EdgeType, node_type: str, ids: pa.Array) -> None:
        """Delete the edges of one type with one of the nodes ``ids`` at either end."""
        if not len(ids) or self._view.is_empty(type.table_key):
            return
        for column in self._catalog.ends_at(type, node_type):
            prefix = self._catalog.end_prefix(type, column, self._catalog.nodes[node_type])
            references = qualified(ids, prefix)
            found = self._view.rows_where_in(type.table_key, column, references, [ID])
            self._add(type, found[ID].combine_chunks())

    def _add(self, type: TableType, ids: pa.Array) -> None:
        known = self._ids.get(type.table_key)
        together = pc.unique(ids if known is None else pa.concat_arrays([known, ids]))
        Budget(self._limits, type.table_key).charge(rows=len(together), bytes=together.nbytes)
        self._ids[type.table_key] = together


def _change_set(changes: Iterable[TableChange | None]) -> ChangeSet:
    return ChangeSet({change.table_key: change for change in changes if change is not None})


def mutation_receipt(row: CommitRow, key: str | None) -> MutationReceipt:
    """The receipt of a mutation with this idempotency key, from its commit.

    Raises `Conflict` if the key belongs to a revert or cherry-pick.
    """
    stored = row.receipt or {}
    if key is not None and "verb" in stored:
        raise key_taken(key, f"a {stored['verb']}", row)
    return MutationReceipt(
        row.branch or MAIN,
        stored["query_name"],
        stored["affected_nodes"],
        stored["affected_edges"],
        row.actor_id,
        commit_info(row),
    )
