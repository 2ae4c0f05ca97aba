"""The configuration of a server."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from omnigraph.access.identity import JwtSettings
from omnigraph.audit.log import AuditSettings
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.errors import InputError
from omnigraph.model.records import dataclass
from omnigraph.server.auth import OwnerSession
from omnigraph.syntax.tokens import Source
from omnigraph.wire.operations import GRAPH_ID_PATTERN, RESERVED_GRAPH_IDS

DEFAULT_BIND = "127.0.0.1:8080"
DEFAULT_GRAPH_ID = "default"
SHUTDOWN_SECONDS = 30.0
CLIENT_SECONDS = 30.0
"""The longest pause of a client between pieces of a request that it sends or an answer it reads."""

QUERY_SECONDS = 30.0
"""How long a query may take, from its arrival."""

CONNECTIONS_MAX = 1000
"""The maximum number of connections, each of which uses a file descriptor."""

LogFormat = Literal["text", "json"]

_GRAPH_ID = re.compile(GRAPH_ID_PATTERN)
_FALSE = ("", "0", "false")


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """One graph to serve."""

    graph_id: str
    uri: str
    queries: tuple[Path, ...] = ()
    """Files of stored queries, or directories with `*.gq` files."""
    policy: Path | None = None
    external_blobs: tuple[str, ...] = ()
    """URI prefixes of external blobs that loads may refer to; never on the server's own disk."""
    stored: tuple[tuple[str, Source], ...] = ()
    """Stored queries of a cluster: the name and the source text of each."""
    checks: str | None = None
    """The declared checks of change requests, of a cluster."""
    embedding: EmbeddingConfig | None = None
    policy_text: str | None = None
    """The text of the policy, of a cluster."""

    @property
    def bundle(self) -> Path | str | None:
        """The policy: a file, or its text."""
        return self.policy if self.policy_text is None else self.policy_text


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The settings of a server, from flags and variables."""

    graphs: tuple[GraphSpec, ...]
    bind: str = DEFAULT_BIND
    cluster: str | None = None
    """The directory or storage root of a cluster whose applied graphs are served."""
    workers: int = 1
    """The number of processes that share the address."""
    server_policy: Path | None = None
    server_policy_text: str | None = None
    """The text of the server policy, of a cluster."""
    jwt: JwtSettings | None = None
    """Which signed tokens are accepted, besides static ones."""
    revocations: Path | None = None
    """A file of revoked actors and token ids."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    unauthenticated: bool = False
    require_all_graphs: bool = False
    applies_schemas: bool = True
    """Whether `/schema/apply` is allowed; not if a cluster manages the schemas."""
    reload_seconds: float = 0.0
    shutdown_seconds: float = SHUTDOWN_SECONDS
    client_seconds: float = CLIENT_SECONDS
    connections_max: int = CONNECTIONS_MAX
    query_seconds: float = QUERY_SECONDS
    """The timeout of queries; 0 for none."""
    query_seconds_of: Mapping[str, float] = field(default_factory=dict)
    """The timeout of queries of single actors."""
    metrics: bool = False
    metrics_bind: str | None = None
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Host names, besides those of this machine, under which a server without tokens is addressed.
    """
    mcp: bool = False
    """Whether operations and stored queries are offered as tools."""
    mcp_adhoc: bool = False
    """Whether tools may run ad-hoc queries."""
    studio: bool = False
    """Whether Studio is served, at `/studio/`."""
    owner: OwnerSession | None = None
    """The session of a single-user server, which reads neither tokens nor policies."""
    mcp_review_write: bool = False
    """Whether tools may approve and merge change requests."""
    audit: AuditSettings | None = None
    """Where decisions and accesses are recorded, if at all."""
    settings: Path | None = None
    """A file with `reviews.webhooks`, the receivers of change request events."""
    log_format: LogFormat = "text"
    logs_requests: bool = True
    """Whether every request is logged, not only warnings and errors."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InputError(
                "`--tls-cert` and `--tls-key` belong together", hint="pass both, or neither"
            )


def is_graph_id(text: str) -> bool:
    """Whether the text is a valid graph id."""
    return _GRAPH_ID.fullmatch(text) is not None and text not in RESERVED_GRAPH_IDS


def require_graph_id(text: str) -> None:
    """Raise `InputError` for an invalid graph id."""
    if not is_graph_id(text):
        reserved = ", ".join(sorted(RESERVED_GRAPH_IDS))
        raise InputError(
            f"'{text}' is not a graph id",
            hint=f"use up to 64 letters, digits and '-'; {reserved} are taken",
        )


def require_server_safe(bases: tuple[str, ...]) -> None:
    """Raise `InputError` for a location that callers must not reach through the server."""
    for base in bases:
        if not base.startswith("s3://"):
            raise InputError(
                f"a server takes no external blobs from '{base}'",
                hint="name a folder of a bucket, as s3://bucket/folder",
            )


def flag_of(environment: Mapping[str, str], name: str) -> bool:
    """A boolean variable: false when unset, blank, `0` or `false`."""
    return environment.get(name, "").strip().lower() not in _FALSE


def seconds_of(environment: Mapping[str, str], name: str, default: float) -> float:
    """A variable in seconds; raises `InputError` if it is not a number."""
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"`{name}` is '{text}'", hint="give it a number of seconds")
    return value


def count_of(environment: Mapping[str, str], name: str, default: int) -> int:
    """A variable with a number above zero; raises `InputError` for another value."""
    text = environment.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise InputError(f"`{name}` is '{text}'", hint="give it a number above zero")
    return int(text)


def host_and_port(bind: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 address is in brackets."""
    host, colon, port = bind.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or not port.isdecimal() or int(port) > 65_535:
        raise InputError(
            f"'{bind}' is not an address", hint="write it as host:port, `0` for any port"
        )
    return bare, int(port)


# --- names of this machine ------------------------------------------------------------------------


HOSTS_KEPT_MAX = 64
"""The number of `Host` values whose verdict is cached."""


class OwnHosts:
    """Accepts `Host` values that name this machine, against DNS rebinding.

    A page of another site can resolve its own name to this machine, and then read the answers; it
    cannot change the `Host` that the browser sends.
    """

    def __init__(self, bind: str, allowed: Iterable[str]) -> None:
        bound, _ = host_and_port(bind)
        self._any_address = is_wildcard(bound)
        """Whether the server listens on all addresses of this machine."""
        self._names = {each.lower() for each in allowed} | {bound.lower()}
        self.knows = lru_cache(HOSTS_KEPT_MAX)(self._knows)

    def _knows(self, host: bytes) -> bool:
        name = host_name(host.decode("latin-1"))
        if name in self._names or is_loopback(name):
            return True
        return self._any_address and is_address(name)


def host_name(header: str) -> str:
    """The name or address in a `Host` header, in lower case and without the port.

    >>> host_name("LOCALHOST:8080"), host_name("[::1]:80")
    ('localhost', '::1')
    """
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def is_loopback(name: str) -> bool:
    """Whether the name always resolves to the local machine."""
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)


def is_wildcard(name: str) -> bool:
    """Whether the name means all addresses of a machine."""
    return is_address(name) and ipaddress.ip_address(name).is_unspecified


def is_address(name: str) -> bool:
    """Whether it is an IP address, which DNS rebinding cannot redirect."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
