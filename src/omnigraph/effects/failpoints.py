"""Failpoints: named places where a test makes the product fail, crash or wait.

Every step that changes durable state has one. Code calls ``hit(Failpoint.…)``, which costs a
comparison if no failpoint is armed. A test arms them with `armed` in its own process, or in a child
process through the environment::

    OMNIGRAPH_FAILPOINTS = "mutation.post_table_commit=kill@2;recovery.sidecar_delete=error*1"

Entries are ``name=action``, joined by ``;``. Actions:

``error``           raise `InjectedFault`
``kill``            end the process with SIGKILL, as a crash would
``pause:FILE``      write FILE and wait until it is removed (at most five minutes)
``pause:FILE,N``    the same, but wait at most N milliseconds

``@N`` after an action skips the first N - 1 hits; ``*N`` after that limits how often it fires. A
name that is not in the catalog is refused, because a misspelt failpoint would test nothing.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.errors import InputError
from omnigraph.model.records import dataclass

VARIABLE = "OMNIGRAPH_FAILPOINTS"
PAUSE_MS_MAX = 300_000


class Failpoint(StrEnum):
    """The catalog of failpoints."""

    RECOVERY_SIDECAR_WRITE = "recovery.sidecar_write"
    RECOVERY_SIDECAR_DELETE = "recovery.sidecar_delete"
    RECOVERY_SIDECAR_LIST = "recovery.sidecar_list"
    RECOVERY_POST_SIDECAR_LIST_PRE_READ = "recovery.post_sidecar_list_pre_read"
    RECOVERY_RECORD_AUDIT = "recovery.record_audit"
    RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH = "recovery.before_roll_forward_publish"
    RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH = "recovery.post_table_restore_pre_publish"
    RECOVERY_POST_ROLLBACK_PUBLISH_PRE_AUDIT = "recovery.post_rollback_publish_pre_audit"
    RECOVERY_ORPHAN_DISCARD_AUDIT_APPEND = "recovery.orphan_discard_audit_append"

    MUTATION_POST_STAGE_PRE_EFFECT_GATE = "mutation.post_stage_pre_effect_gate"
    MUTATION_POST_SIDECAR_PRE_FORK = "mutation.post_sidecar_pre_fork"
    MUTATION_POST_FORK_PRE_COMMIT = "mutation.post_fork_pre_commit"
    MUTATION_POST_TABLE_COMMIT = "mutation.post_table_commit"
    MUTATION_POST_FINALIZE_PRE_PUBLISHER = "mutation.post_finalize_pre_publisher"
    MUTATION_POST_NO_EFFECT_PRE_GATE = "mutation.post_no_effect_pre_gate"

    GROUP_PRE_CLAIM = "group.pre_claim"
    GROUP_PRE_ADMISSION = "group.pre_admission"
    GROUP_BETWEEN_MEMBERS = "group.between_members"

    GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT = "graph_publish.after_manifest_commit"

    SCHEMA_APPLY_BEFORE_STAGING_WRITE = "schema_apply.before_staging_write"
    SCHEMA_APPLY_AFTER_STAGING_WRITE = "schema_apply.after_staging_write"
    SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT = "schema_apply.post_sidecar_pre_effect"
    SCHEMA_APPLY_POST_TABLE_COMMIT = "schema_apply.post_table_commit"
    SCHEMA_APPLY_AFTER_MANIFEST_COMMIT = "schema_apply.after_manifest_commit"

    SCHEMA_REBASE_POST_SIDECAR_PRE_FORK = "schema_rebase.post_sidecar_pre_fork"
    SCHEMA_REBASE_POST_TABLE_COMMIT = "schema_rebase.post_table_commit"
    SCHEMA_REBASE_PRE_PUBLISH = "schema_rebase.pre_publish"

    BRANCH_MERGE_POST_AUTHORITY_CAPTURE = "branch_merge.post_authority_capture"
    BRANCH_MERGE_POST_SIDECAR_PRE_FORK = "branch_merge.post_sidecar_pre_fork"
    BRANCH_MERGE_BETWEEN_CHUNKS = "branch_merge.between_chunks"
    BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT = "branch_merge.post_phase_b_pre_manifest_commit"

    ENSURE_INDICES_POST_TABLE_EFFECT = "ensure_indices.post_table_effect"
    ENSURE_INDICES_POST_PHASE_B_PRE_MANIFEST_COMMIT = (
        "ensure_indices.post_phase_b_pre_manifest_commit"
    )

    OPTIMIZE_BEFORE_COMPACT = "optimize.before_compact"
    OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT = "optimize.post_phase_b_pre_manifest_commit"

    BRANCH_CREATE_POST_NATIVE = "branch_create.post_native"
    BRANCH_CREATE_POST_REGISTER = "branch_create.post_register"
    BRANCH_DELETE_POST_NATIVE = "branch_delete.post_native"
    BRANCH_DELETE_BEFORE_TABLE_CLEANUP = "branch_delete.before_table_cleanup"

    TAG_CREATE_POST_REGISTER = "tag_create.post_register"
    TAG_DELETE_POST_UNREGISTER = "tag_delete.post_unregister"

    FORK_BEFORE_CLASSIFY = "fork.before_classify"
    FORK_POST_CREATE_PRE_OPEN = "fork.post_create_pre_open"

    CLEANUP_TABLE_GC = "cleanup.table_gc"
    CLEANUP_RECONCILE_FORK = "cleanup.reconcile_fork"
    CLEANUP_RESOLVE_BRANCH_SNAPSHOT = "cleanup.resolve_branch_snapshot"

    STREAM_POST_COMMIT_PRE_CHECKPOINT = "stream.post_commit_pre_checkpoint"

    PIPELINE_POST_LOAD_PRE_CHECKS = "pipeline.post_load_pre_checks"
    PIPELINE_POST_CHECKS_PRE_MERGE = "pipeline.post_checks_pre_merge"
    PIPELINE_POST_MERGE_PRE_DELETE = "pipeline.post_merge_pre_delete"

    LEASE_BEFORE_RENEW = "lease.before_renew"
    LEASE_AFTER_TAKEOVER = "lease.after_takeover"

    CLUSTER_CREATE_POST_SIDECAR = "cluster_create.post_sidecar"
    CLUSTER_CREATE_POST_INIT = "cluster_create.post_init"
    CLUSTER_SCHEMA_POST_SIDECAR = "cluster_schema.post_sidecar"
    CLUSTER_SCHEMA_POST_APPLY = "cluster_schema.post_apply"
    CLUSTER_DELETE_POST_SIDECAR = "cluster_delete.post_sidecar"
    CLUSTER_DELETE_POST_REMOVE = "cluster_delete.post_remove"
    CLUSTER_APPLY_POST_PAYLOADS = "cluster_apply.post_payloads"
    CLUSTER_APPLY_POST_LEDGER = "cluster_apply.post_ledger"

    INIT_AFTER_SCHEMA_CONTRACT_WRITTEN = "init.after_schema_contract_written"
    INIT_POST_MANIFEST_CREATE = "init.post_manifest_create"


class InjectedFault(StorageFailure):
    """The failure of an armed failpoint."""

    code = StorageFailure.code

    def __init__(self, failpoint: Failpoint) -> None:
        super().__init__(FailureClass.UNKNOWN, "pass", failpoint.value, "a failpoint was armed")
        self.failpoint = failpoint


def hit(failpoint: Failpoint) -> None:
    """Run the action of a failpoint, if it is armed."""
    if _plans:
        plan = _plans.get(failpoint)
        if plan is not None:
            plan.hit()


# --- arming ---------------------------------------------------------------------------------------

Action = Callable[[Failpoint], None]


class ArmedFailpoint:
    """An armed failpoint: an action, and the hits it fires on; counts ``hits`` and ``fired``."""

    def __init__(
        self, failpoint: Failpoint, action: Action, first: int = 1, times: int | None = None
    ) -> None:
        self._failpoint = failpoint
        self._action = action
        self._first = first
        self._times = times
        self._lock = threading.Lock()
        self.hits = 0
        self.fired = 0

    def hit(self) -> None:
        """Count a hit, and run the action if this hit is one on which it fires."""
        with self._lock:
            self.hits += 1
            if self.hits < self._first or (self._times is not None and self.fired >= self._times):
                return
            self.fired += 1
        self._action(self._failpoint)


_plans: dict[Failpoint, ArmedFailpoint] = {}


@contextmanager
def armed(
    plans: str | Mapping[Failpoint, str | Action],
) -> Iterator[dict[Failpoint, ArmedFailpoint]]:
    """Arm failpoints for a block, for tests: in the notation of the variable, or as a mapping.

    The action in a mapping may be a function, for example one that commits another write.
    """
    if isinstance(plans, str):
        made = parse(plans)
    else:
        made = {
            point: parse_action(point, act) if isinstance(act, str) else ArmedFailpoint(point, act)
            for point, act in plans.items()
        }
    before = {point: _plans[point] for point in made if point in _plans}
    _plans.update(made)
    try:
        yield made
    finally:
        for point in made:
            _plans.pop(point, None)
        _plans.update(before)


def parse(text: str) -> dict[Failpoint, ArmedFailpoint]:
    """Parse failpoints in the notation of the variable."""
    plans: dict[Failpoint, ArmedFailpoint] = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        name, _, action = entry.partition("=")
        try:
            failpoint = Failpoint(name.strip())
        except ValueError:
            raise InputError(
                f"{VARIABLE} names the unknown failpoint '{name.strip()}'",
                hint="the names are those of omnigraph.effects.failpoints.Failpoint",
            ) from None
        if failpoint in plans:
            raise InputError(f"{VARIABLE} names the failpoint '{failpoint}' twice")
        plans[failpoint] = parse_action(failpoint, action.strip())
    return plans


_ACTION = re.compile(
    r"(?P<what>error|kill|pause:(?P<marker>[^,;]+?)(?:,(?P<limit_ms>\d+))?)"
    r"(?:@(?P<first>[1-9]\d*))?(?:\*(?P<times>[1-9]\d*))?"
)


def parse_action(failpoint: Failpoint, text: str) -> ArmedFailpoint:
    """Parse the action of one failpoint, such as `kill@2` or `error*1`."""
    match = _ACTION.fullmatch(text)
    if match is None:
        raise InputError(
            f"{VARIABLE} has the unknown action '{text}' for {failpoint}",
            hint="use error, kill or pause:FILE, optionally with @N and *N",
        )
    action: Action
    if match["what"] == "error":
        action = _raise
    elif match["what"] == "kill":
        action = _kill
    else:
        action = _Pause(Path(match["marker"]), int(match["limit_ms"] or 0))
    times = int(match["times"]) if match["times"] else None
    return ArmedFailpoint(failpoint, action, int(match["first"] or 1), times)


def _raise(failpoint: Failpoint) -> None:
    raise InjectedFault(failpoint)


def _kill(failpoint: Failpoint) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class _Pause:
    """Waits until the test removes the marker file."""

    marker: Path
    limit_ms: int
    """The longest wait; 0: until the marker is removed."""

    def __call__(self, failpoint: Failpoint) -> None:
        self.marker.write_text(f"{os.getpid()}\n", encoding="utf-8")
        deadline = time.monotonic() + (self.limit_ms or PAUSE_MS_MAX) / 1_000
        while self.marker.exists():
            if time.monotonic() >= deadline:
                if self.limit_ms:
                    return
                raise InjectedFault(failpoint)  # the test has ended: do not hang
            time.sleep(0.005)


# Read when the module is loaded, so that a child process is armed before its first failpoint.
_plans.update(parse(os.environ.get(VARIABLE, "")))
