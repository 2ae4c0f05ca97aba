"""The Model Context Protocol over HTTP: operations and stored queries as tools, and resources.

Stateless: every request is one JSON-RPC message. Calling a tool runs an operation as the same
caller, under the same policy; a tool that policy denies looks like an unknown one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from starlette.responses import Response

from omnigraph import __version__
from omnigraph.errors import Denied, OmnigraphError
from omnigraph.policy import Action
from omnigraph.query.primer import (
    PRIMER_READING,
    QUERIES_READING,
    SCHEMA_READING,
    FirstReading,
    primer,
)
from omnigraph.server.call import Call, Handlers
from omnigraph.server.generation import StoredQuery
from omnigraph.server.mcp_tools import (
    ADHOC_TOOLS,
    GRAPH_TOOLS,
    REVIEW_TOOLS,
    SERVER_TOOLS,
    operation_schema,
    stored_schema,
)
from omnigraph.server.responses import error_response, json_response
from omnigraph.server.routes.queries import shows_stored
from omnigraph.wire import operations
from omnigraph.wire.operations import GRAPH, Operation
from omnigraph.wire.requests import Body

PROTOCOL_VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
INVALID_PARAMS = -32602
UNKNOWN_RESOURCE = -32002

ON_SERVER = Operation("mcp", "POST /mcp", "Tools of the server", body=Body)
ON_GRAPH = Operation("cluster_mcp", f"POST {GRAPH}/mcp", "Tools of a graph", body=Body)
OPERATIONS = (ON_SERVER, ON_GRAPH)


class RpcError(Exception):
    """An error of the protocol, as opposed to one of a tool."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class McpServer:
    """Answers MCP messages; ``handlers`` run the operations behind the tools."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    async def answer(self, call: Call) -> Response:
        """Answer one message; notifications get no answer."""
        message_id: Any = None
        try:
            message = _message(await call.body())
            message_id = message.get("id")
            if "id" not in message:
                return Response(b"", 202)
            result = await self._result(call, message)
        except RpcError as error:
            failure = {"code": error.code, "message": error.message}
            return json_response({"jsonrpc": "2.0", "id": message_id, "error": failure})
        return json_response({"jsonrpc": "2.0", "id": message_id, "result": result})

    async def _result(self, call: Call, message: Mapping[str, Any]) -> dict[str, Any]:
        params = message.get("params") or {}
        if not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "`params` is not an object")
        match message["method"]:
            case "initialize":
                asked = params.get("protocolVersion")
                version = asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0]
                return {
                    "protocolVersion": version,
                    "capabilities": {"tools": {"listChanged": False}, "resources": {}},
                    "serverInfo": {"name": "omnigraph", "version": __version__},
                }
            case "ping":
                return {}
            case "tools/list":
                return {"tools": list(self._listed(call))}
            case "tools/call":
                return await self._called(call, params)
            case "resources/list":
                return {"resources": list(_resources(call))}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "resources/read":
                return await self._read(call, params)
        raise RpcError(UNKNOWN_METHOD, f"there is no method {message['method']}")

    def _listed(self, call: Call) -> Iterator[dict[str, Any]]:
        for name, operation in _operations(call).items():
            schema = operation_schema(operation)
            yield {"name": name, "description": operation.summary, "inputSchema": schema}
        for stored in _stored(call):
            signature = stored.signature
            yield {
                "name": signature.name,
                "description": _about(stored),
                "inputSchema": stored_schema(signature),
            }

    async def _read(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Read a resource; one that policy denies looks like an unknown one."""
        uri = params.get("uri")
        about = next((each for each in _readings(call) if each.uri == uri), None)
        if about is None:
            raise RpcError(UNKNOWN_RESOURCE, f"Unknown resource: {uri}")
        if about is QUERIES_READING:
            listed = [
                {
                    "name": stored.signature.name,
                    "description": _about(stored),
                    "writes": stored.signature.is_mutation,
                    "parameters": stored_schema(stored.signature),
                }
                for stored in _stored(call)
            ]
            text = orjson.dumps({"queries": listed}, option=orjson.OPT_INDENT_2).decode()
        else:
            inner = _operation_call(call, operations.SCHEMA, {})
            try:
                inner.read_parameters()
                response = await self._handlers[operations.SCHEMA.id](inner)
            except Denied:
                raise RpcError(UNKNOWN_RESOURCE, f"Unknown resource: {uri}") from None
            text = orjson.loads(bytes(response.body))["schema_source"]
            if about is PRIMER_READING:
                # Examples only use the part of the schema that the caller sees.
                text = await call.read(primer, text)
        contents = {"uri": about.uri, "mimeType": about.mime_type, "text": text}
        return {"contents": [contents]}

    async def _called(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, "`name` is a text and `arguments` an object")
        inner = self._inner(call, name, arguments)
        try:
            inner.read_parameters()
            response = await self._handlers[inner.operation.id](inner)
        except OmnigraphError as error:
            response = error_response(error, outcome=inner.outcome_after(error))
            if response.status_code == 403:
                raise _unknown(name) from None
            if response.status_code >= 500 or call.names_storage(bytes(response.body)):
                raise  # logged as an internal error, which the answer does not explain
        body = bytes(response.body)
        return {
            "content": [{"type": "text", "text": body.decode()}],
            "structuredContent": orjson.loads(body),
            "isError": response.status_code >= 400,
        }

    def _inner(self, call: Call, name: str, arguments: dict[str, Any]) -> Call:
        """The operation call behind a tool."""
        operation = _operations(call).get(name)
        if operation is not None:
            return _operation_call(call, operation, arguments)
        stored = next((each for each in _stored(call) if each.signature.name == name), None)
        if stored is None:
            raise _unknown(name)
        declared = {parameter.name for parameter in stored.signature.parameters}
        body: dict[str, Any] = {}
        if "branch" in arguments and "branch" not in declared:
            body["branch"] = arguments["branch"]
            arguments = {key: value for key, value in arguments.items() if key != "branch"}
        if unknown := arguments.keys() - declared:
            raise RpcError(INVALID_PARAMS, f"{name} has no parameter '{min(unknown)}'")
        body["params"] = arguments
        return call.inner(operations.INVOKE, {"name": name}, [], orjson.dumps(body))


