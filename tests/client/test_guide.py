"""The guides to the client and to tools: what they show happens."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.cli.operator_config import read_config
from omnigraph.mcp.toolbox import ToolAccess, stored_in_files, tools_of
from omnigraph.server.config import GraphSpec
from tests.server.live import SCHEMA, serving

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
CLIENT = (GUIDE / "client.md").read_text(encoding="utf-8")
SERVER = (GUIDE / "server.md").read_text(encoding="utf-8")
MCP = (GUIDE / "mcp.md").read_text(encoding="utf-8")
ADDRESS = "http://localhost:8080"


def fences(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_the_page_of_the_client_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    queries = tmp_path / "people.gq"
    queries.write_text(fences(SERVER, "gq")[0])
    graph = og.init(str(tmp_path / "team.omni"), fences(SERVER, "pg")[0])
    with serving(GraphSpec("default", graph.uri, (queries,))) as live:
        names: dict[str, object] = {}
        for text in fences(CLIENT, "python"):
            exec(compile(text.replace(ADDRESS, live.url), "client.md", "exec"), names)
        for session in fences(CLIENT, "console"):
            command, _, expected = session.partition("\n")
            _, _, *arguments = shlex.split(command.replace(ADDRESS, live.url))
            assert main(arguments) == 0
            assert capsys.readouterr().out == expected
        assert isinstance(names["graph"], og.RemoteGraph)
        names["graph"].close()


def test_the_configuration_of_the_page_is_understood(tmp_path: Path):
    (tmp_path / "config.yaml").write_text(fences(CLIENT, "yaml")[0])
    warnings: list[str] = []
    config = read_config({"OMNIGRAPH_HOME": str(tmp_path)}, warnings.append)
    assert not warnings
    for scope in (config.profile("team"), config.default_scope()):
        assert scope is not None
        assert (scope.kind, scope.target, scope.graph) == ("server", "prod", "team")
    assert config.server_url("prod") == "https://graph.example.com"


def test_the_page_of_tools_names_every_tool(tmp_path: Path):
    queries = tmp_path / "people.gq"
    queries.write_text(fences(MCP, "gq")[0])
    graph = og.init(str(tmp_path / "team.omni"), SCHEMA)
    every = ToolAccess.of(["agent/*"], adhoc=True)
    tools = tools_of(graph, stored_in_files(graph, [queries]), every)
    assert all(f"`{tool.name}`" in MCP or tool.name in fences(MCP, "gq")[0] for tool in tools)
    named = set(re.findall(r"`(graph_\w+)`", MCP))
    assert named == {tool.name for tool in tools if tool.name.startswith("graph_")}
    (settings,) = fences(MCP, "json")
    assert json.loads(settings)["mcpServers"]["team"]["command"] == "omnigraph"
