"""A graph behind a server, with the verbs of `Graph`, blocking or awaited.

Every verb is written once, in `async_graph`; `remote` runs the same coroutines without an event
loop. The room knows neither the engine nor the server: what both sides share is `wire`.
"""

from __future__ import annotations

from omnigraph.client.async_graph import AsyncRemoteGraph
from omnigraph.client.remote import RemoteGraph, connect, connect_async, list_graphs

__all__ = ["AsyncRemoteGraph", "RemoteGraph", "connect", "connect_async", "list_graphs"]
