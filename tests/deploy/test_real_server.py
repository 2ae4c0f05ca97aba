"""The entrypoint with the real program: it answers, obeys signals and keeps its graph."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx

from tests.deploy.launch import PATIENCE_SECONDS, REAL_PROGRAMS, ROOT, run, serving

ASK = {"query": "query all { match { $g: Group } return { $g.name } }"}
ADD = {"query": 'query add { insert Group { name: "rye", topic: "Bread" } }'}
ANA = {"Authorization": "Bearer token-of-ana-0001"}


def test_a_server_of_an_empty_folder_is_ready_keeps_its_graph_and_leaves_with_0(
    tmp_path: Path, tokens: Path
):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "version: 1\n"
        "groups: { team: [act-ana] }\n"
        "rules:\n"
        "  - id: all\n"
        "    allow: { actors: { group: team }, actions: [read, change], branch_scope: any }\n"
    )
    settings = {
        "OMNIGRAPH_STORE": str(tmp_path / "volume" / "team.omni"),
        "OMNIGRAPH_GRAPH_ID": "team",
        "OMNIGRAPH_INIT_SCHEMA": str(ROOT / "examples" / "social" / "schema.pg"),
        "OMNIGRAPH_POLICY": str(policy),
        "OMNIGRAPH_BIND": "127.0.0.1:0",
        "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(tokens),
        "OMNIGRAPH_LOG_FORMAT": "json",
    }
    with serving(settings) as (process, address):
        assert httpx.get(f"http://{address}/readyz").json()["graphs_ready"] == 1
        assert run(REAL_PROGRAMS, {"OMNIGRAPH_BIND": address}, "--ready").returncode == 0
        graph = f"http://{address}/graphs/team"
        assert httpx.post(f"{graph}/mutate", json=ADD).status_code == 401
        assert httpx.post(f"{graph}/mutate", json=ADD, headers=ANA).status_code == 200
        process.send_signal(signal.SIGTERM)
        out, logged = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, out) == (0, "")
        assert "created a graph" in logged and "token-of-ana" not in logged
    assert run(REAL_PROGRAMS, {"OMNIGRAPH_BIND": address}, "--ready").returncode == 1

    # The same settings again, as after a restart: the graph is there, and nothing is applied to it.
    # This time two workers serve it.
    with serving(settings | {"OMNIGRAPH_WORKERS": "2"}) as (process, address):
        assert run(REAL_PROGRAMS, {"OMNIGRAPH_BIND": address}, "--ready").returncode == 0
        answer = httpx.post(f"http://{address}/graphs/team/query", json=ASK, headers=ANA)
        assert answer.json()["rows"] == [{"g.name": "rye"}]
        process.send_signal(signal.SIGTERM)
        out, logged = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, out) == (0, "")
        assert '"event":"workers listen"' in logged and '"workers":2' in logged
