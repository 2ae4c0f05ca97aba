"""Plans, the ledger, the lock, and carrying plans out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cluster import Cluster, plan_document
from omnigraph.cluster.answers import ClusterAnswer
from omnigraph.cluster.digests import digest_of
from omnigraph.cluster.lock import LOCK
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.effects.objects import open_store
from omnigraph.effects.uri import Root
from tests.cluster.conftest import (
    ACTOR,
    CLUSTER_POLICY,
    PEOPLE,
    POLICY,
    QUERIES,
    Fleet,
    error_codes,
    errors,
)


def changes(answer: Any) -> dict[str, tuple[str, str | None, str | None]]:
    return {
        each.resource: (each.operation, each.disposition, each.reason) for each in answer.changes
    }


def everything_below(directory: Path) -> dict[str, bytes]:
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


# --- plans ----------------------------------------------------------------------------------------


def test_c_clu_011_a_plan_on_nothing_creates_everything_and_writes_nothing(fleet: Fleet):
    before = everything_below(fleet.directory)
    found = fleet.cluster.plan()
    assert found.ok, errors(found)
    assert not found.state_observations.state_found
    assert changes(found) == dict.fromkeys(found.resource_digests, ("create", "applied", None))
    assert everything_below(fleet.directory) == before


def test_c_clu_012_changes_are_found_by_digest_and_sorted(running: Fleet):
    assert running.cluster.plan().changes == ()
    os.utime(running.directory / "sales.pg")  # a new date is no change
    assert running.cluster.plan().changes == ()
    running.edit("sales.pg", "F64?", "F64? @index")
    running.write(base_yaml=POLICY.replace("act-bo", "act-cy"))
    found = running.cluster.plan()
    assert [each.resource for each in found.changes] == [
        "graph.sales",
        "policy.base",
        "schema.sales",
    ]
    assert changes(found)["graph.sales"] == ("update", "derived", None)
    policy = found.changes[1]
    assert policy.before_digest == digest_of(POLICY.encode())
    assert policy.after_digest == found.resource_digests["policy.base"]


def test_a_plan_says_what_depends_on_a_change(running: Fleet):
    running.edit("people.pg", "I32?", "I32? @index")
    radius = {each.resource: each.affected for each in running.cluster.plan().blast_radius}
    assert radius["schema.people"] == ("query.people.everybody",)


def test_c_clu_023_a_plan_has_the_steps_of_migrations(running: Fleet):
    running.edit("people.pg", "age: I32?", "age: I32?  email: String?")
    (change,) = [
        each for each in running.cluster.plan().changes if each.resource == "schema.people"
    ]
    assert change.migration is not None
    assert change.migration.supported
    assert [step["kind"] for step in change.migration.steps] == ["add_property"]
    version = running.graph("people").snapshot().graph_manifest_version
    assert running.cluster.plan().ok
    assert running.graph("people").snapshot().graph_manifest_version == version


def test_c_clu_023_a_plan_warns_about_a_graph_it_cannot_look_at(running: Fleet):
    running.edit("people.pg", "age: I32?", "age: I32?  email: String?")
    running.root("people").rename(running.root("people").with_name("elsewhere"))
    found = running.cluster.plan()
    assert found.ok
    assert "schema_preview_unavailable" in found.codes


def test_a_plan_that_was_looked_at_is_applied_exactly_or_refused(running: Fleet, tmp_path: Path):
    running.write(base_yaml=POLICY.replace("act-bo", "act-cy"))
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_document(running.cluster.plan())), encoding="utf-8")
    running.edit("queries/people.gq", "everybody", "all_people")
    stale = running.cluster.apply(actor=ACTOR, plan=file)
    assert error_codes(stale) == ["plan_stale"]
    assert "the files" in stale.errors[0].message
    assert running.ledger.state_revision == 2
    running.edit("queries/people.gq", "all_people", "everybody")
    assert running.cluster.apply(actor=ACTOR, plan=file).converged
    again = running.cluster.apply(actor=ACTOR, plan=file)
    assert error_codes(again) == ["plan_stale"]
    assert "the ledger" in again.errors[0].message


# --- the lock -------------------------------------------------------------------------------------


LOCKING = ("plan", "apply", "approve", "refresh", "import")


def run(fleet: Fleet, command: str) -> ClusterAnswer:
    cluster = fleet.cluster
    match command:
        case "plan":
            return cluster.plan()
        case "apply":
            return cluster.apply(actor=ACTOR)
        case "approve":
            return cluster.approve("graph.sales", actor=ACTOR)
        case "refresh":
            return cluster.refresh()
        case "import":
            return cluster.import_()
        case "validate":
            return cluster.validate()
    return cluster.status()


HELD = {
    "version": 1,
    "lock_id": "01M7R3YCHCNNDJJ8QWRN8DH0Y7",
    "operation": "apply",
    "created_at": "2026-11-18T20:00:36.110Z",
    "pid": 4711,
    "actor": "act-bo",
}


def hold(fleet: Fleet, **changed: object) -> bytes:
    fleet.lock.parent.mkdir(exist_ok=True)
    fleet.lock.write_text(json.dumps({**HELD, **changed}), encoding="utf-8")
    return fleet.lock.read_bytes()


@pytest.mark.parametrize("command", LOCKING)
def test_c_clu_013_a_held_lock_stops_every_command_that_takes_it(running: Fleet, command: str):
    data = hold(running)
    before = running.state.read_bytes()
    found = run(running, command)
    assert error_codes(found) == ["state_lock_held"]
    message = found.errors[0].message
    for fact in (HELD["lock_id"], "act-bo", "4711", HELD["created_at"], "force-unlock"):
        assert str(fact) in message
    assert running.lock.read_bytes() == data
    assert running.state.read_bytes() == before


def test_c_clu_013_the_answer_has_the_metadata_of_the_lock(running: Fleet):
    hold(running)
    seen = running.cluster.plan().state_observations
    assert (seen.locked, seen.lock_id, seen.lock_pid) == (True, HELD["lock_id"], 4711)
    assert seen.lock_operation == "apply"
    assert not seen.lock_acquired
    assert running.cluster.status().ok
    assert running.cluster.validate().ok


def test_c_clu_013_of_two_operators_at_once_one_wins_and_the_other_is_told(imported: Fleet):
    second: list[ClusterAnswer] = []

    def other_operator(_: Failpoint) -> None:
        second.append(imported.cluster.apply(actor="act-bo"))

    with armed({Failpoint.CLUSTER_APPLY_POST_PAYLOADS: other_operator}):
        first = imported.cluster.apply(actor=ACTOR)
    assert first.converged
    assert error_codes(second[0]) == ["state_lock_held"]
    assert "`cluster apply` of act-ana" in second[0].errors[0].message


@pytest.mark.parametrize("command", LOCKING)
def test_c_clu_014_the_lock_is_given_back_on_every_way_out(running: Fleet, command: str):
    run(running, command)  # approve and import fail here
    assert not running.lock.exists()
    running.state.write_bytes(b"{")
    assert not run(running, command).ok
    assert not running.lock.exists()


def test_c_clu_014_a_lock_of_another_owner_is_not_given_back(imported: Fleet):
    def overtaken(_: Failpoint) -> None:
        assert imported.cluster.force_unlock(json.loads(imported.lock.read_bytes())["lock_id"]).ok
        hold(imported)

    with armed({Failpoint.CLUSTER_APPLY_POST_PAYLOADS: overtaken}):
        imported.cluster.apply(actor=ACTOR)
    assert json.loads(imported.lock.read_bytes())["lock_id"] == HELD["lock_id"]


@pytest.mark.parametrize(
    ("changed", "lock_id", "code"),
    [
        ({}, "01M7R3YCHCNNDJJ8QWRN8DH0Y8", "state_lock_id_mismatch"),
        ({}, "01m7r3ychcnndjj8qwrn8dh0y7", "state_lock_id_mismatch"),
        ({"version": 2}, HELD["lock_id"], "unsupported_state_lock_version"),
        ({"pid": "x"}, HELD["lock_id"], "invalid_state_lock"),
        ({"more": 1}, HELD["lock_id"], "invalid_state_lock"),
        ({"created_at": "today"}, HELD["lock_id"], "invalid_state_lock"),
    ],
)
def test_c_clu_015_breaking_a_lock_needs_its_exact_id(
    imported: Fleet, changed: dict[str, object], lock_id: str, code: str
):
    data = hold(imported, **changed)
    found = imported.cluster.force_unlock(lock_id)
    assert error_codes(found) == [code]
    assert not found.lock_removed
    assert imported.lock.read_bytes() == data


def test_c_clu_015_the_right_id_removes_it_and_there_must_be_one(imported: Fleet):
    hold(imported)
    found = imported.cluster.force_unlock(str(HELD["lock_id"]))
    assert found.ok
    assert found.lock_removed
    assert not imported.lock.exists()
    assert error_codes(imported.cluster.force_unlock("x")) == ["state_lock_missing"]


def test_c_clu_016_without_locks_commands_warn_and_go_on(imported: Fleet):
    imported.edit("cluster.yaml", "version: 1", "version: 1\nstate: { lock: false }")
    hold(imported)
    found = imported.cluster.apply(actor=ACTOR)
    assert found.converged
    assert "state_lock_disabled" in found.codes
    assert not found.state_observations.lock_acquired
    assert imported.lock.exists()


# --- the ledger -----------------------------------------------------------------------------------


def test_c_clu_017_nothing_is_applied_before_there_is_a_ledger(fleet: Fleet):
    found = fleet.cluster.apply(actor=ACTOR)
    assert error_codes(found) == ["state_missing"]
    assert "import" in found.errors[0].message
    assert not (fleet.directory / "graphs").exists()
    assert error_codes(fleet.cluster.refresh()) == ["state_missing"]
    status = fleet.cluster.status()
    assert status.ok
    assert status.codes == ["state_missing"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda d: d.update(version=2), "unsupported_state_version"),
        (lambda d: d.update(more={}), "invalid_state_json"),
        (lambda d: d["applied_revision"].update(more={}), "invalid_state_json"),
        (
            lambda d: d["applied_revision"]["resources"]["graph.people"].update(digest="x"),
            "invalid_state_json",
        ),
        (lambda d: d.pop("applied_revision"), "invalid_state_json"),
        (
            lambda d: d.update(
                observations={
                    "graph.people": {
                        "kind": "graph",
                        "manifest_version": 1,
                        "graph_manifest_version": 2,
                    }
                }
            ),
            "conflicting_graph_manifest_observation",
        ),
    ],
)
@pytest.mark.parametrize("command", ["plan", "apply", "status", "refresh"])
def test_a_ledger_that_is_not_understood_stops_every_command(
    running: Fleet, change: Any, code: str, command: str
):
    running.edit_ledger(change)
    before = everything_below(running.directory)
    assert error_codes(run(running, command)) == [code]
    assert everything_below(running.directory) == before


def test_a_ledger_of_former_writers_is_read(running: Fleet):
    def former(document: dict[str, Any]) -> None:
        del document["state_revision"]
        document["observations"] = {"graph.people": {"kind": "graph", "manifest_version": 7}}

    running.edit_ledger(former)
    assert running.ledger.state_revision == 0
    assert running.ledger.observations["graph.people"].graph_manifest_version == 7


def test_c_clu_037_a_ledger_that_moved_is_not_overwritten(running: Fleet):
    def somebody_else(_: Failpoint) -> None:
        running.edit_ledger(lambda document: document.update(state_revision=99))

    running.write(base_yaml=POLICY.replace("act-bo", "act-cy"))
    with armed({Failpoint.CLUSTER_APPLY_POST_PAYLOADS: somebody_else}):
        found = running.cluster.apply(actor=ACTOR)
    assert error_codes(found) == ["state_cas_mismatch"]
    assert not found.state_written
    assert found.applied_count == 0
    assert {each["status"] for each in found.resource_statuses.values()} == {"applied"}
    assert running.ledger.state_revision == 99
    assert running.ledger.digest("policy.base") == digest_of(POLICY.encode())
    assert running.applied().state_observations.state_revision == 100


def test_c_clu_043_an_edited_ledger_is_refused_before_anything_else(running: Fleet):
    def allow_everything(document: dict[str, Any]) -> None:
        allowed = {"mode": "allow", "bases": [{"uri": "s3://secrets", "scope": "server_safe"}]}
        document["applied_revision"]["resources"]["graph.people"]["external_blob_policy"] = allowed

    running.edit_ledger(allow_everything)
    sidecar = running.directory / "__cluster" / "recoveries" / "x.json"
    sidecar.parent.mkdir(exist_ok=True)
    sidecar.write_text("{}", encoding="utf-8")
    before = everything_below(running.directory)
    for command in ("apply", "refresh"):
        found = run(running, command)
        assert error_codes(found) == ["external_blob_policy_digest_mismatch"]
        assert "invalid_recovery_sidecar" not in found.codes
    assert everything_below(running.directory) == before


# --- applying -------------------------------------------------------------------------------------


def test_c_clu_018_one_apply_makes_everything(imported: Fleet):
    done = imported.applied()
    assert done.state_written
    assert done.applied_count == len(done.changes) == 6
    assert {each["status"] for each in done.resource_statuses.values()} == {"applied"}
    ledger = imported.ledger
    assert ledger.state_revision == 2
    assert ledger.applied_revision.config_digest == done.desired_revision.config_digest
    assert imported.graph("people").schema_source == PEOPLE
    catalog = imported.directory / "__cluster" / "resources"
    digest = digest_of(QUERIES.encode())
    assert (catalog / "query" / "people" / "everybody" / f"{digest}.gq").read_text() == QUERIES
    assert (catalog / "policy" / "base" / f"{digest_of(POLICY.encode())}.yaml").is_file()
    assert imported.recoveries == []


def test_c_clu_019_a_second_apply_writes_nothing(running: Fleet):
    before = everything_below(running.directory)
    again = running.applied()
    assert not again.state_written
    assert again.changes == ()
    assert again.state_observations.state_revision == 2
    assert everything_below(running.directory) == before


def test_c_clu_020_an_edited_query_is_stored_beside_the_former_one(running: Fleet):
    running.edit("queries/people.gq", "$p.name }", "$p.name, $p.age }")
    done = running.applied()
    assert changes(done) == {
        "graph.people": ("update", "derived", None),
        "query.people.everybody": ("update", "applied", None),
    }
    blobs = running.directory / "__cluster" / "resources" / "query" / "people" / "everybody"
    assert len(list(blobs.iterdir())) == 2
    assert (blobs / f"{digest_of(QUERIES.encode())}.gq").read_text() == QUERIES


def test_c_clu_021_a_changed_binding_is_a_change_of_its_own(running: Fleet):
    running.edit("cluster.yaml", "applies_to: [people]", "applies_to: [sales, people]")
    (change,) = running.cluster.plan().changes
    assert change.resource == "policy.base"
    assert change.before_digest == change.after_digest
    assert change.metadata_change == "policy_bindings"
    assert change.binding_change is not None
    assert change.binding_change.before == ("graph.people",)
    assert change.binding_change.after == ("graph.people", "graph.sales")
    running.applied()
    assert running.ledger.resources["policy.base"].applies_to == ["graph.people", "graph.sales"]


def test_a_provider_without_its_profile_in_the_ledger_is_recorded_again(running: Fleet):
    running.edit(
        "cluster.yaml", "graphs:\n", "providers: { embedding: { e: { kind: mock } } }\ngraphs:\n"
    )
    running.applied()
    running.edit_ledger(
        lambda d: d["applied_revision"]["resources"]["provider.embedding.e"].pop(
            "embedding_profile"
        )
    )
    (change,) = running.cluster.plan().changes
    assert change.metadata_change == "embedding_profile"
    running.applied()


def test_c_clu_022_a_schema_and_the_query_that_needs_it_arrive_in_one_run(running: Fleet):
    running.edit("people.pg", "age: I32?", "age: I32?  email: String?")
    running.edit("queries/people.gq", "$p.name }", "$p.name, $p.email }")
    done = running.applied()
    assert set(changes(done)) == {"graph.people", "query.people.everybody", "schema.people"}
    assert "email" in running.graph("people").schema_source


def test_c_clu_024_an_unsupported_migration_leaves_nothing_behind(running: Fleet):
    blobs = "external_blobs: { allow: [{ base: 's3://assets/x', scope: server_safe }] }"
    running.edit("cluster.yaml", "schema: people.pg", f"schema: people.pg\n    {blobs}")
    running.edit("people.pg", "age: I32?", "age: Bool?")
    running.edit("queries/people.gq", "$p.name }", "$p.name, $p.age }")
    running.write(base_yaml=POLICY.replace("act-bo", "act-cy"))
    before = running.graph("people").snapshot().graph_commit_id
    done = running.cluster.apply(actor=ACTOR)
    assert error_codes(done) == ["schema_apply_failed"]
    assert not done.converged
    assert changes(done) == {
        "graph.people": ("update", "blocked", "schema_apply_failed"),
        "policy.base": ("update", "blocked", "dependency_not_applied"),
        "query.people.everybody": ("update", "blocked", "dependency_not_applied"),
        "schema.people": ("update", "blocked", "schema_apply_failed"),
    }
    assert running.recoveries == []
    assert running.graph("people").snapshot().graph_commit_id == before
    assert running.ledger.resources["graph.people"].external_blob_policy is None
    assert running.ledger.resource_statuses["schema.people"].conditions == ["schema_apply_failed"]
    running.ledger.require_intact()
    # Unblocked by the right edit, without any repair.
    running.edit("people.pg", "age: Bool?", "age: I32?")
    running.applied()
    assert running.ledger.resources["graph.people"].external_blob_policy is not None


def test_c_clu_025_apply_never_drops_for_good(running: Fleet):
    graph = running.graph("people")
    graph.load(data='{"type": "Person", "data": {"name": "ada", "age": 36}}\n', mode="append")
    # A hard drop is refused while there is another branch, and takes its data away.
    graph.create_branch("keep")
    running.edit("people.pg", "  age: I32?", "")
    running.applied()
    opened = running.graph("people")
    assert "age" not in opened.schema_source
    assert opened.list_commits()[0].actor_id == ACTOR
    ages = opened.query("query q { match { $p: Person } return { $p.age } }", branch="keep")
    assert ages.to_pylist() == [{"p.age": 36}]


def test_c_clu_035_a_failure_stops_what_depends_on_it_and_nothing_else(imported: Fleet):
    imported.root("people").parent.mkdir(parents=True)
    imported.root("people").write_text("in the way", encoding="utf-8")
    imported.edit(
        "cluster.yaml",
        "policies:\n",
        "  zoo: { schema: sales.pg }\npolicies:\n"
        "  ops: { file: ops.yaml, applies_to: [cluster] }\n",
    )
    imported.write(ops_yaml=CLUSTER_POLICY)
    done = imported.cluster.apply(actor=ACTOR)
    assert error_codes(done) == ["graph_create_failed"]
    assert changes(done) == {
        "graph.people": ("create", "blocked", "graph_create_failed"),
        "graph.sales": ("create", "blocked", "graph_create_skipped"),
        "graph.zoo": ("create", "blocked", "graph_create_skipped"),
        "policy.base": ("create", "blocked", "dependency_not_applied"),
        "policy.ops": ("create", "applied", None),
        "query.people.everybody": ("create", "blocked", "dependency_not_applied"),
        "schema.people": ("create", "blocked", "graph_create_failed"),
        "schema.sales": ("create", "blocked", "graph_create_skipped"),
        "schema.zoo": ("create", "blocked", "graph_create_skipped"),
    }
    assert done.codes.count("graph_create_skipped") == 2
    assert "policy.ops" in imported.ledger.resources
    imported.root("people").unlink()
    for sidecar in imported.recoveries:
        sidecar.unlink()
    imported.applied()


def test_c_clu_047_the_actor_is_on_everything_that_is_left_behind(imported: Fleet):
    sidecars: list[dict[str, Any]] = []

    def look(_: Failpoint) -> None:
        sidecars.extend(json.loads(path.read_bytes()) for path in imported.recoveries)

    with armed({Failpoint.CLUSTER_CREATE_POST_SIDECAR: look}):
        imported.applied(actor="act-cy")
    assert {each["actor"] for each in sidecars} == {"act-cy"}
    assert imported.graph("people").list_commits()[0].actor_id == "act-cy"
    imported.edit("cluster.yaml", "  sales: { schema: sales.pg }\n", "")
    assert imported.cluster.approve("graph.sales", actor="act-cy").ok
    imported.applied(actor="act-cy")
    (record,) = imported.ledger.approval_records.values()
    assert record.actor == "act-cy"
    assert imported.ledger.observations["graph.sales"].actor == "act-cy"


def test_a_reserved_actor_is_refused(imported: Fleet):
    with pytest.raises(ValueError, match="omnigraph:"):
        imported.cluster.apply(actor="omnigraph:system")


def test_a_source_that_changes_under_a_command_stops_it(imported: Fleet):
    def edit(_: Failpoint) -> None:
        imported.write(queries__people_gq=QUERIES + "\n")

    with armed({Failpoint.CLUSTER_CREATE_POST_INIT: edit}):
        done = imported.cluster.apply(actor=ACTOR)
    assert error_codes(done) == ["resource_content_changed"]
    assert imported.ledger.state_revision == 1
    imported.applied()


# --- approvals ------------------------------------------------------------------------------------


@pytest.fixture
def shrunk(running: Fleet) -> Fleet:
    """A cluster whose file no longer has one of its graphs."""
    running.edit("cluster.yaml", "  sales: { schema: sales.pg }\n", "")
    return running


def test_c_clu_026_deleting_a_graph_waits_for_one_approval(running: Fleet):
    running.edit(
        "cluster.yaml",
        "  people:\n    schema: people.pg\n    queries: queries/\n",
        "",
    )
    running.edit(
        "cluster.yaml", "policies:\n  base: { file: base.yaml, applies_to: [people] }\n", ""
    )
    planned = running.cluster.plan()
    (gate,) = planned.approvals_required
    assert (gate.resource, gate.satisfied) == ("graph.people", False)
    done = running.cluster.apply(actor=ACTOR)
    assert done.ok
    assert not done.converged
    waiting = ("delete", "blocked", "approval_required")
    assert changes(done) == {
        "graph.people": waiting,
        "policy.base": ("delete", "applied", None),
        "query.people.everybody": waiting,
        "schema.people": waiting,
    }
    assert running.root("people").is_dir()
    assert "apply_dependency_blocked" in done.codes


def test_c_clu_027_an_approved_deletion_removes_the_graph_and_uses_the_approval_up(shrunk: Fleet):
    approved = shrunk.cluster.approve("graph.sales", actor=ACTOR)
    assert approved.ok, errors(approved)
    assert shrunk.cluster.plan().approvals_required[0].satisfied
    done = shrunk.applied()
    assert not shrunk.root("sales").exists()
    tombstone = shrunk.ledger.observations["graph.sales"]
    assert (tombstone.kind, tombstone.approval_id) == ("tombstone", approved.approval_id)
    assert "graph.sales" not in shrunk.ledger.resources
    assert "schema.sales" not in done.resource_statuses
    (artifact,) = shrunk.approvals
    assert artifact["consumed_at"] is not None
    assert artifact["approved_by"] == ACTOR
    assert shrunk.recoveries == []
    # The same graph, declared again and removed again, needs another approval.
    shrunk.edit("cluster.yaml", "policies:\n", "  sales: { schema: sales.pg }\npolicies:\n")
    shrunk.applied()
    shrunk.edit("cluster.yaml", "  sales: { schema: sales.pg }\n", "")
    assert not shrunk.cluster.apply(actor=ACTOR).converged


def test_c_clu_028_an_approval_for_another_state_does_not_count(shrunk: Fleet):
    assert shrunk.cluster.approve("graph.sales", actor=ACTOR).ok
    shrunk.write(base_yaml=POLICY.replace("act-bo", "act-cy"))
    planned = shrunk.cluster.plan()
    assert not planned.approvals_required[0].satisfied
    assert "approval_stale" in planned.codes
    done = shrunk.cluster.apply(actor=ACTOR)
    assert "approval_stale" in done.codes
    assert changes(done)["graph.sales"] == ("delete", "blocked", "approval_required")
    assert shrunk.root("sales").is_dir()


def test_c_clu_028_an_approval_for_another_state_of_the_graph_does_not_count(shrunk: Fleet):
    assert shrunk.cluster.approve("graph.sales", actor=ACTOR).ok
    shrunk.edit("cluster.yaml", "policies:\n", "  sales: { schema: sales.pg }\npolicies:\n")
    shrunk.edit("sales.pg", "F64?", "F64? @index")
    shrunk.applied()
    shrunk.edit("cluster.yaml", "  sales: { schema: sales.pg }\n", "")
    done = shrunk.cluster.apply(actor=ACTOR)
    assert "approval_stale" in done.codes
    assert shrunk.root("sales").is_dir()


def test_c_clu_029_an_approval_needs_an_actor_and_something_to_decide(shrunk: Fleet):
    assert error_codes(shrunk.cluster.approve("graph.sales", actor=None)) == [
        "approval_not_required"
    ]
    for address in ("graph.people", "schema.sales", "nothing"):
        found = shrunk.cluster.approve(address, actor=ACTOR)
        assert error_codes(found) == ["approval_not_required"]
        assert "graph.sales" in found.errors[0].message
    assert shrunk.approvals == []


def test_a_graph_with_a_writer_is_not_removed(shrunk: Fleet, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIGRAPH_LEASE_WAIT_MS", "50")
    assert shrunk.cluster.approve("graph.sales", actor=ACTOR).ok
    kernel = shrunk.graph("sales")._kernel
    with kernel.leases.hold("branch/main", kernel.ids.ulid()):
        done = shrunk.cluster.apply(actor=ACTOR)
    assert error_codes(done) == ["graph_delete_failed"]
    assert shrunk.graph("sales").list_commits()
    assert shrunk.recoveries == []
    shrunk.applied()


def test_a_graph_that_is_being_exported_is_not_removed(shrunk: Fleet):
    for number in range(3):
        shrunk.graph("sales").mutate(f"query add {{ insert Order {{ number: {number} }} }}")
    assert shrunk.cluster.approve("graph.sales", actor=ACTOR).ok
    blocks = shrunk.graph("sales").export()
    first = next(blocks)
    done = shrunk.cluster.apply(actor=ACTOR)
    assert error_codes(done) == ["graph_delete_export_in_progress"]
    assert "try again when the export has ended" in done.errors[0].message
    assert shrunk.recoveries == []
    assert (first + b"".join(blocks)).count(b"\n") == 3
    shrunk.applied()
    assert not shrunk.root("sales").exists()


# --- elsewhere ------------------------------------------------------------------------------------


def test_c_clu_046_all_of_a_cluster_can_lie_elsewhere(fleet: Fleet):
    fleet.edit("cluster.yaml", "version: 1", "version: 1\nstorage: ../stored")
    assert fleet.cluster.import_().ok
    fleet.applied()
    stored = fleet.directory.parent / "stored"
    assert {path.name for path in stored.iterdir()} == {"__cluster", "graphs"}
    assert (stored / "graphs" / "people.omni").is_dir()
    assert not (fleet.directory / "__cluster").exists()
    assert Cluster(stored).status().state_observations.state_found


def test_a_command_leaves_no_lock_object_in_the_listing(running: Fleet):
    assert LOCK not in open_store(Root.parse(running.directory)).list("__cluster")
