"""Failpoints: inert in production, exact in tests, and named in one place only."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import textwrap
import time
import timeit
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.commit.executor import OperationFailpoints
from omnigraph.effects.failpoints import Failpoint, InjectedFault, armed, hit, parse
from omnigraph.errors import InputError, StorageError

PACKAGE = Path(__file__).parents[2] / "src" / "omnigraph"

CATALOG = {
    "recovery": "sidecar_write sidecar_delete sidecar_list post_sidecar_list_pre_read record_audit"
    " before_roll_forward_publish post_table_restore_pre_publish post_rollback_publish_pre_audit"
    " orphan_discard_audit_append",
    "mutation": "post_stage_pre_effect_gate post_sidecar_pre_fork post_fork_pre_commit"
    " post_table_commit post_finalize_pre_publisher post_no_effect_pre_gate",
    "graph_publish": "after_manifest_commit",
    "group": "pre_claim pre_admission between_members",
    "schema_apply": "before_staging_write after_staging_write post_sidecar_pre_effect"
    " post_table_commit after_manifest_commit",
    "schema_rebase": "post_sidecar_pre_fork post_table_commit pre_publish",
    "branch_merge": "post_authority_capture post_sidecar_pre_fork between_chunks"
    " post_phase_b_pre_manifest_commit",
    "ensure_indices": "post_table_effect post_phase_b_pre_manifest_commit",
    "optimize": "before_compact post_phase_b_pre_manifest_commit",
    "branch_create": "post_native post_register",
    "pipeline": "post_load_pre_checks post_checks_pre_merge post_merge_pre_delete",
    "branch_delete": "post_native before_table_cleanup",
    "tag_create": "post_register",
    "tag_delete": "post_unregister",
    "fork": "before_classify post_create_pre_open",
    "cleanup": "table_gc reconcile_fork resolve_branch_snapshot",
    "stream": "post_commit_pre_checkpoint",
    "cluster_create": "post_sidecar post_init",
    "cluster_schema": "post_sidecar post_apply",
    "cluster_delete": "post_sidecar post_remove",
    "cluster_apply": "post_payloads post_ledger",
    "lease": "before_renew after_takeover",
    "init": "after_schema_contract_written post_manifest_create",
}

POINT = Failpoint.MUTATION_POST_TABLE_COMMIT
OTHER = Failpoint.RECOVERY_SIDECAR_DELETE


# --- the catalog ----------------------------------------------------------------------------------


def test_the_catalog_is_complete_and_constants_are_named_after_their_values():
    expected = {f"{room}.{name}" for room, names in CATALOG.items() for name in names.split()}
    assert {point.value for point in Failpoint} == expected
    for point in Failpoint:
        assert point.name == point.value.replace(".", "_").upper()


def misnamed(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of every `hit(…)` that does not name a constant of the catalog."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name != "hit":
            continue
        match node.args:
            case [ast.Attribute(value=ast.Name(id="Failpoint"), attr=constant)]:
                if constant in Failpoint.__members__ and not node.keywords:
                    continue
            case [ast.Attribute(value=ast.Name(id="passed"), attr=step)]:
                # The executor looks its three failpoints up by the kind of operation.
                if step in OperationFailpoints._fields and not node.keywords:
                    continue
        yield node.lineno, ast.unparse(node)


def test_c_rec_047_every_hit_names_a_constant_of_the_catalog():
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {call}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "failpoints.py" and "hit" in (text := path.read_text(encoding="utf-8"))
        for line, call in misnamed(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["hit('x')", "hit(point)", "failpoints.hit('a')", "hit(Failpoint.NO_SUCH)", "hit()"],
)
def test_c_rec_047_the_check_finds_other_names(text: str):
    assert list(misnamed(text))
    assert not list(misnamed("hit(Failpoint.FORK_BEFORE_CLASSIFY)"))


# --- in this process ------------------------------------------------------------------------------


def test_a_failpoint_is_inert_unless_armed():
    for point in Failpoint:
        hit(point)
    with armed("mutation.post_table_commit=error"):
        hit(OTHER)
    hit(POINT)


def test_error_raises_a_typed_fault():
    with armed("mutation.post_table_commit=error"):
        for _ in range(3):
            with pytest.raises(InjectedFault) as caught:
                hit(POINT)
    assert isinstance(caught.value, StorageError)
    assert caught.value.failpoint is POINT
    assert "mutation.post_table_commit" in caught.value.message


@pytest.mark.parametrize(
    ("action", "fires_on"),
    [
        ("error", [1, 2, 3, 4, 5]),
        ("error*1", [1]),
        ("error*2", [1, 2]),
        ("error@3", [3, 4, 5]),
        ("error@3*1", [3]),
        ("error@9", []),
    ],
)
def test_counts_choose_the_hits(action: str, fires_on: list[int]):
    fired = []
    with armed(f"{POINT}={action}") as plans:
        for n in range(1, 6):
            try:
                hit(POINT)
            except InjectedFault:
                fired.append(n)
    assert fired == fires_on
    assert (plans[POINT].hits, plans[POINT].fired) == (5, len(fires_on))


def test_a_test_may_run_a_function_at_a_failpoint():
    seen: list[Failpoint] = []
    with armed({POINT: seen.append, OTHER: "error*1"}):
        hit(POINT)
        with pytest.raises(InjectedFault):
            hit(OTHER)
        hit(OTHER)
    assert seen == [POINT]


def test_arming_nests_and_ends_with_its_block():
    with armed({POINT: "error"}):
        with armed({POINT: "error@2", OTHER: "error"}):
            hit(POINT)
        hit(OTHER)
        with pytest.raises(InjectedFault):
            hit(POINT)
    hit(POINT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mutation.no_such=error", "unknown failpoint 'mutation.no_such'"),
        ("MUTATION_POST_TABLE_COMMIT=error", "unknown failpoint"),
        ("kill", "unknown failpoint 'kill'"),
        ("fork.before_classify", "unknown action ''"),
        ("fork.before_classify=explode", "unknown action 'explode'"),
        ("fork.before_classify=error*0", "unknown action"),
        ("fork.before_classify=kill@", "unknown action"),
        ("fork.before_classify=pause", "unknown action"),
        ("fork.before_classify=kill;fork.before_classify=error", "twice"),
    ],
)
def test_what_cannot_be_understood_is_refused(text: str, message: str):
    with pytest.raises(InputError, match=message):
        parse(text)


def test_blanks_and_empty_entries_are_allowed():
    assert parse("") == {}
    assert set(parse(f" {POINT} = error ; ; {OTHER}=kill@2 ;")) == {POINT, OTHER}


def test_a_pause_with_a_limit_goes_on_by_itself(tmp_path: Path):
    marker = tmp_path / "marker"
    with armed(f"{POINT}=pause:{marker},30"):
        started = time.monotonic()
        hit(POINT)
    assert 0.03 <= time.monotonic() - started < 60
    assert int(marker.read_text()) == os.getpid()


def test_hit_costs_next_to_nothing_when_inert():
    best = min(timeit.repeat(lambda: hit(POINT), number=20_000, repeat=5)) / 20_000
    assert best < 5e-6


# --- in a child process ---------------------------------------------------------------------------

CHILD = """
    from omnigraph.effects.failpoints import Failpoint, hit
    for n in range(1, 4):
        hit(Failpoint.MUTATION_POST_TABLE_COMMIT)
        print(n, flush=True)
"""


def child(failpoints: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMNIGRAPH_FAILPOINTS": failpoints},
    )


def test_kill_ends_the_process_at_the_chosen_hit():
    process = child("mutation.post_table_commit=kill@3;recovery.sidecar_delete=error*1")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert out.split() == ["1", "2"]


def test_a_misspelt_variable_stops_the_process_at_once():
    process = child("mutation.post_tabel_commit=kill")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "unknown failpoint 'mutation.post_tabel_commit'" in err
    assert out == ""


def test_a_paused_process_waits_until_it_is_released(tmp_path: Path):
    marker = tmp_path / "with space" / "marker"
    marker.parent.mkdir()
    process = child(f"mutation.post_table_commit=pause:{marker}@2*1")
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "1"
    while not marker.exists():
        time.sleep(0.005)
    time.sleep(0.05)
    assert process.poll() is None
    marker.unlink()
    out, _ = process.communicate(timeout=60)
    assert out.split() == ["2", "3"]
    assert process.returncode == 0
