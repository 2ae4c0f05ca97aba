"""A server heals a blocked branch itself, and says so while it cannot."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from omnigraph.effects.failpoints import armed
from omnigraph.errors import RecoveryRequired
from omnigraph.graph import Graph, open_graph
from omnigraph.server.config import GraphSpec
from omnigraph.storage import transactions
from omnigraph.storage.transactions import DatasetRef
from tests.server.live import Live

ADD_PAIR = "query add($name: String) { insert Person { name: $name }  insert City { name: $name } }"

BETWEEN_TABLES = "mutation.post_table_commit=error*1"


def interrupt(graph: Graph, name: str = "lost") -> None:
    """A write of two tables that dies between them."""
    with armed(BETWEEN_TABLES), pytest.raises(RecoveryRequired):
        graph.mutate(ADD_PAIR, {"name": name})


def add(client: httpx.Client, name: str) -> httpx.Response:
    return client.post("/mutate", json={"query": ADD_PAIR, "params": {"name": name}})


def ready_when(live: Live, status: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while (found := live.client(graph_id=None).get("/readyz").json())["status"] != status:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return dict(found)


def test_a_write_after_a_neighbour_died_heals_the_branch(
    open_server: Live, spec: GraphSpec
) -> None:
    interrupt(open_graph(spec.uri))
    assert add(open_server.client(), "next").status_code == 200


def test_a_server_that_failed_itself_writes_again_without_a_restart(open_server: Live) -> None:
    client = open_server.client()
    with armed(BETWEEN_TABLES):
        lost = add(client, "lost")
    assert lost.status_code == 503
    assert add(client, "next").status_code == 200


def test_readyz_shows_a_blocked_branch_and_why_until_it_is_free(
    open_server: Live, spec: GraphSpec
) -> None:
    served = open_server.graph()
    neighbour = open_graph(spec.uri)
    interrupt(neighbour)
    kernel = neighbour._kernel
    for entry in kernel.manifest.main.refresh().head_snapshot().tables.values():
        handle = kernel.lance.open(DatasetRef(kernel.table_uri(entry.location)))
        if handle.version > entry.version:
            kernel.lance.commit(handle, transactions.stage_restore(handle, 1, kernel.ids.ulid()))
    assert served._opened.healer is not None
    served._opened.healer.wake()
    found = ready_when(open_server, "degraded")
    assert found["branches_blocked"] == 1
    (block,) = found["blocked"]
    assert (block["graph_id"], block["branch"]) == ("default", "main")
    assert "another writer" in block["reason"]
    assert spec.uri not in str(found)
    assert add(open_server.client(), "next").status_code == 503
    served.recover(force=True)
    served._opened.healer.wake()
    assert ready_when(open_server, "ready")["blocked"] == []
    assert add(open_server.client(), "next").status_code == 200


def test_names_are_for_those_who_may_read_them(
    guarded: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.model.upkeep import BlockedBranch

    healer = guarded.graph()._opened.healer
    assert healer is not None
    healer.stop()
    healer.blocked = (BlockedBranch("main", "01M7000000000000000000000X", "it is torn", 1),)
    stranger = httpx.get(f"{guarded.url}/readyz").json()
    assert (stranger["status"], stranger["branches_blocked"]) == ("degraded", 1)
    assert stranger["blocked"] == []
    known = guarded.client("act-ana", graph_id=None).get("/readyz").json()
    assert [each["reason"] for each in known["blocked"]] == ["it is torn"]
