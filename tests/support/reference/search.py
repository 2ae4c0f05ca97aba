"""Search calls: what they are asked, and what they say about one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from omnigraph.errors import InputError
from omnigraph.query import expressions as ex
from tests.support.reference import text
from tests.support.reference.embedding import single
from tests.support.reference.solutions import Entity

Embed: TypeAlias = Callable[[ex.Nearest, str], Sequence[float]]


@dataclass(frozen=True)
class Search:
    """The search calls of one query over one snapshot."""

    tables: Mapping[str, Sequence[Entity]]
    parameters: Mapping[str, Any]
    tokens: text.Tokens
    embed: Embed

    def check(self, call: ex.Expression) -> None:
        """Refuse arguments that no type tells from good ones, whatever is stored."""
        match call:
            case ex.TextMatch():
                self.edits_max(call)
                self.sought(call.query)
            case ex.Bm25() | ex.Highlight():
                self.sought(call.query)
            case ex.Nearest():
                self.query_vector(call)
            case ex.Rrf():
                self.k(call)

    # --- arguments --------------------------------------------------------------------------------

    def argument(self, node: ex.Expression) -> Any:
        if isinstance(node, ex.ParameterValue):
            return self.parameters[node.name]
        assert isinstance(node, ex.Constant)
        return node.value

    def edits_max(self, call: ex.TextMatch) -> int:
        if call.edits_max is None:
            return 0
        return self._count(call.edits_max, 0)

    def k(self, call: ex.Rrf) -> int:
        return self._count(call.k, 1)

    def _count(self, node: ex.Expression, minimum: int) -> int:
        given = self.argument(node)
        if given is None or given < minimum:
            raise InputError(f"a search needs a number of at least {minimum}, not {given}")
        return int(given)

    def query_vector(self, call: ex.Nearest) -> list[float]:
        query = self.argument(call.query)
        if query is None:
            raise InputError(f"the query of `nearest` on {call.type_name}.{call.property} is null")
        vector = self.embed(call, query) if isinstance(query, str) else query
        if len(vector) != call.dimension:
            raise InputError(
                f"{call.type_name}.{call.property} has {call.dimension} dimensions, "
                f"but the query has {len(vector)}"
            )
        return [single(component) for component in vector]

    # --- answers ----------------------------------------------------------------------------------

    def matches(self, call: ex.TextMatch, node: Entity | None) -> bool:
        """Whether the property of a node satisfies a text predicate."""
        field = None if node is None else node[call.property]
        if isinstance(call.query, ex.TextQuery):
            return text.found(field, self.sought(call.query), self.tokens) is True
        return text.matches(field, self.argument(call.query), self.edits_max(call), self.tokens)

    def sought(self, query: ex.Expression) -> text.Sought:
        """What a search text looks for; a bag of words is one word or another."""
        given = self.argument(query.text if isinstance(query, ex.TextQuery) else query)
        return text.sought(query.kind if isinstance(query, ex.TextQuery) else None, given)

    def highlight(self, call: ex.Highlight, node: Entity | None) -> list[str] | None:
        """The marked parts of the property of a node."""
        field = None if node is None else node[call.property]
        return text.highlighted(field, self.sought(call.query), call.style, self.tokens)

    def score(self, call: ex.Bm25, node: Entity | None) -> float | None:
        """The BM25 score of a node; None when it shares no word with the query."""
        corpus = [row[call.property] for row in self.tables[f"node:{call.type_name}"]]
        field = None if node is None else node[call.property]
        known = text.Corpus(corpus, self.tokens)
        if isinstance(call.query, ex.TextQuery):
            return known.score_of(field, self.sought(call.query))
        return known.score(field, self.argument(call.query))

    def distance(self, call: ex.Nearest, node: Entity | None) -> float | None:
        """The squared distance of a node's vector; None when it has none."""
        vector = None if node is None else node[call.property]
        if vector is None:
            return None
        query = self.query_vector(call)
        return float(sum((a - b) ** 2 for a, b in zip(vector, query, strict=True)))
