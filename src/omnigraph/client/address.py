"""Where a graph is served."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from omnigraph.errors import InputError
from omnigraph.wire.operations import GRAPH_ID_PATTERN

_SCHEMES = ("http", "https")
_HINT = "write it as http://HOST:PORT/graphs/ID"
_GRAPH_AT_END = re.compile(r"(?P<root>.*)/graphs/(?P<graph_id>[^/]+)")


@dataclass(frozen=True, slots=True)
class Address:
    """The URL below which the paths of one graph lie."""

    base: str
    """Without a slash at its end."""

    @classmethod
    def parse(cls, url: str, graph: str | None = None) -> Address:
        """An address from what a caller wrote; ``graph`` names the graph if the URL does not.

        Raises `InputError` for anything but the plain URL of a server, and for two graphs.
        """
        parts = urlsplit(url)
        # A password in a URL ends up in logs and histories, so it is refused and not repeated.
        if parts.username is not None or parts.password is not None:
            raise InputError("the URL of a server holds a user name", hint="pass `token` instead")
        if parts.scheme.lower() not in _SCHEMES or not parts.hostname:
            raise InputError(f"`{url}` is not the URL of a server", hint=_HINT)
        if parts.query or parts.fragment:
            raise InputError(f"`{url}` has more than a path", hint=_HINT)
        found = cls(url.rstrip("/"))
        return found if graph is None else found._with_graph(graph)

    @property
    def root(self) -> str:
        """The URL of the server itself."""
        found = _GRAPH_AT_END.fullmatch(self.base)
        return found["root"] if found is not None else self.base

    @property
    def graph_id(self) -> str | None:
        """The graph, if the URL says so."""
        found = _GRAPH_AT_END.fullmatch(self.base)
        return found["graph_id"] if found is not None else None

    def __str__(self) -> str:
        return self.base

    def _with_graph(self, graph: str) -> Address:
        if self.graph_id is not None and self.graph_id != graph:
            raise InputError(
                f"`{self.base}` is graph `{self.graph_id}` already, not `{graph}`",
                hint="give the graph once",
            )
        if re.fullmatch(GRAPH_ID_PATTERN, graph) is None:
            raise InputError(
                f"`{graph}` is not the id of a graph", hint="ids have letters, digits and `-`"
            )
        return Address(f"{self.root}/graphs/{quote(graph, safe='')}")
