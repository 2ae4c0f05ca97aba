"""`omnigraph mcp` as a program of its own, asked by the client of the protocol's SDK."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, TextContent

from omnigraph.graph import Graph
from omnigraph.server.config import GraphSpec
from tests.server.live import POLICY, QUERIES, TOKENS, Live, new_graph, serving, with_tokens

pytestmark = pytest.mark.usefixtures("patient_mcp_client")

READING = {
    "graph_branches",
    "graph_commit_changes",
    "graph_commits",
    "graph_schema",
    "graph_snapshot",
    "list_reviews",
    "show_review",
}
STORED_READS = {"everybody", "older_than"}

Work = Callable[[Client], Awaitable[None]]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path / "team.omni")


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "people.gq").write_text(QUERIES)
    return folder


def ask(tmp_path: Path, arguments: list[str], work: Work, **environment: str) -> str:
    """Let a client work with `omnigraph mcp`; what the program said on stderr."""
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "omnigraph.cli", "mcp", *arguments],
        env={"OMNIGRAPH_HOME": str(tmp_path / "home"), **environment},
    )
    log = tmp_path / "stderr.txt"

    async def main() -> None:
        with log.open("w") as stderr:
            async with Client(stdio_client(program, errlog=stderr)) as client:
                await work(client)

    asyncio.run(asyncio.wait_for(main(), 120))
    return log.read_text()


async def tools(client: Client) -> dict[str, Any]:
    return {tool.name: tool for tool in (await client.list_tools()).tools}


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def call(client: Client, tool: str, /, **arguments: Any) -> Any:
    """What a tool answered; its text says the same as its structure."""
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    assert json.loads(text_of(found)) == found.structured_content
    return found.structured_content


async def refusal(client: Client, tool: str, /, **arguments: Any) -> str:
    found = await client.call_tool(tool, arguments)
    assert found.is_error, found.content
    return text_of(found)


def test_by_default_tools_read_and_stored_queries_are_typed(
    tmp_path: Path, graph: Graph, queries: Path
):
    async def work(client: Client) -> None:
        found = await tools(client)
        assert found.keys() == READING | STORED_READS
        assert all(tool.annotations.read_only_hint for tool in found.values())
        assert found["everybody"].description == "Everybody we know"
        schema = found["older_than"].input_schema
        assert schema["properties"]["age"] == {"type": "integer"}
        assert {"type": "null"} in schema["properties"]["limit"]["anyOf"]
        assert schema["required"] == ["age"]
        rows = await call(client, "older_than", age=40)
        assert rows["rows"] == [{"p.name": "bo"}]
        assert rows["target"] == {"branch": "main", "snapshot": None}
        assert (await call(client, "graph_schema"))["schema_source"] == graph.schema_source
        assert await call(client, "graph_branches") == {"branches": ["main"]}
        snapshot = await call(client, "graph_snapshot", branch="main")
        assert {entry["type_name"] for entry in snapshot["datasets"]} >= {"Person", "City"}
        commits = await call(client, "graph_commits")
        newest = commits["commits"][0]["graph_commit_id"]
        changes = await call(client, "graph_commit_changes", commit_id=newest)
        assert changes["cause"]["graph_commit_id"] == newest

    said = ask(tmp_path, ["--store", graph.uri, "--queries", str(queries)], work)
    assert said == ""


def test_what_is_not_allowed_is_not_there(tmp_path: Path, graph: Graph, queries: Path):
    async def work(client: Client) -> None:
        for name in ("sign_up", "graph_query", "graph_mutate", "graph_branch_create", "nonsense"):
            with pytest.raises(MCPError) as unknown:
                await client.call_tool(name, {"name": "x"})
            assert unknown.value.code == -32602

    ask(tmp_path, ["--store", graph.uri, "--queries", str(queries)], work)
    assert len(graph.list_commits()) == 2


def test_mistakes_are_told_so_that_a_model_can_mend_them(
    tmp_path: Path, graph: Graph, queries: Path
):
    async def work(client: Client) -> None:
        assert "parameter 'age'" in await refusal(client, "older_than")
        assert "'age'" in await refusal(client, "older_than", age="old")
        wrong = await refusal(client, "older_than", age=1, agee=2)
        assert "no parameter 'agee'" in wrong and "age, limit" in wrong
        assert "no branch" in await refusal(client, "graph_snapshot", branch="none")
        assert "`brnch`" in await refusal(client, "graph_snapshot", brnch="main")
        query = "query q { match { $p: Persom } return { $p.name } }"
        assert "Person" in await refusal(client, "graph_query", query=query)
        written = 'query q { insert Person { name: "x" } }'
        assert "writes" in await refusal(client, "graph_query", query=written)

    ask(tmp_path, ["--store", graph.uri, "--queries", str(queries), "--adhoc"], work)
    assert len(graph.list_commits()) == 2


def test_writes_land_on_named_branches_and_nowhere_else(
    tmp_path: Path, graph: Graph, queries: Path
):
    async def work(client: Client) -> None:
        found = await tools(client)
        assert {"sign_up", "graph_mutate", "graph_branch_create"} <= found.keys()
        assert found["sign_up"].annotations.read_only_hint is False
        assert found["sign_up"].input_schema["required"] == ["name", "branch"]
        assert "may not be written" in await refusal(client, "graph_branch_create", name="mine")
        await call(client, "graph_branch_create", name="agent/1")
        assert "may not be written" in await refusal(client, "sign_up", name="cy", branch="main")
        assert "needs a branch" in await refusal(client, "sign_up", name="cy")
        receipt = await call(client, "sign_up", name="cy", branch="agent/1")
        assert (receipt["branch"], receipt["affected_nodes"]) == ("agent/1", 1)
        added = 'query q { insert Person { name: "di" } }'
        await call(client, "graph_mutate", query=added, branch="agent/1")
        assert "may not" in await refusal(client, "graph_mutate", query=added)
        rows = await call(client, "everybody", branch="agent/1")
        assert rows["row_count"] == 4
        assert "may not" in await refusal(
            client, "graph_branch_merge", source="agent/1", into="main"
        )

    options = ["--queries", str(queries), "--allow-write", "agent/*", "--adhoc"]
    ask(tmp_path, ["--store", graph.uri, *options], work)
    assert len(graph.query("query q { match { $p: Person } return { $p.name } }")) == 2
    assert graph.list_branches() == ["agent/1", "main"]


def test_long_answers_are_cut_off_and_say_so(tmp_path: Path, graph: Graph, queries: Path):
    async def work(client: Client) -> None:
        rows = await call(client, "everybody")
        assert (rows["row_count"], rows["rows_shown"], len(rows["rows"])) == (2, 1, 1)

    ask(tmp_path, ["--store", graph.uri, "--queries", str(queries), "--max-rows", "1"], work)


@pytest.fixture
def guarded(tmp_path: Path, graph: Graph, queries: Path) -> Iterator[Live]:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    spec = GraphSpec("team", graph.uri, (queries,), policy)
    with serving(spec, environment=with_tokens()) as live:
        yield live


def test_a_served_graph_has_the_same_tools_and_its_policy_decides(tmp_path: Path, guarded: Live):
    async def work(client: Client) -> None:
        found = await tools(client)
        assert READING | STORED_READS | {"sign_up", "graph_branch_create"} <= found.keys()
        assert (await call(client, "everybody"))["row_count"] == 2
        await call(client, "graph_branch_create", name="agent/1")
        receipt = await call(client, "sign_up", name="cy", branch="agent/1")
        assert receipt["actor_id"] == "act-ana"

    address = ["--server", guarded.url, "--graph", "team"]
    token = TOKENS["act-ana"]
    said = ask(tmp_path, [*address, "--allow-write", "agent/*"], work, OMNIGRAPH_BEARER_TOKEN=token)
    assert said.startswith("omnigraph mcp → ") and "(served)" in said and token not in said

    async def denied(client: Client) -> None:
        assert "stored query not found" in await refusal(client, "everybody")
        assert "may not" in await refusal(
            client, "graph_branch_merge", source="agent/1", into="main"
        )

    ask(
        tmp_path,
        [*address, "--allow-write", "agent/*"],
        denied,
        OMNIGRAPH_BEARER_TOKEN=TOKENS["act-bo"],
    )
