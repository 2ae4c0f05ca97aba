"""The distinct tokens of an index, found by spelling or by likeness.

Tokens lie in sorted arrays of fixed width, one per length: a lookup is a binary search, and looking
for typos compares columns of characters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omnigraph.engines.local.adjacency import sorted_distinct

Codes = NDArray[np.int32]


class Vocabulary:
    """Tokens numbered from zero: shorter ones first, those of one length by code point."""

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
        """A vocabulary of distinct tokens, and the code each of them has in it."""
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
        """Memory held."""
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

    def near(self, token: str, edits_max: int) -> Codes:
        """The codes of the tokens at most so many insertions, deletions and replacements away."""
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
        """The tokens of both, and for the codes of either the new ones."""
        by_length = {}
        for length in self._by_length.keys() | other._by_length.keys():
            both = [v._by_length[length] for v in (self, other) if length in v._by_length]
            by_length[length] = sorted_distinct(np.concatenate(both))
        union = Vocabulary(by_length)
        return union, union._codes_of(self), union._codes_of(other)

    def _codes_of(self, other: Vocabulary) -> Codes:
        """The codes of all tokens of ``other``, which must be among these."""
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
