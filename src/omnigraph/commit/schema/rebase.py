"""Migrating a branch to the current schema of main, as one commit on the branch.

Only main gets new schemas and assigns ids, and a branch keeps the schema it was created with. So
the migration repeats schema changes of main: types and properties are matched by id, added
properties get their backfilled defaults, and everything else is done by `schema_change`. Only the
branch is owned meanwhile. No contract is staged, since the commit names an existing schema.

A type that is new to the branch begins with the first version of its table, which has no rows; if
its columns have changed since, that version is forked to the branch and changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import groupby
from typing import Any

from omnigraph.commit.executor import Executor
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import Lease
from omnigraph.commit.plan import FIRST_VERSION, Intent, NewTable, SchemaDelta
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.schema.apply import ChangingTable, require_nothing_pending
from omnigraph.commit.schema.change import (
    ChangedTable,
    SchemaChange,
    changed_table,
    identity_of,
    schema_change,
)
from omnigraph.commit.schema.stored_data import check_stored_data
from omnigraph.commit.write_path import earlier_commit
from omnigraph.errors import Conflict, InputError, SchemaContractError
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog, TableType, table_schema
from omnigraph.schema.compile import project
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.schema.migration import MigrationPlan, plan_migration, with_arrival_defaults
from omnigraph.storage.datasets import Handle
from omnigraph.storage.layout import MAIN, past_schema_name
from omnigraph.storage.manifest import ManifestBranch, TableEntry
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.transactions import DatasetRef

SCHEMA_REBASE = "schema rebase"


def schema_position(kernel: Kernel, schema_hash: str) -> int | None:
    """The position of a schema in the history of main; None if main never had it."""
    main = kernel.manifest.main
    found = main.state.schema_positions.get(schema_hash)
    return main.refresh().schema_positions.get(schema_hash) if found is None else found


@dataclass(frozen=True)
class SchemaPath:
    """The sequence of schemas from one of main's to a later one."""

    line: tuple[AcceptedSchema, ...]
    """All schemas of the sequence, first and last included."""

    @classmethod
    def between(cls, kernel: Kernel, start: AcceptedSchema, target: AcceptedSchema) -> SchemaPath:
        """The sequence in the history of main.

        Raises `SchemaContractError` if one of the schemas in between is lost.
        """
        if start.schema_hash == target.schema_hash:
            return cls((start,))
        first = schema_position(kernel, start.schema_hash)
        last = schema_position(kernel, target.schema_hash)
        if first is None or last is None or last < first:
            raise SchemaContractError("a schema of this graph does not follow another one of it")
        passed = sorted(
            (row.commit_seq, row.schema_hash)
            for row in kernel.manifest.main.state.commits.values()
            if first < row.commit_seq <= last
        )
        line = [start]
        for schema_hash, _ in groupby(schema_hash for _, schema_hash in passed):
            found = kernel.schema_of(schema_hash)
            if found is None:
                raise SchemaContractError(
                    f"a schema that main had is missing: {past_schema_name(schema_hash)}",
                    hint="restore it from a copy of this graph; the data is still there",
                )
            line.append(found)
        return cls(tuple(line))

    @property
    def start(self) -> AcceptedSchema:
        """The first schema."""
        return self.line[0]

    @property
    def target(self) -> AcceptedSchema:
        """The last schema."""
        return self.line[-1]

    @property
    def is_trivial(self) -> bool:
        """Whether first and last schema are the same."""
        return len(self.line) == 1

    @cached_property
    def catalog(self) -> Catalog:
        """The types of the target, with defaults for backfilling added properties."""
        if self.is_trivial:
            return self.target.catalog
        return project(with_arrival_defaults([each.ir for each in self.line]))

    @cached_property
    def plan(self) -> MigrationPlan:
        """The migration steps."""
        if self.is_trivial:
            return MigrationPlan(())
        desired = with_arrival_defaults([each.ir for each in self.line])
        return plan_migration(self.start.ir, desired)

    def arrival(self, type: TableType) -> TableType:
        """A type of the target that the start does not have, in its first form."""
        identity = identity_of(type)
        types = (each for schema in self.line for each in schema.catalog.types)
        return next(each for each in types if identity_of(each) == identity)

    def dropped(self, of: TableType) -> list[str]:
        """The type or the properties of it that the target does not have."""
        name = of.table_key
        after = {identity_of(each): each for each in self.target.catalog.types}
        kept = after.get(identity_of(of))
        if kept is None:
            return [name]
        ids = {prop.property_id for prop in kept.properties.values()}
        return [
            f"{name}.{prop.name}" for prop in of.properties.values() if prop.property_id not in ids
        ]


