"""One request, and the checks that handlers call in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar
from urllib.parse import parse_qsl, urlencode

import orjson
from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message

from omnigraph.access.identity import Identities
from omnigraph.audit.auditor import Asked, Auditor
from omnigraph.errors import (
    Busy,
    Conflict,
    ConstraintViolation,
    Denied,
    FencedOut,
    InputError,
    KeyConflict,
    LimitExceeded,
    MergeConflicts,
    NotFound,
    OmnigraphError,
    PreconditionFailed,
    Unauthenticated,
    UnresolvedRevision,
)
from omnigraph.graph import Graph
from omnigraph.graph.gate import Access, Gate, Question
from omnigraph.graph.opened import gate_of
from omnigraph.model.governor import Governor
from omnigraph.model.ids import checked_key
from omnigraph.model.receipts import (
    LoadedType,
    LoadReceipt,
    MergeReceipt,
    MutationReceipt,
    ReplayReceipt,
)
from omnigraph.model.records import dataclass
from omnigraph.policy import Action, Decision, Identity
from omnigraph.server.admission import ANONYMOUS, Admission, QueryLimits, StreamBudget
from omnigraph.server.auth import READS, RuntimeState, bearer_token
from omnigraph.server.config import ServerConfig, is_graph_id
from omnigraph.server.generation import Generation, Served
from omnigraph.server.logs import EventLog
from omnigraph.server.metrics import Metrics
from omnigraph.server.pool import EnginePool
from omnigraph.wire.failures import UnsupportedMedia
from omnigraph.wire.operations import GRAPH, INVOKE, Operation
from omnigraph.wire.requests import IDEMPOTENCY_KEY, JSON, NDJSON, branch_name, read_document

CLIENT_LEFT = "its client disconnected"

WriteOutcome = Literal["not_begun", "unknown"]
NOTHING_LANDED = (Busy, Conflict, Denied, InputError, LimitExceeded, NotFound)
"""Errors raised before anything was published."""

Document = TypeVar("Document", bound=BaseModel)
Given = ParamSpec("Given")
Returned = TypeVar("Returned")
Answered = TypeVar("Answered")


_BODY_HINT = "send one object in braces; `GET /openapi.json` says what is in it"


@dataclass(frozen=True, slots=True)
class Services:
    """What all requests of a process share, in every generation."""

    config: ServerConfig
    pool: EnginePool
    admission: Admission
    queries: QueryLimits
    streams: StreamBudget
    metrics: Metrics
    events: EventLog
    identities: Identities
    audit: Auditor | None = None
    """The audit of server-level decisions; graphs have their own."""
    reviews_touched: asyncio.Event = field(default_factory=asyncio.Event)
    """Wakes `ReviewWatch` after a change to a change request."""


class Call:
    """One request; its actor, graph and limits are set as the checks resolve them."""

    def __init__(
        self,
        services: Services,
        generation: Generation,
        operation: Operation,
        request: Request,
        *,
        request_id: str,
        headers: Mapping[bytes, bytes],
    ) -> None:
        self.services = services
        self.generation = generation
        self.operation = operation
        self.request = request
        self.request_id = request_id
        self.values: Mapping[str, str] = request.path_params
        self.actor: str | None = None
        self.claims: Mapping[str, Any] = {}
        """The claims of a signed token."""
        self.key: str | None = None
        """The idempotency key of the write, if any."""
        self.has_written = False
        """Whether a write of this request has begun."""
        self._body: bytes | None = None
        self.is_draining = False
        """Whether the server is shutting down."""
        self._served: Served | None = None
        self._governor: Governor | None = None
        self._is_abandoned = False
        self._headers = headers
        self._parameters: dict[str, list[str]] = {}
        self._access: Access | None = None
        self._graph: Graph | None = None

    def inner(
        self,
        operation: Operation,
        values: Mapping[str, str],
        query: Sequence[tuple[str, str]],
        body: bytes,
    ) -> Call:
        """A call of another operation by the same caller, within this one."""

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        headers = {b"content-type": operation.takes.encode()}
        scope = {
            "type": "http",
            "headers": [*headers.items()],
            "query_string": urlencode(query).encode(),
            "path_params": values,
        }
        request = Request(scope, receive)
        call = Call(
            self.services,
            self.generation,
            operation,
            request,
            request_id=self.request_id,
            headers=headers,
        )
        call.actor, call.claims = self.actor, self.claims
        call._served = self._served
        call._governor = self.governor
        return call

    # --- values of the request --------------------------------------------------------------------

    def address_of(self, graph_id: str) -> str:
        """The public URL of a graph, from the request's host and prefix."""
        return f"{str(self.request.base_url).rstrip('/')}{GRAPH.format(graph_id=graph_id)}"

    def headers(self, name: str) -> list[str]:
        """Every value of a header."""
        return self.request.headers.getlist(name) if name.lower().encode() in self._headers else []

    def header(self, name: str) -> str | None:
        """The value of a header (the last, if repeated); ``name`` is in lower case."""
        value = self._headers.get(name.encode())
        return None if value is None else value.decode("latin-1")

    def parameter(self, name: str) -> str | None:
        """A parameter of the query string."""
        return next(iter(self._parameters.get(name, ())), None)

    def parameters(self, name: str) -> list[str]:
        """Every value of a repeated parameter."""
        return self._parameters.get(name, [])

    def required_parameter(self, name: str) -> str:
        """A mandatory parameter."""
        value = (self.parameter(name) or "").strip()
        if not value:
            raise InputError(f"parameter `{name}` is missing")
        return value

    def number_parameter(self, name: str) -> int | None:
        """A whole number from the query string."""
        text = self.parameter(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdecimal() or len(text) > 18:
            raise InputError(f"`{name}` is not a number", hint="leave it out for the default")
        return int(text)

    def share_parameter(self, name: str) -> float | None:
        """A number from 0 to 1 from the query string."""
        text = self.parameter(name)
        if text is None:
            return None
        try:
            return float(text)
        except ValueError:
            raise InputError(
                f"`{name}` is not a number", hint="leave it out for the default"
            ) from None

    def flag_parameter(self, name: str) -> bool:
        """A parameter that is `true` or `false`; false when omitted."""
        value = self.parameter(name) or "false"
        if value not in ("true", "false"):
            raise InputError(f"`{name}` is true or false, not '{value}'")
        return value == "true"

    def branch_parameter(self) -> str | None:
        """A branch name from the query string."""
        value = self.parameter("branch")
        return None if value is None else branch_name(value)

    def read_parameters(self) -> None:
        """Parse the query string strictly; raises `InputError` for an unknown parameter."""
        query = self.request.scope["query_string"]
        if not query:
            return
        known = {each.name: each for each in self.operation.parameters if each.place == "query"}
        try:
            pairs = parse_qsl(
                query.decode("ascii"),
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

    def read_key(self) -> None:
        """Read the idempotency key from its header; raises `InputError` if it is malformed."""
        found = self.headers(IDEMPOTENCY_KEY)
        if len(found) > 1:
            raise InputError(f"header `{IDEMPOTENCY_KEY}` was sent more than once")
        if found:
            self.key = checked_key(found[0].strip(), IDEMPOTENCY_KEY)

    def outcome_after(self, error: Exception) -> WriteOutcome | None:
        """The outcome of the write of a failed request; None for a read.

        Conflicts and refusals are raised before anything is published. A writer whose lease was
        taken over cannot know whether recovery will publish or undo its work.
        """
        if self.has_written:
            nothing_landed = isinstance(error, NOTHING_LANDED) and not isinstance(error, FencedOut)
            return "not_begun" if nothing_landed else "unknown"
        is_write = self.operation.is_gated and self.operation is not INVOKE
        return "not_begun" if is_write else None

    async def document(self, model: type[Document]) -> Document:
        """Parse the JSON body; raises `InputError` unless it has the shape of ``model``."""
        body = await self.body()
        may_be_empty = not self.operation.body_required
        if may_be_empty and not body.strip():
            return read_document(model, {})
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError as problem:
            raise InputError(f"the body is not JSON: {problem}", hint=_BODY_HINT) from None
        if document is None and may_be_empty:
            document = {}
        if not isinstance(document, dict):
            raise InputError("the body is not a JSON object", hint=_BODY_HINT)
        return read_document(model, document)

    async def body(self) -> bytes:
        """Read the body.

        Raises `LimitExceeded` as soon as it is larger than the operation allows, and `InputError`
        when the client pauses for too long.
        """
        if self._body is not None:
            return self._body
        self.require_body_type()
        self.require_body_length()
        pieces: list[bytes] = []
        total = 0
        while True:
            message = self._arrived_message() or await self._next_message()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece: bytes = message.get("body", b"")
            total += len(piece)
            self._require_fitting(total)
            pieces.append(piece)
            if not message.get("more_body", False):
                self._body = b"".join(pieces)
                return self._body

    def _arrived_message(self) -> Message | None:
        """The next part of the body if it has already arrived, so that no timer is needed."""
        receiving = self.request.receive()
        assert isinstance(receiving, Coroutine)
        try:
            receiving.send(None)
        except StopIteration as received:
            message: Message = received.value
            return message
        receiving.close()
        return None

    async def _next_message(self) -> Message:
        seconds = self.services.config.client_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self.request.receive()
        except TimeoutError:
            raise InputError(
                f"the request did not go on for {seconds:g} seconds",
                hint="send it again, without a pause",
            ) from None

    def require_body_type(self) -> None:
        """Raise `UnsupportedMedia` for a content type that the operation does not accept.

        JSON may be sent without a type, as older clients do; graph records may not. A server
        without tokens always requires the type, because pages of other sites can send bodies
        without one.
        """
        encoding = self.header("content-encoding")
        if encoding is not None and encoding.strip().lower() != "identity":
            raise UnsupportedMedia("the body is compressed", hint="send it as it is")
        wanted = self.operation.takes
        media = (self.header("content-type") or "").partition(";")[0].strip().lower()
        is_json = media == JSON or (media.startswith("application/") and media.endswith("+json"))
        may_lack = self.generation.state is not RuntimeState.OPEN
        if media == wanted or (wanted == JSON and (is_json or (may_lack and not media))):
            return
        found = f"'{media}'" if media else "missing"
        raise UnsupportedMedia(
            f"the content type is {found}, and this route reads {wanted}",
            hint=f"send the header `Content-Type: {wanted}`",
        )

    def require_body_length(self) -> None:
        """Raise `LimitExceeded` for a too large declared length, before reading."""
        declared = self.header("content-length")
        if declared is not None and declared.isdecimal():
            self._require_fitting(int(declared))

    def _require_fitting(self, size: int) -> None:
        operation = self.operation
        if size > operation.body_bytes_max:
            batch = operation.takes == NDJSON
            resource = "graph_batch_request_bytes" if batch else "request_body_bytes"
            limit = operation.body_bytes_max
            raise LimitExceeded(resource, limit, size, hint="send less at a time")

    # --- caller and permissions -------------------------------------------------------------------

    async def authenticate(self) -> None:
        """Set the actor from the token; raises `Unauthenticated` or `TooManyRequests`."""
        if not await self.identify():
            self.services.metrics.rejected("unauthenticated")
            raise Unauthenticated(
                "no valid bearer token", hint="send the header `Authorization: Bearer TOKEN`"
            )

    async def identify(self) -> bool:
        """Set the actor from the token; False if the token is missing or invalid, and required."""
        if self.generation.state is RuntimeState.OPEN:
            return True
        given = [value for name, value in self.request.headers.raw if name == b"authorization"]
        token = bearer_token(given[0]) if len(given) == 1 else None
        owner = self.services.config.owner
        if owner is not None:
            self.actor = owner.actor
            return token is not None and owner.has(token)
        if token is None:
            return False
        known = self.generation.tokens.actor_of
        found = await self.services.identities.caller(token, known, self.address)
        if found is not None:
            self.actor, self.claims = found.actor, found.claims
        return found is not None

    @property
    def address(self) -> str:
        """The client's network address, or that of a proxy: forwarding headers are not trusted."""
        client = self.request.client
        return "" if client is None else client.host

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
        """The addressed graph; call `find_graph` first."""
        assert self._served is not None, "the operation is about a graph"
        return self._served

    @property
    def access(self) -> Access:
        """The identity and permissions with which this request uses the graph."""
        found = self._access
        if found is None:
            state = self.generation.state
            has_all = state in (RuntimeState.OPEN, RuntimeState.OWNER)
            found = self._access = Access(
                None if self.actor is None else Identity.of(self.actor, self.claims),
                is_served=True,
                without_policy=None if has_all else READS,
                request_id=self.request_id,
                address=self.address,
                decided={},
                told=self._log_decision,
            )
        return found

    @property
    def graph(self) -> Graph:
        """The addressed graph as this caller may use it: policy decides every verb."""
        found = self._graph
        if found is None:
            found = self._graph = self.served.graph_for(self.access)
        return found

    @property
    def gate(self) -> Gate:
        """The policy gate of the graph, for decisions that are needed before a verb runs.

        So a denial precedes admission, reading the body, and taking a stream slot. The verb asks
        the same gate and reuses the decision.
        """
        return gate_of(self.served.graph).ahead

    def names_storage(self, text: bytes) -> bool:
        """Whether an error text contains the graph's storage location."""
        if self._served is None:
            return False
        return self._served.graph.uri.removeprefix("file://").encode() in text

    def _log_decision(self, decision: Decision) -> None:
        """Log a decision, in the thread that made it."""
        self.services.events.write(
            "policy decision",
            {
                **({"bypass": True} if decision.is_bypass else {}),
                "request_id": self.request_id,
                "actor_id": self.actor,
                "action": decision.action.value,
                "branch": decision.branch,
                "target_branch": decision.target_branch,
                "allowed": decision.allowed,
                "matched_rule_id": decision.matched_rule_id,
            },
        )

    def may(self, action: Action, branch: str | None = None) -> bool:
        """Whether policy allows an action, to shape an answer; not logged as a decision."""
        return self.gate.allows(self.access, Question(action, branch))

    def may_list_graphs(self) -> bool:
        """Whether the policy of the server lets the caller list its graphs."""
        return self.generation.gate.graph_list(self.access.identity).allowed

    def require_graph_list(self) -> None:
        """Raise `PolicyDenied` unless the caller may list the graphs of the server."""
        decision = self.generation.gate.graph_list(self.access.identity)
        self._log_decision(decision)
        auditor = self.services.audit
        if auditor is not None:
            auditor.decided(
                Asked(
                    self.actor,
                    self.request_id,
                    self.address,
                    decision.action.value,
                    None,
                    None,
                    decision.allowed,
                    decision.matched_rule_id,
                )
            )
        decision.require()

    # --- the engine -------------------------------------------------------------------------------

    @property
    def governor(self) -> Governor:
        """The time and memory limits of this request's reads."""
        found = self._governor
        if found is None:
            asked = self.header("omnigraph-timeout")
            found = self._governor = self.services.queries.governor(self.actor, asked)
            if self._is_abandoned:
                found.cancel(CLIENT_LEFT)
        return found

    def abandon(self) -> None:
        """The client disconnected: cancel the reads of this request. A write continues."""
        self._is_abandoned = True
        if self._governor is not None:
            self._governor.cancel(CLIENT_LEFT)

    def close(self) -> None:
        """Release the memory of its rows, after the answer was sent."""
        if self._governor is not None:
            self._governor.close()

    async def read(
        self, work: Callable[Given, Returned], /, *args: Given.args, **options: Given.kwargs
    ) -> Returned:
        """Run ``work`` in a read thread, within the limits of the request."""
        governor = self.governor

        def governed() -> Returned:
            with governor:
                governor.check()  # its time may be over, or its client gone, before it starts
                return work(*args, **options)

        try:
            return await self.services.pool.read(self.actor or ANONYMOUS, governed)
        except OmnigraphError as error:
            raise self._shown(error) from error

    async def write(
        self,
        branch: str | None,
        size: int,
        work: Callable[Given, Returned],
        /,
        *args: Given.args,
        **options: Given.kwargs,
    ) -> Returned:
        """Run ``work`` in a write thread, counted by `Admission` while it runs.

        ``branch`` is the branch whose rows it changes. Raises `TooManyRequests` before it starts.
        """
        sees_rows = branch is None or self.may(Action.READ, branch)
        with self.services.admission.admit(self.actor, size):
            self.has_written = True
            try:
                receipt = await self.services.pool.write(
                    self.actor or ANONYMOUS, partial(work, *args, **options)
                )
            except OmnigraphError as error:
                raise self._shown(error, sees_rows=sees_rows) from error
        return receipt if sees_rows else without_rows(receipt)

    def _shown(self, error: OmnigraphError, *, sees_rows: bool = True) -> OmnigraphError:
        return shown_error(error, sees_names=self.may(Action.READ), sees_rows=sees_rows)


Handler = Callable[[Call], Awaitable[Response]]
Handlers = Mapping[str, Handler]
"""Handlers by the id of their operation."""


# --- hiding rows and names from callers without read rights ---------------------------------------

# The right to change a branch does not include reading it. Where existing rows decide the outcome
# of a write, the caller learns whether it succeeded, and nothing about the rows: counts are zero,
# the commit is null, and errors do not name a row. A caller that may not list branches and types
# gets engine errors without hints, because hints suggest existing names.

_REFUSED = "the write does not fit what the branch holds"
_WHY = "what stands in the way is shown to callers that may `read` the branch"


def shown_error(error: OmnigraphError, *, sees_names: bool, sees_rows: bool) -> OmnigraphError:
    """An engine error, reduced to what the caller may see."""
    if not sees_rows:
        match error:
            case ConstraintViolation():
                return ConstraintViolation(_REFUSED, hint=_WHY)
            case KeyConflict() | MergeConflicts():
                return Conflict(_REFUSED, hint=_WHY)
            case PreconditionFailed():
                return PreconditionFailed(str(error.details["expected"]), None)
            case InputError():
                # Problems of a load may concern existing rows.
                error.details = {}
    if not sees_names and isinstance(error, NotFound | InputError):
        error.hint = None
        if isinstance(error, UnresolvedRevision):
            error.details["candidates"] = []
    return error


def without_rows(receipt: Answered) -> Answered:
    """A receipt without anything that depends on the branch's previous rows."""
    withheld: Any = {"commit": None, "withheld": True}
    match receipt:
        case MutationReceipt():
            return replace(receipt, affected_nodes=0, affected_edges=0, **withheld)
        case LoadReceipt():
            nodes, edges = (
                tuple(map(_only_read, types)) for types in (receipt.nodes, receipt.edges)
            )
            # Records may have been skipped because of existing rows.
            nothing: Any = {"stages": (), "skipped": 0, "problems": ()}
            return replace(receipt, nodes=nodes, edges=edges, **nothing, **withheld)
        case ReplayReceipt():
            return replace(receipt, inserted=0, updated=0, deleted=0, **withheld)
        case MergeReceipt():
            return replace(receipt, **withheld)
    return receipt


def _only_read(type: LoadedType) -> LoadedType:
    return LoadedType(type.name, type.records_read, 0, 0, 0)
