"""A real server in a thread of this process, and small graphs for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from omnigraph.graph import Graph, init, open_graph
from omnigraph.server.auth import TOKENS_JSON
from omnigraph.server.config import GraphSpec, ServerConfig
from omnigraph.server.logs import EventLog
from omnigraph.server.run import RunningServer
from tests.support.templates import copy_of

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City
"""

RECORDS = """\
{"type": "Person", "data": {"name": "ada", "age": 36}}
{"type": "Person", "data": {"name": "bo", "age": 41}}
{"type": "City", "data": {"name": "Rome"}}
{"edge": "Knows", "from": "ada", "to": "bo", "data": {"id": "k1"}}
"""

PEOPLE = "query people { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
ADD = "query add($name: String) { insert Person { name: $name } }"
NOTHING = 'query nothing { update Person set { age: 1 } where name = "nobody" }'

QUERIES = """
query everybody() @description("Everybody we know") {
    match { $p: Person } return { $p.name } order { $p.name }
}

query older_than($age: I32, $limit: I64?) {
    match { $p: Person  $p.age > $age } return { $p.name } order { $p.name }
}

query sign_up($name: String) @instruction("Call it once per person") {
    insert Person { name: $name }
}
"""

TOKENS = {"act-ana": "token-of-ana-0001", "act-bo": "token-of-bo-0002", "act-cy": "token-of-cy-03"}

POLICY = """\
version: 1
groups:
  team: [act-ana, act-bo]
  admins: [act-ana]
protected_branches: [main]
rules:
  - id: team-reads
    allow: { actors: { group: team }, actions: [read, export], branch_scope: any }
  - id: team-edits
    allow: { actors: { group: team }, actions: [change], branch_scope: unprotected }
  - id: team-forks
    allow: { actors: { group: team }, actions: [branch_create], target_branch_scope: unprotected }
  - id: team-merges
    allow: { actors: { group: team }, actions: [branch_merge], target_branch_scope: any }
  - id: admins-edit
    allow: { actors: { group: admins }, actions: [change], branch_scope: any }
  - id: admins-delete
    allow:
      actors: { group: admins }
      actions: [branch_delete, tag_create, tag_delete]
      target_branch_scope: any
  - id: admins-shape
    allow: { actors: { group: admins }, actions: [schema_apply], target_branch_scope: protected }
  - id: admins-call
    allow: { actors: { group: admins }, actions: [invoke_query] }
"""

UNPROTECTED_ONLY = """\
version: 1
groups: { all: [act-bo] }
protected_branches: [main]
rules:
  - id: side
    allow: { actors: { group: all }, actions: [read], branch_scope: unprotected }
"""

SERVER_POLICY = """\
version: 1
groups:
  operators: [act-ana]
rules:
  - id: operators-list
    allow: { actors: { group: operators }, actions: [graph_list] }
"""

PATIENCE_SECONDS = 60.0
"""How long a test waits for what has to happen."""


def bearer(actor: str) -> dict[str, str]:
    """The header of an actor's token."""
    return {"Authorization": f"Bearer {TOKENS[actor]}"}


def with_tokens(**more: str) -> dict[str, str]:
    """An environment that names every token."""
    return {TOKENS_JSON: orjson.dumps(TOKENS).decode(), **more}


def new_graph(root: Path, records: str = RECORDS) -> Graph:
    """A graph with a few people in it."""
    if records != RECORDS:
        return _fill(root, records)
    copy_of(_fill, root)
    return open_graph(root)


def _fill(root: Path, records: str = RECORDS) -> Graph:
    graph = init(str(root), SCHEMA)
    if records:
        graph.load(data=records, mode="append", engine="local")
    return graph


@dataclass
class Live:
    """A server that answers."""

    server: RunningServer
    loop: asyncio.AbstractEventLoop
    events: list[str]
    """What was logged of requests, one JSON text each."""
    thread: threading.Thread
    clients: list[httpx.Client] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{self.server.address}"

    @property
    def host(self) -> tuple[str, int]:
        name, _, port = self.server.address.rpartition(":")
        return name, int(port)

    def client(self, actor: str | None = None, graph_id: str | None = "default") -> httpx.Client:
        """A client of one actor, whose paths start at a graph."""
        base = self.url if graph_id is None else f"{self.url}/graphs/{graph_id}"
        headers = {} if actor is None else bearer(actor)
        # Loading the certificates of public servers takes longer than most requests.
        client = httpx.Client(
            base_url=base, headers=headers, timeout=PATIENCE_SECONDS, verify=False
        )
        self.clients.append(client)
        return client

    def graph(self, graph_id: str = "default") -> Graph:
        return self.server.app.generation.graphs[graph_id].graph

    def call(self, work: Any) -> Any:
        """What a coroutine function returns on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(PATIENCE_SECONDS)


_ending: list[threading.Thread] = []


def require_ended() -> None:
    """Wait until every server that was told to stop has done so."""
    while _ending:
        thread = _ending.pop()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


@contextmanager
def serving(
    *graphs: GraphSpec,
    environment: Mapping[str, str] | None = None,
    waits: bool = True,
    bind: str = "127.0.0.1:0",
    **options: Any,
) -> Iterator[Live]:
    """Serve graphs, on a free port unless told; without an environment, to everybody.

    Without ``waits`` the server ends beside the next test, and `require_ended` waits for it.
    """
    config = ServerConfig(
        graphs,
        bind=bind,
        environment=environment or {},
        **{"unauthenticated": environment is None, **options},
    )
    events: list[str] = []
    server = RunningServer(config, EventLog(events.append, "json"))
    listening = threading.Event()
    found: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        found.append(asyncio.get_running_loop())
        await server.run(lambda _address: listening.set(), own_signals=False)

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="server")
    thread.start()
    assert listening.wait(PATIENCE_SECONDS)
    live = Live(server, found[0], events, thread)
    try:
        yield live
    finally:
        for client in live.clients:
            client.close()
        live.loop.call_soon_threadsafe(server.stop)
        _ending.append(thread)
        if waits:
            require_ended()
