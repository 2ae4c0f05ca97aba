"""A text index in memory: analyses columns, matches words, and scores rows with BM25.

An index covers a growing range of row positions, deleted rows included; each query passes a mask of
the live ones, so that one index serves all snapshots of a table. Tokens come from Lance's own
analyser, so a search in memory finds what an index in storage finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engines.local.sorting import sorted_distinct, sorted_numbers, spread
from omnigraph.errors import InputError
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass
from omnigraph.storage.search import analysed_words

# --- postings -------------------------------------------------------------------------------------


Positions = NDArray[np.int32]
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]

BM25_K1 = 1.2
BM25_B = 0.75

_MERGE_RATIO = 4
"""A segment is merged into its predecessor unless that is this many times larger, which keeps the
number of segments logarithmic in the size of the column."""

_PIECE_BYTES = 16 << 20
"""Bytes of text that are analysed between two checks of the query's limits."""

_DENSE_SHARE = 16
"""From this fraction of all rows on, a dense array is cheaper than sorting."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """The postings of consecutive rows."""

    start: int
    """The position of the first row."""
    vocabulary: Vocabulary
    offsets: NDArray[np.int64]
    """Where the postings of each token begin; the last entry is the end."""
    positions: Positions
    """The rows of each token, ascending."""
    frequencies: NDArray[np.unsignedinteger[Any]]
    """The occurrences of the token in each of these rows."""
    lengths: NDArray[np.int32]
    """The number of tokens of each row."""
    present: Mask
    """Which rows have a text."""

    def __post_init__(self) -> None:
        # Results may be slices of it.
        self.positions.setflags(write=False)

    @property
    def nbytes(self) -> int:
        arrays = (self.offsets, self.positions, self.frequencies, self.lengths, self.present)
        return self.vocabulary.nbytes + sum(array.nbytes for array in arrays)

    def postings(self, code: int) -> slice:
        return slice(int(self.offsets[code]), int(self.offsets[code + 1]))

    def living(self, live: Mask | None) -> Mask:
        """Which rows have a text and are live."""
        if live is None:
            return self.present
        alive = live[self.start : self.start + len(self.present)]
        if len(alive) < len(self.present):
            # Rows beyond the mask were written after its snapshot.
            alive = np.concatenate([alive, np.zeros(len(self.present) - len(alive), np.bool_)])
        return alive & self.present


@dataclass(frozen=True, slots=True)
class _Extent:
    """The size of a corpus, for BM25."""

    texts: int
    words: int

    def scores(
        self, texts_with_token: int, frequencies: NDArray[Any], lengths: NDArray[Any]
    ) -> Scores:
        """The BM25 scores of texts, given term frequencies and lengths."""
        rarity = np.log1p((self.texts - texts_with_token + 0.5) / (texts_with_token + 0.5))
        relative_lengths = lengths * (self.texts / self.words)
        saturation = BM25_K1 * (1 - BM25_B + BM25_B * relative_lengths)
        scores: Scores = rarity * frequencies * (BM25_K1 + 1) / (frequencies + saturation)
        return scores


@dataclass(frozen=True, slots=True)
class WordStatistics:
    """The statistics of a whole column that BM25 needs to score the texts of a part of it."""

    texts: int = 0
    words: int = 0
    texts_with: tuple[int, ...] = ()
    """For each token of the query, the number of texts that contain it."""

    def plus(self, other: WordStatistics) -> WordStatistics:
        """The combined statistics of two parts."""
        pairs = zip_longest(self.texts_with, other.texts_with, fillvalue=0)
        return WordStatistics(
            self.texts + other.texts,
            self.words + other.words,
            tuple(one + another for one, another in pairs),
        )


class Postings(NamedTuple):
    """The rows of some words, ascending, and the occurrences in each."""

    positions: Positions
    frequencies: NDArray[Any]


class TextIndex:
    """The postings of a text column. Immutable; `extended` returns a longer one."""

    def __init__(
        self,
        segments: tuple[_Segment, ...] = (),
        analyse: Callable[[str], list[str]] = analysed_words,
    ) -> None:
        self._segments = segments
        self._analyse = analyse
        self._last_extent: tuple[Mask | None, _Extent] | None = None

    @staticmethod
    def of(column: pa.Array) -> TextIndex:
        """The index of a column whose first row is at position zero."""
        return TextIndex().extended(column)

    def __len__(self) -> int:
        """The number of positions covered."""
        if not self._segments:
            return 0
        return self._segments[-1].start + len(self._segments[-1].present)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(segment.nbytes for segment in self._segments)

    def extended(self, column: pa.Array) -> TextIndex:
        """An index that also covers the texts of the positions that follow."""
        if not len(column):
            return self
        current().check()
        size = column.nbytes
        if size > 2 * _PIECE_BYTES and len(column) > 1:
            rows = max(1, len(column) * _PIECE_BYTES // size)
            longer = self
            for start in range(0, len(column), rows):
                longer = longer.extended(column.slice(start, rows))
            return longer
        segments = [*self._segments, _segment(column, len(self), self._analyse)]
        while len(segments) > 1:
            older, newer = segments[-2:]
            if len(older.positions) + len(older.present) > _MERGE_RATIO * (
                len(newer.positions) + len(newer.present)
            ):
                break
            segments[-2:] = [_merged(older, newer)]
        return TextIndex(tuple(segments), self._analyse)

    def matching(self, query: str | Sequence[str]) -> Positions:
        """The rows, deleted ones included, that contain a token of the query, ascending."""
        wanted = set(_tokens_in(query))
        return self._rows_with(
            [code for token in wanted if (code := segment.vocabulary.code(token)) is not None]
            for segment in self._segments
        )

    def fuzzy(self, query: str, edits_max: int) -> Positions:
        """The rows, deleted ones included, with a token within ``edits_max`` edits of one of the
        query.

        An edit inserts, deletes or replaces one code point of the analysed tokens.
        """
        if edits_max < 0:
            raise InputError(
                f"fuzzy cannot allow {edits_max} edits",
                hint="give zero or more edits; 2 is the default",
            )
        wanted = set(tokens(query))
        return self._rows_with(
            {int(code) for token in wanted for code in segment.vocabulary.near(token, edits_max)}
            for segment in self._segments
        )

    def beginning_with(self, prefix: str) -> Postings:
        """The rows, deleted ones included, with words that begin with a prefix."""
        found: list[Postings] = []
        for segment in self._segments:
            for first, last in segment.vocabulary.beginning_with(prefix):
                span = slice(int(segment.offsets[first]), int(segment.offsets[last]))
                found.append(Postings(segment.positions[span], segment.frequencies[span]))
        if not found:
            return Postings(np.zeros(0, np.int32), np.zeros(0, np.int64))
        every = np.concatenate([each.positions for each in found])
        positions, place = np.unique(every, return_inverse=True)
        frequencies = np.bincount(place, np.concatenate([each.frequencies for each in found]))
        return Postings(positions, frequencies.astype(np.int64))

    def scores(
        self,
        query: str | Sequence[str],
        live: Mask | None = None,
        candidates: Mask | None = None,
        also: Sequence[Postings] = (),
    ) -> tuple[Positions, Scores]:
        """The live rows that share a token with the query, ascending, and their BM25 scores.

        Without ``live``, all rows are live. Rows beyond its end are not in its snapshot. Word
        statistics are those of all live rows with a text; ``candidates``, of the same length, only
        selects the rows to score. A word that is repeated in the query counts each time. Each of
        ``also`` counts as one more word.

        Statistics of a read-only mask are cached until another mask is used.
        """
        extent = self._extent(live)
        parts = [
            part
            for token in _tokens_in(query)
            for part in self._token_scores(token, live, candidates, extent)
        ]
        for positions, frequencies in also:
            if live is not None:
                positions, frequencies = _kept(positions, frequencies, live)  # noqa: PLW2901
            texts_with = len(positions)
            if candidates is not None:
                positions, frequencies = _kept(positions, frequencies, candidates)  # noqa: PLW2901
            if len(positions):
                lengths = self._lengths_at(positions)
                parts.append((positions, extent.scores(texts_with, frequencies, lengths)))
        return _total(parts, len(self))

    def statistics(
        self, query: str | Sequence[str], also: Sequence[Postings] = ()
    ) -> WordStatistics:
        """The statistics of this index, to be added up over the parts of a whole column."""
        extent = self._extent(None)
        counts = [self._texts_with(token) for token in _tokens_in(query)]
        counts += [len(each.positions) for each in also]
        return WordStatistics(extent.texts, extent.words, tuple(counts))

    def scores_in(
        self, query: str | Sequence[str], whole: WordStatistics, also: Sequence[Postings] = ()
    ) -> Scores:
        """The BM25 score of every row, given the statistics of the whole column."""
        extent = _Extent(whole.texts, whole.words)
        scores = np.zeros(len(self))
        wanted = _tokens_in(query)
        for token, texts_with_token in zip(wanted, whole.texts_with, strict=False):
            for segment in self._segments:
                code = segment.vocabulary.code(token)
                if code is None:
                    continue
                span = segment.postings(code)
                positions = segment.positions[span]
                lengths = segment.lengths[positions - segment.start]
                scores[positions] += extent.scores(
                    texts_with_token, segment.frequencies[span], lengths
                )
        for each, texts_with in zip(also, whole.texts_with[len(wanted) :], strict=False):
            if not len(each.positions):
                continue
            lengths = self._lengths_at(each.positions)
            scores[each.positions] += extent.scores(texts_with, each.frequencies, lengths)
        return scores

    def _lengths_at(self, positions: Positions) -> NDArray[np.int32]:
        """The number of tokens of the texts at ascending positions."""
        lengths = np.zeros(len(positions), np.int32)
        for segment in self._segments:
            first, last = np.searchsorted(
                positions, [segment.start, segment.start + len(segment.lengths)]
            )
            lengths[first:last] = segment.lengths[positions[first:last] - segment.start]
        return lengths

    def _texts_with(self, token: str) -> int:
        codes = ((segment, segment.vocabulary.code(token)) for segment in self._segments)
        found = (segment.postings(code) for segment, code in codes if code is not None)
        return sum(span.stop - span.start for span in found)

    def _rows_with(self, codes: Iterable[Iterable[int]]) -> Positions:
        """The rows that contain one of some tokens, given by their codes in each segment."""
        return _union(
            (
                segment.positions[segment.postings(code)]
                for segment, wanted in zip(self._segments, codes, strict=True)
                for code in wanted
            ),
            len(self),
        )

    def _extent(self, live: Mask | None) -> _Extent:
        """The number and total length of live texts."""
        known = self._last_extent
        if known is not None and known[0] is live:
            return known[1]
        texts = words = 0
        for segment in self._segments:
            living = segment.living(live)
            texts += int(np.count_nonzero(living))
            words += int(np.sum(segment.lengths, where=living, dtype=np.int64))
        extent = _Extent(texts, words)
        if live is None or not live.flags.writeable:
            self._last_extent = (live, extent)
        return extent

    def _token_scores(
        self, token: str, live: Mask | None, candidates: Mask | None, extent: _Extent
    ) -> Iterator[tuple[Positions, Scores]]:
        """What one token adds to the scores of its rows, segment by segment."""
        found: list[tuple[Positions, NDArray[Any], NDArray[Any]]] = []
        texts_with_token = 0
        for segment in self._segments:
            code = segment.vocabulary.code(token)
            if code is None:
                continue
            span = segment.postings(code)
            positions, frequencies = segment.positions[span], segment.frequencies[span]
            if live is not None:
                positions, frequencies = _kept(positions, frequencies, live)
            texts_with_token += len(positions)
            if candidates is not None:
                positions, frequencies = _kept(positions, frequencies, candidates)
            if len(positions):
                found.append((positions, frequencies, segment.lengths[positions - segment.start]))
        for positions, frequencies, lengths in found:
            yield positions, extent.scores(texts_with_token, frequencies, lengths)


def _kept(
    positions: Positions, frequencies: NDArray[Any], mask: Mask
) -> tuple[Positions, NDArray[Any]]:
    """The postings of the rows in a mask; rows beyond its end are left out."""
    known = int(np.searchsorted(positions, len(mask)))
    kept = mask[positions[:known]]
    return positions[:known][kept], frequencies[:known][kept]


def _total(parts: Sequence[tuple[Positions, Scores]], size: int) -> tuple[Positions, Scores]:
    """The sum of several lists of scores, each with distinct positions below ``size``."""
    if len(parts) == 1:
        return parts[0]
    found = _union((positions for positions, _ in parts), size)
    # Both ways add scores in the order of the parts, so rounding is the same.
    if len(found) > size // _DENSE_SHARE:
        by_position = np.zeros(size)
        for positions, scores in parts:
            by_position[positions] += scores
        return found, by_position[found]
    total = np.zeros(len(found))
    for positions, scores in parts:
        total[np.searchsorted(found, positions)] += scores
    return found, total


def _union(parts: Iterable[Positions], size: int) -> Positions:
    """The distinct positions of several lists of distinct positions below ``size``, ascending."""
    lists = list(parts)
    if not lists:
        return np.zeros(0, np.int32)
    if len(lists) == 1:
        return lists[0]
    if sum(map(len, lists)) > size // _DENSE_SHARE:
        marked = np.zeros(size, np.bool_)
        for positions in lists:
            marked[positions] = True
        return np.flatnonzero(marked).astype(np.int32)
    return sorted_distinct(np.concatenate(lists))


def _segment(column: pa.Array, start: int, analyse: Callable[[str], list[str]]) -> _Segment:
    """The postings of a column whose first row is at position ``start``."""
    occurrences = analysed(column, analyse)
    vocabulary, new_codes = Vocabulary.of(occurrences.vocabulary)
    # One number per occurrence that sorts by token, then by row.
    keys = new_codes[occurrences.codes].astype(np.int64) << 32 | occurrences.rows
    keys = sorted_numbers(keys)
    is_new = np.ones(len(keys), np.bool_)
    is_new[1:] = keys[1:] != keys[:-1]
    firsts = np.flatnonzero(is_new)
    postings = keys[firsts]
    per_token = np.bincount(postings >> 32, minlength=len(vocabulary))
    return _Segment(
        start,
        vocabulary,
        _offsets(per_token),
        (postings & 0xFFFFFFFF).astype(np.int32) + np.int32(start),
        _narrow(np.diff(firsts, append=len(keys))),
        np.bincount(occurrences.rows, minlength=len(column)).astype(np.int32),
        pc.is_valid(column).to_numpy(zero_copy_only=False),
    )


def _merged(older: _Segment, newer: _Segment) -> _Segment:
    """Two neighbouring segments as one."""
    vocabulary, *codes = older.vocabulary.merged(newer.vocabulary)
    per_token = np.zeros((2, len(vocabulary)), np.int64)
    for counts, new_codes, segment in zip(per_token, codes, (older, newer), strict=True):
        counts[new_codes] = np.diff(segment.offsets)
    offsets = _offsets(per_token.sum(axis=0))
    positions = np.empty(offsets[-1], np.int32)
    frequencies = np.empty(
        offsets[-1], np.promote_types(older.frequencies.dtype, newer.frequencies.dtype)
    )
    # The rows of a token: first those of the older segment, then of the newer one.
    begins = (offsets[:-1], offsets[:-1] + per_token[0])
    for begin, new_codes, segment in zip(begins, codes, (older, newer), strict=True):
        shifts = np.repeat(begin[new_codes] - segment.offsets[:-1], np.diff(segment.offsets))
        places = np.arange(len(segment.positions)) + shifts
        positions[places] = segment.positions
        frequencies[places] = segment.frequencies
    return _Segment(
        older.start,
        vocabulary,
        offsets,
        positions,
        frequencies,
        np.concatenate([older.lengths, newer.lengths]),
        np.concatenate([older.present, newer.present]),
    )


def _offsets(per_token: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(per_token) + 1, np.int64)
    np.cumsum(per_token, out=offsets[1:])
    return offsets


def _narrow(numbers: NDArray[np.int64]) -> NDArray[np.unsignedinteger[Any]]:
    """The numbers in the smallest type that holds them; most are 1."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


