"""Ids for records that come without one: the same each time a record is read.

A task that fails is run again, and may have been half done. So a new id is not drawn but computed
from the operation, the piece of the input and the number of the record within it. It is a ULID of
the operation's time, and recognisable: ids of this operation share their first characters, which
nobody can have known before it started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_LETTERS = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_PREFIX_CHARACTERS = 16
"""Ten of time and six of chance."""
_PIECE_CHARACTERS = 4
_NUMBER_CHARACTERS = 6

_CHARACTERS = _PREFIX_CHARACTERS + _PIECE_CHARACTERS + _NUMBER_CHARACTERS

PIECES_MAX = 32**_PIECE_CHARACTERS
NUMBERS_MAX = 32**_NUMBER_CHARACTERS


@dataclass(frozen=True, slots=True)
class Minting:
    """The ids one operation gives out."""

    operation_id: str
    """A ULID."""

    @property
    def prefix(self) -> str:
        """What all ids of this operation start with, and no other id does."""
        return self.operation_id[:_PREFIX_CHARACTERS]

    def ids(self, piece: int, numbers: Sequence[int] | pa.Int64Array) -> pa.StringArray:
        """The ids of some records of one piece of the input."""
        given = np.asarray(numbers, np.int64)
        if piece >= PIECES_MAX or (len(given) and int(given.max()) >= NUMBERS_MAX):
            raise OverflowError(f"record {given.max()} of piece {piece} has no room in an id")
        start = np.frombuffer(self.prefix.encode(), np.uint8)
        letters = np.empty((len(given), _CHARACTERS), np.uint8)
        letters[:, : len(start)] = start
        # Both numbers in base 32, the most significant digit first.
        at = len(start)
        for value, digits in ((np.int64(piece), _PIECE_CHARACTERS), (given, _NUMBER_CHARACTERS)):
            for place in range(digits):
                letters[:, at] = _LETTERS[(value >> 5 * (digits - 1 - place)) & 31]
                at += 1
        offsets = np.arange(len(given) + 1, dtype=np.int32) * np.int32(_CHARACTERS)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
        return pa.Array.from_buffers(pa.string(), len(given), buffers)
