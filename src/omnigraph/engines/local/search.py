"""Evaluates the search calls of a query: text matches, BM25 scores, highlights, vector distances.

A plain search text is a bag of words, which the text index answers alone. Phrases are looked up by
their words and then checked in the texts that contain all of them; prefixes use a second index of
unstemmed words, because a stem need not begin like its word.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.base import Execution
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.nodes import CachedNodes, single
from omnigraph.engines.local.prepared import SearchCall
from omnigraph.engines.local.text_index import (
    Mask,
    Positions,
    Postings,
    TextIndex,
    WordStatistics,
    analysed,
    tokens,
    tokens_of_each,
)
from omnigraph.engines.local.vectors import VectorColumn, smallest
from omnigraph.errors import InputError, InternalError, QueryParseError
from omnigraph.model.arrow import ID, arrow_type
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query.evaluate import scalar_operand
from omnigraph.storage.search import (
    has_text_index,
    matching_rows,
    plain_words,
    written_words,
)
from omnigraph.syntax.search_text import (
    Either,
    Every,
    Phrase,
    Prefix,
    SearchTerm,
    Words,
    positive_leaves,
    search_term,
)

if TYPE_CHECKING:
    from omnigraph.engines.local.tables import Session

Scores = npt.NDArray[np.float64]

_TEXT = pa.string()


# --- columns of texts ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sought:
    """A parsed search text; ``term`` is None for a bag of words."""

    text: str
    term: SearchTerm | None = None

    @property
    def words(self) -> list[str]:
        """The tokens that count for a score, repetitions included."""
        if self.term is None:
            return tokens(self.text)
        found: list[str] = []
        for leaf in positive_leaves(self.term):
            found += _split(leaf.text)[0] if isinstance(leaf, Prefix) else tokens(leaf.text)
        return found

    @property
    def prefixes(self) -> list[str]:
        """The prefixes that count for a score."""
        if self.term is None:
            return []
        leaves = (leaf for leaf in positive_leaves(self.term) if isinstance(leaf, Prefix))
        return [prefix for leaf in leaves if (prefix := _split(leaf.text)[1]) is not None]


def _split(text: str) -> tuple[list[str], str | None]:
    """The tokens of all words but the last, and the last word as a normalized prefix."""
    words = plain_words(text)
    if not words:
        return [], None
    return [token for word in words[:-1] for token in tokens(word)], words[-1]


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A text column that can be searched."""

    index: TextIndex
    written: Callable[[], TextIndex]
    """The index of unstemmed words."""
    texts: Callable[[Positions], pa.Array]
    """The texts at some positions."""

    @staticmethod
    def of(column: pa.Array) -> TextColumn:
        """A column that is in memory."""
        return TextColumn(
            TextIndex.of(column),
            lambda: TextIndex(analyse=written_words).extended(column),
            lambda positions: column.take(pa.array(positions)),
        )

    def matching(self, sought: Sought) -> Positions:
        """The rows that match, deleted ones included, ascending."""
        if sought.term is None:
            return self.index.matching(sought.text)
        found = self._rows(sought.term)
        return np.zeros(0, np.int32) if found is None else found

    def scores(
        self, sought: Sought, live: Mask | None = None, candidates: Mask | None = None
    ) -> tuple[Positions, Scores]:
        """The live rows that match, ascending, and their BM25 scores; see `TextIndex.scores`.

        A prefix counts as one word, which occurs wherever a word begins with it; a phrase counts as
        its words.
        """
        if sought.term is None:
            return self.index.scores(sought.text, live, candidates)
        rows, scores = self.index.scores(sought.words, live, candidates, self._prefixed(sought))
        kept = np.isin(rows, self.matching(sought), assume_unique=True)
        return rows[kept], scores[kept]

    def best(
        self, sought: Sought, k: int, live: Mask | None = None, candidates: Mask | None = None
    ) -> tuple[Positions, Scores]:
        """The ``k`` rows with the highest scores, best first, and all that tie with the last."""
        positions, scores = self.scores(sought, live, candidates)
        chosen = smallest(-scores, k)
        return positions[chosen], scores[chosen]

    def score_at(self, sought: Sought, positions: Positions, live: Mask | None = None) -> Scores:
        """The score of each position; 0 where nothing matches."""
        found, scores = self.scores(sought, live)
        if not len(found):
            return np.zeros(len(positions))
        places = np.minimum(np.searchsorted(found, positions), len(found) - 1)
        return np.where(found[places] == positions, scores[places], 0.0)

    def statistics(self, sought: Sought) -> WordStatistics:
        """The statistics of this column, to be added up over the parts of a whole one."""
        return self.index.statistics(sought.words, self._prefixed(sought))

    def scores_in(self, sought: Sought, whole: WordStatistics) -> Scores:
        """The score of every row, given the statistics of the whole column."""
        scores = self.index.scores_in(sought.words, whole, self._prefixed(sought))
        if sought.term is not None:
            found = np.zeros(len(scores), np.bool_)
            found[self.matching(sought)] = True
            scores[~found] = 0.0
        return scores

    def _prefixed(self, sought: Sought) -> list[Postings]:
        return [self.written().beginning_with(prefix) for prefix in sought.prefixes]

    def _rows(self, term: SearchTerm) -> Positions | None:
        """The rows that match a term; None if the term has no word to look for."""
        match term:
            case Words():
                return self._with_all(tokens(term.text))
            case Phrase():
                wanted = tokens(term.text)
                rows = self._with_all(wanted)
                return rows if rows is None or len(wanted) < 2 else self._in_order(rows, wanted)
            case Prefix():
                words, prefix = _split(term.text)
                begun = None if prefix is None else self.written().beginning_with(prefix).positions
                return _all([self._with_all(words), begun])
            case Either():
                parts = [rows for part in term.parts if (rows := self._rows(part)) is not None]
                return np.unique(np.concatenate(parts)) if parts else None
            case Every():
                rows = _all(map(self._rows, term.wanted))
                for part in term.unwanted:
                    without = self._rows(part)
                    if rows is not None and without is not None:
                        rows = np.setdiff1d(rows, without, assume_unique=True)
                return rows

    def _with_all(self, words: Sequence[str]) -> Positions | None:
        return _all(self.index.matching([word]) for word in dict.fromkeys(words))

    def _in_order(self, rows: Positions, wanted: Sequence[str]) -> Positions:
        """Those of some rows whose texts contain the words in sequence."""
        if not len(rows):
            return rows
        column = analysed(self.texts(rows))
        codes = {word: code for code, word in enumerate(column.vocabulary)}
        count = len(column.codes) - len(wanted) + 1
        if count <= 0:
            # A repeated word of the phrase may be in texts that are shorter than the phrase.
            return rows[:0]
        follows = np.ones(count, np.bool_)
        for at, word in enumerate(wanted):
            follows &= column.codes[at : at + count] == codes.get(word, -1)
        follows &= column.rows[:count] == column.rows[len(wanted) - 1 :]
        return rows[np.unique(column.rows[:count][follows])]


