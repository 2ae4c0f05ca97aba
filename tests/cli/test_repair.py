"""`omnigraph repair`."""

from __future__ import annotations

import json

import pytest

from omnigraph.graph import open_graph
from tests.upkeep.behind_the_back import deleted


@pytest.fixture
def drifted(full_graph: str) -> str:
    deleted(open_graph(full_graph), "node:Person", "name = 'bo'")
    return full_graph


def test_c_mnt_024_a_preview_names_what_happened(run, drifted: str):
    done = run("repair", drifted)
    assert done.code == 0
    assert done.err == f"omnigraph repair → {drifted} (direct, local)\n"
    assert "suspicious" in done.out and "Delete" in done.out
    assert done.out.endswith("1 table would be repaired; `--confirm` does it\n")


def test_c_mnt_026_and_c_cli_044_a_refusal_exits_with_1_after_the_table_is_printed(
    run, drifted: str
):
    refused = run("repair", drifted, "--confirm")
    assert refused.code == 1
    assert "refused: node:Person" in refused.out
    assert "0 repaired, 1 refused" in refused.out
    forced = run("repair", drifted, "--force", "--confirm")
    assert forced.code == 0
    assert "1 repaired, 0 refused" in forced.out
    assert run("repair", drifted).out == "nothing to repair on main\n"


def test_c_mnt_027_force_alone_is_a_usage_error(run, drifted: str):
    done = run("repair", drifted, "--force")
    assert done.code == 2
    assert "`--force` needs `--confirm`" in done.err


def test_repair_as_json(run, drifted: str):
    document = json.loads(run("repair", drifted, "--json").out)
    assert list(document) == [
        *("uri", "branch", "confirm", "force", "graph_manifest_version", "datasets", "summary"),
    ]
    (person,) = [row for row in document["datasets"] if row["type_key"] == "node:Person"]
    assert list(person) == [
        *("type_key", "branch", "published_dataset_version", "lance_head_version"),
        *("classification", "action", "operations", "error"),
    ]
    assert (person["classification"], person["action"]) == ("suspicious", "preview")
    assert document["summary"]["dry_run"]


def test_c_mnt_029_repair_of_a_branch(run, full_graph: str):
    assert run("branch", "create", "review", "--uri", full_graph).code == 0
    assert run("repair", full_graph, "--branch", "review", "--confirm").out == (
        "nothing to repair on review\n"
    )
    assert run("repair", full_graph, "--as", "act-ana").code == 2
