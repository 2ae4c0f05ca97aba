"""The client of a server, with the verbs of `Graph`, blocking or async.

Every verb is written once, in `async_graph`; `remote` runs the same coroutines without an event
loop. The room depends neither on the engine nor on the server; the shared definitions are in
`wire`.
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.client.async_graph import AsyncRemoteGraph
from omnigraph.client.connection import Patience
from omnigraph.client.remote import RemoteGraph, connect, connect_async, list_graphs

__all__ = [
    "NOT_SERVED",
    "AsyncRemoteGraph",
    "Patience",
    "RemoteGraph",
    "connect",
    "connect_async",
    "list_graphs",
]

_UPKEEP = "storage is maintained by its operator, with the command line"
_IN_PROCESS = "it needs the storage in this process"
NOT_SERVED: Mapping[str, str] = {
    "accepted_ir": "the compiled schema is a value of this process; `schema_source` is its text",
    "acting_as": "the token says who acts",
    "auto_optimize": "upkeep in the background belongs to the handle of the server",
    "blocked_branches": "`GET /readyz` of the server lists them",
    "cleanup": _UPKEEP,
    "clone": _UPKEEP,
    "compute": _IN_PROCESS,
    "create_backup": _UPKEEP,
    "push": _UPKEEP,
    "pull": _UPKEEP,
    "embed": "a provider is asked by the operator of the storage, with the command line",
    "ensure_indices": _UPKEEP,
    "entity_at": "values would lose their types in JSON; `query` returns them in Arrow",
    "examine": _IN_PROCESS,
    "frame": "Spark reads the storage itself",
    "to_networkx": "build it of `table`, or open the storage",
    "to_igraph": "build it of `table`, or open the storage",
    "to_pyg": "build it of `table`, or open the storage",
    "list_recoveries": _UPKEEP,
    "optimize": _UPKEEP,
    "recover": _UPKEEP,
    "repair": _UPKEEP,
    "scrub": _UPKEEP,
    "stream_into": "Spark writes to the storage itself",
    "apply_schema.check": "a function cannot be sent; a server checks its stored queries",
    "load.edges": "a server loads graph records; files of tables are loaded on the storage",
    "load.engine": "a server loads in its own process",
    "load.frames": "a server loads graph records; frames are loaded on the storage",
    "load.where": "a server loads graph records; rows of tables are chosen on the storage",
    "load.csv": "a server loads graph records; CSV files are loaded on the storage",
    "load.nodes": "a server loads graph records; files of tables are loaded on the storage",
    "load.observer": "a load over HTTP is one request; `progress` tells what was read for it",
    "load.origin": "for programs on the storage, such as pipelines",
    "merge_branch.metadata": "for programs on the storage, such as pipelines",
    "merge_branch.engine": "a server merges in its own process",
    "merge_branch.spark": "a server merges in its own process",
    "plan_merge.engine": "a server merges in its own process",
    "plan_merge.spark": "a server merges in its own process",
    "diff.engine": "a server compares in its own process",
    "diff.spark": "a server compares in its own process",
    "load.spark": "a server loads in its own process",
    "query.engine": "a server runs queries in its own process",
    "query.spark": "a server runs queries in its own process",
    "query.governor": "a server sets the limits of its queries; a client that leaves stops its own",
}
"""Verbs of `Graph`, and options as `verb.option`, that a served graph lacks, with the reason."""
