"""Texts as tokens, by the one analyser that field and query share.

What a token is, only Lance says: its own analyser runs here too, so a search in memory finds what
an index finds. It costs most of a microsecond per word, so a column is cut into words with numpy
first, and Lance sees each distinct word once.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engines.local.adjacency import spread
from omnigraph.storage.search import analysed_words

Codes = NDArray[np.int32]


class AnalysedColumn(NamedTuple):
    """The tokens of a column of texts, one entry per occurrence, in the order of the rows."""

    codes: Codes
    """Which token: a place in the vocabulary."""
    rows: Codes
    """Which row of the column it stands in."""
    vocabulary: list[str]
    """The distinct tokens."""


def tokens(text: str) -> list[str]:
    """The tokens of one text, repetitions included."""
    return analysed_words(text)


def analysed(column: pa.Array) -> AnalysedColumn:
    """The tokens of every text of a column; null texts have none."""
    chunks, rows = _chunks(column)
    encoded = chunks.dictionary_encode()
    starts, codes, vocabulary = _tokens_of_each(encoded.dictionary.to_pylist())
    chunk_codes = encoded.indices.to_numpy()
    per_chunk = np.diff(starts)[chunk_codes]
    return AnalysedColumn(
        codes[spread(starts[chunk_codes], per_chunk)], np.repeat(rows, per_chunk), vocabulary
    )


def _byte_table() -> NDArray[np.uint8]:
    """What to make of each byte of UTF-8: 0 ends a chunk, anything else is part of it."""
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
"""A number that few texts contain."""


def _chunks(column: pa.Array) -> tuple[pa.Array, Codes]:
    """The chunks of all texts, and the row of each.

    A chunk ends at any ASCII character that is no letter or digit, and its ASCII is in lower case.
    So it is a word, unless it is not ASCII: then it may hold several words, or none.
    """
    texts = column if pa.types.is_large_string(column.type) else column.cast(pa.large_string())
    if texts.null_count:
        # The bytes behind a null are anybody's guess.
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
    # Without the bytes between them, chunks lie end to end: one string array.
    chunk_offsets = np.zeros(len(begins) + 1, np.int64)
    np.cumsum(lengths, out=chunk_offsets[1:])
    chunks = pa.Array.from_buffers(
        pa.large_string(),
        len(begins),
        [None, pa.py_buffer(chunk_offsets), pa.py_buffer(text[inside])],
    )
    return chunks, rows


def _tokens_of_each(chunks: list[str]) -> tuple[NDArray[np.int64], Codes, list[str]]:
    """The tokens of every chunk: where each chunk's begin, their codes, and the vocabulary.

    All chunks are analysed as one text, each followed by a mark.
    """
    for number in count(_MARK):
        # Digits pass the analyser unchanged. A mark that is also a word shows up too often: then
        # the next will do, for there are more numbers than words.
        mark = str(number)
        found = analysed_words(f" {mark} ".join([*chunks, ""]))
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
