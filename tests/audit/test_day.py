"""A day of work on every face: the audit has a line for each access, and no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.audit import AuditFilter, AuditSettings, read_entries
from omnigraph.cli.main import main
from omnigraph.cli.operator_config import HOME_VARIABLE
from omnigraph.errors import PolicyDenied
from omnigraph.graph import open_graph
from omnigraph.policy import load_policy
from omnigraph.server.config import GraphSpec
from tests.cli.conftest import Outcome, Run
from tests.server.live import (
    ADD,
    PEOPLE,
    POLICY,
    QUERIES,
    RECORDS,
    SERVER_POLICY,
    TOKENS,
    bearer,
    new_graph,
    serving,
    with_tokens,
)

SECRET = "a-secret-value"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command line here, without the settings of whoever runs the tests."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call


def accesses(path: Path) -> list[dict[str, Any]]:
    found = [dict(each.facts) for each in read_entries([path], AuditFilter())]
    return [each for each in found if each["event"] == "access"]


def brief(line: dict[str, Any]) -> tuple[Any, ...]:
    return line.get("actor"), line["verb"], line.get("branch"), line["decision"]


def test_c_acc_012_a_day_in_this_process(tmp_path: Path):
    new_graph(tmp_path / "graph.omni")
    path = tmp_path / "audit.jsonl"
    graph = open_graph(tmp_path / "graph.omni", policy=load_policy(POLICY), audit=path)
    ana, bo = graph.acting_as("act-ana"), graph.acting_as("act-bo")
    read = ana.query(PEOPLE)
    bo.create_branch("work")
    written = bo.mutate(ADD, {"name": SECRET}, branch="work")
    bo.load(data=RECORDS, mode="merge", branch="work", operation_id="k1")
    with pytest.raises(PolicyDenied):
        bo.mutate(ADD, {"name": "x"})
    list(bo.export(branch="work"))
    bo.table("City").to_arrow()
    bo.entity_at("node:Person", "ada")
    bo.diff("main", "work")
    merged = ana.merge_branch("work", message="done")
    found = accesses(path)
    assert [brief(each) for each in found] == [
        ("act-ana", "query", "main", "allow"),
        ("act-bo", "create_branch", "main", "allow"),
        ("act-bo", "mutate", "work", "allow"),
        ("act-bo", "load", "work", "allow"),
        ("act-bo", "mutate", "main", "deny"),
        ("act-bo", "export", "work", "allow"),
        ("act-bo", "table", "main", "allow"),
        ("act-bo", "entity_at", "main", "allow"),
        ("act-bo", "diff", "main", "allow"),
        ("act-ana", "merge_branch", "work", "allow"),
    ]
    query, _, mutate, load, denied, *_, merge = found
    assert query["commit"] == read.graph_commit_id
    assert (query["query"], query["types"], query["rows"]) == ("people", ["Person"], 2)
    assert query["rules"] == ["team-reads"]
    assert len(query["query_digest"]) == 16
    assert written.commit is not None
    assert mutate["commit"] == written.commit.graph_commit_id
    assert (mutate["types"], mutate["rows"]) == (["Person"], 1)
    assert {"Person", "City", "Knows"} <= set(load["types"])
    assert denied["error"] == "policy_denied"
    assert merge["target_branch"] == "main"
    assert merged.commit is not None
    assert merge["commit"] == merged.commit.graph_commit_id
    assert all(each["seconds"] >= 0 and each["time"].endswith("Z") for each in found)
    assert SECRET not in path.read_text()


def test_parameters_are_recorded_only_where_asked_for(tmp_path: Path):
    new_graph(tmp_path / "graph.omni")
    path = tmp_path / "audit.jsonl"
    graph = open_graph(tmp_path / "graph.omni", audit=AuditSettings(path, params=True))
    graph.mutate(ADD, {"name": SECRET})
    assert accesses(path)[0]["params"] == {"name": SECRET}


@pytest.fixture
def policies(tmp_path: Path) -> GraphSpec:
    new_graph(tmp_path / "graph.omni")
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "server.yaml").write_text(SERVER_POLICY)
    (tmp_path / "people.gq").write_text(QUERIES)
    queries = (tmp_path / "people.gq",)
    return GraphSpec("default", str(tmp_path / "graph.omni"), queries, tmp_path / "policy.yaml")


def test_c_acc_012_a_day_over_http_and_as_tools(policies: GraphSpec, tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    with serving(
        policies,
        environment=with_tokens(),
        waits=False,
        mcp=True,
        server_policy=tmp_path / "server.yaml",
        audit=AuditSettings(path),
    ) as live:
        ana, bo = live.client("act-ana"), live.client("act-bo")
        named = {"X-Request-Id": "first-of-the-day"}
        assert ana.post("/query", json={"query": PEOPLE}, headers=named).status_code == 200
        add = {"query": ADD, "params": {"name": SECRET}}
        assert ana.post("/mutate", json=add).status_code == 200
        assert bo.post("/mutate", json=add).status_code == 403
        assert ana.post("/queries/everybody").status_code == 200
        assert bo.post("/export", json={}).status_code == 200
        assert bo.get("/commits").status_code == 200
        assert live.client("act-bo", graph_id=None).get("/graphs").status_code == 403
        tool = {"name": "graph_snapshot", "arguments": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool}
        assert bo.post("/mcp", json=message).json()["result"]["isError"] is False
        assert live.client(graph_id=None).get("/healthz").status_code == 200
        wrong = {"Authorization": f"Bearer {SECRET}"}
        assert live.client().post("/query", json={"query": PEOPLE}, headers=wrong).status_code
    found = accesses(path)
    assert [(each["actor"], each["verb"], each["decision"]) for each in found] == [
        ("act-ana", "query", "allow"),
        ("act-ana", "mutate", "allow"),
        ("act-ana", "query", "allow"),
        ("act-bo", "export", "allow"),
        ("act-bo", "list_commits", "allow"),
        ("act-bo", "snapshot", "allow"),
    ]
    first = found[0]
    assert (first["request_id"], first["address"]) == ("first-of-the-day", "127.0.0.1")
    assert first["graph"] == "default"
    decided = [dict(each.facts) for each in read_entries([path], AuditFilter())]
    denied = [
        (each["actor"], each["action"], each.get("branch"))
        for each in decided
        if each["event"] == "decision" and each["decision"] == "deny"
    ]
    assert denied == [("act-bo", "change", "main"), ("act-bo", "graph_list", None)]
    text = path.read_text()
    assert SECRET not in text
    assert not any(token in text for token in TOKENS.values())
    assert bearer("act-ana")["Authorization"] not in text


def test_c_acc_012_a_day_on_the_command_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    new_graph(tmp_path / "graph.omni")
    path, root = tmp_path / "audit.jsonl", str(tmp_path / "graph.omni")
    monkeypatch.setenv("OMNIGRAPH_AUDIT", str(path))
    (tmp_path / "people.gq").write_text(PEOPLE)
    assert run("query", "--store", root, "--query", tmp_path / "people.gq").code == 0
    assert run("branch", "create", "--store", root, "work", "--as", "act-ana").code == 0
    assert run("export", "--store", root).code == 0
    monkeypatch.delenv("OMNIGRAPH_AUDIT")
    verbs = [each["verb"] for each in accesses(path)]
    assert verbs == ["query", "create_branch", "export"]
    shown = run("audit", str(path), "--type", "Person", "--json")
    entries = json.loads(shown.out)["entries"]
    assert [each["verb"] for each in entries] == ["query"]
    table = run("audit", "show", str(path), "--since", "1h").out
    assert "create_branch" in table
    assert "act-ana" in table
    into = str(tmp_path / "audit.omni")
    assert run("audit", "load", str(path), "--into", into).code == 0
    graph = open_graph(into)
    count = graph.query("query n { match { $a: Access } return { count($a) as n } }").to_pylist()
    again = run("audit", "load", str(path), "--into", into)
    assert again.code == 0
    assert (
        count
        == open_graph(into)
        .query("query n { match { $a: Access } return { count($a) as n } }")
        .to_pylist()
    )
