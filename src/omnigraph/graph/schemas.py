"""The schema of an open graph: describing, planning, applying, and rebasing a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from omnigraph.commit.schema.apply import apply_schema as run_apply
from omnigraph.commit.schema.rebase import rebase_schema as run_rebase
from omnigraph.errors import ConstraintViolation
from omnigraph.graph.gate import Access
from omnigraph.graph.opened import Handle
from omnigraph.graph.reading import visible_counts
from omnigraph.model.ids import checked_key, checked_message
from omnigraph.model.receipts import SchemaApplyReceipt, SchemaRebaseReceipt
from omnigraph.model.signatures import PropertyDescription, SchemaDescription, TypeDescription
from omnigraph.model.types import IndexKind
from omnigraph.query.lint import describe_value
from omnigraph.schema.catalog import (
    Catalog,
    EdgeType,
    Property,
    TableType,
    cardinality_rule,
    declared_indexes,
    own_constraints,
    property_rules,
    wide_rules,
)
from omnigraph.schema.migration import PlannedMigration, plan_change
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import commit_info
from omnigraph.syntax.tokens import Source


def describe_schema(
    self: Handle, *, branch: str | None = None, snapshot: str | None = None
) -> SchemaDescription:
    """The types of a branch with their properties and rules, and how many entities each has.

    With ``snapshot``, the counts are those of that commit, shown with the current types, as in
    queries of older commits. Raises `NotFound` for an unknown branch or commit.
    """
    opened = self._opened
    self._may_read("schema show")
    target = self._read_target("schema show", branch, snapshot)
    if target.snapshot is None:
        pinned = opened.snapshot(target.branch)
    else:
        pinned = opened.snapshot_of_any_branch(target.snapshot)
    reader, catalog = self._seen(opened.reader_of(pinned))
    counts = visible_counts(reader)
    interfaces = [
        TypeDescription(
            kind="interface",
            name=each.name,
            properties=tuple(_described(prop, ()) for prop in each.properties.values()),
        )
        for each in catalog.interfaces.values()
    ]
    described = [_described_type(each, counts.get(each.table_key, 0)) for each in catalog.types]
    return SchemaDescription(pinned.branch, pinned.commit_id, (*interfaces, *described))


def _described_type(type: TableType, entity_count: int) -> TypeDescription:
    constraints, indexes = own_constraints(type), declared_indexes(type)
    properties = tuple(
        _described(
            prop,
            constraints.get(name, ()),
            tuple(index.kind for index in indexes if index.column == name),
        )
        for name, prop in type.properties.items()
    )
    rules = wide_rules(type)
    if isinstance(type, EdgeType):
        if cardinality := cardinality_rule(type).strip():
            rules.insert(0, cardinality)
        return TypeDescription(
            kind="edge",
            name=type.name,
            source=type.source,
            target=type.target,
            key=type.key_columns,
            rules=tuple(rules),
            properties=properties,
            entity_count=entity_count,
            description=type.description,
        )
    return TypeDescription(
        kind="node",
        name=type.name,
        implements=type.implements,
        key=type.key,
        rules=tuple(rules),
        properties=properties,
        entity_count=entity_count,
        description=type.description,
    )


def _described(
    prop: Property, constraints: Sequence[str], indexes: tuple[IndexKind, ...] = ()
) -> PropertyDescription:
    value = describe_value(prop.name, prop.type)
    return PropertyDescription(
        name=prop.name,
        type=str(prop.type),
        kind=value.kind,
        item_kind=value.item_kind,
        nullable=prop.type.nullable,
        values=prop.type.enum_values or (),
        rules=tuple(property_rules(prop, constraints)),
        indexes=indexes,
        description=prop.description,
    )


def plan_schema(
    self: Handle, desired: str | Path | Source, *, allow_data_loss: bool = False
) -> PlannedMigration:
    """The steps from the accepted schema to another; changes nothing.

    A plan may contain unsupported changes: see `MigrationPlan.supported`. Raises the compile error
    of a bad schema.
    """
    self._may_read("schema plan")
    self._require_everything("schema plan", MAIN)
    return plan_change(self._opened.accepted().ir, desired, allow_data_loss=allow_data_loss)


def apply_schema(
    self: Handle,
    desired: str | Path | Source,
    *,
    allow_data_loss: bool = False,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
    check: Callable[[Catalog], None] | None = None,
) -> SchemaApplyReceipt:
    """Bring main to another schema (a text, or the path of a `.pg` file) as one commit.

    Other branches keep the schema they have, until `rebase_schema` brings them forward. Without any
    difference nothing is published. What is dropped stays readable at older commits, unless
    ``allow_data_loss`` reclaims it. Raises the compile error of a bad schema,
    `UnsupportedSchemaChange` if a step has no migration, `ConstraintViolation` naming the entities
    if stored data breaks an added constraint, and `Conflict` while another apply runs, or if data
    is to be reclaimed while there are other branches; then nothing has changed. ``operation_id`` is
    an idempotency key: if the same actor repeats the change, the first receipt is returned.
    ``message`` is kept with the commit. ``check`` gets the new schema before anything is written,
    and may refuse it by raising.
    """
    by = self._by(actor)
    self._opened.gate.schema_apply(by)
    with _rows_as_seen(self, by, MAIN):
        done = run_apply(
            self._kernel,
            desired,
            allow_data_loss=allow_data_loss,
            actor_id=by.actor,
            operation_id=checked_key(operation_id),
            message=checked_message(message),
            check=check,
        )
    return SchemaApplyReceipt(
        self._kernel.root.uri, True, done.commit is not None, done.manifest_version, done.steps
    )


@contextmanager
def _rows_as_seen(self: Handle, by: Access, branch: str) -> Iterator[None]:
    """Hide the rows in a constraint violation from actors who see only a part of the branch."""
    try:
        yield
    except ConstraintViolation:
        if self._opened.view(by, branch, self._opened.accepted(branch).catalog) is None:
            raise
        raise ConstraintViolation(
            f"what branch `{branch}` holds does not fit the schema",
            hint="an actor who sees all of the branch is told which entities",
        ) from None


def rebase_schema(
    self: Handle,
    branch: str | None = None,
    *,
    allow_data_loss: bool = False,
    dry_run: bool = False,
    actor: str | None = None,
    operation_id: str | None = None,
) -> SchemaRebaseReceipt:
    """Bring a branch to the schema that main has now, as one commit on the branch.

    A branch keeps the schema it was created with when main gets another one. ``branch`` is the
    branch of this handle if it is left out. Entities get the defaults of added properties; no data
    of main is copied, for which there is `merge_branch`. ``dry_run`` only returns the steps. Raises
    `Conflict` if main has dropped types or properties that the branch has written to, unless
    ``allow_data_loss``, and `ConstraintViolation` naming the entities of the branch that break an
    added constraint; then nothing has changed. ``operation_id`` is an idempotency key: if the same
    actor repeats the request, the first receipt is returned.
    """
    target, by = self._branch_of(branch), self._by(actor)
    if dry_run:
        self._may_read("schema rebase --dry-run")
        self._may_read("schema rebase --dry-run", target)
        self._require_everything("schema rebase --dry-run", target, MAIN)
    else:
        self._opened.gate.schema_rebase(by, target)
    with _rows_as_seen(self, by, target):
        done = run_rebase(
            self._kernel,
            target,
            allow_data_loss=allow_data_loss,
            dry_run=dry_run,
            actor_id=by.actor,
            operation_id=checked_key(operation_id),
        )
    return SchemaRebaseReceipt(
        self._kernel.root.uri,
        target,
        done.commit is not None,
        dry_run,
        done.manifest_version,
        done.steps,
        done.dropped,
        None if done.commit is None else commit_info(done.commit),
    )
