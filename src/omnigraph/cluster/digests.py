"""Digests of resources: SHA-256 over bytes with a fixed layout.

Other implementations of the specification compute the same digests, so the layout is part of the
ledger's format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omnigraph.model.records import dataclass


def digest_of(data: bytes) -> str:
    """The digest of a file: a schema, a query or a policy."""
    return hashlib.sha256(data).hexdigest()


def provider_digest(members: Mapping[str, str]) -> str:
    """The digest of an embedding provider; ``members`` are in fixed order, without unset ones."""
    return digest_of(b"embedding-provider\0" + _compact(members).encode())


@dataclass(frozen=True, slots=True)
class GraphParts:
    """The parts of a graph's digest."""

    graph_id: str
    schema: str
    queries: Iterable[tuple[str, str]] = ()
    """Names and digests of stored queries."""
    provider: tuple[str, str] | None = None
    """The provider's address and digest."""
    blob_bases: Sequence[tuple[str, str]] = ()
    """URIs and scopes; empty denies external blobs."""
    checks: str | None = None
    """The digest of the checks of change requests."""

    @property
    def digest(self) -> str:
        """The digest of the graph."""
        parts = ["graph", self.graph_id, "schema", self.schema]
        for name, digest in sorted(self.queries):
            parts += ["query", name, digest]
        if self.provider is not None:
            parts += ["embedding_provider", *self.provider]
        if self.blob_bases:
            bases = [{"uri": uri, "scope": scope} for uri, scope in self.blob_bases]
            parts += ["external_blob_policy", _compact({"mode": "allow", "bases": bases})]
        if self.checks is not None:
            parts += ["checks", self.checks]
        return digest_of("".join(f"{part}\0" for part in parts).encode())


def config_digest(document: Any, digests: Mapping[str, str]) -> str:
    """The digest of a whole cluster: the parsed file, and the digests of its resources."""
    whole = {"config": document, "resources": digests}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return digest_of(text.encode())


def state_cas(data: bytes) -> str:
    """The digest of a ledger's bytes, on which its next write is conditional."""
    return f"sha256:{digest_of(data)}"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
