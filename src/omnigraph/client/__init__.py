"""A graph behind a server, with the verbs of `Graph`, in both manners of Python.

What is sent and how an answer is read is written once, in `exchanges` and `answers`, without any
I/O. `RemoteGraph` and `AsyncRemoteGraph` only differ in how they send it. The room knows neither
the engine nor the server: what both sides share is `wire`.
"""

from __future__ import annotations

from omnigraph.client.connecting import connect, connect_async, list_graphs
from omnigraph.client.remote import RemoteGraph
from omnigraph.client.remote_async import AsyncRemoteGraph

__all__ = ["AsyncRemoteGraph", "RemoteGraph", "connect", "connect_async", "list_graphs"]
