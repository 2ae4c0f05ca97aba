"""Names of text objects: relative, `/`-separated, and never able to reach outside their root.

The same rules hold on every backend, so a name that works in a test works on every store.
"""

from __future__ import annotations

import re

from omnigraph.errors import InputError

HIDDEN_PREFIX = ".omnigraph-"
"""Segments starting with this are the store's own: staged files, lock files, probes.

They are invisible to `list` and cannot be addressed by a key.
"""

_CONTROL = re.compile("[\x00-\x1f\x7f]")


def is_hidden(segment: str) -> bool:
    """Whether one path segment belongs to the store itself."""
    return segment.startswith(HIDDEN_PREFIX)


def check_key(key: str) -> str:
    """``key`` itself, if it may name an object."""
    problem = _problem(key)
    if problem:
        raise InputError(
            f"'{key}' is not an object name: it {problem}",
            hint="write it relative to the root, as segments joined by '/'",
            details={"object": key},
        )
    return key


def check_prefix(prefix: str) -> str:
    """The prefix without its trailing slash; the empty prefix is the whole root."""
    return check_key(prefix.removesuffix("/")) if prefix else ""


def _problem(key: str) -> str | None:
    if not key:
        return "is empty"
    if key.startswith("/"):
        return "is absolute"
    if _CONTROL.search(key):
        return "has a control character"
    for segment in key.split("/"):
        if not segment:
            return "has an empty segment"
        if segment in (".", ".."):
            return f"has the segment '{segment}'"
        if is_hidden(segment):
            return f"has a segment starting with '{HIDDEN_PREFIX}', which is reserved"
    return None