def _about(stored: StoredQuery) -> str:
    """The description of a stored query."""
    signature = stored.signature
    about = [each for each in (signature.description, signature.instruction) if each]
    what = "Change the graph" if signature.is_mutation else "Read the graph"
    return "\n\n".join(about) or f"{what} with a stored query"


def _readings(call: Call) -> Iterator[FirstReading]:
    """The resources that the caller may read."""
    if call.operation.id != ON_GRAPH.id:
        return
    if "graph_schema" in _operations(call):
        yield SCHEMA_READING
        yield PRIMER_READING
    if call.may(Action.INVOKE_QUERY):
        yield QUERIES_READING


def _resources(call: Call) -> Iterator[dict[str, Any]]:
    for each in _readings(call):
        yield {
            "uri": each.uri,
            "name": each.name,
            "description": each.about,
            "mimeType": each.mime_type,
        }


def _message(body: bytes) -> dict[str, Any]:
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise RpcError(PARSE_ERROR, "the message is not JSON") from None
    if (
        not isinstance(message, dict)
        or message.get("jsonrpc") != "2.0"
        or not isinstance(message.get("method"), str)
    ):
        raise RpcError(INVALID_REQUEST, "the message is not one JSON-RPC 2.0 request")
    return message


def _operations(call: Call) -> Mapping[str, Operation]:
    """The tools of operations that the caller may use, by name."""
    if call.operation.id == ON_SERVER.id:
        tools = SERVER_TOOLS
    else:
        config = call.services.config
        tools = {
            **GRAPH_TOOLS,
            **(ADHOC_TOOLS if config.mcp_adhoc else {}),
            **(REVIEW_TOOLS if config.mcp_review_write else {}),
        }
    return {
        name: tool.operation
        for name, tool in tools.items()
        if (tool.on_all is None or _may(call, tool.on_all))
        and all(call.gate.allows_somewhere(call.access, action) for action in tool.actions)
    }


def _may(call: Call, action: Action) -> bool:
    """Whether the caller may do an action that concerns no branch."""
    return call.may_list_graphs() if action is Action.GRAPH_LIST else call.may(action)


def _stored(call: Call) -> Iterator[StoredQuery]:
    """The stored queries that the caller may use."""
    if call.operation.id != ON_GRAPH.id or not call.may(Action.INVOKE_QUERY):
        return
    for stored in call.served.queries:
        action = Action.CHANGE if stored.signature.is_mutation else Action.READ
        if call.gate.allows_somewhere(call.access, action) and shows_stored(call, stored):
            yield stored


def _operation_call(call: Call, operation: Operation, arguments: dict[str, Any]) -> Call:
    """An operation call, with the arguments split into path, query string and body."""
    rest = dict(arguments)
    values: dict[str, str] = {}
    query: list[tuple[str, str]] = []
    for parameter in operation.parameters:
        given = rest.pop(parameter.name, None)
        if parameter.place == "path":
            if not isinstance(given, str) or not given:
                raise RpcError(INVALID_PARAMS, f"argument '{parameter.name}' is missing")
            values[parameter.name] = given
        elif given is not None:
            each = given if isinstance(given, list) else [given]
            query += [(parameter.name, str(value)) for value in each]
    if operation.body is None and rest:
        raise RpcError(INVALID_PARAMS, f"there is no argument '{min(rest)}'")
    return call.inner(operation, values, query, orjson.dumps(rest))


def _unknown(name: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
