"""`omnigraph index`."""

from __future__ import annotations

import json


def test_index_says_what_it_built_and_then_that_nothing_is_missing(run, full_graph: str):
    done = run("index", full_graph)
    assert done.code == 0
    assert done.err == f"omnigraph index → {full_graph} (direct, local)\n"
    *rows, _, total, commit = done.out.splitlines()
    assert rows[0].split() == ["type", "btree", "inverted", "vector"]
    assert ["node", "Person", "id,", "name", "name", "-"] in [row.split() for row in rows]
    assert total.endswith(" indexes built on main")
    assert commit.startswith("commit ")
    assert run("--quiet", "index", full_graph).err == ""
    assert run("index", full_graph).out == "nothing to build on main\n"


def test_index_of_a_branch_as_json(run, full_graph: str):
    assert run("branch", "create", "side", "--uri", full_graph).code == 0
    document = json.loads(run("index", full_graph, "--branch", "side", "--json").out)
    assert (document["uri"], document["branch"]) == (full_graph, "side")
    assert document["summary"]["graph_commit_id"]
    assert document["summary"]["built"] == sum(len(row["built"]) for row in document["datasets"])
    (person,) = [row for row in document["datasets"] if row["type_key"] == "node:Person"]
    assert person["committed"]
    assert {"property": "name", "kind": "inverted"} in person["built"]
    again = json.loads(run("index", full_graph, "--branch", "side", "--json").out)
    assert again["summary"]["graph_commit_id"] is None
    assert not any(row["committed"] for row in again["datasets"])


def test_what_has_to_wait_is_named_with_the_reason(run, tmp_path):
    schema = tmp_path / "schema.pg"
    schema.write_text("node Memo { code: String @key  leaf: Vector(2)? @index }")
    data = tmp_path / "memo.jsonl"
    data.write_text('{"type": "Memo", "data": {"code": "a"}}\n')
    graph = str(tmp_path / "memo.omni")
    run("init", "--schema", schema, graph)
    run("load", graph, "--data", data, "--mode", "append")
    done = run("index", graph)
    assert done.code == 0
    assert "pending: node Memo.leaf: there is no vector yet: every value is null\n" in done.out


def test_c_cli_006_index_has_no_actor_and_no_server(run, full_graph: str):
    assert run("index", full_graph, "--as", "act-ana").code == 2
    assert run("index", "http://localhost/graphs/team").code == 2