# --- vocabulary -----------------------------------------------------------------------------------


Codes = NDArray[np.int32]


class Vocabulary:
    """Distinct tokens, numbered from zero: by length, then by code point.

    Tokens of one length are a sorted array of fixed width: a lookup is a binary search, and fuzzy
    search compares columns of characters.
    """

    def __init__(self, by_length: dict[int, NDArray[np.str_]]) -> None:
        self._by_length = dict(sorted(by_length.items()))
        self._first_codes: dict[int, int] = {}
        size = 0
        for length, words in self._by_length.items():
            self._first_codes[length] = size
            size += len(words)
        self._size = size

    @staticmethod
    def of(tokens: Sequence[str]) -> tuple[Vocabulary, Codes]:
        """A vocabulary of distinct tokens, and the code of each."""
        lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
        by_length: dict[int, NDArray[np.str_]] = {}
        codes = np.empty(len(tokens), np.int32)
        first = 0
        for length in np.flatnonzero(np.bincount(lengths)):
            places = np.flatnonzero(lengths == length)
            words = np.array([tokens[place] for place in places.tolist()])
            order = np.argsort(words)
            by_length[int(length)] = words[order]
            codes[places[order]] = np.arange(first, first + len(places))
            first += len(places)
        return Vocabulary(by_length), codes

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(words.nbytes for words in self._by_length.values())

    def code(self, token: str) -> int | None:
        """The code of a token, or None."""
        words = self._by_length.get(len(token))
        if words is None:
            return None
        place = int(words.searchsorted(token))
        if place == len(words) or words[place] != token:
            return None
        return self._first_codes[len(token)] + place

    def beginning_with(self, prefix: str) -> Iterator[tuple[int, int]]:
        """The codes of the tokens that begin with a prefix, as half-open ranges."""
        for length, words in self._by_length.items():
            if length < len(prefix):
                continue
            begins = words.astype(f"<U{len(prefix)}")
            first = int(begins.searchsorted(prefix))
            last = int(begins.searchsorted(prefix, side="right"))
            if first < last:
                yield self._first_codes[length] + first, self._first_codes[length] + last

    def near(self, token: str, edits_max: int) -> Codes:
        """The codes of the tokens within ``edits_max`` insertions, deletions and replacements."""
        found = [np.zeros(0, np.int32)]
        for length, words in self._by_length.items():
            if abs(length - len(token)) > edits_max:
                continue
            if edits_max >= max(length, len(token)):
                close = np.arange(len(words))
            else:
                characters = words.view(np.uint32).reshape(len(words), length)
                close = np.flatnonzero(_distances(token, characters, edits_max) <= edits_max)
            found.append((close + self._first_codes[length]).astype(np.int32))
        return np.concatenate(found)

    def merged(self, other: Vocabulary) -> tuple[Vocabulary, Codes, Codes]:
        """The tokens of both, and the new codes for the old ones of each."""
        by_length = {}
        for length in self._by_length.keys() | other._by_length.keys():
            both = [v._by_length[length] for v in (self, other) if length in v._by_length]
            by_length[length] = sorted_distinct(np.concatenate(both))
        union = Vocabulary(by_length)
        return union, union._codes_of(self), union._codes_of(other)

    def _codes_of(self, other: Vocabulary) -> Codes:
        """The codes of all tokens of ``other``, all of which have to be in this one."""
        codes = np.empty(len(other), np.int32)
        for length, words in other._by_length.items():
            first = other._first_codes[length]
            places = self._by_length[length].searchsorted(words)
            codes[first : first + len(words)] = places + self._first_codes[length]
        return codes