@dataclass(frozen=True, slots=True)
class RebasedSchema:
    """The result of a rebase: the schemas, and the commit; None if none was needed."""

    steps: tuple[Mapping[str, Any], ...]
    dropped: tuple[str, ...]
    """Dropped types and properties of which the branch loses data."""
    commit: CommitRow | None
    manifest_version: int


def rebase_schema(
    kernel: Kernel,
    branch: str,
    *,
    allow_data_loss: bool = False,
    dry_run: bool = False,
    actor_id: str | None = None,
    operation_id: str | None = None,
) -> RebasedSchema:
    """Migrate a branch to the current schema of main, atomically.

    If the actor made an earlier rebase of the branch with the key ``operation_id``, nothing is done
    and that one is returned.

    Raises `Conflict` if main has dropped types or properties that the branch has written to, unless
    ``allow_data_loss``; `ConstraintViolation` if its entities break an added constraint; `NotFound`
    for an unknown branch. These errors have no effects. `RecoveryRequired` means that it was
    interrupted.
    """
    if branch == MAIN:
        raise InputError(
            "main always has the newest schema", hint="name the branch to bring forward"
        )
    if dry_run:
        rebase = _Rebase.of(kernel, kernel.manifest.refreshed(branch))
        rebase.check()
        return rebase.result(None)
    manifest = Recoverer(kernel).barrier(branch, SCHEMA_REBASE)
    attempt_id = kernel.ids.ulid()
    asked = {"verb": SCHEMA_REBASE, "allow_data_loss": allow_data_loss}
    with kernel.own_branch(manifest, attempt_id) as lease:
        manifest = kernel.manifest.refreshed(branch)
        done = earlier_commit(manifest.state, operation_id, actor_id, "schema", asked)
        if done is not None:
            told = done.receipt or {}
            return RebasedSchema(
                tuple(told["steps"]), tuple(told["dropped"]), done, done.manifest_version
            )
        rebase = _Rebase.of(kernel, manifest)
        if rebase.path.is_trivial:
            return rebase.result(None)
        require_nothing_pending(kernel, branch)
        if not allow_data_loss:
            rebase.require_nothing_lost()
        rebase.check()
        told = asked | {"steps": rebase.steps, "dropped": rebase.dropped}
        receipt = None if operation_id is None else told
        intent = Intent(
            "SchemaRebase", "schema", actor_id, operation_id=operation_id, receipt=receipt
        )
        return rebase.result(rebase.run(lease, attempt_id, intent))