def _all(parts: Iterable[Positions | None]) -> Positions | None:
    """The rows that all parts have; None is skipped."""
    found: Positions | None = None
    for rows in parts:
        if rows is not None:
            found = rows if found is None else np.intersect1d(found, rows, assume_unique=True)
    return found


# --- highlights -----------------------------------------------------------------------------------

FRAGMENTS_MAX = 3
FRAGMENT_CHARACTERS = 160
_BEFORE = 40
"""Maximum number of characters in front of the first hit of a fragment."""
_RUN = re.compile(r"[^\W_]+")
_MARKS = {"text": ("**", "**"), "html": ("<mark>", "</mark>")}


def highlights(texts: pa.Array, sought: Sought | None, style: str) -> pa.Array:
    """The fragments of each text that contain hits, with the hits marked; null for a null text.

    With the style `html` everything but the marks is escaped.
    """
    given = texts.to_pylist()
    leaves = _leaves(sought)
    runs = [[] if text is None else list(_RUN.finditer(text)) for text in given]
    words = sorted({run.group() for each in runs for run in each})
    stems = _tokens_of(words, tokens_of_each)
    starts = {word: list(map(str, plain_words(word))) for word in words} if leaves[2] else {}
    found: list[list[str] | None] = []
    for text, of_text in zip(given, runs, strict=True):
        if text is None:
            found.append(None)
            continue
        hits = _hits([run.group() for run in of_text], stems, starts, leaves)
        found.append(_fragments(text, [of_text[at].span() for at in sorted(hits)], style))
    return pa.array(found, pa.list_(pa.string()))


_Leaves = tuple[set[str], list[list[str]], list[str]]


def _leaves(sought: Sought | None) -> _Leaves:
    """The words, phrases and prefixes to be marked."""
    if sought is None:
        return set(), [], []
    if sought.term is None:
        return set(tokens(sought.text)), [], []
    single: set[str] = set()
    phrases: list[list[str]] = []
    for leaf in positive_leaves(sought.term):
        if isinstance(leaf, Phrase):
            phrases.append(tokens(leaf.text))
        else:
            single |= set(_split(leaf.text)[0] if isinstance(leaf, Prefix) else tokens(leaf.text))
    return single, [phrase for phrase in phrases if phrase], sought.prefixes