def _distances(token: str, words: NDArray[np.uint32], edits_max: int) -> NDArray[np.int16]:
    """Levenshtein distances to words of one length; exact up to ``edits_max``, else above it.

    The usual table, one column per character of the words and one row per character of the token,
    computed for all words at once. Only a band around its diagonal can hold small distances.
    """
    count, length = words.shape
    columns = np.ascontiguousarray(words.T)
    far = np.full(count, edits_max + 1, np.int16)
    above = [np.full(count, min(j, edits_max + 1), np.int16) for j in range(length + 1)]
    for i, character in enumerate(token, 1):
        row = [far] * (length + 1)
        if i <= edits_max:
            row[0] = np.full(count, i, np.int16)
        for j in range(max(1, i - edits_max), min(length, i + edits_max) + 1):
            cell = above[j - 1] + (columns[j - 1] != ord(character))
            np.minimum(cell, above[j] + 1, out=cell)
            np.minimum(cell, row[j - 1] + 1, out=cell)
            row[j] = cell
        above = row
    return above[length]


# --- analyser -------------------------------------------------------------------------------------


class AnalysedColumn(NamedTuple):
    """The tokens of a column of texts, one entry per occurrence, in the order of the rows."""

    codes: Codes
    """The index in the vocabulary of each token."""
    rows: Codes
    """The row of each token."""
    vocabulary: list[str]
    """The distinct tokens."""


