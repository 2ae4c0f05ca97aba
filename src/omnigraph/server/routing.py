"""From a method and a path to an operation.

The path is cut at its slashes before it is decoded, so that an encoded slash stays inside its
segment: a branch called `etl/run-1` is one segment of a URL.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from omnigraph.errors import InputError, NotFound
from omnigraph.server.answers import Answer, Stream
from omnigraph.server.call import Call
from omnigraph.wire.operations import Operation

PATHS_KEPT_MAX = 1024
PATH_KEPT_BYTES = 256
"""What is remembered of paths that were taken before: most of them are taken again."""

Handler = Callable[[Call], Awaitable[Answer | Stream]]
Handlers = Mapping[str, Handler]
"""By the id of an operation."""


@dataclass(frozen=True, slots=True)
class Route:
    """One operation with its handler."""

    operation: Operation
    handler: Handler
    segments: tuple[str, ...]

    def values(self, segments: tuple[str, ...]) -> dict[str, str] | None:
        """The parameters in a path of as many segments; None if it is another path."""
        found: dict[str, str] = {}
        for mine, theirs in zip(self.segments, segments, strict=True):
            if mine.startswith("{"):
                if not theirs:
                    return None
                found[mine[1:-1]] = theirs
            elif mine != theirs:
                return None
        return found


@dataclass(frozen=True, slots=True)
class Match:
    """What a path leads to, by method."""

    routes: Mapping[str, tuple[Route, dict[str, str]]]

    @property
    def allow(self) -> str:
        """The methods there are, for the header of that name."""
        return ", ".join(sorted(self.routes))


class Router:
    """All routes."""

    def __init__(self, operations: Iterable[Operation], handlers: Handlers) -> None:
        self._by_length: dict[int, list[Route]] = {}
        for operation in operations:
            segments = tuple(operation.path.split("/"))
            route = Route(operation, handlers[operation.id], segments)
            self._by_length.setdefault(len(segments), []).append(route)
        self._remembered = lru_cache(PATHS_KEPT_MAX)(self._find)

    def find(self, raw_path: bytes) -> Match:
        """The routes of a path; raises `NotFound` if there is none."""
        if len(raw_path) > PATH_KEPT_BYTES:
            return self._find(raw_path)
        return self._remembered(raw_path)

    def _find(self, raw_path: bytes) -> Match:
        segments = tuple(_decoded(segment) for segment in raw_path.split(b"/"))
        found: dict[str, tuple[Route, dict[str, str]]] = {}
        for route in self._by_length.get(len(segments), ()):
            values = route.values(segments)
            if values is not None:
                found.setdefault(route.operation.method, (route, values))
        if not found:
            raise NotFound(
                "there is nothing at this path", hint="`GET /openapi.json` lists every path"
            )
        return Match(found)


def _decoded(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode() if b"%" in segment else segment.decode()
    except UnicodeDecodeError:
        raise InputError("the path is not UTF-8") from None
