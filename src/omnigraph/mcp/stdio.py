"""Serves tools over stdin and stdout, with the SDK of the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import orjson
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from omnigraph import __version__
from omnigraph.errors import OmnigraphError
from omnigraph.mcp.toolbox import McpResource, Tool

INSTRUCTIONS = (
    "These tools read, and where allowed change, one Omnigraph graph: typed nodes and edges with "
    "branches and commits. Begin with the resources omnigraph://schema, omnigraph://primer and "
    "omnigraph://queries, or with `graph_schema`. Changes belong on a branch, where people can "
    "look at them before they are merged."
)

Context = ServerRequestContext[Any]


def server_of(tools: Iterable[Tool], resources: Iterable[McpResource]) -> Server[Any]:
    """A server with these tools and resources."""
    by_name = {tool.name: tool for tool in tools}
    by_uri = {each.about.uri: each for each in resources}

    async def list_resources(
        _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=each.about.uri,
                    name=each.about.name,
                    description=each.about.about,
                    mime_type=each.about.mime_type,
                )
                for each in by_uri.values()
            ]
        )

    async def read_resource(
        _context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        resource = by_uri.get(str(params.uri))
        if resource is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown resource: {params.uri}")
        try:
            text = await anyio.to_thread.run_sync(resource.read)
        except OmnigraphError as error:
            # Reading a resource can only fail with a protocol error.
            raise MCPError(types.INTERNAL_ERROR, error.render()) from None
        contents = types.TextResourceContents(
            uri=resource.about.uri, mime_type=resource.about.mime_type, text=text
        )
        return types.ReadResourceResult(contents=[contents])

    async def list_tools(
        _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in by_name.values()])

    async def call_tool(
        _context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = by_name.get(params.name)
        if tool is None:
            # A tool that is not allowed is reported as unknown.
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        arguments = params.arguments or {}
        try:
            # Run in a thread: the engine blocks, and other requests must not wait.
            answer = await anyio.to_thread.run_sync(tool.run, arguments)
        except OmnigraphError as error:
            return _result(error.render(), error.envelope(), is_error=True)
        return _result(orjson.dumps(answer).decode(), answer)

    return Server(
        "omnigraph",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def serve(tools: Iterable[Tool], resources: Iterable[McpResource]) -> None:
    """Answer requests from stdin on stdout, until stdin ends."""
    server = server_of(tools, resources)

    async def main() -> None:
        async with stdio_server() as (requests, answers):
            await server.run(requests, answers, server.create_initialization_options())

    anyio.run(main)


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.about,
        input_schema=dict(tool.schema),
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.writes,
            destructive_hint=tool.writes,
            open_world_hint=False,
        ),
    )


def _result(text: str, document: dict[str, Any], *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=document,
        is_error=is_error,
    )
