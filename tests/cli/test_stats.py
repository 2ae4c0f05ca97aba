"""`omnigraph stats`."""

from __future__ import annotations

import json


def test_stats_show_every_type_and_what_needs_attention(run, full_graph: str):
    done = run("stats", full_graph)
    assert done.code == 0
    assert done.err == ""
    lines = done.out.splitlines()
    assert lines[0].split() == [
        *("type", "rows", "deleted", "fragments", "bytes", "versions", "version", "indexed"),
    ]
    assert lines[2].split()[:5] == ["node", "Person", "2", "0", "1"]
    assert "advice: node:Person: indexes are missing" in done.out
    assert f"  omnigraph index --store {full_graph}" in lines
    assert run("index", full_graph).code == 0
    assert run("stats", full_graph).out.endswith("nothing needs attention\n")


def test_stats_as_json(run, full_graph: str):
    document = json.loads(run("stats", full_graph, "--json").out)
    assert list(document) == [
        *("uri", "branch", "graph_commit_id", "internal_schema_version", "branches", "commits"),
        *("manifest_versions", "datasets", "pending_operations", "leases", "findings"),
    ]
    (person,) = [row for row in document["datasets"] if row["type_key"] == "node:Person"]
    assert person["rows"] == 2
    assert {index["property"] for index in person["indexes"]} == {"id", "name"}
    assert {finding["severity"] for finding in document["findings"]} == {"advice"}


def test_stats_of_a_branch(run, full_graph: str):
    assert run("branch", "create", "review", "--uri", full_graph).code == 0
    assert "review at commit" in run("stats", full_graph, "--branch", "review").out
    missing = run("stats", full_graph, "--branch", "revew")
    assert missing.code == 1
    assert "review" in missing.err
