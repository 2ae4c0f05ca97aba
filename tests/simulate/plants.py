"""Broken kernels: each takes one guarantee away, and the scheduler has to notice (C-VER-002)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from omnigraph.commit.executor import Executor, TableExecution
from omnigraph.commit.leases import Lease, Leases
from omnigraph.commit.plan import CommitPlan
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.recovery.settling import Case, Settlement
from omnigraph.commit.sidecars import Sidecars
from omnigraph.commit.write_path import WritePath
from omnigraph.commit.writer import WriteAttempt
from omnigraph.storage import publisher
from omnigraph.storage.manifest_rows import CommitRow


def _effects_before_sidecar() -> None:
    """The sidecar is written when all tables are committed."""
    written = Sidecars.write

    def write_nothing(self: Sidecars, plan: CommitPlan, content: bytes) -> None:
        pass

    published = Executor._publish_checked

    def write_late(self: Executor, plan: CommitPlan, tables: Sequence[TableExecution]) -> CommitRow:
        written(self._kernel.sidecars, plan)
        return published(self, plan, tables)

    _replace(Sidecars, "write", write_nothing)
    _replace(Executor, "_publish_checked", write_late)


def _lease_ignored() -> None:
    """Every lease is free, none runs out, and the fence of a later owner is not looked at."""
    _replace(Leases, "_health", lambda self, scope, record, token: "dead")
    _replace(Lease, "require_valid", lambda self: None)
    _replace(publisher, "require_unfenced", lambda state, epoch: None)


def _no_second_validation() -> None:
    """A write whose branch has moved publishes what it had prepared before."""
    before: list[tuple[Any, Any]] = []
    prepare = WritePath._prepare

    def prepare_once(
        self: WritePath, manifest: Any, request: Any, work: Any, captured: list[Any]
    ) -> Any:
        known = [made for prepared, made in before if prepared is work]
        capture, made = prepare(
            self, manifest, request, lambda *at: known[0] if known else work(*at), captured
        )
        before.append((work, made))
        return capture, made

    _replace(WritePath, "_prepare", prepare_once)


def _sidecar_deleted_early() -> None:
    """The sidecar goes before the publish."""
    published = Executor._publish_checked

    def forget_first(
        self: Executor, plan: CommitPlan, tables: Sequence[TableExecution]
    ) -> CommitRow:
        self._kernel.sidecars.forget(plan.attempt_id)
        return published(self, plan, tables)

    _replace(Executor, "_publish_checked", forget_first)


def _always_forward() -> None:
    """Recovery publishes whatever it finds."""

    def forward(self: Recoverer, case: Case, mode: object, force: bool) -> Settlement:
        return self._settling.roll_forward(case)

    _replace(Recoverer, "_decide", forward)


def _no_head_check() -> None:
    """Neither the owner nor the publish asks whether the branch has moved."""
    _replace(WriteAttempt, "_require_unchanged", lambda self: None)
    _replace(publisher, "_require", lambda state, request: None)


def _replace(owner: Any, name: str, value: Any) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} to break"
    setattr(owner, name, value)


PLANTS: dict[str, Callable[[], None]] = {
    "effects before the sidecar": _effects_before_sidecar,
    "lease ignored": _lease_ignored,
    "validation not repeated": _no_second_validation,
    "sidecar deleted too early": _sidecar_deleted_early,
    "recovery always forward": _always_forward,
    "head not checked": _no_head_check,
}
