"""The command line of clusters: `omnigraph cluster …`, and `--cluster` of other commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome, Run, no_settings, run
from tests.cluster.conftest import CLUSTER_POLICY, PEOPLE, Fleet

__all__ = ["no_settings", "run"]

ASKED = ("--actor", "act-ana", "--action")


@pytest.fixture
def command(run: Run, fleet: Fleet) -> Any:
    """`omnigraph cluster …` on the fleet."""

    def call(*arguments: object) -> Outcome:
        return run("cluster", *arguments, "--config", fleet.directory)

    return call


@pytest.fixture
def governed(running: Fleet) -> Fleet:
    """A cluster with a policy of its own beside that of one graph."""
    running.edit(
        "cluster.yaml",
        "policies:\n",
        "policies:\n  ops: { file: ops.yaml, applies_to: [cluster] }\n",
    )
    running.write(ops_yaml=CLUSTER_POLICY)
    running.applied()
    return running


def test_a_cluster_is_made_and_changed_from_the_command_line(command: Any, fleet: Fleet):
    assert command("validate").code == 0
    assert "+ graph.people" in command("plan").out
    assert command("apply").code == 1
    assert command("import").code == 0
    done = command("apply", "--as", "act-ana")
    assert done.code == 0, done.err
    assert "applied 6 changes; the ledger is at 2" in done.out
    assert "nothing to do" in command("apply").out
    assert "revision 2 with 6 resources" in command("status").out
    fleet.edit("people.pg", "age: I32?", "age: I32?  email: String?")
    planned = command("plan").out
    assert "~ schema.people" in planned
    assert "email" in planned
    fleet.edit("cluster.yaml", "  sales: { schema: sales.pg }\n", "")
    assert "graph.sales needs an approval" in command("plan").out
    waiting = command("apply", "--as", "act-ana")
    assert waiting.code == 0
    assert "not everything is as it is declared yet" in waiting.out
    assert command("approve", "graph.sales").code == 1
    assert (
        "act-ana approved to delete graph.sales"
        in command("approve", "graph.sales", "--as", "act-ana").out
    )
    assert command("apply", "--as", "act-ana").code == 0
    assert not fleet.root("sales").exists()
    assert command("refresh").code == 0


@pytest.mark.parametrize("verb", ["validate", "plan", "status", "refresh", "import", "apply"])
def test_json_is_one_document_also_of_a_failure(command: Any, fleet: Fleet, verb: str):
    fleet.write(cluster_yaml="version: 1\nversion: 1\n")
    failed = command(verb, "--json")
    assert failed.code == 1
    document = json.loads(failed.out)
    assert not document["ok"]
    assert document["diagnostics"][0]["code"] == "duplicate_yaml_key"
    assert document["config_dir"] == str(fleet.directory)
    assert "duplicate_yaml_key" in command(verb).err


def test_a_plan_is_kept_in_a_file_and_applied(command: Any, imported: Fleet, tmp_path: Path):
    file = tmp_path / "plan.json"
    assert command("plan", "--out", file).code == 0
    imported.write(base_yaml="version: 1\n")
    stale = command("apply", "--plan", file, "--as", "act-ana", "--json")
    assert stale.code == 1
    assert json.loads(stale.out)["diagnostics"][-1]["code"] == "plan_stale"
    assert imported.ledger.state_revision == 1


def test_the_lock_is_broken_by_its_id(command: Any, imported: Fleet):
    from tests.cluster.test_apply import HELD, hold

    hold(imported)
    held = command("apply", "--as", "act-bo")
    assert held.code == 1
    assert f"force-unlock {HELD['lock_id']}" in held.err
    assert command("force-unlock", "wrong").code == 1
    assert command("force-unlock", HELD["lock_id"]).code == 0
    assert command("apply", "--as", "act-bo").code == 0


def test_flags_that_mean_nothing_are_refused(run: Run, running: Fleet):
    place = str(running.directory)
    for words in (
        ["cluster", "plan", "--as", "act-ana"],
        ["cluster", "apply", "--store", place],
        ["query", "q", "--cluster", place],
        ["mutate", "-e", "x", "--cluster", place],
        ["serve", "--cluster", place, "--queries", "q"],
        ["serve", "--cluster", place, "--store", place],
        ["optimize", "--cluster", place, "--store", place],
    ):
        done = run(*words)
        assert done.code == 2, words
        assert done.out == ""


def test_c_cli_014_the_only_graph_of_a_cluster_is_taken_and_several_are_listed(
    run: Run, running: Fleet
):
    place = running.directory
    several = run("doctor", "--cluster", place)
    assert several.code == 1
    assert "people, sales" in several.err
    assert run("doctor", "--cluster", place, "--graph", "people", "--json").code == 0
    unknown = run("doctor", "--cluster", place, "--graph", "zoo")
    assert unknown.code == 1
    assert "people, sales" in unknown.err
    running.edit("cluster.yaml", "  sales: { schema: sales.pg }\n", "")
    assert running.cluster.approve("graph.sales", actor="act-ana").ok
    running.applied()
    only = run("doctor", "--cluster", place, "--json")
    assert only.code == 0, only.err


def test_c_cli_014_a_cluster_without_graphs_says_what_to_run(run: Run, imported: Fleet):
    done = run("optimize", "--cluster", imported.directory)
    assert done.code == 1
    assert "cluster apply" in done.err


def test_a_cluster_has_a_name_in_the_configuration_and_in_a_profile(
    run: Run, running: Fleet, no_settings: Path
):
    no_settings.mkdir()
    (no_settings / "config.yaml").write_text(
        f"clusters: {{ brain: {{ root: {running.directory} }} }}\n"
        "profiles: { staff: { cluster: brain, default_graph: people } }\n",
        encoding="utf-8",
    )
    assert run("doctor", "--cluster", "brain", "--graph", "sales", "--json").code == 0
    assert run("doctor", "--profile", "staff", "--json").code == 0
    assert "there is no cluster `brane`" in run("doctor", "--cluster", "brane").err
    refused = run(
        "query",
        "q",
        "-e",
        "query q { match { $p: Person } return { $p.name } }",
        "--profile",
        "staff",
    )
    assert refused.code == 2
    assert "addresses a cluster" in refused.err


def test_c_cli_017_a_root_that_a_cluster_manages_is_changed_through_the_cluster_only(
    run: Run, running: Fleet, tmp_path: Path
):
    schema = running.directory / "people.pg"
    managed = running.root("people")
    for words in (
        ["schema", "apply", managed, "--schema", schema],
        ["schema", "apply", "--store", f"{managed}/", "--schema", schema],
        ["init", "--schema", schema, running.root("other")],
    ):
        done = run(*words)
        assert done.code == 1, words
        assert "omnigraph cluster apply" in done.err
    assert not running.root("other").exists()
    # The same address without a cluster above it is nobody's.
    assert run("init", "--schema", schema, tmp_path / "graphs" / "free.omni").code == 0
    changed = tmp_path / "changed.pg"
    changed.write_text(PEOPLE.replace("age", "years"), encoding="utf-8")
    assert run("schema", "apply", tmp_path / "graphs" / "free.omni", "--schema", changed).code == 0


def test_c_cli_018_upkeep_through_a_cluster_works_though_its_catalog_is_damaged(
    run: Run, running: Fleet
):
    resources = running.directory / "__cluster" / "resources"
    for path in [each for each in resources.rglob("*") if each.is_file()]:
        path.write_bytes(b"damaged")
    sidecar = running.directory / "__cluster" / "recoveries" / "x.json"
    sidecar.parent.mkdir(exist_ok=True)
    sidecar.write_text("{", encoding="utf-8")
    done = run("optimize", "--cluster", running.directory, "--graph", "people", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["uri"] == str(running.root("people"))


# --- policies -------------------------------------------------------------------------------------


def test_c_pol_044_listing_graphs_is_decided_by_the_policy_of_the_cluster(
    run: Run, governed: Fleet
):
    place = governed.directory
    done = run("policy", "explain", "--cluster", place, *ASKED, "graph_list", "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert (answer["decision"], answer["bundle"]) == ("allow", "ops")
    other = run("policy", "explain", "--cluster", place, *ASKED, "read", "--json")
    assert json.loads(other.out)["bundle"] == "base"
    # What was applied decides, not the file.
    governed.write(ops_yaml=CLUSTER_POLICY.replace("act-ana", "act-bo"))
    again = run("policy", "explain", "--cluster", place, *ASKED, "graph_list", "--json")
    assert json.loads(again.out)["decision"] == "allow"


def test_c_pol_044_without_a_policy_of_the_cluster_nothing_decides(run: Run, running: Fleet):
    done = run("policy", "explain", "--cluster", running.directory, *ASKED, "graph_list")
    assert done.code == 1
    assert "no bundle was applied to the cluster itself" in done.err


def test_c_pol_045_of_several_policies_one_has_to_be_named(run: Run, governed: Fleet):
    governed.edit(
        "cluster.yaml",
        "policies:\n",
        "policies:\n  shop: { file: shop.yaml, applies_to: [sales] }\n",
    )
    governed.write(shop_yaml="version: 1\ngroups: { all: [act-cy] }\nrules: []\n")
    governed.applied()
    place = governed.directory
    done = run("policy", "explain", "--cluster", place, *ASKED, "read")
    assert done.code == 2
    assert "base for graph.people" in done.err
    assert "shop for graph.sales" in done.err
    assert "--graph" in done.err
    for graph, decision in (("people", "allow"), ("sales", "deny")):
        asked = run(
            "policy", "explain", "--cluster", place, "--graph", graph, *ASKED, "read", "--json"
        )
        assert json.loads(asked.out)["decision"] == decision
    unknown = run("policy", "explain", "--cluster", place, "--graph", "zoo", *ASKED, "read")
    assert unknown.code == 1
    assert "'zoo'" in unknown.err


def test_applied_policies_are_checked_and_tested(run: Run, governed: Fleet, tmp_path: Path):
    place = governed.directory
    checked = json.loads(run("policy", "validate", "--cluster", place, "--json").out)
    assert [(each["name"], each["kind"], each["applies_to"]) for each in checked["bundles"]] == [
        ("base", "graph", ["graph.people"]),
        ("ops", "server", ["cluster"]),
    ]
    tests = tmp_path / "tests.yaml"
    tests.write_text(
        "version: 1\ncases:\n"
        "  - { id: reads, actor: act-bo, action: read, expect: allow }\n"
        "  - { id: lists, actor: act-bo, action: graph_list, expect: deny }\n",
        encoding="utf-8",
    )
    assert run("policy", "test", "--cluster", place, "--tests", tests).code == 0
    missing = run("policy", "validate")
    assert missing.code == 2
    assert "--file" in missing.err