def tokens(text: str) -> list[str]:
    """The tokens of one text, repetitions included."""
    return analysed_words(text)


def _tokens_in(query: str | Sequence[str]) -> Sequence[str]:
    """The tokens of a query, which may be a list of tokens already."""
    return tokens(query) if isinstance(query, str) else query


def analysed(
    column: pa.Array, analyse: Callable[[str], list[str]] = analysed_words
) -> AnalysedColumn:
    """The tokens of every text of a column; null texts have none."""
    chunks, rows = _chunks(column)
    encoded = chunks.dictionary_encode()
    starts, codes, vocabulary = tokens_of_each(encoded.dictionary.to_pylist(), analyse)
    chunk_codes = encoded.indices.to_numpy()
    per_chunk = np.diff(starts)[chunk_codes]
    return AnalysedColumn(
        codes[spread(starts[chunk_codes], per_chunk)], np.repeat(rows, per_chunk), vocabulary
    )


def _byte_table() -> NDArray[np.uint8]:
    """Maps each byte of UTF-8 to 0 if it ends a chunk, else to its lower-case form."""
    table = np.zeros(256, np.uint8)
    for byte in range(128):
        character = chr(byte)
        if character.isalnum():
            table[byte] = ord(character.lower())
    # A byte outside ASCII is part of a longer character, which may or may not be a letter.
    table[128:] = np.arange(128, 256)
    return table


