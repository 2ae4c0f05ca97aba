"""Making clients."""

from __future__ import annotations

from contextlib import closing

from omnigraph.client import exchanges
from omnigraph.client.address import Address
from omnigraph.client.connection import AsyncConnection, Connection
from omnigraph.client.exchanges import RowForm
from omnigraph.client.patience import Patience
from omnigraph.client.remote import RemoteGraph
from omnigraph.client.remote_async import AsyncRemoteGraph
from omnigraph.wire.answers import ServedGraph

TIMEOUT_SECONDS = 60.0


def connect(
    url: str,
    token: str | None = None,
    timeout: float | None = TIMEOUT_SECONDS,
    *,
    graph: str | None = None,
    rows: RowForm = "arrow",
    patience: Patience | None = None,
) -> RemoteGraph:
    """A graph behind a server, with the verbs of `Graph`. Nothing is sent yet.

    ``url`` is the one of the graph, `https://host/graphs/knowledge`, or of the server, and then
    ``graph`` is its id. ``timeout`` is in seconds and for each wait; None waits for ever. ``rows``
    says how results travel: as `arrow`, or as `json`, whose values have only the types of JSON.
    ``patience`` says when something is tried again. Raises `InputError` for a URL that is none.
    """
    address = Address.parse(url, graph)
    return RemoteGraph(Connection(address, token, timeout, patience or Patience()), rows)


def connect_async(
    url: str,
    token: str | None = None,
    timeout: float | None = TIMEOUT_SECONDS,
    *,
    graph: str | None = None,
    rows: RowForm = "arrow",
    patience: Patience | None = None,
) -> AsyncRemoteGraph:
    """The same for programs with an event loop: every verb is awaited."""
    address = Address.parse(url, graph)
    return AsyncRemoteGraph(AsyncConnection(address, token, timeout, patience or Patience()), rows)


def list_graphs(
    url: str, token: str | None = None, timeout: float | None = TIMEOUT_SECONDS
) -> list[ServedGraph]:
    """The graphs of a server, by id; raises `Denied` unless its policy allows to list them."""
    with closing(Connection(Address.parse(url), token, timeout, Patience())) as connection:
        return connection.send(exchanges.list_graphs())
