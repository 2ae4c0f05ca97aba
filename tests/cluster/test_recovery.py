"""What the next command makes of an apply that died, and of graphs and contents that drifted.

A failpoint raises what no step catches, so that nothing after it runs but the lock is given back; a
few cases kill a real process, which leaves the lock as well.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from omnigraph.cluster.answers import Applied
from omnigraph.cluster.digests import digest_of
from omnigraph.effects.failpoints import VARIABLE, Failpoint, armed
from omnigraph.graph import init
from tests.cluster.conftest import ACTOR, PEOPLE, POLICY, QUERIES, Fleet, error_codes, errors
from tests.support.forked import Command


class Death(BaseException):
    """The end of a process, as far as the code that is running can tell."""


def die(_: Failpoint) -> None:
    raise Death


def die_at(fleet: Fleet, failpoint: Failpoint) -> None:
    """Apply, and die at a failpoint."""
    with pytest.raises(Death), armed({failpoint: die}):
        fleet.cluster.apply(actor=ACTOR)


def converge(fleet: Fleet) -> Applied:
    """The next apply, after which nothing is left of the former."""
    done = fleet.cluster.apply(actor="act-bo")
    assert done.ok, errors(done)
    assert done.converged
    assert fleet.recoveries == []
    assert fleet.cluster.plan().changes == ()
    fleet.ledger.require_intact()
    return done


def records(fleet: Fleet) -> list[tuple[str, str, str | None, str | None]]:
    found = fleet.ledger.recovery_records.values()
    return [(each.resource, each.kind, each.outcome, each.actor) for each in found]


@pytest.fixture
def alone(fleet: Fleet) -> Fleet:
    """A cluster of one graph with an empty ledger."""
    fleet.edit("cluster.yaml", "  sales: { schema: sales.pg }\n", "")
    assert fleet.cluster.import_().ok
    return fleet


@pytest.fixture
def wider(running: Fleet) -> Fleet:
    """A cluster whose people are to get an address."""
    running.edit("people.pg", "age: I32?", "age: I32?  email: String?")
    return running


@pytest.fixture
def doomed(running: Fleet) -> Fleet:
    """A cluster that is to lose a graph, as was approved."""
    running.edit("cluster.yaml", "  sales: { schema: sales.pg }\n", "")
    assert running.cluster.approve("graph.sales", actor=ACTOR).ok
    return running


# --- creating -------------------------------------------------------------------------------------


def test_c_clu_030_a_crash_before_a_graph_was_made_is_forgotten_and_done_again(alone: Fleet):
    before = alone.state.read_bytes()
    die_at(alone, Failpoint.CLUSTER_CREATE_POST_SIDECAR)
    assert len(alone.recoveries) == 1
    assert alone.state.read_bytes() == before
    planned = alone.cluster.plan()
    assert "cluster_recovery_pending" in planned.codes
    assert len(alone.recoveries) == 1  # a plan settles nothing
    converge(alone)
    assert records(alone) == []


def test_c_clu_031_a_crash_after_a_graph_was_made_is_written_into_the_ledger(alone: Fleet):
    die_at(alone, Failpoint.CLUSTER_CREATE_POST_INIT)
    commit = alone.graph("people").snapshot().graph_commit_id
    done = converge(alone)
    assert "cluster_recovery_rolled_forward" in done.codes
    assert alone.graph("people").snapshot().graph_commit_id == commit
    # The actor of the creation is on record, not the one who ran into it.
    assert records(alone) == [("graph.people", "graph_create", "rolled_forward", ACTOR)]


def test_c_clu_031_refresh_writes_it_into_the_ledger_too(alone: Fleet):
    die_at(alone, Failpoint.CLUSTER_CREATE_POST_INIT)
    assert alone.cluster.refresh().ok
    assert alone.recoveries == []
    assert alone.ledger.digest("schema.people") == digest_of(PEOPLE.encode())


@pytest.mark.parametrize("failpoint", [Failpoint.INIT_AFTER_SCHEMA_CONTRACT_WRITTEN])
def test_c_clu_034_a_half_made_graph_is_kept_and_blocks_what_needs_it(
    imported: Fleet, failpoint: Failpoint
):
    def leave_half(_: Failpoint) -> None:
        root = imported.root("people")
        shutil.copytree(root, root.with_suffix(".half"))
        raise Death

    with pytest.raises(Death), armed({failpoint: leave_half}):
        imported.cluster.apply(actor=ACTOR)
    root = imported.root("people")
    shutil.rmtree(root, ignore_errors=True)
    root.with_suffix(".half").rename(root)
    done = imported.cluster.apply(actor=ACTOR)
    assert error_codes(done) == ["graph_create_incomplete"]
    assert not done.converged
    found = {each.resource: (each.disposition, each.reason) for each in done.changes}
    waits = ("blocked", "cluster_recovery_pending")
    assert found == {
        "graph.people": waits,
        "graph.sales": ("applied", None),
        "policy.base": waits,
        "query.people.everybody": waits,
        "schema.people": waits,
        "schema.sales": ("applied", None),
    }
    assert len(imported.recoveries) == 1
    status = imported.ledger.resource_statuses["graph.people"]
    assert "cluster_recovery_pending" in (status.conditions or ())
    # A person looks, and removes it.
    shutil.rmtree(root)
    converge(imported)


# --- schemas --------------------------------------------------------------------------------------


def test_c_clu_032_a_crash_before_a_schema_changed_is_forgotten_and_done_again(wider: Fleet):
    die_at(wider, Failpoint.CLUSTER_SCHEMA_POST_SIDECAR)
    assert "email" not in wider.graph("people").schema_source
    converge(wider)
    assert "email" in wider.graph("people").schema_source
    assert records(wider) == []


def test_c_clu_032_a_crash_after_a_schema_changed_is_written_into_the_ledger(wider: Fleet):
    die_at(wider, Failpoint.CLUSTER_SCHEMA_POST_APPLY)
    commit = wider.graph("people").snapshot().graph_commit_id
    converge(wider)
    assert wider.graph("people").snapshot().graph_commit_id == commit
    assert records(wider) == [("graph.people", "schema_apply", "rolled_forward", ACTOR)]


@pytest.mark.parametrize(
    "failpoint",
    [Failpoint.SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT, Failpoint.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT],
)
def test_c_clu_032_a_crash_inside_the_change_is_settled_by_the_graph_first(
    wider: Fleet, failpoint: Failpoint
):
    die_at(wider, failpoint)
    converge(wider)
    assert "email" in wider.graph("people").schema_source


def test_c_clu_032_another_schema_than_either_is_kept_for_a_person(wider: Fleet):
    die_at(wider, Failpoint.CLUSTER_SCHEMA_POST_SIDECAR)
    wider.graph("people").apply_schema(
        "node Person { name: String @key  age: I32?  city: String? }"
    )
    done = wider.cluster.apply(actor=ACTOR)
    assert done.ok
    assert not done.converged
    assert "cluster_recovery_pending" in done.codes
    assert len(wider.recoveries) == 1
    status = wider.ledger.resource_statuses["graph.people"]
    assert status.status in ("drifted", "blocked")
    wider.recoveries[0].unlink()
    assert wider.cluster.refresh().ok


def test_c_clu_032_edited_comments_do_not_confuse_recovery(running: Fleet):
    running.edit("people.pg", "node Person", "// people\nnode Person")
    running.applied()
    running.edit("people.pg", "age: I32?", "age: I32?  email: String?")
    die_at(running, Failpoint.CLUSTER_SCHEMA_POST_SIDECAR)
    converge(running)


# --- deleting -------------------------------------------------------------------------------------


def test_c_clu_033_a_crash_before_a_deletion_proposes_it_again_under_its_approval(doomed: Fleet):
    die_at(doomed, Failpoint.CLUSTER_DELETE_POST_SIDECAR)
    assert doomed.root("sales").is_dir()
    done = converge(doomed)
    assert "graph_delete_incomplete" in done.codes
    assert not doomed.root("sales").exists()
    assert doomed.approvals[0]["consumed_at"] is not None


def test_c_clu_033_a_half_removed_graph_is_removed(doomed: Fleet):
    die_at(doomed, Failpoint.CLUSTER_DELETE_POST_SIDECAR)
    shutil.rmtree(doomed.root("sales") / "__manifest")
    converge(doomed)
    assert not doomed.root("sales").exists()


@pytest.mark.parametrize("command", ["apply", "refresh"])
def test_c_clu_033_a_crash_after_a_deletion_is_finished_and_the_approval_used_up(
    doomed: Fleet, command: str
):
    die_at(doomed, Failpoint.CLUSTER_DELETE_POST_REMOVE)
    assert "graph.sales" in doomed.ledger.resources
    found = doomed.cluster.refresh() if command == "refresh" else doomed.cluster.apply(actor=ACTOR)
    assert found.ok, errors(found)
    ledger = doomed.ledger
    assert "graph.sales" not in ledger.resources
    assert ledger.observations["graph.sales"].kind == "tombstone"
    assert ledger.observations["graph.sales"].actor == ACTOR
    (approval,) = doomed.approvals
    assert approval["approval_id"] in ledger.approval_records
    assert approval["consumed_at"] is not None
    assert records(doomed) == [("graph.sales", "graph_delete", "rolled_forward", ACTOR)]
    converge(doomed)


def test_c_clu_033_a_crash_after_the_ledger_leaves_an_approval_that_counts_no_more(doomed: Fleet):
    die_at(doomed, Failpoint.CLUSTER_APPLY_POST_LEDGER)
    assert len(doomed.recoveries) == 1
    assert [each["consumed_at"] for each in doomed.approvals] == [None]
    doomed.edit("cluster.yaml", "policies:\n", "  sales: { schema: sales.pg }\npolicies:\n")
    converge(doomed)
    assert doomed.approvals[0]["consumed_at"] is not None
    doomed.edit("cluster.yaml", "  sales: { schema: sales.pg }\n", "")
    assert not doomed.cluster.apply(actor=ACTOR).converged
    assert doomed.root("sales").is_dir()


# --- contents and ledger --------------------------------------------------------------------------


def test_c_clu_036_a_crash_after_the_contents_leaves_the_ledger_as_it_was(running: Fleet):
    running.write(
        queries__people_gq=QUERIES.replace("$p.name }", "$p.name, $p.age }"),
        base_yaml=POLICY.replace("act-bo", "act-cy"),
    )
    before = running.state.read_bytes()
    die_at(running, Failpoint.CLUSTER_APPLY_POST_PAYLOADS)
    assert running.state.read_bytes() == before
    blobs = running.directory / "__cluster" / "resources" / "policy" / "base"
    assert len(list(blobs.iterdir())) == 2
    converge(running)


KILLS = {
    Failpoint.CLUSTER_CREATE_POST_SIDECAR: "alone",
    Failpoint.CLUSTER_CREATE_POST_INIT: "alone",
    Failpoint.CLUSTER_APPLY_POST_PAYLOADS: "alone",
    Failpoint.CLUSTER_APPLY_POST_LEDGER: "alone",
    Failpoint.CLUSTER_SCHEMA_POST_SIDECAR: "wider",
    Failpoint.CLUSTER_SCHEMA_POST_APPLY: "wider",
    Failpoint.CLUSTER_DELETE_POST_SIDECAR: "doomed",
    Failpoint.CLUSTER_DELETE_POST_REMOVE: "doomed",
}
"""Every step of an apply, and what is to be applied."""


def test_every_step_of_an_apply_is_killed():
    named = [each for each in Failpoint if each.name.startswith("CLUSTER_")]
    assert sorted(KILLS) == sorted(named)


@pytest.mark.slow
@pytest.mark.parametrize(("failpoint", "due"), KILLS.items(), ids=map(str, KILLS))
def test_c_clu_030_031_032_033_036_a_killed_process_is_settled_once_its_lock_is_broken(
    request: pytest.FixtureRequest, failpoint: Failpoint, due: str
):
    alone: Fleet = request.getfixturevalue(due)
    environment = {**os.environ, VARIABLE: f"{failpoint}=kill"}
    words = ("cluster", "apply", "--config", alone.directory, "--as", ACTOR)
    killed = Command(*words, env=environment)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    stopped = alone.cluster.apply(actor="act-bo")
    assert error_codes(stopped) == ["state_lock_held"]
    assert "of act-ana" in stopped.errors[0].message
    lock_id = json.loads(alone.lock.read_bytes())["lock_id"]
    assert alone.cluster.force_unlock(lock_id).ok
    converge(alone)


def test_a_sidecar_that_cannot_be_read_stays_and_is_warned_about(running: Fleet):
    path = running.directory / "__cluster" / "recoveries" / "x.json"
    path.parent.mkdir(exist_ok=True)
    codes = {
        "{": "invalid_recovery_sidecar",
        '{"schema_version": 2}': "unsupported_recovery_sidecar_version",
    }
    for text, code in codes.items():
        path.write_text(text, encoding="utf-8")
        assert code in running.cluster.apply(actor=ACTOR).codes
        assert path.read_text(encoding="utf-8") == text


# --- drift ----------------------------------------------------------------------------------------


def test_c_clu_038_a_graph_that_vanished_is_noticed_and_made_again_empty(running: Fleet):
    running.graph("people").load(
        data='{"type": "Person", "data": {"name": "ada"}}\n', mode="append"
    )
    shutil.rmtree(running.root("people"))
    found = running.cluster.refresh()
    assert found.ok
    assert found.resource_statuses["graph.people"]["conditions"] == ["graph_missing"]
    assert "schema.people" not in found.resource_digests
    planned = {each.resource: each.operation for each in running.cluster.plan().changes}
    assert planned == {"graph.people": "create", "schema.people": "create"}
    done = running.applied()
    assert done.resource_statuses["graph.people"] == {"status": "applied"}
    people = running.graph("people").query("query q { match { $p: Person } return { $p.name } }")
    assert people.to_pylist() == []


def test_c_clu_039_a_schema_changed_behind_the_cluster_is_put_right(running: Fleet):
    graph = running.graph("people")
    graph.apply_schema("node Person { name: String @key  age: I32?  city: String? }")
    found = running.cluster.refresh()
    assert found.ok
    assert found.resource_statuses["schema.people"]["conditions"] == ["schema_mismatch"]
    seen = found.observations["graph.people"]
    assert not seen["schema_matches_desired"]
    assert seen["graph_manifest_version"] == graph.snapshot().graph_manifest_version
    running.ledger.require_intact()
    change = next(c for c in running.cluster.plan().changes if c.resource == "schema.people")
    assert change.migration is not None
    assert [step["kind"] for step in change.migration.steps] == ["drop_property"]
    running.applied()
    assert running.graph("people").schema_source == PEOPLE


def test_a_schema_that_differs_in_comments_is_no_drift(running: Fleet):
    running.edit("people.pg", "node Person", "// people\nnode Person")
    running.applied()
    found = running.cluster.refresh()
    assert found.resource_statuses["schema.people"]["status"] == "applied"
    assert running.cluster.plan().changes == ()


@pytest.mark.parametrize("damage", ["missing", "mismatch"])
def test_c_clu_040_a_damaged_entry_of_the_catalog_is_published_again(running: Fleet, damage: str):
    path = _blob(running)
    good = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"query everybody() { match { $p: Person } return { $p.age } }")
    status = running.cluster.status()
    assert status.ok
    assert f"catalog_payload_{damage}" in status.codes
    found = running.cluster.refresh()
    assert found.ok
    address = "query.people.everybody"
    assert found.resource_statuses[address]["conditions"] == [f"payload_{damage}"]
    assert address not in found.resource_digests
    running.applied()
    assert path.read_bytes() == good
    assert running.cluster.status().codes == []


def test_c_clu_041_an_entry_that_cannot_be_read_keeps_its_digest(running: Fleet):
    path = _blob(running)
    digest = running.ledger.digest("query.people.everybody")
    path.unlink()
    path.symlink_to(path.name)  # a loop: neither there nor absent
    found = running.cluster.refresh()
    assert error_codes(found) == ["catalog_payload_read_error"]
    assert running.ledger.digest("query.people.everybody") == digest
    status = found.resource_statuses["query.people.everybody"]
    assert (status["status"], status["conditions"]) == ("error", ["payload_read_error"])
    path.unlink()
    path.write_text(QUERIES, encoding="utf-8")
    assert running.cluster.refresh().ok


def test_c_clu_042_an_import_that_cannot_open_a_graph_makes_no_ledger(fleet: Fleet):
    init(fleet.root("people"), PEOPLE)
    shutil.rmtree(fleet.root("people") / "__manifest")
    found = fleet.cluster.import_()
    assert error_codes(found) == ["graph_observation_error"]
    assert not fleet.state.exists()


def test_an_import_takes_in_the_graphs_that_exist_and_nothing_else(fleet: Fleet):
    init(fleet.root("people"), PEOPLE)
    found = fleet.cluster.import_()
    assert found.ok
    assert sorted(found.resource_digests) == ["graph.people", "schema.people"]
    assert fleet.ledger.state_revision == 1
    assert fleet.ledger.applied_revision.config_digest is None
    assert error_codes(fleet.cluster.import_()) == ["state_already_exists"]
    fleet.applied()


def test_an_unreadable_graph_fails_a_refresh_and_keeps_what_was_applied(running: Fleet):
    shutil.rmtree(running.root("people") / "__manifest")
    found = running.cluster.refresh()
    assert error_codes(found) == ["graph_observation_error"]
    assert "graph.people" in found.resource_digests
    assert found.resource_statuses["graph.people"]["status"] == "error"


def _blob(fleet: Fleet) -> Path:
    resources = fleet.directory / "__cluster" / "resources" / "query" / "people" / "everybody"
    (path,) = resources.iterdir()
    return path
