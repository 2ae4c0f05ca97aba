"""Where records lie, as users count them: by file and number, whatever the input was cut into."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.loading.pieces import InputPlan, Piece
from omnigraph.loading.records.problems import Grammar, Place, Unit, unit_of


@dataclass(frozen=True, slots=True)
class RecordPlaces:
    """The places of all records that a load has read."""

    plan: InputPlan
    grammar: Grammar
    pieces: Mapping[int, Piece]
    firsts: Mapping[int, int]
    """How many records of its file come before each piece."""
    order: Mapping[str, int]
    """The first piece of each file: files come in the order of the input."""

    @classmethod
    def of(cls, plan: InputPlan, grammar: Grammar, records: Mapping[int, int]) -> RecordPlaces:
        """The places of a plan, by how many records each of its pieces had."""
        firsts: dict[int, int] = {}
        so_far: dict[str, int] = {}
        for task in plan.tasks:
            for piece in task.pieces:
                firsts[piece.index] = so_far.get(piece.path, 0) if piece.is_range else piece.first
                so_far[piece.path] = so_far.get(piece.path, 0) + records.get(piece.index, 0)
        pieces = plan.pieces
        order = {piece.shown: number for number, piece in reversed(pieces.items())}
        return cls(plan, grammar, pieces, firsts, order)

    def first(self, piece: int) -> int:
        """How many records of its file come before a piece."""
        return self.firsts.get(piece, 0)

    def place(self, piece: int, number: int) -> Place:
        """The place of a record, by its piece and its number within it."""
        known = self.pieces.get(piece)
        if known is None:
            name, partition = self._frame(piece)
            return Place(f"{name}[{partition}]", number, "record")
        unit = _unit(known, self.grammar)
        return Place(known.shown, self.first(piece) + number, unit)

    def sort_key(self, place: Place | None, piece: int = sys.maxsize) -> tuple[int, int]:
        """The order in which problems are told; without a place they come first."""
        if place is None:
            return (-1, 0)
        return (self.order.get(place.source or "", piece), place.number)

    def _frame(self, piece: int) -> tuple[str, int]:
        first = self.plan.first_frame
        for source in self.plan.frames:
            partitions = source.frame.rdd.getNumPartitions()
            if piece < first + partitions:
                return source.name, piece - first
            first += partitions
        raise IndexError(piece)


def _unit(piece: Piece, grammar: Grammar) -> Unit:
    if piece.format == "records":
        return unit_of(grammar)
    return "line" if piece.format == "json" else "record"
