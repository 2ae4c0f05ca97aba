"""Tools for language models, over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from omnigraph.errors import InputError
from omnigraph.server.config import GraphSpec, ServerConfig
from omnigraph.server.generation import build
from tests.server.live import (
    PEOPLE,
    POLICY,
    SERVER_POLICY,
    Live,
    bearer,
    serving,
    with_tokens,
)


@pytest.fixture
def live(spec: GraphSpec, tmp_path: Path) -> Iterator[Live]:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "server.yaml").write_text(SERVER_POLICY)
    ruled = GraphSpec("default", spec.uri, spec.queries, tmp_path / "policy.yaml")
    options: Any = {"mcp": True, "server_policy": tmp_path / "server.yaml"}
    with serving(ruled, environment=with_tokens(), **options) as live:
        yield live


def send(client: httpx.Client, method: str, **params: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    answer = client.post("/mcp", json=message)
    assert answer.status_code == 200
    document: dict[str, Any] = answer.json()
    assert (document["jsonrpc"], document["id"]) == ("2.0", 7)
    return document


def use(client: httpx.Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return send(client, "tools/call", name=tool, arguments=arguments)


def names(client: httpx.Client) -> set[str]:
    return {tool["name"] for tool in send(client, "tools/list")["result"]["tools"]}


def test_it_says_what_it_is(live: Live):
    ana = live.client("act-ana")
    hello = send(ana, "initialize", protocolVersion="2025-03-26", capabilities={})["result"]
    assert hello["protocolVersion"] == "2025-03-26"
    assert hello["serverInfo"]["name"] == "omnigraph" and "tools" in hello["capabilities"]
    assert send(ana, "initialize", protocolVersion="1999")["result"]["protocolVersion"] == (
        "2025-06-18"
    )
    assert send(ana, "ping")["result"] == {}
    told = ana.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (told.status_code, told.content) == (202, b"")


def test_tools_have_schemas(live: Live):
    listed = send(live.client("act-ana"), "tools/list")["result"]["tools"]
    tools = {tool["name"]: tool for tool in listed}
    assert "graph_query" not in tools and "graph_mutate" not in tools
    assert tools["everybody"]["description"] == "Everybody we know"
    older = tools["older_than"]["inputSchema"]
    assert older["required"] == ["age"]
    assert older["properties"]["age"] == {"type": "integer"}
    assert tools["graph_branch_delete"]["inputSchema"]["required"] == ["branch"]
    assert all(tool["inputSchema"]["type"] == "object" for tool in listed)


def test_tools_do_what_their_operations_do(live: Live):
    ana = live.client("act-ana")
    found = use(ana, "everybody")["result"]
    assert found["isError"] is False
    assert found["structuredContent"]["rows"] == [{"p.name": "ada"}, {"p.name": "bo"}]
    assert use(ana, "graph_branch_create", name="side")["result"]["isError"] is False
    done = use(ana, "sign_up", name="cy", branch="side")["result"]["structuredContent"]
    assert (done["actor_id"], done["branch"]) == ("act-ana", "side")
    commits = use(ana, "graph_commits", branch="side")["result"]["structuredContent"]["commits"]
    changed = use(ana, "graph_commit_changes", commit_id=commits[0]["graph_commit_id"], limit=5)
    assert changed["result"]["structuredContent"]["changes"][0]["id"] == "cy"
    merged = use(ana, "graph_branch_merge", source="side")["result"]["structuredContent"]
    assert merged["target"] == "main"
    assert use(ana, "graph_branch_delete", branch="side")["result"]["isError"] is False


def test_a_denied_tool_looks_unknown(live: Live):
    ana, bo, cy = (live.client(actor) for actor in ("act-ana", "act-bo", "act-cy"))
    unknown = use(bo, "no_such_tool")["error"]
    assert unknown["code"] == -32602
    assert use(bo, "everybody")["error"] == {
        **unknown,
        "message": unknown["message"].replace("no_such_tool", "everybody"),
    }
    assert use(cy, "graph_schema")["error"]["message"] == "Unknown tool: graph_schema"
    assert use(bo, "graph_branch_delete", branch="main")["error"]["code"] == -32602
    assert {"everybody", "sign_up"} <= names(ana) and "everybody" not in names(bo)
    assert live.client().post("/mcp", json={}).status_code == 401


def test_an_error_of_a_tool_is_a_result(live: Live):
    ana = live.client("act-ana")
    absent = use(ana, "graph_commit", commit_id="nowhere")["result"]
    assert absent["isError"] is True
    assert absent["structuredContent"]["code"] == "not_found"
    assert use(ana, "older_than")["result"]["structuredContent"]["code"] == "bad_request"
    assert use(ana, "graph_load", data="{", mode="merge")["result"]["isError"] is True


CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": %s}}'


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "prompts/list"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/read"}', -32002),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 1}}', -32602),
        (CALL % b'"graph_commit"', -32602),
        (CALL % b'"everybody", "arguments": {"x": 1}', -32602),
    ],
)
def test_bad_messages_have_the_codes_of_the_protocol(live: Live, body: bytes, code: int):
    answer = live.client("act-ana").post(
        "/mcp", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.json()["error"]["code"] == code


def resources(client: httpx.Client) -> list[str]:
    return [each["uri"] for each in send(client, "resources/list")["result"]["resources"]]


def read(client: httpx.Client, uri: str) -> Any:
    (contents,) = send(client, "resources/read", uri=uri)["result"]["contents"]
    assert contents["uri"] == uri
    return contents["text"]


def test_resources_are_what_the_caller_may_read(live: Live):
    ana, bo, cy = (live.client(actor) for actor in ("act-ana", "act-bo", "act-cy"))
    assert resources(ana) == ["omnigraph://schema", "omnigraph://primer", "omnigraph://queries"]
    schema = read(ana, "omnigraph://schema")
    assert schema == use(ana, "graph_schema")["result"]["structuredContent"]["schema_source"]
    assert "query one_person($name: String)" in read(ana, "omnigraph://primer")
    listed = json.loads(read(ana, "omnigraph://queries"))["queries"]
    assert {query["name"]: query["writes"] for query in listed} == {
        "everybody": False,
        "older_than": False,
        "sign_up": True,
    }
    assert listed[0]["parameters"]["type"] == "object"
    # Who may not call stored queries, or read nothing at all, sees that much less.
    assert resources(bo) == ["omnigraph://schema", "omnigraph://primer"]
    assert resources(cy) == []
    unknown = send(bo, "resources/read", uri="omnigraph://none")["error"]
    assert unknown["code"] == -32002
    for client, uri in ((bo, "omnigraph://queries"), (cy, "omnigraph://schema")):
        refused = send(client, "resources/read", uri=uri)["error"]
        assert refused == {**unknown, "message": unknown["message"].replace("none", uri[12:])}
    assert resources(live.client("act-ana", None)) == []
    assert send(ana, "resources/templates/list")["result"] == {"resourceTemplates": []}


HIDING = """\
version: 2
groups: {analysts: [act-ana], owners: [act-bo]}
rules:
  - id: analysts-read
    allow: {actors: {group: analysts}, actions: [read], branch_scope: any}
    types: {Person: {properties: [name]}, Knows: all}
  - id: owners-read
    allow: {actors: {group: owners}, actions: [read], branch_scope: any}
