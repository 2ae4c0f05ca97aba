"""Looking for some texts among many: by numbers made of them, and then for certain.

Most of the texts one meets are not those one looks for. A number made of a few bytes of a text
tells so without a hash table of texts, for a whole column at a time. Texts that agree in that are
compared.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Prints = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

_WORD = 8
_LONG = 2 * _WORD
"""Up to so many bytes, the first and the last word of a text are all of it."""

_KEEP = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
"""By the number of bytes that are wanted of a word, what keeps them."""

_SPREAD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
"""Odd numbers without a pattern: times one of them, a difference travels to the high bits."""

_SLOTS_PER_TEXT = 16
_SLOT_BITS_MAX = 26


def fingerprints(texts: pa.StringArray) -> Prints:
    """A number for each text; the same for the same text, and hardly ever for another."""
    if not len(texts):
        return np.zeros(0, np.uint64)
    _, offsets, values = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    held = np.frombuffer(values, np.uint8) if values is not None else np.zeros(0, np.uint8)
    sizes = np.diff(ends)
    least, most = int(sizes.min()), int(sizes.max())
    if least < _WORD:
        # A word of theirs reaches into the next text, or beyond the last one.
        held = np.concatenate([held[: ends[-1]], np.zeros(_WORD, np.uint8)])
    words = np.lib.stride_tricks.as_strided(held[:_WORD].view("<u8"), (len(held) - 7,), (1,))
    if _WORD <= least == most:
        return _prints_of_even(words[ends[0] :], most, len(texts))
    start = ends[:-1].astype(np.int64)
    first, last = words[start], words[start + np.maximum(sizes - _WORD, 0)]
    if least < _WORD:
        kept = _KEEP[np.minimum(sizes, _WORD)]
        first, last = first & kept, last & kept
    prints = _mixed(_mixed(sizes.astype(np.uint64), first), last)
    long = np.flatnonzero(sizes > _LONG)
    if len(long):
        third = (sizes[long] - _WORD) // 3
        inner = [words[start[long] + shift] for shift in (third, 2 * third)]
        prints[long] = _mixed(_mixed(prints[long], inner[0]), inner[1])
    return prints


def _prints_of_even(words: Prints, width: int, count: int) -> Prints:
    """The same for texts of one length, one after another: nothing has to be looked up."""
    third = (width - _WORD) // 3
    prints = np.full(count, width, np.uint64)
    for shift in (0, width - _WORD, *((third, 2 * third) if width > _LONG else ())):
        prints = _mixed(prints, words[shift::width][:count])
    return prints


def _mixed(prints: Prints, word: Prints) -> Prints:
    """Numbers in which each bit of both sides counts, most of all in the high ones."""
    prints ^= word
    prints *= _SPREAD[0]
    prints ^= prints >> np.uint64(29)
    prints *= _SPREAD[1]
    return prints


class WantedTexts:
    """Texts to look for; several threads may."""

    def __init__(self, texts: pa.StringArray) -> None:
        self._texts = texts
        prints = fingerprints(texts)
        self._order = np.argsort(prints)
        self._prints = prints[self._order]
        self.are_apart = not bool((self._prints[1:] == self._prints[:-1]).any())
        """Whether no two of them have the same fingerprint, which implies that none comes twice."""
        bits = min((_SLOTS_PER_TEXT * len(texts) + 1).bit_length(), _SLOT_BITS_MAX)
        self._shift = np.uint64(64 - bits)
        self._slots = np.zeros(1 << bits, np.bool_)
        self._slots[prints >> self._shift] = True

    def __len__(self) -> int:
        return len(self._texts)

    def among(self, texts: pa.StringArray, prints: Prints) -> tuple[Positions, Positions]:
        """Which of some texts are wanted, and which of those wanted they are."""
        at = np.flatnonzero(self._slots[prints >> self._shift])
        at = at[np.argsort(prints[at])]  # in order, they are looked up several times faster
        found = np.searchsorted(self._prints, prints[at])
        found = np.minimum(found, len(self._prints) - 1)
        is_like = self._prints[found] == prints[at]
        at, found = at[is_like], self._order[found[is_like]]
        alike = texts.take(pa.array(at))
        if self.are_apart:
            is_same = pc.equal(alike, self._texts.take(pa.array(found)))
        else:
            numbers = pc.index_in(alike, value_set=self._texts)
            is_same = numbers.is_valid()
            found = numbers.fill_null(0).to_numpy().astype(np.int64)
        chosen = is_same.to_numpy(zero_copy_only=False)
        return at[chosen], found[chosen]
