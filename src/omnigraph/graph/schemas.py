"""Changes of the schema of an open graph: planned, applied to main, brought to a branch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from omnigraph.commit.schema.apply import apply_schema as run_apply
from omnigraph.commit.schema.rebase import rebase_schema as run_rebase
from omnigraph.graph.opened import Handle
from omnigraph.model.receipts import (
    SchemaApplyReceipt,
    SchemaRebaseReceipt,
    checked_key,
    checked_message,
)
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.migration import PlannedChange, plan_change
from omnigraph.storage.manifest_rows import commit_info
from omnigraph.syntax.tokens import Source


def plan_schema(
    self: Handle, desired: str | Path | Source, *, allow_data_loss: bool = False
) -> PlannedChange:
    """The steps from the accepted schema to another; changes nothing.

    A plan with unsupported changes is a plan all the same: `MigrationPlan.supported` says so.
    Raises the compile error of a bad schema.
    """
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

    Other branches keep the schema they have, until `rebase_schema` brings them forward. Without
    any difference nothing is published. What is dropped stays readable at older commits, unless
    ``allow_data_loss`` reclaims it. Raises the compile error of a bad schema,
    `UnsupportedSchemaChange` if a step has no migration, `ConstraintViolation` naming the
    entities if stored data breaks an added constraint, and `Conflict` while another apply runs,
    or if data is to be reclaimed while there are other branches; the graph is then as it was.
    ``operation_id`` names the change: if the same actor repeats it, the first receipt returns.
    ``message`` is kept with the commit. ``check`` gets the new schema before anything is
    written, and may refuse it by raising.
    """
    actor = self._actor_of(actor)
    self._opened.gate.schema_apply(actor)
    done = run_apply(
        self._kernel,
        desired,
        allow_data_loss=allow_data_loss,
        actor_id=actor,
        operation_id=checked_key(operation_id),
        message=checked_message(message),
        check=check,
    )
    return SchemaApplyReceipt(
        self._kernel.root.uri, True, done.commit is not None, done.manifest_version, done.steps
    )


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
    branch of this handle if it is left out. Entities get the defaults of added properties;
    nothing of main's data is brought along, for which there is `merge_branch`. ``dry_run`` only
    says what would happen. Raises `Conflict` if main has dropped types or properties that the
    branch has written to, unless ``allow_data_loss``, and `ConstraintViolation` naming the
    entities of the branch that break an added constraint; the branch is then as it was.
    ``operation_id`` names the request: if the same actor repeats it, the first receipt returns.
    """
    target, actor = self._branch_of(branch), self._actor_of(actor)
    if not dry_run:
        self._opened.gate.schema_rebase(actor, target)
    done = run_rebase(
        self._kernel,
        target,
        allow_data_loss=allow_data_loss,
        dry_run=dry_run,
        actor_id=actor,
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