@dataclass(frozen=True)
class _Rebase:
    """The state of a branch, and the migration to the schema of main."""

    kernel: Kernel
    branch: ManifestBranch
    capture: Capture
    path: SchemaPath

    @classmethod
    def of(cls, kernel: Kernel, branch: ManifestBranch) -> _Rebase:
        head = branch.state.head_snapshot()
        start = kernel.accepted_at(head)
        main = kernel.manifest.main.refresh().head_snapshot()
        capture = kernel.capture(branch, start.schema_hash, head)
        path = SchemaPath.between(kernel, start, kernel.accepted_at(main))
        path.plan.require_supported()
        return cls(kernel, branch, capture, path)

    @cached_property
    def change(self) -> SchemaChange:
        """The changes of the branch's tables."""
        return schema_change(self.path.start.catalog, self.path.catalog, self.capture.snapshot)

    def result(self, commit: CommitRow | None) -> RebasedSchema:
        """The result for the caller."""
        version = (
            self.capture.snapshot.manifest_version if commit is None else commit.manifest_version
        )
        return RebasedSchema(self.steps, self.dropped, commit, version)

    @property
    def steps(self) -> tuple[Mapping[str, Any], ...]:
        """The schema changes of main since."""
        return tuple(step.to_json() for step in self.path.plan.steps)

    @cached_property
    def dropped(self) -> tuple[str, ...]:
        """Dropped parts of tables that the branch has written to; main has the data of others."""
        state, snapshot = self.branch.state, self.capture.snapshot
        return tuple(
            name
            for type in self.path.start.catalog.types
            if (entry := snapshot.table(type.table_key)).row_count
            and state.wrote_to(entry.identity)
            for name in self.path.dropped(type)
        )

    def check(self) -> None:
        """Raise `ConstraintViolation` if entities of the branch break an added constraint."""
        catalogs = self.path.start.catalog, self.path.catalog
        check_stored_data(self.path.plan.steps, *catalogs, self.capture.reader, "rebase the branch")

    def require_nothing_lost(self) -> None:
        """Raise `Conflict` if main has dropped data that the branch has written to."""
        if self.dropped:
            raise Conflict(
                f"main has dropped what branch {self.branch.branch} has written to: "
                f"{', '.join(self.dropped)}",
                hint="drop it on the branch as well with `--allow-data-loss` "
                "(allow_data_loss=True): older commits of the branch still show it",
                details={"branch": self.branch.branch, "dropped": list(self.dropped)},
            )

    def run(self, lease: Lease, attempt_id: str, intent: Intent) -> CommitRow:
        """Stage tables, then run the plan."""
        kernel, change = self.kernel, self.change
        tables = [
            ChangingTable.of(
                kernel, self.branch, each, self.capture.reader.handle(each.entry.table_key)
            )
            for each in change.changed
        ]
        tables += [
            ChangingTable.of(kernel, self.branch, each, self._opened(each))
            for each in self._changed_since_they_were_made()
        ]
        created = change.created
        delta = SchemaDelta(
            self.path.target.schema_hash,
            tuple(
                NewTable(identity_of(each), each.table_key, each.table_path, kernel.ids.ulid())
                for each in created
            ),
            change.renamed,
            change.tombstones,
        )
        plan = kernel.plan(
            self.capture,
            lease,
            intent,
            tuple(table.effects for table in tables),
            attempt_id=attempt_id,
            schema=delta,
        )
        return Executor(kernel, self.branch, lease).run(plan, tables)

    def _changed_since_they_were_made(self) -> Iterator[ChangedTable]:
        """Tables that are new to the branch and whose first version has other columns."""
        for type in self.change.created:
            first = self.path.arrival(type)
            if not table_schema(first).equals(table_schema(type), check_metadata=True):
                entry = first_entry(type)
                yield changed_table(entry, first, type)

    def _opened(self, table: ChangedTable) -> Handle:
        """The first version of a table that is new to the branch.

        Removes a fork on the branch that an undone rebase has created late.
        """
        where = DatasetRef(self.kernel.table_uri(table.entry.location))
        late = where.on(self.branch.where.ref)
        if self.kernel.forks.state(late) != "absent":
            self.kernel.forks.remove(late)
        return self.kernel.lance.open(where, FIRST_VERSION)


def first_entry(type: TableType) -> TableEntry:
    """The entry of the first version of a type's table, which has no rows."""
    return TableEntry(
        identity_of(type), TableKey(type.table_key), type.table_path, FIRST_VERSION, None, 0
    )
