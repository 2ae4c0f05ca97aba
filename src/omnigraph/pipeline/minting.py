"""Ids for records that come without one: the same each time a record is read.

A task that fails is run again, and may have been half done. So a new id is not drawn but computed
from the operation, the piece of the input and the number of the record within it. It is a ULID of
the operation's time, and recognisable: ids of this operation share their first characters, which
nobody can have known before it started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PREFIX_CHARACTERS = 16
"""Ten of time and six of chance."""
_PIECE_CHARACTERS = 4
_NUMBER_CHARACTERS = 6

PIECES_MAX = 32**_PIECE_CHARACTERS


@dataclass(frozen=True, slots=True)
class Minting:
    """The ids one operation gives out."""

    operation_id: str
    """A ULID."""

    @property
    def prefix(self) -> str:
        """What all ids of this operation start with, and no other id does."""
        return self.operation_id[:_PREFIX_CHARACTERS]

    def ids(self, piece: int, numbers: Sequence[int]) -> list[str]:
        """The ids of some records of one piece of the input."""
        start = self.prefix + _spelled(piece, _PIECE_CHARACTERS)
        return [start + _spelled(number, _NUMBER_CHARACTERS) for number in numbers]


def _spelled(value: int, characters: int) -> str:
    if value >= 32**characters:
        raise OverflowError(f"{value} does not fit {characters} characters")
    return "".join([_ALPHABET[(value >> 5 * i) & 31] for i in range(characters - 1, -1, -1)])
