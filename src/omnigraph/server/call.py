"""One request on its way: what it says, who sent it, and the steps every handler takes."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel

from omnigraph.errors import InputError, NotFound, PolicyDenied, Unauthenticated
from omnigraph.policy import Action
from omnigraph.server.admission import Admission
from omnigraph.server.auth import bearer_token
from omnigraph.server.bodies import (
    BATCH_RESOURCE,
    BODY_RESOURCE,
    Message,
    Receive,
    read_body,
    read_json,
    require_length,
    require_media,
)
from omnigraph.server.config import ServerConfig, is_graph_id
from omnigraph.server.events import EventLog
from omnigraph.server.exports import StreamBudget
from omnigraph.server.gate import Gate, Question, RuntimeState, Verdict
from omnigraph.server.generation import Generation, Served
from omnigraph.server.metrics import Metrics
from omnigraph.server.pool import EnginePool
from omnigraph.wire.operations import Operation
from omnigraph.wire.requests import NDJSON, branch_name

Document = TypeVar("Document", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Services:
    """What all requests of a process share, whatever generation they see."""

    config: ServerConfig
    pool: EnginePool
    admission: Admission
    streams: StreamBudget
    metrics: Metrics
    events: EventLog


@dataclass(frozen=True, slots=True)
class Request:
    """What came in, as the HTTP library hands it over."""

    scope: MutableMapping[str, Any]
    headers: Mapping[bytes, bytes]
    """By lower-case name; of a repeated header the last value."""
    receive: Receive
    request_id: str


class Call:
    """One request, with what it leads to."""

    def __init__(
        self,
        services: Services,
        generation: Generation,
        operation: Operation,
        values: Mapping[str, str],
        request: Request,
    ) -> None:
        self.services = services
        self.generation = generation
        self.operation = operation
        self.values = values
        self.request_id = request.request_id
        self.actor: str | None = None
        self.is_draining = False
        """Whether the server is about to stop."""
        self._served: Served | None = None
        self._scope = request.scope
        self._headers = request.headers
        self._receive = request.receive
        self._parameters: dict[str, list[str]] = {}

    def inner(
        self,
        operation: Operation,
        values: Mapping[str, str],
        query: Sequence[tuple[str, str]],
        body: bytes,
    ) -> Call:
        """A call of another operation by the same caller, as a part of this one."""
        headers = {b"content-type": operation.takes.encode()}
        scope = {"headers": list(headers.items()), "query_string": urlencode(query).encode()}

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        request = Request(scope, headers, receive, self.request_id)
        call = Call(self.services, self.generation, operation, values, request)
        call.actor = self.actor
        call._served = self._served
        return call

    # --- what it says -----------------------------------------------------------------------------

    def headers(self, name: str) -> list[str]:
        """Every value of a header."""
        wanted = name.lower().encode()
        if wanted not in self._headers:
            return []
        return [value.decode("latin-1") for key, value in self._scope["headers"] if key == wanted]

    def header(self, name: str) -> str | None:
        """The value of a header that comes once."""
        value = self._headers.get(name.encode())
        return None if value is None else value.decode("latin-1")

    def parameter(self, name: str) -> str | None:
        """A parameter of the query string."""
        return next(iter(self._parameters.get(name, ())), None)

    def parameters(self, name: str) -> list[str]:
        """Every value of a parameter that repeats."""
        return self._parameters.get(name, [])

    def branch_parameter(self, name: str = "branch") -> str | None:
        """A branch that the query string names."""
        value = self.parameter(name)
        return None if value is None else branch_name(value)

    def read_parameters(self) -> None:
        """Take the query string apart; raises `InputError` for what the operation does not know."""
        if not self._scope["query_string"]:
            return
        known = {each.name: each for each in self.operation.parameters if each.place == "query"}
        try:
            pairs = parse_qsl(
                self._scope["query_string"].decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=1024,
            )
        except ValueError:
            raise InputError("the query string is not well formed") from None
        for name, value in pairs:
            if name not in known:
                hint = f"the parameters are {', '.join(known)}" if known else "it takes none"
                raise InputError(f"unknown parameter `{name}`", hint=hint)
            values = self._parameters.setdefault(name, [])
            if values and not known[name].repeats:
                raise InputError(f"parameter `{name}` was given more than once")
            values.append(value)

    async def document(self, model: type[Document]) -> Document:
        """The JSON body."""
        body = await self.body()
        return read_json(model, body, may_be_empty=not self.operation.body_required)

    async def body(self) -> bytes:
        """The bytes of the body, no more than the operation takes."""
        self.require_body_type()
        operation = self.operation
        resource = BATCH_RESOURCE if operation.takes == NDJSON else BODY_RESOURCE
        require_length(self.header("content-length"), operation.body_bytes_max, resource)
        patience = self.services.config.client_seconds
        return await read_body(self._receive, operation.body_bytes_max, resource, patience)

    def require_body_type(self) -> None:
        """Raise `UnsupportedMedia` for a body that the operation does not read."""
        given = self.header("content-type")
        require_media(given, self.header("content-encoding"), self.operation.takes)

    # --- who may ----------------------------------------------------------------------------------

    def authenticate(self) -> None:
        """Learn who calls, from the token alone; raises `Unauthenticated`."""
        if self.generation.state is RuntimeState.OPEN:
            return
        given = [value for name, value in self._scope["headers"] if name == b"authorization"]
        token = bearer_token(given[0]) if len(given) == 1 else None
        actor = None if token is None else self.generation.tokens.actor_of(token)
        if actor is None:
            self.services.metrics.rejected("unauthenticated")
            raise Unauthenticated(
                "no valid bearer token", hint="send the header `Authorization: Bearer TOKEN`"
            )
        self.actor = actor

    def find_graph(self) -> None:
        """Look up the graph of the path; raises `InputError` or `NotFound`."""
        graph_id = self.values["graph_id"]
        self._served = self.generation.graphs.get(graph_id)
        if self._served is not None:
            return
        if not is_graph_id(graph_id):
            raise InputError("the graph id is malformed", hint="use letters, digits and '-'")
        raise NotFound(
            f"there is no graph '{graph_id}' here",
            hint="check the end of the URL; `omnigraph graphs list` shows the graphs",
        )

    @property
    def served(self) -> Served:
        """The graph of the path."""
        assert self._served is not None, "the operation is about a graph"
        return self._served

    def names_storage(self, text: bytes) -> bool:
        """Whether an error would tell where the graph lies, which is not for callers to know."""
        if self._served is None:
            return False
        return self._served.graph.uri.removeprefix("file://").encode() in text

    def verdict(
        self, action: Action, branch: str | None = None, target: str | None = None
    ) -> Verdict:
        """What policy says; every decision is logged."""
        gate: Gate = self.generation.gate if self._served is None else self._served.gate
        verdict = gate.decide(self.actor, Question(action, branch, target))
        self.services.events.write(
            "policy decision",
            {
                "request_id": self.request_id,
                "actor_id": self.actor,
                "action": action.value,
                "branch": branch,
                "target_branch": target,
                "allowed": verdict.allowed,
                "matched_rule_id": verdict.matched_rule_id,
            },
        )
        return verdict

    def authorize(
        self, action: Action, branch: str | None = None, target: str | None = None
    ) -> None:
        """Raise `PolicyDenied` unless policy allows it."""
        verdict = self.verdict(action, branch, target)
        if not verdict.allowed:
            self.services.metrics.rejected("denied")
            raise PolicyDenied(
                verdict.message,
                action=action.value,
                actor=self.actor,
                branch=branch,
                target_branch=target,
            )

    def admitted(self, size: int) -> AbstractContextManager[None]:
        """Count the write while a block runs; entering it raises `TooManyRequests`."""
        return self.services.admission.admit(self.actor, size)
