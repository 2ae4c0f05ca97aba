"""Stored queries, from files beside a store or from a server, in one form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.client import RemoteGraph
from omnigraph.graph import Graph
from omnigraph.graph.stored_queries import query_files
from omnigraph.model.receipts import MutationReceipt
from omnigraph.model.result import Result
from omnigraph.model.signatures import QuerySignature

Invoke = Callable[[Mapping[str, Any], str | None], Result | MutationReceipt]


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """One query that is called by its name."""

    name: str
    about: str
    writes: bool
    schema: Mapping[str, Any]
    """The JSON schema of its parameters."""
    invoke: Invoke
    """Run it with parameters on a branch."""


def stored_in_files(
    graph: Graph, paths: Iterable[Path], actor: str | None = None
) -> list[StoredQuery]:
    """The queries of `.gq` files, or of directories with such files, checked against a graph.

    Raises the compile error of the first bad one, and `InputError` for a path that is neither.
    """
    found = []
    for file in query_files(paths):
        for signature in graph.describe_queries(file):
            run = _in_process(graph, file, signature.name, actor, writes=signature.is_mutation)
            found.append(_stored(signature, run))
    return found


def stored_on_server(graph: RemoteGraph) -> list[StoredQuery]:
    """The queries stored with a server."""
    return [
        _stored(entry, _over_http(graph, entry.name, entry.is_mutation))
        for entry in graph.list_queries()
    ]


def _stored(signature: QuerySignature, invoke: Invoke) -> StoredQuery:
    about = [text for text in (signature.description, signature.instruction) if text is not None]
    what = "Change the graph" if signature.is_mutation else "Read the graph"
    return StoredQuery(
        signature.tool_name,
        "\n\n".join(about) or f"{what} with the stored query `{signature.name}`.",
        signature.is_mutation,
        signature.parameters_schema(),
        invoke,
    )


def _in_process(graph: Graph, file: Path, name: str, actor: str | None, *, writes: bool) -> Invoke:
    def invoke(params: Mapping[str, Any], branch: str | None) -> Result | MutationReceipt:
        if writes:
            return graph.mutate(file, params, name=name, branch=branch, actor=actor)
        return graph.query(file, params, name=name, branch=branch)

    return invoke


def _over_http(graph: RemoteGraph, name: str, writes: bool) -> Invoke:
    def invoke(params: Mapping[str, Any], branch: str | None) -> Result | MutationReceipt:
        return graph.invoke(name, params, branch=branch, expect_mutation=writes)

    return invoke
