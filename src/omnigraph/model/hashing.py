"""A keyed 64-bit hash of strings, over whole Arrow columns or one at a time."""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.model.governor import current

Hashes = npt.NDArray[np.uint64]

_MASK = 2**64 - 1
_WORD = 8
_MULTIPLIER = 0x9E3779B97F4A7C15
_FINISHER = 0xD6E8FEB86659FD93
_SHIFT = 29
_LAST_SHIFT = 32


class StringHash:
    """A fast keyed hash of strings: many at once with numpy, or one in plain Python.

    Hashing an Arrow column reads its bytes eight at a time; the Python form hashes a single id
    without the fixed cost of a dozen numpy calls. The key is random per process, so that ids cannot
    be chosen to collide. Hashes never leave the process.
    """

    def __init__(self, key: int | None = None) -> None:
        self.key = secrets.randbits(64) | 1 if key is None else key

    def one(self, text: str) -> int:
        """The hash of a single string."""
        data = text.encode()
        value = (self.key ^ (len(data) * _FINISHER)) & _MASK
        for at in range(0, len(data), _WORD):
            value ^= int.from_bytes(data[at : at + _WORD], "little")
            value = (value * _MULTIPLIER) & _MASK
            value ^= value >> _SHIFT
        value = (value * _FINISHER) & _MASK
        return value ^ (value >> _LAST_SHIFT)

    def many(self, texts: pa.Array) -> Hashes:
        """The hashes of a string array without nulls."""
        starts, lengths, data = _bytes_of(texts)
        multiplier = np.uint64(_MULTIPLIER)
        finisher = np.uint64(_FINISHER)
        values = np.uint64(self.key) ^ (lengths.astype(np.uint64) * finisher)
        longest = int(lengths.max(initial=0))
        uniform = bool(len(lengths)) and int(lengths.min()) == longest
        words = _uniform_words(starts, longest, data) if uniform else None
        # Most ids of a column have one length; the others are gathered word by word, and each
        # round looks only at the strings that still have bytes left.
        padded = None if uniform else np.concatenate([data, np.zeros(_WORD, np.uint8)])
        governor = current()
        for at in range(0, longest, _WORD):
            governor.check()
            if words is not None:
                values ^= words[:, at // _WORD]
                values *= multiplier
                values ^= values >> np.uint64(_SHIFT)
                continue
            assert padded is not None
            left = np.flatnonzero(lengths > at)
            part = values[left] ^ _gathered_words(padded, starts[left] + at, lengths[left] - at)
            part *= multiplier
            part ^= part >> np.uint64(_SHIFT)
            values[left] = part
        values *= finisher
        values ^= values >> np.uint64(_LAST_SHIFT)
        return values


def _bytes_of(
    texts: pa.Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The start and length of each string, and the bytes of all of them."""
    wide = pa.types.is_large_string(texts.type)
    _, offsets_buffer, data_buffer = texts.buffers()
    if offsets_buffer is None or len(texts) == 0:
        empty = np.zeros(0, np.int64)
        return empty, empty, np.zeros(0, np.uint8)
    offsets = np.frombuffer(offsets_buffer, np.int64 if wide else np.int32)
    offsets = offsets[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    first, last = int(offsets[0]), int(offsets[-1])
    begins = (offsets[:-1] - first).astype(np.int64)
    return begins, np.diff(offsets), data[first:last]


def _uniform_words(
    starts: npt.NDArray[np.int64], length: int, data: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint64]:
    """Strings of one length as rows of 64-bit words, the last one padded with zeros."""
    width = -(-length // _WORD) * _WORD
    rows = data.reshape(len(starts), length) if length else data.reshape(len(starts), 0)
    if width != length:
        wider = np.zeros((len(starts), width), np.uint8)
        wider[:, :length] = rows
        rows = wider
    return np.ascontiguousarray(rows).view("<u8")


def _gathered_words(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], left: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """The next word of each string, bytes beyond its end as zeros."""
    windows = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
    words: npt.NDArray[np.uint64] = windows[starts]
    spare = (np.maximum(_WORD - left, 0) * 8).astype(np.uint64)
    return (words << spare) >> spare


def first_words(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """The first eight bytes of each text as a number, which sorts as these bytes do."""
    starts, lengths, data = _bytes_of(texts)
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    words = _gathered_words(padded, starts, lengths).byteswap()
    words[lengths == 0] = 0
    if texts.null_count:
        words[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    return words
