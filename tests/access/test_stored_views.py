"""Stored queries of an actor that sees a part of a graph, over HTTP and as tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson

from omnigraph.graph import init
from omnigraph.server.auth import TOKENS_JSON
from omnigraph.server.config import GraphSpec
from tests.server.live import serving

SCHEMA = """
node Note { slug: String @key  author: String }
node Person { name: String @key  salary: I32? }
node Plan { name: String @key }
edge About: Note -> Person
"""
RECORDS = """\
{"type": "Person", "data": {"name": "ada", "salary": 9}}
{"type": "Plan", "data": {"name": "p"}}
"""
QUERIES = """
query people() { match { $p: Person } return { $p.name as name } }
query pay() { match { $p: Person } return { $p.salary as salary } }
query plans() { match { $p: Plan } return { $p.name as name } }
query note($slug: String) {
    insert Note { slug: $slug, author: "act-ana" }
    insert About { from: $slug, to: "ada" }
}
query raise_pay() { update Person set { salary: 10 } where name = "ada" }
"""
POLICY = """
version: 2
groups: {agents: [act-ana]}
rules:
  - id: calls
    allow: {actors: {group: agents}, actions: [invoke_query]}
  - id: reads
    allow: {actors: {group: agents}, actions: [read], branch_scope: any}
    types: {Note: all, Person: {properties: [name]}, About: all}
  - id: reads-plans
    allow: {actors: {group: agents}, actions: [read], branches: ["agent/*"]}
    types: {Plan: all}
  - id: writes
    allow: {actors: {group: agents}, actions: [change], branches: ["agent/*"]}
    types: {Note: {where: '$row.author = $actor.id'}, About: all}
"""


def test_c_acc_003_a_stored_query_is_there_where_all_that_it_names_is_seen(tmp_path: Path):
    """Some rules are about branches alone, so a query may be known, and not on every branch."""
    graph = init(tmp_path / "graph.omni", SCHEMA)
    graph.load(data=RECORDS, mode="append")
    graph.create_branch("agent/7")
    (tmp_path / "queries.gq").write_text(QUERIES)
    (tmp_path / "policy.yaml").write_text(POLICY)
    queries = (tmp_path / "queries.gq",)
    spec = GraphSpec("default", graph.uri, queries, tmp_path / "policy.yaml")
    tokens = orjson.dumps({"act-ana": "token-of-ana-0001"}).decode()
    with serving(spec, environment={TOKENS_JSON: tokens}, mcp=True) as live:
        client = live.client("act-ana")

        def called(name: str, branch: str | None = None, **params: Any) -> httpx.Response:
            return client.post(f"/queries/{name}", json={"params": params, "branch": branch})

        listed = {each["name"] for each in client.get("/queries").json()["queries"]}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        tools = {each["name"] for each in client.post("/mcp", json=asked).json()["result"]["tools"]}
        stored = {"people", "pay", "plans", "note", "raise_pay"}
        assert listed == tools & stored == {"people", "plans", "note"}
        unknown = called("nothing")
        for hidden in (called("pay"), called("raise_pay", "agent/7"), called("plans")):
            assert (hidden.status_code, hidden.content) == (404, unknown.content)
        assert called("people").json()["rows"] == [{"name": "ada"}]
        assert called("plans", "agent/7").json()["rows"] == [{"name": "p"}]
        assert called("note", slug="n").status_code == 403
        receipt = called("note", "agent/7", slug="n").json()
        assert (receipt["affected_nodes"], receipt["affected_edges"]) == (1, 1)
