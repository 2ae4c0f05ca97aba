"""Evaluates the search calls of a query: text matches, BM25 scores and vector distances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.base import Execution
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.nodes import CachedNodes, single
from omnigraph.engines.local.text_index import TextIndex
from omnigraph.engines.local.vectors import VectorColumn
from omnigraph.errors import InputError, InternalError
from omnigraph.model.arrow import ID, arrow_type
from omnigraph.model.ids import TableKey
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query.evaluate import scalar_operand
from omnigraph.storage.search import has_text_index, matching_rows

if TYPE_CHECKING:
    from omnigraph.engines.local.tables import Session

Scores = npt.NDArray[np.float64]

_TEXT = pa.string()


class SearchArguments:
    """The constant arguments of search calls, checked and evaluated once per run."""

    def __init__(self, run: Execution) -> None:
        self._run = run
        self._vectors: dict[ex.Nearest, npt.NDArray[np.float64]] = {}

    def check(self, calls: Iterable[ex.TextMatch | ex.Nearest | ex.Bm25 | ex.Rrf]) -> None:
        """Raise `InputError` for invalid arguments, even if there is nothing to search."""
        for call in calls:
            match call:
                case ex.TextMatch(function="fuzzy"):
                    self.edits(call)
                case ex.Nearest():
                    self._given_vector(call)
                case ex.Rrf():
                    self.fusion_constant(call)
                    self.check((call.first, call.second))

    def fusion_constant(self, call: ex.Rrf) -> int:
        """The k of a fusion."""
        k = self._constant(call.k)
        if not isinstance(k, int) or k <= 0:
            shown = "null" if k is None else k
            raise InputError(f"the k of rrf must be a positive number, not {shown}")
        return k

    def text(self, expression: ex.Expression) -> str | None:
        """The text a call searches for."""
        value = self._constant(expression)
        assert value is None or isinstance(value, str)
        return value

    def edits(self, call: ex.TextMatch) -> int:
        """How many edits a fuzzy search allows."""
        edits = 2 if call.edits_max is None else self._constant(call.edits_max)
        if not isinstance(edits, int) or edits < 0:
            shown = "null" if edits is None else edits
            raise InputError(
                f"fuzzy cannot allow {shown} edits",
                hint="give zero or more edits; 2 is the default",
            )
        return edits

    def query_vector(self, call: ex.Nearest) -> npt.NDArray[np.float64]:
        """The query vector of a `nearest` call; a text is embedded."""
        known = self._vectors.get(call)
        if known is None:
            known = self._vectors[call] = self._vector(call)
        return known

    def _vector(self, call: ex.Nearest) -> npt.NDArray[np.float64]:
        given = self._given_vector(call)
        if isinstance(given, str):
            given = self._run.embed(call, given)
        return np.asarray(given, np.float32).astype(np.float64)

    def _given_vector(self, call: ex.Nearest) -> str | Sequence[float]:
        """The query as given: a text to embed, or a vector of the right dimension."""
        where = f"nearest(${call.variable}.{call.property}, …)"
        value = self._constant(call.query)
        if value is None:
            raise InputError(
                f"{where} has nothing to measure from: its query is null",
                hint="give a vector, or a text to embed",
            )
        if isinstance(value, str):
            return value
        vector = cast(Sequence[float], value)
        if len(vector) != call.dimension:
            raise InputError(
                f"{where} compares vectors of {call.dimension} numbers, the query has {len(vector)}"
            )
        return vector

    def _constant(self, expression: ex.Expression) -> object:
        return scalar_operand(expression, self._run.parameters, self._run.now).as_py()


class Search(SearchArguments):
    """The search calls of one run; each is evaluated once."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.run)
        self._session = session
        self._matches: dict[ex.TextMatch, npt.NDArray[np.bool_]] = {}

    def values(self, call: ex.TextMatch | ex.Nearest | ex.Bm25 | ex.Rrf, slots: Slots) -> pa.Array:
        """The values of a search call for some nodes."""
        match call:
            case ex.TextMatch():
                return pa.array(self.matches(call, slots))
            case ex.Nearest():
                distances, valid = self.distances(call, slots)
                return pa.array(distances, mask=~valid)
            case ex.Bm25():
                return pa.array(self.scores(call, slots))
            case ex.Rrf():
                raise InternalError("a fused score exists only for rows it has ordered")

    # --- text -------------------------------------------------------------------------------------

    def matches(self, call: ex.TextMatch, slots: Slots) -> npt.NDArray[np.bool_]:
        """Whether each node's text matches."""
        nodes = self._session.tables.nodes(call.type_name)
        if isinstance(nodes, CachedNodes):
            known = self._matches.get(call)
            if known is None:
                known = np.zeros(nodes.view.layout.size + 1, np.bool_)  # the last is for `ABSENT`
                known[self._matching_rows(call, nodes)] = True
                self._matches[call] = known
            return known[nodes.rows(slots)]
        index = TextIndex.of(nodes.values(call.property, _TEXT, slots))
        mask = np.zeros(len(slots), np.bool_)
        mask[self._matching(call, index)] = True
        return mask

    def _matching_rows(self, call: ex.TextMatch, nodes: CachedNodes) -> npt.NDArray[np.int32]:
        """The rows that match: from the text index in memory, the first time from storage."""
        key = ("words", call.property)
        layout = nodes.view.layout
        if key in layout.made or layout.asked_before(key) or not self.in_storage(call):
            return self._matching(call, text_index(nodes, call.property))
        self._session.tables.memory.warming.ask(
            (id(layout), key), lambda: text_index(nodes, call.property)
        )
        found = matching_rows(nodes.view.handle, call.property, self.text(call.query) or "")
        rows = nodes.rows(nodes.space.find(single(found[ID])))
        return rows[rows >= 0]

    def in_storage(self, call: ex.TextMatch) -> bool:
        """Whether storage has an index that finds exactly what the call matches."""
        if call.function == "fuzzy" or not self.text(call.query):
            return False
        reader, key = self._session.tables.reader, TableKey.node(call.type_name)
        return reader.columns(key).is_same and has_text_index(reader.handle(key), call.property)

    def scores(self, call: ex.Bm25, slots: Slots) -> Scores:
        """The BM25 score of each node; zero where no word is shared."""
        query = self.text(call.query)
        nodes = self.whole(call.type_name)
        if query is None:
            return np.zeros(len(slots))
        index = text_index(nodes, call.property)
        # Unbound nodes have the row -1, which no index contains.
        return index.score_at(query, nodes.rows(slots), nodes.view.live)

    def whole(self, type_name: str) -> CachedNodes:
        """The cached nodes of a type, which word statistics need."""
        nodes = self._session.tables.nodes(type_name, whole=True)
        if not isinstance(nodes, CachedNodes):
            nodes = self._session.tables.cached_nodes(type_name)
        return nodes

    def _matching(self, call: ex.TextMatch, index: TextIndex) -> npt.NDArray[np.int32]:
        query = self.text(call.query)
        if query is None:
            return np.zeros(0, np.int32)
        if call.function != "fuzzy":
            return index.matching(query)
        return index.fuzzy(query, self.edits(call))

    # --- vectors ----------------------------------------------------------------------------------

    def distances(self, call: ex.Nearest, slots: Slots) -> tuple[Scores, npt.NDArray[np.bool_]]:
        """The squared distance of each node, and which have one."""
        query = self.query_vector(call)
        nodes = self._session.tables.nodes(call.type_name)
        if isinstance(nodes, CachedNodes):
            column = vector_column(nodes, call.property, call.dimension)
            rows = nodes.rows(slots)
        else:
            column = VectorColumn.of(nodes.values(call.property, _vector_type(call), slots))
            rows = np.arange(len(slots), dtype=np.int32)
        bound = rows >= 0
        distances = np.full(len(slots), np.nan)
        distances[bound] = column.distances(query, rows[bound])
        valid = bound.copy()
        valid[bound] = column.valid[rows[bound]]
        return distances, valid


def _vector_type(call: ex.Nearest) -> pa.DataType:
    return arrow_type(ValueType(Scalar.VECTOR, vector_dim=call.dimension))


def text_index(nodes: CachedNodes, property: str) -> TextIndex:
    """The text index of a property; a new version only adds its new rows."""
    column = nodes.view.column(property, _TEXT)
    return nodes.view.keep_growing(
        ("words", property),
        lambda known, start: (known or TextIndex()).extended(column.slice(start)),
    )


def vector_column(nodes: CachedNodes, property: str, dimension: int) -> VectorColumn:
    """The vectors of a property; a new version only adds its new rows."""
    type = arrow_type(ValueType(Scalar.VECTOR, vector_dim=dimension))
    column = nodes.view.column(property, type)

    def grown(known: VectorColumn | None, start: int) -> VectorColumn:
        return VectorColumn.of(column) if known is None else known.extended(column.slice(start))

    return nodes.view.keep_growing(("vectors", property), grown)
