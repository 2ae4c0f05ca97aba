"""`omnigraph recover` and `omnigraph recovery list`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.effects.failpoints import armed
from omnigraph.errors import RecoveryRequired
from omnigraph.storage.transactions import DatasetRef
from tests.support.graphs import TestGraph, new_graph

AFTER_TABLES = "mutation.post_finalize_pre_publisher=error*1"
BETWEEN_TABLES = "mutation.post_table_commit=error*1"


@pytest.fixture
def broken(tmp_path: Path):
    """A graph with a write that broke off at a failpoint; its operation id."""

    def make(where: str) -> tuple[TestGraph, str, str]:
        graph = new_graph(tmp_path)
        with armed(where), pytest.raises(RecoveryRequired) as caught:
            graph.write(graph.persons_and_city("ada", "Rome"))
        return graph, graph.kernel.root.uri, caught.value.details["operation_id"]

    return make


def test_recover_without_anything_to_do(run, graph: str):
    assert run("recover", graph).out == "nothing to recover\n"
    assert run("recovery", "list", graph).out == "no recovery was ever needed\n"
    document = json.loads(run("recover", graph, "--json").out)
    assert document == {"uri": graph, "force": False, "operations": []}


@pytest.mark.parametrize(
    ("where", "outcome", "kind"),
    [
        (AFTER_TABLES, "rolled_forward", "RolledForward"),
        (BETWEEN_TABLES, "rolled_back", "RolledBack"),
    ],
)
def test_recover_says_what_became_of_an_operation(run, broken, where, outcome, kind):
    _, uri, operation_id = broken(where)
    document = json.loads(run("recover", uri, "--json").out)
    assert document["operations"] == [
        {"operation_id": operation_id, "outcome": outcome, "settled": True, "reason": None}
    ]
    assert run("recover", uri).out == "nothing to recover\n"
    (recovery,) = json.loads(run("recovery", "list", uri, "--json").out)["recoveries"]
    assert (recovery["operation_id"], recovery["recovery_kind"]) == (operation_id, kind)
    header, row = run("recovery", "list", uri).out.splitlines()
    assert header.split()[:3] == ["operation", "of", "ended"]
    assert row.split()[:3] == [operation_id, "Mutation", kind]
    found = run("commit", "list", uri, "--filter", "actor=omnigraph:recovery", "--json")
    assert len(json.loads(found.out)["commits"]) == 1


def test_recover_tells_people_too(run, broken):
    _, uri, operation_id = broken(AFTER_TABLES)
    assert run("recover", uri).out == f"{operation_id}  rolled forward\n1 operation settled\n"


def test_what_stays_unsettled_exits_with_1_until_it_is_forced(run, broken):
    graph, uri, operation_id = broken(BETWEEN_TABLES)
    entry = graph.snapshot().tables["node:City"]
    foreign = graph.kernel.lance.open(DatasetRef(graph.kernel.table_uri(entry.location)))
    foreign.delete("name = 'somebody was here'")
    person = graph.snapshot().tables["node:Person"]
    graph.kernel.lance.open(DatasetRef(graph.kernel.table_uri(person.location))).delete("age = 1")
    done = run("recover", uri, "--json")
    assert done.code == 1
    (operation,) = json.loads(done.out)["operations"]
    assert (operation["outcome"], operation["settled"]) == ("blocked", False)
    shown = run("recover", uri)
    assert shown.code == 1
    assert shown.out.endswith("1 of 1 operation not settled\n")
    assert "--force --confirm" in shown.out
    forced = run("recover", uri, "--force", "--confirm")
    assert (forced.code, forced.out) == (
        0,
        f"{operation_id}  rolled back\n1 operation settled\n",
    )


@pytest.mark.parametrize("flag", ["--force", "--confirm"])
def test_force_and_confirm_go_together(run, graph: str, flag: str):
    done = run("recover", graph, flag)
    assert done.code == 2
    assert f"`{flag}` needs `" in done.err
