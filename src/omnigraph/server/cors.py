"""Browsers of other origins: which of them may read answers."""

from __future__ import annotations

from collections.abc import Collection

from omnigraph.server.answers import Headers
from omnigraph.wire.requests import IF_GRAPH_COMMIT, REQUEST_ID, SNAPSHOT_ID

EXPOSED = ", ".join(
    ("ETag", "Content-Range", SNAPSHOT_ID, "Deprecation", "Link", "Retry-After", REQUEST_ID)
)
ACCEPTED = ", ".join(
    (
        "Authorization",
        "Content-Type",
        "Accept",
        "If-Match",
        "If-None-Match",
        "If-Range",
        "Range",
        IF_GRAPH_COMMIT,
        REQUEST_ID,
    )
)
METHODS = "GET, HEAD, POST, DELETE"
PREFLIGHT_SECONDS = 600


def answer_headers(origin: str | None, allowed: Collection[str]) -> Headers:
    """The headers that let a listed origin read an answer."""
    if not allowed:
        return ()
    # Caches must not hand one origin the answer to another.
    vary = (("Vary", "Origin"),)
    if origin not in allowed or origin is None:
        return vary
    return (
        *vary,
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", EXPOSED),
    )


def preflight_headers() -> Headers:
    """The headers that let a listed origin send a request."""
    return (
        ("Access-Control-Allow-Methods", METHODS),
        ("Access-Control-Allow-Headers", ACCEPTED),
        ("Access-Control-Max-Age", str(PREFLIGHT_SECONDS)),
    )