def _tokens_of(
    words: list[str], analyse: Callable[[list[str]], tuple[np.ndarray, np.ndarray, list[str]]]
) -> dict[str, list[str]]:
    bounds, codes, vocabulary = analyse(words)
    return {
        word: [vocabulary[code] for code in codes[bounds[at] : bounds[at + 1]]]
        for at, word in enumerate(words)
    }


def _hits(
    words: list[str], stems: dict[str, list[str]], starts: dict[str, list[str]], leaves: _Leaves
) -> set[int]:
    """The indexes of the words to be marked."""
    single, phrases, prefixes = leaves
    stream = [(stem, at) for at, word in enumerate(words) for stem in stems[word]]
    hits = {at for stem, at in stream if stem in single}
    for phrase in phrases:
        for first in range(len(stream) - len(phrase) + 1):
            window = stream[first : first + len(phrase)]
            if [stem for stem, _ in window] == phrase:
                hits |= set(range(window[0][1], window[-1][1] + 1))
    if prefixes:
        begun = tuple(prefixes)
        hits |= {
            at
            for at, word in enumerate(words)
            if stems[word] and any(each.startswith(begun) for each in starts[word])
        }
    return hits


def _fragments(text: str, hits: list[tuple[int, int]], style: str) -> list[str]:
    found: list[str] = []
    end = 0
    while hits and len(found) < FRAGMENTS_MAX:
        start = _word_start(text, max(end, hits[0][0] - _BEFORE), hits[0][0])
        end = _word_end(text, max(start + FRAGMENT_CHARACTERS, hits[0][1]))
        inside = [hit for hit in hits if hit[1] <= end]
        found.append(_marked(text, start, end, inside, style))
        hits = hits[len(inside) :]
    return found


def _word_start(text: str, at: int, latest: int) -> int:
    """The start of the first whole word at or after ``at``."""
    if at == 0:
        return 0
    while at < latest and text[at - 1].isalnum():
        at += 1
    return at


def _word_end(text: str, at: int) -> int:
    """The end of the last whole word before ``at``."""
    if at >= len(text):
        return len(text)
    cut = at
    while cut > at - _BEFORE and text[cut].isalnum() and text[cut - 1].isalnum():
        cut -= 1
    return cut if cut > at - _BEFORE else at


def _marked(text: str, start: int, end: int, hits: list[tuple[int, int]], style: str) -> str:
    escaped = html.escape if style == "html" else str
    before, behind = _MARKS[style]
    joined: list[tuple[int, int]] = []
    for hit in hits:
        if joined and text[joined[-1][1] : hit[0]].isspace():
            hit = (joined.pop()[0], hit[1])  # noqa: PLW2901 - neighbours have one mark
        joined.append(hit)
    parts = ["…" if text[:start].strip() else ""]
    at = start
    for first, last in joined:
        parts += [escaped(text[at:first]), before, escaped(text[first:last]), behind]
        at = last
    parts += [escaped(text[at:end]), "…" if text[end:].strip() else ""]
    return "".join(parts)


# --- calls ----------------------------------------------------------------------------------------


