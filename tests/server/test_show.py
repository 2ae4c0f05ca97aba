"""One server process, asked in every way there is: plain HTTP, command, client and tools."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

import omnigraph as og
from omnigraph.errors import PolicyDenied
from omnigraph.model.result import Result
from omnigraph.server.auth import TOKENS_FILE
from omnigraph.server.config import GraphSpec
from tests.server.live import PATIENCE_SECONDS, POLICY, TOKENS
from tests.server.test_process import environment, started

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("patient_mcp_client")]

NAMES = ["ada", "bo"]


def by_plain_http(url: str, token: str) -> list[str]:
    headers = {"Authorization": f"Bearer {token}"}
    asked = Request(f"{url}/queries/everybody", method="POST", headers=headers)
    with urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
        return names(json.load(answer)["rows"])


def by_command(url: str, token: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "omnigraph.cli", "query", "everybody", "--server", url, "--json"],
        env=environment(OMNIGRAPH_BEARER_TOKEN=token),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    return names(json.loads(done.stdout)["rows"])


def by_client(url: str, token: str) -> list[str]:
    with og.connect(url, token) as graph:
        found = graph.invoke("everybody")
    assert isinstance(found, Result)
    return names(found.to_pylist())


def by_tool_of_the_server(url: str, token: str) -> list[str]:
    import httpx2

    async def main() -> list[str]:
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"})
        async with http, Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
            return await from_tool(client)

    return asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))


def by_tool_beside_it(url: str, token: str) -> list[str]:
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "omnigraph.cli", "mcp", "--server", url],
        env=environment(OMNIGRAPH_BEARER_TOKEN=token),
    )

    async def main() -> list[str]:
        async with Client(stdio_client(program)) as client:
            return await from_tool(client)

    return asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))


async def from_tool(client: Client) -> list[str]:
    found = await client.call_tool("everybody", {})
    assert found.structured_content is not None, found
    return names(found.structured_content["rows"])


def names(rows: list[dict[str, str]]) -> list[str]:
    return [row["p.name"] for row in rows]


def test_all_clients_get_the_same_rows_from_one_server(spec: GraphSpec, tmp_path: Path):
    policy, tokens = tmp_path / "policy.yaml", tmp_path / "tokens.json"
    policy.write_text(POLICY)
    tokens.write_text(json.dumps(TOKENS))
    tokens.chmod(0o600)
    options = ("--store", spec.uri, "--queries", str(spec.queries[0]), "--policy", str(policy))
    with started(*options, "--mcp", **{TOKENS_FILE: str(tokens)}) as server:
        url = f"{server.url}/graphs/default"
        for ask in (
            by_plain_http,
            by_command,
            by_client,
            by_tool_of_the_server,
            by_tool_beside_it,
        ):
            assert ask(url, TOKENS["act-ana"]) == NAMES, ask.__name__
        with og.connect(url, TOKENS["act-bo"]) as bo, pytest.raises(PolicyDenied) as denied:
            bo.mutate('query add { insert Person { name: "cy" } }')
        assert (denied.value.action, denied.value.branch) == ("change", "main")