"""


def test_c_acc_003_what_is_hidden_is_in_no_resource(spec: GraphSpec, tmp_path: Path):
    (tmp_path / "policy.yaml").write_text(HIDING)
    ruled = GraphSpec("default", spec.uri, spec.queries, tmp_path / "policy.yaml")
    with serving(ruled, environment=with_tokens(), mcp=True, mcp_adhoc=True) as live:
        ana, bo = live.client("act-ana"), live.client("act-bo")
        for uri in ("omnigraph://schema", "omnigraph://primer"):
            for name in ("City", "LivesIn", "livesIn", "age", "photo"):
                assert not re.search(rf"\b{name}\b", read(ana, uri)), (uri, name)
        for name in ("City", "livesIn", "age"):
            assert name in read(bo, "omnigraph://primer"), name
        # Its examples run for the caller who reads them.
        shown = re.findall(
            r"^```gq\n(.*?)^```$", read(ana, "omnigraph://primer"), re.MULTILINE | re.DOTALL
        )
        plain = [text for text in shown if "return {" in text and "$" not in text.split("{")[0]]
        assert len(plain) >= 3
        for text in plain:
            assert use(ana, "graph_query", query=text)["result"]["isError"] is False
        # A hidden name is unknown, at its place.
        wrong = "query q {\n  match { $p: Person  $p.age > 1 }\n  return { $p.nam }\n}"
        refused = use(ana, "graph_query", query=wrong)["result"]
        assert refused["isError"] is True
        document = refused["structuredContent"]
        assert (document["position"]["line"], document["position"]["column"]) == (2, 26)
        assert "hint" not in document or "age" not in document["hint"]


def test_the_server_has_tools_of_its_own(live: Live):
    ana, bo = live.client("act-ana", None), live.client("act-bo", None)
    assert names(ana) == {"server_health", "server_graphs"}
    graphs = use(ana, "server_graphs")["result"]["structuredContent"]["graphs"]
    assert [graph["graph_id"] for graph in graphs] == ["default"]
    assert use(bo, "server_graphs")["error"]["code"] == -32602
    assert use(bo, "server_health")["result"]["structuredContent"]["status"] == "ok"


def test_made_up_queries_only_when_asked_for(spec: GraphSpec):
    with serving(spec, mcp=True, mcp_adhoc=True) as live:
        found = use(live.client(), "graph_query", query=PEOPLE)["result"]["structuredContent"]
        assert found["row_count"] == 2
        assert {"graph_query", "graph_mutate", "graph_schema_apply"} <= names(live.client())
    with serving(spec, mcp=True) as live:
        assert use(live.client(), "graph_query", query=PEOPLE)["error"]["code"] == -32602


def test_without_the_flag_there_is_nothing(open_server: Live):
    for graph_id in (None, "default"):
        answer = open_server.client(graph_id=graph_id).post("/mcp", json={})
        assert answer.status_code == 404


def test_a_stored_query_must_not_take_the_name_of_a_tool(spec: GraphSpec):
    text = "query graph_schema() { match { $p: Person } return { $p.name } }"
    (spec.queries[0] / "clash.gq").write_text(text)
    with pytest.raises(InputError, match="name of a tool"):
        build(ServerConfig((spec,), unauthenticated=True, mcp=True, environment={}))
    assert build(ServerConfig((spec,), unauthenticated=True, environment={})).graphs


def test_the_client_of_the_protocols_sdk_understands_it(live: Live):
    import httpx2
    from mcp import Client, MCPError
    from mcp.client.streamable_http import streamable_http_client

    async def scenario() -> None:
        http = httpx2.AsyncClient(headers=bearer("act-ana"))
        transport = streamable_http_client(f"{live.url}/graphs/default/mcp", http_client=http)
        async with http, Client(transport) as client:
            tools = await client.list_tools()
            assert "everybody" in {tool.name for tool in tools.tools}
            found = await client.call_tool("everybody", {})
            assert found.structured_content is not None
            assert found.structured_content["row_count"] == 2
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("no_such_tool", {})

    asyncio.run(asyncio.wait_for(scenario(), 60))
