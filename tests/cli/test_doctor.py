"""`omnigraph doctor`."""

from __future__ import annotations

import json

from omnigraph.graph import open_graph
from tests.upkeep.behind_the_back import deleted


def test_a_healthy_graph_exits_with_0(run, full_graph: str):
    assert run("index", full_graph).code == 0
    done = run("doctor", full_graph)
    assert done.code == 0
    assert done.out.splitlines()[0] == "ok    numbers of main"
    assert done.out.endswith("\nhealthy\n")


def test_advice_is_no_failure(run, full_graph: str):
    done = run("doctor", full_graph)
    assert done.code == 0
    assert f"  omnigraph index --store {full_graph}\n" in done.out
    assert "healthy, with " in done.out


def test_a_problem_exits_with_1_and_names_its_command(run, full_graph: str):
    deleted(open_graph(full_graph), "node:Person", "name = 'bo'")
    done = run("doctor", full_graph)
    assert done.code == 1
    assert "wrong numbers of main" in done.out
    assert f"  omnigraph repair --store {full_graph} --force --confirm\n" in done.out
    document = json.loads(run("doctor", full_graph, "--json").out)
    assert set(document) == {"uri", "healthy", "checks", "findings"}
    assert document["healthy"] is False
    (drift,) = [found for found in document["findings"] if found["code"] == "drift"]
    assert list(drift) == ["code", "severity", "subject", "message", "command"]


def test_where_there_is_no_graph_the_failure_says_so(run):
    done = run("doctor", "missing.omni")
    assert done.code == 1
    assert "there is no graph" in done.err