_CHUNK_BYTES = _byte_table()

_MARK = 7_305_918_264
"""An arbitrary number that few texts contain."""


def _chunks(column: pa.Array) -> tuple[pa.Array, Codes]:
    """The chunks of all texts, and the row of each.

    A chunk ends at any ASCII character that is no letter or digit, and its ASCII is lower-cased. An
    ASCII chunk is a word; any other may hold several words, or none. Lance's analyser takes most of
    a microsecond per word, so each distinct chunk is analysed once.
    """
    texts = column if pa.types.is_large_string(column.type) else column.cast(pa.large_string())
    if texts.null_count:
        # The bytes of a null are undefined.
        texts = texts.fill_null("")
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    data = texts.buffers()[2]
    if not len(texts) or offsets[-1] == offsets[0] or data is None:
        return pa.array([], pa.large_string()), np.zeros(0, np.int32)
    row_offsets = offsets - offsets[0]
    text = _CHUNK_BYTES[np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]]
    inside = text != 0
    # A chunk begins where a byte belongs to one and its predecessor, if in the same row, does not,
    # and ends likewise.
    apart = np.empty(len(text) + 1, np.bool_)
    apart[0] = apart[-1] = True
    np.logical_not(inside[:-1] & inside[1:], out=apart[1:-1])
    apart[row_offsets] = True
    begins = np.flatnonzero(apart[:-1] & inside)
    lengths = np.flatnonzero(apart[1:] & inside) + 1 - begins
    per_row = np.diff(np.searchsorted(begins, row_offsets))
    rows = np.repeat(np.arange(len(texts), dtype=np.int32), per_row)
    # Without the bytes between them the chunks are contiguous: one string array.
    chunk_offsets = np.zeros(len(begins) + 1, np.int64)
    np.cumsum(lengths, out=chunk_offsets[1:])
    chunks = pa.Array.from_buffers(
        pa.large_string(),
        len(begins),
        [None, pa.py_buffer(chunk_offsets), pa.py_buffer(text[inside])],
    )
    return chunks, rows


def tokens_of_each(
    chunks: list[str], analyse: Callable[[str], list[str]] = analysed_words
) -> tuple[NDArray[np.int64], Codes, list[str]]:
    """The tokens of every chunk: where each chunk's tokens begin, their codes, and the vocabulary.

    All chunks are analysed as one text, with a separator after each.
    """
    for number in count(_MARK):
        # Digits pass the analyser unchanged. If the separator is also a word of the text it occurs
        # too often, and the next number is tried.
        mark = str(number)
        found = analyse(f" {mark} ".join([*chunks, ""]))
        if found.count(mark) == len(chunks):
            break
    starts = [0]
    codes: list[int] = []
    vocabulary: dict[str, int] = {}
    for token in found:
        if token == mark:
            starts.append(len(codes))
        else:
            codes.append(vocabulary.setdefault(token, len(vocabulary)))
    return np.array(starts, np.int64), np.array(codes, np.int32), list(vocabulary)