class SearchArguments:
    """The constant arguments of search calls, checked and evaluated once per run."""

    def __init__(self, run: Execution) -> None:
        self._run = run
        self._vectors: dict[ex.Nearest, npt.NDArray[np.float64]] = {}

    def check(self, calls: Iterable[SearchCall]) -> None:
        """Raise `InputError` for invalid arguments, even if there is nothing to search."""
        for call in calls:
            match call:
                case ex.TextMatch(function="fuzzy"):
                    self.edits(call)
                case ex.TextMatch() | ex.Bm25() | ex.Highlight():
                    self.sought(call.query)
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

    def sought(self, expression: ex.Expression) -> Sought | None:
        """What a call searches for; raises `QueryParseError` for a text that does not parse."""
        text = self.text(expression)
        if text is None:
            return None
        if not isinstance(expression, ex.TextQuery):
            return Sought(text)
        try:
            return Sought(text, search_term(expression.kind, text))
        except QueryParseError as error:
            if not isinstance(expression.text, ex.ParameterValue):
                raise
            raise QueryParseError(
                f"parameter '{expression.text.name}': {error.reason}",
                position=error.position,
                hint=error.hint,
            ) from None

    def edits(self, call: ex.TextMatch) -> int:
        """The edit distance that a fuzzy search allows."""
        edits = 2 if call.edits_max is None else self._constant(call.edits_max)
        if not isinstance(edits, int) or edits < 0:
            shown = "null" if edits is None else edits
            raise InputError(
                f"fuzzy cannot allow {shown} edits",
                hint="give zero or more edits; 2 is the default",
            )
        return edits

    def query_vector(self, call: ex.Nearest) -> npt.NDArray[np.float64]:
        """The query vector of a `nearest` call; texts are embedded."""
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

    def values(self, call: SearchCall, slots: Slots) -> pa.Array:
        """The values of a search call for some nodes."""
        match call:
            case ex.TextMatch():
                return pa.array(self.matches(call, slots))
            case ex.Highlight():
                texts = self._session.tables.nodes(call.type_name).values(
                    call.property, _TEXT, slots
                )
                return highlights(texts, self.sought(call.query), call.style)
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
        column = TextColumn.of(nodes.values(call.property, _TEXT, slots))
        mask = np.zeros(len(slots), np.bool_)
        mask[self._matching(call, column)] = True
        return mask

    def _matching_rows(self, call: ex.TextMatch, nodes: CachedNodes) -> npt.NDArray[np.int32]:
        """The rows that match: from the text index in memory, or the first time from storage."""
        key = ("words", call.property)
        layout = nodes.view.layout
        if key in layout.made or layout.asked_before(key) or not self.in_storage(call):
            return self._matching(call, text_column(nodes, call.property))
        self._session.tables.memory.warming.ask(
            (id(layout), key), lambda: text_index(nodes, call.property)
        )
        found = matching_rows(nodes.view.handle, call.property, self.text(call.query) or "")
        rows = nodes.rows(nodes.space.find(single(found[ID])))
        return rows[rows >= 0]

    def in_storage(self, call: ex.TextMatch) -> bool:
        """Whether storage has an index that finds exactly the rows that the call matches."""
        is_read = isinstance(call.query, ex.TextQuery)
        if is_read or call.function == "fuzzy" or not self.text(call.query):
            return False
        reader, key = self._session.tables.reader, TableKey.node(call.type_name)
        return reader.columns(key).is_same and has_text_index(reader.handle(key), call.property)

    def scores(self, call: ex.Bm25, slots: Slots) -> Scores:
        """The BM25 score of each node; 0 where no word is shared."""
        query = self.sought(call.query)
        nodes = self.whole(call.type_name)
        if query is None:
            return np.zeros(len(slots))
        # Unbound nodes have the row -1, which no index contains.
        return text_column(nodes, call.property).score_at(query, nodes.rows(slots), nodes.view.live)

    def whole(self, type_name: str) -> CachedNodes:
        """The cached nodes of a type, which word statistics need."""
        nodes = self._session.tables.nodes(type_name, whole=True)
        if not isinstance(nodes, CachedNodes):
            nodes = self._session.tables.cached_nodes(type_name)
        return nodes

    def _matching(self, call: ex.TextMatch, column: TextColumn) -> npt.NDArray[np.int32]:
        query = self.sought(call.query)
        if query is None:
            return np.zeros(0, np.int32)
        if call.function != "fuzzy":
            return column.matching(query)
        return column.index.fuzzy(query.text, self.edits(call))

    # --- vectors ----------------------------------------------------------------------------------

    def distances(self, call: ex.Nearest, slots: Slots) -> tuple[Scores, npt.NDArray[np.bool_]]:
        """The squared distance of each node, and which nodes have one."""
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


def text_column(nodes: CachedNodes, property: str) -> TextColumn:
    """A property as a searchable text column."""
    column = nodes.view.column(property, _TEXT)

    def written() -> TextIndex:
        return nodes.view.keep_growing(
            ("written words", property),
            lambda known, start: (known or TextIndex(analyse=written_words)).extended(
                column.slice(start)
            ),
        )

    return TextColumn(
        text_index(nodes, property), written, lambda rows: column.take(pa.array(rows))
    )


def vector_column(nodes: CachedNodes, property: str, dimension: int) -> VectorColumn:
    """The vectors of a property; a new version only adds its new rows."""
    type = arrow_type(ValueType(Scalar.VECTOR, vector_dim=dimension))
    column = nodes.view.column(property, type)

    def grown(known: VectorColumn | None, start: int) -> VectorColumn:
        return VectorColumn.of(column) if known is None else known.extended(column.slice(start))

    return nodes.view.keep_growing(("vectors", property), grown)
